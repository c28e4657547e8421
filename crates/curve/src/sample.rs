//! Which keys are sampled: those whose hash lies below a threshold, so that all uses of a key are seen or none is.
//!
//! C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad, "Efficient MRC construction with SHARDS", FAST 2015. Invariant: with a
//! seed, a key always has the same hash; a lower threshold's keys are all among those of a higher one.

use tidemark_types::SamplingThreshold;

/// Hashes by a seed of their own, so that samples of several seeds are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(Option<u64>);

/// 2^64 over the golden ratio, as in splitmix64 (<https://prng.di.unimi.it/splitmix64.c>).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Seed {
    /// Keys that are hashes already: each is its own.
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn new(seed: u64) -> Self {
        Self(Some(mix(seed.wrapping_add(GOLDEN))))
    }

    /// The key's hash.
    #[inline]
    pub(crate) fn hash(self, key: u64) -> u64 {
        self.0.map_or(key, |seed| mix(key.wrapping_add(GOLDEN) ^ seed))
    }
}

/// The output function of splitmix64: a bijection whose every output bit depends on every input bit.
#[inline]
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// The data plane compares the uppermost 24 bits.
const SAMPLING_SHIFT: u32 = 40;

/// The part of all hashes that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold(u64);

impl Threshold {
    /// Everything is sampled.
    pub const ALL: Self = Self(u64::MAX);

    /// The same part of all hashes that the data plane samples.
    pub fn of(sampling: SamplingThreshold) -> Self {
        if sampling >= SamplingThreshold::ALL {
            return Self::ALL;
        }
        Self(u64::from(sampling.get()) << SAMPLING_SHIFT)
    }

    /// The largest part that the data plane can sample and that is all within this one.
    pub fn sampling(self) -> SamplingThreshold {
        if self.is_all() {
            return SamplingThreshold::ALL;
        }
        SamplingThreshold::below(self.0)
    }

    /// The share of keys that is sampled, above 0 and up to 1.
    pub fn ratio(self) -> f64 {
        /// 2^64.
        const HASHES: f64 = 18_446_744_073_709_551_616.0;
        (self.0 as f64 / HASHES).max(1.0 / HASHES)
    }

    /// Whether everything is sampled.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// The threshold that leaves out this hash and all above.
    pub(crate) fn below(hash: u64) -> Self {
        Self(hash)
    }

    #[inline]
    pub(crate) fn takes(self, hash: u64) -> bool {
        hash < self.0 || self.is_all()
    }
}

/// Keys are dealt into so many groups, whose differences tell the error of their sum.
pub(crate) const GROUPS: usize = 16;
/// Size classes: as many as tiers treat differently.
pub const CLASSES: usize = 4;

/// The group of a hash: by its last bits, which say nothing about whether it is sampled.
#[inline]
pub(crate) fn group(hash: u64) -> usize {
    hash as usize % GROUPS
}

/// The standard error of a sum over all sampled keys, from the groups' parts of it. It is that of a sum of independent
/// parts, corrected for the finite number of keys: a sample of all keys has no error.
pub(crate) fn standard_error(parts: &[f64; GROUPS], threshold: Threshold) -> f64 {
    let groups = GROUPS as f64;
    let mean = parts.iter().sum::<f64>() / groups;
    let squares: f64 = parts.iter().map(|part| (part - mean).powi(2)).sum();
    (squares * groups / (groups - 1.0) * (1.0 - threshold.ratio())).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_take_their_share_whatever_the_seed() {
        for seed in 0..5 {
            let seed = Seed::new(seed);
            let threshold = Threshold::below(u64::MAX / 8);
            assert!((threshold.ratio() - 0.125).abs() < 1e-9);
            let taken = (0..80_000).filter(|key| threshold.takes(seed.hash(*key))).count();
            // Four standard deviations of a binomial with p = 1/8 are 374.
            assert!(taken.abs_diff(10_000) < 374, "{taken}");
        }
        assert!(Threshold::ALL.takes(u64::MAX) && Threshold::ALL.ratio() == 1.0);
    }

    #[test]
    fn thresholds_of_the_data_plane_go_there_and_back() {
        for of_2_to_24 in [0, 1, 77, (1 << 24) - 1, 1 << 24] {
            let sampling = SamplingThreshold::new(of_2_to_24);
            assert_eq!(Threshold::of(sampling).sampling(), sampling);
        }
        let between = Threshold::below((5 << SAMPLING_SHIFT) + 1);
        assert_eq!(between.sampling(), SamplingThreshold::new(5));
        assert!(SamplingThreshold::new(5).takes((5 << SAMPLING_SHIFT) - 1));
        assert!(Threshold::of(SamplingThreshold::new(5)).takes((5 << SAMPLING_SHIFT) - 1));
    }

    #[test]
    fn samples_of_two_seeds_are_independent() {
        let threshold = Threshold::below(u64::MAX / 2);
        let [a, b] = [1, 2].map(Seed::new);
        let both = |key: &u64| threshold.takes(a.hash(*key)) && threshold.takes(b.hash(*key));
        let both = (0..40_000).filter(both).count();
        assert!(both.abs_diff(10_000) < 350, "{both}");
    }

    #[test]
    fn the_error_is_that_of_a_sum() {
        let half = Threshold::below(1 << 63);
        assert_eq!(standard_error(&[3.0; GROUPS], half), 0.0);
        let mut parts = [0.0; GROUPS];
        parts[0] = 16.0;
        // Mean 1, squares 225 + 15: sqrt(240 * 16/15 / 2).
        assert!((standard_error(&parts, half) - 128_f64.sqrt()).abs() < 1e-6);
        assert_eq!(standard_error(&parts, Threshold::ALL), 0.0);
    }
}
