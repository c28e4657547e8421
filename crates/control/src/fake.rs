//! A data plane without sockets and items, in virtual time: tenants fill their grants as far as their demand reaches.
//!
//! It keeps the rules that the control plane relies on. A first grant is made at the first write as far as memory is
//! free. A tenant is in a snapshot only if something happened to it. A removed tenant's memory comes back with a later
//! snapshot. Its fault: memory that does not come back ([`FakeDataPlane::withhold_removed`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemark_types::{
    Clock, DataPlane, FlashUse, Plan, PoolSnapshot, Sample, SampleKind, Samples, Snapshot, TenantCounters, TenantId,
    TenantPlan, TenantSnapshot, TenantState, VisitSamples,
};

/// The size of every item.
const ITEM_BYTES: u64 = 1024;

/// A data plane for tests and virtual-time experiments.
pub struct FakeDataPlane {
    clock: Arc<dyn Clock>,
    state: Mutex<FakeState>,
}

#[derive(Default)]
struct FakeState {
    pool_bytes: u64,
    last_sequence: u64,
    tenants: BTreeMap<TenantId, FakeTenant>,
    touched: BTreeSet<TenantId>,
    removed: Vec<TenantId>,
    withholds_removed: bool,
    has_flash_failed: bool,
    /// The number of tenants that each plan named.
    plan_sizes: Vec<usize>,
    waker: Option<Arc<dyn Fn() + Send + Sync>>,
}

struct FakeTenant {
    plan: TenantPlan,
    usage_bytes: u64,
    demand_bytes: u64,
    is_silent: bool,
    counters: TenantCounters,
    /// The records since the last snapshot.
    records: Vec<Sample>,
}

impl FakeDataPlane {
    /// An empty one.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Whom to call when a first grant was made, a tenant is short of memory, or a removed tenant's memory is back.
    pub fn set_waker(&self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.lock().waker = Some(waker);
    }

    /// From now on the tenant writes until it holds `demand_bytes`; zero empties it.
    pub fn set_demand(&self, name: &str, demand_bytes: u64) {
        self.lock().with_tenant(name, |tenant| {
            tenant.demand_bytes = demand_bytes;
            tenant.is_silent = false;
            tenant.counters.sets += 1;
            tenant.usage_bytes = tenant.usage_bytes.min(demand_bytes);
        });
    }

    /// Has a tenant's use of flash be this from now on.
    pub fn set_flash(&self, name: &str, flash: FlashUse) {
        self.lock()
            .with_tenant(name, |tenant| tenant.counters.flash = Some(flash));
    }

    /// The device of flash fails.
    pub fn fail_flash(&self) {
        self.lock().has_flash_failed = true;
    }

    /// All items of the tenant expire; nobody asks for them.
    pub fn expire(&self, name: &str) {
        self.lock().with_tenant(name, |tenant| {
            tenant.counters.expired += tenant.usage_bytes / ITEM_BYTES;
            tenant.demand_bytes = 0;
            tenant.usage_bytes = 0;
        });
    }

    /// From now on the tenant writes nothing, until [`Self::set_demand`].
    pub fn fall_silent(&self, name: &str) {
        self.lock().with_tenant(name, |tenant| tenant.is_silent = true);
    }

    /// Gets of the tenant, of which some hit.
    pub fn count_gets(&self, name: &str, gets: u64, hits: u64) {
        self.lock().with_tenant(name, |tenant| {
            tenant.counters.gets += gets;
            tenant.counters.hits += hits;
        });
    }

    /// The tenant is asked for so many bytes of items, two thousand and some times: half of the time for a tenth of them.
    /// All of it is sampled.
    pub fn ask(&self, name: &str, bytes: u64) {
        const KEYS: u64 = 500;
        const GETS: u64 = 2_600;
        let second = (self.clock.now().0 / 1000) as u32;
        let item_bytes = u32::try_from(bytes / KEYS).unwrap_or(u32::MAX).max(1);
        self.lock().with_tenant(name, |tenant| {
            tenant.records.extend((0..GETS).map(|get| {
                let key = if get % 2 == 0 {
                    get / 2 % (KEYS / 10)
                } else {
                    get / 2 % KEYS
                };
                Sample {
                    // 2^64 over the golden ratio: evenly distributed.
                    order: (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
                    sequence: get as u32,
                    second,
                    expires_after_ms: Sample::NO_EXPIRY,
                    payload_bytes: item_bytes,
                    item_bytes,
                    millisecond: 0,
                    kind: SampleKind::GetHit,
                    db: 0,
                }
            }));
            tenant.counters.gets += GETS;
            tenant.counters.hits += GETS / 2;
        });
    }

    /// Every tenant writes for a while: it fills its grant, or the part that it is set to fill, and evicts the rest.
    pub fn write(&self) {
        let mut state = self.lock();
        let mut free_bytes = state.free_bytes();
        let mut touched = Vec::new();
        for (id, tenant) in &mut state.tenants {
            let is_content = tenant.demand_bytes == 0 || tenant.usage_bytes == tenant.demand_bytes;
            if is_content || tenant.is_silent {
                continue;
            }
            touched.push(*id);
            tenant.write(&mut free_bytes);
        }
        let waker = state.waker.clone().filter(|_| !touched.is_empty());
        state.touched.extend(touched);
        drop(state);
        if let Some(wake) = waker {
            wake();
        }
    }

    /// The plan in force for a tenant, and the tenant's usage in bytes.
    pub fn tenant(&self, name: &str) -> Option<(TenantPlan, u64)> {
        let state = self.lock();
        let tenant = state
            .tenants
            .values()
            .find(|tenant| tenant.plan.name.as_str() == name)?;
        Some((tenant.plan.clone(), tenant.usage_bytes))
    }

    /// The pool in force and all grants together, in bytes.
    pub fn pool_and_granted_bytes(&self) -> (u64, u64) {
        let state = self.lock();
        (state.pool_bytes, state.granted_bytes())
    }

    /// The number of tenants that each plan so far named.
    pub fn plan_sizes(&self) -> Vec<usize> {
        self.lock().plan_sizes.clone()
    }

    /// The fault: while `withholds`, the memory of removed tenants does not come back.
    pub fn withhold_removed(&self, withholds: bool) {
        self.lock().withholds_removed = withholds;
    }

    /// A test that failed while it held the lock has failed; the guarded data is still whole.
    fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeState {
    fn granted_bytes(&self) -> u64 {
        self.tenants.values().map(|tenant| tenant.plan.grant_bytes).sum()
    }

    fn free_bytes(&self) -> u64 {
        self.pool_bytes.saturating_sub(self.granted_bytes())
    }

    fn with_tenant(&mut self, name: &str, work: impl FnOnce(&mut FakeTenant)) {
        if let Some((id, tenant)) = self
            .tenants
            .iter_mut()
            .find(|(_, tenant)| tenant.plan.name.as_str() == name)
        {
            work(tenant);
            self.touched.insert(*id);
        }
    }

    fn adopt(&mut self, plan: &TenantPlan) {
        if plan.state == TenantState::Removing {
            if self.tenants.remove(&plan.id).is_some() {
                self.removed.push(plan.id);
            }
            return;
        }
        let tenant = self.tenants.entry(plan.id).or_insert_with(|| FakeTenant {
            plan: plan.clone(),
            usage_bytes: 0,
            demand_bytes: 0,
            is_silent: false,
            counters: TenantCounters::default(),
            records: Vec::new(),
        });
        // Items written since the plan was made stay, unless everything is taken back.
        let kept_bytes = match (plan.state, tenant.usage_bytes) {
            (TenantState::Idle, 1..) => tenant.plan.grant_bytes.min(plan.cap_bytes.unwrap_or(u64::MAX)),
            _ => plan.grant_bytes,
        };
        tenant.plan = TenantPlan {
            grant_bytes: kept_bytes,
            ..plan.clone()
        };
        let plan = &tenant.plan;
        if tenant.usage_bytes > plan.grant_bytes {
            tenant.counters.evicted += (tenant.usage_bytes - plan.grant_bytes) / ITEM_BYTES;
            tenant.usage_bytes = plan.grant_bytes;
            self.touched.insert(plan.id);
        }
    }
}

impl FakeTenant {
    fn write(&mut self, free_bytes: &mut u64) {
        if self.plan.grant_bytes == 0 {
            self.plan.grant_bytes = self.plan.first_grant_bytes.min(*free_bytes);
            *free_bytes -= self.plan.grant_bytes;
        }
        let holds_bytes = self.demand_bytes.min(self.plan.grant_bytes);
        self.counters.sets += self.demand_bytes.saturating_sub(self.usage_bytes) / ITEM_BYTES;
        self.counters.evicted += (self.demand_bytes - holds_bytes) / ITEM_BYTES;
        self.usage_bytes = holds_bytes;
        if self.plan.grant_bytes == 0 {
            self.counters.refused_memory += 1;
        }
    }
}

impl DataPlane for FakeDataPlane {
    fn apply(&self, plan: &Plan) {
        let mut state = self.lock();
        if plan.sequence <= state.last_sequence {
            return;
        }
        state.last_sequence = plan.sequence;
        state.pool_bytes = plan.pool_bytes;
        state.plan_sizes.push(plan.tenants.len());
        for tenant in &plan.tenants {
            state.adopt(tenant);
        }
        let waker = state.waker.clone().filter(|_| !state.removed.is_empty());
        drop(state);
        if let Some(wake) = waker {
            wake();
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut state = self.lock();
        let touched = std::mem::take(&mut state.touched);
        let removed = if state.withholds_removed {
            Vec::new()
        } else {
            std::mem::take(&mut state.removed)
        };
        let tenants = &mut state.tenants;
        let report = |id: &TenantId| {
            let tenant = tenants.get_mut(id)?;
            Some(TenantSnapshot {
                id: *id,
                grant_bytes: tenant.plan.grant_bytes,
                usage_bytes: tenant.usage_bytes,
                items: tenant.usage_bytes / ITEM_BYTES,
                connections: 1,
                counters: tenant.counters,
                samples: Samples {
                    threshold: tenant.plan.sampling_threshold,
                    records: std::mem::take(&mut tenant.records),
                },
                shards: Vec::new(),
                commands: Vec::new(),
                visits: VisitSamples::default(),
            })
        };
        let tenants = touched.iter().filter_map(report).collect();
        Snapshot {
            at: self.clock.now(),
            pool: PoolSnapshot {
                pool_bytes: state.pool_bytes,
                usage_bytes: state.tenants.values().map(|tenant| tenant.usage_bytes).sum(),
                has_flash_failed: state.has_flash_failed,
                ..PoolSnapshot::default()
            },
            tenants,
            removed,
            cpu: None,
        }
    }
}
