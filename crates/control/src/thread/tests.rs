//! The thread: that a wake is a round, that commands are answered, and that it ends.

use std::sync::mpsc::sync_channel;

use tidemark_types::{GIB, MIB, SystemClock, TenantId, TenantName};

use super::*;
use crate::fake::FakeDataPlane;
use crate::settings::{Change, ServerPatch, SettingsPatch, TenantSettings};
use crate::shared::Shared;
use crate::state::{MemoryState, ServerSettings, StateFile, StoredSecret, TenantRecord};

/// Far longer than any step takes, so that only a hang is one.
const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    control: Control,
    data_plane: Arc<FakeDataPlane>,
    _folder: tempfile::TempDir,
}

fn start() -> Running {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let data_plane = Arc::new(FakeDataPlane::new(Arc::clone(&clock)));
    let mailbox = Mailbox::default();
    data_plane.set_waker(mailbox.waker());
    let config = ControlConfig::new(GIB, 2 * GIB, 2);
    let state = StateFile::open(folder.path(), clock.now()).unwrap();
    let control = Control::start(mailbox, state, Arc::clone(&data_plane) as _, clock, config).unwrap();
    Running {
        control,
        data_plane,
        _folder: folder,
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::yield_now();
    }
}

/// Rounds so rare that every round in a test was woken.
fn make_rounds_rare(control: &ControlHandle) {
    let patch = ServerPatch {
        round_period: Change::Set(Duration::from_secs(60)),
        ..ServerPatch::default()
    };
    control.set_server(patch).wait().unwrap();
}

#[test]
fn the_first_plan_is_in_force_when_start_returns() {
    let running = start();
    assert!(running.data_plane.tenant("default").is_some());
    assert_eq!(running.control.handle().server().wait().unwrap().rounds_total, 1);
    running.control.stop().unwrap();
}

#[test]
fn an_event_loops_thread_may_wait_for_an_answer() {
    let running = start();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let view = runtime.block_on(async { running.control.handle().server().wait() });
    assert_eq!(view.unwrap().pool_bytes, GIB);
    running.control.stop().unwrap();
}

#[test]
fn a_wake_is_a_round() {
    let running = start();
    let handle = running.control.handle();
    make_rounds_rare(&handle);
    running.data_plane.set_demand("default", 4 * GIB);
    running.data_plane.write();
    let grant_bytes = || running.data_plane.tenant("default").unwrap().0.grant_bytes;
    wait_until("the whole pool", || grant_bytes() > 1000 << 20);
    running.control.stop().unwrap();
}

#[test]
fn commands_are_answered_from_many_threads_and_in_force_at_once() {
    let running = start();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (handle, data_plane) = (running.control.handle(), &running.data_plane);
            scope.spawn(move || {
                for number in 0..10 {
                    let name = format!("t{thread}-{number}");
                    let secret = handle.create_tenant(&name, SettingsPatch::default()).wait().unwrap();
                    let plan = data_plane.tenant(&name).unwrap().0;
                    assert_eq!(plan.secrets[0].hash.0, secret.hash().0);
                    if number % 2 == 0 {
                        handle.remove_tenant(&name).wait().unwrap();
                        assert!(data_plane.tenant(&name).is_none());
                    }
                }
            });
        }
    });
    assert_eq!(running.control.handle().tenants().wait().unwrap().len(), 21);
    running.control.stop().unwrap();
}

#[test]
fn a_stopped_control_plane_says_so() {
    let running = start();
    let handle = running.control.handle();
    running.control.stop().unwrap();
    assert!(matches!(handle.server().wait(), Err(ControlError::Stopped)));
    assert!(matches!(
        handle.remove_tenant("default").wait(),
        Err(ControlError::Stopped)
    ));
}

/// A state that cannot remember anything at the end.
struct Forgetful(MemoryState);

impl State for Forgetful {
    fn tenants(&self) -> Result<Vec<TenantRecord>, ControlError> {
        self.0.tenants()
    }

    fn server(&self) -> Result<ServerSettings, ControlError> {
        self.0.server()
    }

    fn add_tenant(
        &mut self,
        name: &TenantName,
        settings: TenantSettings,
        secret: StoredSecret,
    ) -> Result<TenantRecord, ControlError> {
        self.0.add_tenant(name, settings, secret)
    }

    fn update_tenant(&mut self, tenant: &TenantRecord) -> Result<(), ControlError> {
        self.0.update_tenant(tenant)
    }

    fn remember(&mut self, _grants: &[(TenantId, Option<u64>)]) -> Result<(), ControlError> {
        panic!("no idea any more")
    }

    fn remove_tenant(&mut self, id: TenantId) -> Result<(), ControlError> {
        self.0.remove_tenant(id)
    }

    fn set_server(&mut self, settings: &ServerSettings) -> Result<(), ControlError> {
        self.0.set_server(settings)
    }
}

#[test]
fn a_panic_at_the_end_is_an_end() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let data_plane = Arc::new(FakeDataPlane::new(Arc::clone(&clock)));
    let mailbox = Mailbox::default();
    data_plane.set_waker(mailbox.waker());
    let config = ControlConfig::new(GIB, 2 * GIB, 2);
    let state = Forgetful(MemoryState::default());
    let control = Control::start(mailbox, state, Arc::clone(&data_plane) as _, clock, config).unwrap();
    control
        .handle()
        .create_tenant("shop", SettingsPatch::default())
        .wait()
        .unwrap();
    data_plane.set_demand("shop", 300 * MIB);
    // More than a new tenant gets is worth remembering.
    wait_until("that much is held", || {
        data_plane.write();
        control.handle().tenant("shop").wait().unwrap().usage_bytes > 100 * MIB
    });
    assert!(matches!(control.stop(), Err(ControlError::Stopped)));
}

#[test]
fn readiness_follows_draining_and_the_age_of_the_last_round() {
    let clock = Arc::new(tidemark_types::ManualClock::new(tidemark_types::UnixMs(1_000_000)));
    let (sender, _receiver) = sync_channel(1);
    let handle = ControlHandle {
        sender,
        shared: Arc::new(Shared::new(clock.now())),
        clock: Arc::clone(&clock) as _,
    };
    let seen = || {
        (
            handle.readiness().ready,
            handle.readiness().control,
            handle.readiness().age_seconds,
        )
    };
    for (period_ms, advance_ms, control, age_seconds) in [
        (1000, 0, "ok", 0),
        (1000, 3000, "ok", 3),
        (1000, 3001, "stale", 3),
        (100, 2900, "ok", 2),
        (60_000, 179_000, "ok", 179),
        (60_000, 181_000, "stale", 181),
    ] {
        handle.shared.note_round(clock.now(), Duration::from_millis(period_ms));
        clock.advance(Duration::from_millis(advance_ms));
        assert_eq!(seen(), (true, control, age_seconds), "{period_ms} {advance_ms}");
    }
    handle.set_draining();
    assert!(!seen().0);
}

#[test]
fn who_waits_for_a_removed_tenant_s_memory_waits_for_no_round() {
    for (waited_ms, gap_ms) in [(0, 20), (100, 20), (160, 20), (800, 100), (8_000, 1000), (60_000, 1000)] {
        let gap = removal_gap(Duration::from_millis(waited_ms));
        assert_eq!(gap, Duration::from_millis(gap_ms), "after {waited_ms} ms");
    }
    let Running { control, .. } = start();
    let handle = control.handle();
    make_rounds_rare(&handle);
    // The least of a few: the machine may be busy.
    let took = (0..5).map(|number| {
        let name = format!("shop{number}");
        handle.create_tenant(&name, SettingsPatch::default()).wait().unwrap();
        let began = Instant::now();
        handle.remove_tenant(&name).wait().unwrap();
        began.elapsed()
    });
    let least = took.min().unwrap();
    assert!(least < Duration::from_millis(100), "{least:?}");
    control.stop().unwrap();
}
