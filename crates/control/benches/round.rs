//! The cost of a whole round to the control plane's thread: `cargo bench -p tidemark-control`.
//!
//! Tenants' loads follow Pareto's law, a fourth have goals, all have floors. The data plane is a model. A tenant with
//! random keys hits as far as they fit into its grant, and all its sampled keys are reported. Seconds pass as fast as
//! they are computed. The CPU time of a round is measured without that of the model.

#![expect(clippy::print_stdout, reason = "the output is the result")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidemark_control::{Change, ControlConfig, ControlError, Mailbox, MemoryState, SettingsPatch, Stepped};
use tidemark_types::{
    Clock, DataPlane, HitRatio, MIB, ManualClock, Plan, PoolSnapshot, Sample, SampleKind, Samples, Snapshot,
    TenantCounters, TenantPlan, TenantSnapshot, UnixMs, VisitSamples,
};

/// The pool for each tenant, a part of their demand.
const POOL_BYTES_EACH: u64 = 16 * MIB;
const FLOOR_BYTES: u64 = MIB;
/// Gets a second of the busiest tenant; the n-th one has an n-th of it.
const MOST_GETS: f64 = 200_000.0;
const LEAST_GETS: f64 = 20.0;
const KEYS_MIN: u64 = 2_000;
const ITEM_BYTES: u64 = 1_000;
/// Seconds until curves and grants have settled, and seconds that are measured.
const BEFORE: usize = 120;
const MEASURED: usize = 120;

struct Tenant {
    plan: TenantPlan,
    gets_per_second: f64,
    /// Hashes of its keys, ascending.
    orders: Vec<u64>,
    counters: TenantCounters,
    gets_left: f64,
    usage_bytes: u64,
    sequence: u32,
}

#[derive(Default)]
struct State {
    pool_bytes: u64,
    tenants: Vec<Tenant>,
    random: u64,
    /// Records that were made.
    records: u64,
    /// CPU time that the model took, in seconds.
    spent: f64,
}

struct Model {
    clock: Arc<ManualClock>,
    state: Mutex<State>,
}

impl State {
    fn random(&mut self) -> u64 {
        // Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn adopt(&mut self, plan: &TenantPlan) {
        if let Some(known) = self.tenants.iter_mut().find(|tenant| tenant.plan.id == plan.id) {
            known.plan = plan.clone();
            return;
        }
        let number = self.tenants.len() as f64 + 1.0;
        let gets_per_second = (MOST_GETS / number).max(LEAST_GETS);
        let keys = KEYS_MIN.max((gets_per_second * 20.0) as u64);
        let mut orders: Vec<u64> = (0..keys).map(|_| self.random()).collect();
        orders.sort_unstable();
        self.tenants.push(Tenant {
            plan: plan.clone(),
            gets_per_second,
            orders,
            counters: TenantCounters::default(),
            gets_left: 0.0,
            usage_bytes: 0,
            sequence: 0,
        });
    }

    /// A second of a tenant's load.
    fn report(&mut self, place: usize, now: UnixMs) -> TenantSnapshot {
        let tenant = &self.tenants[place];
        let threshold = tenant.plan.sampling_threshold;
        let sampled = tenant.orders.partition_point(|order| threshold.takes(*order));
        let part = sampled as f64 / tenant.orders.len() as f64;
        let mean = tenant.gets_per_second * part + tenant.gets_left;
        let drawn: Vec<u64> = (0..mean as usize).map(|_| self.random()).collect();
        let tenant = &mut self.tenants[place];
        tenant.gets_left = mean.fract();
        let demand_bytes = tenant.orders.len() as u64 * ITEM_BYTES;
        let grant_bytes = tenant.plan.grant_bytes.max(tenant.plan.first_grant_bytes);
        tenant.usage_bytes = demand_bytes.min(grant_bytes);
        let hit_ratio = tenant.usage_bytes as f64 / demand_bytes as f64;
        let gets = tenant.gets_per_second as u64;
        let misses = gets - (gets as f64 * hit_ratio) as u64;
        tenant.counters.gets += gets;
        tenant.counters.hits += gets - misses;
        tenant.counters.sets += misses;
        tenant.counters.evicted += if tenant.usage_bytes < demand_bytes { misses } else { 0 };
        let mut records = Vec::with_capacity(drawn.len());
        for random in drawn {
            let key = random as usize % sampled.max(1);
            let is_hit = (key as f64) < hit_ratio * sampled as f64;
            let kinds: &[SampleKind] = if is_hit {
                &[SampleKind::GetHit]
            } else {
                &[SampleKind::GetMiss, SampleKind::Fill]
            };
            for kind in kinds {
                tenant.sequence = tenant.sequence.wrapping_add(1);
                records.push(Sample {
                    order: tenant.orders[key],
                    sequence: tenant.sequence,
                    second: now.seconds() as u32,
                    millisecond: (now.0 % 1000) as u16,
                    expires_after_ms: Sample::NO_EXPIRY,
                    payload_bytes: ITEM_BYTES as u32,
                    item_bytes: if *kind == SampleKind::GetMiss {
                        0
                    } else {
                        ITEM_BYTES as u32
                    },
                    kind: *kind,
                    db: 0,
                });
            }
        }
        let snapshot = TenantSnapshot {
            id: tenant.plan.id,
            grant_bytes,
            usage_bytes: tenant.usage_bytes,
            items: tenant.usage_bytes / ITEM_BYTES,
            connections: 1,
            counters: tenant.counters,
            samples: Samples { threshold, records },
            shards: Vec::new(),
            commands: Vec::new(),
            visits: VisitSamples::default(),
        };
        self.records += snapshot.samples.records.len() as u64;
        snapshot
    }
}

impl Model {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this, and counts the time that it took as the model's.
    fn work<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let began = cpu_seconds();
        let mut state = self.lock();
        let done = work(&mut state);
        state.spent += cpu_seconds() - began;
        done
    }
}

impl DataPlane for Model {
    fn apply(&self, plan: &Plan) {
        self.work(|state| {
            state.pool_bytes = plan.pool_bytes;
            plan.tenants.iter().for_each(|tenant| state.adopt(tenant));
        });
    }

    fn snapshot(&self) -> Snapshot {
        let at = self.clock.now();
        self.work(|state| {
            let tenants: Vec<_> = (0..state.tenants.len()).map(|place| state.report(place, at)).collect();
            Snapshot {
                at,
                pool: PoolSnapshot {
                    pool_bytes: state.pool_bytes,
                    usage_bytes: tenants.iter().map(|tenant| tenant.usage_bytes).sum(),
                    ..PoolSnapshot::default()
                },
                tenants,
                removed: Vec::new(),
                cpu: None,
            }
        })
    }
}

/// The CPU time of this thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The CPU times of the rounds that are measured, in milliseconds, ascending, and the records that each took in the mean.
fn rounds(tenants: usize) -> Result<(Vec<f64>, f64), ControlError> {
    let clock = Arc::new(ManualClock::new(UnixMs(1_700_000_000_000)));
    let model = Arc::new(Model {
        clock: Arc::clone(&clock),
        state: Mutex::default(),
    });
    let pool_bytes = POOL_BYTES_EACH * tenants as u64;
    let mut control = Stepped::new(
        Mailbox::default(),
        MemoryState::default(),
        Arc::clone(&model) as _,
        Arc::clone(&clock) as _,
        ControlConfig::new(pool_bytes, pool_bytes, 2),
    )?;
    for number in 0..tenants {
        let patch = SettingsPatch {
            floor_bytes: Change::Set(FLOOR_BYTES),
            priority: Change::Set((number % 3) as u8),
            hit_ratio: match HitRatio::new(0.8) {
                Ok(ratio) if number % 4 == 0 => Change::Set(ratio),
                _ => Change::Keep,
            },
            ..SettingsPatch::default()
        };
        let name = format!("t{number}");
        control.ask(|handle| handle.create_tenant(&name, patch)).wait()?;
    }
    let mut times = Vec::with_capacity(MEASURED);
    let mut records_before = 0;
    for second in 0..BEFORE + MEASURED {
        clock.advance(Duration::from_secs(1));
        if second == BEFORE {
            records_before = model.lock().records;
        }
        let (began, spent_before) = (cpu_seconds(), model.lock().spent);
        control.round();
        let (took, spent) = (cpu_seconds() - began, model.lock().spent - spent_before);
        if second >= BEFORE {
            times.push((took - spent) * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    let records = model.lock().records - records_before;
    Ok((times, records as f64 / MEASURED as f64))
}

fn main() -> Result<(), ControlError> {
    println!("tenants  records  median, ms  99th percentile, ms  longest, ms");
    for tenants in [1, 10, 128, 1000] {
        let (times, records) = rounds(tenants)?;
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        println!(
            "{tenants:>7}  {records:>7.0}  {:>10.2}  {:>19.2}  {:>11.2}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    Ok(())
}
