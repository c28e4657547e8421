//! Walks over a tenant's keys: by segments, whose footers name the records, and by the records, which have the keys.
//!
//! A walk has no state here: it names a slot, and an entry of the footer there. Records that are put in meanwhile are in
//! segments that were opened after the walk's mark: a second walk over those finds what the first one has passed by.
//! Invariant: a key is shown only if its record is intact, and the index has it.

use std::ops::Range;
use std::sync::Arc;

use super::{Outcome, State, TenantNumber, Volume};
use crate::buffer::Buffer;
use crate::format::{FooterEntry, SEGMENT_BYTES, SegmentHeader, UNIT_BYTES, decode_footer, decode_record};

/// Bits of a mark: so many segments may be opened during a walk, over all tenants, before newer ones are taken for older ones.
pub const MARK_BITS: u32 = 17;
/// The number of a slot has so many bits at most.
pub const SLOT_BITS: u32 = 20;
/// The number of a record in its segment has so many.
pub const RECORD_BITS: u32 = 14;

/// The next segment of a walk.
#[derive(Debug)]
pub enum Next {
    /// There is none any more.
    End,
    /// It has to be read.
    Read(SegmentRead),
    /// It is in memory.
    Here(Listing),
}

/// A segment to read, whole.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRead {
    tenant: TenantNumber,
    slot: u32,
    header: SegmentHeader,
    volume: [u8; 16],
    /// The offset to read at on the device.
    pub offset: u64,
}

/// The records of a segment.
#[derive(Debug)]
pub struct Listing {
    tenant: TenantNumber,
    slot: u32,
    header: SegmentHeader,
    identity: [u8; 40],
    entries: Vec<FooterEntry>,
    bytes: Arc<Buffer>,
}

impl SegmentRead {
    /// Its slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// How many bytes are read.
    pub fn bytes(&self) -> usize {
        SEGMENT_BYTES
    }
}

impl Listing {
    /// The records in the bytes that were read; `None` if they are not that segment.
    pub fn of(read: &SegmentRead, bytes: Buffer) -> Option<Self> {
        let (header, entries) = decode_footer(bytes.as_ref(), &read.volume)?;
        (header == read.header).then(|| Self {
            tenant: read.tenant,
            slot: read.slot,
            header,
            identity: header.identity(&read.volume),
            entries,
            bytes: Arc::new(bytes),
        })
    }

    /// Its slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Whether it is what this would read.
    pub fn is_of(&self, read: &SegmentRead) -> bool {
        self.slot == read.slot && self.header == read.header
    }

    /// Its records, dead ones included.
    pub fn records(&self) -> usize {
        self.entries.len()
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.as_ref().as_ref().len() + self.entries.capacity() * size_of::<FooterEntry>()
    }

    /// Shows the keys of these records, if they are intact.
    pub(crate) fn show(&self, records: &[usize], now_ms: u64, mut visit: impl FnMut(&[u8])) {
        for record in records {
            let at = usize::from(self.entries[*record].at) * UNIT_BYTES;
            let bytes = (*self.bytes).as_ref().get(at..);
            let record = bytes.and_then(|bytes| decode_record(bytes, &self.identity));
            let is_over = |expires_ms| expires_ms != 0 && expires_ms <= now_ms;
            if let Some(record) = record.filter(|record| !is_over(record.expires_ms)) {
                visit(record.key);
            }
        }
    }
}

impl Volume {
    /// The mark of a walk that begins now, never zero: segments that get records from now on come after it.
    pub fn mark(&self, number: TenantNumber) -> u32 {
        let open = self.tenant(number).and_then(|tenant| tenant.open.as_ref());
        let mark = open.map_or(self.next_opened, |open| self.slots[open.slot as usize].opened);
        mark & ((1 << MARK_BITS) - 1)
    }

    /// The first of a tenant's segments at this slot or behind it, of all or of those that come after a mark.
    pub fn segment_from(&self, number: TenantNumber, slot: u32, since: Option<u32>) -> Next {
        let Some(tenant) = self.tenant(number).filter(|_| !self.is_given_up) else {
            return Next::End;
        };
        let is_wanted = |number: &u32| {
            let slot = &self.slots[*number as usize];
            let after = since.map_or(0, |mark| slot.opened.wrapping_sub(mark) & ((1 << MARK_BITS) - 1));
            slot.has_entries() && after < 1 << (MARK_BITS - 1)
        };
        let all = tenant
            .queue
            .iter()
            .copied()
            .chain(tenant.open.as_ref().map(|open| open.slot));
        let Some(number_of_slot) = all.filter(|number| *number >= slot && is_wanted(number)).min() else {
            return Next::End;
        };
        let slot = &self.slots[number_of_slot as usize];
        let header = SegmentHeader {
            tenant: tenant.uuid,
            sequence: slot.sequence,
        };
        let read = SegmentRead {
            tenant: number,
            slot: number_of_slot,
            header,
            volume: self.superblock.uuid,
            offset: self.slot_offset(number_of_slot),
        };
        match (&slot.state, &tenant.open) {
            (State::Open, Some(open)) => Next::Here(Listing {
                tenant: number,
                slot: number_of_slot,
                header,
                identity: header.identity(&self.superblock.uuid),
                entries: open.entries.clone(),
                bytes: Arc::new(Buffer::copied(&open.bytes.as_ref()[..open.used])),
            }),
            (State::Writing { bytes, outcome, .. }, _) if *outcome == Outcome::Good => {
                let footer = decode_footer((**bytes).as_ref(), &self.superblock.uuid);
                Next::Here(Listing {
                    tenant: number,
                    slot: number_of_slot,
                    header,
                    identity: header.identity(&self.superblock.uuid),
                    entries: footer.map_or(Vec::new(), |(_, entries)| entries),
                    bytes: Arc::clone(bytes),
                })
            }
            _ => Next::Read(read),
        }
    }

    /// The records of a part of a listing that are alive in a database.
    pub(crate) fn alive(&self, listing: &Listing, records: Range<usize>, db: u8) -> Vec<usize> {
        let slot = &self.slots[listing.slot as usize];
        let Some(tenant) = self.tenant(listing.tenant) else {
            return Vec::new();
        };
        if slot.sequence != listing.header.sequence || !slot.has_entries() || self.is_given_up {
            return Vec::new();
        }
        let first_unit = self.slot_offset(listing.slot) / UNIT_BYTES as u64;
        let is_alive = |number: &usize| {
            let Some(entry) = listing.entries.get(*number).filter(|entry| entry.db == db) else {
                return false;
            };
            let unit = first_unit + u64::from(entry.at);
            entry.sequence >= tenant.flushed_before(db) && tenant.matches(entry.hash).any(|found| found.place() == unit)
        };
        records.filter(is_alive).collect()
    }

    /// A segment of a walk could not be read.
    pub(crate) fn lose(&mut self, read: &SegmentRead, now_ms: u64) {
        self.count_io(false, now_ms);
        if self.slots[read.slot as usize].sequence == read.header.sequence {
            self.quarantine(read.slot, now_ms);
        }
    }

    /// The number of the segment that is opened now. None is zero in the bits of a mark.
    pub(super) fn take_opened(&mut self) -> u32 {
        let opened = self.next_opened;
        self.next_opened = opened.wrapping_add(1);
        if self.next_opened & ((1 << MARK_BITS) - 1) == 0 {
            self.next_opened += 1;
        }
        opened
    }
}

/// A footer's entries are counted in that many bits, and slots in those.
const _: () = {
    assert!(SEGMENT_BYTES / UNIT_BYTES <= 1 << RECORD_BITS);
    assert!((1_u64 << 34) * UNIT_BYTES as u64 / SEGMENT_BYTES as u64 <= 1 << SLOT_BITS);
};
