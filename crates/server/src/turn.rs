//! Serving a group of connections: receive from all, execute everything in windows, send to each once.
//!
//! Commands with one key wait in a *window* until it is full or something else comes up; then their index buckets are
//! loaded ahead, then their items, then they are executed in order. Everything else is executed by itself, after the window.
//! So every command sees what those before it did, and replies are in order without being sorted.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tidemark_protocol::{memcached as mc, resp};
use tidemark_store::{KeyHash, TenantStore};
use tidemark_types::UnixMs;

use crate::access::Access;
use crate::connection::{Connection, Skip};
use crate::counts::{Count, TurnCounts};
use crate::limits::{LOGIN_BYTES, RECEIVE_BYTES, REPLY_BYTES, SCRATCH_BYTES, TURN_COMMANDS, WINDOW_COMMANDS};
use crate::output::{Output, ignore_would_block};
use crate::session::{Exec, Protocol, Session};
use crate::shared::Shared;
use crate::{memcached, redis};

/// Received at least of a command that is too long to be received with others.
const RECEIVE_LONG_BYTES_MIN: usize = 4 << 10;
/// The beginning of a command is received on behind a copy of it, together with what follows, if it is not longer.
const COPIED_BEGINNING_BYTES: usize = 16 << 10;
/// Parsing a shorter incomplete command again costs less than keeping how far it was parsed.
const PARSED_KEPT_FROM_BYTES: usize = 4 << 10;
/// Received at most at a time of a command whose length is known.
const RECEIVE_LONG_BYTES: usize = 256 << 10;

/// A connection with its place in the worker's list.
pub(crate) type Member = (usize, Box<Connection>);

/// A worker's memory for serving groups, used again for each.
#[derive(Default)]
pub(crate) struct Turn {
    scratch: Vec<u8>,
    args: resp::ArgList,
    output: Output,
    counts: TurnCounts,
    group: Vec<Member>,
    inputs: Vec<Input>,
    done: Vec<Done>,
    begins: Vec<Mark>,
}

/// What was received from a connection and where it is.
enum Input {
    /// In the worker's scratch buffer: the usual case.
    Scratch(Range<usize>),
    /// In the connection's own buffer, behind the beginning of a command that came earlier.
    Own(Vec<u8>),
}

impl Input {
    fn bytes<'a>(&'a self, scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Scratch(range) => &scratch[range.clone()],
            Self::Own(bytes) => bytes,
        }
    }

    /// What is behind the first `done` bytes, in a buffer of its own; none if there is nothing.
    fn into_rest(self, scratch: &[u8], done: usize) -> Vec<u8> {
        match self {
            Self::Own(bytes) if done == 0 => bytes,
            Self::Own(bytes) => bytes[done..].to_vec(),
            Self::Scratch(range) => scratch[range][done..].to_vec(),
        }
    }
}

/// A command with one key that waits for its window.
#[derive(Clone, Copy)]
struct Step<'a> {
    /// Number of its connection in the group.
    member: usize,
    /// What of the connection's input comes before it.
    before: Done,
    hash: KeyHash,
    command: StepCommand<'a>,
}

/// The commands that go through windows.
#[derive(Clone, Copy)]
enum StepCommand<'a> {
    Memcached(mc::Command<'a>),
    Redis(redis::Step<'a>),
}

/// A place in the replies.
#[derive(Clone, Copy)]
struct Mark {
    /// Bytes that were copied before it.
    copied: usize,
    /// Bytes in all before it.
    all: usize,
}

/// What executes a group's commands and keeps the replies apart.
struct Executor<'s, 'a> {
    now: UnixMs,
    shared: &'s Shared,
    output: &'s mut Output,
    counts: &'s mut TurnCounts,
    window: Vec<Step<'a>>,
    /// The connection whose commands are being executed.
    current: usize,
    /// For each connection up to the current one, where its replies begin.
    begins: &'s mut Vec<Mark>,
    /// Connections whose replies came to be too many within a window, and how far their input was executed.
    deferred: Vec<(usize, Done)>,
}

impl Turn {
    pub(crate) fn take_group(&mut self) -> Vec<Member> {
        std::mem::take(&mut self.group)
    }

    pub(crate) fn put_group(&mut self, group: Vec<Member>) {
        self.group = group;
    }

    /// Serves each connection of a group once.
    pub(crate) fn serve(&mut self, group: &mut [Member], shared: &Shared, now: UnixMs) {
        self.scratch.resize(SCRATCH_BYTES, 0);
        let mut used = 0;
        for (_, connection) in group.iter_mut() {
            self.inputs
                .push(receive(connection, &mut self.scratch, &mut used, shared));
        }
        let begin = Instant::now();
        self.execute(group, shared, now);
        let commands: u32 = self.done.iter().map(|done| done.commands).sum();
        let nanos_each = begin.elapsed().as_nanos() as u64 / u64::from(commands.max(1));
        let inputs = std::mem::take(&mut self.inputs);
        for (member, input) in inputs.into_iter().enumerate() {
            let connection = &mut *group[member].1;
            let done = self.done[member];
            self.count(connection, member, nanos_each, shared, now);
            let (from, to) = (self.begins[member].copied, self.begins[member + 1].copied);
            match self.output.send(from, to, &mut connection.socket) {
                Ok(unsent) => connection.unsent.append(unsent),
                Err(_) => connection.is_broken = true,
            }
            connection.note_sending(true, now);
            keep_rest(connection, input, &self.scratch, done.bytes, now);
            connection.charge(shared);
        }
        self.output.clear();
    }

    /// Executes what was received.
    fn execute(&mut self, group: &mut [Member], shared: &Shared, now: UnixMs) {
        self.done.clear();
        self.begins.clear();
        self.begins.push(Mark { copied: 0, all: 0 });
        let mut executor = Executor {
            now,
            shared,
            output: &mut self.output,
            counts: &mut self.counts,
            window: Vec::with_capacity(WINDOW_COMMANDS),
            current: 0,
            begins: &mut self.begins,
            deferred: Vec::new(),
        };
        for (member, input) in self.inputs.iter().enumerate() {
            self.done
                .push(executor.run(group, member, input.bytes(&self.scratch), &mut self.args));
        }
        executor.flush(group);
        executor.enter(group, group.len());
        for (member, done) in executor.deferred {
            self.done[member] = done;
            group[member].1.has_leftover = true;
            // Parsed behind what comes next.
            group[member].1.parsed = None;
        }
    }

    /// Counts a connection's turn.
    fn count(&mut self, connection: &Connection, member: usize, nanos_each: u64, shared: &Shared, now: UnixMs) {
        let done = self.done[member];
        if done.bytes == 0 {
            return;
        }
        connection.client().note_active(now);
        if let Some(tenant) = &connection.session.tenant {
            let reply_bytes = self.begins[member + 1].all - self.begins[member].all;
            self.counts.add(Count::Commands, done.commands);
            self.counts.add(Count::NetworkIn, done.bytes as u32);
            self.counts.add(Count::NetworkOut, reply_bytes as u32);
            self.counts
                .add(Count::BusyNanos, (nanos_each * u64::from(done.commands)) as u32);
            self.counts.hand_over(&tenant.counts);
            shared.tenants.touch(tenant);
        }
    }
}

/// How far a connection's input was executed.
#[derive(Clone, Copy)]
struct Done {
    bytes: usize,
    commands: u32,
}

/// What was dropped of the input.
enum Skipped {
    /// Nothing is to be dropped.
    Nothing,
    Bytes(usize),
    /// More must come to know how much.
    Incomplete,
}

impl<'a> Executor<'_, 'a> {
    /// Executes a connection's commands, as far as they are complete and its share of the turn goes.
    fn run(&mut self, group: &mut [Member], member: usize, bytes: &'a [u8], args: &mut resp::ArgList) -> Done {
        let mut done = Done { bytes: 0, commands: 0 };
        group[member].1.has_leftover = false;
        while done.bytes < bytes.len() && !group[member].1.session.is_ending {
            let rest = &bytes[done.bytes..];
            match self.skip(group, member, rest) {
                Skipped::Nothing => {}
                Skipped::Bytes(bytes) => {
                    done.bytes += bytes;
                    continue;
                }
                Skipped::Incomplete => break,
            }
            if done.commands as usize >= TURN_COMMANDS || self.has_many_replies(member) {
                group[member].1.has_leftover = true;
                break;
            }
            let taken = match group[member].1.session.protocol {
                Protocol::Memcached => self.run_memcached(group, member, done, rest),
                Protocol::Redis => self.run_redis(group, member, done, rest, args),
            };
            let Some(taken) = taken else { break };
            done.bytes += taken;
            done.commands += 1;
        }
        done
    }

    /// Executes the command at the beginning of `rest`, or puts it into the window. `None` if it is incomplete, or has to wait.
    fn run_memcached(&mut self, group: &mut [Member], member: usize, before: Done, rest: &'a [u8]) -> Option<usize> {
        let connection = &mut *group[member].1;
        let limits = memcached::limits(&connection.session);
        match mc::parse(rest, &limits) {
            mc::Parsed::Incomplete { needed } => {
                connection.needed = needed;
                None
            }
            mc::Parsed::Complete { command, consumed } => {
                match memcached::step_key(&command, &mut connection.session) {
                    Some(key) => self.push(group, member, before, key, StepCommand::Memcached(command)),
                    None => {
                        self.finish(group, member)?;
                        let (session, mut exec) = self.alone(group, member);
                        if !memcached::execute(&command, session, &mut exec) {
                            self.deferred.push((member, before));
                            return None;
                        }
                    }
                }
                Some(consumed)
            }
            mc::Parsed::Failed(failure) => {
                self.finish(group, member)?;
                let (session, exec) = self.alone(group, member);
                exec.out.bytes.extend_from_slice(failure.reply);
                exec.counts.add(Count::Errors, 1);
                session.has_begun = true;
                // Before login nothing is received only to be dropped.
                session.is_ending |= failure.close || session.needs_login();
                group[member].1.skip = Skip::Bytes(failure.swallow);
                Some(failure.consumed)
            }
        }
    }

    /// The same for RESP.
    fn run_redis(
        &mut self,
        group: &mut [Member],
        member: usize,
        before: Done,
        rest: &'a [u8],
        args: &mut resp::ArgList,
    ) -> Option<usize> {
        let connection = &mut *group[member].1;
        let limits = redis::limits(&connection.session);
        let parsed = match connection.parsed.take() {
            Some(begun) => {
                *args = *begun;
                resp::parse_more(rest, &limits, args)
            }
            None => resp::parse(rest, &limits, args),
        };
        match parsed {
            resp::Parsed::Incomplete { needed } => {
                connection.needed = needed;
                if rest.len() >= PARSED_KEPT_FROM_BYTES {
                    connection.parsed = Some(Box::new(std::mem::take(args)));
                }
                None
            }
            resp::Parsed::Nothing { consumed } => Some(consumed),
            resp::Parsed::Complete { consumed } => {
                match redis::step(args, rest, &connection.session) {
                    Some((key, step)) => self.push(group, member, before, key, StepCommand::Redis(step)),
                    None => {
                        self.finish(group, member)?;
                        let (session, mut exec) = self.alone(group, member);
                        redis::execute(args.args(rest), &rest[..consumed], session, &mut exec);
                    }
                }
                Some(consumed)
            }
            resp::Parsed::Refused { error, consumed, rest } => {
                self.finish(group, member)?;
                let (session, mut exec) = self.alone(group, member);
                redis::refuse(&error, session, &mut exec);
                group[member].1.skip = Skip::Command(rest);
                Some(consumed)
            }
            resp::Parsed::Failed(error) => {
                self.finish(group, member)?;
                let (session, mut exec) = self.alone(group, member);
                redis::refuse(&error, session, &mut exec);
                session.is_ending = true;
                Some(rest.len())
            }
        }
    }

    /// Drops what a refused command left of the input.
    fn skip(&mut self, group: &mut [Member], member: usize, input: &[u8]) -> Skipped {
        let connection = &mut *group[member].1;
        let discarded = match &mut connection.skip {
            Skip::Nothing => return Skipped::Nothing,
            Skip::Bytes(left) => {
                let dropped = input.len().min(*left);
                *left -= dropped;
                if *left == 0 {
                    connection.skip = Skip::Nothing;
                }
                return if dropped == 0 {
                    Skipped::Nothing
                } else {
                    Skipped::Bytes(dropped)
                };
            }
            Skip::Command(discard) => discard.feed(input),
        };
        match discarded {
            resp::Discarded::Done { consumed } => {
                connection.skip = Skip::Nothing;
                Skipped::Bytes(consumed)
            }
            // What is not consumed is the beginning of a length, which must be whole to be read.
            resp::Discarded::More { consumed: 0 } => {
                connection.needed = input.len() + 1;
                Skipped::Incomplete
            }
            resp::Discarded::More { consumed } => Skipped::Bytes(consumed),
            resp::Discarded::Failed(error) => {
                if self.finish(group, member).is_none() {
                    return Skipped::Incomplete;
                }
                let (session, mut exec) = self.alone(group, member);
                redis::refuse(&error, session, &mut exec);
                session.is_ending = true;
                Skipped::Bytes(input.len())
            }
        }
    }

    /// Puts a command into the window, and executes the window if it is full.
    fn push(&mut self, group: &mut [Member], member: usize, before: Done, key: &[u8], command: StepCommand<'a>) {
        let session = &group[member].1.session;
        let Some(tenant) = &session.tenant else { return };
        let hash = tenant.store.key(session.db, key).hash;
        tenant.store.prefetch(hash);
        self.window.push(Step {
            member,
            before,
            hash,
            command,
        });
        if self.window.len() == WINDOW_COMMANDS {
            self.flush(group);
        }
    }

    /// Executes the window.
    fn flush(&mut self, group: &mut [Member]) {
        let mut window = std::mem::take(&mut self.window);
        if window.len() > 1 {
            prefetch_items(&window, group);
        }
        let mut access: Option<Access<'_>> = None;
        for step in &window {
            self.enter(group, step.member);
            if self.is_deferred(step.member) {
                continue;
            }
            if self.has_many_replies(step.member) {
                self.deferred.push((step.member, step.before));
                continue;
            }
            let session = &group[step.member].1.session;
            let Some(tenant) = &session.tenant else { continue };
            let access = access_to(&mut access, &tenant.store);
            let mut exec = Exec {
                now: self.now,
                shared: self.shared,
                out: self.output,
                counts: self.counts,
            };
            match &step.command {
                StepCommand::Memcached(command) => {
                    memcached::execute_step(command, step.hash, access, &mut exec);
                }
                StepCommand::Redis(command) => redis::execute_step(command, step.hash, session, access, &mut exec),
            }
        }
        drop(access);
        window.clear();
        self.window = window;
    }

    /// Executes the window for a connection whose next command is executed by itself. `None` if that has to wait.
    fn finish(&mut self, group: &mut [Member], member: usize) -> Option<()> {
        self.flush(group);
        (!self.is_deferred(member)).then_some(())
    }

    fn is_deferred(&self, member: usize) -> bool {
        self.deferred.iter().any(|(deferred, _)| *deferred == member)
    }

    /// Turns to a connection's command outside of the window.
    fn alone<'g>(&'g mut self, group: &'g mut [Member], member: usize) -> (&'g mut Session, Exec<'g>) {
        self.enter(group, member);
        let exec = Exec {
            now: self.now,
            shared: self.shared,
            out: self.output,
            counts: self.counts,
        };
        (&mut group[member].1.session, exec)
    }

    /// Notes that what is executed from now on is this connection's.
    fn enter(&mut self, group: &[Member], member: usize) {
        while self.current < member {
            match &group[self.current].1.session.tenant {
                Some(tenant) => self.counts.hand_over(&tenant.counts),
                // A stranger's errors are no tenant's.
                None => self.counts.discard(),
            }
            self.current += 1;
            self.begins.push(Mark {
                copied: self.output.bytes.len(),
                all: self.output.len(),
            });
        }
    }

    fn has_many_replies(&self, member: usize) -> bool {
        self.current == member && self.output.len() - self.begins[member].all >= REPLY_BYTES
    }
}

/// Access to a tenant's store: the one there is, if it is to the same.
fn access_to<'x, 't>(access: &'x mut Option<Access<'t>>, store: &'t Arc<TenantStore>) -> &'x mut Access<'t> {
    if access
        .as_ref()
        .is_some_and(|access| !Arc::ptr_eq(access.store(), store))
    {
        // Its lock is released before another one is taken.
        *access = None;
    }
    access.get_or_insert_with(|| Access::each(store))
}

/// Loads the items of a window ahead; their buckets are on the way already.
fn prefetch_items(window: &[Step<'_>], group: &[Member]) {
    let mut access: Option<Access<'_>> = None;
    for step in window {
        if let Some(tenant) = &group[step.member].1.session.tenant {
            access_to(&mut access, &tenant.store)
                .shard_of(step.hash)
                .prefetch_item(step.hash);
        }
    }
}

/// Reads what a connection has sent.
fn receive(connection: &mut Connection, scratch: &mut [u8], used: &mut usize, shared: &Shared) -> Input {
    let held = connection.input.len();
    let is_long = held > COPIED_BEGINNING_BYTES || connection.needed > RECEIVE_BYTES;
    if connection.has_leftover || is_long {
        return receive_more(connection, shared);
    }
    // Only where there is room for as much as is received at most: to cut what has arrived costs more than to come back.
    if !connection.is_readable || connection.is_finished || scratch.len() - *used < RECEIVE_BYTES {
        return Input::Own(std::mem::take(&mut connection.input));
    }
    let begin = *used;
    let buffer = &mut scratch[begin..begin + RECEIVE_BYTES];
    buffer[..held].copy_from_slice(&connection.input);
    connection.input = Vec::new();
    let received = held + read(connection, &mut buffer[held..]);
    *used += received;
    Input::Scratch(begin..begin + received)
}

/// The same behind the beginning of a command.
fn receive_more(connection: &mut Connection, shared: &Shared) -> Input {
    let mut input = std::mem::take(&mut connection.input);
    let held = input.len();
    // Complete commands that wait come first; reading more would only make the buffer grow.
    if connection.is_readable && !connection.is_finished && !connection.has_leftover {
        let missing = connection
            .needed
            .saturating_sub(held)
            .clamp(RECEIVE_LONG_BYTES_MIN, RECEIVE_LONG_BYTES);
        let growth = (held + missing).saturating_sub(input.capacity());
        if growth > 0 && !connection.may_hold(growth, shared) {
            connection.is_starved = true;
        } else {
            input.reserve_exact(connection.needed.saturating_sub(held).max(missing));
            input.resize(held + missing, 0);
            let received = read(connection, &mut input[held..]);
            input.truncate(held + received);
        }
    }
    Input::Own(input)
}

fn read(connection: &mut Connection, buffer: &mut [u8]) -> usize {
    match connection.socket.read(buffer) {
        Ok(0) => {
            connection.is_finished = true;
            0
        }
        Ok(received) => {
            // A short read means that the socket is empty (epoll(7), "Questions and answers", 9), unless the end came along.
            connection.is_readable = received == buffer.len() || connection.is_closing;
            received
        }
        // The system says that there is something to read only once.
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
        result => {
            connection.is_readable = false;
            connection.is_broken = ignore_would_block(result).is_err();
            0
        }
    }
}

/// Keeps what was not executed for the next turn.
fn keep_rest(connection: &mut Connection, input: Input, scratch: &[u8], done: usize, now: UnixMs) {
    let rest_bytes = input.bytes(scratch).len() - done;
    if rest_bytes == 0 || connection.session.is_ending {
        connection.needed = 0;
        connection.incomplete_since = None;
        return;
    }
    if connection.session.needs_login() && rest_bytes > LOGIN_BYTES {
        connection.session.is_ending = true;
        return;
    }
    connection.input = input.into_rest(scratch, done);
    if connection.has_leftover {
        connection.incomplete_since = None;
    } else if done > 0 || connection.incomplete_since.is_none() {
        connection.incomplete_since = Some(now);
    }
}
