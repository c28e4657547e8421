//! A segment: a run of units that items are appended to, and its record.
//!
//! Invariant: `live_bytes` is exactly the sum of the sizes of the items in it that are not dead. When it is zero, no index
//! entry names a place in the segment, and its memory may go.

use tidemark_types::UnixMs;

use crate::policy::Queue;
use crate::pool::Run;

/// A segment's number within its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) u32);

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Being appended to.
    Open,
    /// Full, in its queue.
    Sealed,
    /// Out of its queue, being emptied.
    Victim,
}

/// The record of one of a shard's segments.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) run: Run,
    pub(crate) queue: Queue,
    pub(crate) state: State,
    /// Bytes appended.
    pub(crate) used_bytes: u32,
    /// The bytes of items among those that are not dead.
    pub(crate) live_bytes: u32,
    /// The bytes of items that a copy at the newest end has replaced.
    pub(crate) left_bytes: u32,
    /// Units outside of the log that belong to live stubs in it.
    pub(crate) outside_units: u32,
    /// Replies that are being sent from here; the bytes must not move or change.
    pub(crate) pins: u32,
    /// Grows from segment to segment of a shard.
    pub(crate) sequence: u64,
    /// Grows from segment to segment of a queue.
    pub(crate) queued: u64,
    pub(crate) opened: UnixMs,
    /// Made of the rest of the grant below a usual segment.
    pub(crate) is_leftover: bool,
    pub(crate) expiries: Option<Box<ExpiryCounts>>,
}

impl Segment {
    /// Bytes that can still be appended.
    pub(crate) fn room_bytes(&self) -> usize {
        self.run.bytes() - self.used_bytes as usize
    }

    /// Memory that it stands for, with the values outside of the log.
    pub(crate) fn held_units(&self) -> u64 {
        self.run.units() + u64::from(self.outside_units)
    }

    /// The bytes that are worth cleaning the segment for. The places that copies left are not: they go when the
    /// segment's turn comes. Cleaning would carry the segment's unused items to the newest end, where the policy that
    /// copies wants the used ones.
    fn wasted_bytes(&self) -> u32 {
        self.used_bytes - self.live_bytes - self.left_bytes
    }

    /// Whether more than half of the appended bytes is wasted.
    pub(crate) fn is_mostly_dead(&self) -> bool {
        self.used_bytes - self.wasted_bytes() < self.used_bytes / 2
    }

    /// One of its items was copied to the newest end: its old place is dead.
    pub(crate) fn leave(&mut self, bytes: usize, expiry: Option<UnixMs>) {
        self.live_bytes -= bytes as u32;
        self.left_bytes += bytes as u32;
        self.remove_expiry(expiry, bytes);
    }

    /// Counts bytes that expire.
    pub(crate) fn add_expiry(&mut self, expiry: Option<UnixMs>, bytes: usize) {
        if let Some(expiry) = expiry {
            self.expiries
                .get_or_insert_default()
                .add(self.opened, expiry, bytes as u32);
        }
    }

    /// Takes back what [`Self::add_expiry`] counted.
    pub(crate) fn remove_expiry(&mut self, expiry: Option<UnixMs>, bytes: usize) {
        if let (Some(expiry), Some(counts)) = (expiry, &mut self.expiries) {
            counts.remove(self.opened, expiry, bytes as u32);
        }
    }

    /// When at least half of the segment will be wasted or expired if nothing else happens; `None` if that will not be so.
    pub(crate) fn mostly_expired_at(&self) -> Option<UnixMs> {
        let wanted = (self.used_bytes / 2 + 1).saturating_sub(self.wasted_bytes());
        self.expiries.as_ref()?.reaches(self.opened, wanted)
    }
}

/// Live bytes of a segment by the octave of their remaining life when the segment was opened. Count `n` is of bytes
/// that expire less than 2^n ms after it.
#[derive(Debug)]
pub(crate) struct ExpiryCounts([u32; OCTAVES]);

/// 2^48 ms is the largest expiry time; one more for times that have passed.
const OCTAVES: usize = 50;

impl Default for ExpiryCounts {
    fn default() -> Self {
        Self([0; OCTAVES])
    }
}

impl ExpiryCounts {
    fn octave(opened: UnixMs, expiry: UnixMs) -> usize {
        let life = expiry.0.saturating_sub(opened.0);
        ((u64::BITS - life.leading_zeros()) as usize).min(OCTAVES - 1)
    }

    fn add(&mut self, opened: UnixMs, expiry: UnixMs, bytes: u32) {
        let count = &mut self.0[Self::octave(opened, expiry)];
        *count = count.saturating_add(bytes);
    }

    /// Saturates, because a segment that is being compacted counts anew while old items are still being removed.
    fn remove(&mut self, opened: UnixMs, expiry: UnixMs, bytes: u32) {
        let count = &mut self.0[Self::octave(opened, expiry)];
        *count = count.saturating_sub(bytes);
    }

    /// The moment by which at least `wanted` bytes have certainly expired.
    fn reaches(&self, opened: UnixMs, wanted: u32) -> Option<UnixMs> {
        let mut sum = 0_u64;
        let octave = self.0.iter().position(|&count| {
            sum += u64::from(count);
            sum >= u64::from(wanted)
        })?;
        Some(UnixMs(opened.0.saturating_add(1 << octave)))
    }
}

/// A shard's segments by number.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    slots: Vec<Option<Segment>>,
    free: Vec<u32>,
    leftovers: usize,
}

impl Segments {
    pub(crate) fn insert(&mut self, segment: Segment) -> SegmentId {
        self.leftovers += usize::from(segment.is_leftover);
        if let Some(free) = self.free.pop() {
            self.slots[free as usize] = Some(segment);
            return SegmentId(free);
        }
        self.slots.push(Some(segment));
        SegmentId(self.slots.len() as u32 - 1)
    }

    pub(crate) fn remove(&mut self, id: SegmentId) -> Segment {
        let segment = self.slots[id.0 as usize].take();
        self.free.push(id.0);
        let Some(segment) = segment else {
            unreachable!("segment {} was removed before", id.0)
        };
        self.leftovers -= usize::from(segment.is_leftover);
        segment
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Says whether a segment is made of the rest of the grant.
    pub(crate) fn set_leftover(&mut self, id: SegmentId, is_leftover: bool) {
        let was_leftover = std::mem::replace(&mut self[id].is_leftover, is_leftover);
        self.leftovers += usize::from(is_leftover);
        self.leftovers -= usize::from(was_leftover);
    }

    /// Those that are.
    pub(crate) fn leftovers(&self) -> usize {
        self.leftovers
    }

    /// All of them, and empty places between them.
    pub(crate) fn into_slots(self) -> std::vec::IntoIter<Option<Segment>> {
        self.slots.into_iter()
    }

    /// Numbers that were ever in use are below this.
    pub(crate) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Segments that exist.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let numbered = self.slots.iter().zip(0..);
        numbered.filter_map(|(segment, id)| Some((SegmentId(id), segment.as_ref()?)))
    }
}

impl std::ops::Index<SegmentId> for Segments {
    type Output = Segment;

    fn index(&self, id: SegmentId) -> &Segment {
        match &self.slots[id.0 as usize] {
            Some(segment) => segment,
            None => unreachable!("segment {} does not exist", id.0),
        }
    }
}

impl std::ops::IndexMut<SegmentId> for Segments {
    fn index_mut(&mut self, id: SegmentId) -> &mut Segment {
        match &mut self.slots[id.0 as usize] {
            Some(segment) => segment,
            None => unreachable!("segment {} does not exist", id.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENED: UnixMs = UnixMs(1_000_000);

    fn at(ms: u64) -> Option<UnixMs> {
        Some(UnixMs(OPENED.0 + ms))
    }

    fn segment() -> Segment {
        Segment {
            run: Run {
                start: 1,
                order: 0,
                clean: true,
            },
            queue: Queue::Main,
            state: State::Open,
            used_bytes: 1000,
            live_bytes: 1000,
            left_bytes: 0,
            outside_units: 0,
            pins: 0,
            sequence: 1,
            queued: 0,
            is_leftover: false,
            opened: OPENED,
            expiries: None,
        }
    }

    #[test]
    fn the_time_when_half_has_expired_is_never_too_early() {
        let mut segment = segment();
        assert_eq!(segment.mostly_expired_at(), None);
        segment.add_expiry(at(900), 400);
        assert_eq!(
            segment.mostly_expired_at(),
            None,
            "400 of 1000 bytes are less than half"
        );
        segment.add_expiry(at(5_000), 200);
        assert_eq!(segment.mostly_expired_at(), at(8192));
        segment.live_bytes -= 200;
        assert_eq!(segment.mostly_expired_at(), at(1024), "dead bytes count");
        segment.remove_expiry(at(900), 400);
        segment.remove_expiry(at(5_000), 200);
        assert_eq!(segment.mostly_expired_at(), None);
    }

    #[test]
    fn what_copies_left_behind_is_not_cleaned_away() {
        let mut segment = segment();
        segment.add_expiry(at(900), 600);
        segment.add_expiry(at(5_000), 400);
        segment.leave(600, at(900));
        assert_eq!((segment.live_bytes, segment.is_mostly_dead()), (400, false));
        assert_eq!(segment.mostly_expired_at(), None, "400 of 1000 bytes expire");
        segment.leave(50, at(5_000));
        segment.live_bytes -= 350;
        segment.remove_expiry(at(5_000), 350);
        assert!(!segment.is_mostly_dead(), "350 of 1000 bytes were deleted");
        segment.left_bytes -= 151;
        assert!(segment.is_mostly_dead(), "501 of them were");
    }

    #[test]
    fn numbers_are_used_again() {
        let mut segments = Segments::default();
        let first = segments.insert(segment());
        let second = segments.insert(segment());
        assert_ne!(first, second);
        segments.remove(first);
        assert_eq!(segments.len(), 1);
        assert_eq!(segments.insert(segment()), first);
        assert_eq!(segments.iter().map(|(id, _)| id).collect::<Vec<_>>(), [first, second]);
        assert_eq!(segments.len(), 2);
    }
}
