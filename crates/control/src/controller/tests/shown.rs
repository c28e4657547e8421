//! Answers about a tenant's hit ratio, moves, curve and goal, and about all tenants at once.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::controller::views::curve_view;
use crate::goal::{CurveReport, GoalReport, state_name};
use crate::view::{CurvePointView, CurveView, MoveView};

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
