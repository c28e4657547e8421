//! A segment of flash that is read whole.

use parking_lot::Mutex;
use tidemark_flash::{Buffer, Listing, SegmentRead};

/// A segment that a walk over the keys on flash waits for.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) read: SegmentRead,
    came: Mutex<Came>,
}

/// The outcome of reading a segment.
#[derive(Debug, Default)]
pub(crate) enum Came {
    /// There is none yet.
    #[default]
    Not,
    Well(Listing),
    /// It could not be read, or is another one by now.
    Badly,
}

impl Came {
    /// The records, if they came.
    pub(crate) fn well(self) -> Option<Listing> {
        match self {
            Self::Well(listing) => Some(listing),
            Self::Not | Self::Badly => None,
        }
    }
}

impl Segment {
    pub(crate) fn new(read: SegmentRead) -> Self {
        Self {
            read,
            came: Mutex::default(),
        }
    }

    /// Takes the bytes that were read, or the failure. Whether they are the segment.
    pub(crate) fn end(&self, bytes: Option<Buffer>) -> bool {
        let listing = bytes.and_then(|bytes| Listing::of(&self.read, bytes));
        let is_good = listing.is_some();
        *self.came.lock() = listing.map_or(Came::Badly, Came::Well);
        is_good
    }

    /// The outcome so far.
    pub(crate) fn take(&self) -> Came {
        std::mem::take(&mut self.came.lock())
    }
}
