//! Caches in small: a policy's real decisions on a sample of the keys, in as much smaller caches.
//!
//! C. Waldspurger, T. Saemundsson, I. Ahmad, N. Park, "Cache modeling and optimization using miniature simulations",
//! USENIX ATC 2017. Invariant: a cache of `bytes` is simulated in `bytes` times the sampled share of the keys. If all
//! keys are sampled, the counts are the policy's own. As in [`crate::Profile`], requests that the sample falls short of
//! count as hits.

use crate::curve::{Curve, Point};
use crate::sample::{GROUPS, Seed, Threshold, group, standard_error};
use crate::sim::{Capacity, Eviction, Simulator};

/// Caches of one policy in several sizes.
pub struct Miniatures {
    caches: Vec<Miniature>,
    seed: Seed,
    threshold: Threshold,
    gets: u64,
}

/// One of them.
struct Miniature {
    /// The size of the cache that it stands for.
    bytes: u64,
    cache: Box<dyn Simulator + Send>,
    /// The misses of each group of keys.
    misses: [u64; GROUPS],
}

impl Miniatures {
    /// Empty caches of these sizes in bytes, for keys below the threshold, by the hash of this seed.
    pub fn new(eviction: Eviction, sizes: &[u64], threshold: Threshold, seed: u64) -> Self {
        let miniature = |bytes: &u64| Miniature {
            bytes: *bytes,
            cache: eviction.simulator(Capacity::of_bytes(scaled(*bytes, threshold))),
            misses: [0; GROUPS],
        };
        Self {
            caches: sizes.iter().map(miniature).collect(),
            seed: Seed::new(seed),
            threshold,
            gets: 0,
        }
    }

    /// A look-aside client's request of a trace: a get, and a write if it missed.
    #[inline]
    pub fn request(&mut self, key: u64, bytes: u64) {
        self.gets += 1;
        let hash = self.seed.hash(key);
        if !self.threshold.takes(hash) {
            return;
        }
        for miniature in &mut self.caches {
            if !miniature.cache.request(key, bytes) {
                miniature.misses[group(hash)] += 1;
            }
        }
    }

    /// The policy's curve: a point for each cache. Policies other than LRU can miss more in a larger cache. The smaller
    /// one's ratio stands then, because memory need not be used.
    pub fn curve(&self) -> Curve {
        if self.gets == 0 {
            return Curve::through([]);
        }
        let stands_for_all = self.threshold.ratio() * self.gets as f64;
        Curve::through(self.caches.iter().map(|miniature| {
            let parts = miniature.misses.map(|misses| misses as f64 / stands_for_all);
            Point {
                bytes: miniature.bytes,
                // Whole numbers come first, so that exact ones are not rounded.
                miss_ratio: miniature.misses.iter().sum::<u64>() as f64 / stands_for_all,
                standard_error: standard_error(&parts, self.threshold),
            }
        }))
    }
}

/// A size in small.
fn scaled(bytes: u64, threshold: Threshold) -> u64 {
    if threshold.is_all() {
        return bytes;
    }
    (bytes as f64 * threshold.ratio()).round() as u64
}
