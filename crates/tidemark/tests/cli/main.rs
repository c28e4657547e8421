//! The command as people and scripts use it: the real binary, its output, its exit codes.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod agent;
mod agent_history;
mod agent_memory;
mod backup;
mod cachelets;
mod calibrate;
mod commands;
mod curve;
mod deploy;
mod disk;
mod flash;
mod functions;
mod latency;
mod ledger;
mod listeners;
mod node;
mod otlp;
mod plan;
mod prometheus;
mod removal;
mod s3;
mod s3_faults;
mod s3_pools;
mod screen;
mod secrets;
mod spending;
mod start;
mod top;
mod usage;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NOT_FOUND: i32 = 3;
const DENIED: i32 = 4;
/// Far longer than anything takes, so that only what never comes is missed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary without any variable of the caller's that it would follow.
fn tidemark() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEMARK_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    tidemark().args(arguments).output().unwrap()
}

/// Waits until something is so. Returns how long that took.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        // A look without a rest takes a core from those that are waited for.
        std::thread::park_timeout(Duration::from_millis(5));
    }
    begun.elapsed()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Fails with this exit code, one line that holds all of these parts, and nothing on standard output.
fn check_fails(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = run(arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: {part}: {message}");
    }
    assert_eq!(message.trim_end().lines().count(), 1, "{arguments:?}: {message}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
}

/// A process that ends with the test.
struct Running(Child);

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed does not care how the process ends, and one that has ended is not there to be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server on free ports, in a folder whose name has a space.
struct Server {
    child: Running,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// The part of standard error that was read so far.
    log: String,
    ready: String,
    folder: TempDir,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), more)
    }

    fn start_in(folder: TempDir, more: &[&str]) -> Self {
        let mut command = tidemark();
        command
            .args(["serve", "--data", &data(&folder)])
            .args(more)
            .env("TIDEMARK_MEMORY", "64MiB")
            .envs(["MEMCACHED", "REDIS", "ADMIN"].map(|name| (format!("TIDEMARK_{name}"), "127.0.0.1:0")));
        Self::started(command, folder)
    }

    /// The server or agent that a command starts, with its data in that folder.
    fn started(mut command: Command, folder: TempDir) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let (mut ready, mut log) = (String::new(), String::new());
        stdout.read_line(&mut ready).unwrap();
        if ready.is_empty() {
            stderr.read_to_string(&mut log).unwrap();
            panic!("no ready line: {log}");
        }
        Self {
            child: Running(child),
            stdout,
            stderr,
            log,
            ready: ready.trim_end().to_owned(),
            folder,
        }
    }

    fn data(&self) -> String {
        data(&self.folder)
    }

    /// A command about this server.
    fn run(&self, arguments: &[&str]) -> Output {
        tidemark()
            .args(arguments)
            .env("TIDEMARK_DATA", self.data())
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Asks it to end and gives its exit code and its standard error.
    fn stop(mut self) -> (Option<i32>, String, TempDir) {
        self.signal(Signal::TERM);
        self.stderr.read_to_string(&mut self.log).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "only the ready line is on standard output");
        (self.child.wait().unwrap().code(), self.log, self.folder)
    }

    /// Waits for a further line of the log that holds `part`.
    fn wait_for_log(&mut self, part: &str) {
        loop {
            let before = self.log.len();
            assert!(
                self.stderr.read_line(&mut self.log).unwrap() > 0,
                "no {part}: {}",
                self.log
            );
            if self.log[before..].contains(part) {
                return;
            }
        }
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn data(folder: &TempDir) -> String {
    folder.path().join("the data").to_str().unwrap().to_owned()
}
