//! A look-aside client of one tenant, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use tidemark_flash::Buffer;
use tidemark_plane::{Purpose, Tier};
use tidemark_store::{Attributes, Key, TenantStore};
use tidemark_tools::load::{KeyText, Lifetimes, Operation, Requests, Rng, ValueSize, Workload, WorkloadError};
use tidemark_types::UnixMs;

use super::{Costs, FLASH_WAIT_US, VirtualTenant};

/// Keeps lifetimes independent of keys.
const LIFETIME_SEED: u64 = 0x11FE_71AE;

/// See the module.
pub(super) struct Client {
    tenant: Arc<VirtualTenant>,
    requests: Requests,
    key: KeyText,
    value_size: ValueSize,
    lifetimes: Lifetimes,
    rng: Rng,
    /// The beginning of every value.
    value: Vec<u8>,
    pace: Pace,
    /// Requests that are due, with the part of the next one; or the microseconds that are left for them.
    due: f64,
}

/// The place that a request was answered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Memory,
    Flash,
    /// Nowhere: the client asks the origin.
    Origin,
}

/// When the next request is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// So many requests a second, whatever becomes of them.
    Rate(f64),
    /// When the one before was answered.
    Closed(Costs),
}

impl Client {
    pub(super) fn new(tenant: Arc<VirtualTenant>, workload: &Workload, pace: Pace) -> Result<Self, WorkloadError> {
        Ok(Self {
            tenant,
            requests: Requests::new(workload, (0, 1))?,
            key: workload.key_text()?,
            value_size: workload.value_size,
            lifetimes: workload.lifetimes.clone(),
            rng: Rng::new(workload.seed ^ LIFETIME_SEED),
            value: vec![b'v'; workload.value_size.largest()],
            pace,
            due: 0.0,
        })
    }

    /// Sends the requests due after another `time`.
    pub(super) fn run(&mut self, now: UnixMs, time: Duration) {
        match self.pace {
            Pace::Rate(rate) => {
                self.due += rate * time.as_secs_f64();
                while self.due >= 1.0 {
                    self.due -= 1.0;
                    let operation = self.requests.draw();
                    self.carry_out(operation, now);
                }
            }
            Pace::Closed(costs) => {
                self.due += time.as_secs_f64() * 1e6;
                while self.due > 0.0 {
                    let operation = self.requests.draw();
                    self.due -= match self.carry_out(operation, now) {
                        Answer::Memory => costs.hit_us,
                        Answer::Flash => costs.hit_us + FLASH_WAIT_US as f64,
                        Answer::Origin => costs.miss_us,
                    };
                }
            }
        }
        self.tenant.touch_store();
    }

    /// Sends one request, and after a miss the set.
    pub(super) fn request(&mut self, operation: Operation, now: UnixMs) {
        self.carry_out(operation, now);
        self.tenant.touch_store();
    }

    /// Sends a request, and says from where it was answered.
    fn carry_out(&mut self, operation: Operation, now: UnixMs) -> Answer {
        let (Operation::Get(number) | Operation::Set(number)) = operation;
        let store = &self.tenant.store;
        let key = store.key(0, self.key.of(number));
        let is_get = matches!(operation, Operation::Get(_));
        if is_get {
            let waited = self
                .tenant
                .tier
                .as_ref()
                .is_some_and(|tier| bring(tier, store, &key, now));
            if store.lock(store.shard_of(key.hash)).get(&key, now).is_some() {
                return if waited { Answer::Flash } else { Answer::Memory };
            }
        }
        let lifetime = self.lifetimes.draw(&mut self.rng);
        let attributes = Attributes::expiring(now, lifetime);
        let value = &self.value[..self.value_size.of(number)];
        // A refusal is counted by the store: a client that looks aside goes on without the cache.
        let _ = store.put(&key, value, attributes, now);
        Answer::Origin
    }
}

/// Brings a key's item from flash into memory. Whether the device was read for it.
fn bring(tier: &Tier, store: &Arc<TenantStore>, key: &Key<'_>, now: UnixMs) -> bool {
    let mut wanted = tier.seek(&mut store.lock(store.shard_of(key.hash)), key, Purpose::Get, now);
    let waits = wanted.is_some();
    while let Some(read) = wanted {
        let mut buffer = Buffer::zeroed(read.bytes);
        let result = tier.flash().store().device().read(read.offset, buffer.as_mut());
        let bytes = result.map(|()| buffer.as_ref()).map_err(|_| ());
        wanted = tier.land(store, (read, Purpose::Get), bytes, now);
    }
    if waits {
        tier.note_wait(FLASH_WAIT_US);
    }
    waits
}
