//! The reserved address space that all segments, indexes and large values live in.
//!
//! One range is reserved at start, never more than the machine's memory, so that it can be had under strict overcommit
//! too. It is divided into blocks of 2 MiB. A block is taken as a whole, as one huge page, or as 32 units of 64 KiB. A
//! place is named by its offset from the range's beginning. The first unit is never handed out, so that offset 0 means
//! "nowhere".
//!
//! Invariant: the whole range stays mapped readable and writable until the arena is dropped. An offset inside
//! of it can therefore always be read without a fault, whatever it holds.

use std::io;
use std::ptr::NonNull;

use tidemark_types::UNIT_BYTES;

/// log2 of [`UNIT_BYTES`].
pub(crate) const UNIT_SHIFT: u32 = UNIT_BYTES.trailing_zeros();
/// log2 of the units in a block: a block of 32 units is one huge page.
pub(crate) const BLOCK_ORDER: u8 = 5;
/// The units in a block.
pub(crate) const BLOCK_UNITS: u32 = 1 << BLOCK_ORDER;
/// A block's bytes: 2 MiB, the huge page of x86-64 and of ARM with 4 KiB pages.
pub(crate) const BLOCK_BYTES: usize = (UNIT_BYTES as usize) << BLOCK_ORDER;
/// The bytes of an ordinary page. If pages are larger, no block is collapsed.
const PAGE_BYTES: usize = 4096;
/// The largest arena whose places an entry of an index can name: 1 TiB.
pub(crate) const PLACES_MAX: u64 = 1 << 40;
/// A cache line's bytes, for code that loads ahead.
pub(crate) const LINE_BYTES: u64 = 64;

/// A reserved range of memory.
#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the arena is a range of memory without thread affinity. The pool (a run of units has one owner) and the
// shard's lock decide who may touch which part of it.
unsafe impl Send for Arena {}
// SAFETY: as above; the arena's own methods only compute addresses and call madvise, which is safe from any thread.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `len` bytes, rounded up to whole blocks, without backing them with memory.
    pub(crate) fn reserve(len: u64) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the pool is larger than the address space");
        let len = usize::try_from(len)
            .map_err(|_| too_large())?
            .checked_next_multiple_of(BLOCK_BYTES);
        let len = len.ok_or_else(too_large)?.max(BLOCK_BYTES);
        // One block more than asked for, so that an aligned range fits inside wherever the kernel puts it.
        let mapped = len.checked_add(BLOCK_BYTES).ok_or_else(too_large)?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let lead = start.cast::<u8>().align_offset(BLOCK_BYTES);
        let tail = BLOCK_BYTES - lead;
        // SAFETY: `lead` < BLOCK_BYTES <= mapped, so `aligned` and the two margins lie inside the mapping just made,
        // which nobody else knows. Unmapping the margins leaves [aligned, aligned + len) mapped.
        let aligned = unsafe {
            let aligned = start.cast::<u8>().add(lead);
            if lead > 0 {
                libc::munmap(start, lead);
            }
            if tail > 0 {
                libc::munmap(aligned.add(len).cast(), tail);
            }
            aligned
        };
        let base =
            NonNull::new(aligned).ok_or_else(|| io::Error::other("the system mapped the pool at address zero"))?;
        let arena = Self { base, len };
        // If the system makes huge pages unasked, a unit of 64 KiB costs 2 MiB on its first touch. Failure is harmless
        // (a kernel without huge pages).
        let _ = arena.advise(0, len, libc::MADV_NOHUGEPAGE);
        // SAFETY: as in `advise`, for one more flag. The pool is never part of a core dump, so that a crash neither
        // writes gigabytes nor leaks tenants' data.
        unsafe { libc::madvise(arena.base.as_ptr().cast(), len, libc::MADV_DONTDUMP) };
        Ok(arena)
    }

    /// Units in the range.
    pub(crate) fn units(&self) -> u32 {
        u32::try_from(self.len >> UNIT_SHIFT).unwrap_or(u32::MAX)
    }

    /// The address of an offset.
    ///
    /// # Panics
    /// If `[offset, offset + len)` does not lie in the range. An index or segment that names such a place is corrupt,
    /// and going on would serve other tenants' bytes.
    #[inline]
    pub(crate) fn at(&self, offset: u64, len: usize) -> *mut u8 {
        assert!(
            (offset as usize).saturating_add(len) <= self.len,
            "offset {offset} + {len} is outside of the arena"
        );
        // SAFETY: checked to be inside the mapping.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// Starts loading the cache line at an offset. A hint: any offset is allowed.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        prefetch(self.base.as_ptr().wrapping_add(offset as usize));
    }

    /// Gives the range's physical memory back to the system; it reads as zero afterwards.
    pub(crate) fn release(&self, offset: u64, len: usize) -> io::Result<()> {
        self.advise(offset, len, libc::MADV_DONTNEED)
    }

    /// Asks for huge pages in the range (`true`) or ordinary ones.
    pub(crate) fn set_huge(&self, offset: u64, len: usize, huge: bool) {
        // Failure leaves ordinary pages: slower, not wrong.
        let _ = self.advise(
            offset,
            len,
            if huge {
                libc::MADV_HUGEPAGE
            } else {
                libc::MADV_NOHUGEPAGE
            },
        );
    }

    /// How much of a block is backed by memory, in bytes; nothing where the system does not tell.
    pub(crate) fn resident_bytes(&self, block: u64) -> usize {
        let mut pages = [0_u8; BLOCK_BYTES / PAGE_BYTES];
        let address = self.at(block, BLOCK_BYTES);
        // SAFETY: the range is mapped (checked by `at`), there is a byte for each of its pages, and nothing else is written.
        let status = unsafe { libc::mincore(address.cast(), BLOCK_BYTES, pages.as_mut_ptr()) };
        let resident = pages.iter().filter(|page| **page & 1 == 1).count();
        if status == 0 { resident * PAGE_BYTES } else { 0 }
    }

    /// Whether blocks can be collapsed. The kernel has to know how (6.1), and pages have to be as large as assumed
    /// here. The operator has to let programs have huge pages, since a collapse would not heed a prohibition.
    pub(crate) fn can_collapse(&self) -> bool {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let is_allowed = setting.is_ok_and(|setting| !setting.contains("[never]"));
        // SAFETY: sysconf reads a system constant and has no preconditions.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        // The advice is for an empty range, and fails if the system does not know it.
        is_allowed && page_bytes == PAGE_BYTES as libc::c_long && self.advise(0, 0, libc::MADV_COLLAPSE).is_ok()
    }

    /// Makes a block that is backed by ordinary pages one huge page, whatever it holds. The call takes half a
    /// millisecond, more if the system has to find the page first. While it copies, threads that touch the block or map
    /// memory wait. On failure it stays on ordinary pages.
    pub(crate) fn collapse(&self, block: u64) -> io::Result<()> {
        self.set_huge(block, BLOCK_BYTES, true);
        let collapsed = self.advise(block, BLOCK_BYTES, libc::MADV_COLLAPSE);
        if collapsed.is_err() {
            self.set_huge(block, BLOCK_BYTES, false);
        }
        collapsed
    }

    /// Makes ordinary pages of a block that is one huge page, or was before a part of it was released. Until then the
    /// system counts that part as released, and does not have it back. The call takes a quarter of a millisecond.
    pub(crate) fn split(&self, block: u64) {
        // The advice pages nothing out. It tells the system that a part of a huge page is used less than the rest,
        // which splits the page. Failure costs memory until the rest is released, too.
        for half in [block, block + BLOCK_BYTES as u64 / 2] {
            let _ = self.advise(half, BLOCK_BYTES / 2, libc::MADV_COLD);
        }
        self.set_huge(block, BLOCK_BYTES, false);
    }

    /// Backs the range with physical memory now, zeroed where it was not backed before.
    pub(crate) fn populate(&self, offset: u64, len: usize) -> io::Result<()> {
        match self.advise(offset, len, libc::MADV_POPULATE_WRITE) {
            // A kernel before 5.14 does not know the advice; touching each page does the same.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                for page in (0..len).step_by(PAGE_BYTES) {
                    let address = self.at(offset + page as u64, 1);
                    // SAFETY: inside the mapping (checked by `at`). The caller owns the range, so nobody else reads or
                    // writes it meanwhile; writing the same bytes back changes nothing.
                    unsafe { address.write_volatile(address.read_volatile()) };
                }
                Ok(())
            }
            other => other,
        }
    }

    fn advise(&self, offset: u64, len: usize, advice: libc::c_int) -> io::Result<()> {
        let address = self.at(offset, len);
        // SAFETY: [address, address + len) is inside our own anonymous mapping (checked by `at`). No advice that is
        // passed here unmaps or moves it as far as the process sees. DONTNEED discards contents, which the callers own.
        let status = unsafe { libc::madvise(address.cast(), len, advice) };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: [base, base + len) is the mapping that `reserve` kept. Nobody can hold a reference into it any more,
        // because every owner of a run keeps the pool, and with it the arena, alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Starts loading all cache lines of a value: for a caller that knows that it will be read, and has something else to
/// do until then.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    let begin = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(LINE_BYTES as usize) {
        prefetch(begin.wrapping_add(offset));
    }
}

/// Starts loading the cache line at an address, whatever it is.
#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect but on the cache and never faults, so the address need not even be valid.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_aligned_and_reads_as_zero_after_release() {
        let arena = Arena::reserve(5 << 20).unwrap();
        assert_eq!(arena.units(), 96);
        assert!((arena.at(0, 0) as usize).is_multiple_of(BLOCK_BYTES));
        let place = arena.at(UNIT_BYTES, 8).cast::<u64>();
        // SAFETY: inside the mapping, aligned, and this test is the only user.
        unsafe {
            place.write(7);
            assert_eq!(place.read(), 7);
        }
        arena.release(UNIT_BYTES, UNIT_BYTES as usize).unwrap();
        // SAFETY: as above.
        unsafe { assert_eq!(place.read(), 0) };
    }

    #[test]
    #[should_panic(expected = "outside of the arena")]
    fn an_offset_outside_is_refused() {
        let arena = Arena::reserve(2 << 20).unwrap();
        let _ = arena.at(2 << 20, 1);
    }

    #[test]
    fn population_backs_every_page() {
        let arena = Arena::reserve(4 << 20).unwrap();
        arena.set_huge(2 << 20, BLOCK_BYTES, true);
        arena.populate(2 << 20, BLOCK_BYTES).unwrap();
        let mut resident = vec![0_u8; BLOCK_BYTES / 4096];
        // SAFETY: mincore writes one byte per page of the range into `resident`, which has that many.
        let status = unsafe { libc::mincore(arena.at(2 << 20, 0).cast(), BLOCK_BYTES, resident.as_mut_ptr()) };
        assert_eq!(status, 0);
        assert!(resident.iter().all(|page| page & 1 == 1));
    }
}
