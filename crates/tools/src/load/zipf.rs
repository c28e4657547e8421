//! Zipf's law over any number of ranks in constant memory.

use super::{Rng, WorkloadError};

/// Ranks with probabilities proportional to `1 / (rank + 1)^alpha`, drawn by rejection-inversion: W. Hörmann and
/// G. Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6.3 (1996).
///
/// The integral `H(x) = (x^(1-alpha) - 1) / (1-alpha)` of the density's hat is inverted at a random point. The nearest
/// integer is taken, unless it lies in the small part by which the hat exceeds the histogram. Fewer than one draw in
/// ten is rejected for any parameters.
#[derive(Clone, Debug)]
pub struct Zipf {
    last: u64,
    /// `1 - alpha`.
    beta: f64,
    inverse_beta: f64,
    /// `H(3/2) - 1`: where the histogram's first bar begins.
    low: f64,
    /// `H(ranks + 1/2)`.
    high: f64,
    /// A candidate this close below its integer lies under the histogram for every rank.
    safe: f64,
    /// [`Self::bound`] of the first ranks (from 1): most draws that are not safe are of these.
    head: [f64; HEAD_RANKS],
}

impl Zipf {
    /// The law with exponent `alpha` over `ranks` ranks.
    ///
    /// # Errors
    /// `alpha` is negative or not finite, or there are no ranks.
    pub fn new(ranks: u64, alpha: f64) -> Result<Self, WorkloadError> {
        if !(0.0..=MAX_ALPHA).contains(&alpha) {
            return Err(WorkloadError::Parameter {
                flag: "--zipf",
                given: alpha,
                allowed: "0 to 20",
            });
        }
        if ranks == 0 {
            return Err(WorkloadError::KeyCount(ranks));
        }
        let beta = 1.0 - alpha;
        let mut zipf = Self {
            last: ranks,
            beta,
            inverse_beta: if beta.abs() < NEAR_ONE { 0.0 } else { 1.0 / beta },
            low: 0.0,
            high: 0.0,
            safe: 0.0,
            head: [0.0; HEAD_RANKS],
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(ranks as f64 + 0.5);
        zipf.safe = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf.head = std::array::from_fn(|rank| zipf.bound(rank.max(1) as f64));
        Ok(zipf)
    }

    /// A rank, 0 the most frequent.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let point = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(point);
            // Cutting is one instruction where `floor` may be a call.
            let whole = ((x + 0.5) as u64).clamp(1, self.last);
            let rank = whole as f64;
            if rank - x <= self.safe {
                return whole - 1;
            }
            let bound = match self.head.get(whole as usize) {
                Some(bound) => *bound,
                None => self.bound(rank),
            };
            if point >= bound {
                return whole - 1;
            }
        }
    }

    /// From which point on a rank is taken: where its bar of the histogram begins under the hat.
    fn bound(&self, rank: f64) -> f64 {
        self.integral(rank + 0.5) - self.density(rank)
    }

    /// `1 / x^alpha`.
    fn density(&self, x: f64) -> f64 {
        ((self.beta - 1.0) * x.ln()).exp()
    }

    /// `(x^beta - 1) / beta`, which goes to `ln x` as beta goes to zero.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = self.beta * log;
        if self.inverse_beta == 0.0 {
            log * (1.0 + scaled * 0.5)
        } else {
            scaled.exp_m1() * self.inverse_beta
        }
    }

    /// The inverse of [`Self::integral`].
    #[inline]
    fn inverse(&self, y: f64) -> f64 {
        // Rounding may carry the argument just past -1, where an exponent above one puts infinity.
        let scaled = (y * self.beta).max(-1.0);
        if self.inverse_beta == 0.0 {
            return (y * (1.0 - scaled * 0.5)).exp();
        }
        // The sum's rounding error comes out divided by beta: where that is small the slower function is needed.
        let log = if self.beta.abs() < SMALL_BETA {
            scaled.ln_1p()
        } else {
            (1.0 + scaled).ln()
        };
        (log * self.inverse_beta).exp()
    }
}

/// Above this the second rank has less than a millionth of the first one's share: no cache load.
const MAX_ALPHA: f64 = 20.0;
/// Ranks whose bounds are kept: half a kilobyte.
const HEAD_RANKS: usize = 64;
/// Above this, an error of 2^-53 over beta is at most an eighth of a rank among 2^40.
const SMALL_BETA: f64 = 1e-3;
/// Nearer than this to one, two terms of the series are exact to all digits.
const NEAR_ONE: f64 = 1e-8;

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 400_000;

    /// The share of each of the first ranks and the mean rank against their sums.
    fn check(ranks: u64, alpha: f64) {
        let zipf = Zipf::new(ranks, alpha).unwrap();
        let mut rng = Rng::new(ranks ^ alpha.to_bits());
        let mut head = [0_u32; 8];
        let mut log_sum = 0.0;
        for _ in 0..DRAWS {
            let rank = zipf.draw(&mut rng);
            assert!(rank < ranks, "{rank} of {ranks}, alpha {alpha}");
            if let Some(count) = head.get_mut(usize::try_from(rank).unwrap()) {
                *count += 1;
            }
            log_sum += (rank as f64 + 1.0).ln();
        }
        let weights = || (1..=ranks).map(|rank| (rank as f64).powf(-alpha));
        let total: f64 = weights().sum();
        for (weight, count) in weights().zip(head) {
            let expected = f64::from(DRAWS) * weight / total;
            let tolerance = 5.0 * expected.sqrt().max(1.0);
            assert!(
                (f64::from(count) - expected).abs() < tolerance,
                "{ranks} ranks, alpha {alpha}: {head:?}, expected {expected}"
            );
        }
        // A fit of the exponent uses the mean of ln(rank); its variance is found from the same sums.
        let moment = |power: i32| -> f64 {
            let logs = (1..=ranks).map(|rank| (rank as f64).ln().powi(power));
            logs.zip(weights()).map(|(log, weight)| log * weight / total).sum()
        };
        let deviation = (moment(2) - moment(1).powi(2)).max(0.0).sqrt() / f64::from(DRAWS).sqrt();
        let mean = log_sum / f64::from(DRAWS);
        assert!(
            (mean - moment(1)).abs() <= 5.0 * deviation + 1e-12,
            "{ranks} ranks, alpha {alpha}: mean log rank {mean}, expected {}",
            moment(1)
        );
    }

    #[test]
    fn frequencies_follow_the_law() {
        for ranks in [1, 2, 10, 1000, 1_000_000] {
            for alpha in [0.0, 0.3, 0.9, 0.99, 1.0 - 1e-9, 1.0, 1.0 + 1e-7, 1.15, 2.0, 6.0] {
                check(ranks, alpha);
            }
        }
    }

    #[test]
    fn a_hundred_million_ranks_are_reached() {
        let zipf = Zipf::new(100_000_000, 0.9).unwrap();
        let mut rng = Rng::new(1);
        let tail = (0..100_000).filter(|_| zipf.draw(&mut rng) >= 50_000_000).count();
        // The sum to n is n^0.1 / 0.1 + zeta(0.9), zeta(0.9) = -9.430. Its upper half is 4.227 of 53.67, 7.876 %. Five
        // standard deviations are 426.
        assert!((7_450..8_302).contains(&tail), "{tail}");
    }

    #[test]
    fn bad_parameters_are_refused() {
        for alpha in [-0.1, f64::NAN, f64::INFINITY, 21.0] {
            assert!(Zipf::new(10, alpha).is_err(), "{alpha}");
        }
        assert_eq!(Zipf::new(0, 1.0).unwrap_err(), WorkloadError::KeyCount(0));
    }
}
