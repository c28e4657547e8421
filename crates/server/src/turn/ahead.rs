//! Loading ahead what serving a group will read.

use std::sync::Arc;

use tidemark_store::{TenantStore, prefetch_value};

use super::Member;
use crate::access::{Access, access_to};
use crate::step::Step;
use crate::tenant::Tenant;

/// A connection that executed so many commands the last time is worth loading its tenant's data ahead.
const PREFETCHED_FROM_COMMANDS: u32 = 8;

/// The tenants of those members of which many commands may come, one after the other, and how many of one of them.
fn tenants_ahead(group: &[Member]) -> impl Iterator<Item = (&Tenant, usize)> {
    let tenant_of = |(_, connection): &Member| connection.session.tenant.as_ref().map(Arc::as_ptr);
    let of_one_tenant = group.chunk_by(move |member, next| tenant_of(member) == tenant_of(next));
    of_one_tenant.filter_map(|members| {
        let tenant = members[0].1.session.tenant.as_deref()?;
        let commands = members.iter().map(|(_, connection)| connection.executed).max()?;
        (commands >= PREFETCHED_FROM_COMMANDS).then_some((tenant, commands as usize))
    })
}

/// Loads ahead the data of a group's tenants, which others may have displaced since their last visit. Each step waits
/// for the loads of the one before it, for all of them at the same time. The last ones are there when the system has
/// given the input. One by one, each tenant would be waited for some twenty lines.
#[inline]
pub(super) fn prefetch_tenants(group: &[Member]) {
    if group
        .iter()
        .any(|(_, connection)| connection.executed >= PREFETCHED_FROM_COMMANDS)
    {
        prefetch_those(group);
    }
}

fn prefetch_those(group: &[Member]) {
    tenants_ahead(group).for_each(|(tenant, _)| prefetch_value(tenant));
    tenants_ahead(group).for_each(|(tenant, _)| prefetch_value::<TenantStore>(&tenant.store));
    tenants_ahead(group).for_each(|(tenant, commands)| tenant.store.prefetch_shards(commands));
    tenants_ahead(group).for_each(|(tenant, commands)| tenant.store.prefetch_views(commands));
    tenants_ahead(group).for_each(|(tenant, commands)| tenant.store.prefetch_tables(commands));
}

/// Loads the items of a window ahead; their buckets are on the way already.
#[inline]
pub(super) fn prefetch_items(window: &[Step<'_>], group: &[Member]) {
    let mut access: Option<Access<'_>> = None;
    for step in window {
        if let Some(tenant) = &group[step.member].1.session.tenant {
            access_to(&mut access, &tenant.store)
                .shard_of(step.hash)
                .prefetch_item(step.hash, step.bytes);
        }
    }
}
