//! What must not be forgotten after a crash: which records are dead, which segments are free, which databases were flushed.
//!
//! Entries collect until a commit writes them to a ring of blocks, in order, and a flush of the device makes them durable. A
//! block is written over only when its entries are of no use any more or stand in a newer block that is durable. Invariant:
//! of what was committed nothing is missing, or reading says so.

use std::collections::VecDeque;

use crate::format::{Entry, JOURNAL_ENTRIES, JournalBlock};

/// Blocks of a commit at most: more wait for the next one.
const COMMIT_BLOCKS_MAX: usize = 16;
/// Blocks of the ring, at least.
pub(crate) const BLOCKS_MIN: u32 = 64;

/// Something that is durable once the journal is up to here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Barrier(pub(crate) u64);

/// The ring and what is to be written to it.
#[derive(Debug)]
pub(crate) struct Journal {
    capacity: u64,
    /// Written blocks whose entries may still be of use, oldest first.
    blocks: VecDeque<JournalBlock>,
    /// Not written yet.
    waiting: Vec<Entry>,
    /// The number of the next block.
    next: u64,
    /// Entries that were ever appended, and of those the ones that are durable.
    appended: u64,
    durable: u64,
    /// A commit that is under way: what is durable after it, and how many old blocks it makes superfluous.
    commit: Option<(u64, usize)>,
    /// Since when something waits, in milliseconds.
    waiting_since_ms: Option<u64>,
}

impl Journal {
    /// A journal whose ring has so many blocks and already these, oldest first.
    pub(crate) fn new(capacity: u32, blocks: Vec<JournalBlock>) -> Self {
        Self {
            capacity: u64::from(capacity),
            next: blocks.last().map_or(0, |block| block.number + 1),
            blocks: blocks.into(),
            waiting: Vec::new(),
            appended: 0,
            durable: 0,
            commit: None,
            waiting_since_ms: None,
        }
    }

    pub(crate) fn append(&mut self, entry: Entry, now_ms: u64) -> Barrier {
        self.waiting.push(entry);
        self.appended += 1;
        self.waiting_since_ms.get_or_insert(now_ms);
        Barrier(self.appended)
    }

    pub(crate) fn is_durable(&self, barrier: Barrier) -> bool {
        barrier.0 <= self.durable
    }

    /// Since when the oldest entry waits to be committed.
    pub(crate) fn waiting_since_ms(&self) -> Option<u64> {
        self.waiting_since_ms
    }

    /// Entries of written blocks.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.blocks.iter().flat_map(|block| &block.entries)
    }

    pub(crate) fn is_committing(&self) -> bool {
        self.commit.is_some()
    }

    /// Entries that the ring holds, of use or not, over those that it can hold.
    pub(crate) fn fill(&self) -> f64 {
        (self.blocks.len() + self.waiting.len() / JOURNAL_ENTRIES) as f64 / self.capacity as f64
    }

    /// Begins a commit: the blocks to write, with their places in the ring. Entries of the oldest blocks that are still of use
    /// are written once more where the ring is half full.
    pub(crate) fn begin(&mut self, now_ms: u64, mut is_of_use: impl FnMut(&Entry) -> bool) -> Vec<(u64, JournalBlock)> {
        let left = self.capacity as usize - self.blocks.len();
        let most = COMMIT_BLOCKS_MAX.min(left) * JOURNAL_ENTRIES;
        let mut dropped = 0;
        let mut entries = Vec::new();
        while (self.blocks.len() - dropped) as u64 * 2 > self.capacity {
            let useful: Vec<Entry> = self.blocks[dropped]
                .entries
                .iter()
                .filter(|entry| is_of_use(entry))
                .copied()
                .collect();
            if entries.len() + useful.len() > most / 2 {
                break;
            }
            entries.extend(useful);
            dropped += 1;
        }
        // What is carried was there before: it comes first.
        let room = (most - entries.len()).min(self.waiting.len());
        entries.extend(self.waiting.drain(..room));
        let first = self.next;
        let oldest = self.blocks.front().map_or(first, |block| block.number);
        let blocks: Vec<JournalBlock> = entries
            .chunks(JOURNAL_ENTRIES)
            .zip(first..)
            .map(|(entries, number)| JournalBlock {
                number,
                first,
                oldest,
                entries: entries.to_vec(),
            })
            .collect();
        self.next += blocks.len() as u64;
        let durable = self.appended - self.waiting.len() as u64;
        self.commit = Some((durable, dropped));
        self.waiting_since_ms = (!self.waiting.is_empty()).then_some(now_ms);
        self.blocks.extend(blocks.iter().cloned());
        blocks
            .into_iter()
            .map(|block| (block.number % self.capacity, block))
            .collect()
    }

    /// The commit is durable.
    pub(crate) fn end(&mut self) {
        if let Some((durable, dropped)) = self.commit.take() {
            self.durable = durable;
            self.blocks.drain(..dropped);
        }
    }
}

/// The blocks of a ring, oldest first, from what was read of each of its places.
///
/// # Errors
/// A committed block is missing: kills may be unknown, so that nothing that is older can be trusted.
pub(crate) fn restore(read: impl IntoIterator<Item = Option<JournalBlock>>) -> Result<Vec<JournalBlock>, Damaged> {
    let mut blocks: Vec<JournalBlock> = read.into_iter().flatten().collect();
    blocks.sort_by_key(|block| block.number);
    // Older ones than the newest needed may be written over.
    if let Some(oldest) = blocks.last().map(|block| block.oldest) {
        blocks.retain(|block| block.number >= oldest);
        if blocks
            .first()
            .is_some_and(|block| block.number != oldest && block.first > oldest)
        {
            return Err(Damaged);
        }
    }
    let gap = blocks.windows(2).position(|pair| pair[1].number != pair[0].number + 1);
    if let Some(before) = gap {
        // Blocks that were written together and are not all there were never committed. Nothing can follow them.
        let missing = blocks[before].number + 1;
        if blocks[before + 1..].iter().any(|block| block.first > missing) {
            return Err(Damaged);
        }
        blocks.truncate(before + 1);
    }
    if blocks.is_empty() { Err(Damaged) } else { Ok(blocks) }
}

/// The journal is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

#[cfg(test)]
mod tests {
    use super::*;

    fn free(slot: u32) -> Entry {
        Entry::Free { slot, sequence: 1 }
    }

    #[test]
    fn entries_are_durable_after_their_commit_and_useful_ones_are_carried_along() {
        let mut journal = Journal::new(8, Vec::new());
        let mut ring: Vec<Option<JournalBlock>> = vec![None; 8];
        // Only slot 3 stays of use.
        let first = journal.append(free(3), 10);
        assert_eq!(
            (journal.waiting_since_ms(), journal.is_durable(first)),
            (Some(10), false)
        );
        for round in 0..100_u32 {
            let barrier = journal.append(free(1000 + round), u64::from(round));
            for (at, block) in journal.begin(u64::from(round), |entry| *entry == free(3)) {
                ring[at as usize] = Some(block);
            }
            assert!(journal.is_committing() && !journal.is_durable(barrier));
            journal.end();
            assert!(journal.is_durable(barrier) && journal.is_durable(first) && journal.fill() <= 0.75);
            let blocks = restore(ring.iter().cloned()).unwrap();
            assert!(
                blocks.iter().any(|block| block.entries.contains(&free(3))),
                "round {round}"
            );
            assert!(blocks.last().unwrap().entries.contains(&free(1000 + round)));
        }
    }

    #[test]
    fn a_missing_block_is_noticed_unless_it_was_never_committed() {
        let block = |number, first| JournalBlock {
            number,
            first,
            oldest: 4,
            entries: Vec::new(),
        };
        let numbers = |blocks: &[JournalBlock]| blocks.iter().map(|block| block.number).collect::<Vec<_>>();
        let whole = restore([
            Some(block(7, 7)),
            Some(block(3, 3)),
            Some(block(5, 4)),
            Some(block(6, 6)),
            Some(block(4, 4)),
        ])
        .unwrap();
        assert_eq!(numbers(&whole), [4, 5, 6, 7]);
        // 6 was written together with 7 and did not come through.
        let cut = restore([Some(block(7, 6)), Some(block(5, 4)), Some(block(4, 4))]).unwrap();
        assert_eq!(numbers(&cut), [4, 5]);
        // 5 was committed before 6 was.
        assert_eq!(restore([Some(block(4, 4)), Some(block(6, 6))]), Err(Damaged));
        assert_eq!(restore([Some(block(5, 5)), Some(block(6, 6))]), Err(Damaged));
        assert_eq!(restore([None, None]), Err(Damaged));
    }
}
