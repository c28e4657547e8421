//! How long requests of all tenants were in the server, counted by each worker for itself: workers that share a tenant would
//! otherwise wait for each other at every visit.

use std::sync::atomic::{AtomicU64, Ordering};

use tidemark_types::ServedTimes;

/// The counts of one worker, apart from those of others in memory. Only that worker changes them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerTimes {
    requests: [AtomicU64; ServedTimes::BUCKETS],
    us: AtomicU64,
}

impl WorkerTimes {
    /// Records requests that took as long as each other; for the worker whose counts these are.
    #[inline]
    pub(crate) fn record(&self, took_us: u64, requests: u64) {
        add(&self.requests[ServedTimes::bucket(took_us)], requests);
        add(&self.us, took_us.saturating_mul(requests));
    }

    /// The counts until now.
    pub(crate) fn report(&self) -> ServedTimes {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ServedTimes {
            requests: std::array::from_fn(|bucket| read(&self.requests[bucket])),
            us: read(&self.us),
        }
    }
}

/// With one writer nothing is lost between the two steps, and no other core is asked.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_their_times() {
        let times = WorkerTimes::default();
        for (us, requests) in [(0, 1), (15, 2), (16, 4), (4_095, 8), (4_096, 16), (u64::MAX / 64, 32)] {
            times.record(us, requests);
        }
        let report = times.report();
        let mut expected = [0; ServedTimes::BUCKETS];
        (expected[0], expected[1], expected[8], expected[9]) = (3, 4, 8, 16);
        expected[ServedTimes::BUCKETS - 1] = 32;
        assert_eq!(report.requests, expected);
        assert_eq!(
            report.us,
            2 * 15 + 4 * 16 + 8 * 4_095 + 16 * 4_096 + 32 * (u64::MAX / 64)
        );
        let twice = report.with(WorkerTimes::default().report());
        assert_eq!(twice, report);
    }
}
