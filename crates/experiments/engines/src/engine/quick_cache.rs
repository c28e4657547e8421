//! `quick_cache`, its cache for several threads.

use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use foldhash::fast::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::{Engine, KeyBytes, MARK_AT, VALUE_BYTES, items_of, parts, weight};

pub(super) const FORM: &str = "keys `Box<[u8]>`, values `Arc<[u8]>` (a hit clones the handle), weighed by payload, one \
    shard for one thread, else eight, foldhash";
pub(super) const FIXED_FORM: &str = "as before, but keys `[u8; 16]`, values `[u8; 100]` (a hit copies the value): only for \
    keys and values whose lengths are known when the program is compiled";

/// Keys and values of any length.
pub(crate) type QuickCache = Of<Box<[u8]>, Arc<[u8]>>;
/// Keys and values of one length each.
pub(crate) type QuickCacheFixed = Of<KeyBytes, [u8; VALUE_BYTES]>;

/// See the module; of keys `K` and values `V`.
pub(crate) struct Of<K, V> {
    cache: Arc<Cache<K, V, Payload<K, V>, RandomState>>,
}

struct Payload<K, V>(PhantomData<fn(K, V)>);

impl<K, V> Clone for Payload<K, V> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> Weighter<K, V> for Payload<K, V> {
    fn weight(&self, key: &K, value: &V) -> u64 {
        weight(key, value) as u64
    }
}

impl<K: AsRef<[u8]> + Eq + Hash, V: AsRef<[u8]> + Clone> Of<K, V> {
    /// A cache of so much payload, for so many threads.
    pub(crate) fn new(payload_bytes: u64, threads: usize) -> Result<Self> {
        let options = OptionsBuilder::new()
            .shards(parts(threads))
            .estimated_items_capacity(items_of(payload_bytes))
            .weight_capacity(payload_bytes)
            .build()
            .map_err(|error| anyhow!("quick_cache can not be made: {error}"))?;
        let hasher = RandomState::default();
        let cache = Cache::with_options(options, Payload(PhantomData), hasher, DefaultLifecycle::default());
        Ok(Self { cache: Arc::new(cache) })
    }

    fn shared(&self) -> Self {
        Self {
            cache: Arc::clone(&self.cache),
        }
    }
}

impl Engine for QuickCache {
    fn share(&self) -> Self {
        self.shared()
    }

    #[inline]
    fn get(&mut self, key: &KeyBytes) -> Option<u8> {
        self.cache.get(key.as_slice()).map(|value| value[MARK_AT])
    }

    #[inline]
    fn set(&mut self, key: &KeyBytes, value: &[u8]) -> bool {
        self.cache.insert(Box::from(key.as_slice()), Arc::from(value));
        true
    }

    fn holds(&self, key: &KeyBytes) -> bool {
        self.cache.contains_key(key.as_slice())
    }
}

impl Engine for QuickCacheFixed {
    fn share(&self) -> Self {
        self.shared()
    }

    #[inline]
    fn get(&mut self, key: &KeyBytes) -> Option<u8> {
        self.cache.get(key).map(|value| value[MARK_AT])
    }

    #[inline]
    fn set(&mut self, key: &KeyBytes, value: &[u8]) -> bool {
        let Ok(value) = value.try_into() else { return false };
        self.cache.insert(*key, value);
        true
    }

    fn holds(&self, key: &KeyBytes) -> bool {
        self.cache.contains_key(key)
    }
}
