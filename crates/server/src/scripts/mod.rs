//! Scripts of clients: who waits, whose turn it is, and the threads that run them.
//!
//! A script's connection is parked ([`crate::suspend`]) while the script runs on a thread of its own, so that no worker
//! waits for it. A tenant's scripts run one after the other. The tenant whose scripts have taken least, by weight, is
//! next. Every script begins on a *quick* thread. One that takes longer than most is begun anew on a *slow* thread, of
//! low priority. Until a script ends it has done nothing that anybody sees ([`run`]), so nothing is lost but its time.
//!
//! Invariant: a job is in one place, waiting in its tenant's lane, on a thread, or waiting for a slow one, and is answered once.

mod data;
mod known;
mod run;
mod thread;
mod transaction;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tidemark_protocol::resp::Version;
use tidemark_types::{Permissions, TenantId};

use crate::clients::Client;
use crate::limits::{SCRIPT_LANES_KEPT, SCRIPTS_WAITING};
use crate::shared::Shared;
use crate::tenant::Tenant;
use crate::transaction::Transaction;
use crate::worker::Mailbox;

pub(crate) use known::Known;

/// Threads of each kind: a script that takes long on one leaves another for the others.
const THREADS: usize = 2;

/// A script that was called.
pub(crate) struct Job {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) client: Arc<Client>,
    pub(crate) db: u8,
    pub(crate) version: Version,
    pub(crate) permissions: Permissions,
    /// It may not write (EVAL_RO).
    pub(crate) is_read_only: bool,
    /// Its text; it is only made known if it has no keys and arguments because it is only loaded.
    pub(crate) text: Arc<[u8]>,
    pub(crate) kind: Kind,
    state: Mutex<State>,
    /// Nobody waits for it any more.
    is_abandoned: AtomicBool,
    /// Somebody asked for its end.
    is_killed: AtomicBool,
}

/// The action for a script.
#[derive(Debug)]
pub(crate) enum Kind {
    /// It is made known.
    Load,
    /// It is run.
    Run { keys: Vec<Box<[u8]>>, args: Vec<Box<[u8]>> },
    /// A transaction with scripts in it is run, of which the job has no text. Only the thread that runs it locks it.
    Transaction(Mutex<Box<Transaction>>),
}

/// How far a job is.
enum State {
    Pending(Option<Waiter>),
    Done(Vec<u8>),
}

/// Whom to tell.
struct Waiter {
    mailbox: Arc<Mailbox>,
    place: usize,
    client: u64,
    parking: u64,
}

impl Waiter {
    fn tell(&self) {
        self.mailbox.tell_of_script(self.place, self.client, self.parking);
    }
}

/// The caller of a script, and the arguments.
pub(crate) struct Caller {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) client: Arc<Client>,
    pub(crate) db: u8,
    pub(crate) version: Version,
    pub(crate) permissions: Permissions,
}

impl Job {
    pub(crate) fn new(caller: Caller, is_read_only: bool, text: Arc<[u8]>, kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            tenant: caller.tenant,
            client: caller.client,
            db: caller.db,
            version: caller.version,
            permissions: caller.permissions,
            is_read_only,
            text,
            kind,
            state: Mutex::new(State::Pending(None)),
            is_abandoned: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
        })
    }

    /// Has a parked connection told when the job is done.
    pub(crate) fn wait(&self, mailbox: &Arc<Mailbox>, place: usize, client: u64, parking: u64) {
        let waiter = Waiter {
            mailbox: Arc::clone(mailbox),
            place,
            client,
            parking,
        };
        match &mut *self.state.lock() {
            State::Pending(waiting) => *waiting = Some(waiter),
            State::Done(_) => waiter.tell(),
        }
    }

    /// The reply, once it is there.
    pub(crate) fn reply(&self) -> Option<Vec<u8>> {
        match &mut *self.state.lock() {
            State::Pending(_) => None,
            State::Done(reply) => Some(std::mem::take(reply)),
        }
    }

    fn end(&self, reply: Vec<u8>) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Done(reply));
        if let State::Pending(Some(waiter)) = before {
            waiter.tell();
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A connection's hold on its script: one that is let go before it began is not run.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) job: Arc<Job>,
    /// Memory that the job holds, as far as it is the connection's.
    pub(crate) bytes: usize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.job.is_abandoned.store(true, Ordering::Relaxed);
    }
}

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
    /// Starts the threads.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Vec<JoinHandle<()>>> {
        let mut threads = Vec::new();
        for number in 0..THREADS {
            for (name, is_slow) in [("script", false), ("slow", true)] {
                let shared = Arc::clone(shared);
                let thread = std::thread::Builder::new()
                    .name(format!("tidemark-{name}{number}"))
                    .spawn(move || thread::run(&shared, is_slow))?;
                threads.push(thread);
            }
        }
        Ok(threads)
    }

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
