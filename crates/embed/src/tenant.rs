//! One tenant: its keys, its goals, how it stands.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidemark_control::{Answer, ControlHandle, CurveView, MoveView, SettingsPatch, TenantView};
use tidemark_store::{Attributes, Counters, Key, PinnedValue, Reservation as Room, ShardGuard};
use tidemark_types::UnixMs;

use crate::cache::Cache;
use crate::error::Error;
use crate::plane::LocalTenant;
use crate::value::{Place, Reservation, Value};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// A tenant of a [`Cache`]. Clones are the same tenant; any thread may use it.
#[derive(Clone)]
pub struct Tenant {
    cache: Cache,
    name: Arc<str>,
    local: LocalTenant,
}

/// What a tenant has done, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantStats {
    /// Lookups since it was made.
    pub gets: u64,
    /// Those that found something.
    pub hits: u64,
    /// Writes.
    pub sets: u64,
    /// Items that were evicted for others.
    pub evicted: u64,
    /// Items that expired.
    pub expired: u64,
    /// Items that it holds.
    pub items: u64,
    /// Memory that it may hold, in bytes.
    pub grant_bytes: u64,
    /// Memory that it holds, index and all, in bytes.
    pub usage_bytes: u64,
}

impl TenantStats {
    /// Hits over lookups; `None` without lookups.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.gets > 0).then(|| self.hits as f64 / self.gets as f64)
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("name", &self.name)
            .field("grant_bytes", &self.local.store.grant_bytes())
            .field("usage_bytes", &self.local.store.usage_bytes())
            .finish_non_exhaustive()
    }
}

impl Tenant {
    pub(crate) fn new(cache: Cache, name: Arc<str>, local: LocalTenant) -> Self {
        Self { cache, name, local }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key's value: a long one to be read where it lies, others copied.
    pub fn get(&self, key: &[u8]) -> Option<Value> {
        let (key, now) = (self.key(key).ok()?, self.cache.now());
        let mut copy = Vec::new();
        let found = find(&mut self.lock(&key), &key, now, &mut copy);
        self.local.touch();
        found.map(|found| found.value(copy))
    }

    /// Appends the key's value to a buffer, which spares an allocation for each. Whether the key was there.
    pub fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> bool {
        let Ok(key) = self.key(key) else { return false };
        let now = self.cache.now();
        let found = find(&mut self.lock(&key), &key, now, buffer);
        self.local.touch();
        if let Some(Found::Pinned(pinned)) = &found {
            pinned.parts().for_each(|part| buffer.extend_from_slice(part));
        }
        found.is_some()
    }

    /// The values of several keys, in their order. Faster than one after the other: what is in memory of sixteen at a time is
    /// loaded together.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Option<Value>> {
        let now = self.cache.now();
        let mut found: Vec<Option<(Found, Vec<u8>)>> = keys.iter().map(|_| None).collect();
        // What is too long for a key is not there.
        let (places, hashed): (Vec<usize>, Vec<Key<'_>>) = keys
            .iter()
            .enumerate()
            .filter_map(|(i, key)| Some((i, self.key(key.as_ref()).ok()?)))
            .unzip();
        self.local.store.visit(&hashed, |i, shard| {
            let mut copy = Vec::new();
            found[places[i]] = find(shard, &hashed[i], now, &mut copy).map(|found| (found, copy));
        });
        self.local.touch();
        // No shard is locked any more.
        let value = |(found, copy): (Found, Vec<u8>)| found.value(copy);
        found.into_iter().map(|found| found.map(value)).collect()
    }

    /// Whether the key is there. It does not count as a use.
    pub fn contains(&self, key: &[u8]) -> bool {
        let Ok(key) = self.key(key) else { return false };
        let now = self.cache.now();
        self.lock(&key).peek(&key, now).is_some()
    }

    /// Stores a value under a key, in the place of an older one.
    ///
    /// # Errors
    /// The key or the value is too long, or there is no room: then an older value is as it was or evicted.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write(key, value, None)
    }

    /// The same for so long; then it is gone.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn insert_for(&self, key: &[u8], value: &[u8], lifetime: Duration) -> Result<(), Error> {
        self.write(key, value, Some(lifetime))
    }

    /// Takes room for a value of `value_bytes`, to be filled and then committed.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn reserve(&self, key: &[u8], value_bytes: usize) -> Result<Reservation, Error> {
        check_value(value_bytes)?;
        let (hashed, now) = (self.key(key)?, self.cache.now());
        let room = self.lock(&hashed).reserve(value_bytes, now);
        // Also where there is no room: that is how more may be granted.
        self.local.touch();
        let place = room?.map_or_else(|| Place::Buffer(vec![0; value_bytes]), Place::Final);
        Ok(Reservation::new(self.clone(), key, place))
    }

    /// Removes a key. Whether it was there.
    pub fn remove(&self, key: &[u8]) -> bool {
        let Ok(key) = self.key(key) else { return false };
        let now = self.cache.now();
        let was_there = self.lock(&key).delete(&key, now);
        self.local.touch();
        was_there
    }

    /// Removes everything.
    pub fn clear(&self) {
        self.local.store.flush(None, self.cache.now());
        self.local.touch();
    }

    /// Changes settings while it is in use: goal, floor, cap, policy.
    ///
    /// # Errors
    /// It was removed, or a setting is impossible; the error says what is allowed.
    pub fn set(&self, patch: SettingsPatch) -> Result<TenantView, Error> {
        self.ask(|control| control.set_tenant(&*self.name, patch))
    }

    /// How it stands, from its own counters.
    pub fn stats(&self) -> TenantStats {
        let store = &self.local.store;
        let mut counters = Counters::default();
        let items = store.sum(|shard| {
            counters.add(&shard.counters());
            shard.items()
        });
        TenantStats {
            gets: counters.gets,
            hits: counters.hits,
            sets: counters.sets,
            evicted: counters.evicted,
            expired: counters.expired,
            items,
            grant_bytes: store.grant_bytes(),
            usage_bytes: store.usage_bytes(),
        }
    }

    /// How the control plane sees it: whether its goal is met, which policy is in force, what it could use.
    ///
    /// # Errors
    /// It was removed.
    pub fn view(&self) -> Result<TenantView, Error> {
        self.ask(|control| control.tenant(&*self.name))
    }

    /// The latest changes of its grant, with their reasons and what came of them.
    ///
    /// # Errors
    /// It was removed.
    pub fn moves(&self) -> Result<Vec<MoveView>, Error> {
        self.ask(|control| control.moves(&*self.name))
    }

    /// Its miss-ratio curve: what would miss in which size.
    ///
    /// # Errors
    /// It was removed.
    pub fn curve(&self) -> Result<CurveView, Error> {
        self.ask(|control| control.curve(&*self.name))
    }

    /// Has the control plane do something about this tenant.
    fn ask<T>(&self, command: impl FnOnce(&ControlHandle) -> Answer<T>) -> Result<T, Error> {
        // A later tenant may have the name.
        if !self.cache.has(&self.name, self.local.id()) {
            return Err(Error::Removed(self.name.to_string()));
        }
        self.cache.ask(command)
    }

    pub(crate) fn write(&self, key: &[u8], value: &[u8], lifetime: Option<Duration>) -> Result<(), Error> {
        check_value(value.len())?;
        let (key, now) = (self.key(key)?, self.cache.now());
        let attributes = Attributes::expiring(now, lifetime);
        let written = self.local.store.put(&key, value, attributes, now);
        self.local.touch();
        Ok(written?)
    }

    pub(crate) fn commit(&self, room: Room, key: &[u8], lifetime: Option<Duration>) -> Result<(), Error> {
        let (key, now) = (self.key(key)?, self.cache.now());
        let written = room.commit(&key, Attributes::expiring(now, lifetime), now);
        self.local.touch();
        Ok(written?)
    }

    /// What must end with the last user.
    #[cfg(test)]
    pub(crate) fn weak_parts(
        &self,
    ) -> (
        std::sync::Weak<crate::LocalPlane>,
        std::sync::Weak<tidemark_store::TenantStore>,
    ) {
        (self.cache.weak_plane(), Arc::downgrade(&self.local.store))
    }

    fn key<'k>(&self, bytes: &'k [u8]) -> Result<Key<'k>, Error> {
        if bytes.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong(bytes.len()));
        }
        Ok(self.local.store.key(0, bytes))
    }

    fn lock(&self, key: &Key<'_>) -> ShardGuard<'_> {
        let store = &self.local.store;
        store.lock(store.shard_of(key.hash))
    }
}

/// From this length on, two copies cost more than a pin, and a copy under the lock would keep others waiting.
const PIN_BYTES: usize = 16 << 10;

/// A value that was found.
enum Found {
    /// Copied into the buffer.
    Copied,
    /// To be read after the lock is released.
    Pinned(PinnedValue),
}

impl Found {
    /// The value, where `copy` was the buffer. Not while the shard is locked.
    fn value(self, copy: Vec<u8>) -> Value {
        match self {
            Self::Copied => Value::copied(copy),
            // A segment would stay for one value in it, and a few hundred of them are all that there are.
            Self::Pinned(pinned) if pinned.holds_segment() => {
                Value::copied(pinned.parts().collect::<Vec<_>>().concat())
            }
            Self::Pinned(pinned) => Value::in_place(pinned),
        }
    }
}

/// Looks a key up in its shard: a short value is appended to `copy`.
fn find(shard: &mut ShardGuard<'_>, key: &Key<'_>, now: UnixMs, copy: &mut Vec<u8>) -> Option<Found> {
    let found = shard.get(key, now)?.value();
    let bytes = found.len();
    if bytes < PIN_BYTES {
        found.append_to(copy);
        return Some(Found::Copied);
    }
    if let Some(pinned) = shard.pin(key, bytes) {
        return Some(Found::Pinned(pinned));
    }
    shard.peek(key, now)?.value().append_to(copy);
    Some(Found::Copied)
}

fn check_value(bytes: usize) -> Result<(), Error> {
    if bytes > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong(bytes));
    }
    Ok(())
}
