//! Commands and rounds in virtual time, with a real state file and a fake data plane.

mod idle;
mod removal;
mod rotation;
mod shown;

use std::path::Path;

use tidemark_types::{GIB, HitRatio, MIB, ManualClock, Policy, PolicyChoice, TenantState};

use super::*;
use crate::fake::FakeDataPlane;
use crate::grant::{grantable_bytes, pool_for};
use crate::settings::{Change, Idling, MIN_POOL_BYTES, ServerPatch};
use crate::state::StateFile;

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
fn the_pool_follows_what_others_do_not_use_within_its_size_and_beyond_floors() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let check = |scene: &mut Scene, pool_bytes: u64| {
        assert_eq!(scene.controller.server().pool_bytes, pool_bytes);
        assert_eq!(scene.data_plane.pool_and_granted_bytes().0, pool_bytes);
    };
    scene.controller.follow_unused(Some(256 * MIB));
    check(&mut scene, 256 * MIB);
    // Its size is the operator's all the same.
    scene.controller.set_server(pool(128 * MIB)).unwrap();
    check(&mut scene, 128 * MIB);
    scene.controller.configure_pool(2 * GIB).unwrap();
    check(&mut scene, 256 * MIB);
    scene.controller.follow_unused(None);
    check(&mut scene, 2 * GIB);
    scene.controller.follow_unused(Some(0));
    check(&mut scene, MIN_POOL_BYTES);
    scene.controller.follow_unused(None);
    scene.create("shop", floor(512 * MIB));
    scene.controller.follow_unused(Some(64 * MIB));
    check(&mut scene, pool_for(512 * MIB));
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
