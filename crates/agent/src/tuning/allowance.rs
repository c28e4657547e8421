//! How much processor time choosing may take: a share of what the agent takes in all. Counting and pricing go on only while the
//! share is not used up, so that they take the more the busier the agent is, and never more than that.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// The usual limit of choosing in the agent's processor time, in percent.
pub const PERCENT: u64 = 1;
/// The time that it may take before it is earned, in nanoseconds: the first decision need not wait.
const FIRST_NS: u64 = 20_000_000;
/// One operation in so many is timed while it is counted: reading a clock costs about as much as counting.
pub(super) const TIMED_EVERY: u64 = 16;

/// The time that choosing has taken so far.
#[derive(Debug)]
pub struct Allowance {
    spent_ns: AtomicU64,
    percent: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::of(PERCENT)
    }
}

impl Allowance {
    /// With nothing taken yet of so many percent of the agent's time.
    #[must_use]
    pub fn of(percent: u64) -> Self {
        Self {
            spent_ns: AtomicU64::new(0),
            percent,
        }
    }

    /// The limit as a share.
    pub fn share(&self) -> f64 {
        self.percent as f64 / 100.0
    }

    /// Whether so much more is within the share, in nanoseconds.
    pub fn covers(&self, more_ns: u64) -> bool {
        is_covered(self.spent_ns(), more_ns, (process_ns() as f64 * self.share()) as u64)
    }

    /// Does something and counts the processor time that it took.
    pub fn spend<T>(&self, work: impl FnOnce() -> T) -> T {
        let from_ns = thread_ns();
        let done = work();
        self.add(thread_ns().saturating_sub(from_ns));
        done
    }

    /// The same of work that waits in between: its own steps are counted.
    pub async fn spend_waiting<F: Future>(&self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|context| self.spend(|| work.as_mut().poll(context))).await
    }

    /// Counts processor time, in nanoseconds.
    pub fn add(&self, ns: u64) {
        self.spent_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The time of choosing, in nanoseconds.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns.load(Ordering::Relaxed)
    }

    /// The time of the whole agent, in nanoseconds.
    pub fn all_ns() -> u64 {
        process_ns()
    }

    /// The part of choosing in the agent's time.
    pub fn ratio(&self) -> f64 {
        self.spent_ns() as f64 / process_ns().max(1) as f64
    }
}

fn is_covered(spent_ns: u64, more_ns: u64, earned_ns: u64) -> bool {
    spent_ns + more_ns <= FIRST_NS.max(earned_ns)
}

fn process_ns() -> u64 {
    ns_of(ClockId::ProcessCPUTime)
}

/// Processor time of the calling thread, in nanoseconds.
pub(super) fn thread_ns() -> u64 {
    ns_of(ClockId::ThreadCPUTime)
}

fn ns_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_kept() {
        let second = 1_000_000_000;
        for (spent_ns, more_ns, earned_ns, expected) in [
            (0, FIRST_NS, 0, true),
            (0, FIRST_NS + 1, 0, false),
            (FIRST_NS, 0, second / 100, true),
            (FIRST_NS, 1, second / 100, false),
            (FIRST_NS, second / 10, second * 12 / 100, true),
            (FIRST_NS, second / 10, second * 11 / 100, false),
        ] {
            assert_eq!(
                is_covered(spent_ns, more_ns, earned_ns),
                expected,
                "{spent_ns} + {more_ns} of {earned_ns}"
            );
        }
        assert_eq!((Allowance::default().share(), Allowance::of(50).share()), (0.01, 0.5));
    }

    #[test]
    fn work_is_counted() {
        let allowance = Allowance::default();
        let sum = allowance.spend(|| (0..200_000_u64).fold(0, |sum, value| tidemark_cachelet::types::mix(sum ^ value)));
        assert!(sum != 0 && allowance.spent_ns() > 0 && allowance.ratio() > 0.0);
        assert!(Allowance::all_ns() >= allowance.spent_ns());
    }

    #[tokio::test]
    async fn every_step_of_work_that_waits_is_counted_and_no_wait() {
        let allowance = Allowance::default();
        let step = || (0..200_000_u64).fold(0, |sum, value| tidemark_cachelet::types::mix(sum ^ value));
        let (sum, first_ns) = allowance
            .spend_waiting(async {
                let first = step();
                tokio::task::yield_now().await;
                let first_ns = allowance.spent_ns();
                (first ^ step() ^ 1, first_ns)
            })
            .await;
        assert!(sum != 0 && first_ns > 0 && allowance.spent_ns() > first_ns);
        let own = Allowance::default();
        // Another task runs meanwhile: its time is not that of the one that waits.
        own.spend_waiting(tokio::task::spawn_blocking(move || {
            (0..50).fold(0, |sum, _| sum ^ step())
        }))
        .await
        .unwrap();
        assert!(own.spent_ns() < first_ns, "{} and {first_ns}", own.spent_ns());
    }
}
