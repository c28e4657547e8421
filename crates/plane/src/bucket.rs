//! A token bucket in one word: so much a second in the mean, and a second's worth at once.
//!
//! The state is not a number of tokens but a moment, up to which all takings are paid for. This is the "virtual
//! scheduling" form of the generic cell rate algorithm (ITU-T I.371, annex A). It needs no refilling, and stays right
//! when the rate is changed. One compare-and-swap is a taking, so that workers share it without a lock.
//!
//! Invariant: in any time, [`Bucket::take`] gives at most the rate times that time, and the burst. One taking of more
//! than the burst finds a full bucket, and is paid for before the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Parts of a nanosecond in which moments are counted: bytes at the highest rate are paid for in parts of it.
const TICKS_PER_NANO: u64 = 64;
const TICKS_PER_SECOND: u64 = 1_000_000_000 * TICKS_PER_NANO;
/// Takings are rounded up to whole ticks. So that this refuses nobody, a bucket holds as many ticks more as it may be asked
/// for in a second, up to a thousandth.
const ROUNDING_TICKS_MAX: u64 = TICKS_PER_SECOND / 1000;

/// A moment. There are enough for nine years of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The moment so long after the server's start.
    pub fn after_start(elapsed: Duration) -> Self {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        // A bucket begins full: at the start, time enough for that has passed already.
        Self(
            nanos
                .saturating_mul(TICKS_PER_NANO)
                .saturating_add(burst_ticks(u64::MAX)),
        )
    }
}

/// A token bucket. The rate is not in it: the caller that takes says it.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// The moment until which takings are paid for, in ticks as in a [`Moment`].
    paid_until: AtomicU64,
}

impl Bucket {
    /// Takes `count` at a rate of `per_second`.
    ///
    /// # Errors
    /// There is less; nothing is taken. As much would be there after this time, if nobody else took of it.
    pub(crate) fn take(&self, count: u64, per_second: u64, now: Moment) -> Result<(), Duration> {
        let after = |paid_until| after_taking(paid_until, count, per_second, now);
        self.paid_until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_until| {
                after(paid_until).ok()
            })
            .or_else(after)
            .map(drop)
            .map_err(|missing| Duration::from_nanos(missing.div_ceil(TICKS_PER_NANO)))
    }

    /// Whether `count` could be taken.
    ///
    /// # Errors
    /// The errors of [`Self::take`].
    pub(crate) fn check(&self, count: u64, per_second: u64, now: Moment) -> Result<(), Duration> {
        let paid_until = self.paid_until.load(Ordering::Relaxed);
        after_taking(paid_until, count, per_second, now)
            .map(drop)
            .map_err(|missing| Duration::from_nanos(missing.div_ceil(TICKS_PER_NANO)))
    }

    /// Takes `count` whether or not it is there. The missing part is paid for before anything else is taken.
    pub(crate) fn charge(&self, count: u64, per_second: u64, now: Moment) {
        let cost = cost_ticks(count, per_second);
        let charge = |paid_until| Some(saving_since(paid_until, per_second, now).saturating_add(cost));
        // It is never refused.
        let _ = self
            .paid_until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge);
    }
}

/// The ticks that pay for `count`, rounded up, so that a limit is never exceeded.
fn cost_ticks(count: u64, per_second: u64) -> u64 {
    let per_second = per_second.max(1);
    match count.checked_mul(TICKS_PER_SECOND) {
        Some(product) => product.div_ceil(per_second),
        None => {
            let wide = (u128::from(count) * u128::from(TICKS_PER_SECOND)).div_ceil(u128::from(per_second));
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}

/// The ticks that may be taken at once: those that a second pays for. A client that never asks for more than the limit
/// within a second is thus never refused, however unevenly its requests come. A limit per second promises that.
fn burst_ticks(per_second: u64) -> u64 {
    TICKS_PER_SECOND + per_second.min(ROUNDING_TICKS_MAX)
}

/// The time since which the present tokens are being saved up: more than the burst is not kept.
fn saving_since(paid_until: u64, per_second: u64, now: Moment) -> u64 {
    paid_until.max(now.0.saturating_sub(burst_ticks(per_second)))
}

/// Until when is paid after a taking; or else how much is missing.
fn after_taking(paid_until: u64, count: u64, per_second: u64, now: Moment) -> Result<u64, u64> {
    let cost = cost_ticks(count, per_second);
    let begin = saving_since(paid_until, per_second, now);
    let needed = begin.saturating_add(cost.min(burst_ticks(per_second)));
    if needed > now.0 {
        Err(needed - now.0)
    } else {
        Ok(begin.saturating_add(cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Moment {
        Moment::after_start(Duration::from_nanos(nanos))
    }

    /// Rates of all sizes.
    fn rates() -> impl Strategy<Value = u64> {
        prop_oneof![1..20_u64, 20..100_000_u64, 100_000..1_u64 << 40]
    }

    /// Times between takings, in nanoseconds, and how much is taken, in thousandths of a second's worth.
    fn takings() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let gap = prop_oneof![Just(0), 0..1000_u64, 0..2_000_000_000_u64];
        let share = prop_oneof![Just(0_u64), 0..100_u64, 0..3000_u64];
        prop::collection::vec((gap, share), 1..60)
    }

    /// As much as a rate gives in a time, in billionths.
    fn given(per_second: u64, nanos: u64) -> u128 {
        u128::from(per_second) * u128::from(nanos)
    }

    const SECOND: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn in_any_time_no_more_is_taken_than_the_rate_and_the_burst(per_second in rates(), takings in takings()) {
            let bucket = Bucket::default();
            let mut now = 0;
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (gap, share) in takings {
                now += gap;
                let count = (per_second * share / 1000).max(1);
                if bucket.take(count, per_second, at(now)).is_ok() {
                    taken.push((now, count));
                }
                // All times that end now, whatever the first taking in them.
                let mut sum = 0_u128;
                let last = taken.last().map_or(0, |(_, count)| *count);
                for (since, count) in taken.iter().rev() {
                    sum += u128::from(*count);
                    let too_large = u128::from(last.saturating_sub(per_second)) * u128::from(SECOND);
                    // A thousandth of a second makes up for rounding.
                    let most = given(per_second, now - since + SECOND + SECOND / 1000) + too_large;
                    prop_assert!(sum * u128::from(SECOND) <= most, "{sum} in {} ns", now - since);
                }
            }
        }

        #[test]
        fn what_is_refused_is_there_after_the_time_that_was_told_and_not_before(
            per_second in rates(), takings in takings()
        ) {
            let bucket = Bucket::default();
            let mut now = 0;
            for (gap, share) in takings {
                now += gap;
                let count = (per_second * share / 1000).max(1);
                let Err(wait) = bucket.take(count, per_second, at(now)) else { continue };
                let wait = wait.as_nanos() as u64;
                prop_assert!(wait > 0);
                if wait > 1 {
                    prop_assert!(bucket.check(count, per_second, at(now + wait - 1)).is_err());
                }
                now += wait;
                prop_assert!(bucket.take(count, per_second, at(now)).is_ok());
            }
        }

        #[test]
        fn who_never_asks_for_more_than_the_rate_in_a_second_is_never_refused(
            per_second in 1..1000_u64, seconds in prop::collection::vec(prop::collection::vec(0..SECOND, 0..20), 1..5)
        ) {
            // Within a second at most the rate, with a second's pause before the next.
            let bucket = Bucket::default();
            for (second, mut moments) in seconds.into_iter().enumerate() {
                moments.sort_unstable();
                moments.truncate(per_second as usize);
                for moment in moments {
                    let now = 2 * second as u64 * SECOND + moment;
                    prop_assert!(bucket.take(1, per_second, at(now)).is_ok());
                }
            }
        }

        #[test]
        fn what_was_charged_beyond_is_paid_first(per_second in rates(), seconds in 2..100_u64) {
            let bucket = Bucket::default();
            bucket.charge(per_second * seconds, per_second, at(0));
            // The burst is used up, and all but it is missing.
            let paid = (seconds - 1) * SECOND;
            let rounding = SECOND / 1000;
            prop_assert!(bucket.check(1, per_second, at(paid - 2 * rounding)).is_err());
            let wait = bucket.take(per_second, per_second, at(0)).unwrap_err().as_nanos() as u64;
            prop_assert!((seconds * SECOND - rounding..=seconds * SECOND).contains(&wait), "{wait}");
            prop_assert!(bucket.take(per_second, per_second, at(paid + SECOND)).is_ok());
        }
    }

    #[test]
    fn a_full_bucket_holds_a_second() {
        for (per_second, pause_seconds) in [(1, 0), (7, 0), (10, 1000), (1_000_000, 5)] {
            let bucket = Bucket::default();
            let now = at(pause_seconds * SECOND);
            let taken = (0..2 * per_second).take_while(|_| bucket.take(1, per_second, now).is_ok());
            let taken = taken.count() as u64;
            assert!(
                (per_second..=per_second + per_second / 1000).contains(&taken),
                "{taken} of {per_second} after {pause_seconds} s"
            );
        }
    }

    #[test]
    fn a_new_rate_is_in_force_at_once() {
        let bucket = Bucket::default();
        assert_eq!(bucket.take(10, 10, at(0)), Ok(()));
        // A hundred times the rate is a hundredth of the wait.
        assert_eq!(bucket.take(1, 10, at(0)), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take(1, 1000, at(0)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(1, 1000, at(1_000_000)), Ok(()));
    }

    #[test]
    fn threads_share_a_bucket_exactly() {
        const RATE: u64 = 10_000;
        let bucket = Bucket::default();
        let taken: u64 = std::thread::scope(|scope| {
            let take = || (0..RATE).filter(|_| bucket.take(1, RATE, at(0)).is_ok()).count() as u64;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, RATE);
    }

    #[test]
    fn nothing_overflows() {
        let bucket = Bucket::default();
        bucket.charge(u64::MAX, 1, at(u64::MAX));
        assert!(bucket.take(u64::MAX, u64::MAX, at(0)).is_err());
        assert!(bucket.check(1, 0, at(SECOND)).is_err());
        assert!(Bucket::default().take(u64::MAX, 1, at(u64::MAX)).is_ok());
    }
}
