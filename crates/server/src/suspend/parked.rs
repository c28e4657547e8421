//! A parked connection, and its part of what its tenant may have waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidemark_types::UnixMs;

use crate::tenant::Tenant;

/// A part of the commands and bytes that a tenant may have waiting, until it is dropped. Reads keep theirs also if nobody waits
/// for them any more.
pub(crate) struct Share {
    pub(crate) tenant: Arc<Tenant>,
    commands: u64,
    read_bytes: u64,
}

impl Share {
    pub(crate) fn of_command(tenant: &Arc<Tenant>) -> Self {
        Self::take(tenant, 1, 0)
    }

    pub(crate) fn of_read(tenant: &Arc<Tenant>, bytes: usize) -> Self {
        Self::take(tenant, 0, bytes as u64)
    }

    fn take(tenant: &Arc<Tenant>, commands: u64, read_bytes: u64) -> Self {
        let of = &tenant.suspended;
        of.commands.fetch_add(commands, Ordering::Relaxed);
        of.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        Self {
            tenant: Arc::clone(tenant),
            commands,
            read_bytes,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let of = &self.tenant.suspended;
        of.commands.fetch_sub(self.commands, Ordering::Relaxed);
        of.read_bytes.fetch_sub(self.read_bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Share({} commands, {} bytes)", self.commands, self.read_bytes)
    }
}

/// A connection whose first command waits.
#[derive(Debug)]
pub(crate) struct Parked {
    /// Tells this time from others.
    pub(crate) number: u64,
    /// Waits that are not over.
    pub(crate) left: usize,
    pub(crate) since: UnixMs,
    /// The moment from which the time is taken that its reads need; `None`: it waits for no read.
    pub(crate) reading_since: Option<Instant>,
    /// Its part of the tenant's commands that wait for flash, if it does.
    pub(crate) share: Option<Share>,
}
