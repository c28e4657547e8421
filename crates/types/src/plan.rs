//! The control plane's answer to a [`Snapshot`], and the door through which both pass.

use crate::{FlashPlan, Policy, SamplingThreshold, Secret, Snapshot, TenantId, TenantLimits, TenantName, Weight};

/// The changes for the data plane from now on. A plan is not the whole. It names the tenants that are new, changed or
/// to be removed, so that a round costs nothing for the others.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Grows with every plan. A plan that is not newer than the one in force is ignored.
    pub sequence: u64,
    /// All memory for segments and indexes, of all tenants.
    pub pool_bytes: u64,
    /// New, changed and removed tenants.
    pub tenants: Vec<TenantPlan>,
}

/// One tenant in a [`Plan`], complete: values that are not mentioned are not kept.
#[derive(Clone, Debug)]
pub struct TenantPlan {
    /// The tenant.
    pub id: TenantId,
    /// Grows with every change of this tenant's plan.
    pub version: u64,
    /// The name with which clients log in.
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
    /// The memory, as far as it is free, that the data plane may grant by itself at the first write to a tenant without
    /// a grant. The write need then not wait for a round.
    pub first_grant_bytes: u64,
    /// Memory that the tenant never exceeds, not even by a first grant of the data plane.
    pub cap_bytes: Option<u64>,
    /// The limits of its requests in a time. They change nothing for existing connections: those above a lowered limit
    /// stay.
    pub limits: TenantLimits,
    /// Whether commands that add data are refused, because the tenant has reached its spending limit.
    pub refuses_writes: bool,
    /// Its share of a worker's time where other tenants want some, too.
    pub weight: Weight,
    /// The threshold of sampling. A lower one than before is in force at once. A higher one is from the next snapshot
    /// of the tenant on, so that the records of a snapshot were taken with one threshold. The data plane lowers it by
    /// itself when it keeps no more records. The snapshot says so, and the next plan of the tenant decides anew.
    pub sampling_threshold: SamplingThreshold,
    /// Its terms on flash, where there is some.
    pub flash: FlashPlan,
    /// The state of the tenant's life.
    pub state: TenantState,
}

/// The states of a tenant's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TenantState {
    /// Holds memory or may take some at the next write.
    Active,
    /// Holds nothing until the next write. If it was written to since the snapshot that this follows from, it keeps the
    /// memory that it took.
    Idle,
    /// It was asked nothing for long, and others want its memory: gives back all that it holds, then is idle. If it was
    /// asked something since the snapshot that this follows from, it keeps its memory.
    Reclaimed,
    /// Its connections are closed, its items gone, its memory is being returned; then it is forgotten.
    Removing,
}

/// The data plane as the control plane sees it.
pub trait DataPlane: Send + Sync {
    /// Adopts a plan. Returns when logins and limits follow it; memory follows within the next turns.
    fn apply(&self, plan: &Plan);

    /// The events since the last call: one entry for each tenant that was touched.
    fn snapshot(&self) -> Snapshot;
}
