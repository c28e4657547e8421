//! Places in the pool that are used without a shard's lock: a value that is being sent, room for one that is being written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_types::{UNIT_BYTES, UnixMs};

use super::{ShardGuard, TenantStore};
use crate::arena::UNIT_SHIFT;
use crate::item::Attributes;
use crate::shard::{Key, PinnedPlace, Refused};

/// The limit of a tenant's values, in bytes, that replies may be sent from without copying at a time. They cannot be
/// evicted meanwhile, whatever becomes of the grant. Beyond it values are copied into buffers that are bounded
/// elsewhere.
const PINNED_BYTES_MAX: u64 = 64 << 20;
/// Those of a tenant of a small grant.
const PINNED_BYTES_MIN: u64 = 16 << 20;
/// In between, this part of the grant: most of it can still be evicted.
const PINNED_GRANT_DIVISOR: u64 = 8;

const UNIT: usize = UNIT_BYTES as usize;
/// The divisor of a tenant's grant that values being written in pieces may hold, or one value twice as much. Nothing of
/// such a value can be evicted until it is committed.
const WRITTEN_GRANT_DIVISOR: u64 = 4;

/// Room for a value that is being written without a lock. Nothing of it is visible before [`Reservation::commit`]; dropped
/// without that, it is put back. Neither must happen while the same shard is locked by this thread, but for
/// [`ShardGuard::commit`].
#[derive(Debug)]
pub struct Reservation {
    tenant: Arc<TenantStore>,
    shard: usize,
    units: Vec<u32>,
    value_bytes: usize,
    /// How much of it [`Self::write`] has written.
    written_bytes: usize,
    /// Bytes that are counted to the tenant as being written in pieces.
    counted_bytes: u64,
}

impl Reservation {
    /// The reservation has no room yet: [`Self::extend`] takes it.
    pub(super) fn new(guard: &ShardGuard<'_>, value_bytes: usize) -> Self {
        Self {
            tenant: Arc::clone(guard.tenant()),
            shard: guard.number(),
            units: Vec::new(),
            value_bytes,
            written_bytes: 0,
            counted_bytes: 0,
        }
    }

    /// The same, counted to the tenant, if that has room for one more.
    pub(super) fn in_pieces(guard: &ShardGuard<'_>, value_bytes: usize) -> Option<Self> {
        let (bytes, tenant) = (value_bytes as u64, guard.tenant());
        let grant = tenant.grant_bytes();
        let most = grant / WRITTEN_GRANT_DIVISOR;
        // One value may take twice that, or be the reason for the first grant.
        let is_fit = |counted: u64| counted == 0 && (grant == 0 || bytes <= 2 * most);
        let fits = |counted: u64| (is_fit(counted) || counted + bytes <= most).then_some(counted + bytes);
        let written = &tenant.written_bytes;
        written.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let mut reservation = Self::new(guard, value_bytes);
        reservation.counted_bytes = bytes;
        Some(reservation)
    }

    /// Takes room for so many bytes from the value's beginning.
    pub(super) fn extend(&mut self, guard: &mut ShardGuard<'_>, bytes: usize, now: UnixMs) -> Result<(), Refused> {
        let missing = bytes.div_ceil(UNIT).saturating_sub(self.units.len());
        if missing > 0 {
            let taken = guard.relieved_uncounted(now, |shard| shard.reserve_units(missing, now))?;
            self.units.extend(taken);
        }
        Ok(())
    }

    /// Length of the value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// How much of the value was written by [`Self::write`], in bytes.
    pub fn written_bytes(&self) -> usize {
        self.written_bytes
    }

    /// The room, in parts in order, as long as the value together, or as far as there is room for it.
    pub fn parts(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (arena, value_bytes) = (&self.tenant.shared.pool.arena, self.value_bytes);
        self.units.iter().enumerate().map(move |(i, unit)| {
            let bytes = UNIT.min(value_bytes - i * UNIT);
            let address = arena.at(u64::from(*unit) << UNIT_SHIFT, bytes);
            // SAFETY: the unit was taken for this reservation, is its own until that ends, and is in no index, so that
            // nobody else reads it. `&mut self` makes this the only reference. Memory of the arena is always
            // initialised.
            unsafe { std::slice::from_raw_parts_mut(address, bytes) }
        })
    }

    /// Writes the next part of the value, and takes room for it as far as there is none yet. Locks the shard meanwhile.
    ///
    /// # Panics
    /// If that is more than is missing of the value.
    ///
    /// # Errors
    /// There is no room for it; nothing was written.
    pub fn write(&mut self, mut bytes: &[u8], now: UnixMs) -> Result<(), Refused> {
        let mut from = self.written_bytes;
        let end = from + bytes.len();
        assert!(end <= self.value_bytes, "{end} bytes of {}", self.value_bytes);
        if end.div_ceil(UNIT) > self.units.len() {
            let tenant = Arc::clone(&self.tenant);
            self.extend(&mut tenant.lock(self.shard), end, now)?;
        }
        for part in self.parts().take(end.div_ceil(UNIT)).skip(from / UNIT) {
            let (piece, rest) = bytes.split_at(bytes.len().min(part.len() - from % UNIT));
            part[from % UNIT..][..piece.len()].copy_from_slice(piece);
            from += piece.len();
            bytes = rest;
        }
        self.written_bytes = end;
        Ok(())
    }

    /// Makes the value the key's.
    ///
    /// # Errors
    /// The index or the log have no room for it.
    pub fn commit(self, key: &Key<'_>, attributes: Attributes, now: UnixMs) -> Result<(), Refused> {
        let tenant = Arc::clone(&self.tenant);
        tenant.lock(self.shard).commit(self, key, attributes, now)
    }
}

impl ShardGuard<'_> {
    /// Makes a value for which there was room taken the key's.
    ///
    /// # Panics
    /// If the room is in another shard or for a part of the value only.
    ///
    /// # Errors
    /// The index or the log have no room for it; the room is put back.
    pub fn commit(
        &mut self,
        mut room: Reservation,
        key: &Key<'_>,
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<(), Refused> {
        let (units, bytes) = (std::mem::take(&mut room.units), room.value_bytes);
        let is_own = Arc::ptr_eq(&room.tenant, self.tenant()) && room.shard == self.number();
        assert!(is_own && units.len() == bytes.div_ceil(UNIT), "{room:?} {units:?}");
        let committed = self.relieved(now, |shard| shard.end_reservation(key, bytes, &units, attributes, now));
        if committed.is_err() {
            self.shard.drop_reservation(units);
        }
        committed
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.tenant
            .written_bytes
            .fetch_sub(self.counted_bytes, Ordering::Relaxed);
        let units = std::mem::take(&mut self.units);
        if !units.is_empty() {
            self.tenant.lock(self.shard).shard.drop_reservation(units);
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

// SAFETY: the parts point into the pool, which the tenant keeps alive. Their memory is neither changed nor freed before
// `drop` ends the pin under the shard's lock. Reading it from any thread is sound.
unsafe impl Send for PinnedValue {}

// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for PinnedValue {}

impl PinnedValue {
    /// Whether more is kept in memory by this than the value: a whole segment of the log.
    pub fn holds_segment(&self) -> bool {
        matches!(self.place, PinnedPlace::Segment(..))
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

impl ShardGuard<'_> {
    /// Takes room for a value that lies outside of the log, to be filled after the lock is released. `None` for one that is
    /// short enough for [`Self::put`].
    ///
    /// # Errors
    /// It does not fit into the tenant's grant.
    pub fn reserve(&mut self, value_bytes: usize, now: UnixMs) -> Result<Option<Reservation>, Refused> {
        if value_bytes <= self.shard.inline_value_max() {
            return Ok(None);
        }
        let mut reservation = Reservation::new(self, value_bytes);
        let extended = reservation.extend(self, value_bytes, now);
        if extended.is_err() {
            self.shard.count_refusal();
        }
        extended.map(|()| Some(reservation))
    }

    /// Pins the value of a key that was just found under this lock, so that it can be read after the lock is released.
    /// `None` if so much is pinned already, or the value is just about to move, that it must be copied.
    pub fn pin(&mut self, key: &Key<'_>, value_bytes: usize) -> Option<PinnedValue> {
        let bytes = value_bytes as u64;
        // One value may be pinned however long it is.
        let part = self.tenant.grant_bytes() / PINNED_GRANT_DIVISOR;
        let most = part.clamp(PINNED_BYTES_MIN, PINNED_BYTES_MAX);
        let fits = |pinned: u64| (pinned == 0 || pinned + bytes <= most).then_some(pinned + bytes);
        let pinned = &self.tenant.pinned_bytes;
        pinned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let Some((place, parts)) = self.shard.pin(key) else {
            pinned.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        };
        Some(PinnedValue {
            tenant: Arc::clone(self.tenant),
            shard: self.number,
            place,
            parts,
            bytes,
        })
    }
}
