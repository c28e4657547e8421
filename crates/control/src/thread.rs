//! Gives the control plane its thread and its time.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidemark_types::{Clock, DataPlane};

use crate::config::ControlConfig;
use crate::confine::confine;
use crate::error::ControlError;
use crate::handle::ControlHandle;
use crate::mailbox::{Mailbox, Message};
use crate::process;
use crate::state::State;
use crate::stepped::Stepped;

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
mod tests;
