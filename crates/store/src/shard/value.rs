//! A value as readers see it, and the stub of one that lies outside of the log.
//!
//! ```text
//! stub's value:  length of the real value (u32)  number of each unit (u32) ...      little-endian
//! ```

use tidemark_types::UNIT_BYTES;

use crate::arena::{Arena, UNIT_SHIFT};
use crate::item::{Draft, Item};

const LENGTH_BYTES: usize = 4;
const NUMBER_BYTES: usize = 4;
/// The bytes of a value's parts but for its last one.
pub(super) const UNIT: usize = UNIT_BYTES as usize;

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
            // SAFETY: the unit belongs to the live stub that lists it (invariant of `large`), and was written up to the value's
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

fn number(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; NUMBER_BYTES];
    number.copy_from_slice(&bytes[at..at + NUMBER_BYTES]);
    u32::from_le_bytes(number)
}
