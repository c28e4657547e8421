//! One tenant: its keys, its goals, how it stands.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidemark_control::{
    Answer, Change, ControlHandle, CurveView, MoveView, ResizeStrategy, SettingsPatch, TenantView, UtilityFunction,
};
use tidemark_flash::OnFlash;
use tidemark_plane::Purpose;
use tidemark_store::{
    Attributes, Counters, EvictionPolicy, Key, PinnedValue, Prospect, Reservation as Room, ShardGuard, Value as Stored,
};
use tidemark_types::{Fault, FlashUse, Policy, PolicyChoice, UnixMs};

use crate::admission::{AdmissionChoice, Candidate};
use crate::cache::Cache;
use crate::error::Error;
use crate::plane::LocalTenant;
use crate::value::{Place, Reservation, Value, ValueRef};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// A tenant of a [`Cache`]. Clones are the same tenant; any thread may use it.
#[derive(Clone)]
pub struct Tenant {
    cache: Cache,
    name: Arc<str>,
    local: Arc<LocalTenant>,
}

/// The counts of a tenant, and its usage.
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
    /// Items that its admission policy did not let in.
    pub not_admitted: u64,
    /// How often something that the program supplied was replaced: see [`Tenant::faults`].
    pub faults: u64,
    /// Items that it holds.
    pub items: u64,
    /// Memory that it may hold, in bytes.
    pub grant_bytes: u64,
    /// Memory that it holds, index and all, in bytes.
    pub usage_bytes: u64,
    /// Its use of flash; `None` where there is none.
    pub flash: Option<FlashUse>,
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
    pub(crate) fn new(cache: Cache, name: Arc<str>, local: Arc<LocalTenant>) -> Self {
        Self { cache, name, local }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key's value: a long one to be read where it lies, others copied. The thread waits for one that is on flash.
    pub fn get(&self, key: &[u8]) -> Option<Value> {
        let (key, now) = (self.key(key).ok()?, self.cache.now());
        let mut copy = Vec::new();
        let found = find(&mut self.lock_there(&key, Purpose::Get, now), &key, now, &mut copy);
        self.local.touch_store();
        found.map(|found| found.value(copy))
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// The value may be on flash, and only the device can tell: [`Self::get`] waits for it. It does not count as a lookup.
    pub fn try_get(&self, key: &[u8]) -> Result<Option<Value>, OnFlash> {
        let Ok(key) = self.key(key) else { return Ok(None) };
        let (now, mut copy) = (self.cache.now(), Vec::new());
        let mut shard = self.lock(&key);
        if let Some(tier) = &self.local.tier
            && tier.seek(&mut shard, &key, Purpose::Get, now).is_some()
        {
            return Err(OnFlash);
        }
        let found = find(&mut shard, &key, now, &mut copy);
        drop(shard);
        self.local.touch_store();
        Ok(found.map(|found| found.value(copy)))
    }

    /// Appends the key's value to a buffer, which spares an allocation for each. Whether the key was there.
    pub fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> bool {
        let Ok(key) = self.key(key) else { return false };
        let now = self.cache.now();
        let found = find(&mut self.lock_there(&key, Purpose::Get, now), &key, now, buffer);
        self.local.touch_store();
        if let Some(Found::Pinned(pinned)) = &found {
            pinned.parts().for_each(|part| buffer.extend_from_slice(part));
        }
        found.is_some()
    }

    /// Has `read` look at the key's value in its place, whatever its length, without a copy. The result is its answer,
    /// or `None` if the key is not there.
    ///
    /// A value of up to 256 KiB, or half a segment, is read under the lock of its shard, and others wait meanwhile.
    /// `read` should therefore take a few microseconds at most, wait for nothing, and **must not use the cache**, which
    /// would wait for itself for ever. [`Self::get`] is for longer uses. If `read` panics, the panic goes on to the
    /// caller, and the cache is as it was.
    pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&ValueRef<'_>) -> R) -> Option<R> {
        let (key, now) = (self.key(key).ok()?, self.cache.now());
        // Dropped after the lock, also if `read` panics.
        let _touch = Touch(&self.local);
        let mut shard = self.lock_there(&key, Purpose::Other, now);
        let found = shard.get(&key, now)?.value();
        if let Stored::Whole(_) = found {
            return Some(read(&ValueRef::locked(found)));
        }
        let bytes = found.len();
        if let Some(pinned) = shard.pin(&key, bytes) {
            // Nobody has to wait for a long one.
            drop(shard);
            return Some(read(&ValueRef::pinned(&pinned)));
        }
        let found = shard.peek(&key, now)?.value();
        Some(read(&ValueRef::locked(found)))
    }

    /// The values of several keys, in their order. Faster than one after the other: what is in memory of sixteen at a time
    /// is loaded together. With flash it is one after the other.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Option<Value>> {
        if self.local.tier.is_some() {
            return keys.iter().map(|key| self.get(key.as_ref())).collect();
        }
        let now = self.cache.now();
        let mut found: Vec<Option<(Found, Vec<u8>)>> = keys.iter().map(|_| None).collect();
        // A key that is too long is not there.
        let (places, hashed): (Vec<usize>, Vec<Key<'_>>) = keys
            .iter()
            .enumerate()
            .filter_map(|(i, key)| Some((i, self.key(key.as_ref()).ok()?)))
            .unzip();
        self.local.store.visit(&hashed, |i, shard| {
            let mut copy = Vec::new();
            found[places[i]] = find(shard, &hashed[i], now, &mut copy).map(|found| (found, copy));
        });
        self.local.touch_store();
        // No shard is locked any more.
        let value = |(found, copy): (Found, Vec<u8>)| found.value(copy);
        found.into_iter().map(|found| found.map(value)).collect()
    }

    /// Whether the key is there. It does not count as a use.
    pub fn contains(&self, key: &[u8]) -> bool {
        let Ok(key) = self.key(key) else { return false };
        let now = self.cache.now();
        self.lock_there(&key, Purpose::Other, now).peek(&key, now).is_some()
    }

    /// Stores a value under a key, in the place of an older one.
    ///
    /// # Errors
    /// The key or the value is too long, or is not let in ([`Self::set_admission`]). If there is no room, an older
    /// value is as it was or evicted.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write(key, value, None)
    }

    /// The same for so long; then it is gone.
    ///
    /// # Errors
    /// The errors of [`Self::insert`].
    pub fn insert_for(&self, key: &[u8], value: &[u8], lifetime: Duration) -> Result<(), Error> {
        self.write(key, value, Some(lifetime))
    }

    /// Takes room for a value of `value_bytes`, to be filled and then committed.
    ///
    /// # Errors
    /// The errors of [`Self::insert`].
    pub fn reserve(&self, key: &[u8], value_bytes: usize) -> Result<Reservation, Error> {
        check_value(value_bytes)?;
        let (hashed, now) = (self.key(key)?, self.cache.now());
        self.let_in(&hashed, value_bytes, None, now)?;
        let room = self.lock(&hashed).reserve(value_bytes, now);
        // Also where there is no room: that is how more may be granted.
        self.local.touch_store();
        let place = room?.map_or_else(|| Place::Buffer(vec![0; value_bytes]), Place::Final);
        Ok(Reservation::new(self.clone(), key, place))
    }

    /// Removes a key. Whether it was there.
    pub fn remove(&self, key: &[u8]) -> bool {
        let Ok(key) = self.key(key) else { return false };
        let now = self.cache.now();
        let was_there = self.lock_there(&key, Purpose::Other, now).delete(&key, now);
        self.local.touch_store();
        was_there
    }

    /// Removes everything.
    pub fn clear(&self) {
        self.local.store.flush(None, self.cache.now());
        self.local.touch_store();
    }

    /// Changes settings while it is in use: goal, floor, cap, policy.
    ///
    /// # Errors
    /// It was removed, or a setting is impossible; the error says what is allowed.
    pub fn set(&self, patch: SettingsPatch) -> Result<TenantView, Error> {
        let view = self.ask(|control| control.set_tenant(&*self.name, patch))?;
        Ok(self.seen(view))
    }

    /// Has the program's own policy decide from now on which items go: the tenant's policy is [`Policy::Custom`]. It decides
    /// until another one is supplied or [`Self::set`] names one; that may name [`Policy::Custom`] again. Nothing is lost by it.
    ///
    /// # Errors
    /// The tenant was removed, or the policy fails in a call that is made once ([`Error::Faulty`]).
    pub fn set_eviction(&self, policy: Arc<dyn EvictionPolicy>) -> Result<TenantView, Error> {
        self.local.store.supply_eviction(policy).map_err(Error::Faulty)?;
        self.set(SettingsPatch {
            policy: Change::Set(PolicyChoice::Fixed(Policy::Custom)),
            ..SettingsPatch::default()
        })
    }

    /// Has this decide from now on which items are let in.
    pub fn set_admission(&self, choice: AdmissionChoice) {
        self.local.set_gate(choice.into(), self.remembering());
    }

    /// Has the program's own strategy decide from now on how much memory the tenant wants. `None` restores the built-in
    /// one, which finds the least for the hit ratio that is the tenant's goal.
    ///
    /// # Errors
    /// It was removed.
    pub fn set_sizing(&self, strategy: Option<Box<dyn ResizeStrategy>>) -> Result<(), Error> {
        self.ask(|control| control.set_sizing(&*self.name, strategy))
    }

    /// Has the program's own function say from now on how much hits are worth to the tenant. `None` restores the
    /// utility of its settings. Memory that no floor and no goal takes goes by that.
    ///
    /// # Errors
    /// It was removed.
    pub fn set_utility(&self, utility: Option<Box<dyn UtilityFunction>>) -> Result<(), Error> {
        self.ask(|control| control.set_utility(&*self.name, utility))
    }

    /// The faults of the tenant's code that was replaced by the built-in rules: the newest ones, oldest first.
    pub fn faults(&self) -> Vec<Fault> {
        self.local.faults()
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
            not_admitted: self.local.not_admitted(),
            faults: self.local.faults_total(),
            items,
            grant_bytes: store.grant_bytes(),
            usage_bytes: store.usage_bytes(),
            flash: self.local.tier.as_ref().map(|tier| tier.used()),
        }
    }

    /// The control plane's view of it: whether its goal is met, which policy is in force, and its demand.
    ///
    /// # Errors
    /// It was removed.
    pub fn view(&self) -> Result<TenantView, Error> {
        let view = self.ask(|control| control.tenant(&*self.name))?;
        Ok(self.seen(view))
    }

    /// The latest changes of its grant, with their reasons and outcomes.
    ///
    /// # Errors
    /// It was removed.
    pub fn moves(&self) -> Result<Vec<MoveView>, Error> {
        self.ask(|control| control.moves(&*self.name))
    }

    /// Its miss-ratio curve: the miss ratio at each size.
    ///
    /// # Errors
    /// It was removed.
    pub fn curve(&self) -> Result<CurveView, Error> {
        self.ask(|control| control.curve(&*self.name))
    }

    /// Has the control plane do something about this tenant.
    fn ask<T>(&self, command: impl FnOnce(&ControlHandle) -> Answer<T>) -> Result<T, Error> {
        // A later tenant may have the name.
        if !self.cache.has(&self.name, self.local.id) {
            return Err(Error::Removed(self.name.to_string()));
        }
        self.cache.ask(command)
    }

    /// The control plane's view, which does not know what became of the program's policy.
    fn seen(&self, mut view: TenantView) -> TenantView {
        let is_custom = view.policy_in_force == Policy::Custom.name();
        if is_custom && !self.local.store.has_custom_eviction() {
            view.policy_in_force = Policy::Fifo.to_string();
        }
        view
    }

    fn write(&self, key: &[u8], value: &[u8], lifetime: Option<Duration>) -> Result<(), Error> {
        check_value(value.len())?;
        let (hashed, now) = (self.key(key)?, self.cache.now());
        self.let_in(&hashed, value.len(), lifetime, now)?;
        self.put(&hashed, value, lifetime, now)
    }

    /// Stores a value that was let in.
    pub(crate) fn store(&self, key: &[u8], value: &[u8], lifetime: Option<Duration>) -> Result<(), Error> {
        self.put(&self.key(key)?, value, lifetime, self.cache.now())
    }

    fn put(&self, key: &Key<'_>, value: &[u8], lifetime: Option<Duration>, now: UnixMs) -> Result<(), Error> {
        let attributes = Attributes::expiring(now, lifetime);
        let written = self.local.store.put(key, value, attributes, now);
        self.local.touch_store();
        Ok(written?)
    }

    pub(crate) fn commit(&self, room: Room, key: &[u8], lifetime: Option<Duration>) -> Result<(), Error> {
        let (key, now) = (self.key(key)?, self.cache.now());
        let written = room.commit(&key, Attributes::expiring(now, lifetime), now);
        self.local.touch_store();
        Ok(written?)
    }

    /// Asks the tenant's admission policy, if it has one.
    #[inline]
    fn let_in(&self, key: &Key<'_>, value_bytes: usize, lifetime: Option<Duration>, now: UnixMs) -> Result<(), Error> {
        if self.local.is_gated() && !self.is_admitted(key, value_bytes, lifetime, now) {
            return Err(Error::NotAdmitted);
        }
        Ok(())
    }

    fn is_admitted(&self, key: &Key<'_>, value_bytes: usize, lifetime: Option<Duration>, now: UnixMs) -> bool {
        // Remembering may take memory, and looking may free some.
        let _touch = Touch(&self.local);
        let prospect = self.lock(key).prospect(key, now);
        let Prospect {
            is_stored,
            is_full,
            was_seen,
        } = prospect;
        let candidate = Candidate {
            key: key.bytes,
            value_bytes,
            lifetime,
            is_full,
            was_seen,
        };
        let remember = || self.lock(key).remember(key);
        is_stored || self.local.admits(&candidate, remember, self.remembering())
    }

    /// Has the store remember refused keys or not.
    fn remembering(&self) -> impl FnOnce(bool) {
        |is_gated| self.local.store.set_remembering(is_gated)
    }

    /// The parts that must end with the last user.
    #[cfg(test)]
    pub(crate) fn weak_parts(
        &self,
    ) -> (
        std::sync::Weak<crate::plane::LocalPlane>,
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

    /// The key's shard, when what there is of the key is in memory.
    fn lock_there(&self, key: &Key<'_>, purpose: Purpose, now: UnixMs) -> ShardGuard<'_> {
        match &self.local.tier {
            Some(tier) => tier.fetch(&self.local.store, key, purpose, now),
            None => self.lock(key),
        }
    }

    fn lock(&self, key: &Key<'_>) -> ShardGuard<'_> {
        let store = &self.local.store;
        store.lock(store.shard_of(key.hash))
    }
}

/// Notes that a tenant was used when this is dropped.
struct Touch<'a>(&'a LocalTenant);

impl Drop for Touch<'_> {
    fn drop(&mut self) {
        self.0.touch_store();
    }
}

/// From this length on, two copies cost more than a pin, and a copy under the lock would keep others waiting.
const PIN_BYTES: usize = 16 << 10;

/// A value that was found.
enum Found {
    /// Copied into the buffer.
    Copied,
    /// A pinned value, to be read after the lock is released.
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
