//! Directory with invalidation: a write ends all copies, then changes the store. Cheap where a writer writes several times
//! before another reads.

use super::{Check, Protocol, Spread};

/// The protocol of this module.
#[derive(Debug)]
pub(super) struct Invalidate;

impl Protocol for Invalidate {
    fn check(&self) -> Check {
        Check::Copy
    }

    fn spread(&self) -> Spread {
        Spread::Invalidate
    }
}
