//! The resumable command: what a command that goes on in a later turn has done so far.
//!
//! Such a command keeps its place at the beginning of its connection's input. What it answered already is sent meanwhile, and
//! nothing behind it is executed. In the next visit it is executed again, with its [`Progress`], and is neither admitted nor
//! counted a second time. No lock is held in between. A command that only waits for memory goes the same way, with none.

use tidemark_protocol::resp::glob::Pattern;

use crate::redis::Place;

/// How far a command is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Keys of a list were looked at, of which some counted.
    Keys { next: usize, count: i64 },
    /// The values of some keys of a list were measured.
    Sizes { next: usize, bytes: usize },
    /// The values of some keys of a list are answered; memory is taken for the rest.
    Values { next: usize, left_bytes: usize },
    /// Keys were looked for on a walk over all.
    Walk(Walk),
    /// A reply was made, and so much of it is sent.
    Reply { bytes: Vec<u8>, sent: usize },
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
    /// What that cost so far, in empty buckets of the index.
    pub(crate) cost: u64,
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
            Self::Keys { .. } | Self::Sizes { .. } | Self::Search { .. } => 0,
            Self::Values { left_bytes, .. } => *left_bytes,
            Self::Walk(_) | Self::Reply { .. } => self.buffer_bytes(),
        }
    }

    /// Of that, what the process has in memory.
    pub(crate) fn buffer_bytes(&self) -> usize {
        match self {
            Self::Walk(walk) => {
                let pattern = walk.pattern.as_ref().map_or(0, Pattern::memory_bytes);
                walk.found.bytes.capacity() + pattern
            }
            Self::Reply { bytes, .. } => bytes.capacity(),
            Self::Keys { .. } | Self::Sizes { .. } | Self::Values { .. } | Self::Search { .. } => 0,
        }
    }
}
