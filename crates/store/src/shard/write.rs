//! Writing: overwriting in place, appending to the log, opening segments.

use tidemark_types::{SampleKind, UNIT_BYTES, UnixMs};

use super::{Key, Shard, second_of};
use crate::arena::BLOCK_ORDER;
use crate::index::{Full, Slot};
use crate::item::{Attributes, Draft, write_filler};
use crate::policy::Queue;
use crate::pool::Run;
use crate::segment::State;

/// A shard of this many units (128 MiB) uses segments of one huge page each.
pub(super) const HUGE_FROM_UNITS: u64 = (128 << 20) / UNIT_BYTES;
/// Segments that a shard is divided into, up to twice as many, while they are smaller than a huge page: no coarser.
const SEGMENTS_GOAL: u64 = 64;
/// The part of a grant below a whole segment is used for smaller ones, at most so many.
const LEFTOVERS_MAX: usize = 4;
/// Copying so many bytes takes about 20 us, as long as a lock may be held. Above about this size whole units waste less
/// than the ends of segments that the next value does not fit into.
const INLINE_VALUE_MAX: usize = 256 << 10;

/// A new item finds the index full at most once after it was grown for it. More attempts mean that memory is short, or
/// that many keys belong near its own.
const APPEND_ATTEMPTS: u32 = 3;

/// A write that was not done. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The tenant's grant has no room, even with everything evicted that can be.
    #[error("out of memory storing object")]
    Memory,
}

/// The origin of a written item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A client wrote it.
    Client,
    /// It lay below, and is unchanged.
    Below,
}

impl Shard {
    /// Writes an item, new or in the place of the key's old one.
    ///
    /// # Errors
    /// It does not fit into the tenant's grant; then the old item, if any, is as it was.
    pub(crate) fn put(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<(), Refused> {
        let draft = Draft {
            db: key.db,
            key: key.bytes,
            value,
            is_stub: false,
            attributes,
            accessed: second_of(now),
        };
        // Also where the item will not be overwritten: an expired one must not pass for the key's old one below.
        let old = self.lookup(key, now);
        if let Some((_, place)) = old
            && self.overwrite(place, &draft)
        {
            self.counters.note_write(&draft);
            self.changed(key);
            if self.is_sampled(key) {
                self.sample_item(SampleKind::Overwrite, key, place, now);
            }
            return Ok(());
        }
        if value.len() > self.inline_value_max() {
            return self.put_large(key, value, attributes, Origin::Client, now);
        }
        self.append(key, old, &draft, Origin::Client, now)
    }

    /// Writes over the old item if the new one fits into its place.
    fn overwrite(&mut self, place: u64, draft: &Draft<'_>) -> bool {
        let old = self.item(place);
        let (old_bytes, new_bytes) = (old.bytes(), draft.bytes());
        if old.is_stub() || new_bytes > old_bytes {
            return false;
        }
        let id = self.segment_of(place);
        if self.log[id].pins > 0 {
            return false;
        }
        let (old_expiry, new_expiry) = (old.expiry(), draft.attributes.expiry);
        self.uncount(place);
        self.count(draft.db, new_expiry);
        let segment = &mut self.log[id];
        segment.remove_expiry(old_expiry, old_bytes);
        segment.add_expiry(new_expiry, new_bytes);
        segment.live_bytes -= (old_bytes - new_bytes) as u32;
        let note = segment.state == State::Sealed && segment.is_mostly_dead();
        let address = self.arena().at(place, old_bytes);
        // SAFETY: [place, place + old_bytes) is the old item, in a segment of this shard, which is exclusively
        // borrowed. The draft's key and value come from outside of the arena, and its bytes are no more than the old
        // ones.
        unsafe {
            draft.write(address);
            if new_bytes < old_bytes {
                write_filler(address.add(new_bytes), old_bytes - new_bytes);
            }
        }
        if note {
            self.evictions.note_mostly_dead(id);
        }
        true
    }

    /// Appends an item and makes it the key's. `old` is what [`Self::find`] finds of the key now. The draft's key and value
    /// must not lie in the arena.
    pub(super) fn append(
        &mut self,
        key: &Key<'_>,
        old: Option<(Slot, u64)>,
        draft: &Draft<'_>,
        origin: Origin,
        now: UnixMs,
    ) -> Result<(), Refused> {
        let changes = self.index.changes();
        let queue = match old {
            Some((_, place)) => self.log[self.segment_of(place)].queue,
            None => self.queue_for(key, draft),
        };
        let bytes = draft.bytes();
        let mut attempts_left = APPEND_ATTEMPTS;
        loop {
            attempts_left -= 1;
            // Room in the index is made first. Between `reserve` and the entry nothing may be evicted, because the item
            // would be in a segment without being counted in it.
            if old.is_none() && self.index.wants_growth() {
                // Without memory for it the index fills further for now.
                self.grow_index(now);
            }
            let Some(place) = self.reserve(queue, bytes, now) else {
                break;
            };
            // SAFETY: `reserve` found `bytes` free bytes in an open segment of this shard, which is exclusively borrowed.
            unsafe { draft.write(self.arena().at(place, bytes)) };
            // Making room may have evicted or moved the old item since it was seen.
            let old_now = if self.index.changes() == changes {
                old
            } else {
                self.find(key)
            };
            let entered = match self.enter(key, old_now, draft, place) {
                // Moving all entries of a large index for one of them takes milliseconds. If items are evicted anyhow,
                // one more goes instead. If there is memory for all of them, none does.
                Err(Full::Neighbourhood) if attempts_left == 0 || (self.index.is_large() && self.is_used_up()) => {
                    self.crowd_out(key, draft, place)
                }
                entered => entered,
            };
            if entered == Ok(()) {
                if origin == Origin::Client {
                    self.counters.note_write(draft);
                    self.note_written(key, old.is_some(), place, now);
                }
                self.tend_index();
                self.pace(queue, bytes, now);
                return Ok(());
            }
            // SAFETY: as for the write above; the bytes are in no index, and become a gap that walks pass over.
            unsafe { write_filler(self.arena().at(place, bytes), bytes) };
            if attempts_left == 0 {
                break;
            }
            if self.index.is_resizing() {
                self.step_index(u32::MAX);
            } else if self.grow_index(now) {
                if entered == Err(Full::Neighbourhood) {
                    // There is room near it only when the whole index has grown.
                    self.step_index(u32::MAX);
                }
            } else if entered == Err(Full::Index) {
                break;
            } else {
                // There is no memory to make room for a crowd: one of it goes.
                attempts_left = 1;
            }
        }
        Err(Refused::Memory)
    }

    /// Tells of an item that a client wrote.
    #[inline]
    fn note_written(&mut self, key: &Key<'_>, was_there: bool, place: u64, now: UnixMs) {
        self.changed(key);
        if self.is_sampled(key) {
            let kind = if was_there {
                SampleKind::Overwrite
            } else {
                SampleKind::Fill
            };
            self.sample_item(kind, key, place, now);
        }
    }

    /// Makes a written item the key's, in the place of `old`.
    fn enter(&mut self, key: &Key<'_>, old: Option<(Slot, u64)>, draft: &Draft<'_>, place: u64) -> Result<(), Full> {
        debug_assert_eq!(old, self.find(key), "the index changed unseen");
        let Some((slot, old_place)) = old else {
            let (position, tag) = (self.position(key.hash), key.hash.tag());
            self.index.insert(&self.shared.pool.arena, position, tag, place, 0)?;
            self.count_in(place, draft);
            return Ok(());
        };
        let uses = self.index.uses(self.arena(), slot);
        self.index.relocate(&self.shared.pool.arena, slot, place, uses);
        self.count_in(place, draft);
        self.discard(old_place);
        Ok(())
    }

    /// Evicts an item from a written one's bucket, so that there is room for its entry.
    #[cold]
    fn crowd_out(&mut self, key: &Key<'_>, draft: &Draft<'_>, place: u64) -> Result<(), Full> {
        let position = self.position(key.hash);
        let Some((slot, old_place)) = self.index.least_used_at(self.arena(), position) else {
            return Err(Full::Neighbourhood);
        };
        self.index.replace(&self.shared.pool.arena, slot, key.hash.tag(), place);
        self.count_in(place, draft);
        self.evict_unindexed(old_place);
        Ok(())
    }

    /// Changes the attributes of a key's item. Whether the key was there; an expiry that has come removes it.
    pub(crate) fn set_attributes(
        &mut self,
        key: &Key<'_>,
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<bool, Refused> {
        let Some((slot, place)) = self.lookup(key, now) else {
            return Ok(false);
        };
        if attributes.expiry.is_some_and(|expiry| expiry <= now) {
            self.remove(key, slot, place, now);
            return Ok(true);
        }
        let old = self.item(place).attributes();
        if old == attributes {
            return Ok(true);
        }
        if old.has_layout_of(&attributes) {
            self.replace_attributes(place, &old, &attributes);
        } else if self.rewrite(key, attributes, now)?.is_none() {
            return Ok(false);
        }
        // Others cannot see that a client was told to fetch the value anew.
        if attributes
            != (Attributes {
                won: attributes.won,
                ..old
            })
        {
            self.changed(key);
        }
        if attributes.expiry != old.expiry
            && self.is_sampled(key)
            && let Some((_, place)) = self.find(key)
        {
            self.sample_item(SampleKind::Retime, key, place, now);
        }
        Ok(true)
    }

    /// Writes attributes over old ones of the same layout.
    fn replace_attributes(&mut self, place: u64, old: &Attributes, new: &Attributes) {
        let item = self.item(place);
        let bytes = item.bytes();
        // SAFETY: the item is in a segment of this shard, which is exclusively borrowed.
        unsafe { item.set_attributes(new) };
        let id = self.segment_of(place);
        let segment = &mut self.log[id];
        segment.remove_expiry(old.expiry, bytes);
        segment.add_expiry(new.expiry, bytes);
        self.last_expiry = self.last_expiry.max(new.expiry.unwrap_or_default());
        if let Some(expiry) = new.expiry {
            self.sweep.note(expiry);
        }
    }

    /// Writes the key's item anew, with other attributes, elsewhere. `None` if it was evicted to make room for itself.
    pub(super) fn rewrite(
        &mut self,
        key: &Key<'_>,
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<Option<()>, Refused> {
        let Some((_, place)) = self.find(key) else {
            return Ok(None);
        };
        let old = self.item(place);
        let value = old.value().to_vec();
        let (is_stub, was_used, accessed) = (old.is_stub(), old.is_used(), old.accessed());
        let queue = self.log[self.segment_of(place)].queue;
        let draft = Draft {
            db: key.db,
            key: key.bytes,
            value: &value,
            is_stub,
            attributes,
            accessed,
        };
        let bytes = draft.bytes();
        let Some(new_place) = self.reserve(queue, bytes, now) else {
            return Err(Refused::Memory);
        };
        let address = self.arena().at(new_place, bytes);
        let Some((slot, old_place)) = self.find(key) else {
            // SAFETY: `reserve` found these free bytes in an open segment of this shard, which is exclusively borrowed.
            unsafe { write_filler(address, bytes) };
            return Ok(None);
        };
        // SAFETY: as above; the value was copied out of the arena.
        unsafe { draft.write(address) };
        let uses = self.index.uses(self.arena(), slot);
        self.index.relocate(&self.shared.pool.arena, slot, new_place, uses);
        self.count_in(new_place, &draft);
        if was_used {
            // SAFETY: the item was just written, in a segment of this shard.
            unsafe { self.item(new_place).note_access(accessed) };
        }
        // A stub's value moves with it: `kill` leaves it alone.
        self.kill(old_place);
        self.pace(queue, bytes, now);
        Ok(Some(()))
    }

    /// Counts a written item to its segment and database.
    fn count_in(&mut self, place: u64, draft: &Draft<'_>) {
        let id = self.segment_of(place);
        let (bytes, outside) = (draft.bytes(), self.item(place).outside_count());
        let segment = &mut self.log[id];
        segment.live_bytes += bytes as u32;
        segment.add_expiry(draft.attributes.expiry, bytes);
        self.log.add_outside(id, i64::from(outside));
        self.count(draft.db, draft.attributes.expiry);
    }

    /// Finds `bytes` free bytes at the end of a queue, making room if it must.
    fn reserve(&mut self, queue: Queue, bytes: usize, now: UnixMs) -> Option<u64> {
        self.evictions.forget_freed();
        loop {
            if let Some(place) = self.log.append(queue, bytes) {
                return Some(place);
            }
            if !self.open_next(queue, bytes, now) {
                return None;
            }
        }
    }

    /// Gives a queue an open segment with room for `bytes`, or makes progress towards it. `false` if that is impossible.
    fn open_next(&mut self, queue: Queue, bytes: usize, now: UnixMs) -> bool {
        if self.open_at_hand(queue, bytes, now) || self.evict_one(now) {
            return true;
        }
        // Nothing can be evicted, so the grant is smaller than a segment of the usual size: any that has room will do.
        self.open_smaller(queue, bytes, now)
    }

    fn open_smaller(&mut self, queue: Queue, bytes: usize, now: UnixMs) -> bool {
        let (least, order) = (order_of(bytes), self.segment_order(bytes));
        let smaller = (least..order).rev().find_map(|order| self.take_run(order));
        smaller.map(|run| self.open_in(queue, run, now)).is_some()
    }

    /// Gives a queue an open segment with room for `bytes`. `false` if it takes an eviction.
    pub(super) fn open_at_hand(&mut self, queue: Queue, bytes: usize, now: UnixMs) -> bool {
        self.seal(queue);
        if self.reopen(queue, bytes) {
            return true;
        }
        let order = self.segment_order(bytes);
        // It comes before memory that was freed ahead of need: that is there for the time after it.
        if self.uses_the_rest(order) && self.open_smaller(queue, bytes, now) {
            if let Some(id) = self.log.open_of(queue) {
                self.log.set_leftover(id, true);
            }
            return true;
        }
        if let Some(run) = self.take_spare(order).or_else(|| self.take_run(order)) {
            self.open_in(queue, run, now);
            return true;
        }
        // If the grant is large enough, the pool's free memory lies in smaller pieces, between those of others. They
        // are as good, and nothing needs to be evicted.
        self.shared.room() >= 1 << order && self.open_smaller(queue, bytes, now)
    }

    /// Whether the rest of the grant, less than `2^order` units, is to be a segment. It is not in a shard so large that
    /// the rest is next to nothing, nor if there are some such segments already. When a small one is evicted, there is
    /// room for no more than a small one.
    fn uses_the_rest(&self, order: u8) -> bool {
        let units = self.shared.room().saturating_sub(self.ghost_units_missing);
        (1..1 << order).contains(&units) && order < BLOCK_ORDER && self.log.leftovers() < LEFTOVERS_MAX
    }

    fn open_in(&mut self, queue: Queue, run: Run, now: UnixMs) {
        let id = self.log.open(queue, run, now);
        self.shared.pool.set_owner(run, id.0);
        if self.segment_order(0) == BLOCK_ORDER && !self.is_tight() {
            self.shared.pool.expect_block();
        }
    }

    /// Goes on with a segment that was sealed early.
    pub(super) fn reopen(&mut self, queue: Queue, bytes: usize) -> bool {
        let sequence_min = self.databases.iter().map(|db| db.flushed_before).max().unwrap_or(0);
        self.log.reopen(queue, bytes, sequence_min)
    }

    /// Ends a queue's open segment.
    pub(super) fn seal(&mut self, queue: Queue) {
        let Some(id) = self.log.seal(queue) else { return };
        let segment = &self.log[id];
        if segment.live_bytes == 0 {
            self.free_if_dead(id);
        } else if segment.is_mostly_dead() {
            self.evictions.note_mostly_dead(id);
        } else {
            self.log.note_unfilled(id);
        }
        if queue == Queue::Small && self.has_probation() && !self.evictions.has_evicted() && !self.is_tight() {
            self.promote_segments();
        }
        self.log.forget_old_expiries();
    }

    /// While the shard fills for the first time, the small queue's oldest segments become main ones without copying.
    /// Later, when it grows, new items stay on probation, however long that becomes. Keys that are missed by then
    /// mostly never come again. The main queue, which turns over slowly, would be full of them for minutes.
    fn promote_segments(&mut self) {
        while self.small_is_over() && self.log.promote() {}
    }

    /// log2 of the units of the next segment.
    pub(super) fn segment_order(&self, bytes: usize) -> u8 {
        let share = self.shared.share();
        let usual = if share >= HUGE_FROM_UNITS {
            BLOCK_ORDER
        } else {
            let units = (share / SEGMENTS_GOAL).max(1);
            (units.ilog2() as u8).min(BLOCK_ORDER - 1)
        };
        usual.max(order_of(bytes))
    }

    /// The longest value that goes into the log.
    pub(crate) fn inline_value_max(&self) -> usize {
        let half_a_segment = (UNIT_BYTES as usize) << self.segment_order(0) >> 1;
        half_a_segment.min(INLINE_VALUE_MAX)
    }

    /// Whether the next segment can only come from an eviction.
    pub(super) fn is_tight(&self) -> bool {
        self.spare.is_none() && self.is_used_up()
    }

    /// Whether the grant has no room for another segment, but for one that an eviction ahead of need has made free.
    pub(super) fn is_used_up(&self) -> bool {
        self.shared.room() < (1 << self.segment_order(0)) + self.ghost_units_missing
    }

    fn take_spare(&mut self, order: u8) -> Option<Run> {
        let spare = self.spare.take()?;
        if spare.order == order {
            return Some(spare);
        }
        self.put_run(spare);
        None
    }

    /// Takes a run within the grant, or in the place of a run that was evicted for it.
    pub(super) fn take_run(&mut self, order: u8) -> Option<Run> {
        let run = self.shared.take(order).or_else(|| {
            let has_freed = self.evictions.freed_units() >= 1 << order;
            has_freed.then(|| self.shared.take_back(order)).flatten()
        })?;
        self.evictions.note_taken(run.units());
        self.units += run.units();
        Some(run)
    }

    /// Puts a run back.
    pub(super) fn put_run(&mut self, run: Run) {
        self.units -= run.units();
        self.shared.put(run);
    }

    /// Puts the end of a run back. Returns its first `2^order` units, which the shard keeps.
    pub(super) fn put_end(&mut self, run: Run, order: u8) -> Run {
        let kept = self.shared.put_end(run, order);
        self.units -= run.units() - kept.units();
        kept
    }

    /// Takes a run whose bytes are all zero.
    pub(super) fn take_zeroed(&mut self, order: u8) -> Option<Run> {
        let run = self.take_run(order)?;
        if !run.clean {
            let address = self.arena().at(run.offset(), run.bytes());
            // SAFETY: the run was just taken: nobody else knows it.
            unsafe { std::ptr::write_bytes(address, 0, run.bytes()) };
        }
        Some(run)
    }
}

/// log2 of the least number of units that hold `bytes`.
fn order_of(bytes: usize) -> u8 {
    let units = (bytes as u64).div_ceil(UNIT_BYTES).max(1);
    units.next_power_of_two().trailing_zeros() as u8
}

#[cfg(test)]
mod tests;
