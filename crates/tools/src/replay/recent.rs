//! Keys that were seen in the cache a moment ago.

use crate::load::mix;

/// Slots: about as many keys are remembered. Fewer make a replay wait more, more make it guess wrong more often.
const SLOTS: usize = 256;

/// A key in the slot of its hash, until another key takes it.
pub(super) struct Recent {
    slots: Box<[Option<u64>; SLOTS]>,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            slots: Box::new([None; SLOTS]),
        }
    }

    pub(super) fn remember(&mut self, key: u64) {
        self.slots[slot(key)] = Some(key);
    }

    pub(super) fn contains(&self, key: u64) -> bool {
        self.slots[slot(key)] == Some(key)
    }
}

fn slot(key: u64) -> usize {
    mix(key) as usize % SLOTS
}
