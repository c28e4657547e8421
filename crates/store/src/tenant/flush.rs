//! Removing everything of a tenant, or of one of its databases, at once or at a moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_types::UnixMs;

use super::{NEVER, ShardGuard, TenantStore};
use crate::shared::Left;

impl TenantStore {
    /// Removes everything of all databases, at once as others see it, and gives the memory back.
    pub fn clear(self: &Arc<Self>) {
        if self.cells.get().is_some() {
            let empty = |guard: &mut ShardGuard<'_>| guard.shard.empty(Left::Removed);
            self.lock_all().iter_mut().for_each(empty);
        }
        self.shared.dig_all();
    }

    /// Removes everything of one database, or of all, for a client, at once as others see it. The memory comes back in
    /// pieces, by the keepers or as it is needed.
    pub fn flush(self: &Arc<Self>, db: Option<u8>, now: UnixMs) {
        if self.cells.get().is_some() {
            self.lock_all().iter_mut().for_each(|shard| shard.flush(db, now));
        } else {
            self.flush_below(db);
        }
    }

    pub(super) fn flush_below(&self, db: Option<u8>) {
        if let Some(below) = self.shared.below() {
            below.flush(db);
        }
    }

    /// Arranges for database 0 to be flushed at a moment (memcached's `flush_all` with a delay); a later call replaces an
    /// earlier one. Keepers see to it; one who uses the store sees to it by [`Self::flush_if_due`] before each use.
    pub fn flush_at(&self, at: UnixMs) {
        self.flush_at.store(at.0, Ordering::Relaxed);
    }

    /// Whether [`Self::flush_if_due`] would flush; that must not be called while a shard is locked.
    #[inline]
    pub fn is_flush_due(&self, now: UnixMs) -> bool {
        self.flush_at.load(Ordering::Relaxed) <= now.0
    }

    /// Flushes database 0 if that is due. Not while one of the shards is locked by the caller.
    #[inline]
    pub fn flush_if_due(self: &Arc<Self>, now: UnixMs) {
        if self.is_flush_due(now) {
            self.flush_due(now);
        }
    }

    /// Commands that come meanwhile wait for it: later writes stay.
    #[cold]
    fn flush_due(self: &Arc<Self>, now: UnixMs) {
        let has_shards = self.cells.get().is_some();
        let mut guards = if has_shards { self.lock_all() } else { Vec::new() };
        let due = self.flush_at.load(Ordering::Relaxed);
        let is_mine = due <= now.0
            && self
                .flush_at
                .compare_exchange(due, NEVER, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            return;
        }
        if !has_shards {
            self.flush_below(Some(0));
        }
        guards.iter_mut().for_each(|shard| shard.flush(Some(0), now));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::hash::{Hasher, KeyHash};
    use crate::shared::{Below, Hooks, Leaving};
    use crate::{KeeperInbox, Pool, TenantConfig};
    use tidemark_types::MIB;

    /// Counts the flushes of database 0.
    #[derive(Default)]
    struct Flushes(AtomicU32);

    impl Below for Flushes {
        fn forget(&self, _: KeyHash) {}

        fn demote(&self, _: &Leaving<'_>) {}

        fn flush(&self, db: Option<u8>) {
            assert_eq!(db, Some(0));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_due_flush_reaches_what_only_lies_below_memory() {
        let pool = Pool::without_thread(MIB, Some(4 * MIB)).unwrap();
        let below = Arc::new(Flushes::default());
        let hooks = Hooks {
            below: Some(Arc::clone(&below) as Arc<dyn Below>),
            ..Hooks::default()
        };
        let config = TenantConfig::with_keeper(KeeperInbox::new(Box::new(|| {})), Hasher::with_seed(1));
        let store = TenantStore::with_hooks(&pool, config, hooks);
        // Nothing was written since the start: the tenant has no shards yet.
        store.flush_at(UnixMs(2_000));
        store.flush_if_due(UnixMs(1_999));
        assert_eq!(below.0.load(Ordering::Relaxed), 0);
        store.flush_if_due(UnixMs(2_000));
        store.flush_if_due(UnixMs(2_001));
        assert_eq!(below.0.load(Ordering::Relaxed), 1);
    }
}
