//! Ten thousand random schedules of tenants that come, go, change and fill: the promises hold after every step.

use std::sync::Arc;

use proptest::prelude::*;
use tidemark_plan::Utility;
use tidemark_types::{Clock as _, DataPlane as _, HitRatio, MIB, ManualClock};

use super::*;
use crate::fake::FakeDataPlane;
use crate::settings::{MAX_PRIORITY, TenantSettings};

/// How many tenants there may be at once.
const TENANTS: usize = 8;
/// All floors fit into the smallest pool.
const FLOOR_MAX_MIB: u64 = 7;
const POOLS_MIB: [u64; 3] = [64, 100, 256];
/// A floor is there within so many rounds of being needed.
const ROUNDS_TO_FLOOR: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Join(usize, TenantSettings),
    Leave(usize),
    Set(usize, TenantSettings),
    Fill(usize, u64),
    Ask(usize, u64),
    Expire(usize),
    FallSilent(usize),
    Resize(u64),
    Pass(u64),
}

fn any_settings() -> impl Strategy<Value = TenantSettings> {
    let goal = prop::option::of((0.1_f64..0.99).prop_map(|ratio| HitRatio::new(ratio).unwrap()));
    let priority = prop::option::of(0..=MAX_PRIORITY);
    let utility = prop::option::of(prop::sample::select(&Utility::ALL[..]));
    let (floor, cap) = (prop::option::of(0..=FLOOR_MAX_MIB), prop::option::of(8_u64..300));
    (goal, priority, utility, floor, cap).prop_map(|(hit_ratio, priority, utility, floor, cap)| TenantSettings {
        hit_ratio,
        priority,
        utility,
        floor_bytes: floor.map(|mib| mib * MIB),
        cap_bytes: cap.map(|mib| mib * MIB),
        ..TenantSettings::default()
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let tenant = 0..TENANTS;
    prop_oneof![
        3 => (tenant.clone(), any_settings()).prop_map(|(tenant, settings)| Step::Join(tenant, settings)),
        1 => tenant.clone().prop_map(Step::Leave),
        2 => (tenant.clone(), any_settings()).prop_map(|(tenant, settings)| Step::Set(tenant, settings)),
        5 => (tenant.clone(), 0_u64..300).prop_map(|(tenant, mib)| Step::Fill(tenant, mib * MIB)),
        3 => (tenant.clone(), 1_u64..300).prop_map(|(tenant, mib)| Step::Ask(tenant, mib * MIB)),
        1 => tenant.clone().prop_map(Step::Expire),
        1 => tenant.prop_map(Step::FallSilent),
        1 => prop::sample::select(&POOLS_MIB[..]).prop_map(|mib| Step::Resize(mib * MIB)),
        1 => (1_u64..400).prop_map(Step::Pass),
    ]
}

/// A tenant that is there.
struct Present {
    id: TenantId,
    name: String,
    /// Rounds for which it has wanted at least its floor, with the same settings.
    rounds: usize,
    wants_bytes: u64,
}

struct Scene {
    clock: Arc<ManualClock>,
    data_plane: FakeDataPlane,
    book: Book,
    present: [Option<Present>; TENANTS],
    joined: u32,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(1_000_000)));
        Self {
            data_plane: FakeDataPlane::new(Arc::clone(&clock) as _),
            clock,
            book: Book::new(POOLS_MIB[0] * MIB, 2, Vec::new()),
            present: Default::default(),
            joined: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Join(slot, settings) => self.join(*slot, *settings),
            Step::Leave(slot) => {
                if let Some(gone) = self.present[*slot].take() {
                    self.book.start_removing(gone.id);
                }
            }
            Step::Set(slot, settings) => {
                if let Some(present) = &mut self.present[*slot] {
                    let mut record = self.book.find(&present.name).unwrap().record.clone();
                    record.settings = *settings;
                    self.book.update(record);
                    present.rounds = 0;
                }
            }
            Step::Fill(slot, bytes) => self.demand(*slot, *bytes, |plane, name| plane.set_demand(name, *bytes)),
            // Curves, and with them sizes for goals and worths of the surplus.
            Step::Ask(slot, bytes) => {
                if let Some(present) = &self.present[*slot] {
                    self.data_plane.ask(&present.name, *bytes);
                }
            }
            Step::Expire(slot) => self.demand(*slot, 0, FakeDataPlane::expire),
            Step::FallSilent(slot) => self.demand(*slot, 0, FakeDataPlane::fall_silent),
            Step::Resize(bytes) => self.book.set_pool_bytes(*bytes),
            Step::Pass(seconds) => {
                self.clock.advance(Duration::from_secs(*seconds));
                // An idle tenant lends its floor.
                for present in self.present.iter_mut().flatten() {
                    present.wants_bytes = 0;
                }
            }
        }
    }

    fn join(&mut self, slot: usize, settings: TenantSettings) {
        if self.present[slot].is_some() {
            return;
        }
        self.joined += 1;
        let (id, name) = (TenantId(self.joined), format!("t{}", self.joined));
        self.book.insert(TenantRecord {
            id,
            name: name.parse().unwrap(),
            version: 1,
            settings,
            secrets: Vec::new(),
            created_at: UnixMs(0),
            remembered_grant_bytes: None,
        });
        self.present[slot] = Some(Present {
            id,
            name,
            rounds: 0,
            wants_bytes: 0,
        });
    }

    fn demand(&mut self, slot: usize, wants_bytes: u64, change: impl Fn(&FakeDataPlane, &str)) {
        if let Some(present) = &mut self.present[slot] {
            change(&self.data_plane, &present.name);
            (present.rounds, present.wants_bytes) = (0, wants_bytes);
        }
    }

    fn round(&mut self) {
        self.clock.advance(Duration::from_secs(1));
        self.data_plane.write();
        let snapshot = self.data_plane.snapshot();
        self.book.observe(&snapshot, self.clock.now(), &mut || ());
        if let Some(plan) = self.book.plan(self.clock.now(), &mut || ()) {
            self.data_plane.apply(&plan);
        }
        for present in self.present.iter_mut().flatten() {
            present.rounds += 1;
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let available_bytes = grantable_bytes(self.book.pool_bytes());
        let granted_bytes = self.book.granted_bytes();
        prop_assert!(granted_bytes <= available_bytes, "{granted_bytes} of {available_bytes}");
        for present in self.present.iter().flatten() {
            let tenant = self.book.find(&present.name).unwrap();
            let settings = tenant.record.settings;
            let cap_bytes = settings.cap_bytes.unwrap_or(u64::MAX);
            prop_assert!(tenant.grant_bytes <= cap_bytes, "{}", present.name);
            prop_assert!(tenant.lent_bytes <= tenant.grant_bytes, "{}", present.name);
            // One with a goal gets no more than that needs, which the floor is not to change.
            let floor_bytes = settings
                .floor_bytes
                .unwrap_or(0)
                .min(cap_bytes)
                .min(present.wants_bytes);
            let is_due = present.rounds > ROUNDS_TO_FLOOR && !settings.has_goal();
            prop_assert!(
                !is_due || tenant.grant_bytes >= floor_bytes,
                "{} has {} of its floor of {floor_bytes}",
                present.name,
                tenant.grant_bytes
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn promises_hold_after_every_step(steps in prop::collection::vec(any_step(), 1..40)) {
        let mut scene = Scene::new();
        for step in &steps {
            scene.take(step);
            scene.round();
            scene.check()?;
        }
        // All remaining tenants leave, and nothing is left behind.
        for slot in 0..TENANTS {
            scene.take(&Step::Leave(slot));
        }
        for _ in 0..3 {
            scene.round();
        }
        prop_assert_eq!((scene.book.granted_bytes(), scene.book.holder_count(), scene.book.len()), (0, 0, 0));
    }
}
