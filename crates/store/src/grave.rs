//! Memory of items that were removed all at once.
//!
//! A flush takes no longer the more there was: it puts all memory of a shard aside as it is. The keepers give that back in
//! pieces, and a write that finds no room in the grant takes of it at once, so that no item has to go for it. It counts to
//! the tenant's usage until then.

use std::collections::HashSet;
use std::collections::hash_set;
use std::vec;

use crate::pool::Run;
use crate::segment::{Segment, Segments};

/// The remains of one shard's items.
#[derive(Debug)]
pub(crate) struct Grave {
    /// The units of the index and the ghosts.
    runs: Vec<Run>,
    segments: vec::IntoIter<Option<Segment>>,
    /// Units of values outside of the log.
    outside: hash_set::IntoIter<u32>,
}

/// The next part of a grave.
pub(crate) enum Part {
    /// Memory.
    Run(Run),
    /// Nothing lay there.
    Nothing,
    /// There is no more.
    End,
}

impl Grave {
    pub(crate) fn new(runs: Vec<Run>, segments: Segments, outside: HashSet<u32>) -> Self {
        Self {
            runs,
            segments: segments.into_slots(),
            outside: outside.into_iter(),
        }
    }

    /// Takes the next part out, in bounded time.
    pub(crate) fn next(&mut self) -> Part {
        if let Some(run) = self.runs.pop() {
            return Part::Run(run);
        }
        if let Some(slot) = self.segments.next() {
            return slot.map_or(Part::Nothing, |segment| Part::Run(segment.run));
        }
        let unit = self.outside.next().map(|start| Run {
            start,
            order: 0,
            clean: false,
        });
        unit.map_or(Part::End, Part::Run)
    }
}
