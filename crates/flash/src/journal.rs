//! The facts that must survive a crash: which records are dead, which segments are free, which databases were flushed.
//!
//! Entries collect until a commit writes them to a ring of blocks, in order, and a flush of the device makes them
//! durable. A block is written over only when its entries are of no use any more or stand in a newer block that is
//! durable. Invariant: no committed entry is missing, or reading says so.

use std::collections::VecDeque;

use crate::format::{Entry, JOURNAL_ENTRIES, JournalBlock};

/// Blocks of a commit at most: more wait for the next one.
const COMMIT_BLOCKS_MAX: usize = 16;
/// Blocks of the ring that deaths of single records leave to what makes them superfluous: segments that are freed.
const RESERVED_BLOCKS: usize = 4;
/// Blocks of the ring, at least.
pub(crate) const BLOCKS_MIN: u32 = 64;

/// Something that is durable once the journal is up to here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Barrier(pub(crate) u64);

/// The ring and the entries to write to it.
#[derive(Debug)]
pub(crate) struct Journal {
    capacity: u64,
    /// Written blocks whose entries may still be of use, oldest first.
    blocks: VecDeque<JournalBlock>,
    /// Not written yet, with their numbers.
    waiting: VecDeque<(u64, Entry)>,
    /// The number of the next block.
    next: u64,
    /// Entries that were ever appended, and of those the ones that are durable.
    appended: u64,
    durable: u64,
    /// A commit that is under way: the entries that are durable after it, and the number of old blocks that it makes
    /// superfluous.
    commit: Option<(u64, usize)>,
    /// The time since which something waits, in milliseconds.
    waiting_since_ms: Option<u64>,
}

impl Journal {
    /// A journal whose ring has so many blocks and already these, oldest first.
    pub(crate) fn new(capacity: u32, blocks: Vec<JournalBlock>) -> Self {
        Self {
            capacity: u64::from(capacity),
            next: blocks.last().map_or(0, |block| block.number + 1),
            blocks: blocks.into(),
            waiting: VecDeque::new(),
            appended: 0,
            durable: 0,
            commit: None,
            waiting_since_ms: None,
        }
    }

    pub(crate) fn append(&mut self, entry: Entry, now_ms: u64) -> Barrier {
        self.appended += 1;
        self.waiting.push_back((self.appended, entry));
        self.waiting_since_ms.get_or_insert(now_ms);
        Barrier(self.appended)
    }

    pub(crate) fn is_durable(&self, barrier: Barrier) -> bool {
        barrier.0 <= self.durable
    }

    /// The time since which the oldest entry waits to be committed.
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

    /// Deaths of single records that may be of use at a time: more than half a ring would be carried along again and again.
    pub(crate) fn deaths_max(&self) -> u64 {
        self.capacity * JOURNAL_ENTRIES as u64 / 2
    }

    /// Whether more waits than a commit can take, and there is room for it.
    pub(crate) fn is_pressing(&self) -> bool {
        self.waiting.len() >= COMMIT_BLOCKS_MAX * JOURNAL_ENTRIES
            && self.blocks.len() + COMMIT_BLOCKS_MAX + RESERVED_BLOCKS <= self.capacity as usize
    }

    /// Begins a commit: the blocks to write, with their places in the ring. Entries of the oldest blocks that are still of use
    /// are written once more where the ring is half full. Ends of whole segments go first: where all of them are in the
    /// commit (the second argument of `is_of_use`), deaths of these segments' records are of no use any more.
    pub(crate) fn begin(
        &mut self,
        now_ms: u64,
        mut is_of_use: impl FnMut(&Entry, bool) -> bool,
    ) -> Vec<(u64, JournalBlock)> {
        let left = self.capacity as usize - self.blocks.len();
        let most = COMMIT_BLOCKS_MAX.min(left) * JOURNAL_ENTRIES;
        let (mut entries, has_all_ends) = self.take_ends(most);
        let mut is_of_use = |entry: &Entry| is_of_use(entry, has_all_ends);
        let mut dropped = 0;
        while (self.blocks.len() - dropped) as u64 * 2 > self.capacity {
            let useful: Vec<Entry> = self.blocks[dropped]
                .entries
                .iter()
                .filter(|entry| is_of_use(entry))
                .copied()
                .collect();
            if entries.len() + useful.len() > most / 2 && !useful.is_empty() {
                break;
            }
            entries.extend(useful);
            dropped += 1;
        }
        self.waiting.retain(|(_, entry)| is_of_use(entry));
        let unreserved = COMMIT_BLOCKS_MAX.min(left.saturating_sub(RESERVED_BLOCKS)) * JOURNAL_ENTRIES;
        let room = unreserved.saturating_sub(entries.len()).min(self.waiting.len());
        entries.extend(self.waiting.drain(..room).map(|(_, entry)| entry));
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
        let durable = self.waiting.front().map_or(self.appended, |(number, _)| number - 1);
        self.commit = Some((durable, dropped));
        self.waiting_since_ms = (!self.waiting.is_empty()).then_some(now_ms);
        self.blocks.extend(blocks.iter().cloned());
        blocks
            .into_iter()
            .map(|block| (block.number % self.capacity, block))
            .collect()
    }

    /// Takes out of what waits all that is no death of a single record, as far as there is room; whether that is all of it. The
    /// order of entries says nothing.
    fn take_ends(&mut self, most: usize) -> (Vec<Entry>, bool) {
        let is_end = |entry: &Entry| !matches!(entry, Entry::Kill { .. });
        let mut ends = Vec::new();
        self.waiting.retain(|(_, entry)| {
            let is_taken = is_end(entry) && ends.len() < most;
            if is_taken {
                ends.push(*entry);
            }
            !is_taken
        });
        let has_all = !self.waiting.iter().any(|(_, entry)| is_end(entry));
        (ends, has_all)
    }

    /// The commit is durable.
    pub(crate) fn end(&mut self) {
        if let Some((durable, dropped)) = self.commit.take() {
            self.durable = durable;
            self.blocks.drain(..dropped);
        }
    }
}

/// The blocks of a ring, oldest first, from the content of each of its places.
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
            for (at, block) in journal.begin(u64::from(round), |entry, _| {
                *entry == free(3) || *entry == free(1000 + round)
            }) {
                ring[at as usize] = Some(block);
            }
            assert!(journal.is_committing() && !journal.is_durable(barrier));
            journal.end();
            assert!(journal.is_durable(barrier) && journal.is_durable(first) && journal.blocks.len() <= 6);
            let blocks = restore(ring.iter().cloned()).unwrap();
            assert!(
                blocks.iter().any(|block| block.entries.contains(&free(3))),
                "round {round}"
            );
            assert!(blocks.last().unwrap().entries.contains(&free(1000 + round)));
        }
    }

    #[test]
    fn segments_that_end_free_the_ring_of_their_records_deaths() {
        let kill = |slot| Entry::Kill {
            slot,
            at: 1,
            sequence: 1,
        };
        let mut journal = Journal::new(16, Vec::new());
        let first = journal.append(kill(1), 0);
        for _ in 1..20 * JOURNAL_ENTRIES {
            journal.append(kill(1), 0);
        }
        // All are of use: some blocks are left to what ends their segment.
        for _ in 0..4 {
            journal.begin(0, |_, _| true);
            journal.end();
        }
        assert_eq!((journal.blocks.len(), journal.is_durable(first)), (12, true));
        let last = journal.append(kill(2), 0);
        let end = journal.append(free(1), 0);
        let mut commit = || {
            let blocks = journal.begin(0, |entry, has_all_ends| has_all_ends && *entry != kill(1));
            journal.end();
            let written = blocks.into_iter().flat_map(|(_, block)| block.entries);
            let durable = (journal.is_durable(last), journal.is_durable(end));
            (written.collect::<Vec<Entry>>(), durable, journal.blocks.len())
        };
        assert_eq!(commit(), (vec![free(1)], (false, false), 9));
        assert_eq!(commit(), (vec![kill(2)], (true, true), 9));
    }

    #[test]
    fn what_waits_is_not_durable_though_something_newer_is() {
        let kill = Entry::Kill {
            slot: 1,
            at: 1,
            sequence: 1,
        };
        let mut journal = Journal::new(16, Vec::new());
        for _ in 0..16 * JOURNAL_ENTRIES {
            journal.append(kill, 0);
        }
        let end = journal.append(free(2), 0);
        journal.begin(0, |_, _| true);
        journal.end();
        assert!(journal.waiting.iter().all(|(_, entry)| *entry == kill));
        assert!(!journal.is_durable(end));
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
