//! Eviction by the program that embeds the cache: the questions to it, and the answers that are believed.
//!
//! Invariant: whatever a policy does, the result of [`Custom`] is an answer that the log can follow, or a cause to go on
//! without the policy.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidemark_types::{Cause, Fault, Guest, Part};

use super::{Queue, QueueBytes, Verdict};
use crate::index::USES_MAX;

/// Decides which items go when memory is short: a program's own in the place of those that are built in.
///
/// A shard's log has two queues of segments, to which items are appended. To make room, the oldest segment of a queue
/// goes. Each live item in it is judged, and dropped or copied to the newest end of the main queue. At most three
/// quarters of a segment survive, so that every eviction frees memory. Items with more uses, or with more that the
/// policy gives them ([`Verdict::Keep`]), survive first. Some of the others that it would have kept go. Expired items
/// go without being judged.
///
/// # Where it is called, and what it may cost
/// [`judge`](Self::judge) is called about once for each item that is written, [`queue`](Self::queue) once for each new
/// one, [`used`](Self::used) once for each that is found. All are called under the lock of the item's shard, on the
/// thread that reads or writes, or on the keeper's. All users of that shard wait meanwhile. Tens of nanoseconds are not
/// felt, while a microsecond is a multiple of the cache's own time. The calls must not wait for anything, and **must
/// not use the cache**, which would wait for itself for ever. A tenant has several shards, so that several calls happen
/// at a time.
///
/// # When it fails
/// The tenant goes on with `fifo` after a panic, after an impossible count of uses, or if the policy keeps everything.
/// The fault is reported. Nothing is lost by that.
pub trait EvictionPolicy: Send + Sync {
    /// Decides about an item in a segment that is evicted.
    fn judge(&self, item: &Resident<'_>) -> Verdict;

    /// Decides the queue of a new item whose key was not in the cache. The default is the small queue if
    /// [`small_share`](Self::small_share) gives it a share and the key is no ghost, else the main one.
    fn queue(&self, item: &Newcomer<'_>) -> Queue {
        if self.small_share() > 0.0 && !item.is_ghost {
            Queue::Small
        } else {
            Queue::Main
        }
    }

    /// The share of the log, 0 to 1, above which the small queue gives up its oldest segment instead of the main one.
    /// S3-FIFO has a tenth. The default is none. Items of the small queue, perhaps from another policy, then go before
    /// all others. Asked once, when the policy is supplied.
    fn small_share(&self) -> f64 {
        0.0
    }

    /// Whether it wants to know of ghosts: keys of items that went with [`Verdict::DropToGhost`] not long ago. They are
    /// nine tenths as many as the items, at two bytes each. It is asked once, when the policy is supplied.
    fn has_ghosts(&self) -> bool {
        false
    }

    /// Whether [`used`](Self::used) is to be called. Asked once, when the policy is supplied.
    fn notes_uses(&self) -> bool {
        false
    }

    /// An item was found by a client. How often is counted without this, up to three times: see [`Resident::uses`].
    fn used(&self, _key: &[u8]) {}
}

/// An item whose key was not in the cache, about to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newcomer<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The length of its value, in bytes.
    pub value_bytes: usize,
    /// Whether the key went with [`Verdict::DropToGhost`] not long ago. A hint: one key in some two thousand is taken for
    /// another one.
    pub is_ghost: bool,
}

/// A live item in a segment that is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The length of its value, in bytes.
    pub value_bytes: usize,
    /// How often it was used since it was written or last judged; 3 is three times or more.
    pub uses: u8,
    /// The queue that it is in.
    pub queue: Queue,
    /// How long ago its segment was begun: since then it is here, or since a bit later.
    pub age: Duration,
    /// How long ago it was last used or written: exact to a minute, and counted anew every 18 hours.
    pub idle: Duration,
    /// After how long it expires; `None`: never.
    pub expires_in: Option<Duration>,
}

/// A program's policy.
pub(crate) struct Custom {
    policy: Guest<Arc<dyn EvictionPolicy>>,
    small_share: f64,
    has_ghosts: bool,
    notes_uses: bool,
    is_out: AtomicBool,
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Custom")
            .field("is_out", &self.is_out)
            .finish_non_exhaustive()
    }
}

impl Custom {
    /// Takes a policy, and asks what is asked once.
    ///
    /// # Errors
    /// It panics, or its share is none.
    pub(crate) fn new(policy: Arc<dyn EvictionPolicy>) -> Result<Self, Fault> {
        let policy = Guest::new(policy);
        let said = policy.call(|policy| (policy.small_share(), policy.has_ghosts(), policy.notes_uses()));
        let (small_share, has_ghosts, notes_uses) = said.map_err(fault)?;
        if !(0.0..=1.0).contains(&small_share) {
            let what = format!("gives the small queue a share of {small_share}: allowed are 0 to 1");
            return Err(fault(Cause::Nonsense(what)));
        }
        Ok(Self {
            policy,
            small_share,
            has_ghosts,
            notes_uses,
            is_out: AtomicBool::new(false),
        })
    }

    /// Whether it decides: it was not taken out.
    pub(crate) fn is_in(&self) -> bool {
        !self.is_out.load(Ordering::Relaxed)
    }

    /// Goes on without the policy. The first caller gets the fault to report.
    pub(crate) fn take_out(&self, cause: Cause) -> Option<Fault> {
        (!self.is_out.swap(true, Ordering::AcqRel)).then(|| fault(cause))
    }

    pub(crate) fn has_ghosts(&self) -> bool {
        self.has_ghosts
    }

    /// Whether new items may be on probation.
    pub(crate) fn has_probation(&self) -> bool {
        self.small_share > 0.0
    }

    /// Whether the small queue is to give.
    pub(crate) fn small_is_over(&self, sizes: QueueBytes) -> bool {
        sizes.small as f64 > self.small_share * (sizes.small + sizes.main) as f64
    }

    /// The queue of a new item.
    pub(crate) fn queue(&self, item: &Newcomer<'_>) -> Result<Queue, Cause> {
        self.policy.call(|policy| policy.queue(item))
    }

    /// The decision about an item.
    pub(crate) fn judge(&self, item: &Resident<'_>) -> Result<Verdict, Cause> {
        match self.policy.call(|policy| policy.judge(item))? {
            Verdict::Keep { uses } if uses > USES_MAX => Err(Cause::Nonsense(format!(
                "kept an item with {uses} uses: allowed are 0 to {USES_MAX}"
            ))),
            verdict => Ok(verdict),
        }
    }

    /// Tells it of a use.
    pub(crate) fn used(&self, key: &[u8]) -> Result<(), Cause> {
        if !self.notes_uses {
            return Ok(());
        }
        self.policy.call(|policy| policy.used(key))
    }
}

fn fault(cause: Cause) -> Fault {
    Fault {
        part: Part::Eviction,
        cause,
    }
}

/// Notices a policy that keeps everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grip {
    /// The bytes of unused items that it kept since the last one that it let go.
    kept_bytes: u64,
}

impl Grip {
    /// A policy that keeps as many unused items in a row as the log holds so many times over lets nothing go. Each time that
    /// the log is written once, it is judged four times over, because a quarter of each segment goes whatever is answered.
    /// Used items do not count: where everything is used, every policy that looks at uses keeps everything.
    const LOGS: u64 = 4;

    /// Takes note of an answer about an item of so many bytes in a log of so many.
    pub(crate) fn note(&mut self, verdict: Verdict, uses: u8, item_bytes: u64, log_bytes: u64) -> Result<(), Cause> {
        match verdict {
            Verdict::Drop | Verdict::DropToGhost => self.kept_bytes = 0,
            Verdict::Keep { .. } if uses == 0 => self.kept_bytes += item_bytes,
            Verdict::Keep { .. } => {}
        }
        if self.kept_bytes > Self::LOGS * log_bytes {
            return Err(Cause::Nonsense(format!(
                "kept all of {} bytes that nobody had used, in a log of {log_bytes}: something has to go",
                self.kept_bytes
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as it is told to.
    #[derive(Clone, Copy)]
    struct Says {
        share: f64,
        verdict: Option<Verdict>,
    }

    impl EvictionPolicy for Says {
        fn judge(&self, _: &Resident<'_>) -> Verdict {
            self.verdict.unwrap_or_else(|| panic!("no answer"))
        }

        fn small_share(&self) -> f64 {
            assert!(self.share > f64::NEG_INFINITY || self.share.is_nan(), "no share");
            self.share
        }
    }

    fn custom(share: f64, verdict: Option<Verdict>) -> Result<Custom, Fault> {
        Custom::new(Arc::new(Says { share, verdict }))
    }

    const RESIDENT: Resident<'_> = Resident {
        key: b"k",
        value_bytes: 1,
        uses: 0,
        queue: Queue::Main,
        age: Duration::ZERO,
        idle: Duration::ZERO,
        expires_in: None,
    };

    #[test]
    fn shares_are_checked_when_the_policy_is_supplied() {
        for (share, said) in [
            (0.0, None),
            (0.5, None),
            (1.0, None),
            (1.5, Some("1.5")),
            (-0.5, Some("-0.5")),
            (f64::NEG_INFINITY, Some("no share")),
            (f64::NAN, Some("NaN")),
        ] {
            let refused = custom(share, None).err().map(|fault| fault.to_string());
            assert_eq!(refused.is_some(), said.is_some(), "{share}: {refused:?}");
            assert!(
                refused.is_none_or(|text| text.contains(said.unwrap_or_default())),
                "{share}"
            );
        }
    }

    #[test]
    fn impossible_answers_are_causes() {
        for (verdict, passes) in [
            (Some(Verdict::Drop), true),
            (Some(Verdict::DropToGhost), true),
            (Some(Verdict::Keep { uses: 3 }), true),
            (Some(Verdict::Keep { uses: 4 }), false),
            (Some(Verdict::Keep { uses: 255 }), false),
            (None, false),
        ] {
            let answer = custom(0.0, verdict).unwrap().judge(&RESIDENT);
            assert_eq!(answer.is_ok(), passes, "{verdict:?} {answer:?}");
            assert!(answer.is_err() || answer.ok() == verdict);
        }
    }

    #[test]
    fn the_first_to_take_it_out_reports_it() {
        let custom = custom(0.0, None).unwrap();
        assert!(custom.is_in());
        assert!(custom.take_out(Cause::Nonsense("a".into())).is_some());
        assert!(!custom.is_in() && custom.take_out(Cause::Nonsense("b".into())).is_none());
    }

    #[test]
    fn queues_follow_the_share() {
        let newcomer = |is_ghost| Newcomer {
            key: b"k",
            value_bytes: 1,
            is_ghost,
        };
        for (share, is_ghost, queue) in [
            (0.0, false, Queue::Main),
            (0.1, false, Queue::Small),
            (0.1, true, Queue::Main),
        ] {
            let custom = custom(share, None).unwrap();
            assert_eq!(custom.queue(&newcomer(is_ghost)), Ok(queue), "{share} {is_ghost}");
        }
        for (share, small, main, is_over) in [
            (0.0, 0, 10, false),
            (0.0, 1, 10, true),
            (0.25, 25, 75, false),
            (0.25, 26, 74, true),
            (1.0, 10, 0, false),
        ] {
            let is_so = custom(share, None).unwrap().small_is_over(QueueBytes { small, main });
            assert_eq!(is_so, is_over, "{share} {small} {main}");
        }
    }

    #[test]
    fn who_lets_nothing_go_is_noticed() {
        const KEEP: Verdict = Verdict::Keep { uses: 0 };
        // Items of 10 bytes in a log of 100: 40 of them may be kept in a row.
        for (what, answers, is_noticed) in [
            ("as many as fit four times", vec![(KEEP, 0); 40], false),
            ("one more", vec![(KEEP, 0); 41], true),
            ("those that were used do not count", vec![(KEEP, 1); 1000], false),
            (
                "one that goes is enough",
                [vec![(KEEP, 0); 40], vec![(Verdict::Drop, 3)], vec![(KEEP, 0); 40]].concat(),
                false,
            ),
            (
                "also to the ghosts",
                [
                    vec![(KEEP, 0); 40],
                    vec![(Verdict::DropToGhost, 0)],
                    vec![(KEEP, 0); 41],
                ]
                .concat(),
                true,
            ),
        ] {
            let mut grip = Grip::default();
            let noticed = answers
                .iter()
                .any(|&(verdict, uses)| grip.note(verdict, uses, 10, 100).is_err());
            assert_eq!(noticed, is_noticed, "{what}");
        }
    }
}
