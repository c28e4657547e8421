//! Prices, sizes and measurements of memory and flash for a tenant with a goal for its latency.
//!
//! The program itself is `tidemark_plan::tiers`; this is its input and what is kept of its output. Values in, values out.

use std::sync::Arc;

use tidemark_curve::{Curve, Depth};
use tidemark_meter::Resource;
use tidemark_meter::price::{METERS, Prices};
use tidemark_plan::tiers::{self, Composed, Latencies, Pools, Range, Shape, Sizes, Takes};
use tidemark_plan::{HitGoal, Load, Prospect, Reach, efficiency_seen};
use tidemark_types::{FlashUse, MIB, UNIT_BYTES};

use crate::elastic::LEARNING;
use crate::estimator::CLASSES_ON_FLASH;
use crate::grant::{GoalNeed, HEADROOM};

/// The wait of a command for flash, until that was measured.
pub(crate) const FLASH_WAIT_US: f64 = 100.0;
/// Memory for the index of one object on flash.
const INDEX_BYTES: f64 = 10.4;
/// Segments that a tenant's flash has beside those that are found full: one that is filled, one that is written, and one that is
/// kept ready.
const SPARE_BYTES: u64 = 3 * MIB;
/// Bytes of records for each byte of flash, until that was learnt: ends of segments, and what is dead there, take the rest.
const HELD_AT_FIRST: f64 = 0.85;
/// Bounds of what is learnt of that.
const HELD: (f64, f64) = (0.15, 1.3);
/// Bytes of flash that an item takes beside its own: a record's head of 40 bytes and its entry of 24 at the segment's end, less the
/// seven of an item's head in memory, and half of the 64 bytes that records are rounded to.
const RECORD_BYTES: f64 = 40.0 + 24.0 - 7.0 + 32.0;
/// Memory for the index of an item, at most: more would be the index of a tenant that has lost most of its items.
const ITEM_INDEX_BYTES_MAX: f64 = 64.0;
/// The weight of the last seconds in it.
const HELD_WEIGHT: f64 = 0.2;
/// With less flash in use it is not learnt, and what its index takes is not known.
const LEARNT_BYTES_MIN: u64 = 8 * MIB;
/// Flash is as full as it gets with so much of its grant left: see [`SPARE_BYTES`].
const FULL_WITHIN_BYTES: u64 = 4 * MIB;
/// At most this part of flash counts as held by memory, too: more is on its way out.
const OVERLAP_MAX: f64 = 0.9;
/// A goal is aimed at a little below, because sizes are rounded and curves tremble.
const AIM: f64 = 0.98;
/// It is not aimed at nearer than this to the best latency that there is: the last hits take the most.
const NEAR_BEST: f64 = 1.01;
/// Load is expected to stay as it is for so many hours: a day has its course.
pub(crate) const LASTS_HOURS: f64 = 1.0;
/// Each step of priority makes a missed microsecond so many times as dear.
const PRIORITY_FACTOR: f64 = 8.0;
/// A goal that is within reach comes before those that are not. They yield to it, but not to money.
const WITHIN_REACH_FACTOR: f64 = 1024.0;

/// Hours in which hardware is written off: five years.
const LIFE_HOURS: f64 = 5.0 * 365.0 * 24.0;
/// How often flash can be written in that time: once a day, which is what drives for reading endure.
const LIFE_WRITES: f64 = 5.0 * 365.0;
/// Prices of a GiB of memory and of flash to buy, in dollars of early 2026. Where a server has no prices, only their ratio counts.
const BOUGHT: (f64, f64) = (14.82, 0.392);

/// Prices of memory and flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TierPrices {
    /// A byte for an hour.
    pub(crate) held: tiers::Prices,
    /// A byte that is written to flash.
    pub(crate) written: f64,
    /// Whether they are the operator's.
    pub(crate) is_stated: bool,
}

impl Default for TierPrices {
    fn default() -> Self {
        let gib = (1_u64 << 30) as f64;
        Self {
            held: tiers::Prices {
                memory: BOUGHT.0 / gib / LIFE_HOURS,
                flash: BOUGHT.1 / gib / LIFE_HOURS,
            },
            written: BOUGHT.1 / gib / LIFE_WRITES,
            is_stated: false,
        }
    }
}

impl TierPrices {
    /// Those of a prices file, if it has both.
    pub(crate) fn of(prices: &Prices) -> Option<Self> {
        let of = |resource: Resource| {
            let (meter, price) = METERS
                .iter()
                .zip(&prices.units)
                .find(|(meter, _)| meter.resource == resource)?;
            Some(price.as_f64() / meter.unit_amount as f64)
        };
        // That of a byte for a second.
        let memory = of(Resource::MemoryByteSeconds).filter(|price| *price > 0.0)?;
        let flash = of(Resource::FlashByteSeconds).filter(|price| *price > 0.0)?;
        Some(Self {
            held: tiers::Prices {
                memory: memory * 3600.0,
                flash: flash * 3600.0,
            },
            written: of(Resource::FlashWrittenBytes).unwrap_or(0.0),
            is_stated: true,
        })
    }
}

/// The measurements of a tenant on both tiers.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The curve of an LRU cache of bare items.
    pub(crate) curve: Arc<Curve>,
    /// Memory for each byte of the curve.
    pub(crate) memory_per_byte: f64,
    /// Memory in force, near which the program is to be exact.
    pub(crate) in_force_bytes: u64,
    /// Memory in use, the part of it that is the index, and the items in it.
    pub(crate) usage_bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) items: u64,
    pub(crate) flash: FlashUse,
    /// Its hit ratio, over both, with so much memory in use; `None` while too few gets came.
    pub(crate) hits: Option<(f64, u64)>,
    /// The standard error of that hit ratio.
    pub(crate) hits_error: f64,
    /// Its gets, and what hits in memory and misses take.
    pub(crate) load: Load,
    /// The wait of a command for flash.
    pub(crate) flash_wait_us: Option<f64>,
}

/// The sizes that a tenant may have, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) memory_least: u64,
    pub(crate) memory_most: u64,
    pub(crate) flash_least: u64,
    pub(crate) flash_most: u64,
}

/// The yield of flash, as far as it was learnt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Learnt {
    /// Bytes of records for each byte of flash that memory does not hold as well.
    held: f64,
}

impl Default for Learnt {
    fn default() -> Self {
        Self { held: HELD_AT_FIRST }
    }
}

impl Learnt {
    /// Takes the hit ratio into account that was measured while flash was full, of a tenant with this goal.
    pub(crate) fn note(&mut self, measured: &Measured, composed: &Composed, goal: Option<HitGoal>) {
        let flash = measured.flash;
        let is_full = flash.usage_bytes >= LEARNT_BYTES_MIN
            && flash.usage_bytes.saturating_add(FULL_WITHIN_BYTES) >= flash.grant_bytes;
        let Some((hit_ratio, usage_bytes)) = measured.hits.filter(|_| is_full) else {
            return;
        };
        // Only to see whether the curve is steep enough there to tell a size.
        let slope_min = LEARNING.slope_min_of(goal.map_or(0.0, |goal| goal.goal));
        let Some((_, slope)) = efficiency_seen(&measured.curve, 1.0, hit_ratio, usage_bytes, slope_min) else {
            return;
        };
        let Some(reached) = composed.flash_for(hit_ratio, usage_bytes as f64) else {
            return;
        };
        let distinct = flash.usage_bytes.saturating_sub(flash.shadow_bytes).max(MIB) as f64;
        let seen = (reached / distinct).clamp(HELD.0, HELD.1);
        // Where the curve is flat, or few gets were measured, one of many sizes may have been seen.
        let error = 2.0 * measured.hits_error.hypot(measured.error_at(usage_bytes)) / slope;
        self.held += (seen - self.held) * HELD_WEIGHT / (1.0 + error);
    }
}

/// A tenant's load on both tiers, whatever it asks for.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) measured: Measured,
    pub(crate) composed: Composed,
    pub(crate) learnt: Learnt,
}

impl Known {
    /// What follows from these measurements, and from what was learnt before, of a tenant with this goal.
    pub(crate) fn of(measured: Measured, depths: &[Depth], learnt_before: Learnt, goal: Option<HitGoal>) -> Self {
        let (composed, mut learnt) = (measured.composed(depths), learnt_before);
        learnt.note(&measured, &composed, goal);
        Self {
            measured,
            composed,
            learnt,
        }
    }

    /// Gets that hit in memory, and those that hit in either tier, over all, with these sizes.
    pub(crate) fn hit_ratios(&self, sizes: Sizes) -> (f64, f64) {
        let flash_bytes = sizes.flash_bytes * self.measured.flash_yield(self.learnt);
        self.composed.hit_ratios(sizes.memory_bytes, flash_bytes)
    }

    /// The same of hits in either tier, corrected by how far the hit ratio that was measured lately is from that of the sizes in
    /// use then.
    pub(crate) fn hit_ratio_with(&self, sizes: Sizes) -> f64 {
        let measured = &self.measured;
        let offset = measured.hits.map_or(0.0, |(hit_ratio, memory_bytes)| {
            hit_ratio - self.hit_ratios(sizes_of(memory_bytes, measured.flash.usage_bytes)).1
        });
        (self.hit_ratios(sizes).1 + offset).clamp(0.0, 1.0)
    }
}

impl Measured {
    /// The time of a hit on flash beyond that of one in memory.
    pub(crate) fn wait_us(&self) -> f64 {
        self.flash_wait_us.unwrap_or(FLASH_WAIT_US)
    }

    /// The time of a miss beyond that of a hit on flash. `None`: flash is no faster than the origin, and is of no use.
    fn origin_us(&self) -> Option<f64> {
        let origin_us = self.load.miss_cost_us - self.load.hit_cost_us - self.wait_us();
        (origin_us > 0.0).then_some(origin_us)
    }

    /// The standard error of the miss ratio with so much memory.
    pub(crate) fn error_at(&self, memory_bytes: u64) -> f64 {
        let bytes = (memory_bytes as f64 / self.memory_per_byte) as u64;
        self.curve.at(bytes).standard_error
    }

    /// An item's bytes.
    pub(crate) fn object_bytes(&self) -> f64 {
        let bytes = self.usage_bytes as f64 / self.memory_per_byte / self.items.max(1) as f64;
        bytes.max(1.0)
    }

    /// The part of flash that memory holds, too.
    fn overlap(&self) -> f64 {
        let flash = self.flash;
        (flash.shadow_bytes as f64 / flash.usage_bytes.max(1) as f64).clamp(0.0, OVERLAP_MAX)
    }

    /// The curves of its size classes, of which these are the hits and bytes by depth, in bytes of memory as they are granted, and
    /// of records on flash.
    pub(crate) fn composed(&self, depths: &[Depth]) -> Composed {
        let own = self.object_bytes();
        // All items together take `memory_per_byte` for each of their bytes. The index is the part of it that goes by item.
        let by_item = self.index_bytes as f64 / self.usage_bytes.max(1) as f64 * self.memory_per_byte;
        let per_item = (by_item * own).min(ITEM_INDEX_BYTES_MAX);
        let memory = Takes {
            per_byte: self.memory_per_byte - per_item / own,
            per_item,
        };
        let flash = Takes {
            per_byte: 1.0,
            per_item: RECORD_BYTES,
        };
        Composed::of(depths, memory, flash, CLASSES_ON_FLASH)
    }

    /// The bytes of records for a byte of flash that memory does not hold.
    pub(crate) fn flash_yield(&self, learnt: Learnt) -> f64 {
        learnt.held * (1.0 - self.overlap())
    }

    /// The least latency that a tenant can have within these bounds, in microseconds. It follows from the classes' hits: the program
    /// is exact near the memory in force alone.
    pub(crate) fn best_latency_us(&self, composed: &Composed, learnt: Learnt, bounds: Bounds) -> f64 {
        let flash_bytes = bounds.flash_most.saturating_sub(SPARE_BYTES) as f64;
        let (in_memory, in_both) =
            composed.hit_ratios(bounds.memory_most as f64, flash_bytes * self.flash_yield(learnt));
        self.load.mean_cost_us(in_both) + self.wait_us() * (in_both - in_memory)
    }

    /// The tenant as the program sees it, in bytes of memory and of flash as they are granted. `None`: flash is of no use.
    pub(crate) fn tenant(&self, composed: &Composed, learnt: Learnt, bounds: Bounds) -> Option<tiers::Tenant> {
        let origin_us = self.origin_us()?;
        let latencies = Latencies {
            memory_us: self.load.hit_cost_us,
            flash_us: self.wait_us(),
            origin_us,
        };
        let mut tenant = composed.tenant(latencies, self.in_force_bytes as f64, self.flash_yield(learnt))?;
        tenant.index_ratio = if self.flash.usage_bytes >= LEARNT_BYTES_MIN {
            INDEX_BYTES * self.flash.items as f64 / self.flash.usage_bytes as f64
        } else {
            INDEX_BYTES * learnt.held * composed.items_per_flash_byte()
        };
        tenant.weight = self.load.gets_per_second.max(f64::MIN_POSITIVE);
        let range = |least: u64, most: u64| Range {
            least: least.min(most) as f64,
            most: most as f64,
        };
        tenant.shape = Shape::Free {
            memory: range(bounds.memory_least, bounds.memory_most),
            flash: range(
                bounds.flash_least.saturating_sub(SPARE_BYTES),
                bounds.flash_most.saturating_sub(SPARE_BYTES),
            ),
        };
        Some(tenant)
    }
}

/// The goal for a latency of a tenant with this priority, as the program weighs it against others.
pub(crate) fn goal(
    tenant: &tiers::Tenant,
    latency_us: f64,
    prices: TierPrices,
    priority_above: i32,
    reach: Reach,
) -> tiers::Goal {
    let firm = tenant.firm(latency_us, prices.held);
    let of_reach = if reach == Reach::Out { 1.0 } else { WITHIN_REACH_FACTOR };
    tiers::Goal {
        penalty: firm.penalty * PRIORITY_FACTOR.powi(priority_above) * of_reach,
        ..firm
    }
}

/// The latency that sizes are looked for with, for a goal where the best that there is takes so long.
pub(crate) fn aim_us(goal_us: f64, best_us: f64) -> f64 {
    (goal_us * AIM).max(best_us * NEAR_BEST)
}

/// The grants that give these sizes.
pub(crate) fn grants(sizes: Sizes) -> (u64, u64) {
    let memory_bytes = (sizes.memory_bytes.max(0.0) as u64).next_multiple_of(UNIT_BYTES);
    let flash_bytes = (sizes.flash_bytes.max(0.0) as u64).next_multiple_of(MIB);
    let spare_bytes = if flash_bytes > 0 { SPARE_BYTES } else { 0 };
    (memory_bytes, flash_bytes + spare_bytes)
}

/// The sizes that such grants give.
pub(crate) fn sizes_of(memory_bytes: u64, flash_bytes: u64) -> Sizes {
    Sizes {
        memory_bytes: memory_bytes as f64,
        flash_bytes: flash_bytes.saturating_sub(SPARE_BYTES) as f64,
    }
}

/// Memory and flash from which the first plan starts: what is granted, but little more than is used. What is lent beyond that
/// holds nothing, and no plan has to give a reason for it to go.
pub(crate) fn begun(granted: (u64, u64), used: (u64, u64)) -> (u64, u64) {
    let headroom_bytes = (used.0 / HEADROOM.divisor).max(HEADROOM.units_min * UNIT_BYTES);
    (
        granted.0.min(used.0.saturating_add(headroom_bytes)),
        granted.1.min(used.1.saturating_add(SPARE_BYTES)),
    )
}

/// The sizes for which each has settled; where these are more together than there is, all the sizes that the program found.
/// An excess from rounding to whole grants is not counted.
pub(crate) fn within(pools: Pools, settled: Vec<Sizes>, found: Vec<Sizes>) -> Vec<Sizes> {
    let count = settled.len() as f64;
    let sum = |of: fn(&Sizes) -> f64| settled.iter().map(of).sum::<f64>();
    let is_within = sum(|sizes| sizes.memory_bytes) <= pools.memory_bytes + count * UNIT_BYTES as f64
        && sum(|sizes| sizes.flash_bytes) <= pools.flash_bytes + count * MIB as f64;
    if is_within { settled } else { found }
}

/// The plan for a tenant on both tiers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tiers {
    /// Memory and flash in force, in bytes as they are granted.
    pub(crate) memory_bytes: u64,
    pub(crate) flash_bytes: u64,
    /// The mean latency that is asked for, and what is expected of these sizes.
    pub(crate) goal_us: f64,
    pub(crate) latency_us: f64,
    /// The hit ratio over both tiers that is expected.
    pub(crate) hit_ratio: f64,
    /// The cost of the sizes in an hour.
    pub(crate) cost: f64,
    /// The times of hits in memory and of misses.
    pub(crate) load: Load,
    /// The time that a hit on flash takes more.
    pub(crate) wait_us: f64,
    /// The latency that all memory and flash for it would give, and whether that is enough.
    pub(crate) prospect: Prospect,
    pub(crate) reach: Reach,
    /// Others come first, and leave noticeably less than the goal needs.
    pub(crate) is_short: bool,
}

impl Tiers {
    /// The plan for a tenant of which this is known, before it has a goal and sizes.
    pub(crate) fn to_be_sized(measured: &Measured, prospect: Prospect) -> Self {
        Self {
            memory_bytes: 0,
            flash_bytes: 0,
            goal_us: 0.0,
            latency_us: 0.0,
            hit_ratio: 0.0,
            cost: 0.0,
            load: measured.load,
            wait_us: measured.wait_us(),
            prospect,
            reach: Reach::Unknown,
            is_short: false,
        }
    }

    /// The need of its goal for memory.
    pub(crate) fn goal_need(&self) -> GoalNeed {
        GoalNeed {
            bytes: self.memory_bytes,
            reach: self.reach,
        }
    }

    /// The worth of a hit on flash beside one in memory.
    pub(crate) fn worth(&self) -> f64 {
        worth(&self.load, self.wait_us)
    }

    /// The goal as a hit ratio in which hits on flash count for what they are worth.
    pub(crate) fn hit_goal(&self) -> HitGoal {
        HitGoal::of_latency(&self.load, self.goal_us)
    }
}

/// See [`Tiers::worth`].
pub(crate) fn worth(load: &Load, wait_us: f64) -> f64 {
    (1.0 - wait_us / (load.miss_cost_us - load.hit_cost_us)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;
