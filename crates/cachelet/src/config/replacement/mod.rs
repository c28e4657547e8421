//! Replacement: which copy goes when there is no room.

mod fifo;
mod lru;
mod priority_lru;
mod s3fifo;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::types::{Key, key_hash};

/// A key's place in the order of eviction: the least goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// Compared first.
    pub priority: u32,
    /// Compared next: the position in time, unique.
    pub position: u64,
}

/// The facts about a copy when its rank is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Use {
    /// Its size.
    pub size_bytes: u64,
    /// How often it was used within the current burst.
    pub burst_count: u32,
}

/// The priority of copies in the queue that new ones pass, where a policy has one.
pub const PROBATION: u32 = 0;
/// The priority of copies behind that queue.
pub const MAIN: u32 = 1;
/// The part of all bytes that the queue for new copies has.
const PROBATION_DIVISOR: u64 = 10;
/// Uses of a copy are counted up to this, until it is judged.
const REUSES_MAX: u8 = 3;

/// The fate of the copy that would go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes.
    Goes,
    /// It stays, as the newest in the main queue, and so many of its uses count for the next time.
    Stays {
        /// The uses.
        reuse_count: u8,
    },
}

/// A replacement policy.
pub trait Policy {
    /// Whether a use changes a copy's rank.
    fn moves_on_use(&self) -> bool;
    /// The priority of a copy.
    fn priority(&self, last: Use) -> u32;
    /// Whether new copies pass a small queue of their own, with the priority [`PROBATION`]. Uses are counted then.
    fn has_probation(&self) -> bool {
        false
    }
    /// The fate of a copy of this priority that would go next, and was used so often since it was judged.
    fn judge(&self, _priority: u32, _reuse_count: u8) -> Verdict {
        Verdict::Goes
    }
}

/// A replacement policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Replacement {
    /// The oldest copy goes.
    Fifo,
    /// The copy that was not used for longest goes.
    Lru,
    /// The copy that was not used for longest goes, among those with the lowest priority by size and burstiness.
    PriorityLru,
    /// The server's own policy: new copies pass a small queue, and those that are used there stay.
    #[cfg_attr(feature = "serde", serde(rename = "s3fifo"))]
    S3Fifo,
}

impl Replacement {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Fifo, Self::Lru, Self::PriorityLru, Self::S3Fifo];

    fn module(self) -> &'static dyn Policy {
        match self {
            Self::Fifo => &fifo::Fifo,
            Self::Lru => &lru::Lru,
            Self::PriorityLru => &priority_lru::PriorityLru,
            Self::S3Fifo => &s3fifo::S3Fifo,
        }
    }
}

impl Policy for Replacement {
    fn moves_on_use(&self) -> bool {
        self.module().moves_on_use()
    }

    fn priority(&self, last: Use) -> u32 {
        self.module().priority(last)
    }

    fn has_probation(&self) -> bool {
        self.module().has_probation()
    }

    fn judge(&self, priority: u32, reuse_count: u8) -> Verdict {
        self.module().judge(priority, reuse_count)
    }
}

/// Uses of a copy within this time belong to one burst.
pub const BURST_US: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    rank: Rank,
    used: Use,
    used_at_us: u64,
    /// Uses since it was judged, where they are counted.
    reuse_count: u8,
}

/// The copies of a cachelet in the order in which they go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order {
    places: BTreeMap<Key, Place>,
    queue: BTreeMap<Rank, Key>,
    position: u64,
    /// Bytes of all copies, and of those in the queue for new ones.
    bytes: u64,
    probation_bytes: u64,
    ghosts: Ghosts,
}

/// Keys that went from the queue for new copies, by their hashes: one that comes back is not new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ghosts {
    order: VecDeque<u64>,
    known: BTreeSet<u64>,
}

impl Ghosts {
    /// Remembers as many keys as there are copies.
    fn remember(&mut self, key: &Key, copies: usize) {
        let hash = key_hash(key);
        if self.known.insert(hash) {
            self.order.push_back(hash);
        }
        while self.order.len() > copies.max(1) {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    /// Whether a key is remembered. It is not any more then.
    fn take(&mut self, key: &Key) -> bool {
        let hash = key_hash(key);
        let is_known = self.known.remove(&hash);
        if is_known {
            self.order.retain(|other| *other != hash);
        }
        is_known
    }
}

impl Order {
    /// A copy of this size came, or was replaced by another one.
    pub fn insert(&mut self, policy: Replacement, key: &Key, size_bytes: u64, now_us: u64) {
        let before = self.remove(key);
        let used = Use {
            size_bytes,
            burst_count: before.as_ref().map_or(1, |place| place.burst_count(now_us)),
        };
        let is_new = before.is_none_or(|place| place.rank.priority == PROBATION);
        let priority = if policy.has_probation() && (!is_new || self.ghosts.take(key)) {
            MAIN
        } else {
            policy.priority(used)
        };
        self.place(key, priority, (used, 0), now_us);
    }

    /// A copy was used.
    pub fn touch(&mut self, policy: Replacement, key: &Key, now_us: u64) {
        if policy.has_probation()
            && let Some(place) = self.places.get_mut(key)
        {
            place.reuse_count = (place.reuse_count + 1).min(REUSES_MAX);
        }
        if !policy.moves_on_use() {
            return;
        }
        if let Some(place) = self.remove(key) {
            let used = Use {
                burst_count: place.burst_count(now_us),
                ..place.used
            };
            self.place(key, policy.priority(used), (used, 0), now_us);
        }
    }

    /// A copy went.
    pub fn forget(&mut self, key: &Key) {
        self.remove(key);
    }

    /// Takes out the copy that goes next.
    pub fn evict(&mut self, policy: Replacement) -> Option<Key> {
        loop {
            let key = self.candidate(policy)?.clone();
            let place = self.remove(&key)?;
            match policy.judge(place.rank.priority, place.reuse_count) {
                Verdict::Stays { reuse_count } => self.place(&key, MAIN, (place.used, reuse_count), place.used_at_us),
                Verdict::Goes => {
                    if policy.has_probation() && place.rank.priority == PROBATION {
                        self.ghosts.remember(&key, self.places.len());
                    }
                    return Some(key);
                }
            }
        }
    }

    /// The copy with the lowest rank, or with the lowest one behind the queue for new copies while that one has its share at most.
    fn candidate(&self, policy: Replacement) -> Option<&Key> {
        let behind = Rank {
            priority: MAIN,
            position: 0,
        };
        let has_room = policy.has_probation() && self.probation_bytes * PROBATION_DIVISOR < self.bytes;
        let main = has_room.then(|| self.queue.range(behind..).next()).flatten();
        main.or_else(|| self.queue.iter().next()).map(|(_, key)| key)
    }

    fn remove(&mut self, key: &Key) -> Option<Place> {
        let place = self.places.remove(key)?;
        self.queue.remove(&place.rank);
        self.bytes -= place.used.size_bytes;
        if place.rank.priority == PROBATION {
            self.probation_bytes -= place.used.size_bytes;
        }
        Some(place)
    }

    fn place(&mut self, key: &Key, priority: u32, (used, reuse_count): (Use, u8), now_us: u64) {
        self.position += 1;
        let rank = Rank {
            priority,
            position: self.position,
        };
        self.bytes += used.size_bytes;
        if priority == PROBATION {
            self.probation_bytes += used.size_bytes;
        }
        self.queue.insert(rank, key.clone());
        let place = Place {
            rank,
            used,
            used_at_us: now_us,
            reuse_count,
        };
        self.places.insert(key.clone(), place);
    }
}

impl Place {
    fn burst_count(&self, now_us: u64) -> u32 {
        if now_us.saturating_sub(self.used_at_us) > BURST_US {
            return 1;
        }
        self.used.burst_count.saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first to go after `uses` of keys that came in the order a (100 bytes), b (100 bytes), c (1 MiB).
    fn check(policy: Replacement, uses: &str, expected: &str) {
        let mut order = Order::default();
        for (name, size_bytes) in [("a", 100), ("b", 100), ("c", 1 << 20)] {
            order.insert(policy, &Key::new(name), size_bytes, 0);
        }
        for (step, name) in uses.chars().enumerate() {
            order.touch(policy, &Key::new(&name.to_string()), step as u64);
        }
        assert_eq!(order.evict(policy), Some(Key::new(expected)), "{policy:?} {uses}");
    }

    #[test]
    fn the_first_to_go() {
        check(Replacement::Fifo, "aab", "a");
        check(Replacement::Lru, "a", "b");
        check(Replacement::Lru, "ab", "c");
        check(Replacement::PriorityLru, "ab", "a");
        check(Replacement::PriorityLru, "ba", "b");
        check(Replacement::S3Fifo, "", "a");
        check(Replacement::S3Fifo, "ab", "c");
    }

    #[test]
    fn a_scan_does_not_drive_out_what_is_used_again() {
        let mut order = Order::default();
        let key = |name: &str, number: u64| Key::new(&format!("{name}{number}"));
        let mut gone = Vec::new();
        for number in 0..10 {
            order.insert(Replacement::S3Fifo, &key("hot", number), 100, 0);
            order.touch(Replacement::S3Fifo, &key("hot", number), 0);
        }
        for number in 0..1_000 {
            order.insert(Replacement::S3Fifo, &key("once", number), 100, 0);
            if number % 5 == 0 {
                order.touch(Replacement::S3Fifo, &key("hot", number / 5 % 10), 0);
            }
            while order.bytes > 2_000 {
                gone.extend(order.evict(Replacement::S3Fifo));
            }
        }
        let is_hot = |key: &&Key| (0..10).any(|number| **key == Key::new(&format!("hot{number}")));
        assert_eq!(gone.iter().filter(is_hot).count(), 0);
        assert!(order.ghosts.order.len() <= order.places.len() + 1);
        // One that went and comes back is not new: the next copies go before it.
        let back = gone.last().unwrap().clone();
        order.insert(Replacement::S3Fifo, &back, 100, 0);
        assert_eq!(order.places[&back].rank.priority, MAIN);
    }

    #[test]
    fn what_went_is_forgotten() {
        let mut order = Order::default();
        order.insert(Replacement::Lru, &Key::new("a"), 1, 0);
        order.forget(&Key::new("a"));
        assert_eq!(order.evict(Replacement::Lru), None);
        order.touch(Replacement::Lru, &Key::new("a"), 1);
        assert_eq!(order.evict(Replacement::Lru), None);
        assert_eq!((order.bytes, order.probation_bytes), (0, 0));
    }
}
