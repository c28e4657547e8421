//! Ghosts: the content of a cache of each replacement policy, without the values.
//!
//! A ghost sees a sample of the keys and has the same share of the budget, as SHARDS does (FAST'15).

use std::collections::BTreeMap;

use crate::config::Replacement;
use crate::config::replacement::Order;
use crate::types::Key;

/// One policy's ghost.
#[derive(Clone, Debug)]
pub(super) struct Ghost {
    policy: Replacement,
    order: Order,
    sizes: BTreeMap<Key, u64>,
    used_bytes: u64,
}

impl Ghost {
    pub(super) fn new(policy: Replacement) -> Self {
        Self {
            policy,
            order: Order::default(),
            sizes: BTreeMap::new(),
            used_bytes: 0,
        }
    }

    /// A key is used; whether it was there. It is there afterwards if it fits.
    pub(super) fn touch(&mut self, key: &Key, size_bytes: u64, budget_bytes: u64, now_us: u64) -> bool {
        let was_there = self.sizes.contains_key(key);
        if was_there && self.sizes.get(key) == Some(&size_bytes) {
            self.order.touch(self.policy, key, now_us);
        } else {
            self.forget(key);
            if size_bytes > budget_bytes {
                return was_there;
            }
            self.order.insert(self.policy, key, size_bytes, now_us);
            self.sizes.insert(key.clone(), size_bytes);
            self.used_bytes += size_bytes;
        }
        while self.used_bytes > budget_bytes {
            let Some(victim) = self.order.evict(self.policy) else {
                break;
            };
            self.forget(&victim);
        }
        was_there
    }

    fn forget(&mut self, key: &Key) {
        if let Some(size_bytes) = self.sizes.remove(key) {
            self.used_bytes -= size_bytes;
            self.order.forget(key);
        }
    }
}
