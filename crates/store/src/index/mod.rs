//! A shard's index: from a key's hash to the place of its item.
//!
//! Buckets of 64 bytes hold eight entries of 8 bytes. A bucket's number is the key's position times the number of buckets,
//! so buckets are in the order of positions, their number is free, and a full bucket spills into the next one. The table
//! changes its size in place: a *frontier* moves through the positions, and the buckets on its one side are numbered with
//! the old size, on its other side with the new one. At every moment the whole is one table with linear probing whose
//! numbering happens to have a bend, so lookups, insertions and removals need not know of it.
//!
//! ```text
//! entry:  63........48 47........42 41......40 39.........0
//!         tag          displacement  use count  place (arena offset in bytes); all zero: empty
//! ```
//!
//! Invariants: an entry of displacement d lies d buckets behind its own, and every bucket from its own up to there is full
//! (so a search ends at the first bucket that is not); entries of a bucket are dense from slot 0; a place stands for a
//! live item of the shard.

mod bucket;
mod resize;
mod room;
mod view;

use std::sync::atomic::Ordering;

use crate::arena::{Arena, LINE_BYTES, PLACES_MAX, UNIT_SHIFT};
use crate::pool::Run;
use bucket::{count, displacement, matching, which};
pub(crate) use resize::Stride;
use resize::{Dense, Resize};
pub(crate) use view::IndexView;
use view::{ChunkTable, offset_in_chunk, scale};

/// Entries in a bucket: one cache line.
const SLOTS: usize = 8;
const BUCKET_BYTES: usize = SLOTS * 8;
/// log2 of the buckets in a chunk (a unit of 64 KiB).
const CHUNK_SHIFT: u32 = UNIT_SHIFT - BUCKET_BYTES.trailing_zeros();
const CHUNK_BUCKETS: u64 = 1 << CHUNK_SHIFT;

const PLACE_BITS: u32 = PLACES_MAX.trailing_zeros();
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const USES_SHIFT: u32 = PLACE_BITS;
const DISPLACEMENT_SHIFT: u32 = 42;
const DISPLACEMENT_MAX: u64 = 63;
const TAG_SHIFT: u32 = 48;

/// An item is counted as used up to this many times (two bits, as S3-FIFO and the two-bit clock want).
pub(crate) const USES_MAX: u8 = 3;

/// Buckets of a new index: 1 KiB, enough for 111 items.
const BUCKETS_MIN: u64 = 16;
/// Below this the index doubles, above it grows by strides: one page.
const DOUBLING_BELOW: u64 = 64;
/// From so many buckets on, with 30,000 entries, moving all of them takes a millisecond and more.
const LARGE_FROM: u64 = 4096;

/// Runs handed back at a time: each takes the pool's lock, and a large table that becomes half as large has hundreds.
const SURPLUS_RUNS: usize = 8;

/// Where an entry is. Valid as long as [`Index::changes`] stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    bucket: u64,
    slot: usize,
}

/// Why an entry can not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// There is no room for one more until the index has grown.
    Index,
    /// Its own bucket and all to which it could spill are full, and no entry in them can go further. For that, hundreds more
    /// keys must belong near it than there is room for.
    Neighbourhood,
}

/// The index of one shard.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Numbering of positions below the frontier.
    below: u64,
    /// Numbering of positions at or above the frontier.
    above: u64,
    frontier: u64,
    /// While resizing: the old numbering's next bucket to be moved, and the direction.
    resize: Option<Resize>,
    /// A shrink that was not done, since a part of the table has no room for it.
    dense: Option<Dense>,
    /// Buckets that exist: the larger numbering plus some behind it for the last one's spill.
    buckets: u64,
    entries: u64,
    /// Grows whenever an entry comes, goes or moves, or is of another place.
    changes: u64,
    runs: Vec<Run>,
    /// Whether there may be runs that no bucket lies in.
    has_surplus: bool,
    /// The last one is in force; older ones may still be read by a prefetch, and are half as large each.
    #[expect(
        clippy::vec_box,
        reason = "the view points at a table, which must not move when the list grows"
    )]
    tables: Vec<Box<ChunkTable>>,
    chunks: usize,
}

impl Index {
    /// Entries held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.entries
    }

    /// As long as this is the same, so is what [`Self::find`] finds of a key: another numbering alone moves no entry.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Memory held, in units.
    pub(crate) fn units(&self) -> u64 {
        self.runs.iter().map(|run| run.units()).sum()
    }

    /// Finds the entry of this hash whose place `is_it` accepts.
    #[inline]
    pub(crate) fn find(
        &self,
        arena: &Arena,
        position: u64,
        tag: u16,
        mut is_it: impl FnMut(u64) -> bool,
    ) -> Option<(Slot, u64)> {
        if self.buckets == 0 {
            return None;
        }
        let home = self.home(position);
        let mut bucket = home;
        loop {
            let entries = self.bucket(arena, bucket);
            // Tag and displacement together: 22 bits that must match before an item is looked at.
            let wanted = u32::from(tag) << (TAG_SHIFT - DISPLACEMENT_SHIFT) | (bucket - home) as u32;
            let mut candidates = matching(entries, wanted);
            while candidates != 0 {
                let slot = candidates.trailing_zeros() as usize;
                let place = entries[slot] & PLACE_MASK;
                // Of an empty slot everything is zero, which can match.
                if place != 0 && is_it(place) {
                    return Some((Slot { bucket, slot }, place));
                }
                candidates &= candidates - 1;
            }
            if entries[SLOTS - 1] == 0 {
                return None;
            }
            bucket += 1;
            if bucket >= self.buckets || bucket - home > DISPLACEMENT_MAX {
                return None;
            }
        }
    }

    /// Adds an entry. The key must not be in the index.
    pub(crate) fn insert(&mut self, arena: &Arena, position: u64, tag: u16, place: u64, uses: u8) -> Result<(), Full> {
        debug_assert!(place != 0 && place <= PLACE_MASK && uses <= USES_MAX);
        // Beyond nine tenths of what the table has or is becoming, runs of full buckets grow long, and a resize under way
        // might not find room to end. The caller ends it and starts the next one.
        let becoming = if matches!(self.resize, Some(Resize::Shrinking { .. })) {
            self.below
        } else {
            self.above
        };
        if self.entries * 10 >= becoming * 72 {
            return Err(Full::Index);
        }
        self.place(arena, position, tag, place, uses)
    }

    /// [`Self::insert`] without its limit.
    fn place(&mut self, arena: &Arena, position: u64, tag: u16, place: u64, uses: u8) -> Result<(), Full> {
        let home = self.home(position);
        let end = self.buckets.min(home + DISPLACEMENT_MAX + 1);
        for bucket in home..end {
            let entries = self.bucket_mut(arena, bucket);
            let next = count(entries);
            if let Some(free) = entries.get_mut(next) {
                *free = entry_of(tag, bucket - home, place, uses);
                self.entries += 1;
                self.changes += 1;
                return Ok(());
            }
        }
        let at = self.make_way(arena, home).ok_or(Full::Neighbourhood)?;
        self.bucket_mut(arena, at.bucket)[at.slot] = entry_of(tag, at.bucket - home, place, uses);
        self.entries += 1;
        self.changes += 1;
        Ok(())
    }

    /// The entry that is used least in a position's own bucket, with its place.
    pub(crate) fn least_used_at(&self, arena: &Arena, position: u64) -> Option<(Slot, u64)> {
        let bucket = self.home(position);
        let entries = self.bucket(arena, bucket);
        let uses = |slot: &usize| (entries[*slot] >> USES_SHIFT) & u64::from(USES_MAX);
        let slot = (0..count(entries)).min_by_key(uses)?;
        Some((Slot { bucket, slot }, entries[slot] & PLACE_MASK))
    }

    /// Puts an entry in the place of another one, which [`Self::least_used_at`] found for its position.
    pub(crate) fn replace(&mut self, arena: &Arena, at: Slot, tag: u16, place: u64) {
        debug_assert!(place != 0 && place <= PLACE_MASK);
        self.changes += 1;
        // In its own bucket, so its displacement is zero.
        self.bucket_mut(arena, at.bucket)[at.slot] = u64::from(tag) << TAG_SHIFT | place;
    }

    /// Removes an entry, closing the gap with one that had spilled over it.
    pub(crate) fn remove(&mut self, arena: &Arena, at: Slot) {
        self.entries -= 1;
        let mut hole = at.bucket;
        let mut was_full = self.take_out(arena, at);
        // Only a bucket that was full can have spilled. Look behind it, as long as buckets are full, for an entry that
        // belongs at the hole or before it.
        let mut bucket = hole + 1;
        while was_full && bucket < self.buckets {
            let entries = self.bucket(arena, bucket);
            let full = entries[SLOTS - 1] != 0;
            let reach = bucket - hole;
            // Of an empty slot everything is zero, and `reach` is not.
            let spilled = which(entries, |entry| displacement(entry) >= reach);
            if spilled != 0 {
                let slot = spilled.trailing_zeros() as usize;
                let entry = entries[slot] - (reach << DISPLACEMENT_SHIFT);
                was_full = self.take_out(arena, Slot { bucket, slot });
                let gap = self.bucket_mut(arena, hole);
                gap[SLOTS - 1] = entry;
                hole = bucket;
            } else if !full {
                return;
            }
            bucket += 1;
        }
    }

    /// How often the entry's item was used since it was last judged, 0 to [`USES_MAX`].
    pub(crate) fn uses(&self, arena: &Arena, at: Slot) -> u8 {
        ((self.bucket(arena, at.bucket)[at.slot] >> USES_SHIFT) & u64::from(USES_MAX)) as u8
    }

    /// Counts one more use. Writes nothing once the count is full, so that hot buckets stay clean.
    #[inline]
    pub(crate) fn count_use(&mut self, arena: &Arena, at: Slot) {
        let entry = &mut self.bucket_mut(arena, at.bucket)[at.slot];
        if (*entry >> USES_SHIFT) & u64::from(USES_MAX) < u64::from(USES_MAX) {
            *entry += 1 << USES_SHIFT;
        }
    }

    /// The item has moved to another place; its uses are set anew.
    pub(crate) fn relocate(&mut self, arena: &Arena, at: Slot, place: u64, uses: u8) {
        debug_assert!(place != 0 && place <= PLACE_MASK && uses <= USES_MAX);
        self.changes += 1;
        let entry = &mut self.bucket_mut(arena, at.bucket)[at.slot];
        let kept = *entry & !(PLACE_MASK | u64::from(USES_MAX) << USES_SHIFT);
        *entry = kept | u64::from(uses) << USES_SHIFT | place;
    }

    /// Empties the index and hands back its memory.
    pub(crate) fn clear(&mut self, view: &IndexView) -> Vec<Run> {
        let runs = std::mem::take(&mut self.runs);
        // Tables stay, because a prefetch may be reading one.
        let tables = std::mem::take(&mut self.tables);
        *self = Self {
            tables,
            changes: self.changes + 1,
            ..Self::default()
        };
        self.publish(view);
        runs
    }

    /// Visits every entry whose own bucket lies at or behind that of `position`, bucket by bucket in the order of
    /// positions, until `visit` has been called for all entries of a bucket and `enough` says so. `visit` gets places and
    /// uses. Returns the position at which to go on, `None` at the end.
    pub(crate) fn scan(
        &self,
        arena: &Arena,
        position: u64,
        mut visit: impl FnMut(u64, u8),
        mut enough: impl FnMut() -> bool,
    ) -> Option<u64> {
        if self.buckets == 0 {
            return None;
        }
        let mut position = position;
        loop {
            let own = self.home(position);
            self.for_each_of(arena, own, |_, entry| {
                visit(entry & PLACE_MASK, ((entry >> USES_SHIFT) & u64::from(USES_MAX)) as u8);
            });
            position = self.position_behind(position, own)?;
            if enough() {
                return Some(position);
            }
        }
    }

    /// A place picked by a random number, roughly evenly. `None` only if the index is empty.
    pub(crate) fn pick(&self, arena: &Arena, random: u64) -> Option<u64> {
        if self.entries == 0 {
            return None;
        }
        let first = scale(random, self.buckets);
        let turn = random as usize % SLOTS;
        (0..self.buckets)
            .map(|i| (first + i) % self.buckets)
            .find_map(|bucket| {
                let entries = self.bucket(arena, bucket);
                let filled = count(entries);
                (filled > 0).then(|| entries[turn % filled] & PLACE_MASK)
            })
    }

    /// Loads the first `bytes` of the items ahead whose hash and tag match, if their bucket is at hand.
    #[inline]
    pub(crate) fn prefetch_item(&self, arena: &Arena, position: u64, tag: u16, bytes: u64) {
        let _ = self.find(arena, position, tag, |place| {
            (0..bytes)
                .step_by(LINE_BYTES as usize)
                .for_each(|at| arena.prefetch(place + at));
            true
        });
    }

    /// The number of a position's own bucket.
    #[inline]
    fn home(&self, position: u64) -> u64 {
        scale(
            position,
            if position >= self.frontier {
                self.above
            } else {
                self.below
            },
        )
    }

    /// The first position behind those of `position`'s own bucket.
    fn position_behind(&self, position: u64, own: u64) -> Option<u64> {
        if position >= self.frontier {
            return first_position(own + 1, self.above);
        }
        // The frontier always lies between two buckets of the old numbering, but inside of one of the new numbering.
        let behind = first_position(own + 1, self.below).map_or(self.frontier, |next| next.min(self.frontier));
        (behind != u64::MAX).then_some(behind)
    }

    fn publish(&self, view: &IndexView) {
        view.renumber(self.below, self.above, self.frontier);
    }

    /// Calls `f` with every entry whose own bucket this is.
    fn for_each_of(&self, arena: &Arena, own: u64, mut f: impl FnMut(Slot, u64)) {
        for bucket in own..self.buckets.min(own + DISPLACEMENT_MAX + 1) {
            let entries = self.bucket(arena, bucket);
            for (slot, &entry) in entries.iter().enumerate() {
                if entry != 0 && displacement(entry) == bucket - own {
                    f(Slot { bucket, slot }, entry);
                }
            }
            if entries[SLOTS - 1] == 0 {
                return;
            }
        }
    }

    fn first_of(&self, arena: &Arena, own: u64) -> Option<(Slot, u64)> {
        let mut first = None;
        self.for_each_of(arena, own, |slot, entry| {
            first.get_or_insert((slot, entry));
        });
        first
    }

    /// Takes an entry out of its bucket, keeping the rest dense. Whether the bucket was full.
    fn take_out(&mut self, arena: &Arena, at: Slot) -> bool {
        self.changes += 1;
        let entries = self.bucket_mut(arena, at.bucket);
        let filled = count(entries);
        debug_assert!(at.slot < filled, "nothing lies at {at:?}");
        let last = filled - 1;
        entries[at.slot] = entries[last];
        entries[last] = 0;
        filled == SLOTS
    }

    #[inline]
    fn bucket_offset(&self, bucket: u64) -> u64 {
        debug_assert!(bucket < self.buckets);
        match self.tables.last() {
            Some(table) => offset_in_chunk(
                table.units[(bucket >> CHUNK_SHIFT) as usize].load(Ordering::Relaxed),
                bucket,
            ),
            None => 0,
        }
    }

    #[inline]
    fn bucket(&self, arena: &Arena, bucket: u64) -> &[u64; SLOTS] {
        let address = arena
            .at(self.bucket_offset(bucket), BUCKET_BYTES)
            .cast::<[u64; SLOTS]>();
        // SAFETY: the offset is inside a chunk that this index owns (bounds-checked by the table and the arena), aligned to
        // 64 bytes, always initialised (chunks are zeroed), and changed only through `bucket_mut`, which needs `&mut self`.
        unsafe { &*address }
    }

    #[inline]
    fn bucket_mut(&mut self, arena: &Arena, bucket: u64) -> &mut [u64; SLOTS] {
        let address = arena
            .at(self.bucket_offset(bucket), BUCKET_BYTES)
            .cast::<[u64; SLOTS]>();
        // SAFETY: as in `bucket`; `&mut self` makes this the only reference into the index's chunks.
        unsafe { &mut *address }
    }
}

/// An entry, of a displacement and with uses that fit.
#[inline]
fn entry_of(tag: u16, displacement: u64, place: u64, uses: u8) -> u64 {
    u64::from(tag) << TAG_SHIFT | displacement << DISPLACEMENT_SHIFT | u64::from(uses) << USES_SHIFT | place
}

/// The least position whose bucket among `buckets` is `bucket`; `None` if there is none below 2^64.
fn first_position(bucket: u64, buckets: u64) -> Option<u64> {
    u64::try_from((u128::from(bucket) << 64).div_ceil(u128::from(buckets.max(1)))).ok()
}

#[cfg(test)]
mod tests;
