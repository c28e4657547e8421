//! The sockets' front of the data plane: logins to tenants, and the connections' part of its snapshots.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use tidemark_plane::{Flash, Front, Plane, PlaneParts};
use tidemark_store::{Alarm, Pool};
use tidemark_types::{
    DataPlane, Plan, Refused, Secret, Served, ServedTimes, Snapshot, TenantPlan, TenantSnapshot, UnixMs,
};

use crate::counts::Count;
use crate::cpu::CpuTotals;
use crate::estimates::Estimating;
use crate::logins::FailureLog;
use crate::memory::Memory;
use crate::served::WorkerTimes;
use crate::tenant::{Attached, NO_SECRET, Tenant, known_as, work_until_now};

/// Every tenant of the server.
pub(crate) struct Tenants {
    plane: Plane<Sockets>,
    failure_log: Mutex<FailureLog>,
}

/// The data that connections add to the data plane.
pub(crate) struct Sockets {
    /// The memory of connections beyond their own parts.
    memory: Arc<Memory>,
    /// The tenant that connections from loopback start in.
    open: RwLock<Option<Arc<Tenant>>>,
    /// Tells every worker to look at its connections: some may belong to a removed tenant, or to a secret that has ended.
    wake_workers: Alarm,
    /// The memory that the process took before there were any tenants: its program, its tables.
    pub(crate) base_bytes: AtomicU64,
    pub(crate) buffer_bytes: AtomicU64,
    pub(crate) connections: AtomicU64,
    /// Logins that failed since the start, whatever name they gave.
    failed_logins: AtomicU64,
    pub(crate) cpu: CpuTotals,
    /// For each worker, by its number.
    pub(crate) served: Box<[WorkerTimes]>,
    /// How workers model CPU time, and since when their time counts; `None` if they do not.
    estimating: Option<(Estimating, Instant)>,
}

impl Tenants {
    /// `estimating` is how workers model CPU time, and the moment since which their time counts.
    pub(crate) fn new(
        parts: PlaneParts,
        memory: Arc<Memory>,
        wake_workers: Alarm,
        workers: usize,
        estimating: Option<(Estimating, Instant)>,
    ) -> Self {
        let sockets = Sockets {
            memory,
            open: RwLock::default(),
            wake_workers,
            base_bytes: AtomicU64::new(0),
            buffer_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            failed_logins: AtomicU64::new(0),
            cpu: CpuTotals::default(),
            served: (0..workers).map(|_| WorkerTimes::default()).collect(),
            estimating,
        };
        Self {
            plane: Plane::new(parts, sockets),
            failure_log: Mutex::default(),
        }
    }

    /// The memory of all tenants.
    pub(crate) fn pool(&self) -> &Pool {
        self.plane.pool()
    }

    /// The flash tier below the memory of all tenants.
    pub(crate) fn flash(&self) -> Option<&Arc<Flash>> {
        self.plane.flash()
    }

    /// How workers model CPU time, if they do.
    pub(crate) fn estimating(&self) -> Option<&Estimating> {
        self.sockets().estimating.as_ref().map(|(estimating, _)| estimating)
    }

    /// The data that connections add.
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

    /// The tenant of this name, and its secret that this is; `None` if there is none, which is counted and logged.
    pub(crate) fn log_in(
        &self,
        name: &[u8],
        secret: &[u8],
        peer: SocketAddr,
        now: UnixMs,
    ) -> Option<(Arc<Tenant>, Secret)> {
        let tenant = self.plane.tenant(name);
        // A name that does not exist takes as long as a wrong secret: existence is nobody else's business.
        let known = match &tenant {
            Some(tenant) => tenant.known_as(secret).filter(|_| !tenant.is_removed()),
            None => known_as(&[NO_SECRET; 2], secret),
        };
        if let (Some(tenant), Some(known)) = (&tenant, known) {
            return Some((Arc::clone(tenant), known));
        }
        self.note_failed_login(tenant.as_deref(), peer, now);
        None
    }

    /// Counts and logs a login that failed. Only the tenant itself and operators see the count.
    pub(crate) fn note_failed_login(&self, tenant: Option<&Tenant>, peer: SocketAddr, now: UnixMs) {
        self.sockets().failed_logins.fetch_add(1, Ordering::Relaxed);
        if let Some(tenant) = tenant {
            tenant.counts.add(Count::FailedLogins, 1);
            tenant.touch();
        }
        self.failure_log.lock().note(peer, tenant, now);
    }
}

impl DataPlane for Tenants {
    fn apply(&self, plan: &Plan) {
        self.plane.apply(plan);
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.plane.snapshot();
        if !snapshot.removed.is_empty() {
            tidemark_store::return_freed_allocations();
        }
        snapshot
    }
}

impl Front for Sockets {
    type Attached = Attached;

    fn attach(&self, plan: &TenantPlan) -> Attached {
        Attached::new(self.memory.account(plan.weight.get()))
    }

    fn adopted(&self, tenant: &Arc<Tenant>, plan: &TenantPlan) {
        if tenant.adopt(plan) {
            // Connections that logged in with a secret that has ended must go.
            (self.wake_workers)();
        }
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
            spending: total(Count::RefusedSpending),
            flash: total(Count::RefusedFlash),
            connections: total(Count::RefusedConnections),
            logins: total(Count::FailedLogins),
            replies: total(Count::RefusedReplies),
            stalled: total(Count::ClosedStalled),
            incomplete: total(Count::ClosedIncomplete),
            memory: total(Count::ClosedForMemory),
        };
        counters.operations = total(Count::Commands) + total(Count::NeighbourCommands);
        counters.shape.visits = total(Count::Visits);
        counters.shape.arrivals = total(Count::Arrivals);
        counters.function_invocations = total(Count::FunctionInvocations);
        counters.function_mib_ms = total(Count::FunctionMibMs);
        // Keepers' CPU time is in it already.
        counters.cpu_ns += total(Count::CpuNanos);
        snapshot.commands = tenant.counts.executed();
        if let Some((estimating, started)) = &self.estimating {
            let ns = tenant.modelled_ns(estimating, || {
                let now_us = started.elapsed().as_micros() as u64;
                let (work, present) = work_until_now(tenant);
                (now_us, work, present)
            });
            snapshot.counters.cpu_model_ns = Some(ns);
        }
        snapshot.visits = tenant.take_samples();
    }

    fn complete(&self, snapshot: &mut Snapshot) {
        snapshot.pool.other_bytes +=
            self.base_bytes.load(Ordering::Relaxed) + self.buffer_bytes.load(Ordering::Relaxed);
        snapshot.pool.connections = self.connections.load(Ordering::Relaxed);
        snapshot.pool.failed_logins = self.failed_logins.load(Ordering::Relaxed);
        let served = self.served.iter().map(WorkerTimes::report);
        snapshot.pool.served = Some(served.fold(ServedTimes::default(), ServedTimes::with));
        snapshot.cpu = Some(self.cpu.report());
    }
}
