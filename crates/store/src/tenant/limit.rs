//! A limit of the data plane's own: memory that a tenant gives back without waiting for a plan.
//!
//! Its setter knows something that the control plane does not, for example that another program needs the memory now.
//! Invariant: a limit never gives a tenant anything. A grant beyond it is not used.

use std::sync::Arc;

use tidemark_types::UNIT_BYTES;

use super::TenantStore;

impl TenantStore {
    /// Sets the most memory that the tenant holds whatever is granted to it, in bytes; `None` lifts it. It is in force for
    /// the next write. Its keepers give the excess back.
    pub fn set_limit(self: &Arc<Self>, limit_bytes: Option<u64>) {
        self.shared.set_limit(limit_bytes.map(|bytes| bytes / UNIT_BYTES));
        if self.shared.excess() > 0 {
            self.nudge();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidemark_types::{MIB, UnixMs};

    use super::*;
    use crate::{Attributes, Hasher, Keeper, KeeperInbox, Pool, TenantConfig};

    const NOW: UnixMs = UnixMs(1_000_000);
    const VALUE_BYTES: usize = 20_000;

    struct Limited {
        store: Arc<TenantStore>,
        keeper: Keeper,
        _pool: Pool,
    }

    impl Limited {
        fn new(grant_bytes: u64) -> Self {
            let pool = Pool::without_thread(64 * MIB, None).unwrap();
            let inbox = KeeperInbox::new(Box::new(|| {}));
            let config = TenantConfig {
                shards: 4,
                ..TenantConfig::with_keeper(Arc::clone(&inbox), Hasher::with_seed(1))
            };
            let store = TenantStore::new(&pool, config);
            store.set_grant(grant_bytes, 0);
            Self {
                store,
                keeper: Keeper::new(inbox),
                _pool: pool,
            }
        }

        /// Whether there was room for all of them.
        fn write(&self, count: u32) -> bool {
            let value = vec![7; VALUE_BYTES];
            (0..count).all(|number| {
                let name = number.to_be_bytes();
                let key = self.store.key(0, &name);
                self.store.put(&key, &value, Attributes::default(), NOW).is_ok()
            })
        }

        fn keep(&mut self) {
            while self.keeper.run(NOW, Duration::from_millis(1)) == Some(Duration::ZERO) {}
        }
    }

    #[test]
    fn a_limit_takes_memory_back_and_holds_until_it_is_lifted() {
        let mut limited = Limited::new(32 * MIB);
        limited.store.set_limit(Some(24 * MIB));
        assert!(limited.write(2_000));
        let filled = limited.store.usage_bytes();
        assert!(filled > 16 * MIB && filled <= 24 * MIB, "{filled}");
        limited.store.set_limit(Some(8 * MIB));
        limited.keep();
        assert!(
            limited.store.usage_bytes() <= 8 * MIB,
            "{}",
            limited.store.usage_bytes()
        );
        // A grant, whatever its size, changes nothing about it.
        limited.store.set_grant(48 * MIB, 0);
        assert!(limited.write(2_000));
        limited.keep();
        assert!(
            limited.store.usage_bytes() <= 8 * MIB,
            "{}",
            limited.store.usage_bytes()
        );
        limited.store.set_limit(Some(0));
        limited.keep();
        assert_eq!(limited.store.usage_bytes(), 0);
        assert!(!limited.write(1), "nothing may be held");
        limited.store.set_limit(None);
        assert!(limited.write(1_000));
        assert!(limited.store.usage_bytes() > 16 * MIB);
    }
}
