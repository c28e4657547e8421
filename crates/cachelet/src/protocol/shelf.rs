//! The copies of a cachelet, within its budget.

use std::collections::BTreeMap;

use crate::config::Replacement;
use crate::config::replacement::Order;
use crate::message::{Content, Fill, Have};
use crate::types::{Key, Stamp, Version};

/// Memory that a copy takes beside its value: key, stamp, version and places in the maps.
pub const COPY_OVERHEAD_BYTES: u64 = 64;

/// Whether a copy may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It is current while the lease holds and no invalidation came.
    Valid,
    /// It must be validated first, under every protocol.
    Must,
    /// It waits for the second phase of an update.
    Staged,
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// The content; `Content::Same` does not occur.
    pub content: Content,
    /// Its place in the order.
    pub stamp: Stamp,
    /// Its version, if the store has it.
    pub version: Option<Version>,
    /// Whether it may be served.
    pub state: State,
    /// When the request was sent that last showed it to be current.
    pub validated_at_us: u64,
}

impl Copy {
    /// The copy as its reader states it.
    #[must_use]
    pub fn have(&self) -> Have {
        Have {
            stamp: self.stamp,
            version: self.version.clone(),
        }
    }

    /// Whether an answer that a copy is current is about this one.
    #[must_use]
    pub fn is_meant_by(&self, fill: &Fill) -> bool {
        self.stamp == fill.stamp || (self.version.is_some() && self.version == fill.version)
    }

    fn bytes(&self) -> u64 {
        let value = match &self.content {
            Content::Is(value) => value.size_bytes,
            Content::Same | Content::Nothing => 0,
        };
        value + COPY_OVERHEAD_BYTES
    }
}

/// The copies of a cachelet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shelf {
    copies: BTreeMap<Key, Copy>,
    order: Order,
    policy: Replacement,
    used_bytes: u64,
    budget_bytes: u64,
}

impl Shelf {
    /// An empty shelf.
    pub(super) fn new(policy: Replacement, budget_bytes: u64) -> Self {
        Self {
            copies: BTreeMap::new(),
            order: Order::default(),
            policy,
            used_bytes: 0,
            budget_bytes,
        }
    }

    /// How many copies there are.
    pub(super) fn count(&self) -> usize {
        self.copies.len()
    }

    /// A copy.
    pub(super) fn get(&self, key: &Key) -> Option<&Copy> {
        self.copies.get(key)
    }

    /// A copy, to change its state.
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Copy> {
        self.copies.get_mut(key)
    }

    /// Every copy, to change its state.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Copy)> {
        self.copies.iter_mut()
    }

    /// Keeps the copies that are to be kept.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Key, &Copy) -> bool) {
        let dropped = self.copies.iter().filter(|(key, copy)| !is_kept(key, copy));
        let dropped: Vec<_> = dropped.map(|(key, _)| key.clone()).collect();
        for key in dropped {
            self.remove(&key);
        }
    }

    /// Says that a copy was served.
    pub(super) fn touch(&mut self, key: &Key, now_us: u64) {
        self.order.touch(self.policy, key, now_us);
    }

    /// Keeps a copy, in place of an older one, if it fits the budget; whether it did.
    pub(super) fn insert(&mut self, key: &Key, copy: Copy, now_us: u64) -> bool {
        let bytes = copy.bytes();
        if bytes > self.budget_bytes {
            self.remove(key);
            return false;
        }
        if let Some(old) = self.copies.remove(key) {
            self.used_bytes -= old.bytes();
        }
        self.used_bytes += bytes;
        self.order.insert(self.policy, key, bytes, now_us);
        self.copies.insert(key.clone(), copy);
        self.shrink();
        // If the policy ranks it lowest, it is the first to go.
        self.copies.contains_key(key)
    }

    /// Drops a copy.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Copy> {
        let copy = self.copies.remove(key)?;
        self.used_bytes -= copy.bytes();
        self.order.forget(key);
        Some(copy)
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.policy, self.budget_bytes);
    }

    /// Copies beyond the budget are dropped at once.
    pub(super) fn set_budget(&mut self, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
        self.shrink();
    }

    /// From now on, copies go in this policy's order; those that are here keep their places until they are used.
    pub(super) fn set_policy(&mut self, policy: Replacement) {
        self.policy = policy;
    }

    /// The bytes of the copies.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn shrink(&mut self) {
        while self.used_bytes > self.budget_bytes {
            let Some(victim) = self.order.evict(self.policy) else {
                return;
            };
            self.remove(&victim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Value;

    fn copy(size_bytes: u64) -> Copy {
        Copy {
            content: Content::Is(Value::simulated(1, size_bytes)),
            stamp: Stamp::default(),
            version: None,
            state: State::Valid,
            validated_at_us: 0,
        }
    }

    #[test]
    fn the_budget_is_kept() {
        let mut shelf = Shelf::new(Replacement::Fifo, 1_000);
        for number in 0..20 {
            shelf.insert(&Key::new(&format!("k{number}")), copy(36 + number), 0);
            assert!(shelf.used_bytes() <= 1_000);
        }
        assert!(shelf.get(&Key::new("k0")).is_none() && shelf.get(&Key::new("k19")).is_some());
        assert!(
            !shelf.insert(&Key::new("k19"), copy(2_000), 0),
            "larger than the budget"
        );
        assert!(shelf.get(&Key::new("k19")).is_none(), "the old content is gone, too");
        shelf.set_budget(0);
        assert_eq!(shelf.used_bytes(), 0);
    }
}
