//! `foyer`, its cache in memory, with its S3-FIFO policy.

use anyhow::Result;
use foldhash::fast::RandomState;
use foyer::{Cache, CacheBuilder, S3FifoConfig};

use super::{Engine, KeyBytes, MARK_AT, parts, weight};

pub(super) const FORM: &str = "S3-FIFO as configured by default, keys and values `Box<[u8]>` (a hit returns a handle), \
    weighed by payload, one shard for one thread, else eight, foldhash";

/// See the module.
#[derive(Clone)]
pub(crate) struct Foyer {
    cache: Cache<Box<[u8]>, Box<[u8]>, RandomState>,
}

impl Foyer {
    /// A cache of so much payload, for so many threads.
    pub(crate) fn new(payload_bytes: u64, threads: usize) -> Result<Self> {
        let cache = CacheBuilder::new(usize::try_from(payload_bytes)?)
            .with_shards(parts(threads))
            .with_eviction_config(S3FifoConfig::default())
            .with_hash_builder(RandomState::default())
            .with_weighter(weight)
            .build();
        Ok(Self { cache })
    }
}

impl Engine for Foyer {
    fn share(&self) -> Self {
        self.clone()
    }

    #[inline]
    fn get(&mut self, key: &KeyBytes) -> Option<u8> {
        self.cache.get(key.as_slice()).map(|entry| entry.value()[MARK_AT])
    }

    #[inline]
    fn set(&mut self, key: &KeyBytes, value: &[u8]) -> bool {
        self.cache.insert(Box::from(key.as_slice()), Box::from(value));
        true
    }

    fn holds(&self, key: &KeyBytes) -> bool {
        self.cache.contains(key.as_slice())
    }
}
