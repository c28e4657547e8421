//! Scripts of clients: who waits, whose turn it is, and the threads that run them.
//!
//! A script's connection is parked ([`crate::suspend`]) while the script runs on a thread of its own, so that no worker
//! waits for it. A tenant's scripts run one after the other. The tenant whose scripts have taken least, by weight, is
//! next. Every script begins on a *quick* thread. One that takes longer than most is begun anew on a *slow* thread, of
//! low priority. Until a script ends it has done nothing that anybody sees ([`run`]), so nothing is lost but its time.
//!
//! Invariant: a job is in one place, waiting in its tenant's lane, on a thread, or waiting for a slow one, and is answered once.

mod data;
mod job;
mod known;
mod run;
mod thread;
mod transaction;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};
use tidemark_types::TenantId;

use crate::limits::{SCRIPT_LANES_KEPT, SCRIPTS_WAITING};

pub(crate) use job::{Caller, Handle, Job, Kind};
pub(crate) use known::Known;
pub(crate) use thread::start;

/// The scripts of all tenants.
#[derive(Default)]
pub(crate) struct Scripts {
    queues: Mutex<Queues>,
    /// A job came, for a quick thread or a slow one.
    quick: Condvar,
    slow: Condvar,
}

#[derive(Default)]
struct Queues {
    lanes: HashMap<TenantId, Lane>,
    /// Lanes with jobs of which none is under way, by their clocks.
    ready: BTreeSet<(u64, TenantId)>,
    /// Jobs that take long.
    long: VecDeque<Arc<Job>>,
    /// The clock of the lane that was served last: a lane that comes anew is not behind it.
    clock_ns: u64,
    is_ending: bool,
}

/// A tenant's scripts.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Arc<Job>>,
    under_way: Option<Arc<Job>>,
    /// The time that its scripts have taken, divided by its weight.
    clock_ns: u64,
}

/// So many scripts of the tenant wait already.
pub(crate) struct TooMany;

impl Scripts {
    /// Has a job run when its tenant's turn comes.
    pub(crate) fn submit(&self, job: &Arc<Job>) -> Result<(), TooMany> {
        let mut queues = self.queues.lock();
        let clock_ns = queues.clock_ns;
        if queues.lanes.len() >= SCRIPT_LANES_KEPT {
            // Those that are not behind have nothing to be remembered for.
            queues
                .lanes
                .retain(|_, lane| !lane.is_idle() || lane.clock_ns > clock_ns);
        }
        let lane = queues.lanes.entry(job.tenant.id).or_default();
        if lane.waiting.len() >= SCRIPTS_WAITING {
            return Err(TooMany);
        }
        lane.clock_ns = lane.clock_ns.max(clock_ns);
        lane.waiting.push_back(Arc::clone(job));
        if lane.under_way.is_none() {
            let entry = (lane.clock_ns, job.tenant.id);
            queues.ready.insert(entry);
            self.quick.notify_one();
        }
        Ok(())
    }

    /// Ends the script of a tenant that is under way. Whether there was one.
    pub(crate) fn kill(&self, tenant: TenantId) -> bool {
        let queues = self.queues.lock();
        let job = queues.lanes.get(&tenant).and_then(|lane| lane.under_way.as_ref());
        if let Some(job) = job {
            job.is_killed.store(true, Ordering::Relaxed);
        }
        job.is_some()
    }

    /// Ends what is under way, and the threads.
    pub(crate) fn end(&self) {
        let mut queues = self.queues.lock();
        queues.is_ending = true;
        let under_way = queues.lanes.values().filter_map(|lane| lane.under_way.as_ref());
        under_way.for_each(|job| job.is_killed.store(true, Ordering::Relaxed));
        self.quick.notify_all();
        self.slow.notify_all();
    }

    /// The next job for a quick thread; `None` when the server ends.
    fn next_quick(&self) -> Option<Arc<Job>> {
        let mut queues = self.queues.lock();
        while !queues.is_ending {
            let queues_now = &mut *queues;
            if let Some((clock_ns, tenant)) = queues_now.ready.pop_first()
                && let Some(lane) = queues_now.lanes.get_mut(&tenant)
                && let Some(job) = lane.waiting.pop_front()
            {
                queues_now.clock_ns = queues_now.clock_ns.max(clock_ns);
                lane.under_way = Some(Arc::clone(&job));
                return Some(job);
            }
            self.quick.wait(&mut queues);
        }
        None
    }

    /// The same for a slow one.
    fn next_slow(&self) -> Option<Arc<Job>> {
        let mut queues = self.queues.lock();
        while !queues.is_ending {
            if let Some(job) = queues.long.pop_front() {
                return Some(job);
            }
            self.slow.wait(&mut queues);
        }
        None
    }

    /// A job has taken so much of a thread's time. It is done, and its tenant's next one may begin, or goes on to a slow thread.
    fn settle(&self, job: &Arc<Job>, cpu_ns: u64, is_done: bool) {
        let mut queues = self.queues.lock();
        let queues = &mut *queues;
        let Some(lane) = queues.lanes.get_mut(&job.tenant.id) else {
            return;
        };
        lane.clock_ns += cpu_ns / job.tenant.weight().max(1);
        if !is_done {
            queues.long.push_back(Arc::clone(job));
            self.slow.notify_one();
            return;
        }
        lane.under_way = None;
        if !lane.waiting.is_empty() {
            queues.ready.insert((lane.clock_ns, job.tenant.id));
            self.quick.notify_one();
        }
    }
}

impl Lane {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }
}
