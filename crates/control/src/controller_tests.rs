//! Commands and rounds in virtual time, with a real state file and a fake data plane.

use std::future::Future as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tidemark_types::{GIB, MIB, ManualClock, Policy, PolicyChoice, TenantState};

use super::views::curve_view;
use super::*;
use crate::answer::{Answer, answer};
use crate::fake::FakeDataPlane;
use crate::goal::{CurveReport, GoalReport, state_name};
use crate::grant::grantable_bytes;
use crate::secret::NewSecret;
use crate::settings::DEFAULT_IDLE_AFTER;
use crate::state::StateFile;
use crate::view::{CurvePointView, CurveView, MoveView};
use tidemark_types::HitRatio;

struct Scene {
    clock: Arc<ManualClock>,
    data_plane: Arc<FakeDataPlane>,
    controller: Controller,
}

const POOL: u64 = GIB;

impl Scene {
    fn new(folder: &Path) -> Self {
        Self::with_pool(folder, POOL)
    }

    fn with_pool(folder: &Path, pool_bytes: u64) -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(1_700_000_000_000)));
        let data_plane = Arc::new(FakeDataPlane::new(Arc::clone(&clock) as _));
        let state = StateFile::open(folder, clock.now()).unwrap();
        let config = ControlConfig::new(pool_bytes, 16 * GIB, 2);
        let shared = Arc::new(Shared::new(clock.now()));
        let controller = Controller::new(
            Box::new(state),
            Arc::clone(&data_plane) as _,
            Arc::new(SteadyClock::new(Arc::clone(&clock) as _)),
            config,
            shared,
        )
        .unwrap();
        Self {
            clock,
            data_plane,
            controller,
        }
    }

    fn create(&mut self, name: &str, patch: SettingsPatch) {
        self.controller.create_tenant(name, patch).unwrap();
    }

    /// A round without time passing, as when the data plane wakes.
    fn wake(&mut self) {
        self.data_plane.write();
        self.controller.round();
        let (pool_bytes, granted_bytes) = self.data_plane.pool_and_granted_bytes();
        assert!(granted_bytes <= pool_bytes, "{granted_bytes} of {pool_bytes} granted");
    }

    fn seconds(&mut self, count: u32) {
        for _ in 0..count {
            self.clock.advance(Duration::from_secs(1));
            self.wake();
        }
    }

    fn grant(&self, name: &str) -> u64 {
        self.data_plane.tenant(name).unwrap().0.grant_bytes
    }

    fn usage(&self, name: &str) -> u64 {
        self.data_plane.tenant(name).unwrap().1
    }
}

fn cap(bytes: u64) -> SettingsPatch {
    SettingsPatch {
        cap_bytes: Change::Set(bytes),
        ..SettingsPatch::default()
    }
}

fn floor(bytes: u64) -> SettingsPatch {
    SettingsPatch {
        floor_bytes: Change::Set(bytes),
        ..SettingsPatch::default()
    }
}

fn pool(bytes: u64) -> ServerPatch {
    ServerPatch {
        pool_bytes: Change::Set(bytes),
        ..ServerPatch::default()
    }
}

fn refusal<T>(result: Result<T, ControlError>) -> (RefusalKind, Option<String>) {
    match result {
        Err(ControlError::Refused(refusal)) => (refusal.kind, refusal.field),
        Err(other) => panic!("not a refusal: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn a_new_folder_has_the_open_tenant_and_it_gets_the_whole_pool_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let plan = scene.data_plane.tenant("default").unwrap().0;
    assert!(plan.open && plan.secrets.is_empty());
    assert_eq!((plan.state, plan.grant_bytes), (TenantState::Idle, 0));

    scene.data_plane.set_demand("default", 4 * GIB);
    scene.wake();
    assert_eq!(
        scene.grant("default"),
        grantable_bytes(POOL),
        "one woken round is enough"
    );
}

#[test]
fn a_second_tenant_reaches_its_equal_share_of_a_full_pool() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", SettingsPatch::default());
    scene.data_plane.set_demand("default", 4 * GIB);
    scene.seconds(3);
    scene.data_plane.set_demand("shop", 4 * GIB);
    scene.wake();
    assert!(scene.usage("shop") >= MIB, "it begins with the reserve");
    let mut before = scene.usage("default");
    for _ in 0..40 {
        scene.seconds(1);
        let lost = before.saturating_sub(scene.usage("default"));
        assert!(lost <= POOL / 50, "{lost} bytes in one second");
        before = scene.usage("default");
    }
    let share = grantable_bytes(POOL) / 2;
    for name in ["default", "shop"] {
        assert!(
            scene.usage(name).abs_diff(share) <= share / 50,
            "{name} {}",
            scene.usage(name)
        );
    }
}

#[test]
fn a_floor_is_back_within_two_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", floor(768 * MIB));
    scene.data_plane.set_demand("default", 4 * GIB);
    scene.seconds(3);
    assert!(scene.usage("default") > 1000 * MIB, "what nobody uses is lent");
    scene.data_plane.set_demand("shop", 4 * GIB);
    scene.seconds(2);
    assert!(scene.usage("shop") >= 768 * MIB, "{}", scene.usage("shop"));
}

#[test]
fn a_cap_holds_and_a_lower_one_acts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", cap(512 * MIB));
    scene.data_plane.set_demand("shop", 4 * GIB);
    scene.seconds(3);
    assert_eq!(scene.usage("shop"), 512 * MIB);
    let view = scene.controller.set_tenant("shop", cap(64 * MIB)).unwrap();
    assert_eq!((view.grant_bytes, view.settings.cap_bytes), (64 * MIB, Some(64 * MIB)));
    assert_eq!(scene.usage("shop"), 64 * MIB, "before any round");
}

#[test]
fn the_pool_is_resized_live_and_over_restarts_until_the_configuration_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.data_plane.set_demand("default", 4 * GIB);
    scene.seconds(2);
    let view = scene.controller.set_server(pool(256 * MIB)).unwrap();
    assert_eq!(view.pool_bytes, 256 * MIB);
    assert_eq!(
        scene.data_plane.pool_and_granted_bytes(),
        (256 * MIB, grantable_bytes(256 * MIB))
    );
    scene.controller.set_server(pool(2 * GIB)).unwrap();
    scene.seconds(2);
    assert_eq!(scene.usage("default"), grantable_bytes(2 * GIB));
    drop(scene);

    for (configured_bytes, in_force_bytes) in [(POOL, 2 * GIB), (3 * GIB, 3 * GIB), (POOL, POOL)] {
        let mut scene = Scene::with_pool(folder.path(), configured_bytes);
        assert_eq!(
            scene.controller.server().pool_bytes,
            in_force_bytes,
            "configured {configured_bytes}"
        );
    }

    let mut scene = Scene::new(folder.path());
    scene.controller.set_server(pool(2 * GIB)).unwrap();
    scene.controller.configure_pool(512 * MIB).unwrap();
    assert_eq!(scene.controller.server().pool_bytes, 512 * MIB);
    drop(scene);
    assert_eq!(
        Scene::with_pool(folder.path(), 512 * MIB)
            .controller
            .server()
            .pool_bytes,
        512 * MIB
    );
}

#[test]
fn settings_and_secrets_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", cap(64 * MIB));
    let patch = SettingsPatch {
        policy: Change::Set(PolicyChoice::Fixed(Policy::Clock)),
        hit_ratio: Change::Set(HitRatio::new(0.9).unwrap()),
        ..floor(2 * MIB)
    };
    scene.controller.set_tenant("shop", patch).unwrap();
    let period = ServerPatch {
        round_period: Change::Set(Duration::from_millis(250)),
        ..ServerPatch::default()
    };
    scene.controller.set_server(period).unwrap();
    let hash = scene.data_plane.tenant("shop").unwrap().0.secrets[0].hash;
    drop(scene);

    let mut scene = Scene::new(folder.path());
    let view = scene.controller.tenant("shop").unwrap();
    assert_eq!(
        (view.settings.floor_bytes, view.settings.cap_bytes),
        (Some(2 * MIB), Some(64 * MIB))
    );
    assert_eq!((view.policy.as_str(), view.shards, view.state), ("clock", 1, "idle"));
    assert_eq!(
        (view.settings.hit_ratio.map(HitRatio::get), view.policy_in_force),
        (Some(0.9), "clock".into())
    );
    assert_eq!(view.secrets[0].permissions, "read,write,flush,admin");
    assert_eq!(view.secrets[0].created_at, "2023-11-14T22:13:20Z");
    assert_eq!(scene.data_plane.tenant("shop").unwrap().0.secrets[0].hash.0, hash.0);
    assert_eq!(scene.controller.server().round_period_us, 250_000);
}

/// A scene with a tenant `shop`, and its secrets as the data plane knows them.
fn hashes(scene: &Scene) -> Vec<[u8; 32]> {
    let shop = scene.data_plane.tenant("shop").unwrap().0;
    shop.secrets.iter().map(|secret| secret.hash.0).collect()
}

fn new_secret(name: &str, permissions: Option<Permissions>) -> NewSecret {
    NewSecret {
        name: name.parse().unwrap(),
        permissions,
        ..NewSecret::default()
    }
}

#[test]
fn a_third_secret_of_a_name_ends_none_that_may_be_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let first = scene
        .controller
        .create_tenant("shop", SettingsPatch::default())
        .unwrap();
    let add = |permissions| Rotation::Add(new_secret("default", permissions));
    let second = scene
        .controller
        .rotate("shop", add(Some(Permissions::READ)))
        .unwrap()
        .unwrap();
    assert_eq!(hashes(&scene), [first.hash().0, second.hash().0]);
    let refused = refusal(scene.controller.rotate("shop", add(None)));
    assert_eq!(refused, (RefusalKind::OverLimit, Some("force".into())));
    assert_eq!(hashes(&scene), [first.hash().0, second.hash().0], "nothing has ended");
    let forced = NewSecret {
        is_forced: true,
        ..new_secret("default", None)
    };
    let third = scene.controller.rotate("shop", Rotation::Add(forced)).unwrap().unwrap();
    assert_eq!(hashes(&scene), [second.hash().0, third.hash().0]);
    let view = scene.controller.tenant("shop").unwrap();
    let permissions: Vec<_> = view.secrets.iter().map(|secret| secret.permissions.as_str()).collect();
    assert_eq!(
        permissions,
        ["read", "read,write,flush,admin"],
        "permissions do not leak into the next secret"
    );
    let finish = || Rotation::Finish("default".parse().unwrap());
    for _ in 0..2 {
        assert!(scene.controller.rotate("shop", finish()).unwrap().is_none());
        assert_eq!(hashes(&scene), [third.hash().0]);
    }
    // The open tenant has no secret until it is given one.
    assert!(scene.controller.rotate("default", finish()).unwrap().is_none());
    scene.controller.rotate("default", add(None)).unwrap().unwrap();
    assert_eq!(scene.controller.tenant("default").unwrap().secrets.len(), 1);
}

#[test]
fn named_secrets_are_rotated_apart_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let writer = scene
        .controller
        .create_tenant("shop", SettingsPatch::default())
        .unwrap();
    let add = |scene: &mut Scene, new| scene.controller.rotate("shop", Rotation::Add(new)).unwrap().unwrap();
    let reader = add(&mut scene, new_secret("reader", Some(Permissions::READ)));
    let next_reader = add(&mut scene, new_secret("reader", None));
    let next_writer = add(&mut scene, new_secret("default", None));
    let all = [&writer, &reader, &next_reader, &next_writer].map(|secret| secret.hash().0);
    assert_eq!(hashes(&scene), all);
    let of_reader: SecretName = "reader".parse().unwrap();
    scene
        .controller
        .rotate("shop", Rotation::Finish(of_reader.clone()))
        .unwrap();
    assert_eq!(hashes(&scene), [all[0], all[2], all[3]], "the writer's are untouched");
    drop(scene);
    let mut scene = Scene::new(folder.path());
    let described: Vec<_> = scene.controller.tenant("shop").unwrap().secrets;
    let described: Vec<_> = described
        .iter()
        .map(|one| (one.name.as_str(), one.permissions.as_str()))
        .collect();
    let everything = "read,write,flush,admin";
    assert_eq!(
        described,
        [("default", everything), ("reader", "read"), ("default", everything)]
    );
    // A secret of another name than the tenant's own has the permissions of the one before it.
    scene
        .controller
        .rotate("shop", Rotation::End(of_reader.clone()))
        .unwrap();
    assert_eq!(hashes(&scene), [all[0], all[3]]);
    let refused = refusal(scene.controller.rotate("shop", Rotation::Finish(of_reader)));
    assert_eq!(refused.0, RefusalKind::NotFound);
    let refused = refusal(scene.controller.rotate("shop", Rotation::End(SecretName::default())));
    assert_eq!(refused.0, RefusalKind::OverLimit);
}

#[test]
fn a_secret_of_ones_own_is_taken_once_and_names_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let text = "q0E8l5n1p2m3k4j5h6g7f8";
    let own = || SecretText::given(text).unwrap();
    let patch = SettingsPatch::default();
    scene.controller.create_tenant_with("shop", patch, Some(own())).unwrap();
    assert_eq!(hashes(&scene), [own().hash().0]);
    let again = NewSecret {
        text: Some(own()),
        ..new_secret("reader", None)
    };
    let refused = refusal(scene.controller.rotate("shop", Rotation::Add(again)));
    assert_eq!(refused, (RefusalKind::Invalid, Some("secret".into())));
    for number in 1..8 {
        let new = new_secret(&format!("name{number}"), None);
        scene.controller.rotate("shop", Rotation::Add(new)).unwrap();
    }
    let refused = refusal(
        scene
            .controller
            .rotate("shop", Rotation::Add(new_secret("ninth", None))),
    );
    assert_eq!(refused, (RefusalKind::OverLimit, Some("secret_name".into())));
}

/// The result of a command, if it is there.
fn now<T>(answer: &mut Answer<T>) -> Option<Result<T, ControlError>> {
    match Pin::new(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[test]
fn a_removal_is_answered_when_the_memory_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", floor(512 * MIB));
    scene.data_plane.set_demand("shop", GIB);
    scene.seconds(1);
    scene.data_plane.withhold_removed(true);
    let (reply, mut removed) = answer();
    scene.controller.remove_tenant("shop".into(), reply);
    scene.seconds(1);
    assert!(now(&mut removed).is_none(), "not before the memory is back");
    assert_eq!(scene.controller.tenant("shop").unwrap().state, "removing");
    assert_eq!(
        refusal(scene.controller.create_tenant("shop", SettingsPatch::default())).0,
        RefusalKind::NameTaken
    );
    assert_eq!(
        refusal(scene.controller.set_tenant("shop", cap(MIB))).0,
        RefusalKind::NotFound
    );
    // Nobody needs its floor any more.
    scene.controller.set_server(pool(256 * MIB)).unwrap();

    scene.data_plane.withhold_removed(false);
    scene.seconds(1);
    now(&mut removed).unwrap().unwrap();
    assert_eq!(refusal(scene.controller.tenant("shop")).0, RefusalKind::NotFound);
    scene.create("shop", SettingsPatch::default());
    drop(scene);
    assert_eq!(Scene::new(folder.path()).controller.tenants().len(), 2);
}

#[test]
fn a_removal_whose_memory_stays_away_says_so_after_ten_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", SettingsPatch::default());
    scene.data_plane.withhold_removed(true);
    let (reply, mut removed) = answer();
    scene.controller.remove_tenant("shop".into(), reply);
    scene.seconds(9);
    assert!(now(&mut removed).is_none());
    scene.seconds(1);
    let answer = now(&mut removed).unwrap();
    assert!(
        matches!(answer, Err(ControlError::MemoryNotBack { seconds: 10, .. })),
        "{answer:?}"
    );
}

#[test]
fn the_open_tenant_can_be_removed_for_good_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let (reply, mut removed) = answer();
    scene.controller.remove_tenant("default".into(), reply);
    scene.seconds(1);
    now(&mut removed).unwrap().unwrap();
    drop(scene);
    let mut scene = Scene::new(folder.path());
    assert!(scene.controller.tenants().is_empty());
    scene.create("default", SettingsPatch::default());
    assert!(scene.data_plane.tenant("default").unwrap().0.open);
}

#[test]
fn what_can_not_be_done_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", floor(512 * MIB));
    let before = format!("{:?} {:?}", scene.controller.tenants(), scene.data_plane.plan_sizes());
    let c = &mut scene.controller;
    let field = |name: &str| Some(name.to_owned());
    for (found, expected) in [
        (
            refusal(c.create_tenant("shop", SettingsPatch::default())),
            (RefusalKind::NameTaken, field("name")),
        ),
        (
            refusal(c.create_tenant("a b", SettingsPatch::default())),
            (RefusalKind::Invalid, field("name")),
        ),
        (
            refusal(c.create_tenant("x", cap(1))),
            (RefusalKind::Invalid, field("goals.cap_bytes")),
        ),
        (
            refusal(c.create_tenant("x", floor(500 * MIB))),
            (RefusalKind::OverLimit, field("goals.floor_bytes")),
        ),
        (
            refusal(c.set_tenant("shop", cap(256 * MIB))),
            (RefusalKind::Invalid, field("goals.floor_bytes")),
        ),
        (
            refusal(c.set_tenant("shop", floor(2 * GIB))),
            (RefusalKind::OverLimit, field("goals.floor_bytes")),
        ),
        (refusal(c.set_tenant("nobody", cap(MIB))), (RefusalKind::NotFound, None)),
        (
            refusal(c.rotate("nobody", Rotation::Finish(SecretName::default()))),
            (RefusalKind::NotFound, None),
        ),
        (
            refusal(c.set_server(pool(256 * MIB))),
            (RefusalKind::OverLimit, field("pool_bytes")),
        ),
        (
            refusal(c.set_server(pool(64 * GIB))),
            (RefusalKind::Invalid, field("pool_bytes")),
        ),
    ] {
        assert_eq!(found, expected);
    }
    assert_eq!(before, format!("{:?} {:?}", c.tenants(), scene.data_plane.plan_sizes()));
}

#[test]
fn hit_ratios_cover_ten_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    assert_eq!(scene.controller.tenant("default").unwrap().hit_ratio, None);
    scene.data_plane.count_gets("default", 100, 25);
    scene.seconds(1);
    let view = scene.controller.tenant("default").unwrap();
    assert_eq!(
        (view.hit_ratio, view.gets_total, view.hits_total),
        (Some(0.25), 100, 25)
    );
    scene.seconds(11);
    assert_eq!(scene.controller.tenant("default").unwrap().hit_ratio, None);
}

/// With a tenant that wants 300 MiB, and one that a first grant is enough for.
fn large_and_small(folder: &Path) -> Scene {
    let mut scene = Scene::new(folder);
    for (name, demand_bytes) in [("shop", 300 * MIB), ("blog", 5 * MIB)] {
        scene.create(name, SettingsPatch::default());
        scene.data_plane.set_demand(name, demand_bytes);
    }
    scene
}

#[test]
fn who_falls_silent_keeps_its_memory_while_the_clock_is_set_or_the_process_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", SettingsPatch::default());
    scene.data_plane.set_demand("shop", 300 * MIB);
    scene.seconds(3);
    scene.data_plane.fall_silent("shop");
    scene.data_plane.set_demand("default", 4 * GIB);
    scene.clock.advance(DEFAULT_IDLE_AFTER * 12);
    scene.seconds(60);
    assert!(scene.grant("shop") >= 300 * MIB, "{}", scene.grant("shop"));
    scene.seconds(DEFAULT_IDLE_AFTER.as_secs().try_into().unwrap());
    assert_eq!(scene.grant("shop"), 0, "that was seen to pass");
}

#[test]
fn what_an_idle_tenant_held_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = large_and_small(folder.path());
    scene.seconds(2);
    for name in ["shop", "blog"] {
        scene.data_plane.expire(name);
    }
    scene.seconds(4);
    assert_eq!(scene.controller.tenant("shop").unwrap().state, "idle");
    // A later change of the tenant forgets nothing.
    scene.controller.set_tenant("shop", cap(GIB)).unwrap();
    drop(scene);

    let mut scene = Scene::new(folder.path());
    let first_grant = |scene: &Scene, name: &str| scene.data_plane.tenant(name).unwrap().0.first_grant_bytes;
    assert_eq!(
        ["shop", "blog", "default"].map(|name| first_grant(&scene, name)),
        [300 * MIB, 20 * MIB, 20 * MIB]
    );
    for name in ["shop", "blog"] {
        scene.data_plane.set_demand(name, GIB);
    }
    scene.data_plane.write();
    assert_eq!(
        (scene.usage("shop"), scene.usage("blog")),
        (300 * MIB, 20 * MIB),
        "before any round"
    );
    scene.wake();
}

#[test]
fn what_a_tenant_holds_at_the_end_is_its_first_grant_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = large_and_small(folder.path());
    scene.seconds(4);
    scene.controller.end();
    drop(scene);

    // A second restart soon after it forgets nothing.
    for refilled_bytes in [5 * MIB, 0] {
        let mut scene = Scene::new(folder.path());
        let first_grant = |name: &str| scene.data_plane.tenant(name).unwrap().0.first_grant_bytes;
        assert_eq!(["shop", "blog"].map(first_grant), [300 * MIB, 20 * MIB]);
        scene.data_plane.set_demand("shop", refilled_bytes);
        scene.seconds(4);
        scene.controller.end();
    }
}

#[test]
fn what_can_not_be_remembered_is_no_reason_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.data_plane.set_demand("default", 300 * MIB);
    scene.seconds(2);
    scene.controller.state.refuse_writes();
    scene.data_plane.expire("default");
    scene.seconds(4);
    // Only a restart forgets it.
    let plan = scene.data_plane.tenant("default").unwrap().0;
    assert_eq!((plan.state, plan.first_grant_bytes), (TenantState::Idle, 300 * MIB));
    assert!(scene.controller.set_tenant("default", cap(GIB)).is_err());
}

#[test]
fn how_tenants_come_and_go_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let idling = |first_grant_bytes, idle_after| Idling {
        first_grant_bytes,
        idle_after,
    };
    let minute = Duration::from_secs(60);
    scene.controller.configure_idling(idling(8 * MIB, minute)).unwrap();
    assert_eq!(scene.data_plane.tenant("default").unwrap().0.first_grant_bytes, 8 * MIB);
    for (wrong, field) in [
        (idling(MIB - 1, minute), "first_grant"),
        (idling(MIB, Duration::ZERO), "idle_after"),
    ] {
        assert_eq!(
            refusal(scene.controller.configure_idling(wrong)),
            (RefusalKind::Invalid, Some(field.into()))
        );
    }
    assert_eq!(scene.data_plane.tenant("default").unwrap().0.first_grant_bytes, 8 * MIB);
}

#[test]
fn moves_are_shown_newest_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", cap(64 * MIB));
    assert_eq!(refusal(scene.controller.moves("nobody")).0, RefusalKind::NotFound);
    assert_eq!(scene.controller.moves("shop").unwrap(), []);
    scene.data_plane.set_demand("shop", GIB);
    scene.seconds(1);
    scene.data_plane.count_gets("shop", 2000, 1500);
    scene.seconds(10);
    let of = |at: &str, from_bytes, to_bytes, reason, measured_hit_ratio| MoveView {
        at: at.into(),
        from_bytes,
        to_bytes,
        reason,
        other: None,
        predicted_hit_ratio: None,
        measured_hit_ratio,
        tier: None,
    };
    assert_eq!(
        scene.controller.moves("shop").unwrap(),
        [
            of("2023-11-14T22:13:21.000Z", 20 * MIB, 64 * MIB, "surplus", Some(0.75)),
            of("2023-11-14T22:13:21.000Z", 0, 20 * MIB, "join", None),
        ]
    );
}

#[test]
fn a_curve_is_shown_as_far_as_it_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    assert_eq!(refusal(scene.controller.curve("nobody")).0, RefusalKind::NotFound);
    let unknown = CurveView {
        requests: None,
        points: Vec::new(),
        now_bytes: 0,
        goal_bytes: None,
        policy: None,
        age_seconds: None,
        standard_error: None,
    };
    assert_eq!(scene.controller.curve("default").unwrap(), unknown);

    let report = CurveReport {
        requests: 5000,
        points: vec![(0, 1.0), (MIB, 0.25)],
        age: Duration::from_millis(1500),
        standard_error: 0.01,
    };
    let goal = GoalReport {
        goal_bytes: Some(MIB),
        ..GoalReport::default()
    };
    let points = [(0, 1.0), (MIB, 0.25)].map(|(bytes, miss_ratio)| CurvePointView { bytes, miss_ratio });
    let known = CurveView {
        requests: Some(5000),
        points: points.to_vec(),
        now_bytes: 2 * MIB,
        goal_bytes: Some(MIB),
        policy: Some("s3fifo".into()),
        age_seconds: Some(1.5),
        standard_error: Some(0.01),
    };
    assert_eq!(curve_view(Some(&report), 2 * MIB, &goal, Policy::S3Fifo), known);
}

#[test]
fn goals_have_the_states_of_the_api() {
    use tidemark_plan::GoalState::{Converging, Infeasible, Met};
    let states = [None, Some(Met), Some(Converging), Some(Infeasible)];
    assert_eq!(states.map(state_name), ["none", "met", "converging", "infeasible"]);
}

/// A clock on which figures are old each time it is read.
struct Hurried(AtomicU64);

impl Clock for Hurried {
    fn now(&self) -> UnixMs {
        UnixMs(self.0.fetch_add(FRESH_FOR.as_millis() as u64, Ordering::Relaxed))
    }
}

#[test]
fn an_overview_is_of_one_round_however_long_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(Hurried(AtomicU64::new(1_700_000_000_000)));
    let mut controller = Controller::new(
        Box::new(StateFile::open(folder.path(), clock.now()).unwrap()),
        Arc::new(FakeDataPlane::new(Arc::clone(&clock))),
        Arc::new(SteadyClock::new(Arc::clone(&clock))),
        ControlConfig::new(POOL, 16 * GIB, 2),
        Arc::new(Shared::new(clock.now())),
    )
    .unwrap();
    controller.create_tenant("shop", SettingsPatch::default()).unwrap();
    let before = controller.shared.rounds();
    let (server, tenants) = controller.overview();
    assert_eq!(tenants.len(), 2);
    assert_eq!(
        (server.rounds_total, controller.shared.rounds()),
        (before + 1, before + 1)
    );
}
