//! Organization of a domain: whether the home talks to every holder of a copy, or to leaders of clusters. It lies above the
//! other dimensions, because it needs a view.

mod flat;
mod hierarchical;

use crate::config::Domain;
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

fn module(domain: Domain) -> &'static dyn Organization {
    match domain {
        Domain::Flat => &flat::Flat,
        Domain::Hierarchical => &hierarchical::Hierarchical,
    }
}

impl Organization for Domain {
    fn asked(&self, view: &View, reader: CacheletId, key: &Key) -> CacheletId {
        module(*self).asked(view, reader, key)
    }

    fn noted(&self, view: &View, reader: CacheletId, key: &Key) -> CacheletId {
        module(*self).noted(view, reader, key)
    }

    fn followers(&self, view: &View, noted: CacheletId) -> Vec<CacheletId> {
        module(*self).followers(view, noted)
    }
}
