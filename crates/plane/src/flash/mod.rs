//! The flash below the tenants' memory: evicted items go there, and come back when they are asked for.
//!
//! An item that is on flash is brought back into memory before its command is executed, so that no command knows of
//! flash. A front asks [`Tier::seek`] for each key that a command is about to look at. If that answers with bytes to
//! read, the command waits, and [`Tier::land`] takes the bytes.
//!
//! Invariants: all that is decided about a key is decided under its shard's lock, within which the volume's lock is taken. So
//! what was read cannot come back after a client has written or removed its key. No lock is held while the device is waited
//! for.

mod absent;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidemark_flash::{
    Barrier, Borrowed, Buffer, Found, Lookup, Next, Read, SEGMENT_BYTES, Settings, Staleness, Store, TenantNumber,
    TenantUuid, VALUE_BYTES_MAX,
};
use tidemark_store::{Attributes, Below, Key, KeyHash, Leaving, ShardGuard, TenantStore, Value};
use tidemark_types::{FlashPlan, FlashUse, Served, TenantId, UnixMs};

use absent::Absent;

/// Reads for one key at most: each is of another record with the same tag, or of one that memory has evicted again meanwhile.
const FETCHES_MAX: usize = 16;

/// The flash of all tenants.
pub struct Flash {
    store: Store,
    /// Tells this data folder's tenants from others'.
    identity: [u8; 16],
    numbers: Mutex<HashMap<TenantId, TenantNumber>>,
}

/// The reason for which a key is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A get, which counts for the hit ratio.
    Get,
    /// Any other command.
    Other,
}

/// A tenant's part of the flash.
pub struct Tier {
    flash: Arc<Flash>,
    number: TenantNumber,
    is_strict: AtomicBool,
    absent: Absent,
    get_hits: AtomicU64,
    /// Commands that waited for reads, and how long, in microseconds.
    waits: AtomicU64,
    waited_us: AtomicU64,
}

impl fmt::Debug for Flash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tier({:?})", self.number)
    }
}

/// How a tenant is known on flash: the same in every run on one data folder, and never that of another tenant.
fn uuid(identity: &[u8; 16], id: TenantId) -> TenantUuid {
    let mut bytes = [0; 16];
    for (half, seed) in bytes.chunks_exact_mut(8).zip(identity.chunks_exact(8)) {
        let seed = seed.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        half.copy_from_slice(&mix(seed ^ u64::from(id.0)).to_le_bytes());
    }
    TenantUuid(bytes)
}

/// The end of splitmix64, which gives each number another one (Steele, Lea and Flood, OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

fn settings(identity: &[u8; 16], id: TenantId, grant_segments: usize) -> Settings {
    let plan = FlashPlan::default();
    Settings {
        uuid: uuid(identity, id),
        staleness: staleness(plan.staleness),
        grant_segments,
        write_bytes_per_second: plan.write_bytes_per_second.unwrap_or(0),
    }
}

fn staleness(staleness: tidemark_types::Staleness) -> Staleness {
    match staleness {
        tidemark_types::Staleness::Strict => Staleness::Strict,
        tidemark_types::Staleness::Bounded(ms) => Staleness::Bounded(ms),
        tidemark_types::Staleness::None => Staleness::None,
    }
}

impl Flash {
    /// Opens the volume on a device for these tenants. Items of others are removed. The file is for a snapshot of the index: see
    /// [`Store::open`].
    ///
    /// # Errors
    /// The device is not ours, or fails.
    pub fn open(
        device: Arc<dyn tidemark_flash::device::Device>,
        identity: [u8; 16],
        tenants: &[TenantId],
        index: Option<&Path>,
    ) -> Result<Arc<Self>, tidemark_flash::OpenError> {
        let segments = usize::try_from(device.size_bytes()).unwrap_or(usize::MAX) / SEGMENT_BYTES;
        let known: Vec<Settings> = tenants.iter().map(|id| settings(&identity, *id, segments)).collect();
        let store = Store::open(device, &known, index)?;
        let numbers = tenants.iter().copied().zip((0..).map(TenantNumber)).collect();
        Ok(Arc::new(Self {
            store,
            identity,
            numbers: Mutex::new(numbers),
        }))
    }

    /// The store of all tenants.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The capacity of the volume, in bytes.
    pub fn size_bytes(&self) -> u64 {
        (self.store.segments() * SEGMENT_BYTES) as u64
    }

    /// A tenant's part.
    pub(crate) fn tier(self: &Arc<Self>, id: TenantId) -> Tier {
        let mut numbers = self.numbers.lock();
        // Until a plan speaks of it: where there is no room for all, whoever holds most gives first.
        let first = self.store.segments();
        let number = *numbers
            .entry(id)
            .or_insert_with(|| self.store.add_tenant(&settings(&self.identity, id, first)));
        Tier {
            flash: Arc::clone(self),
            number,
            is_strict: AtomicBool::new(false),
            absent: Absent::default(),
            get_hits: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
        }
    }

    /// Removes a tenant with all that is on flash of it.
    pub(crate) fn remove(&self, id: TenantId) {
        let mut numbers = self.numbers.lock();
        if let Some(number) = numbers.remove(&id) {
            self.store.remove_tenant(number);
        }
    }
}

impl Below for Tier {
    fn forget(&self, hash: KeyHash) {
        self.absent.forget(hash);
        self.flash.store.drop_unread(self.number, hash.0);
    }

    fn demote(&self, item: &Leaving<'_>) {
        let attributes = &item.attributes;
        let long;
        let value = match item.value {
            Value::Whole(value) => value,
            value if value.len() > VALUE_BYTES_MAX => return self.forget(item.key.hash),
            value => {
                long = value.to_vec();
                &long
            }
        };
        let record = Borrowed {
            db: item.key.db,
            key: item.key.bytes,
            value,
            client_flags: attributes.client_flags,
            expires_ms: attributes.expiry.map_or(0, |expiry| expiry.0),
            token: attributes.token.unwrap_or(0),
        };
        // A refused item is counted there: it is evicted from memory, and is nowhere.
        let _ = self
            .flash
            .store
            .demote(self.number, item.key.hash.0, &record, item.was_used);
    }

    fn flush(&self, db: Option<u8>) {
        self.flash.store.begin_flush(self.number, db);
    }
}

impl Tier {
    /// The flash of all tenants.
    pub fn flash(&self) -> &Arc<Flash> {
        &self.flash
    }

    /// Follows a plan. Items beyond a smaller grant are gone at once, the oldest first.
    pub(crate) fn follow(&self, plan: &FlashPlan) {
        let store = &self.flash.store;
        let is_strict = plan.staleness == tidemark_types::Staleness::Strict;
        self.is_strict.store(is_strict, Ordering::Relaxed);
        let budget = plan.write_bytes_per_second.unwrap_or(0);
        store.set_terms(self.number, staleness(plan.staleness), budget);
        if let Some(bytes) = plan.grant_bytes {
            let segments = usize::try_from(bytes / SEGMENT_BYTES as u64).unwrap_or(usize::MAX);
            store.set_grant(self.number, segments);
        }
    }

    /// The tenant's usage and counts on flash.
    pub fn used(&self) -> FlashUse {
        let stats = self.flash.store.stats(self.number);
        FlashUse {
            grant_bytes: stats.grant_bytes,
            usage_bytes: stats.flash_bytes,
            memory_bytes: stats.memory_bytes,
            items: stats.records,
            hits: stats.hits,
            get_hits: self.get_hits.load(Ordering::Relaxed),
            written_bytes: stats.written_bytes,
            refused: stats.refused_budget + stats.refused_room,
            shadow_bytes: stats.shadow_bytes,
            waited: Served {
                requests: self.waits.load(Ordering::Relaxed),
                us: self.waited_us.load(Ordering::Relaxed),
            },
        }
    }

    /// A command waited so long until its items were read.
    pub fn note_wait(&self, us: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Items of a database that are on flash and not in memory.
    pub fn items_in(&self, db: u8) -> u64 {
        self.flash.store.items_in(self.number, db)
    }

    /// The mark of a walk over the keys on flash that begins now.
    pub fn mark(&self) -> u32 {
        self.flash.store.mark(self.number)
    }

    /// The next segment of such a walk: see [`Store::segment_from`].
    pub fn segment_from(&self, slot: u32, since: Option<u32>) -> Next {
        self.flash.store.segment_from(self.number, slot, since)
    }

    /// The last thing of this tenant that is to survive a crash.
    pub fn barrier(&self) -> Barrier {
        self.flash.store.barrier(self.number)
    }

    /// The same of a tenant whose writes are acknowledged only when they survive a crash.
    #[inline]
    pub fn strict_barrier(&self) -> Option<Barrier> {
        self.is_strict.load(Ordering::Relaxed).then(|| self.barrier())
    }

    /// Sees to it that a key's item is in memory, as far as that takes no reading. Otherwise it says which bytes to
    /// read.
    #[inline]
    pub fn seek(&self, shard: &mut ShardGuard<'_>, key: &Key<'_>, purpose: Purpose, now: UnixMs) -> Option<Read> {
        if shard.peek(key, now).is_some() || self.absent.knows(key.hash) {
            return None;
        }
        let lookup = self.flash.store.lookup(self.number, key.hash.0, key.db, key.bytes);
        self.go_on(shard, lookup, purpose, now)
    }

    /// Takes the bytes that were read, or the failure. Something else may have to be read then.
    pub fn land(
        &self,
        store: &Arc<TenantStore>,
        (read, purpose): (Read, Purpose),
        bytes: Result<&[u8], ()>,
        now: UnixMs,
    ) -> Option<Read> {
        let hash = KeyHash(read.hash());
        let mut shard = store.lock(store.shard_of(hash));
        let lookup = self.flash.store.finish(read, bytes);
        if matches!(lookup, Lookup::Absent) {
            self.absent.note(hash);
        }
        self.go_on(&mut shard, lookup, purpose, now)
    }

    /// A key's shard, when what there is of the key is in memory. Waits for the device where it has to be asked.
    pub fn fetch<'s>(
        &self,
        store: &'s Arc<TenantStore>,
        key: &Key<'_>,
        purpose: Purpose,
        now: UnixMs,
    ) -> ShardGuard<'s> {
        let lock = || store.lock(store.shard_of(key.hash));
        for _ in 0..FETCHES_MAX {
            let mut shard = lock();
            let Some(mut read) = self.seek(&mut shard, key, purpose, now) else {
                return shard;
            };
            drop(shard);
            for _ in 0..FETCHES_MAX {
                let mut buffer = Buffer::zeroed(read.bytes);
                let result = self.flash.store.device().read(read.offset, buffer.as_mut());
                let bytes = result.map(|()| buffer.as_ref()).map_err(|_| ());
                match self.land(store, (read, purpose), bytes, now) {
                    Some(next) => read = next,
                    None => break,
                }
            }
        }
        lock()
    }

    fn go_on(&self, shard: &mut ShardGuard<'_>, lookup: Lookup, purpose: Purpose, now: UnixMs) -> Option<Read> {
        match lookup {
            Lookup::Absent => None,
            Lookup::Read(read) => Some(read),
            Lookup::Found(found) => {
                if self.restore(shard, &found, now) && purpose == Purpose::Get {
                    self.get_hits.fetch_add(1, Ordering::Relaxed);
                }
                None
            }
        }
    }

    /// Brings an item into memory. If that has no room for it (`false`), it stays on flash and is not found.
    fn restore(&self, shard: &mut ShardGuard<'_>, found: &Found, now: UnixMs) -> bool {
        let item = &found.item;
        let attributes = Attributes {
            expiry: (item.expires_ms != 0).then_some(UnixMs(item.expires_ms)),
            client_flags: item.client_flags,
            token: (item.token != 0).then_some(item.token),
            ..Attributes::default()
        };
        let key = shard.tenant().key(item.db, &item.key);
        let is_done = shard.restore(&key, &item.value, attributes, now).is_ok();
        if is_done {
            self.flash.store.promote(self.number, key.hash.0, found.place);
        }
        is_done
    }
}

#[cfg(test)]
mod tests;
