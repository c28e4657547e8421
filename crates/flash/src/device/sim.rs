//! A simulated device: all that devices do wrong, from one seed.
//!
//! Bytes that were written and not flushed may be lost or torn by a crash, sector by sector. Invariant: flushed bytes
//! are there after a crash, unless a fault is switched on that says otherwise.

use std::collections::HashMap;
use std::io;

use parking_lot::Mutex;

use super::Device;

/// The size of a sector: it is written whole or not at all.
const SECTOR_BYTES: usize = 512;

/// How often things go wrong, of 10,000 requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads that fail once.
    pub read_errors: u32,
    /// Writes that fail, with any of their sectors written.
    pub write_errors: u32,
    /// Reads that give bytes with a bit flipped.
    pub flipped_reads: u32,
    /// Writes in which a bit is flipped for good.
    pub flipped_writes: u32,
    /// Writes that land a block aside of where they should.
    pub misdirected_writes: u32,
    /// Writes that are lost and said to be done.
    pub lost_writes: u32,
    /// Offsets from which on faults happen; before it, the device is sound but for crashes.
    pub from_offset: u64,
    /// For so many bytes from there; of all that follow if it is `None`.
    pub for_bytes: Option<u64>,
}

/// A device in memory.
#[derive(Debug)]
pub struct SimDevice {
    inner: Mutex<Inner>,
    size_bytes: u64,
}

#[derive(Debug)]
struct Inner {
    /// The durable bytes.
    bytes: Vec<u8>,
    /// Sectors that were written and not flushed.
    cached: HashMap<u64, [u8; SECTOR_BYTES]>,
    faults: Faults,
    random: u64,
    is_gone: bool,
    is_full: bool,
}

impl Inner {
    fn random(&mut self) -> u64 {
        // SplitMix64 (Steele et al., OOPSLA 2014).
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, of_10000: u32, offset: u64) -> bool {
        let beyond = offset.checked_sub(self.faults.from_offset);
        let is_there = beyond.is_some_and(|beyond| self.faults.for_bytes.is_none_or(|bytes| beyond < bytes));
        of_10000 > 0 && is_there && self.random() % 10_000 < u64::from(of_10000)
    }
}

impl SimDevice {
    /// A device of zeros.
    pub fn new(size_bytes: u64, seed: u64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                bytes: vec![0; size_bytes as usize],
                cached: HashMap::new(),
                faults: Faults::default(),
                random: seed,
                is_gone: false,
                is_full: false,
            }),
            size_bytes,
        }
    }

    /// From now on these faults happen.
    pub fn set_faults(&self, faults: Faults) {
        self.inner.lock().faults = faults;
    }

    /// From now on every request fails, or no longer.
    pub fn set_gone(&self, is_gone: bool) {
        self.inner.lock().is_gone = is_gone;
    }

    /// From now on there is no room for writes, or there is again.
    pub fn set_full(&self, is_full: bool) {
        self.inner.lock().is_full = is_full;
    }

    /// Power is lost: each sector that was not flushed is written or not.
    pub fn crash(&self) {
        let mut inner = self.inner.lock();
        let mut cached: Vec<(u64, [u8; SECTOR_BYTES])> = inner.cached.drain().collect();
        cached.sort_unstable_by_key(|(sector, _)| *sector);
        for (sector, content) in cached {
            if inner.random().is_multiple_of(2) {
                let at = sector as usize * SECTOR_BYTES;
                inner.bytes[at..at + SECTOR_BYTES].copy_from_slice(&content);
            }
        }
    }
}

impl Device for SimDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let faults = inner.faults;
        if inner.is_gone || inner.happens(faults.read_errors, offset) {
            return Err(io::Error::other("simulated read error"));
        }
        if offset + bytes.len() as u64 > self.size_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (part, sector) in bytes.chunks_mut(SECTOR_BYTES).zip(offset / SECTOR_BYTES as u64..) {
            let at = sector as usize * SECTOR_BYTES;
            match inner.cached.get(&sector) {
                Some(content) => part.copy_from_slice(&content[..part.len()]),
                None => part.copy_from_slice(&inner.bytes[at..at + part.len()]),
            }
        }
        if inner.happens(faults.flipped_reads, offset) {
            let bit = inner.random() as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let faults = inner.faults;
        if inner.is_gone {
            return Err(io::Error::other("simulated device is gone"));
        }
        if inner.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if inner.happens(faults.lost_writes, offset) {
            return Ok(());
        }
        let is_failing = inner.happens(faults.write_errors, offset);
        let mut at = offset;
        if inner.happens(faults.misdirected_writes, offset) && offset + (bytes.len() as u64) + 4096 <= self.size_bytes {
            at += 4096;
        }
        let mut bytes = bytes.to_vec();
        if inner.happens(faults.flipped_writes, offset) {
            let bit = inner.random() as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for (part, sector) in bytes.chunks(SECTOR_BYTES).zip(at / SECTOR_BYTES as u64..) {
            if is_failing && inner.random().is_multiple_of(2) {
                continue;
            }
            let mut content = [0; SECTOR_BYTES];
            content[..part.len()].copy_from_slice(part);
            inner.cached.insert(sector, content);
        }
        if is_failing {
            Err(io::Error::other("simulated write error"))
        } else {
            Ok(())
        }
    }

    fn flush(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        if inner.is_gone {
            return Err(io::Error::other("simulated device is gone"));
        }
        let cached: Vec<(u64, [u8; SECTOR_BYTES])> = inner.cached.drain().collect();
        for (sector, content) in cached {
            let at = sector as usize * SECTOR_BYTES;
            inner.bytes[at..at + SECTOR_BYTES].copy_from_slice(&content);
        }
        Ok(())
    }
}
