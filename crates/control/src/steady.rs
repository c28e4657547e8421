//! A clock that decisions can rely on: it never goes back.
//!
//! The system's clock may be set back by minutes or years. Everything here that waits for a time to pass would then
//! wait that long; so a step back is left out and time goes on from where it was.

use std::sync::{Arc, Mutex, PoisonError};

use tidemark_types::{Clock, UnixMs};

/// A clock without its steps back.
pub(crate) struct SteadyClock {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the clock last showed, in milliseconds.
    shown_ms: u64,
    /// All steps back together.
    behind_ms: u64,
}

impl SteadyClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// What the clock itself shows: for what people read.
    pub(crate) fn wall(&self) -> UnixMs {
        self.clock.now()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> UnixMs {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shown_ms = self.clock.now().0;
        state.behind_ms += state.shown_ms.saturating_sub(shown_ms);
        state.shown_ms = shown_ms;
        UnixMs(shown_ms.saturating_add(state.behind_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn steps_back_are_left_out() {
        struct Set(AtomicU64);
        impl Clock for Set {
            fn now(&self) -> UnixMs {
                UnixMs(self.0.load(Ordering::SeqCst))
            }
        }
        let set = Arc::new(Set(AtomicU64::new(0)));
        let steady = SteadyClock::new(Arc::clone(&set) as _);
        for (shown, expected) in [
            (100, 100),
            (150, 150),
            (50, 150),
            (60, 160),
            (10, 160),
            (1000, 1150),
            (1000, 1150),
        ] {
            set.0.store(shown, Ordering::SeqCst);
            assert_eq!(steady.now(), UnixMs(expected), "{shown}");
            assert_eq!(steady.wall(), UnixMs(shown));
        }
    }
}
