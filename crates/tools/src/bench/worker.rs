//! A thread of load: its connections, and the loop that keeps them busy.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::schedule::Schedule;
use super::session::{Preload, Session, Speller};
use super::tally::Tally;
use super::{Options, Shared};
use crate::Error;
use crate::client::{Connection, Received};
use crate::load::{Operation, Requests, Rng, Values, Workload};

/// Received at once: more than a pipeline of small values, within a core's second-level cache.
const SCRATCH_BYTES: usize = 256 << 10;
/// Connections that are served between two looks at the clock and the other threads.
const EVENTS_PER_TURN: usize = 256;
/// The longest sleep: how late the end of the run or another thread's failure may be seen.
const MAX_SLEEP: Duration = Duration::from_millis(50);
/// The poll sleeps in whole milliseconds and wakes late; a request that is due sooner than this is waited for awake.
const AWAKE_NS: u64 = 2_000_000;
/// A request that was due before the end is still sent for so long after it. The loop comes round within less. A server
/// that keeps all connections waiting for longer does not keep the rate.
const SEND_LATE_NS: u64 = 20_000_000;
/// How long replies are waited for after the end.
const DRAIN_NS: u64 = 2_000_000_000;
/// Keeps lifetimes independent of keys.
const LIFETIME_SEED: u64 = 0x11FE_71AE;
/// How long the server may say nothing at all while keys are stored.
const SILENCE_NS: u64 = 30_000_000_000;

/// See the module.
pub(super) struct Worker {
    poll: Poll,
    sessions: Vec<Session>,
    scratch: Vec<u8>,
    speller: Speller,
    requests: Requests,
    tally: Tally,
    in_flight: usize,
    /// Most requests in flight on all connections.
    capacity: usize,
    /// The connection at which the next request of an open loop begins to look for room.
    cursor: usize,
    /// Whether the time until a request is due is slept through.
    sleeps: bool,
    /// Connections on which an open loop wrote something that was not sent yet.
    dirty: Vec<usize>,
    start: Instant,
}

/// A part of the run.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Every key is stored once.
    Preload,
    /// The load itself, in nanoseconds from the start; open loop if there is a schedule.
    Measure { end_ns: u64, schedule: Option<Schedule> },
}

impl Worker {
    /// Opens the connections of thread `index`.
    pub(super) fn new(options: &Options, index: usize) -> Result<Self, Error> {
        let workload = &options.workload;
        let poll = Poll::new().map_err(Error::Poll)?;
        let own = (index..options.connections).step_by(options.threads);
        let mut sessions = own
            .map(|number| {
                // Tenants in turn over all connections, so that each gets as many as any other, give or take one.
                let login = options.logins.get(login_of(options, number)).and_then(Option::as_ref);
                let connection = Connection::open(options.address, options.protocol, login)?;
                let preload = preload_of(options, number);
                Ok(Session::new(
                    connection,
                    options.pipeline,
                    first_key(options, number),
                    preload,
                ))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        for (token, session) in sessions.iter_mut().enumerate() {
            session.connection.register(poll.registry(), Token(token))?;
        }
        let connections = sessions.len();
        Ok(Self {
            poll,
            capacity: connections * options.pipeline,
            sessions,
            scratch: vec![0; SCRATCH_BYTES],
            speller: Speller {
                key: all_keys(options).key_text()?,
                values: Values::default(),
                value_size: workload.value_size,
                lifetimes: workload.lifetimes.clone(),
                rng: Rng::stream(workload.seed ^ LIFETIME_SEED, index as u64),
                verify: options.verify,
                look_aside: options.look_aside,
            },
            requests: Requests::new(workload, (index, options.threads))?,
            tally: Tally::default(),
            in_flight: 0,
            cursor: 0,
            sleeps: options.sleeps,
            dirty: Vec::with_capacity(connections),
            start: Instant::now(),
        })
    }

    /// Whether the server is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.sessions
            .first()
            .is_some_and(|session| session.connection.is_local())
    }

    /// Runs a phase to its end and returns its counts.
    pub(super) fn run(&mut self, mut phase: Phase, shared: &Shared, start: Instant) -> Result<Tally, Error> {
        self.start = start;
        self.tally = Tally::default();
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let mut told = (0, 0);
        for index in 0..self.sessions.len() {
            self.fill(index, &mut phase);
            self.send(index)?;
        }
        loop {
            let now_ns = self.now_ns();
            self.dispatch(&mut phase, now_ns)?;
            if self.is_over(&phase, now_ns)? || shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let sleep = self.sleep(&phase, now_ns);
            if self.sleeps && sleep.is_zero() {
                std::thread::sleep(self.until_due(&phase));
            }
            match self.poll.poll(&mut events, Some(sleep)) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(Error::Poll(error)),
                _ => {}
            }
            for event in &events {
                // This holds also when there is only room to send: earlier unsent bytes are sent below.
                let Token(index) = event.token();
                if event.is_readable() || event.is_read_closed() {
                    self.receive(index, event.is_read_closed())?;
                }
                self.fill(index, &mut phase);
                self.send(index)?;
            }
            let counts = (self.tally.requests, self.tally.mistakes.total());
            shared.requests.fetch_add(counts.0 - told.0, Ordering::Relaxed);
            shared.errors.fetch_add(counts.1 - told.1, Ordering::Relaxed);
            told = counts;
        }
        self.finish(&mut phase);
        Ok(std::mem::take(&mut self.tally))
    }

    /// Takes all replies that wait on a connection; `to_the_end` where its end is known to wait behind them.
    fn receive(&mut self, index: usize, to_the_end: bool) -> Result<(), Error> {
        let session = &mut self.sessions[index];
        loop {
            let Received::Bytes { length, more } = session.connection.receive(&mut self.scratch)? else {
                return Ok(());
            };
            let now_ns = nanoseconds_since(self.start);
            let before = session.in_flight.len();
            self.tally.receives += 1;
            session.take(&self.scratch[..length], &mut self.speller, &mut self.tally, now_ns)?;
            self.in_flight -= before - session.in_flight.len();
            if !more && !to_the_end {
                return Ok(());
            }
        }
    }

    /// Writes the requests that a connection makes by itself. Keys that were missed come first. Unless requests follow
    /// a schedule, as many follow as there is room for.
    fn fill(&mut self, index: usize, phase: &mut Phase) {
        let now_ns = self.now_ns();
        let session = &mut self.sessions[index];
        let before = session.in_flight.len();
        while session.has_room() {
            let operation = match (session.refills.pop_front(), &phase) {
                (Some(key), _) => Operation::Set(key),
                (None, Phase::Preload) => match session.preload.next() {
                    Some(key) => Operation::Set(key),
                    None => break,
                },
                (None, Phase::Measure { end_ns, schedule: None }) if now_ns < *end_ns => {
                    self.requests.draw().behind(session.first_key)
                }
                (None, Phase::Measure { .. }) => break,
            };
            session.issue(operation, &mut self.speller, now_ns);
        }
        self.in_flight += session.in_flight.len() - before;
    }

    /// Sends the due requests of an open loop, as far as the connections have room for it, each in turn.
    fn dispatch(&mut self, phase: &mut Phase, now_ns: u64) -> Result<(), Error> {
        let Phase::Measure {
            schedule: Some(schedule),
            end_ns,
        } = phase
        else {
            return Ok(());
        };
        if now_ns >= *end_ns + SEND_LATE_NS {
            return Ok(());
        }
        let mut full = 0;
        while let Some(due_ns) = schedule.due_ns().filter(|due_ns| *due_ns <= now_ns) {
            if self.in_flight >= self.capacity || full == self.sessions.len() {
                break;
            }
            let index = self.cursor;
            let next = if index + 1 == self.sessions.len() { 0 } else { index + 1 };
            let session = &mut self.sessions[index];
            if !session.has_room() {
                full += 1;
                self.cursor = next;
                continue;
            }
            full = 0;
            let operation = self.requests.draw().behind(session.first_key);
            session.issue(operation, &mut self.speller, due_ns);
            if !std::mem::replace(&mut session.dirty, true) {
                self.dirty.push(index);
            }
            self.in_flight += 1;
            schedule.advance();
            if schedule.begins_burst() {
                self.cursor = next;
            }
        }
        for position in 0..self.dirty.len() {
            let index = self.dirty[position];
            self.sessions[index].dirty = false;
            self.send(index)?;
        }
        self.dirty.clear();
        Ok(())
    }

    fn send(&mut self, index: usize) -> Result<(), Error> {
        self.sessions[index].connection.send()
    }

    /// Whether nothing is left to be done or waited for.
    fn is_over(&self, phase: &Phase, now_ns: u64) -> Result<bool, Error> {
        match phase {
            Phase::Preload if self.in_flight > 0 && now_ns > self.tally.last_ns + SILENCE_NS => Err(Error::Silent {
                address: self.sessions[0].connection.address(),
                seconds: SILENCE_NS / 1_000_000_000,
            }),
            Phase::Preload => Ok(self.in_flight == 0),
            Phase::Measure { end_ns, schedule } => {
                let sent = schedule.as_ref().is_none_or(|left| left.due_ns().is_none());
                let all_sent = now_ns >= *end_ns && (sent || now_ns >= end_ns + SEND_LATE_NS);
                Ok(all_sent && (self.in_flight == 0 || now_ns >= end_ns + DRAIN_NS))
            }
        }
    }

    /// How long it is until the next request of an open loop is due.
    fn until_due(&self, phase: &Phase) -> Duration {
        let Phase::Measure {
            schedule: Some(schedule),
            ..
        } = phase
        else {
            return Duration::ZERO;
        };
        let due_ns = schedule.due_ns().unwrap_or(0);
        Duration::from_nanos(due_ns.saturating_sub(self.now_ns()))
    }

    /// How long the poll may sleep.
    fn sleep(&self, phase: &Phase, now_ns: u64) -> Duration {
        let Phase::Measure { end_ns, schedule } = phase else {
            return MAX_SLEEP;
        };
        let due_ns = schedule
            .as_ref()
            .filter(|_| self.in_flight < self.capacity)
            .and_then(Schedule::due_ns);
        let next_ns = due_ns.unwrap_or(*end_ns).saturating_sub(now_ns);
        if due_ns.is_some() && next_ns < AWAKE_NS {
            return Duration::ZERO;
        }
        if now_ns >= *end_ns {
            return MAX_SLEEP;
        }
        // A millisecond early: the rest is waited for awake.
        Duration::from_nanos(next_ns.saturating_sub(AWAKE_NS / 2).max(AWAKE_NS / 2)).min(MAX_SLEEP)
    }

    /// Counts what will not be answered or was never sent.
    fn finish(&mut self, phase: &mut Phase) {
        let now_ns = self.now_ns();
        for session in &mut self.sessions {
            session.abandon(&mut self.tally, now_ns);
            session.refills.clear();
        }
        self.in_flight = 0;
        if let Phase::Measure {
            schedule: Some(schedule),
            ..
        } = phase
        {
            while let Some(due_ns) = schedule.due_ns() {
                schedule.advance();
                self.tally.unsent += 1;
                self.tally.took(now_ns.saturating_sub(due_ns));
            }
        }
        self.tally.end_run();
    }

    fn now_ns(&self) -> u64 {
        nanoseconds_since(self.start)
    }
}

/// The keys that connection `number` stores beforehand: those of its tenant, shared among the tenant's connections.
fn preload_of(options: &Options, number: usize) -> Preload {
    let tenants = options.logins.len().max(1);
    let first = login_of(options, number);
    let of_tenant = (options.connections - first).div_ceil(tenants);
    let first_key = first_key(options, number);
    Preload {
        next: first_key + (number / tenants) as u64,
        step: of_tenant as u64,
        end: first_key + options.workload.keys,
    }
}

/// Which of the logins connection `number` has.
fn login_of(options: &Options, number: usize) -> usize {
    number % options.logins.len().max(1)
}

/// The first of the keys that connection `number` asks for.
fn first_key(options: &Options, number: usize) -> u64 {
    if options.keys_apart {
        options.workload.keys * login_of(options, number) as u64
    } else {
        0
    }
}

/// The workload with all keys that have different names.
fn all_keys(options: &Options) -> Workload {
    let own = options.workload.clone();
    let parts = if options.keys_apart { options.logins.len() } else { 1 };
    Workload {
        keys: own.keys.saturating_mul(parts as u64),
        ..own
    }
}

#[inline]
fn nanoseconds_since(start: Instant) -> u64 {
    // Wraps after 584 years.
    start.elapsed().as_nanos() as u64
}
