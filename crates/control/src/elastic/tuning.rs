//! The numbers behind a tenant's needs, by meaning, each with its reason.

use std::time::Duration;

use tidemark_types::MIB;

/// When policies compete in miniature caches, and which of them wins.
#[derive(Debug)]
pub(super) struct Contests {
    /// They compete in a tenant of at least this size: below, a shard has too few segments for more than a clock.
    pub(super) bytes_min: u64,
    /// They compete for so long at least: with a thousand gets a second a minute's sample is a hundred.
    pub(super) lasts: Duration,
    /// They go on for so long while chance could hide a winner or none.
    pub(super) lasts_most: Duration,
    /// Another policy must gain so much hit ratio, beyond what chance gives.
    pub(super) gain: f64,
    /// Standard errors that chance does not exceed: a contest is looked at many times.
    pub(super) certain: f64,
}

/// Genie's choice of a policy by the skew of the keys' uses.
#[derive(Debug)]
pub(super) struct Skews {
    /// It looks once a minute (section V.A).
    pub(super) every: Duration,
    /// The skew from which on it takes approximate LRU.
    pub(super) skewed: f64,
}

/// The use that is made of a tenant's gain from memory.
#[derive(Debug)]
pub(crate) struct Gains {
    /// It changes slowly. A thousand tenants' curves are not computed anew in every round, nor all in the same one.
    pub(crate) every: Duration,
    /// A curve of fewer gets says nothing.
    pub(crate) gets_min: u64,
    /// One more MiB is worth it while it gains at least this hit ratio.
    pub(super) per_mib_min: f64,
}

/// The knowledge of a load without a sizer.
#[derive(Debug)]
pub(crate) struct Learning {
    /// The interval at which its hit ratio is looked at.
    pub(super) watched_every: Duration,
    /// The weight of the last seconds in the policy's efficiency.
    pub(super) efficiency_weight: f64,
    /// If a curve gains less hit ratio by an e-fold of memory, a hit ratio does not tell a size.
    pub(crate) slope_min: f64,
    /// The same as a part of the misses that a goal allows, if that is less: near all hits, curves are flat and goals are fine.
    slope_min_ratio: f64,
}

impl Learning {
    /// The least slope that tells a size of a tenant with this goal for its hit ratio; zero: it has none.
    pub(crate) fn slope_min_of(&self, goal: f64) -> f64 {
        self.slope_min.min(self.slope_min_ratio * (1.0 - goal))
    }
}

/// The times of hits and misses.
#[derive(Debug)]
pub(super) struct Costs {
    /// A miss takes this many times as long as a hit, if nobody set it and nothing was measured.
    pub(super) miss_per_hit: f64,
    /// A measured miss takes at least this many times as long as a hit: the clients' work beside the cache takes time too.
    pub(super) measured_miss_per_hit_min: f64,
    /// A miss that somebody set takes longer than a hit: else memory is worth nothing, and no size is better than any
    /// other.
    pub(super) set_miss_per_hit_min: f64,
    /// The hit ratio for a latency follows the time of misses. It moves only by more than this part of the misses that it
    /// allows, because a mean of measured times is not known better.
    pub(super) latency_ratio_moves: f64,
}

pub(super) const CONTESTS: Contests = Contests {
    bytes_min: 4 * MIB,
    lasts: Duration::from_secs(60),
    lasts_most: Duration::from_secs(10 * 60),
    gain: 0.01,
    certain: 3.0,
};

pub(super) const SKEWS: Skews = Skews {
    every: Duration::from_secs(60),
    skewed: 1.0,
};

pub(crate) const GAINS: Gains = Gains {
    every: Duration::from_secs(5),
    gets_min: 2_000,
    per_mib_min: 0.0001,
};

pub(crate) const LEARNING: Learning = Learning {
    watched_every: Duration::from_secs(10),
    efficiency_weight: 0.2,
    slope_min: 0.02,
    slope_min_ratio: 0.2,
};

pub(super) const COSTS: Costs = Costs {
    miss_per_hit: 200.0,
    measured_miss_per_hit_min: 2.0,
    set_miss_per_hit_min: 1.01,
    latency_ratio_moves: 0.15,
};
