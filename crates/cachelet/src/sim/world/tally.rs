//! What a world counts, and tells of operations that ended.

use crate::message::Source;
use crate::types::{Key, OperationId, Version};

/// The counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads by where the answer came from: own copy, own copy validated, home, store.
    pub reads: [u64; 4],
    /// Writes that hold.
    pub writes: u64,
    /// Operations without an answer that helps.
    pub failed: u64,
    /// Microseconds of all operations.
    pub operation_us: u64,
    /// Messages between nodes.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Calls to the store.
    pub store_calls: u64,
}

/// An operation that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub operation: OperationId,
    /// At which node.
    pub node: usize,
    /// The key.
    pub key: Key,
    /// Whether it was a write.
    pub is_write: bool,
    /// The value's size; zero where there is no object, and of what failed.
    pub size_bytes: u64,
    /// The version, if the store has it.
    pub version: Option<Version>,
    /// The source of a read's answer; `None` if it failed.
    pub source: Option<Source>,
    /// How long it took.
    pub took_us: u64,
}
