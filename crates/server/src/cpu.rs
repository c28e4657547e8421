//! The tenants to which a worker's CPU time belongs.
//!
//! A worker stamps its work as it goes, with the tenant and the duration. Now and then it reads its thread's CPU clock,
//! which takes some 300 ns, and shares the elapsed CPU time in proportion to the stamps. It does so whenever
//! so much work is stamped ([`CpuMeasure::Shares`]), and before it waits, unless it has read the clock lately. CPU time does not pass
//! while a worker waits, so nothing is lost by leaving a reading out. All of a worker's time is either some tenant's or
//! nobody's: nothing remains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemark_store::TenantStore;
use tidemark_types::PlaneCpu;

use crate::counts::Count;
use crate::estimates::Estimating;
use crate::shared::Shared;
use crate::tenant::{Tenant, estimate};

/// Work after which the clock is read by default: its reading is then less than a thousandth of it.
const READ_AFTER: Duration = Duration::from_micros(400);
/// Before it waits, a worker reads the clock if the last reading is older than so many times that work. One that waits after
/// each request would read it for each.
const WAITS: u32 = 25;

/// How the CPU time of tenants is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuMeasure {
    /// The thread's CPU time is shared by stamps, as this module does.
    Shares {
        /// Work after which the clock is read. A program that runs slowed reads it as often for an operation if this is as much longer.
        after: Duration,
    },
    /// Each command of a window has a stamp before it and one behind it, and all else is unexplained: to compare with, since it
    /// costs more (Genie, TKDE 2025, Fig. 2).
    Requests,
    /// Not at all, so that all is unexplained: to compare with.
    Off,
}

impl Default for CpuMeasure {
    fn default() -> Self {
        Self::Shares { after: READ_AFTER }
    }
}

/// The CPU time of all workers, and of the threads for scripts.
#[derive(Debug, Default)]
pub(crate) struct CpuTotals {
    attributed_ns: AtomicU64,
    unattributed_ns: AtomicU64,
}

impl CpuTotals {
    /// Time of another thread that was a tenant's.
    pub(crate) fn charge(&self, ns: u64) {
        self.attributed_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> PlaneCpu {
        PlaneCpu {
            attributed_ns: self.attributed_ns.load(Ordering::Relaxed),
            unattributed_ns: self.unattributed_ns.load(Ordering::Relaxed),
        }
    }
}

/// The stamps of the tenant of a lane.
#[derive(Debug, Default)]
struct Place {
    tenant: Option<Arc<Tenant>>,
    ns: u64,
    visits: u64,
    arrivals: u64,
    /// Whether the tenant is among those that are to be estimated.
    is_listed: bool,
    /// Since when the connection of the last visit had been ready.
    ready_us: u64,
}

/// The work of a worker since it last read its clock.
#[derive(Debug)]
pub(crate) struct CpuShares {
    read: Duration,
    read_at: Instant,
    /// The stamps by lanes of [`crate::ready::Ready`].
    places: Vec<Place>,
    /// Those with something in them.
    stamped: Vec<usize>,
    upkeep: Vec<(Arc<TenantStore>, u64)>,
    /// The tenants served since the last estimates, with their lanes; `None` where workers estimate nothing.
    unestimated: Option<Vec<(usize, Arc<Tenant>)>>,
    /// Work after which the clock is read, if CPU time is measured by shares at all.
    after: Option<Duration>,
    served_ns: u64,
    upkeep_ns: u64,
    nobody_ns: u64,
}

impl CpuShares {
    /// The shares from the thread's beginning on. `estimates` says whether there is a model that workers ask.
    pub(crate) fn new(now: Instant, estimates: bool, measure: CpuMeasure) -> Self {
        Self {
            read: Duration::ZERO,
            read_at: now,
            places: Vec::new(),
            stamped: Vec::new(),
            upkeep: Vec::new(),
            unestimated: estimates.then(Vec::new),
            after: match measure {
                CpuMeasure::Shares { after } => Some(after),
                CpuMeasure::Requests | CpuMeasure::Off => None,
            },
            served_ns: 0,
            upkeep_ns: 0,
            nobody_ns: 0,
        }
    }

    /// Work for the tenant of a lane. `ready_us` is since when the connection had been ready in which commands were executed;
    /// `None` if there were none.
    #[inline]
    pub(crate) fn serve(&mut self, lane: usize, tenant: &Arc<Tenant>, work_ns: u32, ready_us: Option<u64>) {
        if self.after.is_none() {
            return;
        }
        if lane >= self.places.len() {
            self.places.resize_with(lane + 1, Place::default);
        }
        let place = &mut self.places[lane];
        let is_same = place.tenant.as_ref().is_some_and(|known| Arc::ptr_eq(known, tenant));
        if !is_same {
            if place.ns > 0 {
                // Lanes are given to others only just after a reading.
                return self.note_nobody(u64::from(work_ns));
            }
            (place.visits, place.arrivals, place.is_listed) = (0, 0, false);
            place.tenant = Some(Arc::clone(tenant));
        }
        if let Some(ready_us) = ready_us {
            place.visits += 1;
            place.arrivals += u64::from(std::mem::replace(&mut place.ready_us, ready_us) != ready_us);
        }
        if let Some(unestimated) = &mut self.unestimated
            && !std::mem::replace(&mut place.is_listed, true)
        {
            unestimated.push((lane, Arc::clone(tenant)));
        }
        if place.ns == 0 && work_ns > 0 {
            self.stamped.push(lane);
        }
        place.ns += u64::from(work_ns);
        self.served_ns += u64::from(work_ns);
    }

    /// Work on a tenant's shards.
    pub(crate) fn keep(&mut self, store: &Arc<TenantStore>, took: Duration) {
        if self.after.is_none() {
            return;
        }
        let ns = took.as_nanos() as u64;
        self.upkeep_ns += ns;
        match self.upkeep.last_mut() {
            Some((last, sum)) if Arc::ptr_eq(last, store) => *sum += ns,
            _ => self.upkeep.push((Arc::clone(store), ns)),
        }
    }

    /// Work for nobody in particular.
    pub(crate) fn note_nobody(&mut self, ns: u64) {
        self.nobody_ns += ns;
    }

    /// Whether enough is stamped for a reading.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let stamped_ns = self.served_ns + self.upkeep_ns + self.nobody_ns;
        self.after.is_some_and(|after| stamped_ns >= after.as_nanos() as u64)
    }

    /// The same before a wait.
    #[inline]
    pub(crate) fn is_due_before_wait(&self, now: Instant) -> bool {
        let has_waited = |after| now.saturating_duration_since(self.read_at) >= after * WAITS;
        self.is_due() || self.after.is_some_and(has_waited)
    }

    /// Shares the thread's CPU time since the last reading. `cpu_time` is its clock now.
    pub(crate) fn settle(&mut self, now: Instant, cpu_time: Duration, shared: &Shared) {
        if self.after.is_none() {
            return;
        }
        let used_ns = cpu_time.saturating_sub(self.read).as_nanos() as u64;
        (self.read, self.read_at) = (cpu_time, now);
        let shares = share(used_ns, self.served_ns, self.upkeep_ns, self.nobody_ns);
        let mut attributed_ns = 0;
        for lane in self.stamped.drain(..) {
            let place = &mut self.places[lane];
            let ns = part(std::mem::take(&mut place.ns), shares.served_ns, self.served_ns);
            if let Some(tenant) = &place.tenant {
                tenant.counts.add(Count::CpuNanos, ns);
                tenant.counts.add(Count::Visits, std::mem::take(&mut place.visits));
                tenant.counts.add(Count::Arrivals, std::mem::take(&mut place.arrivals));
                tenant.touch();
                attributed_ns += ns;
            }
        }
        for (store, ns) in self.upkeep.drain(..) {
            let ns = part(ns, shares.upkeep_ns, self.upkeep_ns);
            store.charge_upkeep(ns);
            attributed_ns += ns;
        }
        (self.served_ns, self.upkeep_ns, self.nobody_ns) = (0, 0, 0);
        let totals = &shared.tenants.sockets().cpu;
        totals.attributed_ns.fetch_add(attributed_ns, Ordering::Relaxed);
        totals
            .unattributed_ns
            .fetch_add(used_ns - attributed_ns, Ordering::Relaxed);
    }

    /// Estimates by the model what the served tenants did.
    pub(crate) fn estimate(&mut self, estimating: &Estimating, now_us: u64) {
        for (lane, tenant) in self.unestimated.iter_mut().flat_map(|list| list.drain(..)) {
            let place = &mut self.places[lane];
            place.is_listed = false;
            if place.tenant.as_ref().is_some_and(|known| Arc::ptr_eq(known, &tenant)) {
                tenant.counts.add(Count::Visits, std::mem::take(&mut place.visits));
                tenant.counts.add(Count::Arrivals, std::mem::take(&mut place.arrivals));
            }
            estimate(&tenant, estimating, now_us);
        }
    }

    /// Lets go of tenants of which nothing is stamped: lanes may be given to others.
    pub(crate) fn tidy(&mut self) {
        // Their work is estimated with the next snapshot.
        for (lane, _) in self.unestimated.iter_mut().flat_map(|list| list.drain(..)) {
            self.places[lane].is_listed = false;
        }
        for place in self.places.iter_mut().filter(|place| place.ns == 0) {
            place.tenant = None;
        }
    }
}

/// How CPU time is shared among the stamps. In nanoseconds; the rest is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    served_ns: u64,
    upkeep_ns: u64,
}

/// Less than was stamped was used: each has the same part of its stamps. More, for waking and asking which connections
/// are ready. Serving and the work for nobody share that. Upkeep has its stamps at most, since a timer that wakes a
/// worker is nobody's.
fn share(used_ns: u64, served_ns: u64, upkeep_ns: u64, nobody_ns: u64) -> Parts {
    let stamped_ns = served_ns + upkeep_ns + nobody_ns;
    let upkeep_ns = part(upkeep_ns, used_ns.min(stamped_ns), stamped_ns);
    Parts {
        served_ns: part(served_ns, used_ns - upkeep_ns, served_ns + nobody_ns),
        upkeep_ns,
    }
}

/// `of / whole` of `amount`, rounded down; nothing of nothing.
fn part(of: u64, amount: u64, whole: u64) -> u64 {
    let product = u128::from(of) * u128::from(amount);
    product.checked_div(u128::from(whole)).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_shared_by_the_stamps() {
        for (used, served, upkeep, nobody, expected) in [
            // Half of the time another thread had the core.
            (500, 600, 300, 100, (300, 150)),
            (1000, 600, 300, 100, (600, 300)),
            // Waking cost as much again.
            (1700, 600, 300, 100, (1200, 300)),
            // A timer.
            (90, 0, 10, 0, (0, 10)),
            (90, 0, 0, 0, (0, 0)),
            (0, 5, 5, 5, (0, 0)),
            (u64::MAX / 4, u64::MAX / 4, 0, 0, (u64::MAX / 4, 0)),
        ] {
            let parts = share(used, served, upkeep, nobody);
            assert_eq!(
                (parts.served_ns, parts.upkeep_ns),
                expected,
                "{used} {served} {upkeep} {nobody}"
            );
        }
    }
}
