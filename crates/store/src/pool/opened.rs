//! Blocks that are huge pages from the beginning and are taken in smaller runs: their free units.
//!
//! Small segments and indexes may lie on ordinary pages. The first write to each page then costs a fault, and reads
//! take a tenth longer for the address translation. Making huge pages of them later would copy them. The thread that
//! tends the pool therefore opens a block when few units are left of those before it.

use std::time::{Duration, Instant};

use crate::arena::{BLOCK_ORDER, BLOCK_UNITS};
use crate::buddy::Buddy;

/// When fewer units than these are left, the next block is opened. On a core that a busy worker has, too, that takes
/// ten milliseconds, in which clients may write a mebibyte.
const LOW_UNITS: u32 = BLOCK_UNITS;
/// The remaining units go back to the system when nothing was taken of them for so long.
const IDLE: Duration = Duration::from_secs(10);

/// See the module. All units in here are backed by memory, zeroed, and counted as free.
#[derive(Debug, Default)]
pub(super) struct Opened {
    runs: Buddy,
    units: u32,
    /// When something was last taken, or a block opened.
    last_use: Option<Instant>,
    is_wanted: bool,
}

impl Opened {
    /// A block is there to be taken in smaller runs.
    pub(super) fn add(&mut self, start: u32, now: Instant) {
        self.runs.put(start, BLOCK_ORDER);
        self.units += BLOCK_UNITS;
        self.last_use = Some(now);
        self.is_wanted = false;
    }

    /// Takes the lowest run of this order, if there is one.
    pub(super) fn take(&mut self, order: u8, now: impl FnOnce() -> Instant) -> Option<u32> {
        let start = self.runs.take_low(order)?;
        self.units -= 1 << order;
        self.last_use = Some(now());
        Some(start)
    }

    /// Takes whatever is there, larger runs first, to give it back to the system.
    pub(super) fn take_any(&mut self) -> Option<(u32, u8)> {
        let found = (0..=BLOCK_ORDER)
            .rev()
            .find_map(|order| Some((self.runs.take_low(order)?, order)))?;
        self.units -= 1 << found.1;
        Some(found)
    }

    /// Asks for another block if few units are left. Whether that is news.
    pub(super) fn want_more(&mut self) -> bool {
        self.units < LOW_UNITS && !std::mem::replace(&mut self.is_wanted, true)
    }

    /// Whether another block is asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// There is no other block, or nobody needs one any more.
    pub(super) fn want_none(&mut self) {
        self.is_wanted = false;
    }

    /// The time to give the free units back, if there are any.
    pub(super) fn idle_at(&self) -> Option<Instant> {
        (self.units > 0).then_some(self.last_use? + IDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_taken_from_below_and_the_next_one_asked_for_before_its_end() {
        let now = Instant::now();
        let mut opened = Opened::default();
        assert_eq!((opened.take(0, || now), opened.idle_at()), (None, None));
        assert!(opened.want_more() && !opened.want_more() && opened.is_wanted(), "once");
        opened.add(BLOCK_UNITS, now);
        assert!(!opened.is_wanted() && !opened.want_more());
        assert_eq!(opened.take(4, || now), Some(32));
        let later = now + IDLE;
        assert_eq!(opened.take(3, || later), Some(48));
        assert_eq!(opened.idle_at(), Some(later + IDLE));
        assert!(opened.want_more(), "less than a block is left");
        opened.want_none();
        assert!(opened.want_more(), "again");
        assert_eq!(opened.take(4, || later), None);
        opened.add(3 * BLOCK_UNITS, later);
        assert!(!opened.want_more());
        let rest: Vec<(u32, u8)> = std::iter::from_fn(|| opened.take_any()).collect();
        assert_eq!((rest, opened.idle_at()), (vec![(96, BLOCK_ORDER), (56, 3)], None));
    }
}
