//! Room that tenants share: each has at most a part of it, so that slow readers of one do not keep the others waiting.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidemark_types::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A tenant has at most this part of all room.
const PARTS: usize = 4;

/// So many permits, and at most a part of them for each tenant.
#[derive(Debug)]
pub(crate) struct Permits {
    all: Arc<Semaphore>,
    /// At most this many of a tenant.
    most: usize,
    /// The permits of tenants that hold some or wait for some.
    own: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

/// A place in the room. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(count)),
            most: (count / PARTS).max(1),
            own: Mutex::default(),
        }
    }

    fn of(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut own = self.own.lock();
        if let Some(room) = own.get(&tenant).and_then(Weak::upgrade) {
            return room;
        }
        // Only those that are in use stay: no more than there are permits and requests that wait.
        own.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Semaphore::new(self.most));
        own.insert(tenant, Arc::downgrade(&room));
        room
    }

    /// Waits for a place; the tenant's own room first. `None`, which never happens, bounds nothing.
    pub(crate) async fn wait(&self, tenant: TenantId) -> Option<Permit> {
        let own = self.of(tenant).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Permit { _all: all, _own: own })
    }

    /// A place, if there is one now.
    pub(crate) fn take(&self, tenant: TenantId) -> Option<Permit> {
        let own = self.of(tenant).try_acquire_owned().ok()?;
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Permit { _all: all, _own: own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_part_and_no_more() {
        let permits = Permits::new(8);
        let take = |tenant: u32| permits.take(TenantId(tenant));
        let held: Vec<Permit> = std::iter::from_fn(|| take(1)).collect();
        assert_eq!(held.len(), 2);
        let others: Vec<Permit> = (2..10).filter_map(take).collect();
        assert_eq!(others.len(), 6, "the others have the rest");
        drop(held);
        assert!(
            take(1).is_some() && take(20).is_some(),
            "what was given back is there for all"
        );
        drop(others);
        assert!(take(3).is_some());
        assert!(permits.own.lock().len() <= 4, "who holds nothing is forgotten");
    }
}
