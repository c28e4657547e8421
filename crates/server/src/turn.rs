//! Serving a group of connections: receive from all, execute everything in windows, send to each once.
//!
//! Commands with one key wait in a *window* until it is full or something else comes up. Then their index buckets are
//! loaded ahead, then their items, then they are executed in order. Every other command is executed by itself, after
//! the window. Every command thus sees the effects of those before it, and replies are in order without being sorted.

mod admit;
mod ahead;
mod count;
mod refuse;
mod sampled;
mod seek;
mod skip;

use std::time::Instant;

use tidemark_plane::{Moment, Throttled};
use tidemark_protocol::{memcached as mc, resp};
use tidemark_store::Reservation;
use tidemark_types::UnixMs;

use admit::Asked;
use ahead::{prefetch_items, prefetch_tenants};
use refuse::Refusals;
use sampled::Sampler;
use skip::Skipped;

use crate::access::{Access, access_to};
use crate::connection::{Connection, Skip};
use crate::counts::{Count, TurnCounts};
use crate::cpu::CpuMeasure;
use crate::entrance::Protocol;
use crate::limits::{LONG_VALUE_BYTES, SCRATCH_BYTES, TURN_COMMANDS, WINDOW_COMMANDS};
use crate::output::Output;
use crate::receive::{Input, Spares, keep_rest, receive};
use crate::session::{Exec, Session, Visit};
use crate::shared::Shared;
use crate::step::{Copied, Done, Step, StepCommand, emptied};
use crate::suspend::{Wait, Waits, pending};
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
    /// The reads of flash that connections wait for.
    pub(crate) waits: Vec<(usize, Wait)>,
    deferred: Vec<(usize, Done)>,
    rooms: Vec<(usize, Reservation)>,
    begun: Vec<(usize, Reservation)>,
    sampler: Sampler,
    /// Empty between two groups.
    window: Vec<Step<'static>>,
}

/// A place in the replies.
#[derive(Clone, Copy)]
struct Mark {
    /// Bytes that were copied before it.
    copied: usize,
    /// Bytes in all before it.
    all: usize,
}

/// The executor of a group's commands, which keeps the replies apart.
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
    /// The beginning of the replies of each connection up to the current one.
    begins: &'s mut Vec<Mark>,
    /// So many bytes of replies are enough for the current one.
    enough: usize,
    /// The limits of each connection.
    visits: &'s mut Vec<Visit>,
    /// Connections that stop before the end of their input, and how far it was executed. They have too many replies
    /// within a window, a long value that is not copied yet, or a command that goes on later.
    deferred: &'s mut Vec<(usize, Done)>,
    /// For connections whose input begins with a long value, where that was begun to be copied to.
    rooms: &'s mut Vec<(usize, Reservation)>,
    /// The same for the next time.
    begun: &'s mut Vec<(usize, Reservation)>,
    /// The bytes of connections that were moved in other visits than the one that executes the command.
    moved: &'s mut Vec<(usize, isize)>,
    sampler: &'s mut Sampler,
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
        self.visits.clear();
        self.sampler.pass(group.len());
        for (_, connection) in group.iter_mut() {
            let left = connection.room.left();
            self.visits.push(Visit::new(left));
            self.inputs.push(receive(
                (connection, left),
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
        let mut inputs = std::mem::take(&mut self.inputs);
        for (member, input) in inputs.drain(..).enumerate() {
            let connection = &mut *group[member].1;
            let done = self.done[member];
            self.count(connection, member, nanos_each, now);
            if self.sampler.takes(member) {
                self.hand_samples_over(connection);
            }
            let (from, to) = (self.begins[member].copied, self.begins[member + 1].copied);
            let pending = pending(connection).filter(|_| from < to);
            let (socket, unsent) = (&mut connection.socket, &mut connection.unsent);
            let sent = match pending {
                None => self.output.send(from, to, socket, unsent),
                Some(barrier) => {
                    connection.is_withheld = true;
                    self.waits.push((member, Wait::Durable(barrier)));
                    self.output.hold(from, to, unsent)
                }
            };
            connection.note_sent(&sent, now);
            if let Some(spare) = keep_rest(connection, input, &self.scratch, done.bytes, now) {
                self.spares.give(spare, shared);
            }
            connection.charge(shared, now);
        }
        self.inputs = inputs;
        self.output.clear();
    }

    /// Executes the received input.
    fn execute(&mut self, group: &mut [Member], shared: &Shared, now: UnixMs, began: Instant) {
        self.done.clear();
        self.refused.clear();
        self.moved.clear();
        self.begins.clear();
        self.begins.push(Mark { copied: 0, all: 0 });
        let mut executor = Executor {
            now,
            began,
            shared,
            output: &mut self.output,
            counts: &mut self.counts,
            refused: &mut self.refused,
            window: emptied(std::mem::take(&mut self.window)),
            current: 0,
            begins: &mut self.begins,
            enough: self.visits.first().map_or(0, |visit| visit.reply_bytes),
            visits: &mut self.visits,
            deferred: &mut self.deferred,
            rooms: &mut self.rooms,
            begun: &mut self.begun,
            moved: &mut self.moved,
            sampler: &mut self.sampler,
        };
        for (member, input) in self.inputs.iter().enumerate() {
            self.done
                .push(executor.run(group, member, input.bytes(&self.scratch), &mut self.args));
        }
        executor.flush(group);
        executor.enter(group, group.len());
        self.window = emptied(executor.window);
        if !self.deferred.is_empty() || !self.begun.is_empty() {
            self.put_off(group);
        }
        // Reservations to which nothing was copied after all.
        self.rooms.clear();
    }

    /// Leaves the state of unfinished commands with connections.
    #[cold]
    fn put_off(&mut self, group: &mut [Member]) {
        for (member, done) in self.deferred.drain(..) {
            let (connection, visit) = (&mut *group[member].1, &mut self.visits[member]);
            self.done[member] = done;
            connection.has_leftover = true;
            if connection.begun_bytes.is_none() {
                // It is parsed behind the next input.
                connection.parsed = None;
            }
            connection.progress = visit.progress.take();
            connection.sought = visit.waits.left(done.bytes == 0);
            self.waits.extend(visit.waits.take().map(|wait| (member, wait)));
            connection.begun = visit.left(done.bytes == 0);
            // If it waits already, that is for its input.
            connection.wait_bytes = connection.wait_bytes.max(visit.wait_bytes as u64);
        }
        for (member, place) in self.begun.drain(..) {
            group[member].1.place = Some(place);
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
        let visit = &mut self.visits[member];
        visit.begun = std::mem::take(&mut connection.begun);
        visit.progress = connection.progress.take();
        visit.waits = Waits::since(std::mem::take(&mut connection.sought));
        visit.begin();
        while done.bytes < bytes.len() && !group[member].1.session.is_ending {
            let rest = &bytes[done.bytes..];
            if !matches!(group[member].1.skip, Skip::Nothing) {
                match self.skip(group, member, rest) {
                    Skipped::Nothing => {}
                    Skipped::Bytes(bytes) => {
                        done.bytes += bytes;
                        continue;
                    }
                    Skipped::Incomplete => break,
                }
            }
            if done.commands as usize >= TURN_COMMANDS || self.has_many_replies(member) {
                group[member].1.has_leftover = true;
                if let Some(tenant) = &group[member].1.session.tenant {
                    tenant.counts.add(Count::Yields, 1);
                }
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
                        let (replied, mut is_refused) = (self.output.len(), false);
                        let asked = |session: &Session| Asked {
                            operations: memcached::operations(&command, session),
                            adds_data: memcached::adds_data(&command),
                        };
                        let is_finished =
                            self.within_limits(group, (member, consumed), asked, |refused, session, exec| {
                                let Some(refused) = refused else {
                                    return memcached::execute(&command, session, exec);
                                };
                                memcached::refuse(&command, refused, exec);
                                memcached::drop_line(&command, session);
                                is_refused = true;
                                true
                            });
                        if !is_finished {
                            self.suspend(member, before);
                            return None;
                        }
                        self.visits[member].pass();
                        if self.sampler.takes(member) && !is_refused {
                            self.record_memcached(group, &command, (member, consumed), replied);
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
                        self.visits[member].pass();
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
        let asked = |_: &Session| Asked {
            operations: redis::operations(args),
            adds_data: redis::adds_data(args),
        };
        let (replied, mut is_refused) = (self.output.len(), false);
        let is_finished = self.within_limits(
            group,
            (member, raw.len()),
            asked,
            |refused, session, exec| match refused {
                Some(refused) => {
                    redis::refuse_throttled(args, refused, session, exec);
                    is_refused = true;
                    true
                }
                None => redis::execute(args, raw, session, exec),
            },
        );
        if self.sampler.takes(member) && is_finished && !is_refused {
            self.record_redis(group, args, (member, raw.len()), replied);
        }
        is_finished
    }

    /// Has a connection's command go on in a later turn.
    fn suspend(&mut self, member: usize, before: Done) {
        self.visits[member].is_suspended = true;
        self.visits[member].waits.keep();
        self.deferred.push((member, before));
    }

    /// Puts a command into the window, and executes the window if it is full. The sizes of the command and of the input
    /// before it are given.
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
        let has_stamps = self.shared.measure == CpuMeasure::Requests;
        for step in &window {
            self.enter(group, step.member);
            if self.is_deferred(step.member) {
                self.seeks_ahead(step, group, &mut access);
                continue;
            }
            if self.has_many_replies(step.member) {
                self.deferred.push((step.member, step.before));
                continue;
            }
            let connection = &*group[step.member].1;
            let session = &connection.session;
            let Some(tenant) = &session.tenant else { continue };
            let is_resumed = self.visits[step.member].is_resumed();
            let is_long = step.bytes >= LONG_VALUE_BYTES;
            if is_long && step.before.bytes > 0 {
                // Replies to earlier commands would wait to be sent, and with them the room that is taken for it.
                self.deferred.push((step.member, step.before));
                continue;
            }
            let room = if is_long { self.room_of(step) } else { None };
            let is_begun = room.is_some();
            let (is_limited, replied) = (tenant.throttle.is_limited(), self.output.len());
            if is_limited
                && !is_begun
                && !is_resumed
                && let Err(refused) = step.admit(&tenant.throttle, self.moment())
            {
                self.refuse_step(step, (session, &connection.room), &refused);
                continue;
            }
            if tenant.tier.is_some() && !is_begun && self.seeks(step, tenant, session, &mut access) {
                if !is_resumed && tenant.suspended.is_full(&self.shared.limits) {
                    self.visits[step.member].waits.forget();
                    self.refuse_step(step, (session, &connection.room), &Throttled::for_flash());
                    self.visits[step.member].pass();
                    continue;
                }
                if is_limited && !is_resumed {
                    tenant.throttle.charge(step.bytes as u64, self.moment());
                }
                self.suspend(step.member, step.before);
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
            let began = has_stamps.then(Instant::now);
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
            exec.visit.pass();
            if let Some(began) = began {
                let ns = began.elapsed().as_nanos() as u64;
                tenant.counts.add(Count::CpuNanos, ns);
                self.shared.tenants.sockets().cpu.charge(ns);
            }
            if is_long {
                access.put_room_back();
            }
            if must_wait {
                if is_limited && !is_begun && !is_resumed {
                    tenant.throttle.charge(step.bytes as u64, self.moment());
                }
                self.suspend(step.member, step.before);
            } else if is_limited {
                // A command that was copied in pieces, or waited for memory, was charged when that began.
                let request_bytes = if is_begun || is_resumed { 0 } else { step.bytes };
                let bytes = request_bytes + self.output.len() - replied;
                tenant.throttle.charge(bytes as u64, self.moment());
            }
            if self.sampler.takes(step.member) && !must_wait {
                self.record_step(group, step, replied);
            }
        }
        drop(access);
        window.clear();
        self.window = window;
    }

    /// The reservation to which a step's value was begun to be copied.
    #[cold]
    fn room_of(&mut self, step: &Step<'_>) -> Option<Reservation> {
        let at = self.rooms.iter().position(|(member, _)| *member == step.member)?;
        Some(self.rooms.swap_remove(at).1)
    }

    /// The time that limits are kept by.
    fn moment(&self) -> Moment {
        Moment::after_start(self.began.saturating_duration_since(self.shared.started))
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

    /// Notes that commands from now on are this connection's.
    #[inline]
    fn enter(&mut self, group: &[Member], member: usize) {
        if self.current < member {
            self.leave_current(group, member);
        }
    }

    fn leave_current(&mut self, group: &[Member], member: usize) {
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
        let reply_bytes = self.visits.get(member).map_or(0, |visit| visit.reply_bytes);
        self.enough = self.output.len() + reply_bytes;
    }

    #[inline]
    fn has_many_replies(&self, member: usize) -> bool {
        self.current == member && self.output.len() >= self.enough
    }
}
