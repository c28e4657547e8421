//! The running agent: everything put together.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::{Mutex, RwLock};
use tidemark_cachelet::choose::Kind;
use tidemark_cachelet::config::{Config, Promise};
use tidemark_gateway::access::Entry;
use tidemark_gateway::coherent::{Coherent, ObjectStore};
use tidemark_gateway::{Credentials, Origins};
use tidemark_types::TenantId;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::bodies::Engine;
use crate::budgets::Budgets;
use crate::change::change_app;
use crate::coordinator::{Coordinator, Node, Parts, Seen};
use crate::domains::{Domain, Domains};
use crate::error::AgentError;
use crate::etcd::{Etcd, EtcdError, Write};
use crate::host::{Note, STORE_CALLS_MAX, Shell};
use crate::instances::{Instances, LifeEvent};
use crate::layout::{AppRecord, PREFIX, S3_KEY, SECRET_KEY, app_key};
use crate::objects::Objects;
use crate::peers::{Packet, Peers, Secret};
use crate::tuning::{Tuner, Tuning};

/// How often cores are asked whether they want to be woken: their shortest times are ten times as long.
const TICK: Duration = Duration::from_millis(20);
/// etcd must answer by then when the agent starts.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// The interval at which a leaving agent looks whether others have let it leave.
const LEAVE_LOOK: Duration = Duration::from_millis(20);
/// The length of a secret that is made.
const SECRET_BYTES: usize = 32;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The node's name.
    pub node: String,
    /// Addresses of etcd.
    pub etcd: String,
    /// The address on which other agents connect; port 0 takes a free one.
    pub peer: SocketAddr,
    /// The address at which other agents reach that, if it is another one.
    pub advertise: Option<SocketAddr>,
    /// The file with the secret that all agents share; without one it is in etcd.
    pub secret_file: Option<PathBuf>,
    /// The cluster of nodes that this one is in.
    pub cluster: u32,
    /// Applications that are served from the start, and created if they are not there.
    pub apps: Vec<String>,
    /// The buckets.
    pub origins: Origins,
    /// The credentials that sign requests to them.
    pub credentials: Option<Credentials>,
    /// Threads.
    pub workers: usize,
    /// The limit of the copies of an application whose instances are not known.
    pub budget_bytes: u64,
    /// How configurations are chosen; `None` leaves them as they are.
    pub chooser: Option<Kind>,
    /// The limit of choosing in the agent's processor time, in percent; [`crate::tuning::PERCENT`] is usual.
    pub choosing_percent: u64,
    /// The folder of the host's control groups.
    pub cgroup_root: PathBuf,
    /// The memory that has the bytes of copies; without one cachelets have them themselves.
    pub engine: Option<Engine>,
}

/// The running agent.
#[derive(Debug)]
pub struct Agent {
    runtime: Mutex<Option<Runtime>>,
    /// The thread that follows the instances' memory, and what ends it.
    budgets: Mutex<Option<JoinHandle<()>>>,
    has_ended: Arc<AtomicBool>,
    handle: Handle,
    etcd: Etcd,
    node: Node,
    bound: SocketAddr,
    budget_bytes: u64,
    shell: Arc<Shell>,
    pub(crate) domains: Arc<Domains>,
    pub(crate) instances: Arc<Instances>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) tuning: Arc<Tuning>,
    apps_changed: watch::Receiver<u64>,
    unused: watch::Sender<Option<u64>>,
    s3_key: Vec<u8>,
}

impl Agent {
    /// Connects to etcd, binds the address and starts the threads.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub fn start(config: &AgentConfig) -> Result<Self, AgentError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.workers.max(1))
            .thread_name("tidemark-s3")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let etcd = Etcd::new(&config.etcd)?;
        let address = config.peer;
        let bind = |source| AgentError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let secret = runtime.block_on(secret(&etcd, config))?;
        let s3_key = runtime.block_on(patiently(|| shared_bytes(&etcd, S3_KEY)))?;
        let (notes, heard) = mpsc::unbounded_channel();
        let shell = Arc::new(Shell {
            store: ObjectStore::new(config.origins.clone(), config.credentials.clone())?,
            peers: Peers::new(secret, handle.clone()),
            addresses: RwLock::default(),
            hosts: RwLock::default(),
            notes,
            runtime: handle.clone(),
            calls: Arc::new(Semaphore::new(STORE_CALLS_MAX)),
            pace: crate::tuning::StorePace::default(),
            engine: config.engine.clone(),
        });
        let node = Node {
            name: config.node.clone(),
            address: advertised(config, bound),
            cluster: config.cluster,
        };
        let (domains, instances, seen) = (Arc::default(), Arc::default(), Arc::default());
        let tuning = Arc::new(Tuning::new(config.chooser, config.choosing_percent, node.clone()));
        let (changed, apps_changed) = watch::channel(0);
        let agent = Self {
            handle: handle.clone(),
            etcd: etcd.clone(),
            node: node.clone(),
            bound,
            budget_bytes: config.budget_bytes,
            shell: Arc::clone(&shell),
            domains: Arc::clone(&domains),
            instances: Arc::clone(&instances),
            seen: Arc::clone(&seen),
            tuning,
            apps_changed,
            unused: watch::Sender::new(None),
            s3_key,
            runtime: Mutex::new(Some(runtime)),
            budgets: Mutex::default(),
            has_ended: Arc::default(),
        };
        agent.follow_memory(config.cgroup_root.clone())?;
        for app in &config.apps {
            agent.handle.block_on(agent.serve_app(app))?;
        }
        agent.listen(listener)?;
        let tuner = Tuner {
            tuning: Arc::clone(&agent.tuning),
            etcd: etcd.clone(),
            domains: Arc::clone(&domains),
            shell: Arc::clone(&shell),
            seen: Arc::clone(&seen),
        };
        agent.handle.spawn(tuner.run());
        let coordinator = Coordinator::new(Parts {
            etcd,
            node,
            shell,
            domains,
            instances,
            seen,
            notes: heard,
            apps_changed: changed,
        });
        agent.handle.spawn(coordinator.run());
        agent.handle.spawn(ticks(Arc::clone(&agent.domains)));
        Ok(agent)
    }

    fn follow_memory(&self, root: PathBuf) -> io::Result<()> {
        let budgets = Budgets::new(
            root,
            Arc::clone(&self.instances),
            Arc::clone(&self.domains),
            self.shell.engine.clone(),
            self.unused.clone(),
        );
        let has_ended = Arc::clone(&self.has_ended);
        let named = std::thread::Builder::new().name("tidemark-budgets".into());
        *self.budgets.lock() = Some(named.spawn(move || budgets.run(&has_ended))?);
        Ok(())
    }

    fn listen(&self, listener: TcpListener) -> io::Result<()> {
        let _in_runtime = self.handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (shell, domains, tuning) = (
            Arc::clone(&self.shell),
            Arc::clone(&self.domains),
            Arc::clone(&self.tuning),
        );
        let receive = Arc::new(move |packet| match packet {
            Packet::Message { to, from, message } => shell.receive(to, from, message),
            Packet::Told(told) => tuning.receive(told, &domains, &shell),
        });
        self.shell.peers.listen(listener, receive);
        Ok(())
    }

    /// The address at which it listens for other agents.
    pub fn listens_at(&self) -> SocketAddr {
        self.bound
    }

    /// The address at which other agents reach it.
    pub fn address(&self) -> SocketAddr {
        self.node.address
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.node.name
    }

    /// The secret that secrets of access keys are derived from, the same on all nodes.
    pub fn s3_key(&self) -> &[u8] {
        &self.s3_key
    }

    /// Reads and writes of the S3 address.
    pub fn objects(&self) -> Arc<dyn Coherent> {
        Arc::new(Objects {
            domains: Arc::clone(&self.domains),
            instances: Arc::clone(&self.instances),
            tuning: Arc::clone(&self.tuning),
        })
    }

    /// Moves when the applications that etcd knows have changed.
    pub fn apps_changed(&self) -> watch::Receiver<u64> {
        self.apps_changed.clone()
    }

    /// Memory that the instances on this node do not use together, in bytes; `None` while there is an application whose
    /// instances are not known.
    pub fn unused_bytes(&self) -> watch::Receiver<Option<u64>> {
        self.unused.subscribe()
    }

    /// The applications that etcd knows, or that this agent serves.
    pub fn apps(&self) -> BTreeMap<String, AppRecord> {
        let mirror = self.seen.mirror.read();
        let known = mirror.apps().iter().map(|(app, at)| (app.clone(), at.value.clone()));
        let served = self
            .domains
            .all()
            .into_iter()
            .map(|domain| (domain.app.to_string(), domain.record()));
        served.chain(known).collect()
    }

    /// The record of an application.
    pub fn app(&self, app: &str) -> Option<AppRecord> {
        let known = self.seen.mirror.read().apps().get(app).map(|at| at.value.clone());
        known.or_else(|| Some(self.domains.get(app)?.record()))
    }

    /// The number that an application has on all nodes.
    pub fn number_of(&self, app: &str) -> Option<TenantId> {
        let known = self.seen.mirror.read().apps().get(app).map(|at| at.value.access.tenant);
        let number = known.or_else(|| Some(self.domains.get(app)?.number()))?;
        Some(TenantId(number))
    }

    /// Serves an application from now on; creates it if it is not there.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn serve_app(&self, app: &str) -> Result<(), AgentError> {
        let record = self.record(app, Promise::default()).await?;
        self.serve(app, record)
    }

    /// Serves an application with this promise from now on; creates it if it is not there.
    ///
    /// # Errors
    /// See [`AgentError`]. An application that is there with another promise keeps that.
    pub async fn create_app(&self, app: &str, promise: Promise) -> Result<(), AgentError> {
        let record = self.record(app, promise).await?;
        if record.promise != promise {
            let error = format!(
                "{app} is there with another promise, which never changes: leave it out, or create another application"
            );
            return Err(AgentError::Refused(error));
        }
        self.serve(app, record)
    }

    async fn record(&self, app: &str, promise: Promise) -> Result<AppRecord, AgentError> {
        app.parse::<tidemark_types::TenantName>()
            .map_err(|error| AgentError::Refused(format!("{app}: {error}")))?;
        Ok(patiently(|| app_record(&self.etcd, app, promise)).await?)
    }

    fn serve(&self, app: &str, record: AppRecord) -> Result<(), AgentError> {
        let budget_bytes = self.budget_bytes;
        let domain = self.domains.add(app, || Domain::new(app, record, budget_bytes));
        domain.ok_or(AgentError::TooManyApps)?;
        let _ = self.shell.notes.send(Note::Look);
        Ok(())
    }

    /// Changes the record of an application, on all nodes.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn change_app(
        &self,
        app: &str,
        change: impl Fn(&mut AppRecord) -> Result<(), AgentError>,
    ) -> Result<AppRecord, AgentError> {
        change_app(&self.etcd, app, change).await
    }

    /// Takes an event of an instance's life.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn take(&self, event: LifeEvent) -> Result<bool, AgentError> {
        let app = event.app.clone();
        let changed = self.instances.take(event)?;
        if let Some(app) = app.filter(|app| self.domains.get(app).is_none()) {
            self.serve_app(&app).await?;
        }
        if changed {
            let _ = self.shell.notes.send(Note::Look);
        }
        Ok(changed)
    }

    /// Leaves the domains, within a limit of time. Its threads go on: others may run on them.
    pub fn leave(&self, limit: Duration) {
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let following = self.budgets.lock().take();
        // It ends within its period; a panic in it has been reported.
        let _ = following.map(JoinHandle::join);
        for domain in self.domains.all() {
            domain.leave();
        }
        let _ = self.shell.notes.send(Note::Look);
        let domains = Arc::clone(&self.domains);
        self.handle.block_on(async move {
            let left = async {
                while !domains.hosts().is_empty() {
                    tokio::time::sleep(LEAVE_LOOK).await;
                }
            };
            if tokio::time::timeout(limit, left).await.is_err() {
                tracing::warn!("not all cachelets could leave their domains: the others wait until their leases end");
            }
        });
    }

    /// Ends its threads, after it has left.
    pub fn end(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }

    /// Messages to and from other agents.
    pub fn traffic(&self) -> &crate::peers::Traffic {
        self.shell.peers.traffic()
    }

    /// The memory that has the bytes of copies.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.shell.engine.as_ref()
    }

    /// The agent's threads, for calls from others and for others to run on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

async fn ticks(domains: Arc<Domains>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        domains.hosts().iter().for_each(|host| host.tick());
    }
}

fn advertised(config: &AgentConfig, bound: SocketAddr) -> SocketAddr {
    match config.advertise {
        Some(address) if address.port() == 0 => SocketAddr::new(address.ip(), bound.port()),
        Some(address) => address,
        None if bound.ip().is_unspecified() => SocketAddr::new(IpAddr::from([127, 0, 0, 1]), bound.port()),
        None => bound,
    }
}

/// Tries until etcd answers, within limits.
async fn patiently<T, F>(call: impl Fn() -> F) -> Result<T, EtcdError>
where
    F: Future<Output = Result<T, EtcdError>>,
{
    let until = tokio::time::Instant::now() + START_PATIENCE;
    loop {
        match call().await {
            Err(EtcdError::Unreachable(_)) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(LEAVE_LOOK * 10).await;
            }
            answered => return answered,
        }
    }
}

async fn secret(etcd: &Etcd, config: &AgentConfig) -> Result<Secret, AgentError> {
    let bytes = match &config.secret_file {
        Some(file) => {
            let read = std::fs::read(file);
            read.map_err(|error| AgentError::Secret(format!("{}: {error}", file.display())))?
        }
        None => patiently(|| shared_bytes(etcd, SECRET_KEY)).await?,
    };
    let short = || AgentError::Secret("it has at least 16 bytes".into());
    Secret::new(bytes.trim_ascii_end()).ok_or_else(short)
}

/// Random bytes that all agents share: the first one makes them.
async fn shared_bytes(etcd: &Etcd, key: &str) -> Result<Vec<u8>, EtcdError> {
    loop {
        let (_, pairs) = etcd.range(key).await?;
        if let Some(pair) = pairs.into_iter().find(|pair| pair.key == key) {
            return STANDARD.decode(pair.value).map_err(|_| EtcdError::Unreadable);
        }
        let mut bytes = vec![0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| EtcdError::Unreachable(error.to_string()))?;
        let put = Write::Put {
            key: key.to_owned(),
            value: STANDARD.encode(&bytes),
            lease: 0,
        };
        etcd.write_if(key, 0, &[put]).await?;
    }
}

/// The record of an application; one that is not there is created with this promise.
async fn app_record(etcd: &Etcd, app: &str, promise: Promise) -> Result<AppRecord, EtcdError> {
    let key = app_key(app);
    loop {
        let (header, pairs) = etcd.range(&key).await?;
        if let Some(pair) = pairs.into_iter().find(|pair| pair.key == key) {
            return serde_json::from_str(&pair.value).map_err(|_| EtcdError::Unreadable);
        }
        debug_assert!(key.starts_with(PREFIX));
        // The revision only grows: a later application of the same name has another number.
        let number = u32::try_from(header.revision % u64::from(u32::MAX)).unwrap_or_default();
        let record = AppRecord {
            access: Entry::first(TenantId(number)),
            promise,
            config: Config::CONCORD,
            pinned: std::collections::BTreeSet::new(),
            trial: None,
            reason: "default".into(),
        };
        let put = Write::Put {
            key: key.clone(),
            value: serde_json::to_string(&record).map_err(|_| EtcdError::Unreadable)?,
            lease: 0,
        };
        etcd.write_if(&key, 0, &[put]).await?;
    }
}
