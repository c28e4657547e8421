//! Coherence: how a reader knows that its copy is the current value, and how a writer tells the others.

mod invalidate;
mod sequence_home;
mod sequence_store;
mod update;
mod update_one_phase;

/// How a read is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A valid copy is served while the lease holds.
    Copy,
    /// The home is asked whether the copy is current.
    Home,
    /// The store is asked by a conditional request.
    Store,
}

/// How a write reaches the holders of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Not at all: they ask.
    None,
    /// Their copies end before the store changes.
    Invalidate,
    /// Their copies end before the store changes, and they get the new value with it; it is valid when the store has it.
    Stage,
    /// They take the new value at once, while the store changes.
    Apply,
}

/// A coherence protocol.
pub trait Protocol {
    /// How a read is answered.
    fn check(&self) -> Check;
    /// How a write reaches the holders of copies.
    fn spread(&self) -> Spread;
}

/// A coherence protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Coherence {
    /// Directory at the home; writes invalidate.
    Invalidate,
    /// Directory at the home; writes update in two phases.
    Update,
    /// Sequence numbers, compared at the home.
    SequenceAtHome,
    /// Entity tags, compared at the store by every read. Writers outside of the domain are seen.
    SequenceAtStore,
    /// Directory at the home; writes update in one phase, as UniCache draws it. Not linearizable.
    UpdateOnePhase,
}

impl Coherence {
    /// Every value.
    pub const ALL: [Self; 5] = [
        Self::Invalidate,
        Self::Update,
        Self::SequenceAtHome,
        Self::SequenceAtStore,
        Self::UpdateOnePhase,
    ];

    /// The values that keep reads linearizable.
    pub const LINEARIZABLE: [Self; 4] = [
        Self::Invalidate,
        Self::Update,
        Self::SequenceAtHome,
        Self::SequenceAtStore,
    ];

    /// Whether the home knows who holds copies.
    #[must_use]
    pub fn has_directory(self) -> bool {
        self.check() == Check::Copy
    }

    fn module(self) -> &'static dyn Protocol {
        match self {
            Self::Invalidate => &invalidate::Invalidate,
            Self::Update => &update::Update,
            Self::SequenceAtHome => &sequence_home::SequenceAtHome,
            Self::SequenceAtStore => &sequence_store::SequenceAtStore,
            Self::UpdateOnePhase => &update_one_phase::UpdateOnePhase,
        }
    }
}

impl Protocol for Coherence {
    fn check(&self) -> Check {
        self.module().check()
    }

    fn spread(&self) -> Spread {
        self.module().spread()
    }
}
