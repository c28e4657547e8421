//! Gets and hits of the last ten seconds, from counters that never fall, and the memory that was in use for them.

use std::collections::VecDeque;
use std::time::Duration;

use tidemark_plan::{Count, Measured};
use tidemark_types::{TenantCounters, UnixMs};

/// How far back a hit ratio looks.
const INTERVAL: Duration = Duration::from_secs(10);
/// Samples nearer together than this are one: rounds may come every few milliseconds.
const SPACING: Duration = Duration::from_millis(900);
/// One before the interval, and those within it at their spacing.
const MAX_SAMPLES: usize = 13;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    at: UnixMs,
    gets: u64,
    hits: u64,
    flash_hits: u64,
    usage_bytes: u64,
}

/// The counters' values of the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct HitInterval(VecDeque<Sample>);

impl HitInterval {
    /// Whether nothing was noted yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the counters, and the memory in use, as they were at `at`. The first call gives their value before the interval.
    pub(crate) fn note(&mut self, at: UnixMs, counters: &TenantCounters, usage_bytes: u64) {
        let sample = Sample {
            at,
            gets: counters.gets,
            hits: counters.hits,
            flash_hits: counters.flash.map_or(0, |flash| flash.get_hits),
            usage_bytes,
        };
        let length = self.0.len();
        if length >= 2 && at.since(self.0[length - 2].at) < SPACING {
            self.0[length - 1] = sample;
            return;
        }
        self.0.push_back(sample);
        // The oldest is needed only until the next one is as old as the interval.
        while self.0.len() > 2 && (self.0.len() > MAX_SAMPLES || at.since(self.0[1].at) >= INTERVAL) {
            self.0.pop_front();
        }
    }

    /// The newest count, and the one from which the last ten seconds before `now` are measured.
    fn ends(&self, now: UnixMs) -> Option<(&Sample, &Sample)> {
        let is_before = |sample: &&Sample| now.since(sample.at) >= INTERVAL;
        let before = self.0.iter().rev().find(is_before).or(self.0.front())?;
        Some((before, self.0.back()?))
    }

    /// Hits a second over the last ten seconds before `now`, or since the first note, but at least over a second.
    pub(crate) fn hits_per_second(&self, now: UnixMs) -> f64 {
        let Some((before, newest)) = self.ends(now) else {
            return 0.0;
        };
        let seconds = now
            .since(before.at)
            .clamp(Duration::from_secs(1), INTERVAL)
            .as_secs_f64();
        newest.hits.saturating_sub(before.hits) as f64 / seconds
    }

    /// Hits per get over the last ten seconds before `now`; `None` without gets.
    pub(crate) fn ratio(&self, now: UnixMs) -> Option<f64> {
        let (before, newest) = self.ends(now)?;
        let gets = newest.gets.checked_sub(before.gets).filter(|gets| *gets > 0)?;
        // Both counts are far below 2^53, where a float still tells neighbours apart.
        let ratio = newest.hits.saturating_sub(before.hits) as f64 / gets as f64;
        Some(ratio)
    }

    /// The hit ratio of that time, with its standard error, and the time of the newest count; `None` without gets.
    pub(crate) fn lately(&self, now: UnixMs) -> Option<(UnixMs, Measured)> {
        let (before, newest) = self.ends(now)?;
        let count = |sample: &Sample| Count {
            at: sample.at,
            gets: sample.gets,
            hits: sample.hits,
        };
        Some((newest.at, count(newest).since(count(before))?))
    }

    /// As [`Self::lately`], where a hit on flash counts as `worth` of one, 0 to 1.
    pub(crate) fn lately_worth(&self, now: UnixMs, worth: f64) -> Option<(UnixMs, Measured)> {
        let (before, newest) = self.ends(now)?;
        let hits = newest.hits.saturating_sub(before.hits);
        let on_flash = newest.flash_hits.saturating_sub(before.flash_hits).min(hits);
        let count = Count {
            at: newest.at,
            gets: newest.gets.checked_sub(before.gets)?,
            hits: (hits as f64 - (1.0 - worth) * on_flash as f64) as u64,
        };
        let nothing = Count {
            at: before.at,
            gets: 0,
            hits: 0,
        };
        Some((newest.at, count.since(nothing)?))
    }

    /// The hit ratio, and the memory that was in use for these gets, in the mean; `None` where they are fewer than `gets_min`.
    pub(crate) fn measured(&self, now: UnixMs, gets_min: u64) -> Option<(f64, u64)> {
        let (before, newest) = self.ends(now)?;
        let gets = newest
            .gets
            .checked_sub(before.gets)
            .filter(|gets| *gets >= gets_min.max(1))?;
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let byte_gets: u128 = pairs
            .filter(|(earlier, _)| earlier.at >= before.at)
            .map(|(earlier, later)| {
                let bytes = u128::from(earlier.usage_bytes) + u128::from(later.usage_bytes);
                bytes * u128::from(later.gets.saturating_sub(earlier.gets)) / 2
            })
            .sum();
        Some((self.ratio(now)?, u64::try_from(byte_gets / u128::from(gets)).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use tidemark_types::FlashUse;

    use super::*;

    fn counts(gets: u64, hits: u64) -> TenantCounters {
        TenantCounters {
            gets,
            hits,
            ..TenantCounters::default()
        }
    }

    fn at(ms: u64) -> UnixMs {
        UnixMs(1_000_000 + ms)
    }

    #[test]
    fn the_ratio_covers_the_last_ten_seconds() {
        let mut interval = HitInterval::default();
        interval.note(at(0), &counts(0, 0), 40);
        assert_eq!(interval.ratio(at(0)), None);
        interval.note(at(1000), &counts(100, 50), 60);
        assert_eq!(interval.ratio(at(1000)), Some(0.5));
        assert_eq!(interval.measured(at(1000), 100), Some((0.5, 50)));
        assert_eq!(interval.measured(at(1000), 101), None);
        for second in 2..=12 {
            interval.note(
                at(second * 1000),
                &counts(100 * second, 50 + 100 * (second - 1)),
                10 * second,
            );
        }
        assert_eq!(interval.ratio(at(12_000)), Some(1.0));
        assert_eq!(interval.measured(at(12_000), 1000), Some((1.0, 70)));
        assert_eq!(interval.hits_per_second(at(12_000)), 100.0);
        // Nothing was noted since: the last eight seconds of it still count, later nothing does.
        assert_eq!(interval.ratio(at(20_000)), Some(1.0));
        assert_eq!(interval.ratio(at(22_000)), None);
        assert_eq!(interval.hits_per_second(at(22_000)), 0.0);
        assert_eq!(HitInterval::default().hits_per_second(at(0)), 0.0);
    }

    #[test]
    fn memory_counts_by_the_gets_that_it_served() {
        let mut interval = HitInterval::default();
        interval.note(at(0), &counts(0, 0), 500);
        // Long ago, and nothing since then.
        interval.note(at(3_600_000), &counts(0, 0), 20);
        interval.note(at(3_601_000), &counts(1000, 800), 20);
        interval.note(at(3_602_000), &counts(4000, 3200), 60);
        assert_eq!(interval.measured(at(3_602_000), 1), Some((0.8, 35)));
    }

    #[test]
    fn many_rounds_per_second_keep_few_samples() {
        let mut interval = HitInterval::default();
        for round in 0..10_000 {
            interval.note(at(round * 10), &counts(round, round / 2), 0);
        }
        assert!(interval.0.len() <= MAX_SAMPLES, "{}", interval.0.len());
        let ratio = interval.ratio(at(100_000)).unwrap();
        assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn a_clock_that_went_back_gives_no_nonsense() {
        let mut interval = HitInterval::default();
        interval.note(at(50_000), &counts(10, 10), 0);
        interval.note(at(0), &counts(20, 15), 0);
        assert_eq!(interval.ratio(at(0)), Some(0.5));
    }

    #[test]
    fn a_hit_on_flash_counts_for_what_it_is_worth() {
        let flash = |gets, hits, on_flash| TenantCounters {
            flash: Some(FlashUse {
                // Other commands found items there, too.
                hits: 3 * on_flash,
                get_hits: on_flash,
                ..FlashUse::default()
            }),
            ..counts(gets, hits)
        };
        let mut interval = HitInterval::default();
        interval.note(at(0), &flash(0, 0, 0), 0);
        interval.note(at(5000), &flash(1000, 800, 400), 0);
        for (worth, expected) in [(1.0, 0.8), (0.5, 0.6), (0.0, 0.4)] {
            let (_, measured) = interval.lately_worth(at(5000), worth).unwrap();
            assert!((measured.hit_ratio - expected).abs() < 1e-9, "{worth}: {measured:?}");
        }
        // Commands that are no gets find items on flash, too.
        interval.note(at(6000), &flash(2000, 900, 9000), 0);
        assert_eq!(interval.lately_worth(at(6000), 0.0).unwrap().1.hit_ratio, 0.0);
    }
}
