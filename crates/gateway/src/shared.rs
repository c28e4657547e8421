//! What all requests of a gateway share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Origins;
use crate::fill::Fills;
use crate::origin::OriginClient;
use crate::versions::Versions;

/// Blocks from tenants' memory that are on their way to clients: 128 MiB. A client that does not read holds two.
const SENT_BLOCKS_MAX: usize = 128;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The buckets.
    pub(crate) origins: Origins,
    /// Sends to them.
    pub(crate) client: OriginClient,
    /// Which versions are current.
    pub(crate) versions: Arc<Versions>,
    /// Blocks on their way here.
    pub(crate) fills: Fills,
    /// Whether all but reading is refused.
    pub(crate) read_only: bool,
    /// What happened.
    pub(crate) stats: Counts,
    sent: Arc<Semaphore>,
}

impl Shared {
    /// Nothing has happened yet.
    pub(crate) fn new(origins: Origins, client: OriginClient, read_only: bool) -> Self {
        Self {
            origins,
            client,
            versions: Arc::default(),
            fills: Fills::default(),
            read_only,
            stats: Counts::default(),
            sent: Arc::new(Semaphore::new(SENT_BLOCKS_MAX)),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            requests: read(&self.stats.requests),
            memory_bytes: read(&self.stats.memory_bytes),
            origin_bytes: read(&self.stats.origin_bytes),
            origin_questions: read(&self.stats.origin_questions),
            written_bytes: read(&self.stats.written_bytes),
            known_objects: self.versions.len(),
            pending_blocks: self.fills.pending(),
        }
    }

    /// Waits for room for one more block on its way to a client. `None`, which never happens, bounds nothing.
    pub(crate) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.sent).acquire_owned().await.ok()
    }
}

/// Totals since the start, and what is there now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests of clients with a right signature.
    pub requests: u64,
    /// Bytes sent from tenants' memory.
    pub memory_bytes: u64,
    /// Bytes sent that came from the origin for it.
    pub origin_bytes: u64,
    /// Questions to the origin about versions.
    pub origin_questions: u64,
    /// Bytes received and passed on.
    pub written_bytes: u64,
    /// Objects whose version is known.
    pub known_objects: usize,
    /// Blocks that are on their way from the origin.
    pub pending_blocks: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) memory_bytes: AtomicU64,
    pub(crate) origin_bytes: AtomicU64,
    pub(crate) origin_questions: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

impl Counts {
    /// Counts a piece of a reply.
    pub(crate) fn served(&self, is_from_memory: bool, bytes: u64) {
        let counter = if is_from_memory {
            &self.memory_bytes
        } else {
            &self.origin_bytes
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }
}
