//! Copying used items to the newest end of the log, for the policy that wants it ([`ApproxLru`]). A custom policy is
//! told here of used items.
//!
//! Invariants: a copy is the item, not another one. Its token, its expiry and its uses stay, nothing is counted as
//! written and nothing recorded, and its old place is dead at once. A copy takes only room that is at hand, so that a
//! get neither fails for it nor waits for a whole eviction. Without room, the item stays where it is.

use tidemark_types::{LogShare, UnixMs};

use super::{Shard, item_at};
use crate::index::Slot;
use crate::policy::{ApproxLru, Queue, copied_beyond};
use crate::segment::State;

impl Shard {
    /// An item was used: copies it to the newest end if its place is too old, or tells the program's policy. Returns where
    /// it is now.
    #[cold]
    pub(super) fn renew(&mut self, slot: Slot, place: u64, now: UnixMs) -> u64 {
        let Some(share) = copied_beyond(self.shared.policy()) else {
            self.note_use(place);
            return place;
        };
        // Without a grant all items are about to go, and only a write asks for one.
        if self.shared.grant() == 0 || !self.is_to_be_copied(share, place) {
            return place;
        }
        let bytes = self.item(place).bytes();
        // Evictions run ahead of copies as they do of writes. If they did not, the next write makes room. Until then
        // nothing goes, and nothing need be copied.
        let Some(new_place) = self.append_at_hand(Queue::Main, bytes, now) else {
            return place;
        };
        self.copy_to(new_place, slot, place);
        self.pace_victim_only(Queue::Main, bytes, now);
        new_place
    }

    /// Whether more than the share of the log is newer than the item at `place`.
    fn is_to_be_copied(&self, share: LogShare, place: u64) -> bool {
        let segment = &self.log[self.segment_of(place)];
        if segment.state == State::Open && segment.queue == Queue::Main {
            return false;
        }
        // A log that can still grow is as long as it can be: while nothing has to go, nothing need be copied.
        let log = self.log.len() + self.segments_at_hand();
        let policy = ApproxLru::new(share, log);
        match (segment.state, segment.queue) {
            (State::Sealed, Queue::Main) => {
                let queue = self.log.sealed_of(Queue::Main);
                let behind = usize::from(self.log.open_of(Queue::Main).is_some());
                let first_kept = queue.get(policy.copied_of(queue.len(), behind));
                first_kept.is_none_or(|&id| segment.queued < self.log[id].queued)
            }
            // Items that another policy put into the small queue go before all that are in the main one.
            (State::Open | State::Sealed, _) => policy.copies(self.log.len() - 1),
            // A segment that is being emptied goes even if the log can grow again.
            (State::Victim, _) => policy.copies(log - 1),
        }
    }

    /// Segments that can be opened without an eviction.
    fn segments_at_hand(&self) -> usize {
        let room = self.shared.room() >> self.segment_order(0);
        room as usize + usize::from(self.spare.is_some())
    }

    /// Room at a queue's end that takes no eviction.
    fn append_at_hand(&mut self, queue: Queue, bytes: usize, now: UnixMs) -> Option<u64> {
        self.evictions.forget_freed();
        self.log.append(queue, bytes).or_else(|| {
            self.open_at_hand(queue, bytes, now)
                .then(|| self.log.append(queue, bytes))
                .flatten()
        })
    }

    /// Moves an item to free room that was reserved at an open segment's end.
    fn copy_to(&mut self, new_place: u64, slot: Slot, place: u64) {
        let item = item_at(&self.shared.pool.arena, place);
        let (bytes, expiry, outside) = (item.bytes(), item.expiry(), item.outside_count());
        let (from, to) = (self.arena().at(place, bytes), self.arena().at(new_place, bytes));
        // SAFETY: both ranges lie in segments of this shard, which is exclusively borrowed. The source is a complete
        // item, the target free room, so that they do not overlap. Only the header of the item is changed, which no
        // reply is sent from.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, bytes);
            item.kill();
        }
        let uses = self.index.uses(self.arena(), slot);
        self.index.relocate(&self.shared.pool.arena, slot, new_place, uses);
        let [old, new] = [place, new_place].map(|place| self.segment_of(place));
        self.log[new].live_bytes += bytes as u32;
        self.log[new].add_expiry(expiry, bytes);
        self.log[old].leave(bytes, expiry);
        self.log.move_outside(old, outside, Some(new));
        self.free_if_dead(old);
    }
}

#[cfg(test)]
mod tests;
