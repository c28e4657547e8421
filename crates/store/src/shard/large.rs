//! Values that are too large for a segment: they lie outside of the log, in whole units, which a stub item lists.
//!
//! ```text
//! stub's value:  length of the real value (u32)  number of each unit (u32) ...      little-endian
//! ```
//!
//! Invariant: the units of a stub belong to it alone, and are put back when it dies and not when it moves.

use tidemark_types::{UNIT_BYTES, UnixMs};

use super::write::Origin;
use super::{Key, Refused, Shard, second_of};
use crate::arena::{Arena, UNIT_SHIFT};
use crate::item::{Attributes, Draft, Item};
use crate::pool::Run;
use crate::segment::SegmentId;

const LENGTH_BYTES: usize = 4;
const NUMBER_BYTES: usize = 4;
const UNIT: usize = UNIT_BYTES as usize;

/// A value in the cache, in one piece or in several.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// The value lies in a segment.
    Whole(&'a [u8]),
    /// The value lies in units of its own.
    Pieces(Pieces<'a>),
}

/// A value in units of its own.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    arena: &'a Arena,
    stub: &'a [u8],
}

impl<'a> Value<'a> {
    #[inline]
    pub(super) fn of(item: Item<'a>, arena: &'a Arena) -> Self {
        if item.is_stub() {
            Self::Pieces(Pieces {
                arena,
                stub: item.value(),
            })
        } else {
            Self::Whole(item.value())
        }
    }

    /// Length in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "nothing asks whether a value is empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(value) => value.len(),
            Self::Pieces(pieces) => pieces.len(),
        }
    }

    /// The value's parts in order: one, or of a value in units of its own one for each.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (whole, pieces) = match *self {
            Self::Whole(value) => (Some(value), None),
            Self::Pieces(pieces) => (None, Some(pieces.parts())),
        };
        whole.into_iter().chain(pieces.into_iter().flatten())
    }

    /// Appends the bytes `from..to`, as far as they exist.
    #[inline]
    pub fn append_range(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        match self {
            Self::Whole(value) => {
                let from = from.min(value.len());
                out.extend_from_slice(&value[from..to.clamp(from, value.len())]);
            }
            Self::Pieces(pieces) => pieces.append_range(from, to, out),
        }
    }

    /// Appends the whole value.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Whole(value) => out.extend_from_slice(value),
            Self::Pieces(pieces) => pieces.append_range(0, pieces.len(), out),
        }
    }

    /// The whole value, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        self.append_to(&mut copy);
        copy
    }
}

impl<'a> Pieces<'a> {
    fn len(&self) -> usize {
        number(self.stub, 0) as usize
    }

    /// The number of the first unit: the value is known by it.
    pub(super) fn first_unit(&self) -> Option<u32> {
        (self.stub.len() > LENGTH_BYTES).then(|| number(self.stub, LENGTH_BYTES))
    }

    /// The value's parts in order: whole units, the last one as far as it is used.
    pub(super) fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self { arena, stub } = *self;
        let length = self.len();
        (0..length.div_ceil(UNIT)).map(move |i| {
            let unit = number(stub, LENGTH_BYTES + i * NUMBER_BYTES);
            let bytes = UNIT.min(length - i * UNIT);
            let address = arena.at(u64::from(unit) << UNIT_SHIFT, bytes);
            // SAFETY: the unit belongs to the live stub that lists it (invariant), and was written up to the value's
            // length. It is not freed while the shard, and with it the stub, is borrowed for 'a.
            unsafe { std::slice::from_raw_parts(address, bytes) }
        })
    }

    fn append_range(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        let to = to.min(self.len());
        out.reserve(to.saturating_sub(from));
        for (part, at) in self.parts().zip((0..).step_by(UNIT)) {
            let (begin, end) = (from.max(at), to.min(at + part.len()));
            if begin < end {
                out.extend_from_slice(&part[begin - at..end - at]);
            }
        }
    }
}

impl Draft<'_> {
    /// The length of the value, wherever it lies.
    pub(super) fn value_bytes(&self) -> usize {
        if self.is_stub {
            number(self.value, 0) as usize
        } else {
            self.value.len()
        }
    }
}

impl Item<'_> {
    /// Units outside of the log that belong to the item.
    pub(super) fn outside_count(&self) -> u32 {
        if self.is_stub() {
            ((self.value().len() - LENGTH_BYTES) / NUMBER_BYTES) as u32
        } else {
            0
        }
    }

    /// Their numbers; no allocation for an item without any.
    pub(super) fn outside(&self) -> Vec<u32> {
        let value = self.value();
        (0..self.outside_count() as usize)
            .map(|i| number(value, LENGTH_BYTES + i * NUMBER_BYTES))
            .collect()
    }
}

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

    /// Counts a stub's units to another segment, or to none.
    pub(super) fn move_outside(&mut self, from: SegmentId, units: u32, to: Option<SegmentId>) {
        if units == 0 {
            return;
        }
        self.add_outside(from, -i64::from(units));
        if let Some(to) = to {
            self.add_outside(to, i64::from(units));
        }
    }

    pub(super) fn add_outside(&mut self, segment: SegmentId, units: i64) {
        let segment = &mut self.segments[segment];
        segment.outside_units = segment.outside_units.saturating_add_signed(units as i32);
        let queue = segment.queue;
        let held = self.queue_units_mut(queue);
        *held = held.saturating_add_signed(units);
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; NUMBER_BYTES];
    number.copy_from_slice(&bytes[at..at + NUMBER_BYTES]);
    u32::from_le_bytes(number)
}
