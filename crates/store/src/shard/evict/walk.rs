//! The walk through a victim: each live item is judged, and moves or goes; at the end the victim is free, or open again.

use tidemark_types::UnixMs;

use super::{BATCH_BYTES, Purpose, Victim};
use crate::arena::LINE_BYTES;
use crate::hash::KeyHash;
use crate::index::Slot;
use crate::item::{Record, record};
use crate::policy::{Queue, Verdict};
use crate::segment::{Segment, SegmentId};
use crate::shard::{Shard, item_at};
use crate::shared::Left;

/// Items judged together: their index buckets are loaded ahead at the same time.
const BATCH_ITEMS: usize = 16;
/// Items passed over for a batch at most: where few are live, looking for sixteen would take a whole segment.
const BATCH_DEAD: usize = 256;

/// A live item of the victim.
#[derive(Clone, Copy)]
struct Candidate {
    place: u64,
    hash: KeyHash,
}

impl Shard {
    /// Judges the next batch of the victim's items and moves the index on. Returns the bytes walked.
    pub(super) fn walk_and_tend(&mut self, now: UnixMs) -> u64 {
        let walked = self.walk_victim(now);
        self.tend_index();
        walked
    }

    /// Judges the next batch of the victim's items. Returns the bytes walked. Leaves the index to the caller: a step of it
    /// may evict whatever item.
    pub(super) fn walk_victim(&mut self, now: UnixMs) -> u64 {
        let Some(mut victim) = self.evictions.victim.take() else {
            return 0;
        };
        let begin = victim.cursor;
        let mut batch = [Candidate {
            place: 0,
            hash: KeyHash(0),
        }; BATCH_ITEMS];
        let count = self.collect(&mut victim, &mut batch);
        for candidate in &batch[..count] {
            self.judge(&mut victim, *candidate, now);
        }
        let walked = u64::from(victim.cursor - begin);
        self.prefetch_next(&victim);
        if victim.cursor == self.log[victim.id].used_bytes {
            self.end_victim(&victim);
        } else {
            self.evictions.victim = Some(victim);
        }
        walked
    }

    /// Loads ahead the beginning of the next batch's items. Between two batches so much happens elsewhere that the
    /// processor's own reading ahead begins anew.
    fn prefetch_next(&self, victim: &Victim) {
        let segment = &self.log[victim.id];
        let begin = segment.run.offset() + u64::from(victim.cursor);
        let end = segment.run.offset() + u64::from(segment.used_bytes);
        let lines = (begin..end.min(begin + BATCH_BYTES)).step_by(LINE_BYTES as usize);
        lines.for_each(|line| self.arena().prefetch(line));
    }

    /// Finds the next live items and loads their index buckets ahead.
    fn collect(&self, victim: &mut Victim, batch: &mut [Candidate; BATCH_ITEMS]) -> usize {
        let segment = &self.log[victim.id];
        let (offset, end) = (segment.run.offset(), segment.used_bytes);
        let (mut count, mut dead) = (0, 0);
        while count < BATCH_ITEMS && dead < BATCH_DEAD && victim.cursor < end {
            let place = offset + u64::from(victim.cursor);
            // SAFETY: everything up to `used_bytes` is a sequence of items and fillers, of this shard, which is borrowed.
            match unsafe { record(self.arena().at(place, 1)) } {
                Record::Filler(bytes) => victim.cursor += bytes as u32,
                Record::Item(item) => {
                    victim.cursor += item.bytes() as u32;
                    if item.is_dead() {
                        dead += 1;
                    } else {
                        let hash = self.shared.hasher.hash(item.db(), item.key());
                        self.view.prefetch(self.arena(), self.position(hash));
                        if let Some(ghosts) = &self.ghosts {
                            ghosts.prefetch(self.arena(), hash);
                        }
                        batch[count] = Candidate { place, hash };
                        count += 1;
                    }
                }
            }
        }
        count
    }

    /// Decides on one item and carries it out.
    fn judge(&mut self, victim: &mut Victim, candidate: Candidate, now: UnixMs) {
        let Candidate { place, hash } = candidate;
        let found = self
            .index
            .find(self.arena(), self.position(hash), hash.tag(), |p| p == place);
        let Some((slot, _)) = found else {
            unreachable!("a live item at {place} has no index entry")
        };
        let item = self.item(place);
        let bytes = item.bytes() as u64;
        let uses = self.index.uses(self.arena(), slot);
        let queue = self.log[victim.id].queue;
        victim.seen_bytes += bytes;
        if !self.is_valid(place, item, now) {
            if !(self.flush_pending && self.is_flushed(place, item)) {
                self.counters.expired += 1;
                self.tell_left(place, Left::Expired);
            }
            self.drop_item(slot, place);
            return;
        }
        let verdict = match victim.purpose {
            Purpose::Clean => Verdict::Keep { uses },
            Purpose::Evict { .. } => self.verdict(place, queue, uses, now),
        };
        let rank = verdict.rank(uses);
        if queue == Queue::Main {
            self.evictions.met_bytes[rank as usize] += bytes;
        }
        if let Verdict::Keep { uses: new_uses } = verdict
            && victim.may_keep(bytes, rank, u64::from(self.log[victim.id].used_bytes))
            && self.keep(victim, slot, place, new_uses)
        {
            victim.kept_bytes += bytes;
            return;
        }
        self.demote(place, hash);
        if verdict == Verdict::DropToGhost
            && let Some(ghosts) = &mut self.ghosts
        {
            ghosts.insert(&self.shared.pool.arena, hash);
        }
        self.counters.evicted += 1;
        self.tell_left(place, Left::Evicted);
        self.drop_item(slot, place);
    }

    /// Removes an item of the victim.
    fn drop_item(&mut self, slot: Slot, place: u64) {
        self.index.remove(&self.shared.pool.arena, slot);
        self.discard(place);
    }

    /// Moves a survivor. `false` if it fits nowhere.
    fn keep(&mut self, victim: &mut Victim, slot: Slot, place: u64, uses: u8) -> bool {
        let item = item_at(&self.shared.pool.arena, place);
        let (bytes, expiry, outside) = (item.bytes(), item.expiry(), item.outside_count());
        let copied_to = if victim.front == 0 {
            self.append_survivor(victim.to, bytes)
        } else {
            None
        };
        let new_place = match copied_to {
            Some(new_place) => new_place,
            None => self.log[victim.id].run.offset() + u64::from(victim.front),
        };
        let (from, to) = (self.arena().at(place, bytes), self.arena().at(new_place, bytes));
        // SAFETY: both ranges lie in segments of this shard, which is exclusively borrowed. The source is a complete
        // item. The target is free room at an open segment's end, or the victim's front, which holds nothing live that
        // was not moved. The front ends at or before the source's end, so the ranges may overlap, which `copy` allows.
        unsafe { std::ptr::copy(from, to, bytes) };
        self.index.relocate(&self.shared.pool.arena, slot, new_place, uses);
        if copied_to.is_none() {
            victim.front += bytes as u32;
            self.log[victim.id].add_expiry(expiry, bytes);
            return true;
        }
        let to = self.segment_of(new_place);
        self.log[victim.id].live_bytes -= bytes as u32;
        self.log[to].live_bytes += bytes as u32;
        self.log[to].add_expiry(expiry, bytes);
        self.log.move_outside(victim.id, outside, Some(to));
        true
    }

    /// Room for a survivor in a segment that exists.
    fn append_survivor(&mut self, to: Queue, bytes: usize) -> Option<u64> {
        self.log.append(to, bytes).or_else(|| {
            self.seal(to);
            self.reopen(to, bytes).then(|| self.log.append(to, bytes)).flatten()
        })
    }

    /// The victim has been walked to its end: it is free, or holds its own survivors and becomes an open segment.
    fn end_victim(&mut self, victim: &Victim) {
        let id = victim.id;
        if victim.purpose != Purpose::Clean {
            self.evictions.survived_bytes = victim.kept_bytes;
        }
        if self.log[id].live_bytes == 0 {
            let run = self.log.remove(id);
            let fits = self.spare.is_none() && run.order == self.segment_order(0) && self.ghost_units_missing == 0;
            if fits && self.shared.excess() == 0 && self.shared.room() < run.units() {
                self.spare = Some(run);
            } else {
                self.put_run(run);
                self.fit_ghosts();
            }
            return;
        }
        self.log.end_victim(id, victim.front, victim.to);
        self.cut(id);
        let flushed_meanwhile = victim.flushes != self.flushes;
        if !flushed_meanwhile {
            // Nothing that was flushed is left in it: later flushes are told by a new number.
            self.log.renumber(id);
        }
        // The emptier of two segments to go on with is next. A flush's dead items in here are told by the segment's old
        // number, so nothing new may be added to it.
        let room = self.log[id].room_bytes();
        let other = self.log.exchange_open(victim.to, None);
        let goes_on = !flushed_meanwhile && other.is_none_or(|other| self.log[other].room_bytes() < room);
        let (next, last) = if goes_on { (Some(id), other) } else { (other, Some(id)) };
        self.log.exchange_open(victim.to, last);
        self.seal(victim.to);
        self.log.exchange_open(victim.to, next);
    }

    /// Gives back the end of a segment that was made under a larger grant, if its items leave room for that. A shard
    /// that shrank would otherwise evict in pieces that are large beside it, and have as much lie idle in open
    /// segments.
    fn cut(&mut self, id: SegmentId) {
        let Segment { run, used_bytes, .. } = self.log[id];
        let order = self.segment_order(used_bytes as usize);
        if order < run.order {
            let run = self.put_end(run, order);
            self.log.shorten(id, run);
        }
        // A segment of the usual size by now is no leftover any more.
        let is_leftover = self.log[id].is_leftover && self.log[id].run.order < self.segment_order(0);
        self.log.set_leftover(id, is_leftover);
    }
}

impl Victim {
    /// Whether the cap on survivors allows one more. An item that was used enough may stay while the cap is not
    /// reached. One that was used less may stay while the survivors so far leave room in proportion to the walked part.
    fn may_keep(&self, bytes: u64, rank: u8, segment_bytes: u64) -> bool {
        let Purpose::Evict { quarters } = self.purpose else {
            return true;
        };
        let base = if rank >= self.bar {
            segment_bytes
        } else {
            self.seen_bytes
        };
        (self.kept_bytes + bytes) * 4 <= base * quarters
    }
}
