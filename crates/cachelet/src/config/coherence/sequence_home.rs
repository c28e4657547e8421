//! Sequence numbers at the home: every read asks, nobody is told. For large values with many holders.

use super::{Check, Protocol, Spread};

/// The protocol of this module.
#[derive(Debug)]
pub(super) struct SequenceAtHome;

impl Protocol for SequenceAtHome {
    fn check(&self) -> Check {
        Check::Home
    }

    fn spread(&self) -> Spread {
        Spread::None
    }
}
