//! LRU: the copy that was not used for longest goes.

use super::{Policy, Use};

/// The policy of this module.
#[derive(Debug)]
pub(super) struct Lru;

impl Policy for Lru {
    fn moves_on_use(&self) -> bool {
        true
    }

    fn priority(&self, _last: Use) -> u32 {
        0
    }
}
