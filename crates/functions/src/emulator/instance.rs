//! One instance: a process, and the event that it has or waits for.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

use super::Config;
use crate::event::EMULATED;

/// An event as the Runtime API gives it.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) request: String,
    pub(super) body: Bytes,
    pub(super) deadline_ms: u64,
}

/// The program's answer to an event.
#[derive(Debug)]
pub(super) enum Outcome {
    Response(Bytes),
    Error(Bytes),
}

#[derive(Debug, Default)]
struct State {
    /// An invocation has it.
    is_busy: bool,
    is_frozen: bool,
    has_ended: bool,
    /// The program waits for an event here.
    waiting: Option<oneshot::Sender<Event>>,
    /// An event that the program has not asked for yet.
    event: Option<Event>,
    /// The event that it has, with the receiver of the outcome.
    current: Option<(String, oneshot::Sender<Outcome>)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Instance {
    id: u64,
    pid: Option<Pid>,
    freezes: bool,
    state: Mutex<State>,
    started: watch::Sender<bool>,
}

impl Instance {
    /// Starts its process. It is taken already.
    pub(super) fn start(
        id: u64,
        name: &str,
        memory_mib: u64,
        config: &Config,
        api: SocketAddr,
    ) -> std::io::Result<(Self, Child)> {
        let child = Command::new(&config.program)
            .args(&config.arguments)
            .env("AWS_LAMBDA_FUNCTION_NAME", name)
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", memory_mib.to_string())
            .env("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{name}"))
            .env("AWS_LAMBDA_LOG_STREAM_NAME", id.to_string())
            .env("AWS_LAMBDA_RUNTIME_API", api.to_string())
            .env(EMULATED, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let instance = Self {
            id,
            pid,
            freezes: config.freezes,
            state: Mutex::new(State {
                is_busy: true,
                ..State::default()
            }),
            started: watch::channel(false).0,
        };
        Ok((instance, child))
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Takes it for an invocation, if it is free.
    pub(super) fn take(&self) -> bool {
        let mut state = self.state.lock();
        !state.has_ended && !std::mem::replace(&mut state.is_busy, true)
    }

    /// Waits until the program has asked for its first event.
    pub(super) async fn is_started(&self, patience: Duration) -> bool {
        let mut started = self.started.subscribe();
        let is_there = started.wait_for(|is_started| *is_started);
        matches!(tokio::time::timeout(patience, is_there).await, Ok(Ok(_)))
    }

    /// Gives the program an event. `None`: the process ended before it answered.
    pub(super) async fn run(&self, request: String, body: Bytes, timeout: Duration) -> Option<Outcome> {
        let (outcome, waiting) = oneshot::channel();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + timeout;
        let event = Event {
            request: request.clone(),
            body,
            deadline_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        };
        {
            let mut state = self.state.lock();
            if state.has_ended {
                return None;
            }
            state.current = Some((request, outcome));
            self.thaw(&mut state);
            state.event = match state.waiting.take() {
                Some(waiting) => waiting.send(event).err(),
                None => Some(event),
            };
        }
        waiting.await.ok()
    }

    /// The program asks for its next event.
    pub(super) async fn next(&self) -> Option<Event> {
        let waiting = {
            let mut state = self.state.lock();
            if let Some(event) = state.event.take() {
                return Some(event);
            }
            let (sender, waiting) = oneshot::channel();
            state.waiting = Some(sender);
            if self.freezes && state.current.is_none() {
                self.signal(Signal::STOP);
                state.is_frozen = true;
            }
            waiting
        };
        self.started.send_replace(true);
        waiting.await.ok()
    }

    /// The program's outcome of an event. Whether it had that.
    pub(super) fn outcome(&self, request: &str, outcome: Outcome) -> bool {
        let mut state = self.state.lock();
        match state.current.take() {
            Some((current, waiting)) if current == request => {
                state.is_busy = false;
                drop(waiting.send(outcome));
                true
            }
            other => {
                state.current = other;
                false
            }
        }
    }

    /// Ends the process at once.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
        self.has_ended();
    }

    /// The process has ended: nobody waits for it.
    pub(super) fn has_ended(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        (state.current, state.waiting, state.event) = (None, None, None);
    }

    fn thaw(&self, state: &mut State) {
        if std::mem::take(&mut state.is_frozen) {
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            let _ = kill_process(pid, signal);
        }
    }
}
