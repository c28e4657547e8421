//! Modelled CPU time at intervals that are shorter than a round.
//!
//! A worker keeps a list of the tenants that it served since it last estimated. At the end of a turn in which the interval has
//! passed, it estimates the work of each since that tenant's last estimate, whichever worker made it. A worker never wakes for
//! it: what was done before a silence is estimated at the end of the turn that did it or with the next snapshot.
//!
//! Invariant: each command is estimated once, and an estimate allocates nothing.

use std::sync::Arc;
use std::time::Duration;

use tidemark_meter::model::{Model, Present, Tally, Work};

/// A silence that is longer than this is no part of the interval that follows it: a round.
const SILENCE: Duration = Duration::from_secs(1);

/// How workers estimate CPU time.
#[derive(Clone, Debug)]
pub struct Estimating {
    /// The model.
    pub model: Arc<Model>,
    /// An estimate is of this long at least, but for the last one before a snapshot.
    pub interval: Duration,
}

impl Estimating {
    /// Estimates the work until `now_us` if the interval has passed since the last estimate. `work` is all that the tenant did, and
    /// what it has; it is asked only then.
    pub(crate) fn estimate_after(&self, tally: &mut Tally, now_us: u64, work: impl FnOnce() -> (Work, Present)) {
        if tally.is_due(now_us, self.interval) {
            let (work, present) = work();
            self.estimate(tally, now_us, work, present);
        }
    }

    /// Estimates the work until `now_us`.
    pub(crate) fn estimate(&self, tally: &mut Tally, now_us: u64, work: Work, present: Present) {
        let silence_us = SILENCE.max(self.interval).as_micros() as u64;
        tally.observe(&self.model, work, present, (now_us.saturating_sub(silence_us), now_us));
        tally.estimate(&self.model);
    }
}

/// When a worker estimates next.
#[derive(Debug)]
pub(crate) struct NextEstimate {
    interval_us: u64,
    at_us: u64,
}

impl NextEstimate {
    /// At the first turn's end.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval_us: interval.as_micros() as u64,
            at_us: 0,
        }
    }

    /// Whether the interval has passed at the end of a turn. If so, the next one begins.
    #[inline]
    pub(crate) fn is_now(&mut self, now_us: u64) -> bool {
        let is_now = now_us >= self.at_us;
        if is_now {
            self.at_us = now_us + self.interval_us;
        }
        is_now
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use tidemark_meter::model::{Accuracy, Input, InputRange, Layer, Network};

    use super::*;

    /// A model that takes the rate alone. By a slope of -1 each of twice as many commands in a time takes half, by none it takes a second.
    pub(crate) fn by_rate(slope: f32) -> Arc<Model> {
        let rate = InputRange {
            input: Input::Rate,
            least: 0.0,
            most: 1e9,
            mean: 0.0,
            deviation: 1.0,
        };
        Arc::new(Model {
            reference: "a machine".into(),
            machine: "a machine".into(),
            factor: 1.0,
            accuracy: Accuracy::default(),
            output_ns: (1.0, 1e9),
            inputs: vec![rate],
            network: Network::new(1, vec![Layer::new(&[vec![slope, 1e9_f32.ln()]]).unwrap()]).unwrap(),
        })
    }

    fn work(operations: u64) -> Work {
        Work {
            operations,
            ..Work::default()
        }
    }

    /// Turns of so many microseconds, in each of which a command is executed, for so long. Returns how often was estimated, and the sum.
    fn course(interval_us: u64, turn_us: u64, until_us: u64) -> (u64, u64) {
        let estimating = Estimating {
            model: by_rate(-1.0),
            interval: Duration::from_micros(interval_us),
        };
        let mut next = NextEstimate::new(estimating.interval);
        let (mut tally, estimates) = (Tally::default(), Cell::new(0));
        let (mut now_us, mut operations) = (10 * SILENCE.as_micros() as u64, 0);
        let end_us = now_us + until_us;
        while now_us < end_us {
            now_us += turn_us;
            operations += 1;
            if next.is_now(now_us) {
                estimating.estimate_after(&mut tally, now_us, || {
                    estimates.set(estimates.get() + 1);
                    (work(operations), Present::default())
                });
            }
        }
        estimating.estimate(&mut tally, now_us, work(operations), Present::default());
        (estimates.get(), tally.ns())
    }

    #[test]
    fn a_worker_estimates_at_the_end_of_a_turn_in_which_the_interval_has_passed() {
        for (interval_us, turn_us, expected) in [(100, 30, 834), (100, 100, 1000), (1000, 30, 99), (100, 5000, 20)] {
            let (estimates, ns) = course(interval_us, turn_us, 100_000);
            assert_eq!(estimates, expected, "{interval_us} {turn_us}");
            // At any rate a second of it is a vCPU second. The first command is one in a round, which takes half of that.
            assert!((ns as f64 / 1e9 - 0.6).abs() < 0.02, "{interval_us} {turn_us}: {ns}");
        }
    }

    #[test]
    fn two_workers_estimate_each_command_once() {
        let estimating = Estimating {
            model: by_rate(0.0),
            interval: Duration::from_micros(100),
        };
        let mut tally = Tally::default();
        let start_us = 10 * SILENCE.as_micros() as u64;
        let mut asked = 0;
        // Both look after each other's turns.
        for turn in 1..=1000_u64 {
            for behind_us in [0, 7] {
                estimating.estimate_after(&mut tally, start_us + turn * 50 + behind_us, || {
                    asked += 1;
                    (work(turn), Present::default())
                });
            }
        }
        assert!((450..=560).contains(&asked), "{asked}");
        estimating.estimate(&mut tally, start_us + 60_000, work(1000), Present::default());
        assert!((tally.ns() as f64 / 1e12 - 1.0).abs() < 1e-3, "{}", tally.ns());
    }

    #[test]
    fn a_silence_is_no_part_of_what_follows_and_nothing_is_asked_of_it() {
        let estimating = Estimating {
            model: by_rate(-1.0),
            interval: Duration::from_micros(100),
        };
        let second_us = SILENCE.as_micros() as u64;
        let mut tally = Tally::default();
        estimating.estimate(&mut tally, 10 * second_us, work(1000), Present::default());
        let before = tally.ns();
        // An hour later as much is done in as long: it takes as much.
        estimating.estimate(&mut tally, 3600 * second_us, work(2000), Present::default());
        let (first, second) = (before as f64, (tally.ns() - before) as f64);
        assert!((second / first - 1.0).abs() < 1e-3, "{first} {second}");
    }
}
