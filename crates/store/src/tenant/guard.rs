//! A locked shard, and the writes that need other shards of the tenant to give up memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use tidemark_types::UnixMs;

use super::{Cell, TenantStore};
use crate::item::Attributes;
use crate::shard::{Key, Refused, Shard};
use crate::shared::Left;

/// A locked shard.
#[derive(Debug)]
pub struct ShardGuard<'a> {
    pub(super) tenant: &'a Arc<TenantStore>,
    pub(super) number: usize,
    pub(super) cell: &'a Cell,
    pub(super) shard: MutexGuard<'a, Shard>,
}

impl std::ops::Deref for ShardGuard<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl std::ops::DerefMut for ShardGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for ShardGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let units = self.shard.units();
        if self.cell.units.load(Ordering::Relaxed) != units {
            self.cell.units.store(units, Ordering::Relaxed);
        }
        // A shard that came to hold memory needs a keeper.
        if !self.cell.is_kept.load(Ordering::Relaxed) && units > 0 {
            self.cell.is_kept.store(true, Ordering::Relaxed);
            self.tenant.announce(self.number, true);
        }
    }
}

impl<'a> ShardGuard<'a> {
    /// Writes an item, new or in the place of the key's old one.
    ///
    /// # Errors
    /// It does not fit into the tenant's grant; then the old item, if any, is as it was or evicted.
    #[inline]
    pub fn put(&mut self, key: &Key<'_>, value: &[u8], attributes: Attributes, now: UnixMs) -> Result<(), Refused> {
        self.relieved(now, |shard| shard.put(key, value, attributes, now))
    }

    /// Takes an item back that lay below memory, unless the key has one. It is no write: nothing is counted or recorded.
    ///
    /// # Errors
    /// It does not fit into the tenant's grant.
    pub fn restore(&mut self, key: &Key<'_>, value: &[u8], attributes: Attributes, now: UnixMs) -> Result<(), Refused> {
        self.relieved_uncounted(now, |shard| shard.restore(key, value, attributes, now))
    }

    /// Changes the attributes of a key's item. Whether the key was there; an expiry that has come removes it.
    ///
    /// # Errors
    /// The item needs a new place, for something to be added, and there is none.
    pub fn set_attributes(&mut self, key: &Key<'_>, attributes: Attributes, now: UnixMs) -> Result<bool, Refused> {
        self.relieved(now, |shard| shard.set_attributes(key, attributes, now))
    }

    /// Sets or removes a key's expiry. Whether the key was there; a time that has come removes it.
    ///
    /// # Errors
    /// The errors of [`Self::set_attributes`].
    pub fn set_expiry(&mut self, key: &Key<'_>, expiry: Option<UnixMs>, now: UnixMs) -> Result<bool, Refused> {
        let Some(attributes) = self.peek(key, now).map(|found| found.attributes()) else {
            return Ok(false);
        };
        self.set_attributes(key, Attributes { expiry, ..attributes }, now)
    }

    /// The token of a key's item, given to it now if it has none; `None` if the key is not there.
    ///
    /// # Errors
    /// The item needs a new place, for the token to be added, and there is none.
    pub fn token(&mut self, key: &Key<'_>, now: UnixMs) -> Result<Option<u64>, Refused> {
        self.relieved(now, |shard| shard.token(key, now))
    }

    /// Does something that may be refused for want of memory; if it is, other shards of the tenant give some up for it.
    #[inline]
    pub(super) fn relieved<T>(
        &mut self,
        now: UnixMs,
        write: impl FnMut(&mut Shard) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let written = self.relieved_uncounted(now, write);
        if written.is_err() {
            self.shard.count_refusal();
        }
        written
    }

    /// The same for something that is tried otherwise when it is refused.
    #[inline]
    pub(super) fn relieved_uncounted<T>(
        &mut self,
        now: UnixMs,
        mut write: impl FnMut(&mut Shard) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        loop {
            let written = write(&mut self.shard);
            if written.is_ok() || !self.take_from_siblings(now) {
                return written;
            }
        }
    }

    /// This shard has nothing left to evict, because its siblings hold the tenant's grant: the one that holds most evicts a
    /// segment. `false` if none could.
    #[cold]
    fn take_from_siblings(&self, now: UnixMs) -> bool {
        let held = |(number, cell): (usize, &Cell)| (cell.units.load(Ordering::Relaxed), number);
        let mut by_units: Vec<(u64, usize)> = self.tenant.cells().iter().enumerate().map(held).collect();
        by_units.sort_unstable();
        let own = self.shard.units();
        let others = by_units
            .into_iter()
            .rev()
            .filter(|&(units, number)| number != self.number && units >= own);
        // A sibling in use is passed over instead of waited for: its user may be waiting for this shard.
        let siblings = others.filter_map(|(_, number)| {
            let cell = &self.tenant.cells()[number];
            Some(ShardGuard {
                tenant: self.tenant,
                number,
                cell,
                shard: cell.shard.try_lock()?,
            })
        });
        siblings
            .into_iter()
            .any(|mut sibling| sibling.shard.evict_for_units(now))
    }

    /// The shard's number.
    #[inline]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The tenant whose shard this is.
    #[inline]
    pub fn tenant(&self) -> &'a Arc<TenantStore> {
        self.tenant
    }

    /// Removes everything of one database, or of all, for a client. For one who holds all shards; else see
    /// [`TenantStore::flush`].
    pub fn flush(&mut self, db: Option<u8>, now: UnixMs) {
        if self.number == 0 {
            // One record tells of the whole tenant's.
            self.shard.sample_flush(db, now);
            self.tenant.flush_below(db);
        }
        match db {
            Some(db) => self.shard.flush(db),
            None => self.shard.empty(Left::Removed),
        }
        self.tenant.nudge_one(self.number);
    }
}
