//! Curves of memory and of both tiers, composed of those of size classes.
//!
//! ElCached composes the curve of a cache with slab classes: each class has its own share `s_k(C)` of C bytes, and misses as its own
//! curve says there (HotCloud 2016). One log has no such shares. All classes reach equally far back, and `s_k(d)` is what class k
//! has of the d bytes that were used last. The classes differ in what they take of each tier. Small items take more memory and flash than
//! their own bytes, and the largest are never on flash. So a depth d needs
//!
//! ```text
//! memory(d) = sum over k of            bytes_k(d) per_byte + items_k(d) per_item
//! flash(d)  = sum over k on flash of   the same with flash's own
//! ```
//!
//! Memory of x bytes reaches the depth a with `memory(a) = x`, and flash of y bytes below it the depth b with
//! `flash(b) - flash(a) = y`. A class on flash hits down to b, and any other one down to a.
//!
//! Invariant: with one class that takes its own bytes in both tiers, all is as with the whole curve.

use tidemark_curve::{CLASSES, Curve, Depth, Point};

use super::{Latencies, Tenant};

/// Bytes that items take of a tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Takes {
    /// For each of their own bytes.
    pub per_byte: f64,
    /// And for each item.
    pub per_item: f64,
}

/// A tenant's classes in memory and on flash.
#[derive(Clone, Debug)]
pub struct Composed {
    /// By depth, from nothing on; neither sizes nor hits ever fall.
    levels: Vec<Level>,
}

/// A depth, as sizes and hits.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Bytes that it takes in memory, and on flash.
    memory: f64,
    flash: f64,
    /// Items of it that flash takes.
    items: f64,
    /// Hits over all gets of the classes that flash takes, and of the others.
    common: f64,
    large: f64,
}

impl Level {
    fn between(&self, next: &Self, share: f64) -> Self {
        let mix = |a: f64, b: f64| a + (b - a) * share;
        Self {
            memory: mix(self.memory, next.memory),
            flash: mix(self.flash, next.flash),
            items: mix(self.items, next.items),
            common: mix(self.common, next.common),
            large: mix(self.large, next.large),
        }
    }
}

impl Composed {
    /// The curves of these depths, ascending, where flash takes only the first so many classes.
    pub fn of(depths: &[Depth], memory: Takes, flash: Takes, on_flash: usize) -> Self {
        let mut levels = vec![Level::default()];
        let mut last = Level::default();
        for depth in depths {
            let mut level = Level::default();
            for class in 0..CLASSES {
                let (held, hits) = (depth.held[class], depth.hits[class]);
                let takes = |of: Takes| held.bytes * of.per_byte + held.items * of.per_item;
                level.memory += takes(memory);
                if class < on_flash {
                    level.flash += takes(flash);
                    level.items += held.items;
                    level.common += hits;
                } else {
                    level.large += hits;
                }
            }
            last = Level {
                memory: level.memory.max(last.memory),
                flash: level.flash.max(last.flash),
                items: level.items.max(last.items),
                common: level.common.max(last.common),
                large: level.large.max(last.large),
            };
            levels.push(last);
        }
        Self { levels }
    }

    /// The depth to which such a size reaches.
    fn at(&self, bytes: f64, size: impl Fn(&Level) -> f64) -> Level {
        let right = self.levels.partition_point(|level| size(level) <= bytes);
        let left = self.levels[right.saturating_sub(1)];
        let Some(next) = self.levels.get(right) else {
            return left;
        };
        left.between(
            next,
            ((bytes - size(&left)) / (size(next) - size(&left))).clamp(0.0, 1.0),
        )
    }

    /// Gets that hit in memory, and those that hit in either tier, over all, with so much memory and so many bytes of items on flash
    /// that memory does not hold.
    pub fn hit_ratios(&self, memory_bytes: f64, flash_bytes: f64) -> (f64, f64) {
        let memory = self.at(memory_bytes, |level| level.memory);
        let both = self.at(memory.flash + flash_bytes, |level| level.flash);
        (
            memory.common + memory.large,
            both.common.max(memory.common) + memory.large,
        )
    }

    /// The bytes of items on flash, beside so much memory, with which this hit ratio is reached; `None` where none reach it.
    pub fn flash_for(&self, hit_ratio: f64, memory_bytes: f64) -> Option<f64> {
        let memory = self.at(memory_bytes, |level| level.memory);
        let common = hit_ratio - memory.large;
        if common > self.end().common {
            return None;
        }
        let both = self.at(common, |level| level.common);
        Some((both.flash - memory.flash).max(0.0))
    }

    /// Items in a byte of flash, over all that was used.
    pub fn items_per_flash_byte(&self) -> f64 {
        let end = self.end();
        if end.flash > 0.0 { end.items / end.flash } else { 0.0 }
    }

    fn end(&self) -> Level {
        self.levels[self.levels.len() - 1]
    }

    /// The tenant as the program sees it, whose flash holds so many bytes of such items for each of its own.
    ///
    /// The program counts a byte of memory as one of both tiers, wherever it is. Here it is as many as it is at the memory in force, so
    /// that what is planned far away from there is less exact. `None`: flash is of no use, since no class hits on it.
    pub fn tenant(&self, latencies: Latencies, memory_bytes: f64, flash_yield: f64) -> Option<Tenant> {
        let end = self.end();
        let near = Some(self.at(memory_bytes, |level| level.memory)).filter(|level| level.flash > 0.0);
        let near = near.unwrap_or(end);
        let per_memory = near.flash / near.memory;
        if end.common <= 0.0 || !per_memory.is_normal() {
            return None;
        }
        // Gets that no size answers are counted with the common ones: they are the same anywhere.
        let (large, common) = (end.large, 1.0 - end.large);
        let of_memory = latencies.flash_us + latencies.origin_us * large;
        let origin_us = latencies.origin_us * common;
        let point = |bytes: f64, miss_ratio: f64| Point {
            bytes: bytes as u64,
            miss_ratio,
            standard_error: 0.0,
        };
        let memory = self.levels.iter().map(|level| {
            let missed = latencies.flash_us * (1.0 - level.common - level.large);
            let only_here = latencies.origin_us * (large - level.large);
            point(level.memory, (missed + only_here) / of_memory)
        });
        let both = self
            .levels
            .iter()
            .map(|level| point(level.flash / per_memory, 1.0 - level.common / common));
        let falling = Latencies {
            flash_us: of_memory,
            origin_us,
            ..latencies
        };
        let mut tenant = Tenant::of_two(Curve::through(memory), Curve::through(both), falling);
        tenant.times = latencies;
        tenant.overlap_ratio = 1.0 - flash_yield / per_memory;
        Some(tenant)
    }
}

#[cfg(test)]
mod tests;
