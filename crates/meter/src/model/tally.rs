//! The modelled CPU time of one tenant, added up.

use super::{Model, Work};

/// The work of a tenant, and the part of it that is estimated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Until the last estimate.
    estimated: Work,
    estimated_ms: u64,
    /// Until the last snapshot that had the tenant.
    seen: Work,
    seen_ms: u64,
    connections: u64,
    /// All that was estimated, in nanoseconds; the part of one that remains is in a later sum.
    ns: f64,
}

impl Tally {
    /// A snapshot at `now_ms` has the tenant, after one at `before_ms`. If that one did not have it, it did nothing
    /// until then.
    pub(crate) fn observe(&mut self, model: &Model, work: Work, connections: u64, (before_ms, now_ms): (u64, u64)) {
        if self.seen_ms < before_ms {
            self.estimate(model);
            (self.estimated_ms, self.seen_ms) = (before_ms, before_ms);
        }
        (self.seen, self.seen_ms, self.connections) = (work, now_ms, connections);
    }

    /// Estimates if about so much time has passed since the last estimate: rounds do not come to the millisecond.
    pub(crate) fn estimate_after(&mut self, model: &Model, interval_ms: u64) {
        if self.seen_ms.saturating_sub(self.estimated_ms) >= interval_ms - interval_ms / 10 {
            self.estimate(model);
        }
    }

    /// Estimates what is not yet.
    pub(crate) fn estimate(&mut self, model: &Model) {
        let work = self.seen.since(&self.estimated);
        let passed_ms = self.seen_ms.saturating_sub(self.estimated_ms).max(1);
        if work.operations > 0 {
            let load = work.load(&self.seen, passed_ms as f64 / 1000.0, self.connections);
            self.ns += model.ns_per_operation(&load) * work.operations as f64;
        }
        (self.estimated, self.estimated_ms) = (self.seen, self.seen_ms);
    }

    /// All that was estimated, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        self.ns as u64
    }
}
