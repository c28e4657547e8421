//! Reuse distances of a stream of requests, exact or of a sample of fixed size, and the curve of an LRU cache from them.
//!
//! C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad, "Efficient MRC construction with SHARDS", FAST 2015. Keys whose
//! hash lies below a threshold are followed. When there are too many, the threshold falls to the largest hash among
//! them. A distance counts as many bytes as the sample stands for, and a request as many requests. Requests that the
//! sample falls short of count as hits of hot keys that it lacks (the count correction).
//!
//! Invariant: every count is exact while all keys fit the sample and no request has only a bound for its distance. A
//! distance is the bytes of the distinct keys used since a key's last use, its own included. It is the size of the
//! least LRU cache in which the key hits. Deleted and expired keys weigh nothing, and a key written again weighs its
//! new bytes. No distance can tell two things. A delete leaves room in a cache smaller than the distance, and an object
//! larger than the cache bypasses it.

mod by_class;
mod live;

use std::collections::BinaryHeap;

use crate::curve::{Curve, Point};
use crate::histogram::Histogram;
use crate::sample::{GROUPS, Seed, Threshold, group, standard_error};
use crate::skew::Skew;
use crate::stack::{KEYS_MAX, NEVER, Stack};

pub use by_class::{Amount, ClassBounds, Depth};
pub use live::Held;

/// How much is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Keys at most; memory is about a hundred bytes for each.
    pub keys: usize,
    /// The seed of the hash that decides which keys are sampled.
    pub seed: u64,
}

impl Sampling {
    /// Every key (up to 2^30, which would take a hundred gigabytes).
    pub const EXACT: Self = Self {
        keys: KEYS_MAX,
        seed: 0,
    };
}

/// The requests of one tenant or trace.
#[derive(Debug)]
pub struct Profile {
    stack: Stack,
    histogram: Histogram,
    seed: Seed,
    keys_max: usize,
    threshold: Threshold,
    /// Hashes and keys of the sample, the largest hash first, from when it was first full; of a key that went, until it
    /// is met.
    by_hash: BinaryHeap<(u64, u64)>,
    /// A whole number of any profile that was never made to fade.
    gets: f64,
    /// The gets that the sampled ones stand for, of each group.
    sampled_gets: [f64; GROUPS],
    largest_bytes: u64,
    /// The most bytes of keys used since it was forgotten last: a key that is none of them was not used within so many.
    horizon_bytes: u64,
    /// The size classes that hits are counted by.
    class_bounds: Option<ClassBounds>,
}

impl Profile {
    /// A profile of nothing yet. Its curve will be exact at these sizes in bytes; at others it is interpolated over a
    /// sixteenth of an octave at most.
    pub fn new(sampling: Sampling, sizes: &[u64]) -> Self {
        Self {
            stack: Stack::new(),
            histogram: Histogram::new(sizes, 0),
            seed: Seed::new(sampling.seed),
            keys_max: sampling.keys.clamp(1, KEYS_MAX),
            threshold: Threshold::ALL,
            by_hash: BinaryHeap::new(),
            gets: 0.0,
            sampled_gets: [0.0; GROUPS],
            largest_bytes: 0,
            horizon_bytes: 0,
            class_bounds: None,
        }
    }

    /// A get of a key. An absent key is known from its next write on.
    #[inline]
    pub fn get(&mut self, key: u64, now_ms: u64) {
        self.gets += 1.0;
        let hash = self.seed.hash(key);
        if self.threshold.takes(hash) {
            self.sampled_get(key, hash, now_ms);
        }
    }

    /// A key was written, with its size and, if it expires, when.
    pub fn set(&mut self, key: u64, bytes: u64, expires_at_ms: Option<u64>, now_ms: u64) {
        self.largest_bytes = self.largest_bytes.max(bytes);
        let hash = self.seed.hash(key);
        if !self.threshold.takes(hash) {
            return;
        }
        self.stack.expire(now_ms);
        let expires_at_ms = expires_at_ms.unwrap_or(NEVER);
        if expires_at_ms <= now_ms {
            self.stack.remove(key);
            return;
        }
        let keys = self.stack.len();
        self.stack.put(key, bytes, expires_at_ms);
        if self.stack.len() > keys {
            self.admit(key, hash);
        }
    }

    /// A key was deleted.
    pub fn delete(&mut self, key: u64) {
        if self.threshold.takes(self.seed.hash(key)) {
            self.stack.remove(key);
        }
    }

    /// A look-aside client's request of a trace: a get, and a write if it missed or has another size.
    #[inline]
    pub fn request(&mut self, key: u64, bytes: u64) {
        self.gets += 1.0;
        self.largest_bytes = self.largest_bytes.max(bytes);
        let hash = self.seed.hash(key);
        if !self.threshold.takes(hash) {
            return;
        }
        match self.sampled_get(key, hash, 0) {
            Some(known) if known == bytes => {}
            Some(_) => self.stack.set(key, bytes, NEVER),
            None => {
                self.stack.put(key, bytes, NEVER);
                self.admit(key, hash);
            }
        }
    }

    /// Counts a get of a sampled key; gives the key's bytes if it is known.
    #[inline]
    fn sampled_get(&mut self, key: u64, hash: u64, now_ms: u64) -> Option<u64> {
        self.stack.expire(now_ms);
        let (group, stands_for) = (group(hash), 1.0 / self.threshold.ratio());
        self.sampled_gets[group] += stands_for;
        let found = self.stack.touch(key)?;
        let distance = (found.newer_bytes as f64 * stands_for) as u64 + found.bytes;
        self.histogram
            .add(distance, group, self.class_of(found.bytes), stands_for);
        Some(found.bytes)
    }

    /// Makes room for a key that came into the sample.
    fn admit(&mut self, key: u64, hash: u64) {
        let is_full = self.stack.len() > self.keys_max;
        if self.threshold.is_all() && !is_full {
            return;
        }
        // Most of a heap this long are keys that went.
        if self.by_hash.len() >= 2 * self.keys_max {
            self.by_hash.clear();
        } else if !self.by_hash.is_empty() {
            self.by_hash.push((hash, key));
        }
        self.shed();
    }

    /// Lets keys of the largest hashes go until there are not too many.
    fn shed(&mut self) {
        if self.stack.len() <= self.keys_max {
            return;
        }
        // The heap is made when it is first needed.
        if self.by_hash.is_empty() {
            let seed = self.seed;
            self.by_hash = self.stack.keys().map(|key| (seed.hash(key), key)).collect();
        }
        while self.stack.len() > self.keys_max {
            let Some((largest, key)) = self.by_hash.pop() else {
                return;
            };
            if self.stack.remove(key) {
                self.threshold = Threshold::below(largest);
            }
        }
    }

    /// Gets seen, sampled or not.
    pub fn gets(&self) -> u64 {
        self.gets.round() as u64
    }

    /// The part of the keys that is sampled now.
    pub fn threshold(&self) -> Threshold {
        self.threshold
    }

    /// Keys that are followed now.
    pub fn sampled_keys(&self) -> u64 {
        self.stack.len() as u64
    }

    /// Keys there are, deleted and expired ones left out; an estimate unless all are sampled.
    pub fn keys(&self) -> u64 {
        (self.stack.len() as f64 / self.threshold.ratio()).round() as u64
    }

    /// The bytes of these keys.
    pub fn bytes(&self) -> u64 {
        if self.threshold.is_all() {
            return self.stack.bytes();
        }
        (self.stack.bytes() as f64 / self.threshold.ratio()) as u64
    }

    /// The largest object written, sampled or not.
    pub fn largest_bytes(&self) -> u64 {
        self.largest_bytes
    }

    /// How unevenly the keys are used, if Zipf's law describes it at all.
    pub fn skew(&self) -> Option<Skew> {
        Skew::of(self.stack.uses())
    }

    /// The curve of an LRU cache.
    pub fn curve(&self) -> Curve {
        if self.gets <= 0.0 {
            return Curve::through([]);
        }
        let gets = self.gets;
        let steps = self.histogram.steps(&self.sampled_gets);
        let raw = Curve::through(steps.iter().map(|step| Point {
            bytes: step.bytes,
            miss_ratio: step.misses / gets,
            standard_error: standard_error(&step.by_group.map(|misses| misses / gets), self.threshold),
        }));
        if self.threshold.is_all() {
            return raw;
        }
        let squares: f64 = self.stack.sizes().map(|bytes| (bytes as f64).powi(2)).sum();
        let mean_square = squares / (self.stack.bytes() as f64).max(1.0);
        let points = raw.points().iter();
        Curve::through(points.map(|point| self.with_error_of_distances(&raw, *point, mean_square)))
    }

    /// Adds the error of the distances to a point's error. A size is a sum over a sample, too; the smaller the sample,
    /// the less certain the size.
    fn with_error_of_distances(&self, raw: &Curve, point: Point, mean_square: f64) -> Point {
        let ratio = self.threshold.ratio();
        let sampled_bytes = point.bytes as f64 * ratio;
        // The variance of a sum of sampled sizes over its square, where the sum is `sampled_bytes`.
        let relative = (mean_square * (1.0 - ratio) / sampled_bytes.max(1.0)).sqrt().min(1.0);
        let at = |factor: f64| raw.at((point.bytes as f64 * factor) as u64).miss_ratio;
        let of_distances = (at(1.0 - relative) - at(1.0 + relative)) / 2.0;
        Point {
            standard_error: point.standard_error.hypot(of_distances),
            ..point
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The events of a key.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Get(u64),
        Set(u64, u64, Option<u64>),
        Delete(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        let key = 0_u64..12;
        prop_oneof![
            5 => key.clone().prop_map(Event::Get),
            2 => (key.clone(), 1_u64..100).prop_map(|(key, bytes)| Event::Set(key, bytes, None)),
            1 => (key.clone(), 1_u64..100, 0_u64..40).prop_map(|(key, bytes, ms)| Event::Set(key, bytes, Some(ms))),
            1 => key.prop_map(Event::Delete),
        ]
    }

    /// The distances of all gets that have one, by lists: keys by last use with bytes and expiry; one event in a
    /// millisecond.
    fn distances(events: &[Event]) -> Vec<u64> {
        let (mut list, mut distances) = (Vec::<(u64, u64, u64)>::new(), Vec::new());
        for (now, event) in (0..).zip(events) {
            list.retain(|(_, _, expires)| *expires > now);
            let place = |list: &[(u64, u64, u64)], key: u64| list.iter().position(|(other, ..)| *other == key);
            match *event {
                Event::Get(key) => {
                    if let Some(place) = place(&list, key) {
                        distances.push(list[place..].iter().map(|(_, bytes, _)| bytes).sum());
                        let entry = list.remove(place);
                        list.push(entry);
                    }
                }
                Event::Set(key, bytes, ms) => {
                    list.retain(|(other, ..)| *other != key);
                    list.push((key, bytes, ms.map_or(u64::MAX, |ms| now + ms)));
                }
                Event::Delete(key) => list.retain(|(other, ..)| *other != key),
            }
        }
        distances
    }

    fn profile(sampling: Sampling, sizes: &[u64], events: &[Event]) -> Profile {
        let mut profile = Profile::new(sampling, sizes);
        for (now, event) in (0..).zip(events) {
            match *event {
                Event::Get(key) => profile.get(key, now),
                Event::Set(key, bytes, ms) => profile.set(key, bytes, ms.map(|ms| now + ms), now),
                Event::Delete(key) => profile.delete(key),
            }
        }
        profile
    }

    proptest! {
        #[test]
        fn hits_are_the_gets_whose_distance_is_not_above_the_size(events in vec(event(), 0..300)) {
            let sizes: Vec<u64> = (0..12).map(|n| n * 97 + 1).collect();
            let profile = profile(Sampling::EXACT, &sizes, &events);
            let distances = distances(&events);
            let gets = events.iter().filter(|event| matches!(event, Event::Get(_))).count();
            prop_assert_eq!(profile.gets(), gets as u64);
            for size in sizes {
                let hits = distances.iter().filter(|distance| **distance <= size).count();
                let expected = if gets == 0 { 1.0 } else { (gets - hits) as f64 / gets as f64 };
                prop_assert!((profile.curve().at(size).miss_ratio - expected).abs() < 1e-12, "{} bytes", size);
            }
        }

        #[test]
        fn samples_never_exceed_their_number_and_curves_never_rise(
            events in vec(event(), 0..300), keys in 1_usize..8, seed in 0_u64..100
        ) {
            let profile = profile(Sampling { keys, seed }, &[50, 500], &events);
            prop_assert!(profile.sampled_keys() <= keys as u64);
            let curve = profile.curve();
            prop_assert!(curve.points().is_sorted_by(|a, b| a.miss_ratio >= b.miss_ratio));
            prop_assert!(curve.points().iter().all(|point| point.standard_error.is_finite()));
        }
    }

    #[test]
    fn deleted_and_expired_keys_weigh_nothing_and_miss() {
        let check = |events: &[Event], size: u64, misses: f64| {
            let curve = profile(Sampling::EXACT, &[size], events).curve();
            assert_eq!(curve.at(size).miss_ratio, misses, "{events:?} in {size}");
        };
        let set = |key| Event::Set(key, 10, None);
        let (get, expiring) = (Event::Get, |key, ms| Event::Set(key, 10, Some(ms)));
        check(&[set(1), set(2), get(1)], 19, 1.0);
        check(&[set(1), set(2), get(1)], 20, 0.0);
        check(&[set(1), set(2), Event::Delete(2), get(1)], 10, 0.0);
        check(&[set(1), expiring(2, 2), get(1)], 19, 1.0);
        check(&[set(1), expiring(2, 1), get(1)], 10, 0.0);
        check(&[expiring(1, 1), get(1)], 1000, 1.0);
        check(&[expiring(1, 0), set(2), get(2)], 10, 0.0);
        check(
            &[set(1), Event::Set(2, 500, None), Event::Set(2, 5, None), get(1)],
            15,
            0.0,
        );
    }

    #[test]
    fn nothing_and_one_request() {
        let mut profile = Profile::new(Sampling::EXACT, &[10]);
        assert_eq!(
            (profile.curve(), profile.keys(), profile.skew()),
            (Curve::through([]), 0, None)
        );
        profile.request(7, 10);
        assert_eq!(profile.curve().at(u64::MAX).miss_ratio, 1.0);
        profile.request(7, 10);
        assert_eq!(
            (profile.curve().at(9).miss_ratio, profile.curve().at(10).miss_ratio),
            (1.0, 0.5)
        );
        assert_eq!((profile.keys(), profile.bytes(), profile.largest_bytes()), (1, 10, 10));
    }

    #[test]
    fn sizes_beyond_all_measure_do_not_overflow() {
        let mut profile = Profile::new(Sampling { keys: 4, seed: 0 }, &[]);
        for n in 0..1000 {
            profile.request(n % 9, u64::MAX - n);
        }
        let curve = profile.curve();
        assert!(
            curve
                .points()
                .iter()
                .all(|point| point.miss_ratio.is_finite() && point.standard_error.is_finite())
        );
    }

    #[test]
    fn churn_of_deletes_does_not_grow_the_sampler() {
        let mut profile = Profile::new(Sampling { keys: 64, seed: 0 }, &[]);
        for n in 0..200_000 {
            profile.set(n % 5000, 10, None, n);
            profile.delete(n % 5000);
            profile.set(n % 5000, 10, None, n);
        }
        assert!(profile.by_hash.len() <= 3 * 64, "{}", profile.by_hash.len());
        assert_eq!(profile.sampled_keys(), 64);
    }
}
