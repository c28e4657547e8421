//! How long a size waits with shrinking: a size that had to grow soon after it shrank waits ever longer.

use std::time::Duration;

use tidemark_types::UnixMs;

use super::tuning::STEPS;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hold {
    shrunk_at: Option<UnixMs>,
    grown_at: Option<UnixMs>,
    time: Duration,
    until: UnixMs,
}

impl Hold {
    /// Whether it must not shrink yet.
    pub(super) fn holds(&self, now: UnixMs) -> bool {
        now < self.until
    }

    /// A change of the goal ends the wait.
    pub(super) fn release(&mut self) {
        (self.time, self.until) = (Duration::ZERO, UnixMs(0));
    }

    /// The load is another one: one that flips between two needs keeps the larger one's memory.
    pub(super) fn note_change(&mut self, now: UnixMs) {
        let resized_at = self.shrunk_at.max(self.grown_at);
        if resized_at.is_some_and(|at| now.since(at) < self.too_soon()) {
            self.lengthen(now);
        }
    }

    /// The size grows or shrinks noticeably.
    pub(super) fn note_move(&mut self, now: UnixMs, grows: bool) {
        if !grows {
            if self.grown_at.is_none_or(|at| now.since(at) > STEPS.hold_most) {
                self.time = Duration::ZERO;
            }
            self.shrunk_at = Some(now);
            return;
        }
        let too_soon = self.too_soon();
        if self.shrunk_at.take().is_some_and(|at| now.since(at) < too_soon) {
            self.lengthen(now);
        }
        self.grown_at = Some(now);
    }

    fn too_soon(&self) -> Duration {
        self.time.max(STEPS.hold_least) * 3
    }

    fn lengthen(&mut self, now: UnixMs) {
        self.time = (self.time * 2).clamp(STEPS.hold_least, STEPS.hold_most);
        self.until = now.plus(self.time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_return_waits_twice_as_long() {
        let second = |second: u64| UnixMs(second * 1000);
        let mut hold = Hold::default();
        hold.note_move(second(0), false);
        assert!(!hold.holds(second(0)));
        hold.note_move(second(10), true);
        assert!(hold.holds(second(29)) && !hold.holds(second(30)));
        hold.note_move(second(30), false);
        hold.note_move(second(40), true);
        assert!(hold.holds(second(79)) && !hold.holds(second(80)));
        hold.release();
        assert!(!hold.holds(second(41)));
    }
}
