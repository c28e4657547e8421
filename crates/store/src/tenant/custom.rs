//! The decisions that a program that embeds the cache takes for a tenant.

use std::sync::Arc;

use tidemark_types::Fault;

use super::TenantStore;
use crate::policy::{Custom, EvictionPolicy};
use crate::shard::Seat;

impl TenantStore {
    /// Takes a policy of the program's. It decides where and while the tenant's policy is
    /// [`Policy::Custom`](tidemark_types::Policy::Custom); one that was supplied before is dropped.
    ///
    /// # Errors
    /// It panics in a call that is made once, or gives an impossible answer. Then nothing has changed.
    pub fn supply_eviction(self: &Arc<Self>, policy: Arc<dyn EvictionPolicy>) -> Result<(), Fault> {
        let custom = Arc::new(Custom::new(policy)?);
        let mut guards = self.lock_all();
        let before: Vec<Seat> = guards
            .iter_mut()
            .filter_map(|guard| guard.shard.seat(Seat::new(Arc::clone(&custom))))
            .collect();
        // Not under a lock: its end may be the program's code.
        drop(guards);
        drop(before);
        Ok(())
    }

    /// Whether the program's policy decides where the tenant's policy is [`Policy::Custom`](tidemark_types::Policy::Custom): one
    /// was supplied, and not replaced since.
    pub fn has_custom_eviction(self: &Arc<Self>) -> bool {
        self.cells.get().is_some() && self.lock(0).shard.has_custom()
    }

    /// Whether keys that were not let in are remembered from now on ([`crate::Shard::remember`]).
    pub fn set_remembering(&self, remembers: bool) {
        self.shared.set_remembers(remembers);
    }
}
