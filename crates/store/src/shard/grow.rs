//! The index grows and shrinks with the items, a few buckets at each change.

use tidemark_types::UnixMs;

use super::write::HUGE_FROM_UNITS;
use super::{Shard, item_at};
use crate::arena::BLOCK_ORDER;
use crate::index::Stride;
use crate::pool::Run;
use crate::shared::Left;

/// Index buckets moved at each change while the index is being resized. Growing must end before the next growth is due:
/// 1.7 insertions per bucket later if it grew by a quarter, 0.4 if by a sixteenth. Three are enough, four for bursts.
const INDEX_STEP: u32 = 4;
/// Memory is nearly used up when one in so many parts of the grant is left.
const NEARLY_FULL_DIVISOR: u64 = 16;

impl Shard {
    /// Begins to grow the index, evicting for its memory if it must.
    pub(super) fn grow_index(&mut self, now: UnixMs) -> bool {
        self.evictions.forget_freed();
        // A wide stride that used up the free memory would be taken back at once.
        let wide_units = self.index.units() / 4;
        let stride = if self.shared.room() < 2 * (wide_units << self.shared.shard_bits) {
            Stride::Fine
        } else {
            self.index_stride()
        };
        loop {
            let missing = self.index.chunks_to_grow(stride);
            if missing == 0 {
                break;
            }
            // A large index lies on huge pages, as long as one is ready and not mostly waste.
            let is_large = missing >= 1 << (BLOCK_ORDER - 2) && self.shared.share() >= HUGE_FROM_UNITS;
            let run = is_large
                .then(|| self.take_zeroed(BLOCK_ORDER))
                .flatten()
                .or_else(|| self.take_zeroed(0));
            match run {
                Some(run) => self.index.add_run(run, &self.view),
                None if !self.evict_for_units(now) => return false,
                None => {}
            }
        }
        // Evictions on the way may have begun to shrink it.
        if !self.index.is_resizing() {
            self.index.start_growing(stride, &self.view);
        }
        true
    }

    /// How far the index is resized: if memory is nearly used up, its buckets take memory from items.
    fn index_stride(&self) -> Stride {
        if self.shrinks_to_little() {
            Stride::Deep
        } else if self.shrinks_by_much() {
            Stride::Coarse
        } else if self.shared.room() * NEARLY_FULL_DIVISOR <= self.shared.grant() {
            Stride::Fine
        } else {
            Stride::Wide
        }
    }

    /// Goes on with the index ([`Self::step_index`]), and begins to shrink it when it has become too empty.
    #[inline]
    pub(super) fn tend_index(&mut self) {
        if self.index.has_work() {
            self.step_index(INDEX_STEP);
        } else if self.index.wants_shrinking(Stride::Fine) {
            let stride = self.index_stride();
            if self.index.wants_shrinking(stride) {
                self.index.start_shrinking(&self.shared.pool.arena, stride, &self.view);
            }
        }
    }

    /// Moves a resize of the index on, or gives back memory that one left over. Entries move, so that nothing that was found
    /// before is valid after it. An item is evicted only if hundreds of others have nearly its hash.
    pub(super) fn step_index(&mut self, buckets: u32) {
        let shared = &self.shared;
        let mut lost = Vec::new();
        let surplus: Vec<Run> = self
            .index
            .step(&shared.pool.arena, &self.view, buckets, &mut lost, |place| {
                let item = item_at(&shared.pool.arena, place);
                shared.hasher.hash(item.db(), item.key()).position(shared.shard_bits)
            });
        surplus.into_iter().for_each(|run| self.put_run(run));
        lost.into_iter().for_each(|place| self.evict_unindexed(place));
    }

    /// Evicts an item that no entry names any more.
    pub(super) fn evict_unindexed(&mut self, place: u64) {
        // A flush told of all that it removed at once.
        if !(self.flush_pending && self.is_flushed(place, self.item(place))) {
            let item = self.item(place);
            let hash = self.shared.hasher.hash(item.db(), item.key());
            self.demote(place, hash);
            self.counters.evicted += 1;
            self.tell_left(place, Left::Evicted);
        }
        self.discard(place);
    }
}
