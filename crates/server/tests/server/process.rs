//! Processes of a test's own, and the system's figures for them.
//!
//! Such a test runs the test binary again, for itself only, with a variable that names it. There it takes the other branch.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::harness::{PATIENCE, wait_for};

/// Names the test that a process is for.
const ALONE: &str = "TIDEMARK_TEST_ALONE";
/// The address of the process that asked for this one.
const CONTROL: &str = "TIDEMARK_TEST_CONTROL";

/// A process that serves this one.
pub(crate) struct Child {
    process: std::process::Child,
    control: BufReader<TcpStream>,
}

/// Starts the other branch of a test, `serve`, in a process of its own, which answers lines with lines. `None` in that
/// process, when this one is done with it.
pub(crate) fn child(name: &str, serve: impl FnOnce(&mut dyn FnMut(&str) -> Option<String>)) -> Option<Child> {
    if is_alone(name) {
        let port = std::env::var(CONTROL).unwrap().parse::<u16>().unwrap();
        let mut control = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
        serve(&mut |said| {
            control.get_mut().write_all(format!("{said}\n").as_bytes()).ok()?;
            let mut line = String::new();
            control.read_line(&mut line).ok().filter(|read| *read > 0)?;
            Some(line.trim_end().into())
        });
        return None;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut process = command(name).env(CONTROL, port).stdout(Stdio::null()).spawn().unwrap();
    listener.set_nonblocking(true).unwrap();
    let control = wait_for("the other process", || {
        assert!(process.try_wait().unwrap().is_none(), "the other process has ended");
        listener.accept().ok().map(|(control, _)| control)
    });
    control.set_nonblocking(false).unwrap();
    control.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(Child {
        process,
        control: BufReader::new(control),
    })
}

impl Child {
    /// The next line of the process.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the other process has ended");
        line.trim_end().into()
    }

    /// Says a line and hears the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.control
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        self.hear()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It ends by itself unless something is wrong; then this test has failed already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_alone(name: &str) -> bool {
    std::env::var_os(ALONE).is_some_and(|alone| alone == name)
}

fn command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(ALONE, name);
    command
}

/// Physical memory of this process, in bytes: `Rss` is all of it, `Anonymous` is its own, without the pages of files
/// that it maps.
pub(crate) fn resident_bytes(which: &str) -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix(which)?.strip_prefix(':'))
        .unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Open files of this process.
pub(crate) fn open_files() -> usize {
    // The folder itself is open meanwhile.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// CPU time of this process.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
