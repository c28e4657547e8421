//! A shard's log: its segments, the queues that they wait in, and those that are being written to.
//!
//! It knows segments and bytes, and neither keys nor the index nor the grant. A caller that lets an item go says how many
//! bytes of a segment died, and is handed the memory that comes free.
//!
//! Invariants: a segment is where its state says. An open one is the one that its queue is appended to, a sealed one waits in
//! its queue once, a victim is in neither. The units of a queue are those that its segments stand for, whatever their state.

#[cfg(test)]
mod audit;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ops::{Index, IndexMut};

use tidemark_types::{UNIT_BYTES, UnixMs};

use crate::policy::{Queue, QueueBytes};
use crate::pool::Run;
use crate::segment::{Segment, SegmentId, Segments, State};

/// A segment that ended with so large a part of it free is gone on with later.
const UNFILLED_FRACTION: usize = 8;
/// Such segments remembered at most: each is a few per cent of a shard at worst, and mostly there are none.
const UNFILLED_MAX: usize = 8;
/// Times of expiry remembered beyond two for each segment, so that a small shard does not make its list again and again.
const EXPIRIES_KEPT: usize = 64;

/// The log of a shard. See the module's head.
#[derive(Debug)]
pub(super) struct Log {
    segments: Segments,
    /// Sealed segments, oldest first, of the small and the main queue.
    queues: [VecDeque<SegmentId>; 2],
    open: [Option<SegmentId>; 2],
    /// Units that each queue's segments stand for, with values outside of the log.
    queue_units: [u64; 2],
    /// Sealed segments with room left, as far as known.
    unfilled: Vec<SegmentId>,
    /// Segments that replies are being sent from.
    pinned: Vec<SegmentId>,
    /// Those of them whose items are gone, by their first unit.
    detached: HashMap<u32, Segment>,
    /// When segments will be mostly expired, soonest first.
    expiries: BinaryHeap<Reverse<(UnixMs, u64, SegmentId)>>,
    next_sequence: u64,
    next_queued: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            segments: Segments::default(),
            queues: Default::default(),
            open: [None; 2],
            queue_units: [0; 2],
            unfilled: Vec::new(),
            pinned: Vec::new(),
            detached: HashMap::new(),
            expiries: BinaryHeap::new(),
            next_sequence: 1,
            next_queued: 1,
        }
    }
}

/// Reading.
impl Log {
    /// A segment, if the number is still one's.
    pub(super) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.segments.iter()
    }

    /// Segments that exist.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Numbers that were ever in use are below this.
    pub(super) fn end(&self) -> u32 {
        self.segments.end()
    }

    /// Segments made of the rest of a grant.
    pub(super) fn leftovers(&self) -> usize {
        self.segments.leftovers()
    }

    /// The sequence number of the next segment.
    pub(super) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The segment that a queue is appended to.
    pub(super) fn open_of(&self, queue: Queue) -> Option<SegmentId> {
        self.open[queue as usize]
    }

    pub(super) fn has_open(&self) -> bool {
        self.open.iter().any(Option::is_some)
    }

    /// A queue's sealed segments, oldest first.
    pub(super) fn sealed_of(&self, queue: Queue) -> &VecDeque<SegmentId> {
        &self.queues[queue as usize]
    }

    pub(super) fn queue_bytes(&self) -> QueueBytes {
        let [small, main] = self.queue_units.map(|units| units * UNIT_BYTES);
        QueueBytes { small, main }
    }

    /// Units that replies are being sent from after their items went.
    pub(super) fn detached_units(&self) -> u64 {
        self.detached.values().map(|segment| segment.run.units()).sum()
    }

    /// A queue's oldest sealed segment that no reply is being sent from.
    pub(super) fn oldest_of(&self, queue: Queue) -> Option<SegmentId> {
        let mut sealed = self.queues[queue as usize].iter().copied();
        sealed.find(|&id| self.segments[id].pins == 0)
    }

    /// The older of both queues' oldest.
    pub(super) fn oldest(&self) -> Option<SegmentId> {
        let oldest = [Queue::Small, Queue::Main].map(|queue| self.oldest_of(queue));
        oldest
            .into_iter()
            .flatten()
            .min_by_key(|&id| self.segments[id].sequence)
    }
}

/// Appending.
impl Log {
    /// Room at a queue's newest end, if its open segment has that much.
    #[inline]
    pub(super) fn append(&mut self, queue: Queue, bytes: usize) -> Option<u64> {
        let segment = &mut self.segments[self.open[queue as usize]?];
        if segment.room_bytes() < bytes {
            return None;
        }
        let place = segment.run.offset() + u64::from(segment.used_bytes);
        segment.used_bytes += bytes as u32;
        Some(place)
    }

    /// Makes a run the open segment of a queue that has none.
    pub(super) fn open(&mut self, queue: Queue, run: Run, now: UnixMs) -> SegmentId {
        let id = self.segments.insert(Segment {
            run,
            queue,
            state: State::Open,
            used_bytes: 0,
            live_bytes: 0,
            left_bytes: 0,
            outside_units: 0,
            pins: 0,
            sequence: 0,
            queued: 0,
            opened: now,
            is_leftover: false,
            expiries: None,
        });
        self.renumber(id);
        self.queue_units[queue as usize] += run.units();
        self.open[queue as usize] = Some(id);
        id
    }

    /// Goes on with a segment that was sealed early, if one with room for `bytes` is known. Items that a flush killed are told
    /// by their segment's number, so that nothing may be added to one with a lower number than `sequence_min`.
    pub(super) fn reopen(&mut self, queue: Queue, bytes: usize, sequence_min: u64) -> bool {
        let segments = &self.segments;
        let fits = |id: &SegmentId| {
            segments.get(*id).is_some_and(|segment| {
                segment.state == State::Sealed
                    && segment.queue == queue
                    && segment.room_bytes() >= bytes
                    && segment.sequence >= sequence_min
            })
        };
        let Some(at) = self.unfilled.iter().position(fits) else {
            return false;
        };
        let id = self.unfilled.swap_remove(at);
        self.unqueue(id);
        self.segments[id].state = State::Open;
        self.open[queue as usize] = Some(id);
        true
    }

    /// Ends a queue's open segment, which goes to the queue's newest end.
    pub(super) fn seal(&mut self, queue: Queue) -> Option<SegmentId> {
        let id = self.open[queue as usize].take()?;
        let segment = &mut self.segments[id];
        segment.state = State::Sealed;
        if let Some(at) = segment.mostly_expired_at() {
            let sequence = segment.sequence;
            self.expiries.push(Reverse((at, sequence, id)));
        }
        self.enqueue(queue, id);
        Some(id)
    }

    /// Remembers a sealed segment that has room left, to go on with it later.
    pub(super) fn note_unfilled(&mut self, id: SegmentId) {
        let segment = &self.segments[id];
        if segment.room_bytes() < segment.run.bytes() / UNFILLED_FRACTION {
            return;
        }
        if self.unfilled.len() == UNFILLED_MAX {
            self.unfilled.remove(0);
        }
        self.unfilled.push(id);
    }

    /// Makes the small queue's oldest segment the main queue's newest, without copying. Whether there was one.
    pub(super) fn promote(&mut self) -> bool {
        let Some(id) = self.queues[Queue::Small as usize].pop_front() else {
            return false;
        };
        self.assign(id, Queue::Main);
        self.enqueue(Queue::Main, id);
        true
    }

    /// Makes another segment, or none, the one that a queue is appended to. Returns the one before.
    pub(super) fn exchange_open(&mut self, queue: Queue, id: Option<SegmentId>) -> Option<SegmentId> {
        std::mem::replace(&mut self.open[queue as usize], id)
    }

    /// Puts a segment at a queue's newest end.
    fn enqueue(&mut self, queue: Queue, id: SegmentId) {
        self.segments[id].queued = self.next_queued;
        self.next_queued += 1;
        self.queues[queue as usize].push_back(id);
    }

    fn unqueue(&mut self, id: SegmentId) {
        let queue = &mut self.queues[self.segments[id].queue as usize];
        // Nearly always the first.
        if let Some(at) = queue.iter().position(|&queued| queued == id) {
            queue.remove(at);
        }
    }

    /// Counts a segment to a queue.
    fn assign(&mut self, id: SegmentId, queue: Queue) {
        let segment = &mut self.segments[id];
        let units = segment.held_units();
        let before = std::mem::replace(&mut segment.queue, queue);
        self.queue_units[before as usize] -= units;
        self.queue_units[queue as usize] += units;
    }
}

/// Segments as a whole.
impl Log {
    /// Makes a segment as new as what will be added to it.
    pub(super) fn renumber(&mut self, id: SegmentId) {
        self.segments[id].sequence = self.next_sequence;
        self.next_sequence += 1;
    }

    /// Says whether a segment is made of the rest of the grant.
    pub(super) fn set_leftover(&mut self, id: SegmentId, is_leftover: bool) {
        self.segments.set_leftover(id, is_leftover);
    }

    /// Takes a sealed segment out of its queue to be emptied.
    pub(super) fn begin_victim(&mut self, id: SegmentId) {
        self.unqueue(id);
        let segment = &mut self.segments[id];
        segment.state = State::Victim;
        // Counted anew while survivors are moved together.
        segment.expiries = None;
    }

    /// A victim was walked to its end, and its survivors lie together in its first bytes: it is an open segment of a queue,
    /// which the caller puts in its place ([`Self::exchange_open`]).
    pub(super) fn end_victim(&mut self, id: SegmentId, used_bytes: u32, queue: Queue) {
        let segment = &mut self.segments[id];
        segment.used_bytes = used_bytes;
        segment.left_bytes = 0;
        segment.state = State::Open;
        self.assign(id, queue);
    }

    /// The end of a segment's memory was given back.
    pub(super) fn shorten(&mut self, id: SegmentId, run: Run) {
        let segment = &mut self.segments[id];
        self.queue_units[segment.queue as usize] -= segment.run.units() - run.units();
        segment.run = run;
    }

    /// Takes an empty segment out. Its memory is the caller's.
    pub(super) fn remove(&mut self, id: SegmentId) -> Run {
        let segment = self.segments.remove(id);
        debug_assert!(segment.live_bytes == 0 && segment.outside_units == 0 && segment.pins == 0);
        self.queue_units[segment.queue as usize] -= segment.held_units();
        segment.run
    }

    /// If nothing is live in a segment, and no reply is being sent from it, begins an open one anew, and takes a sealed one
    /// out, whose memory is the caller's.
    pub(super) fn free_if_dead(&mut self, id: SegmentId) -> Option<Run> {
        let segment = &mut self.segments[id];
        if segment.live_bytes > 0 || segment.pins > 0 {
            return None;
        }
        match segment.state {
            State::Open => {
                segment.used_bytes = 0;
                segment.left_bytes = 0;
                segment.expiries = None;
                None
            }
            State::Sealed => {
                self.unqueue(id);
                Some(self.remove(id))
            }
            // The end of its walk frees it.
            State::Victim => None,
        }
    }

    /// Takes all segments out, which are the caller's but for those that replies are being sent from: these keep their memory
    /// until then, and nothing else.
    pub(super) fn take(&mut self) -> Segments {
        for id in std::mem::take(&mut self.pinned) {
            let segment = self.segments.remove(id);
            self.detached.insert(segment.run.start, segment);
        }
        let emptied = Self {
            detached: std::mem::take(&mut self.detached),
            next_sequence: self.next_sequence,
            next_queued: self.next_queued,
            ..Self::default()
        };
        std::mem::replace(self, emptied).segments
    }

    /// Keeps a segment in place and as it is, until [`Self::unpin`].
    pub(super) fn pin(&mut self, id: SegmentId) {
        let segment = &mut self.segments[id];
        segment.pins += 1;
        if segment.pins == 1 {
            self.pinned.push(id);
        }
    }

    /// Ends a pin of the segment that had this number and began with this unit. Returns memory that nothing keeps any more.
    pub(super) fn unpin(&mut self, id: SegmentId, first: u32) -> Option<Run> {
        if let Some(segment) = self.detached.get_mut(&first) {
            segment.pins -= 1;
            if segment.pins > 0 {
                return None;
            }
            return self.detached.remove(&first).map(|segment| segment.run);
        }
        let segment = &mut self.segments[id];
        segment.pins -= 1;
        if segment.pins > 0 {
            return None;
        }
        // Few are pinned at a time.
        self.pinned.retain(|&pinned| pinned != id);
        self.free_if_dead(id)
    }
}

/// Counts of items.
impl Log {
    /// Counts a stub's units to another segment, or to none.
    pub(super) fn move_outside(&mut self, from: SegmentId, units: u32, to: Option<SegmentId>) {
        if units == 0 {
            return;
        }
        self.add_outside(from, -i64::from(units));
        if let Some(to) = to {
            self.add_outside(to, i64::from(units));
        }
    }

    pub(super) fn add_outside(&mut self, id: SegmentId, units: i64) {
        let segment = &mut self.segments[id];
        segment.outside_units = segment.outside_units.saturating_add_signed(units as i32);
        let held = &mut self.queue_units[segment.queue as usize];
        *held = held.saturating_add_signed(units);
    }

    /// The next sealed segment of which half has expired, and that no reply is being sent from.
    pub(super) fn next_mostly_expired(&mut self, now: UnixMs) -> Option<SegmentId> {
        while let Some(&Reverse((at, sequence, id))) = self.expiries.peek()
            && at <= now
        {
            let is_it =
                |segment: &Segment| segment.sequence == sequence && segment.state == State::Sealed && segment.pins == 0;
            if self.segments.get(id).is_some_and(is_it) {
                return Some(id);
            }
            self.expiries.pop();
        }
        None
    }

    /// Segments that went before their items expired leave their entries behind. If these are the more part, the list is made
    /// again.
    pub(super) fn forget_old_expiries(&mut self) {
        if self.expiries.len() <= 2 * self.segments.len() + EXPIRIES_KEPT {
            return;
        }
        let sealed = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.state == State::Sealed);
        let entry =
            |(id, segment): (SegmentId, &Segment)| Some(Reverse((segment.mostly_expired_at()?, segment.sequence, id)));
        self.expiries = sealed.filter_map(entry).collect();
    }
}

impl Index<SegmentId> for Log {
    type Output = Segment;

    #[inline]
    fn index(&self, id: SegmentId) -> &Segment {
        &self.segments[id]
    }
}

impl IndexMut<SegmentId> for Log {
    #[inline]
    fn index_mut(&mut self, id: SegmentId) -> &mut Segment {
        &mut self.segments[id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Pool, undriven};
    use std::time::Duration;
    use tidemark_types::{MIB, Policy};

    const NOW: UnixMs = UnixMs(1_000_000_000_000);
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

    #[test]
    fn segments_that_were_evicted_leave_no_entries_behind() {
        let pool = Pool::without_thread(8 * MIB, Some(16 * MIB)).unwrap();
        let store = undriven::tenant(&pool, 1, Policy::Fifo, 1, 4 * MIB);
        let attributes = Attributes {
            expiry: Some(NOW.plus(MONTH)),
            ..Attributes::default()
        };
        let mut sealed = 0;
        for number in 0..60_000_u32 {
            let key = number.to_string();
            let key = store.key(0, key.as_bytes());
            let mut shard = store.lock(0);
            let before = shard.log.expiries.len();
            shard.put(&key, &[7; 1000], attributes, NOW).unwrap();
            let log = &shard.log;
            sealed += usize::from(log.expiries.len() > before);
            assert!(
                log.expiries.len() <= 2 * log.segments.len() + EXPIRIES_KEPT,
                "after {number} items"
            );
        }
        assert!(sealed > 4 * EXPIRIES_KEPT, "{sealed} segments are not enough to tell");
    }
}
