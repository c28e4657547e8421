//! The part that a front adds to the data plane.

use std::sync::Arc;

use tidemark_store::Hooks;
use tidemark_types::{Snapshot, TenantPlan, TenantSnapshot};

use crate::Tenant;

/// A front of the data plane. Every method is called without a lock of the tenant table.
pub trait Front: Send + Sync + Sized + 'static {
    /// The front's own data of a tenant.
    type Attached: Send + Sync + 'static;

    /// The data of a new tenant. [`Self::adopted`] follows with the same plan.
    fn attach(&self, plan: &TenantPlan) -> Self::Attached;

    /// The hooks of the new tenant's store to the front.
    fn hooks(&self, _attached: &Self::Attached) -> Hooks {
        Hooks::default()
    }

    /// A tenant follows this plan from now on.
    fn adopted(&self, _tenant: &Arc<Tenant<Self::Attached>>, _plan: &TenantPlan) {}

    /// A tenant was taken out of the table. Its memory is being given back.
    fn removed(&self, _tenant: &Arc<Tenant<Self::Attached>>) {}

    /// Adds the front's figures to a tenant's snapshot.
    fn report(&self, tenant: &Tenant<Self::Attached>, snapshot: &mut TenantSnapshot);

    /// Adds the front's figures to a snapshot of all.
    fn complete(&self, snapshot: &mut Snapshot);
}
