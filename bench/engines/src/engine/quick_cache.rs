//! `quick_cache`, its cache for several threads.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use foldhash::fast::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::{Engine, KeyBytes, MARK_AT, items_of, weight};

pub(super) const FORM: &str = "keys `Box<[u8]>`, values `Arc<[u8]>` (a hit clones the handle), weighed by payload, one \
    shard, foldhash";

#[derive(Clone)]
struct Payload;

impl Weighter<Box<[u8]>, Arc<[u8]>> for Payload {
    fn weight(&self, key: &Box<[u8]>, value: &Arc<[u8]>) -> u64 {
        weight(key, value) as u64
    }
}

/// See the module.
pub(crate) struct QuickCache {
    cache: Cache<Box<[u8]>, Arc<[u8]>, Payload, RandomState>,
}

impl QuickCache {
    /// A cache of so much payload.
    pub(crate) fn new(payload_bytes: u64) -> Result<Self> {
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(items_of(payload_bytes))
            .weight_capacity(payload_bytes)
            .build()
            .map_err(|error| anyhow!("quick_cache can not be made: {error}"))?;
        let cache = Cache::with_options(options, Payload, RandomState::default(), DefaultLifecycle::default());
        Ok(Self { cache })
    }
}

impl Engine for QuickCache {
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
