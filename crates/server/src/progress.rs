//! The resumable command: the progress of a command that goes on in a later turn.
//!
//! Such a command keeps its place at the beginning of its connection's input. Its answers so far are sent meanwhile,
//! and nothing behind it is executed. In the next visit it is executed again, with its [`Progress`], and is neither
//! admitted nor counted a second time. No lock is held in between. A command that only waits for memory goes the same
//! way, without progress.

use std::collections::HashSet;

use tidemark_flash::Listing;
use tidemark_protocol::resp::glob::Pattern;

use crate::redis::{Below, Place};
use crate::scripts::Handle;

/// How far a command is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Keys of a list were looked at, of which some counted.
    Keys { next: usize, count: i64 },
    /// The values of some keys of a list were measured.
    Sizes { next: usize, bytes: usize },
    /// The values of some keys of a list are answered; memory is taken for the rest.
    Values { next: usize, left_bytes: usize },
    /// So many pairs of a list are written.
    Pairs { written: usize },
    /// Keys were looked for on a walk over all.
    Walk(Walk),
    /// Connections up to one were looked at.
    Clients(ClientsSeen),
    /// A reply was made, and so much of it is sent.
    Reply { bytes: Vec<u8>, sent: usize },
    /// All was flushed, and the reply waits until that survives a crash.
    Flushed,
    /// A script runs, or waits for its turn.
    Script(Handle),
    /// SCAN in a transaction, which goes on in no later turn: the segment that was read ahead for it, if there is one left.
    Ahead(Option<Listing>),
    /// A walk over all found nothing so far, and has begun anew at the first one or not.
    Search { place: Place, is_anew: bool },
}

/// A walk over all keys.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) place: Place,
    /// `None`: every key.
    pub(crate) pattern: Option<Pattern>,
    pub(crate) found: Found,
    /// Keys that were looked at.
    pub(crate) seen: u64,
    /// The cost of that so far, in empty buckets of the index, and in records on flash.
    pub(crate) cost: u64,
    /// The keys that were found, if each is to be found once.
    pub(crate) names: Option<HashSet<Box<[u8]>>>,
    /// How far it is on flash, if there is flash.
    pub(crate) below: Option<Box<Below>>,
}

/// Connections that were looked at, and the outcome.
#[derive(Debug, Default)]
pub(crate) struct ClientsSeen {
    /// The number to go on from.
    pub(crate) from: u64,
    /// The text about them.
    pub(crate) text: String,
    /// Those that were killed, and whether the one that asks is among them.
    pub(crate) killed: i64,
    pub(crate) is_own_killed: bool,
}

/// Keys as they will stand in a reply.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
}

impl Progress {
    /// Memory that is held for the command until its next visit.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Keys { .. } | Self::Sizes { .. } | Self::Pairs { .. } | Self::Search { .. } | Self::Flushed => 0,
            // Charged with the transaction.
            Self::Ahead(_) => 0,
            Self::Values { left_bytes, .. } => *left_bytes,
            Self::Script(handle) => handle.bytes,
            Self::Walk(_) | Self::Clients(_) | Self::Reply { .. } => self.buffer_bytes(),
        }
    }

    /// The part of it that the process has in memory.
    pub(crate) fn buffer_bytes(&self) -> usize {
        match self {
            Self::Walk(walk) => {
                let pattern = walk.pattern.as_ref().map_or(0, Pattern::memory_bytes);
                let below = walk.below.as_ref().map_or(0, |below| below.memory_bytes());
                // A name has about as many bytes as it takes in the reply.
                let names = walk.names.as_ref().map_or(0, |names| {
                    names.capacity() * size_of::<Box<[u8]>>() + walk.found.bytes.len()
                });
                walk.found.bytes.capacity() + pattern + below + names
            }
            Self::Clients(seen) => seen.text.capacity(),
            Self::Reply { bytes, .. } => bytes.capacity(),
            Self::Script(handle) => handle.bytes,
            Self::Keys { .. }
            | Self::Sizes { .. }
            | Self::Values { .. }
            | Self::Pairs { .. }
            | Self::Search { .. }
            | Self::Ahead(_)
            | Self::Flushed => 0,
        }
    }
}
