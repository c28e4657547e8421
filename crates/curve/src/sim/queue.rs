//! A queue of objects that counts its bytes, and a table that finds them.

use std::collections::VecDeque;

pub(super) use crate::stack::Table;

/// An object in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub key: u64,
    pub bytes: u64,
}

/// First in, first out.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<Entry>,
    bytes: u64,
}

impl Queue {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
    }

    /// The oldest entry.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}
