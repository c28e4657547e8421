//! How fast a count that never falls has grown in the last ten seconds: CPU time, bytes.

use std::collections::VecDeque;
use std::time::Duration;

use tidemark_types::UnixMs;

/// How far back a rate looks.
const INTERVAL: Duration = Duration::from_secs(10);
/// Samples nearer together than this are one: rounds may come every few milliseconds.
const SPACING: Duration = Duration::from_millis(900);
/// One before the interval, and those within it at their spacing.
const MAX_SAMPLES: usize = 13;

/// The count's values of the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct RateInterval(VecDeque<(UnixMs, u64)>);

impl RateInterval {
    /// Notes the count as it was at `at`.
    pub(crate) fn note(&mut self, at: UnixMs, count: u64) {
        let length = self.0.len();
        if length >= 2 && at.since(self.0[length - 2].0) < SPACING {
            self.0[length - 1] = (at, count);
            return;
        }
        self.0.push_back((at, count));
        // The oldest is needed only until the next one is as old as the interval.
        while self.0.len() > 2 && (self.0.len() > MAX_SAMPLES || at.since(self.0[1].0) >= INTERVAL) {
            self.0.pop_front();
        }
    }

    /// Whether nothing was noted yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its growth per second over the last ten seconds before `now`, or since the first note, but at least over a second.
    pub(crate) fn per_second(&self, now: UnixMs) -> f64 {
        let is_before = |sample: &&(UnixMs, u64)| now.since(sample.0) >= INTERVAL;
        let before = self.0.iter().rev().find(is_before).or(self.0.front());
        let (Some((at, before)), Some((_, last))) = (before, self.0.back()) else {
            return 0.0;
        };
        let passed = now.since(*at).clamp(Duration::from_secs(1), INTERVAL);
        last.saturating_sub(*before) as f64 / passed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_ten_seconds() {
        let mut interval = RateInterval::default();
        assert_eq!(interval.per_second(UnixMs(5_000)), 0.0);
        // Half a core for a minute.
        for second in 0..=60 {
            interval.note(UnixMs(second * 1000), second * 500_000_000);
        }
        let rate = |second: u64| interval.per_second(UnixMs(second * 1000)) / 1e9;
        assert!((rate(60) - 0.5).abs() < 1e-9);
        assert!(interval.0.len() <= MAX_SAMPLES);
        // Silence.
        assert!((rate(65) - 0.25).abs() < 0.01, "{}", rate(65));
        assert_eq!(rate(75), 0.0);
    }
}
