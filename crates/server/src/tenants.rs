//! The sockets' front of the data plane: who logs in as which tenant, and what connections add to its snapshots.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tidemark_plane::{Front, Plane, PlaneParts};
use tidemark_store::{Alarm, Pool};
use tidemark_types::{DataPlane, Permissions, Plan, Refused, Served, Snapshot, TenantPlan, TenantSnapshot, UnixMs};

use crate::counts::Count;
use crate::logins::{FailedLogins, TooManyFailed, Who};
use crate::memory::Memory;
use crate::tenant::{Attached, NO_SECRET, Tenant, granted_by};

/// A login that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginError {
    /// Name or secret is wrong.
    Wrong,
    /// Too many failures; refused unread.
    TooMany(TooManyFailed),
}

/// Every tenant of the server.
pub(crate) struct Tenants {
    plane: Plane<Sockets>,
    failed_logins: Mutex<FailedLogins>,
}

/// What connections add to the data plane.
pub(crate) struct Sockets {
    /// What connections hold beyond their own parts.
    memory: Arc<Memory>,
    /// The tenant that connections from loopback start in.
    open: RwLock<Option<Arc<Tenant>>>,
    /// Tells every worker to look at its connections: some may belong to a removed tenant.
    wake_workers: Alarm,
    /// What the process took before there were any tenants: its program, its tables.
    pub(crate) base_bytes: AtomicU64,
    pub(crate) buffer_bytes: AtomicU64,
    pub(crate) connections: AtomicU64,
}

impl Tenants {
    pub(crate) fn new(parts: PlaneParts, memory: Arc<Memory>, wake_workers: Alarm) -> Self {
        let sockets = Sockets {
            memory,
            open: RwLock::default(),
            wake_workers,
            base_bytes: AtomicU64::new(0),
            buffer_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        };
        Self {
            plane: Plane::new(parts, sockets),
            failed_logins: Mutex::default(),
        }
    }

    /// The memory of all tenants.
    pub(crate) fn pool(&self) -> &Pool {
        self.plane.pool()
    }

    /// What connections add.
    pub(crate) fn sockets(&self) -> &Sockets {
        self.plane.front()
    }

    /// The most visits to others that a connection of a tenant waited for since this was asked last.
    pub(crate) fn take_visits_waited(&self, name: &[u8]) -> Option<u64> {
        Some(self.plane.tenant(name)?.take_visits_waited())
    }

    /// The tenant that a connection from this address is in without logging in.
    pub(crate) fn open_for(&self, peer: IpAddr) -> Option<Arc<Tenant>> {
        if peer.to_canonical().is_loopback() {
            self.sockets().open.read().clone()
        } else {
            None
        }
    }

    /// The tenant of that name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<Arc<Tenant>> {
        self.plane.tenant(name)
    }

    /// Logs in.
    pub(crate) fn log_in(
        &self,
        name: &[u8],
        secret: &[u8],
        peer: IpAddr,
        now: UnixMs,
    ) -> Result<(Arc<Tenant>, Permissions), LoginError> {
        let tenant = self.plane.tenant(name);
        let who = Who::new(peer, name);
        let refused = self.failed_logins.lock().refused(&who, now);
        if let Some(refused) = refused {
            // Only the tenant itself and operators see the count.
            if let Some(tenant) = tenant {
                tenant.counts.add(Count::RefusedLogins, 1);
                tenant.touch();
            }
            return Err(LoginError::TooMany(refused));
        }
        // A name that does not exist takes as long as a wrong secret: existence is nobody else's business.
        let permissions = match &tenant {
            Some(tenant) => tenant.permissions_of(secret).filter(|_| !tenant.is_removed()),
            None => granted_by(&[NO_SECRET; 2], secret),
        };
        if let (Some(tenant), Some(permissions)) = (tenant, permissions) {
            return Ok((tenant, permissions));
        }
        self.failed_logins.lock().note(&who, now);
        Err(LoginError::Wrong)
    }
}

impl DataPlane for Tenants {
    fn apply(&self, plan: &Plan) {
        self.plane.apply(plan);
    }

    fn snapshot(&self) -> Snapshot {
        self.plane.snapshot()
    }
}

impl Front for Sockets {
    type Attached = Attached;

    fn attach(&self, plan: &TenantPlan) -> Attached {
        Attached::new(self.memory.account(plan.weight.get()))
    }

    fn adopted(&self, tenant: &Arc<Tenant>, plan: &TenantPlan) {
        tenant.adopt(plan);
        let mut open = self.open.write();
        if plan.open {
            *open = Some(Arc::clone(tenant));
        } else {
            open.take_if(|open| open.id == plan.id);
        }
    }

    fn removed(&self, tenant: &Arc<Tenant>) {
        self.open.write().take_if(|open| open.id == tenant.id);
        (self.wake_workers)();
    }

    fn report(&self, tenant: &Tenant, snapshot: &mut TenantSnapshot) {
        let total = |count| tenant.counts.total(count);
        let counters = &mut snapshot.counters;
        counters.network_in_bytes = total(Count::NetworkIn);
        counters.network_out_bytes = total(Count::NetworkOut);
        counters.served = Served {
            requests: total(Count::Served),
            us: total(Count::ServedMicros),
        };
        counters.refused = Refused {
            ops: total(Count::RefusedOps),
            bytes: total(Count::RefusedBytes),
            connections: total(Count::RefusedConnections),
            logins: total(Count::RefusedLogins),
            replies: total(Count::RefusedReplies),
            stalled: total(Count::ClosedStalled),
            incomplete: total(Count::ClosedIncomplete),
            memory: total(Count::ClosedForMemory),
        };
    }

    fn complete(&self, snapshot: &mut Snapshot) {
        snapshot.pool.other_bytes +=
            self.base_bytes.load(Ordering::Relaxed) + self.buffer_bytes.load(Ordering::Relaxed);
        snapshot.pool.connections = self.connections.load(Ordering::Relaxed);
    }
}
