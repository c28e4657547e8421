//! The curve of a cache with slab classes, composed of its classes' curves.
//!
//! In memcached an item takes a chunk of its class. Memory is given to classes as they ask for it, until all is given: the cold start.
//! From then on each class is an LRU cache of its own. So a cache of C bytes misses (the slab-aware composition of ElCached,
//! HotCloud 2016)
//!
//! ```text
//! miss(C) = sum over k of n_k / n miss_k(s_k(C) C)
//! ```
//!
//! where s_k(C) is the share that class k has taken by when C bytes are taken, and `n_k` are its requests. Invariant: one
//! pass over the requests gives all sizes. Chunks of a class have one size, so its curve counts objects.

use crate::curve::{Curve, Point};
use crate::profile::{Profile, Sampling};

/// The smallest chunk of memcached, and how much larger the next one is, in percent.
const CHUNK_BYTES_MIN: u64 = 96;
const CHUNK_GROWTH_PERCENT: u64 = 125;
/// The largest chunk. A larger item takes what it needs.
const CHUNK_BYTES_MAX: u64 = 512 << 10;
/// Chunks are multiples of this.
const CHUNK_ALIGNMENT: u64 = 8;
/// Keys that a class follows: this part of all. Most keys are in a few classes.
const SAMPLED_DIVISOR: usize = 16;
/// The least that it follows.
const SAMPLED_MIN: usize = 1024;
/// The sum that all classes have taken is noted whenever it has grown by this part.
const NOTED_DIVISOR: u64 = 64;

/// The requests of one tenant or trace, by slab class.
#[derive(Debug)]
pub struct Classes {
    chunks: Vec<u64>,
    /// Those of classes that were asked for.
    profiles: Vec<Option<Profile>>,
    sampling: Sampling,
    taken: Vec<u64>,
    all_taken: u64,
    /// The amount that each class had taken whenever all together had taken a bit more.
    notes: Vec<Box<[u64]>>,
    noted: u64,
}

/// memcached's chunks, ascending.
fn chunks() -> Vec<u64> {
    let mut chunks = Vec::new();
    let mut bytes = CHUNK_BYTES_MIN;
    while bytes < CHUNK_BYTES_MAX * 100 / CHUNK_GROWTH_PERCENT {
        chunks.push(bytes);
        bytes = (bytes * CHUNK_GROWTH_PERCENT / 100).next_multiple_of(CHUNK_ALIGNMENT);
    }
    chunks.push(CHUNK_BYTES_MAX);
    chunks
}

impl Classes {
    /// Nothing yet. All classes together follow about so many keys as a [`Profile`] would.
    pub fn new(sampling: Sampling) -> Self {
        let chunks = chunks();
        Self {
            profiles: chunks.iter().map(|_| None).collect(),
            taken: vec![0; chunks.len()],
            chunks,
            sampling: Sampling {
                keys: (sampling.keys / SAMPLED_DIVISOR).max(SAMPLED_MIN),
                ..sampling
            },
            all_taken: 0,
            notes: Vec::new(),
            noted: 0,
        }
    }

    /// A look-aside client's request of a trace: a get, and a write if it missed or has another size.
    pub fn request(&mut self, key: u64, bytes: u64) {
        let class = self
            .chunks
            .partition_point(|chunk| *chunk < bytes)
            .min(self.chunks.len() - 1);
        let sampling = self.sampling;
        let profile = self.profiles[class].get_or_insert_with(|| Profile::new(sampling, &[]));
        profile.request(key, self.chunks[class].max(bytes));
        let taken = profile.bytes();
        self.all_taken = (self.all_taken + taken).saturating_sub(self.taken[class]);
        self.taken[class] = taken;
        if self.all_taken > self.noted + self.noted / NOTED_DIVISOR {
            self.note();
        }
    }

    fn note(&mut self) {
        self.noted = self.all_taken;
        self.notes.push(self.taken.as_slice().into());
    }

    /// The curve of a cache with these classes.
    pub fn curve(&self) -> Curve {
        let of_class = |profile: &Profile| (profile.gets() as f64, profile.curve());
        let classes: Vec<Option<(f64, Curve)>> = self
            .profiles
            .iter()
            .map(|profile| profile.as_ref().map(of_class))
            .collect();
        let gets: f64 = classes.iter().flatten().map(|(gets, _)| gets).sum();
        if gets <= 0.0 {
            return Curve::through([]);
        }
        let point = |taken: &[u64]| {
            let (mut misses, mut variance) = (0.0, 0.0);
            for ((class_gets, curve), bytes) in classes
                .iter()
                .zip(taken)
                .filter_map(|(class, bytes)| Some((class.as_ref()?, bytes)))
            {
                let (share, at) = (class_gets / gets, curve.at(*bytes));
                misses += share * at.miss_ratio;
                variance += (share * at.standard_error).powi(2);
            }
            Point {
                bytes: taken.iter().sum(),
                miss_ratio: misses,
                standard_error: variance.sqrt(),
            }
        };
        let last = std::iter::once(self.taken.as_slice());
        Curve::through(self.notes.iter().map(|taken| &**taken).chain(last).map(point))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    /// A cache with slab classes: memory goes to classes as they ask for it, then each evicts its own.
    struct Slabs {
        free: u64,
        classes: HashMap<u64, Class>,
    }

    #[derive(Default)]
    struct Class {
        uses: BTreeMap<u64, u64>,
        last: HashMap<u64, u64>,
    }

    impl Slabs {
        /// Whether the key is there; else it is put in.
        fn request(&mut self, key: u64, chunk: u64, now: u64) -> bool {
            let class = self.classes.entry(chunk).or_default();
            if let Some(last) = class.last.insert(key, now) {
                class.uses.remove(&last);
                class.uses.insert(now, key);
                return true;
            }
            class.uses.insert(now, key);
            if self.free >= chunk {
                self.free -= chunk;
            } else if let Some((_, oldest)) = class.uses.pop_first() {
                class.last.remove(&oldest);
            }
            false
        }
    }

    /// Small objects that are asked for evenly, and large ones of which few are asked for often.
    fn requests() -> impl Iterator<Item = (u64, u64)> {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        (0..120_000).map(move |_| {
            let is_small = random() < 0.6;
            let unit = random();
            if is_small {
                ((unit * 4000.0) as u64, 90)
            } else {
                (1_000_000 + (unit * unit * unit * 1500.0) as u64, 1100)
            }
        })
    }

    #[test]
    fn the_composed_curve_is_that_of_a_cache_with_classes_and_not_of_one_lru() {
        let sampling = Sampling::EXACT;
        let (mut classes, mut whole) = (Classes::new(sampling), Profile::new(sampling, &[]));
        for (key, bytes) in requests() {
            classes.request(key, bytes);
            whole.request(key, bytes);
        }
        let (composed, whole) = (classes.curve(), whole.curve());
        let chunk = |bytes: u64| chunks().into_iter().find(|chunk| *chunk >= bytes).unwrap();
        let mut farthest: f64 = 0.0;
        for capacity in [100_000, 200_000, 400_000, 800_000, 1_200_000] {
            let mut slabs = Slabs {
                free: capacity,
                classes: HashMap::new(),
            };
            let all = requests().zip(0..);
            let misses = all.filter(|((key, bytes), now)| !slabs.request(*key, chunk(*bytes), *now));
            let measured = misses.count() as f64 / 120_000.0;
            let predicted = composed.at(capacity).miss_ratio;
            assert!(
                (predicted - measured).abs() < 0.02,
                "{capacity}: {predicted} {measured}"
            );
            farthest = farthest.max((whole.at(capacity).miss_ratio - measured).abs());
        }
        assert!(farthest > 0.03, "one LRU for all misses as much: {farthest}");
    }

    #[test]
    fn a_single_class_is_an_lru_cache_of_its_chunks() {
        let (mut classes, mut whole) = (Classes::new(Sampling::EXACT), Profile::new(Sampling::EXACT, &[]));
        for (key, _) in requests() {
            classes.request(key, 96);
            whole.request(key, 96);
        }
        let (composed, whole) = (classes.curve(), whole.curve());
        for bytes in (20_000..500_000).step_by(20_000) {
            let (a, b) = (composed.at(bytes).miss_ratio, whole.at(bytes).miss_ratio);
            assert!((a - b).abs() < 0.005, "{bytes}: {a} {b}");
        }
    }

    #[test]
    fn every_size_has_a_chunk_and_the_largest_items_what_they_need() {
        let chunks = chunks();
        assert!(chunks.is_sorted() && chunks.len() < 64, "{}", chunks.len());
        assert_eq!((chunks[0], chunks[1], chunks.last()), (96, 120, Some(&CHUNK_BYTES_MAX)));
        let mut classes = Classes::new(Sampling::EXACT);
        classes.request(1, 3 << 20);
        classes.request(1, 3 << 20);
        let curve = classes.curve();
        assert_eq!(
            (curve.at(3 << 20).miss_ratio, curve.at((3 << 20) - 1).miss_ratio > 0.5),
            (0.5, true)
        );
        assert_eq!(Classes::new(Sampling::EXACT).curve().best_hit_ratio(), 0.0);
    }
}
