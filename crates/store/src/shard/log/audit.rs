//! Checks the log's invariants from the ground up. For tests.

use std::collections::VecDeque;

use super::Log;
use crate::segment::{Segment, SegmentId, State};

impl Log {
    /// # Panics
    /// If an invariant of the log does not hold.
    pub(in crate::shard) fn audit(&self) {
        let mut queue_units = [0; 2];
        for (id, segment) in self.segments.iter() {
            assert_eq!(segment.pins > 0, self.pinned.contains(&id), "{id:?} {segment:?}");
            queue_units[segment.queue as usize] += segment.held_units();
            self.audit_place(id, segment);
            let dead = segment.used_bytes - segment.live_bytes;
            assert!(segment.left_bytes <= dead, "{id:?} {segment:?}");
        }
        assert!(self.detached.values().all(|segment| segment.pins > 0));
        let leftovers = self.segments.iter().filter(|(_, segment)| segment.is_leftover);
        assert_eq!(self.segments.leftovers(), leftovers.count(), "leftovers");
        assert_eq!(self.queue_units, queue_units, "units by queue");
        let in_order = |queue: &VecDeque<SegmentId>| queue.iter().is_sorted_by_key(|&id| self.segments[id].queued);
        assert!(self.queues.iter().all(in_order), "queues in their order");
    }

    /// A segment is where its state says.
    fn audit_place(&self, id: SegmentId, segment: &Segment) {
        let queued = self.queues[segment.queue as usize]
            .iter()
            .filter(|&&queued| queued == id)
            .count();
        let open = self.open[segment.queue as usize] == Some(id);
        let expected = match segment.state {
            State::Open => (0, true),
            State::Sealed => (1, false),
            State::Victim => (0, false),
        };
        assert_eq!((queued, open), expected, "{id:?} {segment:?}");
        let other = segment.queue.other();
        assert!(!self.queues[other as usize].contains(&id) && self.open[other as usize] != Some(id));
    }
}
