//! A tenant's store for tests, with nothing around it.

use std::sync::Arc;

use tidemark_store::{Hasher, KeeperInbox, Pool, TenantConfig, TenantStore};
use tidemark_types::{MIB, Policy};

/// One that may hold so much, of a pool that is twice as large.
pub(crate) fn store(shards: usize, grant_bytes: u64) -> Arc<TenantStore> {
    let pool_bytes = 2 * grant_bytes.max(MIB);
    let pool = Pool::without_thread(pool_bytes, Some(pool_bytes)).unwrap();
    let config = TenantConfig {
        shards,
        policy: Policy::Fifo,
        ..TenantConfig::with_keeper(KeeperInbox::new(Box::new(|| {})), Hasher::with_seed(1))
    };
    let store = TenantStore::new(&pool, config);
    store.set_grant(grant_bytes, 0);
    store
}
