//! All tenants: who logs in as which, and what the control plane is told of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use tidemark_store::{Alarm, Hasher, KeeperInbox, Pool, TenantConfig, TenantReport, TenantStore};
use tidemark_types::{
    DataPlane, Permissions, Plan, PoolSnapshot, Refused, Served, Snapshot, TenantCounters, TenantId, TenantPlan,
    TenantSnapshot, TenantState, UnixMs,
};

use crate::counts::Count;
use crate::logins::{FailedLogins, TooManyFailed, Who};
use crate::tenant::{NO_SECRET, Tenant, granted_by};

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
    pub(crate) pool: Pool,
    hasher: Hasher,
    keepers: Arc<[Arc<KeeperInbox>]>,
    next_keeper: AtomicUsize,
    table: RwLock<Table>,
    /// Those that something happened to since the last snapshot.
    touched: Arc<Touched>,
    /// Removed, but memory is still pinned by replies that are being sent or held by connections.
    leaving: Mutex<Vec<Arc<Tenant>>>,
    failed_logins: Mutex<FailedLogins>,
    /// The newest plan's number.
    sequence: AtomicU64,
    wake_control: Alarm,
    /// Tells every worker to look at its connections: some may belong to a removed tenant.
    wake_workers: Alarm,
    /// What the process took before there were any tenants: its program, its tables.
    pub(crate) base_bytes: AtomicU64,
    pub(crate) buffer_bytes: AtomicU64,
    pub(crate) connections: AtomicU64,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<TenantId, Arc<Tenant>>,
    by_name: HashMap<Box<[u8]>, Arc<Tenant>>,
    /// The tenant that connections from loopback start in.
    open: Option<Arc<Tenant>>,
}

type Touched = Mutex<Vec<TenantId>>;

impl Tenants {
    pub(crate) fn new(
        pool: Pool,
        hasher: Hasher,
        keepers: Arc<[Arc<KeeperInbox>]>,
        wake_control: Alarm,
        wake_workers: Alarm,
    ) -> Self {
        Self {
            pool,
            hasher,
            keepers,
            next_keeper: AtomicUsize::new(0),
            table: RwLock::default(),
            touched: Arc::default(),
            leaving: Mutex::default(),
            failed_logins: Mutex::default(),
            sequence: AtomicU64::new(0),
            wake_control,
            wake_workers,
            base_bytes: AtomicU64::new(0),
            buffer_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }

    /// The tenant that a connection from this address is in without logging in.
    pub(crate) fn open_for(&self, peer: IpAddr) -> Option<Arc<Tenant>> {
        if peer.to_canonical().is_loopback() {
            self.table.read().open.clone()
        } else {
            None
        }
    }

    /// Logs in.
    pub(crate) fn log_in(
        &self,
        name: &[u8],
        secret: &[u8],
        peer: IpAddr,
        now: UnixMs,
    ) -> Result<(Arc<Tenant>, Permissions), LoginError> {
        let tenant = self.table.read().by_name.get(name).cloned();
        let who = Who::new(peer, name);
        let refused = self.failed_logins.lock().refused(&who, now);
        if let Some(refused) = refused {
            // Only the tenant itself and operators see the count.
            if let Some(tenant) = tenant {
                tenant.counts.add(Count::RefusedLogins, 1);
                self.touch(&tenant);
            }
            return Err(LoginError::TooMany(refused));
        }
        // A name that does not exist takes as long as a wrong secret: existence is nobody else's business.
        let permissions = match &tenant {
            Some(tenant) => tenant.permissions_of(secret),
            None => granted_by(&[NO_SECRET; 2], secret),
        };
        if let (Some(tenant), Some(permissions)) = (tenant, permissions) {
            return Ok((tenant, permissions));
        }
        self.failed_logins.lock().note(&who, now);
        Err(LoginError::Wrong)
    }

    /// Notes that something happened to a tenant.
    #[inline]
    pub(crate) fn touch(&self, tenant: &Tenant) {
        if !tenant.is_touched.swap(true, Ordering::AcqRel) {
            self.touched.lock().push(tenant.id);
        }
    }

    fn adopt(&self, plan: &TenantPlan) {
        let known = self.table.read().by_id.get(&plan.id).cloned();
        if plan.state == TenantState::Removing {
            if let Some(tenant) = known {
                self.remove(&tenant);
            }
            return;
        }
        let tenant = match known {
            Some(tenant) => {
                tenant.adopt(plan);
                tenant
            }
            None => self.create(plan),
        };
        let mut table = self.table.write();
        if plan.open {
            table.open = Some(tenant);
        } else if table.open.as_ref().is_some_and(|open| open.id == plan.id) {
            table.open = None;
        }
    }

    fn create(&self, plan: &TenantPlan) -> Arc<Tenant> {
        let tenant = Arc::new_cyclic(|itself: &std::sync::Weak<Tenant>| {
            let (touched, itself) = (Arc::clone(&self.touched), itself.clone());
            let usage_changed: Alarm = Arc::new(move || {
                if let Some(tenant) = itself.upgrade()
                    && !tenant.is_touched.swap(true, Ordering::AcqRel)
                {
                    touched.lock().push(tenant.id);
                }
            });
            let shards = TenantStore::shards_of(plan);
            let config = TenantConfig {
                shards,
                policy: plan.policy,
                hasher: self.hasher.clone(),
                keepers: Arc::clone(&self.keepers),
                first_keeper: self.next_keeper.fetch_add(shards, Ordering::Relaxed),
                alarm: Arc::clone(&self.wake_control),
                usage_changed,
            };
            Tenant::new(plan, TenantStore::new(&self.pool, config))
        });
        let mut table = self.table.write();
        table.by_id.insert(plan.id, Arc::clone(&tenant));
        table
            .by_name
            .insert(plan.name.as_str().as_bytes().into(), Arc::clone(&tenant));
        tenant
    }

    fn remove(&self, tenant: &Arc<Tenant>) {
        let mut table = self.table.write();
        table.by_id.remove(&tenant.id);
        // A new tenant may have the name already.
        if table
            .by_name
            .get(tenant.name.as_str().as_bytes())
            .is_some_and(|named| named.id == tenant.id)
        {
            table.by_name.remove(tenant.name.as_str().as_bytes());
        }
        if table.open.as_ref().is_some_and(|open| open.id == tenant.id) {
            table.open = None;
        }
        drop(table);
        tenant.remove();
        self.leaving.lock().push(Arc::clone(tenant));
        (self.wake_workers)();
    }

    /// Removed tenants whose memory and connections are gone.
    fn take_removed(&self) -> Vec<TenantId> {
        let mut removed = Vec::new();
        self.leaving.lock().retain(|tenant| {
            // A command that ran while the tenant was being removed may have written once more.
            if tenant.store.usage_bytes() > 0 {
                tenant.store.clear();
            }
            let gone = tenant.store.usage_bytes() == 0 && tenant.connections.load(Ordering::Acquire) == 0;
            if gone {
                removed.push(tenant.id);
            }
            !gone
        });
        removed
    }

    /// One tenant's snapshot, and the memory that its samples took until now.
    fn tenant_snapshot(&self, id: TenantId, now: UnixMs) -> Option<(TenantSnapshot, u64)> {
        let tenant = self.table.read().by_id.get(&id).cloned()?;
        // Acquired, and released by those who touch: what was counted before a touch that finds the mark set is seen here.
        tenant.is_touched.swap(false, Ordering::AcqRel);
        let TenantReport {
            snapshot,
            sample_buffer_bytes,
        } = tenant.store.report(id, now);
        let snapshot = TenantSnapshot {
            connections: tenant.connections.load(Ordering::Relaxed),
            counters: TenantCounters {
                network_in_bytes: tenant.counts.total(Count::NetworkIn),
                network_out_bytes: tenant.counts.total(Count::NetworkOut),
                served: Served {
                    requests: tenant.counts.total(Count::Served),
                    us: tenant.counts.total(Count::ServedMicros),
                },
                refused: Refused {
                    ops: tenant.counts.total(Count::RefusedOps),
                    bytes: tenant.counts.total(Count::RefusedBytes),
                    connections: tenant.counts.total(Count::RefusedConnections),
                    logins: tenant.counts.total(Count::RefusedLogins),
                },
                ..snapshot.counters
            },
            ..snapshot
        };
        Some((snapshot, sample_buffer_bytes))
    }
}

/// The door to the control plane.
pub(crate) struct Door {
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) clock: fn() -> UnixMs,
}

impl DataPlane for Door {
    fn apply(&self, plan: &Plan) {
        let newest = self.tenants.sequence.fetch_max(plan.sequence, Ordering::AcqRel);
        if plan.sequence <= newest {
            return;
        }
        let in_force = self.tenants.pool.resize(plan.pool_bytes);
        if in_force < plan.pool_bytes / tidemark_types::UNIT_BYTES * tidemark_types::UNIT_BYTES {
            tracing::warn!(
                asked = plan.pool_bytes,
                in_force,
                "the pool can not be larger than the address space reserved at start"
            );
        }
        for tenant in &plan.tenants {
            self.tenants.adopt(tenant);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let at = (self.clock)();
        let touched = std::mem::take(&mut *self.tenants.touched.lock());
        let reports = touched
            .into_iter()
            .filter_map(|id| self.tenants.tenant_snapshot(id, at));
        // Who was not touched has no samples.
        let (tenants, sample_bytes): (_, Vec<u64>) = reports.unzip();
        Snapshot {
            at,
            pool: PoolSnapshot {
                other_bytes: self.tenants.base_bytes.load(Ordering::Relaxed)
                    + self.tenants.buffer_bytes.load(Ordering::Relaxed)
                    + sample_bytes.into_iter().sum::<u64>(),
                connections: self.tenants.connections.load(Ordering::Relaxed),
                ..self.tenants.pool.stats().into()
            },
            tenants,
            removed: self.tenants.take_removed(),
        }
    }
}
