//! A panic ends the process. A panic of the control plane's own code is the exception, which ends that alone.
//!
//! A store that was left in the middle of a change must not be used any more. A worker that is gone would leave its
//! connections hanging, while a process that is gone is started again.

/// Makes a panic from now on end the process.
pub(in crate::commands) fn end_the_process() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if !tidemark_control::is_confined() {
            std::process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tidemark_control::{Control, ControlConfig, ControlError, Mailbox, MemoryState, SettingsPatch};
    use tidemark_types::{Clock, DataPlane, MIB, Plan, Snapshot, SystemClock, UnixMs};

    /// The variable by which the test asks itself to run as a process of its own.
    const ASKED: &str = "TIDEMARK_TEST_PANIC";
    const MISTAKE: &str = "somebody's mistake";

    /// A data plane of nothing, and a clock, one of which the control plane's thread finds broken.
    struct Broken {
        part: String,
        is_broken: AtomicBool,
    }

    impl Broken {
        fn look(&self, part: &str) {
            let is_control = std::thread::current().name() == Some("tidemark-control");
            let is_broken = is_control && self.part == part && self.is_broken.load(Ordering::SeqCst);
            assert!(!is_broken, "{MISTAKE}");
        }
    }

    impl DataPlane for Broken {
        fn apply(&self, _plan: &Plan) {
            self.look("apply");
        }

        fn snapshot(&self) -> Snapshot {
            self.look("snapshot");
            Snapshot::default()
        }
    }

    impl Clock for Broken {
        fn now(&self) -> UnixMs {
            self.look("clock");
            SystemClock.now()
        }
    }

    /// Has a worker, or the control plane's thread in this part, panic.
    fn break_down(part: String) {
        super::end_the_process();
        if part == "worker" {
            let _ = std::thread::spawn(|| panic!("{MISTAKE}")).join();
            return;
        }
        let broken = Arc::new(Broken {
            part,
            is_broken: AtomicBool::new(false),
        });
        let config = ControlConfig::new(64 * MIB, 64 * MIB, 1);
        let (data_plane, clock) = (Arc::clone(&broken) as _, Arc::clone(&broken) as _);
        let control = Control::start(Mailbox::default(), MemoryState::default(), data_plane, clock, config).unwrap();
        broken.is_broken.store(true, Ordering::SeqCst);
        // Each is a new plan, until there is none any more; rounds come meanwhile, however long they take to.
        let one = || {
            control
                .handle()
                .create_tenant("one", SettingsPatch::default())
                .wait()
                .err()
        };
        let other = || control.handle().remove_tenant("one").wait().err();
        let ended = std::iter::repeat_with(|| one().or_else(other)).find_map(|ended| ended);
        assert!(matches!(ended, Some(ControlError::Stopped)), "{ended:?}");
        assert!(control.stop().is_err());
    }

    #[test]
    fn only_a_mistake_of_the_control_planes_own_leaves_the_process_alive() {
        if let Ok(part) = std::env::var(ASKED) {
            return break_down(part);
        }
        let this = "commands::serve::panics::tests::only_a_mistake_of_the_control_planes_own_leaves_the_process_alive";
        for (part, signal) in [
            ("worker", Some(6)),
            ("snapshot", Some(6)),
            ("apply", Some(6)),
            ("clock", None),
        ] {
            let ended = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", this, "--nocapture"])
                .env(ASKED, part)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(said.contains(MISTAKE), "{part}: {said}");
            assert_eq!(ended.status.signal(), signal, "{part}: {:?}, {said}", ended.status);
            assert!(
                signal.is_some() || ended.status.success(),
                "{part}: {:?}, {said}",
                ended.status
            );
        }
    }
}
