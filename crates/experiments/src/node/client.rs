//! A look-aside client of one tenant, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use tidemark_store::Attributes;
use tidemark_tools::load::{KeyText, Lifetimes, Operation, Requests, Rng, ValueSize, Workload, WorkloadError};
use tidemark_types::UnixMs;

use super::{Costs, VirtualTenant};

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
                    let is_hit = self.carry_out(operation, now);
                    self.due -= if is_hit { costs.hit_us } else { costs.miss_us };
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

    /// Whether the requested key was there.
    fn carry_out(&mut self, operation: Operation, now: UnixMs) -> bool {
        let (Operation::Get(number) | Operation::Set(number)) = operation;
        let store = &self.tenant.store;
        let key = store.key(0, self.key.of(number));
        let is_get = matches!(operation, Operation::Get(_));
        if is_get && store.lock(store.shard_of(key.hash)).get(&key, now).is_some() {
            return true;
        }
        let lifetime = self.lifetimes.draw(&mut self.rng);
        let attributes = Attributes::expiring(now, lifetime);
        let value = &self.value[..self.value_size.of(number)];
        // A refusal is counted by the store: a client that looks aside goes on without the cache.
        let _ = store.put(&key, value, attributes, now);
        false
    }
}
