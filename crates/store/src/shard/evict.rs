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

mod walk;

use tidemark_types::UnixMs;

use super::Shard;
use crate::index::USES_MAX;
use crate::policy::Queue;
use crate::segment::{Segment, SegmentId, State};

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
            let open = self.log.open_of(queue).map(|id| &self.log[id]);
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
                .map_or(0, |v| u64::from(self.log[v.id].used_bytes));
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
            // A shrink to a small part could keep the queues' proportions. It would then keep the main queue's newest
            // segments, which are older than all that it would take from the small one.
            Occasion::Shrink => self.log.oldest(),
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
        let is_far_too_large = self.log[id].run.order > self.segment_order(0) + 1;
        if is_far_too_large { 2 } else { 4 }
    }

    /// The segment that the policy gives up next.
    fn policy_victim(&self) -> Option<SegmentId> {
        let first = self.victim_queue();
        self.log.oldest_of(first).or_else(|| self.log.oldest_of(first.other()))
    }

    fn next_mostly_dead(&mut self) -> Option<SegmentId> {
        while let Some(id) = self.evictions.mostly_dead.pop() {
            // The note may be old: the segment may be gone, or its number another one's.
            let fits =
                |segment: &Segment| segment.state == State::Sealed && segment.is_mostly_dead() && segment.pins == 0;
            if self.log.get(id).is_some_and(fits) {
                return Some(id);
            }
        }
        None
    }

    fn begin_victim(&mut self, id: SegmentId, purpose: Purpose) {
        self.log.begin_victim(id);
        let segment = &self.log[id];
        let to = if purpose == Purpose::Clean {
            segment.queue
        } else {
            Queue::Main
        };
        let bar = match purpose {
            Purpose::Evict { quarters } if segment.queue == Queue::Main => self.evictions.bar(quarters),
            _ => 0,
        };
        if self.log[id].queue == Queue::Main {
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
