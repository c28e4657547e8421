//! The state that all requests of a gateway share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::{HeaderMap, Method};
use tidemark_types::TenantId;

use crate::coherent::Coherent;
use crate::config::Origins;
use crate::fill::{Fills, Job};
use crate::large::Large;
use crate::object::Object;
use crate::origin::{OriginClient, OriginError, OriginRequest};
use crate::peers::Peers;
use crate::permits::{Permit, Permits};
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
    /// The place of large objects, if not in memory.
    pub(crate) large: Large,
    /// Orders reads and writes across nodes, where there are several.
    pub(crate) coherent: Option<Arc<dyn Coherent>>,
    /// The other gateways, if there are.
    pub(crate) peers: Option<Arc<Peers>>,
    /// Whether all but reading is refused.
    pub(crate) read_only: bool,
    /// The counts.
    pub(crate) stats: Counts,
    sent: Permits,
}

impl Shared {
    /// Nothing has happened yet.
    pub(crate) fn new(
        origins: Origins,
        client: OriginClient,
        coherent: Option<Arc<dyn Coherent>>,
        large: Large,
        read_only: bool,
    ) -> Self {
        Self {
            origins,
            client,
            versions: Arc::default(),
            fills: Fills::new(large.clone()),
            large,
            coherent,
            peers: None,
            read_only,
            stats: Counts::default(),
            sent: Permits::new(SENT_BLOCKS_MAX),
        }
    }

    /// The origin's answer about an object's current version.
    ///
    /// # Errors
    /// It does not answer, or not with a version.
    pub(crate) async fn head(&self, job: &Job) -> Result<Object, OriginError> {
        let request = OriginRequest::read(Method::HEAD, &format!("/{}", job.place), HeaderMap::new());
        let answer = self.client.read(&job.origin, request).await?;
        let object = Object::of_reply(&job.place, answer.headers()).filter(|_| answer.status().is_success());
        object.ok_or(OriginError::Unreachable)
    }

    pub(crate) fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            requests: read(&self.stats.requests),
            memory_bytes: read(&self.stats.memory_bytes),
            large_bytes: read(&self.stats.large_bytes),
            origin_bytes: read(&self.stats.origin_bytes),
            origin_questions: read(&self.stats.origin_questions),
            written_bytes: read(&self.stats.written_bytes),
            relayed_requests: read(&self.stats.relayed_requests),
            relayed_bytes: read(&self.stats.relayed_bytes),
            bypassed_requests: read(&self.stats.bypassed_requests),
            gateways: self.peers.as_ref().map_or(0, |peers| peers.len()),
            known_objects: self.versions.len(),
            pending_blocks: self.fills.pending(),
        }
    }

    /// Waits for room for one more block on its way to a client of a tenant.
    pub(crate) async fn permit(&self, tenant: TenantId) -> Option<Permit> {
        self.sent.wait(tenant).await
    }
}

/// Totals since the start, and the present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests of clients with a right signature.
    pub requests: u64,
    /// Bytes sent from tenants' memory.
    pub memory_bytes: u64,
    /// Bytes sent from the place for large objects.
    pub large_bytes: u64,
    /// Bytes sent that came from the origin for it.
    pub origin_bytes: u64,
    /// Questions to the origin about versions.
    pub origin_questions: u64,
    /// Bytes received and passed on.
    pub written_bytes: u64,
    /// Requests that another gateway answered.
    pub relayed_requests: u64,
    /// Bytes sent that came from another gateway.
    pub relayed_bytes: u64,
    /// Requests that the origin answered because another gateway did not.
    pub bypassed_requests: u64,
    /// Gateways of the list; 0 without one.
    pub gateways: usize,
    /// Objects whose version is known.
    pub known_objects: usize,
    /// Blocks that are on their way from the origin.
    pub pending_blocks: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) memory_bytes: AtomicU64,
    pub(crate) large_bytes: AtomicU64,
    pub(crate) origin_bytes: AtomicU64,
    pub(crate) origin_questions: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) relayed_requests: AtomicU64,
    pub(crate) relayed_bytes: AtomicU64,
    pub(crate) bypassed_requests: AtomicU64,
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
