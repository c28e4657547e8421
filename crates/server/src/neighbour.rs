//! Tenants for another front of this data plane, which has sockets of its own.

use std::fmt;
use std::sync::Arc;

use tidemark_store::TenantStore;
use tidemark_types::{Outcome, TenantId};

use crate::counts::Count;
use crate::tenant::Tenant;
use crate::tenants::Tenants;

/// The view that another front has of this one. Clones are the same.
#[derive(Clone)]
pub struct Neighbour {
    tenants: Arc<Tenants>,
}

/// A tenant of the server, for as long as it is being used.
#[derive(Clone)]
pub struct NeighbourTenant {
    tenant: Arc<Tenant>,
}

impl fmt::Debug for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Neighbour")
    }
}

impl fmt::Debug for NeighbourTenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.tenant, f)
    }
}

impl Neighbour {
    pub(crate) fn new(tenants: Arc<Tenants>) -> Self {
        Self { tenants }
    }

    /// The tenant of that name, if there is one now.
    pub fn tenant(&self, name: &str) -> Option<NeighbourTenant> {
        Some(NeighbourTenant {
            tenant: self.tenants.named(name.as_bytes())?,
        })
    }
}

impl NeighbourTenant {
    /// A later tenant of the same name has another.
    pub fn id(&self) -> TenantId {
        self.tenant.id
    }

    /// Its memory. Whoever uses it says so by [`Self::touch`] afterwards.
    pub fn store(&self) -> &Arc<TenantStore> {
        &self.tenant.store
    }

    /// Notes that something happened to it.
    pub fn touch(&self) {
        self.tenant.touch();
    }

    /// Counts bytes that came from its clients and went to them.
    pub fn count_network(&self, in_bytes: u64, out_bytes: u64) {
        self.tenant.counts.add(Count::NetworkIn, in_bytes);
        self.tenant.counts.add(Count::NetworkOut, out_bytes);
        // They may be all that it does: its memory is not touched by objects that are kept elsewhere.
        self.tenant.touch();
    }

    /// Counts a command of the other front's protocol that was executed. Protocols and commands are few.
    pub fn count_command(&self, protocol: &'static str, command: &'static str, outcome: Outcome) {
        self.tenant.counts.neighbour_executed(protocol, command, outcome);
        self.tenant.touch();
    }

    /// Counts cloud functions that ran for it: invocations, and MiB times ms.
    pub fn count_functions(&self, invocations: u64, mib_ms: u64) {
        self.tenant.counts.add(Count::FunctionInvocations, invocations);
        self.tenant.counts.add(Count::FunctionMibMs, mib_ms);
        self.tenant.touch();
    }
}
