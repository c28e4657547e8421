//! Copies of cachelets in a tenant's memory, beside the blocks of its long objects. They are items of the same store, so that the
//! tenant's grant, goals, curve and bill are of both.
//!
//! A copy lies under a name that its cachelet gives, behind a head that says which copy it is. Memory may evict it at any time;
//! then it is simply not there. Invariant: what is read has the head that it was kept with.

use bytes::Bytes;
use tidemark_store::{Attributes, Key, Refused, ShardGuard};
use tidemark_types::{Clock, SystemClock, UnixMs};

use crate::memory::{StoreMemory, read_found};

/// The database of a tenant that copies are in.
const DATABASE: u8 = 14;
/// The length of a head.
pub const HEAD_BYTES: usize = 16;

/// Which copy it is.
pub type Head = [u8; HEAD_BYTES];

/// A copy that memory has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCopy {
    /// Which one.
    pub head: Head,
    /// Its bytes.
    pub body: Bytes,
}

/// A tenant's memory on this node, blocks and copies together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Memory that it may hold by its grant, in bytes.
    pub grant_bytes: u64,
    /// Memory that it holds, index and all, in bytes.
    pub usage_bytes: u64,
    /// Items that it holds.
    pub items: u64,
    /// Reads, and those that found something.
    pub gets: u64,
    /// See `gets`.
    pub hits: u64,
    /// Items that were evicted.
    pub evicted: u64,
}

impl StoreMemory {
    /// The copy of that name. It counts as a read of the tenant, found or not.
    pub fn look_up(&self, name: &[u8]) -> Option<KeptCopy> {
        let (key, now) = (self.store.key(DATABASE, name), SystemClock.now());
        let mut guard = self.store.lock(self.store.shard_of(key.hash));
        let found = guard.get(&key, now).map(|found| found.value().len());
        let copy = found.and_then(|bytes| whole(guard, &key, bytes, now));
        (self.touched)(());
        copy
    }

    /// The same without a trace.
    pub fn peek(&self, name: &[u8]) -> Option<KeptCopy> {
        let (key, now) = (self.store.key(DATABASE, name), SystemClock.now());
        let mut guard = self.store.lock(self.store.shard_of(key.hash));
        let bytes = guard.peek(&key, now)?.value().len();
        whole(guard, &key, bytes, now)
    }

    /// Keeps a copy in place of the one of that name. Whether there was room; if not, there is none of that name.
    pub fn keep(&self, name: &[u8], head: &Head, body: &[u8]) -> bool {
        let (key, now) = (self.store.key(DATABASE, name), SystemClock.now());
        let is_kept = self.put(&key, head, body, now).is_ok();
        if !is_kept {
            self.store.lock(self.store.shard_of(key.hash)).delete(&key, now);
        }
        (self.touched)(());
        is_kept
    }

    /// A long copy is written where it will lie, and no lock is held meanwhile.
    fn put(&self, key: &Key<'_>, head: &Head, body: &[u8], now: UnixMs) -> Result<(), Refused> {
        let mut guard = self.store.lock(self.store.shard_of(key.hash));
        let Some(mut room) = guard.reserve(head.len() + body.len(), now)? else {
            return guard.put(key, &[head, body].concat(), Attributes::default(), now);
        };
        drop(guard);
        room.write(head, now)?;
        room.write(body, now)?;
        room.commit(key, Attributes::default(), now)
    }

    /// Removes a copy, if it is the one of that name.
    pub fn forget(&self, name: &[u8], head: &Head) {
        let (key, now) = (self.store.key(DATABASE, name), SystemClock.now());
        let mut guard = self.store.lock(self.store.shard_of(key.hash));
        let first = guard.peek(&key, now).and_then(|found| found.value().parts().next());
        if first.is_some_and(|part| part.starts_with(head)) {
            guard.delete(&key, now);
        }
        drop(guard);
        (self.touched)(());
    }

    /// Limits what the tenant holds, whatever is granted to it, from now on; `None` lifts it. See [`TenantStore::set_limit`].
    ///
    /// [`TenantStore::set_limit`]: tidemark_store::TenantStore::set_limit
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.store.set_limit(bytes);
    }

    /// Memory that it may hold by its grant, in bytes; zero before its first write.
    pub fn grant_bytes(&self) -> u64 {
        self.store.grant_bytes()
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        let counts = self.store.counters();
        Standing {
            grant_bytes: self.store.grant_bytes(),
            usage_bytes: self.store.usage_bytes(),
            items: counts.items,
            gets: counts.counters.gets,
            hits: counts.counters.hits,
            evicted: counts.counters.evicted,
        }
    }
}

/// A copy that was just found, which has so many bytes with its head.
fn whole(guard: ShardGuard<'_>, key: &Key<'_>, bytes: usize, now: UnixMs) -> Option<KeptCopy> {
    let read = read_found(guard, key, bytes, 0..bytes, now)?;
    Some(KeptCopy {
        head: read.get(..HEAD_BYTES)?.try_into().ok()?,
        body: read.slice(HEAD_BYTES..),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tidemark_store::{Hasher, KeeperInbox, Pool, TenantConfig, TenantStore};
    use tidemark_types::{MIB, Policy, TenantId};

    use super::*;

    const HEAD: Head = [1; HEAD_BYTES];

    /// A tenant's memory of so many bytes, and how often somebody was told that it was used.
    fn memory(grant_bytes: u64) -> (StoreMemory, Arc<AtomicUsize>, Pool) {
        let pool = Pool::without_thread(2 * grant_bytes, None).unwrap();
        let config = TenantConfig {
            policy: Policy::Fifo,
            ..TenantConfig::with_keeper(KeeperInbox::new(Box::new(|| {})), Hasher::with_seed(1))
        };
        let store = TenantStore::new(&pool, config);
        store.set_grant(grant_bytes, 0);
        let touched = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&touched);
        let memory = StoreMemory::new(
            (TenantId(1), "shop"),
            store,
            Arc::new(move |()| {
                counted.fetch_add(1, Ordering::Relaxed);
            }),
            Arc::new(|_| {}),
            Arc::new(|_| {}),
            Arc::new(|_| {}),
        );
        (memory, touched, pool)
    }

    #[test]
    fn copies_of_any_length_are_read_as_they_were_kept() {
        let (memory, touched, _pool) = memory(32 * MIB);
        for bytes in [0_usize, 1, 100, 64 << 10, 300_000, 5 << 20] {
            let body: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let name = bytes.to_string();
            assert!(memory.keep(name.as_bytes(), &HEAD, &body), "{bytes}");
            let read = memory.look_up(name.as_bytes()).unwrap();
            assert!(read.head == HEAD && read.body == body, "{bytes}");
            assert_eq!(memory.peek(name.as_bytes()), Some(read));
        }
        assert_eq!(memory.look_up(b"none"), None);
        let standing = memory.standing();
        assert_eq!((standing.gets, standing.hits, standing.items), (7, 6, 6));
        assert!(standing.usage_bytes > 5 * MIB, "{standing:?}");
        assert!(touched.load(Ordering::Relaxed) >= 13);
    }

    #[test]
    fn only_the_copy_that_is_meant_is_forgotten() {
        let (memory, _, _pool) = memory(8 * MIB);
        assert!(memory.keep(b"a", &HEAD, b"old"));
        assert!(memory.keep(b"a", &[2; HEAD_BYTES], b"new"));
        memory.forget(b"a", &HEAD);
        assert_eq!(memory.peek(b"a").unwrap().body, "new");
        memory.forget(b"a", &[2; HEAD_BYTES]);
        assert_eq!(memory.peek(b"a"), None);
    }

    #[test]
    fn a_copy_without_room_leaves_nothing_behind() {
        let (memory, _, _pool) = memory(4 * MIB);
        assert!(memory.keep(b"a", &HEAD, b"old"));
        assert!(!memory.keep(b"a", &[2; HEAD_BYTES], &vec![0; 8 << 20]));
        assert_eq!(memory.peek(b"a"), None, "the old one would be taken for current");
    }
}
