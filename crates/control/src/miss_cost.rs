//! The time of a miss: from a get that found nothing to the write of the same key, as look-aside clients have it.
//!
//! Only sampled keys count, to the millisecond of the data plane's clock. One pair says little, the mean of many is
//! right. Invariant: a fixed number of keys is remembered.

use std::collections::HashMap;
use std::time::Duration;

use tidemark_types::UnixMs;

/// Keys that may wait for their write at once: at a thousand records a second, those of a slow database's second.
const WAITING_MAX: usize = 1_024;
/// A write that comes later has nothing to do with the miss.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A wait of more than so many times the mean counts as that: mostly another client wrote the key, for a reason of its own.
const OUTLIER: f64 = 8.0;
/// Until the mean is known it is taken to be at least this, in milliseconds.
const MEAN_MS_MIN: f64 = 1.0;
/// Those that wait in vain are looked for no oftener.
const PURGE_EVERY: Duration = Duration::from_secs(1);
/// Fewer pairs say nothing.
const PAIRS_MIN: u32 = 32;
/// The weight of one more pair, once there are more than its inverse.
const WEIGHT_MIN: f64 = 1.0 / 256.0;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct MissCost {
    /// The times of first misses, by the key's order.
    waiting: HashMap<u64, UnixMs>,
    mean_ms: f64,
    pairs: u32,
    purged_at: UnixMs,
}

impl MissCost {
    /// A key was asked for and not found.
    pub(crate) fn missed(&mut self, order: u64, at: UnixMs) {
        if self.waiting.len() >= WAITING_MAX && at.since(self.purged_at) >= PURGE_EVERY {
            self.purged_at = at;
            self.waiting.retain(|_, since| at.since(*since) <= WAIT_MAX);
        }
        if self.waiting.len() < WAITING_MAX {
            // Several clients may miss a key at once: the first one's wait is the longest, and its write ends it.
            self.waiting.entry(order).or_insert(at);
        }
    }

    /// A key was written that was not there.
    pub(crate) fn filled(&mut self, order: u64, at: UnixMs) {
        let Some(since) = self.waiting.remove(&order) else {
            return;
        };
        let wait = at.since(since);
        if wait > WAIT_MAX {
            return;
        }
        self.pairs = self.pairs.saturating_add(1);
        let weight = WEIGHT_MIN.max(1.0 / f64::from(self.pairs));
        let wait_ms = wait.as_secs_f64() * 1000.0;
        let counts_ms = if self.pairs > PAIRS_MIN {
            wait_ms.min(self.mean_ms.max(MEAN_MS_MIN) * OUTLIER)
        } else {
            wait_ms
        };
        self.mean_ms += (counts_ms - self.mean_ms) * weight;
    }

    /// The mean time of a miss; `None` while too few were seen.
    pub(crate) fn mean(&self) -> Option<Duration> {
        (self.pairs >= PAIRS_MIN).then(|| Duration::from_secs_f64(self.mean_ms / 1000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_of_the_pairs_below_the_clock_s_resolution() {
        let mut cost = MissCost::default();
        assert_eq!(cost.mean(), None);
        // 0.3 ms, seen by a clock of whole milliseconds: three of ten pairs lie on both sides of a tick.
        for key in 0..1000 {
            let begin_us = key * 5_100;
            cost.missed(key, UnixMs(begin_us / 1000));
            cost.missed(key, UnixMs((begin_us + 200) / 1000));
            cost.filled(key, UnixMs((begin_us + 300) / 1000));
            // Written without having been missed.
            cost.filled(key + 5000, UnixMs(begin_us / 1000));
        }
        let mean_us = cost.mean().unwrap().as_micros();
        assert!((250..350).contains(&mean_us), "{mean_us}");
    }

    #[test]
    fn what_is_never_written_is_forgotten_and_what_comes_late_does_not_count() {
        let mut cost = MissCost::default();
        for key in 0..5000 {
            cost.missed(key, UnixMs(0));
        }
        assert_eq!(cost.waiting.len(), WAITING_MAX);
        for key in 0..100 {
            cost.filled(key, UnixMs(10_001));
        }
        assert_eq!(cost.mean(), None);
        cost.missed(9999, UnixMs(20_000));
        assert_eq!(cost.waiting.len() + 100, WAITING_MAX + 1);
        cost.missed(9998, UnixMs(20_001));
        for key in 20_000..21_500 {
            cost.missed(key, UnixMs(20_002));
        }
        assert_eq!(cost.waiting.len(), WAITING_MAX);
        assert!(cost.waiting.contains_key(&9999), "it may still be written");
    }
}
