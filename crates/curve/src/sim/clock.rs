//! First in, first out, with another round for used objects.

use super::queue::{Entry, Queue, Table};
use super::{Capacity, Simulator};

/// The oldest object goes unless it was used since it was last looked at. In that case it goes to the end of the queue,
/// and one use is forgotten.
#[derive(Debug)]
pub struct Clock {
    capacity: Capacity,
    most_uses: u8,
    queue: Queue,
    uses: Table<u8>,
}

impl Clock {
    /// An empty cache that remembers up to `most_uses` uses of an object: 1 for the classic clock, 3 for two bits.
    pub fn new(capacity: Capacity, most_uses: u8) -> Self {
        Self {
            capacity,
            most_uses,
            queue: Queue::default(),
            uses: Table::default(),
        }
    }

    fn evict(&mut self) {
        while let Some(oldest) = self.queue.pop() {
            match self.uses.get_mut(&oldest.key) {
                Some(uses) if *uses > 0 => {
                    *uses -= 1;
                    self.queue.push(oldest);
                }
                _ => {
                    self.uses.remove(&oldest.key);
                    return;
                }
            }
        }
    }
}

impl Simulator for Clock {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = self.most_uses.min(*uses + 1);
            return true;
        }
        let bytes = size_bytes + self.capacity.overhead_bytes;
        if bytes > self.capacity.bytes {
            return false;
        }
        while self.queue.bytes() + bytes > self.capacity.bytes {
            self.evict();
        }
        self.queue.push(Entry { key, bytes });
        self.uses.insert(key, 0);
        false
    }
}
