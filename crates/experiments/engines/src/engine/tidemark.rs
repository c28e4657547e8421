//! Tidemark's store, used as a worker uses it: time is read once per turn, and upkeep is done between turns.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tidemark_store::{
    Attributes, Found, Hasher, Keeper, KeeperInbox, Pool, SHARDS_MAX, TenantConfig, TenantStore, Value,
};
use tidemark_types::{Clock, MIB, Policy, SystemClock, UnixMs};

use super::{Engine, KeyBytes, MARK_AT, Tally, VALUE_BYTES, one_by_one, value_of};

pub(super) const FORM: &str = "keys and values `&[u8]`, one shard for one thread, else one for each 64 MiB as in the server; a \
    thread reads the time every 64 operations; upkeep by the first thread every 1,024";

/// Time is read so often: about once per turn of a busy worker's loop.
const CLOCK_EVERY: u32 = 64;
/// A keeper looks after the shard so often: less than a millisecond apart under load.
const KEEPER_EVERY: u32 = 1024;
/// The time that upkeep may take at once, as in the server.
const KEEPER_SLICE: Duration = Duration::from_micros(16);
/// Memory of a shard where several threads meet, as in the server.
const SHARD_BYTES: u64 = 64 * MIB;
/// Address space beside the grant, so that freed runs of one size do not keep others from being found.
const SPARE_ADDRESSES: u64 = 64 * MIB;

/// See the module.
pub(crate) struct Tidemark {
    tenant: Arc<TenantStore>,
    /// The first thread keeps the shards.
    keeper: Option<Keeper>,
    pool: Arc<Pool>,
    now: UnixMs,
    operations: u32,
    batch: usize,
}

impl Tidemark {
    /// A store that may hold `grant_bytes` with its index, asked for `batch` keys at once.
    pub(crate) fn new(grant_bytes: u64, policy: Policy, batch: usize, threads: usize) -> Result<Self> {
        let addresses = grant_bytes * 2 + SPARE_ADDRESSES;
        let pool = Pool::start(grant_bytes, Some(addresses)).context("the pool can not be made")?;
        let inbox = KeeperInbox::new(Box::new(|| {}));
        let wanted = if threads == 1 {
            1
        } else {
            (grant_bytes / SHARD_BYTES).max(1)
        };
        let config = TenantConfig {
            shards: (1 << wanted.ilog2()).min(SHARDS_MAX),
            policy,
            ..TenantConfig::with_keeper(Arc::clone(&inbox), Hasher::random().context("no seed for the hash")?)
        };
        let tenant = TenantStore::new(&pool, config);
        tenant.set_grant(grant_bytes, 0);
        Ok(Self {
            tenant,
            keeper: Some(Keeper::new(inbox)),
            pool: Arc::new(pool),
            now: SystemClock.now(),
            operations: 0,
            batch,
        })
    }

    /// Does the work beside operations; called with the number of operations.
    #[inline]
    fn turn(&mut self, operations: u32) {
        let before = self.operations;
        self.operations = before.wrapping_add(operations);
        if before / CLOCK_EVERY != self.operations / CLOCK_EVERY {
            self.now = SystemClock.now();
            if before / KEEPER_EVERY != self.operations / KEEPER_EVERY
                && let Some(keeper) = &mut self.keeper
            {
                keeper.run(self.now, KEEPER_SLICE);
            }
        }
    }

    fn pass_in_batches(&mut self, keys: &[KeyBytes]) -> Tally {
        let mut tally = Tally::default();
        let mut value = [0; VALUE_BYTES];
        let mut hashed = Vec::with_capacity(self.batch);
        let mut missed = Vec::with_capacity(self.batch);
        for batch in keys.chunks(self.batch) {
            self.turn(batch.len() as u32);
            hashed.clear();
            hashed.extend(batch.iter().map(|key| self.tenant.key(0, key)));
            self.tenant
                .visit(&hashed, |i, shard| match shard.get(&hashed[i], self.now) {
                    Some(found) => tally.hit(&batch[i], marked(&found)),
                    None => missed.push(i),
                });
            for i in missed.drain(..) {
                let value = value_of(&batch[i], &mut value);
                let put = self.tenant.put(&hashed[i], value, Attributes::default(), self.now);
                tally.refused += u64::from(put.is_err());
            }
        }
        tally
    }
}

impl Engine for Tidemark {
    fn share(&self) -> Self {
        Self {
            tenant: Arc::clone(&self.tenant),
            keeper: None,
            pool: Arc::clone(&self.pool),
            ..*self
        }
    }

    #[inline]
    fn get(&mut self, key: &KeyBytes) -> Option<u8> {
        self.turn(1);
        let key = self.tenant.key(0, key);
        let mut shard = self.tenant.lock(self.tenant.shard_of(key.hash));
        shard.get(&key, self.now).map(|found| marked(&found))
    }

    #[inline]
    fn set(&mut self, key: &KeyBytes, value: &[u8]) -> bool {
        let key = self.tenant.key(0, key);
        self.tenant.put(&key, value, Attributes::default(), self.now).is_ok()
    }

    fn holds(&self, key: &KeyBytes) -> bool {
        let key = self.tenant.key(0, key);
        let mut shard = self.tenant.lock(self.tenant.shard_of(key.hash));
        shard.peek(&key, self.now).is_some()
    }

    fn pass(&mut self, keys: &[KeyBytes]) -> Tally {
        if self.batch > 1 {
            return self.pass_in_batches(keys);
        }
        one_by_one(self, keys)
    }
}

/// The byte of a value that tells whose it is. Values of this size are in one piece.
#[inline]
fn marked(found: &Found<'_>) -> u8 {
    match found.value() {
        Value::Whole(value) => value[MARK_AT],
        Value::Pieces(_) => 0,
    }
}
