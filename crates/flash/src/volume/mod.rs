//! A volume: all that is decided about a device, without touching it.
//!
//! Calls change the state and leave [`Io`] requests; the owner of the device takes them ([`Volume::next_io`]), and says
//! how each ended ([`Volume::io_done`]). Reads of a client are its own: [`Volume::lookup`] says which bytes to read,
//! and [`Volume::finish`] judges them. So the same code runs over threads, over io_uring, and over a simulated device.
//!
//! Invariants: an index entry's record lies in a segment that is open, being written, sealed or about to be freed. An
//! entry leaves the index only with a record's death in the journal, or with its whole segment's. A slot is used again
//! only when the journal has made its freeing durable.

mod complete;
mod parts;
mod reclaim;
mod sweep;
mod tenant;
mod walk;

use std::collections::{HashMap, VecDeque};

use crate::buffer::Buffer;
use crate::format::{
    BLOCK_BYTES, Entry, FooterEntry, HEADER_BYTES, KEY_BYTES_MAX, Record, SEGMENT_BYTES, SegmentHeader, Superblock,
    TenantUuid, UNIT_BYTES, VALUE_BYTES_MAX, decode_record, encode_record, footer_bytes,
};
use crate::index::IndexEntry;
use crate::journal::{Barrier, Journal};

pub use complete::{Io, IoKind};
use parts::own;
pub use parts::{Borrowed, Found, Item, Lookup, Place, Read, Refused};
pub(crate) use parts::{Open, Slot, State};
pub(crate) use reclaim::Outcome;
pub(crate) use tenant::Tenant;
pub use tenant::{Settings, Staleness, Stats, TenantNumber};
pub use walk::{Listing, MARK_BITS, Next, RECORD_BITS, SLOT_BITS, SegmentRead};

/// Blocks before the journal: two copies of the superblock.
pub(crate) const SUPERBLOCKS: u64 = 2;
/// Free segments that are kept ready, so that a write need not wait for a reclaim.
const READY_SEGMENTS: usize = 2;
/// Errors within [`ERROR_INTERVAL_MS`] after which a device may be given up, and the share of all requests that they must be.
const ERRORS_MIN: u64 = 8;
const ERRORS_DIVISOR: u64 = 100;
/// The interval over which errors are counted.
const ERROR_INTERVAL_MS: u64 = 10_000;

/// A device's contents.
#[derive(Debug)]
pub struct Volume {
    pub(crate) superblock: Superblock,
    pub(crate) slots: Vec<Slot>,
    pub(crate) free: VecDeque<u32>,
    pub(crate) tenants: Vec<Option<Tenant>>,
    pub(crate) journal: Journal,
    /// Orders records and segments.
    pub(crate) next_sequence: u64,
    /// Numbers segments as they are opened.
    next_opened: u32,
    pub(crate) requests: VecDeque<Io>,
    pub(crate) under_way: HashMap<u64, complete::UnderWay>,
    pub(crate) next_io: u64,
    /// Writes of the journal's commit that are under way.
    pub(crate) commit_writes: usize,
    /// Segments that are written and not flushed, and those that the flush under way covers.
    pub(crate) unflushed: Vec<(u32, u64)>,
    pub(crate) flushing: Vec<(u32, u64)>,
    /// Deaths of single records, of all segments that are not freed.
    pub(crate) deaths: u64,
    /// Slots that are free once the journal says so durably.
    pub(crate) freeing: Vec<u32>,
    pub(crate) is_given_up: bool,
    errors: u64,
    ios: u64,
    errors_since_ms: u64,
}

impl Volume {
    pub(crate) fn with(superblock: Superblock, slots: Vec<Slot>, journal: Journal, next_sequence: u64) -> Self {
        let free = |(number, slot): (u32, &Slot)| matches!(slot.state, State::Free).then_some(number);
        Self {
            superblock,
            free: (0..).zip(&slots).filter_map(free).collect(),
            slots,
            tenants: Vec::new(),
            journal,
            next_sequence,
            next_opened: 1,
            requests: VecDeque::new(),
            under_way: HashMap::new(),
            next_io: 0,
            commit_writes: 0,
            unflushed: Vec::new(),
            flushing: Vec::new(),
            deaths: 0,
            freeing: Vec::new(),
            is_given_up: false,
            errors: 0,
            ios: 0,
            errors_since_ms: 0,
        }
    }

    /// The seed of the hash that keys must be looked up with.
    pub fn hash_seed(&self) -> u64 {
        self.superblock.hash_seed
    }

    /// Segments of the device.
    pub fn segments(&self) -> usize {
        self.slots.len()
    }

    /// Whether the device failed too often: nothing is found on it or written to it any more.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Whether the entries before this barrier survive a crash.
    pub fn is_durable(&self, barrier: Barrier) -> bool {
        self.journal.is_durable(barrier)
    }

    /// Looks for a key; the hash is that of key and database by [`Self::hash_seed`].
    pub fn lookup(&mut self, tenant: TenantNumber, hash: u64, db: u8, key: &[u8], now_ms: u64) -> Lookup {
        self.look_on(tenant, hash, db, key.to_vec(), Vec::new(), now_ms)
    }

    /// Goes on with a lookup when its bytes were read, or could not be.
    pub fn finish(&mut self, read: Read, bytes: Result<&[u8], ()>, now_ms: u64) -> Lookup {
        self.count_io(bytes.is_ok(), now_ms);
        let Read {
            tenant,
            hash,
            db,
            key,
            place,
            mut tried,
            offset,
            ..
        } = read;
        if !self.lies_at(tenant, hash, place) {
            // It was moved or has gone meanwhile: the lookup begins anew, and the place may hold another record now.
            return self.look_on(tenant, hash, db, key, Vec::new(), now_ms);
        }
        tried.push(place.unit);
        let slot = self.slot_of(place.unit);
        let skip = (place.unit * UNIT_BYTES as u64 - offset) as usize;
        let identity = self.identity(slot);
        let record = bytes
            .ok()
            .and_then(|bytes| bytes.get(skip..))
            .and_then(|bytes| decode_record(bytes, &identity));
        match record {
            None => {
                self.count_io(false, now_ms);
                self.quarantine(slot, now_ms);
            }
            Some(record) => {
                if let Some(found) = self.judge(tenant, hash, db, &key, place, &record, now_ms) {
                    return Lookup::Found(found);
                }
            }
        }
        self.look_on(tenant, hash, db, key, tried, now_ms)
    }

    fn look_on(
        &mut self,
        number: TenantNumber,
        hash: u64,
        db: u8,
        key: Vec<u8>,
        mut tried: Vec<u64>,
        now_ms: u64,
    ) -> Lookup {
        loop {
            let Some(tenant) = self.tenant(number).filter(|_| !self.is_given_up) else {
                return Lookup::Absent;
            };
            let is_new = |entry: &IndexEntry| self.counts(*entry) && !tried.contains(&entry.place());
            let Some(entry) = tenant.matches(hash).find(is_new) else {
                return Lookup::Absent;
            };
            let slot = self.slot_of(entry.place());
            let place = Place {
                unit: entry.place(),
                sequence: self.slots[slot as usize].sequence,
            };
            let at = self.at_in_segment(place.unit);
            let identity = self.identity(slot);
            let in_memory = match &self.slots[slot as usize].state {
                State::Open => self
                    .tenant(number)
                    .and_then(|tenant| tenant.open.as_ref())
                    .map(|open| open.bytes.as_ref()),
                State::Writing { bytes, .. } => Some((**bytes).as_ref()),
                _ => None,
            };
            let Some(segment) = in_memory else {
                let offset = place.unit * UNIT_BYTES as u64;
                let first = offset - offset % BLOCK_BYTES as u64;
                let end =
                    (offset + (entry.units() * UNIT_BYTES) as u64).min(self.slot_offset(slot) + SEGMENT_BYTES as u64);
                return Lookup::Read(Read {
                    tenant: number,
                    hash,
                    db,
                    key,
                    place,
                    tried,
                    offset: first,
                    bytes: ((end - first) as usize).next_multiple_of(BLOCK_BYTES),
                });
            };
            let found = decode_record(&segment[at..], &identity).map(|record| own(&record));
            tried.push(place.unit);
            if let Some((item, sequence)) = found
                && let Some(found) = self.judge(number, hash, db, &key, place, &item.record(sequence), now_ms)
            {
                return Lookup::Found(found);
            }
        }
    }

    /// Whether an intact record is the wanted one; one that is over leaves the index.
    #[expect(clippy::too_many_arguments, reason = "a lookup's parts, and nothing else")]
    fn judge(
        &mut self,
        number: TenantNumber,
        hash: u64,
        db: u8,
        key: &[u8],
        place: Place,
        record: &Record<'_>,
        now_ms: u64,
    ) -> Option<Found> {
        if record.key != key || record.db != db {
            return None;
        }
        let tenant = self.tenant_mut(number)?;
        let is_over =
            record.sequence < tenant.flushed_before(db) || (record.expires_ms != 0 && record.expires_ms <= now_ms);
        if is_over {
            self.kill(number, hash, place.unit, now_ms);
            return None;
        }
        tenant.note_use(hash, place.unit);
        tenant.stats.hits += 1;
        Some(Found {
            item: own(record).0,
            place,
        })
    }

    /// Takes an item in. Older contents of its key go.
    ///
    /// # Errors
    /// See [`Refused`]; older contents have gone then, too.
    pub fn put(&mut self, number: TenantNumber, hash: u64, item: &Item, now_ms: u64) -> Result<(), Refused> {
        self.put_borrowed(number, hash, &item.borrowed(), true, now_ms)
    }

    /// Takes an item in that memory evicts. If memory's copy is the same as the one here, nothing is written. `is_used`
    /// says that it is known to be of use, which counts if the write budget is short.
    ///
    /// # Errors
    /// The errors of [`Self::put`].
    pub fn demote(
        &mut self,
        number: TenantNumber,
        hash: u64,
        item: &Borrowed<'_>,
        is_used: bool,
        now_ms: u64,
    ) -> Result<(), Refused> {
        let shadow = self.tenant(number).and_then(|tenant| {
            tenant
                .matches(hash)
                .find(|entry| entry.is_shadow() && self.counts(*entry))
        });
        match shadow {
            Some(entry) => {
                self.tenant_mut(number)
                    .and_then(|tenant| tenant.set_shadow(hash, entry.place(), false));
                Ok(())
            }
            None => self.put_borrowed(number, hash, item, is_used, now_ms),
        }
    }

    fn put_borrowed(
        &mut self,
        number: TenantNumber,
        hash: u64,
        item: &Borrowed<'_>,
        is_used: bool,
        now_ms: u64,
    ) -> Result<(), Refused> {
        self.drop_unread(number, hash, now_ms);
        if item.key.len() > KEY_BYTES_MAX || item.value.len() > VALUE_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        // On a device that was left clean nothing is written any more.
        let is_over = self.is_given_up || self.superblock.is_clean;
        let sequence = self.next_sequence;
        let record = item.record(sequence);
        let tenant = self
            .tenant_mut(number)
            .filter(|tenant| tenant.grant > 0 && !is_over)
            .ok_or(Refused::NoFlash)?;
        if !tenant.budget.takes(record.bytes() as u64, is_used, now_ms) {
            tenant.stats.refused_budget += 1;
            return Err(Refused::Budget);
        }
        self.next_sequence += 1;
        if let Err(refused) = self.append(number, hash, &record, now_ms) {
            if let Some(tenant) = self.tenant_mut(number) {
                tenant.stats.refused_room += 1;
            }
            return Err(refused);
        }
        if let Some(tenant) = self.tenant_mut(number) {
            tenant.stats.demoted += 1;
        }
        Ok(())
    }

    /// Removes the item that a lookup found. The barrier says when that survives a crash; it is at once in force.
    pub fn remove(&mut self, number: TenantNumber, hash: u64, place: Place, now_ms: u64) -> Barrier {
        if self.lies_at(number, hash, place) {
            self.kill(number, hash, place.unit, now_ms);
        }
        self.barrier(number)
    }

    /// Removes whatever may be of this key without looking: for a write that replaces it whatever it was.
    pub fn drop_unread(&mut self, number: TenantNumber, hash: u64, now_ms: u64) -> Barrier {
        let places: Vec<u64> = self.tenant(number).map_or(Vec::new(), |tenant| {
            let counting = tenant.matches(hash).filter(|entry| self.counts(*entry));
            counting.map(IndexEntry::place).collect()
        });
        for place in places {
            self.kill(number, hash, place, now_ms);
        }
        self.barrier(number)
    }

    /// All items of a database, or of all databases, are gone. The barrier must be waited for, whatever the staleness.
    pub fn flush(&mut self, number: TenantNumber, db: Option<u8>, now_ms: u64) -> Barrier {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let Some(tenant) = self.tenant_mut(number) else {
            return Barrier::default();
        };
        tenant.note_flush(db, sequence);
        let entry = Entry::Flush {
            tenant: tenant.uuid.short(),
            db: db.unwrap_or(u8::MAX),
            sequence,
        };
        let barrier = self.journal.append(entry, now_ms);
        self.note_barrier(number, barrier);
        match db {
            None => self.discard(number, 0, now_ms),
            Some(db) => {
                if let Some(tenant) = self.tenant_mut(number) {
                    tenant.retain(|entry| entry.db() != usize::from(db));
                }
            }
        }
        barrier
    }

    /// Memory holds the item of this place, too; its bytes here are given up first. `false`: it is not there any more.
    pub fn promote(&mut self, number: TenantNumber, hash: u64, place: Place) -> bool {
        self.shadow(number, hash, place, true)
    }

    /// Memory evicted its unchanged copy: the one here is the only one again. `false`: there is none any more, and the item
    /// has to be written anew to be kept.
    pub fn demote_clean(&mut self, number: TenantNumber, hash: u64, place: Place) -> bool {
        self.shadow(number, hash, place, false)
    }

    fn shadow(&mut self, number: TenantNumber, hash: u64, place: Place, is_shadow: bool) -> bool {
        if !self.lies_at(number, hash, place) {
            return false;
        }
        self.tenant_mut(number)
            .and_then(|tenant| tenant.set_shadow(hash, place.unit, is_shadow))
            .is_some()
    }

    /// The last thing of this tenant that the journal must have: a strict write waits for it.
    pub fn barrier(&self, number: TenantNumber) -> Barrier {
        self.tenant(number).map_or(Barrier::default(), |tenant| tenant.barrier)
    }

    fn note_barrier(&mut self, number: TenantNumber, barrier: Barrier) {
        if let Some(tenant) = self.tenant_mut(number) {
            tenant.barrier = barrier;
        }
    }

    /// Takes an entry out of the index, and its record's death into the journal.
    fn kill(&mut self, number: TenantNumber, hash: u64, unit: u64, now_ms: u64) {
        let Some(entry) = self.tenant_mut(number).and_then(|tenant| tenant.take(hash, unit)) else {
            return;
        };
        self.bury(number, entry, now_ms);
        self.retire_if_dead(self.slot_of(entry.place()), now_ms);
    }

    /// The death of the record of an entry that is out of the index.
    pub(crate) fn bury(&mut self, number: TenantNumber, entry: IndexEntry, now_ms: u64) {
        let number_of_slot = self.slot_of(entry.place());
        let at = self.at_in_segment(entry.place()) / UNIT_BYTES;
        let slot = &mut self.slots[number_of_slot as usize];
        if !slot.has_entries() {
            return;
        }
        slot.live_bytes = slot.live_bytes.saturating_sub((entry.units() * UNIT_BYTES) as u32);
        slot.kills += 1;
        self.deaths += 1;
        let death = Entry::Kill {
            slot: number_of_slot,
            at: at as u16,
            sequence: slot.sequence,
        };
        let barrier = self.journal.append(death, now_ms);
        self.note_barrier(number, barrier);
    }

    /// Writes a record to the tenant's open segment and enters it in the index.
    pub(crate) fn append(
        &mut self,
        number: TenantNumber,
        hash: u64,
        record: &Record<'_>,
        now_ms: u64,
    ) -> Result<(), Refused> {
        let bytes = record.bytes();
        let is_full = |open: &Open| open.used + bytes + footer_bytes(open.entries.len() + 1) > SEGMENT_BYTES;
        if self
            .tenant(number)
            .and_then(|tenant| tenant.open.as_ref())
            .is_some_and(is_full)
        {
            self.seal(number);
        }
        if self.tenant(number).is_some_and(|tenant| tenant.open.is_none()) {
            self.open_segment(number)?;
        }
        let volume = self.superblock.uuid;
        let data_unit = self.data_offset() / UNIT_BYTES as u64;
        let tenant = self.tenant_mut(number).ok_or(Refused::NoFlash)?;
        let open = tenant.open.as_mut().ok_or(Refused::NoRoom)?;
        let identity = open.header.identity(&volume);
        let at = open.used;
        encode_record(record, &identity, &mut open.bytes.as_mut()[at..at + bytes]);
        open.entries.push(FooterEntry {
            hash,
            sequence: record.sequence,
            at: (at / UNIT_BYTES) as u16,
            units: (bytes / UNIT_BYTES) as u16,
            db: record.db,
        });
        open.used += bytes;
        let slot = open.slot;
        let unit = data_unit + (u64::from(slot) * SEGMENT_BYTES as u64 + at as u64) / UNIT_BYTES as u64;
        let entry = IndexEntry::new(unit, hash, bytes / UNIT_BYTES, record.db);
        let homeless = tenant.enter(hash, entry, bytes);
        self.slots[slot as usize].live_bytes += (entry.units() * UNIT_BYTES) as u32;
        for entry in homeless {
            self.bury(number, entry, now_ms);
            self.retire_if_dead(self.slot_of(entry.place()), now_ms);
        }
        Ok(())
    }

    /// Gives the tenant a segment to fill, and sees to it that there will be another one.
    fn open_segment(&mut self, number: TenantNumber) -> Result<(), Refused> {
        self.make_room(number);
        let may_have = self
            .tenant(number)
            .is_some_and(|tenant| tenant.segments() < tenant.grant);
        if !may_have {
            return Err(Refused::NoRoom);
        }
        let slot = self.free.pop_front().ok_or(Refused::NoRoom)?;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let opened = self.take_opened();
        let volume = self.superblock.uuid;
        let Some(tenant) = self.tenant_mut(number) else {
            return Err(Refused::NoFlash);
        };
        let header = SegmentHeader {
            tenant: tenant.uuid,
            sequence,
        };
        let mut bytes = Buffer::zeroed(SEGMENT_BYTES);
        header.encode(&volume, bytes.as_mut());
        tenant.open = Some(Open {
            slot,
            header,
            bytes,
            used: HEADER_BYTES,
            entries: Vec::new(),
            reinserted: 0,
        });
        let place = &mut self.slots[slot as usize];
        *place = Slot {
            state: State::Open,
            tenant: number,
            sequence,
            previous: Some(place.sequence),
            live_bytes: 0,
            kills: 0,
            is_unswept: false,
            opened,
        };
        Ok(())
    }

    fn lies_at(&self, number: TenantNumber, hash: u64, place: Place) -> bool {
        let slot = self.slot_of(place.unit);
        self.slots[slot as usize].sequence == place.sequence
            && self.slots[slot as usize].has_entries()
            && self
                .tenant(number)
                .is_some_and(|tenant| tenant.matches(hash).any(|entry| entry.place() == place.unit))
    }

    pub(crate) fn identity(&self, slot: u32) -> [u8; 40] {
        let slot = &self.slots[slot as usize];
        let tenant = self
            .tenant(slot.tenant)
            .map_or(TenantUuid([0; 16]), |tenant| tenant.uuid);
        SegmentHeader {
            tenant,
            sequence: slot.sequence,
        }
        .identity(&self.superblock.uuid)
    }

    /// The offset of the first segment.
    pub(crate) fn data_offset(&self) -> u64 {
        data_offset(self.superblock.journal_blocks)
    }

    pub(crate) fn slot_offset(&self, slot: u32) -> u64 {
        self.data_offset() + u64::from(slot) * SEGMENT_BYTES as u64
    }

    pub(crate) fn slot_of(&self, unit: u64) -> u32 {
        ((unit * UNIT_BYTES as u64 - self.data_offset()) / SEGMENT_BYTES as u64) as u32
    }

    fn at_in_segment(&self, unit: u64) -> usize {
        ((unit * UNIT_BYTES as u64 - self.data_offset()) % SEGMENT_BYTES as u64) as usize
    }

    /// Counts a request to the device, and gives the device up when too many fail.
    pub(crate) fn count_io(&mut self, is_ok: bool, now_ms: u64) {
        if now_ms >= self.errors_since_ms + ERROR_INTERVAL_MS {
            (self.errors, self.ios, self.errors_since_ms) = (0, 0, now_ms);
        }
        self.ios += 1;
        self.errors += u64::from(!is_ok);
        if self.errors >= ERRORS_MIN && self.errors * ERRORS_DIVISOR > self.ios {
            self.is_given_up = true;
        }
    }
}

/// The offset of segments on a device with so many blocks of journal: a multiple of their size.
pub(crate) fn data_offset(journal_blocks: u32) -> u64 {
    ((SUPERBLOCKS + u64::from(journal_blocks)) * BLOCK_BYTES as u64).next_multiple_of(SEGMENT_BYTES as u64)
}
