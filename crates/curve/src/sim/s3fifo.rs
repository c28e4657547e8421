//! S3-FIFO: J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023.

use std::collections::VecDeque;

use super::queue::{Entry, Queue, Table};
use super::{Capacity, Simulator};

/// The small queue's share of the capacity is one in this many.
const SMALL_DIVISOR: u64 = 10;
/// Uses in the small queue that bring an object to the main one.
const PROMOTING_USES: u8 = 2;
/// Uses that the main queue remembers.
const MOST_MAIN_USES: u8 = 3;

/// New objects pass a small queue of a tenth of the room. Those used twice there go on to the main queue; the others
/// leave a ghost. A miss whose ghost is remembered goes to the main queue at once.
#[derive(Debug)]
pub struct S3Fifo {
    capacity: Capacity,
    small_bytes: u64,
    small: Queue,
    main: Queue,
    uses: Table<u8>,
    ghosts: Ghosts,
    evicted_any: bool,
}

impl S3Fifo {
    /// An empty cache.
    pub fn new(capacity: Capacity) -> Self {
        let small_bytes = capacity.bytes / SMALL_DIVISOR;
        Self {
            capacity,
            small_bytes,
            small: Queue::default(),
            main: Queue::default(),
            uses: Table::default(),
            // As many ghosts as would fill the main queue, rounded as the reference rounds.
            ghosts: Ghosts::new(capacity.bytes - capacity.bytes.div_ceil(SMALL_DIVISOR)),
            evicted_any: false,
        }
    }

    fn evict(&mut self) {
        self.evicted_any = true;
        if self.main.bytes() > self.capacity.bytes - self.small_bytes || self.small.bytes() == 0 {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    fn evict_from_small(&mut self) {
        while let Some(oldest) = self.small.pop() {
            match self.uses.get_mut(&oldest.key) {
                Some(uses) if *uses >= PROMOTING_USES => {
                    *uses = 0;
                    self.main.push(oldest);
                }
                _ => {
                    self.uses.remove(&oldest.key);
                    self.ghosts.remember(oldest);
                    return;
                }
            }
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(oldest) = self.main.pop() {
            match self.uses.get_mut(&oldest.key) {
                Some(uses) if *uses > 0 => {
                    *uses = (*uses).min(MOST_MAIN_USES) - 1;
                    self.main.push(oldest);
                }
                _ => {
                    self.uses.remove(&oldest.key);
                    return;
                }
            }
        }
    }
}

impl Simulator for S3Fifo {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = uses.saturating_add(1);
            return true;
        }
        let had_ghost = self.ghosts.forget(key);
        let bytes = size_bytes + self.capacity.overhead_bytes;
        if bytes > self.small_bytes {
            return false;
        }
        while self.small.bytes() + self.main.bytes() + bytes > self.capacity.bytes {
            self.evict();
        }
        // While nothing had to go yet the small queue must not take more than its part.
        let small_is_full = !self.evicted_any && self.small.bytes() >= self.small_bytes;
        let queue = if had_ghost || small_is_full {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.push(Entry { key, bytes });
        self.uses.insert(key, 0);
        false
    }
}

/// Keys whose objects went, first in, first out, up to a sum of the objects' bytes.
#[derive(Debug)]
struct Ghosts {
    limit_bytes: u64,
    bytes: u64,
    turn: u64,
    /// Ghosts by key: their turn and bytes.
    present: Table<(u64, u64)>,
    /// Keys and turns in order; one whose turn is not the present one was forgotten in the meantime.
    order: VecDeque<(u64, u64)>,
}

impl Ghosts {
    fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            bytes: 0,
            turn: 0,
            present: Table::default(),
            order: VecDeque::new(),
        }
    }

    fn remember(&mut self, entry: Entry) {
        if self.present.contains_key(&entry.key) || entry.bytes > self.limit_bytes {
            return;
        }
        while self.bytes + entry.bytes > self.limit_bytes {
            let Some((key, turn)) = self.order.pop_front() else {
                break;
            };
            if self
                .present
                .get(&key)
                .is_some_and(|(present_turn, _)| *present_turn == turn)
            {
                self.forget(key);
            }
        }
        self.tidy();
        self.turn += 1;
        self.bytes += entry.bytes;
        self.present.insert(entry.key, (self.turn, entry.bytes));
        self.order.push_back((entry.key, self.turn));
    }

    /// Drops the places of forgotten ghosts, once they are more than the others. Nothing else does so when ghosts never
    /// go for lack of room.
    fn tidy(&mut self) {
        const FEW: usize = 64;
        if self.order.len() > 2 * self.present.len() + FEW {
            let present = &self.present;
            self.order
                .retain(|(key, turn)| present.get(key).is_some_and(|(present_turn, _)| present_turn == turn));
        }
    }

    /// Whether there was a ghost of `key`; there is none any more.
    fn forget(&mut self, key: u64) -> bool {
        let Some((_, bytes)) = self.present.remove(&key) else {
            return false;
        };
        self.bytes -= bytes;
        true
    }
}
