//! Write policy: when a write is acknowledged.

/// When a write is acknowledged.
pub trait Acknowledges {
    /// Whether the writer gets its answer before the store has the value.
    fn before_the_store(&self) -> bool;
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum WritePolicy {
    /// When the store has it.
    Through,
    /// When the home has it, and its replica if there is one; the store gets it later.
    Back,
}

impl WritePolicy {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Through, Self::Back];
}

impl Acknowledges for WritePolicy {
    fn before_the_store(&self) -> bool {
        *self == Self::Back
    }
}
