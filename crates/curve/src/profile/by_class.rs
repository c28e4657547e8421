//! Hits and bytes by size class, at each depth of the row of keys.
//!
//! Items of different sizes take different parts of a cache's tiers. Who wants to compose a curve for such tiers needs to know, for each
//! depth, which classes hit down to there and which bytes lie above it. Cost: a class takes four bytes of each bin beside the
//! bin's eighty, and [`Profile::depths`] looks once at each key that is followed.
//!
//! Invariant: at each depth the bytes of all classes are the depth, and their hits those of [`Profile::curve`].

use super::Profile;
use crate::histogram::Histogram;
use crate::sample::CLASSES;

/// The largest items of each class but the last one, which has all that are larger; ascending, in bytes.
pub type ClassBounds = [u64; CLASSES - 1];

/// The items of a class that were used last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// Their bytes.
    pub bytes: f64,
    /// Their number.
    pub items: f64,
}

/// A depth: so many bytes of distinct keys were used since.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Depth {
    /// The depth in bytes.
    pub bytes: u64,
    /// Gets of each class that hit down to here, over all gets.
    pub hits: [f64; CLASSES],
    /// The items of each class that lie above.
    pub held: [Amount; CLASSES],
}

impl Profile {
    /// As [`Self::of_samples`], with hits counted by these classes, too: from the beginning, since the classes of earlier ones
    /// could not be told, and in bins alone, so that the invariant holds at each step of the curve.
    pub fn of_classes(keys: usize, grain_bytes: u64, bounds: ClassBounds) -> Self {
        Self {
            histogram: Histogram::of_classes(grain_bytes),
            class_bounds: Some(bounds),
            ..Self::of_samples(keys, grain_bytes)
        }
    }

    pub(super) fn class_of(&self, bytes: u64) -> usize {
        self.class_bounds.map_or(0, |bounds| class_of(&bounds, bytes))
    }

    /// Hits and bytes of each class, by ascending depth; nothing where classes are not counted, or nothing is known.
    pub fn depths(&self) -> Vec<Depth> {
        let Some(bounds) = self.class_bounds.filter(|_| self.gets > 0.0) else {
            return Vec::new();
        };
        let steps = self.histogram.steps(&self.sampled_gets);
        // Gets that the sample falls short of are hits of hot keys, here as in the whole curve. Their classes are not known.
        let sampled: f64 = self.sampled_gets.iter().sum();
        let total: f64 = steps.last().map_or(0.0, |step| step.by_class.iter().sum());
        let per_hit = 1.0 / self.gets;
        let lacking = if total > 0.0 {
            (self.gets - sampled) / total
        } else {
            0.0
        };
        let lasting = steps.last().map_or([0.0; CLASSES], |step| step.by_class);
        let stands_for = 1.0 / self.threshold.ratio();
        let mut keys = self.stack.newest_first().peekable();
        // The gets above the next key, and the part of that key's.
        let (mut above, mut above_bytes) = ([Amount::default(); CLASSES], 0.0);
        let all_bytes = self.stack.bytes() as f64 * stands_for;
        steps
            .iter()
            .map(|step| {
                let depth = step.bytes as f64;
                while let Some(bytes) = keys.peek().copied()
                    && above_bytes + bytes as f64 * stands_for <= depth
                {
                    let amount = &mut above[class_of(&bounds, bytes)];
                    amount.bytes += bytes as f64 * stands_for;
                    amount.items += stands_for;
                    above_bytes += bytes as f64 * stands_for;
                    keys.next();
                }
                let mut held = above;
                if let Some(bytes) = keys.peek().copied() {
                    // A part of the next one, so that all together are the depth.
                    let amount = &mut held[class_of(&bounds, bytes)];
                    amount.bytes += depth - above_bytes;
                    amount.items += (depth - above_bytes) / bytes.max(1) as f64;
                } else if all_bytes > 0.0 {
                    // Keys that went since were like those that are left.
                    held = above.map(|amount| Amount {
                        bytes: amount.bytes * depth / all_bytes,
                        items: amount.items * depth / all_bytes,
                    });
                }
                let mut hits = step.by_class;
                for (hits, lasting) in hits.iter_mut().zip(lasting) {
                    *hits = (*hits + lacking * lasting) * per_hit;
                }
                Depth {
                    bytes: step.bytes,
                    hits,
                    held,
                }
            })
            .collect()
    }
}

fn class_of(bounds: &ClassBounds, bytes: u64) -> usize {
    bounds.partition_point(|bound| *bound < bytes)
}

#[cfg(test)]
mod tests {
    use tidemark_types::UnixMs;

    use super::super::Held;
    use super::*;

    const NOW: UnixMs = UnixMs(1_000);
    const BOUNDS: ClassBounds = [100, 1_000, 10_000];

    fn spread(n: u64) -> u64 {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Small items that are all asked for alike, and large ones of which few are asked for often.
    fn asked(keys: usize) -> Profile {
        let mut profile = Profile::of_classes(keys, 0, BOUNDS);
        let mut state = 3_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        for _ in 0..200_000 {
            let (is_small, unit) = (random() < 0.5, random());
            let (key, bytes) = if is_small {
                ((unit * 5_000.0) as u64, 80)
            } else {
                (1_000_000 + (unit.powi(3) * 800.0) as u64, 5_000)
            };
            profile.count_gets(1);
            profile.live_get(spread(key), None, NOW);
            profile.live_set(spread(key), Held { bytes, expiry: None }, NOW);
        }
        profile
    }

    #[test]
    fn classes_add_up_to_the_whole_curve_and_to_the_depth() {
        // Parts of counts are kept in 32 bits.
        for (keys, error) in [(100_000, 1e-5), (1_500, 1e-4)] {
            let profile = asked(keys);
            let (curve, depths) = (profile.curve(), profile.depths());
            assert!(depths.len() > 50, "{keys}");
            for depth in &depths {
                let hits = depth.hits.iter().sum::<f64>().max(0.0);
                let whole = 1.0 - curve.at(depth.bytes).miss_ratio;
                assert!(
                    (hits - whole).abs() < error,
                    "{keys} keys: {hits} {whole} at {}",
                    depth.bytes
                );
                let bytes: f64 = depth.held.iter().map(|amount| amount.bytes).sum();
                assert!(
                    (bytes - depth.bytes as f64).abs() <= bytes * 1e-9,
                    "{bytes} of {}",
                    depth.bytes
                );
            }
            assert!(depths.is_sorted_by(|a, b| a.bytes < b.bytes));
        }
    }

    #[test]
    fn a_class_has_its_own_hits_and_items() {
        let depths = asked(100_000).depths();
        let last = depths.last().unwrap();
        let [small, none, large, beyond] = last.held;
        assert!(
            (small.items - 5_000.0).abs() < 50.0 && (large.items - 800.0).abs() < 10.0,
            "{last:?}"
        );
        assert_eq!((none, beyond), (Amount::default(), Amount::default()));
        assert!(
            (last.hits[0] - 0.5).abs() < 0.02 && (last.hits[2] - 0.5).abs() < 0.02,
            "{last:?}"
        );
        // The 80 most wanted of the large ones answer almost half of their gets; as many bytes hold few of the small ones.
        let early = depths.iter().find(|depth| depth.bytes > 400_000).unwrap();
        assert!(early.hits[2] > 3.0 * early.hits[0], "{early:?}");
    }

    #[test]
    fn without_classes_there_are_no_depths_and_what_faded_has_no_hits() {
        let mut profile = Profile::of_samples(100, 0);
        profile.count_gets(1);
        profile.live_set(
            1,
            Held {
                bytes: 10,
                expiry: None,
            },
            NOW,
        );
        profile.live_get(1, None, NOW);
        assert_eq!(profile.depths(), []);
        let mut profile = asked(1_000);
        profile.fade(0.0);
        assert_eq!(profile.depths(), []);
        profile.count_gets(1);
        profile.live_get(u64::MAX, None, NOW);
        assert!(profile.depths().iter().all(|depth| depth.hits == [0.0; CLASSES]));
    }
}
