//! First in, first out.

use super::queue::{Entry, Queue, Table};
use super::{Capacity, Simulator};

/// The oldest object goes.
#[derive(Debug)]
pub struct Fifo {
    capacity: Capacity,
    queue: Queue,
    present: Table<()>,
}

impl Fifo {
    /// An empty cache.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            queue: Queue::default(),
            present: Table::default(),
        }
    }
}

impl Simulator for Fifo {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if self.present.contains_key(&key) {
            return true;
        }
        let bytes = size_bytes + self.capacity.overhead_bytes;
        if bytes > self.capacity.bytes {
            return false;
        }
        while self.queue.bytes() + bytes > self.capacity.bytes {
            let Some(oldest) = self.queue.pop() else { break };
            self.present.remove(&oldest.key);
        }
        self.queue.push(Entry { key, bytes });
        self.present.insert(key, ());
        false
    }
}
