//! Sending a reply from where the value lies.
//!
//! A large value is not copied into a reply. It is *pinned*, the lock is released, and the system copies it from its
//! place while other commands go on. A pinned value does not move, change or go until the pin ends. Meanwhile it may be
//! deleted or overwritten, and is then freed at the pin's end.

use super::{Key, Shard, Value};
use crate::segment::{SegmentId, State};

/// Units of a value outside of the log that a reply is being sent from.
#[derive(Debug)]
pub(super) struct OutsidePin {
    count: u32,
    pub(super) units: Vec<u32>,
    /// Whether the value is dead and its units wait to be freed.
    pub(super) doomed: bool,
}

/// The memory that a pin holds in place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PinnedPlace {
    /// A segment of the log, and its first unit. By that it is known when its number has become another one's.
    Segment(SegmentId, u32),
    /// A value outside of the log, by its first unit.
    Outside(u32),
}

impl Shard {
    /// Pins the value of a key that was just looked up. The parts are where it lies, in order. `None` if it cannot stay
    /// there.
    pub(crate) fn pin(&mut self, key: &Key<'_>) -> Option<(PinnedPlace, Vec<*const [u8]>)> {
        let (_, place) = self.find(key)?;
        let (pinned, parts) = match self.found(place).value() {
            Value::Whole(value) => {
                let id = self.segment_of(place);
                if self.log[id].state == State::Victim {
                    // Its items are about to move.
                    return None;
                }
                let first = self.log[id].run.start;
                (PinnedPlace::Segment(id, first), vec![std::ptr::from_ref(value)])
            }
            Value::Pieces(pieces) => {
                let parts = pieces.parts().map(std::ptr::from_ref).collect();
                (PinnedPlace::Outside(pieces.first_unit()?), parts)
            }
        };
        match pinned {
            PinnedPlace::Segment(id, _) => self.log.pin(id),
            PinnedPlace::Outside(first) => {
                let units = self.item(place).outside();
                self.outside_pins
                    .entry(first)
                    .or_insert(OutsidePin {
                        count: 0,
                        units,
                        doomed: false,
                    })
                    .count += 1;
            }
        }
        Some((pinned, parts))
    }

    /// Ends a pin.
    pub(crate) fn unpin(&mut self, place: PinnedPlace) {
        match place {
            PinnedPlace::Segment(id, first) => {
                if let Some(run) = self.log.unpin(id, first) {
                    self.put_run(run);
                }
            }
            PinnedPlace::Outside(first) => self.unpin_outside(first),
        }
    }

    fn unpin_outside(&mut self, first: u32) {
        let Some(pin) = self.outside_pins.get_mut(&first) else {
            return;
        };
        pin.count -= 1;
        if pin.count > 0 {
            return;
        }
        if let Some(pin) = self.outside_pins.remove(&first)
            && pin.doomed
        {
            self.free_outside(pin.units);
        }
    }
}
