//! A snapshot of the index: written at a clean end, so that the next start need not read the footer of every segment.
//!
//! It lies in a file beside the device. Invariant: it counts only for the device as it was left. It names the volume and
//! the generation of the superblock that says "clean", and a start writes newer generations before anything else.
//! A snapshot that is damaged, of another volume or of another end is none. Reading takes any bytes and never panics.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::format::{SEGMENT_BYTES, Superblock, TenantUuid, UNIT_BYTES};
use crate::index::{BUCKET_ENTRIES, Table};
use crate::volume::{Slot, State, Volume, data_offset};

const MAGIC: u64 = u64::from_le_bytes(*b"TIDEMKIX");
/// The version of the file's format; another one is no snapshot, and footers are read.
const VERSION: u32 = 2;
/// The owner of a slot that holds nothing of use.
const NOBODY: u32 = u32::MAX;
/// Bytes of a bucket.
const BUCKET_BYTES: usize = BUCKET_ENTRIES * 8;
/// Bytes that are read and written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// The index of a volume as it was at a clean end.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) next_sequence: u64,
    pub(crate) slots: Vec<ImageSlot>,
    pub(crate) tenants: Vec<ImageTenant>,
}

/// A slot of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageSlot {
    /// The place of its owner among the tenants; beyond them for a slot that is free.
    pub(crate) owner: u32,
    pub(crate) live_bytes: u32,
    pub(crate) kills: u32,
    pub(crate) sequence: u64,
}

/// A tenant of it.
#[derive(Debug)]
pub(crate) struct ImageTenant {
    pub(crate) uuid: TenantUuid,
    /// Records that were ever entered, and their bytes.
    pub(crate) entered: (u64, u64),
    /// The newest one first.
    pub(crate) tables: Vec<Table>,
}

/// Writes the snapshot of a volume at rest into a file, durably, for the next generation of its superblock.
///
/// # Errors
/// The file cannot be written, or the volume is not at rest. An older snapshot in the file is then still there, and does not count.
pub(crate) fn save(volume: &Volume, path: &Path) -> io::Result<()> {
    let beside = path.with_extension("new");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    let written = write(volume, BufWriter::with_capacity(BUFFER_BYTES, file)).and_then(|file| file.sync_all());
    if let Err(error) = written {
        // Half of one is of no use, and takes room that may be short. The first error says more than a second one.
        let _ = std::fs::remove_file(&beside);
        return Err(error);
    }
    std::fs::rename(&beside, path)?;
    match path.parent() {
        Some(folder) if folder != Path::new("") => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// The snapshot in a file, if it is intact and that of the device's last end.
pub(crate) fn load(path: &Path, superblock: &Superblock) -> Option<Image> {
    if !superblock.is_clean {
        return None;
    }
    let file = File::open(path).ok()?;
    let left = file.metadata().ok()?.len();
    let mut input = Input {
        inner: BufReader::with_capacity(BUFFER_BYTES, file),
        left,
        sum: 0,
    };
    input.image(superblock)
}

/// Bytes on their way out, with their checksum.
struct Output<W> {
    inner: W,
    sum: u32,
}

impl<W: Write> Output<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.inner.write_all(bytes)
    }

    fn u32(&mut self, number: u32) -> io::Result<()> {
        self.put(&number.to_le_bytes())
    }

    fn u64(&mut self, number: u64) -> io::Result<()> {
        self.put(&number.to_le_bytes())
    }
}

fn write(volume: &Volume, file: BufWriter<File>) -> io::Result<File> {
    let mut out = Output { inner: file, sum: 0 };
    let superblock = &volume.superblock;
    let tenants: Vec<_> = (0_u32..)
        .zip(&volume.tenants)
        .filter_map(|(number, tenant)| Some((number, tenant.as_ref()?)))
        .collect();
    out.u64(MAGIC)?;
    out.u32(VERSION)?;
    out.put(&superblock.uuid)?;
    out.u64(superblock.generation + 1)?;
    out.u64(volume.next_sequence)?;
    out.u32(volume.slots.len() as u32)?;
    out.u32(tenants.len() as u32)?;
    let owner = |slot: &Slot| {
        let place = (0..).zip(&tenants).find(|(_, (number, _))| *number == slot.tenant.0);
        place.map_or(NOBODY, |(place, _)| place)
    };
    for slot in &volume.slots {
        let owner = match slot.state {
            State::Sealed if !slot.is_unswept => owner(slot),
            State::Sealed | State::Free | State::Freeing(_) | State::Quarantined => NOBODY,
            State::Open | State::Writing { .. } | State::Reclaiming { .. } => {
                return Err(io::Error::other("a segment is still being written or read"));
            }
        };
        out.u32(owner)?;
        out.u32(slot.live_bytes)?;
        out.u32(slot.kills)?;
        out.u64(slot.sequence)?;
    }
    for (_, tenant) in tenants {
        out.put(&tenant.uuid.0)?;
        let (records, bytes) = tenant.entered();
        out.u64(records)?;
        out.u64(bytes)?;
        out.u32(tenant.tables().len() as u32)?;
        for table in tenant.tables() {
            out.u64(table.buckets() as u64)?;
            for bucket in table.content() {
                let mut bytes = [0; BUCKET_BYTES];
                for (part, word) in bytes.chunks_exact_mut(8).zip(bucket) {
                    part.copy_from_slice(&word.to_le_bytes());
                }
                out.put(&bytes)?;
            }
        }
    }
    let sum = out.sum;
    out.u32(sum)?;
    out.inner.into_inner().map_err(io::IntoInnerError::into_error)
}

/// Bytes on their way in, with their checksum and how many there still are.
struct Input<R> {
    inner: R,
    left: u64,
    sum: u32,
}

impl<R: Read> Input<R> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.left = self.left.checked_sub(N as u64)?;
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).ok()?;
        self.sum = crc32c::crc32c_append(self.sum, &bytes);
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A count of things that have at least so many bytes each: never more than there can be, whatever the bytes say.
    fn count(&mut self, count: u64, bytes_each: usize) -> Option<usize> {
        (count <= self.left / bytes_each as u64).then_some(count as usize)
    }

    fn image(&mut self, superblock: &Superblock) -> Option<Image> {
        let is_it = self.u64()? == MAGIC
            && self.u32()? == VERSION
            && self.bytes()? == superblock.uuid
            && self.u64()? == superblock.generation;
        if !is_it {
            return None;
        }
        let next_sequence = self.u64()?;
        let (slots, tenants) = (self.u32()?, self.u32()?);
        if slots != superblock.segments {
            return None;
        }
        let slots = (0..self.count(u64::from(slots), 20)?).map(|_| {
            Some(ImageSlot {
                owner: self.u32()?,
                live_bytes: self.u32()?,
                kills: self.u32()?,
                sequence: self.u64()?,
            })
        });
        let slots = slots.collect::<Option<Vec<_>>>()?;
        let tenants = (0..self.count(u64::from(tenants), 36)?).map(|_| self.tenant(superblock));
        let tenants = tenants.collect::<Option<Vec<_>>>()?;
        let sum = self.sum;
        (self.u32()? == sum && self.left == 0).then_some(Image {
            next_sequence,
            slots,
            tenants,
        })
    }

    fn tenant(&mut self, superblock: &Superblock) -> Option<ImageTenant> {
        let uuid = TenantUuid(self.bytes()?);
        let entered = (self.u64()?, self.u64()?);
        let tables = self.u32()?;
        let tables = (0..self.count(u64::from(tables), 8 + BUCKET_BYTES)?).map(|_| self.table(superblock));
        Some(ImageTenant {
            uuid,
            entered,
            tables: tables.collect::<Option<_>>()?,
        })
    }

    fn table(&mut self, superblock: &Superblock) -> Option<Table> {
        let buckets = self.u64()?;
        let mut content = Vec::with_capacity(self.count(buckets, BUCKET_BYTES)?);
        for _ in 0..buckets {
            let bytes: [u8; BUCKET_BYTES] = self.bytes()?;
            let mut bucket = [0; BUCKET_ENTRIES];
            for (word, part) in bucket.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*part);
            }
            content.push(bucket);
        }
        let unit = UNIT_BYTES as u64;
        let first = data_offset(superblock.journal_blocks) / unit;
        let end = first + u64::from(superblock.segments) * SEGMENT_BYTES as u64 / unit;
        Table::restored(content, first..end)
    }
}
