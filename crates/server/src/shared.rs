//! The state that all workers share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemark_types::{Clock, SystemClock, UnixMs};

use crate::clients::Clients;
use crate::cpu::CpuMeasure;
use crate::entrance::{Allowed, TenantListener};
use crate::limits::Limits;
use crate::memory::Memory;
use crate::scripts::Scripts;
use crate::tenants::Tenants;
use crate::worker::Mailbox;

/// The state that all workers share.
pub(crate) struct Shared {
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) clients: Clients,
    pub(crate) memory: Arc<Memory>,
    pub(crate) scripts: Scripts,
    /// One for each worker.
    pub(crate) mailboxes: Box<[Arc<Mailbox>]>,
    pub(crate) started: Instant,
    pub(crate) started_at: UnixMs,
    /// A random name of this run of the server (`run_id` in INFO), 40 hexadecimal digits.
    pub(crate) run_id: String,
    pub(crate) memcached: Option<SocketAddr>,
    pub(crate) redis: Option<SocketAddr>,
    pub(crate) of_tenants: Box<[TenantListener]>,
    /// The networks that may connect to those.
    pub(crate) allowed: Allowed,
    pub(crate) connections_max: u64,
    pub(crate) limits: Limits,
    pub(crate) measure: CpuMeasure,
    /// The longest reply that is promised as a whole, in bytes.
    pub(crate) reply_bytes_max: usize,
    /// Connections that were refused because there were too many.
    pub(crate) refused_connections: AtomicU64,
    pub(crate) accepted_connections: AtomicU64,
    /// Times that the server came to have no room for another connection.
    pub(crate) times_full: AtomicU64,
    /// Whether the first plan is in force: before it there are no tenants, so nobody is let in.
    pub(crate) has_plan: AtomicBool,
    /// The server finishes the commands in flight and stops.
    pub(crate) is_draining: AtomicBool,
    /// How long that may take, in milliseconds.
    pub(crate) drain_limit_ms: AtomicU64,
}

impl Shared {
    /// The present moment.
    pub(crate) fn now() -> UnixMs {
        SystemClock.now()
    }

    /// How long draining may take.
    pub(crate) fn drain_limit(&self) -> Duration {
        Duration::from_millis(self.drain_limit_ms.load(Ordering::Relaxed))
    }

    /// Wakes every worker.
    pub(crate) fn wake_all(&self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
    }
}
