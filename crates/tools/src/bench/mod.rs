//! `tidemark bench`: a generated load on a running server, and its result.
//!
//! Closed loop: each connection keeps its pipeline full and sends the next request when a reply came. Open loop (a
//! rate): requests are due at fixed times, whatever the server does. Latency counts from when a request was due, so
//! that a stalled server shows it in every request that it delayed. This avoids "coordinated omission".
//!
//! Invariant: every request is counted once, as answered well or as an error; nothing is allocated per request. Times are
//! nanoseconds since the phase began inside, microseconds in reports.

mod report;
mod schedule;
mod session;
mod tally;
mod worker;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::{Login, Protocol};
use crate::process_cpu::Listener;

pub use crate::load::Workload;
pub use report::{Latency, Mistakes, Report};
use schedule::Schedule;
use tally::Tally;
use worker::{Phase, Worker};

/// Connections: an address has fewer than 65,536 ports, and some are in use.
pub const MAX_CONNECTIONS: usize = 60_000;
/// Requests in flight per connection: beyond it only the buffers grow.
pub const MAX_PIPELINE: usize = 10_000;
/// Threads: more than any machine that Tidemark was seen on has cores for.
pub const MAX_THREADS: usize = 256;
/// The longest measurement: a day.
pub const MAX_SECONDS: f64 = 86_400.0;
/// Requests per second in open loop: one per nanosecond can be told apart.
pub const MAX_RATE: f64 = 1e9;
/// How often progress is told.
const OBSERVED_EVERY: Duration = Duration::from_secs(1);

/// The measurement that is to be made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub address: SocketAddr,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// The logins of the connections, in rotation; `None` is a connection that does not log in.
    pub logins: Vec<Option<Login>>,
    /// Whether the connections of each login ask for keys of their own, behind those of the login before. This is for
    /// logins of one tenant, which then asks for as many keys as that many tenants would.
    pub keys_apart: bool,
    /// Connections of all tenants and threads together.
    pub connections: usize,
    /// Requests in flight per connection.
    pub pipeline: usize,
    /// Threads that share the connections.
    pub threads: usize,
    /// The requests.
    pub workload: Workload,
    /// Requests per second of all connections together, in open loop; closed loop where there is none.
    pub rate: Option<f64>,
    /// How many requests of an open loop are due together, on one connection: 1 for evenly spaced ones.
    pub burst: usize,
    /// Whether an open loop sleeps until the next request is due, for others on the same core. Otherwise it is awake
    /// for the last two milliseconds, and sends in time.
    pub sleeps: bool,
    /// How long is measured, in seconds.
    pub seconds: f64,
    /// Whether all keys are stored before the measurement.
    pub preload: bool,
    /// Whether a miss is followed by storing the key.
    pub look_aside: bool,
    /// Whether every byte of every value is checked, not only its length and key.
    pub verify: bool,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Whether the keys are still being stored.
    pub preloading: bool,
    /// The time since this part of the run began.
    pub elapsed: Duration,
    /// Requests answered in this part.
    pub requests: u64,
    /// The number of those that were answered with an error.
    pub errors: u64,
    /// How much of this part is done, 0 to 1.
    pub done_ratio: f64,
}

/// The state that threads share with each other and the observer.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    requests: AtomicU64,
    errors: AtomicU64,
    stop: AtomicBool,
}

/// Runs the load and measures it; `observe` is told once a second how far it is.
///
/// # Errors
/// The options make no sense, or the server cannot be reached. Other errors: it refuses a login or every request,
/// closes a connection, or does not speak the protocol.
pub fn run(options: &Options, observe: &mut dyn FnMut(&Progress)) -> Result<Report, Error> {
    Load::open(options, observe)?.measure(observe)
}

/// A load with its connections, which can be measured again and again.
pub struct Load {
    options: Options,
    workers: Vec<Worker>,
    preload: Tally,
    listener: Option<Listener>,
}

impl Load {
    /// Opens the connections, and stores the keys if that is asked for.
    ///
    /// # Errors
    /// The errors of [`run`].
    pub fn open(options: &Options, observe: &mut dyn FnMut(&Progress)) -> Result<Self, Error> {
        check(options)?;
        raise_descriptor_limit(options.connections);
        let mut workers = (0..options.threads)
            .map(|index| Worker::new(options, index))
            .collect::<Result<Vec<_>, _>>()?;
        let preload = if options.preload {
            preload(options, &mut workers, observe)?
        } else {
            Tally::default()
        };
        let listener = workers
            .iter()
            .any(Worker::is_local)
            .then(|| Listener::find(options.address))
            .flatten();
        Ok(Self {
            options: options.clone(),
            workers,
            preload,
            listener,
        })
    }

    /// Runs the load for as long as its options say.
    ///
    /// # Errors
    /// The errors of [`run`].
    pub fn measure(&mut self, observe: &mut dyn FnMut(&Progress)) -> Result<Report, Error> {
        let options = &self.options;
        let length_ns = Duration::from_secs_f64(options.seconds);
        let length_ns = u64::try_from(length_ns.as_nanos()).unwrap_or(u64::MAX);
        let phase = |index| Phase::Measure {
            end_ns: length_ns,
            schedule: options
                .rate
                .map(|rate| Schedule::new(rate, options.burst, (index, options.threads), length_ns)),
        };
        let cpu_ns = || self.listener.as_ref().and_then(Listener::cpu_ns);
        let cpu_before = cpu_ns();
        let tally = run_phase(&mut self.workers, phase, &mut |progress| {
            observe(&Progress {
                preloading: false,
                done_ratio: (progress.elapsed.as_secs_f64() / options.seconds).min(1.0),
                ..*progress
            });
        })?;
        let cpu_ns = cpu_before
            .zip(cpu_ns())
            .and_then(|(before, after)| after.checked_sub(before));
        refuse_useless(options.address, &tally)?;
        Ok(Report::new(&tally, &self.preload, cpu_ns))
    }
}

/// Stores every key of every tenant once.
fn preload(options: &Options, workers: &mut [Worker], observe: &mut dyn FnMut(&Progress)) -> Result<Tally, Error> {
    let all = options.workload.keys as f64 * options.logins.len() as f64;
    let tally = run_phase(workers, |_| Phase::Preload, &mut |progress| {
        let done_ratio = (progress.requests as f64 / all).min(1.0);
        observe(&Progress {
            preloading: true,
            done_ratio,
            ..*progress
        });
    })?;
    refuse_useless(options.address, &tally)?;
    Ok(tally)
}

/// Runs a phase in every worker's thread until all are through or one failed.
fn run_phase(
    workers: &mut [Worker],
    phase: impl Fn(usize) -> Phase,
    observe: &mut dyn FnMut(&Progress),
) -> Result<Tally, Error> {
    let shared = Shared::default();
    let start = Instant::now();
    let running = workers.len();
    let (ended, ends) = mpsc::channel();
    let results: Vec<Result<Tally, Error>> = std::thread::scope(|scope| {
        let shared = &shared;
        let mut threads = Vec::with_capacity(running);
        for (index, worker) in workers.iter_mut().enumerate() {
            let (phase, ended) = (phase(index), ended.clone());
            threads.push(scope.spawn(move || {
                let result = worker.run(phase, shared, start);
                if result.is_err() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                // The observer may have gone already.
                let _ = ended.send(());
                result
            }));
        }
        watch(&ends, running, start, shared, observe);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut total = Tally::default();
    for result in results {
        total.add(&result?);
    }
    Ok(total)
}

/// Tells the observer how far it is until all threads have ended.
fn watch(
    ends: &mpsc::Receiver<()>,
    mut running: usize,
    start: Instant,
    shared: &Shared,
    observe: &mut dyn FnMut(&Progress),
) {
    let mut next = start + OBSERVED_EVERY;
    while running > 0 {
        match ends.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(()) => running -= 1,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                next += OBSERVED_EVERY;
                observe(&Progress {
                    preloading: false,
                    elapsed: start.elapsed(),
                    requests: shared.requests.load(Ordering::Relaxed),
                    errors: shared.errors.load(Ordering::Relaxed),
                    done_ratio: 0.0,
                });
            }
        }
    }
}

/// A load of which nothing was done measures nothing.
fn refuse_useless(address: SocketAddr, tally: &Tally) -> Result<(), Error> {
    if tally.requests == 0 {
        return Ok(());
    }
    if tally.mistakes.unanswered == tally.requests {
        let seconds = tally.last_ns / 1_000_000_000;
        return Err(Error::Silent { address, seconds });
    }
    match &tally.first_mistake {
        Some(reply) if tally.mistakes.refused == tally.requests => Err(Error::Refused {
            address,
            what: "every request",
            reply: reply.clone(),
        }),
        _ => Ok(()),
    }
}

fn check(options: &Options) -> Result<(), Error> {
    let whole = |name: &str, value: usize, most: usize| {
        let allowed = (1..=most).contains(&value);
        allowed
            .then_some(())
            .ok_or_else(|| format!("{name} {value}: allowed are 1 to {most}"))
    };
    let real = |name: &str, value: f64, most: f64, positive: bool| {
        let allowed = (0.0..=most).contains(&value) && !(positive && value == 0.0);
        let least = if positive { "above 0, at most" } else { "0 to" };
        allowed
            .then_some(())
            .ok_or_else(|| format!("{name} {value}: allowed is {least} {most}"))
    };
    let checked = whole("--connections", options.connections, MAX_CONNECTIONS)
        .and_then(|()| whole("--pipeline", options.pipeline, MAX_PIPELINE))
        .and_then(|()| whole("--threads", options.threads, MAX_THREADS))
        .and_then(|()| whole("burst", options.burst, options.pipeline))
        .and_then(|()| real("--seconds", options.seconds, MAX_SECONDS, true))
        .and_then(|()| real("--reads", options.workload.reads_ratio, 1.0, false))
        .and_then(|()| options.rate.map_or(Ok(()), |rate| real("--rate", rate, MAX_RATE, true)));
    checked.map_err(Error::Usage)?;
    let least = options.threads.max(options.logins.len());
    if options.connections < least {
        let given = options.connections;
        return Err(Error::Usage(format!(
            "--connections {given}: at least one is needed for each thread and for each tenant, {least} here"
        )));
    }
    Ok(())
}

/// Allows this process as many descriptors as it may have, if the connections need them. If that is not enough, opening
/// a connection fails.
fn raise_descriptor_limit(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// Standard streams, the poll of each thread, files that are read.
    const OTHERS: usize = 1024;
    let limit = getrlimit(Resource::Nofile);
    if limit
        .current
        .is_some_and(|current| current < (connections + OTHERS) as u64)
    {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Refusal changes nothing: the old limit stays.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
