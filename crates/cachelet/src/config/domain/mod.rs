//! Organization of a domain: whether the home talks to every holder of a copy, or to leaders of clusters.

mod flat;
mod hierarchical;

use crate::types::{CacheletId, Key};
use crate::view::View;

/// The paths of messages in a domain.
pub trait Organization {
    /// Whom a cachelet asks for a key that it does not have.
    fn asked(&self, view: &View, reader: CacheletId, key: &Key) -> CacheletId;
    /// Whom the home notes when `reader` gets a copy: the reader, or the leader that speaks for it.
    fn noted(&self, view: &View, reader: CacheletId, key: &Key) -> CacheletId;
    /// Whom a noted cachelet speaks for, itself excluded.
    fn followers(&self, view: &View, noted: CacheletId) -> Vec<CacheletId>;
}

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

    fn module(self) -> &'static dyn Organization {
        match self {
            Self::Flat => &flat::Flat,
            Self::Hierarchical => &hierarchical::Hierarchical,
        }
    }
}

impl Organization for Domain {
    fn asked(&self, view: &View, reader: CacheletId, key: &Key) -> CacheletId {
        self.module().asked(view, reader, key)
    }

    fn noted(&self, view: &View, reader: CacheletId, key: &Key) -> CacheletId {
        self.module().noted(view, reader, key)
    }

    fn followers(&self, view: &View, noted: CacheletId) -> Vec<CacheletId> {
        self.module().followers(view, noted)
    }
}
