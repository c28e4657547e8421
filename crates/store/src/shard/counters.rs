//! What is counted in a shard.

use crate::item::Draft;

/// What is counted in a shard. Everything only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys looked up by [`Shard::get`].
    pub gets: u64,
    /// Those that were found.
    pub hits: u64,
    /// Those that met an item whose time had come.
    pub gets_expired: u64,
    /// Those that met an item that a flush had left to be removed.
    pub gets_flushed: u64,
    /// Items written.
    pub sets: u64,
    /// Their keys.
    pub written_key_bytes: u64,
    /// Their values.
    pub written_value_bytes: u64,
    /// Items removed for lack of space.
    pub evicted: u64,
    /// Items removed because their time had come.
    pub expired: u64,
    /// Writes refused because they could not fit.
    pub refused_memory: u64,
}

impl Counters {
    /// Gets and writes, done or refused: what makes a tenant active.
    pub(super) fn asked(&self) -> u64 {
        self.gets + self.sets + self.refused_memory
    }

    /// Counts an item that a client wrote.
    #[inline]
    pub(super) fn note_write(&mut self, draft: &Draft<'_>) {
        self.sets += 1;
        self.written_key_bytes += draft.key.len() as u64;
        self.written_value_bytes += draft.value_bytes() as u64;
    }

    /// Adds another shard's counts.
    pub fn add(&mut self, other: &Self) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.gets_expired += other.gets_expired;
        self.gets_flushed += other.gets_flushed;
        self.sets += other.sets;
        self.written_key_bytes += other.written_key_bytes;
        self.written_value_bytes += other.written_value_bytes;
        self.evicted += other.evicted;
        self.expired += other.expired;
        self.refused_memory += other.refused_memory;
    }
}
