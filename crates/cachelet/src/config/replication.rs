//! Replication: the state that the home's successor holds for the case that the home is lost.

/// The state that the successor holds.
pub trait Replicates {
    /// Whether it holds every write before the home sends it to the store. It can then finish a lost home's writes.
    fn has_intents(&self) -> bool;
    /// Whether it holds values that the store does not have yet.
    fn has_data(&self) -> bool;
}

/// The state that the successor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Replication {
    /// Nothing. When a home is lost, its keys are validated at the store for a grace time.
    None,
    /// Values that were acknowledged and that the store does not have.
    Data,
    /// Coherence state: intents of writes.
    Coherence,
    /// Both.
    Both,
}

impl Replication {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::None, Self::Data, Self::Coherence, Self::Both];

    /// The same without values: with write-through, the store has them all.
    #[must_use]
    pub fn without_data(self) -> Self {
        match self {
            Self::None | Self::Data => Self::None,
            Self::Coherence | Self::Both => Self::Coherence,
        }
    }
}

impl Replicates for Replication {
    fn has_intents(&self) -> bool {
        matches!(self, Self::Coherence | Self::Both)
    }

    fn has_data(&self) -> bool {
        matches!(self, Self::Data | Self::Both)
    }
}
