//! FIFO: the oldest copy goes. A hit writes nothing, which is cheapest for many small copies.

use super::{Policy, Use};

/// The policy of this module.
#[derive(Debug)]
pub(super) struct Fifo;

impl Policy for Fifo {
    fn moves_on_use(&self) -> bool {
        false
    }

    fn priority(&self, _last: Use) -> u32 {
        0
    }
}
