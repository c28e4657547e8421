//! The node's memory shared with other instances: a folder, a lease, and the thread that keeps to it.
//!
//! `lease` is the statement of an instance, `folder` its place and form, `steward` the work of each period; the
//! decisions are [`tidemark_plan::node`]'s. The thread is one of its own. A folder that does not answer holds up no
//! round, and while the control plane does not answer, the lease does not change.

mod folder;
mod lease;
mod steward;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidemark_plan::node::Demand;
use tidemark_types::MIB;

use crate::config::FirstLease;
use crate::controller::LeaseReading;
use crate::error::ControlError;
use crate::handle::ControlHandle;
use crate::process;
use crate::settings::MIN_POOL_BYTES;
use crate::view::NodeView;
pub use folder::FolderError;
use steward::{HURRY, LeasedPool, Steward};

/// An instance that starts waits so long for the others to give it the least that it works with: a few of their periods.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);

/// Why an instance cannot share a node's memory.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// There is less memory than instances need.
    #[error("the node's memory is too little for one more instance: each needs at least {} MiB", MIN_POOL_BYTES / MIB)]
    TooLittle,
    /// The others did not give anything back in time.
    #[error(
        "no memory was free for this instance within {} s{}",
        JOIN_PATIENCE.as_secs(),
        problem.as_ref().map_or_else(String::new, |problem| format!(" ({problem})"))
    )]
    NoRoom {
        /// The problem, if there is one.
        problem: Option<String>,
    },
    /// The system gave no thread.
    #[error("the system refused a thread: {0}")]
    Thread(std::io::Error),
}

/// An instance that has a lease, but no pool yet. Dropping it gives the lease back.
pub struct Joined {
    steward: Steward,
    most_bytes: u64,
}

impl Joined {
    /// Makes a lease in the folder and waits until it is enough to work with. `most_bytes` is the most that the instance
    /// will have, and `period` the time between its looks at the folder.
    ///
    /// # Errors
    /// The folder cannot be used, there is too little memory for one more instance, or none was given back in time.
    pub fn join(folder: &Path, most_bytes: u64, period: Duration) -> Result<Self, NodeError> {
        let mut steward = Steward::join(folder, period)?;
        let mut arrival = Arrival {
            limit_bytes: 0,
            most_bytes,
        };
        let begun = Instant::now();
        loop {
            let wait = steward.tick(Instant::now(), &mut arrival);
            if steward.held_bytes() >= MIN_POOL_BYTES {
                return Ok(Self { steward, most_bytes });
            }
            if !steward.is_enough() {
                return Err(NodeError::TooLittle);
            }
            if begun.elapsed() >= JOIN_PATIENCE {
                let problem = steward.problem().map(str::to_owned);
                return Err(NodeError::NoRoom { problem });
            }
            // The others' work is only to be seen by looking again.
            std::thread::sleep(wait.min(HURRY));
        }
    }

    /// The lease that the pool may begin with.
    pub fn first_lease(&self) -> FirstLease {
        FirstLease {
            bytes: self.steward.held_bytes(),
            reach_bytes: self.steward.reach_bytes(self.most_bytes),
        }
    }

    /// Lets the pool of this control plane follow the lease from now on.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(self, control: ControlHandle) -> Result<NodeLease, NodeError> {
        let (sender, receiver) = channel();
        let mut steward = self.steward;
        let mut pool = Follower(control);
        let run = move || {
            if let Err(error) = process::lower_priority() {
                tracing::warn!(%error, "the lease's thread runs at the priority of the workers");
            }
            run(&mut steward, &mut pool, &receiver);
        };
        let thread = std::thread::Builder::new().name("tidemark-lease".into()).spawn(run);
        let thread = thread.map_err(NodeError::Thread)?;
        Ok(NodeLease { sender, thread })
    }
}

/// The running lease.
pub struct NodeLease {
    /// New periods; without it the thread ends.
    sender: Sender<Duration>,
    thread: JoinHandle<()>,
}

impl NodeLease {
    /// Changes the time between looks at the folder.
    pub fn set_period(&self, period: Duration) {
        // A thread that ended by a panic has been reported by the panic hook.
        let _ = self.sender.send(period);
    }

    /// Ends the thread and gives the lease back. It has to be called when the pool's memory is back with the system, or
    /// at the end of the process.
    pub fn stop(self) {
        drop(self.sender);
        // As above.
        let _ = self.thread.join();
    }
}

fn run(steward: &mut Steward, pool: &mut Follower, periods: &Receiver<Duration>) {
    let mut wait = Duration::ZERO;
    loop {
        match periods.recv_timeout(wait) {
            Ok(period) => steward.set_period(period),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        wait = steward.tick(Instant::now(), pool);
    }
}

/// The pool of an instance that is not there yet.
struct Arrival {
    limit_bytes: u64,
    most_bytes: u64,
}

impl LeasedPool for Arrival {
    fn reading(&mut self) -> Result<LeaseReading, ControlError> {
        Ok(LeaseReading {
            limit_bytes: self.limit_bytes,
            demand: Demand {
                most_bytes: self.most_bytes,
                ..Demand::default()
            },
            ..LeaseReading::default()
        })
    }

    fn follow(&mut self, limit_bytes: u64) -> Result<(), ControlError> {
        self.limit_bytes = limit_bytes;
        Ok(())
    }

    fn note(&mut self, _view: NodeView, _reach_bytes: u64) {}
}

/// The pool of a running control plane.
struct Follower(ControlHandle);

impl LeasedPool for Follower {
    fn reading(&mut self) -> Result<LeaseReading, ControlError> {
        self.0.lease_reading().wait()
    }

    fn follow(&mut self, limit_bytes: u64) -> Result<(), ControlError> {
        self.0.follow_lease(limit_bytes).wait()
    }

    fn note(&mut self, view: NodeView, reach_bytes: u64) {
        // Only callers that ask miss it, until the next time.
        let _ = self.0.note_node(view, reach_bytes).wait();
    }
}
