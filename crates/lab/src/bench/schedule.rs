//! When requests are due in open loop.

/// Evenly spaced times; one of several threads takes every so-many-th of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    first_ns: f64,
    step_ns: f64,
    end_ns: u64,
    next: u64,
}

impl Schedule {
    /// The times of thread `index` of `threads` that together make `rate` requests per second until `end_ns`.
    pub(crate) fn new(rate: f64, index: usize, threads: usize, end_ns: u64) -> Self {
        let gap_ns = 1e9 / rate;
        let (index, threads) = (index as f64, threads as f64);
        Self {
            first_ns: gap_ns * index,
            step_ns: gap_ns * threads,
            end_ns,
            next: 0,
        }
    }

    /// When the next request is due; none is after the end.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let due = (self.first_ns + self.next as f64 * self.step_ns) as u64;
        (due < self.end_ns).then_some(due)
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
        for (rate, threads, end_ns, count) in [
            (1000.0, 1, 1_000_000_000, 1000),
            (1000.0, 3, 1_000_000_000, 1000),
            (3.0, 2, 2_000_000_000, 6),
            (1e6, 4, 1_000_000, 1000),
            (0.5, 1, 1_000_000_000, 1),
        ] {
            let mut all = Vec::new();
            for index in 0..threads {
                let mut schedule = Schedule::new(rate, index, threads, end_ns);
                while let Some(due) = schedule.due_ns() {
                    all.push(due);
                    schedule.advance();
                }
            }
            all.sort_unstable();
            assert_eq!(all.len(), count, "{rate} by {threads}");
            for (n, due) in all.iter().enumerate() {
                assert!(
                    (*due as f64 - n as f64 * 1e9 / rate).abs() <= 1.0,
                    "{rate} by {threads}: {n} at {due}"
                );
            }
        }
    }
}
