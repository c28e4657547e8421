//! Keys that somebody watches, to learn at some later time whether they have changed.
//!
//! Everything that changes an item's value, expiry or existence for a client says so by [`Shard::changed`], whatever
//! front the client used. There is no other signal. The absence of an item tells that it was evicted, expired or
//! flushed.
//!
//! Invariant: a hash has an entry exactly while there are watches of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tidemark_types::UnixMs;

use super::{Key, Shard};
use crate::hash::KeyHash;

/// The watched keys of a shard, by their hashes. Two keys of one hash would be watched together, which is an unneeded
/// change at worst.
#[derive(Debug, Default)]
pub(super) struct Watches {
    keys: HashMap<KeyHash, Watched>,
    /// Changes of watched keys so far.
    changes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    watches: u32,
    /// [`Watches::changes`] behind the last change of this key.
    changed: u64,
}

/// How a key was when it began to be watched. It must be given back to its shard ([`Shard::unwatch`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    hash: KeyHash,
    changed: u64,
    was_there: bool,
}

impl Shard {
    /// Begins to watch a key.
    #[must_use = "a watch has to be ended"]
    pub fn watch(&mut self, key: &Key<'_>, now: UnixMs) -> Watch {
        let was_there = self.peek(key, now).is_some();
        let fresh = Watched {
            watches: 0,
            changed: self.watches.changes,
        };
        let watched = self.watches.keys.entry(key.hash).or_insert(fresh);
        watched.watches += 1;
        Watch {
            hash: key.hash,
            changed: watched.changed,
            was_there,
        }
    }

    /// Whether a watched key has changed.
    pub fn has_changed(&mut self, key: &Key<'_>, watch: &Watch, now: UnixMs) -> bool {
        let is_there = self.peek(key, now).is_some();
        let changed = self.watches.keys.get(&watch.hash).map(|watched| watched.changed);
        is_there != watch.was_there || changed != Some(watch.changed)
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, watch: &Watch) {
        if let Entry::Occupied(mut entry) = self.watches.keys.entry(watch.hash) {
            entry.get_mut().watches -= 1;
            if entry.get().watches == 0 {
                entry.remove();
            }
        }
        if self.watches.keys.is_empty() {
            self.watches.keys = HashMap::new();
        }
    }

    /// A client has changed a key: its value, its expiry, or whether it is there.
    #[inline]
    pub(super) fn changed(&mut self, key: &Key<'_>) {
        if !self.watches.keys.is_empty() {
            self.watches.note(key.hash);
        }
        self.forget_below(key);
    }

    /// How many keys are watched.
    #[cfg(test)]
    pub(super) fn watched_keys(&self) -> usize {
        self.watches.keys.len()
    }
}

impl Watches {
    #[cold]
    fn note(&mut self, hash: KeyHash) {
        if let Some(watched) = self.keys.get_mut(&hash) {
            self.changes += 1;
            watched.changed = self.changes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Pool, ShardGuard, TenantStore, undriven};
    use std::sync::Arc;
    use std::time::Duration;
    use tidemark_types::{MIB, Policy};

    const NOW: UnixMs = UnixMs(1_000_000_000_000);

    fn at(seconds: u64) -> Attributes {
        Attributes {
            expiry: Some(NOW.plus(Duration::from_secs(seconds))),
            ..Attributes::default()
        }
    }

    fn tenant() -> (Arc<TenantStore>, Pool) {
        let pool = Pool::without_thread(16 * MIB, None).unwrap();
        (undriven::tenant(&pool, 1, Policy::default(), 1, 8 * MIB), pool)
    }

    /// An operation on key `k`, which holds `v` and expires, and whether it is a change.
    type Deed = (&'static str, bool, fn(&mut ShardGuard<'_>, &Key<'_>));

    const DEEDS: &[Deed] = &[
        ("nothing", false, |_, _| {}),
        ("put", true, |shard, key| shard.put(key, b"v", at(60), NOW).unwrap()),
        ("put longer", true, |shard, key| {
            shard.put(key, &[7; 100_000], at(60), NOW).unwrap();
        }),
        ("put outside of the log", true, |shard, key| {
            shard.put(key, &[7; 1_000_000], at(60), NOW).unwrap();
        }),
        ("same token again", true, |shard, key| {
            let attributes = Attributes {
                token: shard.token(key, NOW).unwrap(),
                ..at(60)
            };
            shard.put(key, b"w", attributes, NOW).unwrap();
        }),
        ("delete", true, |shard, key| assert!(shard.delete(key, NOW))),
        ("delete and put", true, |shard, key| {
            shard.delete(key, NOW);
            shard.put(key, b"v", at(60), NOW).unwrap();
        }),
        ("another expiry", true, |shard, key| {
            shard.set_expiry(key, at(61).expiry, NOW).unwrap();
        }),
        ("another expiry and back", true, |shard, key| {
            shard.set_expiry(key, at(61).expiry, NOW).unwrap();
            shard.set_expiry(key, at(60).expiry, NOW).unwrap();
        }),
        ("no expiry", true, |shard, key| {
            shard.set_expiry(key, None, NOW).unwrap();
        }),
        ("an expiry that has come", true, |shard, key| {
            shard.set_expiry(key, Some(NOW), NOW).unwrap();
        }),
        ("the same expiry", false, |shard, key| {
            shard.set_expiry(key, at(60).expiry, NOW).unwrap();
        }),
        ("marked stale", true, |shard, key| {
            let stale = Attributes { stale: true, ..at(60) };
            shard.set_attributes(key, stale, NOW).unwrap();
        }),
        ("someone was told to fetch it", false, |shard, key| {
            let won = Attributes { won: true, ..at(60) };
            shard.set_attributes(key, won, NOW).unwrap();
        }),
        ("get", false, |shard, key| assert!(shard.get(key, NOW).is_some())),
        ("token", false, |shard, key| {
            assert!(shard.token(key, NOW).unwrap().is_some());
        }),
        ("flush", true, |shard, _| shard.flush(None, NOW)),
        ("flush of its database", true, |shard, _| shard.flush(Some(0), NOW)),
        ("flush of another one", false, |shard, _| shard.flush(Some(1), NOW)),
        ("flush and put", true, |shard, key| {
            shard.flush(None, NOW);
            shard.put(key, b"v", at(60), NOW).unwrap();
        }),
        ("another key", false, |shard, key| {
            let other = shard.tenant().key(1, key.bytes);
            shard.put(&other, b"v", at(60), NOW).unwrap();
        }),
    ];

    #[test]
    fn whatever_changes_value_expiry_or_existence_is_a_change() {
        for (name, is_change, deed) in DEEDS {
            let (store, _pool) = tenant();
            let key = store.key(0, b"k");
            let mut shard = store.lock(0);
            shard.put(&key, b"v", at(60), NOW).unwrap();
            let watch = shard.watch(&key, NOW);
            deed(&mut shard, &key);
            assert_eq!(shard.has_changed(&key, &watch, NOW), *is_change, "{name}");
            // A later watcher sees only later changes.
            let later = shard.watch(&key, NOW);
            assert!(!shard.has_changed(&key, &later, NOW), "{name}, later");
            [watch, later].iter().for_each(|watch| shard.unwatch(watch));
            assert_eq!(shard.watched_keys(), 0);
        }
    }

    #[test]
    fn what_comes_and_what_goes_by_itself_is_a_change() {
        let (store, _pool) = tenant();
        let (key, other) = (store.key(0, b"k"), store.key(0, b"o"));
        let mut shard = store.lock(0);
        shard.put(&key, b"v", at(60), NOW).unwrap();
        let (expiring, absent) = (shard.watch(&key, NOW), shard.watch(&other, NOW));
        let later = NOW.plus(Duration::from_secs(60));
        assert!(!shard.has_changed(&key, &expiring, UnixMs(later.0 - 1)));
        assert!(shard.has_changed(&key, &expiring, later));
        assert!(!shard.has_changed(&other, &absent, later));
        // Also where it is gone again.
        shard.put(&other, b"v", at(1), NOW).unwrap();
        shard.delete(&other, NOW);
        assert!(shard.has_changed(&other, &absent, later));
    }
}
