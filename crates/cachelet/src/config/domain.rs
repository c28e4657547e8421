//! Names of the organizations of a domain ([`crate::organization`]).

/// The paths of messages in a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Domain {
    /// The home talks to every holder.
    Flat,
    /// The home talks to one leader per cluster, which talks to the whole cluster.
    Hierarchical,
}

impl Domain {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Flat, Self::Hierarchical];
}
