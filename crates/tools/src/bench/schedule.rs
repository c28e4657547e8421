//! When requests are due in open loop.

/// Evenly spaced times of bursts; one of several threads takes every so-many-th of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    first_ns: f64,
    step_ns: f64,
    end_ns: u64,
    /// Requests due at each of the times.
    burst: u64,
    next: u64,
}

impl Schedule {
    /// The times of thread `index` of `threads` that together make `rate` requests per second until `end_ns`, `burst` of
    /// them at a time.
    pub(crate) fn new(rate: f64, burst: usize, (index, threads): (usize, usize), end_ns: u64) -> Self {
        let gap_ns = 1e9 / rate * burst as f64;
        let (index, threads) = (index as f64, threads as f64);
        Self {
            first_ns: gap_ns * index,
            step_ns: gap_ns * threads,
            end_ns,
            burst: burst as u64,
            next: 0,
        }
    }

    /// When the next request is due; none is after the end.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let due = (self.first_ns + (self.next / self.burst) as f64 * self.step_ns) as u64;
        (due < self.end_ns).then_some(due)
    }

    /// Whether the next one is the first of its burst.
    #[inline]
    pub(crate) fn begins_burst(&self) -> bool {
        self.next.is_multiple_of(self.burst)
    }

    /// The next one was sent.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_rate() {
        for (rate, burst, threads, end_ns, count) in [
            (1000.0, 1, 1, 1_000_000_000, 1000),
            (1000.0, 1, 3, 1_000_000_000, 1000),
            (3.0, 1, 2, 2_000_000_000, 6),
            (1e6, 1, 4, 1_000_000, 1000),
            (0.5, 1, 1, 1_000_000_000, 1),
            (1000.0, 10, 1, 1_000_000_000, 1000),
            (1000.0, 50, 2, 1_000_000_000, 1000),
        ] {
            let mut all = Vec::new();
            for index in 0..threads {
                let mut schedule = Schedule::new(rate, burst, (index, threads), end_ns);
                let mut in_burst = 0;
                while let Some(due) = schedule.due_ns() {
                    assert_eq!(schedule.begins_burst(), in_burst % burst == 0);
                    in_burst += 1;
                    all.push(due);
                    schedule.advance();
                }
            }
            all.sort_unstable();
            assert_eq!(all.len(), count, "{rate} by {threads}, {burst} at a time");
            for (n, due) in all.iter().enumerate() {
                let expected = (n / burst * burst) as f64 * 1e9 / rate;
                assert!(
                    (*due as f64 - expected).abs() <= 1.0,
                    "{rate} by {threads}, {burst} at a time: {n} at {due}"
                );
            }
        }
    }
}
