//! Choosing by prices: discounted Hedge (Freund and Schapire, 1997) over all allowed configurations, which are all priced in
//! every interval.
//!
//! It switches only if the gain within the horizon is above the cost of the switch. A small gain is tried on one
//! partition of the keys first, beside the others, so that a change of the load does not look like a gain. A switch
//! after which operations take longer than before is taken back. Both ends bar the configuration for a while.

use super::price::{Features, Load, Rates};
use super::residual::Residual;
use super::{Chooser, Counters, Pins, Ranked, Reason, Switch, Why, allowed};
use crate::config::{Config, Promise};
use crate::view::{PARTITIONS, Trial};

/// How [`Hedge`] weighs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// How much the past counts against the last interval.
    pub discount: f64,
    /// For how many intervals a gain is expected to last.
    pub horizon_intervals: f64,
    /// Gains below this ratio are left alone.
    pub least_gain_ratio: f64,
    /// Gains below this ratio are tried first, where the keys permit it.
    pub sure_gain_ratio: f64,
    /// Operations that an interval must have to say anything.
    pub least_operations: f64,
    /// After a switch, intervals until the next one, unless the load changed.
    pub dwell_intervals: u32,
    /// Intervals that a trial lasts.
    pub trial_intervals: u32,
    /// Intervals for which a configuration that failed is barred.
    pub barred_intervals: u32,
    /// How sharply weights follow losses.
    pub rate: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            discount: 0.5,
            horizon_intervals: 20.0,
            least_gain_ratio: 0.03,
            sure_gain_ratio: 0.15,
            least_operations: 20.0,
            dwell_intervals: 3,
            trial_intervals: 3,
            barred_intervals: 30,
            rate: 20.0,
        }
    }
}

/// By this factor the price of the present configuration must move for the load to count as another one.
const CHANGED_FACTOR: f64 = 1.5;

/// An interval with so many operations says enough by itself. One with less counts as less, and one with less than half of it
/// does not tell that the load is another one.
const SURE_OPERATIONS: f64 = 200.0;

/// The past never counts for more than this against an interval.
const SLOWEST_DISCOUNT: f64 = 0.85;

/// By this factor an operation must take longer than before a switch for the switch to be taken back.
const WORSE_FACTOR: f64 = 1.1;

/// An interval after a switch says nothing about it: copies are validated in it.
const SETTLING_INTERVALS: u32 = 1;

/// Configurations whose prices differ by less than this ratio are alike: prices are not as exact as that.
const ALIKE_RATIO: f64 = 0.01;

/// A trial's partition has at most this share of all operations.
const TRIAL_SHARE: f64 = 0.25;

/// Discounted Hedge over priced configurations.
#[derive(Clone, Debug)]
pub struct Hedge {
    promise: Promise,
    pins: Pins,
    rates: Rates,
    tuning: Tuning,
    config: Config,
    arms: Vec<Arm>,
    residual: Residual,
    since_switch: u32,
    phase: Phase,
    has_seen: bool,
}

#[derive(Clone, Debug)]
struct Arm {
    config: Config,
    /// Discounted mean of the prices.
    loss_us: f64,
    barred: u32,
}

#[derive(Clone, Debug)]
enum Phase {
    Steady,
    Trying(Test),
    /// A switch that may still be taken back.
    Proving(Test),
}

#[derive(Clone, Debug)]
struct Test {
    old: Config,
    new: Config,
    trial: Option<Trial>,
    intervals: u32,
    /// Measured before: the mean time, or its ratio to that of all other partitions.
    before: f64,
    /// The price of the old configuration before.
    old_price_us: f64,
    /// The sums of the present measurement.
    times: [f64; 4],
}

impl Hedge {
    /// One for a domain with a configuration.
    #[must_use]
    pub fn new(promise: Promise, config: Config, rates: Rates, tuning: Tuning) -> Self {
        let mut hedge = Self {
            promise,
            pins: Pins::default(),
            rates,
            tuning,
            config,
            arms: Vec::new(),
            residual: Residual::default(),
            since_switch: tuning.dwell_intervals,
            phase: Phase::Steady,
            has_seen: false,
        };
        hedge.set_arms();
        hedge
    }

    fn set_arms(&mut self) {
        let arm = |config| Arm {
            config,
            loss_us: 0.0,
            barred: 0,
        };
        self.arms = allowed(self.promise, self.pins, self.config)
            .into_iter()
            .map(arm)
            .collect();
        self.has_seen = false;
    }

    /// Prices all arms and mixes the prices into their losses.
    fn price(&mut self, load: &Load, context: &Features) {
        let price = |config: &Config| load.price_us(config, &self.rates) * self.residual.factor(config, context);
        let prices_us: Vec<f64> = self.arms.iter().map(|arm| price(&arm.config)).collect();
        let weight = load.operations / SURE_OPERATIONS;
        let has_changed = !self.has_seen || (weight >= 0.5 && self.is_another_load(&prices_us));
        let discount = if has_changed {
            0.0
        } else {
            self.tuning.discount.max(1.0 - weight).min(SLOWEST_DISCOUNT)
        };
        for (arm, price_us) in self.arms.iter_mut().zip(prices_us) {
            arm.loss_us = discount * arm.loss_us + (1.0 - discount) * price_us;
            arm.barred = arm.barred.saturating_sub(1);
        }
        if has_changed && self.has_seen {
            self.since_switch = self.since_switch.max(self.tuning.dwell_intervals);
        }
        self.has_seen = true;
    }

    /// Whether the present configuration, or the best one, has quite another price than before.
    fn is_another_load(&self, prices_us: &[f64]) -> bool {
        let is_other = |(before_us, now_us): (f64, f64)| {
            now_us > before_us * CHANGED_FACTOR || before_us > now_us * CHANGED_FACTOR
        };
        let pairs = || self.arms.iter().zip(prices_us);
        let present = pairs().find(|(arm, _)| arm.config == self.config);
        let best = pairs().min_by(|one, other| one.1.total_cmp(other.1));
        let both = present.into_iter().chain(best);
        both.map(|(arm, price_us)| (arm.loss_us, *price_us)).any(is_other)
    }

    fn loss_of(&self, config: &Config) -> Option<f64> {
        let arm = self.arms.iter().find(|arm| arm.config == *config)?;
        self.has_seen.then_some(arm.loss_us)
    }

    fn best(&self) -> Option<&Arm> {
        let open = self
            .arms
            .iter()
            .filter(|arm| arm.barred == 0 || arm.config == self.config);
        let least_us = open.clone().map(|arm| arm.loss_us).min_by(f64::total_cmp)?;
        // A dimension that makes no difference stays as it is.
        let changes = |arm: &Arm| arm.config.differences(&self.config);
        open.filter(|arm| arm.loss_us <= least_us * (1.0 + ALIKE_RATIO))
            .min_by(|one, other| {
                let by_changes = changes(one).cmp(&changes(other));
                by_changes.then_with(|| one.loss_us.total_cmp(&other.loss_us))
            })
    }

    fn bar(&mut self, config: &Config) {
        let barred = self.tuning.barred_intervals;
        if let Some(arm) = self.arms.iter_mut().find(|arm| arm.config == *config) {
            arm.barred = barred;
        }
    }

    /// The cost of a switch to all operations together.
    fn switch_us(&self, counters: &Counters, load: &Load) -> f64 {
        let copies: u64 = counters.reports.iter().map(|report| report.copies).sum();
        // Copies that are used again are validated: at most one per operation and interval.
        let used = (copies as f64).min(counters.times(|_| true).count as f64);
        let paused = load.operations * self.rates.pause_us / (counters.interval_us.max(1) as f64);
        used * 2.0 * (self.rates.hop_us + self.rates.message_us) + paused * self.rates.store_us
    }

    fn decide(&mut self, counters: &Counters, load: &Load, context: &Features) -> Option<Switch> {
        let best = self.best()?.clone();
        let must = !self.arms.iter().any(|arm| arm.config == self.config);
        let from_us = self.loss_of(&self.config).unwrap_or(best.loss_us);
        let gain_ratio = 1.0 - best.loss_us / from_us.max(1e-9);
        let operations = counters.times(|_| true).count as f64;
        let switch_us = self.switch_us(counters, load);
        let gain_us = (from_us - best.loss_us) * operations * self.tuning.horizon_intervals;
        let is_worth = gain_ratio >= self.tuning.least_gain_ratio && gain_us > switch_us;
        if !must && (!is_worth || best.config == self.config || self.since_switch < self.tuning.dwell_intervals) {
            return None;
        }
        let partition = self
            .partition(counters)
            .filter(|_| !must && gain_ratio < self.tuning.sure_gain_ratio);
        let trial = partition.map(|partition| Trial {
            config: best.config,
            partition,
        });
        let reason = match trial {
            _ if must => Reason::Pinned,
            Some(_) => Reason::Trial,
            None => Reason::Cheaper,
        };
        let why = Why {
            reason,
            from_us,
            to_us: best.loss_us,
            switch_us,
            figures: vec![
                ("bytes", context.size_bytes),
                ("sharers", context.sharers),
                ("writes", context.write_ratio),
                ("changed", context.changed_ratio),
            ],
        };
        let before = trial.map_or_else(|| counters.mean_us(), |trial| ratio(counters, trial.partition));
        let test = Test {
            old: self.config,
            new: best.config,
            trial,
            intervals: 0,
            before,
            old_price_us: load.price_us(&self.config, &self.rates),
            times: [0.0; 4],
        };
        let config = if trial.is_some() { self.config } else { best.config };
        self.phase = if trial.is_some() {
            Phase::Trying(test)
        } else {
            Phase::Proving(test)
        };
        self.switched(config);
        Some(Switch { config, trial, why })
    }

    fn switched(&mut self, config: Config) {
        self.since_switch = 0;
        self.config = config;
    }

    /// The partition that a trial may have: the busiest that is no large part of all.
    fn partition(&self, counters: &Counters) -> Option<u8> {
        let all = counters.times(|_| true).count as f64;
        let of = |partition: u8| counters.times(|number| number == partition).count as f64;
        let fits = |partition: &u8| {
            let count = of(*partition);
            count >= self.tuning.least_operations && count <= all * TRIAL_SHARE
        };
        (0..PARTITIONS)
            .filter(fits)
            .max_by(|one, other| of(*one).total_cmp(&of(*other)))
    }

    /// Goes on with a trial.
    fn try_on(&mut self, mut test: Test, counters: &Counters) -> Option<Switch> {
        test.intervals += 1;
        let trial = test.trial?;
        if test.intervals > SETTLING_INTERVALS {
            let (tried, rest) = (
                counters.times(|number| number == trial.partition),
                counters.times(|number| number != trial.partition),
            );
            let new = [tried.us, tried.count, rest.us, rest.count];
            for (sum, value) in test.times.iter_mut().zip(new) {
                *sum += value as f64;
            }
        }
        if test.intervals >= self.tuning.trial_intervals + SETTLING_INTERVALS {
            return self.end_trial(&test);
        }
        self.phase = Phase::Trying(test);
        None
    }

    fn end_trial(&mut self, test: &Test) -> Option<Switch> {
        let [tried_us, tried, rest_us, rest] = test.times;
        let after = (tried_us / tried.max(1.0)) / (rest_us / rest.max(1.0)).max(1e-9);
        let is_kept = tried < self.tuning.least_operations || after <= test.before;
        let rest_us = rest_us / rest.max(1.0);
        let why = Why {
            reason: if is_kept {
                Reason::TrialKept
            } else {
                Reason::TrialFailed
            },
            from_us: rest_us * if is_kept { test.before } else { after },
            to_us: rest_us * if is_kept { after } else { test.before },
            switch_us: 0.0,
            figures: vec![("before", test.before), ("after", after)],
        };
        self.phase = Phase::Steady;
        if !is_kept {
            self.bar(&test.new);
        }
        let config = if is_kept { test.new } else { test.old };
        self.switched(config);
        Some(Switch {
            config,
            trial: None,
            why,
        })
    }

    /// Looks whether a switch was right.
    fn prove(&mut self, mut test: Test, counters: &Counters, load: &Load) -> Option<Switch> {
        test.intervals += 1;
        self.phase = Phase::Steady;
        if test.intervals <= SETTLING_INTERVALS {
            self.phase = Phase::Proving(test);
            return None;
        }
        let (now_us, old_price_us) = (counters.mean_us(), load.price_us(&test.old, &self.rates));
        // The time of the old configuration now, from its time then.
        let scaled_us = test.before * old_price_us / test.old_price_us.max(1e-9);
        let is_same_load =
            old_price_us < test.old_price_us * CHANGED_FACTOR && test.old_price_us < old_price_us * CHANGED_FACTOR;
        if !is_same_load || now_us <= scaled_us * WORSE_FACTOR {
            return None;
        }
        self.bar(&test.new);
        self.switched(test.old);
        Some(Switch {
            config: test.old,
            trial: None,
            why: Why {
                reason: Reason::RolledBack,
                from_us: now_us,
                to_us: scaled_us,
                switch_us: 0.0,
                figures: vec![("before", test.before)],
            },
        })
    }
}

/// The mean time of a partition's operations by that of all others.
fn ratio(counters: &Counters, partition: u8) -> f64 {
    let mean = |times: super::counters::Times| times.us as f64 / times.count.max(1) as f64;
    mean(counters.times(|number| number == partition)) / mean(counters.times(|number| number != partition)).max(1e-9)
}

impl Chooser for Hedge {
    fn observe(&mut self, _now_us: u64, counters: &Counters) -> Option<Switch> {
        let load = Load::of(counters);
        if load.operations < self.tuning.least_operations {
            return None;
        }
        let context = load.features();
        let expected_us = load.price_us(&self.config, &self.rates);
        if self.since_switch >= SETTLING_INTERVALS && matches!(self.phase, Phase::Steady) {
            self.residual.observe(
                &self.config,
                &context,
                counters.mean_us() + self.rates.hop_us,
                expected_us + self.rates.hop_us,
            );
        }
        self.price(&load, &context);
        self.since_switch = self.since_switch.saturating_add(1);
        let phase = std::mem::replace(&mut self.phase, Phase::Steady);
        let ended = match phase {
            Phase::Trying(test) => return self.try_on(test, counters),
            Phase::Proving(test) => self.prove(test, counters, &load),
            Phase::Steady => None,
        };
        ended.or_else(|| self.decide(counters, &load, &context))
    }

    fn adopted(&mut self, _now_us: u64, config: Config, trial: Option<Trial>) {
        if config != self.config {
            self.config = config;
            self.phase = Phase::Steady;
            self.set_arms();
        } else if matches!(&self.phase, Phase::Trying(test) if test.trial != trial) {
            self.phase = Phase::Steady;
        }
    }

    fn pin(&mut self, pins: Pins) {
        self.pins = pins;
        self.phase = Phase::Steady;
        self.set_arms();
    }

    fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    fn ranking(&self) -> Vec<Ranked> {
        let least_us = self
            .arms
            .iter()
            .map(|arm| arm.loss_us)
            .fold(f64::INFINITY, f64::min)
            .max(1e-9);
        let weight = |arm: &Arm| (-self.tuning.rate * (arm.loss_us / least_us - 1.0)).exp();
        let sum: f64 = self.arms.iter().map(weight).sum();
        let ranked = |arm: &Arm| Ranked {
            config: arm.config,
            expected_us: arm.loss_us,
            weight: weight(arm) / sum,
        };
        let mut ranking: Vec<_> = self.arms.iter().map(ranked).collect();
        ranking.sort_by(|one, other| one.expected_us.total_cmp(&other.expected_us));
        ranking
    }
}
