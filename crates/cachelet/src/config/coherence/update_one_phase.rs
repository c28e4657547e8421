//! Directory with one-phase update, as in UniCache's figure 1b. One reader may see the new value before another one sees
//! the old one, so that only the level `eventual` permits it.

use super::{Check, Protocol, Spread};

/// The protocol of this module.
#[derive(Debug)]
pub(super) struct UpdateOnePhase;

impl Protocol for UpdateOnePhase {
    fn check(&self) -> Check {
        Check::Copy
    }

    fn spread(&self) -> Spread {
        Spread::Apply
    }
}
