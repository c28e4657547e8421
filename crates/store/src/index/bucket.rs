//! The eight entries of a bucket, all looked at at once.

use super::{DISPLACEMENT_MAX, DISPLACEMENT_SHIFT, SLOTS};

/// Bit `i` is set if `is_it` accepts entry `i`. All eight are asked before anything is decided. A processor cannot
/// predict where in its bucket a key lies and how many are there.
#[inline]
pub(super) fn which(entries: &[u64; SLOTS], is_it: impl Fn(u64) -> bool) -> u8 {
    let bits = entries.iter().zip(0..);
    bits.fold(0, |bits, (&entry, slot)| bits | u8::from(is_it(entry)) << slot)
}

/// Bit `i` is set if tag and displacement of entry `i`, its upper 22 bits, are these. The result is that of [`which`],
/// in a third of the instructions. SSE2 cannot compare 64 bits, so compilers translate `which` badly.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn matching(entries: &[u64; SLOTS], wanted: u32) -> u8 {
    use std::arch::x86_64::*;
    let halves = entries.as_ptr().cast::<f32>();
    // SAFETY: SSE2 is part of x86-64; the loads are of halves 0..4, 4..8, 8..12 and 12..16 of the array's sixteen, and need
    // no alignment.
    unsafe {
        let wanted = _mm_set1_epi32(wanted.cast_signed());
        let of_four = |first: usize| {
            let (two, next) = (_mm_loadu_ps(halves.add(first)), _mm_loadu_ps(halves.add(first + 4)));
            let uppers = _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(two, next));
            _mm_cmpeq_epi32(_mm_srli_epi32::<{ DISPLACEMENT_SHIFT as i32 - 32 }>(uppers), wanted)
        };
        let eight = _mm_packs_epi32(of_four(0), of_four(8));
        _mm_movemask_epi8(_mm_packs_epi16(eight, eight)) as u8
    }
}

/// The same.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn matching(entries: &[u64; SLOTS], wanted: u32) -> u8 {
    which(entries, |entry| entry >> DISPLACEMENT_SHIFT == u64::from(wanted))
}

/// How many entries a bucket has.
#[inline]
pub(super) fn count(entries: &[u64; SLOTS]) -> usize {
    which(entries, |entry| entry != 0).count_ones() as usize
}

#[inline]
pub(super) fn displacement(entry: u64) -> u64 {
    (entry >> DISPLACEMENT_SHIFT) & DISPLACEMENT_MAX
}
