//! Hits over gets between two moments, from counters that never fall.

use std::time::Duration;

use tidemark_types::UnixMs;

/// The counters at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The moment.
    pub at: UnixMs,
    /// Gets so far.
    pub gets: u64,
    /// Those that hit.
    pub hits: u64,
}

/// The measurement between two counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Gets.
    pub gets: u64,
    /// Hits per get.
    pub hit_ratio: f64,
    /// The standard error of the hit ratio, as if gets were independent of each other.
    pub standard_error: f64,
    /// The time between the counts.
    pub elapsed: Duration,
}

impl Count {
    /// The measurement from `earlier` until this; `None` without gets.
    pub fn since(self, earlier: Self) -> Option<Measured> {
        let gets = self.gets.checked_sub(earlier.gets).filter(|gets| *gets > 0)?;
        let hits = self.hits.saturating_sub(earlier.hits).min(gets);
        let hit_ratio = hits as f64 / gets as f64;
        // One hit and one miss more than there were: without them, few gets that all hit would seem to be certain.
        let smoothed = (hits as f64 + 1.0) / (gets as f64 + 2.0);
        Some(Measured {
            gets,
            hit_ratio,
            standard_error: (smoothed * (1.0 - smoothed) / gets as f64).sqrt(),
            elapsed: self.at.since(earlier.at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_gets_are_not_certain() {
        let count = |gets, hits| Count {
            at: UnixMs(1000),
            gets,
            hits,
        };
        assert_eq!(count(5, 5).since(count(5, 5)), None);
        let few = count(3, 3).since(Count::default()).unwrap();
        assert_eq!(few.hit_ratio, 1.0);
        assert!(few.standard_error > 0.2, "{few:?}");
        assert_eq!(few.elapsed, Duration::from_secs(1));
        let many = count(1_000_000, 900_000).since(Count::default()).unwrap();
        assert!((many.standard_error - 0.0003).abs() < 1e-5, "{many:?}");
    }
}
