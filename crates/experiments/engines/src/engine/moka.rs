//! `moka`, its cache for several threads.

use std::sync::Arc;

use foldhash::fast::RandomState;
use moka::sync::Cache;

use super::{Engine, KeyBytes, MARK_AT, weight};

pub(super) const FORM: &str = "TinyLFU as configured by default, keys `Box<[u8]>`, values `Arc<[u8]>` (a hit clones the \
    handle), weighed by payload, foldhash";

/// See the module.
#[derive(Clone)]
pub(crate) struct Moka {
    cache: Cache<Box<[u8]>, Arc<[u8]>, RandomState>,
}

impl Moka {
    /// A cache of so much payload.
    pub(crate) fn new(payload_bytes: u64) -> Self {
        let cache = Cache::builder()
            .max_capacity(payload_bytes)
            .weigher(|key, value| u32::try_from(weight(key, value)).unwrap_or(u32::MAX))
            .build_with_hasher(RandomState::default());
        Self { cache }
    }
}

impl Engine for Moka {
    fn share(&self) -> Self {
        self.clone()
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
