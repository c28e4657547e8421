//! Messages between cachelets, events that a cachelet is given, and the actions that it asks for in return.

use crate::membership::Document;
use crate::types::{BodyName, CacheletId, CallId, Epoch, Key, OperationId, RequestId, Stamp, Value, Version, WriteId};

/// A message. Every one carries the sender's epoch; one of another epoch is refused, ignored, or a fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Message {
    /// The epoch of the sender's view.
    pub epoch: Epoch,
    /// The content of the message.
    pub body: Body,
}

/// The copy that a reader has and wants to know the state of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Have {
    /// Its stamp.
    pub stamp: Stamp,
    /// Its version, if the store has it.
    pub version: Option<Version>,
}

/// A value with its place in the order and its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fill {
    /// Its stamp.
    pub stamp: Stamp,
    /// Its version, if the store has it.
    pub version: Option<Version>,
    /// The content, or that the reader's copy is current. The inner one is empty where there is no object.
    pub content: Content,
    /// Whether the reader may keep it.
    pub keep: bool,
}

/// Content of a fill.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Content {
    /// The reader's copy is current.
    Same,
    /// There is no object.
    Nothing,
    /// This.
    Is(Value),
}

impl Content {
    /// The content of an object that may be absent.
    #[must_use]
    pub fn of(value: Option<Value>) -> Self {
        value.map_or(Self::Nothing, Self::Is)
    }
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// It holds, and is in the order at this stamp.
    Applied {
        /// Its stamp.
        stamp: Stamp,
        /// Its version, if the store has it.
        version: Option<Version>,
    },
    /// It was not done and will not be.
    Refused,
    /// It may have been done, or may still be.
    Unknown,
    /// The store refuses it for good, with this HTTP status. It was not done.
    Denied(u16),
}

/// A write that is to reach the store, held by another cachelet in case that the home is lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Intent {
    /// Its stamp.
    pub stamp: Stamp,
    /// The version that it replaces.
    pub replaces: Version,
    /// The new content; empty deletes.
    pub value: Option<Value>,
    /// Its identity at the store.
    pub write: WriteId,
    /// Whether it was acknowledged before the store had it.
    pub is_dirty: bool,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Body {
    /// READ-HOME: asks for a value, or whether a copy is current.
    Read {
        /// The reader's request.
        request: RequestId,
        /// The key.
        key: Key,
        /// The reader's copy.
        have: Option<Have>,
        /// Whether the reader will keep the value.
        keep: bool,
    },
    /// Answers a read.
    Filled {
        /// The reader's request.
        request: RequestId,
        /// The value.
        fill: Fill,
    },
    /// WRITE-HOME: asks for a write.
    Write {
        /// The writer's request.
        request: RequestId,
        /// The writer's lowest request that is not answered: the home forgets the ones below.
        lowest: RequestId,
        /// The key.
        key: Key,
        /// The new content; empty deletes.
        value: Option<Value>,
        /// The version of the copy that the writer had. A home that knows of no version takes it for the one to replace.
        known: Option<Version>,
        /// Whether the writer keeps a copy.
        keep: bool,
    },
    /// Answers a write.
    Wrote {
        /// The writer's request.
        request: RequestId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A read or a write is not served now, or not here. It was not done, and this request never will be.
    Refused {
        /// The request.
        request: RequestId,
    },
    /// Ends copies older than the stamp.
    Invalidate {
        /// The home's transaction.
        transaction: u64,
        /// The key.
        key: Key,
        /// The new value's stamp.
        stamp: Stamp,
        /// The new value, where the protocol sends it.
        update: Option<Update>,
        /// Whether the receiver passes it on to its cluster.
        pass_on: bool,
    },
    /// Answers an invalidation.
    Invalidated {
        /// The home's transaction.
        transaction: u64,
        /// The key.
        key: Key,
        /// Whether a copy remains there: one that waits for its second phase, or was updated.
        holds: bool,
    },
    /// Second phase of an update: the staged value is valid.
    Validate {
        /// The key.
        key: Key,
        /// The value's stamp.
        stamp: Stamp,
        /// Its version, if the store has it.
        version: Option<Version>,
        /// Whether the receiver passes it on to its cluster.
        pass_on: bool,
    },
    /// The home asks a holder for its copy.
    Fetch {
        /// The home's transaction.
        transaction: u64,
        /// The key.
        key: Key,
        /// The stamp that the copy must have.
        stamp: Stamp,
    },
    /// Answers a fetch; empty if there is no such copy.
    Fetched {
        /// The home's transaction.
        transaction: u64,
        /// The key.
        key: Key,
        /// The content of the copy.
        content: Option<Content>,
        /// Whether a copy may still come there: a request for the key is under way.
        may_come: bool,
    },
    /// Asks the successor to hold a write.
    Hold {
        /// The home's transaction.
        transaction: u64,
        /// The key.
        key: Key,
        /// The write.
        intent: Intent,
    },
    /// Answers a hold.
    Held {
        /// The home's transaction.
        transaction: u64,
        /// The key.
        key: Key,
    },
    /// The store has it: the successor may forget it.
    Release {
        /// The key.
        key: Key,
        /// The write's stamp.
        stamp: Stamp,
    },
}

impl Body {
    /// The value whose bytes the sender's shell keeps: they are to be put in its place before the message is sent.
    pub fn outside(&mut self) -> Option<&mut Value> {
        let content = match self {
            Self::Filled { fill, .. } => Some(&mut fill.content),
            Self::Fetched { content, .. } => content.as_mut(),
            _ => None,
        };
        match content? {
            Content::Is(value) if value.outside().is_some() => Some(value),
            _ => None,
        }
    }

    /// The message to be sent in the place of one whose bytes are gone: the reader is refused, and goes to the store. A
    /// home hears that there is no copy, though one may come, so that whoever it asked stays noted.
    #[must_use]
    pub fn without_bytes(self) -> Self {
        match self {
            Self::Filled { request, .. } => Self::Refused { request },
            Self::Fetched { transaction, key, .. } => Self::Fetched {
                transaction,
                key,
                content: None,
                may_come: true,
            },
            other => other,
        }
    }
}

/// The value that an invalidation brings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Update {
    /// The new content.
    pub content: Content,
    /// Whether it is valid at once.
    pub at_once: bool,
}

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreRequest {
    /// The object, unless it has this version.
    Get {
        /// The version that the caller has.
        unless: Option<Version>,
    },
    /// The version and the last write's identity.
    Head,
    /// Writes, or deletes, if the object has this version.
    Put {
        /// The new content; empty deletes.
        value: Option<Value>,
        /// The version that it replaces.
        replaces: Version,
        /// Its identity, kept with the object.
        write: WriteId,
    },
}

/// The store's answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreReply {
    /// The object.
    Object {
        /// Its content, if it exists.
        value: Option<Value>,
        /// Its version.
        version: Version,
    },
    /// It has the version that the caller has (304).
    NotModified,
    /// Version and identity of the last write.
    Meta {
        /// The version.
        version: Version,
        /// The last write's identity, where one of us wrote it.
        write: Option<WriteId>,
    },
    /// Written, with this version.
    Written(Version),
    /// It has another version than the one to replace (412).
    Mismatch,
    /// Not done, later perhaps (503).
    Throttled,
    /// No answer: a write may have been done, or may still be.
    Lost,
    /// Not done, and not later: the store answered with this HTTP status.
    Denied(u16),
}

/// The events of a cachelet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A function reads.
    Read {
        /// Named by the shell.
        operation: OperationId,
        /// The key.
        key: Key,
    },
    /// A function writes.
    Write {
        /// Named by the shell.
        operation: OperationId,
        /// The key.
        key: Key,
        /// The new content; empty deletes.
        value: Option<Value>,
    },
    /// A message came.
    Message {
        /// The sender.
        from: CacheletId,
        /// The message.
        message: Message,
    },
    /// The store answered.
    Store {
        /// The call.
        call: CallId,
        /// The answer.
        reply: StoreReply,
    },
    /// The coordination engine confirmed the lease.
    Leased {
        /// When the request for it was sent, by the own clock.
        sent_at_us: u64,
    },
    /// The coordination engine's document of the domain.
    Domain(Box<Document>),
    /// The memory that copies may take.
    Budget(u64),
    /// The shell has lost the bytes of a copy.
    Gone(BodyName),
    /// The coordination engine does not know the lease: this incarnation is over.
    LeaseLost,
    /// Time passed; sent at the cachelet's deadline.
    Tick,
}

/// The source of a read's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The own copy, nobody asked.
    Copy,
    /// The own copy, validated at the home or at the store.
    Validated,
    /// The home, or the leader.
    Home,
    /// The store.
    Store,
}

/// How a read ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadOutcome {
    /// The content, empty where there is no object.
    Is(Option<Value>, Source),
    /// It cannot be answered now.
    Unavailable,
    /// The store refuses it, with this HTTP status.
    Denied(u16),
}

/// How a write ended, for the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteOutcome {
    /// It holds.
    Applied,
    /// It was not done and will not be.
    Unavailable,
    /// It may have been done, or may still be. S3 says so with a 500.
    Unknown,
    /// The store refuses it for good, with this HTTP status.
    Denied(u16),
}

/// The actions that a cachelet asks for. Bodies are to be kept before anything else of a step is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Output {
    /// Keep the bytes of a copy, in place of those that were kept for the key. They may be lost at any time.
    Keep {
        /// The name of them.
        name: BodyName,
        /// The value that has them.
        value: Value,
    },
    /// Keep the bytes of this name no longer.
    Drop(BodyName),
    /// Send a message.
    Send {
        /// The receiver.
        to: CacheletId,
        /// The message.
        message: Message,
    },
    /// Call the store.
    Store {
        /// Names the call.
        call: CallId,
        /// The object.
        key: Key,
        /// The request.
        request: StoreRequest,
    },
    /// A read ended.
    ReadDone {
        /// Which.
        operation: OperationId,
        /// How.
        outcome: ReadOutcome,
        /// The version of the value, if it is known.
        version: Option<Version>,
    },
    /// A write ended.
    WriteDone {
        /// Which.
        operation: OperationId,
        /// How.
        outcome: WriteOutcome,
        /// The version that was written, if the store has it.
        version: Option<Version>,
    },
    /// The cachelet is drained for the change to this epoch.
    Drained(Epoch),
    /// The cachelet has finished the lost homes' writes for the change to this epoch.
    Recovered(Epoch),
    /// The cachelet is no member any more: another incarnation is to take its place.
    Expelled,
}
