//! Approximate LRU: the oldest segment goes, whole, as with `fifo`. An item that is used while more than a share of the
//! log is newer is copied to the newest end (MICA, NSDI 2014, section 4.3). Genie's share is a half (IEEE TKDE 2025,
//! section V.A). The cost of the policy is the old place of a copy, which is dead until its segment is evicted.
//!
//! A log is measured in segments. They have one size, but for a few and after changes of the grant. The number of
//! segments newer than one is known at once, whatever was taken out of the queue between them. Bytes would have to be
//! added up.

use tidemark_types::LogShare;

/// The decision on use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApproxLru {
    /// Segments that may be newer than an item's own without its being copied.
    newer_max: usize,
}

impl ApproxLru {
    /// In a log of so many segments, those included that can still be added without an eviction.
    pub(crate) fn new(share: LogShare, log_segments: usize) -> Self {
        Self {
            newer_max: share.of(log_segments as u64) as usize,
        }
    }

    /// Whether an item is copied that has so many segments newer than its own.
    pub(crate) fn copies(self, newer: usize) -> bool {
        newer > self.newer_max
    }

    /// The number of segments, from the oldest on, in which used items are copied. The queue has `queued` segments,
    /// with `behind` newer ones behind it.
    pub(crate) fn copied_of(self, queued: usize, behind: usize) -> usize {
        // The segment at place i has `queued - 1 - i + behind` newer ones.
        (queued + behind).saturating_sub(self.newer_max + 1).min(queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(thousandths: u16, log_segments: usize) -> ApproxLru {
        ApproxLru::new(LogShare::from_thousandths(thousandths).unwrap(), log_segments)
    }

    #[test]
    fn more_than_the_share_must_be_newer() {
        for (thousandths, log_segments, least_copied) in [
            (0, 64, 1),
            (1, 64, 1),
            (500, 64, 33),
            (500, 5, 3),
            (500, 1, 1),
            (700, 10, 8),
            (999, 64, 64),
            (1000, 64, 65),
        ] {
            let policy = policy(thousandths, log_segments);
            assert!(policy.copies(least_copied), "{thousandths} of {log_segments}");
            assert!(!policy.copies(least_copied - 1), "{thousandths} of {log_segments}");
        }
    }

    #[test]
    fn the_oldest_of_a_queue_are_counted() {
        for thousandths in [0, 300, 500, 900, 1000] {
            for (queued, behind, free) in [(0, 0, 0), (1, 1, 0), (10, 0, 0), (10, 1, 0), (63, 1, 1), (20, 2, 30)] {
                let policy = policy(thousandths, queued + behind + free);
                let copied = (0..queued).filter(|place| policy.copies(queued - 1 - place + behind));
                assert_eq!(
                    policy.copied_of(queued, behind),
                    copied.count(),
                    "{thousandths}: {queued} {behind} {free}"
                );
            }
        }
    }
}
