//! Making room: one segment at a time is emptied, a few items at a time.
//!
//! A *victim* leaves its queue and is walked from its beginning. Each live item in it is judged by the policy.
//! Survivors are copied to the newest end of the main queue. If that end has no room and no free segment is at hand,
//! survivors are moved together at the victim's own beginning. The victim then becomes the open segment. An eviction
//! thus never needs memory to free memory. Survivors are capped, most used ones first, so that every eviction frees
//! some.
//!
//! Evictions run ahead of need. While the next segment can only come from an eviction, each write also walks a part of
//! the victim. The parts are sized so that the victim is empty before the open segment is full, and no write has to
//! wait for a whole one. If only writes and survivors fill one queue of segments, that begins when no more of the open
//! one is free than they will take meanwhile. Memory that is emptied ahead of need holds nothing.

use tidemark_types::UnixMs;

use super::{Shard, item_at};
use crate::arena::LINE_BYTES;
use crate::hash::KeyHash;
use crate::index::{Slot, USES_MAX};
use crate::item::{Record, record};
use crate::policy::{Queue, Verdict};
use crate::pool::Run;
use crate::segment::{Segment, SegmentId, State};
use crate::shared::Left;

/// Items judged together: their index buckets are loaded ahead at the same time.
const BATCH_ITEMS: usize = 16;
/// Items passed over for a batch at most: where few are live, looking for sixteen would take a whole segment.
const BATCH_DEAD: usize = 256;
/// Bytes of a victim that are worth a batch of their own.
const BATCH_BYTES: u64 = 1024;
/// Evictions that may begin late do so when this part of the open segment is free, beside the room for survivors and a
/// large value.
const AHEAD_FRACTION: u64 = 4;
/// Mostly dead segments remembered at most; those beyond are found when they reach the head of their queue.
const MOSTLY_DEAD_MAX: usize = 1024;

/// The state of a shard between evictions.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    victim: Option<Victim>,
    /// Bytes of the victim that are to be walked before the next write ends.
    debt_bytes: u64,
    /// Bytes to walk for each byte written, so that the victim is empty in time.
    pace: u64,
    /// The surviving bytes of the last victim that was to make room.
    survived_bytes: u64,
    /// The longest write of late: before each victim half of it is forgotten.
    longest_write: u64,
    /// Segments of which less than half is live: taken before the head of a queue.
    mostly_dead: Vec<SegmentId>,
    /// Units that evictions gave back for the present write, and that it has not taken.
    freed_units: u64,
    /// Live bytes met in main segments lately, by rank: says which of the used items can survive.
    met_bytes: [u64; USES_MAX as usize + 1],
    /// Whether anything was evicted since the shard was empty.
    has_evicted: bool,
}

impl Evictions {
    pub(super) fn note_mostly_dead(&mut self, id: SegmentId) {
        // An item dies after the other: the same segment is noted again and again, mostly in a row.
        if self.mostly_dead.last() != Some(&id) && self.mostly_dead.len() < MOSTLY_DEAD_MAX {
            self.mostly_dead.push(id);
        }
    }

    pub(super) fn has_evicted(&self) -> bool {
        self.has_evicted
    }

    pub(super) fn freed_units(&self) -> u64 {
        self.freed_units
    }

    pub(super) fn note_taken(&mut self, units: u64) {
        self.freed_units = self.freed_units.saturating_sub(units);
    }

    /// Something else is to be written: memory evicted before has gone to others.
    pub(super) fn forget_freed(&mut self) {
        self.freed_units = 0;
    }
}

#[cfg(test)]
impl Evictions {
    /// For the victim under way: the end of its moved survivors, and the beginning of the part not yet walked.
    pub(super) fn walked(&self, id: SegmentId) -> Option<(u32, u32)> {
        let victim = self.victim.as_ref().filter(|victim| victim.id == id)?;
        Some((victim.front, victim.cursor))
    }
}

/// The purpose of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// Something is to be written.
    Room,
    /// The grant was lowered by much.
    Shrink,
}

impl Occasion {
    /// Quarters of a segment that survive at most: a forced shrink has to end soon.
    fn surviving_quarters(self) -> u64 {
        match self {
            Self::Room => 3,
            Self::Shrink => 1,
        }
    }
}

/// Why a segment is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Makes room: the policy judges. At most this many quarters of the segment survive.
    Evict { quarters: u64 },
    /// Because little in it is live: everything live survives.
    Clean,
}

#[derive(Debug)]
struct Victim {
    id: SegmentId,
    purpose: Purpose,
    /// The queue of the survivors.
    to: Queue,
    /// Bytes walked.
    cursor: u32,
    /// Bytes of survivors moved together at the segment's beginning.
    front: u32,
    /// Live bytes seen, and those of them that survived.
    seen_bytes: u64,
    kept_bytes: u64,
    /// Least rank with which an item surely survives.
    bar: u8,
    /// The shard's flushes when the walk began.
    flushes: u64,
}

/// A live item of the victim.
#[derive(Clone, Copy)]
struct Candidate {
    place: u64,
    hash: KeyHash,
}

impl Shard {
    /// Walks a part of the victim if the next segment can only come from an eviction.
    #[inline]
    pub(super) fn pace(&mut self, queue: Queue, written: usize, now: UnixMs) {
        self.pace_by(Self::walk_and_tend, queue, written, now);
    }

    /// The same, and no item goes but the victim's: for a caller that uses an item afterwards.
    pub(super) fn pace_victim_only(&mut self, queue: Queue, written: usize, now: UnixMs) {
        self.pace_by(Self::walk_victim, queue, written, now);
    }

    #[inline]
    fn pace_by(&mut self, walk: fn(&mut Self, UnixMs) -> u64, queue: Queue, written: usize, now: UnixMs) {
        if !self.is_tight() {
            self.evictions.debt_bytes = 0;
            return;
        }
        self.evictions.longest_write = self.evictions.longest_write.max(written as u64);
        if self.evictions.victim.is_none() {
            let open = self.open[queue as usize].map(|id| &self.segments[id]);
            let (bytes, room) = open.map_or((0, 0), |open| (open.run.bytes() as u64, open.room_bytes() as u64));
            let is_late = self.evicts_late();
            let survivors = if is_late { self.evictions.survived_bytes } else { 0 };
            let may_wait = is_late && room > bytes / AHEAD_FRACTION + survivors + self.evictions.longest_write;
            if may_wait || !self.choose_victim(Occasion::Room) {
                return;
            }
            // Survivors fill the open segment too, so the victim must be empty when half of the free room that they
            // leave is written.
            let to_walk = self
                .evictions
                .victim
                .as_ref()
                .map_or(0, |v| u64::from(self.segments[v.id].used_bytes));
            let room = room.saturating_sub(survivors).max(room / 2);
            self.evictions.pace = (to_walk / (room / 2).max(1) + 1).min(64);
            self.evictions.longest_write /= 2;
        }
        self.evictions.debt_bytes += self.evictions.pace * written as u64;
        while self.evictions.debt_bytes >= BATCH_BYTES && self.evictions.victim.is_some() {
            let walked = walk(self, now);
            self.evictions.debt_bytes = self.evictions.debt_bytes.saturating_sub(walked);
        }
    }

    /// Empties a whole segment for a queue that needs room. `false` if there is none.
    pub(super) fn evict_one(&mut self, now: UnixMs) -> bool {
        self.freeing(|shard| shard.evict_segment(now))
    }

    /// Empties a whole segment to take its units for something else; open segments too if nothing else is left.
    pub(crate) fn evict_for_units(&mut self, now: UnixMs) -> bool {
        self.freeing(|shard| {
            if shard.spare.is_some() {
                shard.release_spare();
                return true;
            }
            let evicted = shard.evict_segment(now) || {
                shard.seal(Queue::Small);
                shard.seal(Queue::Main);
                shard.evict_segment(now)
            };
            shard.release_spare();
            evicted
        })
    }

    /// Notes the units freed for the present write.
    fn freeing(&mut self, free: impl FnOnce(&mut Self) -> bool) -> bool {
        let before = self.units;
        let done = free(self);
        self.evictions.freed_units += before.saturating_sub(self.units);
        done
    }

    fn evict_segment(&mut self, now: UnixMs) -> bool {
        if self.evictions.victim.is_none() && !self.choose_victim(Occasion::Room) {
            return false;
        }
        self.finish_victim(now);
        true
    }

    pub(super) fn release_spare(&mut self) {
        if let Some(spare) = self.spare.take() {
            self.put_run(spare);
        }
    }

    /// Walks a batch of the victim for a forced shrink. `false` if there is nothing to evict.
    pub(super) fn shrink_step(&mut self, now: UnixMs) -> bool {
        if self.evictions.victim.is_none() && !self.choose_victim(self.occasion()) {
            return false;
        }
        self.walk_and_tend(now);
        true
    }

    /// The last part of a shrink, or a small one, is done as if for room. It ends soon whatever survives. Items that
    /// the policy would rather give up go before the most used of the oldest.
    fn occasion(&self) -> Occasion {
        if self.shrinks_by_much() {
            Occasion::Shrink
        } else {
            Occasion::Room
        }
    }

    /// Walks a batch of a mostly dead segment, or begins with one. `false` if there is none.
    pub(super) fn clean_step(&mut self, now: UnixMs) -> bool {
        if self.evictions.victim.is_none() {
            let Some(id) = self.next_mostly_dead() else {
                return false;
            };
            self.begin_victim(id, Purpose::Clean);
        }
        self.walk_and_tend(now);
        true
    }

    /// Takes a particular sealed segment as the next victim, to keep its live items. `false` if another one is under
    /// way.
    pub(super) fn begin_cleaning(&mut self, id: SegmentId) -> bool {
        if self.evictions.victim.is_some() {
            return false;
        }
        self.begin_victim(id, Purpose::Clean);
        true
    }

    /// Ends the victim under way, if any.
    pub(super) fn finish_victim(&mut self, now: UnixMs) {
        while self.evictions.victim.is_some() {
            self.walk_and_tend(now);
        }
    }

    /// Forgets everything about evictions: the shard was emptied.
    pub(super) fn reset_evictions(&mut self) {
        self.evictions = Evictions::default();
    }

    fn choose_victim(&mut self, occasion: Occasion) -> bool {
        if let Some(id) = self.next_mostly_dead() {
            self.begin_victim(id, Purpose::Clean);
            return true;
        }
        self.fit_ghosts();
        let id = match occasion {
            Occasion::Room => self.policy_victim(),
            Occasion::Shrink => self.oldest_of_all(),
        };
        if let Some(id) = id {
            self.evictions.has_evicted = true;
            let quarters = occasion.surviving_quarters().min(self.quarters_to_cut(id));
            self.begin_victim(id, Purpose::Evict { quarters });
        }
        id.is_some()
    }

    /// Quarters of a segment that may survive so that it can be cut: half of one that is more than twice as large as
    /// new ones. A segment of just twice the size waits until so much goes by itself: a grant that moves about a border
    /// costs nothing.
    fn quarters_to_cut(&self, id: SegmentId) -> u64 {
        let is_far_too_large = self.segments[id].run.order > self.segment_order(0) + 1;
        if is_far_too_large { 2 } else { 4 }
    }

    /// The segment that the policy gives up next.
    fn policy_victim(&self) -> Option<SegmentId> {
        let first = self.victim_queue();
        self.oldest_unpinned(first)
            .or_else(|| self.oldest_unpinned(first.other()))
    }

    /// The oldest segment whatever its queue. A shrink to a small part could keep the queues' proportions. It would
    /// then keep the main queue's newest segments, which are older than all that it would take from the small one.
    fn oldest_of_all(&self) -> Option<SegmentId> {
        let oldest = [Queue::Small, Queue::Main].map(|queue| self.oldest_unpinned(queue));
        oldest
            .into_iter()
            .flatten()
            .min_by_key(|&id| self.segments[id].sequence)
    }

    fn oldest_unpinned(&self, queue: Queue) -> Option<SegmentId> {
        self.queues[queue as usize]
            .iter()
            .copied()
            .find(|&id| self.segments[id].pins == 0)
    }

    fn next_mostly_dead(&mut self) -> Option<SegmentId> {
        while let Some(id) = self.evictions.mostly_dead.pop() {
            // The note may be old: the segment may be gone, or its number another one's.
            let fits =
                |segment: &Segment| segment.state == State::Sealed && segment.is_mostly_dead() && segment.pins == 0;
            if self.segments.get(id).is_some_and(fits) {
                return Some(id);
            }
        }
        None
    }

    fn begin_victim(&mut self, id: SegmentId, purpose: Purpose) {
        self.unqueue(id);
        let segment = &mut self.segments[id];
        segment.state = State::Victim;
        // Counted anew while survivors are moved together.
        segment.expiries = None;
        let to = if purpose == Purpose::Clean {
            segment.queue
        } else {
            Queue::Main
        };
        let bar = match purpose {
            Purpose::Evict { quarters } if segment.queue == Queue::Main => self.evictions.bar(quarters),
            _ => 0,
        };
        if self.segments[id].queue == Queue::Main {
            // Half of the earlier counts is forgotten, so that the bar follows the load.
            self.evictions.met_bytes = self.evictions.met_bytes.map(|bytes| bytes / 2);
        }
        self.evictions.victim = Some(Victim {
            id,
            purpose,
            to,
            cursor: 0,
            front: 0,
            seen_bytes: 0,
            kept_bytes: 0,
            bar,
            flushes: self.flushes,
        });
    }

    pub(super) fn unqueue(&mut self, id: SegmentId) {
        let queue = &mut self.queues[self.segments[id].queue as usize];
        // Nearly always the first.
        if let Some(at) = queue.iter().position(|&queued| queued == id) {
            queue.remove(at);
        }
    }

    /// Judges the next batch of the victim's items and moves the index on. Returns the bytes walked.
    fn walk_and_tend(&mut self, now: UnixMs) -> u64 {
        let walked = self.walk_victim(now);
        self.tend_index();
        walked
    }

    /// Judges the next batch of the victim's items. Returns the bytes walked. Leaves the index to the caller: a step of it
    /// may evict whatever item.
    fn walk_victim(&mut self, now: UnixMs) -> u64 {
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
        if victim.cursor == self.segments[victim.id].used_bytes {
            self.end_victim(&victim);
        } else {
            self.evictions.victim = Some(victim);
        }
        walked
    }

    /// Loads ahead the beginning of the next batch's items. Between two batches so much happens elsewhere that the
    /// processor's own reading ahead begins anew.
    fn prefetch_next(&self, victim: &Victim) {
        let segment = &self.segments[victim.id];
        let begin = segment.run.offset() + u64::from(victim.cursor);
        let end = segment.run.offset() + u64::from(segment.used_bytes);
        let lines = (begin..end.min(begin + BATCH_BYTES)).step_by(LINE_BYTES as usize);
        lines.for_each(|line| self.arena().prefetch(line));
    }

    /// Finds the next live items and loads their index buckets ahead.
    fn collect(&self, victim: &mut Victim, batch: &mut [Candidate; BATCH_ITEMS]) -> usize {
        let segment = &self.segments[victim.id];
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
        let queue = self.segments[victim.id].queue;
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
            && victim.may_keep(bytes, rank, u64::from(self.segments[victim.id].used_bytes))
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
            None => self.segments[victim.id].run.offset() + u64::from(victim.front),
        };
        let (from, to) = (self.arena().at(place, bytes), self.arena().at(new_place, bytes));
        // SAFETY: both ranges lie in segments of this shard, which is exclusively borrowed. The source is a complete
        // item. The target is free room at an open segment's end, or the victim's front, which holds nothing live that
        // was not moved. The front ends at or before the source's end, so the ranges may overlap, which `copy` allows.
        unsafe { std::ptr::copy(from, to, bytes) };
        self.index.relocate(&self.shared.pool.arena, slot, new_place, uses);
        if copied_to.is_none() {
            victim.front += bytes as u32;
            self.segments[victim.id].add_expiry(expiry, bytes);
            return true;
        }
        let to = SegmentId(self.shared.pool.owner(new_place));
        self.segments[victim.id].live_bytes -= bytes as u32;
        self.segments[to].live_bytes += bytes as u32;
        self.segments[to].add_expiry(expiry, bytes);
        self.move_outside(victim.id, outside, Some(to));
        true
    }

    /// Room for a survivor in a segment that exists.
    fn append_survivor(&mut self, to: Queue, bytes: usize) -> Option<u64> {
        self.append_to_open(to, bytes).or_else(|| {
            self.seal(to);
            self.reopen(to, bytes).then(|| self.append_to_open(to, bytes)).flatten()
        })
    }

    /// The victim has been walked to its end: it is free, or holds its own survivors and becomes an open segment.
    fn end_victim(&mut self, victim: &Victim) {
        let id = victim.id;
        if victim.purpose != Purpose::Clean {
            self.evictions.survived_bytes = victim.kept_bytes;
        }
        if self.segments[id].live_bytes == 0 {
            let run = self.remove_segment(id);
            let fits = self.spare.is_none() && run.order == self.segment_order(0) && self.ghost_units_missing == 0;
            if fits && self.shared.excess() == 0 && self.shared.room() < run.units() {
                self.spare = Some(run);
            } else {
                self.put_run(run);
                self.fit_ghosts();
            }
            return;
        }
        let (old_queue, units) = (self.segments[id].queue, self.segments[id].held_units());
        *self.queue_units_mut(old_queue) -= units;
        self.segments[id].used_bytes = victim.front;
        self.cut(id);
        *self.queue_units_mut(victim.to) += self.segments[id].held_units();
        let segment = &mut self.segments[id];
        segment.left_bytes = 0;
        segment.queue = victim.to;
        segment.state = State::Open;
        let flushed_meanwhile = victim.flushes != self.flushes;
        if !flushed_meanwhile {
            // Nothing that was flushed is left in it: later flushes are told by a new number.
            segment.sequence = self.next_sequence;
            self.next_sequence += 1;
        }
        // The emptier of two segments to go on with is next. A flush's dead items in here are told by the segment's old
        // number, so nothing new may be added to it.
        let room = segment.room_bytes();
        let other = self.open[victim.to as usize].take();
        let goes_on = !flushed_meanwhile && other.is_none_or(|other| self.segments[other].room_bytes() < room);
        let (next, last) = if goes_on { (Some(id), other) } else { (other, Some(id)) };
        self.open[victim.to as usize] = last;
        self.seal(victim.to);
        self.open[victim.to as usize] = next;
    }

    /// Gives back the end of a segment that was made under a larger grant, if its items leave room for that. A shard
    /// that shrank would otherwise evict in pieces that are large beside it, and have as much lie idle in open
    /// segments.
    fn cut(&mut self, id: SegmentId) {
        let Segment { run, used_bytes, .. } = self.segments[id];
        let order = self.segment_order(used_bytes as usize);
        if order < run.order {
            self.segments[id].run = self.put_end(run, order);
        }
        // A segment of the usual size by now is no leftover any more.
        let is_leftover = self.segments[id].is_leftover && self.segments[id].run.order < self.segment_order(0);
        self.segments.set_leftover(id, is_leftover);
    }

    /// Returns the memory of a sealed segment in which nothing is live.
    pub(super) fn free_sealed(&mut self, id: SegmentId) {
        if self.segments[id].pins == 0 {
            self.unqueue(id);
            let run = self.remove_segment(id);
            self.put_run(run);
        }
    }

    /// Nothing in the open segment is live: it begins anew.
    pub(super) fn restart_open(&mut self, id: SegmentId) {
        let segment = &mut self.segments[id];
        if segment.pins == 0 {
            segment.used_bytes = 0;
            segment.left_bytes = 0;
            segment.expiries = None;
        }
    }

    pub(super) fn remove_segment(&mut self, id: SegmentId) -> Run {
        let segment = self.segments.remove(id);
        debug_assert!(segment.live_bytes == 0 && segment.outside_units == 0 && segment.pins == 0);
        *self.queue_units_mut(segment.queue) -= segment.held_units();
        segment.run
    }
}

impl Evictions {
    /// The least uses with which all items so used fit into that many quarters of a segment, going by those met lately.
    fn bar(&self, quarters: u64) -> u8 {
        let all: u64 = self.met_bytes.iter().sum();
        let mut above = 0;
        let fits = |&uses: &u8| {
            above += self.met_bytes[uses as usize];
            above * 4 <= all * quarters
        };
        (1..=USES_MAX).rev().take_while(fits).last().unwrap_or(USES_MAX)
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
