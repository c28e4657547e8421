//! Choosing by the four principles of UniCache (AIOps'24, section 3), with thresholds that are fitted on a grid of loads.
//!
//! 1. Large values with many sharers and some writes: sequence numbers. Otherwise, where others read between two writes: updates.
//!    Otherwise: invalidation.
//! 2. Many elements: FIFO. Otherwise, unlike sizes or popularities where those of low priority are rarely used again: by priority.
//!    Otherwise: LRU.
//! 3. Few sharers in all, or in each cluster: flat. Otherwise: hierarchical.
//! 4. Without durability: write-back, and nothing is replicated. With it, under few operations, few writes and small values:
//!    write-through, and nothing is replicated. Otherwise: write-back, and a second cachelet holds what the store lacks, and the
//!    directory's state if there is a directory. That loses writes with two cachelets, which a strict promise does not allow:
//!    write-through is left of it then, with the directory's state.

use super::price::{Features, Load, Rates};
use super::{Chooser, Counters, Pins, Ranked, Reason, Switch, Why, is_permitted};
use crate::config::{Coherence, Config, Domain, Durability, Promise, Replacement, Replication, Scope, WritePolicy};
use crate::view::Trial;

/// The bounds of the principles' words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// From here on, a value is large.
    pub large_bytes: f64,
    /// From here on, sharers are many.
    pub many_sharers: f64,
    /// From here on, writes per operation are moderate.
    pub some_writes_ratio: f64,
    /// Reads by others after a write, from which on the run of writes is short.
    pub short_run_reads: f64,
    /// From here on, elements are many.
    pub many_elements: f64,
    /// From here on, sharers per cluster are many enough for leaders.
    pub many_per_cluster: f64,
    /// From here on, sizes or popularities are unlike.
    pub unlike_spread: f64,
    /// Up to here, values of low priority are rarely used again.
    pub rare_reuse_ratio: f64,
}

impl Default for Thresholds {
    /// As `cachelet-regret` fits them to the grid of loads.
    fn default() -> Self {
        Self {
            large_bytes: 65_536.0,
            many_sharers: 8.0,
            some_writes_ratio: 0.1,
            short_run_reads: 0.5,
            many_elements: 5_000.0,
            many_per_cluster: 16.0,
            unlike_spread: 1.0,
            rare_reuse_ratio: 0.5,
        }
    }
}

/// Up to here, operations in a second are few: what a second cachelet holds saves more than its messages cost above it. The grid
/// of loads has no losses, so that the fourth principle's bounds are not fitted to it.
const FEW_PER_SECOND: f64 = 50.0;
/// Up to here, writes per operation are few.
const FEW_WRITES_RATIO: f64 = 0.1;
/// Up to here, values are small.
const SMALL_BYTES: f64 = 65_536.0;

/// A read of an own copy takes about this, which the simulator leaves out: what costs nothing is not infinitely better.
const LOCAL_US: f64 = 10.0;

/// Values that each threshold is fitted to.
const CANDIDATES: [[f64; 5]; 8] = [
    [65_536.0, 524_288.0, 1_048_576.0, 4_194_304.0, 16_777_216.0],
    [2.0, 4.0, 8.0, 16.0, 32.0],
    [0.01, 0.05, 0.1, 0.2, 0.5],
    [0.25, 0.5, 1.0, 2.0, 4.0],
    [100.0, 500.0, 1_000.0, 5_000.0, 10_000.0],
    [2.0, 4.0, 8.0, 16.0, 32.0],
    [0.25, 0.5, 1.0, 2.0, 4.0],
    [0.0, 0.1, 0.25, 0.5, 0.75],
];

/// A load of the grid: what characterises it, and what an operation took under each configuration that was tried.
#[derive(Clone, Debug)]
pub struct Case {
    /// The characteristics of it.
    pub features: Features,
    /// Configurations with the mean time of an operation, in microseconds.
    pub took_us: Vec<(Config, f64)>,
}

impl Thresholds {
    /// Those under which the principles cost least on a grid, two thresholds after the others until none gets better. The cost
    /// of a case is what the chosen configuration takes by what the best one takes.
    #[must_use]
    pub fn fit(cases: &[Case]) -> Self {
        let mut best = Self::default();
        let mut cost = best.cost(cases);
        loop {
            let before = cost;
            // Two at a time, since a principle asks for two of them together.
            let values = || {
                (0..)
                    .zip(CANDIDATES)
                    .flat_map(|(place, values)| values.into_iter().map(move |value| (place, value)))
            };
            for (one, other) in values().flat_map(|one| values().map(move |other| (one, other))) {
                let mut tried = best;
                for (place, value) in [one, other] {
                    *tried.fields()[place] = value;
                }
                let tried_cost = tried.cost(cases);
                if tried_cost < cost {
                    (best, cost) = (tried, tried_cost);
                }
            }
            if cost >= before {
                return best;
            }
        }
    }

    /// The mean, over cases, of what the principles' choice takes by what the best takes.
    #[must_use]
    pub fn cost(&self, cases: &[Case]) -> f64 {
        let of = |case: &Case| {
            let least = case
                .took_us
                .iter()
                .map(|(_, took_us)| *took_us)
                .fold(f64::INFINITY, f64::min);
            let chosen = self.choose(&case.features, Config::CONCORD, Promise::default()).0;
            // A configuration that was not tried is as good as the nearest that was.
            let near = case
                .took_us
                .iter()
                .min_by_key(|(config, _)| config.differences(&chosen));
            near.map_or(1.0, |(_, took_us)| (took_us + LOCAL_US) / (least + LOCAL_US))
        };
        cases.iter().map(of).sum::<f64>() / cases.len().max(1) as f64
    }

    fn fields(&mut self) -> [&mut f64; 8] {
        [
            &mut self.large_bytes,
            &mut self.many_sharers,
            &mut self.some_writes_ratio,
            &mut self.short_run_reads,
            &mut self.many_elements,
            &mut self.many_per_cluster,
            &mut self.unlike_spread,
            &mut self.rare_reuse_ratio,
        ]
    }

    /// The configuration that the principles name, and the number of the first principle by which it differs from `now`.
    #[must_use]
    pub fn choose(&self, load: &Features, now: Config, promise: Promise) -> (Config, u8) {
        let is_large = load.size_bytes >= self.large_bytes && load.sharers >= self.many_sharers;
        let coherence = if is_large && load.write_ratio >= self.some_writes_ratio {
            Coherence::SequenceAtHome
        } else if load.write_ratio > 0.0 && load.changed_ratio >= self.short_run_reads * load.write_ratio {
            Coherence::Update
        } else {
            Coherence::Invalidate
        };
        let is_unlike = load.size_spread.max(load.popularity_spread) >= self.unlike_spread;
        let replacement = if load.elements >= self.many_elements {
            Replacement::Fifo
        } else if is_unlike && load.small_reuse_ratio <= self.rare_reuse_ratio {
            Replacement::PriorityLru
        } else {
            Replacement::Lru
        };
        let per_cluster = load.sharers / load.clusters.max(1.0);
        let is_flat = load.clusters <= 1.0 || per_cluster < self.many_per_cluster || !coherence.has_directory();
        let domain = if is_flat { Domain::Flat } else { Domain::Hierarchical };
        let (write, replication) = fourth(load, coherence, promise);
        let number = match () {
            () if coherence != now.coherence => 1,
            () if replacement != now.replacement => 2,
            () if domain != now.domain => 3,
            () => 4,
        };
        let config = Config {
            scope: Scope::Application,
            write,
            replacement,
            coherence,
            domain,
            replication,
            admission: crate::config::Admission::Keep,
        };
        (config, number)
    }
}

/// The fourth principle: when a write is acknowledged, and what a second cachelet holds.
fn fourth(load: &Features, coherence: Coherence, promise: Promise) -> (WritePolicy, Replication) {
    if promise.durability == Durability::None {
        return (WritePolicy::Back, Replication::None);
    }
    let is_light =
        load.per_second <= FEW_PER_SECOND && load.write_ratio <= FEW_WRITES_RATIO && load.size_bytes <= SMALL_BYTES;
    if is_light {
        return (WritePolicy::Through, Replication::None);
    }
    let replication = if coherence.has_directory() {
        Replication::Both
    } else {
        Replication::Data
    };
    // The promise is more than the paper's: the store has what was acknowledged.
    (WritePolicy::Through, replication.without_data())
}

/// Intervals in a row in which the principles must name the same before it is switched to.
const AGREEING_INTERVALS: u32 = 2;

/// Operations that an interval must have to say anything.
const LEAST_OPERATIONS: f64 = 20.0;

/// Chooses by the principles.
#[derive(Clone, Debug)]
pub struct Principles {
    promise: Promise,
    pins: Pins,
    thresholds: Thresholds,
    rates: Rates,
    config: Config,
    named: Option<(Config, u32)>,
    ranking: Vec<Ranked>,
}

impl Principles {
    /// One for a domain with a configuration.
    #[must_use]
    pub fn new(promise: Promise, config: Config, rates: Rates, thresholds: Thresholds) -> Self {
        Self {
            promise,
            pins: Pins::default(),
            thresholds,
            rates,
            config,
            named: None,
            ranking: Vec::new(),
        }
    }
}

impl Chooser for Principles {
    fn observe(&mut self, _now_us: u64, counters: &Counters) -> Option<Switch> {
        let load = Load::of(counters);
        if load.operations < LEAST_OPERATIONS {
            return None;
        }
        let features = load.features();
        let (named, number) = self.thresholds.choose(&features, self.config, self.promise);
        let wanted = self.pins.applied(named);
        // A dimension that a pin fixes is left as it is.
        let may_be = is_permitted(&wanted, self.promise, self.pins);
        let wanted = if may_be { wanted } else { self.config };
        let times = match self.named {
            Some((config, times)) if config == wanted => times + 1,
            _ => 1,
        };
        self.named = Some((wanted, times));
        let (from_us, to_us) = (
            load.price_us(&self.config, &self.rates),
            load.price_us(&wanted, &self.rates),
        );
        self.ranking = vec![Ranked {
            config: wanted,
            expected_us: to_us,
            weight: 1.0,
        }];
        if wanted == self.config || times < AGREEING_INTERVALS {
            return None;
        }
        self.config = wanted;
        Some(Switch {
            config: wanted,
            trial: None,
            why: Why {
                reason: Reason::Principle(number),
                from_us,
                to_us,
                switch_us: 0.0,
                figures: vec![
                    ("bytes", features.size_bytes),
                    ("sharers", features.sharers),
                    ("writes", features.write_ratio),
                    ("changed", features.changed_ratio),
                    ("elements", features.elements),
                    ("size spread", features.size_spread),
                    ("popularity spread", features.popularity_spread),
                    ("small reuse", features.small_reuse_ratio),
                ],
            },
        })
    }

    fn adopted(&mut self, _now_us: u64, config: Config, _trial: Option<Trial>) {
        self.config = config;
    }

    fn pin(&mut self, pins: Pins) {
        self.pins = pins;
        self.named = None;
    }

    fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    fn ranking(&self) -> Vec<Ranked> {
        self.ranking.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(size_bytes: f64, sharers: f64, write_ratio: f64, changed_ratio: f64) -> Features {
        Features {
            size_bytes,
            sharers,
            write_ratio,
            changed_ratio,
            elements: 100.0,
            per_second: 100.0,
            clusters: 2.0,
            ..Features::default()
        }
    }

    #[test]
    fn the_second_principle_names_the_order_in_which_copies_go() {
        let check = |elements: f64, spread: f64, small_reuse_ratio: f64, expected| {
            for is_of_size in [true, false] {
                let mut features = load(1e3, 2.0, 0.0, 0.0);
                features.elements = elements;
                features.small_reuse_ratio = small_reuse_ratio;
                if is_of_size {
                    features.size_spread = spread;
                } else {
                    features.popularity_spread = spread;
                }
                let (config, _) = Thresholds::default().choose(&features, Config::CONCORD, Promise::default());
                assert_eq!(config.replacement, expected, "{features:?}");
            }
        };
        check(10_000.0, 3.0, 0.0, Replacement::Fifo);
        check(10.0, 3.0, 0.1, Replacement::PriorityLru);
        check(10.0, 3.0, 0.9, Replacement::Lru);
        check(10.0, 0.1, 0.1, Replacement::Lru);
    }

    #[test]
    fn the_third_principle_counts_sharers_and_the_fourth_asks_for_durability() {
        for (sharers, expected) in [(5.0, Domain::Flat), (40.0, Domain::Hierarchical)] {
            let features = load(1e3, sharers, 0.2, 0.5);
            let (config, number) = Thresholds::default().choose(&features, Config::CONCORD, Promise::default());
            assert_eq!((config.domain, number), (expected, 1));
        }
        let promise = Promise {
            durability: Durability::None,
            ..Promise::default()
        };
        let (config, number) = Thresholds::default().choose(&load(1e3, 2.0, 0.0, 0.0), Config::CONCORD, promise);
        assert_eq!((config.write, number), (WritePolicy::Back, 4));
    }

    #[test]
    fn the_fourth_principle_names_what_a_second_cachelet_holds() {
        let (strict, lossy) = (
            Promise::default(),
            Promise {
                durability: Durability::None,
                ..Promise::default()
            },
        );
        let light = Features {
            per_second: 10.0,
            ..load(1e3, 2.0, 0.05, 0.0)
        };
        let busy = Features {
            per_second: 500.0,
            ..light
        };
        let writes = Features {
            write_ratio: 0.5,
            ..light
        };
        let large = Features {
            size_bytes: 8e6,
            ..light
        };
        // Large values with many sharers have no directory.
        let undirected = load(8e6, 20.0, 0.2, 0.1);
        for (features, promise, expected) in [
            (light, strict, (WritePolicy::Through, Replication::None)),
            (busy, strict, (WritePolicy::Through, Replication::Coherence)),
            (writes, strict, (WritePolicy::Through, Replication::Coherence)),
            (large, strict, (WritePolicy::Through, Replication::Coherence)),
            (undirected, strict, (WritePolicy::Through, Replication::None)),
            (light, lossy, (WritePolicy::Back, Replication::None)),
            (busy, lossy, (WritePolicy::Back, Replication::None)),
        ] {
            let (config, _) = Thresholds::default().choose(&features, Config::CONCORD, promise);
            assert_eq!((config.write, config.replication), expected, "{features:?} {promise:?}");
            assert!(config.is_valid(promise));
        }
        // An operator who wants write-back to outlive one cachelet has it.
        let pins = Pins {
            replication: Some(Replication::Both),
            ..Pins::default()
        };
        let (named, _) = Thresholds::default().choose(&busy, Config::CONCORD, lossy);
        let wanted = pins.applied(named);
        assert_eq!(
            (wanted.write, wanted.replication),
            (WritePolicy::Back, Replication::Both)
        );
        assert!(is_permitted(&wanted, lossy, pins));
    }

    #[test]
    fn the_first_principle_names_the_protocol() {
        let check = |features: Features, expected| {
            let (config, _) = Thresholds::default().choose(&features, Config::CONCORD, Promise::default());
            assert_eq!(config.coherence, expected, "{features:?}");
            assert!(config.is_valid(Promise::default()));
        };
        check(load(8e6, 20.0, 0.2, 0.1), Coherence::SequenceAtHome);
        check(load(8e6, 2.0, 0.2, 0.0), Coherence::Invalidate);
        check(load(1e3, 6.0, 0.2, 0.5), Coherence::Update);
        check(load(1e3, 6.0, 0.0, 0.0), Coherence::Invalidate);
    }

    #[test]
    fn thresholds_are_fitted_to_what_was_measured() {
        let with = |coherence| Config {
            coherence,
            ..Config::CONCORD
        };
        // Sequence numbers are best from 64 KiB on with two sharers or more.
        let cases: Vec<_> = [(1e3, false), (70e3, true), (2e6, true)]
            .into_iter()
            .map(|(size_bytes, is_large)| Case {
                features: load(size_bytes, 2.0, 0.1, 0.0),
                took_us: vec![
                    (with(Coherence::Invalidate), if is_large { 300.0 } else { 100.0 }),
                    (with(Coherence::SequenceAtHome), 200.0),
                    (with(Coherence::Update), 900.0),
                ],
            })
            .collect();
        assert!(Thresholds::default().cost(&cases) > 1.3);
        let fitted = Thresholds::fit(&cases);
        assert_eq!(fitted.cost(&cases), 1.0, "{fitted:?}");
    }
}
