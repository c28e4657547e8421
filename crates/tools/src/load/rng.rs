//! Random numbers that are the same on every machine.

/// The xoshiro256++ generator of Blackman and Vigna (<https://prng.di.unimi.it>), seeded through splitmix64 as they
/// recommend. A clone goes on with the same numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        let mut next = seed;
        let state = std::array::from_fn(|_| {
            next = next.wrapping_add(GOLDEN);
            mix(next)
        });
        Self { state }
    }

    /// One of several generators of one seed, for parts of a workload that run side by side.
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self::new(mix(seed) ^ mix(stream.wrapping_add(GOLDEN)))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number from 0 to 1, 1 excluded, of 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// A whole number below `bound`, by one multiplication; its bias is below `bound` in 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.bits(), bound)
    }
}

/// 2^64 over the golden ratio: the step of splitmix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of splitmix64: a bijection of 64 bits whose every output bit depends on every input bit.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// The same as [`Rng::unit`], of given bits.
#[inline]
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// The same as [`Rng::below`], of given bits.
#[inline]
pub(crate) fn scale(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The reference implementation's first outputs from the state 1, 2, 3, 4.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first: [u64; 4] = std::array::from_fn(|_| rng.bits());
        assert_eq!(
            first,
            [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]
        );
    }

    #[test]
    fn streams_and_seeds_differ_and_repeat() {
        let first = |seed, stream| Rng::stream(seed, stream).bits();
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
        assert_ne!(first(1, 2), first(2, 1));
    }

    #[test]
    fn numbers_fill_their_range_evenly() {
        let mut rng = Rng::new(7);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(rng.below(10)).unwrap()] += 1;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        // Five standard deviations of a binomial with p = 1/10 are 474.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 474), "{counts:?}");
    }
}
