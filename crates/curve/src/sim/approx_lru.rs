//! Approximate LRU on a log: H. Lim, D. Han, D. G. Andersen, M. Kaminsky, "MICA: a holistic approach to fast in-memory
//! key-value storage", NSDI 2014, section 4.3. The share of the log varies as in Genie (IEEE TKDE 2025, section V.A).

use tidemark_types::LogShare;

use super::queue::{Entry, Queue, Table};
use super::{Capacity, Simulator};

/// The oldest entry of a log goes. An object that is used while more than a share of the log is newer is entered once
/// more, at the newest end. Its old entry takes room until it goes.
#[derive(Debug)]
pub struct ApproxLru {
    capacity: Capacity,
    /// Bytes that may be newer than an object's entry without its being entered anew.
    newer_max_bytes: u64,
    /// With the entries that are not their object's any more.
    log: Queue,
    present: Table<Place>,
    /// The bytes that left the log, which is where its oldest entry begins.
    gone_bytes: u64,
}

/// An object's entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its offset, counted from the log's very first byte.
    at: u64,
    bytes: u64,
}

impl ApproxLru {
    /// An empty cache.
    pub fn new(capacity: Capacity, share: LogShare) -> Self {
        Self {
            capacity,
            newer_max_bytes: share.of(capacity.bytes),
            log: Queue::default(),
            present: Table::default(),
            gone_bytes: 0,
        }
    }

    /// Enters an object that fits into the log.
    fn append(&mut self, key: u64, bytes: u64) {
        let at = self.gone_bytes + self.log.bytes();
        // Before anything goes: the oldest entry may be the one in whose place this is.
        self.present.insert(key, Place { at, bytes });
        while self.log.bytes() + bytes > self.capacity.bytes {
            let Some(oldest) = self.log.pop() else { break };
            if self
                .present
                .get(&oldest.key)
                .is_some_and(|place| place.at == self.gone_bytes)
            {
                self.present.remove(&oldest.key);
            }
            self.gone_bytes += oldest.bytes;
        }
        self.log.push(Entry { key, bytes });
    }
}

impl Simulator for ApproxLru {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(&Place { at, bytes }) = self.present.get(&key) {
            let newer_bytes = self.gone_bytes + self.log.bytes() - (at + bytes);
            if newer_bytes > self.newer_max_bytes {
                self.append(key, bytes);
            }
            return true;
        }
        let bytes = size_bytes + self.capacity.overhead_bytes;
        if bytes <= self.capacity.bytes {
            self.append(key, bytes);
        }
        false
    }
}
