//! The time of messages and store calls.

use crate::message::{Body, Content, StoreReply, StoreRequest};
use crate::types::Value;

/// Costs of communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The time from one node to another one, one way.
    pub one_way_us: u64,
    /// The time from a node to the store and back, without the time for bytes.
    pub store_us: u64,
    /// Bytes per microsecond that a node sends or receives.
    pub node_bytes_per_us: u64,
    /// Bytes per microsecond between a node and the store.
    pub store_bytes_per_us: u64,
    /// Time that a node's network is busy with a message, whatever its size.
    pub message_us: u64,
}

impl Default for Costs {
    /// The times are Concord's measurements (HPCA'25): 2 ms between nodes and back, 30 ms to the store; 10 Gbit/s
    /// between nodes, a tenth of it to the store.
    fn default() -> Self {
        Self {
            one_way_us: 1_000,
            store_us: 30_000,
            node_bytes_per_us: 1_250,
            store_bytes_per_us: 125,
            message_us: 20,
        }
    }
}

/// Bytes of a message beside its value.
pub(super) const HEADER_BYTES: u64 = 100;

fn size(value: Option<&Value>) -> u64 {
    HEADER_BYTES + value.map_or(0, |value| value.size_bytes)
}

fn content_size(content: &Content) -> u64 {
    match content {
        Content::Is(value) => size(Some(value)),
        Content::Same | Content::Nothing => HEADER_BYTES,
    }
}

/// Bytes of a message.
pub(super) fn message_bytes(body: &Body) -> u64 {
    match body {
        Body::Filled { fill, .. } => content_size(&fill.content),
        Body::Write { value, .. } => size(value.as_ref()),
        Body::Invalidate { update, .. } => update
            .as_ref()
            .map_or(HEADER_BYTES, |update| content_size(&update.content)),
        Body::Fetched { content, .. } => content.as_ref().map_or(HEADER_BYTES, content_size),
        Body::Hold { intent, .. } => size(intent.value.as_ref()),
        _ => HEADER_BYTES,
    }
}

/// Bytes of a request to the store.
pub(super) fn request_bytes(request: &StoreRequest) -> u64 {
    match request {
        StoreRequest::Put { value, .. } => size(value.as_ref()),
        StoreRequest::Get { .. } | StoreRequest::Head => HEADER_BYTES,
    }
}

/// Bytes of the store's answer.
pub(super) fn reply_bytes(reply: &StoreReply) -> u64 {
    match reply {
        StoreReply::Object { value, .. } => size(value.as_ref()),
        _ => HEADER_BYTES,
    }
}
