//! How tenants share memory that is not enough for all: floors, then goals, then the rest by its worth, then lending.
//!
//! Invariants, for any input:
//!
//! - Nobody gets more than its most.
//! - Floors come before goals, and goals before anything else.
//! - Goals within reach come before all others, whatever the priorities. Among them, a higher priority comes first.
//! - All together get at most the available memory, and all of it if they can take it.
//!
//! [`check`](crate::check) knows these rules. [`shares`] is a pure function of its input, so that the same tenants
//! always share alike. Amounts of memory are whole units of whatever size; [`Returns`] count in the same.

mod level;
mod returns;
mod utility;

pub use level::{Vessel, even, level};
pub use returns::Returns;
use utility::{Corners, Gains, Scale};
pub use utility::{HitWorth, HitWorthError, Load, Utility, UtilityError};

/// How often the share of a deficit, and the price of memory, is halved: beyond a float's mantissa and exponent nothing
/// changes.
const BISECTIONS: u32 = 64;

/// A curve that rises by no more from a floor to a goal's size says nothing of the sizes between.
const FLAT: f64 = 0.001;

/// One tenant that holds memory or asks for some.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The part of its floor that it needs now, which it must get.
    pub floor: u64,
    /// The most that it can use or may have.
    pub most: u64,
    /// Whether its goal is within reach: then it is served before all that are not.
    pub is_within_reach: bool,
    /// The priority of its goal. Goals of a higher one are served first, among those within reach and among the others.
    pub priority: u8,
    /// The size that its goal needs, if it has one that others give memory for.
    pub goal: Option<u64>,
    /// The gain from memory; `None` while nothing is known.
    pub returns: Option<&'a Returns>,
    /// The rate of its gets, and the cost of answers.
    pub load: Load,
    /// The weight of its utility beside others'. Positive.
    pub weight: f64,
    /// The utility by which its memory is worth something.
    pub utility: Utility,
    /// The tenant's custom worth of its hits, if it has one, in the measure of [`Utility::Proportional`].
    pub custom_worth: Option<&'a HitWorth>,
    /// The memory that it has now.
    pub present: u64,
    /// The memory that it lent to others and did not get back yet. If memory is worth the same to several, it comes
    /// first.
    pub credit: u64,
}

impl Claimant<'_> {
    /// Goals of a higher class are served first. A priority counts only for a goal that is known to be within reach. A
    /// goal that may prove out of reach would take memory from others until then.
    pub(crate) fn class(&self) -> (bool, u8) {
        match self.is_within_reach {
            true => (true, self.priority),
            false => (false, 0),
        }
    }

    /// The larger of its floor and its goal's size, if it has a goal.
    pub(crate) fn need(&self) -> Option<u64> {
        let floor = self.floor.min(self.most);
        Some(self.goal?.min(self.most).max(floor))
    }
}

/// The share of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// All of it.
    pub size: u64,
    /// The size without memory that is lent to it because it is worth nothing to anybody.
    pub own: u64,
    /// The part that its floor and its goal come to. Between the hit ratio of its floor and that of its goal, the same
    /// part of the hit ratio is missing for all of a priority.
    pub claim: u64,
}

/// Shares `available` among the tenants; in their order. (The rule is LexFill: lexicographic max-min for goals,
/// water-filling on the concave hulls of utilities for the surplus.)
pub fn shares(available: u64, claimants: &[Claimant<'_>]) -> Vec<Share> {
    let floors: Vec<u64> = claimants
        .iter()
        .map(|claimant| claimant.floor.min(claimant.most))
        .collect();
    // Only after the memory became less than the floors: all are cut to one height.
    if floors.iter().fold(0_u64, |sum, floor| sum.saturating_add(*floor)) > available {
        return even(available, &floors).into_iter().map(Share::of_floor).collect();
    }
    let mut shares: Vec<Share> = floors.into_iter().map(Share::of_floor).collect();
    close_deficits(available, claimants, &mut shares);
    share_surplus(available, claimants, &mut shares);
    lend(available, claimants, &mut shares);
    shares
}

impl Share {
    fn of_floor(size: u64) -> Self {
        Self {
            size,
            own: size,
            claim: size,
        }
    }
}

/// The memory that is left.
fn rest(available: u64, shares: &[Share]) -> u64 {
    available.saturating_sub(shares.iter().map(|share| share.size).sum())
}

/// A tenant on the way from its floor to its goal.
struct Deficit<'a> {
    index: usize,
    floor: u64,
    need: u64,
    returns: Option<&'a Returns>,
}

impl Deficit<'_> {
    /// The size that closes so much of its deficit of hits, 0 to 1.
    fn size(&self, closed: f64) -> u64 {
        let (floor, need) = (self.floor as f64, self.need as f64);
        let size = match self.returns {
            // The curve may see no use for memory that was found to be needed. Memory itself is the missing quantity
            // then.
            Some(returns) if returns.hit_ratio(need) - returns.hit_ratio(floor) > FLAT => {
                let (low, high) = (returns.hit_ratio(floor), returns.hit_ratio(need));
                returns.size_for(low + closed * (high - low)).clamp(floor, need)
            }
            _ => floor + closed * (need - floor),
        };
        // If the curve is flat up to the goal, its size is believed and not its curve.
        if closed >= 1.0 { self.need } else { size as u64 }
    }
}

/// Goals, by class: within one, the same part of each one's deficit is closed. The first class whose goals cannot all be met
/// ends it: those below keep their floors.
fn close_deficits(available: u64, claimants: &[Claimant<'_>], shares: &mut [Share]) {
    let mut deficits: Vec<Deficit<'_>> = claimants
        .iter()
        .enumerate()
        .filter_map(|(index, claimant)| {
            Some(Deficit {
                index,
                floor: shares[index].size,
                need: claimant.need()?,
                returns: claimant.returns,
            })
        })
        .collect();
    deficits.sort_by_key(|deficit| std::cmp::Reverse(claimants[deficit.index].class()));
    let mut is_short = false;
    for class in deficits.chunk_by(|a, b| claimants[a.index].class() == claimants[b.index].class()) {
        let rest = rest(available, shares);
        let taken = |closed: f64| {
            class.iter().fold(0_u64, |sum, deficit| {
                sum.saturating_add(deficit.size(closed) - deficit.floor)
            })
        };
        let mut closed = 0.0;
        if !is_short && taken(1.0) <= rest {
            closed = 1.0;
        } else if !is_short {
            let mut high = 1.0;
            for _ in 0..BISECTIONS {
                let middle = closed + (high - closed) / 2.0;
                if taken(middle) <= rest {
                    closed = middle;
                } else {
                    high = middle;
                }
            }
            is_short = true;
        }
        for deficit in class {
            shares[deficit.index] = Share::of_floor(deficit.size(closed));
        }
    }
}

/// The amount that a tenant takes at the higher and at the lower one of two prices.
struct Taken {
    least: f64,
    most: f64,
}

impl Taken {
    /// Whether it takes more at the lower one.
    fn is_open(&self) -> bool {
        self.least < self.most
    }
}

/// The memory left after floors and goals goes where it is worth most, as far as it is worth anything.
fn share_surplus(available: u64, claimants: &[Claimant<'_>], shares: &mut [Share]) {
    let rest = rest(available, shares);
    let scale = scale(claimants);
    let mut scratch = Corners::new();
    let gains: Vec<Gains> = claimants
        .iter()
        .zip(shares.iter())
        .map(|(claimant, share)| Gains::of(claimant, share.size, &scale, &mut scratch))
        .collect();
    let Some((cheapest, dearest)) = gains
        .iter()
        .filter_map(Gains::prices)
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    else {
        return;
    };
    // Above the dearest price nobody takes anything, below the cheapest everybody all that is worth something to it.
    let (mut low, mut high) = ((cheapest / 2.0).ln(), (dearest * 2.0).ln());
    let mut taken: Vec<Taken> = gains
        .iter()
        .map(|gains| Taken {
            least: gains.size_at(high.exp()),
            most: gains.size_at(low.exp()),
        })
        .collect();
    let before: f64 = shares.iter().map(|share| share.size as f64).sum();
    if taken.iter().map(|taken| taken.most).sum::<f64>() - before <= rest as f64 {
        taken.iter_mut().for_each(|taken| taken.least = taken.most);
    }
    // Most take the same at both prices soon, and are not asked again.
    let mut open: Vec<usize> = (0..taken.len()).filter(|index| taken[*index].is_open()).collect();
    let settled = taken.iter().filter(|taken| !taken.is_open()).map(|taken| taken.least);
    let mut settled = settled.sum::<f64>() - before;
    let mut sizes = Vec::with_capacity(open.len());
    for _ in 0..BISECTIONS {
        if open.is_empty() {
            break;
        }
        let middle = low + (high - low) / 2.0;
        let price = middle.exp();
        sizes.clear();
        sizes.extend(open.iter().map(|index| gains[*index].size_at(price)));
        let fits = settled + sizes.iter().sum::<f64>() <= rest as f64;
        if fits {
            high = middle;
        } else {
            low = middle;
        }
        for (index, size) in open.iter().zip(&sizes) {
            let taken = &mut taken[*index];
            *(if fits { &mut taken.least } else { &mut taken.most }) = *size;
            if !taken.is_open() {
                settled += size;
            }
        }
        open.retain(|index| taken[*index].is_open());
    }
    // Memory taken between the two prices is worth the same to all that take it.
    let mut rooms = Vec::with_capacity(shares.len());
    for ((taken, claimant), share) in taken.iter().zip(claimants).zip(shares.iter_mut()) {
        let most = (taken.most.ceil() as u64).min(claimant.most);
        share.size = (taken.least as u64).max(share.size);
        rooms.push(most.saturating_sub(share.size));
    }
    give_back_first(available, claimants, shares, &rooms);
    for share in shares {
        share.own = share.size;
    }
}

/// Memory that nobody gains by is lent to those that could hold it, until somebody gains.
fn lend(available: u64, claimants: &[Claimant<'_>], shares: &mut [Share]) {
    let rooms: Vec<u64> = claimants
        .iter()
        .zip(shares.iter())
        .map(|(claimant, share)| claimant.most.saturating_sub(share.size))
        .collect();
    give_back_first(available, claimants, shares, &rooms);
}

/// Shares the rest by weight, each at most its room; those that lent some before get as much before all others.
fn give_back_first(available: u64, claimants: &[Claimant<'_>], shares: &mut [Share], rooms: &[u64]) {
    let mut rooms = rooms.to_vec();
    let credits: Vec<u64> = claimants
        .iter()
        .zip(&rooms)
        .map(|(claimant, room)| claimant.credit.min(*room))
        .collect();
    let everyone = rooms.clone();
    for limits in [credits, everyone] {
        let vessels: Vec<Vessel> = limits
            .iter()
            .zip(&rooms)
            .zip(claimants)
            .map(|((limit, room), claimant)| Vessel {
                bottom: 0,
                top: *limit.min(room),
                weight: claimant.weight,
            })
            .collect();
        let gains = level(rest(available, shares), &vessels);
        for ((share, room), gain) in shares.iter_mut().zip(&mut rooms).zip(gains) {
            share.size += gain;
            *room -= gain;
        }
    }
}

fn scale(claimants: &[Claimant<'_>]) -> Scale {
    Scale::of(claimants.iter().filter_map(|claimant| {
        let returns = claimant.returns?;
        Some((claimant.load, returns.hit_ratio(claimant.present as f64)))
    }))
}

/// The worth of a unit of memory to a tenant, on average over the way from its present size to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// The worth of a unit, in utility; 0 for a tenant that stays where it is.
    pub unit: f64,
    /// Its standard error; 0 where nothing is known.
    pub error: f64,
    /// Whether it is known what memory gives.
    pub is_known: bool,
}

/// A difference must exceed so many standard errors.
const SURE: f64 = 2.0;
/// The gain must also be so many times the loss. Tenants to which memory is worth about the same would otherwise follow
/// their curves' errors back and forth, and refill each time.
const CLEAR: f64 = 1.5;

impl Worth {
    /// Whether memory is worth more here than there, clearly and by more than chance explains. Between two of which nothing
    /// is known there is no chance.
    pub fn exceeds(&self, there: &Self) -> bool {
        let least = if self.is_known && there.is_known { CLEAR } else { 1.0 };
        self.unit > least * there.unit && self.unit - there.unit > SURE * self.error.hypot(there.error)
    }
}

/// The worth of a unit to each tenant on its way to one of `sizes`. It covers the whole way, so that a cliff counts as
/// a whole.
pub fn worths(claimants: &[Claimant<'_>], sizes: &[u64]) -> Vec<Worth> {
    let scale = scale(claimants);
    let worth = |(claimant, size): (&Claimant<'_>, &u64)| {
        let (from, to) = (claimant.present as f64, *size as f64);
        if from == to {
            return Worth::default();
        }
        let Some(returns) = claimant.returns else {
            return Worth {
                unit: claimant.weight * (to.max(1.0) / from.max(1.0)).ln() / (to - from),
                ..Worth::default()
            };
        };
        let (before, after) = (returns.hit_ratio(from), returns.hit_ratio(to));
        let worth = |hit_ratio| scale.worth(claimant, hit_ratio);
        let unit = claimant.weight * (worth(after) - worth(before)) / (to - from);
        let is_flat = before == after;
        let error = if is_flat {
            0.0
        } else {
            unit * returns.error_between(from, to) / (after - before).abs()
        };
        Worth {
            unit,
            error,
            is_known: true,
        }
    };
    claimants.iter().zip(sizes).map(worth).collect()
}

#[cfg(test)]
mod tests;
