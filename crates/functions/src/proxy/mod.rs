//! The proxy: keeps stripes in functions, and reads them.
//!
//! It has one pool or several, which share its address, catalogue and limits, but no function ([`shared`]). [`Functions`] is one of them.
//!
//! Each function has a *member*, a task that invokes it, holds its connection and orders its requests ([`member`]). A read
//! asks the members of a stripe's chunks ([`read`]), a write gives each its chunk ([`write`]). Decisions are those of
//! [`crate::pool`], [`crate::link`] and [`crate::codec`].

mod backup;
mod catalogue;
mod connect;
mod member;
mod read;
mod shared;
mod stats;
mod warm;
mod write;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::accounts::{Accounts, Amount, Payers};
use crate::chunk::{ChunkKey, ContentId};
use crate::codec::CodeTable;
use crate::engine::FunctionEngine;
use crate::reclaimed::Observed;
pub use catalogue::CatalogueError;
use member::Member;
pub use member::{ATTEMPTS, REFILLS_MAX, SENT_MAX, TRASH_AT_ONCE};
use shared::{Held, Shared};
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

/// The configuration of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The name under which its stripes are remembered; that of the pool that tenants share is empty.
    pub name: Arc<str>,
    /// The functions' names, in an order that stays.
    pub names: Vec<String>,
    /// Bytes of chunks that each holds.
    pub room_bytes: u64,
    /// Memory of each, for which the cloud is paid.
    pub memory_bytes: u64,
    /// Functions that are always in use.
    pub least_functions: usize,
}

/// The configuration of a proxy.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pools, whose names and whose functions' names differ.
    pub pools: Vec<PoolConfig>,
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

/// The state that all parts of a pool share.
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    /// The number of this pool.
    number: usize,
    pub(crate) config: PoolConfig,
    pub(crate) counts: Counts,
    pub(crate) members: Vec<MemberHandle>,
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

/// The receiving ends of a member.
type Channels = (mpsc::Receiver<Job>, mpsc::Receiver<connect::Arrival>);

impl Inner {
    fn new(number: usize, config: PoolConfig, shared: &Arc<Shared>) -> (Arc<Self>, Vec<Channels>) {
        let (mut members, mut channels) = (Vec::new(), Vec::new());
        for _ in &config.names {
            let ((jobs, jobs_to), (arrivals, arrivals_to)) = (mpsc::channel(MEMBER_QUEUE), mpsc::channel(2));
            let state = Arc::default();
            channels.push((jobs_to, arrivals_to));
            members.push(MemberHandle { jobs, arrivals, state });
        }
        let inner = Self {
            shared: Arc::clone(shared),
            number,
            config,
            counts: Counts::default(),
            members,
            repairing: Mutex::default(),
            observed: Mutex::default(),
            accounts: Mutex::default(),
        };
        (Arc::new(inner), channels)
    }

    /// The tasks of its members, and those that keep them warm and have them backed up.
    fn spawn(this: &Arc<Self>, channels: Vec<Channels>, epoch: u64) -> Vec<tokio::task::JoinHandle<()>> {
        let mut tasks = Vec::new();
        for (index, (jobs, arrivals)) in channels.into_iter().enumerate() {
            let member = Member::new(index as u16, epoch, Arc::clone(this));
            tasks.push(tokio::spawn(member.run(jobs, arrivals)));
        }
        let config = &this.shared.config;
        if let Some(every) = config.warm_every {
            tasks.push(tokio::spawn(warm::observe(Arc::clone(this), every)));
            tasks.push(tokio::spawn(warm::shrink(Arc::clone(this), every)));
        }
        let jobs: [(_, fn() -> Job); 2] = [(config.warm_every, || Job::Warm), (config.backup_every, || Job::Backup)];
        for (every, job) in jobs {
            tasks.extend(every.map(|every| tokio::spawn(warm::each_period(Arc::clone(this), every, job))));
        }
        tasks
    }

    /// The pool, locked.
    pub(crate) fn pool(&self) -> Held<'_> {
        self.shared.pool(self.number)
    }

    /// Remembers a stripe for the next start.
    pub(crate) fn remember(&self, content: ContentId, number: u32) {
        let stripe = self.pool().look(&content, number);
        if let Some(stripe) = stripe {
            self.shared.catalogue.put(self.number, content, number, stripe);
        }
    }

    /// Gives a member something to do. Whether it takes it.
    pub(crate) fn ask(&self, member: u16, job: Job) -> bool {
        let handle = self.members.get(usize::from(member));
        handle.is_some_and(|handle| handle.jobs.try_send(job).is_ok())
    }
}

/// Now, in ms since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A pool of a running proxy, whose tasks end when all its pools are dropped.
#[derive(Clone)]
pub struct Functions {
    inner: Arc<Inner>,
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
            .field("pool", &self.inner.config.name)
            .finish_non_exhaustive()
    }
}

impl Functions {
    /// Starts a proxy on the runtime that it is called in. Its pools, in their order.
    ///
    /// # Errors
    /// The address or the catalogue cannot be had.
    pub fn start(config: Config, engine: Arc<dyn FunctionEngine>) -> Result<Vec<Self>, StartError> {
        let address = config.listen;
        let bind = |source| StartError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(bind)?;
        let shared = Arc::new(Shared::new(config, engine, address)?);
        // Epochs ascend over restarts: a restart takes longer than a millisecond.
        let epoch = unix_ms() << 12;
        let (mut pools, mut tasks) = (Vec::new(), Vec::new());
        for (number, config) in shared.config.pools.iter().enumerate() {
            let (inner, channels) = Inner::new(number, config.clone(), &shared);
            tasks.extend(Inner::spawn(&inner, channels, epoch));
            pools.push(inner);
        }
        tasks.push(tokio::spawn(connect::accept(listener, pools.clone().into())));
        let tasks = Arc::new(Tasks(tasks));
        let pool = |inner| Self {
            inner,
            _tasks: Arc::clone(&tasks),
        };
        Ok(pools.into_iter().map(pool).collect())
    }

    /// The address on which functions connect, those of all pools.
    pub fn address(&self) -> SocketAddr {
        self.inner.shared.listen
    }

    /// Notes that an account read or wrote so many bytes of an object. The first one pays for what is held of it.
    pub fn used_by(&self, account: u32, content: &ContentId, bytes: u64) {
        self.inner.pool().own(content, account);
        self.inner.accounts.lock().moved(account, bytes);
    }

    /// The bytes of each account that it moved since the start, and the bytes of chunks that it holds.
    pub fn accounts(&self) -> Vec<(u32, u64, u64)> {
        let held = self.inner.pool().held_by_account();
        let accounts = self.inner.accounts.lock();
        let of = |(account, moved): (&u32, &u64)| (*account, *moved, held.get(account).copied().unwrap_or(0));
        accounts.moved_total().iter().map(of).collect()
    }

    /// The charges to accounts since the last call.
    pub fn settle(&self, payers: Payers) -> Vec<(u32, Amount)> {
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
        let held = self.inner.pool().held_by_account();
        self.inner.accounts.lock().settle(payers, serving, standing, &held)
    }

    /// Forgets an object, if it is in this pool.
    pub fn forget(&self, content: &ContentId) {
        self.inner.pool().forget(content);
    }

    /// Remembers that the content of a version, `name`, was put under another one, which was drawn before the version was known. All
    /// pools of a proxy have the same names.
    pub fn name(&self, name: ContentId, content: ContentId) {
        self.inner.shared.catalogue.name(name, content);
    }

    /// The content under which that of a version was put, if it is another one. Also after a restart.
    pub fn named(&self, name: &ContentId) -> Option<ContentId> {
        self.inner.shared.catalogue.named(name)
    }

    /// Writes the catalogue, and waits until that is done.
    pub async fn flush(&self) {
        self.inner.shared.catalogue.flush().await;
    }
}
