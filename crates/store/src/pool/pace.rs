//! How often a huge page is made of a block that is in use.
//!
//! Pure: the caller gives the time, and the CPU time that the program has used.

use std::time::{Duration, Instant};

/// The divisor of a core that goes into it at most while the program works. On a machine whose memory is virtual, a
/// huge page takes 5 ms. A worker on the same core waits for that, with all requests that come meanwhile. A larger part
/// makes itself felt in the 99th percentile beside a flood. It is CPU time: a worker that waits leaves its core to it.
const BUSY_DIVISOR: u32 = 2000;
/// The divisor of a core while the program is nearly idle. Little waits then beside one request: fewer than one in a
/// hundred occasional requests find a huge page being made.
const IDLE_DIVISOR: u32 = 200;
/// Next to nothing: this part of a core, which some dozens of requests in an interval take. To look after three hundred
/// tenants that ask for nothing takes half of that.
const NOTHING_DIVISOR: u32 = 100;
/// How long the program is watched to know that.
const INTERVAL: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// After the last one, when the next one may be while the program does next to nothing, and, never before that, when
    /// whatever it does.
    from: Option<(Instant, Instant)>,
    /// Since when it is watched, and how much CPU time it had used then.
    watched: Option<(Instant, Duration)>,
}

impl Pace {
    /// One was made, or tried, which took so much CPU time until now.
    pub(super) fn note_made(&mut self, took: Duration, now: Instant) {
        self.from = Some((now + took * IDLE_DIVISOR, now + INTERVAL.max(took * BUSY_DIVISOR)));
        // The CPU time until now is this errand's.
        self.watched = None;
    }

    /// When the next one may be, or when to ask again: now or before, if it may be now.
    pub(super) fn next(&mut self, now: Instant, cpu_time: impl FnOnce() -> Duration) -> Instant {
        let (idle_from, busy_from) = self.from.unwrap_or((now, now));
        if busy_from <= now || now < idle_from {
            return idle_from;
        }
        // CPU time of long ago does not tell what the program does now.
        let recent = |since: Instant| now.saturating_duration_since(since) < 2 * INTERVAL;
        let watched = self.watched.filter(|(since, _)| recent(*since));
        if let Some((since, _)) = watched
            && now < since + INTERVAL
        {
            return busy_from.min(since + INTERVAL);
        }
        let used = cpu_time();
        self.watched = Some((now, used));
        let is_idle =
            watched.is_some_and(|(since, before)| used.saturating_sub(before) * NOTHING_DIVISOR <= now - since);
        if is_idle { now } else { busy_from.min(now + INTERVAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BUSY: Duration = Duration::from_millis(10);

    #[test]
    fn a_program_that_works_gives_a_small_part_of_a_core() {
        let now = Instant::now();
        let mut pace = Pace::default();
        assert!(pace.next(now, || unreachable!()) <= now, "the first one is free");
        pace.note_made(SECOND / 1000, now);
        let until = now + SECOND * 2;
        let (mut at, mut used) = (now, Duration::ZERO);
        let mut looks = 0;
        while at < until {
            let next = pace.next(at, || used);
            assert!(next > at && next <= until, "{looks}");
            (at, used, looks) = (next, used + BUSY, looks + 1);
        }
        assert_eq!(
            looks, 19,
            "once in an interval, after the time of one that does nothing"
        );
        assert!(pace.next(at, || unreachable!()) <= at);
    }

    #[test]
    fn one_that_does_next_to_nothing_gives_more() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.note_made(BUSY, now);
        let from = now + BUSY * IDLE_DIVISOR;
        let mut used = SECOND;
        assert_eq!(pace.next(now, || unreachable!()), from);
        assert_eq!(pace.next(from, || used), from + INTERVAL);
        assert_eq!(pace.next(from + INTERVAL / 2, || unreachable!()), from + INTERVAL);
        used += INTERVAL / NOTHING_DIVISOR;
        let idle = from + INTERVAL;
        assert_eq!(pace.next(idle, || used), idle);
        // The CPU time of the huge page itself is not counted.
        used += SECOND;
        pace.note_made(BUSY, idle);
        let from = idle + BUSY * IDLE_DIVISOR;
        assert_eq!(pace.next(from, || used), from + INTERVAL);
        assert_eq!(pace.next(from + INTERVAL, || used), from + INTERVAL);
        // Nor does it help that nothing was done long before.
        let late = from + 10 * INTERVAL;
        assert_eq!(pace.next(late, || used), late + INTERVAL);
        assert_eq!(pace.next(late + INTERVAL, || used + BUSY), late + 2 * INTERVAL);
    }

    #[test]
    fn where_the_system_does_not_tell_what_was_used_one_is_made_in_an_interval() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.note_made(Duration::ZERO, now);
        assert!(pace.next(now, || Duration::ZERO) > now);
        assert!(pace.next(now + INTERVAL, || Duration::ZERO) <= now + INTERVAL);
    }
}
