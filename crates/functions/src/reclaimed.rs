//! How many functions were reclaimed in each interval, as it was seen, and which distribution that is (the paper's Fig. 9).
//! Pure.
//!
//! Poisson's and Zipf's are fitted by their greatest likelihood; the one under which the observations are likelier is taken.

use std::collections::BTreeMap;

use crate::availability::Reclaim;

/// Intervals before a fit says something: fewer would mostly be chance.
pub const INTERVALS_LEAST: u64 = 10;
/// Intervals that are remembered in full weight; older ones fade.
const INTERVALS_MOST: u64 = 10_080;
/// Exponents of Zipf's that are looked at.
const EXPONENTS: (f64, f64) = (0.01, 20.0);
/// Means of Poisson's and halvings of the range of exponents: beyond what floats tell apart.
const MEAN_LEAST: f64 = 1e-6;
const STEPS: usize = 100;

/// In how many intervals how many were reclaimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    intervals: BTreeMap<u32, u64>,
}

/// A distribution, and how well it fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// It.
    pub reclaim: Reclaim,
    /// The logarithm of the observations' likelihood under it.
    pub log_likelihood: f64,
}

impl Observed {
    /// Notes an interval. After a week of minutes, all older ones are halved.
    pub fn note(&mut self, reclaimed: u32) {
        *self.intervals.entry(reclaimed).or_default() += 1;
        if self.count() >= 2 * INTERVALS_MOST {
            self.intervals.values_mut().for_each(|count| *count /= 2);
            self.intervals.retain(|_, count| *count > 0);
        }
    }

    /// How many intervals.
    pub fn count(&self) -> u64 {
        self.intervals.values().sum()
    }

    /// How many functions in an interval, on average.
    pub fn mean(&self) -> f64 {
        let sum: u64 = self.intervals.iter().map(|(&r, &count)| u64::from(r) * count).sum();
        sum as f64 / self.count().max(1) as f64
    }

    /// In how many intervals how many were reclaimed, ascending.
    pub fn intervals(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.intervals.iter().map(|(&r, &count)| (r, count))
    }

    /// The better of both distributions, for a pool of so many functions. `None`: too few intervals were seen.
    pub fn fit(&self, functions: u32) -> Option<Fit> {
        if self.count() < INTERVALS_LEAST {
            return None;
        }
        let (poisson, zipf) = (self.poisson(functions), self.zipf(functions));
        Some(if poisson.log_likelihood >= zipf.log_likelihood {
            poisson
        } else {
            zipf
        })
    }

    /// Poisson's: its likeliest mean is that of the observations.
    pub fn poisson(&self, functions: u32) -> Fit {
        let mean = self.mean().max(MEAN_LEAST);
        self.judge(Reclaim::Poisson { mean }, functions)
    }

    /// Zipf's over 0 to `functions`: its likelihood has one maximum over the exponent, which is closed in on.
    pub fn zipf(&self, functions: u32) -> Fit {
        let (mut low, mut high) = EXPONENTS;
        let of = |exponent| self.judge(Reclaim::Zipf { exponent }, functions);
        for _ in 0..STEPS {
            let third = (high - low) / 3.0;
            if of(low + third).log_likelihood < of(high - third).log_likelihood {
                low += third;
            } else {
                high -= third;
            }
        }
        of(f64::midpoint(low, high))
    }

    fn judge(&self, reclaim: Reclaim, functions: u32) -> Fit {
        let probabilities = reclaim.probabilities(functions);
        let of = |(r, count): (u32, u64)| {
            let p = probabilities.get(r as usize).copied().unwrap_or(0.0);
            count as f64 * p.max(f64::MIN_POSITIVE).ln()
        };
        Fit {
            reclaim,
            log_likelihood: self.intervals().map(of).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many intervals with each number as the distribution has on average in so many.
    fn drawn(reclaim: Reclaim, intervals: f64) -> Observed {
        let counts = (0..)
            .zip(reclaim.probabilities(100))
            .map(|(r, p)| (r, (p * intervals).round() as u64));
        Observed {
            intervals: counts.filter(|(_, count)| *count > 0).collect(),
        }
    }

    #[test]
    fn what_was_drawn_from_a_distribution_is_found_to_be_it() {
        for mean in [0.6, 2.28, 7.1] {
            let fit = drawn(Reclaim::Poisson { mean }, 100_000.0).fit(100).unwrap();
            let Reclaim::Poisson { mean: found } = fit.reclaim else {
                panic!("{fit:?}")
            };
            assert!((found / mean - 1.0).abs() < 0.01, "{found} for {mean}");
        }
        for exponent in [1.2, 1.8, 3.0] {
            let fit = drawn(Reclaim::Zipf { exponent }, 1_000_000.0).fit(100).unwrap();
            let Reclaim::Zipf { exponent: found } = fit.reclaim else {
                panic!("{fit:?}")
            };
            assert!((found / exponent - 1.0).abs() < 0.01, "{found} for {exponent}");
        }
    }

    #[test]
    fn few_intervals_say_nothing_and_none_reclaimed_is_a_small_mean() {
        let mut observed = Observed::default();
        (0..INTERVALS_LEAST - 1).for_each(|_| observed.note(0));
        assert_eq!(observed.fit(24), None);
        observed.note(0);
        let fit = observed.fit(24).unwrap();
        let none = fit.reclaim.probabilities(24)[0];
        assert!(none > 0.999, "{fit:?}: {none}");
    }

    #[test]
    fn old_intervals_fade() {
        let mut observed = Observed::default();
        (0..INTERVALS_MOST).for_each(|_| observed.note(5));
        (0..INTERVALS_MOST).for_each(|_| observed.note(0));
        assert_eq!(observed.count(), INTERVALS_MOST);
        (0..3 * INTERVALS_MOST).for_each(|_| observed.note(0));
        assert!(observed.mean() < 1.0, "{}", observed.mean());
    }
}
