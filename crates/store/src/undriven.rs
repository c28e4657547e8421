//! A tenant whose upkeep is done by nobody but the test that made it.

use std::sync::Arc;

use tidemark_types::Policy;

use crate::{Hasher, KeeperInbox, Pool, TenantConfig, TenantStore};

/// A tenant of so many shards with a grant of its own.
pub(crate) fn tenant(pool: &Pool, shards: usize, policy: Policy, seed: u64, grant_bytes: u64) -> Arc<TenantStore> {
    let config = TenantConfig {
        shards,
        policy,
        ..TenantConfig::with_keeper(KeeperInbox::new(Box::new(|| {})), Hasher::with_seed(seed))
    };
    let store = TenantStore::new(pool, config);
    store.set_grant(grant_bytes, 0);
    store
}
