//! MULTI, EXEC, DISCARD, WATCH: what a connection has queued and what it watches.
//!
//! Both are bounded ([`crate::limits`]), and what they take is charged to the tenant with the connection's buffers.

use std::collections::HashMap;

use tidemark_protocol::resp::ErrorReply;

use crate::access::ShardSet;
use crate::limits::{TRANSACTION_BYTES, TRANSACTION_COMMANDS, TRANSACTION_KEY_BYTES, WATCHED_KEYS};

/// What a queued command or a watched key takes besides its bytes: the allocation and the entry.
const ENTRY_BYTES: usize = 64;

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
    watched: HashMap<WatchedKey, Option<u64>>,
    watched_bytes: usize,
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

    /// The queued commands, in order.
    pub(crate) fn queued(&self) -> &[Box<[u8]>] {
        &self.queued
    }

    /// The shards that the queued commands need.
    pub(crate) fn shards(&self) -> ShardSet {
        self.shards
    }

    /// Whether a key is watched already.
    pub(crate) fn watches(&self, key: &WatchedKey) -> bool {
        self.watched.contains_key(key)
    }

    /// Which limit watching these keys too would pass, if any.
    pub(crate) fn check_watch(&self, keys: usize, bytes: usize) -> Result<(), ErrorReply<'static>> {
        if self.watched.len() + keys > WATCHED_KEYS {
            return Err(ErrorReply::AboveLimit("what is watched", WATCHED_KEYS, "keys"));
        }
        if self.watched_bytes + bytes > TRANSACTION_KEY_BYTES {
            return Err(ErrorReply::AboveLimit(
                "what is watched",
                TRANSACTION_KEY_BYTES,
                "bytes of keys",
            ));
        }
        Ok(())
    }

    /// Watches a key whose item has this token; `None` if there is no item.
    pub(crate) fn watch(&mut self, key: WatchedKey, token: Option<u64>) {
        let bytes = key.bytes.len();
        if self.watched.insert(key, token).is_none() {
            self.watched_bytes += bytes;
        }
    }

    /// What is watched, with the tokens.
    pub(crate) fn watched(&self) -> impl ExactSizeIterator<Item = (&WatchedKey, Option<u64>)> {
        self.watched.iter().map(|(key, token)| (key, *token))
    }

    /// Forgets what is watched.
    pub(crate) fn unwatch(&mut self) {
        self.watched = HashMap::new();
        self.watched_bytes = 0;
    }

    /// The memory that all of this takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = self.queued.len() + self.watched.len();
        self.queued_bytes + self.watched_bytes + entries * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &[u8]) -> WatchedKey {
        WatchedKey {
            db: 0,
            bytes: name.into(),
        }
    }

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
        let mut transaction = Transaction::default();
        transaction.watch(key(b"a"), Some(1));
        assert!(transaction.watches(&key(b"a")) && !transaction.watches(&WatchedKey { db: 1, ..key(b"a") }));
        assert_eq!(transaction.check_watch(1023, 65_535), Ok(()));
        let error = |keys, bytes| transaction.check_watch(keys, bytes).unwrap_err().to_string();
        assert_eq!(error(1024, 1), "ERR what is watched is above the limit of 1024 keys");
        assert_eq!(
            error(1, 65_536),
            "ERR what is watched is above the limit of 65536 bytes of keys"
        );
        assert_eq!(transaction.memory_bytes(), 1 + ENTRY_BYTES);
        transaction.unwatch();
        assert_eq!((transaction.watched().len(), transaction.memory_bytes()), (0, 0));
    }
}
