//! A whole Tidemark in virtual time: the real store and the real control plane in one thread. The clock stands still
//! until it is told to move.
//!
//! Clients are look-aside: a get that misses is followed by a set. Between two ticks of the clock everything that is
//! due is done. Clients' requests come first, tenant by tenant, then the keepers' work. A round of the control plane
//! follows if its period is over or the data plane asks for one. Invariant: all events follow from the calls and the
//! seed alone; two runs of the same calls are equal to the byte.

mod client;
mod meanwhile;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemark_control::{
    Answer, ControlConfig, ControlHandle, DEFAULT_HIT_COST, Mailbox, MemoryState, Metering, SettingsPatch, Stepped,
    TenantView,
};
use tidemark_flash::device::SimDevice;
use tidemark_plane::{Flash, Front, Plane, PlaneParts, Tenant};
use tidemark_store::{Counters, Hasher, Keeper, KeeperInbox, Pool, TenantStore};
use tidemark_tools::load::{Operation, Workload};
use tidemark_types::{Clock, FlashUse, ManualClock, ShardSnapshot, Snapshot, TenantPlan, TenantSnapshot, UnixMs};

use crate::Error;
use crate::elastic::{Course, Moment};
use client::{Client, Pace};
use meanwhile::Interleaved;
pub use meanwhile::Visits;

/// The clock's step: as far apart as the control plane's rounds are at least.
const TICK: Duration = Duration::from_millis(10);
/// Pieces of upkeep between two ticks: a worker has time for so many of its slices of 10 us, and others to spare.
const PIECES_PER_TICK: usize = 640;
/// The identity of the node's tenants on flash.
const FLASH_IDENTITY: [u8; 16] = *b"a virtual node\0\0";
/// The time that a read of the virtual flash takes, in microseconds.
pub const FLASH_WAIT_US: u64 = 100;
/// When a virtual node's time begins: any time does, as long as it is always the same.
const EPOCH: UnixMs = UnixMs(1_700_000_000_000);

/// A load on a tenant.
#[derive(Clone, Debug)]
pub struct Load {
    /// The requests.
    pub workload: Workload,
    /// Requests per second, without the sets that follow misses.
    pub rate: f64,
}

/// The time that a client waits for an answer, in microseconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The time of a value from the cache; positive.
    pub hit_us: f64,
    /// The time of a value that is fetched and then set; positive.
    pub miss_us: f64,
}

/// The parts of a node.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Memory for tenants.
    pub pool_bytes: u64,
    /// As many keepers as there would be workers.
    pub workers: usize,
    /// The seed of the keys' hashes, unless there is flash, which has its own.
    pub seed: u64,
    /// The time of a hit that the control plane is told.
    pub hit_cost: Duration,
    /// Flash below the memory, on a device in memory; zero: there is none.
    pub flash_bytes: u64,
    /// How use is metered, with prices.
    pub metering: Option<Metering>,
}

/// A tenant as it stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Counts since it was created and memory now.
    pub moment: Moment,
    /// Items in the cache.
    pub items: u64,
    /// Its part of flash; `None`: there is none.
    pub flash: Option<FlashUse>,
    /// Its shards.
    pub shards: Vec<ShardSnapshot>,
}

/// A tenant of the node.
type VirtualTenant = Tenant<()>;

/// The node's clients as a front of its data plane: each tenant has one.
#[derive(Debug, Default)]
struct VirtualFront {
    /// Records of sampled keys that were handed over so far.
    samples_total: AtomicU64,
}

impl Front for VirtualFront {
    type Attached = ();

    fn attach(&self, _plan: &TenantPlan) {}

    fn report(&self, _tenant: &VirtualTenant, snapshot: &mut TenantSnapshot) {
        snapshot.connections = 1;
    }

    fn complete(&self, snapshot: &mut Snapshot) {
        snapshot.pool.connections = snapshot.tenants.len() as u64;
        let recorded: usize = snapshot.tenants.iter().map(|tenant| tenant.samples.records.len()).sum();
        self.samples_total.fetch_add(recorded as u64, Ordering::Relaxed);
    }
}

/// See the module.
pub struct Node {
    clock: Arc<ManualClock>,
    plane: Arc<Plane<VirtualFront>>,
    interleaved: Arc<Interleaved>,
    control: Stepped,
    keepers: Vec<Keeper>,
    clients: Vec<(String, Client)>,
    last_round: UnixMs,
}

impl Node {
    /// A node with this much memory for tenants, with as many keepers as it would have workers.
    ///
    /// # Errors
    /// The system refuses the memory, or the control plane the size.
    pub fn new(pool_bytes: u64, workers: usize, seed: u64) -> Result<Self, Error> {
        Self::with_hit_cost(pool_bytes, workers, seed, DEFAULT_HIT_COST)
    }

    /// As [`Self::new`], where the control plane is told that a hit takes so long.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn with_hit_cost(pool_bytes: u64, workers: usize, seed: u64, hit_cost: Duration) -> Result<Self, Error> {
        Self::of(Parts {
            pool_bytes,
            workers,
            seed,
            hit_cost,
            flash_bytes: 0,
            metering: None,
        })
    }

    /// A node of these parts.
    ///
    /// # Errors
    /// The errors of [`Self::new`], or the device's.
    pub fn of(parts: Parts) -> Result<Self, Error> {
        let Parts {
            pool_bytes,
            workers,
            hit_cost,
            ..
        } = parts;
        let clock = Arc::new(ManualClock::new(EPOCH));
        let mailbox = Mailbox::default();
        // The node looks for work after every tick.
        let inboxes: Vec<_> = (0..workers).map(|_| KeeperInbox::new(Box::new(|| {}))).collect();
        let keepers = inboxes.iter().cloned().map(Keeper::new).collect();
        // There is no thread: its work is done when it is asked for, in the same order every time. A quarter more of
        // addresses, so that large segments find room beside small ones.
        let pool = Pool::without_thread(pool_bytes, Some(pool_bytes + pool_bytes / 4)).map_err(Error::Memory)?;
        let flash = match parts.flash_bytes {
            0 => None,
            bytes => {
                let device = Arc::new(SimDevice::new(bytes, parts.seed));
                let opened = Flash::open(device, FLASH_IDENTITY, &[], None);
                Some(opened.map_err(|error| Error::Usage(error.to_string()))?)
            }
        };
        let flash_bytes = flash.as_ref().map_or(0, |flash| flash.size_bytes());
        let plane_parts = PlaneParts {
            pool,
            hasher: Hasher::with_seed(flash.as_ref().map_or(parts.seed, |flash| flash.store().hash_seed())),
            keepers: inboxes.into(),
            alarm: mailbox.waker(),
            clock: Arc::clone(&clock) as _,
            flash,
        };
        let plane = Arc::new(Plane::new(plane_parts, VirtualFront::default()));
        let config = ControlConfig {
            hit_cost,
            flash_bytes,
            metering: parts.metering,
            ..ControlConfig::new(pool_bytes, pool_bytes, workers)
        };
        let state = MemoryState::default();
        let interleaved = Arc::new(Interleaved::new(Arc::clone(&plane), Arc::clone(&clock) as _));
        let seen = Arc::clone(&interleaved) as _;
        let control = Stepped::new(mailbox, state, seen, Arc::clone(&clock) as _, config)?;
        Ok(Self {
            last_round: clock.now(),
            clock,
            plane,
            interleaved,
            control,
            keepers,
            clients: Vec::new(),
        })
    }

    /// The time.
    pub fn now(&self) -> UnixMs {
        self.clock.now()
    }

    /// Seconds since the node was made.
    pub fn seconds(&self) -> f64 {
        self.now().since(EPOCH).as_secs_f64()
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// The control plane's.
    pub fn create(&mut self, name: &str, patch: SettingsPatch) -> Result<(), Error> {
        self.command(|control| control.create_tenant(name, patch)).map(drop)
    }

    /// Carries out an operator's command, except a removal, which takes rounds.
    ///
    /// # Errors
    /// The control plane's.
    pub fn command<T>(&mut self, command: impl FnOnce(&ControlHandle) -> Answer<T>) -> Result<T, Error> {
        Ok(self.control.ask(command).wait()?)
    }

    /// A tenant as an operator sees it.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn view(&mut self, name: &str) -> Result<TenantView, Error> {
        self.command(|control| control.tenant(name))
    }

    /// From now on the tenant is asked for this.
    ///
    /// # Errors
    /// The load makes no sense, or there is no tenant of that name.
    pub fn load(&mut self, name: &str, load: &Load) -> Result<(), Error> {
        self.ask_for(name, &load.workload, Pace::Rate(load.rate))
    }

    /// From now on the tenant is asked by one client for this, each time when it has the answer before.
    ///
    /// # Errors
    /// The errors of [`Self::load`].
    pub fn load_closed(&mut self, name: &str, workload: &Workload, costs: Costs) -> Result<(), Error> {
        self.ask_for(name, workload, Pace::Closed(costs))
    }

    fn ask_for(&mut self, name: &str, workload: &Workload, pace: Pace) -> Result<(), Error> {
        let client = Client::new(self.tenant(name)?, workload, pace)?;
        self.rest(name);
        self.clients.push((name.to_owned(), client));
        Ok(())
    }

    /// Removes a tenant; its memory comes back with the next rounds.
    pub fn remove(&mut self, name: &str) {
        self.rest(name);
        // The answer comes when the memory is back, which later ticks bring about.
        drop(self.control.ask(|control| control.remove_tenant(name)));
    }

    /// From now on the tenant is asked for nothing.
    pub fn rest(&mut self, name: &str) {
        self.clients.retain(|(other, _)| other != name);
    }

    /// One request now, beyond the load of a tenant that has one.
    pub fn request(&mut self, name: &str, operation: Operation) {
        let now = self.now();
        if let Some((_, client)) = self.clients.iter_mut().find(|(other, _)| other == name) {
            client.request(operation, now);
        }
    }

    /// Uses a tenant's store now, as a client does.
    ///
    /// # Errors
    /// There is no tenant of that name.
    pub fn visit<T>(&self, name: &str, what: impl FnOnce(&Arc<TenantStore>, UnixMs) -> T) -> Result<T, Error> {
        Ok(meanwhile::visit(&*self.tenant(name)?, self.now(), what))
    }

    /// A tenant's store, for looks that must not count as use.
    ///
    /// # Errors
    /// There is no tenant of that name.
    pub fn store(&self, name: &str) -> Result<Arc<TenantStore>, Error> {
        Ok(Arc::clone(&self.tenant(name)?.store))
    }

    /// From now on this is done in the middle of each round: after the snapshot was reported, and before the plan is
    /// applied.
    pub fn meanwhile(&mut self, what: impl FnMut(&Visits<'_>) + Send + 'static) {
        self.interleaved.set(Box::new(what));
    }

    /// Lets time pass, in ticks of ten milliseconds.
    pub fn run(&mut self, time: Duration) {
        let end = self.now().plus(time);
        while self.now() < end {
            self.tick();
        }
    }

    /// Lets time pass and writes down every second how these tenants stand, beginning with now.
    ///
    /// # Errors
    /// There is no tenant of such a name.
    pub fn watch<const N: usize>(&mut self, names: [&str; N], time: Duration) -> Result<[Course; N], Error> {
        let end = self.now().plus(time);
        let mut courses = [(); N].map(|()| Course::default());
        loop {
            for (name, course) in names.iter().zip(&mut courses) {
                course.moments.push(self.standing(name)?.moment);
            }
            if self.now() >= end {
                return Ok(courses);
            }
            self.run(Duration::from_secs(1));
        }
    }

    /// How a tenant stands.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn standing(&self, name: &str) -> Result<Standing, Error> {
        let tenant = self.tenant(name)?;
        let store = &tenant.store;
        let now = self.now();
        let (mut counters, mut shards) = (Counters::default(), Vec::new());
        let items = store.sum(|shard| {
            counters.add(&shard.counters());
            shards.push(shard.snapshot(now));
            shard.items()
        });
        let moment = Moment {
            seconds: self.seconds(),
            gets: counters.gets,
            hits: counters.hits,
            grant_bytes: store.grant_bytes(),
            usage_bytes: store.usage_bytes(),
        };
        let flash = tenant.tier.as_ref().map(|tier| tier.used());
        Ok(Standing {
            moment,
            items,
            flash,
            shards,
        })
    }

    /// Records of sampled keys that the control plane was given so far.
    pub fn samples_total(&self) -> u64 {
        self.plane.front().samples_total.load(Ordering::Relaxed)
    }

    /// The grants of all tenants together, and the pool, in bytes.
    pub fn granted_and_pool_bytes(&self) -> (u64, u64) {
        (self.plane.granted_bytes(), self.plane.pool().stats().pool_bytes)
    }

    fn tenant(&self, name: &str) -> Result<Arc<VirtualTenant>, Error> {
        let missing = || Error::Usage(format!("there is no tenant `{name}`"));
        self.plane.tenant(name.as_bytes()).ok_or_else(missing)
    }

    fn tick(&mut self) {
        self.clock.advance(TICK);
        let now = self.clock.now();
        for (_, client) in &mut self.clients {
            client.run(now, TICK);
        }
        if let Some(flash) = self.plane.flash() {
            // One that was given up has nothing to write.
            let _ = flash.store().settle_writes();
        }
        for keeper in &mut self.keepers {
            // A slice of no time is one piece: how fast this machine is changes nothing.
            (0..PIECES_PER_TICK).find(|_| keeper.run(now, Duration::ZERO) != Some(Duration::ZERO));
        }
        let is_due = now.since(self.last_round) >= self.control.round_period();
        if is_due || self.control.is_woken() {
            self.control.round();
            self.last_round = now;
        }
    }
}

#[cfg(test)]
mod tests;
