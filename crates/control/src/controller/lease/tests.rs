//! A control plane whose pool follows a lease.

use std::sync::Arc;
use std::time::Duration;

use tidemark_types::{Clock as _, GIB, MIB, ManualClock, UnixMs};

use super::*;
use crate::config::{ControlConfig, FirstLease};
use crate::error::{ControlError, RefusalKind};
use crate::fake::FakeDataPlane;
use crate::settings::{Change, ServerPatch, SettingsPatch};
use crate::shared::Shared;
use crate::state::MemoryState;
use crate::steady::SteadyClock;

struct Scene {
    clock: Arc<ManualClock>,
    data_plane: Arc<FakeDataPlane>,
    controller: Controller,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(1_700_000_000_000)));
        let data_plane = Arc::new(FakeDataPlane::new(Arc::clone(&clock) as _));
        let config = ControlConfig {
            lease: Some(FirstLease {
                bytes: 64 * MIB,
                reach_bytes: 3 * GIB,
            }),
            ..ControlConfig::new(4 * GIB, 16 * GIB, 2)
        };
        let shared = Arc::new(Shared::new(clock.now()));
        let steady = Arc::new(SteadyClock::new(Arc::clone(&clock) as _));
        let controller = Controller::new(
            Box::new(MemoryState::default()),
            Arc::clone(&data_plane) as _,
            steady,
            config,
            shared,
        );
        let mut scene = Self {
            clock,
            data_plane,
            controller: controller.unwrap(),
        };
        let patch = SettingsPatch::default();
        scene.controller.create_tenant("shop", patch).unwrap();
        scene
    }

    fn seconds(&mut self, count: u32) {
        for _ in 0..count {
            self.clock.advance(Duration::from_secs(1));
            self.data_plane.write();
            self.controller.round();
        }
    }
}

fn floor(bytes: u64) -> SettingsPatch {
    SettingsPatch {
        floor_bytes: Change::Set(bytes),
        ..SettingsPatch::default()
    }
}

fn memory(bytes: u64) -> ServerPatch {
    ServerPatch {
        pool_bytes: Change::Set(bytes),
        ..ServerPatch::default()
    }
}

fn refused<T>(result: Result<T, ControlError>) -> (RefusalKind, Option<String>) {
    match result {
        Err(ControlError::Refused(refusal)) => (refusal.kind, refusal.field),
        Err(other) => panic!("not a refusal: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn the_pool_is_the_lease_and_memory_is_its_most() {
    let mut scene = Scene::new();
    let pool = |scene: &Scene| scene.data_plane.pool_and_granted_bytes().0 / MIB;
    assert_eq!(pool(&scene), 64);
    assert_eq!(scene.controller.lease_reading().demand.most_bytes, 4 * GIB);
    scene.controller.follow_lease(256 * MIB);
    assert_eq!(pool(&scene), 256);
    let shown = scene.controller.set_server(memory(128 * MIB)).unwrap();
    assert_eq!(
        (shown.pool_bytes, pool(&scene)),
        (256 * MIB, 256),
        "only the lease moves it"
    );
    assert_eq!(scene.controller.lease_reading().demand.most_bytes, 128 * MIB);
    scene.controller.configure_pool(2 * GIB).unwrap();
    assert_eq!(scene.controller.lease_reading().demand.most_bytes, 2 * GIB);
    assert_eq!(pool(&scene), 256);
}

#[test]
fn a_reading_says_no_less_than_what_the_pool_may_hold() {
    let mut scene = Scene::new();
    scene.data_plane.set_demand("shop", GIB);
    scene.seconds(2);
    let reading = scene.controller.lease_reading();
    assert_eq!((reading.limit_bytes, reading.resident_bytes), (64 * MIB, 63 * MIB));
    assert!(reading.demand.wanted_bytes > 120 * MIB, "{reading:?}");
    // The last snapshot is of the larger pool: until there is another one, nothing is given up.
    scene.controller.follow_lease(32 * MIB);
    assert_eq!(scene.controller.lease_reading().limit_bytes, 64 * MIB);
    scene.clock.advance(Duration::from_secs(1));
    let reading = scene.controller.lease_reading();
    assert_eq!((reading.limit_bytes, reading.resident_bytes), (32 * MIB, 31 * MIB));
    // A larger one counts at once.
    scene.controller.follow_lease(48 * MIB);
    assert_eq!(scene.controller.lease_reading().limit_bytes, 48 * MIB);
}

#[test]
fn floors_fit_into_what_the_lease_could_come_to() {
    let mut scene = Scene::new();
    assert!(
        scene.controller.set_tenant("shop", floor(2 * GIB)).is_ok(),
        "more than the pool is now"
    );
    assert_eq!(scene.controller.lease_reading().floors_set_bytes, pool_for(2 * GIB));
    let field = Some("goals.floor_bytes".to_owned());
    let result = scene.controller.set_tenant("shop", floor(3 * GIB));
    assert_eq!(refused(result), (RefusalKind::OverLimit, field.clone()));
    // Others came with floors of their own.
    let view = NodeView {
        folder: "/run/tidemark".into(),
        memory_bytes: 4 * GIB,
        lease_bytes: 64 * MIB,
        instances: 2,
        problem: None,
        leases: Vec::new(),
    };
    scene.controller.note_node(view.clone(), GIB);
    let result = scene.controller.set_tenant("shop", floor(2 * GIB - 1));
    assert_eq!(refused(result), (RefusalKind::OverLimit, field));
    assert!(scene.controller.set_tenant("shop", floor(GIB / 2)).is_ok());
    assert_eq!(scene.controller.lease_reading().floors_set_bytes, pool_for(GIB / 2));
    assert_eq!(scene.controller.server().node, Some(view));
    let result = scene.controller.set_server(memory(256 * MIB));
    assert_eq!(refused(result), (RefusalKind::OverLimit, Some("pool_bytes".to_owned())));
}

#[test]
fn shards_are_enough_for_what_the_lease_could_come_to() {
    let mut scene = Scene::new();
    let shown = scene.controller.tenant("shop").unwrap();
    assert_eq!(shown.shards, crate::shards::shards_for(None, 3 * GIB, 2));
    assert!(shown.shards > crate::shards::shards_for(None, 64 * MIB, 2));
}

#[test]
fn a_tenant_grows_with_the_lease_for_a_reason_of_its_own() {
    let mut scene = Scene::new();
    scene.data_plane.set_demand("shop", GIB);
    scene.seconds(3);
    scene.controller.follow_lease(512 * MIB);
    scene.seconds(2);
    let moves = scene.controller.moves("shop").unwrap();
    assert_eq!((moves[0].reason, moves[0].to_bytes), ("surplus", 504 * MIB));
    scene.controller.follow_lease(128 * MIB);
    scene.seconds(2);
    let moves = scene.controller.moves("shop").unwrap();
    assert_eq!((moves[0].reason, moves[0].to_bytes), ("cap", 126 * MIB));
}
