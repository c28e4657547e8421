//! Whose turn it is: the connections that are ready, those of one tenant in the order in which they came, and the tenants in
//! proportion to their weights.
//!
//! Fair queueing by start times (Goyal, Vin and Cheng, SIGCOMM 1996) over tenants. Each has a clock of the work that was
//! done for it, divided by its weight; whose clock is behind is next. Who comes back takes over the clock of who is ahead
//! but for a credit of four milliseconds' work, if its own is behind that: nobody saves up more turns, and who asks for
//! little is served next, without waiting for a round of all others, as it would in deficit round robin. What serving takes
//! is known afterwards only: what is expected is added when a connection is picked, and corrected when it was served.
//!
//! A tenant of which little waits counts four times: one that asks for somewhat more than its share, but not without end, is
//! served before one that floods, which keeps a quarter of its share at least. (Flow queues prefer flows without a standing
//! queue for the same reason, RFC 8290, 4.2; here there is a bound, so that nobody starves beside many that ask for little.)
//! What a visit takes far beyond what was expected counts whole, and of who keeps sending while it is served nobody knows that
//! it is little.
//!
//! Invariants: a tenant's lane is in the order exactly while a connection waits in it. While about as much waits for each of
//! two tenants, what was done for them since, divided by their weights, differs by at most one connection's work of each and
//! the credit; however little waits for one, it has at most four times what that would be.

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::collections::{HashMap, VecDeque};

use tidemark_types::TenantId;

/// What a visit to a connection takes by itself: two system calls, about as measured at one request per visit.
const VISIT_NS: u32 = 5_000;
/// What each command takes.
const COMMAND_NS: u32 = 300;
/// How many bytes are moved in a nanosecond, between a socket, a buffer and the store.
const BYTES_PER_NS: usize = 4;

/// Work that a tenant may be behind others and catch up with before them. One that asks for nearly its share, a little more
/// now and a little less then, would wait for others' turns with all that is more, and never be before them for all that is
/// less. Where k tenants wait already, one that comes has a k-th of it; who has not logged in has none.
const CREDIT_NS: u32 = 4_000_000;

/// How many times its weight a tenant counts of which little waits.
const LITTLE_TIMES: u64 = 4;
/// Little is less than this part of what waits for a tenant in the mean, of those for which anything does: with one that
/// floods beside it, a third of what that one has waiting.
const LITTLE_PART: u64 = 2;

/// Work up to so many times what was expected is as uncertain as that, and counts as it was charged. A visit takes half or
/// twice as long as the one before; a tenant of which little waits that was charged the whole of what is more, and given back
/// a part only of what is less, would count far fewer times than it should.
const UNSURE_TIMES: u32 = 4;

/// It is uneven where less than this part of the mean waits for one: tenants that ask for the same seldom differ by as much.
const UNEVEN_PART: u64 = 8;
/// Who asks for little comes again and again: so many picks, some ten milliseconds, without it are an end.
const UNEVEN_PICKS: u32 = 1_000;

/// About what serving a connection took: how a group's time is shared among its members, and what the next visit is expected
/// to take until it is known.
#[inline]
pub(crate) fn work_ns(commands: u32, bytes: usize) -> u32 {
    let moving = u32::try_from(bytes / BYTES_PER_NS).unwrap_or(u32::MAX);
    commands
        .saturating_mul(COMMAND_NS)
        .saturating_add(moving)
        .saturating_add(VISIT_NS)
}

/// Whose connections: a tenant's, or those that have not logged in, which share one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u64);

impl Owner {
    /// Who has not logged in.
    pub(crate) const STRANGERS: Self = Self(u64::MAX);
    /// Of a lane that is nobody's.
    const NOBODY: Self = Self(u64::MAX - 1);

    /// A tenant.
    pub(crate) fn tenant(id: TenantId) -> Self {
        Self(u64::from(id.0))
    }
}

/// Parts of a nanosecond in which clocks count, so that dividing by a weight loses little. They last for 36 years.
const CLOCK_BITS: u32 = 4;

/// Connections of one owner.
#[derive(Debug)]
struct Lane {
    owner: Owner,
    weight: u64,
    clock: u64,
    /// Connections in the order in which they came.
    places: VecDeque<Waiting>,
    /// The sum of what is expected of them.
    waiting_ns: u64,
    /// How many of them are endless.
    endless: usize,
}

impl Lane {
    /// How far work moves the clock.
    #[inline]
    fn ticks(&self, work_ns: u32) -> u64 {
        let ticks = u64::from(work_ns) << CLOCK_BITS;
        // Most tenants have the weight that all have.
        if self.weight == 1 { ticks } else { ticks / self.weight }
    }
}

/// A connection that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) place: usize,
    /// What is expected of it.
    pub(crate) work_ns: u32,
    /// Whether its last visit left something to be served: nobody knows how much more there is.
    pub(crate) is_endless: bool,
}

/// A connection that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) place: usize,
    pub(crate) charge: Charge,
}

/// What a lane was charged for a connection, to be settled when it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Where, and a hint when the connection is ready again.
    pub(crate) lane: usize,
    /// What was expected of it.
    pub(crate) work_ns: u32,
    /// By how much the lane's clock was moved.
    ticks: u64,
}

impl Charge {
    /// Of a connection that was never served.
    pub(crate) const NONE: Self = Self {
        lane: usize::MAX,
        work_ns: 0,
        ticks: 0,
    };
}

/// The connections of a worker that are ready, by their places.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    lanes: Vec<Lane>,
    free: Vec<usize>,
    by_owner: HashMap<Owner, usize>,
    /// Lanes with connections, the one whose clock is behind first. A lane's clock here may be older than its own.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    waiting: usize,
    /// The work that is expected of those of tenants.
    waiting_ns: u64,
    /// Tenants' lanes with connections.
    waiting_lanes: u64,
    /// The furthest clock that a lane was served at.
    clock: u64,
    /// How many more picks make it even.
    uneven_for: u32,
}

impl Ready {
    /// How many connections wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Whether of some tenants far less waited lately than of others.
    #[inline]
    pub(crate) fn is_uneven(&self) -> bool {
        self.uneven_for > 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a connection. `hint` is the lane that it was in before, if it was in one.
    #[inline]
    pub(crate) fn push(&mut self, owner: Owner, weight: u64, newcomer: Waiting, hint: usize) {
        let number = if self.lanes.get(hint).is_some_and(|lane| lane.owner == owner) {
            hint
        } else {
            self.lane_of(owner)
        };
        let lane = &mut self.lanes[number];
        lane.weight = weight.max(1);
        let is_tenant = owner != Owner::STRANGERS;
        if lane.places.is_empty() {
            // Of k that come back at once each has a part, so that whoever has none waits for ln k times the whole, not for
            // k times.
            let others = self.order.len().max(1) as u32;
            let credit = if is_tenant { lane.ticks(CREDIT_NS / others) } else { 0 };
            lane.clock = lane.clock.max(self.clock.saturating_sub(credit));
            self.order.push(Reverse((lane.clock, number)));
            self.waiting_lanes += u64::from(is_tenant);
        }
        lane.places.push_back(newcomer);
        lane.waiting_ns += u64::from(newcomer.work_ns);
        lane.endless += usize::from(newcomer.is_endless);
        self.waiting += 1;
        if is_tenant {
            self.waiting_ns += u64::from(newcomer.work_ns);
        }
    }

    /// Takes the connection that is next, if `fits` says of its place and the work that is expected of it that it fits.
    #[inline]
    pub(crate) fn next(&mut self, fits: impl FnOnce(usize, u32) -> bool) -> Option<Picked> {
        loop {
            let mut first = self.order.peek_mut()?;
            let Reverse((clock, number)) = *first;
            let lane = &mut self.lanes[number];
            if clock < lane.clock {
                // More was done for it than was expected: it is not its turn yet, perhaps.
                *first = Reverse((lane.clock, number));
                continue;
            }
            let Waiting {
                place,
                work_ns,
                is_endless,
            } = *lane.places.front()?;
            if !fits(place, work_ns) {
                return None;
            }
            let is_tenant = lane.owner != Owner::STRANGERS;
            let is_known = is_tenant && lane.endless == 0;
            let waiting_ns = lane.waiting_ns * self.waiting_lanes;
            let is_below = |part: u64| is_known && waiting_ns * part < self.waiting_ns;
            let counts = if is_below(LITTLE_PART) { LITTLE_TIMES } else { 1 };
            let ticks = lane.ticks(work_ns) / counts;
            self.uneven_for = if is_below(UNEVEN_PART) {
                UNEVEN_PICKS
            } else {
                self.uneven_for.saturating_sub(1)
            };
            lane.places.pop_front();
            lane.waiting_ns -= u64::from(work_ns);
            lane.endless -= usize::from(is_endless);
            self.waiting -= 1;
            self.clock = self.clock.max(lane.clock);
            lane.clock += ticks;
            let is_last = lane.places.is_empty();
            if is_tenant {
                self.waiting_ns -= u64::from(work_ns);
                self.waiting_lanes -= u64::from(is_last);
            }
            if is_last {
                PeekMut::pop(first);
            } else {
                *first = Reverse((lane.clock, number));
            }
            let lane = number;
            return Some(Picked {
                place,
                charge: Charge { lane, work_ns, ticks },
            });
        }
    }

    /// Corrects what was expected of a connection to what it took, which far beyond that counts whole.
    #[inline]
    pub(crate) fn settle(&mut self, charge: Charge, work_ns: u32) {
        let Some(lane) = self.lanes.get_mut(charge.lane) else {
            return;
        };
        let usual_ns = work_ns.min(charge.work_ns.saturating_mul(UNSURE_TIMES));
        let part = f64::from(usual_ns) / f64::from(charge.work_ns.max(1));
        let ticks = (charge.ticks as f64 * part) as u64 + lane.ticks(work_ns - usual_ns);
        lane.clock = (lane.clock + ticks).saturating_sub(charge.ticks);
    }

    /// Whether a charge is of a connection that had not logged in.
    #[inline]
    pub(crate) fn is_of_strangers(&self, charge: Charge) -> bool {
        self.lanes
            .get(charge.lane)
            .is_none_or(|lane| lane.owner == Owner::STRANGERS)
    }

    /// Forgets lanes that have no connection and all the credit that there is: they would begin as a new one does.
    pub(crate) fn tidy(&mut self) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let is_past = lane.clock + lane.ticks(CREDIT_NS) <= self.clock;
            if lane.places.is_empty() && is_past && lane.owner != Owner::NOBODY {
                self.by_owner.remove(&lane.owner);
                lane.owner = Owner::NOBODY;
                lane.places = VecDeque::new();
                self.free.push(number);
            }
        }
    }

    /// The owner's lane, which is made if there is none.
    fn lane_of(&mut self, owner: Owner) -> usize {
        if let Some(number) = self.by_owner.get(&owner) {
            return *number;
        }
        let lane = Lane {
            owner,
            weight: 1,
            clock: 0,
            places: VecDeque::new(),
            waiting_ns: 0,
            endless: 0,
        };
        let number = self.free.pop().unwrap_or(self.lanes.len());
        match self.lanes.get_mut(number) {
            Some(free) => *free = lane,
            None => self.lanes.push(lane),
        }
        self.by_owner.insert(owner, number);
        number
    }
}

#[cfg(test)]
mod tests;
