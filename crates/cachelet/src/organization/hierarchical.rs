//! Hierarchical: the home knows clusters by their leaders. A leader serves its cluster from its own copy, and passes
//! invalidations on to the whole cluster. The home's own network is relieved where holders are many.

use super::Organization;
use crate::types::{CacheletId, Key};
use crate::view::View;

/// The organization of this module.
#[derive(Debug)]
pub(super) struct Hierarchical;

impl Organization for Hierarchical {
    fn asked(&self, view: &View, reader: CacheletId, key: &Key) -> CacheletId {
        let (home, leader) = (view.home(key), view.leader(reader));
        // Within its own cluster the home is asked at once.
        if leader == reader || view.leader(home) == leader {
            home
        } else {
            leader
        }
    }

    fn noted(&self, view: &View, reader: CacheletId, _key: &Key) -> CacheletId {
        view.leader(reader)
    }

    fn followers(&self, view: &View, noted: CacheletId) -> Vec<CacheletId> {
        view.cluster_of(noted).filter(|id| *id != noted).collect()
    }
}
