//! Room for an entry where none is free near its own bucket.

use super::bucket::{count, displacement};
use super::{DISPLACEMENT_MAX, DISPLACEMENT_SHIFT, Index, SLOTS, Slot};
use crate::arena::Arena;

impl Index {
    /// Frees a slot for an entry whose own bucket is `home`, where all buckets are full to which it may spill: an entry that
    /// may lie further behind gives up its slot, and finds one there in the same way. `None` if that ends nowhere. Then the
    /// keys that belong into these buckets are more than fit, in whatever order they lie.
    #[cold]
    pub(super) fn make_way(&mut self, arena: &Arena, home: u64) -> Option<Slot> {
        let mut givers: Vec<Slot> = Vec::new();
        let mut from = home;
        let mut free = loop {
            let end = self.buckets.min(from + DISPLACEMENT_MAX + 1);
            if let Some(free) = (from..end).find_map(|bucket| self.free_slot(arena, bucket)) {
                break free;
            }
            let (giver, own) = (from + 1..end)
                .rev()
                .find_map(|bucket| self.giver(arena, bucket, from))?;
            givers.push(giver);
            from = own;
        };
        // From behind, so that each finds its new slot free.
        for giver in givers.into_iter().rev() {
            let entry = self.bucket(arena, giver.bucket)[giver.slot];
            let own = giver.bucket - displacement(entry);
            let entry = entry & !(DISPLACEMENT_MAX << DISPLACEMENT_SHIFT) | (free.bucket - own) << DISPLACEMENT_SHIFT;
            self.bucket_mut(arena, free.bucket)[free.slot] = entry;
            free = giver;
        }
        Some(free)
    }

    fn free_slot(&self, arena: &Arena, bucket: u64) -> Option<Slot> {
        let slot = count(self.bucket(arena, bucket));
        (slot < SLOTS).then_some(Slot { bucket, slot })
    }

    /// The entry of a bucket whose own bucket is the last, if that lies behind `from`.
    fn giver(&self, arena: &Arena, bucket: u64, from: u64) -> Option<(Slot, u64)> {
        let entries = self.bucket(arena, bucket);
        let slot = (0..SLOTS).min_by_key(|&slot| displacement(entries[slot]))?;
        let own = bucket - displacement(entries[slot]);
        (own > from).then_some((Slot { bucket, slot }, own))
    }
}
