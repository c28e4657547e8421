//! Admission: whether values are kept. Half of the applications of a public trace never read a version twice.

/// Whether a value is kept.
pub trait Admits {
    /// Whether a cachelet with this budget keeps a value of this size.
    fn keeps(&self, size_bytes: u64, budget_bytes: u64) -> bool;
}

/// Whether a value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Admission {
    /// If there is room for it.
    Keep,
    /// Never: everything is read from the store.
    Bypass,
}

impl Admission {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Keep, Self::Bypass];
}

impl Admits for Admission {
    fn keeps(&self, size_bytes: u64, budget_bytes: u64) -> bool {
        *self == Self::Keep && size_bytes <= budget_bytes
    }
}
