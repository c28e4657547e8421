//! The store in this process, without a server: one tenant in one shard, and a look-aside client in one thread, which
//! stores missed keys.
//!
//! Invariant: the findings follow from the requests, the policy, the grant and the seed, because time comes from the
//! number of requests. Only the duration does not.

use std::sync::Arc;
use std::time::Duration;

use tidemark_store::{Attributes, Hasher, Keeper, KeeperInbox, Pool, TenantConfig, TenantStore};
use tidemark_types::{MIB, Policy, UnixMs};

use crate::Error;
use tidemark_tools::load::{KeyText, ValueSize};

/// The least pool. It is more than any grant, so that the grant alone is what limits.
const POOL_BYTES: u64 = 64 * MIB;
/// When the first request comes: any moment will do.
const BEGIN: UnixMs = UnixMs(1_700_000_000_000);
/// Requests that make a millisecond: about as many as a thread does in one.
const REQUESTS_PER_MS: u64 = 2000;
/// The shard gets a piece of upkeep after so many requests, as between a worker's turns.
const REQUESTS_PER_UPKEEP: u64 = 64;
/// Requests between two looks at the memory.
const REQUESTS_PER_LOOK: usize = 1024;

/// The items that are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    pub(super) keys: u64,
    pub(super) key_bytes: usize,
    pub(super) values: ValueSize,
}

/// A cache and its client.
pub(super) struct LookAside {
    store: Arc<TenantStore>,
    keeper: Keeper,
    text: KeyText,
    values: ValueSize,
    /// As long as the longest value.
    value: Vec<u8>,
    /// The value as a client would have read it.
    read: Vec<u8>,
    requests: u64,
    _pool: Pool,
}

/// The results of requests: means over their time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) hit_ratio: f64,
    /// Segments and index.
    pub(super) usage_bytes: f64,
    pub(super) index_bytes: f64,
    /// The bytes of the segments that hold nothing live.
    pub(super) dead_bytes: f64,
    pub(super) items: f64,
}

impl LookAside {
    /// An empty cache.
    pub(super) fn new(policy: Policy, grant_bytes: u64, items: Items, seed: u64) -> Result<Self, Error> {
        let pool_bytes = POOL_BYTES.max(2 * grant_bytes);
        let pool = Pool::start(pool_bytes, Some(pool_bytes)).map_err(Error::Cache)?;
        let inbox = KeeperInbox::new(Box::new(|| {}));
        let config = TenantConfig {
            policy,
            ..TenantConfig::with_keeper(Arc::clone(&inbox), Hasher::with_seed(seed))
        };
        let store = TenantStore::new(&pool, config);
        store.set_grant(grant_bytes, 0);
        Ok(Self {
            store,
            keeper: Keeper::new(inbox),
            text: KeyText::new(items.key_bytes, items.keys)?,
            values: items.values,
            value: vec![b'v'; items.values.largest()],
            read: Vec::with_capacity(items.values.largest()),
            requests: 0,
            _pool: pool,
        })
    }

    /// Makes requests, each a get and on a miss a set. How many were hits.
    pub(super) fn pass(&mut self, requests: &[u32]) -> u64 {
        requests.iter().map(|number| u64::from(self.request(*number))).sum()
    }

    /// Makes requests and looks at the memory meanwhile.
    pub(super) fn measure(&mut self, requests: &[u32]) -> Found {
        let (mut hits, mut looks) = (0, 0.0);
        let mut sum = [0.0; 4];
        for part in requests.chunks(REQUESTS_PER_LOOK) {
            hits += self.pass(part);
            let shard = self.store.lock(0).snapshot(self.now());
            let seen = [shard.usage_bytes, shard.index_bytes, shard.dead_bytes, shard.items];
            sum.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen as f64);
            looks += 1.0;
        }
        let [usage_bytes, index_bytes, dead_bytes, items] = sum.map(|sum| sum / looks);
        Found {
            hit_ratio: hits as f64 / requests.len() as f64,
            usage_bytes,
            index_bytes,
            dead_bytes,
            items,
        }
    }

    /// The memory that the tenant holds for each byte that a simulated cache of this policy counts, now. `approx-lru` counts
    /// the old places of items that were copied, as its simulator does. All other simulators count what is live.
    pub(super) fn overhead(&self, policy: Policy) -> f64 {
        let shard = self.store.lock(0).snapshot(self.now());
        let dead_bytes = match policy {
            Policy::ApproxLru(_) => 0,
            Policy::Fifo | Policy::Clock | Policy::S3Fifo | Policy::Custom => shard.dead_bytes,
        };
        let beside = shard.index_bytes + shard.free_bytes + dead_bytes;
        shard.usage_bytes as f64 / shard.usage_bytes.saturating_sub(beside).max(1) as f64
    }

    fn now(&self) -> UnixMs {
        UnixMs(BEGIN.0 + self.requests / REQUESTS_PER_MS)
    }

    fn request(&mut self, number: u32) -> bool {
        self.requests += 1;
        let now = self.now();
        if self.requests.is_multiple_of(REQUESTS_PER_UPKEEP) {
            // Without a time limit to reach, it is one piece, however fast the machine is.
            let _ = self.keeper.run(now, Duration::ZERO);
        }
        let key = self.store.key(0, self.text.of(u64::from(number)));
        let mut shard = self.store.lock(0);
        if let Some(found) = shard.get(&key, now) {
            self.read.clear();
            found.value().append_to(&mut self.read);
            return true;
        }
        // A refused item is missed the next time, too.
        let value = &self.value[..self.values.of(u64::from(number))];
        let _ = shard.put(&key, value, Attributes::default(), now);
        false
    }
}
