//! Which items go: one mechanism, whose decisions the policies make.
//!
//! A shard's log has two queues of segments. New items go to the one that the policy names. When memory is short, the
//! oldest segment of a queue that the policy names is evicted. Each live item in it is judged, and dropped or copied to
//! the newest end of the main queue. Policies are pure: they see numbers and answer with a choice. One of them also
//! decides on items that are used: [`ApproxLru`]. A program that embeds the cache can supply a custom one:
//! [`EvictionPolicy`].

mod approx_lru;
mod clock;
mod custom;
mod fifo;
mod s3fifo;

use tidemark_types::{LogShare, Policy};

pub(crate) use approx_lru::ApproxLru;
pub(crate) use custom::{Custom, Grip};
pub use custom::{EvictionPolicy, Newcomer, Resident};

/// One of the two queues of segments in a shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Items on probation.
    Small,
    /// All others.
    Main,
}

impl Queue {
    /// The other one.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Small => Self::Main,
            Self::Main => Self::Small,
        }
    }
}

/// The decision about an item in a segment that is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes.
    Drop,
    /// It goes, and its key is remembered as a ghost, if the policy has ghosts.
    DropToGhost,
    /// It moves to the newest end of the main queue, with this count of uses, if there is room for it.
    Keep {
        /// The new count, 0 to 3.
        uses: u8,
    },
}

impl Verdict {
    /// The rank of an item when not all that shall survive can. It is the item's count of uses, or the count that it
    /// shall have from now on, which a custom policy may raise.
    pub(crate) fn rank(self, uses: u8) -> u8 {
        match self {
            Self::Keep { uses: counted } => uses.max(counted),
            Self::Drop | Self::DropToGhost => uses,
        }
    }
}

/// Sizes of a shard's queues, in bytes of memory held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueBytes {
    pub(crate) small: u64,
    pub(crate) main: u64,
}

impl QueueBytes {
    /// Whether the small queue holds more than its tenth (S3-FIFO's default).
    pub(crate) fn small_is_over(self) -> bool {
        self.small * 10 > self.small + self.main
    }
}

/// The decisions of a policy.
pub(crate) trait Rules: Sync {
    /// The queue of a new item whose key was not in the cache; `ghost` says that it was not long ago.
    fn admit(&self, ghost: bool) -> Queue;
    /// Which queue gives up its oldest segment (the other one if it has none).
    fn victim(&self, sizes: QueueBytes) -> Queue;
    /// The decision about a live item with this count of uses.
    fn judge(&self, from: Queue, uses: u8) -> Verdict;
    /// Whether the policy wants to know about ghosts.
    fn has_ghosts(&self) -> bool {
        false
    }
}

/// A shard of fewer segments has no room for two queues: it uses the two-bit clock instead of S3-FIFO. From 16 segments on
/// the small queue is worth its open segment: three points of hit ratio at Zipf 0.9 to 1.1.
pub(crate) const S3FIFO_SEGMENTS_MIN: usize = 16;

/// The rules in force for a tenant's policy in a shard of so many segments. `had_small` says that the shard follows
/// S3-FIFO already. It stays with it down to three quarters of the bound, so that it does not change to and fro.
pub(crate) fn rules(policy: Policy, segments: usize, had_small: bool) -> &'static dyn Rules {
    let bound = if had_small {
        S3FIFO_SEGMENTS_MIN * 3 / 4
    } else {
        S3FIFO_SEGMENTS_MIN
    };
    match policy {
        // `approx-lru` applies also in a shard of few segments, although it measures its log coarsely there. A custom
        // policy is asked elsewhere; this is its replacement.
        Policy::Fifo | Policy::ApproxLru(_) | Policy::Custom => &fifo::Fifo,
        Policy::S3Fifo if segments >= bound => &s3fifo::S3Fifo,
        Policy::Clock | Policy::S3Fifo => &clock::Clock,
    }
}

/// The share of a log beyond which used items are copied to its newest end ([`ApproxLru`]); `None` if a use copies nothing.
pub(crate) fn copied_beyond(policy: Policy) -> Option<LogShare> {
    match policy {
        Policy::ApproxLru(share) => Some(share),
        _ => None,
    }
}

/// Whether uses fill segments, as writes do.
pub(crate) fn uses_fill(policy: Policy) -> bool {
    copied_beyond(policy).is_some_and(|share| share != LogShare::WHOLE)
}

/// Whether a program's policy decides, while there is one.
pub(crate) fn asks_program(policy: Policy) -> bool {
    policy == Policy::Custom
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shards_use_the_clock() {
        for (policy, segments, had_small, ghosts) in [
            (Policy::S3Fifo, 15, false, false),
            (Policy::S3Fifo, 16, false, true),
            (Policy::S3Fifo, 12, true, true),
            (Policy::S3Fifo, 11, true, false),
            (Policy::Clock, 1000, true, false),
            (Policy::Fifo, 1000, false, false),
            (Policy::ApproxLru(LogShare::HALF), 1000, true, false),
        ] {
            assert_eq!(
                rules(policy, segments, had_small).has_ghosts(),
                ghosts,
                "{policy} {segments} {had_small}"
            );
        }
    }

    #[test]
    fn the_small_queue_has_a_tenth() {
        assert!(!QueueBytes { small: 10, main: 90 }.small_is_over());
        assert!(QueueBytes { small: 11, main: 90 }.small_is_over());
        assert!(!QueueBytes { small: 0, main: 0 }.small_is_over());
    }
}
