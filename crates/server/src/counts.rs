//! The counts of each tenant beside those of its shards: traffic and commands.
//!
//! A worker counts a connection's turn in a [`TurnCounts`] of its own and adds it to the tenant's once. A command thus
//! costs no shared cache line. Errors are rare and counted at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidemark_protocol::resp::command::{COMMANDS, CommandId, Row};
use tidemark_types::{CommandCount, Outcome, UnixMs};

use crate::durations::Durations;

/// A thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Commands executed, of both protocols.
    Commands,
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

/// Room for every command of memcached, by its place in [`crate::memcached::VERBS`].
pub(crate) const VERBS_MAX: usize = 17;

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

/// How often a command had another outcome than that it did what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Others {
    /// The command's number in RESP, or behind [`COMMANDS_MAX`] its place in [`crate::memcached::VERBS`].
    place: usize,
    missed: u64,
    failed: u64,
}

impl Others {
    /// Adds to the command's counts in a list, which is as long as there are commands at most.
    fn add_to(self, list: &mut Vec<Self>) {
        match list.iter_mut().find(|known| known.place == self.place) {
            Some(known) => {
                known.missed += self.missed;
                known.failed += self.failed;
            }
            None => list.push(self),
        }
    }
}

/// The protocol, the name and the place of every command.
fn places() -> impl Iterator<Item = (&'static str, &'static str, usize)> {
    let redis = rows().map(|row| ("redis", row.name, row.id as usize));
    let verbs = crate::memcached::VERBS.iter().enumerate();
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
            let named = crate::memcached::VERBS.iter().zip(verbs.iter());
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
        let all = verbs.chain(commands).chain(others);
        all.filter(|count| count.count > 0).collect()
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
            commands
                .calls
                .iter()
                .for_each(|calls| calls.store(0, Ordering::Relaxed));
            *commands.errors.lock() = Errors::default();
            *commands.rates.lock() = RateSample::default();
        }
    }
}

/// The counts of each RESP command (INFO's commandstats and errorstats).
#[derive(Debug)]
pub(crate) struct CommandCounts {
    /// The calls since the tenant last reset its statistics.
    calls: [AtomicU64; COMMANDS_MAX],
    /// Those that did what they were asked, since it was created in this process: bills are not reset.
    done: [AtomicU64; COMMANDS_MAX],
    errors: Mutex<Errors>,
    rates: Mutex<RateSample>,
}

impl Default for CommandCounts {
    fn default() -> Self {
        Self {
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            done: std::array::from_fn(|_| AtomicU64::new(0)),
            errors: Mutex::default(),
            rates: Mutex::default(),
        }
    }
}

/// Errors that were answered. Both lists are as long as there are codes and commands at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errors {
    /// The errors by their first word.
    pub(crate) by_code: Vec<(String, u64)>,
    pub(crate) by_command: Vec<(CommandId, Failures)>,
}

/// A command's errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    /// Before it was executed: too few arguments, no permission.
    pub(crate) rejected: u64,
    /// While it was.
    pub(crate) failed: u64,
}

/// When an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    BeforeExecution,
    Execution,
}

impl CommandCounts {
    pub(crate) fn calls(&self, id: CommandId) -> u64 {
        self.calls[id as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn errors(&self) -> Errors {
        self.errors.lock().clone()
    }

    /// Counts an error whose text begins with `code`, of this command if it is known.
    pub(crate) fn note_error(&self, code: &str, row: Option<&Row>, stage: Stage) {
        let mut errors = self.errors.lock();
        match errors.by_code.iter_mut().find(|(known, _)| known == code) {
            Some((_, count)) => *count += 1,
            None => errors.by_code.push((code.to_owned(), 1)),
        }
        let Some(row) = row else { return };
        let at = errors
            .by_command
            .iter()
            .position(|(id, _)| *id == row.id)
            .unwrap_or_else(|| {
                errors.by_command.push((row.id, Failures::default()));
                errors.by_command.len() - 1
            });
        let failures = &mut errors.by_command[at].1;
        match stage {
            Stage::BeforeExecution => failures.rejected += 1,
            Stage::Execution => failures.failed += 1,
        }
    }

    /// How much each of some counts has grown per second since someone last asked, at least a second ago.
    pub(crate) fn rates(&self, totals: Totals, now: UnixMs) -> Totals {
        self.rates.lock().rates(totals, now)
    }
}

/// Counts whose growth is of interest: commands, bytes in, bytes out.
pub(crate) type Totals = [u64; 3];

/// The last time that someone asked how fast counts grow.
#[derive(Clone, Copy, Debug, Default)]
struct RateSample {
    at: UnixMs,
    totals: Totals,
    per_second: Totals,
}

impl RateSample {
    fn rates(&mut self, totals: Totals, now: UnixMs) -> Totals {
        let elapsed_ms = now.0.saturating_sub(self.at.0);
        if elapsed_ms >= 1000 {
            if self.at.0 > 0 {
                let growth = |i: usize| totals[i].saturating_sub(self.totals[i]).saturating_mul(1000) / elapsed_ms;
                self.per_second = std::array::from_fn(growth);
            }
            (self.at, self.totals) = (now, totals);
        }
        self.per_second
    }
}

/// Counts of keys found, keys missed and errors before a command, to tell its outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    found: u32,
    missed: u32,
    failed: u32,
}

/// Counts of one connection's turn.
#[derive(Debug)]
pub(crate) struct TurnCounts {
    counts: [u32; COUNTS],
    /// Which of them are not zero.
    touched: u64,
    commands: [u32; COMMANDS_MAX],
    commands_touched: u128,
    verbs: [u32; VERBS_MAX],
    verbs_touched: u32,
    others: Vec<Others>,
    /// Lookups of commands; they only grow, and begin anew after the last number.
    found: u32,
    missed: u32,
}

impl Default for TurnCounts {
    fn default() -> Self {
        Self {
            counts: [0; COUNTS],
            touched: 0,
            commands: [0; COMMANDS_MAX],
            commands_touched: 0,
            verbs: [0; VERBS_MAX],
            verbs_touched: 0,
            others: Vec::new(),
            found: 0,
            missed: 0,
        }
    }
}

const _: () = assert!(COUNTS <= 64 && COMMANDS_MAX <= 128, "one bit for each count");

impl TurnCounts {
    #[inline]
    pub(crate) fn add(&mut self, count: Count, by: u32) {
        self.counts[count as usize] += by;
        self.touched |= 1 << count as u32;
    }

    /// A command begins.
    #[inline]
    pub(crate) fn before(&self) -> Before {
        let count = |count: Count| self.counts[count as usize];
        Before {
            found: self.found,
            missed: self.missed,
            failed: count(Count::Errors) + count(Count::NoMemory) + count(Count::TooLarge),
        }
    }

    /// A command that is done in pieces was left unfinished: the counts of its pieces so far, for [`Self::goes_on`].
    pub(crate) fn so_far(&self, before: Before) -> Before {
        let now = self.before();
        Before {
            found: now.found.wrapping_sub(before.found),
            missed: now.missed.wrapping_sub(before.missed),
            failed: now.failed.wrapping_sub(before.failed),
        }
    }

    /// A command's next piece begins; `so_far` are the counts of those before, none for its first. The outcome is that of all.
    #[inline]
    pub(crate) fn goes_on(&self, so_far: Before) -> Before {
        let now = self.before();
        Before {
            found: now.found.wrapping_sub(so_far.found),
            missed: now.missed.wrapping_sub(so_far.missed),
            failed: now.failed.wrapping_sub(so_far.failed),
        }
    }

    /// Counts a RESP command that was executed since `before`.
    #[inline]
    pub(crate) fn command(&mut self, id: CommandId, before: Before) {
        self.note(id, self.outcome(before));
    }

    /// Counts a RESP command whose outcome is known.
    #[inline]
    pub(crate) fn note(&mut self, id: CommandId, outcome: Outcome) {
        match outcome {
            Outcome::Ok => {
                self.commands[id as usize] += 1;
                self.commands_touched |= 1 << id as u32;
            }
            other => self.note_other(id as usize, other),
        }
    }

    /// Counts a command of memcached that was executed since `before`, by its place in [`crate::memcached::VERBS`].
    #[inline]
    pub(crate) fn verb(&mut self, verb: usize, before: Before) {
        match self.outcome(before) {
            Outcome::Ok => {
                self.verbs[verb] += 1;
                self.verbs_touched |= 1 << verb;
            }
            other => self.note_other(COMMANDS_MAX + verb, other),
        }
    }

    #[inline]
    fn outcome(&self, before: Before) -> Outcome {
        let now = self.before();
        if now.failed != before.failed {
            Outcome::Error
        } else if now.missed != before.missed && now.found == before.found {
            Outcome::Miss
        } else {
            Outcome::Ok
        }
    }

    fn note_other(&mut self, place: usize, outcome: Outcome) {
        let others = Others {
            place,
            missed: u64::from(outcome == Outcome::Miss),
            failed: u64::from(outcome == Outcome::Error),
        };
        others.add_to(&mut self.others);
    }

    /// Counts a lookup.
    #[inline]
    pub(crate) fn hit_or_miss(&mut self, hit: bool, hits: Count, misses: Count) {
        let sum = if hit { &mut self.found } else { &mut self.missed };
        *sum = sum.wrapping_add(1);
        self.add(if hit { hits } else { misses }, 1);
    }

    /// Forgets everything.
    pub(crate) fn discard(&mut self) {
        let is_clean = self.touched == 0 && self.commands_touched == 0 && self.verbs_touched == 0;
        if !is_clean || !self.others.is_empty() {
            *self = Self::default();
        }
    }

    /// Adds everything to a tenant's counts and begins anew.
    pub(crate) fn hand_over(&mut self, tenant: &TenantCounts) {
        while self.touched != 0 {
            let count = self.touched.trailing_zeros() as usize;
            self.touched &= self.touched - 1;
            tenant.counts[count].fetch_add(u64::from(std::mem::take(&mut self.counts[count])), Ordering::Relaxed);
        }
        while self.commands_touched != 0 {
            let command = self.commands_touched.trailing_zeros() as usize;
            self.commands_touched &= self.commands_touched - 1;
            let calls = u64::from(std::mem::take(&mut self.commands[command]));
            let commands = tenant.commands();
            commands.calls[command].fetch_add(calls, Ordering::Relaxed);
            commands.done[command].fetch_add(calls, Ordering::Relaxed);
        }
        while self.verbs_touched != 0 {
            let verb = self.verbs_touched.trailing_zeros() as usize;
            self.verbs_touched &= self.verbs_touched - 1;
            zeros(&tenant.verbs)[verb].fetch_add(u64::from(std::mem::take(&mut self.verbs[verb])), Ordering::Relaxed);
        }
        for others in self.others.drain(..) {
            if others.place < COMMANDS_MAX {
                let calls = &tenant.commands().calls[others.place];
                calls.fetch_add(others.missed + others.failed, Ordering::Relaxed);
            }
            for (counts, by) in [(&tenant.missed, others.missed), (&tenant.failed, others.failed)] {
                if by > 0 {
                    counts.add(others.place, by);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_handed_over_once() {
        let tenant = TenantCounts::default();
        let mut turn = TurnCounts::default();
        turn.add(Count::Commands, 3);
        turn.hit_or_miss(true, Count::GetHits, Count::GetMisses);
        turn.hit_or_miss(false, Count::GetHits, Count::GetMisses);
        turn.add(Count::Connections, 1);
        let before = turn.before();
        turn.command(CommandId::Set, before);
        turn.command(CommandId::FlushAll, before);
        turn.command(CommandId::Set, before);
        turn.hand_over(&tenant);
        turn.hand_over(&tenant);
        let counts = [
            Count::Commands,
            Count::GetHits,
            Count::GetMisses,
            Count::Connections,
            Count::Sets,
        ];
        assert_eq!(counts.map(|count| tenant.get(count)), [3, 1, 1, 1, 0]);
        let calls = [CommandId::Get, CommandId::Set, CommandId::FlushAll];
        assert_eq!(calls.map(|id| tenant.commands().calls(id)), [0, 2, 1]);
        assert_eq!(tenant.resp_operations(), 3);
        tenant.reset();
        assert_eq!(
            (tenant.get(Count::Commands), tenant.commands().calls(CommandId::Set)),
            (0, 0)
        );
        assert_eq!(tenant.total(Count::Commands), 3, "bills are not reset");
        turn.add(Count::Commands, 2);
        turn.hand_over(&tenant);
        assert_eq!((tenant.get(Count::Commands), tenant.total(Count::Commands)), (2, 5));
        turn.add(Count::Commands, 7);
        let before = turn.before();
        turn.command(CommandId::Get, before);
        turn.discard();
        turn.hand_over(&tenant);
        assert_eq!(
            (tenant.get(Count::Commands), tenant.commands().calls(CommandId::Get)),
            (2, 0)
        );
    }

    #[test]
    fn a_command_has_one_outcome() {
        let tenant = TenantCounts::default();
        let mut turn = TurnCounts::default();
        // Lookups that found something, and those that did not, and errors of each command.
        for (command, found, missed, failed) in [
            (CommandId::Get, 1, 0, 0),
            (CommandId::Get, 0, 1, 0),
            (CommandId::Get, 0, 1, 0),
            (CommandId::Del, 2, 1, 0),
            (CommandId::Del, 0, 3, 0),
            (CommandId::Set, 0, 0, 0),
            (CommandId::Set, 0, 1, 1),
        ] {
            let before = turn.before();
            (0..found).for_each(|_| turn.hit_or_miss(true, Count::GetHits, Count::GetMisses));
            (0..missed).for_each(|_| turn.hit_or_miss(false, Count::GetHits, Count::GetMisses));
            turn.add(Count::Errors, failed);
            turn.command(command, before);
        }
        for failed in [0, 1] {
            let before = turn.before();
            turn.add(Count::NoMemory, failed);
            turn.verb(1, before);
        }
        turn.hand_over(&tenant);
        turn.hand_over(&tenant);
        let counted: Vec<_> = tenant
            .executed()
            .iter()
            .map(|count| (count.protocol, count.command, count.outcome, count.count))
            .collect();
        let verb = crate::memcached::VERBS[1];
        assert_eq!(
            counted,
            [
                ("memcached", verb, Outcome::Ok, 1),
                ("redis", "get", Outcome::Ok, 1),
                ("redis", "set", Outcome::Ok, 1),
                ("redis", "del", Outcome::Ok, 1),
                ("redis", "get", Outcome::Miss, 2),
                ("redis", "del", Outcome::Miss, 1),
                ("redis", "set", Outcome::Error, 1),
                ("memcached", verb, Outcome::Error, 1),
            ]
        );
        assert_eq!(tenant.resp_operations(), 7);
        let calls = [CommandId::Get, CommandId::Set, CommandId::Del];
        assert_eq!(calls.map(|id| tenant.commands().calls(id)), [3, 2, 2]);
    }

    #[test]
    fn the_outcome_of_a_command_in_pieces_is_that_of_all() {
        let tenant = TenantCounts::default();
        let mut turn = TurnCounts::default();
        let look = |turn: &mut TurnCounts, hit| turn.hit_or_miss(hit, Count::GetHits, Count::GetMisses);
        // Whether each piece finds its key; another connection's command finds, and misses, one between them.
        for pieces in [[true, false], [false, true], [false, false]] {
            let mut so_far = Before::default();
            for hit in pieces {
                let before = turn.goes_on(so_far);
                look(&mut turn, hit);
                so_far = turn.so_far(before);
                for other in [true, false] {
                    look(&mut turn, other);
                }
            }
            let before = turn.goes_on(so_far);
            turn.command(CommandId::MGet, before);
        }
        turn.hand_over(&tenant);
        let counted = tenant.executed();
        let counted: Vec<_> = counted
            .iter()
            .map(|count| (count.command, count.outcome, count.count))
            .collect();
        assert_eq!(counted, [("mget", Outcome::Ok, 2), ("mget", Outcome::Miss, 1)]);
    }

    #[test]
    fn errors_are_counted_by_code_and_by_command() {
        let counts = CommandCounts::default();
        let (get, set) = (&COMMANDS[0], &COMMANDS[1]);
        counts.note_error("ERR", Some(get), Stage::BeforeExecution);
        counts.note_error("OOM", Some(set), Stage::Execution);
        counts.note_error("ERR", Some(set), Stage::Execution);
        counts.note_error("ERR", None, Stage::BeforeExecution);
        let errors = counts.errors();
        assert_eq!(errors.by_code, [("ERR".to_owned(), 3), ("OOM".to_owned(), 1)]);
        let of_get = (get.id, Failures { rejected: 1, failed: 0 });
        assert_eq!(
            errors.by_command,
            [of_get, (set.id, Failures { rejected: 0, failed: 2 })]
        );
    }

    #[test]
    fn rates_are_of_the_time_since_the_last_question() {
        let counts = CommandCounts::default();
        for (second, totals, rates) in [
            (10_000, [1_000, 0, 5], [0, 0, 0]),
            (12_000, [3_000, 10, 5], [1_000, 5, 0]),
            (12_500, [9_000, 10, 5], [1_000, 5, 0]),
            (16_000, [7_000, 10, 9], [1_000, 0, 1]),
            (17_000, [0, 0, 0], [0, 0, 0]),
        ] {
            assert_eq!(counts.rates(totals, UnixMs(second)), rates, "{second}");
        }
    }
}
