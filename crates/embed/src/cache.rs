//! The cache as a whole: making it, its tenants, its size.

use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tidemark_control::{
    Answer, Change, Control, ControlConfig, ControlHandle, Idling, Mailbox, MemoryState, ServerPatch, Stepped,
    TenantSettings, Watch,
};
use tidemark_flash::device::FileDevice;
use tidemark_flash::random_identity;
use tidemark_plane::{Flash, PlaneParts};
use tidemark_store::{Hasher, Keeper, KeeperInbox, Pool};
use tidemark_types::{Clock, Fault, TenantId, UnixMs};

use crate::error::Error;
use crate::events::{Events, Hook};
use crate::plane::LocalPlane;
use crate::tenant::Tenant;
use crate::threads::{CoarseClock, KeeperThread, Signal};

/// How long a keeper works on shards before it looks around. A shard's lock is held for a part of it at a time.
const KEEPER_SLICE: Duration = Duration::from_micros(100);
/// About the time that a hit takes a program.
const HIT_COST: Duration = Duration::from_micros(1);

/// A cache in this process. Clones are the same cache; the last one, with the last [`Tenant`], ends it.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    plane: Arc<LocalPlane>,
    clock: Arc<dyn Clock>,
    control: Running,
}

/// The runner of the control plane.
enum Running {
    Threads {
        handle: ControlHandle,
        // Ended when the cache is, in this order.
        control: Mutex<Option<Control>>,
        _keeper: KeeperThread,
    },
    Driven(Arc<Mutex<Stepped>>),
}

/// How a cache stands. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStats {
    /// The memory that all tenants together may hold.
    pub memory_bytes: u64,
    /// The bytes that they may hold by their grants.
    pub granted_bytes: u64,
    /// The bytes that they hold.
    pub usage_bytes: u64,
}

/// How a cache is made.
#[derive(Clone)]
pub struct Builder {
    memory_bytes: u64,
    memory_limit_bytes: u64,
    parallelism: usize,
    idling: Idling,
    hit_cost: Duration,
    clock: Arc<dyn Clock>,
    events: Option<Arc<dyn Events>>,
    flash: Option<(PathBuf, u64)>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("memory_bytes", &self.memory_bytes)
            .field("memory_limit_bytes", &self.memory_limit_bytes)
            .field("parallelism", &self.parallelism)
            .field("idling", &self.idling)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Address space is reserved for the pool to grow to this multiple of its first size, unless a limit is given.
    const GROWTH: u64 = 4;

    /// A cache of so many bytes, at least 8 MiB, for as many threads as the machine runs at once.
    pub fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            memory_limit_bytes: memory_bytes.saturating_mul(Self::GROWTH),
            parallelism: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            idling: Idling::default(),
            hit_cost: HIT_COST,
            clock: Arc::new(CoarseClock),
            events: None,
            flash: None,
        }
    }

    /// The most that [`Cache::resize`] can make of it, in bytes: address space, not memory, is reserved for it. Four times
    /// the size unless it is given.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit_bytes = bytes.max(self.memory_bytes);
        self
    }

    /// How many threads will use the cache at the same time. A tenant's keys are in up to four times as many shards, so that
    /// threads seldom wait for each other.
    #[must_use]
    pub fn parallelism(mut self, threads: usize) -> Self {
        self.parallelism = threads.max(1);
        self
    }

    /// How tenants come and go: the memory that a new one may take at once, and the time without a request after which
    /// one is idle.
    #[must_use]
    pub fn idling(mut self, idling: Idling) -> Self {
        self.idling = idling;
        self
    }

    /// The time of a hit, a microsecond by default. The time of a miss beside it says how much a hit is worth. Goals
    /// for the mean latency and shares of memory that no goal asks for go by both.
    #[must_use]
    pub fn hit_cost(mut self, time: Duration) -> Self {
        self.hit_cost = time;
        self
    }

    /// The source of time. With a clock that is moved by hand and a [`Driver`], hours pass in seconds.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The receiver of events in the cache. Without it, no event is looked for.
    #[must_use]
    pub fn events(mut self, events: Arc<dyn Events>) -> Self {
        self.events = Some(events);
        self
    }

    /// Evicted items go to this file or block device of so many bytes, and come back when they are asked for. A new file is made;
    /// nothing is found that another process left in it. Writing takes threads of its own, also beside a [`Driver`].
    #[must_use]
    pub fn flash(mut self, path: impl Into<PathBuf>, bytes: u64) -> Self {
        self.flash = Some((path.into(), bytes));
        self
    }

    /// A cache with threads of its own: one for the control plane, one keeper, one that returns memory to the system.
    ///
    /// # Errors
    /// The size is impossible, the system refuses memory or a thread, or the events fail when they are asked for their
    /// subscriptions.
    pub fn build(self) -> Result<Cache, Error> {
        let signal = Arc::new(Signal::default());
        let (mailbox, inbox) = (Mailbox::default(), inbox(&signal));
        let pool = Pool::start(self.memory_bytes, Some(self.reserve_bytes())).map_err(Error::Memory)?;
        let limit_bytes = pool.limit_bytes();
        let plane = self.plane(pool, &mailbox, &inbox)?;
        let config = self.config(limit_bytes, &plane);
        let keeper = KeeperThread::start(Keeper::new(inbox), signal, Arc::clone(&self.clock), KEEPER_SLICE);
        let keeper = keeper.map_err(Error::System)?;
        let control = Control::start(
            mailbox,
            MemoryState::default(),
            Arc::clone(&plane) as _,
            Arc::clone(&self.clock),
            config,
        )?;
        let running = Running::Threads {
            handle: control.handle(),
            control: Mutex::new(Some(control)),
            _keeper: keeper,
        };
        Ok(Cache::new(plane, self.clock, running))
    }

    /// A cache without threads. The driver does their work, whenever it is told to. Without that, memory is never
    /// shared out anew, and freed or expired memory stays until its place is needed.
    ///
    /// # Errors
    /// The errors of [`Self::build`].
    pub fn build_driven(self) -> Result<(Cache, Driver), Error> {
        let (mailbox, inbox) = (Mailbox::default(), KeeperInbox::new(Box::new(|| {})));
        let pool = Pool::without_thread(self.memory_bytes, Some(self.reserve_bytes())).map_err(Error::Memory)?;
        let limit_bytes = pool.limit_bytes();
        let plane = self.plane(pool, &mailbox, &inbox)?;
        let config = self.config(limit_bytes, &plane);
        let control = Stepped::new(
            mailbox,
            MemoryState::default(),
            Arc::clone(&plane) as _,
            Arc::clone(&self.clock),
            config,
        )?;
        let control = Arc::new(Mutex::new(control));
        let driver = Driver {
            control: Arc::clone(&control),
            keeper: Keeper::new(inbox),
            last_round: self.clock.now(),
            clock: Arc::clone(&self.clock),
        };
        Ok((Cache::new(plane, self.clock, Running::Driven(control)), driver))
    }

    /// A quarter more addresses than memory, so that large segments find room beside small ones.
    fn reserve_bytes(&self) -> u64 {
        self.memory_limit_bytes.saturating_add(self.memory_limit_bytes / 4)
    }

    /// For a pool that can be made as large as `limit_bytes`.
    fn config(&self, limit_bytes: u64, plane: &Arc<LocalPlane>) -> ControlConfig {
        // The system may have given fewer addresses than were asked for.
        let limit_bytes = self.memory_limit_bytes.min(limit_bytes);
        ControlConfig {
            idling: self.idling,
            hit_cost: self.hit_cost,
            step_back: tidemark_store::step_back,
            flash_bytes: plane.flash_bytes(),
            // The events of the control plane go to the data plane, which passes them on.
            watch: Watch::by(Arc::clone(plane) as _),
            ..ControlConfig::new(self.memory_bytes, limit_bytes, self.parallelism)
        }
    }

    /// Tenants are told apart by a number that only this process knows.
    fn open_flash(&self) -> Result<Option<Arc<Flash>>, Error> {
        let Some((path, bytes)) = &self.flash else {
            return Ok(None);
        };
        let device = FileDevice::open(path, *bytes)?;
        let identity = random_identity().map_err(Error::System)?;
        Ok(Some(Flash::open(Arc::new(device), identity, &[], None)?))
    }

    fn plane(&self, pool: Pool, mailbox: &Mailbox, inbox: &Arc<KeeperInbox>) -> Result<Arc<LocalPlane>, Error> {
        let flash = self.open_flash()?;
        let hasher = match &flash {
            // Flash is looked through by the hash alone.
            Some(flash) => Hasher::with_seed(flash.store().hash_seed()),
            None => Hasher::random().map_err(Error::System)?,
        };
        let keepers = [Arc::clone(inbox)].into();
        let clock = Arc::clone(&self.clock);
        let hook = self.events.clone().map(Hook::new).transpose().map_err(Error::Faulty)?;
        let parts = PlaneParts {
            pool,
            hasher,
            keepers,
            alarm: mailbox.waker(),
            clock,
            flash,
        };
        Ok(Arc::new(LocalPlane::new(parts, hook.map(Arc::new))))
    }
}

fn inbox(signal: &Arc<Signal>) -> Arc<KeeperInbox> {
    let signal = Arc::clone(signal);
    KeeperInbox::new(Box::new(move || signal.wake()))
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cache").field(&self.stats()).finish()
    }
}

impl Cache {
    /// A cache of so many bytes, with threads of its own. More can be said to a [`Builder`].
    ///
    /// # Errors
    /// The size is impossible (the least is 8 MiB), or the system refuses memory or a thread.
    pub fn with_memory(bytes: u64) -> Result<Self, Error> {
        Builder::new(bytes).build()
    }

    fn new(plane: Arc<LocalPlane>, clock: Arc<dyn Clock>, control: Running) -> Self {
        Self(Arc::new(Inner { plane, clock, control }))
    }

    /// Makes a tenant. It holds nothing before the first write to it.
    ///
    /// # Errors
    /// There is one of that name, the name or a setting is impossible, or the floors do not fit the pool.
    pub fn create(&self, name: &str, settings: TenantSettings) -> Result<Tenant, Error> {
        self.ask(|control| control.create_tenant(name, settings.into()))?;
        self.tenant(name).ok_or_else(|| Error::Removed(name.into()))
    }

    /// The tenant of that name, if there is one.
    pub fn tenant(&self, name: &str) -> Option<Tenant> {
        let local = self.0.plane.tenant(name)?;
        Some(Tenant::new(self.clone(), name.into(), local))
    }

    /// Removes a tenant with all that it holds. Code that still has it reads nothing and writes nothing. Its memory is
    /// back when this returns, but for values and reservations that are still being held. The name is free after the
    /// round that follows, or once they are not held any more.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut removal = None;
        // The answer to a removal comes when nothing is held any more. An error comes before the answer to a command
        // behind it.
        self.ask(|control| {
            removal = Some(control.remove_tenant(name));
            control.server()
        })?;
        let answer = removal.map(|removal| pin!(removal).poll(&mut Context::from_waker(Waker::noop())));
        match answer {
            Some(Poll::Ready(answer)) => Ok(answer?),
            Some(Poll::Pending) | None => Ok(()),
        }
    }

    /// Changes the memory for all tenants, in bytes. The excess is evicted.
    ///
    /// # Errors
    /// Below 8 MiB, above [`Builder::memory_limit`], or less than the floors.
    pub fn resize(&self, memory_bytes: u64) -> Result<(), Error> {
        let patch = ServerPatch {
            pool_bytes: Change::Set(memory_bytes),
            ..ServerPatch::default()
        };
        self.ask(|control| control.set_server(patch)).map(drop)
    }

    /// Changes how often the control plane decides, between 100 ms and a minute; a second unless it is given.
    ///
    /// # Errors
    /// Outside of that range.
    pub fn set_round_period(&self, period: Duration) -> Result<(), Error> {
        let patch = ServerPatch {
            round_period: Change::Set(period),
            ..ServerPatch::default()
        };
        self.ask(|control| control.set_server(patch)).map(drop)
    }

    /// Why [`Builder::events`] are told of nothing any more, if they failed.
    pub fn events_fault(&self) -> Option<Fault> {
        self.0.plane.hook()?.fault().cloned()
    }

    /// How it stands.
    pub fn stats(&self) -> CacheStats {
        let pool = self.0.plane.pool_stats();
        CacheStats {
            memory_bytes: pool.pool_bytes,
            granted_bytes: self.0.plane.granted_bytes(),
            usage_bytes: pool.usage_bytes,
        }
    }

    #[cfg(test)]
    pub(crate) fn weak_plane(&self) -> std::sync::Weak<LocalPlane> {
        Arc::downgrade(&self.0.plane)
    }

    /// Whether the tenant of that name has this number.
    pub(crate) fn has(&self, name: &str, id: TenantId) -> bool {
        self.0.plane.tenant(name).is_some_and(|tenant| tenant.id == id)
    }

    #[inline]
    pub(crate) fn now(&self) -> UnixMs {
        self.0.clock.now()
    }

    /// Has the control plane do something.
    pub(crate) fn ask<T>(&self, command: impl FnOnce(&ControlHandle) -> Answer<T>) -> Result<T, Error> {
        let answer = match &self.0.control {
            Running::Threads { handle, .. } => command(handle),
            Running::Driven(control) => control.lock().ask(command),
        };
        Ok(answer.wait()?)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Running::Threads { control, .. } = &self.control
            && let Some(control) = control.lock().take()
        {
            // It has ended already only if it panicked, which it has reported itself.
            let _ = control.stop();
        }
    }
}

/// Does the work of a cache's threads. It may be moved to another thread, and dropped: then the cache stays as it is.
pub struct Driver {
    control: Arc<Mutex<Stepped>>,
    keeper: Keeper,
    last_round: UnixMs,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("last_round", &self.last_round)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// Does the work that is due. Upkeep takes about a tenth of a millisecond. A round of the control plane follows if
    /// its period is over or something cannot wait for it. Returns the time after which there is something to do again
    /// if nobody uses the cache until then. It is zero if there is more now.
    pub fn step(&mut self) -> Duration {
        let now = self.clock.now();
        // A clock that is set back must not keep rounds away.
        self.last_round = self.last_round.min(now);
        let idle = self.keeper.run(now, KEEPER_SLICE);
        let mut control = self.control.lock();
        if control.is_woken() || now.since(self.last_round) >= control.round_period() {
            control.round();
            self.last_round = now;
        }
        let next_round = control.round_period().saturating_sub(now.since(self.last_round));
        idle.map_or(next_round, |idle| idle.min(next_round))
    }
}
