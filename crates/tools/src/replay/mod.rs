//! `tidemark replay`: traces against a running server, as the applications behind them would use it.
//!
//! Each trace has a connection, a thread and a tenant of its own. Its requests are made in the trace's order: get, and
//! on a miss set (look-aside). Invariant: the hit ratio is that of a client that makes one request after the other. It
//! holds although up to [`WINDOW`] gets are in flight at once:
//!
//! - a set is on its way before any later get;
//! - a key whose get is in flight is asked for again only if it was there a moment ago, so that both will hit. If such
//!   a get misses nevertheless, it is asked again behind the set, and only that answer counts.
//!
//! One effect of the overlap remains: an object may be evicted up to [`WINDOW`] requests late.

mod player;
mod recent;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidemark_types::TenantName;

use crate::Error;
use crate::client::{Login, Protocol};
use crate::load::MAX_VALUE_BYTES;
use crate::trace::{Position, Trace};

pub use player::WINDOW;
use player::{Player, Shared};

/// Traces at once: each has a thread.
pub const MAX_TRACES: usize = 64;
/// How often progress is told.
const OBSERVED_EVERY: Duration = Duration::from_secs(1);

/// The traces and the server that they are replayed against.
pub struct Options {
    /// The server.
    pub address: SocketAddr,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// The traces.
    pub sources: Vec<Source>,
    /// The size of objects whose trace does not say it, in bytes.
    pub value_size_bytes: usize,
    /// How much faster than in the trace time passes; as fast as possible if it is not said.
    pub speed: Option<f64>,
}

/// A trace and whose it is.
pub struct Source {
    /// The trace, at its beginning.
    pub trace: Trace,
    /// How its connection logs in, if it does.
    pub login: Option<Login>,
}

/// The result; serialised, it is what `tidemark replay --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The reports in the order in which the traces were given.
    pub traces: Vec<TraceReport>,
}

/// The result of one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceReport {
    /// The trace, as it was named.
    pub trace: String,
    /// The tenant that the trace was replayed for.
    pub tenant: String,
    /// Requests of the trace: each is one get.
    pub requests: u64,
    /// Gets that found their key.
    pub hits: u64,
    /// Hits over requests; `null` for an empty trace.
    pub hit_ratio: Option<f64>,
    /// Sets that the server refused.
    pub refused: u64,
    /// How long it took.
    pub seconds: f64,
}

/// How far one trace is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Requests answered.
    pub requests: u64,
    /// Hits among them.
    pub hits: u64,
    /// How much of the trace's file was read, 0 to 1.
    pub done_ratio: f64,
}

/// Replays all traces at once; `observe` is told once a second how far each is.
///
/// # Errors
/// The options make no sense, a trace cannot be read to its end, or the server cannot be reached. Other errors: it
/// refuses a login or a get, closes a connection, or returns a value that was not stored.
pub fn run(options: Options, observe: &mut dyn FnMut(&[Progress])) -> Result<Report, Error> {
    check(&options)?;
    let positions: Vec<Position> = options.sources.iter().map(|source| source.trace.position()).collect();
    let mut players = Vec::with_capacity(options.sources.len());
    for source in options.sources {
        let tenant = source
            .login
            .as_ref()
            .map_or(TenantName::DEFAULT, |login| login.tenant.as_str())
            .to_owned();
        let connect = (options.address, options.protocol, source.login.as_ref());
        let player = Player::open(connect, source.trace, options.value_size_bytes, options.speed)?;
        players.push((tenant, player));
    }
    let stop = AtomicBool::new(false);
    let shared: Vec<Shared> = players.iter().map(|_| Shared::new(&stop)).collect();
    let (ended, ends) = mpsc::channel();
    let results: Vec<Result<TraceReport, Error>> = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(players.len());
        for ((tenant, mut player), shared) in players.into_iter().zip(&shared) {
            let ended = ended.clone();
            threads.push(scope.spawn(move || {
                let start = Instant::now();
                let result = player.play(shared, start);
                if result.is_err() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                // The observer may have gone already.
                let _ = ended.send(());
                result.map(|()| report(player.name(), tenant, shared, start.elapsed()))
            }));
        }
        watch(&ends, &shared, &positions, observe);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let traces = results.into_iter().collect::<Result<_, _>>()?;
    Ok(Report { traces })
}

fn report(trace: &str, tenant: String, shared: &Shared, took: Duration) -> TraceReport {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (requests, hits) = (count(&shared.requests), count(&shared.hits));
    let hit_ratio = (requests > 0).then(|| hits as f64 / requests as f64);
    TraceReport {
        trace: trace.to_owned(),
        tenant,
        requests,
        hits,
        hit_ratio,
        refused: count(&shared.refused),
        seconds: took.as_secs_f64(),
    }
}

/// Tells the observer how far it is until all threads have ended.
fn watch(ends: &mpsc::Receiver<()>, shared: &[Shared], positions: &[Position], observe: &mut dyn FnMut(&[Progress])) {
    let mut running = shared.len();
    let mut next = Instant::now() + OBSERVED_EVERY;
    while running > 0 {
        match ends.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(()) => running -= 1,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                next += OBSERVED_EVERY;
                let progress = shared.iter().zip(positions).map(|(shared, position)| Progress {
                    requests: shared.requests.load(Ordering::Relaxed),
                    hits: shared.hits.load(Ordering::Relaxed),
                    done_ratio: position.read_bytes() as f64 / position.file_bytes().max(1) as f64,
                });
                observe(&progress.collect::<Vec<_>>());
            }
        }
    }
}

fn check(options: &Options) -> Result<(), Error> {
    let count = options.sources.len();
    if !(1..=MAX_TRACES).contains(&count) {
        return Err(Error::Usage(format!(
            "{count} traces: allowed are 1 to {MAX_TRACES} at once"
        )));
    }
    if options.value_size_bytes > MAX_VALUE_BYTES {
        let given = options.value_size_bytes;
        return Err(Error::Usage(format!(
            "--value-size {given}: allowed are 0 to {MAX_VALUE_BYTES} bytes"
        )));
    }
    match options.speed {
        Some(speed) if !(speed > 0.0 && speed.is_finite()) => Err(Error::Usage(format!(
            "--speed {speed}: allowed is a number above 0, such as 1 or 60"
        ))),
        _ => Ok(()),
    }
}
