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
/// What took longer than a third of this waited for the core.
const REST_MAX: Duration = Duration::from_millis(1);

/// A thread's work and its rests.
#[derive(Debug)]
pub(crate) struct Rests {
    /// Since when it works; `None`: it does not rest.
    working_since: Option<Instant>,
}

impl Rests {
    /// Of a thread that is needed for nothing else.
    pub(crate) fn taken() -> Self {
        Self {
            working_since: Some(Instant::now()),
        }
    }

    /// Of a caller whose time is its own.
    pub(crate) fn none() -> Self {
        Self { working_since: None }
    }

    /// Work begins after a time without any.
    pub(crate) fn begin(&mut self) {
        if let Some(since) = &mut self.working_since {
            *since = Instant::now();
        }
    }

    /// Rests, if it is time.
    pub(crate) fn between(&mut self) {
        let Some(since) = self.working_since else { return };
        let worked = since.elapsed();
        if worked >= PIECE {
            thread::sleep((worked * REST_PER_WORK).min(REST_MAX));
            self.begin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() {
        let begun = Instant::now();
        while begun.elapsed() < PIECE {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_rest_follows_each_piece_and_no_less() {
        let mut rests = Rests::taken();
        work();
        let begun = Instant::now();
        rests.between();
        assert!(begun.elapsed() >= PIECE * REST_PER_WORK);
        // As long as it does not work there is nothing to rest from.
        work();
        rests.begin();
        let since = rests.working_since;
        let is_little = since.is_some_and(|since| since.elapsed() < PIECE);
        rests.between();
        assert_eq!(rests.working_since == since, is_little);
    }

    #[test]
    fn a_callers_own_time_is_not_spent() {
        let mut rests = Rests::none();
        work();
        rests.begin();
        rests.between();
        assert_eq!(rests.working_since, None);
    }
}
