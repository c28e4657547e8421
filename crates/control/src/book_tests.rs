//! What a round costs, and when a plan is made.

use std::sync::Arc;

use tidemark_types::{Clock as _, DataPlane as _, GIB, ManualClock, Permissions, SecretHash};

use super::*;
use crate::fake::FakeDataPlane;
use crate::settings::TenantSettings;
use crate::state::StoredSecret;

struct Scene {
    clock: Arc<ManualClock>,
    data_plane: FakeDataPlane,
    book: Book,
}

impl Scene {
    fn new(tenants: u32) -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(1_000_000)));
        let mut scene = Self {
            data_plane: FakeDataPlane::new(Arc::clone(&clock) as _),
            clock,
            book: Book::new(GIB, 2, (0..tenants).map(record).collect()),
        };
        assert!(scene.publish().is_some());
        scene
    }

    /// How many tenants the plan names; `None` without one.
    fn publish(&mut self) -> Option<usize> {
        let plan = self.book.plan(self.clock.now())?;
        self.data_plane.apply(&plan);
        Some(plan.tenants.len())
    }

    fn round(&mut self) -> Option<usize> {
        self.clock.advance(Duration::from_secs(1));
        self.data_plane.write();
        let snapshot = self.data_plane.snapshot();
        self.book.observe(&snapshot, self.clock.now());
        self.publish()
    }
}

fn record(number: u32) -> TenantRecord {
    let secret = StoredSecret {
        hash: SecretHash([7; 32]),
        permissions: Permissions::ALL,
        created_at: UnixMs(0),
    };
    TenantRecord {
        id: TenantId(number),
        name: format!("t{number}").parse().unwrap(),
        version: 1,
        settings: TenantSettings::default(),
        secrets: vec![secret],
        created_at: UnixMs(0),
    }
}

#[test]
fn ten_thousand_idle_tenants_cost_a_round_nothing() {
    let mut scene = Scene::new(10_000);
    for _ in 0..5 {
        assert_eq!(scene.round(), None);
        assert_eq!(scene.book.holder_count(), 0);
    }
    // One of them at work: a round looks at that one only, also after it has settled.
    scene.data_plane.set_demand("t77", 4 * GIB);
    assert_eq!(scene.round(), Some(1));
    assert_eq!(scene.book.holder_count(), 1);
    for _ in 0..3 {
        assert_eq!(scene.round(), None);
    }
}

#[test]
fn an_emptied_tenant_is_idle_after_a_while_and_may_come_back() {
    let mut scene = Scene::new(3);
    for _ in 0..2 {
        scene.data_plane.set_demand("t1", 64 * MIB);
        assert_eq!(scene.round(), Some(1));
        assert_eq!(scene.data_plane.tenant("t1").unwrap().0.state, TenantState::Active);
        scene.round();
        scene.data_plane.set_demand("t1", 0);
        assert_eq!(scene.round(), None, "it keeps its grant for the next write");
        let plans: Vec<_> = (0..4).filter_map(|_| scene.round()).collect();
        assert_eq!(plans, [1]);
        let (plan, usage_bytes) = scene.data_plane.tenant("t1").unwrap();
        assert_eq!((plan.state, plan.grant_bytes, usage_bytes), (TenantState::Idle, 0, 0));
        assert_eq!((scene.book.holder_count(), scene.book.granted_bytes()), (0, 0));
    }
}

#[test]
fn a_first_grant_that_was_not_used_comes_back() {
    let mut scene = Scene::new(1);
    scene.data_plane.set_demand("t0", MIB);
    scene.data_plane.write();
    scene.data_plane.set_demand("t0", 0);
    assert_eq!(scene.data_plane.pool_and_granted_bytes().1, 20 * MIB);
    for _ in 0..4 {
        scene.round();
    }
    assert_eq!(scene.data_plane.pool_and_granted_bytes().1, 0);
}

#[test]
fn a_quiet_second_costs_no_headroom() {
    let mut scene = Scene::new(2);
    let grant = |scene: &Scene| scene.data_plane.tenant("t0").unwrap().0.grant_bytes;
    scene.data_plane.set_demand("t0", 100 * MIB);
    scene.data_plane.set_demand("t1", 100 * MIB);
    scene.round();
    scene.round();
    // One goes on growing; the other is quiet for a second, and only later does it give its headroom away.
    let mut grants = Vec::new();
    for second in 1..=4 {
        scene.data_plane.set_demand("t1", (100 + 50 * second) * MIB);
        scene.round();
        grants.push(grant(&scene) / MIB);
    }
    assert!(grants[0] > 400, "{grants:?}");
    assert!(grants[3] < 110, "{grants:?}");
}

#[test]
fn a_plan_names_only_what_changed_and_says_all_of_it() {
    let mut scene = Scene::new(5);
    let mut changed = record(3);
    changed.settings.cap_bytes = Some(8 * MIB);
    changed.settings.policy = Some(tidemark_types::Policy::Fifo);
    scene.book.update(changed);
    assert_eq!(scene.publish(), Some(1));
    let plan = scene.data_plane.tenant("t3").unwrap().0;
    assert_eq!((plan.version, plan.cap_bytes), (2, Some(8 * MIB)));
    assert_eq!(plan.policy, tidemark_types::Policy::Fifo);
    assert_eq!(plan.shards, 8, "shards are fixed when the tenant is made");
    assert_eq!((plan.secrets.len(), plan.open), (1, false));
    assert_eq!(scene.publish(), None);
}

#[test]
fn first_grants_stay_within_the_cap() {
    for (cap_bytes, pool_bytes, first_grant_bytes) in [
        (None, GIB, 20 * MIB),
        (Some(MIB), GIB, MIB),
        (Some(30 * MIB), GIB, 20 * MIB),
    ] {
        let mut tenant = record(0);
        tenant.settings.cap_bytes = cap_bytes;
        let plan = Book::new(pool_bytes, 2, vec![tenant]).plan(UnixMs(0)).unwrap();
        assert_eq!(
            plan.tenants[0].first_grant_bytes, first_grant_bytes,
            "{cap_bytes:?} {pool_bytes}"
        );
    }
}

#[test]
fn a_removed_tenant_leaves_when_its_memory_is_back() {
    let mut scene = Scene::new(2);
    scene.data_plane.set_demand("t1", GIB);
    scene.round();
    scene.data_plane.withhold_removed(true);
    scene.book.start_removing(TenantId(1));
    assert_eq!(scene.publish(), Some(1));
    scene.round();
    assert!(scene.book.find("t1").unwrap().is_removing);
    scene.data_plane.withhold_removed(false);
    scene.round();
    assert!(scene.book.find("t1").is_none());
    assert_eq!((scene.book.len(), scene.book.granted_bytes()), (1, 0));
}

#[test]
fn the_pool_alone_makes_a_plan() {
    let mut scene = Scene::new(1);
    scene.book.set_pool_bytes(GIB);
    assert_eq!(scene.publish(), None);
    scene.book.set_pool_bytes(2 * GIB);
    assert_eq!(scene.publish(), Some(0));
    assert_eq!(scene.data_plane.pool_and_granted_bytes(), (2 * GIB, 0));
}
