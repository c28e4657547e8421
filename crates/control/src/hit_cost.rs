//! The time of a hit: how long requests are in the server, from when their connection was ready until the system has
//! the replies. A miss is that long there, too; the rest of its time is its client's.
//!
//! Invariant: of the last minutes before the last report, and of nothing where nobody measures, as in a program that embeds
//! the cache.

use std::time::Duration;

use tidemark_types::{Served, UnixMs};

/// Measurements count half after this time.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Fewer requests say nothing.
const REQUESTS_MIN: f64 = 1_000.0;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct HitCost {
    /// The last report, and when it came.
    last: Option<(UnixMs, Served)>,
    requests: f64,
    us: f64,
}

impl HitCost {
    /// Takes the counters of a report.
    pub(crate) fn observe(&mut self, now: UnixMs, served: Served) {
        let Some((at, before)) = self.last.replace((now, served)) else {
            return;
        };
        let kept = 0.5_f64.powf(now.since(at).as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.requests = self.requests * kept + served.requests.saturating_sub(before.requests) as f64;
        self.us = self.us * kept + served.us.saturating_sub(before.us) as f64;
    }

    /// The mean, once there is enough to say.
    pub(crate) fn mean(&self) -> Option<Duration> {
        (self.requests >= REQUESTS_MIN).then(|| Duration::from_secs_f64(self.us / self.requests / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMs = UnixMs(1_000_000);

    /// A second each of so many requests that take so long, each of them.
    fn seconds(cost: &mut HitCost, served: &mut Served, seconds: std::ops::Range<u64>, requests: u64, each_us: u64) {
        for second in seconds {
            served.requests += requests;
            served.us += requests * each_us;
            cost.observe(START.plus(Duration::from_secs(second)), *served);
        }
    }

    #[test]
    fn the_mean_is_of_what_was_served_lately() {
        let (mut cost, mut served) = (HitCost::default(), Served::default());
        // Requests served before the first look are nobody's.
        (served.requests, served.us) = (1_000_000, 1);
        cost.observe(START, served);
        assert_eq!(cost.mean(), None);
        seconds(&mut cost, &mut served, 1..10, 100, 40);
        assert_eq!(cost.mean(), None, "too few to say");
        seconds(&mut cost, &mut served, 10..20, 100, 40);
        assert_eq!(cost.mean(), Some(Duration::from_micros(40)));
        // After a half-life of as many requests, half of the counted requests are new.
        seconds(&mut cost, &mut served, 20..1_000, 100, 40);
        seconds(&mut cost, &mut served, 1_000..1_060, 100, 80);
        let mean = cost.mean().unwrap();
        assert!(
            mean.abs_diff(Duration::from_micros(60)) < Duration::from_micros(1),
            "{mean:?}"
        );
    }
}
