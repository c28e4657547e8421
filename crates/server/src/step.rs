//! What a window executes: a command with one key, and what it takes to store a long value without keeping others waiting.

use std::sync::Arc;

use tidemark_protocol::memcached as mc;
use tidemark_store::{KeyHash, Reservation, TenantStore};
use tidemark_types::UnixMs;

use crate::limits::{COPIED_BYTES, LONG_VALUE_BYTES};
use crate::{memcached, redis};

/// How far a connection's input was executed.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub(crate) bytes: usize,
    pub(crate) commands: u32,
}

/// A command with one key that waits for its window.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    /// Number of its connection in the group.
    pub(crate) member: usize,
    /// What of the connection's input comes before it.
    pub(crate) before: Done,
    /// How much of the input it is.
    pub(crate) bytes: usize,
    pub(crate) hash: KeyHash,
    pub(crate) command: StepCommand<'a>,
}

/// The commands that go through windows.
#[derive(Clone, Copy)]
pub(crate) enum StepCommand<'a> {
    Memcached(mc::Command<'a>),
    Redis(redis::Step<'a>),
}

/// How much of a value is where it will lie.
pub(crate) enum Copied {
    /// It is copied when the command is executed.
    Not,
    InPart(Reservation),
    Wholly(Reservation),
}

impl Step<'_> {
    /// Copies the next piece of a long value to where it will lie, beginning with `room` if it was begun before.
    #[cold]
    pub(crate) fn copy_value(&self, room: Option<Reservation>, store: &Arc<TenantStore>, now: UnixMs) -> Copied {
        let value = match &self.command {
            StepCommand::Memcached(command) => memcached::stored_value(command),
            StepCommand::Redis(step) => step.value(),
        };
        let Some(value) = value.filter(|value| value.len() >= LONG_VALUE_BYTES) else {
            return Copied::Not;
        };
        let Some(mut room) = room.or_else(|| store.begin(self.hash, value.len())) else {
            return Copied::Not;
        };
        let from = room.written_bytes();
        let to = value.len().min(from + COPIED_BYTES);
        // Without memory for a piece there may be some for the whole: what was begun is put back first.
        if room.write(&value[from..to], now).is_err() {
            Copied::Not
        } else if to < value.len() {
            Copied::InPart(room)
        } else {
            Copied::Wholly(room)
        }
    }
}
