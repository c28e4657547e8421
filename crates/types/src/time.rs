//! Time as a value. Code that decides takes a [`UnixMs`]; only shells hold a [`Clock`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// Whole seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }

    /// This moment and `duration` more (whole milliseconds; stops at the end of time instead of wrapping).
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// How long ago `earlier` was; zero if it is still to come.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The source of time for a shell.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> UnixMs;
}

/// The system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMs {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that stands still until it is told to move: for tests and virtual-time experiments.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: UnixMs) -> Self {
        Self(AtomicU64::new(now.0))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.0
            .fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMs {
        UnixMs(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(UnixMs(5));
        assert_eq!(clock.now(), UnixMs(5));
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), UnixMs(2005));
    }

    #[test]
    fn the_system_clock_is_past_2020() {
        assert!(SystemClock.now() > UnixMs(1_577_836_800_000));
    }

    #[test]
    fn differences_never_wrap() {
        assert_eq!(UnixMs(3).since(UnixMs(10)), Duration::ZERO);
        assert_eq!(UnixMs(u64::MAX).plus(Duration::from_secs(1)), UnixMs(u64::MAX));
    }
}
