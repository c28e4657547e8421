//! The actions of clients in the middle of a round. The data plane is as the control plane sees it, with visits to its
//! tenants between a snapshot and the resulting plan.

use std::sync::{Arc, Mutex, PoisonError};

use tidemark_plane::Plane;
use tidemark_store::TenantStore;
use tidemark_types::{Clock, DataPlane, Plan, Snapshot, UnixMs};

use super::{VirtualFront, VirtualTenant};

/// Done in the middle of rounds.
type Meanwhile = Box<dyn FnMut(&Visits<'_>) + Send>;

/// See the module.
pub(super) struct Interleaved {
    plane: Arc<Plane<VirtualFront>>,
    clock: Arc<dyn Clock>,
    what: Mutex<Option<Meanwhile>>,
}

/// The tenants, for visits in the middle of a round.
pub struct Visits<'a> {
    plane: &'a Plane<VirtualFront>,
    now: UnixMs,
}

impl Interleaved {
    pub(super) fn new(plane: Arc<Plane<VirtualFront>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            plane,
            clock,
            what: Mutex::new(None),
        }
    }

    pub(super) fn set(&self, what: Meanwhile) {
        *self.what.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }
}

impl DataPlane for Interleaved {
    fn apply(&self, plan: &Plan) {
        self.plane.apply(plan);
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.plane.snapshot();
        let visits = Visits {
            plane: &self.plane,
            now: self.clock.now(),
        };
        if let Some(what) = &mut *self.what.lock().unwrap_or_else(PoisonError::into_inner) {
            what(&visits);
        }
        snapshot
    }
}

impl Visits<'_> {
    /// Uses a tenant's store, as a client does. `None` if there is none of that name.
    pub fn visit<T>(&self, name: &str, what: impl FnOnce(&Arc<TenantStore>, UnixMs) -> T) -> Option<T> {
        let tenant = self.plane.tenant(name.as_bytes())?;
        Some(visit(&tenant, self.now, what))
    }

    /// The time.
    pub fn now(&self) -> UnixMs {
        self.now
    }
}

pub(super) fn visit<T>(tenant: &VirtualTenant, now: UnixMs, what: impl FnOnce(&Arc<TenantStore>, UnixMs) -> T) -> T {
    tenant.store.flush_if_due(now);
    let done = what(&tenant.store, now);
    tenant.touch_store();
    done
}
