//! What of a visit's time its worker had the core. A thread is kept from it for milliseconds by others now and then, by the
//! pool's own where they share a core; that is not work done for whom it happened to visit.

use std::time::{Duration, Instant};

/// A visit that takes less is taken for work: to ask the system how much was would cost about as much as the visit does. Few
/// visits are longer, since what is done in a turn is bounded.
const DOUBTED_FROM: Duration = Duration::from_micros(400);

/// Since when a worker did not wait for requests, and the CPU time that it had had by then.
#[derive(Debug, Default)]
pub(crate) struct OnCore {
    since: Option<(Instant, Duration)>,
}

impl OnCore {
    /// The worker waits for requests: that it has no core meanwhile says nothing.
    pub(crate) fn wait(&mut self) {
        self.since = None;
    }

    /// The worker has more to do than it knew of when it last waited.
    pub(crate) fn begin(&mut self, now: Instant, cpu_time: impl FnOnce() -> Duration) {
        self.since.get_or_insert_with(|| (now, cpu_time()));
    }

    /// How much of what a visit took, which has just ended, was work. All of it, if that is not known.
    pub(crate) fn worked(&mut self, took: Duration, ended: Instant, cpu_time: impl FnOnce() -> Duration) -> Duration {
        if took < DOUBTED_FROM {
            return took;
        }
        let used = cpu_time();
        let before = self.since.replace((ended, used));
        let elsewhere = before.map(|(began, used_before)| {
            let passed = ended.saturating_duration_since(began);
            passed.saturating_sub(used.saturating_sub(used_before))
        });
        took.saturating_sub(elsewhere.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn who_was_kept_from_its_core_did_not_work() {
        let begin = Instant::now();
        let mut core = OnCore::default();
        core.begin(begin, || 10 * MILLI);
        core.begin(begin + MILLI, || unreachable!("it has begun"));
        // Of the twenty it had the core for nine, two of them in this visit.
        let ended = begin + 20 * MILLI;
        assert_eq!(core.worked(13 * MILLI, ended, || 19 * MILLI), 2 * MILLI);
        // All of it was work since.
        assert_eq!(core.worked(3 * MILLI, ended + 3 * MILLI, || 22 * MILLI), 3 * MILLI);
        // It was kept for longer than this visit took.
        assert_eq!(core.worked(MILLI, ended + 9 * MILLI, || 24 * MILLI), Duration::ZERO);
    }

    #[test]
    fn what_is_not_known_was_work() {
        let now = Instant::now();
        let mut core = OnCore::default();
        assert_eq!(core.worked(5 * MILLI, now, || MILLI), 5 * MILLI, "it has not begun");
        assert_eq!(core.worked(5 * MILLI, now + 5 * MILLI, || 3 * MILLI), 2 * MILLI);
        core.wait();
        assert_eq!(
            core.worked(5 * MILLI, now + 90 * MILLI, || 4 * MILLI),
            5 * MILLI,
            "it waited"
        );
        let short = DOUBTED_FROM / 2;
        assert_eq!(core.worked(short, now + 91 * MILLI, || unreachable!()), short);
    }
}
