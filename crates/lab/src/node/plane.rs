//! The data plane of a virtual node: the real store's tenants, without sockets and logins.
//!
//! It keeps the rules that the server's keeps (`tidemark_types::DataPlane`): plans are followed in their order, a tenant
//! that nothing happened to is in no snapshot, and one that was removed is in the one in which its memory is back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemark_store::{Alarm, Hasher, KeeperInbox, Pool, SHARDS_MAX, TenantConfig, TenantStore};
use tidemark_types::{
    Clock, DataPlane, ManualClock, Plan, PoolSnapshot, Snapshot, TenantId, TenantPlan, TenantSnapshot, TenantState,
    UnixMs,
};

use super::Standing;
use crate::Error;
use crate::elastic::Moment;

/// See the module.
pub(super) struct Plane {
    pool: Pool,
    hasher: Hasher,
    keepers: Arc<[Arc<KeeperInbox>]>,
    alarm: Alarm,
    clock: Arc<ManualClock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sequence: u64,
    tenants: BTreeMap<TenantId, Tenant>,
    leaving: Vec<(TenantId, Arc<TenantStore>)>,
    next_keeper: usize,
    samples_total: u64,
}

struct Tenant {
    name: String,
    version: u64,
    door: Door,
}

/// A tenant's store, and where is noted that something happened to it.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) store: Arc<TenantStore>,
    is_touched: Arc<AtomicBool>,
}

impl Door {
    /// Notes that the tenant was asked something.
    pub(super) fn touch(&self) {
        self.is_touched.store(true, Ordering::Relaxed);
    }
}

impl Plane {
    pub(super) fn new(
        pool_bytes: u64,
        seed: u64,
        keepers: Arc<[Arc<KeeperInbox>]>,
        alarm: Alarm,
        clock: Arc<ManualClock>,
    ) -> Result<Self, Error> {
        // Without a thread: what it would do is done where it is asked for, in the same order every time. A quarter more of
        // addresses, so that large segments find room beside small ones.
        let pool = Pool::without_thread(pool_bytes, Some(pool_bytes + pool_bytes / 4)).map_err(Error::Memory)?;
        Ok(Self {
            pool,
            hasher: Hasher::with_seed(seed),
            keepers,
            alarm,
            clock,
            state: Mutex::default(),
        })
    }

    /// What a client of a tenant uses.
    pub(super) fn door(&self, name: &str) -> Result<Door, Error> {
        let state = self.lock();
        let tenant = state.tenants.values().find(|tenant| tenant.name == name);
        let missing = || Error::Usage(format!("there is no tenant `{name}`"));
        tenant.map(|tenant| tenant.door.clone()).ok_or_else(missing)
    }

    pub(super) fn standing(&self, name: &str, seconds: f64) -> Result<Standing, Error> {
        let Door { store, .. } = self.door(name)?;
        let now = self.clock.now();
        let (mut gets, mut hits, mut items, mut shards) = (0, 0, 0, Vec::new());
        for number in 0..store.shards() {
            let shard = store.lock(number);
            let (counters, snapshot) = (shard.counters(), shard.snapshot(now));
            gets += counters.gets;
            hits += counters.hits;
            items += snapshot.items;
            shards.push(snapshot);
        }
        let moment = Moment {
            seconds,
            gets,
            hits,
            grant_bytes: store.grant_bytes(),
            usage_bytes: store.usage_bytes(),
        };
        Ok(Standing { moment, items, shards })
    }

    pub(super) fn samples_total(&self) -> u64 {
        self.lock().samples_total
    }

    pub(super) fn granted_and_pool_bytes(&self) -> (u64, u64) {
        let state = self.lock();
        let granted = state
            .tenants
            .values()
            .map(|tenant| tenant.door.store.grant_bytes())
            .sum();
        (granted, self.pool.stats().pool_bytes)
    }

    /// Whoever panicked while it held the lock has failed; what the lock guards is still whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create(&self, plan: &TenantPlan, next_keeper: &mut usize) -> Tenant {
        let is_touched = Arc::new(AtomicBool::new(false));
        let mark = Arc::clone(&is_touched);
        let shards = usize::from(plan.shards.max(1)).next_power_of_two().min(SHARDS_MAX);
        let config = TenantConfig {
            shards,
            policy: plan.policy,
            hasher: self.hasher.clone(),
            keepers: Arc::clone(&self.keepers),
            first_keeper: *next_keeper,
            alarm: Arc::clone(&self.alarm),
            usage_changed: Arc::new(move || mark.store(true, Ordering::Relaxed)),
        };
        *next_keeper += shards;
        Tenant {
            name: plan.name.to_string(),
            version: 0,
            door: Door {
                store: TenantStore::new(&self.pool, config),
                is_touched,
            },
        }
    }
}

impl State {
    fn remove(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.remove(&id) {
            let store = tenant.door.store;
            store.set_grant(0, 0);
            store.clear();
            self.leaving.push((id, store));
        }
    }

    /// Removed tenants whose memory is back.
    fn take_removed(&mut self) -> Vec<TenantId> {
        let gone = self.leaving.extract_if(.., |(_, store)| store.usage_bytes() == 0);
        gone.map(|(id, _)| id).collect()
    }
}

impl Tenant {
    fn adopt(&mut self, plan: &TenantPlan) {
        if plan.version < self.version {
            return;
        }
        self.version = plan.version;
        self.door.store.follow(plan);
    }

    /// Its snapshot, and the memory that its samples took until now.
    fn report(&self, id: TenantId, now: UnixMs) -> (TenantSnapshot, u64) {
        let report = self.door.store.report(id, now);
        let snapshot = TenantSnapshot {
            connections: 1,
            ..report.snapshot
        };
        (snapshot, report.sample_buffer_bytes)
    }
}

impl DataPlane for Plane {
    fn apply(&self, plan: &Plan) {
        let mut state = self.lock();
        if plan.sequence <= state.sequence {
            return;
        }
        state.sequence = plan.sequence;
        self.pool.resize(plan.pool_bytes);
        for tenant_plan in &plan.tenants {
            if tenant_plan.state == TenantState::Removing {
                state.remove(tenant_plan.id);
                continue;
            }
            let State {
                tenants, next_keeper, ..
            } = &mut *state;
            let tenant = tenants.entry(tenant_plan.id);
            tenant
                .or_insert_with(|| self.create(tenant_plan, next_keeper))
                .adopt(tenant_plan);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let at = self.clock.now();
        let mut state = self.lock();
        let mut tenants = Vec::new();
        let mut sample_bytes = 0;
        for (id, tenant) in &state.tenants {
            if tenant.door.is_touched.swap(false, Ordering::Relaxed) {
                let (report, bytes) = tenant.report(*id, at);
                tenants.push(report);
                sample_bytes += bytes;
            }
        }
        let recorded: usize = tenants.iter().map(|tenant| tenant.samples.records.len()).sum();
        state.samples_total += recorded as u64;
        let stats = self.pool.stats();
        Snapshot {
            at,
            pool: PoolSnapshot {
                pool_bytes: stats.pool_bytes,
                usage_bytes: stats.usage_bytes,
                resident_free_bytes: stats.resident_free_bytes,
                other_bytes: sample_bytes,
                connections: tenants.len() as u64,
            },
            tenants,
            removed: state.take_removed(),
        }
    }
}
