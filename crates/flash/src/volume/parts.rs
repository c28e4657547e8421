//! The parts of a volume, its input and its output.

use std::sync::Arc;

use super::{Outcome, TenantNumber};
use crate::buffer::Buffer;
use crate::format::{FooterEntry, Record, SegmentHeader};
use crate::journal::Barrier;

/// An item as it comes from flash and goes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The database of the tenant.
    pub db: u8,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// memcached's client flags.
    pub client_flags: u32,
    /// When it expires, in milliseconds since 1970; 0 if it does not.
    pub expires_ms: u64,
    /// The CAS token.
    pub token: u64,
}

/// An item that goes to flash, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Borrowed<'a> {
    /// The database of the tenant.
    pub db: u8,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// memcached's client flags.
    pub client_flags: u32,
    /// When it expires, in milliseconds since 1970; 0 if it does not.
    pub expires_ms: u64,
    /// The CAS token; 0 for none.
    pub token: u64,
}

/// An item that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The item.
    pub item: Item,
    /// Its place: for [`Volume::remove`] and [`Volume::promote`].
    pub place: Place,
}

/// The place of a record, as long as it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(crate) unit: u64,
    pub(super) sequence: u64,
}

/// The outcome of a lookup.
#[derive(Debug)]
pub enum Lookup {
    /// It is not on flash.
    Absent,
    /// It is, and still in memory.
    Found(Found),
    /// It may be: these bytes say it.
    Read(Read),
}

/// A read that decides about a lookup.
#[derive(Clone, Debug)]
pub struct Read {
    pub(super) tenant: TenantNumber,
    pub(super) hash: u64,
    pub(super) db: u8,
    pub(super) key: Vec<u8>,
    pub(super) place: Place,
    /// Places that were looked at in vain.
    pub(super) tried: Vec<u64>,
    /// The offset to read at on the device.
    pub offset: u64,
    /// How many bytes.
    pub bytes: usize,
}

impl Read {
    /// The hash that is looked for.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// Why an item is not taken. It stays absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Key or value are longer than records may be.
    #[error("too long for flash")]
    TooLong,
    /// The tenant wrote as much as it may for now.
    #[error("the write budget is spent")]
    Budget,
    /// No segment is free; there will be one once a reclaim has ended.
    #[error("no free segment")]
    NoRoom,
    /// The tenant has no flash, or the device was given up.
    #[error("no flash")]
    NoFlash,
}

/// A place for a segment.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: State,
    pub(crate) tenant: TenantNumber,
    /// The sequence of the segment that is or was last in it.
    pub(crate) sequence: u64,
    /// The sequence of the segment that may still be on the device below the present one.
    pub(crate) previous: Option<u64>,
    /// Bytes of records that are alive.
    pub(crate) live_bytes: u32,
    /// Records that the journal says are dead.
    pub(crate) kills: u32,
    /// It is gone, and its tenant's index may still have entries of it: they count for nothing, and it is not used again before
    /// they are out.
    pub(crate) is_unswept: bool,
    /// The number of its segment, in the order in which they were opened; zero for those of an earlier run.
    pub(crate) opened: u32,
}

/// The content of a slot.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing of use.
    Free,
    /// A segment that is being filled, in memory.
    Open,
    /// One that is being written; so many writes are still under way.
    Writing {
        left: u8,
        outcome: Outcome,
        bytes: Arc<Buffer>,
    },
    /// One that is on the device.
    Sealed,
    /// One that is read in order to be freed; what was used so often is kept.
    Reclaiming { uses_min: u8 },
    /// Nothing of use, until the journal says so durably.
    Freeing(Barrier),
    /// The device failed there.
    Quarantined,
}

/// A segment that is being filled.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) slot: u32,
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: Buffer,
    pub(crate) used: usize,
    pub(crate) entries: Vec<FooterEntry>,
    /// Bytes in it that were copied from older segments.
    pub(crate) reinserted: usize,
}

impl Slot {
    /// Whether the index's entries of it count.
    pub(crate) fn has_entries(&self) -> bool {
        !self.is_unswept && !matches!(self.state, State::Free | State::Freeing(_) | State::Quarantined)
    }
}

impl<'a> Borrowed<'a> {
    pub(crate) fn record(&self, sequence: u64) -> Record<'a> {
        Record {
            db: self.db,
            key: self.key,
            value: self.value,
            client_flags: self.client_flags,
            expires_ms: self.expires_ms,
            token: self.token,
            sequence,
        }
    }
}

impl Item {
    /// The same, borrowed.
    pub fn borrowed(&self) -> Borrowed<'_> {
        Borrowed {
            db: self.db,
            key: &self.key,
            value: &self.value,
            client_flags: self.client_flags,
            expires_ms: self.expires_ms,
            token: self.token,
        }
    }

    pub(crate) fn record(&self, sequence: u64) -> Record<'_> {
        Record {
            db: self.db,
            key: &self.key,
            value: &self.value,
            client_flags: self.client_flags,
            expires_ms: self.expires_ms,
            token: self.token,
            sequence,
        }
    }
}

pub(super) fn own(record: &Record<'_>) -> (Item, u64) {
    let item = Item {
        db: record.db,
        key: record.key.to_vec(),
        value: record.value.to_vec(),
        client_flags: record.client_flags,
        expires_ms: record.expires_ms,
        token: record.token,
    };
    (item, record.sequence)
}
