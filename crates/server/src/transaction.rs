//! MULTI, EXEC, DISCARD, WATCH: the queued commands and watched keys of a connection.
//!
//! Both are bounded ([`crate::limits`]), and their memory is charged to the tenant with the connection's buffers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use tidemark_protocol::resp::ErrorReply;
use tidemark_store::{TenantStore, Watch};
use tidemark_types::UnixMs;

use crate::access::{Access, ShardSet};
use crate::limits::{TRANSACTION_BYTES, TRANSACTION_COMMANDS, TRANSACTION_KEY_BYTES, WATCHED_KEYS};
use crate::suspend::Segment;

/// The memory of a queued command or a watched key besides its bytes: the allocation and the entries, of a watched key
/// also its shard's.
pub(crate) const ENTRY_BYTES: usize = 128;

/// A connection's transaction and its watched keys.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Between MULTI and EXEC.
    pub(crate) is_open: bool,
    /// A command was refused while it was queued: EXEC will refuse all.
    pub(crate) is_broken: bool,
    queued: Vec<Box<[u8]>>,
    queued_bytes: usize,
    key_bytes: usize,
    /// The shards that the queued commands need.
    shards: ShardSet,
    /// SELECT was queued: which keys the commands behind it mean is known when it is executed.
    pub(crate) changes_db: bool,
    /// INFO was queued.
    pub(crate) asks_for_process: bool,
    /// A script was queued: the whole is run where scripts are.
    pub(crate) has_script: bool,
    /// A command was queued that can not be executed there.
    pub(crate) needs_session: bool,
    watched: Watched,
    /// The segment of flash that is read for its first SCAN, before shards are locked.
    pub(crate) ahead: OnceLock<Arc<Segment>>,
    /// How often its keys were waited for once more, since they had gone to flash again when its shards were locked.
    tries: AtomicU8,
}

/// A transaction whose keys do not all fit into memory at once would wait for ever.
const TRIES: u8 = 3;

/// The keys that a connection watches. They end with it, which locks their shards: not while one of them is locked.
#[derive(Debug, Default)]
struct Watched {
    /// The store of their tenant; `None` while there are none.
    store: Option<Arc<TenantStore>>,
    keys: HashMap<WatchedKey, Watch>,
    key_bytes: usize,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Some(store) = &self.store else { return };
        let mut access = Access::each(store);
        for (key, watch) in &self.keys {
            access.shard_of(store.key(key.db, &key.bytes).hash).unwatch(watch);
        }
    }
}

/// A key of a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WatchedKey {
    pub(crate) db: u8,
    pub(crate) bytes: Box<[u8]>,
}

impl Transaction {
    /// Which limit one more command of this size would pass, if any.
    pub(crate) fn check(&self, command_bytes: usize, key_bytes: usize) -> Result<(), ErrorReply<'static>> {
        let above = |what, limit, unit| Err(ErrorReply::AboveLimit(what, limit, unit));
        if self.queued.len() >= TRANSACTION_COMMANDS {
            return above("a transaction", TRANSACTION_COMMANDS, "commands");
        }
        if self.key_bytes + key_bytes > TRANSACTION_KEY_BYTES {
            return above("a transaction", TRANSACTION_KEY_BYTES, "bytes of keys");
        }
        // The keys have a limit of their own: here it is the bodies that count.
        if self.queued_bytes + command_bytes > TRANSACTION_BYTES + TRANSACTION_KEY_BYTES {
            return above("a transaction", TRANSACTION_BYTES + TRANSACTION_KEY_BYTES, "bytes");
        }
        Ok(())
    }

    /// Queues a command, as a RESP array.
    pub(crate) fn queue(&mut self, command: Box<[u8]>, key_bytes: usize) {
        self.queued_bytes += command.len();
        self.key_bytes += key_bytes;
        self.queued.push(command);
    }

    /// Notes that a queued command needs a shard.
    pub(crate) fn need(&mut self, shard: usize) {
        self.shards.add(shard);
    }

    /// Notes that a queued command needs every shard.
    pub(crate) fn need_all(&mut self) {
        self.shards = ShardSet::ALL;
    }

    /// Its keys are to be waited for once more. Whether that was done often enough.
    pub(crate) fn has_tried_enough(&self) -> bool {
        // Nobody else has it meanwhile.
        self.tries.fetch_add(1, Ordering::Relaxed) >= TRIES
    }

    /// The queued commands, in order.
    pub(crate) fn queued(&self) -> &[Box<[u8]>] {
        &self.queued
    }

    /// The shards that the queued commands need.
    pub(crate) fn shards(&self) -> ShardSet {
        self.shards
    }

    /// Which limit watching these keys too would pass, if any.
    fn check_watch(&self, keys: usize, bytes: usize) -> Result<(), ErrorReply<'static>> {
        if self.watched.keys.len() + keys > WATCHED_KEYS {
            return Err(ErrorReply::AboveLimit("what is watched", WATCHED_KEYS, "keys"));
        }
        if self.watched.key_bytes + bytes > TRANSACTION_KEY_BYTES {
            return Err(ErrorReply::AboveLimit(
                "what is watched",
                TRANSACTION_KEY_BYTES,
                "bytes of keys",
            ));
        }
        Ok(())
    }

    /// Watches keys of a database, up to the limits; one that is watched already goes on being watched as it was first.
    ///
    /// # Errors
    /// They are too many; none of them is watched then.
    pub(crate) fn watch<'k>(
        &mut self,
        store: &Arc<TenantStore>,
        db: u8,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        now: UnixMs,
    ) -> Result<(), ErrorReply<'static>> {
        let watched_key = |bytes: &[u8]| WatchedKey {
            db,
            bytes: bytes.into(),
        };
        let new = keys.filter(|bytes| !self.watched.keys.contains_key(&watched_key(bytes)));
        self.check_watch(new.clone().count(), new.clone().map(<[u8]>::len).sum())?;
        let new: Vec<_> = new.map(|bytes| (watched_key(bytes), store.key(db, bytes))).collect();
        let watched = &mut self.watched;
        watched.store.get_or_insert_with(|| Arc::clone(store));
        let mut access = Access::each(store);
        for (watched_key, key) in new {
            // It may be named twice.
            if let Entry::Vacant(entry) = watched.keys.entry(watched_key) {
                entry.insert(access.shard_of(key.hash).watch(&key, now));
                watched.key_bytes += key.bytes.len();
            }
        }
        Ok(())
    }

    /// The watched keys, with their databases, in no order that means something but the same each time.
    pub(crate) fn watched(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.watched.keys.keys().map(|key| (key.db, &*key.bytes))
    }

    /// How many keys are watched.
    pub(crate) fn watched_keys(&self) -> usize {
        self.watched.keys.len()
    }

    /// The shards of the watched keys.
    pub(crate) fn watched_shards(&self) -> ShardSet {
        let mut shards = ShardSet::default();
        if let Some(store) = &self.watched.store {
            let hashes = self.watched.keys.keys().map(|key| store.key(key.db, &key.bytes).hash);
            hashes.for_each(|hash| shards.add(store.shard_of(hash)));
        }
        shards
    }

    /// Whether a watched key has changed. `access` is to the tenant whose keys they are.
    pub(crate) fn has_changed(&self, access: &mut Access<'_>, now: UnixMs) -> bool {
        self.watched.keys.iter().any(|(watched, watch)| {
            let key = access.store().key(watched.db, &watched.bytes);
            access.shard_of(key.hash).has_changed(&key, watch, now)
        })
    }

    /// Forgets the watched keys.
    pub(crate) fn unwatch(&mut self) {
        self.watched = Watched::default();
    }

    /// The memory that all of this takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = self.queued.len() + self.watched.keys.len();
        let ahead = self.ahead.get().map_or(0, |segment| segment.read.bytes());
        self.queued_bytes + self.watched.key_bytes + entries * ENTRY_BYTES + ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::store;
    use tidemark_store::Attributes;
    use tidemark_types::MIB;

    #[test]
    fn every_limit_of_a_transaction_is_named_when_it_would_be_passed() {
        let filled = |commands: usize, command_bytes: usize, key_bytes: usize| {
            let mut transaction = Transaction::default();
            (0..commands).for_each(|_| transaction.queue(vec![0; command_bytes].into(), key_bytes));
            transaction
        };
        for (transaction, command_bytes, key_bytes, error) in [
            (filled(1023, 30, 1), 30, 1, None),
            (
                filled(1024, 30, 1),
                30,
                1,
                Some("ERR a transaction is above the limit of 1024 commands"),
            ),
            (filled(1, 66_000, 65_000), 600, 536, None),
            (
                filled(1, 66_000, 65_000),
                600,
                537,
                Some("ERR a transaction is above the limit of 65536 bytes of keys"),
            ),
            (filled(1, 1 << 20, 10), 1 << 16, 3, None),
            (
                filled(1, 1 << 20, 10),
                65_537,
                3,
                Some("ERR a transaction is above the limit of 1114112 bytes"),
            ),
        ] {
            let found = transaction
                .check(command_bytes, key_bytes)
                .err()
                .map(|error| error.to_string());
            assert_eq!(found.as_deref(), error);
        }
    }

    #[test]
    fn what_is_watched_is_bounded_and_remembered_as_it_was_first() {
        const NOW: UnixMs = UnixMs(1_000);
        let store = store(2, 4 * MIB);
        let mut transaction = Transaction::default();
        let is_changed = |transaction: &Transaction| transaction.has_changed(&mut Access::each(&store), NOW);
        transaction.watch(&store, 0, [&b"a"[..]].into_iter(), NOW).unwrap();
        assert_eq!(transaction.check_watch(1023, 65_535), Ok(()));
        let error = |keys, bytes| transaction.check_watch(keys, bytes).unwrap_err().to_string();
        assert_eq!(error(1024, 1), "ERR what is watched is above the limit of 1024 keys");
        assert_eq!(
            error(1, 65_536),
            "ERR what is watched is above the limit of 65536 bytes of keys"
        );
        assert_eq!(transaction.memory_bytes(), 1 + ENTRY_BYTES);
        // Another database's key of the same name is another one, and a key that was watched before is so as it was then.
        transaction.watch(&store, 1, [&b"a"[..]].into_iter(), NOW).unwrap();
        assert_eq!((transaction.watched_keys(), is_changed(&transaction)), (2, false));
        store
            .put(&store.key(0, b"a"), b"v", Attributes::default(), NOW)
            .unwrap();
        transaction
            .watch(&store, 0, [&b"a"[..], b"a"].into_iter(), NOW)
            .unwrap();
        assert_eq!((transaction.watched_keys(), is_changed(&transaction)), (2, true));
        transaction.unwatch();
        assert_eq!((transaction.watched_keys(), transaction.memory_bytes()), (0, 0));
        assert!(!is_changed(&transaction));
    }
}
