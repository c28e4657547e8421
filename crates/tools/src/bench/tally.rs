//! The counts of a running load.

use hdrhistogram::Histogram;

use super::report::Mistakes;

/// Latencies are kept to three digits: a percentile is within a thousandth of the truth.
const LATENCY_DIGITS: u8 = 3;
/// The longest latency that is told apart from longer ones, in nanoseconds: an hour.
const MAX_LATENCY_NS: u64 = 3_600_000_000_000;

/// Counts of one thread, or of several added up.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Requests that were answered or given up.
    pub(crate) requests: u64,
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) mistakes: Mistakes,
    /// A description of the first mistake, for people.
    pub(crate) first_mistake: Option<String>,
    /// Requests that were due and could not even be sent before the end.
    pub(crate) unsent: u64,
    /// How often replies were received from the system.
    pub(crate) receives: u64,
    /// When the last reply came.
    pub(crate) last_ns: u64,
    latency_ns: Option<Histogram<u64>>,
    /// Equal latencies in a row: requests that went out and came back together.
    run_ns: u64,
    run_length: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            requests: 0,
            gets: 0,
            hits: 0,
            mistakes: Mistakes::default(),
            first_mistake: None,
            unsent: 0,
            receives: 0,
            last_ns: 0,
            latency_ns: Histogram::new_with_max(MAX_LATENCY_NS, LATENCY_DIGITS).ok(),
            run_ns: 0,
            run_length: 0,
        }
    }
}

impl Tally {
    /// Records how long one request took.
    #[inline]
    pub(crate) fn took(&mut self, ns: u64) {
        if ns == self.run_ns {
            self.run_length += 1;
        } else {
            self.end_run();
            (self.run_ns, self.run_length) = (ns, 1);
        }
    }

    /// Remembers the mistake if there was none before.
    pub(crate) fn mistake(&mut self, describe: impl FnOnce() -> String) {
        self.first_mistake.get_or_insert_with(describe);
    }

    /// Adds another thread's counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.gets += other.gets;
        self.hits += other.hits;
        self.mistakes.add(&other.mistakes);
        self.unsent += other.unsent;
        self.receives += other.receives;
        self.last_ns = self.last_ns.max(other.last_ns);
        if self.first_mistake.is_none() {
            self.first_mistake.clone_from(&other.first_mistake);
        }
        if let (Some(own), Some(other)) = (&mut self.latency_ns, &other.latency_ns) {
            // Both have the same range, so that nothing can be out of it.
            let _ = own.add(other);
        }
    }

    /// The latency that a share of the requests did not exceed, in nanoseconds. Only after [`Self::end_run`].
    pub(crate) fn latency_ns(&self, quantile: f64) -> Option<u64> {
        let histogram = self.latency_ns.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(histogram.value_at_quantile(quantile))
    }

    /// Puts the rest of a run into the histogram.
    pub(crate) fn end_run(&mut self) {
        if let Some(histogram) = &mut self.latency_ns
            && self.run_length > 0
        {
            histogram.saturating_record_n(self.run_ns, self.run_length);
        }
        self.run_length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_count_as_often_as_they_are_long() {
        let mut one = Tally::default();
        for ns in [500, 500, 500, 700, 500, 9000] {
            one.took(ns);
        }
        one.end_run();
        let mut all = Tally::default();
        all.add(&one);
        all.add(&one);
        // 8 of 12 at 500, 2 at 700, 2 at 9,000.
        for (quantile, ns) in [(0.5, 500), (0.66, 500), (0.7, 700), (0.9, 9000)] {
            let found = all.latency_ns(quantile).unwrap();
            assert!(found.abs_diff(ns) <= ns / 500, "{quantile}: {found}, expected {ns}");
        }
        assert_eq!(Tally::default().latency_ns(0.5), None);
    }

    #[test]
    fn a_latency_beyond_the_range_is_kept_at_its_end() {
        let mut tally = Tally::default();
        tally.took(u64::MAX);
        tally.end_run();
        assert!(tally.latency_ns(1.0).unwrap() >= MAX_LATENCY_NS);
    }
}
