//! The part of an index that is read without the shard's lock, to compute which cache line to load ahead. It may be out
//! of date, and serves for nothing but a prefetch.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::{BUCKET_BYTES, CHUNK_BUCKETS, CHUNK_SHIFT};
use crate::arena::{Arena, UNIT_SHIFT, prefetch_value};

/// An index as those see it that do not hold its shard's lock.
#[derive(Debug, Default)]
pub(crate) struct IndexView {
    below: AtomicU64,
    above: AtomicU64,
    frontier: AtomicU64,
    table: AtomicPtr<ChunkTable>,
}

/// Which units of the arena the chunks are.
#[derive(Debug)]
pub(super) struct ChunkTable {
    pub(super) units: Box<[AtomicU32]>,
}

impl IndexView {
    /// Loads the bucket of a position ahead, and the next one: nearly half of all are full, and a search goes on behind
    /// those.
    #[inline]
    pub(crate) fn prefetch(&self, arena: &Arena, position: u64) {
        let Some(table) = self.table() else { return };
        let above = position >= self.frontier.load(Ordering::Relaxed);
        let buckets = if above { &self.above } else { &self.below }.load(Ordering::Relaxed);
        let bucket = scale(position, buckets);
        if let Some(unit) = table.units.get((bucket >> CHUNK_SHIFT) as usize) {
            let at = offset_in_chunk(unit.load(Ordering::Relaxed), bucket);
            arena.prefetch(at);
            // The bucket after a chunk's last one lies elsewhere: one in a thousand.
            arena.prefetch(at + BUCKET_BYTES as u64);
        }
    }

    /// Loads ahead where the table's units are, which [`Self::prefetch`] reads next.
    #[inline]
    pub(crate) fn prefetch_table(&self) {
        if let Some(table) = self.table() {
            prefetch_value(table);
        }
    }

    /// The table in force, if there is one.
    #[inline]
    fn table(&self) -> Option<&ChunkTable> {
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: a table that was published stays allocated as long as the index (`Index::tables`). The index lives as
        // long as this view, which is beside it in the shard's cell.
        unsafe { table.as_ref() }
    }

    /// Puts a table in force. It must stay allocated and in its place as long as this view.
    pub(super) fn publish(&self, table: &ChunkTable) {
        self.table.store((&raw const *table).cast_mut(), Ordering::Release);
    }

    /// Puts both sides' numbering in force, and where they meet.
    pub(super) fn renumber(&self, below: u64, above: u64, frontier: u64) {
        self.below.store(below, Ordering::Relaxed);
        self.above.store(above, Ordering::Relaxed);
        self.frontier.store(frontier, Ordering::Relaxed);
    }
}

/// `position / 2^64 * buckets`, rounded down.
#[inline]
pub(super) fn scale(position: u64, buckets: u64) -> u64 {
    ((u128::from(position) * u128::from(buckets)) >> 64) as u64
}

/// The offset in the arena of a bucket whose chunk is this unit.
#[inline]
pub(super) fn offset_in_chunk(unit: u32, bucket: u64) -> u64 {
    (u64::from(unit) << UNIT_SHIFT) + (bucket & (CHUNK_BUCKETS - 1)) * BUCKET_BYTES as u64
}
