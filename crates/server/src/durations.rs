//! How long requests took inside the server: from when their connection was ready until the system was given the replies.
//!
//! A worker records once for each visit to a connection. The system tells which connections are ready when it is asked,
//! not since when. While there is work to do in between, a connection counts as ready since the time before. The
//! records are thus rather too long than too short. Nobody knows the arrival time of input that comes while its
//! connection is served.

use std::sync::atomic::{AtomicU64, Ordering};

use tidemark_store::prefetch_value;

/// Eight buckets for each doubling: a percentile is at most an eighth above the truth.
const BUCKETS_PER_OCTAVE_BITS: u32 = 3;
const BUCKETS_PER_OCTAVE: u64 = 1 << BUCKETS_PER_OCTAVE_BITS;
/// Up to half a minute, which is when connections that make no progress are closed; longer ones are in the last one.
const BUCKETS: usize = 184;

/// Counts of requests by how long they took, in microseconds.
#[derive(Debug)]
pub(crate) struct Durations([AtomicU64; BUCKETS]);

impl Default for Durations {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Durations {
    /// Records requests that took as long as each other.
    #[inline]
    pub(crate) fn record(&self, took_us: u64, requests: u64) {
        self.0[bucket(took_us)].fetch_add(requests, Ordering::Relaxed);
    }

    /// Loads ahead what [`Self::record`] changes.
    #[inline]
    pub(crate) fn prefetch(&self, took_us: u64) {
        prefetch_value(&self.0[bucket(took_us)]);
    }

    /// How many there were.
    pub(crate) fn requests(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The time that a share of them did not exceed, in microseconds; `None` while there are none.
    pub(crate) fn quantile_us(&self, share: f64) -> Option<u64> {
        let all = self.requests();
        // The smallest number of requests that is this share.
        let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        let within = |count: &AtomicU64| {
            seen += count.load(Ordering::Relaxed);
            seen >= wanted
        };
        self.0.iter().position(within).map(most_us)
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// The bucket of a time: below eight microseconds each has its own.
#[inline]
fn bucket(us: u64) -> usize {
    let octave = (us | (BUCKETS_PER_OCTAVE - 1)).ilog2() - (BUCKETS_PER_OCTAVE_BITS - 1);
    let shift = octave.saturating_sub(1);
    let within = (us >> shift) & (BUCKETS_PER_OCTAVE - 1);
    let number = u64::from(octave) * BUCKETS_PER_OCTAVE + within;
    (number as usize).min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn most_us(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let (octave, within) = (bucket / BUCKETS_PER_OCTAVE, bucket % BUCKETS_PER_OCTAVE);
    match octave {
        0 => within,
        _ => ((BUCKETS_PER_OCTAVE + within + 1) << (octave - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_says_so() {
        let mut last = None;
        let edges = (13..25).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for us in (0..5000).chain(edges) {
            let number = bucket(us);
            assert!(us <= most_us(number), "{us} in {number}");
            assert!(number == 0 || us > most_us(number - 1), "{us} in {number}");
            assert!(most_us(number) - us <= us / 8, "{us} in {number}");
            assert!(last.is_none_or(|last| last <= number));
            last = Some(number);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(most_us(BUCKETS - 1) > 30_000_000);
    }

    #[test]
    fn quantiles_are_of_requests() {
        let durations = Durations::default();
        assert_eq!(durations.quantile_us(0.5), None);
        durations.record(5, 980);
        durations.record(100, 15);
        durations.record(3000, 5);
        for (share, us) in [(0.0, 5), (0.5, 5), (0.98, 5), (0.981, 103), (0.995, 103), (1.0, 3071)] {
            assert_eq!(durations.quantile_us(share), Some(us), "{share}");
        }
        assert_eq!(durations.requests(), 1000);
        durations.reset();
        assert_eq!(durations.requests(), 0);
    }
}
