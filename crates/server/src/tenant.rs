//! A tenant as the data plane knows it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidemark_store::TenantStore;
use tidemark_types::{Permissions, Secret, SecretHash, TenantId, TenantName, TenantPlan, Weight};

use crate::counts::{Count, TenantCounts};
use crate::throttle::{Throttle, TooManyConnections};

/// A tenant: its keys, who may use them, and what it has used.
pub(crate) struct Tenant {
    pub(crate) id: TenantId,
    pub(crate) name: TenantName,
    pub(crate) store: Arc<TenantStore>,
    pub(crate) counts: TenantCounts,
    pub(crate) throttle: Throttle,
    /// Connections that are this tenant's now.
    pub(crate) connections: AtomicU64,
    /// Bytes that those connections hold in buffers.
    pub(crate) buffer_bytes: AtomicU64,
    /// Its share of a worker's time.
    weight: AtomicU64,
    /// Whether something happened since the last snapshot.
    pub(crate) is_touched: AtomicBool,
    /// No new logins, and the connections there are must go.
    is_removed: AtomicBool,
    access: RwLock<Access>,
}

/// A secret that nobody has: no text is known to have this hash.
pub(crate) const NO_SECRET: Secret = Secret {
    hash: SecretHash([0; 32]),
    permissions: Permissions::NONE,
};

/// What a secret is allowed by those that are known. Takes the same time whichever it is.
pub(crate) fn granted_by(known: &[Secret], secret: &[u8]) -> Option<Permissions> {
    let given = Sha256::digest(secret);
    let mut granted = None;
    for known in known {
        if bool::from(known.hash.0.ct_eq(given.as_slice())) {
            granted = Some(known.permissions);
        }
    }
    granted
}

/// Who may use a tenant.
struct Access {
    /// The version of the plan that this comes from.
    version: u64,
    secrets: Vec<Secret>,
    cap_bytes: Option<u64>,
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({} {})", self.id, self.name)
    }
}

impl Tenant {
    pub(crate) fn new(plan: &TenantPlan, store: Arc<TenantStore>) -> Self {
        let tenant = Self {
            id: plan.id,
            name: plan.name.clone(),
            store,
            counts: TenantCounts::default(),
            throttle: Throttle::default(),
            connections: AtomicU64::new(0),
            buffer_bytes: AtomicU64::new(0),
            weight: AtomicU64::new(Weight::default().get()),
            is_touched: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            access: RwLock::new(Access {
                version: 0,
                secrets: Vec::new(),
                cap_bytes: None,
            }),
        };
        tenant.adopt(plan);
        tenant
    }

    /// Follows a newer plan. What the tenant holds too much is given back soon.
    pub(crate) fn adopt(&self, plan: &TenantPlan) {
        let mut access = self.access.write();
        if plan.version < access.version {
            return;
        }
        *access = Access {
            version: plan.version,
            secrets: plan.secrets.clone(),
            cap_bytes: plan.cap_bytes,
        };
        self.throttle.set(&plan.limits);
        self.weight.store(plan.weight.get(), Ordering::Relaxed);
        drop(access);
        self.store.follow(plan);
    }

    /// Its share of a worker's time, beside others'.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Connections that the tenant may have, on a server that takes so many.
    pub(crate) fn connections_max(&self, server_max: u64) -> u64 {
        self.throttle.connections_max().min(server_max)
    }

    /// One more connection is this tenant's, if there are not as many already as there may be. Whether it is.
    pub(crate) fn open_connection(&self) -> bool {
        let most = self.throttle.connections_max();
        let one_more = |open| (open < most).then_some(open + 1);
        let opened = self
            .connections
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        opened.is_ok()
    }

    /// Counts a connection that is refused, and says what it is told.
    pub(crate) fn refuse_connection(&self) -> TooManyConnections {
        self.counts.add(Count::RefusedConnections, 1);
        TooManyConnections(self.throttle.connections_max())
    }

    /// What the bearer of a secret may do; `None` if it is not one of this tenant's. Takes the same time whatever the
    /// secret.
    pub(crate) fn permissions_of(&self, secret: &[u8]) -> Option<Permissions> {
        granted_by(&self.access.read().secrets, secret).filter(|_| !self.is_removed())
    }

    /// Whether anybody can log in as this tenant.
    pub(crate) fn has_secrets(&self) -> bool {
        !self.access.read().secrets.is_empty()
    }

    /// Memory that the tenant never exceeds.
    pub(crate) fn cap_bytes(&self) -> Option<u64> {
        self.access.read().cap_bytes
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Ends the tenant: no login succeeds any more, and its memory goes.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Ordering::Release);
        self.store.set_grant(0, 0);
        self.store.clear();
    }
}
