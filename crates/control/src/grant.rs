//! From shares of the pool to the next grants: [`shares`] says what everyone should have, this is the way there.
//!
//! Memory for floors, and memory that goals fill, is given at once. Free memory goes to those that want more. In a full
//! pool, memory above a tenant's share moves to those that are full and below theirs, from where it is worth least. It
//! moves as fast as they fill it, and no faster than a step. It moves only if it is surely and clearly worth more to
//! them within the next minute.
//!
//! ```text
//!   claims --> more than there is? taken from those furthest above their shares
//!     |
//!     v
//!   free memory, phase by phase ([`Phase`]) --> moves, in a full pool --> all of it, or nothing if nobody gains enough
//! ```
//!
//! | phase | receivers | up to | the next one comes when |
//! |---|---|---|---|
//! | claims | all, whether memory is free or not | usage, floor, and a goal within reach as fast as it fills | all claims are met |
//! | `Filling` | those on the way to their share | what they fill soon, within share and grant | all have that, as in each phase below; without free memory none follows |
//! | `Headroom` | all | usage and a little | |
//! | `Shares` | those that want more | their share | |
//! | `Wants` | those that want more | their limit | |
//! | `Present` | all | their present grant | moves follow |
//!
//! A pure function: the present holders go in, their grants come out. Invariants, for any input: every grant is a
//! multiple of [`UNIT_BYTES`], no grant is above its cap, and all together are at most [`grantable_bytes`]. Inside,
//! memory is counted in units.

mod tuning;

use tidemark_plan::{Claimant, HitWorth, Load, Reach, Returns, Share, Utility, Worth, check, even, shares, worths};
use tidemark_types::{MIB, UNIT_BYTES};

pub(crate) use tuning::HEADROOM;
use tuning::{GOALS, MOVES};

/// One tenant that holds memory or asks for some.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holder<'a> {
    /// Guaranteed while the tenant needs it.
    pub floor_bytes: u64,
    /// Never exceeded; `None`: the pool is the limit.
    pub cap_bytes: Option<u64>,
    /// The need of its goal, if it has one: it gets no more than that.
    pub goal: Option<GoalNeed>,
    /// The priority of its goal. Goals of a higher one are served first, among those within reach and among the others.
    pub priority: u8,
    /// The weight of its utility beside others'. Positive.
    pub weight: f64,
    /// The utility by which it gets memory that no floor and no goal takes.
    pub utility: Utility,
    /// The custom worth of its hits, if its program has one.
    pub custom_worth: Option<&'a HitWorth>,
    /// The rate of its gets, and the cost of answers.
    pub load: Load,
    /// Its gain from memory, in units; `None` while nothing is known.
    pub returns: Option<&'a Returns>,
    /// The memory that it lent and did not get back yet.
    pub credit_bytes: u64,
    /// The grant in force.
    pub grant_bytes: u64,
    /// The memory that it holds.
    pub usage_bytes: u64,
    /// Its shards: each needs a segment of its own to write to.
    pub shards: u16,
    /// It grew, evicted or refused writes lately, or adds items since it grew, so that it would use more memory.
    pub wants_more: bool,
    /// It evicted or refused writes since the last round, or its usage is at its grant.
    pub is_full: bool,
    /// About how much it wrote since the last round, in bytes.
    pub inflow_bytes: u64,
    /// About how much it writes in a minute, by the last rounds, in bytes.
    pub inflow_bytes_per_minute: u64,
}

/// The need of a tenant's goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoalNeed {
    /// The least memory that reaches it, in bytes.
    pub bytes: u64,
    /// Whether all the memory that there is for it would reach it: that decides whether others give memory for it.
    pub reach: Reach,
}

/// The load that is assumed for a tenant of which nothing is known.
const STRANGER: Load = Load {
    gets_per_second: 0.0,
    hit_cost_us: 1.0,
    miss_cost_us: 200.0,
};

impl Default for Holder<'_> {
    fn default() -> Self {
        Self {
            floor_bytes: 0,
            cap_bytes: None,
            goal: None,
            priority: 0,
            weight: 1.0,
            utility: Utility::default(),
            custom_worth: None,
            load: STRANGER,
            returns: None,
            credit_bytes: 0,
            grant_bytes: 0,
            usage_bytes: 0,
            shards: 0,
            wants_more: false,
            is_full: false,
            inflow_bytes: 0,
            inflow_bytes_per_minute: 0,
        }
    }
}

/// The decision about one holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The memory that it may hold from now on.
    pub bytes: u64,
    /// The part that is not lent to it.
    pub own_bytes: u64,
    /// Others come first, and leave noticeably less than its goal needs.
    pub is_short: bool,
}

/// The input of [`grants`].
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The pool.
    pub pool_bytes: u64,
    /// The most that may move between tenants this time beyond what floors, caps and the pool's size demand.
    pub step_bytes: u64,
    /// Everyone that holds memory or asks for some.
    pub holders: &'a [Holder<'a>],
}

/// The memory that is never granted, so that a tenant that arrives in a full pool can begin at once: a 64th of the
/// pool, at least 1 MiB.
pub fn reserve_bytes(pool_bytes: u64) -> u64 {
    (pool_bytes / 64).max(MIB) / UNIT_BYTES * UNIT_BYTES
}

/// The pool in which so much can be granted; none for nothing.
pub(crate) fn pool_for(granted_bytes: u64) -> u64 {
    // A 64th of the pool is a 63rd of the rest.
    let reserve_bytes = granted_bytes.div_ceil(63).max(MIB);
    let pool_bytes = granted_bytes.saturating_add(reserve_bytes).saturating_add(UNIT_BYTES);
    if granted_bytes == 0 { 0 } else { pool_bytes }
}

/// The limit of all grants together.
pub(crate) fn grantable_bytes(pool_bytes: u64) -> u64 {
    pool_bytes.saturating_sub(reserve_bytes(pool_bytes)) / UNIT_BYTES * UNIT_BYTES
}

/// The shares of the pool that grants move towards, in bytes and in the order of the holders: where they would come to if
/// nothing else changed.
pub(crate) fn targets(pool_bytes: u64, holders: &[Holder<'_>]) -> Vec<u64> {
    let shared = Shared::of(grantable_bytes(pool_bytes) / UNIT_BYTES, holders);
    shared.targets.iter().map(|share| share.size * UNIT_BYTES).collect()
}

/// The holders in units, and their shares.
struct Shared<'a> {
    sides: Vec<Side>,
    claimants: Vec<Claimant<'a>>,
    targets: Vec<Share>,
}

impl<'a> Shared<'a> {
    fn of(available: u64, holders: &[Holder<'a>]) -> Self {
        let mut sides: Vec<Side> = holders.iter().map(|holder| Side::of(holder, available)).collect();
        leave_something(&mut sides, holders, available);
        let claimants: Vec<Claimant<'_>> = holders
            .iter()
            .zip(&sides)
            .map(|(holder, side)| side.claimant(holder))
            .collect();
        let targets = shares(available, &claimants);
        debug_assert_eq!(check(available, &claimants, &targets), Ok(()), "{claimants:?}");
        Self {
            sides,
            claimants,
            targets,
        }
    }
}

/// The grants, in the order of the holders.
pub fn grants(problem: &Problem<'_>) -> Vec<Grant> {
    let available = grantable_bytes(problem.pool_bytes) / UNIT_BYTES;
    let Shared {
        mut sides,
        mut claimants,
        targets,
    } = Shared::of(available, problem.holders);
    for (side, share) in sides.iter_mut().zip(&targets) {
        side.claim = side.claim.min(share.claim).max(side.floor.min(share.claim));
    }
    let mut grants: Vec<u64> = sides.iter().map(|side| side.held.max(side.claim)).collect();

    let granted = sum(&grants);
    if granted > available {
        take_furthest_above(&mut grants, &targets, granted - available);
    }
    share_what_is_free(&mut grants, &sides, &targets, available);
    for (claimant, grant) in claimants.iter_mut().zip(&grants) {
        claimant.present = *grant;
    }
    let sizes: Vec<u64> = targets.iter().map(|share| share.size).collect();
    let worths = worths(&claimants, &sizes);
    let moved = move_towards_targets(&mut grants, &sides, &sizes, &worths, problem.step_bytes / UNIT_BYTES);

    let settled = if moved > 0 || is_worth_moving(&grants, &sides, available) {
        grants
    } else {
        sides.iter().map(|side| side.current).collect()
    };
    let decided = settled.into_iter().zip(targets.iter().zip(&sides));
    decided
        .map(|(units, (share, side))| Grant {
            bytes: units * UNIT_BYTES,
            own_bytes: share.own.min(units) * UNIT_BYTES,
            is_short: side.goal.is_some_and(|goal| {
                let need = goal.min(side.demand);
                share.own + need / GOALS.short_divisor < need
            }),
        })
        .collect()
}

/// If goals take memory, they leave something to those that have neither goal nor floor, as far as floors allow.
fn leave_something(sides: &mut [Side], holders: &[Holder<'_>], available: u64) {
    if !sides.iter().any(|side| side.goal.is_some()) {
        return;
    }
    let least = available / (GOALS.leave_divisor * holders.len() as u64);
    let left: Vec<u64> = sides.iter().map(|side| side.floor.max(side.keep.min(least))).collect();
    if sum(&left) <= available {
        for (side, left) in sides.iter_mut().zip(left) {
            side.floor = left;
            side.claim = side.claim.max(left);
        }
    }
}

/// A holder in units, with the values that follow from its settings and its usage alone.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// The grant in force.
    current: u64,
    /// The cap, at most all that can be granted.
    limit: u64,
    /// The usage, within the limit.
    held: u64,
    /// Usage and a little headroom, within the limit.
    keep: u64,
    /// The part of the floor that it needs now: the rest is lent until it grows.
    floor: u64,
    /// That, or more for its goal as fast as it fills it.
    claim: u64,
    /// The memory that its goal needs in all, if others give memory for it.
    goal: Option<u64>,
    /// The memory that it would use if it could.
    demand: u64,
    wants_more: bool,
    is_full: bool,
    inflow: u64,
    inflow_per_minute: u64,
}

impl Side {
    fn of(holder: &Holder<'_>, available: u64) -> Self {
        let cap = holder
            .cap_bytes
            .map_or(available, |cap| (cap / UNIT_BYTES).min(available));
        // Every shard needs a segment to write to, whatever the goal.
        let least = u64::from(holder.shards).max(HEADROOM.units_min);
        let goal = holder.goal.map(|goal| goal.bytes.div_ceil(UNIT_BYTES).max(least));
        let limit = goal.map_or(cap, |goal| goal.min(cap));
        let usage = holder.usage_bytes.div_ceil(UNIT_BYTES);
        let inflow = holder.inflow_bytes / UNIT_BYTES;
        let inflow_per_minute = (holder.inflow_bytes_per_minute / UNIT_BYTES).max(inflow);
        let written = if holder.wants_more {
            in_seconds(inflow_per_minute, HEADROOM.seconds)
        } else {
            0
        };
        let headroom = written
            .min((usage / HEADROOM.most_divisor).max(MOVES.transfer_units_min))
            .max(usage / HEADROOM.divisor)
            .max(u64::from(holder.shards))
            .max(HEADROOM.units_min);
        let keep = usage.saturating_add(headroom).min(limit);
        let demand = if holder.wants_more { limit } else { keep };
        let ahead = (usage / HEADROOM.goal_divisor)
            .max(inflow.saturating_mul(HEADROOM.goal_per_inflow))
            .max(MOVES.transfer_units_min);
        let floor = holder.floor_bytes.div_ceil(UNIT_BYTES).min(demand);
        let claim = if holder.goal.is_some_and(|goal| goal.reach.claims()) {
            usage.saturating_add(ahead).min(limit).max(floor)
        } else {
            floor
        };
        Self {
            current: holder.grant_bytes / UNIT_BYTES,
            limit,
            held: usage.min(limit),
            keep,
            floor,
            claim,
            goal: goal.filter(|_| holder.goal.is_some_and(|goal| goal.reach.claims())),
            demand,
            wants_more: holder.wants_more,
            is_full: holder.is_full,
            inflow,
            inflow_per_minute,
        }
    }

    /// The holder as one of those that share the pool.
    fn claimant<'a>(&self, holder: &Holder<'a>) -> Claimant<'a> {
        Claimant {
            floor: self.floor,
            most: self.demand.max(self.floor),
            is_within_reach: holder.goal.is_some_and(|goal| goal.reach == Reach::Within),
            priority: holder.priority,
            goal: self.goal,
            returns: holder.returns,
            load: holder.load,
            weight: holder.weight,
            utility: holder.utility,
            custom_worth: holder.custom_worth,
            present: self.held,
            credit: holder.credit_bytes / UNIT_BYTES,
        }
    }

    /// The memory that it holds on to on the way to its share.
    fn soon(&self) -> u64 {
        let filled = in_seconds(self.inflow_per_minute, HEADROOM.ahead_seconds).max(self.transfer());
        self.held.saturating_add(filled).max(self.keep)
    }

    /// The most that it may gain at once.
    fn transfer(&self) -> u64 {
        self.inflow
            .saturating_mul(MOVES.transfer_per_inflow)
            .max(MOVES.transfer_units_min)
    }

    /// The least gain for which anything moves.
    fn least_gain(&self) -> u64 {
        (self.current / MOVES.gain_divisor).max(1)
    }
}

/// Takes `amount` from those furthest above their target until all of them are equally far above it.
fn take_furthest_above(grants: &mut [u64], targets: &[Share], amount: u64) {
    let surplus: Vec<u64> = grants
        .iter()
        .zip(targets)
        .map(|(grant, target)| grant.saturating_sub(target.size))
        .collect();
    let kept = even(sum(&surplus).saturating_sub(amount), &surplus);
    for ((grant, had), keeps) in grants.iter_mut().zip(&surplus).zip(kept) {
        *grant -= had - keeps;
    }
}

/// The receivers of free memory, one phase after the other.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Unfilled memory stays where it was granted towards a share: else a faster writer would have it back. But no more
    /// stays than is filled soon.
    Filling,
    /// The rest goes to everyone's headroom, so that a tenant that is about to evict comes before memory that others would
    /// fill in minutes.
    Headroom,
    /// Then it goes to those that want more, up to their shares, the same to each.
    Shares,
    /// And beyond.
    Wants,
    /// Memory that they cannot use leaves the others where they are, because taking back what nobody needs would only have
    /// to be undone.
    Present,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Filling, Self::Headroom, Self::Shares, Self::Wants, Self::Present];

    /// The size up to which a holder with this share gets memory in this phase.
    fn upper_bound(self, side: &Side, share: &Share) -> u64 {
        match self {
            Self::Filling => side.current.min(share.size).min(side.soon()),
            Self::Headroom => side.keep,
            Self::Shares if side.wants_more => share.size.min(side.limit),
            Self::Wants if side.wants_more => side.limit,
            Self::Shares | Self::Wants => 0,
            Self::Present => side.current.min(side.limit),
        }
    }
}

/// Shares out what is free, phase by phase.
fn share_what_is_free(grants: &mut [u64], sides: &[Side], targets: &[Share], available: u64) {
    for phase in Phase::ALL {
        let free = available.saturating_sub(sum(grants));
        let room: Vec<u64> = grants
            .iter()
            .zip(sides.iter().zip(targets))
            .map(|(grant, (side, share))| phase.upper_bound(side, share).saturating_sub(*grant))
            .collect();
        for (grant, gain) in grants.iter_mut().zip(even(free, &room)) {
            *grant += gain;
        }
    }
}

/// In a full pool memory moves from the tenants above their target to which it is worth least. It goes to all that are
/// full, well below theirs, and gain by it. Returns how much it moved.
fn move_towards_targets(grants: &mut [u64], sides: &[Side], sizes: &[u64], worths: &[Worth], step: u64) -> u64 {
    let rooms: Vec<u64> = grants
        .iter()
        .zip(sides.iter().zip(sizes))
        .map(|(grant, (side, size))| {
            let missing = size.saturating_sub(*grant);
            let asks = side.wants_more && side.is_full && missing >= side.least_gain();
            if asks {
                missing.min(side.transfer()).min(step)
            } else {
                0
            }
        })
        .collect();
    let surplus: Vec<u64> = grants
        .iter()
        .zip(sizes)
        .map(|(grant, size)| grant.saturating_sub(*size))
        .collect();
    // A shrinking tenant loses at once, a growing one gains as it fills.
    let gains = |receiver: usize, donor: &Worth| {
        let filled = part_of_next_minute(rooms[receiver] as f64, sides[receiver].inflow_per_minute);
        worths[receiver].exceeds(donor) && worths[receiver].unit * filled > donor.unit
    };
    let mut donors: Vec<usize> = (0..grants.len()).filter(|donor| surplus[*donor] > 0).collect();
    donors.sort_by(|a, b| worths[*a].unit.total_cmp(&worths[*b].unit));
    // One of which too little is known to take from it does not protect those behind it.
    for (place, first) in donors.iter().enumerate() {
        let cheapest = &worths[*first];
        let gets = |(receiver, room): (usize, &u64)| {
            if *room > 0 && gains(receiver, cheapest) {
                *room
            } else {
                0
            }
        };
        let gets: Vec<u64> = rooms.iter().enumerate().map(gets).collect();
        if sum(&gets) == 0 {
            continue;
        }
        let mut gives = vec![0; grants.len()];
        for donor in &donors[place..] {
            if worths[*donor].unit <= cheapest.unit * MOVES.alike {
                gives[*donor] = surplus[*donor];
            }
        }
        let moved = sum(&gets).min(sum(&gives)).min(step);
        let kept = even(sum(&gives) - moved, &gives);
        for ((grant, gives), keeps) in grants.iter_mut().zip(gives).zip(kept) {
            *grant -= gives - keeps;
        }
        for (grant, gain) in grants.iter_mut().zip(even(moved, &gets)) {
            *grant += gain;
        }
        return moved;
    }
    0
}

/// The part of the next minute for which new memory is filled, on average over that memory; memory that is taken is
/// gone at once.
fn part_of_next_minute(growth: f64, filled_per_minute: u64) -> f64 {
    let minutes = growth / filled_per_minute.max(1) as f64;
    if minutes <= 0.0 {
        1.0
    } else if minutes <= 1.0 {
        1.0 - minutes / 2.0
    } else {
        0.5 / minutes
    }
}

/// Whether somebody gains enough from free memory, or the grants in force break a promise.
fn is_worth_moving(grants: &[u64], sides: &[Side], available: u64) -> bool {
    let current: u64 = sides.iter().map(|side| side.current).sum();
    current > available
        || grants.iter().zip(sides).any(|(grant, side)| {
            let is_promised = (side.claim.min(*grant)..=side.limit).contains(&side.current);
            !is_promised || *grant >= side.current + side.least_gain()
        })
}

/// The bytes written in so many seconds.
fn in_seconds(per_minute: u64, seconds: u64) -> u64 {
    per_minute.saturating_mul(seconds) / 60
}

fn sum(units: &[u64]) -> u64 {
    units.iter().sum()
}

#[cfg(test)]
mod tests;
