//! The phases of a sizer, and how it is judged that its goal is met or cannot be.

use std::time::Duration;

use tidemark_types::UnixMs;

use crate::reading::GoalState;

/// The source of the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Direct-Fit: the curve does, until a size was measured.
    #[default]
    Fitting,
    /// Fine-Grained Resizing: measurements do, along the curve's slope.
    Tuning,
}

impl Phase {
    /// The phase after an interval that measured a size, full or not, by which the goal is missed or not. A measurement at
    /// a size knows better than the curve whether it is enough.
    pub(super) fn after_interval(self, is_full: bool, is_missed: bool) -> Self {
        if is_full || !is_missed { Self::Tuning } else { self }
    }
}

/// Whether the goal is met, may be, or cannot be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is missed, and more memory may help; or nothing was measured.
    #[default]
    Open,
    /// It is met.
    Met,
    /// It is missed since then, and more memory would not help. Until patience ends, the former verdict counts.
    Doubted { since: UnixMs, was_met: bool },
    /// It is missed, and for too long already no memory would help.
    Hopeless { since: UnixMs },
}

/// The evidence of an interval about a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// It is met.
    Meets,
    /// It is missed, and more memory may help.
    MayHelp,
    /// It is missed, and no memory would help.
    Helpless,
}

impl Verdict {
    /// The state that follows from evidence at this moment.
    pub(super) fn after(self, evidence: Evidence, now: UnixMs, patience: Duration) -> Self {
        match evidence {
            Evidence::Meets => Self::Met,
            Evidence::MayHelp => Self::Open,
            Evidence::Helpless => self.doubted(now, patience),
        }
    }

    fn doubted(self, now: UnixMs, patience: Duration) -> Self {
        let (since, was_met) = match self {
            Self::Hopeless { .. } => return self,
            Self::Doubted { since, was_met } => (since, was_met),
            Self::Open | Self::Met => (now, self == Self::Met),
        };
        if now.since(since) >= patience {
            Self::Hopeless { since }
        } else {
            Self::Doubted { since, was_met }
        }
    }

    /// Whether more memory has been of no help for so long.
    pub(super) fn is_out_of_patience(self, now: UnixMs, patience: Duration) -> bool {
        match self {
            Self::Hopeless { since } => now.since(since) >= patience,
            Self::Open | Self::Met | Self::Doubted { .. } => false,
        }
    }

    /// The state as others see it.
    pub(super) fn state(self) -> GoalState {
        match self {
            Self::Open | Self::Doubted { was_met: false, .. } => GoalState::Converging,
            Self::Met | Self::Doubted { was_met: true, .. } => GoalState::Met,
            Self::Hopeless { .. } => GoalState::Infeasible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn verdicts_follow_the_table() {
        let second = |second: u64| UnixMs(second * 1000);
        let doubted = |since, was_met| Verdict::Doubted {
            since: second(since),
            was_met,
        };
        let hopeless = Verdict::Hopeless { since: second(1) };
        for (before, evidence, now, after) in [
            (Verdict::Open, Evidence::Meets, 1, Verdict::Met),
            (Verdict::Open, Evidence::MayHelp, 1, Verdict::Open),
            (Verdict::Open, Evidence::Helpless, 1, doubted(1, false)),
            (Verdict::Met, Evidence::MayHelp, 1, Verdict::Open),
            (Verdict::Met, Evidence::Helpless, 1, doubted(1, true)),
            (doubted(1, true), Evidence::Helpless, 60, doubted(1, true)),
            (doubted(1, true), Evidence::Helpless, 61, hopeless),
            (doubted(1, false), Evidence::MayHelp, 61, Verdict::Open),
            (doubted(1, false), Evidence::Meets, 61, Verdict::Met),
            (hopeless, Evidence::Helpless, 62, hopeless),
            (hopeless, Evidence::MayHelp, 62, Verdict::Open),
            (hopeless, Evidence::Meets, 62, Verdict::Met),
        ] {
            let found = before.after(evidence, second(now), PATIENCE);
            assert_eq!(found, after, "{before:?} {evidence:?} {now}");
        }
        assert_eq!(doubted(1, true).state(), GoalState::Met);
        assert_eq!(doubted(1, false).state(), GoalState::Converging);
    }

    #[test]
    fn phases_follow_the_table() {
        for (before, is_full, is_missed, after) in [
            (Phase::Fitting, false, true, Phase::Fitting),
            (Phase::Fitting, true, true, Phase::Tuning),
            (Phase::Fitting, false, false, Phase::Tuning),
            (Phase::Tuning, false, true, Phase::Tuning),
        ] {
            assert_eq!(before.after_interval(is_full, is_missed), after, "{before:?}");
        }
    }
}
