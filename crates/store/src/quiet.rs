//! A tenant that holds next to nothing loses nothing that it was just given, whatever plans, flushes and upkeep come
//! between.
//!
//! Only some items may go: those that were flushed or have expired. When a plan takes all memory back, items that were
//! not asked for since its report may go, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidemark_types::{
    FlashPlan, MIB, Policy, SamplingThreshold, TenantId, TenantLimits, TenantPlan, TenantState, UNIT_BYTES, UnixMs,
    Weight,
};

use crate::tenant::{Keeper, KeeperInbox};
use crate::{Attributes, Hasher, Pool, TenantConfig, TenantStore};

const NOW: UnixMs = UnixMs(1_700_000_000_000);
/// Room for a segment and an index in each shard, twice.
const LEAST_UNITS_PER_SHARD: u64 = 4;

/// An event that may come between two commands.
#[derive(Clone, Debug)]
enum Step {
    /// A key is written, with a life of so many milliseconds or for ever.
    Write(u8, u8, Option<u16>),
    /// Asks for a key's token, which may write its item elsewhere.
    Token(u8, u8),
    Delete(u8, u8),
    Flush(Option<u8>),
    /// A flush of database 0 after so many milliseconds.
    FlushIn(u16),
    Report,
    Plan(TenantState),
    /// A plan with a grant of so many units beyond the least.
    Grant(u8),
    /// Pieces of upkeep.
    Keep(u8),
    /// Time passes, in milliseconds.
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || (0_u8..3, 0_u8..12);
    prop_oneof![
        6 => (name(), proptest::option::weighted(0.2, 1_u16..3_000)).prop_map(|((db, key), life)| Step::Write(db, key, life)),
        2 => name().prop_map(|(db, key)| Step::Token(db, key)),
        1 => name().prop_map(|(db, key)| Step::Delete(db, key)),
        1 => proptest::option::of(0_u8..3).prop_map(Step::Flush),
        1 => (0_u16..2_000).prop_map(Step::FlushIn),
        3 => Just(Step::Report),
        2 => Just(Step::Plan(TenantState::Idle)),
        3 => Just(Step::Plan(TenantState::Reclaimed)),
        1 => (0_u8..40).prop_map(Step::Grant),
        4 => (1_u8..40).prop_map(Step::Keep),
        3 => (1_u16..2_500).prop_map(Step::Wait),
    ]
}

/// An item as it is expected.
#[derive(Clone, Debug)]
struct Stored {
    value: Vec<u8>,
    expiry: Option<UnixMs>,
    token: Option<u64>,
}

struct Quiet {
    store: Arc<TenantStore>,
    keeper: Keeper,
    _pool: Pool,
    now: UnixMs,
    items: BTreeMap<(u8, u8), Stored>,
    /// Nothing was asked since the last report.
    is_reported: bool,
    flush_at: Option<UnixMs>,
    writes: u64,
    version: u64,
}

impl Quiet {
    fn new(shards: usize, policy: Policy) -> Self {
        let pool = Pool::without_thread(64 * MIB, None).unwrap();
        let inbox = KeeperInbox::new(Box::new(|| {}));
        let config = TenantConfig {
            shards,
            policy,
            ..TenantConfig::with_keeper(Arc::clone(&inbox), Hasher::with_seed(1))
        };
        let store = TenantStore::new(&pool, config);
        let mut quiet = Self {
            store,
            keeper: Keeper::new(inbox),
            _pool: pool,
            now: NOW,
            items: BTreeMap::new(),
            is_reported: false,
            flush_at: None,
            writes: 0,
            version: 0,
        };
        quiet.follow(TenantState::Idle, 0);
        quiet
    }

    fn follow(&mut self, state: TenantState, grant_bytes: u64) {
        self.version += 1;
        let plan = plan(self.version, state, grant_bytes, self.store.policy());
        self.store.follow(&plan);
    }

    fn take(&mut self, step: &Step) {
        self.store.flush_if_due(self.now);
        match *step {
            Step::Write(db, key, life) => self.write(db, key, life),
            Step::Token(db, key) => self.token(db, key),
            Step::Delete(db, key) => {
                let name = [key];
                let handle = self.store.key(db, &name);
                let was_there = self
                    .store
                    .lock(self.store.shard_of(handle.hash))
                    .delete(&handle, self.now);
                assert_eq!(was_there, self.items.remove(&(db, key)).is_some());
            }
            Step::Flush(db) => {
                self.store.flush(db, self.now);
                self.items.retain(|(of, _), _| db.is_some_and(|db| *of != db));
            }
            Step::FlushIn(ms) => {
                let at = self.now.plus(Duration::from_millis(ms.into()));
                self.store.flush_at(at);
                self.flush_at = Some(at);
            }
            Step::Report => {
                drop(self.store.report(TenantId(1), self.now));
                self.is_reported = true;
            }
            Step::Plan(state) => {
                self.follow(state, 0);
                if state == TenantState::Reclaimed && self.is_reported {
                    self.items.clear();
                }
            }
            Step::Grant(units) => {
                let least = LEAST_UNITS_PER_SHARD * self.store.shards() as u64;
                self.follow(TenantState::Active, (least + u64::from(units)) * UNIT_BYTES);
            }
            Step::Keep(pieces) => {
                for _ in 0..pieces {
                    let _ = self.keeper.run(self.now, Duration::ZERO);
                }
            }
            Step::Wait(ms) => self.now = self.now.plus(Duration::from_millis(ms.into())),
        }
        self.forget_what_is_due();
    }

    fn forget_what_is_due(&mut self) {
        if self.flush_at.is_some_and(|at| at <= self.now) {
            self.flush_at = None;
            self.items.retain(|(db, _), _| *db != 0);
        }
        let now = self.now;
        self.items
            .retain(|_, stored| stored.expiry.is_none_or(|expiry| expiry > now));
    }

    fn write(&mut self, db: u8, key: u8, life: Option<u16>) {
        self.writes += 1;
        let value = self.writes.to_string().repeat(1 + key as usize * 10).into_bytes();
        let expiry = life.map(|ms| self.now.plus(Duration::from_millis(ms.into())));
        let name = [key];
        let handle = self.store.key(db, &name);
        let attributes = Attributes {
            expiry,
            ..Attributes::default()
        };
        self.store.put(&handle, &value, attributes, self.now).unwrap();
        self.is_reported = false;
        let stored = Stored {
            value,
            expiry,
            token: None,
        };
        self.items.insert((db, key), stored);
    }

    fn token(&mut self, db: u8, key: u8) {
        let name = [key];
        let handle = self.store.key(db, &name);
        let mut guard = self.store.lock(self.store.shard_of(handle.hash));
        let token = guard.token(&handle, self.now).unwrap();
        let stored = self.items.get_mut(&(db, key));
        assert_eq!(token.is_some(), stored.is_some());
        if let Some(stored) = stored {
            assert!(stored.token.is_none_or(|before| Some(before) == token));
            stored.token = token;
        }
    }

    /// Looks without being a get, which would count as being asked.
    fn check(&self) {
        self.store.flush_if_due(self.now);
        for ((db, key), stored) in &self.items {
            let name = [*key];
            let handle = self.store.key(*db, &name);
            let mut guard = self.store.lock(self.store.shard_of(handle.hash));
            let found = guard
                .peek(&handle, self.now)
                .map(|found| (found.value().to_vec(), found.attributes().token));
            assert_eq!(found, Some((stored.value.clone(), stored.token)), "{db} {key}");
        }
        assert_eq!(self.store.sum(|shard| shard.counters().evicted), 0);
        (0..self.store.shards()).for_each(|shard| self.store.lock(shard).audit());
    }
}

fn plan(version: u64, state: TenantState, grant_bytes: u64, policy: Policy) -> TenantPlan {
    TenantPlan {
        id: TenantId(1),
        version,
        name: "quiet".parse().unwrap(),
        open: false,
        secrets: Vec::new(),
        policy,
        shards: 1,
        grant_bytes,
        first_grant_bytes: 4 * MIB,
        cap_bytes: None,
        limits: TenantLimits::default(),
        refuses_writes: false,
        weight: Weight::default(),
        sampling_threshold: SamplingThreshold::default(),
        flash: FlashPlan::default(),
        state,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_that_was_just_given(
        steps in proptest::collection::vec(step(), 1..120),
        shard_bits in 0_u32..4,
        policy in 0_usize..Policy::PLAIN.len(),
    ) {
        let mut quiet = Quiet::new(1 << shard_bits, Policy::PLAIN[policy]);
        for step in &steps {
            quiet.take(step);
            quiet.check();
        }
    }
}

/// Plans are applied while a client flushes and writes. No moment between the report of a plan and its application
/// loses a write.
#[test]
fn a_client_beside_plans_and_upkeep_finds_what_it_wrote() {
    const TURNS: u64 = 60_000;
    for state in [TenantState::Idle, TenantState::Reclaimed] {
        let Quiet { store, mut keeper, .. } = Quiet::new(2, Policy::default());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut version = 10;
                while !is_over.load(Ordering::Relaxed) {
                    version += 1;
                    if state == TenantState::Idle {
                        drop(store.report(TenantId(1), NOW));
                    }
                    store.follow(&plan(version, state, 0, Policy::default()));
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = keeper.run(NOW, Duration::from_micros(20));
                }
            });
            for turn in 0..TURNS {
                let name = turn.to_le_bytes();
                let key = store.key(0, &name[..1]);
                store.flush(Some(0), NOW);
                store.put(&key, &name, Attributes::default(), NOW).unwrap();
                let find = || {
                    let mut guard = store.lock(store.shard_of(key.hash));
                    let token = guard.token(&key, NOW).unwrap();
                    guard
                        .get(&key, NOW)
                        .map(|found| found.value().to_vec())
                        .filter(|_| token.is_some())
                };
                for look in 0..3 {
                    let found = find();
                    if found.as_deref() != Some(&name[..]) {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{state:?}: turn {turn}, look {look}: {found:?}");
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// A flush that is due is done once, and nobody who comes after its moment is served before.
#[test]
fn what_is_written_after_a_due_flush_stays() {
    const TURNS: u64 = 60_000;
    let Quiet { store, .. } = Quiet::new(4, Policy::default());
    // Spinning, so that both come at nearly the same time. The other one is on its way for a bit longer in every turn.
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = |count: &AtomicU64, turn: u64| {
        while count.load(Ordering::Acquire) < turn {
            // Both may have one core.
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=TURNS {
                until(&begun, turn);
                (0..turn % 64).for_each(|_| std::hint::spin_loop());
                store.flush_if_due(NOW);
                ended.store(turn, Ordering::Release);
            }
        });
        let mut lost = 0;
        for turn in 1..=TURNS {
            store.flush_at(NOW);
            begun.store(turn, Ordering::Release);
            let name = [turn as u8];
            let key = store.key(0, &name);
            store.flush_if_due(NOW);
            store.put(&key, b"value", Attributes::default(), NOW).unwrap();
            until(&ended, turn);
            lost += u64::from(store.lock(store.shard_of(key.hash)).peek(&key, NOW).is_none());
        }
        assert_eq!(lost, 0, "of {TURNS}");
    });
}
