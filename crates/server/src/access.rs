//! How commands get at shards: one lock at a time, or all of a tenant's at once for a transaction.

use std::sync::Arc;

use tidemark_store::{Key, KeyHash, ShardGuard, TenantStore};

use crate::limits::WINDOW_COMMANDS;

/// Locks on a tenant's shards, taken as they are needed.
pub(crate) struct Access<'t> {
    store: &'t Arc<TenantStore>,
    held: Held<'t>,
}

enum Held<'t> {
    /// At most one, kept for the next command, which often needs the same one.
    One(Option<ShardGuard<'t>>),
    /// Every shard's, in order: what is done is one step for everybody else.
    All(Vec<ShardGuard<'t>>),
}

impl<'t> Access<'t> {
    /// Access that locks shards one by one.
    #[inline]
    pub(crate) fn each(store: &'t Arc<TenantStore>) -> Self {
        Self { store, held: Held::One(None) }
    }

    /// Access that holds all shards.
    pub(crate) fn all(store: &'t Arc<TenantStore>) -> Self {
        Self { store, held: Held::All(store.lock_all()) }
    }

    #[inline]
    pub(crate) fn store(&self) -> &'t Arc<TenantStore> {
        self.store
    }

    /// Releases a lock that is held only in case it is needed again.
    pub(crate) fn pause(&mut self) {
        if let Held::One(held) = &mut self.held {
            *held = None;
        }
    }

    /// The shard of a hash, locked.
    #[inline]
    pub(crate) fn shard_of(&mut self, hash: KeyHash) -> &mut ShardGuard<'t> {
        self.shard(self.store.shard_of(hash))
    }

    /// A shard, locked.
    #[inline]
    pub(crate) fn shard(&mut self, number: usize) -> &mut ShardGuard<'t> {
        match &mut self.held {
            Held::All(guards) => &mut guards[number],
            Held::One(held) => {
                if held.as_ref().is_some_and(|guard| guard.number() != number) {
                    // Released first: two locks at a time, in any order, could wait for each other.
                    *held = None;
                }
                held.get_or_insert_with(|| self.store.lock(number))
            }
        }
    }

    /// Loads what the commands of a window will need ahead: first all buckets, then all items.
    #[inline]
    pub(crate) fn prefetch(&mut self, hashes: &[KeyHash]) {
        for hash in hashes {
            self.store.prefetch(*hash);
        }
        for hash in hashes {
            self.shard_of(*hash).prefetch_item(*hash);
        }
    }

    /// Calls `f` for each key in order, loading ahead a window at a time. `f` says whether to go on.
    pub(crate) fn for_each_key<'k>(
        &mut self,
        db: u8,
        mut keys: impl Iterator<Item = &'k [u8]>,
        mut f: impl FnMut(&mut ShardGuard<'t>, Key<'k>) -> bool,
    ) {
        loop {
            let mut window: [Option<Key<'k>>; WINDOW_COMMANDS] = [None; WINDOW_COMMANDS];
            let mut hashes = [KeyHash(0); WINDOW_COMMANDS];
            let mut count = 0;
            for bytes in keys.by_ref().take(WINDOW_COMMANDS) {
                let key = self.store.key(db, bytes);
                hashes[count] = key.hash;
                window[count] = Some(key);
                count += 1;
            }
            if count == 0 {
                return;
            }
            if count > 1 {
                self.prefetch(&hashes[..count]);
            }
            for key in window.into_iter().flatten() {
                if !f(self.shard_of(key.hash), key) {
                    return;
                }
            }
        }
    }
}
