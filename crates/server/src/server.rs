//! Starting and stopping the data plane.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use mio::net::TcpListener;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol as Ip, Socket, Type};
use tidemark_plane::{Flash, PlaneParts};
use tidemark_store::{Hasher, Keeper, KeeperInbox, Pool};
use tidemark_types::{DataPlane, Plan, Snapshot, SystemClock};

use crate::clients::Clients;
use crate::cpu::CpuMeasure;
use crate::entrance::{Allowed, Entrance, Protocol, TenantListener};
use crate::estimates::Estimating;
use crate::limits::{
    BUFFER_BYTES_PER_WORKER, BUFFER_POOL_FRACTION, COMMAND_REPLY_BYTES, Limits, REPLY_MEMORY_DIVISOR,
    RESERVED_DESCRIPTORS,
};
use crate::memory::{Caller, Memory};
use crate::neighbour::Neighbour;
use crate::process::Process;
use crate::scripts::{self, Scripts};
use crate::shared::Shared;
use crate::tenants::Tenants;
use crate::worker::{Mailbox, Parts, Station, Worker};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address for memcached clients; port 0 asks the system for one.
    pub memcached: Option<SocketAddr>,
    /// The address for RESP clients.
    pub redis: Option<SocketAddr>,
    /// Listeners whose connections belong to a tenant without a login.
    pub of_tenants: Vec<TenantListener>,
    /// The networks that may connect to those, beside this machine.
    pub allowed: Vec<IpNet>,
    /// Threads that serve clients, at least one.
    pub workers: usize,
    /// Whether each worker stays on a CPU of its own.
    pub pin: bool,
    /// Memory for segments and indexes until the first plan says otherwise.
    pub pool_bytes: u64,
    /// How long clients may take.
    pub limits: Limits,
    /// The flash tier below the memory.
    pub flash: Option<Arc<Flash>>,
    /// How workers model CPU time, at an interval that is shorter than a round; `None` if they do not.
    pub estimating: Option<Estimating>,
    /// How the CPU time of tenants is measured.
    pub measure: CpuMeasure,
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener's address cannot be had.
    #[error("{listener}: can not listen on {address}: {source}")]
    Bind {
        /// `memcached` or `redis`.
        listener: &'static str,
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The memory cannot be reserved.
    #[error("reserving memory for the pool: {0}")]
    Memory(#[source] io::Error),
    /// Something else that the system refused.
    #[error("starting the workers: {0}")]
    System(#[from] io::Error),
}

/// The running data plane.
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    scripts: Vec<JoinHandle<()>>,
}

impl Server {
    /// Binds the listeners and starts the workers. Connections are accepted once the first plan is applied, since before it
    /// there are no tenants. `wake_control` is called when something should not wait for the next round.
    ///
    /// # Errors
    /// An address that cannot be had, or memory or threads that the system refuses.
    pub fn start(config: &Config, wake_control: Arc<dyn Fn() + Send + Sync>) -> Result<Self, StartError> {
        tidemark_store::return_large_allocations();
        let connections_max = raise_descriptor_limit().saturating_sub(RESERVED_DESCRIPTORS).max(1);
        let memcached = bind("memcached", config.memcached)?;
        let redis = bind("redis", config.redis)?;
        let of_tenants = bind_of_tenants(&config.of_tenants)?;
        let pool = Pool::start(config.pool_bytes, None).map_err(StartError::Memory)?;
        let stations: Vec<Station> = (0..config.workers.max(1))
            .map(|_| Station::new())
            .collect::<io::Result<_>>()?;
        let mailboxes: Box<[Arc<Mailbox>]> = stations.iter().map(|station| Arc::clone(&station.mailbox)).collect();
        let inboxes: Arc<[Arc<KeeperInbox>]> = mailboxes.iter().map(inbox_of).collect();
        let to_wake = mailboxes.clone();
        let wake_workers = Arc::new(move || to_wake.iter().for_each(|mailbox| mailbox.ask_for_sweep()));
        let parts = PlaneParts {
            pool,
            hasher: match &config.flash {
                // Items that are there already were placed by it.
                Some(flash) => Hasher::with_seed(flash.store().hash_seed()),
                None => Hasher::random()?,
            },
            flash: config.flash.clone(),
            keepers: Arc::clone(&inboxes),
            alarm: wake_control,
            clock: Arc::new(SystemClock),
        };
        if let Some(flash) = &config.flash {
            let to_tell = mailboxes.clone();
            let tell = move || to_tell.iter().for_each(|mailbox| mailbox.tell_of_flash());
            flash.store().set_alarm(Box::new(tell));
        }
        let to_tell = mailboxes.clone();
        let tell = move |caller: Caller| to_tell[caller.worker].tell_of_memory(caller.place, caller.client);
        let memory = Memory::new(connection_bytes_max(config), Box::new(tell));
        let reply_bytes_max = memory.most_bytes() / REPLY_MEMORY_DIVISOR;
        let started = Instant::now();
        let estimating = config.estimating.clone().map(|estimating| (estimating, started));
        let tenants = Tenants::new(parts, Arc::clone(&memory), wake_workers, mailboxes.len(), estimating);
        let shared = Arc::new(Shared {
            tenants: Arc::new(tenants),
            clients: Clients::default(),
            memory,
            scripts: Scripts::default(),
            mailboxes,
            started,
            started_at: Shared::now(),
            run_id: run_id()?,
            memcached: memcached.as_ref().map(|(_, address)| *address),
            redis: redis.as_ref().map(|(_, address)| *address),
            of_tenants: of_tenants.iter().map(|(_, listener)| listener.clone()).collect(),
            allowed: Allowed::new(&config.allowed),
            connections_max,
            limits: config.limits,
            measure: config.measure,
            reply_bytes_max: COMMAND_REPLY_BYTES.min(usize::try_from(reply_bytes_max).unwrap_or(usize::MAX)),
            refused_connections: AtomicU64::new(0),
            times_full: AtomicU64::new(0),
            accepted_connections: AtomicU64::new(0),
            has_plan: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            drain_limit_ms: AtomicU64::new(0),
        });
        let general = [(memcached, Protocol::Memcached), (redis, Protocol::Redis)];
        let mut listeners: Vec<(TcpListener, Entrance)> = Vec::new();
        for (bound, protocol) in general {
            listeners.extend(bound.map(|(listener, _)| (listener, Entrance { protocol, tenant: None })));
        }
        listeners.extend(of_tenants.into_iter().map(|(listener, of)| {
            let (protocol, tenant) = (of.protocol, Some(Arc::new(of.tenant)));
            (listener, Entrance { protocol, tenant })
        }));
        let mut server = Self {
            scripts: scripts::start(&shared)?,
            shared,
            workers: Vec::new(),
        };
        for (number, (station, inbox)) in stations.into_iter().zip(inboxes.iter()).enumerate() {
            let listeners = if number == 0 {
                std::mem::take(&mut listeners)
            } else {
                Vec::new()
            };
            let (keeper, shared) = (Keeper::new(Arc::clone(inbox)), Arc::clone(&server.shared));
            let worker = Worker::new(Parts {
                number,
                station,
                shared,
                keeper,
                listeners,
            })?;
            let pin = config.pin;
            let thread = std::thread::Builder::new()
                .name(format!("tidemark-w{number}"))
                .spawn(move || {
                    if pin {
                        stay_on_cpu(number);
                    }
                    worker.run();
                })?;
            server.workers.push(thread);
        }
        Ok(server)
    }

    /// The address for memcached clients.
    pub fn memcached_addr(&self) -> Option<SocketAddr> {
        self.shared.memcached
    }

    /// The address for RESP clients.
    pub fn redis_addr(&self) -> Option<SocketAddr> {
        self.shared.redis
    }

    /// The addresses for clients of single tenants, in the order of the configuration.
    pub fn of_tenants(&self) -> &[TenantListener] {
        &self.shared.of_tenants
    }

    /// The door for another front of the same tenants.
    pub fn neighbour(&self) -> Neighbour {
        Neighbour::new(Arc::clone(&self.shared.tenants))
    }

    /// The most visits to other connections that a connection of the named tenant waited for while it was ready to be
    /// served. The count begins at the last call; `None` if there is no such tenant. A worker's turn is at most 64
    /// visits.
    pub fn take_visits_waited(&self, tenant: &str) -> Option<u64> {
        self.shared.tenants.take_visits_waited(tenant.as_bytes())
    }

    /// The door for the control plane.
    pub fn data_plane(&self) -> Arc<dyn DataPlane> {
        Arc::new(Door {
            shared: Arc::clone(&self.shared),
        })
    }

    /// Stops accepting, finishes the commands in flight within `limit`, and ends the workers.
    pub fn drain(self, limit: Duration) {
        self.shared
            .drain_limit_ms
            .store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.shared.is_draining.store(true, Ordering::Release);
        self.shared.wake_all();
        for worker in self.workers {
            // A worker's panic was reported by the panic hook, which in the server ends the process.
            let _ = worker.join();
        }
        // Nobody waits for what they run any more.
        self.shared.scripts.end();
        for thread in self.scripts {
            let _ = thread.join();
        }
    }
}

/// The data plane's door; the first plan opens the listeners.
struct Door {
    shared: Arc<Shared>,
}

impl DataPlane for Door {
    fn apply(&self, plan: &Plan) {
        let tenants = &self.shared.tenants;
        if self.shared.has_plan.load(Ordering::Acquire) {
            return tenants.apply(plan);
        }
        // Nothing is in the pool yet: the process's present memory is the part beside it.
        tenants
            .sockets()
            .base_bytes
            .store(Process::read().resident_bytes, Ordering::Relaxed);
        tenants.apply(plan);
        self.shared.has_plan.store(true, Ordering::Release);
        self.shared.wake_all();
    }

    fn snapshot(&self) -> Snapshot {
        self.shared.tenants.snapshot()
    }
}

/// The limit of all connections' memory beyond their own parts.
fn connection_bytes_max(config: &Config) -> u64 {
    let for_workers = config.workers as u64 * BUFFER_BYTES_PER_WORKER;
    (config.pool_bytes / BUFFER_POOL_FRACTION)
        .max(config.limits.buffer_bytes)
        .max(for_workers)
}

/// A keeper's inbox that wakes its worker.
fn inbox_of(mailbox: &Arc<Mailbox>) -> Arc<KeeperInbox> {
    let mailbox = Arc::clone(mailbox);
    KeeperInbox::new(Box::new(move || mailbox.wake()))
}

fn bind(name: &'static str, address: Option<SocketAddr>) -> Result<Option<(TcpListener, SocketAddr)>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let failed = |source| StartError::Bind {
        listener: name,
        address,
        source,
    };
    let listener = listen(address).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok(Some((TcpListener::from_std(listener), local)))
}

fn bind_of_tenants(configured: &[TenantListener]) -> Result<Vec<(TcpListener, TenantListener)>, StartError> {
    let mut bound = Vec::new();
    for of in configured {
        bound.extend(
            bind(of.protocol.name(), Some(of.address))?
                .map(|(listener, address)| (listener, TenantListener { address, ..of.clone() })),
        );
    }
    Ok(bound)
}

fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Ip::TCP))?;
    // Connections of an earlier run that are still being closed do not keep the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Raises the process's soft limit of open files to the hard one. Returns the limit in force.
fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "raising the limit of open files");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn run_id() -> io::Result<String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn stay_on_cpu(number: usize) {
    let mut allowed = rustix::thread::CpuSet::new();
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    allowed.set(number % available);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &allowed) {
        tracing::warn!(worker = number, %error, "keeping a worker on one CPU");
    }
}
