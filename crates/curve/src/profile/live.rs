//! A profile of a running cache, from the data plane's records of the keys that it samples.
//!
//! A live stream differs from a trace. Keys are hashes already, sampled elsewhere by a threshold that rises and falls.
//! All gets are counted, sampled or not. The requests come from clients of a real cache, which holds only some of the
//! keys. Requests of long ago say less about the present.

use tidemark_types::UnixMs;

use super::{KEYS_MAX, NEVER, Profile, Sampling};
use crate::histogram::Histogram;
use crate::sample::{GROUPS, Seed, Threshold, group};

/// The state of a key in the real cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The item's bytes.
    pub bytes: u64,
    /// When it expires, if it does.
    pub expiry: Option<UnixMs>,
}

impl Held {
    fn expires_at_ms(self) -> u64 {
        self.expiry.map_or(NEVER, |expiry| expiry.0)
    }
}

impl Profile {
    /// A profile of keys that are evenly distributed hashes, of which at most so many are followed. Distances below
    /// `grain_bytes` are not told apart, which saves memory where nobody asks about caches so small.
    pub fn of_samples(keys: usize, grain_bytes: u64) -> Self {
        Self {
            seed: Seed::NONE,
            histogram: Histogram::new(&[], grain_bytes),
            ..Self::new(Sampling { keys, seed: 0 }, &[])
        }
    }

    /// The memory of such a profile's counts, in bytes, while no distance is larger than `reach_bytes`, with size classes or
    /// without.
    #[must_use]
    pub fn distance_bytes(grain_bytes: u64, reach_bytes: u64, has_classes: bool) -> u64 {
        Histogram::bytes(grain_bytes, reach_bytes, has_classes)
    }

    /// Follows so many keys at most from now on; memory that fewer do not need is given back.
    pub fn limit_keys(&mut self, keys: usize) {
        self.keys_max = keys.clamp(1, KEYS_MAX);
        self.shed();
        self.stack.shrink();
        self.by_hash.shrink_to(2 * self.keys_max);
    }

    /// From now on exactly the keys below this threshold are given. Keys above it are forgotten. New keys below it
    /// become known as they are used.
    pub fn sample(&mut self, threshold: Threshold) {
        if threshold.ratio() < self.threshold.ratio() {
            self.stack.retain(|hash| threshold.takes(hash));
            self.by_hash.clear();
        } else if threshold.ratio() > self.threshold.ratio() {
            // Those that are new below it may have been used a moment ago.
            self.forget_horizon();
        }
        self.threshold = threshold;
    }

    /// So many gets were counted, among them those that [`Self::live_get`] is given.
    pub fn count_gets(&mut self, gets: u64) {
        self.gets += gets as f64;
    }

    /// A sampled key was asked for, in this state in the cache.
    pub fn live_get(&mut self, key: u64, held: Option<Held>, now: UnixMs) {
        if !self.threshold.takes(key) {
            return;
        }
        let stands_for = 1.0 / self.threshold.ratio();
        match (self.sampled_get(key, key, now.0), held) {
            (Some(bytes), Some(held)) if bytes != held.bytes => self.stack.set(key, held.bytes, held.expires_at_ms()),
            (None, Some(held)) => {
                // In the cache, but used last before the key was sampled: nobody knows how long before. A get that says
                // nothing must not pass for a miss.
                self.sampled_gets[group(key)] -= stands_for;
                self.gets = (self.gets - stands_for).max(0.0);
                self.set(key, held.bytes, held.expiry.map(|expiry| expiry.0), now.0);
            }
            (None, None) => {
                // The key is new, or was used before the horizon began. It would miss in any cache that is not larger
                // than all bytes used since. A deleted or expired key was known once and misses in larger ones too. The
                // bound therefore stays when the bytes become fewer.
                let known_bytes = (self.stack.marked_bytes() as f64 * stands_for) as u64;
                self.horizon_bytes = self.horizon_bytes.max(known_bytes);
                self.histogram.add_above(self.horizon_bytes, stands_for);
            }
            (Some(_), _) => {}
        }
    }

    /// A sampled key's item was written.
    pub fn live_set(&mut self, key: u64, held: Held, now: UnixMs) {
        self.set(key, held.bytes, held.expiry.map(|expiry| expiry.0), now.0);
    }

    /// A sampled key's item was given another expiry.
    pub fn live_retime(&mut self, key: u64, held: Held) {
        if self.threshold.takes(key) && self.stack.bytes_of(key).is_some() {
            self.stack.set(key, held.bytes, held.expires_at_ms());
        }
    }

    /// All keys were deleted.
    pub fn clear(&mut self) {
        self.stack.retain(|_| false);
        self.by_hash.clear();
        self.forget_horizon();
    }

    /// Forgets the keys that only a cache of more than so many bytes would still have: to all others they are new.
    pub fn trim(&mut self, bytes: u64) {
        let sampled = bytes as f64 * self.threshold.ratio();
        self.stack.trim(sampled as u64);
        self.horizon_bytes = self.horizon_bytes.min(bytes);
    }

    /// From now on a get that only a cache of more than so many bytes would answer is a miss in any. The counts of such
    /// gets are forgotten, with their memory.
    pub fn limit_distances(&mut self, bytes: u64) {
        self.histogram.limit(bytes);
    }

    /// A key that is unknown from now on is only known as not used since. The load changed, or the key may have been
    /// forgotten.
    pub fn forget_horizon(&mut self) {
        self.stack.mark();
        self.horizon_bytes = 0;
    }

    /// Past requests count only this much, 0 to 1, from now on. Keys and the order of their use stay known.
    pub fn fade(&mut self, factor: f64) {
        self.histogram.scale(factor);
        self.gets *= factor;
        self.sampled_gets.iter_mut().for_each(|gets| *gets *= factor);
        if factor == 0.0 {
            self.sampled_gets = [0.0; GROUPS];
        }
    }

    /// Uses so far, which [`Self::skew`] goes by, count half from now on.
    pub fn fade_uses(&mut self) {
        self.stack.halve_uses();
    }
}

#[cfg(test)]
mod tests {
    use tidemark_types::SamplingThreshold;

    use super::*;

    const NOW: UnixMs = UnixMs(1_000);

    fn held(bytes: u64) -> Held {
        Held { bytes, expiry: None }
    }

    fn spread(n: u64) -> u64 {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// A look-aside client that goes round so many keys of ten bytes so often, in a cache that has room for `room` bytes.
    fn rounds(profile: &mut Profile, keys: u64, times: u64, room: u64) {
        for n in 0..keys * times {
            let key = spread(n % keys);
            profile.count_gets(1);
            let hits = room >= keys * 10 && n >= keys;
            profile.live_get(key, hits.then_some(held(10)), NOW);
            if !hits {
                profile.live_set(key, held(10), NOW);
            }
        }
    }

    #[test]
    fn a_running_cache_has_the_curve_of_its_requests_whatever_it_held() {
        for room in [0, 100_000] {
            let mut profile = Profile::of_samples(100_000, 0);
            rounds(&mut profile, 1000, 5, room);
            let curve = profile.curve();
            assert!((curve.at(9_000).miss_ratio - 1.0).abs() < 1e-9, "{room}");
            // Misses of the first round say nothing of a cache that has been there for longer.
            assert!(curve.at(10_000).miss_ratio < 0.01, "{room}");
        }
    }

    const KEYS: u64 = 10_000;

    /// So many gets of keys of ten bytes that are all asked for alike, and are not in the cache.
    fn meet(profile: &mut Profile, first: u64, gets: u64) {
        let mut random = 1_u64;
        for _ in 0..gets {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = spread(first + (random >> 32) % KEYS);
            profile.count_gets(1);
            profile.live_get(key, None, NOW);
            profile.live_set(key, held(10), NOW);
        }
    }

    fn assert_right(profile: &Profile, parts: &[f64]) {
        let curve = profile.curve();
        for part in parts {
            let hit_ratio = 1.0 - curve.at((part * KEYS as f64 * 10.0) as u64).miss_ratio;
            assert!((hit_ratio - part).abs() < 0.03, "{hit_ratio} in {part} of the keys");
        }
    }

    #[test]
    fn the_curve_of_what_was_met_is_right_before_all_was_met() {
        let mut profile = Profile::of_samples(100_000, 0);
        meet(&mut profile, 1, 2 * KEYS);
        assert_right(&profile, &[0.1, 0.3, 0.5, 0.7]);
    }

    #[test]
    fn of_keys_that_may_have_been_forgotten_it_says_no_more_than_is_known() {
        type Forget = fn(&mut Profile);
        // Each way to forget, and the first of the keys that are asked for then: others, or the same.
        let ways: [(Forget, u64); 4] = [
            (Profile::forget_horizon, 1 + KEYS),
            (Profile::clear, 1),
            (|profile| profile.trim(1_000), 1),
            (|profile| profile.sample(Threshold::ALL), 1 + KEYS),
        ];
        for (forget, first) in ways {
            let mut profile = Profile::of_samples(100_000, 0);
            profile.sample(Threshold::of(SamplingThreshold::below(u64::MAX / 2)));
            meet(&mut profile, 1, 4 * KEYS);
            forget(&mut profile);
            profile.fade(0.0);
            meet(&mut profile, first, KEYS);
            assert_right(&profile, &[0.1, 0.3, 0.5]);
        }
    }

    #[test]
    fn keys_that_never_come_again_gain_nothing_from_memory() {
        let mut profile = Profile::of_samples(1000, 0);
        for n in 0..20_000 {
            // Every second one was asked for nine gets ago.
            let key = spread(if n % 2 == 0 { n + 10 } else { n + 1 });
            profile.count_gets(1);
            profile.live_get(key, None, NOW);
            profile.live_set(key, held(10), NOW);
        }
        let curve = profile.curve();
        for bytes in [1_000, 10_000, 100_000, 1 << 40] {
            assert!((curve.at(bytes).miss_ratio - 0.5).abs() < 0.02, "{curve:?}");
        }
        assert!(
            curve.points().last().is_some_and(|point| point.bytes > 70_000),
            "it is known of all that was met"
        );
    }

    #[test]
    fn a_full_sample_lowers_the_threshold_and_keeps_the_curve() {
        let mut profile = Profile::of_samples(500, 0);
        rounds(&mut profile, 20_000, 5, 0);
        assert!(profile.sampled_keys() <= 500);
        assert!(profile.threshold().sampling().ratio() < 0.05);
        let curve = profile.curve();
        assert!(curve.at(150_000).miss_ratio > 0.9, "{curve:?}");
        assert!(curve.at(250_000).miss_ratio < 0.3, "{curve:?}");
    }

    #[test]
    fn keys_that_become_sampled_are_no_misses() {
        let mut profile = Profile::of_samples(100_000, 0);
        profile.sample(Threshold::below(1 << 60));
        rounds(&mut profile, 1000, 2, 0);
        profile.fade(0.0);
        profile.sample(Threshold::ALL);
        for round in 0..2 {
            for n in 0..1000 {
                profile.count_gets(1);
                profile.live_get(spread(n), Some(held(10)), NOW);
            }
            let missed = profile.curve().at(10_000).miss_ratio;
            assert!(missed < 1e-9, "round {round}: {missed}");
        }
        assert_eq!(profile.sampled_keys(), 1000);
    }

    #[test]
    fn a_lower_threshold_forgets_what_is_above() {
        let mut profile = Profile::of_samples(100_000, 0);
        rounds(&mut profile, 1000, 2, 0);
        profile.sample(Threshold::below(1 << 62));
        assert!(profile.sampled_keys().abs_diff(250) < 50);
        assert!(profile.keys().abs_diff(1000) < 200);
        profile.clear();
        assert_eq!(profile.sampled_keys(), 0);
    }

    #[test]
    fn what_faded_counts_less() {
        let mut profile = Profile::of_samples(100_000, 0);
        rounds(&mut profile, 100, 10, 0);
        profile.fade(0.0);
        assert_eq!(profile.gets(), 0);
        assert_eq!(profile.curve().best_hit_ratio(), 0.0);
        // The order of use is still known, so nothing is new.
        rounds(&mut profile, 100, 1, 0);
        assert_eq!(profile.curve().best_hit_ratio(), 1.0);
        profile.fade(0.5);
        assert_eq!(profile.gets(), 50);
        assert!(profile.curve().at(1000).miss_ratio < 1e-9);
    }

    #[test]
    fn expired_deleted_retimed_and_trimmed_keys() {
        let mut profile = Profile::of_samples(100, 0);
        let key = spread(1);
        let expires = |ms| Held {
            bytes: 10,
            expiry: Some(UnixMs(ms)),
        };
        let get_at = |profile: &mut Profile, ms| {
            profile.fade(0.0);
            profile.count_gets(1);
            profile.live_get(key, None, UnixMs(ms));
            profile.curve().best_hit_ratio()
        };
        profile.live_set(key, expires(2_000), NOW);
        assert_eq!(get_at(&mut profile, 1_999), 1.0);
        profile.live_retime(key, expires(3_000));
        assert_eq!(get_at(&mut profile, 2_999), 1.0);
        assert_eq!(get_at(&mut profile, 3_000), 0.0);
        profile.live_set(key, held(10), NOW);
        profile.delete(key);
        assert_eq!(get_at(&mut profile, 4_000), 0.0);
        profile.live_set(key, held(10), NOW);
        profile.live_set(spread(2), held(10), NOW);
        profile.trim(10);
        assert_eq!(get_at(&mut profile, 5_000), 0.0);
    }

    #[test]
    fn a_smaller_limit_sheds_keys() {
        let mut profile = Profile::of_samples(1000, 0);
        rounds(&mut profile, 900, 2, 0);
        profile.limit_keys(100);
        assert!(profile.sampled_keys() <= 100);
        assert!(profile.threshold().sampling().ratio() < 0.2);
    }
}
