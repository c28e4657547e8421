//! Switches a known mistake on, to see that a test finds it. Unit tests only.

use super::{Cachelet, Flaw};

/// The mistakes R1 to R10 of docs/design/coherence.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Bug {
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

impl Bug {
    pub(crate) const ALL: [Self; 10] = [
        Self::R1,
        Self::R2,
        Self::R3,
        Self::R4,
        Self::R5,
        Self::R6,
        Self::R7,
        Self::R8,
        Self::R9,
        Self::R10,
    ];

    fn flaw(self) -> Flaw {
        match self {
            Self::R1 => Flaw::LateFill,
            Self::R2 => Flaw::NoLease,
            Self::R3 => Flaw::NoRecovery,
            Self::R4 => Flaw::EarlyCopy,
            Self::R5 => Flaw::TimeoutIsFailure,
            Self::R6 => Flaw::NoEpochs,
            Self::R7 => Flaw::AbsentCopyIsAbsence,
            Self::R8 => Flaw::NoValidation,
            Self::R9 => Flaw::ShrinkDropsDirty,
            Self::R10 => Flaw::SwitchKeepsCopies,
        }
    }
}

impl Cachelet {
    pub(crate) fn with_bug(mut self, bug: Option<Bug>) -> Self {
        self.bug = bug;
        self
    }

    pub(super) fn has_bug(&self, flaw: Flaw) -> bool {
        self.bug.is_some_and(|bug| bug.flaw() == flaw)
    }
}
