//! What the control plane answers a [`Snapshot`] with, and the door through which both pass.

use crate::{Policy, SamplingThreshold, Secret, Snapshot, TenantId, TenantLimits, TenantName, Weight};

/// What the data plane shall do from now on. A plan is a change, not the whole: it names the tenants that are new, changed
/// or to be removed, so that a round costs nothing for those that stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Grows with every plan. A plan that is not newer than the one in force is ignored.
    pub sequence: u64,
    /// All memory for segments and indexes, of all tenants.
    pub pool_bytes: u64,
    /// New, changed and removed tenants.
    pub tenants: Vec<TenantPlan>,
}

/// One tenant in a [`Plan`], complete: what is not mentioned is not kept.
#[derive(Clone, Debug)]
pub struct TenantPlan {
    /// The tenant.
    pub id: TenantId,
    /// Grows with every change of this tenant's plan.
    pub version: u64,
    /// What clients log in as.
    pub name: TenantName,
    /// Whether a connection from loopback is this tenant's without logging in. At most one tenant is open.
    pub open: bool,
    /// At most two, so that secrets can be rotated without a gap.
    pub secrets: Vec<Secret>,
    /// Which items go when memory is short.
    pub policy: Policy,
    /// A power of two; read when the tenant is created, fixed afterwards.
    pub shards: u16,
    /// Memory that the tenant may hold now, for segments and index. Zero for one that never wrote or is idle.
    pub grant_bytes: u64,
    /// Memory that the data plane may grant by itself at the first write to a tenant whose grant is zero, as far as it is
    /// free, so that the write need not wait for a round.
    pub first_grant_bytes: u64,
    /// Memory that the tenant never exceeds; what the data plane may not pass even for a first grant.
    pub cap_bytes: Option<u64>,
    /// What it may ask for in a time. They change nothing for what is there already: connections above a lowered limit stay.
    pub limits: TenantLimits,
    /// Its share of a worker's time where other tenants want some, too.
    pub weight: Weight,
    /// Which keys are sampled. A lower one than before is in force at once, a higher one from the next snapshot of the
    /// tenant on, so that what a snapshot reports was taken with one threshold. The data plane lowers it by itself when more
    /// is recorded than it keeps; the snapshot says so, and the next plan of the tenant decides anew.
    pub sampling_threshold: SamplingThreshold,
    /// What the tenant's life has come to.
    pub state: TenantState,
}

/// What a tenant's life has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TenantState {
    /// Holds memory or may take some at the next write.
    Active,
    /// Holds nothing until the next write. If it was written to since the snapshot that this follows from, it keeps what it
    /// took.
    Idle,
    /// It was asked nothing for long, and others want its memory: gives back all that it holds, then is idle. A write
    /// meanwhile brings it back with a first grant.
    Reclaimed,
    /// Its connections are closed, its items gone, its memory is being returned; then it is forgotten.
    Removing,
}

/// The data plane as the control plane sees it.
pub trait DataPlane: Send + Sync {
    /// Adopts a plan. Returns when logins and limits follow it; memory follows within the next turns.
    fn apply(&self, plan: &Plan);

    /// What happened since the last call: one entry for each tenant that was touched.
    fn snapshot(&self) -> Snapshot;
}
