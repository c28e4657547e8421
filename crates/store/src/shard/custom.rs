//! The policy that decides for a shard, built-in or custom, and the program's events about items that leave.
//!
//! Invariant: code of the program is called with plain values and keys, never in the middle of a change, and no panic
//! of it comes out of [`Custom`]. The shard is therefore whole whatever that code does.

use std::sync::Arc;
use std::time::Duration;

use tidemark_types::{Cause, UnixMs};

use super::{Key, Shard, Value, second_of};
use crate::item::Draft;
use crate::policy::{Custom, Grip, Newcomer, Queue, Resident, Rules, Verdict, asks_program, rules, uses_fill};
use crate::shared::Left;

/// A program's policy in one shard.
#[derive(Debug)]
pub(crate) struct Seat {
    custom: Arc<Custom>,
    grip: Grip,
}

impl Seat {
    pub(crate) fn new(custom: Arc<Custom>) -> Self {
        let grip = Grip::default();
        Self { custom, grip }
    }
}

impl Shard {
    /// Takes the program's policy, which decides if the tenant's policy is
    /// [`Policy::Custom`](tidemark_types::Policy::Custom). Returns the one before, to be dropped without the lock: its end
    /// may be the program's code.
    pub(crate) fn seat(&mut self, seat: Seat) -> Option<Seat> {
        self.seat.replace(seat)
    }

    /// Whether there is a policy of the program's that was not replaced.
    pub(crate) fn has_custom(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.custom.is_in())
    }

    /// The program's policy, if it decides.
    #[inline]
    fn custom(&self) -> Option<&Arc<Custom>> {
        // Most have none, and need not be asked more.
        let custom = &self.seat.as_ref()?.custom;
        (custom.is_in() && asks_program(self.shared.policy())).then_some(custom)
    }

    pub(super) fn rules(&self) -> &'static dyn Rules {
        rules(self.shared.policy(), self.log.len(), self.ghosts.is_some())
    }

    /// Whether keys are to be remembered as ghosts.
    pub(super) fn wants_ghosts(&self) -> bool {
        let of_policy = match self.custom() {
            Some(custom) => custom.has_ghosts(),
            None => self.rules().has_ghosts(),
        };
        of_policy || self.shared.remembers()
    }

    /// Whether evictions begin only as late as they can, which is worth half a segment of memory if little survives.
    /// They do not if uses fill segments too (`approx-lru`: a get would have to walk as much at once). They do not with
    /// a small queue either: S3-FIFO would need more memory for the same hits, since items stay on probation for longer
    /// (`genie-fig7`).
    pub(super) fn evicts_late(&self) -> bool {
        !uses_fill(self.shared.policy()) && !self.has_probation()
    }

    /// Whether new items may be on probation in the small queue.
    pub(super) fn has_probation(&self) -> bool {
        match self.custom() {
            Some(custom) => custom.has_probation(),
            None => self.rules().has_ghosts(),
        }
    }

    /// Whether the small queue holds more than its share.
    pub(super) fn small_is_over(&self) -> bool {
        let sizes = self.log.queue_bytes();
        match self.custom() {
            Some(custom) => custom.small_is_over(sizes),
            None => sizes.small_is_over(),
        }
    }

    /// The queue that gives up its oldest segment.
    pub(super) fn victim_queue(&self) -> Queue {
        match self.custom() {
            Some(_) if self.small_is_over() => Queue::Small,
            Some(_) => Queue::Main,
            None => self.rules().victim(self.log.queue_bytes()),
        }
    }

    /// The queue of a new item whose key was not in the cache.
    #[inline]
    pub(super) fn queue_for(&mut self, key: &Key<'_>, draft: &Draft<'_>) -> Queue {
        let is_ghost = match &mut self.ghosts {
            Some(ghosts) => ghosts.take(&self.shared.pool.arena, key.hash),
            None => false,
        };
        // A built-in policy pays for one look at a field.
        if self.seat.is_some()
            && let Some(queue) = self.custom_queue(key, draft, is_ghost)
        {
            return queue;
        }
        self.rules().admit(is_ghost)
    }

    /// The same by the program's policy, if it decides.
    #[cold]
    fn custom_queue(&self, key: &Key<'_>, draft: &Draft<'_>, is_ghost: bool) -> Option<Queue> {
        let newcomer = Newcomer {
            key: key.bytes,
            value_bytes: draft.value_bytes(),
            is_ghost,
        };
        let answer = self.custom()?.queue(&newcomer);
        answer.map_err(|cause| self.go_on_without(cause)).ok()
    }

    /// The decision about a live item of the victim that is at `place`.
    #[inline]
    pub(super) fn verdict(&mut self, place: u64, queue: Queue, uses: u8, now: UnixMs) -> Verdict {
        if self.seat.is_some()
            && let Some(verdict) = self.custom_verdict(place, queue, uses, now)
        {
            return verdict;
        }
        self.rules().judge(queue, uses)
    }

    /// The same by the program's policy, if it decides.
    #[cold]
    fn custom_verdict(&mut self, place: u64, queue: Queue, uses: u8, now: UnixMs) -> Option<Verdict> {
        let answer = self.custom()?.judge(&self.resident(place, queue, uses, now));
        let heeded = answer.and_then(|verdict| self.heed(verdict, place, uses));
        heeded.map_err(|cause| self.go_on_without(cause)).ok()
    }

    fn resident(&self, place: u64, queue: Queue, uses: u8, now: UnixMs) -> Resident<'_> {
        let item = self.item(place);
        let segment = &self.log[self.segment_of(place)];
        Resident {
            key: item.key(),
            value_bytes: Value::of(item, self.arena()).len(),
            uses,
            queue,
            age: now.since(segment.opened),
            idle: Duration::from_secs(second_of(now).wrapping_sub(item.accessed()).into()),
            expires_in: item.expiry().map(|expiry| expiry.since(now)),
        }
    }

    /// Looks whether the program's policy still lets something go.
    fn heed(&mut self, verdict: Verdict, place: u64, uses: u8) -> Result<Verdict, Cause> {
        let item_bytes = self.item(place).bytes() as u64;
        let sizes = self.log.queue_bytes();
        if let Some(seat) = &mut self.seat {
            seat.grip.note(verdict, uses, item_bytes, sizes.small + sizes.main)?;
        }
        Ok(verdict)
    }

    /// Tells the program's policy that an item was used.
    pub(super) fn note_use(&self, place: u64) {
        let answer = self.custom().map(|custom| custom.used(self.item(place).key()));
        if let Some(Err(cause)) = answer {
            self.go_on_without(cause);
        }
    }

    /// The program's policy failed: the tenant goes on with `fifo`.
    #[cold]
    fn go_on_without(&self, cause: Cause) {
        let fault = self.seat.as_ref().and_then(|seat| seat.custom.take_out(cause));
        if let (Some(fault), Some(replaced)) = (fault, self.shared.replaced()) {
            replaced(fault);
        }
    }

    /// Tells who listens that an item is leaving.
    #[inline]
    pub(super) fn tell_left(&self, place: u64, why: Left) {
        if self.shared.listener().is_some() {
            self.tell_listener(place, why);
        }
    }

    #[cold]
    fn tell_listener(&self, place: u64, why: Left) {
        let item = self.item(place);
        if let Some(listener) = self.shared.listener() {
            listener.left(item.key(), Value::of(item, self.arena()).len(), why);
        }
    }

    /// Tells who listens that so many items are leaving at once.
    pub(super) fn tell_emptied(&self, items: u64, why: Left) {
        if let Some(listener) = self.shared.listener().filter(|_| items > 0) {
            listener.emptied(items, why);
        }
    }

    /// Removes everything at once, and tells who listens.
    pub(crate) fn empty(&mut self, why: Left) {
        self.tell_emptied(self.items(), why);
        self.clear();
    }
}

#[cfg(test)]
mod tests;
