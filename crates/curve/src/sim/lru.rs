//! Least recently used.

use super::queue::{Entry, Queue, Table};
use super::{Capacity, Simulator};

/// The object that was not used for the longest time goes.
#[derive(Debug)]
pub struct Lru {
    capacity: Capacity,
    /// Every use; one that is not its object's last is passed over.
    uses: Queue,
    /// The bytes of each object and which use was its last.
    present: Table<(u64, u64)>,
    bytes: u64,
    /// How many uses left the queue: the number of its first.
    gone: u64,
}

/// Uses of objects used again since that the queue may hold beside as many as there are objects.
const SPARE_USES: usize = 64;

impl Lru {
    /// An empty cache.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            uses: Queue::default(),
            present: Table::default(),
            bytes: 0,
            gone: 0,
        }
    }

    fn evict(&mut self) {
        while let Some(oldest) = self.uses.pop() {
            self.gone += 1;
            if self
                .present
                .get(&oldest.key)
                .is_some_and(|(_, last)| *last + 1 == self.gone)
            {
                self.present.remove(&oldest.key);
                self.bytes -= oldest.bytes;
                return;
            }
        }
    }

    /// Forgets uses that are not the last of their object when they are more than half.
    fn tidy(&mut self) {
        if self.uses.len() < 2 * self.present.len() + SPARE_USES {
            return;
        }
        let (mut kept, mut number) = (Queue::default(), self.gone);
        while let Some(entry) = self.uses.pop() {
            if let Some((_, last)) = self.present.get_mut(&entry.key)
                && *last == number
            {
                *last = kept.len() as u64;
                kept.push(entry);
            }
            number += 1;
        }
        (self.uses, self.gone) = (kept, 0);
    }
}

impl Simulator for Lru {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        let next = self.gone + self.uses.len() as u64;
        if let Some((bytes, last)) = self.present.get_mut(&key) {
            *last = next;
            self.uses.push(Entry { key, bytes: *bytes });
            self.tidy();
            return true;
        }
        let bytes = size_bytes + self.capacity.overhead_bytes;
        if bytes > self.capacity.bytes {
            return false;
        }
        while self.bytes + bytes > self.capacity.bytes {
            self.evict();
        }
        let number = self.gone + self.uses.len() as u64;
        self.uses.push(Entry { key, bytes });
        self.present.insert(key, (bytes, number));
        self.bytes += bytes;
        false
    }
}
