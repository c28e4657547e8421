//! A tenant's part of a volume.

use std::collections::VecDeque;

use super::{Open, Volume};
use crate::format::{SEGMENT_BYTES, TenantUuid, UNIT_BYTES};
use crate::index::{DATABASES, IndexEntry, Table};
use crate::journal::Barrier;

/// Tables of a tenant at most: one that became too small or too large is left to empty as its segments go.
const TABLES_MAX: usize = 4;
/// A new table is made for so much more than is known to be needed, in percent.
const TABLE_PERCENT: u64 = 108;
/// A table takes this part of its room, in percent.
const FULL_PERCENT: u64 = 97;

/// The first table is made for so many records: by when it is full, their size is known.
const FIRST_TABLE_RECORDS: u64 = 16 << 10;

/// A tenant's number in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantNumber(pub u32);

/// How stale an item may be after an unclean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// Not at all: deletes and overwrites are acknowledged when they are durable.
    Strict,
    /// A delete or overwrite of the last so many milliseconds may be undone.
    Bounded(u32),
    /// Any that was not written yet may be undone.
    None,
}

/// How a tenant uses flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its identity on the device.
    pub uuid: TenantUuid,
    /// How stale its items may be after an unclean end.
    pub staleness: Staleness,
    /// Segments that it may hold.
    pub grant_segments: usize,
    /// Bytes that it may write a second; 0 for no limit.
    pub write_bytes_per_second: u64,
}

/// The usage and counts of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records in its index.
    pub records: u64,
    /// Flash that its segments may take, in bytes.
    pub grant_bytes: u64,
    /// Flash that its segments take, in bytes.
    pub flash_bytes: u64,
    /// Memory for its index and the segment that is being filled, in bytes.
    pub memory_bytes: u64,
    /// Bytes of records that memory holds, too.
    pub shadow_bytes: u64,
    /// Lookups that found an item.
    pub hits: u64,
    /// Items that were written.
    pub demoted: u64,
    /// Items that were copied to a newer segment when theirs was freed.
    pub reinserted: u64,
    /// Bytes of segments that were written.
    pub written_bytes: u64,
    /// Items that were not written because the write budget was spent.
    pub refused_budget: u64,
    /// Items that were not written because no segment was free yet.
    pub refused_room: u64,
}

/// A second's worth of bytes that may be written.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_per_second: u64,
    left: u64,
    at_ms: u64,
}

/// A look through an index for entries of segments that are gone, in slices.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Segments that are gone, and of which entries may be left.
    pub(super) due: Vec<u32>,
    /// Those of them that the look under way is for.
    pub(super) under_way: Vec<u32>,
    /// How far it is: the table, and the bucket.
    pub(super) at: (usize, usize),
    /// The tables' shape when it began.
    pub(super) shape: (u64, usize, u64),
    /// Looks in a row after which the tables were not what they had been.
    pub(super) spoilt: u32,
}

#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) uuid: TenantUuid,
    pub(crate) staleness: Staleness,
    pub(crate) grant: usize,
    pub(crate) open: Option<Open>,
    /// Segments that are being written or are sealed, oldest first.
    pub(crate) queue: VecDeque<u32>,
    /// Segments that are being freed with their items looked through.
    pub(crate) reclaiming: usize,
    pub(crate) budget: Budget,
    pub(crate) stats: Stats,
    pub(crate) barrier: Barrier,
    /// The newest one first; only that one takes entries.
    tables: Vec<Table>,
    /// Tables that there ever were.
    tables_made: u64,
    /// The look for entries of segments that are gone.
    pub(super) sweep: Sweep,
    /// For each database, the sequence before which everything is gone.
    flushed: [u64; DATABASES],
    flushed_all: u64,
    shadow_bytes: u64,
    /// Entries that are no shadows, by their database.
    alone: [u64; DATABASES],
    /// Records that were ever entered, and their bytes: for their mean size.
    entered_records: u64,
    entered_bytes: u64,
}

impl Budget {
    fn set(&mut self, bytes_per_second: u64) {
        if self.bytes_per_second != bytes_per_second {
            self.left = self.left.min(bytes_per_second);
            self.bytes_per_second = bytes_per_second;
        }
    }

    /// Whether so many bytes may be written now. Items that are not known to be of use leave half of the budget to the
    /// others.
    pub(crate) fn takes(&mut self, bytes: u64, is_used: bool, now_ms: u64) -> bool {
        if self.bytes_per_second == 0 {
            return true;
        }
        let passed_ms = now_ms.saturating_sub(self.at_ms).min(1000);
        self.at_ms = now_ms;
        self.left = (self.left + self.bytes_per_second * passed_ms / 1000).min(self.bytes_per_second);
        let kept = if is_used { 0 } else { self.bytes_per_second / 2 };
        let is_enough = self.left >= bytes + kept;
        if is_enough {
            self.left -= bytes;
        }
        is_enough
    }
}

impl Tenant {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            uuid: settings.uuid,
            staleness: settings.staleness,
            grant: settings.grant_segments,
            open: None,
            queue: VecDeque::new(),
            reclaiming: 0,
            budget: Budget {
                bytes_per_second: settings.write_bytes_per_second,
                left: settings.write_bytes_per_second,
                at_ms: 0,
            },
            stats: Stats::default(),
            barrier: Barrier::default(),
            tables: Vec::new(),
            tables_made: 0,
            sweep: Sweep::default(),
            flushed: [0; DATABASES],
            flushed_all: 0,
            shadow_bytes: 0,
            alone: [0; DATABASES],
            entered_records: 0,
            entered_bytes: 0,
        }
    }

    pub(crate) fn segments(&self) -> usize {
        self.queue.len() + usize::from(self.open.is_some())
    }

    pub(crate) fn matches(&self, hash: u64) -> impl Iterator<Item = IndexEntry> + '_ {
        self.tables.iter().flat_map(move |table| table.matches(hash))
    }

    pub(crate) fn note_use(&mut self, hash: u64, unit: u64) {
        for table in &mut self.tables {
            table.note_use(hash, unit);
        }
    }

    /// Takes an entry out of the index.
    pub(crate) fn take(&mut self, hash: u64, unit: u64) -> Option<IndexEntry> {
        let entry = self.tables.iter_mut().find_map(|table| table.remove(hash, unit))?;
        self.uncount(entry);
        Some(entry)
    }

    /// An entry has left the index.
    fn uncount(&mut self, entry: IndexEntry) {
        if entry.is_shadow() {
            self.shadow_bytes = self.shadow_bytes.saturating_sub((entry.units() * UNIT_BYTES) as u64);
        } else {
            self.alone[entry.db()] -= 1;
        }
    }

    /// Items of a database that memory does not hold.
    pub(crate) fn items_in(&self, db: u8) -> u64 {
        self.alone.get(usize::from(db)).copied().unwrap_or(0)
    }

    pub(crate) fn set_shadow(&mut self, hash: u64, unit: u64, is_shadow: bool) -> Option<()> {
        let entry = self.matches(hash).find(|entry| entry.place() == unit)?;
        let (bytes, alone) = ((entry.units() * UNIT_BYTES) as u64, &mut self.alone[entry.db()]);
        let has_changed = self
            .tables
            .iter_mut()
            .find_map(|table| table.set_shadow(hash, unit, is_shadow))?;
        match (has_changed, is_shadow) {
            (true, true) => {
                self.shadow_bytes += bytes;
                *alone -= 1;
            }
            (true, false) => {
                self.shadow_bytes = self.shadow_bytes.saturating_sub(bytes);
                *alone += 1;
            }
            (false, _) => {}
        }
        Some(())
    }

    /// Enters a record; entries that find no place any more are handed back.
    pub(crate) fn enter(&mut self, hash: u64, entry: IndexEntry, record_bytes: usize) -> Vec<IndexEntry> {
        let mut homeless = Vec::new();
        // A bit sooner than it must be: the last ones would find no place.
        let is_full = |table: &Table| table.entries() * 100 >= table.room() * FULL_PERCENT;
        self.alone[entry.db()] += 1;
        self.entered_records += 1;
        self.entered_bytes += record_bytes as u64;
        if self.tables.first().is_none_or(is_full) {
            let mean = self.entered_bytes / self.entered_records;
            let by_size = self.grant as u64 * (SEGMENT_BYTES as u64 / mean) * TABLE_PERCENT / 100;
            // The mean of the first records says little.
            let most = if self.tables.is_empty() {
                FIRST_TABLE_RECORDS
            } else {
                u64::MAX
            };
            self.tables.retain(|table| table.entries() > 0);
            // One that came to be too small grows at least by half.
            let least = self.tables.first().map_or(64, |table| table.room() / 2);
            self.tables_made += 1;
            self.tables.insert(0, Table::for_records(by_size.min(most).max(least)));
        }
        while self.tables.len() > TABLES_MAX
            && let Some(mut oldest) = self.tables.pop()
        {
            oldest.retain(|entry| {
                homeless.push(entry);
                false
            });
        }
        if let Some(table) = self.tables.first_mut() {
            homeless.extend(table.insert(hash, entry));
        }
        homeless.iter().for_each(|entry| self.uncount(*entry));
        homeless
    }

    /// Takes out every entry whose record is not to stay.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(IndexEntry) -> bool) {
        for table in 0..self.tables.len() {
            let buckets = self.tables[table].buckets();
            self.retain_in(table, 0..buckets, &mut stays);
        }
    }

    /// The same in some buckets of a table.
    pub(super) fn retain_in(
        &mut self,
        table: usize,
        buckets: std::ops::Range<usize>,
        mut stays: impl FnMut(IndexEntry) -> bool,
    ) {
        let (mut shadow_bytes, mut alone) = (0, [0; DATABASES]);
        self.tables[table].retain_in(buckets, |entry| {
            let stays = stays(entry);
            if !stays && entry.is_shadow() {
                shadow_bytes += (entry.units() * UNIT_BYTES) as u64;
            } else if !stays {
                alone[entry.db()] += 1;
            }
            stays
        });
        self.shadow_bytes = self.shadow_bytes.saturating_sub(shadow_bytes);
        for (all, gone) in self.alone.iter_mut().zip(alone) {
            *all -= gone;
        }
    }

    /// Its tables, the newest one first.
    pub(crate) fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Records that were ever entered, and their bytes.
    pub(crate) fn entered(&self) -> (u64, u64) {
        (self.entered_records, self.entered_bytes)
    }

    /// Takes the tables of an earlier run over.
    pub(crate) fn adopt(&mut self, tables: Vec<Table>, entered: (u64, u64)) {
        self.forget_all();
        for entry in tables.iter().flat_map(Table::each) {
            self.alone[entry.db()] += 1;
        }
        self.tables_made += tables.len() as u64;
        self.tables = tables;
        (self.entered_records, self.entered_bytes) = entered;
    }

    /// Forgets all entries.
    pub(super) fn forget_all(&mut self) {
        self.tables.clear();
        (self.shadow_bytes, self.alone) = (0, [0; DATABASES]);
    }

    /// Buckets of a table, if there is such a one.
    pub(super) fn buckets_of(&self, table: usize) -> Option<usize> {
        self.tables.get(table).map(Table::buckets)
    }

    /// Changes with every change after which a look through the tables may have missed something.
    pub(super) fn shape(&self) -> (u64, usize, u64) {
        let moves = self.tables.iter().map(Table::moves).sum();
        (self.tables_made, self.tables.len(), moves)
    }

    pub(crate) fn note_flush(&mut self, db: Option<u8>, sequence: u64) {
        match db {
            None => self.flushed_all = self.flushed_all.max(sequence),
            Some(db) => {
                if let Some(flushed) = self.flushed.get_mut(usize::from(db)) {
                    *flushed = (*flushed).max(sequence);
                }
            }
        }
    }

    /// The sequence before which a database's records are gone.
    pub(crate) fn flushed_before(&self, db: u8) -> u64 {
        self.flushed
            .get(usize::from(db))
            .copied()
            .unwrap_or(0)
            .max(self.flushed_all)
    }

    /// Whether an entry of the journal about a flush is the latest of its kind.
    pub(crate) fn is_last_flush(&self, db: u8, sequence: u64) -> bool {
        let last = match self.flushed.get(usize::from(db)) {
            Some(flushed) => *flushed,
            None => self.flushed_all,
        };
        sequence >= last
    }

    pub(crate) fn stats(&self) -> Stats {
        let records = self.tables.iter().map(Table::entries).sum();
        let index_bytes: u64 = self.tables.iter().map(Table::bytes).sum();
        Stats {
            records,
            grant_bytes: (self.grant * SEGMENT_BYTES) as u64,
            flash_bytes: (self.segments() * SEGMENT_BYTES) as u64,
            memory_bytes: index_bytes + self.open.as_ref().map_or(0, |_| SEGMENT_BYTES as u64),
            shadow_bytes: self.shadow_bytes,
            ..self.stats
        }
    }
}

impl Volume {
    /// Adds a tenant, without items.
    pub fn add_tenant(&mut self, settings: &Settings) -> TenantNumber {
        let number = TenantNumber(self.tenants.len() as u32);
        self.tenants.push(Some(Tenant::new(settings)));
        number
    }

    /// Items of a tenant's database that memory does not hold.
    pub(crate) fn items_in(&self, number: TenantNumber, db: u8) -> u64 {
        self.tenant(number).map_or(0, |tenant| tenant.items_in(db))
    }

    /// Memory that all tenants' indexes and open segments take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.tenants
            .iter()
            .flatten()
            .map(|tenant| tenant.stats().memory_bytes)
            .sum()
    }

    /// The usage and counts of a tenant.
    pub fn stats(&self, number: TenantNumber) -> Stats {
        self.tenant(number).map_or(Stats::default(), Tenant::stats)
    }

    /// Changes how many segments a tenant may hold; the oldest ones above are free at once.
    pub fn set_grant(&mut self, number: TenantNumber, segments: usize, now_ms: u64) {
        if let Some(tenant) = self.tenant_mut(number) {
            tenant.grant = segments;
            self.discard(number, segments, now_ms);
        }
    }

    /// Changes how stale a tenant's items may be after an unclean end, and how many bytes it may write a second; 0 for no limit.
    pub fn set_terms(&mut self, number: TenantNumber, staleness: Staleness, write_bytes_per_second: u64) {
        if let Some(tenant) = self.tenant_mut(number) {
            tenant.staleness = staleness;
            tenant.budget.set(write_bytes_per_second);
        }
    }

    /// Removes a tenant. When the barrier is durable, nothing of it comes back.
    pub fn remove_tenant(&mut self, number: TenantNumber, now_ms: u64) -> Barrier {
        let barrier = self.flush(number, None, now_ms);
        if let Some(tenant) = self.tenants.get_mut(number.0 as usize) {
            *tenant = None;
        }
        barrier
    }

    pub(crate) fn tenant(&self, number: TenantNumber) -> Option<&Tenant> {
        self.tenants.get(number.0 as usize)?.as_ref()
    }

    pub(crate) fn tenant_mut(&mut self, number: TenantNumber) -> Option<&mut Tenant> {
        self.tenants.get_mut(number.0 as usize)?.as_mut()
    }
}
