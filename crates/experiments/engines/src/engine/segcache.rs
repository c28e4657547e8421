//! `segcache`, Pelikan's segment-structured cache, with its S3-FIFO policy.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use segcache::{Policy, Value};

use super::{Engine, KeyBytes, MARK_AT, PAYLOAD_BYTES};

pub(super) const FORM: &str = "S3-FIFO with a tenth for admission, metrics off, segments of 1 MiB (in small caches a 64th of \
    the memory), the smallest hash table that is at most 0.85 full, items without expiry";

/// An item as stored: a header of 12 bytes, key and value, rounded up to 8.
pub(crate) const ITEM_BYTES: u64 = (12 + PAYLOAD_BYTES).next_multiple_of(8);
/// Above this fill of the hash table sets begin to fail.
const FILL_MAX: f64 = 0.85;
/// The library's own default.
const SEGMENT_BYTES_MAX: u64 = 1 << 20;
/// Room for a few items.
const SEGMENT_BYTES_MIN: u64 = 1 << 10;
/// As many segments as small caches of Tidemark have.
const SEGMENTS_WANTED: u64 = 64;
/// The least that the library allows.
const HASH_POWER_MIN: u32 = 7;

/// See the module.
#[derive(Clone)]
pub(crate) struct Segcache {
    cache: Arc<segcache::Segcache>,
}

impl Segcache {
    /// A cache whose segments take about `heap_bytes`.
    pub(crate) fn new(heap_bytes: u64) -> Result<Self> {
        let wanted = (heap_bytes / SEGMENTS_WANTED).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let segment_bytes = 1_u64 << wanted.ilog2();
        let heap_bytes = heap_bytes.next_multiple_of(segment_bytes);
        let slots = (heap_bytes / ITEM_BYTES) as f64 / FILL_MAX;
        let cache = segcache::Segcache::builder()
            .hash_power((slots.log2().ceil() as u32).max(HASH_POWER_MIN) as u8)
            .heap_size(usize::try_from(heap_bytes)?)
            .segment_size(i32::try_from(segment_bytes)?)
            .eviction(Policy::S3Fifo { admission_ratio: 0.1 })
            .build()
            .context("segcache can not be made")?;
        Ok(Self { cache: Arc::new(cache) })
    }
}

impl Engine for Segcache {
    fn share(&self) -> Self {
        self.clone()
    }

    #[inline]
    fn get(&mut self, key: &KeyBytes) -> Option<u8> {
        match self.cache.get(key)?.value() {
            Value::Bytes(value) => Some(value[MARK_AT]),
            Value::U64(_) => Some(0),
        }
    }

    #[inline]
    fn set(&mut self, key: &KeyBytes, value: &[u8]) -> bool {
        self.cache.insert(key, value, None, Duration::ZERO).is_ok()
    }

    fn holds(&self, key: &KeyBytes) -> bool {
        self.cache.get_no_freq_incr(key).is_some()
    }
}
