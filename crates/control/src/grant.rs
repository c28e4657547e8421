//! The rule that shares the pool until tenants compete by their curves (design, 5.2): floors are kept, and tenants with a
//! goal get what it needs; the rest goes first come, first served, up to the cap; when the pool is full, the tenant
//! furthest above its equal share gives back to those that want more and are below theirs.
//!
//! A pure function: what holds memory now goes in, what may hold how much comes out. Invariants, for any input: every
//! grant is a multiple of [`UNIT_BYTES`], no grant is above its cap, and all together are at most [`grantable_bytes`].
//! Inside, memory is counted in units.

use tidemark_types::{MIB, UNIT_BYTES};

/// What a tenant that asks for more must stand to gain before grants move: a 64th of its grant. Less would move
/// segments back and forth between tenants for no difference that anybody sees.
const MIN_GAIN_DIVISOR: u64 = 64;
/// What a tenant below its equal share may always gain at once: one large segment.
const MIN_TRANSFER_UNITS: u64 = 2 * MIB / UNIT_BYTES;
/// A tenant gains at most this multiple of what it just wrote, so that a slow writer does not empty its neighbours for
/// memory that it would need hours to fill.
const TRANSFER_PER_INFLOW: u64 = 4;
/// Beyond its usage a tenant keeps a 16th of it, so that it can write on until the next round.
const HEADROOM_DIVISOR: u64 = 16;
/// The least such headroom.
const MIN_HEADROOM_UNITS: u64 = 4;
/// A tenant that fills towards its goal claims this part of its usage ahead, or so much of what it just wrote if that is
/// more: enough until the next round, and others keep what it could not fill yet.
const GOAL_HEADROOM_DIVISOR: u64 = 4;
const GOAL_HEADROOM_PER_INFLOW: u64 = 4;
/// Goals leave everybody this part of an equal share, as far as it is held.
const GOALS_LEAVE_DIVISOR: u64 = 2;

/// One tenant that holds memory or asks for some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Guaranteed while the tenant needs it.
    pub floor_bytes: u64,
    /// Never exceeded; `None`: the pool is the limit.
    pub cap_bytes: Option<u64>,
    /// What its goal needs, if it has one: it gets no more than that.
    pub goal: Option<GoalNeed>,
    /// The grant in force.
    pub grant_bytes: u64,
    /// What it holds.
    pub usage_bytes: u64,
    /// Its shards: each needs a segment of its own to write to.
    pub shards: u16,
    /// It grew, evicted or refused writes lately, so that it would use more memory.
    pub wants_more: bool,
    /// It evicted or refused writes since the last round, or its usage is at its grant.
    pub is_full: bool,
    /// About how much it wrote since the last round, in bytes.
    pub inflow_bytes: u64,
}

/// What a tenant's goal needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoalNeed {
    /// The least memory that reaches it, in bytes.
    pub bytes: u64,
    /// Whether others give memory for it. A goal that can not be reached is served with what is free.
    pub claims: bool,
}

/// What [`grants`] decides about.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The pool.
    pub pool_bytes: u64,
    /// The most that may move between tenants this time beyond what floors, caps and the pool's size demand.
    pub step_bytes: u64,
    /// Everyone that holds memory or asks for some.
    pub holders: &'a [Holder],
}

/// What is never granted, so that a tenant that arrives in a full pool can begin at once: a 64th of the pool, at least
/// 1 MiB.
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

/// What all grants together may come to.
pub(crate) fn grantable_bytes(pool_bytes: u64) -> u64 {
    pool_bytes.saturating_sub(reserve_bytes(pool_bytes)) / UNIT_BYTES * UNIT_BYTES
}

/// The grants in bytes, in the order of the holders.
pub fn grants(problem: &Problem<'_>) -> Vec<u64> {
    let available = grantable_bytes(problem.pool_bytes) / UNIT_BYTES;
    let mut sides: Vec<Side> = problem
        .holders
        .iter()
        .map(|holder| Side::of(holder, available))
        .collect();
    if problem
        .holders
        .iter()
        .any(|holder| holder.goal.is_some_and(|goal| goal.claims))
    {
        let left = available / (GOALS_LEAVE_DIVISOR * problem.holders.len() as u64);
        for side in &mut sides {
            side.claim = side.claim.max(side.keep.min(left));
        }
    }
    let targets = targets(&sides, available);
    let mut grants: Vec<u64> = sides.iter().map(|side| side.held.max(side.claim)).collect();

    let granted = sum(&grants);
    if granted > available {
        take_furthest_above(&mut grants, &targets, granted - available);
    }
    share_what_is_free(&mut grants, &sides, available);
    let moved = move_towards_equal_shares(&mut grants, &sides, &targets, problem.step_bytes / UNIT_BYTES);

    let settled = if moved > 0 || is_worth_moving(&grants, &sides, available) {
        grants
    } else {
        sides.iter().map(|side| side.current).collect()
    };
    settled.into_iter().map(|units| units * UNIT_BYTES).collect()
}

/// A holder in units, with what follows from its settings and its usage alone.
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
    /// That, or more for its goal, or so that goals leave something.
    claim: u64,
    /// What it would use if it could.
    demand: u64,
    wants_more: bool,
    is_full: bool,
    inflow: u64,
}

impl Side {
    fn of(holder: &Holder, available: u64) -> Self {
        let cap = holder
            .cap_bytes
            .map_or(available, |cap| (cap / UNIT_BYTES).min(available));
        // Every shard needs a segment to write to, whatever the goal.
        let least = u64::from(holder.shards).max(MIN_HEADROOM_UNITS);
        let goal = holder.goal.map(|goal| goal.bytes.div_ceil(UNIT_BYTES).max(least));
        let limit = goal.map_or(cap, |goal| goal.min(cap));
        let usage = holder.usage_bytes.div_ceil(UNIT_BYTES);
        let headroom = (usage / HEADROOM_DIVISOR)
            .max(u64::from(holder.shards))
            .max(MIN_HEADROOM_UNITS);
        let keep = usage.saturating_add(headroom).min(limit);
        let demand = if holder.wants_more { limit } else { keep };
        let inflow = holder.inflow_bytes / UNIT_BYTES;
        let ahead = (usage / GOAL_HEADROOM_DIVISOR)
            .max(inflow.saturating_mul(GOAL_HEADROOM_PER_INFLOW))
            .max(MIN_TRANSFER_UNITS);
        let floor = holder.floor_bytes.div_ceil(UNIT_BYTES).min(demand);
        let claim = if holder.goal.is_some_and(|goal| goal.claims) {
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
            demand,
            wants_more: holder.wants_more,
            is_full: holder.is_full,
            inflow,
        }
    }

    /// What it must stand to gain before anything moves.
    fn least_gain(&self) -> u64 {
        (self.current / MIN_GAIN_DIVISOR).max(1)
    }
}

/// Equal shares: everyone gets the same, except that nobody gets more than it would use, nor less than it can claim.
fn targets(sides: &[Side], available: u64) -> Vec<u64> {
    let floors: Vec<u64> = sides.iter().map(|side| side.floor).collect();
    // Only after the pool was made smaller than the floors: all are cut to one height.
    if sum(&floors) > available {
        return even(available, &floors);
    }
    let claimed: u64 = sides.iter().map(|side| side.claim).sum();
    let heights: Vec<(u64, u64)> = sides
        .iter()
        .map(|side| {
            if claimed > available {
                // Floors come before goals.
                (side.floor, side.claim)
            } else {
                (side.claim, side.demand)
            }
        })
        .collect();
    level(available, &heights)
}

/// Takes `amount` from those furthest above their target until all of them are equally far above it.
fn take_furthest_above(grants: &mut [u64], targets: &[u64], amount: u64) {
    let surplus: Vec<u64> = grants
        .iter()
        .zip(targets)
        .map(|(grant, target)| grant.saturating_sub(*target))
        .collect();
    let kept = even(sum(&surplus).saturating_sub(amount), &surplus);
    for ((grant, had), keeps) in grants.iter_mut().zip(&surplus).zip(kept) {
        *grant -= had - keeps;
    }
}

/// What nobody holds goes first to everyone's headroom, then to those that want more, the same to each; what they can
/// not use leaves the others where they are, because taking back what nobody needs would only have to be undone.
fn share_what_is_free(grants: &mut [u64], sides: &[Side], available: u64) {
    let upper_bounds: [fn(&Side) -> u64; 3] = [
        |side| side.keep,
        |side| if side.wants_more { side.limit } else { 0 },
        |side| side.current.min(side.limit),
    ];
    for upper_bound in upper_bounds {
        let free = available.saturating_sub(sum(grants));
        let room: Vec<u64> = grants
            .iter()
            .zip(sides)
            .map(|(grant, side)| upper_bound(side).saturating_sub(*grant))
            .collect();
        for (grant, gain) in grants.iter_mut().zip(even(free, &room)) {
            *grant += gain;
        }
    }
}

/// In a full pool: from those furthest above their equal share to those that are full and well below theirs. Returns
/// how much it moved.
fn move_towards_equal_shares(grants: &mut [u64], sides: &[Side], targets: &[u64], step: u64) -> u64 {
    let room: Vec<u64> = grants
        .iter()
        .zip(sides)
        .zip(targets)
        .map(|((grant, side), target)| {
            let most = side.inflow.saturating_mul(TRANSFER_PER_INFLOW).max(MIN_TRANSFER_UNITS);
            let missing = target.saturating_sub(*grant);
            let asks = side.wants_more && side.is_full && missing >= side.least_gain();
            if asks { missing.min(most) } else { 0 }
        })
        .collect();
    let above: u64 = grants
        .iter()
        .zip(targets)
        .map(|(grant, target)| grant.saturating_sub(*target))
        .sum();
    let moved = sum(&room).min(above).min(step);
    take_furthest_above(grants, targets, moved);
    for (grant, gain) in grants.iter_mut().zip(even(moved, &room)) {
        *grant += gain;
    }
    moved
}

/// Whether somebody gains enough of what is free, or the grants in force break a promise.
fn is_worth_moving(grants: &[u64], sides: &[Side], available: u64) -> bool {
    let current: u64 = sides.iter().map(|side| side.current).sum();
    current > available
        || grants.iter().zip(sides).any(|(grant, side)| {
            let is_promised = (side.claim.min(*grant)..=side.limit).contains(&side.current);
            !is_promised || *grant >= side.current + side.least_gain()
        })
}

/// `amount` shared evenly, to each at most its limit.
fn even(amount: u64, limits: &[u64]) -> Vec<u64> {
    let heights: Vec<(u64, u64)> = limits.iter().map(|limit| (0, *limit)).collect();
    level(amount, &heights)
}

/// Water of `amount` units in vessels that reach from a bottom, always full, to a top: the height that each is filled
/// to. What does not divide evenly goes to the first ones, one unit each. With `amount` below the bottoms' sum: the
/// bottoms.
fn level(amount: u64, vessels: &[(u64, u64)]) -> Vec<u64> {
    let filled = |height: u64| vessels.iter().map(move |(bottom, top)| height.min(*top).max(*bottom));
    let highest = vessels.iter().map(|(_, top)| *top).max().unwrap_or(0);
    // The greatest height that `amount` fills, by bisection: below `low` it always does, above `high` never.
    let (mut low, mut high) = (0, highest);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if filled(middle).sum::<u64>() <= amount {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let mut heights: Vec<u64> = filled(low).collect();
    let mut rest = amount.saturating_sub(sum(&heights));
    for (height, (_, top)) in heights.iter_mut().zip(vessels) {
        if rest == 0 {
            break;
        }
        if *height == low && *top > low {
            *height += 1;
            rest -= 1;
        }
    }
    heights
}

fn sum(units: &[u64]) -> u64 {
    units.iter().sum()
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;
