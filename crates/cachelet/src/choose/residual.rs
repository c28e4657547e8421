//! The part that prices miss: a linear model of the logarithm of measured by expected time, over the values of the
//! dimensions in several contexts. It is LinUCB (Li et al., WWW'10) on a residual. Older observations count less.
//!
//! An error is one of all configurations until they are seen to differ: a value that was never observed is corrected as those of
//! its dimension that were.
//!
//! The weights drift as a random walk and are followed by a Kalman filter (Kalman, 1960). An observation costs the
//! square of the number of features. The covariance stays positive, also if a feature is not seen for long.

use std::ops::Range;

use super::price::Features;
use crate::config::{Admission, Coherence, Config, Domain, Replacement, Scope, WritePolicy};

/// Values of dimensions, and one feature that all configurations share.
const VALUES: usize = 1 + 3 + 2 + 4 + 5 + 2 + 2;

/// A constant, the size, the sharers, and the writes.
const CONTEXTS: usize = 4;

const FEATURES: usize = VALUES * CONTEXTS;

/// Prior variance of each weight that all configurations share.
const PRIOR: f64 = 0.5;

/// The same of those that belong to a dimension's value.
const PRIOR_OF_VALUE: f64 = 0.02;

/// Variance of one observation: a single measurement says little.
const NOISE: f64 = 1.0;

/// The growth of a weight's variance with each observation, of its prior one, because loads change; never beyond the priors'
/// sum.
const DRIFT: f64 = 0.004;

/// How much of the uncertainty is taken off: little, because prices are known without trying.
const OPTIMISM: f64 = 0.002;

/// The model corrects a price by at most this factor's logarithm.
const MOST: f64 = 0.7;

/// The sum of all prior variances.
const FIRST_TRACE: f64 = PRIOR * CONTEXTS as f64 + PRIOR_OF_VALUE * (FEATURES - CONTEXTS) as f64;

/// An error is taken for one of all configurations until they are seen to differ.
fn prior(index: usize) -> f64 {
    if index < CONTEXTS { PRIOR } else { PRIOR_OF_VALUE }
}

/// The model.
#[derive(Clone, Debug)]
pub struct Residual {
    covariance: Vec<f64>,
    weights: Vec<f64>,
    /// The values that were observed.
    is_seen: [bool; VALUES],
}

impl Default for Residual {
    fn default() -> Self {
        let mut covariance = vec![0.0; FEATURES * FEATURES];
        for index in 0..FEATURES {
            covariance[index * FEATURES + index] = prior(index);
        }
        Self {
            covariance,
            weights: vec![0.0; FEATURES],
            is_seen: [false; VALUES],
        }
    }
}

impl Residual {
    /// An operation took `measured_us` where `expected_us` were expected.
    pub fn observe(&mut self, config: &Config, context: &Features, measured_us: f64, expected_us: f64) {
        if measured_us <= 0.0 || expected_us <= 0.0 {
            return;
        }
        for (place, _) in places(config) {
            self.is_seen[place] = true;
        }
        let target = (measured_us / expected_us).ln().clamp(-3.0, 3.0);
        let features = features(places(config).map(|(place, _)| (place, 1.0)), context);
        let product = self.times(&features);
        let variance = NOISE + dot(&features, &product);
        let error = target - dot(&features, &self.weights);
        for (weight, gain) in self.weights.iter_mut().zip(&product) {
            *weight += gain * error / variance;
        }
        let mut trace = 0.0;
        for (row, (cells, of_row)) in self.covariance.chunks_mut(FEATURES).zip(&product).enumerate() {
            for (cell, of_column) in cells.iter_mut().zip(&product) {
                *cell -= of_row * of_column / variance;
            }
            trace += cells[row];
        }
        if trace < FIRST_TRACE {
            let share = (FIRST_TRACE - trace).min(DRIFT * FIRST_TRACE) / FIRST_TRACE;
            for index in 0..FEATURES {
                self.covariance[index * FEATURES + index] += share * prior(index);
            }
        }
    }

    /// The factor by which a price is to be corrected.
    #[must_use]
    pub fn factor(&self, config: &Config, context: &Features) -> f64 {
        let features = features(self.known_places(config), context);
        let variance = dot(&features, &self.times(&features)).max(0.0);
        let correction = dot(&features, &self.weights) - OPTIMISM * variance.sqrt();
        correction.clamp(-MOST, MOST).exp()
    }

    /// The places of a configuration's values, with their weights. The place of a value that was never observed is shared by
    /// those of its dimension that were.
    fn known_places(&self, config: &Config) -> Vec<(usize, f64)> {
        let mut known = Vec::new();
        for (place, dimension) in places(config) {
            let seen: Vec<usize> = dimension.filter(|other| self.is_seen[*other]).collect();
            if seen.is_empty() || self.is_seen[place] {
                known.push((place, 1.0));
            } else {
                known.extend(seen.iter().map(|other| (*other, 1.0 / seen.len() as f64)));
            }
        }
        known
    }

    fn times(&self, vector: &[f64]) -> Vec<f64> {
        self.covariance.chunks(FEATURES).map(|row| dot(row, vector)).collect()
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// The place of each of a configuration's values, with all places of its dimension. The first place is that of all configurations.
fn places(config: &Config) -> impl Iterator<Item = (usize, Range<usize>)> {
    let values = [
        (0, 1),
        (config.scope as usize, Scope::ALL.len()),
        (config.write as usize, WritePolicy::ALL.len()),
        (config.replacement as usize, Replacement::ALL.len()),
        (config.coherence as usize, Coherence::ALL.len()),
        (config.domain as usize, Domain::ALL.len()),
        (config.admission as usize, Admission::ALL.len()),
    ];
    values.into_iter().scan(0, |at, (value, count)| {
        let dimension = *at..*at + count;
        *at += count;
        Some((dimension.start + value, dimension))
    })
}

fn features(places: impl IntoIterator<Item = (usize, f64)>, context: &Features) -> Vec<f64> {
    let contexts = [
        1.0,
        (context.size_bytes + 1.0).log2() / 30.0,
        context.sharers.max(1.0).log2() / 6.0,
        context.write_ratio,
    ];
    let mut features = vec![0.0; FEATURES];
    for (place, weight) in places {
        for (index, value) in contexts.iter().enumerate() {
            features[place * CONTEXTS + index] += weight * value;
        }
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far measured times are from expected ones, for every context: the model is to find it.
    fn check(truth: f64, rounds: usize) {
        let mut model = Residual::default();
        let config = Config::CONCORD;
        let mut contexts = (0_u32..).map(|round| Features {
            size_bytes: f64::from(1 << (10 + round % 12)),
            sharers: f64::from(1 + round % 7),
            write_ratio: f64::from(round % 10) / 10.0,
            changed_ratio: 0.1,
            elements: 100.0,
            per_second: 1_000.0,
            clusters: 1.0,
            ..Features::default()
        });
        for context in contexts.by_ref().take(rounds) {
            model.observe(&config, &context, 1_000.0 * truth, 1_000.0);
        }
        for context in contexts.take(50) {
            let found = model.factor(&config, &context);
            assert!((found / truth - 1.0).abs() < 0.1, "{truth}, {rounds} rounds: {found}");
        }
    }

    #[test]
    fn a_constant_error_is_found_and_stays_found() {
        for truth in [0.6, 1.0, 1.5] {
            for rounds in [200, 5_000] {
                check(truth, rounds);
            }
        }
    }

    #[test]
    fn an_error_is_one_of_all_configurations_until_they_differ() {
        let mut model = Residual::default();
        let context = Features {
            size_bytes: 4_096.0,
            sharers: 4.0,
            write_ratio: 0.2,
            ..Features::default()
        };
        let other = Config {
            scope: Scope::Instance,
            replacement: Replacement::Fifo,
            ..Config::CONCORD
        };
        let factors = |model: &Residual| [Config::CONCORD, other].map(|config| model.factor(&config, &context));
        for _ in 0..50 {
            model.observe(&Config::CONCORD, &context, 2_000.0, 1_000.0);
        }
        let [own, theirs] = factors(&model);
        assert!(own > 1.5 && (own - theirs).abs() < 1e-9, "{own}, {theirs}");
        for _ in 0..50 {
            model.observe(&other, &context, 1_000.0, 1_000.0);
        }
        let [own, theirs] = factors(&model);
        assert!(theirs < own, "{own}, {theirs}");
    }

    #[test]
    fn what_was_never_seen_is_hardly_corrected() {
        let model = Residual::default();
        let context = Features {
            size_bytes: 1_024.0,
            sharers: 2.0,
            write_ratio: 0.5,
            changed_ratio: 0.1,
            elements: 100.0,
            per_second: 1_000.0,
            clusters: 1.0,
            ..Features::default()
        };
        let factor = model.factor(&Config::CONCORD, &context);
        assert!((0.9..=1.0).contains(&factor), "{factor}");
    }
}
