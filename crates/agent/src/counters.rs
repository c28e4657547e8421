//! The counts of one cachelet: the metrics of UniCache's table 1 (AIOps'24), and others for operators.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tidemark_cachelet::message::{Body, ReadOutcome, Source, StoreRequest, WriteOutcome};

/// Kinds of messages, by their names in docs/design/coherence.md.
pub const MESSAGE_KINDS: [&str; 13] = [
    "read",
    "filled",
    "write",
    "wrote",
    "refused",
    "invalidate",
    "invalidated",
    "validate",
    "fetch",
    "fetched",
    "hold",
    "held",
    "release",
];

/// The place of a message's kind in [`MESSAGE_KINDS`].
#[must_use]
pub fn message_kind(body: &Body) -> usize {
    match body {
        Body::Read { .. } => 0,
        Body::Filled { .. } => 1,
        Body::Write { .. } => 2,
        Body::Wrote { .. } => 3,
        Body::Refused { .. } => 4,
        Body::Invalidate { .. } => 5,
        Body::Invalidated { .. } => 6,
        Body::Validate { .. } => 7,
        Body::Fetch { .. } => 8,
        Body::Fetched { .. } => 9,
        Body::Hold { .. } => 10,
        Body::Held { .. } => 11,
        Body::Release { .. } => 12,
    }
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counters {
    reads: [AtomicU64; 4],
    read_us: [AtomicU64; 4],
    writes: AtomicU64,
    write_us: AtomicU64,
    failed: AtomicU64,
    evicted: AtomicU64,
    sent: [AtomicU64; MESSAGE_KINDS.len()],
    received: [AtomicU64; MESSAGE_KINDS.len()],
    store_gets: AtomicU64,
    store_heads: AtomicU64,
    store_puts: AtomicU64,
}

/// The same as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Reads answered by the own copy.
    pub copy_reads: u64,
    /// Reads answered by the own copy after it was validated.
    pub validated_reads: u64,
    /// Reads answered by the home.
    pub home_reads: u64,
    /// Reads answered by the store.
    pub store_reads: u64,
    /// Microseconds of reads by the same places.
    pub read_us: [u64; 4],
    /// Writes that hold.
    pub writes: u64,
    /// Microseconds of them.
    pub write_us: u64,
    /// Operations without an answer that helps.
    pub failed: u64,
    /// Copies that were to be served and whose bytes memory had evicted.
    pub evicted: u64,
    /// Messages sent, by [`MESSAGE_KINDS`].
    pub sent: Vec<u64>,
    /// Messages received, by [`MESSAGE_KINDS`].
    pub received: Vec<u64>,
    /// Reads at the store.
    pub store_gets: u64,
    /// Questions to the store about versions.
    pub store_heads: u64,
    /// Writes at the store.
    pub store_puts: u64,
}

impl Counters {
    /// A read ended.
    pub fn read(&self, outcome: &ReadOutcome, took_us: u64) {
        let ReadOutcome::Is(_, source) = outcome else {
            return add(&self.failed, 1);
        };
        let place = match source {
            Source::Copy => 0,
            Source::Validated => 1,
            Source::Home => 2,
            Source::Store => 3,
        };
        add(&self.reads[place], 1);
        add(&self.read_us[place], took_us);
    }

    /// A write ended.
    pub fn write(&self, outcome: WriteOutcome, took_us: u64) {
        if outcome != WriteOutcome::Applied {
            return add(&self.failed, 1);
        }
        add(&self.writes, 1);
        add(&self.write_us, took_us);
    }

    /// A copy was to be served whose bytes memory has evicted.
    pub fn evicted(&self) {
        add(&self.evicted, 1);
    }

    /// A message was sent or received.
    pub fn message(&self, kind: usize, is_sent: bool) {
        let counts = if is_sent { &self.sent } else { &self.received };
        if let Some(count) = counts.get(kind) {
            add(count, 1);
        }
    }

    /// The store is called.
    pub fn call(&self, request: &StoreRequest) {
        let count = match request {
            StoreRequest::Get { .. } => &self.store_gets,
            StoreRequest::Head => &self.store_heads,
            StoreRequest::Put { .. } => &self.store_puts,
        };
        add(count, 1);
    }

    /// The counts as numbers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let all = |counts: &[AtomicU64]| counts.iter().map(get).collect::<Vec<_>>();
        Counts {
            copy_reads: get(&self.reads[0]),
            validated_reads: get(&self.reads[1]),
            home_reads: get(&self.reads[2]),
            store_reads: get(&self.reads[3]),
            read_us: std::array::from_fn(|place| get(&self.read_us[place])),
            writes: get(&self.writes),
            write_us: get(&self.write_us),
            failed: get(&self.failed),
            evicted: get(&self.evicted),
            sent: all(&self.sent),
            received: all(&self.received),
            store_gets: get(&self.store_gets),
            store_heads: get(&self.store_heads),
            store_puts: get(&self.store_puts),
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl Counts {
    /// The sum of two.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let sums = |one: &[u64], other: &[u64]| {
            let length = one.len().max(other.len());
            let at = |counts: &[u64], place: usize| counts.get(place).copied().unwrap_or_default();
            (0..length)
                .map(|place| at(one, place) + at(other, place))
                .collect::<Vec<_>>()
        };
        Self {
            copy_reads: self.copy_reads + other.copy_reads,
            validated_reads: self.validated_reads + other.validated_reads,
            home_reads: self.home_reads + other.home_reads,
            store_reads: self.store_reads + other.store_reads,
            read_us: std::array::from_fn(|place| self.read_us[place] + other.read_us[place]),
            writes: self.writes + other.writes,
            write_us: self.write_us + other.write_us,
            failed: self.failed + other.failed,
            evicted: self.evicted + other.evicted,
            sent: sums(&self.sent, &other.sent),
            received: sums(&self.received, &other.received),
            store_gets: self.store_gets + other.store_gets,
            store_heads: self.store_heads + other.store_heads,
            store_puts: self.store_puts + other.store_puts,
        }
    }

    /// Reads that were answered.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.copy_reads + self.validated_reads + self.home_reads + self.store_reads
    }

    /// Messages sent of one kind.
    #[must_use]
    pub fn sent_of(&self, kind: &str) -> u64 {
        let place = MESSAGE_KINDS.iter().position(|known| *known == kind);
        place
            .and_then(|place| self.sent.get(place).copied())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_counted() {
        let counters = Counters::default();
        counters.read(&ReadOutcome::Is(None, Source::Copy), 5);
        counters.read(&ReadOutcome::Is(None, Source::Home), 7);
        counters.read(&ReadOutcome::Unavailable, 9);
        counters.write(WriteOutcome::Applied, 11);
        counters.write(WriteOutcome::Unknown, 13);
        counters.message(5, true);
        counters.call(&StoreRequest::Head);
        let counts = counters.counts();
        assert_eq!(
            (counts.reads(), counts.copy_reads, counts.home_reads, counts.failed),
            (2, 1, 1, 2)
        );
        assert_eq!((counts.read_us, counts.write_us), ([5, 0, 7, 0], 11));
        assert_eq!((counts.sent_of("invalidate"), counts.store_heads), (1, 1));
        let twice = counts.plus(&counts);
        assert_eq!((twice.reads(), twice.sent_of("invalidate")), (4, 2));
    }
}
