//! Policies of a program, good and bad, for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{EvictionPolicy, Newcomer, Queue, Resident, Verdict};

/// How a policy behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Any possible answers.
    Moody,
    /// The same, and it panics once in a while.
    Panics,
    /// The same, and it answers something impossible once in a while.
    Babbles,
    /// It lets nothing go.
    Hoards,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Moody, Self::Panics, Self::Babbles, Self::Hoards];
}

/// Calls between two that go wrong, on average.
const ONE_IN: u64 = 400;

#[derive(Debug)]
pub(crate) struct Rogue {
    way: Way,
    random: AtomicU64,
}

impl Rogue {
    pub(crate) fn new(way: Way, seed: u64) -> Self {
        let random = AtomicU64::new(seed);
        Self { way, random }
    }

    fn below(&self, bound: u64) -> u64 {
        let drawn = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let z = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn goes_wrong(&self) -> bool {
        self.below(ONE_IN) == 0
    }
}

impl EvictionPolicy for Rogue {
    fn judge(&self, item: &Resident<'_>) -> Verdict {
        assert!(
            item.uses <= 3 && !item.key.is_empty(),
            "what is told must be so: {item:?}"
        );
        match self.way {
            Way::Hoards => return Verdict::Keep { uses: item.uses },
            Way::Panics if self.goes_wrong() => panic!("judging"),
            Way::Babbles if self.goes_wrong() => return Verdict::Keep { uses: 200 },
            _ => {}
        }
        match self.below(6) {
            0 => Verdict::DropToGhost,
            kept @ 1..=4 => Verdict::Keep { uses: kept as u8 - 1 },
            _ => Verdict::Drop,
        }
    }

    fn queue(&self, _: &Newcomer<'_>) -> Queue {
        assert!(self.way != Way::Panics || !self.goes_wrong(), "choosing a queue");
        if self.below(2) == 0 { Queue::Small } else { Queue::Main }
    }

    fn small_share(&self) -> f64 {
        0.3
    }

    fn has_ghosts(&self) -> bool {
        true
    }

    fn notes_uses(&self) -> bool {
        true
    }

    fn used(&self, key: &[u8]) {
        assert!(!key.is_empty());
        assert!(self.way != Way::Panics || !self.goes_wrong(), "noting a use");
    }
}
