//! System calls of a server, counted by `perf` if it is installed and permitted. The cost of a request follows from how
//! often a server asks the system.
//!
//! Counting slows system calls down, so it is done in runs of their own that no time is taken from.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::process::Process;
use super::server::{Server, Stage};

/// The calls that a server receives with, sends with, and waits with (`man 2 syscalls`).
const RECEIVE: &[&str] = &["read", "readv", "recvfrom", "recvmsg"];
const SEND: &[&str] = &["write", "writev", "sendto", "sendmsg"];
const WAIT: &[&str] = &["epoll_wait", "epoll_pwait", "epoll_pwait2"];
/// How long `perf` may take until it counts.
const START_LIMIT: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How often a server asked the system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Calls {
    pub(super) receives: f64,
    pub(super) sends: f64,
    pub(super) waits: f64,
}

impl Calls {
    /// The counts for each of so many operations.
    pub(super) fn per(self, operations: u64) -> Self {
        let each = |calls: f64| calls / operations as f64;
        Self {
            receives: each(self.receives),
            sends: each(self.sends),
            waits: each(self.waits),
        }
    }
}

/// Counts a server's calls while `action` runs. Nothing where they cannot be counted: then the action was not run.
pub(super) fn count<T>(stage: &Stage, server: &Server, action: impl FnOnce() -> T) -> Option<(Calls, T)> {
    const RESULT: &str = "calls";
    let events: Vec<String> = [RECEIVE, SEND, WAIT]
        .concat()
        .iter()
        .filter(|name| Path::new(&format!("/sys/kernel/tracing/events/syscalls/sys_enter_{name}")).exists())
        .map(|name| format!("syscalls:sys_enter_{name}"))
        .collect();
    if events.is_empty() {
        return None;
    }
    let target = server.process.id().to_string();
    let mut perf = Process::start(Path::new("perf"), (&stage.children, &stage.cores), |command, folder| {
        command.args(["stat", "-x", ",", "-e", &events.join(","), "-p", &target, "-o"]);
        command.arg(folder.join(RESULT));
    })
    .ok()?;
    let start = Instant::now();
    // One of each event for each thread.
    while opened_events(perf.id()) < events.len() * threads(server.process.id()) {
        if perf.has_ended() || start.elapsed() > START_LIMIT {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let done = action();
    perf.signal(Signal::INT);
    perf.wait().ok()?;
    let text = fs::read_to_string(perf.folder().join(RESULT)).ok()?;
    Some((parse(&text)?, done))
}

/// How many of its events `perf` has opened: they count from then on.
fn opened_events(process: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let is_event = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().contains("[perf_event]"))
    };
    descriptors.filter(is_event).count()
}

fn threads(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count)
}

/// Lines `count,unit,event,...`, as `perf stat -x ,` writes them.
fn parse(text: &str) -> Option<Calls> {
    let sum = |calls: &[&str]| {
        let mut total = None;
        for line in text.lines() {
            let fields: Vec<&str> = line.split(',').collect();
            let [count, _, event, ..] = fields[..] else { continue };
            let Some(call) = event.strip_prefix("syscalls:sys_enter_") else {
                continue;
            };
            if calls.contains(&call) {
                // If an event could not be counted, the count is a text.
                *total.get_or_insert(0.0) += count.parse::<f64>().ok()?;
            }
        }
        total
    };
    Some(Calls {
        receives: sum(RECEIVE)?,
        sends: sum(SEND)?,
        waits: sum(WAIT)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_or_refused() {
        let line = |count: &str, call: &str| format!("{count},,syscalls:sys_enter_{call},1000,100.00,,\n");
        let good = format!(
            "# started on a day\n\n{}{}{}{}",
            line("30", "read"),
            line("70", "recvfrom"),
            line("50", "sendto"),
            line("20", "epoll_wait")
        );
        let calls = parse(&good).map(|calls| calls.per(10));
        assert_eq!(
            calls,
            Some(Calls {
                receives: 10.0,
                sends: 5.0,
                waits: 2.0
            })
        );
        for bad in [
            String::new(),
            good.replace("50,", "<not counted>,"),
            good.replace("epoll_wait", "openat"),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }
}
