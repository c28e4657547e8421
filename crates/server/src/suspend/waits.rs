//! The things that commands wait for.

use std::sync::Arc;

use tidemark_flash::{Barrier, Read};
use tidemark_plane::Purpose;

use super::segment::Segment;
use crate::scripts::Job;

/// Reads that one command waits for at a time: a disk is busy with so many.
pub(crate) const WAITS_MAX: usize = 64;
/// The limit of the bytes that they read together, unless it is a single one: four of the longest values.
pub(crate) const WAITED_BYTES_MAX: usize = 1 << 20;

/// One thing that a command waits for.
#[derive(Debug)]
pub(crate) enum Wait {
    /// Waits until this was read.
    Read(Read, Purpose),
    /// Waits until this survives a crash.
    Durable(Barrier),
    /// Waits until this script has ended.
    Script(Arc<Job>),
    /// Waits until this segment was read.
    Segment(Arc<Segment>),
}

impl Wait {
    /// Bytes that have to be read for it.
    pub(crate) fn read_bytes(&self) -> usize {
        match self {
            Self::Read(read, _) => read.bytes,
            Self::Segment(segment) => segment.read.bytes(),
            Self::Durable(_) | Self::Script(_) => 0,
        }
    }
}

/// The waits of the commands of a connection in one visit. At most one of the commands waits: the one
/// that the visit ends before.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    waits: Vec<Wait>,
    bytes: usize,
    /// Keys of the command at the input's beginning that were sought in earlier visits.
    before: usize,
    /// The same of the command that is executed now, this visit included.
    sought: usize,
    /// The same of the command that is to wait.
    kept: Option<usize>,
}

impl Waits {
    /// In a visit to a connection of whose first command so many keys were sought.
    pub(crate) fn since(before: usize) -> Self {
        Self {
            before,
            ..Self::default()
        }
    }

    /// Turns to a command, which is the one at the input's beginning or not.
    #[inline]
    pub(crate) fn enter(&mut self, is_first: bool) {
        self.sought = if is_first { self.before } else { 0 };
    }

    /// Keys of the command that were sought.
    pub(crate) fn sought(&self) -> usize {
        self.sought
    }

    /// One more was sought.
    pub(crate) fn note_sought(&mut self) {
        self.sought += 1;
    }

    /// Has the command wait for something.
    pub(crate) fn push(&mut self, wait: Wait) -> bool {
        self.bytes += wait.read_bytes();
        self.waits.push(wait);
        true
    }

    /// Whether nothing is waited for.
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Whether a command waits for as much as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.waits.len() >= WAITS_MAX || self.bytes >= WAITED_BYTES_MAX
    }

    /// Whether more reads can be asked for beside those of a command that waits.
    pub(crate) fn may_add(&self) -> bool {
        !self.waits.is_empty() && !self.is_full()
    }

    /// The command that is executed now is to wait.
    pub(crate) fn keep(&mut self) {
        self.kept = Some(self.sought);
    }

    /// The state to remember of the command that the visit ends before.
    pub(crate) fn left(&self, is_first: bool) -> usize {
        self.kept.unwrap_or(if is_first { self.before } else { 0 })
    }

    /// Nothing is waited for after all.
    pub(crate) fn forget(&mut self) {
        self.waits.clear();
        self.bytes = 0;
    }

    /// The reads that are waited for.
    pub(crate) fn take(&mut self) -> std::vec::Drain<'_, Wait> {
        self.waits.drain(..)
    }
}
