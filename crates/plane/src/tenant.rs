//! A tenant as the data plane knows it.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidemark_store::TenantStore;
use tidemark_types::{TenantId, TenantName, TenantPlan, Weight};

use crate::flash::Tier;
use crate::throttle::Throttle;

/// Tenants that something happened to since the last snapshot.
pub(crate) type Touched = Mutex<Vec<TenantId>>;

/// A tenant: its keys, its limits, and the front's data. The attached data is reached as if it were the tenant's.
pub struct Tenant<A> {
    /// Its number: a later tenant of the same name has another.
    pub id: TenantId,
    /// Its name.
    pub name: TenantName,
    /// Its keys and memory.
    pub store: Arc<TenantStore>,
    /// The flash tier below its memory.
    pub tier: Option<Arc<Tier>>,
    /// Its limits in time.
    pub throttle: Throttle,
    /// Connections that are this tenant's now.
    pub connections: AtomicU64,
    /// Its share of a worker's time.
    weight: AtomicU64,
    is_touched: AtomicBool,
    is_removed: AtomicBool,
    touched: Arc<Touched>,
    /// The version of the plan that it follows.
    version: Mutex<u64>,
    attached: A,
}

impl<A> fmt::Debug for Tenant<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({} {})", self.id, self.name)
    }
}

impl<A> Deref for Tenant<A> {
    type Target = A;

    #[inline]
    fn deref(&self) -> &A {
        &self.attached
    }
}

impl<A> Tenant<A> {
    pub(crate) fn new(
        plan: &TenantPlan,
        store: Arc<TenantStore>,
        tier: Option<Arc<Tier>>,
        touched: Arc<Touched>,
        attached: A,
    ) -> Self {
        Self {
            id: plan.id,
            name: plan.name.clone(),
            store,
            tier,
            throttle: Throttle::default(),
            connections: AtomicU64::new(0),
            weight: AtomicU64::new(Weight::default().get()),
            is_touched: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            touched,
            version: Mutex::new(0),
            attached,
        }
    }

    /// Follows a plan that is not older than the one in force. Returns whether it does. Memory beyond a smaller grant is
    /// given back soon.
    pub(crate) fn follow(&self, plan: &TenantPlan) -> bool {
        let mut version = self.version.lock();
        if plan.version < *version {
            return false;
        }
        *version = plan.version;
        self.throttle.set(&plan.limits, plan.refuses_writes);
        self.weight.store(plan.weight.get(), Ordering::Relaxed);
        self.store.follow(plan);
        if let Some(tier) = &self.tier {
            tier.follow(&plan.flash);
        }
        true
    }

    /// Ends the tenant: its memory goes.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Ordering::Release);
        self.store.set_grant(0, 0);
        self.store.clear();
    }

    /// Whether it was removed. A user of it still reads nothing and writes nothing.
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Notes that something happened to the tenant. The next snapshot has all that was counted before this call.
    #[inline]
    pub fn touch(&self) {
        // Released also where the mark is set already: the snapshot that clears it sees what was counted before.
        if !self.is_touched.swap(true, Ordering::AcqRel) {
            self.touched.lock().push(self.id);
        }
    }

    /// The same, after an operation on the store alone. Threads that use one tenant do not take the mark's cache line from
    /// each other.
    #[inline]
    pub fn touch_store(&self) {
        // An operation under a shard's lock that finds the mark set precedes the snapshot that clears it. The snapshot
        // looks at the shard under the same lock afterwards.
        if !self.is_touched.load(Ordering::Relaxed) {
            self.touch();
        }
    }

    /// A snapshot is about to read all counts.
    pub(crate) fn clear_touched(&self) {
        self.is_touched.swap(false, Ordering::AcqRel);
    }

    /// Calls [`Self::touch`] for code that must not keep the tenant.
    pub(crate) fn toucher(tenant: &Weak<Self>) -> impl Fn() + Send + Sync + 'static
    where
        A: Send + Sync + 'static,
    {
        let tenant = tenant.clone();
        move || {
            if let Some(tenant) = tenant.upgrade() {
                tenant.touch();
            }
        }
    }

    /// Its share of a worker's time, beside others'.
    #[inline]
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Connections that the tenant may have, on a server that takes so many.
    pub fn connections_max(&self, server_max: u64) -> u64 {
        self.throttle.connections_max().min(server_max)
    }

    /// Counts one more connection as this tenant's, if there are not as many already as there may be. Returns whether it
    /// does.
    #[must_use]
    pub fn open_connection(&self) -> bool {
        let most = self.throttle.connections_max();
        let one_more = |open| (open < most).then_some(open + 1);
        let opened = self
            .connections
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        opened.is_ok()
    }
}
