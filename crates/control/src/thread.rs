//! Gives the control plane its thread, its time and its mailbox.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidemark_types::{Clock, DataPlane};

use crate::confine::confine;
use crate::error::ControlError;
use crate::handle::{Command, ControlHandle};
use crate::metering::Metering;
use crate::process;
use crate::settings::{DEFAULT_HIT_COST, Idling};
use crate::state::State;
use crate::stepped::Stepped;
use crate::view::TenantAddress;
use crate::watch::Watch;

/// The limit of waiting commands. Each is answered within some milliseconds, with thousands of tenants within tenths of
/// a second, so more means that the thread hangs.
const MAX_WAITING: usize = 1024;
/// Rounds are at least this far apart, however often the data plane wakes: a hundred of them per second are not felt.
const MIN_ROUND_GAP: Duration = Duration::from_millis(10);
/// With thousands of tenants at work a round takes milliseconds: woken rounds then take at most a twentieth of the
/// time.
const MIN_GAP_PER_ROUND_TIME: u32 = 20;
/// While someone waits for a removed tenant's memory, a round comes so soon, and at the latest after an eighth of the
/// time of the wait so far. Most of the memory is back at once. Values pinned by a client that does not read may take a
/// minute.
const REMOVAL_ROUND_GAP: Duration = Duration::from_millis(20);
const REMOVAL_WAIT_DIVISOR: u32 = 8;
/// The longest of these gaps, so that the limit of the wait is kept.
const REMOVAL_ROUND_PERIOD: Duration = Duration::from_secs(1);

/// How the control plane is set up.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// The configured memory.
    pub pool_bytes: u64,
    /// The largest pool that this machine can back.
    pub pool_limit_bytes: u64,
    /// The flash below the memory of all tenants; zero: there is none.
    pub flash_bytes: u64,
    /// How many workers the data plane has.
    pub workers: usize,
    /// How tenants come and go.
    pub idling: Idling,
    /// The least time of a hit from the client's side. Beside it, the time of misses says how much a hit is worth.
    pub hit_cost: Duration,
    /// The addresses on which the server listens, for the API.
    pub listeners: Listeners,
    /// The receivers of events.
    pub watch: Watch,
    /// The call that makes the control thread yield to those that serve clients: planning can wait, a client cannot.
    /// The default lowers its priority. A client on the same core may still wait for a slice of some milliseconds then,
    /// if the thread's work is in one piece.
    pub step_back: fn() -> io::Result<()>,
    /// The first lease, if the pool follows a lease on the node's memory; `pool_bytes` is then the limit. `None`: the
    /// pool is the server's own.
    pub lease: Option<FirstLease>,
    /// How use is metered; `None`: it is not, and its fields in the API are null.
    pub metering: Option<Metering>,
}

/// The first lease of a pool that follows one. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstLease {
    /// The lease.
    pub bytes: u64,
    /// The size that it could reach.
    pub reach_bytes: u64,
}

impl ControlConfig {
    /// A pool of so many bytes, which may be made as large as `pool_limit_bytes`, for so many workers; nothing listens.
    pub fn new(pool_bytes: u64, pool_limit_bytes: u64, workers: usize) -> Self {
        Self {
            pool_bytes,
            pool_limit_bytes,
            flash_bytes: 0,
            workers,
            idling: Idling::default(),
            hit_cost: DEFAULT_HIT_COST,
            listeners: Listeners::default(),
            watch: Watch::default(),
            step_back: process::lower_priority,
            lease: None,
            metering: None,
        }
    }
}

/// The addresses on which the server listens; `None` is off.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    /// The memcached protocol.
    pub memcached: Option<SocketAddr>,
    /// The Redis protocol.
    pub redis: Option<SocketAddr>,
    /// The addresses for clients of single tenants.
    pub of_tenants: Vec<TenantAddress>,
    /// The admin API.
    pub admin: Option<SocketAddr>,
}

pub(crate) enum Message {
    Wake,
    Command(Command),
    Stop,
}

/// The place at which commands and wakes arrive. It is made before the data plane, which wakes through it, and before
/// the control plane, which reads it.
pub struct Mailbox {
    pub(crate) sender: SyncSender<Message>,
    pub(crate) receiver: Receiver<Message>,
    pub(crate) woken: Arc<AtomicBool>,
}

impl Default for Mailbox {
    fn default() -> Self {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        Self {
            sender,
            receiver,
            woken: Arc::default(),
        }
    }
}

impl Mailbox {
    /// The waker that the data plane calls when something cannot wait for the next round. It never blocks, and all
    /// calls until that round are one.
    pub fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let (sender, woken) = (self.sender.clone(), Arc::clone(&self.woken));
        Arc::new(move || {
            if !woken.swap(true, Ordering::AcqRel) {
                // A full mailbox wakes the thread as well, and it looks at the flag after each message.
                let _ = sender.try_send(Message::Wake);
            }
        })
    }
}

/// The running control plane.
pub struct Control {
    handle: ControlHandle,
    thread: JoinHandle<Result<(), ControlError>>,
}

impl Control {
    /// Reads the state, publishes the first plan, and starts the thread. When this returns, every tenant can log
    /// in.
    ///
    /// # Errors
    /// The state cannot be read or written, the configured pool is impossible, or there is no thread to be had.
    pub fn start(
        mailbox: Mailbox,
        state: impl State + 'static,
        data_plane: Arc<dyn DataPlane>,
        clock: Arc<dyn Clock>,
        config: ControlConfig,
    ) -> Result<Self, ControlError> {
        let step_back = config.step_back;
        let mut stepped = Stepped::new(mailbox, state, data_plane, clock, config)?;
        let handle = stepped.handle();
        let run = move || {
            if let Err(error) = step_back().or_else(|_| process::lower_priority()) {
                tracing::warn!(%error, "the control thread runs at the priority of the workers");
            }
            stepped.take_rests();
            match confine(|| run(&mut stepped)) {
                Ok(()) => confine(|| stepped.end()).map_err(|_| {
                    tracing::error!("a panic at its end: what idle tenants held is not remembered");
                    ControlError::Stopped
                }),
                Err(panicked) => {
                    // This is first: a reader of the log may look at the state that it names.
                    stepped.abandon();
                    tracing::error!("the control plane has ended by a panic: {panicked}");
                    stepped.refuse_all();
                    Err(ControlError::Stopped)
                }
            }
        };
        let thread = std::thread::Builder::new().name("tidemark-control".into()).spawn(run);
        let thread = thread.map_err(|error| ControlError::System {
            what: "a thread",
            detail: error.to_string(),
        })?;
        Ok(Self { handle, thread })
    }

    /// The handle for those that command it.
    pub fn handle(&self) -> ControlHandle {
        self.handle.clone()
    }

    /// Ends the thread after the commands that are waiting, and closes the state file.
    ///
    /// # Errors
    /// [`ControlError::Stopped`]: the control plane had already ended by a panic, or did so now.
    pub fn stop(self) -> Result<(), ControlError> {
        // An error means that the thread is gone, which the join reports.
        let _ = self.handle.sender.send(Message::Stop);
        self.thread.join().unwrap_or(Err(ControlError::Stopped))
    }
}

fn run(stepped: &mut Stepped) {
    let mut last = LastRound {
        ended_at: Instant::now(),
        took: Duration::ZERO,
    };
    loop {
        let due = last.next_due(stepped);
        match stepped
            .mailbox
            .receiver
            .recv_timeout(due.saturating_duration_since(Instant::now()))
        {
            Ok(message) => {
                if stepped.obey(message) {
                    return;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // The command may have changed the period, and the flag may have been set while the thread waited.
        if Instant::now() >= last.next_due(stepped) {
            let before = process::thread_cpu_time();
            stepped.round();
            last = LastRound {
                ended_at: Instant::now(),
                took: process::thread_cpu_time().saturating_sub(before),
            };
        }
    }
}

/// When the next round comes while someone has waited so long for a removed tenant's memory.
fn removal_gap(waited: Duration) -> Duration {
    (waited / REMOVAL_WAIT_DIVISOR).clamp(REMOVAL_ROUND_GAP, REMOVAL_ROUND_PERIOD)
}

/// The last round in time.
struct LastRound {
    ended_at: Instant,
    /// This is CPU time: rests and waits do not count.
    took: Duration,
}

impl LastRound {
    /// When the next one is due.
    fn next_due(&self, stepped: &Stepped) -> Instant {
        let period = stepped.round_period();
        let woken_gap = MIN_ROUND_GAP.max(self.took * MIN_GAP_PER_ROUND_TIME);
        self.ended_at
            + match (stepped.is_woken(), stepped.removing_for()) {
                (true, _) => period.min(woken_gap),
                (false, Some(waited)) => period.min(removal_gap(waited).max(woken_gap)),
                (false, None) => period,
            }
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
