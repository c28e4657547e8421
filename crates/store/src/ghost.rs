//! The ghosts: fingerprints of keys that were evicted from the small queue not long ago. A key that comes back while
//! its ghost is there goes to the main queue at once (S3-FIFO).
//!
//! Two bytes a ghost: buckets of one cache line hold the last 31 fingerprints that fell into them and the place of the next
//! one. A ghost is a hint: a fingerprint can stand for another key (31 chances in 65,536), and a resize forgets all.

use tidemark_types::UNIT_BYTES;

use crate::arena::{Arena, BLOCK_ORDER};
use crate::hash::KeyHash;
use crate::pool::Run;

const SLOTS: usize = 31;
const BUCKET_BYTES: usize = 64;
/// Buckets that are zeroed at a time, a page of them.
const PAGE_BUCKETS: usize = 64;

/// The ghosts of one shard.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// All of the same order.
    runs: Vec<Run>,
    /// log2 of the buckets in a run.
    run_shift: u32,
    buckets: u64,
    /// The number of each bucket's newest fingerprints that count.
    depth: usize,
    /// A bit for each page: whether it was zeroed since it was taken. A page is zeroed when its first ghost comes.
    /// Zeroing all of them at once would take a worker some milliseconds for millions of items.
    begun: Vec<u64>,
}

/// The oldest fingerprint's slot, and the fingerprints; 0 for none.
#[repr(C)]
struct Bucket {
    next: u16,
    fingerprints: [u16; SLOTS],
}

impl Bucket {
    #[inline]
    fn slot_of(&self, hash: KeyHash) -> Option<usize> {
        let wanted = hash.fingerprint();
        self.fingerprints.iter().position(|found| *found == wanted)
    }

    /// How many are newer than a slot's: the newest is in the slot before the next one's.
    #[inline]
    fn age(&self, slot: usize) -> usize {
        (self.next as usize + SLOTS - 1 - slot) % SLOTS
    }
}

/// Runs to take for a store of ghosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GhostMemory {
    pub(crate) order: u8,
    pub(crate) runs: usize,
}

impl Ghosts {
    /// The memory that about this many ghosts need.
    pub(crate) fn memory_for(ghosts: u64) -> GhostMemory {
        let bytes = ghosts.div_ceil(SLOTS as u64) * BUCKET_BYTES as u64;
        let units = bytes.div_ceil(UNIT_BYTES).max(1);
        let order = (units.next_power_of_two().trailing_zeros() as u8).min(BLOCK_ORDER - 1);
        GhostMemory {
            order,
            runs: units.div_ceil(1 << order) as usize,
        }
    }

    /// A store for about `ghosts` ghosts in runs of [`Self::memory_for`], whatever they hold.
    pub(crate) fn new(runs: Vec<Run>, ghosts: u64) -> Self {
        let run_buckets = runs.first().map_or(1, |run| run.bytes() / BUCKET_BYTES) as u64;
        let buckets = ghosts.div_ceil(SLOTS as u64).clamp(1, run_buckets * runs.len() as u64);
        let pages = buckets.div_ceil(PAGE_BUCKETS as u64);
        Self {
            run_shift: run_buckets.trailing_zeros(),
            runs,
            buckets,
            depth: SLOTS,
            begun: vec![0; pages.div_ceil(64) as usize],
        }
    }

    /// Lets about so many ghosts count, the newest, as far as there is room for more. A shard that shrank remembers
    /// keys that a larger one evicted. If those brought keys back, all would go to the main queue and none be on
    /// probation.
    pub(crate) fn limit(&mut self, ghosts: u64) {
        let depth = ghosts.div_ceil(self.buckets.max(1));
        self.depth = (depth as usize).clamp(1, SLOTS);
    }

    /// The memory, to be put back.
    pub(crate) fn into_runs(self) -> Vec<Run> {
        self.runs
    }

    /// Memory held, in units.
    #[cfg(test)]
    pub(crate) fn units(&self) -> u64 {
        self.runs.iter().map(|run| run.units()).sum()
    }

    /// Ghosts that fit.
    pub(crate) fn capacity(&self) -> u64 {
        self.buckets * SLOTS as u64
    }

    /// Remembers a key.
    pub(crate) fn insert(&mut self, arena: &Arena, hash: KeyHash) {
        let number = self.bucket_of(hash);
        self.begin_page(arena, number);
        let bucket = self.bucket_mut(arena, number);
        let next = bucket.next as usize % SLOTS;
        bucket.fingerprints[next] = hash.fingerprint();
        bucket.next = (next as u16 + 1) % SLOTS as u16;
    }

    /// Whether the key is remembered; if so it is forgotten.
    pub(crate) fn take(&mut self, arena: &Arena, hash: KeyHash) -> bool {
        let number = self.bucket_of(hash);
        if !self.has_begun(number) {
            return false;
        }
        let depth = self.depth;
        let bucket = self.bucket_mut(arena, number);
        let Some(slot) = bucket.slot_of(hash) else {
            return false;
        };
        bucket.fingerprints[slot] = 0;
        bucket.age(slot) < depth
    }

    /// Whether the key is remembered, and still is afterwards.
    pub(crate) fn contains(&self, arena: &Arena, hash: KeyHash) -> bool {
        let number = self.bucket_of(hash);
        if !self.has_begun(number) {
            return false;
        }
        let address = arena.at(self.offset_of(number), BUCKET_BYTES).cast::<Bucket>();
        // SAFETY: the bucket lies in a run that this owns, aligned to 64 bytes, and any bytes are a valid bucket.
        // Buckets are written only through `&mut self`, so that nobody does while `self` is borrowed.
        let bucket = unsafe { &*address };
        bucket.slot_of(hash).is_some_and(|slot| bucket.age(slot) < self.depth)
    }

    /// Loads the bucket of a key ahead.
    pub(crate) fn prefetch(&self, arena: &Arena, hash: KeyHash) {
        arena.prefetch(self.offset_of(self.bucket_of(hash)));
    }

    fn bucket_of(&self, hash: KeyHash) -> u64 {
        // Neither the shard's top bits nor the fingerprint's: a rotation puts the low 16 bits (the tag) on top, whose order
        // means nothing to anyone.
        ((u128::from(hash.0.rotate_right(16)) * u128::from(self.buckets)) >> 64) as u64
    }

    fn offset_of(&self, bucket: u64) -> u64 {
        let in_run = bucket & ((1 << self.run_shift) - 1);
        self.runs[(bucket >> self.run_shift) as usize].offset() + in_run * BUCKET_BYTES as u64
    }

    /// Whether a ghost was ever put into the page of a bucket.
    fn has_begun(&self, bucket: u64) -> bool {
        let page = bucket as usize / PAGE_BUCKETS;
        self.begun[page / 64] >> (page % 64) & 1 != 0
    }

    /// Sees to it that the page of a bucket is zeroed.
    fn begin_page(&mut self, arena: &Arena, bucket: u64) {
        if self.has_begun(bucket) {
            return;
        }
        let page = bucket as usize / PAGE_BUCKETS;
        self.begun[page / 64] |= 1 << (page % 64);
        let first = (page * PAGE_BUCKETS) as u64;
        let address = arena.at(self.offset_of(first), PAGE_BUCKETS * BUCKET_BYTES);
        // SAFETY: a run is a whole number of pages, so that the page lies in one that this owns. `&mut self` makes sure
        // that there is no other reference into it.
        unsafe { std::ptr::write_bytes(address, 0, PAGE_BUCKETS * BUCKET_BYTES) };
    }

    fn bucket_mut(&mut self, arena: &Arena, number: u64) -> &mut Bucket {
        let address = arena.at(self.offset_of(number), BUCKET_BYTES).cast::<Bucket>();
        // SAFETY: the bucket lies in a run that this owns, aligned to 64 bytes, and any bytes are a valid bucket. `&mut
        // self` makes this the only reference into the run.
        unsafe { &mut *address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Hasher;
    use crate::pool::Pool;

    fn hash(n: u64) -> KeyHash {
        Hasher::with_seed(1).hash(0, &n.to_le_bytes())
    }

    fn runs_for(pool: &Pool, ghosts: u64) -> Vec<Run> {
        let memory = Ghosts::memory_for(ghosts);
        let take = |_| pool.core().take(memory.order).unwrap();
        (0..memory.runs).map(take).collect()
    }

    #[test]
    fn remembers_about_the_newest_and_forgets_what_was_taken() {
        let pool = Pool::without_thread(4 << 20, Some(4 << 20)).unwrap();
        let arena = &pool.core().arena;
        let count = 10_000;
        let mut ghosts = Ghosts::new(runs_for(&pool, count), count);
        assert!((10_000..10_100).contains(&ghosts.capacity()), "{}", ghosts.capacity());
        (0..5 * count).for_each(|n| ghosts.insert(arena, hash(n)));
        let remembered = |ghosts: &mut Ghosts, range: std::ops::Range<u64>| {
            let all = range.end - range.start;
            range.filter(|&n| ghosts.take(arena, hash(n))).count() as f64 / all as f64
        };
        let is_known = |n: u64| ghosts.contains(arena, hash(n));
        // Looking forgets nothing.
        assert!((0..2).all(|_| is_known(5 * count - 1)) && !(0..100).all(is_known));
        let newest = remembered(&mut ghosts, 5 * count - count / 2..5 * count);
        let again = remembered(&mut ghosts, 5 * count - count / 2..5 * count);
        let oldest = remembered(&mut ghosts, 0..count);
        assert!(newest > 0.99, "{newest}");
        assert!(again < 0.01, "{again}");
        assert!(oldest < 0.01, "{oldest}");
    }

    #[test]
    fn what_the_memory_held_before_is_no_ghost() {
        let pool = Pool::without_thread(4 << 20, Some(4 << 20)).unwrap();
        let arena = &pool.core().arena;
        let count = 10_000;
        let mut before = Ghosts::new(runs_for(&pool, count), count);
        for n in 0..count {
            before.insert(arena, hash(n));
            assert!(before.contains(arena, hash(n)));
        }
        let mut ghosts = Ghosts::new(before.into_runs(), count);
        // Also where another ghost was put beside.
        (count..2 * count).for_each(|n| {
            ghosts.insert(arena, hash(n));
            assert!(ghosts.contains(arena, hash(n)));
        });
        let old = (0..count).filter(|&n| ghosts.contains(arena, hash(n)) || ghosts.take(arena, hash(n)));
        // One key in some two thousand is taken for another one.
        assert!(old.count() < 20);
        let untouched = Ghosts::new(ghosts.into_runs(), count);
        assert!(!(0..2 * count).any(|n| untouched.contains(arena, hash(n))));
    }

    #[test]
    fn what_lies_between_its_runs_is_nobody_elses() {
        const RUNS: u64 = 5;
        let pool = Pool::without_thread(4 << 20, Some(4 << 20)).unwrap();
        let arena = &pool.core().arena;
        let others = |run: Run| arena.at(run.offset(), run.bytes());
        let (mut runs, mut between) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            runs.push(pool.core().take(0).unwrap());
            let other = pool.core().take(0).unwrap();
            // SAFETY: the run was just taken: nobody else knows it.
            unsafe { std::ptr::write_bytes(others(other), 7, other.bytes()) };
            between.push(other);
        }
        // 80 pages: their bits are in two words.
        let count = RUNS * 1024 * SLOTS as u64;
        let mut ghosts = Ghosts::new(runs, count);
        for n in 0..count {
            ghosts.insert(arena, hash(n));
            assert!(ghosts.contains(arena, hash(n)), "{n}");
        }
        assert!(
            ghosts.begun.len() == 2 && ghosts.begun[1] == (1 << 16) - 1,
            "{:?}",
            ghosts.begun
        );
        for other in between {
            // SAFETY: the run is the test's, and nobody writes to it any more.
            let bytes = unsafe { std::slice::from_raw_parts(others(other), other.bytes()) };
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn memory_is_what_the_control_plane_counts_on() {
        let items = 10_000_000;
        let memory = Ghosts::memory_for(items * 9 / 10);
        let bytes = ((memory.runs as u64) << memory.order) * UNIT_BYTES;
        let counted = tidemark_types::Policy::S3Fifo.ghost_bytes_per_item() * items as f64;
        assert!((bytes as f64 / counted - 1.0).abs() < 0.1, "{bytes} {counted}");
    }

    #[test]
    fn memory_fits_the_number() {
        for (ghosts, order, runs) in [
            (1, 0, 1),
            (31 * 1024, 0, 1),
            (31 * 1024 + 1, 1, 1),
            (200_000, 3, 1),
            (5_000_000, 4, 10),
        ] {
            assert_eq!(Ghosts::memory_for(ghosts), GhostMemory { order, runs }, "{ghosts}");
        }
    }
}
