//! Entity tags at the store: every read is a conditional request there. Sees writers outside of the domain.

use super::{Check, Protocol, Spread};

/// The protocol of this module.
#[derive(Debug)]
pub(super) struct SequenceAtStore;

impl Protocol for SequenceAtStore {
    fn check(&self) -> Check {
        Check::Store
    }

    fn spread(&self) -> Spread {
        Spread::None
    }
}
