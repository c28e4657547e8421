//! How much of a tenant waits for flash.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{Limits, SUSPENDED_READ_BYTES};

/// The commands of a tenant that wait for flash, over all workers.
#[derive(Debug, Default)]
pub(crate) struct Suspended {
    pub(super) commands: AtomicU64,
    pub(super) read_bytes: AtomicU64,
}

impl Suspended {
    /// Whether no other one may wait. Workers look at the same time: it may be a group of connections more for each.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        self.commands.load(Ordering::Relaxed) >= limits.suspended_commands
            || self.read_bytes.load(Ordering::Relaxed) >= SUSPENDED_READ_BYTES
    }
}
