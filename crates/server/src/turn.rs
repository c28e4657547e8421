//! Serving a group of connections: receive from all, execute everything in windows, send to each once.
//!
//! Commands with one key wait in a *window* until it is full or something else comes up. Then their index buckets are
//! loaded ahead, then their items, then they are executed in order. Every other command is executed by itself, after
//! the window. Every command thus sees the effects of those before it, and replies are in order without being sorted.

mod admit;
mod ahead;
mod count;
mod part;
mod refuse;
mod run;
mod sampled;
mod seek;
mod skip;

use std::time::Instant;

use tidemark_plane::{Moment, Throttled};
use tidemark_protocol::resp;
use tidemark_store::Reservation;
use tidemark_types::UnixMs;

use ahead::{prefetch_items, prefetch_tenants};
use part::{Mark, Part};
use sampled::Sampler;

use crate::access::{Access, access_to};
use crate::connection::Connection;
use crate::counts::{Count, TurnCounts};
use crate::cpu::CpuMeasure;
use crate::limits::{LONG_VALUE_BYTES, SCRATCH_BYTES, WINDOW_COMMANDS};
use crate::output::Output;
use crate::receive::{Input, Spares, keep_rest, receive};
use crate::session::{Exec, Session};
use crate::shared::Shared;
use crate::step::{Copied, Done, Step, StepCommand, emptied};
use crate::suspend::{Wait, pending};
use crate::{memcached, redis};

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
    /// Apart from the rest of each connection's, because commands in the window read of them.
    inputs: Vec<Input>,
    parts: Vec<Part>,
    /// The reads of flash that connections wait for.
    pub(crate) waits: Vec<(usize, Wait)>,
    sampler: Sampler,
    /// Empty between two groups.
    window: Vec<Step<'static>>,
}

/// The executor of a group's commands, which keeps the replies apart.
struct Executor<'s, 'a> {
    now: UnixMs,
    began: Instant,
    shared: &'s Shared,
    output: &'s mut Output,
    counts: &'s mut TurnCounts,
    window: Vec<Step<'a>>,
    /// The connection whose commands are being executed.
    current: usize,
    /// So many bytes of replies are enough for the current one.
    enough: usize,
    /// Of each connection in the group.
    parts: &'s mut [Part],
    /// How many of them stop before the end of their input.
    stopped: usize,
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
        self.sampler.pass(group.len());
        for (_, connection) in group.iter_mut() {
            let left = connection.room.left();
            self.parts.push(Part::new(left));
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
        let works = self.parts.iter().map(|part| u64::from(part.done.commands)).sum::<u64>() + pieces as u64;
        let nanos_each = begin.elapsed().as_nanos() as u64 / works.max(1);
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut from = Mark::default();
        for (member, input) in inputs.drain(..).enumerate() {
            let connection = &mut *group[member].1;
            let (done, to) = (self.parts[member].done, self.parts[member].end);
            self.count(connection, member, to.all - from.all, nanos_each, now);
            if self.sampler.takes(member) {
                self.hand_samples_over(connection);
            }
            let pending = pending(connection).filter(|_| from.copied < to.copied);
            let (socket, unsent) = (&mut connection.socket, &mut connection.unsent);
            let sent = match pending {
                None => self.output.send(from.copied, to.copied, socket, unsent),
                Some(barrier) => {
                    connection.is_withheld = true;
                    self.waits.push((member, Wait::Durable(barrier)));
                    self.output.hold(from.copied, to.copied, unsent)
                }
            };
            connection.note_sent(&sent, now);
            if let Some(spare) = keep_rest(connection, input, &self.scratch, done.bytes, now) {
                self.spares.give(spare, shared);
            }
            connection.charge(shared, now);
            from = to;
        }
        self.inputs = inputs;
        // With reservations to which nothing was copied after all.
        self.parts.clear();
        self.output.clear();
    }

    /// Executes the received input.
    fn execute(&mut self, group: &mut [Member], shared: &Shared, now: UnixMs, began: Instant) {
        let mut executor = Executor {
            now,
            began,
            shared,
            output: &mut self.output,
            counts: &mut self.counts,
            window: emptied(std::mem::take(&mut self.window)),
            current: 0,
            enough: self.parts.first().map_or(0, |part| part.visit.reply_bytes),
            parts: &mut self.parts,
            stopped: 0,
            sampler: &mut self.sampler,
        };
        for (member, input) in self.inputs.iter().enumerate() {
            let done = executor.run(group, member, input.bytes(&self.scratch), &mut self.args);
            executor.parts[member].done = done;
        }
        executor.flush(group);
        executor.enter(group, group.len());
        let stopped = executor.stopped;
        self.window = emptied(executor.window);
        if stopped > 0 {
            self.put_off(group);
        }
    }

    /// Leaves the state of unfinished commands with connections.
    #[cold]
    fn put_off(&mut self, group: &mut [Member]) {
        for (member, (part, (_, connection))) in self.parts.iter_mut().zip(group).enumerate() {
            let Some(done) = part.stop.take() else { continue };
            let visit = &mut part.visit;
            part.done = done;
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
            if part.is_begun {
                connection.place = part.place.take();
            }
        }
    }
}

impl<'a> Executor<'_, 'a> {
    /// Has a connection's command go on in a later turn.
    fn suspend(&mut self, member: usize, before: Done) {
        let visit = &mut self.parts[member].visit;
        visit.is_suspended = true;
        visit.waits.keep();
        self.stop(member, before);
    }

    /// Has a connection stop before the end of its input, of which so much was executed. It has too many replies within a
    /// window, a long value that is not copied yet, or a command that goes on later.
    fn stop(&mut self, member: usize, done: Done) {
        self.parts[member].stop = Some(done);
        self.stopped += 1;
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
            if self.has_stopped(step.member) {
                self.seeks_ahead(step, group, &mut access);
                continue;
            }
            if self.has_many_replies(step.member) {
                self.stop(step.member, step.before);
                continue;
            }
            let connection = &*group[step.member].1;
            let session = &connection.session;
            let Some(tenant) = &session.tenant else { continue };
            let is_resumed = self.parts[step.member].visit.is_resumed();
            let is_long = step.bytes >= LONG_VALUE_BYTES;
            if is_long && step.before.bytes > 0 {
                // Replies to earlier commands would wait to be sent, and with them the room that is taken for it.
                self.stop(step.member, step.before);
                continue;
            }
            let room = if is_long {
                self.parts[step.member].place.take()
            } else {
                None
            };
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
                    self.parts[step.member].visit.waits.forget();
                    self.refuse_step(step, (session, &connection.room), &Throttled::for_flash());
                    self.parts[step.member].visit.pass();
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
                        self.parts[step.member].moved_bytes -= written_before as isize;
                        access_to(&mut access, &tenant.store).give_room(room);
                    }
                    Copied::InPart(room) => {
                        if is_limited && !is_begun {
                            tenant.throttle.charge(step.bytes as u64, self.moment());
                        }
                        let piece_bytes = room.written_bytes() - written_before;
                        let part = &mut self.parts[step.member];
                        part.moved_bytes += piece_bytes as isize;
                        (part.place, part.is_begun) = (Some(room), true);
                        self.stop(step.member, step.before);
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
                visit: &mut self.parts[step.member].visit,
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

    /// The time that limits are kept by.
    fn moment(&self) -> Moment {
        Moment::after_start(self.began.saturating_duration_since(self.shared.started))
    }

    /// Executes the window for a connection whose next command is executed by itself. `None` if that has to wait.
    fn finish(&mut self, group: &mut [Member], member: usize) -> Option<()> {
        if !self.window.is_empty() {
            self.flush(group);
        }
        (!self.has_stopped(member)).then_some(())
    }

    fn has_stopped(&self, member: usize) -> bool {
        self.parts[member].stop.is_some()
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
            visit: &mut self.parts[member].visit,
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
            self.parts[self.current].end = Mark {
                copied: self.output.bytes.len(),
                all: self.output.len(),
            };
            self.current += 1;
        }
        let reply_bytes = self.parts.get(member).map_or(0, |part| part.visit.reply_bytes);
        self.enough = self.output.len() + reply_bytes;
    }

    #[inline]
    fn has_many_replies(&self, member: usize) -> bool {
        self.current == member && self.output.len() >= self.enough
    }
}
