//! The share of each instance in a node's memory. The order is: the least that works, floors, goals by class, memory by
//! its worth, memory wanted without a known worth, the rest.
//!
//! A pure function of all statements. Inside, memory is counted in units of [`LEASE_UNIT_BYTES`].

use std::cmp::Reverse;

use tidemark_types::MIB;

use crate::share;

/// Leases are whole multiples of it: fine enough for the least pool, and large against a segment's remainder.
pub const LEASE_UNIT_BYTES: u64 = MIB;
/// Memory that an instance already holds counts so much dearer. Memory moves between instances only for a gain beyond
/// the noise of the curves, and returns only for the same gain again.
const KEPT_VALUE_FACTOR: f64 = 1.25;

/// The demand of an instance. Bytes are of its pool, so that they include the overhead beside its tenants' grants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The part of its tenants' floors that is needed now.
    pub floor_bytes: u64,
    /// The demand of their goals beyond that.
    pub goals: Vec<GoalDemand>,
    /// The worth of memory beyond floors and goals, the dearest first: the merged slopes of the tenants' hulls.
    pub worth: Vec<Worth>,
    /// The memory that its pool holds and could fill soon.
    pub wanted_bytes: u64,
    /// The most that it may have.
    pub most_bytes: u64,
}

/// The demand of the goals of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoalDemand {
    /// Served in ascending order: class 1 has nothing while class 0 misses something.
    pub class: u32,
    /// All of the memory, not the missing part.
    pub bytes: u64,
}

/// A piece of a concave hull.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// Its length.
    pub bytes: u64,
    /// The gain of one more MiB, in hits per second, the same unit for all instances.
    pub value_per_mib: f64,
}

/// One instance as the others see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// The memory that its pool may hold or still holds.
    pub lease_bytes: u64,
    /// It was not heard of for so long that nothing can be expected of it: its lease stays as it is.
    pub is_stalled: bool,
    /// The demand of the member.
    pub demand: Demand,
}

/// The input of [`shares`]. Every instance has to see the members in the same order.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The memory that all share.
    pub bytes: u64,
    /// The least that an instance works with.
    pub least_bytes: u64,
    /// All instances.
    pub members: &'a [Member],
}

/// The share of each member, in bytes and in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The part that it needs to work, for floors and for goals. It is given at once, no matter which member holds it.
    pub promised: Vec<u64>,
    /// All of it.
    pub target: Vec<u64>,
}

/// The share of each member. All targets together are at most the node's memory, except if leases that nobody can
/// change come to more. If every member has its target already, the answer is the same again.
pub fn shares(node: &Node<'_>) -> Shares {
    let demand = |index: usize| &node.members[index].demand;
    let mut filling = Filling::of(node);
    filling.raise_evenly(|_| node.least_bytes);
    filling.raise_evenly(|index| demand(index).floor_bytes);
    for class in classes(node.members) {
        filling.raise_in_proportion(|index| goals_until(demand(index), class));
    }
    let promised = filling.bytes();
    filling.sell(node.members);
    filling.raise_evenly(|index| demand(index).wanted_bytes);
    filling.raise_evenly(|_| u64::MAX);
    Shares {
        promised,
        target: filling.bytes(),
    }
}

/// The classes that there are goals of, in the order in which they are served.
fn classes(members: &[Member]) -> Vec<u32> {
    let goals = members.iter().flat_map(|member| &member.demand.goals);
    let mut classes: Vec<u32> = goals.map(|goal| goal.class).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// Floors, and goals of the classes up to this one.
fn goals_until(demand: &Demand, class: u32) -> u64 {
    let goals = demand.goals.iter().filter(|goal| goal.class <= class);
    goals.fold(demand.floor_bytes, |sum, goal| sum.saturating_add(goal.bytes))
}

/// Shares on their way.
struct Filling {
    /// The memory that is left to give.
    room: u64,
    given: Vec<u64>,
    most: Vec<u64>,
}

impl Filling {
    fn of(node: &Node<'_>) -> Self {
        let all = node.bytes / LEASE_UNIT_BYTES;
        let given: Vec<u64> = node
            .members
            .iter()
            .map(|member| {
                if member.is_stalled {
                    member.lease_bytes.div_ceil(LEASE_UNIT_BYTES)
                } else {
                    0
                }
            })
            .collect();
        let most = |(member, given): (&Member, &u64)| {
            let limit = member.demand.most_bytes.max(node.least_bytes) / LEASE_UNIT_BYTES;
            if member.is_stalled { *given } else { limit.min(all) }
        };
        Self {
            room: all.saturating_sub(given.iter().sum()),
            most: node.members.iter().zip(&given).map(most).collect(),
            given,
        }
    }

    fn bytes(&self) -> Vec<u64> {
        self.given.iter().map(|units| units * LEASE_UNIT_BYTES).collect()
    }

    /// The bytes that each member lacks to so many bytes.
    fn missing(&self, bytes: impl Fn(usize) -> u64) -> Vec<u64> {
        let missing = |index: usize| {
            let limit = bytes(index).div_ceil(LEASE_UNIT_BYTES).min(self.most[index]);
            limit.saturating_sub(self.given[index])
        };
        (0..self.given.len()).map(missing).collect()
    }

    fn give(&mut self, gains: &[u64]) {
        for (given, gain) in self.given.iter_mut().zip(gains) {
            *given += gain;
            self.room -= gain;
        }
    }

    /// Raises all to so many bytes; where there is too little, everyone gets as much more as the others.
    fn raise_evenly(&mut self, bytes: impl Fn(usize) -> u64) {
        let gains = even(self.room, &self.missing(bytes));
        self.give(&gains);
    }

    /// Raises all to so many bytes. If there is too little, each gets the same part of its lack.
    fn raise_in_proportion(&mut self, bytes: impl Fn(usize) -> u64) {
        let missing = self.missing(bytes);
        let all: u128 = missing.iter().map(|units| u128::from(*units)).sum();
        let part = u128::from(self.room).min(all);
        let gain = |units: &u64| u64::try_from(u128::from(*units) * part / all.max(1)).unwrap_or(*units);
        let gains: Vec<u64> = missing.iter().map(gain).collect();
        self.give(&gains);
        // The remainders of the division, less than a unit each.
        let rest: Vec<u64> = missing
            .iter()
            .zip(&gains)
            .map(|(missing, gain)| missing - gain)
            .collect();
        let gains = even(self.room, &rest);
        self.give(&gains);
    }

    /// Gives the rest to the members to which it is worth most.
    fn sell(&mut self, members: &[Member]) {
        let mut offers: Vec<Offer> = Vec::new();
        for (index, member) in members.iter().enumerate().filter(|(_, member)| !member.is_stalled) {
            offers.extend(offers_of(index, member, self.given[index]));
        }
        // Stable: of equal ones the first member's come first, wherever this is computed.
        offers.sort_by(|a, b| b.value.total_cmp(&a.value));
        for offer in offers {
            let limit = self.most[offer.index].saturating_sub(self.given[offer.index]);
            let gain = offer.units.min(limit).min(self.room);
            self.given[offer.index] += gain;
            self.room -= gain;
        }
    }
}

/// An offer of so many units, worth so much to a member.
struct Offer {
    index: usize,
    units: u64,
    value: f64,
}

/// The worth of memory to a member beyond the units that it was given.
fn offers_of(index: usize, member: &Member, given: u64) -> Vec<Offer> {
    let kept = member.lease_bytes / LEASE_UNIT_BYTES;
    let mut offers = Vec::with_capacity(member.demand.worth.len() + 1);
    // The bounds of a piece among all memory that the member could have.
    let mut end_bytes = goals_until(&member.demand, u32::MAX);
    let mut start = given;
    for piece in member.demand.worth.iter().filter(|piece| piece.value_per_mib > 0.0) {
        end_bytes = end_bytes.saturating_add(piece.bytes);
        let end = end_bytes.div_ceil(LEASE_UNIT_BYTES).max(start);
        let held = kept.clamp(start, end);
        for (units, factor) in [(held - start, KEPT_VALUE_FACTOR), (end - held, 1.0)] {
            let value = piece.value_per_mib * factor;
            if units > 0 {
                offers.push(Offer { index, units, value });
            }
        }
        start = end;
    }
    offers
}

/// `amount` shared evenly, to each at most its limit; a remainder goes to those with the higher limits.
fn even(amount: u64, limits: &[u64]) -> Vec<u64> {
    let mut descending: Vec<usize> = (0..limits.len()).rev().collect();
    descending.sort_by_key(|index| Reverse(limits[*index]));
    let sorted: Vec<u64> = descending.iter().map(|index| limits[*index]).collect();
    let mut gains = vec![0; limits.len()];
    for (index, gain) in descending.into_iter().zip(share::even(amount, &sorted)) {
        gains[index] = gain;
    }
    gains
}
