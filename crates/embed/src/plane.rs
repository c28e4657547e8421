//! A program as a front of the data plane: without sockets, connections and logins.
//!
//! Code that uses a tenant through its store says so afterwards by [`Tenant::touch_store`].

use std::fmt;
use std::sync::Arc;

use tidemark_control::{MoveView, Watcher};
use tidemark_plane::{Front, Plane, PlaneParts, Tenant};
use tidemark_store::{Alarm, Hooks, PoolStats};
use tidemark_types::{DataPlane, Fault, Plan, Snapshot, TenantName, TenantPlan, TenantSnapshot};

use crate::events::Hook;
use crate::program::Program;

/// A tenant, with the code that the program supplied for it.
pub(crate) type LocalTenant = Tenant<Arc<Program>>;

/// See the module.
pub(crate) struct LocalPlane(Plane<Local>);

/// The program's addition to the data plane.
struct Local {
    hook: Option<Arc<Hook>>,
    alarm: Alarm,
}

impl LocalPlane {
    /// A data plane without tenants, which tells a program of things through `hook`.
    pub(crate) fn new(parts: PlaneParts, hook: Option<Arc<Hook>>) -> Self {
        let alarm = Arc::clone(&parts.alarm);
        Self(Plane::new(parts, Local { hook, alarm }))
    }

    /// Whom it tells.
    pub(crate) fn hook(&self) -> Option<&Hook> {
        self.0.front().hook.as_deref()
    }

    /// A tenant by its name.
    pub(crate) fn tenant(&self, name: &str) -> Option<Arc<LocalTenant>> {
        self.0.tenant(name.as_bytes())
    }

    /// The grants of all tenants together, in bytes.
    pub(crate) fn granted_bytes(&self) -> u64 {
        self.0.granted_bytes()
    }

    /// How much flash lies below the pool.
    pub(crate) fn flash_bytes(&self) -> u64 {
        self.0.flash().map_or(0, |flash| flash.size_bytes())
    }

    /// How the pool stands.
    pub(crate) fn pool_stats(&self) -> PoolStats {
        self.0.pool().stats()
    }
}

impl fmt::Debug for LocalPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalPlane").field(&self.0).finish()
    }
}

impl Front for Local {
    type Attached = Arc<Program>;

    fn attach(&self, plan: &TenantPlan) -> Arc<Program> {
        Arc::new(Program::new(plan.name.clone(), self.hook.clone()))
    }

    fn hooks(&self, program: &Arc<Program>) -> Hooks {
        program.hooks()
    }

    fn removed(&self, _tenant: &Arc<LocalTenant>) {
        // Its memory is back: callers that wait for that, and for its name, need not wait for the next round.
        (self.alarm)();
    }

    fn report(&self, _tenant: &LocalTenant, snapshot: &mut TenantSnapshot) {
        // The program itself is the one that is connected.
        snapshot.connections = 1;
    }

    fn complete(&self, snapshot: &mut Snapshot) {
        snapshot.pool.connections = snapshot.tenants.len() as u64;
    }
}

impl Watcher for LocalPlane {
    fn moved(&self, tenant: &TenantName, change: &MoveView) {
        if let Some(hook) = self.hook() {
            hook.tell(|events| events.moved(tenant.as_str(), change));
        }
    }

    fn replaced(&self, tenant: &TenantName, fault: &Fault) {
        if let Some(local) = self.tenant(tenant.as_str()) {
            local.report(fault);
        }
    }
}

impl DataPlane for LocalPlane {
    fn apply(&self, plan: &Plan) {
        self.0.apply(plan);
    }

    fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }
}
