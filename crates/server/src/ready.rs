//! The order of service. Connections that are ready are served, those of one tenant in the order in which they came,
//! and the tenants in proportion to their weights.
//!
//! The order is fair queueing by start times (Goyal, Vin and Cheng, SIGCOMM 1996) over tenants. Each has a clock of the
//! work that was done for it, divided by its weight; the tenant whose clock is behind is next. A tenant that comes back
//! takes over the clock of the one ahead, less a credit of four milliseconds' work, if its own is behind that. Nobody
//! thus saves up more turns. A tenant that asks for little is served next, without waiting for a round of all others as
//! in deficit round robin. The cost of serving is known afterwards only: the expected cost is added when a connection
//! is picked, and corrected when it was served.
//!
//! A tenant with little waiting counts four times. A tenant that asks for somewhat more than its share, but not without
//! end, is thus served before one that floods. The flood keeps a quarter of its share at least. (Flow queues prefer
//! flows without a standing queue for the same reason, RFC 8290, 4.2. Here there is a bound, so that nobody starves
//! beside many that ask for little.) A visit that takes far more than expected counts whole. A tenant that keeps
//! sending while it is served does not count as asking for little.
//!
//! A small visit of a lane in which hardly anything waits is due after [`DUE_PICKS`] picks of others, whatever the
//! clocks say: those that catch up with a credit, or have a larger weight, delay it by no more. Due visits come in the
//! order in which they began to wait, and take every second pick at most.
//!
//! Invariants: a tenant's lane is in the order while a connection waits in it. While more than a few connections wait for each
//! of two tenants, and about as much, what was done for them since, divided by their weights, differs by at most one
//! connection's work of each and the credit; however little waits for one, it has at most four times what that would be, and
//! a few small visits in [`DUE_PICKS`].

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::collections::{HashMap, VecDeque};

use tidemark_types::TenantId;

/// The expected cost of a visit to a connection by itself: two system calls, about as measured at one request per
/// visit.
const VISIT_NS: u32 = 5_000;
/// The expected cost of each command.
const COMMAND_NS: u32 = 300;
/// How many bytes are moved in a nanosecond, between a socket, a buffer and the store.
const BYTES_PER_NS: usize = 4;

/// Work that a tenant may be behind others and catch up with before them. A tenant may ask for nearly its share, a
/// little more now and a little less then. Without credit it would wait for others' turns with every excess, and never
/// be ahead of them with every shortfall. If k tenants wait already, one that comes has a k-th of it. Connections that
/// have not logged in have none.
const CREDIT_NS: u32 = 4_000_000;

/// How many times its weight a tenant counts of which little waits.
const LITTLE_TIMES: u64 = 4;
/// The divisor of the mean waiting work of tenants, below which work counts as little. Beside one tenant that floods,
/// it is a third of the flood's waiting work.
const LITTLE_DIVISOR: u64 = 2;

/// Work up to so many times the expected cost is as uncertain as that, and counts as it was charged. A visit takes half
/// or twice as long as the one before. A tenant with little waiting would be charged the whole of every excess, and
/// given back a part only of every shortfall. It would count far fewer times than it should.
const UNSURE_TIMES: u32 = 4;

/// It is uneven where less than this part of the mean waits for one: tenants that ask for the same seldom differ by as much.
const UNEVEN_DIVISOR: u64 = 8;
/// A tenant that asks for little comes again and again. So many picks without it, some ten milliseconds, are an end.
const UNEVEN_PICKS: u32 = 1_000;

/// Picks of others after which a small visit is due: half of a turn. The other half is for those that are due before it.
const DUE_PICKS: u64 = 32;
/// So many connections of a lane may have visits that become due. A client that asks for one thing after the other has one;
/// of a lane in which more wait the clock says how much it may have.
const DUE_CONNECTIONS: usize = 2;
/// The cost of a small visit by its commands and bytes: a window of commands, or some 20 KiB.
const SMALL_NS: u32 = 2 * VISIT_NS;

/// Whether a visit was small.
#[inline]
pub(crate) fn is_small(commands: u32, bytes: usize) -> bool {
    work_ns(commands, bytes) <= SMALL_NS
}

/// About the cost of serving a connection. A group's time is shared among its members by it, and the next visit is
/// expected to cost as much until it is known.
#[inline]
pub(crate) fn work_ns(commands: u32, bytes: usize) -> u32 {
    commands
        .saturating_mul(COMMAND_NS)
        .saturating_add(moving_ns(bytes))
        .saturating_add(VISIT_NS)
}

/// About what one command takes that is so many bytes of request and reply, without its part of a visit.
pub(crate) fn command_work_ns(bytes: usize) -> u32 {
    COMMAND_NS.saturating_add(moving_ns(bytes))
}

fn moving_ns(bytes: usize) -> u32 {
    u32::try_from(bytes / BYTES_PER_NS).unwrap_or(u32::MAX)
}

/// The owner of connections: a tenant, or those that have not logged in, which share one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u64);

impl Owner {
    /// The connections that have not logged in.
    pub(crate) const STRANGERS: Self = Self(u64::MAX);
    /// The owner of a lane that is nobody's.
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
    /// The sum of their expected costs.
    waiting_ns: u64,
    /// How many of them are endless.
    endless: usize,
    /// How many connections were ever taken from it, by whichever owner.
    taken: u64,
    /// Whether it is in the order. One that became empty out of turn is until the order comes to it.
    is_ordered: bool,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            owner: Owner::NOBODY,
            weight: 1,
            clock: 0,
            places: VecDeque::new(),
            waiting_ns: 0,
            endless: 0,
            taken: 0,
            is_ordered: false,
        }
    }
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
    /// The expected cost.
    pub(crate) work_ns: u32,
    /// Whether its last visit left something to be served: nobody knows how much more there is.
    pub(crate) is_endless: bool,
    /// Whether the last visit was small, by its commands and bytes.
    pub(crate) is_small: bool,
}

/// A small visit that is due some time.
#[derive(Clone, Copy, Debug)]
struct Due {
    lane: usize,
    /// How many connections will have been taken from the lane when the visit is over.
    taken: u64,
    /// How many picks there were before it began to wait.
    since: u64,
}

/// A connection that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) place: usize,
    pub(crate) charge: Charge,
}

/// The charge to a lane for a connection, to be settled when it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The place of the lane, and a hint when the connection is ready again.
    pub(crate) lane: usize,
    /// The expected cost.
    pub(crate) work_ns: u32,
    /// The distance by which the lane's clock was moved.
    ticks: u64,
}

impl Charge {
    /// The charge of a connection that was never served.
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
    /// Small visits in the order in which they began to wait; some are over.
    due: VecDeque<Due>,
    /// Connections picked so far.
    picks: u64,
    /// Whether the last one was due.
    was_due: bool,
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
            // Each of k tenants that come back at once has a part. A tenant without any thus waits for ln k times the
            // whole, not for k times.
            let others = self.waiting_lanes.max(1) as u32;
            let credit = if is_tenant { lane.ticks(CREDIT_NS / others) } else { 0 };
            lane.clock = lane.clock.max(self.clock.saturating_sub(credit));
            self.waiting_lanes += u64::from(is_tenant);
            if !lane.is_ordered {
                lane.is_ordered = true;
                self.order.push(Reverse((lane.clock, number)));
            }
        }
        lane.places.push_back(newcomer);
        if newcomer.is_small && !newcomer.is_endless && lane.places.len() <= DUE_CONNECTIONS {
            self.due.push_back(Due {
                lane: number,
                taken: lane.taken + lane.places.len() as u64,
                since: self.picks,
            });
        }
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
        let due = self.first_due();
        let number = due.or_else(|| self.first_in_order())?;
        let lane = &mut self.lanes[number];
        let Waiting {
            place,
            work_ns,
            is_endless,
            ..
        } = *lane.places.front()?;
        if !fits(place, work_ns) {
            return None;
        }
        let is_tenant = lane.owner != Owner::STRANGERS;
        let is_known = is_tenant && lane.endless == 0;
        let waiting_ns = lane.waiting_ns * self.waiting_lanes;
        let is_below = |part: u64| is_known && waiting_ns * part < self.waiting_ns;
        let counts = if is_below(LITTLE_DIVISOR) { LITTLE_TIMES } else { 1 };
        let mut ticks = lane.ticks(work_ns) / counts;
        self.uneven_for = if is_below(UNEVEN_DIVISOR) {
            UNEVEN_PICKS
        } else {
            self.uneven_for.saturating_sub(1)
        };
        if due.is_some() {
            // It has not come to its turn. Visits that were due do not add up to more than a credit that it owes, or it
            // would wait for as long when it asks for much.
            let most = self.clock + lane.ticks(CREDIT_NS);
            ticks = ticks.min(most.saturating_sub(lane.clock));
        } else {
            self.clock = self.clock.max(lane.clock);
        }
        self.was_due = due.is_some();
        self.picks += 1;
        lane.places.pop_front();
        lane.taken += 1;
        lane.waiting_ns -= u64::from(work_ns);
        lane.endless -= usize::from(is_endless);
        lane.clock += ticks;
        self.waiting -= 1;
        let is_last = lane.places.is_empty();
        if is_tenant {
            self.waiting_ns -= u64::from(work_ns);
            self.waiting_lanes -= u64::from(is_last);
        }
        if due.is_none()
            && let Some(mut first) = self.order.peek_mut()
        {
            if is_last {
                lane.is_ordered = false;
                PeekMut::pop(first);
            } else {
                *first = Reverse((lane.clock, number));
            }
        }
        let lane = number;
        Some(Picked {
            place,
            charge: Charge { lane, work_ns, ticks },
        })
    }

    /// The lane of the small visit that is due, if one is.
    #[inline]
    fn first_due(&mut self) -> Option<usize> {
        while let Some(first) = self.due.front() {
            if self.lanes[first.lane].taken < first.taken {
                let is_due = self.picks - first.since >= DUE_PICKS;
                return (is_due && !self.was_due).then_some(first.lane);
            }
            self.due.pop_front();
        }
        None
    }

    /// The lane whose clock is behind, which is the order's first one then.
    #[inline]
    fn first_in_order(&mut self) -> Option<usize> {
        loop {
            let mut first = self.order.peek_mut()?;
            let Reverse((clock, number)) = *first;
            let lane = &mut self.lanes[number];
            if lane.places.is_empty() {
                lane.is_ordered = false;
                PeekMut::pop(first);
            } else if clock < lane.clock {
                // More was done for it than was expected: it is not its turn yet, perhaps.
                *first = Reverse((lane.clock, number));
            } else {
                return Some(number);
            }
        }
    }

    /// Corrects the expected cost of a connection to the actual one. A cost far beyond the expected one counts whole.
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
            if !lane.is_ordered && is_past && lane.owner != Owner::NOBODY {
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
        let number = self.free.pop().unwrap_or(self.lanes.len());
        if number == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        let lane = &mut self.lanes[number];
        *lane = Lane {
            owner,
            taken: lane.taken,
            ..Lane::default()
        };
        self.by_owner.insert(owner, number);
        number
    }
}

#[cfg(test)]
mod tests;
