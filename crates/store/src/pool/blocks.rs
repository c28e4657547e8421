//! The records of the pool's blocks. They choose the blocks that are to become huge pages: those on ordinary pages
//! whose units are all taken one by one.
//!
//! Pure bookkeeping: the caller touches the memory, and reports the outcome.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::pace::Pace;
use crate::arena::{BLOCK_BYTES, BLOCK_ORDER, BLOCK_UNITS};

/// The time after the last taking of a unit before which a block is not made a huge page. Blocks that fill and empty
/// are not worth it. It doubles for the next time if too little of the block was touched, or the system had no huge
/// page.
const COLLAPSE_AFTER: Duration = Duration::from_secs(1);
/// It is looked at again after 2^6 such times at the latest.
const PATIENCE_MAX: u8 = 6;
/// A huge page may make so much resident that was never touched: an eighth. It is taken, and charged, all the same; the last
/// segments of small tenants are half empty.
pub(super) const UNTOUCHED_MAX: usize = BLOCK_BYTES / 8;
/// At most so many, 32 GiB: each may cost the system two more mappings, of which a process can have 65,530.
const COLLAPSED_MAX: usize = 16_384;

/// See the module.
#[derive(Debug)]
pub(super) struct Blocks {
    /// The blocks by number.
    all: Vec<Block>,
    /// Numbers of blocks whose units were all taken in smaller runs, and when to make huge pages of them. They may not be
    /// full any more.
    full: BTreeSet<Due>,
    /// Numbers of blocks that were made huge pages, and of which something was released.
    to_split: Vec<u32>,
    /// Blocks that were made huge pages, or opened, or taken as one and broken, of which nothing was released.
    collapsed: usize,
    /// How often they are made huge pages.
    pace: Pace,
    /// Whether full blocks are made huge pages: there is a thread for it, and the system can do it and may.
    is_collapsing: bool,
}

/// A block's number, and when to make a huge page of it.
pub(super) type Due = (Instant, u32);

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Units that are taken in runs smaller than it.
    taken: u8,
    /// Whether the system was asked to back it with a huge page.
    is_huge: bool,
    /// Whether it is among the full ones.
    is_listed: bool,
    /// Whether something of it was put back since it was listed.
    was_broken: bool,
    /// How often too little of it was written to.
    patience: u8,
}

impl Block {
    /// Whether all its units are taken one by one, and it is not a huge page.
    fn is_full(self) -> bool {
        u32::from(self.taken) == BLOCK_UNITS && !self.is_huge
    }
}

/// The number of the block that a unit lies in.
pub(super) fn block_of(unit: u32) -> u32 {
    unit / BLOCK_UNITS
}

/// The offset of a block in the arena.
pub(super) fn block_offset(block: u32) -> u64 {
    u64::from(block) * BLOCK_BYTES as u64
}

impl Blocks {
    /// For so many units; no huge pages are made unless [`Self::begin_collapsing`] says so.
    pub(super) fn new(units: u32) -> Self {
        Self {
            all: vec![Block::default(); block_of(units) as usize],
            full: BTreeSet::new(),
            to_split: Vec::new(),
            collapsed: 0,
            pace: Pace::default(),
            is_collapsing: false,
        }
    }

    /// There is a thread that makes huge pages from now on, and the system can and may.
    pub(super) fn begin_collapsing(&mut self) {
        self.is_collapsing = true;
    }

    fn of(&mut self, unit: u32) -> &mut Block {
        &mut self.all[block_of(unit) as usize]
    }

    /// The block that begins with this unit is backed by a huge page where the system has one.
    pub(super) fn note_huge(&mut self, start: u32) {
        self.of(start).is_huge = true;
    }

    /// Ordinary pages from now on: whether the system was asked for a huge one before.
    pub(super) fn take_huge(&mut self, start: u32) -> bool {
        std::mem::take(&mut self.of(start).is_huge)
    }

    /// Whether blocks are huge pages before they are taken in smaller runs.
    pub(super) fn are_opened(&self) -> bool {
        self.is_collapsing && self.collapsed < COLLAPSED_MAX
    }

    /// A block that is backed by a huge page where the system has one is taken in smaller runs from now on.
    pub(super) fn note_opened(&mut self) {
        self.collapsed += 1;
    }

    /// An opened block of which nothing was taken is a whole one again.
    pub(super) fn note_closed(&mut self) {
        self.collapsed -= 1;
    }

    /// A run was taken. Whether there is something to do sooner than there was.
    pub(super) fn note_taken(&mut self, start: u32, order: u8, now: impl FnOnce() -> Instant) -> bool {
        let is_collapsing = self.is_collapsing;
        let block = self.of(start);
        block.taken += 1 << order;
        if !is_collapsing || !block.is_full() || block.is_listed {
            return false;
        }
        (block.is_listed, block.was_broken, block.patience) = (true, false, 0);
        let due = (now() + COLLAPSE_AFTER, block_of(start));
        self.full.insert(due);
        self.full.first() == Some(&due)
    }

    /// A run was put back.
    pub(super) fn note_put(&mut self, start: u32, order: u8) {
        if order < BLOCK_ORDER {
            let block = self.of(start);
            block.taken -= 1 << order;
            block.was_broken = true;
        }
    }

    /// A block that was taken as a whole is put back in smaller runs from now on, as one is that was taken so.
    pub(super) fn note_broken(&mut self, start: u32) {
        let block = self.of(start);
        block.taken = BLOCK_UNITS as u8;
        // Its huge page is split as soon as a part of it is released, as if it had been made one of smaller pages.
        let is_huge = block.is_huge;
        self.collapsed += usize::from(is_huge);
    }

    /// The memory of a run was released. Whether its block has to be split for that.
    pub(super) fn note_released(&mut self, start: u32, order: u8) -> bool {
        // A block that is taken as a whole is released as a whole.
        let splits = order < BLOCK_ORDER && self.take_huge(start);
        if splits {
            self.collapsed -= 1;
            self.to_split.push(block_of(start));
        }
        splits
    }

    /// The number of a block to be split.
    pub(super) fn next_split(&mut self) -> Option<u32> {
        self.to_split.pop()
    }

    /// The full block that is to be made a huge page and when, or when to ask again. Blocks that are not full any more
    /// are dropped, and those that were not all the time come later. `cpu_time` is the program's.
    pub(super) fn next_collapse(
        &mut self,
        now: Instant,
        cpu_time: impl FnOnce() -> Duration,
    ) -> Option<(Instant, Due)> {
        while let Some(&due) = self.full.first() {
            let (at, number) = due;
            let block = &mut self.all[number as usize];
            if block.is_full() && at <= now && std::mem::take(&mut block.was_broken) {
                self.full.pop_first();
                self.full.insert((now + COLLAPSE_AFTER, number));
                continue;
            }
            if block.is_full() {
                // Else there is room for one when another one is released, which wakes the thread.
                if self.collapsed >= COLLAPSED_MAX {
                    return None;
                }
                return Some((if at <= now { self.pace.next(now, cpu_time) } else { at }, due));
            }
            block.is_listed = false;
            self.full.pop_first();
        }
        None
    }

    /// Whether a block that was to be made a huge page still is.
    pub(super) fn is_due(&self, (_, number): Due) -> bool {
        let block = self.all[number as usize];
        block.is_full() && !block.was_broken
    }

    /// Whether it became a huge page, and how much CPU time that took until now.
    pub(super) fn note_collapsed(&mut self, due: Due, took: Duration, now: Instant, is_collapsed: bool) {
        let (_, number) = due;
        self.pace.note_made(took, now);
        self.full.remove(&due);
        let block = &mut self.all[number as usize];
        block.is_listed = !is_collapsed;
        if !is_collapsed {
            block.patience = (block.patience + 1).min(PATIENCE_MAX);
            self.full.insert((now + COLLAPSE_AFTER * (1 << block.patience), number));
        } else if block.is_full() {
            block.is_huge = true;
            self.collapsed += 1;
        } else {
            // Units that were put back meanwhile may have been released already, and been backed again by the copy. The
            // system has not the memory of such a unit until it is taken and released once more.
            self.to_split.push(number);
        }
    }
}

/// The view that tests of the pool have of a block, by its number.
#[cfg(test)]
impl Blocks {
    pub(super) fn is_huge(&self, number: usize) -> bool {
        self.all[number].is_huge
    }

    pub(super) fn collapsed(&self) -> usize {
        self.collapsed
    }

    pub(super) fn patience(&self, number: usize) -> u8 {
        self.all[number].patience
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Three blocks, the last two of which are full since `now`.
    fn two_full(now: Instant) -> Blocks {
        let mut blocks = Blocks::new(3 * BLOCK_UNITS);
        blocks.is_collapsing = true;
        for unit in 1..BLOCK_UNITS {
            assert!(!blocks.note_taken(unit, 0, || now), "the first block lacks one");
        }
        let halves = [32, 48, 64, 80].map(|start| blocks.note_taken(start, 4, || now));
        assert_eq!(halves, [false, true, false, false], "the second is due first");
        blocks
    }

    /// The program works all the time: it has used more whenever that is asked.
    fn next(blocks: &mut Blocks, now: Instant) -> Option<(Instant, Due)> {
        static USED: AtomicU32 = AtomicU32::new(0);
        blocks.next_collapse(now, || SECOND * USED.fetch_add(1, Ordering::Relaxed))
    }

    fn due(blocks: &mut Blocks) -> Option<u32> {
        next(blocks, Instant::now()).map(|(_, (_, number))| number)
    }

    #[test]
    fn full_blocks_come_one_after_the_other() {
        let now = Instant::now();
        let mut blocks = two_full(now);
        let (at, first) = next(&mut blocks, now).unwrap();
        assert_eq!((at, first.1), (now + SECOND, 1));
        let now = now + 2 * SECOND;
        blocks.note_collapsed(first, SECOND / 10, now, true);
        let mut at = now;
        let second = loop {
            let (asks, due) = next(&mut blocks, at).unwrap();
            if asks <= at {
                break due;
            }
            at = asks;
        };
        assert_eq!((at, second.1), (now + 200 * SECOND, 2), "it took a tenth of a second");
        blocks.note_collapsed(second, Duration::ZERO, at, false);
        let (again, second) = next(&mut blocks, now).unwrap();
        assert_eq!((again, second.1), (at + 2 * SECOND, 2));
        // Not full any more.
        blocks.note_put(64, 4);
        assert_eq!(due(&mut blocks), None);
        assert!(blocks.note_taken(64, 4, || now), "it may be again");
        assert_eq!(due(&mut blocks), Some(2));
        assert!(!blocks.all[2].is_huge && blocks.all[1].is_huge);
    }

    #[test]
    fn what_is_released_is_split_once() {
        let now = Instant::now();
        let mut blocks = two_full(now);
        let (_, first) = next(&mut blocks, now).unwrap();
        blocks.note_collapsed(first, Duration::ZERO, now, true);
        blocks.note_put(32, 4);
        assert_eq!(blocks.next_split(), None, "it may be taken again");
        assert!(blocks.note_released(32, 4) && !blocks.note_released(48, 4));
        assert_eq!(
            (blocks.next_split(), blocks.next_split(), blocks.collapsed),
            (Some(1), None, 0)
        );
        // One that something was put back of while it became a huge page.
        let (_, second) = next(&mut blocks, now).unwrap();
        blocks.note_put(64, 4);
        blocks.note_collapsed(second, Duration::ZERO, now, true);
        assert_eq!((blocks.next_split(), blocks.collapsed), (Some(2), 0));
        // Whole blocks are no business of this.
        blocks.note_huge(32);
        assert!(!blocks.note_released(32, BLOCK_ORDER));
        assert!(blocks.take_huge(32) && !blocks.take_huge(32));
    }

    #[test]
    fn a_block_that_was_taken_whole_is_split_once_it_is_broken() {
        let mut blocks = Blocks::new(3 * BLOCK_UNITS);
        for (start, is_huge) in [(32, true), (64, false)] {
            if is_huge {
                blocks.note_huge(start);
            }
            blocks.note_broken(start);
            assert_eq!(blocks.collapsed, usize::from(is_huge));
            blocks.note_put(start + 16, 4);
            assert_eq!(blocks.note_released(start + 16, 4), is_huge);
            blocks.note_put(start, 4);
            assert!(!blocks.note_released(start, 4));
            assert_eq!((blocks.of(start).taken, blocks.collapsed), (0, 0));
        }
        assert_eq!((blocks.next_split(), blocks.next_split()), (Some(1), None));
    }

    #[test]
    fn what_can_not_be_is_tried_less_and_less() {
        let now = Instant::now();
        let mut blocks = two_full(now);
        blocks.note_put(64, 4);
        let mut at = now;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            let (when, first) = next(&mut blocks, now).unwrap();
            assert_eq!(when, at + SECOND * seconds);
            at = when;
            blocks.note_collapsed(first, Duration::ZERO, at, false);
        }
        // If there are enough, the others wait until there is room.
        blocks.collapsed = COLLAPSED_MAX;
        assert_eq!(due(&mut blocks), None);
        blocks.collapsed -= 1;
        assert_eq!(due(&mut blocks), Some(1));
    }

    #[test]
    fn what_is_put_back_and_taken_again_waits() {
        let now = Instant::now();
        let mut blocks = two_full(now);
        blocks.note_put(32, 4);
        blocks.note_taken(32, 4, || now);
        let due = now + SECOND;
        let next = |blocks: &mut Blocks, now| next(blocks, now).map(|(at, (_, number))| (at, number));
        assert_eq!(next(&mut blocks, now), Some((due, 1)));
        assert_eq!(next(&mut blocks, due), Some((due, 2)), "the other one goes first");
        blocks.note_put(64, 4);
        blocks.note_taken(64, 4, || now);
        assert_eq!(
            next(&mut blocks, due),
            Some((due + SECOND, 1)),
            "a second after it was due"
        );
    }

    #[test]
    fn without_a_thread_for_it_nothing_is_listed() {
        let mut blocks = Blocks::new(2 * BLOCK_UNITS);
        let halves = [32, 48].map(|start| blocks.note_taken(start, 4, Instant::now));
        assert_eq!((halves, due(&mut blocks)), ([false, false], None));
    }
}
