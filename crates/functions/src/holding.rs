//! The chunks that an instance holds, in CLOCK order, within its memory. Pure.

use std::collections::HashMap;

use crate::chunk::{Announced, ChunkKey, mark};
use crate::clock_order::ClockOrder;

/// The memory of a chunk beside its bytes: its key twice, its hash, slots of maps.
const CHUNK_OVERHEAD_BYTES: u64 = 256;

/// Bytes that an instance may hold where the pool counts on `room_bytes` of its memory: half of the rest more, for what chunks need
/// beside their bytes, and for chunks that the pool has forgotten and that are not deleted yet.
pub fn held_bytes(room_bytes: u64, memory_bytes: u64) -> u64 {
    room_bytes + memory_bytes.saturating_sub(room_bytes) / 2
}

/// Chunks with bytes of some kind.
#[derive(Clone, Debug)]
pub struct Holding<B> {
    chunks: HashMap<ChunkKey, (B, u64)>,
    order: ClockOrder<ChunkKey>,
    held_bytes: u64,
    most_bytes: u64,
    term: u64,
    hash: u64,
}

impl<B: AsRef<[u8]> + Clone> Holding<B> {
    /// Empty.
    pub fn new(most_bytes: u64) -> Self {
        Self {
            chunks: HashMap::new(),
            order: ClockOrder::default(),
            held_bytes: 0,
            most_bytes,
            term: 0,
            hash: 0,
        }
    }

    /// A chunk and its hash. Counts as a use.
    pub fn get(&mut self, key: &ChunkKey) -> Option<(B, u64)> {
        let found = self.chunks.get(key).cloned()?;
        self.order.touch(*key);
        Some(found)
    }

    /// The same, without counting as a use.
    pub fn peek(&self, key: &ChunkKey) -> Option<(B, u64)> {
        self.chunks.get(key).cloned()
    }

    /// Holds a chunk, and lets go of others if memory ends. Whether it is held now.
    pub fn put(&mut self, key: ChunkKey, bytes: B, hash: u64) -> bool {
        let more_bytes = bytes.as_ref().len() as u64 + CHUNK_OVERHEAD_BYTES;
        if more_bytes > self.most_bytes {
            return false;
        }
        self.delete(&key);
        while self.held_bytes + more_bytes > self.most_bytes {
            let Some(victim) = self.order.victim(|_| false) else {
                return false;
            };
            self.delete(&victim);
        }
        self.chunks.insert(key, (bytes, hash));
        self.order.touch(key);
        self.held_bytes += more_bytes;
        self.hash = self.hash.wrapping_add(mark(&key, hash));
        self.term += 1;
        true
    }

    /// Lets go of a chunk. Whether it was there.
    pub fn delete(&mut self, key: &ChunkKey) -> bool {
        let Some((bytes, hash)) = self.chunks.remove(key) else {
            return false;
        };
        self.order.remove(key);
        self.held_bytes -= bytes.as_ref().len() as u64 + CHUNK_OVERHEAD_BYTES;
        self.hash = self.hash.wrapping_sub(mark(key, hash));
        self.term += 1;
        true
    }

    /// Its chunks, most recently used first.
    pub fn list(&self) -> Vec<Announced> {
        let keys = self.order.from_most_recent().into_iter();
        let announce = |key: ChunkKey| self.chunks.get(&key).map(|(_, hash)| Announced { key, hash: *hash });
        keys.filter_map(announce).collect()
    }

    /// Changes its limit; the excess goes with the next puts.
    pub fn set_most_bytes(&mut self, most_bytes: u64) {
        self.most_bytes = most_bytes;
    }

    /// How many chunks.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The number of bytes, with the overhead.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Counts changes.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The hash of all its chunks: [`crate::chunk::held_hash`].
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{chunk_hash, held_hash};

    fn key(stripe: u32) -> ChunkKey {
        ChunkKey {
            stripe,
            ..ChunkKey::from_bytes(&[0; ChunkKey::BYTES])
        }
    }

    fn put(holding: &mut Holding<Vec<u8>>, stripe: u32, bytes: usize) -> bool {
        let bytes = vec![stripe as u8; bytes];
        let hash = chunk_hash(&bytes);
        holding.put(key(stripe), bytes, hash)
    }

    #[test]
    fn a_function_holds_more_than_the_pool_counts_on() {
        assert_eq!(held_bytes(900, 1000), 950);
        assert_eq!(held_bytes(900, 900), 900);
        assert_eq!(held_bytes(900, 0), 900);
    }

    #[test]
    fn memory_ends() {
        let mut holding = Holding::new(3 * (1000 + CHUNK_OVERHEAD_BYTES));
        assert!((0..3).all(|stripe| put(&mut holding, stripe, 1000)));
        assert!(holding.get(&key(0)).is_some());
        assert!(put(&mut holding, 3, 1000));
        let held: Vec<bool> = (0..4).map(|stripe| holding.get(&key(stripe)).is_some()).collect();
        assert_eq!(held, [true, false, true, true], "the one that was used stays");
        assert!(!put(&mut holding, 4, 1 << 20), "longer than all of it");
        assert_eq!(holding.held_bytes(), 3 * (1000 + CHUNK_OVERHEAD_BYTES));
    }

    #[test]
    fn the_hash_is_that_of_what_is_held() {
        let mut holding = Holding::new(1 << 20);
        assert!((0..10).all(|stripe| put(&mut holding, stripe, 100)));
        put(&mut holding, 3, 50);
        holding.delete(&key(5));
        assert!(!holding.delete(&key(5)));
        let list = holding.list();
        assert_eq!((list.len(), holding.chunks()), (9, 9));
        assert_eq!(
            holding.hash(),
            held_hash(list.iter().map(|chunk| (&chunk.key, chunk.hash)))
        );
        let term = holding.term();
        assert!(list.iter().all(|chunk| holding.delete(&chunk.key)));
        assert_eq!((holding.hash(), holding.held_bytes(), holding.term()), (0, 0, term + 9));
    }
}
