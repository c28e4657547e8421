//! How far a walk over all keys is: its place in memory, its place on flash, and the cursors that mean them.
//!
//! The cursor of a walk over flash has all of its state, in 53 bits as without flash:
//!
//! ```text
//! 52..51   50..34   33..14   13..0
//! stage    mark     slot     record         of flash
//! 1        mark     place in memory
//! ```

use std::sync::Arc;

use tidemark_flash::{Listing, MARK_BITS, Next, RECORD_BITS, SLOT_BITS};
use tidemark_plane::Tier;
use tidemark_store::PLACE_BITS;

use crate::suspend::Segment;

/// Bits of a cursor for a place in memory. A place is rounded down to that, so that a few keys may be met again.
const MEMORY_BITS: u32 = SLOT_BITS + RECORD_BITS;
/// The place of the stage in a cursor.
const STAGE_SHIFT: u32 = MEMORY_BITS + MARK_BITS;
const _: () = assert!(STAGE_SHIFT + 2 == PLACE_BITS);

/// A place in a tenant's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) shard: usize,
    /// A fraction of 2^64.
    pub(super) position: u64,
}

impl Place {
    /// The place that a cursor means, in a store of this many shards. A number that no cursor can be lies behind all keys.
    pub(super) fn of_cursor(cursor: u64, shards: usize) -> Self {
        if cursor >> PLACE_BITS > 0 {
            return Self {
                shard: shards,
                position: 0,
            };
        }
        let bits = shards.trailing_zeros();
        let hash = cursor << (u64::BITS - PLACE_BITS);
        // A shift by 64 is not defined, so it is done in two steps.
        let shard = ((hash >> 1) >> (63 - bits)) as usize;
        Self {
            shard,
            position: hash << bits,
        }
    }

    /// The cursor that means this place; zero for one behind all keys. Keys' positions are whole multiples of a cursor's
    /// unit, so a place between two of them is the same as the later one.
    pub(super) fn cursor(self, shards: usize) -> u64 {
        let bits = shards.trailing_zeros();
        let unit = 1_u128 << (u64::BITS - PLACE_BITS + bits);
        let cursor = ((self.shard as u128) << (PLACE_BITS - bits)) + u128::from(self.position).div_ceil(unit);
        // Behind the last key of the last shard the sum is 2^53.
        cursor as u64 & (u64::MAX >> (u64::BITS - PLACE_BITS))
    }
}

/// The part of a walk that a tenant with flash has.
#[derive(Debug)]
pub(crate) struct Below {
    pub(super) stage: Stage,
    /// Segments that got records since the walk began come after it.
    pub(super) mark: u32,
    pub(super) slot: u32,
    pub(super) record: usize,
    /// The segment that is read.
    pub(super) waiting: Option<Arc<Segment>>,
    /// The segment that the walk is in.
    pub(super) listing: Option<Listing>,
    /// Chooses the record to begin at.
    pub(super) random: Option<u64>,
    /// A search that began somewhere has begun anew at the first segment.
    pub(super) is_anew: bool,
    pub(super) reads: Reads,
}

/// How a walk comes to segments that have to be read.
#[derive(Debug)]
pub(super) enum Reads {
    /// It waits for them.
    Waits,
    /// It waits for nothing: at most this one was read before.
    Ahead(Option<Listing>),
}

/// The stages of a walk, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Flash,
    Memory,
    Since,
}

impl Below {
    pub(super) fn new(mark: u32) -> Self {
        Self {
            stage: Stage::Flash,
            mark,
            slot: 0,
            record: 0,
            waiting: None,
            listing: None,
            random: None,
            is_anew: false,
            reads: Reads::Waits,
        }
    }

    /// The walk of a cursor that was given out, or one that begins. Numbers that no cursor can be lie behind all keys.
    pub(super) fn of_cursor(cursor: u64, shards: usize, mark: impl FnOnce() -> u32) -> (Self, Place) {
        if cursor == 0 {
            return (Self::new(mark()), Place::of_cursor(0, shards));
        }
        let part = |from: u32, bits: u32| cursor >> from & ((1 << bits) - 1);
        let mut below = Self::new(part(MEMORY_BITS, MARK_BITS) as u32);
        let place = Place::of_cursor(part(0, MEMORY_BITS) << (PLACE_BITS - MEMORY_BITS), shards);
        below.stage = match cursor >> STAGE_SHIFT {
            0 => Stage::Flash,
            1 => Stage::Memory,
            _ => Stage::Since,
        };
        if below.stage != Stage::Memory {
            below.slot = part(RECORD_BITS, SLOT_BITS) as u32;
            below.record = part(0, RECORD_BITS) as usize;
        }
        if cursor >> STAGE_SHIFT > 2 {
            below.slot = u32::MAX;
        }
        (below, place)
    }

    /// The cursor to go on from.
    pub(super) fn cursor(&self, place: Place, shards: usize) -> u64 {
        let rest = match self.stage {
            Stage::Memory => place.cursor(shards) >> (PLACE_BITS - MEMORY_BITS),
            Stage::Flash | Stage::Since => u64::from(self.slot) << RECORD_BITS | self.record as u64,
        };
        (self.stage as u64) << STAGE_SHIFT | u64::from(self.mark) << MEMORY_BITS | rest
    }

    /// The segment that the walk is in, or the next one.
    pub(super) fn next(&self, tier: &Tier) -> Next {
        let since = (self.stage == Stage::Since).then_some(self.mark);
        tier.segment_from(self.slot, since)
    }

    pub(super) fn pass_to(&mut self, slot: u32) {
        (self.slot, self.record) = (slot, 0);
    }

    /// The memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.listing.as_ref().map_or(0, Listing::memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u32 = (1 << MARK_BITS) - 2;

    fn again(cursor: u64, shards: usize) -> (Below, Place) {
        Below::of_cursor(cursor, shards, || panic!("a walk that has begun has its mark"))
    }

    #[test]
    fn cursors_keep_stage_mark_and_place() {
        for stage in [Stage::Flash, Stage::Since] {
            let mut below = Below::new(MARK);
            (below.stage, below.slot, below.record) = (stage, (1 << SLOT_BITS) - 1, (1 << RECORD_BITS) - 1);
            let cursor = below.cursor(Place::of_cursor(0, 4), 4);
            assert!(cursor > 0 && cursor < 1 << 53, "{cursor}");
            let (after, _) = again(cursor, 4);
            assert_eq!(
                (after.stage, after.mark, after.slot, after.record),
                (stage, MARK, below.slot, below.record)
            );
        }
        for from in [0, 1 << 20, 3 << 51, (1 << 53) - 1] {
            let mut below = Below::new(MARK);
            below.stage = Stage::Memory;
            let cursor = below.cursor(Place::of_cursor(from, 4), 4);
            let (after, place) = again(cursor, 4);
            assert_eq!((after.stage, after.mark), (Stage::Memory, MARK));
            // Rounded down: keys may be met again, and none is passed by.
            let at = place.cursor(4);
            assert!(at <= from && from - at < 1 << (PLACE_BITS - MEMORY_BITS), "{from} {at}");
        }
    }

    #[test]
    fn a_walk_begins_with_a_mark_and_numbers_of_no_cursor_are_behind_all() {
        let (begun, place) = Below::of_cursor(0, 4, || 7);
        assert_eq!((begun.stage, begun.mark, begun.slot), (Stage::Flash, 7, 0));
        assert_eq!(place, Place::of_cursor(0, 4));
        for cursor in [3 << STAGE_SHIFT, 1 << 53, u64::MAX] {
            let (after, _) = again(cursor, 4);
            assert_eq!((after.stage, after.slot), (Stage::Since, u32::MAX), "{cursor}");
        }
    }

    #[test]
    fn cursors_keep_their_place_and_zero_is_only_the_beginning_and_the_end() {
        for (shards, shard, position, cursor) in [
            (1, 0, 0, 0),
            (1, 0, 1 << 11, 1),
            (1, 0, u64::MAX << 11, (1 << 53) - 1),
            (4, 0, 1 << 13, 1),
            (4, 1, 0, 1 << 51),
            (4, 3, 0, 3 << 51),
            (4, 3, 4 << 60, (3 << 51) + (1 << 49)),
            (64, 63, 0, 63 << 47),
        ] {
            let place = Place { shard, position };
            assert_eq!(place.cursor(shards), cursor, "{place:?} of {shards}");
            assert_eq!(Place::of_cursor(cursor, shards), place, "{cursor} of {shards}");
        }
        // Between two keys: the later one.
        assert_eq!(Place { shard: 0, position: 5 }.cursor(4), 1);
        // Behind the last key of a shard: the next shard, or the end.
        for (shard, cursor) in [(2, 3 << 51), (3, 0)] {
            let position = u64::MAX;
            assert_eq!(Place { shard, position }.cursor(4), cursor);
        }
        // No cursor that was ever given.
        for cursor in [1 << 53, 1 << 63, u64::MAX] {
            assert_eq!(Place::of_cursor(cursor, 4).shard, 4, "{cursor}");
        }
    }
}
