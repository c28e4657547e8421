//! The counts of each tenant beside those of its shards: traffic and commands.
//!
//! A worker counts a connection's turn in a [`TurnCounts`] of its own and adds it to the tenant's once. A command thus
//! costs no shared cache line. Errors are rare and counted at once.

mod commands;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidemark_protocol::resp::command::{COMMANDS, Row};
use tidemark_types::{CommandCount, Outcome};

use crate::durations::Durations;

pub(crate) use commands::{CommandCounts, Stage};
pub(crate) use turn::{Before, TurnCounts};

/// A thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Commands executed, of both protocols of this front.
    Commands,
    /// Commands that another front executed.
    NeighbourCommands,
    NetworkIn,
    NetworkOut,
    /// Time that workers spent on this tenant's commands, in nanoseconds, shared evenly within a group of connections.
    BusyNanos,
    /// Requests whose time in the server was measured, and these times together, in microseconds.
    Served,
    ServedMicros,
    GetHits,
    GetMisses,
    Sets,
    TouchHits,
    TouchMisses,
    DeleteHits,
    DeleteMisses,
    IncrementHits,
    IncrementMisses,
    DecrementHits,
    DecrementMisses,
    CasHits,
    CasBad,
    CasMisses,
    Metas,
    Flushes,
    TooLarge,
    NoMemory,
    AuthCommands,
    AuthErrors,
    Denied,
    Errors,
    /// Connections that were ever this tenant's.
    Connections,
    /// Times that a connection had to wait for its next turn, since it had asked for its share of one.
    Yields,
    /// Commands that were above the limit of operations.
    RefusedOps,
    /// Commands that were above the limit of bytes.
    RefusedBytes,
    /// Commands that would have added data, while the tenant is at its spending limit.
    RefusedSpending,
    /// Commands that would have had to wait for flash, while as many as may do so did.
    RefusedFlash,
    /// Connections above as many as there may be.
    RefusedConnections,
    /// Logins with the tenant's name that failed.
    FailedLogins,
    /// Replies that were longer than can be promised.
    RefusedReplies,
    /// Connections that were closed because nothing moved on them while replies or requests waited.
    ClosedStalled,
    /// Connections that were closed in the middle of a command.
    ClosedIncomplete,
    /// Connections that were closed because the memory that they held was wanted.
    ClosedForMemory,
    /// CPU time of workers that served this tenant, in nanoseconds.
    CpuNanos,
    /// Visits to connections in which commands were executed.
    Visits,
    /// Moments since which these connections had been ready.
    Arrivals,
    /// Invocations of cloud functions that this tenant pays for.
    FunctionInvocations,
    /// Memory of cloud functions in MiB, times the ms for which they ran for it.
    FunctionMibMs,
}

const COUNTS: usize = Count::FunctionMibMs as usize + 1;

/// Room for every command and subcommand of RESP, by its number: one bit each in a word.
pub(crate) const COMMANDS_MAX: usize = 128;

/// The number of commands of memcached.
const VERBS_MAX: usize = 17;

/// The commands of memcached, by `verb` of its front.
pub(crate) const VERBS: [&str; VERBS_MAX] = [
    "get",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "incr",
    "decr",
    "touch",
    "delete",
    "flush_all",
    "mg",
    "ms",
    "md",
    "ma",
    "other",
];

/// A tenant's counts, shared by all workers.
#[derive(Debug)]
pub(crate) struct TenantCounts {
    counts: [AtomicU64; COUNTS],
    /// The counts of each when the tenant last reset its statistics. Others go on from the totals, which never fall.
    reset_at: OnceLock<Box<[AtomicU64; COUNTS]>>,
    /// Made at the first RESP command: most of ten thousand tenants see few or none.
    commands: OnceLock<Box<CommandCounts>>,
    /// Made at the first memcached command.
    verbs: OnceLock<Box<[AtomicU64; VERBS_MAX]>>,
    /// Commands of both protocols that missed, and those that failed.
    missed: PlaceCounts,
    failed: PlaceCounts,
    /// Commands of other fronts, by the first time that each was executed.
    neighbours: Mutex<Vec<CommandCount>>,
    /// Made at the first request.
    durations: OnceLock<Box<Durations>>,
}

/// Counts by a command's place. Those of a protocol are made at the first one: a tenant uses one protocol, mostly.
#[derive(Debug, Default)]
struct PlaceCounts {
    commands: OnceLock<Box<[AtomicU64; COMMANDS_MAX]>>,
    verbs: OnceLock<Box<[AtomicU64; VERBS_MAX]>>,
}

impl PlaceCounts {
    fn add(&self, place: usize, by: u64) {
        let count = match place.checked_sub(COMMANDS_MAX) {
            None => &zeros(&self.commands)[place],
            Some(verb) => &zeros(&self.verbs)[verb],
        };
        count.fetch_add(by, Ordering::Relaxed);
    }

    fn get(&self, place: usize) -> u64 {
        let count = match place.checked_sub(COMMANDS_MAX) {
            None => self.commands.get().map(|counts| &counts[place]),
            Some(verb) => self.verbs.get().map(|counts| &counts[verb]),
        };
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// All of RESP.
    fn resp(&self) -> u64 {
        let counts = self.commands.get().into_iter().flat_map(|counts| counts.iter());
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Counts that are made when they are first asked for.
fn zeros<const N: usize>(counts: &OnceLock<Box<[AtomicU64; N]>>) -> &[AtomicU64; N] {
    counts.get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))))
}

/// The protocol, the name and the place of every command.
fn places() -> impl Iterator<Item = (&'static str, &'static str, usize)> {
    let redis = rows().map(|row| ("redis", row.name, row.id as usize));
    let verbs = VERBS.iter().enumerate();
    redis.chain(verbs.map(|(verb, name)| ("memcached", *name, COMMANDS_MAX + verb)))
}

/// Every command and subcommand of RESP.
fn rows() -> impl Iterator<Item = &'static Row> {
    COMMANDS
        .iter()
        .flat_map(|row| std::iter::once(row).chain(row.subcommands))
}

impl Default for TenantCounts {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            reset_at: OnceLock::new(),
            commands: OnceLock::new(),
            verbs: OnceLock::new(),
            missed: PlaceCounts::default(),
            failed: PlaceCounts::default(),
            neighbours: Mutex::default(),
            durations: OnceLock::new(),
        }
    }
}

impl TenantCounts {
    /// The count since the tenant last reset its statistics.
    pub(crate) fn get(&self, count: Count) -> u64 {
        let before = self
            .reset_at
            .get()
            .map_or(0, |counts| counts[count as usize].load(Ordering::Relaxed));
        self.total(count).saturating_sub(before)
    }

    /// The count since the tenant was created in this process.
    pub(crate) fn total(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: Count, by: u64) {
        self.counts[count as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Requests of one visit were answered, each so long after its connection was ready.
    #[inline]
    pub(crate) fn note_served(&self, took_us: u64, requests: u64) {
        self.durations().record(took_us, requests);
        self.add(Count::Served, requests);
        self.add(Count::ServedMicros, took_us.saturating_mul(requests));
    }

    /// Loads ahead where [`Self::note_served`] counts requests that took so long.
    #[inline]
    pub(crate) fn prefetch_served(&self, took_us: u64) {
        if let Some(durations) = self.durations.get() {
            durations.prefetch(took_us);
        }
    }

    /// The counts of each RESP command.
    pub(crate) fn commands(&self) -> &CommandCounts {
        self.commands.get_or_init(Box::default)
    }

    /// How often each command was executed since the tenant was created in this process, by outcome, of those that were.
    pub(crate) fn executed(&self) -> Vec<CommandCount> {
        let count_of = |protocol, command, outcome, count| CommandCount {
            protocol,
            command,
            outcome,
            count,
        };
        let count = |protocol, command, calls: &AtomicU64| {
            count_of(protocol, command, Outcome::Ok, calls.load(Ordering::Relaxed))
        };
        let verbs = self.verbs.get().into_iter().flat_map(|verbs| {
            let named = VERBS.iter().zip(verbs.iter());
            named.map(|(name, calls)| count("memcached", name, calls))
        });
        let commands = self
            .commands
            .get()
            .into_iter()
            .flat_map(|commands| rows().map(|row| count("redis", row.name, &commands.done[row.id as usize])));
        let others = [(Outcome::Miss, &self.missed), (Outcome::Error, &self.failed)];
        let others = others.into_iter().flat_map(|(outcome, counts)| {
            places().map(move |(protocol, command, place)| count_of(protocol, command, outcome, counts.get(place)))
        });
        let neighbours = self.neighbours.lock().clone();
        let all = verbs.chain(commands).chain(others).chain(neighbours);
        all.filter(|count| count.count > 0).collect()
    }

    /// Another front executed a command.
    pub(crate) fn neighbour_executed(&self, protocol: &'static str, command: &'static str, outcome: Outcome) {
        let mut neighbours = self.neighbours.lock();
        let kind = (protocol, command, outcome);
        match neighbours
            .iter_mut()
            .find(|one| (one.protocol, one.command, one.outcome) == kind)
        {
            Some(known) => known.count += 1,
            None => neighbours.push(CommandCount {
                protocol,
                command,
                outcome,
                count: 1,
            }),
        }
        drop(neighbours);
        self.add(Count::NeighbourCommands, 1);
    }

    /// Commands of RESP since the tenant was created in this process.
    pub(crate) fn resp_operations(&self) -> u64 {
        let done = self.commands.get().map_or(&[][..], |commands| &commands.done[..]);
        let done: u64 = done.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        done + self.missed.resp() + self.failed.resp()
    }

    /// How long requests took.
    #[inline]
    pub(crate) fn durations(&self) -> &Durations {
        self.durations.get_or_init(Box::default)
    }

    /// Begins the tenant's statistics anew (`stats reset`).
    pub(crate) fn reset(&self) {
        let before = zeros(&self.reset_at);
        for (before, count) in before.iter().zip(&self.counts) {
            before.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if let Some(durations) = self.durations.get() {
            durations.reset();
        }
        if let Some(commands) = self.commands.get() {
            commands.reset();
        }
    }
}
