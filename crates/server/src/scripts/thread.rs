//! The threads that run scripts: their engines, and what they do with one job after the other.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use tidemark_scripts::{Engine, Stopped, Watchman, name_of};
use tidemark_store::thread_cpu_time;
use tidemark_types::TenantId;

use super::data::Scratch;
use super::run::{self, Bounds, Outcome};
use super::transaction::{self, Stage};
use super::{Job, Kind};
use crate::counts::Count;
use crate::limits::{QUICK_SCRIPT_STEPS, QUICK_SCRIPT_TIME, SCRIPT_ENGINES, SCRIPT_STEPS, SCRIPT_TIME};
use crate::shared::Shared;

/// Threads of each kind: a script that takes long on one leaves another for the others.
const THREADS: usize = 2;
/// How much a slow thread yields to all others.
const NICENESS: i32 = 10;

/// The tools of a thread for its jobs.
pub(super) struct Tools {
    /// Those that were used last, with whose scripts they run: nobody's engine runs another's scripts.
    engines: VecDeque<(TenantId, Engine)>,
    pub(super) scratch: Scratch,
}

/// Starts the threads.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for number in 0..THREADS {
        for (name, is_slow) in [("script", false), ("slow", true)] {
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new()
                .name(format!("tidemark-{name}{number}"))
                .spawn(move || run(&shared, is_slow))?;
            threads.push(thread);
        }
    }
    Ok(threads)
}

/// Runs jobs until the server ends.
fn run(shared: &Arc<Shared>, is_slow: bool) {
    if is_slow && let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "lowering the priority of a thread for slow scripts");
    }
    let mut tools = Tools {
        engines: VecDeque::new(),
        scratch: Scratch::default(),
    };
    let scripts = &shared.scripts;
    while let Some(job) = if is_slow {
        scripts.next_slow()
    } else {
        scripts.next_quick()
    } {
        let began = thread_cpu_time();
        let reply = tools.work(&job, is_slow, shared);
        let used = thread_cpu_time().saturating_sub(began);
        let cpu_ns = used.as_nanos() as u64;
        job.tenant.counts.add(Count::CpuNanos, cpu_ns);
        shared.tenants.sockets().cpu.charge(cpu_ns);
        job.tenant.touch();
        scripts.settle(&job, cpu_ns, reply.is_some());
        if let Some(reply) = reply {
            job.end(reply);
        }
    }
}

impl Tools {
    /// Does a job. `None` if it takes longer than a quick thread gives it.
    fn work(&mut self, job: &Arc<Job>, is_slow: bool, shared: &Shared) -> Option<Vec<u8>> {
        if job.is_abandoned.load(Ordering::Relaxed) {
            return Some(Vec::new());
        }
        let mut engine = match self.engine(job.tenant.id) {
            Ok(engine) => engine,
            Err(error) => return Some(broken(&error.to_string())),
        };
        if let Kind::Transaction(transaction) = &job.kind {
            let mut transaction = transaction.lock();
            let mut stage = Stage {
                engine: &mut engine,
                scratch: &mut self.scratch,
                bounds: bounds(job, is_slow),
                shared,
            };
            let outcome = transaction::run(job, &transaction, &mut stage);
            let reply = self.end(job, engine, outcome, is_slow);
            if reply.is_some() {
                // Here no shard is locked, which it may be where the job ends.
                transaction.unwatch();
            }
            return reply;
        }
        let name = name_of(&job.text);
        if let Err(error) = engine.check(&name, &job.text) {
            self.put_back(job.tenant.id, engine);
            return Some(error_reply(&error));
        }
        job.tenant
            .scripts
            .lock()
            .get_or_insert_default()
            .insert(&name, &job.text);
        let Kind::Run { keys, args } = &job.kind else {
            self.put_back(job.tenant.id, engine);
            return Some(format!("${}\r\n{name}\r\n", name.len()).into_bytes());
        };
        let bounds = bounds(job, is_slow);
        let script = tidemark_scripts::Script {
            name: &name,
            text: &job.text,
            keys,
            args,
        };
        let outcome = run::run(&script, job, &mut engine, &mut self.scratch, &bounds, shared);
        self.end(job, engine, outcome, is_slow)
    }

    /// The reply, if this is the end. An engine that is of no use any more goes.
    fn end(
        &mut self,
        job: &Job,
        engine: Engine,
        outcome: Result<Outcome, tidemark_scripts::Broken>,
        is_slow: bool,
    ) -> Option<Vec<u8>> {
        match outcome {
            Ok(outcome) => {
                self.put_back(job.tenant.id, engine);
                match outcome {
                    Outcome::Reply(reply) => Some(reply),
                    Outcome::TooLong(_) if !is_slow => None,
                    Outcome::TooLong(reply) => Some(reply),
                }
            }
            Err(error) => Some(broken(&error.to_string())),
        }
    }

    /// A tenant's engine: the one that there is, or a new one.
    fn engine(&mut self, tenant: TenantId) -> Result<Engine, tidemark_scripts::Broken> {
        match self.engines.iter().position(|(of, _)| *of == tenant) {
            Some(at) => match self.engines.remove(at) {
                Some((_, engine)) => Ok(engine),
                None => Engine::new(),
            },
            None => Engine::new(),
        }
    }

    fn put_back(&mut self, tenant: TenantId, engine: Engine) {
        if engine.is_worn() {
            return;
        }
        if self.engines.len() >= SCRIPT_ENGINES {
            self.engines.pop_front();
        }
        self.engines.push_back((tenant, engine));
    }
}

/// The limits of a job on this thread.
fn bounds(job: &Arc<Job>, is_slow: bool) -> Bounds {
    let (steps_max, time) = if is_slow {
        (SCRIPT_STEPS, SCRIPT_TIME)
    } else {
        (QUICK_SCRIPT_STEPS, QUICK_SCRIPT_TIME)
    };
    let until = thread_cpu_time() + time;
    let watched = Arc::clone(job);
    let watchman: Watchman = Rc::new(move || look(&watched, until));
    Bounds { steps_max, watchman }
}

fn look(job: &Job, until: Duration) -> Option<Stopped> {
    if job.is_killed.load(Ordering::Relaxed) {
        return Some(Stopped::Killed);
    }
    (thread_cpu_time() >= until).then_some(Stopped::Time)
}

fn broken(error: &str) -> Vec<u8> {
    tracing::warn!(error, "a script could not be run");
    error_reply("ERR there is no memory to run the script")
}

/// A reply that is an error of this text.
pub(super) fn error_reply(text: &str) -> Vec<u8> {
    format!("-{}\r\n", text.replace(['\r', '\n'], " ")).into_bytes()
}
