//! A clock that decisions can rely on: it never goes back, and time that nobody saw pass hardly counts.
//!
//! The system's clock may be set back by minutes or years. Everything here that waits for a time to pass would then
//! wait that long. A step back is therefore left out, and time goes on from where it was. The clock may be set forward,
//! too, or the process may have stood still. Nobody was idle for longer then, and nothing is overdue, so that only a
//! part of such a step counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemark_types::{Clock, UnixMs};

use crate::settings::MAX_ROUND_PERIOD;

/// Between two looks at the clock, no more time passes than this. Rounds look at it, as far apart as they may be.
const STEP_MAX: Duration = MAX_ROUND_PERIOD.saturating_mul(2);

/// A clock without its steps.
pub(crate) struct SteadyClock {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    /// The clock's last time.
    shown: UnixMs,
    /// The time that it was then.
    time: UnixMs,
}

impl SteadyClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        Self {
            clock,
            state: Mutex::new(State { shown: now, time: now }),
        }
    }

    /// The clock's own time, for people.
    pub(crate) fn wall(&self) -> UnixMs {
        self.clock.now()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> UnixMs {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = self.clock.now();
        let step = shown.since(state.shown).min(STEP_MAX);
        state.shown = shown;
        state.time = state.time.plus(step);
        state.time
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn steps_are_left_out() {
        struct Set(AtomicU64);
        impl Clock for Set {
            fn now(&self) -> UnixMs {
                UnixMs(self.0.load(Ordering::SeqCst))
            }
        }
        let set = Arc::new(Set(AtomicU64::new(100)));
        let steady = SteadyClock::new(Arc::clone(&set) as _);
        for (shown, expected) in [
            (100, 100),
            (150, 150),
            (50, 150),
            (60, 160),
            (10, 160),
            (1000, 1150),
            (1000, 1150),
            (121_000, 121_150),
            (242_000, 241_150),
            (9_000_000, 361_150),
            (9_000_001, 361_151),
        ] {
            set.0.store(shown, Ordering::SeqCst);
            assert_eq!(steady.now(), UnixMs(expected), "{shown}");
            assert_eq!(steady.wall(), UnixMs(shown));
        }
    }
}
