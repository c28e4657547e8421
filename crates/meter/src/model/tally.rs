//! The modelled CPU time of one tenant, added up.

use std::time::Duration;

use super::{Model, Present, Work};

/// The work of a tenant, and the part of it that is estimated. Moments are microseconds of any clock that does not go back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Until the last estimate.
    estimated: Work,
    estimated_us: u64,
    /// Until the last time that the tenant was seen.
    seen: Work,
    seen_us: u64,
    present: Present,
    /// All that was estimated, in nanoseconds; the part of one that remains is in a later sum.
    ns: f64,
}

impl Tally {
    /// At `now_us` the tenant has done so much in all. If it was not seen since `before_us`, it did nothing until then.
    pub fn observe(&mut self, model: &Model, work: Work, present: Present, (before_us, now_us): (u64, u64)) {
        if self.seen_us < before_us {
            self.estimate(model);
            (self.estimated_us, self.seen_us) = (before_us, before_us);
        }
        (self.seen, self.seen_us, self.present) = (work, now_us, present);
    }

    /// Whether about so much time has passed since the last estimate: rounds and turns do not come to the microsecond.
    pub fn is_due(&self, now_us: u64, interval: Duration) -> bool {
        let interval_us = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        now_us.saturating_sub(self.estimated_us) >= interval_us - interval_us / 10
    }

    /// Estimates if about so much time has passed since the last estimate.
    pub fn estimate_after(&mut self, model: &Model, interval: Duration) {
        if self.is_due(self.seen_us, interval) {
            self.estimate(model);
        }
    }

    /// Estimates what is not yet.
    pub fn estimate(&mut self, model: &Model) {
        let work = self.seen.since(&self.estimated);
        let passed_us = self.seen_us.saturating_sub(self.estimated_us).max(1);
        if work.operations > 0 {
            let load = work.load(&self.seen, passed_us as f64 / 1e6, self.present);
            self.ns += model.ns_per_operation(&load) * work.operations as f64;
        }
        (self.estimated, self.estimated_us) = (self.seen, self.seen_us);
    }

    /// All that was estimated, in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.ns as u64
    }
}
