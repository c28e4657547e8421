//! Values that are too large for a segment: they lie outside of the log, in whole units, which a stub item lists ([`super::value`]).
//!
//! Invariant: the units of a stub belong to it alone, and are put back when it dies and not when it moves.

use tidemark_types::UnixMs;

use super::value::UNIT;
use super::write::Origin;
use super::{Key, Refused, Shard, second_of};
use crate::arena::UNIT_SHIFT;
use crate::item::{Attributes, Draft};
use crate::pool::Run;

impl Shard {
    /// Writes an item whose value lies outside of the log.
    pub(super) fn put_large(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: Attributes,
        origin: Origin,
        now: UnixMs,
    ) -> Result<(), Refused> {
        let units = self.take_units(value.len().div_ceil(UNIT), now)?;
        self.outside.extend(&units);
        for (unit, piece) in units.iter().zip(value.chunks(UNIT)) {
            let address = self.arena().at(u64::from(*unit) << UNIT_SHIFT, piece.len());
            // SAFETY: the unit was just taken: nobody else knows it, and it has room for a piece of at most a unit.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), address, piece.len()) };
        }
        let written = self.append_stub(key, value.len(), &units, attributes, origin, now);
        if written.is_err() {
            self.free_outside(units);
        }
        written
    }

    /// Takes units for a value outside of the log, which are the caller's.
    fn take_units(&mut self, count: usize, now: UnixMs) -> Result<Vec<u32>, Refused> {
        self.evictions.forget_freed();
        let mut units: Vec<u32> = Vec::with_capacity(count);
        while units.len() < count {
            let Some(run) = self.take_unit(now) else {
                units.into_iter().for_each(|start| self.put_unit(start));
                return Err(Refused::Memory);
            };
            units.push(run.start);
        }
        Ok(units)
    }

    /// Takes units for a value that is being written without the lock. They are the caller's until
    /// [`Self::end_reservation`], whatever is removed meanwhile.
    pub(crate) fn reserve_units(&mut self, count: usize, now: UnixMs) -> Result<Vec<u32>, Refused> {
        let units = self.take_units(count, now)?;
        self.reserved_units += count as u64;
        Ok(units)
    }

    /// Makes the reserved value the key's. On failure it is reserved as before.
    pub(crate) fn end_reservation(
        &mut self,
        key: &Key<'_>,
        value_bytes: usize,
        units: &[u32],
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<(), Refused> {
        // An expired item must not pass for the key's old one.
        let _ = self.peek(key, now);
        // Before it is written: it may be evicted at once.
        self.outside.extend(units);
        self.reserved_units -= units.len() as u64;
        let written = self.append_stub(key, value_bytes, units, attributes, Origin::Client, now);
        if written.is_err() {
            for unit in units {
                self.outside.remove(unit);
            }
            self.reserved_units += units.len() as u64;
        }
        written
    }

    /// Puts back the reserved units.
    pub(crate) fn drop_reservation(&mut self, units: Vec<u32>) {
        self.reserved_units -= units.len() as u64;
        units.into_iter().for_each(|start| self.put_unit(start));
    }

    /// Makes a value in units of its own the key's. On failure the units are still the caller's.
    fn append_stub(
        &mut self,
        key: &Key<'_>,
        value_bytes: usize,
        units: &[u32],
        attributes: Attributes,
        origin: Origin,
        now: UnixMs,
    ) -> Result<(), Refused> {
        let numbers = std::iter::once(value_bytes as u32).chain(units.iter().copied());
        let stub: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        let accessed = second_of(now);
        let draft = Draft {
            db: key.db,
            key: key.bytes,
            value: &stub,
            is_stub: true,
            attributes,
            accessed,
        };
        self.append(key, self.find(key), &draft, origin, now)
    }

    /// One unit, for which items are evicted if it must be.
    fn take_unit(&mut self, now: UnixMs) -> Option<Run> {
        loop {
            if let Some(run) = self.take_run(0) {
                return Some(run);
            }
            if !self.evict_for_units(now) {
                return None;
            }
        }
    }

    /// Puts the units of a value back, now or when the last reply that is being sent from them ends.
    pub(super) fn free_outside(&mut self, units: Vec<u32>) {
        let Some(first) = units.first() else { return };
        if let Some(pinned) = self.outside_pins.get_mut(first) {
            pinned.doomed = true;
            return;
        }
        for start in units {
            self.outside.remove(&start);
            self.put_unit(start);
        }
    }

    pub(super) fn put_unit(&mut self, start: u32) {
        self.put_run(Run {
            start,
            order: 0,
            clean: false,
        });
    }
}
