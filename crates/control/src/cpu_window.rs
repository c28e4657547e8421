//! CPU time of the last ten seconds, from a count that never falls.

use std::collections::VecDeque;
use std::time::Duration;

use tidemark_types::UnixMs;

/// How far back a rate looks.
const WINDOW: Duration = Duration::from_secs(10);
/// Samples nearer together than this are one: rounds may come every few milliseconds.
const SPACING: Duration = Duration::from_millis(900);
/// One before the window, and those within it at their spacing.
const MAX_SAMPLES: usize = 13;

/// The count's values of the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct CpuWindow(VecDeque<(UnixMs, u64)>);

impl CpuWindow {
    /// Notes the count, in nanoseconds, as it was at `at`.
    pub(crate) fn note(&mut self, at: UnixMs, cpu_ns: u64) {
        let length = self.0.len();
        if length >= 2 && at.since(self.0[length - 2].0) < SPACING {
            self.0[length - 1] = (at, cpu_ns);
            return;
        }
        self.0.push_back((at, cpu_ns));
        // The oldest is needed only until the next one is as old as the window.
        while self.0.len() > 2 && (self.0.len() > MAX_SAMPLES || at.since(self.0[1].0) >= WINDOW) {
            self.0.pop_front();
        }
    }

    /// Cores that were used over the last ten seconds before `now`, or since the first note, but at least over a second.
    pub(crate) fn rate(&self, now: UnixMs) -> f64 {
        let is_before = |sample: &&(UnixMs, u64)| now.since(sample.0) >= WINDOW;
        let before = self.0.iter().rev().find(is_before).or(self.0.front());
        let (Some((at, before_ns)), Some((_, now_ns))) = (before, self.0.back()) else {
            return 0.0;
        };
        let passed = now.since(*at).clamp(Duration::from_secs(1), WINDOW);
        now_ns.saturating_sub(*before_ns) as f64 / 1e9 / passed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_ten_seconds() {
        let mut window = CpuWindow::default();
        assert_eq!(window.rate(UnixMs(5_000)), 0.0);
        // Half a core for a minute.
        for second in 0..=60 {
            window.note(UnixMs(second * 1000), second * 500_000_000);
        }
        assert!((window.rate(UnixMs(60_000)) - 0.5).abs() < 1e-9);
        assert!(window.0.len() <= MAX_SAMPLES);
        // Silence.
        assert!(
            (window.rate(UnixMs(65_000)) - 0.25).abs() < 0.01,
            "{}",
            window.rate(UnixMs(65_000))
        );
        assert_eq!(window.rate(UnixMs(75_000)), 0.0);
    }
}
