//! Processes that an experiment starts, and their end.
//!
//! Invariant: a process that was started here ends when its [`Process`] is dropped or when this process is asked to end
//! (Ctrl-C, SIGTERM). It is ended by its own id, never by its name. Its folder goes with it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use super::cores::Cores;
use crate::Error;

/// The processes that run now, and their folders.
#[derive(Clone, Debug, Default)]
pub struct Children {
    running: Arc<Mutex<Vec<(Pid, PathBuf)>>>,
}

impl Children {
    /// Ends all of them when this process is asked to end, and then this process.
    ///
    /// # Errors
    /// The system's.
    pub fn end_on_signals(&self) -> io::Result<JoinHandle<()>> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let children = self.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let running = children.running.lock().unwrap_or_else(PoisonError::into_inner);
                for (pid, folder) in running.iter() {
                    // One that has ended already is not there any more: nothing is left to do.
                    let _ = kill_process(*pid, Signal::KILL);
                    let _ = std::fs::remove_dir_all(folder);
                }
                std::process::exit(128 + signal);
            }
        })
    }

    fn add(&self, pid: Pid, folder: &Path) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.push((pid, folder.to_owned()));
    }

    /// Called while the process was not waited for yet, so that its id is still its own.
    fn remove(&self, pid: Pid) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|(other, _)| *other != pid);
    }
}

/// A process with a folder of its own.
#[derive(Debug)]
pub(super) struct Process {
    program: String,
    child: Child,
    pid: Pid,
    stdout: BufReader<ChildStdout>,
    folder: TempDir,
    children: Children,
}

/// The file of a process's log, in its folder.
pub(super) const LOG: &str = "log";

impl Process {
    /// Starts a program on the servers' core. `arrange` adds its arguments; the folder is empty and its own.
    pub(super) fn start(
        program: &Path,
        (children, cores): (&Children, &Cores),
        arrange: impl FnOnce(&mut Command, &Path),
    ) -> Result<Self, Error> {
        let name = program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned();
        let failed = |what: &str, error: &io::Error| Error::Program {
            program: program.display().to_string(),
            reason: format!("{what}: {error}"),
        };
        let folder =
            TempDir::with_prefix("tidemark-experiments-").map_err(|error| failed("making a folder", &error))?;
        let log = File::create(folder.path().join(LOG)).map_err(|error| failed("making a file", &error))?;
        let mut command = Command::new(program);
        // Settings of the user that runs the experiment are not the server's.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEMARK_") {
                command.env_remove(name);
            }
        }
        arrange(&mut command, folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let started = cores.on_server_core(|| command.spawn());
        let mut child = started
            .flatten()
            .map_err(|error| failed("can not be started", &error))?;
        let pid = Pid::from_child(&child);
        children.add(pid, folder.path());
        let Some(stdout) = child.stdout.take() else {
            // It was asked for above.
            return Err(failed("no standard output", &io::ErrorKind::BrokenPipe.into()));
        };
        Ok(Self {
            program: name,
            child,
            pid,
            stdout: BufReader::new(stdout),
            folder,
            children: children.clone(),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says on standard output.
    pub(super) fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        match read {
            Ok(length) if length > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(self.failure("it ended before it was ready")),
        }
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The failure, with the process's own words about it.
    pub(super) fn failure(&self, what: &str) -> Error {
        let said = std::fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        Error::Program {
            program: self.program.clone(),
            reason: last.map_or_else(|| what.to_owned(), |last| format!("{what}: {last}")),
        }
    }

    /// Sends it a signal of its own, as Ctrl-C sends `SIGINT`.
    pub(super) fn signal(&self, signal: Signal) {
        // One that has ended already needs none.
        let _ = kill_process(self.pid, signal);
    }

    /// Waits until it has ended.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.child.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.children.remove(self.pid);
        // Neither fails for a child that was not waited for, and one that was has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
