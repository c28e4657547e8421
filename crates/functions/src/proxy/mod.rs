//! The proxy: keeps stripes in functions, and reads them.
//!
//! Each function has a *member*, a task that invokes it, holds its connection and orders its requests ([`member`]). A read
//! asks the members of a stripe's chunks ([`read`]), a write gives each its chunk ([`write`]). Decisions are those of
//! [`crate::pool`], [`crate::link`] and [`crate::codec`].

mod backup;
mod catalogue;
mod connect;
mod member;
mod read;
mod stats;
mod warm;
mod write;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::accounts::{Accounts, Amount};
use crate::chunk::{ChunkKey, ContentId};
use crate::codec::{CodeTable, Rs, StripeCodec};
use crate::engine::FunctionEngine;
use crate::pool::Pool;
use crate::reclaimed::Observed;
use crate::tls::Identity;
use catalogue::Catalogue;
pub use catalogue::CatalogueError;
use member::Member;
pub use member::{ATTEMPTS, REFILLS_MAX, SENT_MAX, TRASH_AT_ONCE};
use stats::Counts;
pub use stats::{Expected, FunctionState, Spent, Status, Totals};
pub use write::REPAIR_TRIES;

/// Requests that wait for one function. More are refused, and other chunks are asked for.
const MEMBER_QUEUE: usize = 256;
/// Stripes that are read at once: of 4 MiB each, with as much for computed chunks.
pub const READS_MAX: usize = 64;
/// Stripes that are written at once.
pub const WRITES_MAX: usize = 16;
/// Lost chunks are computed for so many stripes at once: reads go first.
pub const REPAIRS_MAX: usize = 4;

/// How a stripe is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// All chunks are asked for, and the first that are enough are taken: the paper's way.
    FirstD,
    /// Data chunks are asked for; the others if one is lost, or later than chunks usually are.
    DataFirst,
}

/// The configuration of a proxy.
#[derive(Clone, Debug)]
pub struct Config {
    /// The functions' names, in an order that stays.
    pub names: Vec<String>,
    /// Bytes of chunks that each holds.
    pub room_bytes: u64,
    /// Memory of each, for which the cloud is paid.
    pub memory_bytes: u64,
    /// Functions that are always in use.
    pub least_functions: usize,
    /// The address on which functions connect.
    pub listen: SocketAddr,
    /// The same as functions see it; `None`: as it is.
    pub advertise: Option<String>,
    /// Durations are billed in units of this.
    pub unit_ms: u32,
    /// Which code an object gets.
    pub codes: CodeTable,
    /// How stripes are read.
    pub reading: Reading,
    /// How often a function that is not used is invoked; `None`: never.
    pub warm_every: Option<Duration>,
    /// How often a function that holds something has another instance brought in step with it; `None`: never.
    pub backup_every: Option<Duration>,
    /// Whether lost chunks are computed as soon as the loss is found, or when their stripe is read.
    pub refill_at_once: bool,
    /// Whether what functions and the proxy say to each other is encrypted.
    pub encrypts: bool,
    /// The folder of `functions.sqlite`; `None`: nothing is remembered.
    pub folder: Option<PathBuf>,
}

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be had.
    #[error("functions: can not listen on {address}: {source}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The catalogue cannot be read.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// No randomness.
    #[error("functions: the system has no random numbers")]
    Random,
}

/// A request to a function.
#[derive(Debug)]
pub(crate) enum Job {
    /// Read a chunk.
    Get {
        /// Which.
        key: ChunkKey,
        /// The receiver that waits.
        reply: oneshot::Sender<Got>,
    },
    /// Store a chunk.
    Put {
        /// Which.
        key: ChunkKey,
        /// Its hash.
        hash: u64,
        /// Its bytes.
        bytes: Bytes,
        /// The receiver that waits: it is told whether the chunk is stored.
        reply: oneshot::Sender<bool>,
    },
    /// Invoke it, so that the cloud keeps it.
    Warm,
    /// Have another instance brought in step with it.
    Backup,
}

/// The outcome of a read of a chunk.
#[derive(Clone, Debug)]
pub(crate) enum Got {
    /// Its bytes; their hash is to be checked.
    Value(Bytes),
    /// The function has it no more.
    Missing,
    /// The function cannot be asked.
    Unreachable,
}

/// The state that all parts of a proxy share.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) pool: Mutex<Pool>,
    pub(crate) codec: Arc<dyn StripeCodec>,
    pub(crate) engine: Arc<dyn FunctionEngine>,
    pub(crate) counts: Counts,
    pub(crate) members: Vec<MemberHandle>,
    catalogue: Catalogue,
    secret: [u8; 32],
    /// The key pair, if it encrypts.
    identity: Option<Identity>,
    /// The address on which functions connect, as they see it.
    address: String,
    started: Instant,
    pub(crate) reads: Arc<Semaphore>,
    pub(crate) writes: Arc<Semaphore>,
    pub(crate) repairs: Arc<Semaphore>,
    /// Stripes whose lost chunks are being computed, or will be.
    pub(crate) repairing: Mutex<HashSet<(ContentId, u32)>>,
    /// How many functions were reclaimed between two warm-ups.
    pub(crate) observed: Mutex<Observed>,
    accounts: Mutex<Accounts>,
}

/// A member, as others see it.
pub(crate) struct MemberHandle {
    pub(crate) jobs: mpsc::Sender<Job>,
    pub(crate) arrivals: mpsc::Sender<connect::Arrival>,
    pub(crate) state: Arc<Mutex<FunctionState>>,
}

impl Inner {
    /// Now, in ms since the start.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Gives a member something to do. Whether it takes it.
    pub(crate) fn ask(&self, member: u16, job: Job) -> bool {
        let handle = self.members.get(usize::from(member));
        handle.is_some_and(|handle| handle.jobs.try_send(job).is_ok())
    }

    /// Forgets an object, here and for the next start.
    pub(crate) fn forget(&self, content: &ContentId) {
        if self.pool.lock().forget(content) {
            self.catalogue.forget(*content);
        }
    }
}

/// Now, in ms since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The running proxy. Its tasks end when it is dropped.
#[derive(Clone)]
pub struct Functions {
    inner: Arc<Inner>,
    address: SocketAddr,
    _tasks: Arc<Tasks>,
}

struct Tasks(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Functions")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Functions {
    /// Starts one on the runtime that it is called in.
    ///
    /// # Errors
    /// The address or the catalogue cannot be had.
    pub fn start(config: Config, engine: Arc<dyn FunctionEngine>) -> Result<Self, StartError> {
        let address = config.listen;
        let bind = |source| StartError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(bind)?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|_| StartError::Random)?;
        let identity = config.encrypts.then(|| Identity::draw().ok_or(StartError::Random));
        let identity = identity.transpose()?;
        let mut pool = Pool::new(config.names.len(), config.room_bytes, config.least_functions);
        let catalogue = Catalogue::open(config.folder.as_deref(), &mut pool)?;
        let (mut members, mut channels) = (Vec::new(), Vec::new());
        for _ in &config.names {
            let ((jobs, jobs_to), (arrivals, arrivals_to)) = (mpsc::channel(MEMBER_QUEUE), mpsc::channel(2));
            let state = Arc::default();
            channels.push((jobs_to, arrivals_to));
            members.push(MemberHandle { jobs, arrivals, state });
        }
        let inner = Arc::new(Inner {
            address: config.advertise.clone().unwrap_or_else(|| address.to_string()),
            pool: Mutex::new(pool),
            codec: Arc::new(Rs::default()),
            engine,
            counts: Counts::default(),
            members,
            catalogue,
            secret,
            identity,
            started: Instant::now(),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            repairs: Arc::new(Semaphore::new(REPAIRS_MAX)),
            repairing: Mutex::default(),
            observed: Mutex::default(),
            accounts: Mutex::default(),
            config,
        });
        // Epochs ascend over restarts: a restart takes longer than a millisecond.
        let epoch = unix_ms() << 12;
        let mut tasks = vec![tokio::spawn(connect::accept(listener, Arc::clone(&inner)))];
        for (index, (jobs, arrivals)) in channels.into_iter().enumerate() {
            let member = Member::new(index as u16, epoch, Arc::clone(&inner));
            tasks.push(tokio::spawn(member.run(jobs, arrivals)));
        }
        if let Some(every) = inner.config.warm_every {
            tasks.push(tokio::spawn(warm::observe(Arc::clone(&inner), every)));
        }
        let jobs: [(_, fn() -> Job); 2] = [
            (inner.config.warm_every, || Job::Warm),
            (inner.config.backup_every, || Job::Backup),
        ];
        for (every, job) in jobs {
            tasks.extend(every.map(|every| tokio::spawn(warm::each_period(Arc::clone(&inner), every, job))));
        }
        Ok(Self {
            inner,
            address,
            _tasks: Arc::new(Tasks(tasks)),
        })
    }

    /// The address on which functions connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Notes that an account read or wrote so many bytes of an object. The first one pays for what is held of it.
    pub fn used_by(&self, account: u32, content: &ContentId, bytes: u64) {
        self.inner.pool.lock().own(content, account);
        self.inner.accounts.lock().moved(account, bytes);
    }

    /// The bytes of each account that it moved since the start, and the bytes of chunks that it holds.
    pub fn accounts(&self) -> Vec<(u32, u64, u64)> {
        let held = self.inner.pool.lock().held_by_account();
        let accounts = self.inner.accounts.lock();
        let of = |(account, moved): (&u32, &u64)| (*account, *moved, held.get(account).copied().unwrap_or(0));
        accounts.moved_total().iter().map(of).collect()
    }

    /// The charges to accounts since the last call.
    pub fn settle(&self) -> Vec<(u32, Amount)> {
        let totals = self.totals();
        let mib = self.inner.config.memory_bytes >> 20;
        let amount = |invocations, ms: u64| Amount {
            invocations,
            mib_ms: ms * mib,
        };
        let serving = amount(totals.serving_invocations, totals.serving_ms);
        let standing = amount(
            totals.warm_invocations + totals.backup_invocations,
            totals.warm_ms + totals.backup_ms,
        );
        let held = self.inner.pool.lock().held_by_account();
        self.inner.accounts.lock().settle(serving, standing, &held)
    }

    /// Forgets an object.
    pub fn forget(&self, content: &ContentId) {
        self.inner.forget(content);
    }

    /// Remembers that the content of a version, `name`, was put under another one, which was drawn before the version was known.
    pub fn name(&self, name: ContentId, content: ContentId) {
        self.inner.catalogue.name(name, content);
    }

    /// The content under which that of a version was put, if it is another one. Also after a restart.
    pub fn named(&self, name: &ContentId) -> Option<ContentId> {
        self.inner.catalogue.named(name)
    }

    /// Writes the catalogue, and waits until that is done.
    pub async fn flush(&self) {
        self.inner.catalogue.flush().await;
    }
}
