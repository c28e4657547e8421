//! Serving a group of connections: receive from all, execute everything in windows, send to each once.
//!
//! Commands with one key wait in a *window* until it is full or something else comes up; then their index buckets are
//! loaded ahead, then their items, then they are executed in order. Everything else is executed by itself, after the window.
//! So every command sees what those before it did, and replies are in order without being sorted.

mod ahead;
mod skip;

use std::sync::Arc;
use std::time::Instant;

use tidemark_plane::{Moment, Throttled};
use tidemark_protocol::{memcached as mc, resp};
use tidemark_store::Reservation;
use tidemark_types::UnixMs;

use ahead::{prefetch_items, prefetch_tenants};
use skip::Skipped;

use crate::access::{Access, access_to};
use crate::connection::{Connection, Skip};
use crate::counts::{Count, TurnCounts};
use crate::limits::{LONG_VALUE_BYTES, SCRATCH_BYTES, SEND_BYTES, TURN_COMMANDS, WINDOW_COMMANDS};
use crate::memory::Room;
use crate::output::Output;
use crate::ready::work_ns;
use crate::receive::{Input, Spares, keep_rest, receive};
use crate::session::{Exec, Protocol, Session, Visit};
use crate::shared::Shared;
use crate::step::{Copied, Done, Step, StepCommand};
use crate::tenant::Tenant;
use crate::{memcached, redis};

/// Parsing a shorter incomplete command again costs less than keeping how far it was parsed.
const PARSED_KEPT_FROM_BYTES: usize = 4 << 10;

/// A connection with its place in the worker's list.
pub(crate) type Member = (usize, Box<Connection>);

/// A worker's memory for serving groups, used again for each.
#[derive(Default)]
pub(crate) struct Turn {
    scratch: Vec<u8>,
    spares: Spares,
    args: resp::ArgList,
    output: Output,
    counts: TurnCounts,
    group: Vec<Member>,
    inputs: Vec<Input>,
    done: Vec<Done>,
    begins: Vec<Mark>,
    visits: Vec<Visit>,
    refused: Vec<Refusals>,
    moved: Vec<(usize, isize)>,
}

/// What of a connection's commands a limit refused: its tenant is not charged for that.
#[derive(Clone, Copy, Debug, Default)]
struct Refusals {
    member: usize,
    commands: u32,
    request_bytes: usize,
    reply_bytes: usize,
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
    began: Instant,
    shared: &'s Shared,
    output: &'s mut Output,
    counts: &'s mut TurnCounts,
    /// In the order of the connections; those of which nothing was refused are not in it.
    refused: &'s mut Vec<Refusals>,
    window: Vec<Step<'a>>,
    /// The connection whose commands are being executed.
    current: usize,
    /// For each connection up to the current one, where its replies begin.
    begins: &'s mut Vec<Mark>,
    /// For each connection up to the current one, what it may do.
    visits: &'s mut Vec<Visit>,
    /// Connections whose replies came to be too many within a window, whose long value is not copied yet, or whose command
    /// goes on in a later turn, and how far their input was executed.
    deferred: Vec<(usize, Done)>,
    /// For connections whose input begins with a long value, where that was begun to be copied to.
    rooms: Vec<(usize, Reservation)>,
    /// The same for the next time.
    begun: Vec<(usize, Reservation)>,
    /// What of a connection's bytes was moved in other visits than that which executes the command.
    moved: &'s mut Vec<(usize, isize)>,
}

impl Turn {
    pub(crate) fn take_group(&mut self) -> Vec<Member> {
        std::mem::take(&mut self.group)
    }

    pub(crate) fn put_group(&mut self, group: Vec<Member>) {
        self.group = group;
    }

    /// Gives memory back that was not needed since the last time. Whether there is more, which may not be needed from now
    /// on.
    pub(crate) fn tidy(&mut self, shared: &Shared) -> bool {
        self.spares.tidy(shared)
    }

    /// Serves each connection of a group once, and leaves with each about how much work that was.
    pub(crate) fn serve(&mut self, group: &mut [Member], shared: &Shared, now: UnixMs) {
        self.scratch.resize(SCRATCH_BYTES, 0);
        let mut used = 0;
        prefetch_tenants(group);
        for (_, connection) in group.iter_mut() {
            self.inputs.push(receive(
                connection,
                &mut self.scratch,
                &mut used,
                &mut self.spares,
                shared,
            ));
        }
        let begin = Instant::now();
        self.execute(group, shared, now, begin);
        // A piece of a long value is about as much work as a command.
        let pieces = group
            .iter()
            .filter(|(_, connection)| connection.place.is_some())
            .count();
        let works = self.done.iter().map(|done| u64::from(done.commands)).sum::<u64>() + pieces as u64;
        let nanos_each = begin.elapsed().as_nanos() as u64 / works.max(1);
        let inputs = std::mem::take(&mut self.inputs);
        for (member, input) in inputs.into_iter().enumerate() {
            let connection = &mut *group[member].1;
            let done = self.done[member];
            self.count(connection, member, nanos_each, now);
            let (from, to) = (self.begins[member].copied, self.begins[member + 1].copied);
            let (socket, unsent) = (&mut connection.socket, &mut connection.unsent);
            let sent = self.output.send(from, to, socket, unsent);
            connection.note_sent(&sent, now);
            if let Some(spare) = keep_rest(connection, input, &self.scratch, done.bytes, now) {
                self.spares.give(spare, shared);
            }
            connection.charge(shared, now);
        }
        self.output.clear();
    }

    /// Executes what was received.
    fn execute(&mut self, group: &mut [Member], shared: &Shared, now: UnixMs, began: Instant) {
        self.done.clear();
        self.refused.clear();
        self.moved.clear();
        self.begins.clear();
        self.begins.push(Mark { copied: 0, all: 0 });
        self.visits.clear();
        let mut executor = Executor {
            now,
            began,
            shared,
            output: &mut self.output,
            counts: &mut self.counts,
            refused: &mut self.refused,
            window: Vec::with_capacity(WINDOW_COMMANDS),
            current: 0,
            begins: &mut self.begins,
            visits: &mut self.visits,
            deferred: Vec::new(),
            rooms: Vec::new(),
            begun: Vec::new(),
            moved: &mut self.moved,
        };
        for (member, input) in self.inputs.iter().enumerate() {
            self.done
                .push(executor.run(group, member, input.bytes(&self.scratch), &mut self.args));
        }
        executor.flush(group);
        executor.enter(group, group.len());
        for (member, done) in executor.deferred {
            let (connection, visit) = (&mut *group[member].1, &mut executor.visits[member]);
            self.done[member] = done;
            connection.has_leftover = true;
            if connection.begun_bytes.is_none() {
                // Parsed behind what comes next.
                connection.parsed = None;
            }
            connection.progress = visit.progress.take();
            connection.begun = visit.left(done.bytes == 0);
            // Where it waits already, that is for its input.
            connection.wait_bytes = connection.wait_bytes.max(visit.wait_bytes as u64);
        }
        for (member, place) in executor.begun {
            group[member].1.place = Some(place);
        }
    }

    /// Counts a connection's turn.
    fn count(&mut self, connection: &mut Connection, member: usize, nanos_each: u64, now: UnixMs) {
        let done = self.done[member];
        let reply_bytes = self.begins[member + 1].all - self.begins[member].all;
        let moved = self
            .moved
            .iter()
            .filter(|(of, _)| *of == member)
            .map(|(_, bytes)| bytes)
            .sum();
        let bytes = done.bytes.saturating_add_signed(moved) + reply_bytes.min(SEND_BYTES);
        connection.work_ns = work_ns(done.commands, bytes);
        connection.executed = done.commands;
        if done.bytes == 0 {
            if let (Some(tenant), true) = (
                &connection.session.tenant,
                connection.place.is_some() || reply_bytes > 0,
            ) {
                // A piece of a value was copied, or of a reply made.
                self.counts.add(Count::BusyNanos, nanos_each as u32);
                self.counts.add(Count::NetworkOut, reply_bytes as u32);
                self.counts.hand_over(&tenant.counts);
                tenant.touch();
            }
            return;
        }
        connection.client().note_active(now);
        connection.is_new = false;
        if let Some(tenant) = &connection.session.tenant {
            let refused = self.refused.iter().find(|refused| refused.member == member);
            let refused = refused.copied().unwrap_or_default();
            let commands = done.commands.saturating_sub(refused.commands);
            self.counts.add(Count::Commands, commands);
            self.counts.add(
                Count::NetworkIn,
                done.bytes.saturating_sub(refused.request_bytes) as u32,
            );
            self.counts.add(
                Count::NetworkOut,
                reply_bytes.saturating_sub(refused.reply_bytes) as u32,
            );
            self.counts
                .add(Count::BusyNanos, (nanos_each * u64::from(commands)) as u32);
            self.counts.hand_over(&tenant.counts);
            tenant.touch();
        }
    }
}

impl<'a> Executor<'_, 'a> {
    /// Executes a connection's commands, as far as they are complete and its share of the turn goes.
    fn run(&mut self, group: &mut [Member], member: usize, bytes: &'a [u8], args: &mut resp::ArgList) -> Done {
        let mut done = Done { bytes: 0, commands: 0 };
        let connection = &mut *group[member].1;
        connection.has_leftover = false;
        if let Some(place) = connection.place.take() {
            self.rooms.push((member, place));
        }
        let mut visit = Visit::new(connection.room.left());
        visit.begun = std::mem::take(&mut connection.begun);
        visit.progress = connection.progress.take();
        self.visits.push(visit);
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
                if let Some(tenant) = &group[member].1.session.tenant {
                    tenant.counts.add(Count::Yields, 1);
                }
                break;
            }
            self.visits[member].enter(done.bytes == 0);
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

    /// Executes the command at the beginning of `rest`, or puts it into the window. `None` if it is incomplete, or has to
    /// wait.
    fn run_memcached(&mut self, group: &mut [Member], member: usize, before: Done, rest: &'a [u8]) -> Option<usize> {
        let connection = &mut *group[member].1;
        match memcached::parse(rest, &connection.session) {
            mc::Parsed::Incomplete { needed } => {
                connection.needed = needed;
                None
            }
            mc::Parsed::Complete { command, consumed } => {
                match memcached::step_key(&command, &mut connection.session) {
                    Some(key) => self.push(group, (member, before, consumed), key, StepCommand::Memcached(command)),
                    None => {
                        self.finish(group, member)?;
                        let operations = |session: &Session| memcached::operations(&command, session);
                        let is_finished =
                            self.within_limits(group, (member, consumed), operations, |refused, session, exec| {
                                let Some(refused) = refused else {
                                    return memcached::execute(&command, session, exec);
                                };
                                memcached::refuse(&command, refused, exec);
                                memcached::drop_line(&command, session);
                                true
                            });
                        if !is_finished {
                            self.suspend(member, before);
                            return None;
                        }
                    }
                }
                Some(consumed)
            }
            mc::Parsed::TooLarge { failure, key } => {
                self.finish(group, member)?;
                let (session, mut exec) = self.alone(group, member);
                memcached::fail_too_large(&failure, key, rest, session, &mut exec);
                group[member].1.skip = Skip::Bytes(failure.swallow);
                Some(failure.consumed)
            }
            mc::Parsed::Failed(failure) => {
                self.finish(group, member)?;
                let (session, mut exec) = self.alone(group, member);
                memcached::fail(&failure, rest, session, &mut exec);
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
        let parsed = match (connection.parsed.take(), connection.begun_bytes.take()) {
            // It goes on, and needs not be read again.
            (Some(begun), Some(consumed)) => {
                *args = *begun;
                resp::Parsed::Complete { consumed }
            }
            (Some(begun), None) => {
                *args = *begun;
                resp::parse_more(rest, &limits, args)
            }
            (None, _) => resp::parse(rest, &limits, args),
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
                    Some((key, step)) => self.push(group, (member, before, consumed), key, StepCommand::Redis(step)),
                    None => {
                        self.finish(group, member)?;
                        if !self.run_alone(group, member, args.args(rest), &rest[..consumed]) {
                            self.suspend(member, before);
                            let connection = &mut *group[member].1;
                            connection.parsed = Some(Box::new(std::mem::take(args)));
                            connection.begun_bytes = Some(consumed);
                            return None;
                        }
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

    /// Executes a command of RESP by itself. Whether it is finished.
    fn run_alone(&mut self, group: &mut [Member], member: usize, args: resp::Args<'_>, raw: &[u8]) -> bool {
        let operations = |_: &Session| redis::operations(args);
        self.within_limits(
            group,
            (member, raw.len()),
            operations,
            |refused, session, exec| match refused {
                Some(refused) => {
                    redis::refuse_throttled(args, refused, session, exec);
                    true
                }
                None => redis::execute(args, raw, session, exec),
            },
        )
    }

    /// Has a connection's command go on in a later turn.
    fn suspend(&mut self, member: usize, before: Done) {
        self.visits[member].is_suspended = true;
        self.deferred.push((member, before));
    }

    /// Puts a command, of which and of what is before it the sizes are given, into the window, and executes the window if it
    /// is full.
    fn push(
        &mut self,
        group: &mut [Member],
        (member, before, bytes): (usize, Done, usize),
        key: &[u8],
        command: StepCommand<'a>,
    ) {
        let session = &group[member].1.session;
        let Some(tenant) = &session.tenant else { return };
        let hash = tenant.store.key(session.db, key).hash;
        tenant.store.prefetch(hash);
        self.window.push(Step {
            member,
            before,
            bytes,
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
            let connection = &*group[step.member].1;
            let session = &connection.session;
            let Some(tenant) = &session.tenant else { continue };
            let visit = &mut self.visits[step.member];
            visit.enter(step.before.bytes == 0);
            let is_resumed = visit.is_resumed();
            let is_long = step.bytes >= LONG_VALUE_BYTES;
            if is_long && step.before.bytes > 0 {
                // Replies to what comes before it would wait to be sent, and with them the room that is taken for it.
                self.deferred.push((step.member, step.before));
                continue;
            }
            let room = if is_long { self.room_of(step) } else { None };
            let is_begun = room.is_some();
            let (is_limited, replied) = (tenant.throttle.is_limited(), self.output.len());
            if is_limited
                && !is_begun
                && !is_resumed
                && let Err(refused) = tenant.throttle.admit(1, step.bytes as u64, self.moment())
            {
                self.refuse_step(step, (session, &connection.room), &refused);
                continue;
            }
            if is_long {
                // Room is taken under the lock.
                access = None;
                let written_before = room.as_ref().map_or(0, Reservation::written_bytes);
                match step.copy_value(room, &tenant.store, session.db, self.now) {
                    Copied::Not => {}
                    Copied::Wholly(room) => {
                        self.moved.push((step.member, -(written_before as isize)));
                        access_to(&mut access, &tenant.store).give_room(room);
                    }
                    Copied::InPart(room) => {
                        if is_limited && !is_begun {
                            tenant.throttle.charge(step.bytes as u64, self.moment());
                        }
                        let piece_bytes = room.written_bytes() - written_before;
                        self.moved.push((step.member, piece_bytes as isize));
                        self.begun.push((step.member, room));
                        self.deferred.push((step.member, step.before));
                        continue;
                    }
                }
            }
            let access = access_to(&mut access, &tenant.store);
            let mut exec = Exec {
                now: self.now,
                shared: self.shared,
                out: self.output,
                counts: self.counts,
                room: &connection.room,
                visit: &mut self.visits[step.member],
            };
            match &step.command {
                StepCommand::Memcached(command) => {
                    memcached::execute_step(command, step.hash, access, &mut exec);
                }
                StepCommand::Redis(command) => redis::execute_step(command, step.hash, session, access, &mut exec),
            }
            let must_wait = exec.visit.wait_bytes > 0;
            // What comes next is not the first one.
            exec.visit.enter(false);
            if is_long {
                access.put_room_back();
            }
            if must_wait {
                if is_limited && !is_begun && !is_resumed {
                    tenant.throttle.charge(step.bytes as u64, self.moment());
                }
                self.suspend(step.member, step.before);
            } else if is_limited {
                // What was copied in pieces, or waited for memory, was charged when that began.
                let request_bytes = if is_begun || is_resumed { 0 } else { step.bytes };
                let bytes = request_bytes + self.output.len() - replied;
                tenant.throttle.charge(bytes as u64, self.moment());
            }
        }
        drop(access);
        window.clear();
        self.window = window;
    }

    /// Where a step's value was begun to be copied to.
    #[cold]
    fn room_of(&mut self, step: &Step<'_>) -> Option<Reservation> {
        let at = self.rooms.iter().position(|(member, _)| *member == step.member)?;
        Some(self.rooms.swap_remove(at).1)
    }

    /// The time that limits are kept by.
    fn moment(&self) -> Moment {
        Moment::after_start(self.began.saturating_duration_since(self.shared.started))
    }

    /// Answers a command of the window that is above a limit.
    #[cold]
    fn refuse_step(&mut self, step: &Step<'a>, (session, room): (&Session, &Room), refused: &Throttled) {
        let replied = self.output.len();
        let mut exec = Exec {
            now: self.now,
            shared: self.shared,
            out: self.output,
            counts: self.counts,
            room,
            visit: &mut self.visits[step.member],
        };
        match &step.command {
            StepCommand::Memcached(command) => memcached::refuse(command, refused, &mut exec),
            StepCommand::Redis(command) => redis::refuse_step(command, refused, session, &mut exec),
        }
        self.note_refusal(step.member, step.bytes, replied);
    }

    /// Notes that a command was refused, and that there were `replied` bytes of replies before it.
    fn note_refusal(&mut self, member: usize, request_bytes: usize, replied: usize) {
        if self.refused.last().is_none_or(|last| last.member != member) {
            self.refused.push(Refusals {
                member,
                ..Refusals::default()
            });
        }
        if let Some(refused) = self.refused.last_mut() {
            refused.commands += 1;
            refused.request_bytes += request_bytes;
            refused.reply_bytes += self.output.len() - replied;
        }
    }

    /// Does something by itself that is `bytes` of the connection's input and so many operations, if its tenant's limits
    /// allow it; `act` is told what refuses it, if something does.
    fn within_limits<R>(
        &mut self,
        group: &mut [Member],
        (member, bytes): (usize, usize),
        operations: impl FnOnce(&Session) -> u64,
        act: impl FnOnce(Option<&Throttled>, &mut Session, &mut Exec<'_>) -> R,
    ) -> R {
        let session = &group[member].1.session;
        let is_limited = |tenant: &&Arc<Tenant>| tenant.throttle.is_limited();
        let Some(tenant) = session.tenant.as_ref().filter(is_limited).cloned() else {
            let (session, mut exec) = self.alone(group, member);
            return act(None, session, &mut exec);
        };
        let operations = if self.visits[member].is_resumed() {
            0
        } else {
            operations(session)
        };
        let (moment, replied) = (self.moment(), self.output.len());
        // What is no operation is not refused, and its request is not charged again.
        let request_bytes = if operations == 0 { 0 } else { bytes };
        let admitted = match operations {
            0 => Ok(()),
            _ => tenant.throttle.admit(operations, request_bytes as u64, moment),
        };
        let (session, mut exec) = self.alone(group, member);
        let done = act(admitted.as_ref().err(), session, &mut exec);
        if admitted.is_ok() {
            let moved_bytes = request_bytes + self.output.len() - replied;
            tenant.throttle.charge(moved_bytes as u64, moment);
        } else {
            self.note_refusal(member, bytes, replied);
        }
        done
    }

    /// Executes the window for a connection whose next command is executed by itself. `None` if that has to wait.
    fn finish(&mut self, group: &mut [Member], member: usize) -> Option<()> {
        if !self.window.is_empty() {
            self.flush(group);
        }
        (!self.is_deferred(member)).then_some(())
    }

    fn is_deferred(&self, member: usize) -> bool {
        self.deferred.iter().any(|(deferred, _)| *deferred == member)
    }

    /// Turns to a connection's command outside of the window.
    fn alone<'g>(&'g mut self, group: &'g mut [Member], member: usize) -> (&'g mut Session, Exec<'g>) {
        self.enter(group, member);
        let connection = &mut *group[member].1;
        let exec = Exec {
            now: self.now,
            shared: self.shared,
            out: self.output,
            counts: self.counts,
            room: &connection.room,
            visit: &mut self.visits[member],
        };
        (&mut connection.session, exec)
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
        self.current == member && self.output.len() - self.begins[member].all >= self.visits[member].reply_bytes
    }
}
