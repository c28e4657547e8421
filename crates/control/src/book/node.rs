//! The demand of all tenants together, for the other instances of a node to weigh against their own.
//!
//! The seam is [`Book::demand`]: the statement follows from each tenant's settings, usage, goal and curve. Goals'
//! classes are their priorities, those within reach before all others. Memory is worth the hits that it brings,
//! whatever the utilities within an instance.
//!
//! Invariant: nothing is asked for that could not be filled soon, so that no other instance evicts used items for
//! memory that would lie idle.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use tidemark_plan::node::{Demand, GoalDemand, Worth};
use tidemark_plan::{Reach, Returns};
use tidemark_types::{MIB, TenantId, UNIT_BYTES, UnixMs};

use super::{Book, Tenant};
use crate::elastic::Elastic;
use crate::grant::pool_for;
use crate::settings::{DEFAULT_PRIORITY, MAX_PRIORITY};

/// The memory that a tenant that wants more may fill until the next leases: as much as it holds, or so much if that is
/// more.
const WISH_BYTES_MIN: u64 = 8 * MIB;
/// One that wants nothing keeps a 16th beyond its usage, as it does within its instance.
const HEADROOM_DIVISOR: u64 = 16;
/// The gain from memory is computed anew after this time; leases follow no faster.
const WORKED_OUT_EVERY: Duration = Duration::from_secs(3);
/// The number of tenants whose gain is computed at a time: each costs a look at a curve.
const WORKED_OUT_MAX: usize = 64;
/// A tenant that falls silent loses a fifth of its memory's worth each time that is computed. Memory does not leave for
/// a pause between two bursts.
const SILENCE_FACTOR: f64 = 0.8;
/// The gain from more memory without a curve, as a part of the present memory's gain: hulls are concave.
const UNKNOWN_GAIN_FACTOR: f64 = 0.5;

/// Pieces of worth in a lease: of more, others would decide nothing else.
pub(crate) const WORTH_PIECES_MAX: usize = 32;

/// The gain of a tenant from memory, from its first byte on.
#[derive(Debug, Default)]
pub(super) struct Brings {
    worked_out_at: Option<UnixMs>,
    /// Gets a second.
    gets_per_second: f64,
    /// The hit ratio that one more MiB brings, for each piece, descending.
    pieces: Vec<Worth>,
}

/// The demand of one tenant.
#[derive(Debug, Default)]
struct Ask {
    floor_bytes: u64,
    goal_bytes: u64,
    wanted_bytes: u64,
    worth: Vec<Worth>,
}

impl Book {
    /// The demand of this instance's pool, which may have at most `most_bytes`.
    pub(crate) fn demand(&mut self, now: UnixMs, most_bytes: u64) -> Demand {
        self.work_out(now);
        let (mut sum, mut by_class) = (Ask::default(), BTreeMap::<u32, u64>::new());
        for id in &self.holders {
            if let Some(tenant) = self.tenants.get(id) {
                let ask = tenant.ask(now);
                let of_class = by_class.entry(tenant.class()).or_default();
                *of_class = of_class.saturating_add(ask.goal_bytes);
                sum.add(ask);
            }
        }
        let floor_bytes = pool_for(sum.floor_bytes);
        let (mut promised_bytes, mut before_bytes) = (sum.floor_bytes, floor_bytes);
        let goals = by_class.into_iter().map(|(class, bytes)| {
            promised_bytes = promised_bytes.saturating_add(bytes);
            let up_to_bytes = pool_for(promised_bytes);
            GoalDemand {
                class,
                bytes: up_to_bytes - std::mem::replace(&mut before_bytes, up_to_bytes),
            }
        });
        let goals = goals.filter(|goal| goal.bytes > 0).collect();
        Demand {
            floor_bytes,
            goals,
            worth: merged(sum.worth),
            wanted_bytes: pool_for(sum.wanted_bytes).max(self.pool.usage_bytes),
            most_bytes,
        }
    }

    /// Works out anew what memory brings, for those that it is too old for; the next ones come the next time.
    fn work_out(&mut self, now: UnixMs) {
        let behind = (Bound::Excluded(self.worked_out_last), Bound::Unbounded);
        let until = (Bound::Unbounded, Bound::Included(self.worked_out_last));
        let in_turn = self.holders.range(behind).chain(self.holders.range(until));
        let is_due = |id: &&TenantId| {
            let tenant = self.tenants.get(id);
            let at = tenant.and_then(|tenant| tenant.needs.brings.worked_out_at);
            at.is_none_or(|at| now.since(at) >= WORKED_OUT_EVERY)
        };
        let due: Vec<TenantId> = in_turn.filter(is_due).take(WORKED_OUT_MAX).copied().collect();
        for id in due {
            let returns = self.returns(id, now);
            if let Some(tenant) = self.tenants.get_mut(&id) {
                tenant.work_out(now, returns.as_deref());
                self.worked_out_last = id;
            }
        }
    }
}

impl Tenant {
    fn work_out(&mut self, now: UnixMs, returns: Option<&Returns>) {
        let Some(seen) = self.seen.as_deref() else { return };
        let estimator = self.needs.elastic().map(Elastic::estimator);
        let (gets_per_second, pieces) = match estimator.zip(returns) {
            Some((estimator, returns)) => (estimator.gets_per_second(now), pieces(returns)),
            None => (seen.hits.hits_per_second(now), unknown(seen.usage_bytes)),
        };
        let before = self.needs.brings.gets_per_second;
        self.needs.brings = Brings {
            worked_out_at: Some(now),
            gets_per_second: gets_per_second.max(before * SILENCE_FACTOR),
            pieces,
        };
    }

    /// The class of its goal. The highest priority of goals within reach is the first one.
    fn class(&self) -> u32 {
        let priority = self.record.settings.priority.unwrap_or(DEFAULT_PRIORITY);
        let progress = self.needs.elastic().and_then(Elastic::progress);
        let is_within = progress.is_some_and(|progress| progress.reach == Reach::Within);
        let behind = if is_within { 0 } else { MAX_PRIORITY + 1 };
        u32::from(behind + MAX_PRIORITY.saturating_sub(priority))
    }

    /// The tenant's demand now, in bytes held.
    fn ask(&self, now: UnixMs) -> Ask {
        let Some(seen) = self.seen.as_deref().filter(|_| !self.is_removing) else {
            return Ask::default();
        };
        let standing = Standing {
            usage_bytes: seen.usage_bytes,
            floor_bytes: self.record.settings.floor_bytes.unwrap_or(0),
            cap_bytes: self.cap_bytes(),
            goal_bytes: self.needs.elastic().and_then(|elastic| elastic.progress()?.bytes),
            wants_more: seen.want.is_there(now),
        };
        standing.ask(&self.needs.brings)
    }
}

/// How a tenant stands, in bytes held.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    usage_bytes: u64,
    floor_bytes: u64,
    cap_bytes: Option<u64>,
    /// The need of its goal; `None` without a goal, or for one that cannot be reached.
    goal_bytes: Option<u64>,
    wants_more: bool,
}

impl Standing {
    fn ask(&self, brings: &Brings) -> Ask {
        let usage = self.usage_bytes;
        // No goal is given more than it needs, and no tenant more than its cap.
        let limit = self
            .cap_bytes
            .unwrap_or(u64::MAX)
            .min(self.goal_bytes.unwrap_or(u64::MAX));
        let ahead = if self.wants_more {
            usage.max(WISH_BYTES_MIN)
        } else {
            usage / HEADROOM_DIVISOR
        };
        let horizon = usage.saturating_add(ahead).min(limit);
        let floor = self.floor_bytes.min(if self.wants_more { limit } else { horizon });
        let promised = floor.max(self.goal_bytes.map_or(0, |_| horizon));
        Ask {
            floor_bytes: floor,
            goal_bytes: promised - floor,
            wanted_bytes: horizon.max(floor),
            worth: brings.between(promised, horizon),
        }
    }
}

impl Brings {
    /// The gain per second from memory between these sizes.
    fn between(&self, from_bytes: u64, to_bytes: u64) -> Vec<Worth> {
        let mut end = 0_u64;
        let mut worth = Vec::new();
        for piece in &self.pieces {
            let start = end.max(from_bytes);
            end = end.saturating_add(piece.bytes);
            let bytes = end.min(to_bytes).saturating_sub(start);
            let value_per_mib = piece.value_per_mib * self.gets_per_second;
            if bytes > 0 && value_per_mib > 0.0 {
                worth.push(Worth { bytes, value_per_mib });
            }
        }
        worth
    }
}

impl Ask {
    fn add(&mut self, other: Self) {
        self.floor_bytes = self.floor_bytes.saturating_add(other.floor_bytes);
        self.goal_bytes = self.goal_bytes.saturating_add(other.goal_bytes);
        self.wanted_bytes = self.wanted_bytes.saturating_add(other.wanted_bytes);
        self.worth.extend(other.worth);
    }
}

/// The gain of a tenant from memory as pieces of it, each with the hit ratio that one more MiB brings.
fn pieces(returns: &Returns) -> Vec<Worth> {
    let piece = |(units, gained): (f64, f64)| {
        let bytes = units * UNIT_BYTES as f64;
        Worth {
            bytes: bytes as u64,
            value_per_mib: gained / bytes * MIB as f64,
        }
    };
    returns.steps().map(piece).collect()
}

/// The guess without a curve: each hit was brought by the present memory, all of it alike. As much again would bring
/// half as many.
fn unknown(usage_bytes: u64) -> Vec<Worth> {
    let value_per_mib = MIB as f64 / usage_bytes.max(1) as f64;
    [1.0, UNKNOWN_GAIN_FACTOR]
        .map(|factor| Worth {
            bytes: usage_bytes,
            value_per_mib: value_per_mib * factor,
        })
        .to_vec()
}

/// The pieces of all tenants as one hull, with at most [`WORTH_PIECES_MAX`] pieces: neighbours in value are put together.
fn merged(mut pieces: Vec<Worth>) -> Vec<Worth> {
    pieces.sort_by(|a, b| b.value_per_mib.total_cmp(&a.value_per_mib));
    let all_bytes = pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.bytes));
    let long_enough = all_bytes.div_ceil(WORTH_PIECES_MAX as u64);
    let is_short = pieces.len() <= WORTH_PIECES_MAX;
    let mut hull: Vec<Worth> = Vec::with_capacity(pieces.len().min(WORTH_PIECES_MAX));
    for piece in pieces {
        match hull.last_mut() {
            Some(last) if !is_short && last.bytes < long_enough => {
                let value = last.bytes as f64 * last.value_per_mib + piece.bytes as f64 * piece.value_per_mib;
                last.bytes = last.bytes.saturating_add(piece.bytes);
                last.value_per_mib = value / last.bytes as f64;
            }
            _ => hull.push(piece),
        }
    }
    // A mean of equal numbers may come out a little above them.
    let mut most = f64::INFINITY;
    for piece in &mut hull {
        most = most.min(piece.value_per_mib);
        piece.value_per_mib = most;
    }
    hull
}

#[cfg(test)]
mod tests;
