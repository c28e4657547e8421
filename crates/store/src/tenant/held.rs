//! Places in the pool that are used without a shard's lock: a value that is being sent, room for one that is being written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_types::{UNIT_BYTES, UnixMs};

use super::TenantStore;
use crate::arena::UNIT_SHIFT;
use crate::item::Attributes;
use crate::shard::{Key, PinnedPlace, Refused};

/// Room for a value that is being written without a lock. Nothing of it is visible before [`Reservation::commit`]; dropped
/// without that, it is put back.
#[derive(Debug)]
pub struct Reservation {
    pub(super) tenant: Arc<TenantStore>,
    pub(super) shard: usize,
    pub(super) units: Vec<u32>,
    pub(super) value_bytes: usize,
}

impl Reservation {
    /// The room, in parts in order, as long as the value together.
    pub fn parts(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (arena, value_bytes) = (&self.tenant.shared.pool.arena, self.value_bytes);
        self.units.iter().enumerate().map(move |(i, unit)| {
            let bytes = (UNIT_BYTES as usize).min(value_bytes - i * UNIT_BYTES as usize);
            let address = arena.at(u64::from(*unit) << UNIT_SHIFT, bytes);
            // SAFETY: the unit was taken for this reservation, is pinned, so that it stays its own until the pin ends, and is
            // in no index, so that nobody else reads it; `&mut self` makes this the only reference. Memory of the arena is
            // always initialised.
            unsafe { std::slice::from_raw_parts_mut(address, bytes) }
        })
    }

    /// Makes the value the key's.
    ///
    /// # Errors
    /// The index or the log have no room for it.
    pub fn commit(mut self, key: &Key<'_>, attributes: Attributes, now: UnixMs) -> Result<(), Refused> {
        let units = std::mem::take(&mut self.units);
        let tenant = Arc::clone(&self.tenant);
        let mut guard = tenant.lock(self.shard);
        if !guard.shard.end_reservation(&units) {
            // Everything was removed after the value was written, as far as anybody can tell.
            return Ok(());
        }
        let bytes = self.value_bytes;
        let written = guard.relieved(now, |shard| {
            // An expired item must not pass for the key's old one.
            let _ = shard.peek(key, now);
            shard.append_stub(key, bytes, &units, attributes, now)
        });
        if written.is_err() {
            guard.shard.free_outside(units);
        }
        written
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.units.is_empty() {
            return;
        }
        let units = std::mem::take(&mut self.units);
        let mut guard = self.tenant.lock(self.shard);
        if guard.shard.end_reservation(&units) {
            guard.shard.free_outside(units);
        }
    }
}

/// A value that stays as it is until this is dropped. Must not be dropped while the same shard is locked by this thread.
#[derive(Debug)]
pub struct PinnedValue {
    pub(super) tenant: Arc<TenantStore>,
    pub(super) shard: usize,
    pub(super) place: PinnedPlace,
    pub(super) parts: Vec<*const [u8]>,
    pub(super) bytes: u64,
}

// SAFETY: the parts point into the pool, which the tenant keeps alive, at memory that is neither changed nor freed before
// `drop` ends the pin under the shard's lock; reading it from any thread is sound.
unsafe impl Send for PinnedValue {}

// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for PinnedValue {}

impl PinnedValue {
    /// Whether more is kept in memory by this than the value: a whole segment of the log.
    pub fn holds_segment(&self) -> bool {
        matches!(self.place, PinnedPlace::Segment(_))
    }

    /// The value's parts in order.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        // SAFETY: pinned (see above) for as long as `self` is borrowed.
        self.parts.iter().map(|part| unsafe { &**part })
    }
}

impl Drop for PinnedValue {
    fn drop(&mut self) {
        self.tenant.lock(self.shard).shard.unpin(self.place);
        self.tenant.pinned_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
