//! Opening a device: its volume, or a new one.
//!
//! The superblock says whose it is. The journal says which segments and records are gone. After a clean end the snapshot
//! of the index is taken over. Otherwise the footers of all other sealed segments give the index; of several records with one
//! hash the one in the latest segment counts. Invariants: a device that is not empty and not ours is never written to, and
//! opening twice gives the same. If the journal is damaged, nothing of before counts.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::format::{
    BLOCK_BYTES, Entry, FooterEntry, JournalBlock, NoSuperblock, SEGMENT_BYTES, SegmentHeader, Superblock, TenantUuid,
    UNIT_BYTES, VERSION, decode_footer, decode_tail, footer_bytes,
};
use crate::index::{IndexEntry, Table};
use crate::journal::{self, BLOCKS_MIN, Journal};
use crate::snapshot::{self, Image};
use crate::volume::{SUPERBLOCKS, Settings, Slot, State, TenantNumber, Volume, data_offset};

/// Segments of a volume, at least: some to fill, some to read, some to free.
const SEGMENTS_MIN: u64 = 8;
/// The limit of segments, by the reach of places in the index.
const SEGMENTS_MAX: u64 = (1 << 34) * UNIT_BYTES as u64 / SEGMENT_BYTES as u64;
/// Segments for each block of the journal: a two-thousandth of the device.
const SEGMENTS_PER_JOURNAL_BLOCK: u64 = 8;
/// The part of a segment's end that is read at first: the footer of some 600 records.
const END_BYTES: usize = 16 << 10;
/// Sequences that are left out after an unclean end: segments that were never sealed may have used some.
const SEQUENCE_GAP: u64 = 1 << 20;

/// Why a device cannot be opened. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device fails.
    #[error("flash: {0}")]
    Io(#[from] io::Error),
    /// It has something else on it.
    #[error("flash: the device is not empty, and what is on it is not Tidemark's: it is left as it is")]
    Foreign,
    /// Another version wrote it.
    #[error("flash: format version {found}; this program reads {VERSION}")]
    Version {
        /// The version on the device.
        found: u32,
    },
    /// Both superblocks are damaged.
    #[error("flash: its superblock is damaged; empty its first two blocks to use it anew")]
    Damaged,
    /// It is smaller than it was, or too small.
    #[error("flash: {has_bytes} bytes; at least {needed_bytes} are needed")]
    TooSmall {
        /// The size that it has.
        has_bytes: u64,
        /// The size that it needs.
        needed_bytes: u64,
    },
}

/// The source of the index of a volume that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The snapshot of the last, clean end.
    Snapshot,
    /// The footers of all sealed segments.
    Footers,
}

impl std::fmt::Display for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "snapshot",
            Self::Footers => "footers",
        })
    }
}

/// Opens the volume on a device, or makes one on an empty device, with these tenants; segments of others are freed.
/// `random` is used where an identity is needed. The index comes from the snapshot in the file, if it is that of the device's
/// last end.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    device: &dyn Device,
    tenants: &[Settings],
    random: [u8; 24],
    index: Option<&Path>,
) -> Result<(Volume, Opening), OpenError> {
    let mut superblock = match read_superblock(device)? {
        Some(superblock) => superblock,
        None => format_with(device, random)?,
    };
    let needed_bytes = data_offset(superblock.journal_blocks) + u64::from(superblock.segments) * SEGMENT_BYTES as u64;
    if device.size_bytes() < needed_bytes {
        return Err(OpenError::TooSmall {
            has_bytes: device.size_bytes(),
            needed_bytes,
        });
    }
    let Ok(blocks) = read_journal(device, &superblock) else {
        // Deaths may be unknown: under a new identity nothing of before is valid.
        let fresh = Superblock {
            uuid: identity(&random),
            generation: superblock.generation + 1,
            is_clean: false,
            ..superblock
        };
        write_empty(device, &fresh)?;
        return open(device, tenants, random, None);
    };
    let image = index.and_then(|path| snapshot::load(path, &superblock));
    mark_in_use(device, &mut superblock)?;
    let opening = if image.is_some() {
        Opening::Snapshot
    } else {
        Opening::Footers
    };
    let volume = Recovery::new(device, superblock, blocks).run(tenants, image);
    Ok((volume, opening))
}

/// Says on the device that it is in use, before anything else is written to it: no snapshot counts from now on. Both copies say
/// so, since one of them may be damaged later.
fn mark_in_use(device: &dyn Device, superblock: &mut Superblock) -> io::Result<()> {
    superblock.is_clean = false;
    for _ in 0..SUPERBLOCKS {
        superblock.generation += 1;
        let bytes = Buffer::copied(&superblock.encode());
        device.write(superblock.generation % SUPERBLOCKS * BLOCK_BYTES as u64, bytes.as_ref())?;
        device.flush()?;
    }
    Ok(())
}

/// Makes a new volume on a device, whatever is on it.
///
/// # Errors
/// The device fails or is too small.
pub(crate) fn format_with(device: &dyn Device, random: [u8; 24]) -> Result<Superblock, OpenError> {
    let size_bytes = device.size_bytes();
    let all = size_bytes / SEGMENT_BYTES as u64;
    let journal_blocks = (all / SEGMENTS_PER_JOURNAL_BLOCK).max(u64::from(BLOCKS_MIN)) as u32;
    let needed_bytes = data_offset(journal_blocks) + SEGMENTS_MIN * SEGMENT_BYTES as u64;
    if size_bytes < needed_bytes {
        return Err(OpenError::TooSmall {
            has_bytes: size_bytes,
            needed_bytes,
        });
    }
    let reached_bytes = size_bytes.min(SEGMENTS_MAX * SEGMENT_BYTES as u64);
    let segments = (reached_bytes - data_offset(journal_blocks)) / SEGMENT_BYTES as u64;
    let mut seed = [0; 8];
    seed.copy_from_slice(&random[16..]);
    let superblock = Superblock {
        uuid: identity(&random),
        segments: segments as u32,
        journal_blocks,
        hash_seed: u64::from_le_bytes(seed),
        generation: 1,
        is_clean: false,
    };
    write_empty(device, &superblock)?;
    Ok(superblock)
}

/// Makes a new volume on a device, whatever is on it.
///
/// # Errors
/// The device fails or is too small.
pub fn format(device: &dyn Device, random: [u8; 24]) -> Result<(), OpenError> {
    format_with(device, random).map(|_| ())
}

fn identity(random: &[u8; 24]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&random[..16]);
    uuid
}

/// A journal with one empty block, then both superblocks.
fn write_empty(device: &dyn Device, superblock: &Superblock) -> Result<(), OpenError> {
    let first = JournalBlock {
        number: 0,
        first: 0,
        oldest: 0,
        entries: Vec::new(),
    };
    let blank = Buffer::zeroed(BLOCK_BYTES);
    for block in 1..u64::from(superblock.journal_blocks) {
        device.write((SUPERBLOCKS + block) * BLOCK_BYTES as u64, blank.as_ref())?;
    }
    let bytes = Buffer::copied(&first.encode(&superblock.uuid));
    device.write(SUPERBLOCKS * BLOCK_BYTES as u64, bytes.as_ref())?;
    device.flush()?;
    let bytes = Buffer::copied(&superblock.encode());
    for copy in 0..SUPERBLOCKS {
        device.write(copy * BLOCK_BYTES as u64, bytes.as_ref())?;
        device.flush()?;
    }
    Ok(())
}

/// The newer one of both copies; `None` on an empty device.
fn read_superblock(device: &dyn Device) -> Result<Option<Superblock>, OpenError> {
    let mut copies = Vec::new();
    for copy in 0..SUPERBLOCKS {
        let mut bytes = Buffer::zeroed(BLOCK_BYTES);
        device.read(copy * BLOCK_BYTES as u64, bytes.as_mut())?;
        copies.push(Superblock::decode(bytes.as_ref()));
    }
    if let Some(newest) = copies.iter().flatten().max_by_key(|superblock| superblock.generation) {
        return Ok(Some(*newest));
    }
    // A copy that is ours decides; else anything that is not blank.
    let mut why = None;
    for copy in copies.into_iter().filter_map(Result::err) {
        why = match (why, copy) {
            (None | Some(NoSuperblock::Blank), copy) => Some(copy),
            (why, _) => why,
        };
    }
    match why {
        None | Some(NoSuperblock::Blank) => Ok(None),
        Some(NoSuperblock::Foreign) => Err(OpenError::Foreign),
        Some(NoSuperblock::Version(found)) => Err(OpenError::Version { found }),
        Some(NoSuperblock::Damaged) => Err(OpenError::Damaged),
    }
}

fn read_journal(device: &dyn Device, superblock: &Superblock) -> Result<Vec<JournalBlock>, journal::Damaged> {
    let read = (0..u64::from(superblock.journal_blocks)).map(|block| {
        let mut bytes = Buffer::zeroed(BLOCK_BYTES);
        let read = device.read((SUPERBLOCKS + block) * BLOCK_BYTES as u64, bytes.as_mut());
        read.ok()
            .and_then(|()| JournalBlock::decode(bytes.as_ref(), &superblock.uuid))
    });
    journal::restore(read)
}

/// A sealed segment as it was found.
struct Sealed {
    slot: u32,
    header: SegmentHeader,
    entries: Vec<FooterEntry>,
}

struct Recovery<'a> {
    device: &'a dyn Device,
    superblock: Superblock,
    journal: Vec<JournalBlock>,
    killed: HashSet<(u32, u16, u64)>,
    freed: HashSet<(u32, u64)>,
    last_sequence: u64,
}

impl<'a> Recovery<'a> {
    fn new(device: &'a dyn Device, superblock: Superblock, journal: Vec<JournalBlock>) -> Self {
        let mut recovery = Self {
            device,
            superblock,
            journal,
            killed: HashSet::new(),
            freed: HashSet::new(),
            last_sequence: 0,
        };
        for entry in recovery.journal.iter().flat_map(|block| &block.entries) {
            match *entry {
                Entry::Kill { slot, at, sequence } => {
                    recovery.killed.insert((slot, at, sequence));
                }
                Entry::Free { slot, sequence } => {
                    recovery.freed.insert((slot, sequence));
                }
                Entry::Flush { sequence, .. } => recovery.last_sequence = recovery.last_sequence.max(sequence),
            }
        }
        recovery
    }

    fn run(mut self, settings: &[Settings], image: Option<Image>) -> Volume {
        let numbers: HashMap<TenantUuid, TenantNumber> = settings
            .iter()
            .zip(0..)
            .map(|(settings, number)| (settings.uuid, TenantNumber(number)))
            .collect();
        let mut volume = match image {
            Some(image) => self.adopt(settings, &numbers, image),
            None => self.scan(settings, &numbers),
        };
        volume.retire_strangers(&self.freed);
        for (settings, number) in settings.iter().zip(0..) {
            volume.discard(TenantNumber(number), settings.grant_segments, 0);
        }
        volume
    }

    /// The volume with these slots, and nothing in its index.
    fn volume(&mut self, slots: Vec<Slot>, next_sequence: u64, settings: &[Settings]) -> Volume {
        let journal = Journal::new(self.superblock.journal_blocks, std::mem::take(&mut self.journal));
        let flushes: Vec<Entry> = journal.entries().copied().collect();
        let mut volume = Volume::with(self.superblock, slots, journal, next_sequence);
        for settings in settings {
            volume.add_tenant(settings);
        }
        for entry in flushes {
            volume.note_flushed(&entry);
        }
        volume
    }

    /// The volume as it was left.
    fn adopt(&mut self, settings: &[Settings], numbers: &HashMap<TenantUuid, TenantNumber>, image: Image) -> Volume {
        let owners: Vec<Option<TenantNumber>> = image
            .tenants
            .iter()
            .map(|tenant| numbers.get(&tenant.uuid).copied())
            .collect();
        let slots = image.slots.iter().map(|slot| {
            let owner = owners.get(slot.owner as usize).copied().flatten();
            Slot {
                state: if owner.is_some() { State::Sealed } else { State::Free },
                tenant: owner.unwrap_or(TenantNumber(u32::MAX)),
                sequence: slot.sequence,
                previous: None,
                live_bytes: owner.map_or(0, |_| slot.live_bytes),
                kills: owner.map_or(0, |_| slot.kills),
                is_unswept: false,
                opened: 0,
            }
        });
        let slots = slots.collect();
        let mut volume = self.volume(slots, image.next_sequence, settings);
        for (owner, tenant) in owners.into_iter().zip(image.tenants) {
            if let Some(number) = owner {
                volume.adopt(number, tenant.tables, tenant.entered);
            }
        }
        volume
    }

    /// The volume of what the footers of its segments say.
    fn scan(&mut self, settings: &[Settings], numbers: &HashMap<TenantUuid, TenantNumber>) -> Volume {
        let mut slots = Vec::new();
        let mut sealed = Vec::new();
        for number in 0..self.superblock.segments {
            let found = self.segment(number);
            let sequence = found.as_ref().map_or(0, |segment| segment.header.sequence);
            self.last_sequence = self.last_sequence.max(sequence);
            let is_freed = self.freed.contains(&(number, sequence));
            let tenant = found
                .as_ref()
                .and_then(|segment| numbers.get(&segment.header.tenant).copied());
            let is_kept = found.is_some() && !is_freed && tenant.is_some();
            slots.push(Slot {
                state: if is_kept { State::Sealed } else { State::Free },
                tenant: tenant.unwrap_or(TenantNumber(u32::MAX)),
                sequence,
                previous: None,
                live_bytes: 0,
                kills: 0,
                is_unswept: false,
                opened: 0,
            });
            sealed.extend(found.filter(|_| is_kept));
        }
        sealed.sort_by_key(|segment| segment.header.sequence);
        let of_records = sealed
            .iter()
            .flat_map(|segment| &segment.entries)
            .map(|entry| entry.sequence);
        self.last_sequence = of_records.fold(self.last_sequence, u64::max);
        let mut volume = self.volume(slots, self.last_sequence + SEQUENCE_GAP, settings);
        volume.load(
            &sealed
                .iter()
                .map(|segment| (segment.slot, segment.entries.as_slice()))
                .collect::<Vec<_>>(),
            &self.killed,
        );
        volume
    }

    /// The sealed segment in a slot, if there is an intact one.
    fn segment(&self, slot: u32) -> Option<Sealed> {
        let uuid = &self.superblock.uuid;
        let end = data_offset(self.superblock.journal_blocks) + (u64::from(slot) + 1) * SEGMENT_BYTES as u64;
        let read = |bytes: usize| {
            let mut buffer = Buffer::zeroed(bytes);
            self.device
                .read(end - bytes as u64, buffer.as_mut())
                .ok()
                .map(|()| buffer)
        };
        let mut bytes = read(END_BYTES)?;
        let (_, count) = decode_tail(bytes.as_ref(), uuid)?;
        if footer_bytes(count) > END_BYTES {
            bytes = read(footer_bytes(count).next_multiple_of(BLOCK_BYTES))?;
        }
        let (header, entries) = decode_footer(bytes.as_ref(), uuid)?;
        Some(Sealed { slot, header, entries })
    }
}

impl Volume {
    /// Takes a tenant's tables of an earlier run over, as far as its segments are there.
    fn adopt(&mut self, number: TenantNumber, tables: Vec<Table>, entered: (u64, u64)) {
        let mut queue: Vec<u32> = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, content)| (content.tenant == number).then_some(slot))
            .collect();
        queue.sort_by_key(|slot| self.slots[*slot as usize].sequence);
        let (slots, first) = (&self.slots, self.data_offset());
        let is_there = |entry: IndexEntry| {
            let slot = (entry.place() * UNIT_BYTES as u64 - first) / SEGMENT_BYTES as u64;
            slots[slot as usize].tenant == number
        };
        self.deaths += queue
            .iter()
            .map(|slot| u64::from(slots[*slot as usize].kills))
            .sum::<u64>();
        if let Some(tenant) = self.tenants.get_mut(number.0 as usize).and_then(Option::as_mut) {
            tenant.adopt(tables, entered);
            tenant.retain(is_there);
            tenant.queue = queue.into();
        }
    }

    /// Fills the index from footers, oldest segment first.
    fn load(&mut self, sealed: &[(u32, &[FooterEntry])], killed: &HashSet<(u32, u16, u64)>) {
        let mut seen: HashSet<(TenantNumber, u64)> = HashSet::new();
        for (number, entries) in sealed.iter().rev() {
            let (tenant_number, sequence) = {
                let slot = &self.slots[*number as usize];
                (slot.tenant, slot.sequence)
            };
            let first_unit = self.slot_offset(*number) / UNIT_BYTES as u64;
            if let Some(tenant) = self.tenant_mut(tenant_number) {
                tenant.queue.push_front(*number);
            }
            for entry in entries.iter().rev() {
                // An older content of a key is none, also where the newer one is dead.
                if !seen.insert((tenant_number, entry.hash)) {
                    continue;
                }
                let Some(tenant) = self.tenant_mut(tenant_number) else {
                    continue;
                };
                if killed.contains(&(*number, entry.at, sequence)) || entry.sequence < tenant.flushed_before(entry.db) {
                    continue;
                }
                let units = usize::from(entry.units);
                let indexed = IndexEntry::new(first_unit + u64::from(entry.at), entry.hash, units, entry.db);
                let homeless = tenant.enter(entry.hash, indexed, units * UNIT_BYTES);
                self.slots[*number as usize].live_bytes += (indexed.units() * UNIT_BYTES) as u32;
                for entry in homeless {
                    self.bury(tenant_number, entry, 0);
                }
            }
        }
        for (number, entries) in sealed {
            let sequence = self.slots[*number as usize].sequence;
            let dead = entries
                .iter()
                .filter(|entry| killed.contains(&(*number, entry.at, sequence)));
            self.slots[*number as usize].kills = dead.count() as u32;
        }
        self.deaths = self.slots.iter().map(|slot| u64::from(slot.kills)).sum();
        for (number, _) in sealed {
            self.retire_if_dead(*number, 0);
        }
    }

    /// Segments that are sealed and nobody's must not come back with a tenant that is.
    fn retire_strangers(&mut self, freed: &HashSet<(u32, u64)>) {
        for number in 0..self.slots.len() as u32 {
            let slot = &self.slots[number as usize];
            if matches!(slot.state, State::Free) && slot.sequence > 0 && !freed.contains(&(number, slot.sequence)) {
                self.free.retain(|free| *free != number);
                self.free_slot(number, 0);
            }
        }
    }

    fn note_flushed(&mut self, entry: &Entry) {
        if let Entry::Flush { tenant, db, sequence } = *entry {
            let db = (db != u8::MAX).then_some(db);
            for tenant in self
                .tenants
                .iter_mut()
                .flatten()
                .filter(|other| other.uuid.short() == tenant)
            {
                tenant.note_flush(db, sequence);
            }
        }
    }
}
