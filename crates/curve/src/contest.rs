//! Which policy would serve a running cache best: each candidate in a miniature cache of the same size, on the same keys.
//!
//! C. Waldspurger, T. Saemundsson, I. Ahmad, N. Park, "Cache modeling and optimization using miniature simulations", ATC
//! 2017. Invariant: all candidates see the same requests, and misses while a cache is still filling count for none.
//!       Expiry is left out: an expired item leaves every one of them in the same way.

use tidemark_types::Policy;

use crate::sample::Threshold;
use crate::sim::{Capacity, Eviction, Simulator};
use crate::stack::Table;

/// A cache whose sampled items are fewer would tell policies apart by chance.
const ITEMS_MIN: f64 = 200.0;
/// Keys whose sizes are remembered, for each item that a miniature holds.
const KNOWN_PER_ITEM: f64 = 4.0;
/// A size that changed by less leaves the miniatures as they are.
const SIZE_TOLERANCE: f64 = 0.1;

/// Miniature caches of several policies.
pub struct Contest {
    candidates: Vec<Candidate>,
    threshold: Threshold,
    /// The largest cache that the miniatures stand for, in bytes of items.
    bytes: u64,
    /// The size of the largest candidate, in bytes.
    capacity_bytes: u64,
    /// Written to at least one of the miniatures since they were empty.
    filled_bytes: u64,
    /// Sizes of keys, of those that were written or found.
    sizes: Table<u32>,
    known_max: usize,
    /// The hits of the counted gets, by the exact set of candidates that hit: the n-th candidate is bit n of the index.
    hits: Vec<u64>,
}

struct Candidate {
    policy: Policy,
    cache: Box<dyn Simulator + Send>,
}

/// The gain of one policy over another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lead {
    /// The policy.
    pub policy: Policy,
    /// Its hit ratio less that of the other one.
    pub gain: f64,
    /// The standard error of the gain, as if gets were independent of each other. It comes from the gets that hit with
    /// exactly one of the two. They are many more than the gain when each keeps other keys.
    pub standard_error: f64,
}

impl Contest {
    /// A contest between these policies, each in a cache of so many bytes of items, of about so many items in total. At
    /// equal memory, a policy that remembers evicted keys holds less. `None` if so few items would be sampled that
    /// chance decided.
    pub fn new(policies: &[(Policy, u64)], items: u64, threshold: Threshold) -> Option<Self> {
        let sampled_items = items as f64 * threshold.ratio();
        if sampled_items < ITEMS_MIN {
            return None;
        }
        let sampled_bytes = |bytes: u64| (bytes as f64 * threshold.ratio()) as u64;
        let candidate = |&(policy, bytes): &(Policy, u64)| Candidate {
            policy,
            cache: Eviction::Policy(policy).simulator(Capacity::of_bytes(sampled_bytes(bytes))),
        };
        let bytes = policies.iter().map(|(_, bytes)| *bytes).max()?;
        Some(Self {
            candidates: policies.iter().map(candidate).collect(),
            threshold,
            bytes,
            capacity_bytes: sampled_bytes(bytes),
            filled_bytes: 0,
            sizes: Table::default(),
            known_max: (sampled_items * KNOWN_PER_ITEM) as usize,
            hits: vec![0; 1 << policies.len()],
        })
    }

    /// Whether it is still about caches of these sizes and these keys.
    pub fn is_about(&self, policies: &[(Policy, u64)], threshold: Threshold) -> bool {
        let bytes = policies.iter().map(|(_, bytes)| *bytes).max();
        let change = bytes.unwrap_or(0) as f64 / self.bytes.max(1) as f64 - 1.0;
        threshold == self.threshold && change.abs() <= SIZE_TOLERANCE
    }

    /// A sampled key was asked for; these are its bytes, if the cache had it.
    pub fn get(&mut self, key: u64, held_bytes: Option<u64>) {
        let known = self.sizes.get(&key).map(|bytes| u64::from(*bytes));
        let bytes = held_bytes.or(known);
        let counts = self.is_filled();
        let hits = bytes.map_or(0, |bytes| {
            let hits = self.request(key, bytes);
            self.know(key, bytes);
            hits
        });
        if counts {
            self.hits[hits] += 1;
        }
    }

    /// A sampled key's item was written.
    pub fn set(&mut self, key: u64, bytes: u64) {
        // A miss with a known size is in the miniatures since then: another request would pass for another use.
        if self.sizes.contains_key(&key) {
            return;
        }
        self.request(key, bytes);
        self.know(key, bytes);
    }

    /// Which candidates hit, a bit for each.
    fn request(&mut self, key: u64, bytes: u64) -> usize {
        let all = (1 << self.candidates.len()) - 1;
        let hits = self.candidates.iter_mut().enumerate().fold(0, |hits, (n, candidate)| {
            hits | usize::from(candidate.cache.request(key, bytes)) << n
        });
        if hits != all {
            self.filled_bytes = self.filled_bytes.saturating_add(bytes);
        }
        hits
    }

    fn know(&mut self, key: u64, bytes: u64) {
        if self.sizes.len() >= self.known_max {
            // They are known again at their next write; until then their misses are nobody's.
            self.sizes.clear();
        }
        self.sizes.insert(key, u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Whether every miniature is full, so that its misses are the policy's doing.
    fn is_filled(&self) -> bool {
        self.filled_bytes > 2 * self.capacity_bytes
    }

    /// Gets that counted since the last [`Self::count_anew`].
    pub fn gets(&self) -> u64 {
        self.hits.iter().sum()
    }

    /// Counts from zero, with the miniatures' present content.
    pub fn count_anew(&mut self) {
        self.hits.fill(0);
    }

    /// The candidate other than `over` with the most hits, and its gain or loss. The lead is all of its hits if `over`
    /// is no candidate. `None` before anything counted.
    pub fn lead(&self, over: Policy) -> Option<Lead> {
        let gets = self.gets();
        if gets == 0 {
            return None;
        }
        let count = |these: &dyn Fn(usize) -> bool| {
            let counted = self.hits.iter().enumerate().filter(|(hits, _)| these(*hits));
            counted.map(|(_, count)| count).sum::<u64>()
        };
        let bit = |n: usize| 1_usize << n;
        let other = self.candidates.iter().position(|candidate| candidate.policy == over);
        let others = (0..self.candidates.len()).filter(|n| Some(*n) != other);
        let best = others.max_by_key(|n| count(&|hits| hits & bit(*n) != 0))?;
        let (best_bit, other_bit) = (bit(best), other.map_or(0, bit));
        let won = count(&|hits| hits & best_bit != 0 && hits & other_bit == 0);
        let lost = count(&|hits| hits & best_bit == 0 && hits & other_bit != 0);
        let gain = (won as f64 - lost as f64) / gets as f64;
        // One of each more than there were: without them, few gets would seem to be certain.
        let differ = (won + lost + 2) as f64 / (gets + 2) as f64;
        Some(Lead {
            policy: self.candidates[best].policy,
            gain,
            standard_error: ((differ - gain * gain) / gets as f64).sqrt(),
        })
    }
}

impl std::fmt::Debug for Contest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contest")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest(bytes: u64, items: u64, threshold: Threshold) -> Option<Contest> {
        Contest::new(&Policy::PLAIN.map(|policy| (policy, bytes)), items, threshold)
    }

    /// Look-aside gets of keys by a rule, against a contest.
    fn play(contest: &mut Contest, gets: u64, mut key: impl FnMut(u64) -> u64) {
        for n in 0..gets {
            let key = key(n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            contest.get(key, None);
            contest.set(key, 10);
        }
    }

    fn random(n: u64) -> u64 {
        let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 20
    }

    #[test]
    fn a_scan_between_hot_keys_is_what_s3fifo_is_for() {
        let mut contest = contest(10_000, 1_000, Threshold::ALL).unwrap();
        play(&mut contest, 100_000, |n| {
            if n % 2 == 0 { random(n) % 900 } else { 1_000_000 + n }
        });
        let lead = contest.lead(Policy::Fifo).unwrap();
        assert_eq!(lead.policy, Policy::S3Fifo);
        assert!(lead.gain > 0.05, "{lead:?}");
        let others = contest.lead(Policy::S3Fifo).unwrap();
        assert_ne!(others.policy, Policy::S3Fifo);
        assert!(others.gain < -0.05, "{others:?}");
    }

    #[test]
    fn a_load_that_fits_favours_nobody() {
        let mut contest = contest(10_000, 1_000, Threshold::ALL).unwrap();
        play(&mut contest, 10_000, |n| n % 500);
        assert_eq!(contest.lead(Policy::Fifo), None);
    }

    #[test]
    fn a_loop_that_is_a_little_too_large_favours_who_keeps_a_part() {
        let mut contest = contest(10_000, 1_000, Threshold::ALL).unwrap();
        play(&mut contest, 30_000, |n| n % 1_500);
        let lead = contest.lead(Policy::Fifo).unwrap();
        assert_eq!(lead.policy, Policy::S3Fifo);
        assert!(lead.gain > 0.05, "{lead:?}");
    }

    #[test]
    fn too_few_items_are_no_contest() {
        assert!(contest(10_000, 100, Threshold::ALL).is_none());
        assert!(contest(10_000, 10_000, Threshold::below(1 << 57)).is_none());
    }

    #[test]
    fn what_is_remembered_of_keys_is_bounded() {
        let mut contest = contest(10_000, 1_000, Threshold::ALL).unwrap();
        play(&mut contest, 100_000, |n| n);
        assert!(contest.sizes.len() <= 4_000);
        let is_about =
            |bytes, threshold| contest.is_about(&[(Policy::S3Fifo, 9_000), (Policy::Fifo, bytes)], threshold);
        assert!(is_about(10_900, Threshold::ALL));
        assert!(!is_about(12_000, Threshold::ALL));
        assert!(!is_about(10_000, Threshold::below(1)));
    }

    /// If all keys are alike, nothing is gained by remembering evicted ones.
    #[test]
    fn among_equal_keys_who_has_room_for_more_items_wins() {
        let sizes = Policy::PLAIN.map(|policy| (policy, if policy == Policy::S3Fifo { 9_500 } else { 10_000 }));
        let mut contest = Contest::new(&sizes, 1_000, Threshold::ALL).unwrap();
        play(&mut contest, 300_000, |n| random(n) % 1_100);
        let lead = contest.lead(Policy::S3Fifo).unwrap();
        assert_ne!(lead.policy, Policy::S3Fifo);
        assert!((0.03..0.06).contains(&lead.gain), "{lead:?}");
    }

    /// Clock and FIFO hit alike often if all keys are alike, each with other keys. A difference in few gets is chance.
    #[test]
    fn what_a_short_contest_shows_is_within_its_standard_error() {
        let mut contest = contest(10_000, 1_000, Threshold::ALL).unwrap();
        play(&mut contest, 20_000, |n| random(n) % 2_000);
        let (mut beyond, mut mean_error) = (0, 0.0);
        for round in 0..200 {
            contest.count_anew();
            play(&mut contest, 200, |n| random(1_000_000 + round * 200 + n) % 2_000);
            let lead = contest.lead(Policy::Fifo).unwrap();
            beyond += u32::from(lead.gain > 3.0 * lead.standard_error);
            mean_error += lead.standard_error / 200.0;
        }
        assert!(beyond <= 4, "{beyond} of 200");
        // As large as it must be where each keeps other keys, and no larger than if every get differed.
        assert!((0.02..0.071).contains(&mean_error), "{mean_error}");
    }
}
