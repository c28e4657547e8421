//! Whether other sizes are worth the way to them.
//!
//! A change is charged the bytes that it moves. Memory that is given up is written to flash. Memory that is gained is
//! filled from flash, by requests that each wait for a read. What neither tier held before, or does not hold any more
//! and may be wanted again, is filled from the origin. Bytes beyond those that the load reaches hold nothing. A request's
//! microsecond costs what a goal makes it cost: the money for which the plan would give or take a microsecond, over the
//! requests of an hour.

use super::{Falling, Prices, Sizes, Tenant};

/// A goal is missed noticeably beyond this part of it.
const MISSED: f64 = 0.02;
/// Less than this part of the cost is not worth a change: curves are not known better.
const SAVED_MIN: f64 = 0.03;
/// Sizes are too dear beyond this part of the money for them.
const OVERSPENT: f64 = 0.03;

/// A tenant's present sizes and others that would do.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The tenant.
    pub tenant: &'a Tenant,
    /// The prices of a byte for an hour.
    pub prices: Prices,
    /// The price of a byte that is written to flash.
    pub written: f64,
    /// The latency that is wanted, in microseconds.
    pub latency_us: f64,
    /// Requests in an hour.
    pub requests_per_hour: f64,
    /// An object's bytes.
    pub object_bytes: f64,
    /// The money for an hour, of a tenant that has no more.
    pub budget: Option<f64>,
    /// For how many hours the load is expected to stay as it is.
    pub hours: f64,
    /// The sizes in force.
    pub now: Sizes,
    /// The others.
    pub next: Sizes,
}

/// The reasons for a change, or against it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The present sizes miss the goal, and the others come nearer to it.
    Missed,
    /// The present sizes cost noticeably more than the money there is, and the others cost less.
    TooDear,
    /// It saves so much money beyond its charge.
    Saves(f64),
    /// It does not pay: it saves the first amount, and is charged the second.
    Keep {
        /// The saving of the other sizes.
        saved: f64,
        /// The cost of the way to them.
        charge: f64,
    },
}

impl Verdict {
    /// Whether to change.
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Keep { .. })
    }
}

impl Change<'_> {
    /// Whether to change.
    pub fn verdict(&self) -> Verdict {
        let cost = |sizes: Sizes| self.tenant.cost(sizes, self.prices) * self.hours;
        let (now_us, next_us) = (self.tenant.latency_us(self.now), self.tenant.latency_us(self.next));
        if now_us > self.latency_us * (1.0 + MISSED) && next_us < now_us {
            return Verdict::Missed;
        }
        let is_too_dear = |budget: f64| cost(self.now) > budget * self.hours * (1.0 + OVERSPENT);
        if self.budget.is_some_and(is_too_dear) && cost(self.next) < cost(self.now) {
            return Verdict::TooDear;
        }
        let (saved, charge) = (cost(self.now) - cost(self.next), self.charge());
        if saved > charge && saved > SAVED_MIN * cost(self.now) {
            Verdict::Saves(saved - charge)
        } else {
            Verdict::Keep { saved, charge }
        }
    }

    /// The money that the way costs.
    pub fn charge(&self) -> f64 {
        let (now, next) = (self.now, self.next);
        let held = |bytes: f64| bytes.min(self.tenant.reached_bytes());
        let reach = |sizes: Sizes| held(self.tenant.reach(sizes));
        let demoted_bytes = (held(now.memory_bytes) - held(next.memory_bytes)).max(0.0);
        let promoted_bytes = (held(next.memory_bytes) - held(now.memory_bytes)).max(0.0);
        let refilled_bytes = (reach(next) - reach(now)).abs();
        let times = self.tenant.times;
        let waited_us = (promoted_bytes * times.flash_us + refilled_bytes * times.origin_us) / self.object_bytes;
        demoted_bytes * self.written + waited_us * self.worth_of_us()
    }

    /// The price of a microsecond of one request, by the facets on which the other sizes lie.
    fn worth_of_us(&self) -> f64 {
        let tenant = self.tenant;
        let of_flash = 1.0 - tenant.overlap_ratio;
        let reach_price = self.prices.flash_with_index(tenant.index_ratio) / of_flash;
        let instead_price = (self.prices.memory - reach_price).max(0.0);
        let per_us = |price: f64, us: f64, of: &Falling, bytes: f64| {
            let gain = us * of.facets.gain_below(bytes);
            if gain > 0.0 { price / gain } else { f64::INFINITY }
        };
        let times = tenant.latencies;
        let mean_us = per_us(instead_price, times.flash_us, &tenant.memory, self.next.memory_bytes).min(per_us(
            reach_price,
            times.origin_us,
            &tenant.both,
            tenant.reach(self.next),
        ));
        if mean_us.is_finite() {
            mean_us / self.requests_per_hour.max(1.0)
        } else {
            0.0
        }
    }
}
