//! How commands get at shards: one lock at a time, or several of a tenant's at once for a step that is atomic to
//! others.

use std::sync::Arc;

use tidemark_store::{Attributes, Key, KeyHash, Refused, Reservation, SHARDS_MAX, Shard, ShardGuard, TenantStore};
use tidemark_types::UnixMs;

use crate::limits::{LONG_VALUE_BYTES, WINDOW_COMMANDS};

/// Locks on a tenant's shards, taken as they are needed.
pub(crate) struct Access<'t> {
    store: &'t Arc<TenantStore>,
    held: Held<'t>,
    /// The reservation that already holds the next long value to be written.
    room: Option<Reservation>,
}

enum Held<'t> {
    /// At most one, kept for the next command, which often needs the same one.
    One(Option<ShardGuard<'t>>),
    /// Several, taken in ascending order: the work is one step for everybody else.
    Several(ShardSet, Vec<ShardGuard<'t>>),
}

#[cold]
fn release(held: &mut Option<ShardGuard<'_>>) {
    *held = None;
}

#[cold]
fn lock(store: &Arc<TenantStore>, shard: usize) -> ShardGuard<'_> {
    store.lock(shard)
}

/// Some of a tenant's shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardSet(u64);

const _: () = assert!(SHARDS_MAX <= 64, "one bit for each shard");

impl ShardSet {
    /// All shards that a tenant can have.
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn add(&mut self, shard: usize) {
        self.0 |= 1 << shard;
    }

    /// The shards of both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, shard: usize) -> bool {
        self.0 & 1 << shard != 0
    }

    /// How many shards of the set are below this one.
    fn count_below(self, shard: usize) -> usize {
        (self.0 & ((1 << shard) - 1)).count_ones() as usize
    }
}

impl<'t> Access<'t> {
    /// Access that locks shards one by one.
    #[inline]
    pub(crate) fn each(store: &'t Arc<TenantStore>) -> Self {
        Self {
            store,
            held: Held::One(None),
            room: None,
        }
    }

    /// Takes the locks of several shards and keeps them: the following work is one step for everybody else. Nothing if
    /// that was done before; then they must have been among those.
    pub(crate) fn hold(&mut self, shards: ShardSet) {
        if let Held::One(held) = &mut self.held {
            *held = None;
            let wanted = (0..self.store.shards()).filter(|shard| shards.has(*shard));
            self.held = Held::Several(shards, wanted.map(|shard| self.store.lock(shard)).collect());
        }
    }

    /// Takes the locks of the shards that these keys of a database are in, and keeps them.
    pub(crate) fn hold_keys<'k>(&mut self, db: u8, keys: impl Iterator<Item = &'k [u8]>) {
        let mut shards = ShardSet::default();
        keys.for_each(|key| shards.add(self.store.shard_of(self.store.key(db, key).hash)));
        self.hold(shards);
    }

    /// Whether locks are kept: the work is one step, which cannot go on in a later turn.
    pub(crate) fn keeps_locks(&self) -> bool {
        matches!(self.held, Held::Several(..))
    }

    #[inline]
    pub(crate) fn store(&self) -> &'t Arc<TenantStore> {
        self.store
    }

    /// Does a flush that is due. Not while several locks are kept.
    #[inline]
    pub(crate) fn flush_if_due(&mut self, now: UnixMs) {
        if self.store.is_flush_due(now) {
            // The flush takes all locks itself.
            self.pause();
            self.store.flush_if_due(now);
        }
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
    // Each command asks for its shard, and most of a window's are the one that is held: only that is inlined.
    #[inline(always)]
    pub(crate) fn shard(&mut self, number: usize) -> &mut ShardGuard<'t> {
        match &mut self.held {
            Held::Several(shards, guards) => {
                debug_assert!(shards.has(number), "shard {number} was not locked");
                &mut guards[shards.count_below(number)]
            }
            Held::One(held) => {
                if held.as_ref().is_some_and(|guard| guard.number() != number) {
                    // Released first: two locks at a time, in any order, could wait for each other.
                    release(held);
                }
                held.get_or_insert_with(|| lock(self.store, number))
            }
        }
    }

    /// Shows every shard, one after the other; none if the tenant never wrote.
    pub(crate) fn for_each_shard(&mut self, mut f: impl FnMut(&Shard)) {
        self.pause();
        match &self.held {
            Held::Several(_, guards) => guards.iter().for_each(|guard| f(guard)),
            Held::One(_) => {
                self.store.sum(|shard| {
                    f(shard);
                    0
                });
            }
        }
    }

    /// Removes everything of one database, or of all. Those who keep locks must keep all.
    pub(crate) fn flush(&mut self, db: Option<u8>, now: UnixMs) {
        self.pause();
        match &mut self.held {
            Held::Several(_, guards) => guards.iter_mut().for_each(|guard| guard.flush(db, now)),
            Held::One(_) => self.store.flush(db, now),
        }
    }

    /// Gives the room into which the value that is about to be written was copied already.
    pub(crate) fn give_room(&mut self, room: Reservation) {
        self.room = Some(room);
    }

    /// Puts such room back if it was not needed.
    pub(crate) fn put_room_back(&mut self) {
        if self.room.is_some() {
            // This takes the lock.
            self.pause();
            self.room = None;
        }
    }

    /// Writes an item. A long value is copied without a lock, unless several are held.
    #[inline]
    pub(crate) fn put(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<(), Refused> {
        if value.len() >= LONG_VALUE_BYTES
            && self.room.is_none()
            && let Held::One(held) = &mut self.held
        {
            *held = None;
            return self.store.put(key, value, attributes, now);
        }
        self.put_locked(key, value, attributes, now)
    }

    /// Writes an item under the lock under which something was looked at before.
    #[inline]
    pub(crate) fn put_locked(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<(), Refused> {
        if value.len() >= LONG_VALUE_BYTES
            && let Some(room) = self.room.take_if(|room| room.value_bytes() == value.len())
        {
            return self.shard_of(key.hash).commit(room, key, attributes, now);
        }
        self.shard_of(key.hash).put(key, value, attributes, now)
    }

    /// Loads the data of a window's commands ahead: first all buckets, then all items.
    #[inline]
    pub(crate) fn prefetch(&mut self, hashes: &[KeyHash]) {
        for hash in hashes {
            self.store.prefetch(*hash);
        }
        for hash in hashes {
            self.shard_of(*hash).prefetch_item(*hash, 0);
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
            // Others get their turn between the windows of a long list.
            self.pause();
        }
    }
}

/// Access to a tenant's store: the one there is, if it is to the same.
pub(crate) fn access_to<'x, 't>(access: &'x mut Option<Access<'t>>, store: &'t Arc<TenantStore>) -> &'x mut Access<'t> {
    if access
        .as_ref()
        .is_some_and(|access| !Arc::ptr_eq(access.store(), store))
    {
        // Its lock is released before another one is taken.
        *access = None;
    }
    access.get_or_insert_with(|| Access::each(store))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::store;
    use std::time::Duration;
    use tidemark_types::MIB;

    #[test]
    fn a_flush_that_comes_due_between_two_commands_does_not_wait_for_itself() {
        const NOW: UnixMs = UnixMs(1_000);
        let store = store(2, 4 * MIB);
        let (done, result) = std::sync::mpsc::channel();
        // In a thread of its own, so that a wait without an end fails the test.
        std::thread::spawn(move || {
            let key = store.key(0, b"k");
            let mut access = Access::each(&store);
            access.put(&key, b"v", Attributes::default(), NOW).unwrap();
            let mut is_there = || access.shard_of(key.hash).get(&key, NOW).is_some();
            let before = is_there();
            store.flush_at(NOW);
            access.flush_if_due(NOW);
            let after = access.shard_of(key.hash).get(&key, NOW).is_some();
            done.send((before, after)).unwrap();
        });
        assert_eq!(result.recv_timeout(Duration::from_secs(10)), Ok((true, false)));
    }
}
