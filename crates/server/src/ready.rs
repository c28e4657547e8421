//! Whose turn it is: the connections that are ready, those of one tenant in the order in which they came, and the tenants in
//! proportion to their weights.
//!
//! Fair queueing by start times (Goyal, Vin and Cheng, SIGCOMM 1996) over tenants. Each has a clock of the work that was
//! done for it, divided by its weight; whose clock is behind is next. Who comes back takes over the clock of who is ahead
//! but for a credit of four milliseconds' work, if its own is behind that: nobody saves up more turns, and who asks for
//! little is served next, without waiting for a round of all others, as it would in deficit round robin. What serving takes
//! is known afterwards only: what is expected is added when a connection is picked, and corrected when it was served.
//!
//! Invariants: a tenant's lane is in the order exactly while a connection waits in it. While two tenants have connections
//! waiting, what was done for them since, divided by their weights, differs by at most one connection's work of each and the
//! credit.

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
    places: VecDeque<usize>,
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

/// A connection that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) place: usize,
    /// Its lane, to be told when it was served, and a hint when it is ready again.
    pub(crate) lane: usize,
    /// What was expected of it.
    pub(crate) work_ns: u32,
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
    /// The furthest clock that a lane was served at.
    clock: u64,
}

impl Ready {
    /// How many connections wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a connection. `hint` is the lane that it was in before, if it was in one.
    #[inline]
    pub(crate) fn push(&mut self, owner: Owner, weight: u64, place: usize, hint: usize) {
        let number = if self.lanes.get(hint).is_some_and(|lane| lane.owner == owner) {
            hint
        } else {
            self.lane_of(owner)
        };
        let lane = &mut self.lanes[number];
        lane.weight = weight.max(1);
        if lane.places.is_empty() {
            // Of k that come back at once each has a part, so that whoever has none waits for ln k times the whole, not for
            // k times.
            let others = self.order.len().max(1) as u32;
            let credit = if owner == Owner::STRANGERS {
                0
            } else {
                lane.ticks(CREDIT_NS / others)
            };
            lane.clock = lane.clock.max(self.clock.saturating_sub(credit));
            self.order.push(Reverse((lane.clock, number)));
        }
        lane.places.push_back(place);
        self.waiting += 1;
    }

    /// Takes the connection that is next, if it fits: `fits` is asked for the work that is expected of it.
    #[inline]
    pub(crate) fn next(&mut self, fits: impl FnOnce(usize) -> Option<u32>) -> Option<Picked> {
        loop {
            let mut first = self.order.peek_mut()?;
            let Reverse((clock, number)) = *first;
            let lane = &mut self.lanes[number];
            if clock < lane.clock {
                // More was done for it than was expected: it is not its turn yet, perhaps.
                *first = Reverse((lane.clock, number));
                continue;
            }
            let place = *lane.places.front()?;
            let work_ns = fits(place)?;
            lane.places.pop_front();
            self.waiting -= 1;
            self.clock = self.clock.max(lane.clock);
            lane.clock += lane.ticks(work_ns);
            if lane.places.is_empty() {
                PeekMut::pop(first);
            } else {
                *first = Reverse((lane.clock, number));
            }
            return Some(Picked {
                place,
                lane: number,
                work_ns,
            });
        }
    }

    /// Corrects what was expected of a connection of this lane to what it took.
    #[inline]
    pub(crate) fn settle(&mut self, lane: usize, expected_ns: u32, work_ns: u32) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.clock = (lane.clock + lane.ticks(work_ns)).saturating_sub(lane.ticks(expected_ns));
        }
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner(number: usize) -> Owner {
        Owner::tenant(TenantId(number as u32))
    }

    /// Adds connections of a tenant at places that tell whose they are.
    fn add(ready: &mut Ready, tenant: usize, weight: u64, connections: usize) {
        for connection in 0..connections {
            ready.push(owner(tenant), weight, tenant * 1000 + connection, usize::MAX);
        }
    }

    fn next(ready: &mut Ready, work_ns: u32) -> Picked {
        ready.next(|_| Some(work_ns)).unwrap()
    }

    #[test]
    fn connections_of_one_tenant_come_in_their_order() {
        let mut ready = Ready::default();
        add(&mut ready, 1, 1, 5);
        let places: Vec<usize> = (0..5).map(|_| next(&mut ready, 1000).place).collect();
        assert_eq!(places, [1000, 1001, 1002, 1003, 1004]);
        assert!(ready.is_empty() && ready.next(|_| Some(1)).is_none());
    }

    #[test]
    fn who_comes_late_is_next_however_many_wait() {
        let mut ready = Ready::default();
        add(&mut ready, 1, 1, 64);
        for _ in 0..3 {
            next(&mut ready, 100_000);
        }
        add(&mut ready, 2, 1, 1);
        let picked: Vec<usize> = (0..2).map(|_| next(&mut ready, 5000).place / 1000).collect();
        assert!(picked.contains(&2), "{picked:?}");
        // Again and again: little work is served before much.
        for _ in 0..10 {
            add(&mut ready, 2, 1, 1);
            let picked: Vec<usize> = (0..2).map(|_| next(&mut ready, 5000).place / 1000).collect();
            assert!(picked.contains(&2), "{picked:?}");
        }
    }

    #[test]
    fn what_does_not_fit_stays_where_it_is() {
        let mut ready = Ready::default();
        add(&mut ready, 1, 1, 2);
        assert_eq!(ready.next(|_| None), None);
        assert_eq!((ready.len(), next(&mut ready, 1).place), (2, 1000));
    }

    #[test]
    fn at_most_a_credit_of_turns_is_saved_up() {
        const WORK_NS: u32 = 10_000;
        let saved = (CREDIT_NS / WORK_NS) as usize;
        let mut ready = Ready::default();
        add(&mut ready, 1, 1, 2 * saved);
        for _ in 0..saved + 100 {
            next(&mut ready, WORK_NS);
        }
        // The other one was silent meanwhile, and may be tidied away.
        ready.tidy();
        add(&mut ready, 2, 1, 2 * saved);
        let first = (0..)
            .take_while(|_| next(&mut ready, WORK_NS).place / 1000 == 2)
            .count();
        assert!(first.abs_diff(saved) <= 1, "{first}");
        let mut counts = [0_u32; 3];
        for _ in 0..200 {
            counts[next(&mut ready, WORK_NS).place / 1000] += 1;
        }
        assert!(counts[1].abs_diff(counts[2]) <= 2, "{counts:?}");
    }

    #[test]
    fn who_asks_for_nearly_its_share_catches_up() {
        let mut ready = Ready::default();
        add(&mut ready, 1, 1, 900);
        // Nothing, and then twice as much: half of the time over all.
        for _ in 0..3 {
            for _ in 0..40 {
                next(&mut ready, 10_000);
            }
            add(&mut ready, 2, 1, 40);
            let picked: Vec<usize> = (0..40).map(|_| next(&mut ready, 10_000).place / 1000).collect();
            assert!(picked.iter().filter(|tenant| **tenant == 2).count() >= 39, "{picked:?}");
        }
    }

    #[test]
    fn a_visit_that_took_long_is_paid_for_also_after_a_pause() {
        let mut ready = Ready::default();
        add(&mut ready, 1, 1, 300);
        add(&mut ready, 2, 1, 1);
        // Tenant 2 is expected to take 10 us and takes a millisecond.
        let heavy = loop {
            let picked = next(&mut ready, 10_000);
            if picked.place / 1000 == 2 {
                break picked;
            }
        };
        ready.settle(heavy.lane, heavy.work_ns, 1_000_000);
        ready.tidy();
        add(&mut ready, 2, 1, 1);
        let before = (0..).take_while(|_| next(&mut ready, 10_000).place / 1000 == 1).count();
        assert!((98..=101).contains(&before), "{before}");
    }

    #[test]
    fn lanes_that_owe_nothing_are_used_again() {
        let mut ready = Ready::default();
        for tenant in 0..1000 {
            add(&mut ready, tenant, 1, 1);
            next(&mut ready, 0);
            ready.tidy();
        }
        assert_eq!(ready.lanes.len(), 1000, "none has its whole credit");
        // Somebody else works for longer than that.
        add(&mut ready, 1000, 1, 2);
        for _ in 0..2 {
            next(&mut ready, CREDIT_NS);
        }
        ready.tidy();
        assert_eq!((ready.by_owner.len(), ready.free.len()), (1, 1000));
        let mut ready = Ready::default();
        // A hint of a lane that is somebody else's now is not followed.
        ready.push(owner(1), 1, 1000, usize::MAX);
        ready.push(owner(2), 1, 2000, 0);
        assert_eq!(ready.lanes.len(), 2);
        ready.push(Owner::STRANGERS, 1, 3000, 0);
        assert_eq!((ready.lanes.len(), ready.len()), (3, 3));
    }

    #[test]
    fn work_grows_with_what_is_done() {
        assert!(work_ns(0, 0) < work_ns(1, 0) && work_ns(1, 0) < work_ns(1, 100));
        assert_eq!(work_ns(u32::MAX, usize::MAX), u32::MAX);
    }

    proptest! {
        #[test]
        fn while_all_wait_work_is_in_proportion_to_weights(
            tenants in prop::collection::vec((1..=100_u64, 1_000..300_000_u32), 2..6),
            surprises in prop::collection::vec((0..300_000_u32, 0..300_000_u32), 100..400),
        ) {
            let mut ready = Ready::default();
            for (tenant, (weight, _)) in tenants.iter().enumerate() {
                add(&mut ready, tenant, *weight, 1);
            }
            let mut done = vec![0_u64; tenants.len()];
            let mut longest = vec![0_u64; tenants.len()];
            for (expected, more) in surprises {
                let picked = ready.next(|_| Some(expected)).unwrap();
                let tenant = picked.place / 1000;
                let work = tenants[tenant].1 + more;
                ready.settle(picked.lane, picked.work_ns, work);
                done[tenant] += u64::from(work);
                longest[tenant] = longest[tenant].max(u64::from(work.max(expected)));
                // Ready again at once.
                ready.push(owner(tenant), tenants[tenant].0, picked.place, picked.lane);
                prop_assert_eq!(ready.len(), tenants.len());
            }
            let share = |tenant: usize| done[tenant] as f64 / tenants[tenant].0 as f64;
            let slack = |tenant: usize| longest[tenant] as f64 / tenants[tenant].0 as f64;
            for one in 0..tenants.len() {
                for other in 0..one {
                    let apart = (share(one) - share(other)).abs();
                    // Dividing by weights loses less than a nanosecond each time.
                    prop_assert!(apart <= slack(one) + slack(other) + 400.0, "{one} {other}: {apart} {done:?}");
                }
            }
        }
    }
}
