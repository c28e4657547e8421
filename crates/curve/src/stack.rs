//! Keys in the order of their last use, with their bytes: F. Olken, "Efficient methods for calculating the success function
//! of fixed space replacement policies", LBL-12370 (1981), on an [`Order`].
//!
//! Each use takes the next slot of a row; a key's distance is what lies in the slots behind its own. When the row is
//! full, the keys close ranks. Invariant: a key has one slot, whose weight is the key's bytes, and a slot one key or none.
//! Sizes are bytes, times milliseconds of any one origin.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

use crate::order::Order;

/// Keys are hashes or ids of traces: a multiplication spreads them well enough. The hash is the same in every run, and so is
/// the memory that a table takes.
pub(crate) type Table<V> = HashMap<u64, V, BuildHasherDefault<rapidhash::fast::RapidHasher<'static>>>;

/// The time of keys that never expire.
pub(crate) const NEVER: u64 = u64::MAX;
/// A slot without a key.
const NOBODY: u32 = u32::MAX;
/// The shortest row.
const SLOTS_MIN: usize = 256;
/// The limit of the weight of all keys together, 8 EiB, so that sums do not overflow. Keys beyond it weigh nothing.
const BYTES_MAX: u64 = 1 << 63;
/// Keys that a row of 32-bit slots, of which half may be empty, has room for.
pub(crate) const KEYS_MAX: usize = 1 << 30;

/// The record of a key.
#[derive(Clone, Copy, Debug)]
struct Record {
    key: u64,
    bytes: u64,
    expires_at_ms: u64,
    slot: u32,
    /// How often it was used.
    uses: u32,
}

/// A key that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Bytes of the other keys used since its last use.
    pub(crate) newer_bytes: u64,
    /// Its own bytes.
    pub(crate) bytes: u64,
}

/// The stack.
#[derive(Debug)]
pub(crate) struct Stack {
    places: Table<u32>,
    records: Vec<Record>,
    /// The place of each slot's key in `records`.
    owners: Vec<u32>,
    order: Order,
    next_slot: usize,
    /// No key's slot is before this one.
    first_slot: usize,
    /// The first slot of those used since [`Self::mark`].
    marked_slot: usize,
    bytes: u64,
    /// When keys expire; an entry that is not its key's any more is passed over.
    expiries: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Stack {
    pub(crate) fn new() -> Self {
        Self {
            places: Table::default(),
            records: Vec::new(),
            owners: vec![NOBODY; SLOTS_MIN],
            order: Order::build(SLOTS_MIN, std::iter::empty()),
            next_slot: 0,
            first_slot: 0,
            marked_slot: 0,
            bytes: 0,
            expiries: BinaryHeap::new(),
        }
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The bytes of all keys.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From now on, [`Self::marked_bytes`] counts the bytes of used keys.
    pub(crate) fn mark(&mut self) {
        self.marked_slot = self.next_slot;
    }

    /// The bytes of the keys used since the last mark, of all if there was none.
    pub(crate) fn marked_bytes(&self) -> u64 {
        match self.marked_slot.checked_sub(1) {
            Some(slot) => self.order.behind(slot),
            None => self.bytes,
        }
    }

    /// The keys, in no order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> {
        self.records.iter().map(|record| record.key)
    }

    /// The bytes of each key, that which was used last first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = u64> {
        let owners = self.owners[self.first_slot..self.next_slot].iter().rev();
        owners.filter_map(|place| Some(self.records.get(*place as usize)?.bytes))
    }

    /// How often each key was used, in no order.
    pub(crate) fn uses(&self) -> impl Iterator<Item = u64> {
        self.records.iter().map(|record| u64::from(record.uses))
    }

    /// The bytes of each key, in no order.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        self.records.iter().map(|record| record.bytes)
    }

    /// Uses a key, if it is there.
    #[inline]
    pub(crate) fn touch(&mut self, key: u64) -> Option<Found> {
        let place = *self.places.get(&key)?;
        let record = &mut self.records[place as usize];
        record.uses = record.uses.saturating_add(1);
        let (slot, bytes) = (record.slot as usize, record.bytes);
        if slot + 1 == self.next_slot && slot >= self.marked_slot {
            return Some(Found { newer_bytes: 0, bytes });
        }
        let newer_bytes = self.order.take(slot, bytes);
        self.owners[slot] = NOBODY;
        self.enter_slot(place);
        Some(Found { newer_bytes, bytes })
    }

    /// Writes a key: it is there from now on, used last, with these bytes until this time.
    pub(crate) fn put(&mut self, key: u64, bytes: u64, expires_at_ms: u64) {
        if self.touch(key).is_some() {
            self.set(key, bytes, expires_at_ms);
            return;
        }
        let Ok(place) = u32::try_from(self.records.len()) else {
            return;
        };
        let bytes = bytes.min(BYTES_MAX - self.bytes);
        self.records.push(Record {
            key,
            bytes,
            expires_at_ms,
            slot: NOBODY,
            uses: 1,
        });
        self.places.insert(key, place);
        self.bytes += bytes;
        self.enter_slot(place);
        self.await_expiry(key, expires_at_ms);
    }

    /// The bytes of a key that is there.
    pub(crate) fn bytes_of(&self, key: u64) -> Option<u64> {
        self.places.get(&key).map(|place| self.records[*place as usize].bytes)
    }

    /// Takes away the keys that were used longest ago, until those that are left have so many bytes at most.
    pub(crate) fn trim(&mut self, bytes: u64) {
        while self.bytes > bytes && self.first_slot < self.next_slot {
            let owner = self.owners[self.first_slot];
            self.first_slot += 1;
            if let Some(record) = self.records.get(owner as usize) {
                self.remove(record.key);
            }
        }
    }

    /// Takes away the keys for which this does not hold.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let leaving: Vec<u64> = self.keys().filter(|key| !keep(*key)).collect();
        for key in leaving {
            self.remove(key);
        }
    }

    /// Counts the uses so far as if there had been half as many.
    pub(crate) fn halve_uses(&mut self) {
        self.records.iter_mut().for_each(|record| record.uses /= 2);
    }

    /// Gives a key that is there other bytes and another end, and leaves its last use as it is.
    pub(crate) fn set(&mut self, key: u64, bytes: u64, expires_at_ms: u64) {
        let Some(place) = self.places.get(&key) else { return };
        let record = &mut self.records[*place as usize];
        let bytes = bytes.min(BYTES_MAX - (self.bytes - record.bytes));
        self.order.add(record.slot as usize, bytes.wrapping_sub(record.bytes));
        self.bytes = self.bytes - record.bytes + bytes;
        record.bytes = bytes;
        if record.expires_at_ms != expires_at_ms {
            record.expires_at_ms = expires_at_ms;
            self.await_expiry(key, expires_at_ms);
        }
    }

    /// Takes a key away; whether it was there.
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let Some(place) = self.places.remove(&key) else {
            return false;
        };
        let record = self.records.swap_remove(place as usize);
        self.order.take(record.slot as usize, record.bytes);
        self.owners[record.slot as usize] = NOBODY;
        self.bytes -= record.bytes;
        // The last record is where the removed one was.
        if let Some(moved) = self.records.get(place as usize) {
            self.owners[moved.slot as usize] = place;
            self.places.insert(moved.key, place);
        }
        true
    }

    /// Takes away what expires at this time or before.
    #[inline]
    pub(crate) fn expire(&mut self, now_ms: u64) {
        while let Some(Reverse((at_ms, key))) = self.expiries.peek().copied() {
            if at_ms > now_ms {
                return;
            }
            self.expiries.pop();
            if self.expiry_of(key) == Some(at_ms) {
                self.remove(key);
            }
        }
    }

    fn expiry_of(&self, key: u64) -> Option<u64> {
        let place = self.places.get(&key)?;
        Some(self.records[*place as usize].expires_at_ms)
    }

    fn await_expiry(&mut self, key: u64, expires_at_ms: u64) {
        if expires_at_ms == NEVER {
            return;
        }
        // Overwritten keys leave entries behind: without a clearing they would pile up, beyond the memory that there is for
        // a key.
        if self.expiries.len() > self.records.len() * 3 / 2 + SLOTS_MIN {
            self.clear_expiries();
        }
        self.expiries.push(Reverse((expires_at_ms, key)));
    }

    /// Takes the entries out of `expiries` that are not their keys' any more.
    fn clear_expiries(&mut self) {
        let due = self.records.iter().filter(|record| record.expires_at_ms != NEVER);
        self.expiries = due.map(|record| Reverse((record.expires_at_ms, record.key))).collect();
    }

    /// Gives back the memory of keys that went, where that is as much again as the others need.
    pub(crate) fn shrink(&mut self) {
        if self.records.capacity() / 2 < self.records.len().max(SLOTS_MIN) {
            return;
        }
        self.records.shrink_to_fit();
        self.places.shrink_to_fit();
        self.clear_expiries();
        self.expiries.shrink_to_fit();
        self.close_ranks();
        self.owners.shrink_to_fit();
    }

    /// Puts a record whose slot is free into the next one.
    #[inline]
    fn enter_slot(&mut self, place: u32) {
        if self.next_slot == self.order.slots() {
            self.close_ranks();
        }
        let slot = self.next_slot;
        self.next_slot += 1;
        let record = &mut self.records[place as usize];
        // Slots are fewer than 2^32, by KEYS_MAX.
        record.slot = slot as u32;
        self.owners[slot] = place;
        self.order.add(slot, record.bytes);
    }

    /// Moves all keys that have a slot to the row's beginning, in their order; at least half of the row is free then.
    fn close_ranks(&mut self) {
        let unmarked = self.owners[..self.marked_slot].iter();
        self.marked_slot = unmarked.filter(|place| **place != NOBODY).count();
        self.owners.retain(|place| *place != NOBODY);
        let keys = self.owners.len();
        for (slot, place) in self.owners.iter().enumerate() {
            self.records[*place as usize].slot = slot as u32;
        }
        let slots = (2 * self.records.len()).next_power_of_two().max(SLOTS_MIN);
        let weights = self.owners.iter().map(|place| self.records[*place as usize].bytes);
        self.order = Order::build(slots, weights);
        self.owners.resize(slots, NOBODY);
        self.next_slot = keys;
        self.first_slot = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The stack as a list: the slow way.
    #[derive(Default)]
    struct List(Vec<(u64, u64, u64)>);

    impl List {
        fn touch(&mut self, key: u64) -> Option<Found> {
            let at = self.0.iter().position(|(other, ..)| *other == key)?;
            let entry = self.0.remove(at);
            let newer_bytes = self.0[at..].iter().map(|(_, bytes, _)| bytes).sum();
            self.0.push(entry);
            Some(Found {
                newer_bytes,
                bytes: entry.1,
            })
        }

        fn remove(&mut self, key: u64) -> bool {
            let before = self.0.len();
            self.0.retain(|(other, ..)| *other != key);
            self.0.len() < before
        }
    }

    #[test]
    fn it_is_a_list_of_keys_by_last_use() {
        let (mut stack, mut list) = (Stack::new(), List::default());
        let mut used_since = HashSet::new();
        let mut state = 1_u64;
        for now in 0..60_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (mut key, what) = ((state >> 40) % 700, (state >> 33) % 16);
            stack.expire(now);
            list.0.retain(|(_, _, expires)| *expires > now);
            if what > 12 {
                key = list.0.last().map_or(key, |(last, ..)| *last);
            }
            match what {
                0 => assert_eq!(stack.remove(key), list.remove(key), "step {now}"),
                1..4 => {
                    let bytes = (state >> 50) % 1000;
                    let expires = if what == 1 { now + bytes } else { NEVER };
                    stack.put(key, bytes, expires);
                    list.remove(key);
                    list.0.push((key, bytes, expires));
                }
                _ => assert_eq!(stack.touch(key), list.touch(key), "step {now}"),
            }
            assert_eq!(stack.len(), list.0.len(), "step {now}");
            used_since.insert(key);
            let marked = list.0.iter().filter(|(key, ..)| used_since.contains(key));
            assert_eq!(
                stack.marked_bytes(),
                marked.map(|(_, bytes, _)| bytes).sum::<u64>(),
                "step {now}"
            );
            if now % 700 == 0 {
                stack.shrink();
            }
            if now % 500 == 400 {
                stack.mark();
                used_since.clear();
            }
        }
        assert_eq!(stack.bytes(), list.0.iter().map(|(_, bytes, _)| bytes).sum::<u64>());
    }

    #[test]
    fn trimming_takes_what_was_used_longest_ago() {
        let mut stack = Stack::new();
        (0..1000).for_each(|key| stack.put(key, 10, NEVER));
        stack.touch(3);
        stack.trim(10_000);
        assert_eq!(stack.len(), 1000);
        stack.trim(55);
        let mut keys: Vec<u64> = stack.keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, [3, 996, 997, 998, 999]);
        (0..1000).for_each(|key| stack.put(key, 10, NEVER));
        stack.retain(|key| key % 2 == 0);
        stack.trim(100);
        assert_eq!(stack.len(), 10);
        stack.trim(0);
        assert_eq!(stack.len(), 0);
        stack.trim(0);
    }

    #[test]
    fn expiries_of_overwritten_keys_do_not_pile_up() {
        let mut stack = Stack::new();
        for n in 0..100_000 {
            stack.put(n % 10, 1, 1_000_000 + n);
        }
        assert!(stack.expiries.len() < 1000, "{}", stack.expiries.len());
        stack.expire(1_099_994);
        assert_eq!(stack.len(), 5);
    }
}
