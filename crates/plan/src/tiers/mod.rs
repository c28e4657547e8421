//! Memory and flash, sized apart: the linear program of ElCached (HotCloud 2016) over miss-ratio curves.
//!
//! With x bytes of memory and y bytes of flash below it, a request takes on average
//!
//! ```text
//! latency = memory_us + flash_us M(x) + origin_us M(x + y - overlap)
//! cost    = memory_price x + (flash_price + memory_price index_ratio) y
//! ```
//!
//! M is the miss ratio, and the overlap is the part of y that memory holds too. `index_ratio` is the memory that one
//! byte of flash needs for its index. On the lower convex hull of M both are a linear program, which is solved by
//! prices. For given prices of memory, flash and latency each tenant's best sizes follow from its own hull alone
//! ([`answer`]). At the right prices all tenants together hold the pools' limits ([`pools`]). [`exact`] works on the
//! curve itself, which need not be convex, for one tenant.
//!
//! Invariant: pure functions of their arguments. Sizes are bytes as `f64`; money is in the unit of the prices.

mod answer;
mod change;
mod compose;
mod exact;
mod facets;
mod minimise;
mod pools;
mod search;

use tidemark_curve::Curve;

use facets::Facets;

pub use change::{Change, Verdict};
pub use compose::{Composed, Takes};
pub use exact::{Unreachable, least_cost, least_latency};
pub use minimise::{Minimise, MinimiseError};
pub use pools::{Goal, Plan, Pools, Target, solve};

/// Mean time that a request takes in each place, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latencies {
    /// Every request's: the way to the server, and memory (`l1` of the paper).
    pub memory_us: f64,
    /// More, for a request that misses in memory (`l2`).
    pub flash_us: f64,
    /// More, for one that misses on flash, too (`ldb`).
    pub origin_us: f64,
}

/// Prices of a byte, in any unit of money, for any time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// The price of memory.
    pub memory: f64,
    /// The price of flash, without the memory that its index takes.
    pub flash: f64,
}

/// How much of something a tenant has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sizes {
    /// Memory for items, in bytes; the index of flash is not in it.
    pub memory_bytes: f64,
    /// Flash, in bytes.
    pub flash_bytes: f64,
}

/// A range from this to that, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least.
    pub least: f64,
    /// The most; infinity where there is no limit.
    pub most: f64,
}

/// Which pairs of sizes a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Any within these ranges of bytes: floors, caps, and how far a size may move at once.
    Free {
        /// Memory.
        memory: Range,
        /// Flash.
        flash: Range,
    },
    /// So much flash for each byte of memory, as much of both as is worth it (the paper's proportional rule has 4).
    Tied {
        /// Flash over memory.
        flash_ratio: f64,
    },
}

/// A tenant as the planner sees it.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The mean times of its requests, as they fall with its curves.
    pub latencies: Latencies,
    /// The times of one read from flash and of one refill.
    pub times: Latencies,
    /// Memory for the index of one byte on flash: the index's bytes of an object over the object's bytes on flash.
    pub index_ratio: f64,
    /// The part of its flash whose items memory holds as well, less than 1. It is negative where a byte of flash holds more than a
    /// byte of memory does.
    pub overlap_ratio: f64,
    /// How much its latency counts beside others': its requests, times what one of them counts.
    pub weight: f64,
    /// The pairs of sizes that it may have.
    pub shape: Shape,
    memory: Falling,
    both: Falling,
}

/// A curve with its hull.
#[derive(Clone, Debug)]
struct Falling {
    curve: Curve,
    facets: Facets,
}

impl Falling {
    fn of(curve: Curve) -> Self {
        Self {
            facets: Facets::of(&curve),
            curve,
        }
    }

    /// Behind this, more changes nothing.
    fn end_bytes(&self) -> f64 {
        self.curve.end().bytes as f64
    }
}

impl Range {
    /// No limits.
    pub const ANY: Self = Self {
        least: 0.0,
        most: f64::INFINITY,
    };
}

impl Prices {
    /// The price of a byte of flash with the memory of its index.
    pub fn flash_with_index(&self, index_ratio: f64) -> f64 {
        self.flash + self.memory * index_ratio
    }
}

impl Tenant {
    /// A tenant with this curve that may have any sizes, weighs 1, and whose flash needs no index and repeats nothing.
    pub fn new(curve: Curve, latencies: Latencies) -> Self {
        Self::of_two(curve.clone(), curve, latencies)
    }

    /// The same where memory has a curve of its own: items that flash does not take hit in memory alone. Each curve goes from 1
    /// on, and [`Latencies::flash_us`] and [`Latencies::origin_us`] are what falls with it: see [`compose`].
    pub fn of_two(memory: Curve, both: Curve, latencies: Latencies) -> Self {
        Self {
            memory: Falling::of(memory),
            both: Falling::of(both),
            latencies,
            times: latencies,
            index_ratio: 0.0,
            overlap_ratio: 0.0,
            weight: 1.0,
            shape: Shape::Free {
                memory: Range::ANY,
                flash: Range::ANY,
            },
        }
    }

    /// The mean latency with these sizes by the curve as it is, in microseconds.
    pub fn latency_us(&self, sizes: Sizes) -> f64 {
        self.latency_by(sizes, |of, bytes| exact::miss_ratio(&of.curve, bytes))
    }

    /// The same by the curve's hull, which never lies above the curve.
    pub fn hull_latency_us(&self, sizes: Sizes) -> f64 {
        self.latency_by(sizes, |of, bytes| of.facets.miss_ratio(bytes))
    }

    /// The cost of these sizes.
    pub fn cost(&self, sizes: Sizes, prices: Prices) -> f64 {
        prices.memory * sizes.memory_bytes + prices.flash_with_index(self.index_ratio) * sizes.flash_bytes
    }

    /// Memory that these sizes take of the pool: items and index.
    pub fn memory_bytes(&self, sizes: Sizes) -> f64 {
        sizes.memory_bytes + self.index_ratio * sizes.flash_bytes
    }

    /// Requests that memory misses, and those that flash misses as well, over all; of a tenant with one curve.
    pub fn miss_ratios(&self, sizes: Sizes) -> (f64, f64) {
        let reach = self.reach(sizes);
        (
            exact::miss_ratio(&self.memory.curve, sizes.memory_bytes),
            exact::miss_ratio(&self.both.curve, reach),
        )
    }

    /// The best latency that any sizes have, in microseconds.
    pub fn best_latency_us(&self) -> f64 {
        let end = self.reached_bytes();
        let sizes = match self.shape {
            Shape::Free { memory, flash } => Sizes {
                memory_bytes: memory.most.min(end.max(memory.least)),
                flash_bytes: flash.most.min((end / (1.0 - self.overlap_ratio)).max(flash.least)),
            },
            Shape::Tied { flash_ratio } => Sizes {
                memory_bytes: end,
                flash_bytes: end * flash_ratio,
            },
        };
        self.latency_us(sizes)
    }

    /// The size from which on more changes nothing, in bytes.
    pub fn reached_bytes(&self) -> f64 {
        self.memory.end_bytes().max(self.both.end_bytes())
    }

    /// Distinct bytes that both tiers hold together.
    fn reach(&self, sizes: Sizes) -> f64 {
        sizes.memory_bytes + (1.0 - self.overlap_ratio) * sizes.flash_bytes
    }

    fn latency_by(&self, sizes: Sizes, miss_ratio: impl Fn(&Falling, f64) -> f64) -> f64 {
        let Latencies {
            memory_us,
            flash_us,
            origin_us,
        } = self.latencies;
        memory_us
            + flash_us * miss_ratio(&self.memory, sizes.memory_bytes)
            + origin_us * miss_ratio(&self.both, self.reach(sizes))
    }
}

#[cfg(test)]
mod tests;
