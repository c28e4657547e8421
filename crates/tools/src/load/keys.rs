//! Which key next.

use super::{Rng, WorkloadError, Zipf};

/// The most keys of a workload. Sums of 2^40 ranks stay exact enough in 53 bits.
pub(super) const MAX_KEYS: u64 = 1 << 40;

/// How often each rank is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All equally.
    Uniform,
    /// Proportional to `1 / (rank + 1)^alpha`.
    Zipf {
        /// The exponent, 0 or more.
        alpha: f64,
    },
    /// Proportional to `exp(-lambda rank)`, cut at the number of keys.
    Exponential {
        /// The rate per rank, above 0; the mean rank is its inverse.
        lambda: f64,
    },
}

/// Which keys are the popular ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The popular ones are scattered among all keys, as in life. A fixed permutation: two runs agree on it.
    #[default]
    Scrambled,
    /// Key number and rank are the same: the smaller, the more popular.
    Ranked,
}

/// A source of key numbers from 0 to a count.
#[derive(Clone, Debug)]
pub struct Keys {
    count: u64,
    ranks: Ranks,
    permutation: Option<Permutation>,
}

#[derive(Clone, Debug)]
enum Ranks {
    Uniform,
    Zipf(Box<Zipf>),
    Exponential { mass: f64, inverse_lambda: f64 },
}

impl Keys {
    /// Keys 0 to `count` - 1.
    ///
    /// # Errors
    /// No keys or too many, or a parameter of the distribution that makes no sense.
    pub fn new(count: u64, distribution: Distribution, order: Order) -> Result<Self, WorkloadError> {
        if !(1..=MAX_KEYS).contains(&count) {
            return Err(WorkloadError::KeyCount(count));
        }
        let ranks = match distribution {
            Distribution::Uniform => Ranks::Uniform,
            Distribution::Zipf { alpha } => Ranks::Zipf(Box::new(Zipf::new(count, alpha)?)),
            Distribution::Exponential { lambda } if lambda > 0.0 && lambda.is_finite() => {
                let cut = lambda * count as f64;
                Ranks::Exponential {
                    mass: -(-cut).exp_m1(),
                    inverse_lambda: 1.0 / lambda,
                }
            }
            Distribution::Exponential { lambda } => {
                return Err(WorkloadError::Parameter {
                    flag: "--exponential",
                    given: lambda,
                    allowed: "a number above 0, such as 1e-6",
                });
            }
        };
        // A permutation changes nothing where all keys are equal.
        let scrambled = order == Order::Scrambled && !matches!(ranks, Ranks::Uniform);
        Ok(Self {
            count,
            ranks,
            permutation: scrambled.then(|| Permutation::new(count)),
        })
    }

    /// How many keys there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next key.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let rank = match &self.ranks {
            Ranks::Uniform => return rng.below(self.count),
            Ranks::Zipf(zipf) => zipf.draw(rng),
            Ranks::Exponential { mass, inverse_lambda } => {
                let x = -(-rng.unit() * mass).ln_1p() * inverse_lambda;
                (x as u64).min(self.count - 1)
            }
        };
        self.key_of_rank(rank)
    }

    /// The key that has a rank, 0 the most popular one.
    #[inline]
    pub fn key_of_rank(&self, rank: u64) -> u64 {
        self.permutation
            .as_ref()
            .map_or(rank, |permutation| permutation.apply(rank))
    }
}

/// A fixed bijection of the numbers below a count. A mixing bijection of the next power of two is applied again while
/// its result is outside, fewer than twice in the mean.
#[derive(Clone, Debug)]
struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
}

impl Permutation {
    fn new(count: u64) -> Self {
        let mask = count.next_power_of_two() - 1;
        let bits = mask.count_ones();
        Self {
            count,
            mask,
            shift: bits.div_ceil(2).max(1),
        }
    }

    #[inline]
    fn apply(&self, mut value: u64) -> u64 {
        loop {
            value = self.mix(value);
            if value < self.count {
                return value;
            }
        }
    }

    /// Adding, multiplying by an odd number and folding the upper half down are each invertible below a power of two.
    #[inline]
    fn mix(&self, value: u64) -> u64 {
        let fold = |value: u64| value ^ (value >> self.shift);
        let value = fold(value.wrapping_add(0x5851_F42D_4C95_7F2D) & self.mask);
        let value = fold(value.wrapping_mul(0xD134_2543_DE82_EF95) & self.mask);
        fold(value.wrapping_mul(0xAF25_1AF3_B0F0_25B5) & self.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrambling_is_a_permutation_that_leaves_no_order() {
        for count in [1, 2, 3, 7, 64, 1000, 65_537] {
            let permutation = Permutation::new(count);
            let mut seen = vec![false; usize::try_from(count).unwrap()];
            let mut ascents = 0_u64;
            let mut last = None;
            for value in 0..count {
                let image = permutation.apply(value);
                assert!(
                    !std::mem::replace(&mut seen[usize::try_from(image).unwrap()], true),
                    "{count}: {image} twice"
                );
                ascents += u64::from(last.is_some_and(|last| last < image));
                last = Some(image);
            }
            if count >= 1000 {
                let half = count / 2;
                assert!(ascents.abs_diff(half) < count / 10, "{count}: {ascents} ascents");
            }
        }
    }

    #[test]
    fn uniform_and_exponential_have_their_means() {
        let check = |count: u64, distribution, mean: f64, deviation: f64| {
            let keys = Keys::new(count, distribution, Order::Ranked).unwrap();
            let mut rng = Rng::new(3);
            let draws = 200_000;
            let sum: f64 = (0..draws)
                .map(|_| {
                    let key = keys.draw(&mut rng);
                    assert!(key < count);
                    key as f64
                })
                .sum();
            let found = sum / f64::from(draws);
            let tolerance = 5.0 * deviation / f64::from(draws).sqrt();
            assert!(
                (found - mean).abs() < tolerance,
                "{distribution:?}: {found}, expected {mean}"
            );
        };
        check(1_000_000, Distribution::Uniform, 499_999.5, 1e6 / 12_f64.sqrt());
        // Whole numbers below an exponential variate of mean 1000 have the mean 1 / (e^0.001 - 1).
        check(1_000_000, Distribution::Exponential { lambda: 1e-3 }, 999.5, 1000.0);
        // With the mean 1 / (e^0.5 - 1) and the variance e^0.5 times its square.
        check(1000, Distribution::Exponential { lambda: 0.5 }, 1.5415, 1.98);
        // Cut at one mean: the mean of the part below 1 is 1 - 1 / (e - 1) = 0.41802.
        check(100_000, Distribution::Exponential { lambda: 1e-5 }, 41_801.8, 28_500.0);
    }

    #[test]
    fn the_same_seed_gives_the_same_keys() {
        for distribution in [
            Distribution::Uniform,
            Distribution::Zipf { alpha: 0.99 },
            Distribution::Exponential { lambda: 1e-3 },
        ] {
            let keys = Keys::new(10_000, distribution, Order::Scrambled).unwrap();
            let draw = |seed| {
                let mut rng = Rng::new(seed);
                std::array::from_fn::<u64, 32, _>(|_| keys.draw(&mut rng))
            };
            assert_eq!(draw(1), draw(1));
            assert_ne!(draw(1), draw(2));
        }
    }

    #[test]
    fn bad_parameters_are_refused() {
        for (count, distribution) in [
            (0, Distribution::Uniform),
            (MAX_KEYS + 1, Distribution::Uniform),
            (10, Distribution::Exponential { lambda: 0.0 }),
            (10, Distribution::Exponential { lambda: f64::NAN }),
            (10, Distribution::Zipf { alpha: -1.0 }),
        ] {
            assert!(
                Keys::new(count, distribution, Order::Ranked).is_err(),
                "{count} {distribution:?}"
            );
        }
    }
}
