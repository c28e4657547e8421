//! Objects that cachelets keep coherent. A gateway with a [`Coherent`] asks that for current versions, and not the
//! origin. The other side calls the origin through [`ObjectStore`].

mod content;
mod door;
mod route;
mod store;

use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;

pub use store::{CALL_PATIENCE, Fence, ObjectStore};

/// The limit up to which cachelets keep an object whole. They keep the version of a longer one, and its bytes are
/// blocks in the tenant's memory. A message between agents has room for one.
pub const WHOLE_BYTES_MAX: u64 = 16 << 20;

/// The caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The tenant, which is the application.
    pub tenant: String,
    /// The address from which the connection came.
    pub address: Option<IpAddr>,
}

/// How a read ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The object.
    Object {
        /// The content as [`ObjectStore`] read it, or as it was written.
        content: Bytes,
        /// Its entity tag, where the store has it.
        etag: Option<String>,
        /// The place where it was found, for the reply.
        place: &'static str,
    },
    /// There is no such object.
    Nothing,
    /// It cannot be answered now.
    Unavailable,
    /// The store refuses it, with this HTTP status.
    Denied(u16),
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writing {
    /// It holds, with this entity tag if the store has it.
    Applied(Option<String>),
    /// It was not done and will not be.
    Unavailable,
    /// It may have been done, or may still be.
    Unknown,
    /// The store refuses it for good, with this HTTP status.
    Denied(u16),
    /// It states a condition, which cannot be judged before the store has the value.
    ConditionUnknown,
}

/// The object to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The content; `None` deletes.
    pub content: Option<Bytes>,
    /// Whether the client stated a condition.
    pub is_conditional: bool,
}

/// Orders reads and writes of objects `bucket/key` across nodes.
#[async_trait::async_trait]
pub trait Coherent: fmt::Debug + Send + Sync + 'static {
    /// Reads an object.
    async fn read(&self, caller: &Caller, place: &str) -> Reading;

    /// Writes an object.
    async fn write(&self, caller: &Caller, place: &str, written: Written) -> Writing;
}

/// The store's answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The object, or that there is none.
    Object {
        /// Its content.
        content: Option<Bytes>,
        /// Its entity tag.
        etag: Option<String>,
    },
    /// It has the entity tag that the caller has.
    NotModified,
    /// Entity tag and identity of the last write.
    Meta {
        /// `None` is that there is no object.
        etag: Option<String>,
        /// The identity of the write, if one of us wrote it.
        write: Option<String>,
    },
    /// Written, with this entity tag; deleted without one.
    Written(Option<String>),
    /// It has another entity tag than the one to replace.
    Mismatch,
    /// Not done, later perhaps.
    Throttled,
    /// No answer: a write may have been done, or may still be.
    Lost,
    /// Not done, and not later, with this HTTP status.
    Denied(u16),
}
