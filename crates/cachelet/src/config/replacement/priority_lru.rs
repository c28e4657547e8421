//! Priority-LRU: large copies are kept longer than small ones, since they cost more to fetch again. Copies that are
//! used in bursts are kept longer than others of their size.

use super::{Policy, Use};

/// Sizes differ in priority by their power of two.
const PRIORITIES_PER_DOUBLING: u32 = 2;

/// From so many uses in a burst on, a copy has a higher priority than its size gives.
const BURSTY_COUNT: u32 = 4;

/// The policy of this module.
#[derive(Debug)]
pub(super) struct PriorityLru;

impl Policy for PriorityLru {
    fn moves_on_use(&self) -> bool {
        true
    }

    fn priority(&self, last: Use) -> u32 {
        let doublings = u64::BITS - last.size_bytes.leading_zeros();
        doublings * PRIORITIES_PER_DOUBLING + u32::from(last.burst_count >= BURSTY_COUNT)
    }
}
