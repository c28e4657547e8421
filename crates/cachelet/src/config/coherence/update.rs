//! Directory with two-phase update, as in Hermes (ASPLOS'20): the first phase ends copies and brings the value, the second
//! makes it valid. Readers after a write need not ask.

use super::{Check, Protocol, Spread};

/// The protocol of this module.
#[derive(Debug)]
pub(super) struct Update;

impl Protocol for Update {
    fn check(&self) -> Check {
        Check::Copy
    }

    fn spread(&self) -> Spread {
        Spread::Stage
    }
}
