//! The bytes on the device: superblock, segments with their records and footers, blocks of the journal.
//!
//! All numbers are little-endian. Everything carries a CRC-32C that also covers the volume's identity and, below a
//! segment, its sequence. Bytes of another volume, of an earlier segment in the same place, or of another place
//! therefore do not pass. Byte diagrams: docs/design/flash.md. Invariant: decoding takes any bytes and never panics.

/// A segment.
pub const SEGMENT_BYTES: usize = 1 << 20;
/// The unit in which the device is read and written.
pub const BLOCK_BYTES: usize = 4096;
/// Records begin at multiples of this.
pub const UNIT_BYTES: usize = 64;
/// Bytes of a segment's header; its first record follows.
pub(crate) const HEADER_BYTES: usize = 64;
/// Bytes of a record before its key.
pub(crate) const RECORD_BYTES: usize = 40;
/// Bytes of a record's entry in the footer.
pub(crate) const FOOTER_ENTRY_BYTES: usize = 24;
/// Bytes at a segment's end that say where its footer is.
pub(crate) const TAIL_BYTES: usize = 64;
/// Entries in a block of the journal.
pub(crate) const JOURNAL_ENTRIES: usize = (BLOCK_BYTES - JOURNAL_HEADER_BYTES) / JOURNAL_ENTRY_BYTES;
const JOURNAL_HEADER_BYTES: usize = 64;
const JOURNAL_ENTRY_BYTES: usize = 16;
/// The longest value that is stored; longer ones stay in memory.
pub const VALUE_BYTES_MAX: usize = 256 << 10;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 64 << 10;

const SUPER_MAGIC: u64 = u64::from_le_bytes(*b"TIDEMKFL");
const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"TMSG");
const TAIL_MAGIC: u32 = u32::from_le_bytes(*b"TMFT");
const JOURNAL_MAGIC: u32 = u32::from_le_bytes(*b"TMJR");
/// The version of the whole format: another one is refused.
pub(crate) const VERSION: u32 = 1;

/// A tenant as flash knows it: random, so that a new tenant never inherits an old one's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantUuid(pub [u8; 16]);

/// The first block of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) uuid: [u8; 16],
    /// Segments, without what lies before them.
    pub(crate) segments: u32,
    pub(crate) journal_blocks: u32,
    /// The seed of the hash of keys.
    pub(crate) hash_seed: u64,
    /// Counts writes of the superblock: of its two copies the newer one counts.
    pub(crate) generation: u64,
    /// Whether it was closed after all was written.
    pub(crate) is_clean: bool,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) tenant: TenantUuid,
    pub(crate) sequence: u64,
}

/// A record: an item with all that a client may ask about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// The database of the tenant.
    pub(crate) db: u8,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// memcached's client flags.
    pub(crate) client_flags: u32,
    /// When it expires, in milliseconds since 1970; 0 if it does not.
    pub(crate) expires_ms: u64,
    /// The CAS token.
    pub(crate) token: u64,
    /// Orders contents of a key: the highest one is the latest.
    pub(crate) sequence: u64,
}

/// The entry of a record in a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FooterEntry {
    pub(crate) hash: u64,
    pub(crate) sequence: u64,
    /// The record's offset, in units.
    pub(crate) at: u16,
    /// Its length in units.
    pub(crate) units: u16,
    pub(crate) db: u8,
}

/// Something that must not be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The record at this unit of this segment is gone.
    Kill { slot: u32, at: u16, sequence: u64 },
    /// All of this segment is gone.
    Free { slot: u32, sequence: u64 },
    /// All records of the tenant's database (of all of them: `u8::MAX`) before this sequence are gone.
    Flush { tenant: u64, db: u8, sequence: u64 },
}

/// A block of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalBlock {
    pub(crate) number: u64,
    /// The first block of those that were written together with this one.
    pub(crate) first: u64,
    /// The oldest block whose entries were of use when this one was written.
    pub(crate) oldest: u64,
    pub(crate) entries: Vec<Entry>,
}

impl TenantUuid {
    /// Half of it, in the journal's entries.
    pub(crate) fn short(self) -> u64 {
        number(&self.0, 0)
    }
}

impl Record<'_> {
    /// Bytes of the record, whole units.
    pub(crate) fn bytes(&self) -> usize {
        record_bytes(self.key.len(), self.value.len())
    }
}

/// Bytes of a record with so long a key and value, whole units.
pub fn record_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    (RECORD_BYTES + key_bytes + value_bytes).next_multiple_of(UNIT_BYTES)
}

fn number<const N: usize, T: FromBytes<N>>(bytes: &[u8], at: usize) -> T {
    let mut all = [0; N];
    if let Some(part) = bytes.get(at..at + N) {
        all.copy_from_slice(part);
    }
    T::of(all)
}

/// Numbers that are read from bytes; bytes beyond the end are zero.
trait FromBytes<const N: usize> {
    fn of(bytes: [u8; N]) -> Self;
}

impl FromBytes<2> for u16 {
    fn of(bytes: [u8; 2]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

impl FromBytes<4> for u32 {
    fn of(bytes: [u8; 4]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

impl FromBytes<8> for u64 {
    fn of(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

/// The checksum of bytes below an identity.
fn checksum(identity: &[u8], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(identity), bytes)
}

impl Superblock {
    pub(crate) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        put(&mut block, 0, &SUPER_MAGIC.to_le_bytes());
        put(&mut block, 8, &VERSION.to_le_bytes());
        put(&mut block, 16, &self.uuid);
        put(&mut block, 32, &self.segments.to_le_bytes());
        put(&mut block, 36, &self.journal_blocks.to_le_bytes());
        put(&mut block, 40, &self.hash_seed.to_le_bytes());
        put(&mut block, 48, &self.generation.to_le_bytes());
        block[56] = u8::from(self.is_clean);
        let sum = checksum(&[], &block[..BLOCK_BYTES - 4]);
        put(&mut block, BLOCK_BYTES - 4, &sum.to_le_bytes());
        block
    }

    /// The superblock of these bytes, or their kind if they are none.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, NoSuperblock> {
        if block.iter().all(|byte| *byte == 0) {
            return Err(NoSuperblock::Blank);
        }
        if number::<8, u64>(block, 0) != SUPER_MAGIC {
            return Err(NoSuperblock::Foreign);
        }
        let version: u32 = number(block, 8);
        if version != VERSION {
            return Err(NoSuperblock::Version(version));
        }
        let end = block.len().saturating_sub(4);
        if checksum(&[], &block[..end]) != number::<4, u32>(block, end) {
            return Err(NoSuperblock::Damaged);
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&block[16..32]);
        Ok(Self {
            uuid,
            segments: number(block, 32),
            journal_blocks: number(block, 36),
            hash_seed: number(block, 40),
            generation: number(block, 48),
            is_clean: block[56] != 0,
        })
    }
}

/// Why bytes are no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSuperblock {
    /// All zero.
    Blank,
    /// Something else's.
    Foreign,
    /// The format is of another version.
    Version(u32),
    /// Ours, and not intact.
    Damaged,
}

impl SegmentHeader {
    /// The beginning of all checksums of the segment.
    pub(crate) fn identity(&self, volume: &[u8; 16]) -> [u8; 40] {
        let mut identity = [0; 40];
        put(&mut identity, 0, volume);
        put(&mut identity, 16, &self.tenant.0);
        put(&mut identity, 32, &self.sequence.to_le_bytes());
        identity
    }

    pub(crate) fn encode(&self, volume: &[u8; 16], bytes: &mut [u8]) {
        put(bytes, 0, &SEGMENT_MAGIC.to_le_bytes());
        put(bytes, 4, &VERSION.to_le_bytes());
        put(bytes, 8, &self.sequence.to_le_bytes());
        put(bytes, 16, &self.tenant.0);
        let sum = checksum(&self.identity(volume), &bytes[..HEADER_BYTES - 4]);
        put(bytes, HEADER_BYTES - 4, &sum.to_le_bytes());
    }
}

/// Writes a record into the bytes that it takes.
pub(crate) fn encode_record(record: &Record<'_>, identity: &[u8; 40], bytes: &mut [u8]) {
    put(bytes, 4, &(record.key.len() as u16).to_le_bytes());
    // A key of 64 KiB has the length 0: there are no empty keys of that size in units.
    bytes[6] = record.db;
    bytes[7] = u8::from(record.key.len() > usize::from(u16::MAX));
    put(bytes, 8, &(record.value.len() as u32).to_le_bytes());
    put(bytes, 12, &record.client_flags.to_le_bytes());
    put(bytes, 16, &record.sequence.to_le_bytes());
    put(bytes, 24, &record.expires_ms.to_le_bytes());
    put(bytes, 32, &record.token.to_le_bytes());
    put(bytes, RECORD_BYTES, record.key);
    put(bytes, RECORD_BYTES + record.key.len(), record.value);
    let end = RECORD_BYTES + record.key.len() + record.value.len();
    bytes[end..].fill(0);
    let sum = checksum(identity, &bytes[4..end]);
    put(bytes, 0, &sum.to_le_bytes());
}

/// The record at the beginning of these bytes; `None` if they are not a whole, intact one of that segment.
pub(crate) fn decode_record<'a>(bytes: &'a [u8], identity: &[u8; 40]) -> Option<Record<'a>> {
    let head = bytes.get(..RECORD_BYTES)?;
    let key_bytes = usize::from(number::<2, u16>(head, 4)) + (usize::from(head[7] & 1) << 16);
    let value_bytes = number::<4, u32>(head, 8) as usize;
    if key_bytes > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
        return None;
    }
    let end = RECORD_BYTES + key_bytes + value_bytes;
    let whole = bytes.get(..end)?;
    if checksum(identity, &whole[4..]) != number::<4, u32>(head, 0) {
        return None;
    }
    Some(Record {
        db: head[6],
        key: &whole[RECORD_BYTES..RECORD_BYTES + key_bytes],
        value: &whole[RECORD_BYTES + key_bytes..],
        client_flags: number(head, 12),
        expires_ms: number(head, 24),
        token: number(head, 32),
        sequence: number(head, 16),
    })
}

/// Writes footer and tail at the end of a segment.
pub(crate) fn encode_footer(header: &SegmentHeader, volume: &[u8; 16], entries: &[FooterEntry], segment: &mut [u8]) {
    let tail_at = segment.len() - TAIL_BYTES;
    let footer_at = tail_at - entries.len() * FOOTER_ENTRY_BYTES;
    for (entry, bytes) in entries
        .iter()
        .zip(segment[footer_at..tail_at].chunks_exact_mut(FOOTER_ENTRY_BYTES))
    {
        put(bytes, 0, &entry.hash.to_le_bytes());
        put(bytes, 8, &entry.sequence.to_le_bytes());
        put(bytes, 16, &entry.at.to_le_bytes());
        put(bytes, 18, &entry.units.to_le_bytes());
        bytes[20] = entry.db;
        bytes[21..].fill(0);
    }
    let sum = checksum(&header.identity(volume), &segment[footer_at..tail_at]);
    let tail = &mut segment[tail_at..];
    put(tail, 0, &TAIL_MAGIC.to_le_bytes());
    put(tail, 4, &(entries.len() as u32).to_le_bytes());
    put(tail, 8, &header.sequence.to_le_bytes());
    put(tail, 16, &header.tenant.0);
    put(tail, 32, &sum.to_le_bytes());
    let sum = checksum(volume, &tail[..TAIL_BYTES - 4]);
    put(tail, TAIL_BYTES - 4, &sum.to_le_bytes());
}

/// The content of the last bytes of a segment: its identity and its number of records. `None`: it was never sealed.
pub(crate) fn decode_tail(end: &[u8], volume: &[u8; 16]) -> Option<(SegmentHeader, usize)> {
    let tail = end.get(end.len().checked_sub(TAIL_BYTES)?..)?;
    if number::<4, u32>(tail, 0) != TAIL_MAGIC {
        return None;
    }
    if checksum(volume, &tail[..TAIL_BYTES - 4]) != number::<4, u32>(tail, TAIL_BYTES - 4) {
        return None;
    }
    let mut tenant = [0; 16];
    tenant.copy_from_slice(&tail[16..32]);
    let header = SegmentHeader {
        tenant: TenantUuid(tenant),
        sequence: number(tail, 8),
    };
    let count = number::<4, u32>(tail, 4) as usize;
    (count <= FOOTER_ENTRIES_MAX).then_some((header, count))
}

/// More records than fit into a segment.
const FOOTER_ENTRIES_MAX: usize = (SEGMENT_BYTES - HEADER_BYTES - TAIL_BYTES) / (UNIT_BYTES + FOOTER_ENTRY_BYTES);

/// Bytes at a segment's end that hold tail and footer.
pub(crate) fn footer_bytes(count: usize) -> usize {
    TAIL_BYTES + count * FOOTER_ENTRY_BYTES
}

/// The footer in the last bytes of a segment, of which at least [`footer_bytes`] are given. `None`: it is damaged.
pub(crate) fn decode_footer(end: &[u8], volume: &[u8; 16]) -> Option<(SegmentHeader, Vec<FooterEntry>)> {
    let (header, count) = decode_tail(end, volume)?;
    let tail_at = end.len() - TAIL_BYTES;
    let footer = end.get(tail_at.checked_sub(count * FOOTER_ENTRY_BYTES)?..tail_at)?;
    if checksum(&header.identity(volume), footer) != number::<4, u32>(end, tail_at + 32) {
        return None;
    }
    let entry = |bytes: &[u8]| FooterEntry {
        hash: number(bytes, 0),
        sequence: number(bytes, 8),
        at: number(bytes, 16),
        units: number(bytes, 18),
        db: bytes[20],
    };
    let entries: Vec<FooterEntry> = footer.chunks_exact(FOOTER_ENTRY_BYTES).map(entry).collect();
    let most = (SEGMENT_BYTES / UNIT_BYTES) as u32;
    let fits =
        |entry: &FooterEntry| entry.at > 0 && entry.units > 0 && u32::from(entry.at) + u32::from(entry.units) <= most;
    entries.iter().all(fits).then_some((header, entries))
}

impl Entry {
    fn encode(&self, bytes: &mut [u8]) {
        let (kind, small, middle, sequence_or_tenant) = match *self {
            Self::Kill { slot, at, sequence } => (1, 0, u64::from(slot) | u64::from(at) << 32, sequence),
            Self::Free { slot, sequence } => (2, 0, u64::from(slot), sequence),
            Self::Flush { tenant, db, sequence } => (3, db, sequence, tenant),
        };
        bytes[0] = kind;
        bytes[1] = small;
        put(bytes, 2, &middle.to_le_bytes()[..6]);
        put(bytes, 8, &sequence_or_tenant.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut middle = [0; 8];
        middle[..6].copy_from_slice(&bytes[2..8]);
        let middle = u64::from_le_bytes(middle);
        let last: u64 = number(bytes, 8);
        match bytes[0] {
            1 => Some(Self::Kill {
                slot: middle as u32,
                at: (middle >> 32) as u16,
                sequence: last,
            }),
            2 => Some(Self::Free {
                slot: middle as u32,
                sequence: last,
            }),
            3 => Some(Self::Flush {
                tenant: last,
                db: bytes[1],
                sequence: middle,
            }),
            _ => None,
        }
    }
}

impl JournalBlock {
    pub(crate) fn encode(&self, volume: &[u8; 16]) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        put(&mut block, 0, &JOURNAL_MAGIC.to_le_bytes());
        put(&mut block, 4, &(self.entries.len() as u32).to_le_bytes());
        put(&mut block, 8, &self.number.to_le_bytes());
        put(&mut block, 24, &self.first.to_le_bytes());
        put(&mut block, 32, &self.oldest.to_le_bytes());
        for (entry, bytes) in self
            .entries
            .iter()
            .zip(block[JOURNAL_HEADER_BYTES..].chunks_exact_mut(JOURNAL_ENTRY_BYTES))
        {
            entry.encode(bytes);
        }
        let mut rest = block;
        rest[16..20].fill(0);
        let sum = checksum(volume, &rest);
        put(&mut block, 16, &sum.to_le_bytes());
        block
    }

    pub(crate) fn decode(block: &[u8], volume: &[u8; 16]) -> Option<Self> {
        let mut rest = block.get(..BLOCK_BYTES)?.to_vec();
        let count = number::<4, u32>(block, 4) as usize;
        if number::<4, u32>(block, 0) != JOURNAL_MAGIC || count > JOURNAL_ENTRIES {
            return None;
        }
        rest[16..20].fill(0);
        if checksum(volume, &rest) != number::<4, u32>(block, 16) {
            return None;
        }
        let entries = block[JOURNAL_HEADER_BYTES..]
            .chunks_exact(JOURNAL_ENTRY_BYTES)
            .take(count);
        Some(Self {
            number: number(block, 8),
            first: number(block, 24),
            oldest: number(block, 32),
            entries: entries.map(Entry::decode).collect::<Option<_>>()?,
        })
    }
}

/// Makes the checksums of a segment's footer and tail right, whatever is in them.
#[cfg(test)]
pub(crate) fn reseal(segment: &mut [u8], volume: &[u8; 16]) {
    let tail_at = segment.len() - TAIL_BYTES;
    let mut tenant = [0; 16];
    tenant.copy_from_slice(&segment[tail_at + 16..tail_at + 32]);
    let header = SegmentHeader {
        tenant: TenantUuid(tenant),
        sequence: number(segment, tail_at + 8),
    };
    let count = number::<4, u32>(segment, tail_at + 4) as usize;
    put(segment, tail_at, &TAIL_MAGIC.to_le_bytes());
    if let Some(footer_at) = tail_at.checked_sub(count.saturating_mul(FOOTER_ENTRY_BYTES)) {
        let sum = checksum(&header.identity(volume), &segment[footer_at..tail_at]);
        put(segment, tail_at + 32, &sum.to_le_bytes());
    }
    let sum = checksum(volume, &segment[tail_at..segment.len() - 4]);
    let at = segment.len() - 4;
    put(segment, at, &sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: [u8; 16] = [7; 16];
    const HEADER: SegmentHeader = SegmentHeader {
        tenant: TenantUuid([3; 16]),
        sequence: 99,
    };

    fn record<'a>(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record {
            db: 3,
            key,
            value,
            client_flags: 5,
            expires_ms: 1_700_000_000_000,
            token: 77,
            sequence: 12,
        }
    }

    #[test]
    fn records_come_back_and_not_in_another_segment_nor_with_a_bit_flipped() {
        let identity = HEADER.identity(&VOLUME);
        for (key_bytes, value_bytes) in [(1, 0), (16, 1024), (65_536, 10), (250, VALUE_BYTES_MAX)] {
            let (key, value) = (vec![b'k'; key_bytes], vec![b'v'; value_bytes]);
            let record = record(&key, &value);
            let mut bytes = vec![0xAA; record.bytes()];
            encode_record(&record, &identity, &mut bytes);
            assert_eq!(decode_record(&bytes, &identity), Some(record));
            let other = SegmentHeader { sequence: 98, ..HEADER }.identity(&VOLUME);
            assert_eq!(decode_record(&bytes, &other), None, "an earlier segment's bytes");
            for bit in (0..(RECORD_BYTES + key_bytes + value_bytes) * 8).step_by(977) {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode_record(&flipped, &identity), None, "bit {bit}");
            }
            assert_eq!(decode_record(&bytes[..bytes.len() - UNIT_BYTES], &identity), None);
        }
        assert_eq!(record_bytes(16, 1024), 1088);
    }

    #[test]
    fn footers_and_journals_come_back_whole_or_not_at_all() {
        let entries: Vec<FooterEntry> = (1..500_u16)
            .map(|n| FooterEntry {
                hash: u64::from(n) << 40,
                sequence: u64::from(n),
                at: n,
                units: 1,
                db: 2,
            })
            .collect();
        let mut segment = vec![0; SEGMENT_BYTES];
        HEADER.encode(&VOLUME, &mut segment);
        encode_footer(&HEADER, &VOLUME, &entries, &mut segment);
        let end = &segment[SEGMENT_BYTES - 16_384..];
        assert_eq!(decode_tail(end, &VOLUME), Some((HEADER, 499)));
        assert_eq!(decode_footer(end, &VOLUME), Some((HEADER, entries)));
        assert_eq!(
            decode_footer(&end[4384..], &VOLUME).map(|(_, entries)| entries.len()),
            None
        );
        assert_eq!(decode_footer(end, &[8; 16]), None, "another volume");
        let mut flipped = end.to_vec();
        flipped[16_384 - 600] ^= 1;
        assert_eq!(
            (
                decode_tail(&flipped, &VOLUME).is_some(),
                decode_footer(&flipped, &VOLUME)
            ),
            (true, None)
        );

        let kinds = [
            Entry::Kill {
                slot: 1 << 31,
                at: 16_383,
                sequence: 1 << 47,
            },
            Entry::Free {
                slot: 3,
                sequence: u64::MAX,
            },
            Entry::Flush {
                tenant: u64::MAX - 1,
                db: 255,
                sequence: (1 << 48) - 1,
            },
        ];
        let block = JournalBlock {
            number: 8,
            first: 7,
            oldest: 2,
            entries: kinds.iter().copied().cycle().take(JOURNAL_ENTRIES).collect(),
        };
        let mut bytes = block.encode(&VOLUME);
        assert_eq!(JournalBlock::decode(&bytes, &VOLUME), Some(block));
        bytes[100] ^= 4;
        assert_eq!(JournalBlock::decode(&bytes, &VOLUME), None);
    }

    #[test]
    fn any_bytes_are_decoded_to_nothing_without_a_panic() {
        let mut state = 1_u64;
        for round in 0..2000 {
            let bytes: Vec<u8> = (0..BLOCK_BYTES)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            let length = (round * 37) % BLOCK_BYTES;
            assert_eq!(decode_record(&bytes[..length], &HEADER.identity(&VOLUME)), None);
            assert_eq!(decode_tail(&bytes[..length], &VOLUME), None);
            assert_eq!(JournalBlock::decode(&bytes[..length], &VOLUME), None);
        }
    }

    #[test]
    fn superblocks_say_what_is_wrong_with_them() {
        let block = Superblock {
            uuid: [9; 16],
            segments: 20_480,
            journal_blocks: 256,
            hash_seed: 4,
            generation: 12,
            is_clean: true,
        };
        let bytes = block.encode();
        assert_eq!(Superblock::decode(&bytes), Ok(block));
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            Superblock::decode(&bytes)
        };
        assert_eq!(changed(40, 0xFF), Err(NoSuperblock::Damaged));
        assert_eq!(changed(8, 2), Err(NoSuperblock::Version(2)));
        assert_eq!(changed(0, b'X'), Err(NoSuperblock::Foreign));
        assert_eq!(Superblock::decode(&[0; BLOCK_BYTES]), Err(NoSuperblock::Blank));
    }
}
