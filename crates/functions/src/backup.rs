//! Bringing another instance of a function in step with one: delta-sync (the paper's Figure 10). Pure: the source's side.
//!
//! The *destination* lists its chunks. The *source* has it delete those that should not be there, and sends those that
//! it lacks, most recently used first. The source serves meanwhile, which the paper leaves to the destination: a
//! destination that is lost thus costs nothing. Chunks that are written, deleted or read there meanwhile go before the
//! rest.
//!
//! Invariant: when nothing is left and all is answered, the destination holds what the source holds, but for what it refused.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::chunk::{Announced, ChunkKey};

/// Chunks under way to the destination: enough to fill the time of a round trip, with bounded memory at the relay.
const UNDER_WAY_MAX: usize = 4;

/// The chunks that are still to be sent.
#[derive(Clone, Debug)]
pub struct Sending {
    /// In this order, but for those that are not in `differing` any more.
    queue: VecDeque<ChunkKey>,
    /// Chunks of which the destination may have something else than the source.
    differing: HashSet<ChunkKey>,
    under_way: usize,
    refused: u64,
}

impl Sending {
    /// From what both hold; the source's most recently used first.
    pub fn new(source: &[Announced], destination: &[Announced]) -> Self {
        let here: HashSet<ChunkKey> = source.iter().map(|chunk| chunk.key).collect();
        let there: HashMap<ChunkKey, u64> = destination.iter().map(|chunk| (chunk.key, chunk.hash)).collect();
        // Deletions first: they make room.
        let surplus = destination.iter().filter(|chunk| !here.contains(&chunk.key));
        let lacking = source.iter().filter(|chunk| there.get(&chunk.key) != Some(&chunk.hash));
        let queue: VecDeque<ChunkKey> = surplus.chain(lacking).map(|chunk| chunk.key).collect();
        Self {
            differing: queue.iter().copied().collect(),
            queue,
            under_way: 0,
            refused: 0,
        }
    }

    /// The chunk that goes next: it is sent if the source holds it, or else deleted there. `None`: none may go now.
    pub fn next_chunk(&mut self) -> Option<ChunkKey> {
        if self.under_way == UNDER_WAY_MAX {
            return None;
        }
        while let Some(key) = self.queue.pop_front() {
            if self.differing.remove(&key) {
                self.under_way += 1;
                return Some(key);
            }
        }
        None
    }

    /// The destination answered for a chunk: whether it has it now as the source had.
    pub fn answered(&mut self, is_done: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        self.refused += u64::from(!is_done);
    }

    /// The source stored or deleted a chunk.
    pub fn changed(&mut self, key: ChunkKey) {
        self.differing.insert(key);
        self.queue.push_front(key);
    }

    /// The source was asked for a chunk: if it is still to be sent, it goes next.
    pub fn used(&mut self, key: ChunkKey) {
        if self.differing.contains(&key) {
            self.queue.push_front(key);
        }
    }

    /// Whether nothing is left, and all is answered.
    pub fn is_done(&self) -> bool {
        self.differing.is_empty() && self.under_way == 0
    }

    /// Chunks that the destination did not take.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(stripe: u32, hash: u64) -> Announced {
        let key = ChunkKey {
            stripe,
            ..ChunkKey::from_bytes(&[0; ChunkKey::BYTES])
        };
        Announced { key, hash }
    }

    fn take(sending: &mut Sending) -> Vec<u32> {
        let mut taken = Vec::new();
        while let Some(key) = sending.next_chunk() {
            taken.push(key.stripe);
        }
        taken
    }

    #[test]
    fn only_what_differs_goes_deletions_first_then_most_recent() {
        let source = [chunk(3, 30), chunk(1, 10), chunk(2, 20)];
        let destination = [chunk(1, 10), chunk(2, 99), chunk(7, 70)];
        let mut sending = Sending::new(&source, &destination);
        assert_eq!(take(&mut sending), [7, 3, 2]);
        assert!(!sending.is_done());
        (0..3).for_each(|_| sending.answered(true));
        assert!(sending.is_done() && sending.refused() == 0);
        assert!(Sending::new(&source, &source).is_done());
    }

    #[test]
    fn what_happens_meanwhile_goes_first() {
        let source: Vec<Announced> = (0..10).map(|stripe| chunk(stripe, 1)).collect();
        let mut sending = Sending::new(&source, &[]);
        assert_eq!(take(&mut sending), [0, 1, 2, 3], "so many are under way at most");
        sending.used(chunk(8, 1).key);
        sending.used(chunk(0, 1).key);
        sending.changed(chunk(2, 5).key);
        sending.answered(true);
        assert_eq!(
            take(&mut sending),
            [2],
            "a chunk that was sent and changed is sent again"
        );
        (0..3).for_each(|_| sending.answered(true));
        assert_eq!(
            take(&mut sending),
            [8, 4, 5],
            "one that was read goes before the rest, and once"
        );
        sending.answered(false);
        assert_eq!(sending.refused(), 1);
    }
}
