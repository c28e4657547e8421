//! The cost of a round, and the time of a plan.

use std::sync::Arc;

use tidemark_types::{
    Clock as _, DataPlane as _, GIB, HitRatio, MIB, ManualClock, Permissions, Policy, PolicyChoice, SamplingThreshold,
    SecretHash, Staleness, TenantLimits, Weight,
};
use tidemark_types::{TenantPlan, TenantState};

use super::*;
use crate::fake::FakeDataPlane;
use crate::goal::GoalReport;
use crate::secret::SecretName;
use crate::settings::{DEFAULT_IDLE_AFTER, FlashSettings, TenantSettings};
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
        let plan = self.book.plan(self.clock.now(), &mut || ())?;
        self.data_plane.apply(&plan);
        Some(plan.tenants.len())
    }

    fn plan_of(&self, number: u32) -> (TenantPlan, u64) {
        self.data_plane.tenant(&format!("t{number}")).unwrap()
    }

    /// Reasons and sizes in MiB of a tenant's moves, oldest first.
    fn moves(&self, number: u32) -> Vec<(Reason, u64, u64)> {
        let tenant = self.book.find(&format!("t{number}")).unwrap();
        let mut moves: Vec<_> = tenant
            .moves
            .newest_first()
            .map(|change| (change.reason, change.from_bytes / MIB, change.to_bytes / MIB))
            .collect();
        moves.reverse();
        moves
    }

    fn seconds(&mut self, count: u64) {
        for _ in 0..count {
            self.round();
        }
    }

    /// Time passes in which nothing happens.
    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.round();
    }

    fn change(&mut self, number: u32, change: impl FnOnce(&mut TenantRecord)) {
        let mut changed = self.book.find(&format!("t{number}")).unwrap().record.clone();
        change(&mut changed);
        self.book.update(changed);
        self.publish();
    }

    fn round(&mut self) -> Option<usize> {
        self.clock.advance(Duration::from_secs(1));
        self.data_plane.write();
        let snapshot = self.data_plane.snapshot();
        self.book.observe(&snapshot, self.clock.now(), &mut || ());
        self.publish()
    }
}

fn record(number: u32) -> TenantRecord {
    let secret = StoredSecret {
        name: SecretName::default(),
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
        remembered_grant_bytes: None,
    }
}

#[test]
fn a_round_leaves_room_between_tenants() {
    const TENANTS: u32 = 8;
    let mut scene = Scene::new(TENANTS);
    for number in 0..TENANTS {
        scene.data_plane.set_demand(&format!("t{number}"), 100 * MIB);
    }
    scene.data_plane.write();
    let snapshot = scene.data_plane.snapshot();
    let (mut observed, mut planned) = (0, 0);
    scene.book.observe(&snapshot, scene.clock.now(), &mut || observed += 1);
    scene.book.plan(scene.clock.now(), &mut || planned += 1);
    assert!(observed >= TENANTS && planned >= TENANTS, "{observed} {planned}");
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
fn who_was_only_made_smaller_does_not_want_more() {
    let mut scene = Scene::new(1);
    scene.data_plane.set_demand("t0", 300 * MIB);
    scene.seconds(2);
    scene.data_plane.fall_silent("t0");
    scene.pass(Duration::from_secs(5));
    scene.change(0, |record| record.settings.cap_bytes = Some(100 * MIB));
    scene.seconds(1);
    assert_eq!(scene.plan_of(0).1, 100 * MIB, "it evicted");
    scene.change(0, |record| record.settings.cap_bytes = None);
    scene.seconds(1);
    let granted_mib = scene.plan_of(0).0.grant_bytes / MIB;
    assert!(granted_mib < 110, "{granted_mib}");
}

#[test]
fn a_plan_names_only_what_changed_and_says_all_of_it() {
    let mut scene = Scene::new(5);
    let mut changed = record(3);
    changed.settings.cap_bytes = Some(8 * MIB);
    changed.settings.policy = Some(PolicyChoice::Fixed(Policy::Fifo));
    scene.book.update(changed);
    assert_eq!(scene.publish(), Some(1));
    let plan = scene.data_plane.tenant("t3").unwrap().0;
    assert_eq!((plan.version, plan.cap_bytes), (2, Some(8 * MIB)));
    assert_eq!(plan.policy, Policy::Fifo);
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
        let plan = Book::new(pool_bytes, 2, vec![tenant])
            .plan(UnixMs(0), &mut || ())
            .unwrap();
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

#[test]
fn the_policy_in_force_follows_the_choice_and_nothing_else() {
    let mut scene = Scene::new(1);
    assert_eq!(scene.plan_of(0).0.policy, Policy::S3Fifo, "adaptive begins with it");
    // The findings of the control plane stay until the operator decides anew.
    scene.book.tenants.get_mut(&TenantId(0)).unwrap().policy = Policy::Clock;
    for (choice, cap_bytes, in_force) in [
        (None, Some(64 * MIB), Policy::Clock),
        (Some(PolicyChoice::Adaptive), None, Policy::Clock),
        (Some(PolicyChoice::Genie), None, Policy::Fifo),
        (Some(PolicyChoice::Fixed(Policy::Clock)), None, Policy::Clock),
        (None, None, Policy::S3Fifo),
    ] {
        scene.change(0, |record| {
            record.settings.policy = choice;
            record.settings.cap_bytes = cap_bytes;
        });
        assert_eq!(scene.plan_of(0).0.policy, in_force, "{choice:?}");
    }
}

#[test]
fn a_goal_of_a_tenant_that_is_asked_nothing_has_no_state() {
    let mut scene = Scene::new(1);
    for hit_ratio in [Some(0.9), None] {
        scene.change(0, |record| {
            record.settings.hit_ratio = hit_ratio.and_then(|ratio| HitRatio::new(ratio).ok());
        });
        let report = scene.book.find("t0").unwrap().goal(scene.clock.now());
        assert_eq!(report, GoalReport::default());
    }
}

#[test]
fn every_change_of_a_grant_has_its_reason() {
    let mut scene = Scene::new(3);
    let all_mib = grantable_bytes(GIB) / MIB;
    scene.data_plane.set_demand("t0", 4 * GIB);
    scene.seconds(2);
    assert_eq!(
        scene.moves(0),
        [(Reason::Join, 0, 20), (Reason::Surplus, 20, all_mib)],
        "what nobody else wants"
    );
    scene.change(0, |record| record.settings.cap_bytes = Some(800 * MIB));
    assert_eq!(*scene.moves(0).last().unwrap(), (Reason::Cap, all_mib, 800));
    scene.change(0, |record| record.settings.cap_bytes = None);
    assert_eq!(*scene.moves(0).last().unwrap(), (Reason::Operator, 800, all_mib));
    scene.book.set_pool_bytes(512 * MIB);
    scene.publish();
    assert_eq!(*scene.moves(0).last().unwrap(), (Reason::Cap, all_mib, 504));
    scene.book.set_pool_bytes(GIB);
    scene.publish();
    assert_eq!(*scene.moves(0).last().unwrap(), (Reason::Operator, 504, all_mib));

    scene.change(1, |record| record.settings.floor_bytes = Some(300 * MIB));
    scene.data_plane.set_demand("t1", 4 * GIB);
    scene.seconds(1);
    let (_, from_mib, to_mib) = *scene.moves(0).last().unwrap();
    assert_eq!((scene.moves(0).last().unwrap().0, from_mib), (Reason::Surplus, all_mib));
    assert!(to_mib <= all_mib - 300, "{to_mib}");
    let moves = scene.moves(1);
    assert_eq!(moves[0], (Reason::Join, 0, 16), "the reserve");
    assert_eq!((moves[1].0, moves[1].1), (Reason::Floor, 16));

    scene.data_plane.set_demand("t1", 0);
    scene.seconds(4);
    let (reason, _, to_mib) = *scene.moves(1).last().unwrap();
    assert_eq!((reason, to_mib), (Reason::Idle, 0));
    scene.book.start_removing(TenantId(0));
    let (reason, _, to_mib) = *scene.moves(0).last().unwrap();
    assert_eq!((reason, to_mib), (Reason::Leave, 0));
    assert_eq!(scene.moves(2), [], "nobody ever used it");
}

#[test]
fn moves_are_told_once_and_with_what_came_of_them() {
    let mut scene = Scene::new(1);
    scene.data_plane.set_demand("t0", 4 * GIB);
    scene.seconds(1);
    let told = |scene: &mut Scene| {
        let mut told = Vec::new();
        scene
            .book
            .tell_moves(|name, change| told.push((name.to_string(), change.reason)));
        told
    };
    assert_eq!(
        told(&mut scene),
        [("t0".into(), Reason::Join), ("t0".into(), Reason::Surplus)]
    );
    assert_eq!(told(&mut scene), []);
    scene.data_plane.count_gets("t0", 4000, 3000);
    scene.pass(Duration::from_secs(10));
    let tenant = scene.book.find("t0").unwrap();
    assert_eq!(
        tenant.moves.newest_first().next().unwrap().measured_hit_ratio,
        Some(0.75)
    );
    let prediction = Some(Prediction::plainly(0.5));
    scene
        .book
        .regrant(TenantId(0), Given::freely(64 * MIB, Reason::Goal), prediction);
    let newest = *scene.book.find("t0").unwrap().moves.newest_first().next().unwrap();
    assert_eq!(
        (newest.reason, newest.predicted_hit_ratio, newest.to_bytes),
        (Reason::Goal, Some(0.5), 64 * MIB)
    );
}

#[test]
fn idle_tenants_make_room_the_longest_idle_first() {
    let mut scene = Scene::new(4);
    for (number, demand_mib) in [(1, 300), (2, 300), (3, 300)] {
        scene.data_plane.set_demand(&format!("t{number}"), demand_mib * MIB);
        scene.seconds(3);
        scene.data_plane.fall_silent(&format!("t{number}"));
    }
    scene.pass(DEFAULT_IDLE_AFTER);
    // Nobody wants their memory: it stays theirs.
    assert_eq!([1, 2, 3].map(|number| scene.plan_of(number).1), [300 * MIB; 3]);

    scene.data_plane.count_gets("t1", 10, 10);
    scene.seconds(1);
    scene.data_plane.set_demand("t0", 4 * GIB);
    let mut order = Vec::new();
    for _ in 0..20 {
        scene.round();
        for number in [1, 2, 3] {
            let (plan, usage_bytes) = scene.plan_of(number);
            if usage_bytes == 0 && !order.contains(&number) {
                assert_eq!((plan.grant_bytes, plan.state), (0, TenantState::Reclaimed));
                order.push(number);
            }
            // The next one gives only when the one before has nothing left.
            assert!(
                order.contains(&2) || number == 2 || usage_bytes == 300 * MIB,
                "{number}"
            );
        }
    }
    assert_eq!(order, [2, 3], "the first is not idle");
    assert!(scene.plan_of(1).1 >= 250 * MIB, "{}", scene.plan_of(1).1);
    assert!(scene.plan_of(0).1 >= 600 * MIB);
    assert!(
        scene
            .moves(2)
            .iter()
            .skip(1)
            .all(|(reason, ..)| *reason != Reason::Join)
    );
    let (reason, _, to_mib) = *scene.moves(2).last().unwrap();
    assert_eq!((reason, to_mib), (Reason::Idle, 0));
    assert_eq!(scene.book.holder_count(), 2, "a round does not look at them any more");
}

#[test]
fn a_floor_of_an_idle_tenant_is_lent_and_back_when_it_returns() {
    let mut scene = Scene::new(2);
    scene.change(1, |record| record.settings.floor_bytes = Some(400 * MIB));
    scene.data_plane.set_demand("t1", 400 * MIB);
    scene.seconds(2);
    scene.data_plane.fall_silent("t1");
    scene.data_plane.set_demand("t0", 4 * GIB);
    scene.seconds(20);
    assert_eq!(scene.plan_of(1).1, 400 * MIB, "it is not idle yet");
    scene.clock.advance(DEFAULT_IDLE_AFTER);
    scene.seconds(10);
    assert_eq!(scene.plan_of(1).1, 0);
    scene.data_plane.set_demand("t1", 400 * MIB);
    scene.seconds(2);
    assert_eq!(scene.plan_of(1).1, 400 * MIB);
}

#[test]
fn who_is_promised_nothing_any_more_is_owed_nothing() {
    let mut scene = Scene::new(2);
    scene.change(1, |record| record.settings.floor_bytes = Some(400 * MIB));
    scene.data_plane.set_demand("t1", 100 * MIB);
    scene.data_plane.set_demand("t0", 4 * GIB);
    scene.seconds(30);
    let owed = |scene: &Scene| scene.book.find("t1").unwrap().credit.bytes();
    assert!(owed(&scene) > 100 * MIB, "{}", owed(&scene));
    scene.change(1, |record| record.settings.floor_bytes = Some(300 * MIB));
    assert!(owed(&scene) > 100 * MIB, "it lent that");
    scene.change(1, |record| record.settings.floor_bytes = None);
    assert_eq!(owed(&scene), 0);
}

#[test]
fn a_longer_round_moves_as_much_in_a_second() {
    for period in [1, 3] {
        let mut scene = Scene::new(2);
        scene.book.set_round_period(Duration::from_secs(period));
        scene.data_plane.set_demand("t0", 4 * GIB);
        scene.seconds(10);
        scene.data_plane.set_demand("t1", 4 * GIB);
        scene.seconds(5);
        let before = scene.plan_of(1).0.grant_bytes;
        scene.clock.advance(Duration::from_secs(2));
        scene.round();
        let moved = scene.plan_of(1).0.grant_bytes - before;
        // A fiftieth of the pool a second.
        let most = GIB / 50 * period;
        assert!(moved <= most && moved * 10 > most * 9, "{period} s: {moved}");
    }
}

#[test]
fn what_a_tenant_had_is_remembered_and_given_back() {
    for (what, hit_ratio, before_mib, demand_mib, remembered_mib) in [
        ("what it held", None, None, 100, Some(100)),
        ("no more than any first grant", None, None, 20, None),
        ("what its goal asked for", Some(0.9), Some(400), 30, Some(400)),
    ] {
        let mut scene = Scene::new(2);
        scene.change(0, |record| {
            record.settings.cap_bytes = Some(400 * MIB);
            record.settings.hit_ratio = hit_ratio.and_then(|ratio| HitRatio::new(ratio).ok());
            record.remembered_grant_bytes = before_mib.map(|mib: u64| mib * MIB);
        });
        scene.data_plane.set_demand("t0", demand_mib * MIB);
        scene.seconds(2);
        assert_eq!(scene.plan_of(0).0.grant_bytes, 400 * MIB, "nobody else wants it");
        scene.data_plane.count_gets("t0", 10, 10);
        scene.seconds(1);
        scene.data_plane.expire("t0");
        scene.seconds(4);
        let (plan, _) = scene.plan_of(0);
        let remembered = remembered_mib.map(|mib: u64| mib * MIB);
        assert_eq!((plan.state, plan.grant_bytes), (TenantState::Idle, 0), "{what}");
        assert_eq!(plan.first_grant_bytes, remembered.unwrap_or(20 * MIB), "{what}");
        let to_write = scene.book.take_to_remember();
        let is_new = remembered_mib != before_mib;
        assert_eq!(
            to_write.first().map(|(_, bytes)| *bytes),
            is_new.then_some(remembered),
            "{what}"
        );
        assert_eq!(scene.book.take_to_remember(), [], "{what}");

        // Back with its first write, without a round.
        scene.data_plane.set_demand("t0", GIB);
        scene.data_plane.write();
        assert_eq!(scene.plan_of(0).1, plan.first_grant_bytes, "{what}");
        // Smaller the next time: that is remembered then.
        scene.data_plane.set_demand("t0", MIB);
        scene.seconds(1);
        scene.data_plane.expire("t0");
        scene.seconds(4);
        let changed: Vec<_> = scene.book.take_to_remember();
        let expected = if hit_ratio.is_none() && remembered.is_some() {
            vec![(TenantId(0), None)]
        } else {
            vec![]
        };
        assert_eq!(changed, expected, "{what}");
    }
}

#[test]
fn the_remembered_size_stays_within_the_cap_and_what_is_free() {
    let mut scene = Scene::new(2);
    scene.change(0, |record| record.remembered_grant_bytes = Some(900 * MIB));
    assert_eq!(scene.plan_of(0).0.first_grant_bytes, 900 * MIB);
    scene.change(0, |record| record.settings.cap_bytes = Some(64 * MIB));
    assert_eq!(scene.plan_of(0).0.first_grant_bytes, 64 * MIB);
    scene.change(0, |record| record.settings.cap_bytes = None);
    scene.data_plane.set_demand("t1", 4 * GIB);
    scene.seconds(2);
    scene.data_plane.set_demand("t0", 4 * GIB);
    scene.data_plane.write();
    assert_eq!(scene.plan_of(0).0.grant_bytes, 16 * MIB, "the reserve");
}

#[test]
fn how_tenants_come_and_go_can_be_changed() {
    let mut scene = Scene::new(3);
    scene.book.set_idling(Idling {
        first_grant_bytes: 5 * MIB,
        idle_after: Duration::from_secs(10),
    });
    assert_eq!(scene.publish(), Some(3));
    assert_eq!(scene.plan_of(2).0.first_grant_bytes, 5 * MIB);
    scene.data_plane.set_demand("t0", 600 * MIB);
    scene.seconds(2);
    scene.data_plane.fall_silent("t0");
    scene.data_plane.set_demand("t1", 4 * GIB);
    scene.seconds(8);
    assert!(scene.plan_of(0).1 >= 500 * MIB, "an equal share");
    scene.seconds(10);
    assert_eq!(scene.plan_of(0).1, 0);
}

#[test]
fn a_tenant_that_comes_back_while_it_is_emptied_stays() {
    let mut scene = Scene::new(2);
    scene.data_plane.set_demand("t0", 50 * MIB);
    scene.seconds(2);
    scene.data_plane.fall_silent("t0");
    scene.clock.advance(DEFAULT_IDLE_AFTER);
    scene.data_plane.set_demand("t1", 4 * GIB);
    while scene.plan_of(0).1 > 0 {
        assert!(scene.round().is_some());
    }
    scene.data_plane.set_demand("t0", 50 * MIB);
    scene.data_plane.write();
    // A plan for another reason takes nothing again.
    scene.change(0, |record| record.settings.cap_bytes = Some(300 * MIB));
    assert!(scene.plan_of(0).1 > 0);
    scene.seconds(10);
    assert_eq!(scene.plan_of(0).1, 50 * MIB);
    assert_eq!(scene.plan_of(0).0.state, TenantState::Active);
}

#[test]
fn estimators_are_of_tenants_that_hold_memory() {
    let mut scene = Scene::new(3);
    let estimated = |scene: &Scene| scene.book.estimated.iter().map(|id| id.0).collect::<Vec<_>>();
    scene.data_plane.set_demand("t0", 4 * MIB);
    // Asked something, and holds nothing.
    scene.data_plane.set_demand("t1", 0);
    scene.seconds(2);
    assert_eq!(estimated(&scene), [0]);
    scene.data_plane.set_demand("t0", 0);
    scene.seconds(4);
    assert_eq!(estimated(&scene), [0_u32; 0]);
    scene.data_plane.count_gets("t0", 5, 0);
    scene.seconds(2);
    assert_eq!(estimated(&scene), [0_u32; 0], "it was only asked");
    scene.data_plane.set_demand("t0", 4 * MIB);
    scene.seconds(2);
    assert_eq!(estimated(&scene), [0], "it came back");
}

#[test]
fn sampling_that_ended_by_itself_is_asked_for_again() {
    let mut scene = Scene::new(1);
    scene.data_plane.set_demand("t0", 4 * GIB);
    scene.seconds(5);
    assert_eq!(scene.round(), None);
    scene.data_plane.write();
    let mut snapshot = scene.data_plane.snapshot();
    snapshot.tenants[0].samples.threshold = SamplingThreshold::OFF;
    scene.book.observe(&snapshot, scene.clock.now(), &mut || ());
    assert_eq!(scene.publish(), Some(1));
    assert_eq!(scene.plan_of(0).0.sampling_threshold, SamplingThreshold::ALL);
}

#[test]
fn a_smaller_pool_has_room_for_fewer_estimators() {
    let mut scene = Scene::new(200);
    scene.change(150, |record| record.settings.hit_ratio = HitRatio::new(0.9).ok());
    (0..200).for_each(|number| scene.data_plane.set_demand(&format!("t{number}"), MIB));
    scene.seconds(3);
    assert!(scene.book.estimated.len() > 128, "{}", scene.book.estimated.len());
    scene.book.set_pool_bytes(256 * MIB);
    scene.seconds(2);
    let left = scene.book.estimated.len();
    assert!((1..=36).contains(&left), "{left}");
    assert!(scene.book.estimated.contains(&TenantId(150)), "it has a goal");
}

#[test]
fn limits_and_weight_are_in_the_next_plan() {
    let mut scene = Scene::new(2);
    let told = |scene: &Scene| {
        let (plan, _) = scene.plan_of(0);
        (plan.limits, plan.weight.get())
    };
    assert_eq!(told(&scene), (TenantLimits::default(), 1));
    let limits = TenantLimits {
        ops_per_second: Some(1),
        bytes_per_second: Some(2048),
        connections: Some(3),
    };
    scene.change(0, |tenant| {
        tenant.settings.limits = limits;
        tenant.settings.weight = Weight::new(7);
    });
    assert_eq!(told(&scene), (limits, 7));
    assert_eq!(scene.plan_of(1).0.limits, TenantLimits::default());
    scene.change(0, |tenant| tenant.settings = TenantSettings::default());
    assert_eq!(told(&scene), (TenantLimits::default(), 1));
}

#[test]
fn flash_is_shared_among_those_that_use_it_and_follows_settings() {
    let mut scene = Scene::new(4);
    scene.book.set_flash_bytes(100 * MIB);
    let grants = |scene: &Scene| {
        let grant = |number| scene.plan_of(number).0.flash.grant_bytes.map(|bytes| bytes / MIB);
        (0..4).map(grant).collect::<Vec<_>>()
    };
    assert_eq!(grants(&scene), [None; 4], "nobody has said what it has");
    for number in 0..2 {
        scene.data_plane.set_demand(&format!("t{number}"), 4 * MIB);
    }
    let holds = |usage_bytes| FlashUse {
        usage_bytes,
        ..FlashUse::default()
    };
    scene.data_plane.set_flash("t2", holds(7 * MIB + 1));
    scene.seconds(2);
    // One without memory keeps what it has, and who has nothing needs none.
    assert_eq!(grants(&scene), [Some(46), Some(46), Some(8), None]);
    scene.change(0, |tenant| {
        tenant.settings.flash = FlashSettings {
            floor_bytes: Some(80 * MIB),
            cap_bytes: None,
            write_bytes_per_second: Some(5 * MIB),
            staleness: Some(Staleness::None),
        }
    });
    let plan = scene.plan_of(0).0.flash;
    assert_eq!(
        (plan.write_bytes_per_second, plan.staleness),
        (Some(5 * MIB), Staleness::None)
    );
    assert_eq!(grants(&scene), [Some(80), Some(12), Some(8), None]);
    scene.change(0, |tenant| {
        tenant.settings.flash.floor_bytes = None;
        tenant.settings.flash.cap_bytes = Some(4 * MIB);
    });
    assert_eq!(grants(&scene), [Some(4), Some(88), Some(8), None]);
    scene.data_plane.set_flash("t2", holds(0));
    scene.seconds(1);
    assert_eq!(
        grants(&scene),
        [Some(4), Some(96), Some(0), None],
        "it has nothing any more"
    );
    assert_eq!(scene.round(), None, "nothing changes any more");
}
