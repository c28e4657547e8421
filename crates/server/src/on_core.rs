//! The part of a visit's time for which its worker had the core. Other threads keep it from the core for milliseconds
//! now and then, also the pool's own on a shared core. That is not work for the visited tenant.

use std::time::{Duration, Instant};

/// A visit that takes less counts as work. The error is less than this, and the system need not be asked each time,
/// which takes some tenths of a microsecond. Few visits are longer, since the work of a turn is bounded. While the
/// worker goes on, the system is asked as often as that, too. Earlier losses of the core were charged to the tenants
/// visited then.
const DOUBTED_FROM: Duration = Duration::from_micros(400);

/// The CPU time that a worker had had at some moment, since which it did not wait for requests.
#[derive(Debug, Default)]
pub(crate) struct OnCore {
    known: Option<(Instant, Duration)>,
}

impl OnCore {
    /// The worker waits for requests: that it has no core meanwhile says nothing.
    pub(crate) fn wait(&mut self) {
        self.known = None;
    }

    /// The worker goes on without waiting. Returns the CPU time, if that was asked for.
    pub(crate) fn go_on(&mut self, now: Instant, cpu_time: impl FnOnce() -> Duration) -> Option<Duration> {
        let is_old = |(at, _)| now.saturating_duration_since(at) >= DOUBTED_FROM;
        if !self.known.is_none_or(is_old) {
            return None;
        }
        let used = cpu_time();
        self.known = Some((now, used));
        Some(used)
    }

    /// The part of a visit's time that was work; the visit has just ended. All of it, if that is not known.
    pub(crate) fn worked(&mut self, took: Duration, ended: Instant, cpu_time: impl FnOnce() -> Duration) -> Duration {
        if took < DOUBTED_FROM {
            return took;
        }
        let used = cpu_time();
        match self.known.replace((ended, used)) {
            // If the system does not tell, it says zero.
            Some((at, used_before)) if used > used_before => {
                let passed = ended.saturating_duration_since(at);
                took.saturating_sub(passed.saturating_sub(used - used_before))
            }
            _ => took,
        }
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
        core.go_on(begin, || 10 * MILLI);
        core.go_on(begin + MILLI / 5, || unreachable!("known well enough"));
        // The worker had the core for three of fourteen milliseconds.
        let ended = begin + 14 * MILLI;
        assert_eq!(core.worked(13 * MILLI, ended, || 13 * MILLI), 2 * MILLI);
        // All of it was work since.
        assert_eq!(core.worked(3 * MILLI, ended + 3 * MILLI, || 16 * MILLI), 3 * MILLI);
        // It was kept from it just before, too.
        assert_eq!(core.worked(MILLI, ended + 9 * MILLI, || 17 * MILLI), Duration::ZERO);
    }

    #[test]
    fn what_was_charged_to_short_visits_is_not_taken_from_a_long_one() {
        let begin = Instant::now();
        let mut core = OnCore::default();
        core.go_on(begin, || MILLI);
        // Nine of ten milliseconds of short visits had others the core.
        core.go_on(begin + 10 * MILLI, || 2 * MILLI);
        assert_eq!(core.worked(MILLI, begin + 11 * MILLI, || 3 * MILLI), MILLI);
    }

    #[test]
    fn what_is_not_known_was_work() {
        let now = Instant::now();
        let mut core = OnCore::default();
        assert_eq!(core.worked(5 * MILLI, now, || MILLI), 5 * MILLI, "nothing is known");
        core.go_on(now, || unreachable!("known since the visit"));
        core.wait();
        let long = 5 * MILLI;
        assert_eq!(core.worked(long, now + 90 * MILLI, || 4 * MILLI), long, "it waited");
        let short = DOUBTED_FROM / 2;
        assert_eq!(core.worked(short, now + 91 * MILLI, || unreachable!()), short);
        let mut silent = OnCore::default();
        silent.go_on(now, || Duration::ZERO);
        assert_eq!(silent.worked(long, now + long, || Duration::ZERO), long, "no clock");
    }
}
