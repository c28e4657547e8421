//! Tenants that come and go, and what is remembered of them.

use super::*;
use crate::settings::DEFAULT_IDLE_AFTER;

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
