//! Which units of the arena are free: a buddy allocator over runs of 1 to 32 units.
//!
//! Small runs are taken from the lowest free addresses and whole blocks from the highest. Blocks of both kinds thus
//! keep apart, and the boundary between them can move. Runs never span a block. The module only does bookkeeping and
//! touches no memory.

use std::collections::BTreeSet;

use crate::arena::{BLOCK_ORDER, BLOCK_UNITS};

/// Free runs by order: a run of order `n` is `2^n` units long and begins at a multiple of its length. None by default.
#[derive(Debug, Default)]
pub(crate) struct Buddy {
    free: [BTreeSet<u32>; BLOCK_ORDER as usize + 1],
}

impl Buddy {
    /// All of `units` free except unit 0, which is never given out. `units` is a multiple of a block's.
    pub(crate) fn new(units: u32) -> Self {
        let mut free: [BTreeSet<u32>; BLOCK_ORDER as usize + 1] = Default::default();
        let blocks = (BLOCK_UNITS..units).step_by(BLOCK_UNITS as usize);
        free[BLOCK_ORDER as usize].extend(blocks);
        // Block 0 without its first unit: the runs at 1, 2, 4, 8 and 16.
        for order in 0..BLOCK_ORDER {
            free[order as usize].insert(1 << order);
        }
        Self { free }
    }

    /// The lowest free run of this order; larger runs are split for it.
    pub(crate) fn take_low(&mut self, order: u8) -> Option<u32> {
        (order..=BLOCK_ORDER).find_map(|larger| {
            let start = self.free[larger as usize].pop_first()?;
            // Give back the upper halves: the run keeps its lower end.
            for half in order..larger {
                self.free[half as usize].insert(start + (1 << half));
            }
            Some(start)
        })
    }

    /// Whether a run of this order is free in a block that is not free as a whole.
    pub(crate) fn has_hole(&self, order: u8) -> bool {
        self.free[usize::from(order)..usize::from(BLOCK_ORDER)]
            .iter()
            .any(|runs| !runs.is_empty())
    }

    /// The highest whole block that is free.
    pub(crate) fn take_high_block(&mut self) -> Option<u32> {
        self.free[BLOCK_ORDER as usize].pop_last()
    }

    /// Puts a run back; it joins its free neighbours.
    pub(crate) fn put(&mut self, mut start: u32, mut order: u8) {
        while order < BLOCK_ORDER {
            let buddy = start ^ (1 << order);
            if !self.free[order as usize].remove(&buddy) {
                break;
            }
            start = start.min(buddy);
            order += 1;
        }
        let was_new = self.free[order as usize].insert(start);
        debug_assert!(was_new, "run {start} of order {order} was free already");
    }

    /// Free units in all.
    #[cfg(test)]
    fn free_units(&self) -> u32 {
        let in_order = |(order, runs): (usize, &BTreeSet<u32>)| u32::try_from(runs.len()).unwrap() << order;
        self.free.iter().enumerate().map(in_order).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn everything_but_unit_zero_can_be_taken_and_joins_again() {
        let mut buddy = Buddy::new(4 * BLOCK_UNITS);
        let mut taken: Vec<u32> = std::iter::from_fn(|| buddy.take_low(0)).collect();
        assert_eq!(taken, (1..4 * BLOCK_UNITS).collect::<Vec<_>>());
        taken.reverse();
        for unit in taken {
            buddy.put(unit, 0);
        }
        let blocks: Vec<u32> = std::iter::from_fn(|| buddy.take_high_block()).collect();
        assert_eq!(blocks, [96, 64, 32]);
    }

    #[test]
    fn small_runs_come_from_below_and_blocks_from_above() {
        let mut buddy = Buddy::new(3 * BLOCK_UNITS);
        assert_eq!(buddy.take_high_block(), Some(64));
        assert!(buddy.has_hole(4));
        assert_eq!(buddy.take_low(4), Some(16));
        assert!(!buddy.has_hole(4) && buddy.has_hole(3), "but for a whole block");
        assert_eq!(buddy.take_low(4), Some(32));
        assert_eq!(buddy.take_high_block(), None);
        assert_eq!(buddy.take_low(4), Some(48));
        assert_eq!(buddy.take_low(4), None);
    }

    proptest! {
        #[test]
        fn runs_never_overlap_and_nothing_is_lost(ops in prop::collection::vec((0_u8..8, any::<prop::sample::Index>()), 1..400)) {
            let units = 6 * BLOCK_UNITS;
            let mut buddy = Buddy::new(units);
            let mut held: Vec<(u32, u8)> = Vec::new();
            for (op, which) in ops {
                if op <= BLOCK_ORDER {
                    if let Some(start) = buddy.take_low(op) {
                        prop_assert!(start.is_multiple_of(1 << op));
                        for &(other, order) in &held {
                            prop_assert!(start + (1 << op) <= other || other + (1 << order) <= start);
                        }
                        held.push((start, op));
                    }
                } else if !held.is_empty() {
                    let (start, order) = held.swap_remove(which.index(held.len()));
                    buddy.put(start, order);
                }
                let in_use: u32 = held.iter().map(|(_, order)| 1 << order).sum();
                prop_assert_eq!(buddy.free_units() + in_use, units - 1);
            }
        }
    }
}
