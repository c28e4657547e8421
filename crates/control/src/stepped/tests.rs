//! Rounds and commands driven by the caller, in virtual time and without a file.

use tidemark_types::{GIB, MIB, ManualClock, UnixMs};

use super::*;
use crate::fake::FakeDataPlane;
use crate::settings::{Change, ServerPatch, SettingsPatch};
use crate::state::MemoryState;

struct Scene {
    clock: Arc<ManualClock>,
    data_plane: Arc<FakeDataPlane>,
    control: Stepped,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(1_700_000_000_000)));
        let data_plane = Arc::new(FakeDataPlane::new(Arc::clone(&clock) as _));
        let mailbox = Mailbox::default();
        data_plane.set_waker(mailbox.waker());
        let config = ControlConfig::new(GIB, 2 * GIB, 2);
        let control = Stepped::new(
            mailbox,
            MemoryState::default(),
            Arc::clone(&data_plane) as _,
            Arc::clone(&clock) as _,
            config,
        )
        .unwrap();
        Self {
            clock,
            data_plane,
            control,
        }
    }

    fn create(&mut self, name: &str) {
        let patch = SettingsPatch::default();
        self.control
            .ask(|handle| handle.create_tenant(name, patch))
            .wait()
            .unwrap();
    }
}

#[test]
fn commands_are_in_force_when_ask_returns() {
    let mut scene = Scene::new();
    scene.create("shop");
    assert!(scene.data_plane.tenant("shop").is_some());
    let patch = ServerPatch {
        round_period: Change::Set(Duration::from_secs(7)),
        ..ServerPatch::default()
    };
    scene.control.ask(|handle| handle.set_server(patch)).wait().unwrap();
    assert_eq!(scene.control.round_period(), Duration::from_secs(7));
    let refused = scene.control.ask(|handle| handle.tenant("nobody")).wait();
    assert!(refused.is_err());
}

#[test]
fn nothing_is_decided_between_rounds() {
    let mut scene = Scene::new();
    scene.create("shop");
    let plans = scene.data_plane.plan_sizes().len();
    scene.data_plane.set_demand("shop", 64 * MIB);
    scene.data_plane.write();
    assert!(scene.control.is_woken());
    scene.clock.advance(Duration::from_secs(5));
    assert_eq!(scene.data_plane.plan_sizes().len(), plans);
    scene.control.round();
    assert!(!scene.control.is_woken());
    assert!(scene.data_plane.plan_sizes().len() > plans);
}

#[test]
fn a_removal_is_answered_by_the_round_in_which_the_memory_is_back() {
    let mut scene = Scene::new();
    scene.create("shop");
    scene.data_plane.withhold_removed(true);
    let answer = scene.control.ask(|handle| handle.remove_tenant("shop"));
    scene.control.round();
    scene.data_plane.withhold_removed(false);
    scene.clock.advance(Duration::from_secs(1));
    scene.control.round();
    answer.wait().unwrap();
}

#[test]
fn commands_of_other_threads_wait_until_they_are_served() {
    let mut scene = Scene::new();
    let handle = scene.control.handle();
    let sent = std::thread::spawn(move || handle.create_tenant("shop", SettingsPatch::default()));
    let answer = sent.join().unwrap();
    assert!(scene.data_plane.tenant("shop").is_none());
    scene.control.serve();
    answer.wait().unwrap();
    assert!(scene.data_plane.tenant("shop").is_some());
}
