//! How probable it is that an object is lost when functions are reclaimed (the paper's Equations 1 to 3).
//!
//! The chunks of an object lie on distinct functions, chosen at random. Backup is not in the model, as in the paper's.

use crate::Code;

/// How many functions are reclaimed at the same time, as a distribution of their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reclaim {
    /// Poisson's, with this mean (October, December and January in the paper's Fig. 9).
    Poisson {
        /// Functions per interval.
        mean: f64,
    },
    /// Zipf's over 0, 1, 2 and so on functions: the probability of `r` is in proportion to `(r + 1)^-exponent` (August,
    /// September and November there).
    Zipf {
        /// The larger, the fewer.
        exponent: f64,
    },
}

/// A distribution that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write poisson:MEAN or zipf:EXPONENT, with a number above 0 and at most 1000")]
pub struct ReclaimError;

impl std::str::FromStr for Reclaim {
    type Err = ReclaimError;

    fn from_str(text: &str) -> Result<Self, ReclaimError> {
        let (name, number) = text.split_once(':').ok_or(ReclaimError)?;
        let number: f64 = number.parse().map_err(|_| ReclaimError)?;
        if !(number > 0.0 && number <= 1000.0) {
            return Err(ReclaimError);
        }
        match name {
            "poisson" => Ok(Self::Poisson { mean: number }),
            "zipf" => Ok(Self::Zipf { exponent: number }),
            _ => Err(ReclaimError),
        }
    }
}

impl std::fmt::Display for Reclaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Poisson { mean } => write!(f, "poisson:{mean}"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
        }
    }
}

impl Reclaim {
    /// The probabilities that 0 to `functions` of them are reclaimed; together 1.
    pub fn probabilities(self, functions: u32) -> Vec<f64> {
        let factorials = LogFactorials::up_to(functions);
        let weight = |r: u32| match self {
            Self::Poisson { mean } => (f64::from(r) * mean.ln() - mean - factorials.of(r)).exp(),
            Self::Zipf { exponent } => f64::from(r + 1).powf(-exponent),
        };
        let weights: Vec<f64> = (0..=functions).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }
}

/// Logarithms of factorials: the factorials themselves are too large for a float.
struct LogFactorials(Vec<f64>);

impl LogFactorials {
    fn up_to(most: u32) -> Self {
        let logarithms = (1..=most).scan(0.0, |sum, n| {
            *sum += f64::from(n).ln();
            Some(*sum)
        });
        Self(std::iter::once(0.0).chain(logarithms).collect())
    }

    fn of(&self, n: u32) -> f64 {
        self.0[n as usize]
    }

    /// The logarithm of C(n, k); `None` where that is 0.
    fn choose(&self, n: u32, k: u32) -> Option<f64> {
        (k <= n).then(|| self.of(n) - self.of(k) - self.of(n - k))
    }
}

/// A pool of functions, and how objects lie in it.
pub struct Pool {
    functions: u32,
    code: Code,
    factorials: LogFactorials,
}

/// A pool that cannot hold an object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pool of at least one function for each of an object's chunks is needed, and of at most {FUNCTIONS_MAX}")]
pub struct PoolError;

/// Functions of a pool: a hundred times the concurrency that AWS allows by default.
const FUNCTIONS_MAX: u32 = 100_000;

impl Pool {
    /// A pool of so many functions, with objects coded so.
    ///
    /// # Errors
    /// They are fewer than an object's chunks, or too many.
    pub fn new(functions: u32, code: Code) -> Result<Self, PoolError> {
        if functions < code.chunks() || functions > FUNCTIONS_MAX {
            return Err(PoolError);
        }
        Ok(Self {
            functions,
            code,
            factorials: LogFactorials::up_to(functions),
        })
    }

    /// The probability that exactly `lost` chunks of an object are lost if `reclaimed` functions are (Equation 1's p_i).
    pub fn lost_chunks(&self, lost: u32, reclaimed: u32) -> f64 {
        let (all, chunks) = (self.functions, self.code.chunks());
        if lost > chunks || reclaimed > all {
            return 0.0;
        }
        let choose = |n, k| self.factorials.choose(n, k);
        let ways = || Some(choose(reclaimed, lost)? + choose(all - reclaimed, chunks - lost)? - choose(all, chunks)?);
        ways().map_or(0.0, f64::exp)
    }

    /// The probability that an object is lost in an interval (Equation 2).
    pub fn loss(&self, reclaim: Reclaim) -> f64 {
        let lost = |r| {
            (self.code.losing()..=self.code.chunks())
                .map(|i| self.lost_chunks(i, r))
                .sum()
        };
        self.over(reclaim, lost)
    }

    /// The same, as if never more chunks were lost than are needed to (Equation 3). It is a lower bound, and close if
    /// few functions are reclaimed.
    pub fn loss_approximately(&self, reclaim: Reclaim) -> f64 {
        self.over(reclaim, |r| self.lost_chunks(self.code.losing(), r))
    }

    fn over(&self, reclaim: Reclaim, lost: impl Fn(u32) -> f64) -> f64 {
        let probabilities = reclaim.probabilities(self.functions);
        let from = self.code.losing();
        let terms = (from..).zip(probabilities.iter().skip(from as usize));
        // Terms as improbable add nothing to a float.
        terms.filter(|(_, p)| **p > 1e-18).map(|(r, p)| lost(r) * p).sum()
    }
}

/// The availability over so many intervals in a row, each with this probability of loss.
pub fn availability(loss: f64, intervals: u32) -> f64 {
    (1.0 - loss).powf(f64::from(intervals))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(functions: u32, code: &str) -> Pool {
        Pool::new(functions, code.parse().unwrap()).unwrap()
    }

    #[test]
    fn three_chunks_are_lost_18_8_times_as_often_as_four() {
        let pool = pool(400, "10+2");
        let ratio = pool.lost_chunks(3, 12) / pool.lost_chunks(4, 12);
        assert_eq!(format!("{ratio:.1}"), "18.8");
        // And P(12) is "only about 5 % larger than p3".
        let all: f64 = (3..=12).map(|i| pool.lost_chunks(i, 12)).sum();
        let more = all / pool.lost_chunks(3, 12) - 1.0;
        assert!((0.05..0.06).contains(&more), "{more}");
    }

    #[test]
    fn losses_of_a_minute_are_the_papers_availability_of_an_hour() {
        for (loss_percent, minute, hour) in [(0.00395, "99.996", "99.76"), (0.1145, "99.89", "93.36")] {
            let loss: f64 = loss_percent / 100.0;
            let digits = minute.len() - 3;
            assert_eq!(format!("{:.digits$}", 100.0 * availability(loss, 1)), minute);
            assert_eq!(format!("{:.2}", 100.0 * availability(loss, 60)), hour);
        }
    }

    /// The paper does not print the parameters of its Fig. 9; these means give both ends of its range, to the digits printed.
    #[test]
    fn the_papers_range_is_that_of_two_to_seven_functions_a_minute() {
        for (mean, printed) in [(2.28, "0.0039"), (7.1, "0.11")] {
            let percent = 100.0 * pool(400, "10+2").loss_approximately(Reclaim::Poisson { mean });
            let digits = printed.len() - 2;
            assert_eq!(format!("{percent:.digits$}"), printed, "{percent}");
        }
    }

    #[test]
    fn small_pools_are_counted_out() {
        // All ways to reclaim `r` of `n` functions, an object being on the first `k` of them.
        for (functions, code, reclaimed) in [(6, "2+1", 3), (8, "3+2", 4), (10, "4+0", 1), (7, "1+3", 7)] {
            let pool = pool(functions, code);
            let chunks = pool.code.chunks();
            let (mut ways, mut by_lost) = (0.0, vec![0.0; chunks as usize + 1]);
            for set in 0_u32..1 << functions {
                if set.count_ones() == reclaimed {
                    ways += 1.0;
                    by_lost[(set & ((1 << chunks) - 1)).count_ones() as usize] += 1.0;
                }
            }
            for (lost, count) in (0..).zip(by_lost) {
                let p: f64 = pool.lost_chunks(lost, reclaimed);
                assert!((p - count / ways).abs() < 1e-12, "{lost} of {code} in {functions}: {p}");
            }
        }
    }

    #[test]
    fn probabilities_are_probabilities() {
        for text in ["poisson:0.6", "poisson:36", "zipf:1", "zipf:2.5"] {
            let reclaim: Reclaim = text.parse().unwrap();
            assert_eq!(reclaim.to_string(), text);
            let sum: f64 = reclaim.probabilities(400).iter().sum();
            assert!((sum - 1.0).abs() < 1e-9, "{text}: {sum}");
            let pool = pool(400, "10+2");
            let (exact, approximate) = (pool.loss(reclaim), pool.loss_approximately(reclaim));
            assert!(
                0.0 < approximate && approximate <= exact && exact < 1.0,
                "{text}: {approximate}, {exact}"
            );
        }
        for broken in [
            "poisson",
            "poisson:0",
            "poisson:x",
            "zipf:-1",
            "uniform:1",
            "poisson:inf",
        ] {
            assert_eq!(broken.parse::<Reclaim>(), Err(ReclaimError), "{broken}");
        }
    }

    #[test]
    fn more_parity_loses_less() {
        let reclaim = Reclaim::Poisson { mean: 6.0 };
        let losses: Vec<f64> = ["10+0", "10+1", "10+2", "10+4"]
            .map(|code| pool(400, code).loss(reclaim))
            .into();
        assert!(losses.windows(2).all(|pair| pair[1] < pair[0] / 5.0), "{losses:?}");
        assert!(Pool::new(11, "10+2".parse().unwrap()).is_err());
    }
}
