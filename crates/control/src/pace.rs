//! How a round gives way to those that serve clients: it is done in small pieces, and rests between them.

use std::thread;
use std::time::{Duration, Instant};

/// Called between the pieces of a round, each some microseconds long: between two tenants, or some records of one.
pub(crate) type Between<'a> = &'a mut dyn FnMut();

/// Work of about this length is followed by a rest.
const PIECE: Duration = Duration::from_micros(100);
/// How long a rest is, in times of the work before it. Without, a round runs until the next tick where it shares a core
/// (4 ms, however nice the thread is), and clients wait as long.
const REST_PER_WORK: u32 = 3;
/// After a longer piece, work that came meanwhile is done as soon.
const REST_MAX: Duration = Duration::from_millis(1);
/// The limit of all rests while reports are taken over, and again while a plan is made. With ten thousands of tenants a
/// round comes to its end all the same.
const RESTS_MAX: Duration = Duration::from_millis(100);

/// A thread's work and its rests.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    /// `None`: it does not rest.
    work: Option<Work>,
}

/// The work that is to be followed by a rest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Work {
    since: Instant,
    /// The remaining time for rests.
    rests: Duration,
}

impl Work {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            rests: RESTS_MAX,
        }
    }
}

impl Rests {
    /// The pace of a thread that only runs the control plane. The default is the pace of a caller that decides its own
    /// time: no rests.
    pub(crate) fn taken() -> Self {
        Self {
            work: Some(Work::new()),
        }
    }

    /// Taking over reports begins, or planning.
    pub(crate) fn begin(&mut self) {
        if let Some(work) = &mut self.work {
            *work = Work::new();
        }
    }

    /// Rests, if it is time.
    pub(crate) fn between(&mut self) {
        let Some(work) = &mut self.work else { return };
        let rest = rest_after(work.since.elapsed()).min(work.rests);
        if !rest.is_zero() {
            thread::sleep(rest);
            *work = Work {
                since: Instant::now(),
                rests: work.rests - rest,
            };
        }
    }
}

/// How long a rest follows so much work; none after little.
fn rest_after(worked: Duration) -> Duration {
    if worked < PIECE {
        Duration::ZERO
    } else {
        (worked * REST_PER_WORK).min(REST_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_as_long_as_the_work_asks_for() {
        for (worked_us, rest_us) in [(0, 0), (99, 0), (100, 300), (200, 600), (400, 1_000), (100_000, 1_000)] {
            let rest = rest_after(Duration::from_micros(worked_us));
            assert_eq!(rest, Duration::from_micros(rest_us), "after {worked_us} us");
        }
    }

    #[test]
    fn all_rests_together_are_limited() {
        let mut rests = Rests::taken();
        let began = Instant::now();
        let mut left = vec![RESTS_MAX];
        while left.last() != Some(&Duration::ZERO) {
            // As if it had worked for a while.
            let work = rests.work.as_mut().unwrap();
            work.since = work.since.checked_sub(PIECE).unwrap();
            rests.between();
            left.push(rests.work.unwrap().rests);
        }
        assert!(began.elapsed() >= RESTS_MAX);
        assert!(left.is_sorted_by(|before, after| before > after), "{left:?}");
        rests.begin();
        assert_eq!(rests.work.unwrap().rests, RESTS_MAX);
    }

    #[test]
    fn a_callers_own_time_is_not_spent() {
        let mut rests = Rests::default();
        rests.begin();
        rests.between();
        assert_eq!(rests.work, None);
    }
}
