//! Replacement: which copy goes when there is no room.

mod fifo;
mod lru;
mod priority_lru;

use std::collections::BTreeMap;

use crate::types::Key;

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

/// A replacement policy.
pub trait Policy {
    /// Whether a use changes a copy's rank. If not, a hit writes nothing.
    fn moves_on_use(&self) -> bool;
    /// The priority of a copy.
    fn priority(&self, last: Use) -> u32;
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
}

impl Replacement {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Fifo, Self::Lru, Self::PriorityLru];

    fn module(self) -> &'static dyn Policy {
        match self {
            Self::Fifo => &fifo::Fifo,
            Self::Lru => &lru::Lru,
            Self::PriorityLru => &priority_lru::PriorityLru,
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
}

/// Uses of a copy within this time belong to one burst.
pub const BURST_US: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    rank: Rank,
    used: Use,
    used_at_us: u64,
}

/// The copies of a cachelet in the order in which they go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order {
    places: BTreeMap<Key, Place>,
    queue: BTreeMap<Rank, Key>,
    position: u64,
}

impl Order {
    /// A copy of this size came, or was replaced by another one.
    pub fn insert(&mut self, policy: Replacement, key: &Key, size_bytes: u64, now_us: u64) {
        let burst_count = self.remove(key).map_or(1, |place| place.burst_count(now_us));
        self.place(
            policy,
            key,
            Use {
                size_bytes,
                burst_count,
            },
            now_us,
        );
    }

    /// A copy was used.
    pub fn touch(&mut self, policy: Replacement, key: &Key, now_us: u64) {
        if !policy.moves_on_use() {
            return;
        }
        if let Some(place) = self.remove(key) {
            let used = Use {
                burst_count: place.burst_count(now_us),
                ..place.used
            };
            self.place(policy, key, used, now_us);
        }
    }

    /// A copy went.
    pub fn forget(&mut self, key: &Key) {
        self.remove(key);
    }

    /// The copy that goes next.
    #[must_use]
    pub fn next(&self) -> Option<&Key> {
        self.queue.values().next()
    }

    fn remove(&mut self, key: &Key) -> Option<Place> {
        let place = self.places.remove(key)?;
        self.queue.remove(&place.rank);
        Some(place)
    }

    fn place(&mut self, policy: Replacement, key: &Key, used: Use, now_us: u64) {
        self.position += 1;
        let rank = Rank {
            priority: policy.priority(used),
            position: self.position,
        };
        self.queue.insert(rank, key.clone());
        let place = Place {
            rank,
            used,
            used_at_us: now_us,
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
        assert_eq!(order.next(), Some(&Key::new(expected)), "{policy:?} {uses}");
    }

    #[test]
    fn the_first_to_go() {
        check(Replacement::Fifo, "aab", "a");
        check(Replacement::Lru, "a", "b");
        check(Replacement::Lru, "ab", "c");
        check(Replacement::PriorityLru, "ab", "a");
        check(Replacement::PriorityLru, "ba", "b");
    }

    #[test]
    fn what_went_is_forgotten() {
        let mut order = Order::default();
        order.insert(Replacement::Lru, &Key::new("a"), 1, 0);
        order.forget(&Key::new("a"));
        assert_eq!(order.next(), None);
        order.touch(Replacement::Lru, &Key::new("a"), 1);
        assert_eq!(order.next(), None);
    }
}
