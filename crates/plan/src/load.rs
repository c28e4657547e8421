//! Whether a tenant asks for other things than it did.
//!
//! While nothing changes, the hit ratio stays where it was. A hit ratio that moves at an unchanged size means that the
//! load changed, and that the curve is of the past.

use std::collections::VecDeque;
use std::time::Duration;

use tidemark_types::UnixMs;

use crate::count::{Count, Measured};

/// A change shows in the hit ratio of this time.
const LOOK_BACK: Duration = Duration::from_secs(2);
/// Counts that are kept: rounds may come faster than once a second.
const COUNTS_MAX: usize = 8;
/// The least number of gets that can say that something changed.
const GETS_MIN: u64 = 1000;
/// A hit ratio this far from the one before is another load; a cache that fills or shrinks moves by less.
const LEAST_CHANGE: f64 = 0.05;
/// After a shrink, a fall of less than so many times the expected one is the shrink's. Take a working set that just
/// fitted: a twentieth less memory evicts more for a moment than that size would in the long run.
const SHRINK_FACTOR: f64 = 3.0;
/// A hit ratio that ends a while within so much of its mean is steady.
const STEADY: f64 = LEAST_CHANGE / 4.0;
/// Standard errors that chance does not reach, once a second for years. Gets of one moment resemble each other, so it is
/// twice the six of independent ones.
const ERRORS: f64 = 12.0;

/// Watches one tenant's hit ratio.
#[derive(Debug, Default)]
pub struct LoadWatch {
    counts: VecDeque<Count>,
    /// The expected hit ratio, if any.
    expected: Option<f64>,
    /// Whether memory was taken back since that was measured.
    has_shrunk: bool,
}

impl LoadWatch {
    /// Takes the counters of a moment; whether the load is another one than a moment ago.
    pub fn note(&mut self, count: Count) -> bool {
        self.counts.push_back(count);
        while self.counts.len() > COUNTS_MAX || self.is_older_needless(count.at) {
            self.counts.pop_front();
        }
        let (Some(expected), Some(measured)) = (self.expected, self.recent()) else {
            return false;
        };
        let least = (ERRORS * measured.standard_error).max(LEAST_CHANGE);
        let change = measured.hit_ratio - expected;
        let is_own = self.has_shrunk && change < 0.0 && -change <= SHRINK_FACTOR * least;
        measured.gets >= GETS_MIN && change.abs() > least && !is_own
    }

    fn is_older_needless(&self, now: UnixMs) -> bool {
        self.counts.len() > 2 && now.since(self.counts[1].at) >= LOOK_BACK
    }

    fn recent(&self) -> Option<Measured> {
        self.counts.back()?.since(*self.counts.front()?)
    }

    /// Takes a recent hit ratio as the one that goes with the load and the size. It does not while the hit ratio is on
    /// its way elsewhere: that of a cache that fills rises by itself.
    pub fn set_expected(&mut self, hit_ratio: f64) {
        let is_there = |recent: Measured| {
            let most = STEADY.max(ERRORS / 3.0 * recent.standard_error);
            (recent.hit_ratio - hit_ratio).abs() <= most
        };
        self.expected = self.recent().is_none_or(is_there).then_some(hit_ratio);
        self.has_shrunk = false;
    }

    /// A little memory is taken back: a smaller hit ratio is no surprise unless it is much smaller.
    pub fn expect_less(&mut self) {
        self.has_shrunk = true;
    }

    /// The size or the load changed: whatever hit ratio comes is no surprise.
    pub fn expect_anything(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(watch: &mut LoadWatch, from: u64, hit_ratios: &[f64], gets: u64) -> Option<usize> {
        let mut hits = 0.0;
        for (second, hit_ratio) in hit_ratios.iter().enumerate() {
            hits += hit_ratio * gets as f64;
            let count = Count {
                at: UnixMs((from + second as u64) * 1000),
                gets: gets * (second as u64 + 1),
                hits: hits as u64,
            };
            if watch.note(count) {
                return Some(second);
            }
        }
        None
    }

    fn steady(hit_ratio: f64) -> LoadWatch {
        let mut watch = LoadWatch::default();
        watch.set_expected(hit_ratio);
        watch
    }

    #[test]
    fn a_change_is_seen_within_three_seconds() {
        for (to, seen) in [(0.5, true), (0.84, true), (0.96, true), (0.88, false), (0.92, false)] {
            let at = run(&mut steady(0.9), 1, &[vec![0.9; 5], vec![to; 3]].concat(), 10_000);
            assert_eq!(at.is_some(), seen, "to {to}");
            assert!(at.is_none_or(|at| at >= 5), "to {to}: {at:?}");
        }
    }

    #[test]
    fn few_gets_say_nothing_and_where_nothing_is_expected_nothing_surprises() {
        assert_eq!(run(&mut steady(0.9), 1, &[0.2; 5], 100), None);
        let mut watch = steady(0.9);
        watch.expect_anything();
        assert_eq!(run(&mut watch, 1, &[0.2; 5], 10_000), None);
    }

    #[test]
    fn after_a_shrink_only_much_less_or_more_is_a_surprise() {
        for (to, seen) in [(0.8, false), (0.7, true), (0.96, true)] {
            let mut watch = steady(0.9);
            watch.expect_less();
            assert_eq!(run(&mut watch, 1, &[to; 3], 10_000).is_some(), seen, "to {to}");
            watch = steady(0.9);
            watch.expect_less();
            watch.set_expected(0.9);
            assert!(run(&mut watch, 1, &[to; 3], 10_000).is_some(), "to {to}, later");
        }
    }

    #[test]
    fn many_rounds_in_a_second_keep_few_counts() {
        let mut watch = LoadWatch::default();
        for ms in 0..10_000 {
            watch.note(Count {
                at: UnixMs(ms),
                gets: ms,
                hits: ms,
            });
        }
        assert!(watch.counts.len() <= COUNTS_MAX);
    }
}
