//! MULTI, EXEC, DISCARD, WATCH: what a connection has queued and what it watches.

use crate::limits::{TRANSACTION_BYTES, TRANSACTION_COMMANDS, TRANSACTION_KEY_BYTES};

/// A connection's transaction and its watched keys.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Between MULTI and EXEC.
    pub(crate) is_open: bool,
    /// A command was refused while it was queued: EXEC will refuse all.
    pub(crate) is_broken: bool,
    /// The commands as they came, each from its `*` on.
    pub(crate) queued: Vec<Box<[u8]>>,
    pub(crate) queued_bytes: usize,
    pub(crate) key_bytes: usize,
    pub(crate) watched: Vec<Watched>,
}

/// A watched key and what it was.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) db: u8,
    pub(crate) key: Box<[u8]>,
    /// The item's token; `None` if there was no item.
    pub(crate) token: Option<u64>,
}

impl Transaction {
    /// Whether one more command of this size would pass a limit.
    pub(crate) fn would_overflow(&self, bytes: usize, key_bytes: usize) -> bool {
        self.queued.len() >= TRANSACTION_COMMANDS
            || self.queued_bytes + bytes > TRANSACTION_BYTES
            || self.key_bytes + key_bytes > TRANSACTION_KEY_BYTES
    }

    /// Queues a command.
    pub(crate) fn queue(&mut self, command: &[u8], key_bytes: usize) {
        self.queued_bytes += command.len();
        self.key_bytes += key_bytes;
        self.queued.push(command.into());
    }

    /// Forgets what is queued; what is watched stays.
    pub(crate) fn discard(&mut self) {
        let watched = std::mem::take(&mut self.watched);
        *self = Self { watched, ..Self::default() };
    }
}
