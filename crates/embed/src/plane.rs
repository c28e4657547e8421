//! The data plane of a program that uses its tenants itself: without sockets, connections and logins.
//!
//! It keeps the rules that a server's keeps ([`DataPlane`]): plans are followed in their order, a tenant that nothing
//! happened to is in no snapshot, and one that was removed is in the one in which its memory is back. Who uses a tenant
//! through [`LocalTenant::store`] says so afterwards by [`LocalTenant::touch`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidemark_control::{MoveView, Watcher};
use tidemark_store::{Alarm, Hasher, KeeperInbox, Pool, PoolStats, TenantConfig, TenantReport, TenantStore};
use tidemark_types::{
    Clock, DataPlane, Fault, Plan, PoolSnapshot, Snapshot, TenantId, TenantName, TenantPlan, TenantSnapshot,
    TenantState, UnixMs,
};

use crate::events::Hook;
use crate::program::Program;

/// See the module.
pub struct LocalPlane {
    pool: Pool,
    hasher: Hasher,
    keepers: Arc<[Arc<KeeperInbox>]>,
    alarm: Alarm,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    touched: Arc<Touched>,
    samples_total: AtomicU64,
    hook: Option<Arc<Hook>>,
}

/// Those that something happened to since the last snapshot.
type Touched = Mutex<Vec<TenantId>>;

#[derive(Default)]
struct State {
    sequence: u64,
    tenants: BTreeMap<TenantId, Tenant>,
    names: HashMap<TenantName, TenantId>,
    /// Removed, but some of their memory is still pinned.
    leaving: Vec<(TenantId, Arc<TenantStore>)>,
    next_keeper: usize,
}

struct Tenant {
    name: TenantName,
    version: u64,
    local: LocalTenant,
}

/// A tenant's store, and where is noted that something happened to it.
#[derive(Clone, Debug)]
pub struct LocalTenant {
    /// Its keys and memory.
    pub store: Arc<TenantStore>,
    /// What the program supplied for it.
    pub(crate) program: Arc<Program>,
    mark: Arc<Mark>,
}

#[derive(Debug)]
struct Mark {
    id: TenantId,
    is_set: AtomicBool,
    touched: Arc<Touched>,
}

impl Mark {
    #[inline]
    fn set(&self) {
        // Read first, so that threads that use the same tenant do not take the line from each other. Whoever finds the mark
        // set after an operation under a shard's lock was before the snapshot that clears it, for that looks at the shard
        // under the same lock afterwards.
        if !self.is_set.load(Ordering::Relaxed) && !self.is_set.swap(true, Ordering::AcqRel) {
            self.touched.lock().push(self.id);
        }
    }
}

impl LocalTenant {
    /// Its number: a later tenant of the same name has another.
    pub fn id(&self) -> TenantId {
        self.mark.id
    }

    /// Notes that the tenant was used just now.
    #[inline]
    pub fn touch(&self) {
        self.mark.set();
    }
}

impl fmt::Debug for LocalPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPlane")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl LocalPlane {
    /// A data plane without tenants. `alarm` wakes the control plane; the keepers of these inboxes look after the shards.
    pub fn new(
        pool: Pool,
        hasher: Hasher,
        keepers: Arc<[Arc<KeeperInbox>]>,
        alarm: Alarm,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            pool,
            hasher,
            keepers,
            alarm,
            clock,
            state: Mutex::default(),
            touched: Arc::default(),
            samples_total: AtomicU64::new(0),
            hook: None,
        }
    }

    /// The same, which tells a program of things.
    pub(crate) fn telling(mut self, hook: Option<Arc<Hook>>) -> Self {
        self.hook = hook;
        self
    }

    /// Whom it tells.
    pub(crate) fn hook(&self) -> Option<&Hook> {
        self.hook.as_deref()
    }

    /// A tenant by its name.
    pub fn tenant(&self, name: &str) -> Option<LocalTenant> {
        let state = self.state.lock();
        let id = state.names.get(&name.parse::<TenantName>().ok()?)?;
        state.tenants.get(id).map(|tenant| tenant.local.clone())
    }

    /// The grants of all tenants together, in bytes.
    pub fn granted_bytes(&self) -> u64 {
        let state = self.state.lock();
        state
            .tenants
            .values()
            .map(|tenant| tenant.local.store.grant_bytes())
            .sum()
    }

    /// How the pool stands.
    pub fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Records of sampled keys that were handed over so far.
    pub fn samples_total(&self) -> u64 {
        self.samples_total.load(Ordering::Relaxed)
    }

    fn create(&self, plan: &TenantPlan, next_keeper: &mut usize) -> Tenant {
        let mark = Arc::new(Mark {
            id: plan.id,
            is_set: AtomicBool::new(false),
            touched: Arc::clone(&self.touched),
        });
        let of_upkeep = Arc::clone(&mark);
        let shards = TenantStore::shards_of(plan);
        let config = TenantConfig {
            shards,
            policy: plan.policy,
            hasher: self.hasher.clone(),
            keepers: Arc::clone(&self.keepers),
            first_keeper: *next_keeper,
            alarm: Arc::clone(&self.alarm),
            usage_changed: Arc::new(move || of_upkeep.set()),
        };
        *next_keeper += shards;
        let program = Arc::new(Program::new(plan.name.clone(), self.hook.clone()));
        Tenant {
            name: plan.name.clone(),
            version: 0,
            local: LocalTenant {
                store: TenantStore::with_hooks(&self.pool, config, program.hooks()),
                program,
                mark,
            },
        }
    }
}

impl State {
    fn remove(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.remove(&id) else {
            return;
        };
        // A new tenant may have the name already.
        if self.names.get(&tenant.name) == Some(&id) {
            self.names.remove(&tenant.name);
        }
        let store = tenant.local.store;
        store.set_grant(0, 0);
        store.clear();
        self.leaving.push((id, store));
    }

    /// Removed tenants whose memory is back.
    fn take_removed(&mut self) -> Vec<TenantId> {
        let gone = self.leaving.extract_if(.., |(_, store)| {
            // Who was writing while it was removed may have written once more.
            if store.usage_bytes() > 0 {
                store.clear();
            }
            store.usage_bytes() == 0
        });
        gone.map(|(id, _)| id).collect()
    }

    /// One tenant's snapshot, and the memory that its samples took until now.
    fn report(&self, id: TenantId, now: UnixMs) -> Option<(TenantSnapshot, u64)> {
        let LocalTenant { store, mark, .. } = &self.tenants.get(&id)?.local;
        mark.is_set.swap(false, Ordering::AcqRel);
        let TenantReport {
            snapshot,
            sample_buffer_bytes,
        } = store.report(id, now);
        // The program itself is the one that is connected.
        let snapshot = TenantSnapshot {
            connections: 1,
            ..snapshot
        };
        Some((snapshot, sample_buffer_bytes))
    }
}

impl Watcher for LocalPlane {
    fn moved(&self, tenant: &TenantName, change: &MoveView) {
        if let Some(hook) = &self.hook {
            hook.tell(|events| events.moved(tenant.as_str(), change));
        }
    }

    fn replaced(&self, tenant: &TenantName, fault: &Fault) {
        // Not under the lock of the tenants: it calls the program.
        if let Some(local) = self.tenant(tenant.as_str()) {
            local.program.report(fault);
        }
    }
}

impl DataPlane for LocalPlane {
    fn apply(&self, plan: &Plan) {
        let mut state = self.state.lock();
        if plan.sequence <= state.sequence {
            return;
        }
        state.sequence = plan.sequence;
        self.pool.resize(plan.pool_bytes);
        for tenant_plan in &plan.tenants {
            if tenant_plan.state == TenantState::Removing {
                state.remove(tenant_plan.id);
                // Its memory is back: who waits for that, and its name, need not wait for the next round.
                (self.alarm)();
                continue;
            }
            let State {
                tenants,
                names,
                next_keeper,
                ..
            } = &mut *state;
            let tenant = tenants.entry(tenant_plan.id).or_insert_with(|| {
                names.insert(tenant_plan.name.clone(), tenant_plan.id);
                self.create(tenant_plan, next_keeper)
            });
            if tenant_plan.version >= tenant.version {
                tenant.version = tenant_plan.version;
                tenant.local.store.follow(tenant_plan);
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let at = self.clock.now();
        let mut state = self.state.lock();
        let mut touched = std::mem::take(&mut *self.touched.lock());
        // In one order, whoever came first: what follows is then the same in every run of a simulation.
        touched.sort_unstable();
        let reports = touched.into_iter().filter_map(|id| state.report(id, at));
        let (tenants, sample_bytes): (Vec<TenantSnapshot>, Vec<u64>) = reports.unzip();
        let recorded: usize = tenants.iter().map(|tenant| tenant.samples.records.len()).sum();
        self.samples_total.fetch_add(recorded as u64, Ordering::Relaxed);
        Snapshot {
            at,
            pool: PoolSnapshot {
                other_bytes: sample_bytes.into_iter().sum(),
                connections: tenants.len() as u64,
                ..self.pool.stats().into()
            },
            tenants,
            removed: state.take_removed(),
        }
    }
}
