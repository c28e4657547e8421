//! Chance from a seed: `SplitMix64`.

use crate::types::mix;

/// A generator of numbers that look random.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// One whose numbers follow from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below a limit, which is above zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.bits()) * u128::from(limit.max(1));
        (product >> 64) as u64
    }

    /// A number of a range without its end.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// Whether something of this probability happens, in millionths.
    pub fn happens(&mut self, millionths: u32) -> bool {
        self.below(1_000_000) < u64::from(millionths)
    }

    /// A number from zero to one.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of a slice that is not empty.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
