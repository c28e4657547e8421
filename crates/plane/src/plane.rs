//! All tenants, and the control plane's snapshots of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use tidemark_store::{Alarm, Hasher, Hooks, KeeperInbox, Pool, TenantConfig, TenantReport, TenantStore};
use tidemark_types::{
    Clock, DataPlane, Plan, PoolSnapshot, Snapshot, TenantId, TenantPlan, TenantSnapshot, TenantState, UNIT_BYTES,
    UnixMs,
};

use crate::flash::Flash;
use crate::front::Front;
use crate::tenant::{Tenant, Touched};

/// The parts of a data plane.
pub struct PlaneParts {
    /// The memory of all tenants.
    pub pool: Pool,
    /// The hash of their keys.
    pub hasher: Hasher,
    /// The inboxes of those who look after the shards.
    pub keepers: Arc<[Arc<KeeperInbox>]>,
    /// Wakes the control plane.
    pub alarm: Alarm,
    /// The time of snapshots.
    pub clock: Arc<dyn Clock>,
    /// The flash tier below the memory of all tenants; keys' hashes are by its seed then.
    pub flash: Option<Arc<Flash>>,
}

/// See the module.
pub struct Plane<F: Front> {
    parts: PlaneParts,
    front: F,
    next_keeper: AtomicUsize,
    table: RwLock<Table<F::Attached>>,
    touched: Arc<Touched>,
    /// Removed, but memory is still pinned or a front still uses them.
    leaving: Mutex<Vec<Arc<Tenant<F::Attached>>>>,
    /// The newest plan's number. Held while a plan is followed.
    sequence: Mutex<u64>,
}

struct Table<A> {
    by_id: HashMap<TenantId, Arc<Tenant<A>>>,
    by_name: HashMap<Box<[u8]>, Arc<Tenant<A>>>,
}

impl<A> Default for Table<A> {
    fn default() -> Self {
        Self {
            by_id: HashMap::new(),
            by_name: HashMap::new(),
        }
    }
}

impl<F: Front> fmt::Debug for Plane<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plane")
            .field("pool", &self.parts.pool)
            .finish_non_exhaustive()
    }
}

impl<F: Front> Plane<F> {
    /// A data plane without tenants.
    pub fn new(parts: PlaneParts, front: F) -> Self {
        Self {
            parts,
            front,
            next_keeper: AtomicUsize::new(0),
            table: RwLock::default(),
            touched: Arc::default(),
            leaving: Mutex::default(),
            sequence: Mutex::new(0),
        }
    }

    /// The front.
    pub fn front(&self) -> &F {
        &self.front
    }

    /// The memory of all tenants.
    pub fn pool(&self) -> &Pool {
        &self.parts.pool
    }

    /// The flash tier below the memory of all tenants.
    pub fn flash(&self) -> Option<&Arc<Flash>> {
        self.parts.flash.as_ref()
    }

    /// The tenant of that name.
    pub fn tenant(&self, name: &[u8]) -> Option<Arc<Tenant<F::Attached>>> {
        self.table.read().by_name.get(name).cloned()
    }

    /// The grants of all tenants together, in bytes.
    pub fn granted_bytes(&self) -> u64 {
        let table = self.table.read();
        table.by_id.values().map(|tenant| tenant.store.grant_bytes()).sum()
    }

    fn adopt(&self, plan: &TenantPlan) {
        let known = self.table.read().by_id.get(&plan.id).cloned();
        if plan.state == TenantState::Removing {
            if let Some(tenant) = known {
                self.remove(&tenant);
            }
            return;
        }
        let is_new = known.is_none();
        let tenant = known.unwrap_or_else(|| self.create(plan));
        if is_new {
            // Before anything can touch it: a snapshot that does not find it would lose the mark.
            self.table.write().by_id.insert(plan.id, Arc::clone(&tenant));
        }
        if tenant.follow(plan) {
            self.front.adopted(&tenant, plan);
        }
        // The control plane is to know of what was on flash before this process was.
        if is_new && tenant.tier.as_ref().is_some_and(|tier| tier.used().usage_bytes > 0) {
            tenant.touch();
        }
        // A new tenant is found by its name once it is whole.
        if is_new {
            let name = plan.name.as_str().as_bytes().into();
            self.table.write().by_name.insert(name, tenant);
        }
    }

    fn create(&self, plan: &TenantPlan) -> Arc<Tenant<F::Attached>> {
        let attached = self.front.attach(plan);
        let tier = self.parts.flash.as_ref().map(|flash| Arc::new(flash.tier(plan.id)));
        let hooks = Hooks {
            below: tier.clone().map(|tier| tier as _),
            ..self.front.hooks(&attached)
        };
        Arc::new_cyclic(|itself| {
            let shards = TenantStore::shards_of(plan);
            let config = TenantConfig {
                shards,
                policy: plan.policy,
                hasher: self.parts.hasher.clone(),
                keepers: Arc::clone(&self.parts.keepers),
                first_keeper: self.next_keeper.fetch_add(shards, Ordering::Relaxed),
                alarm: Arc::clone(&self.parts.alarm),
                usage_changed: Arc::new(Tenant::toucher(itself)),
            };
            let store = TenantStore::with_hooks(&self.parts.pool, config, hooks);
            Tenant::new(plan, store, tier, Arc::clone(&self.touched), attached)
        })
    }

    fn remove(&self, tenant: &Arc<Tenant<F::Attached>>) {
        let mut table = self.table.write();
        table.by_id.remove(&tenant.id);
        let name = tenant.name.as_str().as_bytes();
        // A new tenant may have the name already.
        if table.by_name.get(name).is_some_and(|named| named.id == tenant.id) {
            table.by_name.remove(name);
        }
        drop(table);
        tenant.remove();
        if let Some(flash) = &self.parts.flash {
            flash.remove(tenant.id);
        }
        self.leaving.lock().push(Arc::clone(tenant));
        self.front.removed(tenant);
    }

    /// Removed tenants whose memory is back and whose connections are gone.
    fn take_removed(&self) -> Vec<Arc<Tenant<F::Attached>>> {
        let mut leaving = self.leaving.lock();
        let gone = leaving.extract_if(.., |tenant| {
            // A command that ran while the tenant was being removed may have written once more.
            if tenant.store.usage_bytes() > 0 {
                tenant.store.clear();
            }
            tenant.store.usage_bytes() == 0 && tenant.connections.load(Ordering::Acquire) == 0
        });
        gone.collect()
    }

    /// Memory that flash takes.
    fn flash_memory_bytes(&self) -> u64 {
        let flash = self.parts.flash.as_ref();
        flash.map_or(0, |flash| flash.store().memory_bytes())
    }

    /// One tenant's snapshot, and the memory that its samples took until now.
    fn report(&self, tenant: &Arc<Tenant<F::Attached>>, now: UnixMs) -> (TenantSnapshot, u64) {
        tenant.clear_touched();
        let TenantReport {
            snapshot,
            sample_buffer_bytes,
        } = tenant.store.report(tenant.id, now);
        let mut snapshot = TenantSnapshot {
            connections: tenant.connections.load(Ordering::Relaxed),
            ..snapshot
        };
        snapshot.counters.flash = tenant.tier.as_ref().map(|tier| tier.used());
        self.front.report(tenant, &mut snapshot);
        (snapshot, sample_buffer_bytes)
    }
}

impl<F: Front> DataPlane for Plane<F> {
    fn apply(&self, plan: &Plan) {
        let mut newest = self.sequence.lock();
        if plan.sequence <= *newest {
            return;
        }
        *newest = plan.sequence;
        let in_force = self.parts.pool.resize(plan.pool_bytes);
        if in_force < plan.pool_bytes / UNIT_BYTES * UNIT_BYTES {
            tracing::warn!(
                asked = plan.pool_bytes,
                in_force,
                "the pool can not be larger than the address space reserved at start"
            );
        }
        for tenant in &plan.tenants {
            self.adopt(tenant);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let at = self.parts.clock.now();
        let mut touched = std::mem::take(&mut *self.touched.lock());
        // One order, independent of arrival: the rest of the round is the same in every run of a simulation.
        touched.sort_unstable();
        let removed = self.take_removed();
        let touched = touched
            .into_iter()
            .filter_map(|id| self.table.read().by_id.get(&id).cloned());
        // The use of a removed tenant since its last report counts all the same.
        let reports = touched
            .chain(removed.iter().cloned())
            .map(|tenant| self.report(&tenant, at));
        // A tenant that was not touched has no samples.
        let (tenants, sample_bytes): (Vec<TenantSnapshot>, Vec<u64>) = reports.unzip();
        let mut snapshot = Snapshot {
            at,
            pool: PoolSnapshot {
                other_bytes: sample_bytes.into_iter().sum::<u64>() + self.flash_memory_bytes(),
                has_flash_failed: self.flash().is_some_and(|flash| flash.store().is_given_up()),
                ..self.parts.pool.stats().into()
            },
            tenants,
            removed: removed.iter().map(|tenant| tenant.id).collect(),
            cpu: None,
        };
        self.front.complete(&mut snapshot);
        snapshot
    }
}
