//! Tenants with a spending limit, and their restraints.

use tidemark_meter::spending::{Restraint, SpendingLimit};
use tidemark_types::TenantId;

use super::Book;

impl Book {
    /// Those that have a spending limit, with their present grants.
    pub(crate) fn limited(&self) -> Vec<(TenantId, SpendingLimit, u64)> {
        let tenants = self.limited.iter().filter_map(|id| self.tenants.get(id));
        let limited = tenants.filter(|tenant| !tenant.is_removing).filter_map(|tenant| {
            let limit = tenant.record.settings.spending_limit()?;
            Some((tenant.record.id, limit, tenant.grant_bytes))
        });
        limited.collect()
    }

    /// Restrains a tenant because of its spending, or does so no longer. Whether that is new.
    pub(crate) fn restrain(&mut self, id: TenantId, restraint: Restraint) -> bool {
        let Some(tenant) = self.tenants.get_mut(&id).filter(|tenant| tenant.restraint != restraint) else {
            return false;
        };
        tenant.restraint = restraint;
        self.changed.insert(id);
        true
    }
}
