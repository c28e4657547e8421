//! A tenant as the sockets' front knows it: who may use it, and what is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidemark_plane::{Rate, Throttled, TooManyConnections};
use tidemark_types::{Permissions, Secret, SecretHash, TenantPlan};

use crate::counts::{Count, TenantCounts};
use crate::memory::Account;

/// A tenant, with what this front attaches to it.
pub(crate) type Tenant = tidemark_plane::Tenant<Attached>;

/// What this front attaches to a tenant.
pub(crate) struct Attached {
    pub(crate) counts: TenantCounts,
    /// Its share of connections' memory, and what is taken of it.
    pub(crate) account: Arc<Account>,
    /// Bytes that its connections hold in buffers, their own parts included.
    pub(crate) buffer_bytes: AtomicU64,
    /// The most visits to others that one of its connections waited for while it was ready to be served.
    visits_waited: AtomicU64,
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

/// As what a command above a limit is counted.
pub(crate) fn refused_as(refused: &Throttled) -> Count {
    match refused.rate {
        Rate::Operations => Count::RefusedOps,
        Rate::Bytes => Count::RefusedBytes,
    }
}

/// Counts a connection that is refused, and says what it is told.
pub(crate) fn refuse_connection(tenant: &Tenant) -> TooManyConnections {
    tenant.counts.add(Count::RefusedConnections, 1);
    TooManyConnections(tenant.throttle.connections_max())
}

/// Who may use a tenant.
#[derive(Default)]
struct Access {
    secrets: Vec<Secret>,
    cap_bytes: Option<u64>,
}

impl Attached {
    /// What is attached to a new tenant that has this account.
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self {
            counts: TenantCounts::default(),
            account,
            buffer_bytes: AtomicU64::new(0),
            visits_waited: AtomicU64::new(0),
            access: RwLock::default(),
        }
    }

    /// Notes for how many visits to others a connection waited that was ready.
    #[inline]
    pub(crate) fn note_waited(&self, visits: u64) {
        // Mostly it is none, and nothing is written.
        if visits > self.visits_waited.load(Ordering::Relaxed) {
            self.visits_waited.fetch_max(visits, Ordering::Relaxed);
        }
    }

    /// The most visits that a connection waited for since this was asked last.
    pub(crate) fn take_visits_waited(&self) -> u64 {
        self.visits_waited.swap(0, Ordering::Relaxed)
    }

    /// Follows a plan.
    pub(crate) fn adopt(&self, plan: &TenantPlan) {
        self.account.set_weight(plan.weight.get());
        *self.access.write() = Access {
            secrets: plan.secrets.clone(),
            cap_bytes: plan.cap_bytes,
        };
    }

    /// What the bearer of a secret may do; `None` if it is not one of this tenant's. Takes the same time whatever the
    /// secret.
    pub(crate) fn permissions_of(&self, secret: &[u8]) -> Option<Permissions> {
        granted_by(&self.access.read().secrets, secret)
    }

    /// Whether anybody can log in as this tenant.
    pub(crate) fn has_secrets(&self) -> bool {
        !self.access.read().secrets.is_empty()
    }

    /// Memory that the tenant never exceeds.
    pub(crate) fn cap_bytes(&self) -> Option<u64> {
        self.access.read().cap_bytes
    }
}
