//! Flat: the home knows every holder. The fewest steps for few holders.

use super::Organization;
use crate::types::{CacheletId, Key};
use crate::view::View;

/// The organization of this module.
#[derive(Debug)]
pub(super) struct Flat;

impl Organization for Flat {
    fn asked(&self, view: &View, _reader: CacheletId, key: &Key) -> CacheletId {
        view.home(key)
    }

    fn noted(&self, _view: &View, reader: CacheletId, _key: &Key) -> CacheletId {
        reader
    }

    fn followers(&self, _view: &View, _noted: CacheletId) -> Vec<CacheletId> {
        Vec::new()
    }
}
