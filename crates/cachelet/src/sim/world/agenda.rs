//! Things that are to happen in a world, in their order.

use crate::message::{Event, StoreRequest};
use crate::types::{CacheletId, CallId, Epoch, Key};

#[derive(Debug)]
pub(super) enum Occurrence {
    Deliver(usize, CacheletId, Event),
    Apply(usize, CacheletId, CallId, Key, StoreRequest, Fate),
    Tick(usize, CacheletId),
    Keepalive(usize),
    Renew(usize, CacheletId, u64, Epoch),
    Report(CacheletId, Epoch, bool),
    Look,
    Expelled(usize),
}

/// The fate of a store call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    Throttled,
    Unanswered,
}

#[derive(Debug)]
pub(super) struct Due {
    pub(super) at_us: u64,
    pub(super) order: u64,
    pub(super) what: Occurrence,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.order) == (other.at_us, other.order)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.order).cmp(&(other.at_us, other.order))
    }
}
