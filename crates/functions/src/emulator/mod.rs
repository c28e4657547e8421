//! A small emulator of AWS Lambda for one machine: functions are processes.
//!
//! It answers the parts of Lambda's API that Tidemark uses (create, configure, remove, invoke) and the Runtime API for
//! its functions. As the cloud does, it *freezes* an instance that waits for its next event (SIGSTOP), and thaws it
//! with the event. It starts another instance if all are busy, ends one that runs for too long, and counts durations in
//! billing units. Unlike the cloud, it checks no signatures and no memory, and runs one program whatever zip a function
//! is made from. It takes an instance back (*reclaims* it) only when it is told to.

mod http;
mod instance;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::cost::billed_ms;
use instance::{Instance, Outcome};

/// Functions that there can be.
const FUNCTIONS_MAX: usize = 4096;
/// Instances that there can be of one.
const INSTANCES_MAX: usize = 8;
/// A program that does not ask for its first event by then is broken.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// How long an invocation may run, unless the function says otherwise.
const TIMEOUT_S: u64 = 900;

/// The configuration of an emulator.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address on which it listens.
    pub listen: SocketAddr,
    /// The functions' program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Durations are billed in units of this.
    pub unit_ms: u64,
    /// Whether instances are stopped between two events.
    pub freezes: bool,
}

/// The bill of a function's invocations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bill {
    /// How many.
    pub invocations: u64,
    /// Their durations in ms, in whole units.
    pub billed_ms: u64,
    /// The same with memory.
    pub gb_seconds: f64,
    /// Instances that were started.
    pub cold_starts: u64,
    /// Instances that were taken back.
    pub reclaimed: u64,
}

impl Bill {
    fn add(&mut self, other: &Self) {
        self.invocations += other.invocations;
        self.billed_ms += other.billed_ms;
        self.gb_seconds += other.gb_seconds;
        self.cold_starts += other.cold_starts;
        self.reclaimed += other.reclaimed;
    }
}

#[derive(Debug)]
struct Function {
    memory_mib: u64,
    timeout_s: u64,
    instances: Vec<Arc<Instance>>,
    bill: Bill,
}

/// Why an invocation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    NotFound,
    Throttled,
    Function(String),
}

struct Inner {
    config: Config,
    address: SocketAddr,
    functions: Mutex<BTreeMap<String, Function>>,
    instances: Mutex<HashMap<u64, Arc<Instance>>>,
    next_id: AtomicU64,
}

/// The running emulator. Its functions' processes end with it.
#[derive(Clone)]
pub struct Emulator {
    inner: Arc<Inner>,
    _accepting: Arc<AbortOnDrop>,
}

/// An instance, its process, and where its Runtime API listens.
type Started = (Arc<Instance>, tokio::process::Child, tokio::net::TcpListener);

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulator")
            .field("address", &self.inner.address)
            .finish_non_exhaustive()
    }
}

impl Emulator {
    /// Starts one on the runtime that it is called in.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn start(config: Config) -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind(config.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let inner = Arc::new(Inner {
            config,
            address,
            functions: Mutex::default(),
            instances: Mutex::default(),
            next_id: AtomicU64::new(1),
        });
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let accepting = tokio::spawn(http::accept(listener, Arc::clone(&inner)));
        Ok(Self {
            inner,
            _accepting: Arc::new(AbortOnDrop(accepting)),
        })
    }

    /// The address on which it listens: with `http://` before it, it is the endpoint of Lambda's API.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// Makes a function. Whether there was room for it.
    pub fn create(&self, name: &str, memory_mib: u64) -> bool {
        self.inner.create(name, memory_mib, TIMEOUT_S)
    }

    /// Takes all instances of a function back, busy or not, as the cloud may at any time. How many there were.
    pub fn reclaim(&self, name: &str) -> usize {
        self.inner.reclaim(name)
    }

    /// Takes one instance of a function back: the one that was started first, or last. Whether there was one.
    pub fn reclaim_one(&self, name: &str, is_first: bool) -> bool {
        self.inner.reclaim_one(name, is_first)
    }

    /// Instances of a function that there are.
    pub fn instances_of(&self, name: &str) -> usize {
        let functions = self.inner.functions.lock();
        functions.get(name).map_or(0, |function| function.instances.len())
    }

    /// The bill of all functions' invocations.
    pub fn bill(&self) -> Bill {
        let mut all = Bill::default();
        self.inner
            .functions
            .lock()
            .values()
            .for_each(|function| all.add(&function.bill));
        all
    }

    /// Instances that there are.
    pub fn instances(&self) -> usize {
        self.inner.instances.lock().len()
    }
}

impl Inner {
    fn create(&self, name: &str, memory_mib: u64, timeout_s: u64) -> bool {
        let mut functions = self.functions.lock();
        if functions.len() >= FUNCTIONS_MAX && !functions.contains_key(name) {
            return false;
        }
        let function = Function {
            memory_mib,
            timeout_s,
            instances: Vec::new(),
            bill: Bill::default(),
        };
        functions.insert(name.into(), function);
        true
    }

    fn reclaim(&self, name: &str) -> usize {
        let mut functions = self.functions.lock();
        let Some(function) = functions.get_mut(name) else {
            return 0;
        };
        let taken = std::mem::take(&mut function.instances);
        self.end(function, &taken);
        taken.len()
    }

    fn reclaim_one(&self, name: &str, is_first: bool) -> bool {
        let mut functions = self.functions.lock();
        let Some(function) = functions
            .get_mut(name)
            .filter(|function| !function.instances.is_empty())
        else {
            return false;
        };
        let at = if is_first { 0 } else { function.instances.len() - 1 };
        let taken = function.instances.remove(at);
        self.end(function, &[taken]);
        true
    }

    fn end(&self, function: &mut Function, taken: &[Arc<Instance>]) {
        function.bill.reclaimed += taken.len() as u64;
        taken.iter().for_each(|instance| instance.kill());
        let mut instances = self.instances.lock();
        taken.iter().for_each(|instance| drop(instances.remove(&instance.id())));
    }

    /// Drops an instance whose process has ended.
    fn ended(&self, name: &str, id: u64) {
        self.instances.lock().remove(&id);
        if let Some(function) = self.functions.lock().get_mut(name) {
            function.instances.retain(|instance| instance.id() != id);
        }
    }

    async fn invoke(self: &Arc<Self>, name: &str, event: Bytes) -> Result<Bytes, Failure> {
        let (instance, memory_mib, timeout_s) = self.instance(name)?;
        let request = format!(
            "{:08x}-{:016x}",
            instance.id(),
            self.next_id.fetch_add(1, Ordering::Relaxed)
        );
        let timeout = Duration::from_secs(timeout_s);
        if !instance.is_started(START_PATIENCE).await {
            instance.kill();
            return Err(Failure::Function("the program did not ask for an event".into()));
        }
        let began = Instant::now();
        let answered = tokio::time::timeout(timeout, instance.run(request, event, timeout)).await;
        self.charge(name, began.elapsed(), memory_mib);
        match answered {
            Ok(Some(Outcome::Response(body))) => Ok(body),
            Ok(Some(Outcome::Error(body))) => Err(Failure::Function(String::from_utf8_lossy(&body).into_owned())),
            Ok(None) => Err(Failure::Function("the instance ended".into())),
            Err(_) => {
                instance.kill();
                Err(Failure::Function(format!("it timed out after {timeout_s} s")))
            }
        }
    }

    fn charge(&self, name: &str, took: Duration, memory_mib: u64) {
        let billed_ms = billed_ms(took, self.config.unit_ms);
        if let Some(function) = self.functions.lock().get_mut(name) {
            function.bill.invocations += 1;
            function.bill.billed_ms += billed_ms;
            function.bill.gb_seconds += billed_ms as f64 / 1000.0 * memory_mib as f64 / 1024.0;
        }
    }

    /// Its process, and where its Runtime API listens.
    fn start_instance(&self, id: u64, name: &str, memory_mib: u64) -> std::io::Result<Started> {
        let listener = std::net::TcpListener::bind((self.config.listen.ip(), 0))?;
        listener.set_nonblocking(true)?;
        let (instance, child) = Instance::start(id, name, memory_mib, &self.config, listener.local_addr()?)?;
        Ok((Arc::new(instance), child, tokio::net::TcpListener::from_std(listener)?))
    }

    /// An instance that is free, taken; or a new one.
    fn instance(self: &Arc<Self>, name: &str) -> Result<(Arc<Instance>, u64, u64), Failure> {
        let mut functions = self.functions.lock();
        let function = functions.get_mut(name).ok_or(Failure::NotFound)?;
        let (memory_mib, timeout_s) = (function.memory_mib, function.timeout_s);
        if let Some(free) = function.instances.iter().find(|instance| instance.take()) {
            return Ok((Arc::clone(free), memory_mib, timeout_s));
        }
        if function.instances.len() >= INSTANCES_MAX {
            return Err(Failure::Throttled);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let started = self.start_instance(id, name, memory_mib);
        let started = started.map_err(|error| Failure::Function(format!("the program does not start: {error}")));
        let (instance, child, listener) = started?;
        function.instances.push(Arc::clone(&instance));
        function.bill.cold_starts += 1;
        self.instances.lock().insert(id, Arc::clone(&instance));
        let (this, name, ending) = (Arc::clone(self), name.to_owned(), Arc::clone(&instance));
        let answering = tokio::spawn(http::accept_runtime(listener, Arc::clone(&instance)));
        tokio::spawn(async move {
            let mut child = child;
            let _ = child.wait().await;
            answering.abort();
            ending.has_ended();
            this.ended(&name, id);
        });
        Ok((instance, memory_mib, timeout_s))
    }
}
