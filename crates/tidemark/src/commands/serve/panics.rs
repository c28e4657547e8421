//! What a panic ends: the process, but for one of the control plane's own code, which ends that alone.
//!
//! A store that was left in the middle of a change must not be used any more, and a worker that is gone would leave its
//! connections hanging, while a process that is gone is started again.

/// From now on.
pub(super) fn end_the_process() {
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

    /// What the test asks of itself when it runs as a process of its own.
    const ASKED: &str = "TIDEMARK_TEST_PANIC";

    #[test]
    fn a_thread_that_panics_takes_the_process_with_it() {
        if std::env::var_os(ASKED).is_some() {
            super::end_the_process();
            let _ = std::thread::spawn(|| panic!("a worker's mistake")).join();
            return;
        }
        let this = "commands::serve::panics::tests::a_thread_that_panics_takes_the_process_with_it";
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(ASKED, "yes")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("a worker's mistake"), "{said}");
        assert_eq!(ended.status.signal(), Some(6), "SIGABRT, and not {:?}", ended.status);
    }
}
