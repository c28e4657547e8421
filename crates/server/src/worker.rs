//! A worker: a thread with an event loop, and the connections that it was given.
//!
//! One pass of the loop is a *turn*. The worker asks the system which connections are ready, and serves them in groups
//! ([`crate::turn`]) and in the order of [`crate::ready`]. It asks the system again after each [`POLL_EVERY`] of work,
//! or [`POLL_EVERY_UNEVEN`]. It does a slice of upkeep, and once a second looks for connections that have passed a
//! limit. A turn never waits for anything but the first of these.

mod flash;
mod mailbox;
mod sweep;
mod waiting;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use tidemark_store::{Keeper, thread_cpu_time};
use tidemark_types::UnixMs;

use crate::acceptor::Acceptor;
use crate::clients::Arrival;
use crate::connection::Connection;
use crate::cpu::CpuShares;
use crate::entrance::{Entrance, Protocol};
use crate::estimates::NextEstimate;
use crate::limits::{
    GROUP_CONNECTIONS, KEEPER_SLICE, LONG_VISIT, POLL_EVERY, POLL_EVERY_UNEVEN, SWEEP_EVERY, TURN_CONNECTIONS,
};
use crate::on_core::OnCore;
use crate::ready::{Ready, Waiting};
use crate::session::Session;
use crate::shared::Shared;
use crate::turn::{Member, Turn};
use flash::Reads;
use mailbox::WAKER;
pub(crate) use mailbox::{Mailbox, Station};

/// Readiness events taken from the system at a time.
const EVENTS: usize = 1024;
const MEMCACHED_LISTENER: Token = Token(usize::MAX - 1);
const REDIS_LISTENER: Token = Token(usize::MAX - 2);
const FLASH: Token = Token(usize::MAX - 3);

pub(crate) struct Worker {
    number: usize,
    poll: Poll,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
    keeper: Keeper,
    /// Only the first worker accepts; it hands connections to all.
    acceptor: Option<Acceptor>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Connections to serve.
    ready: Ready,
    turn: Turn,
    /// The reads that commands wait for on flash, if there is any.
    reads: Option<Reads>,
    /// Times that a connection was parked.
    parkings: u64,
    /// When the system was last asked who is ready.
    looked_at: Instant,
    /// Connections served so far.
    visits: u64,
    on_core: OnCore,
    cpu: CpuShares,
    /// When modelled CPU time is estimated next, where workers do that.
    next_estimate: Option<NextEstimate>,
    /// The time until which the worker's work is stamped: later work belongs to the next stamp.
    stamped_at: Instant,
    /// The time since which the ready connections have been so, as far as is known; in microseconds since the server's
    /// start.
    ready_since_us: u64,
    next_sweep: UnixMs,
    /// Connections that wait for the answer to a failed login: until when, where, and which.
    held: VecDeque<(Instant, usize, u64)>,
    /// Set when draining begins: until when.
    drain_until: Option<Instant>,
}

/// The parts that a worker needs to begin.
pub(crate) struct Parts {
    pub(crate) number: usize,
    pub(crate) station: Station,
    pub(crate) shared: Arc<Shared>,
    pub(crate) keeper: Keeper,
    pub(crate) listeners: Vec<(TcpListener, Entrance)>,
}

impl Worker {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let Station { poll, mailbox } = parts.station;
        let flash = parts.shared.tenants.flash();
        let reads = flash
            .map(|flash| Reads::new(flash, poll.registry(), FLASH))
            .transpose()?;
        let mut listeners = parts.listeners;
        for (listener, entrance) in &mut listeners {
            poll.registry()
                .register(listener, token_of(entrance.protocol), Interest::READABLE)?;
        }
        let acceptor = if listeners.is_empty() {
            None
        } else {
            Some(Acceptor::new(listeners)?)
        };
        let (estimating, measure) = (parts.shared.tenants.estimating(), parts.shared.measure);
        let next_estimate = estimating.map(|estimating| NextEstimate::new(estimating.interval));
        Ok(Self {
            number: parts.number,
            poll,
            mailbox,
            shared: parts.shared,
            keeper: parts.keeper,
            acceptor,
            connections: Vec::new(),
            free: Vec::new(),
            ready: Ready::default(),
            turn: Turn::default(),
            reads,
            parkings: 0,
            looked_at: Instant::now(),
            visits: 0,
            on_core: OnCore::default(),
            cpu: CpuShares::new(Instant::now(), next_estimate.is_some(), measure),
            next_estimate,
            stamped_at: Instant::now(),
            ready_since_us: 0,
            next_sweep: UnixMs(0),
            held: VecDeque::new(),
            drain_until: None,
        })
    }

    /// Runs until the server has drained.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut timeout = None;
        loop {
            let now = self.look(&mut events, timeout);
            self.release();
            let now = self.serve(&mut events, now);
            self.take_given(now);
            let cpu = &mut self.cpu;
            let kept = self
                .keeper
                .run_metered(now, KEEPER_SLICE, |store, took| cpu.keep(store, took));
            let swept = self.sweep(now);
            self.estimate();
            if self.is_drained() {
                self.read_cpu();
                return;
            }
            timeout = self.next_timeout(kept, swept);
            let waits = timeout != Some(Duration::ZERO);
            if self.cpu.is_due() || (waits && self.cpu.is_due_before_wait(self.stamped_at)) {
                self.read_cpu();
            }
        }
    }

    /// Asks the system which connections are ready, and waits for so long if none is. Returns the time then.
    fn look(&mut self, events: &mut Events, timeout: Option<Duration>) -> UnixMs {
        if let Err(error) = self.poll.poll(events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            // The connections of a worker that is gone would hang; a process that is gone is started again.
            tracing::error!(worker = self.number, %error, "asking the system for ready connections");
            std::process::abort();
        }
        // A worker that waits for nothing asks again and again. A connection that is ready now may have been so since
        // the time before.
        let looked_before = std::mem::replace(&mut self.looked_at, Instant::now());
        let has_worked = timeout == Some(Duration::ZERO);
        self.ready_since_us = self.since_start_us(if has_worked { looked_before } else { self.looked_at });
        self.stamped_at = self.looked_at;
        if has_worked {
            if let Some(cpu_time) = self.on_core.go_on(self.looked_at, thread_cpu_time) {
                self.cpu.settle(self.looked_at, cpu_time, &self.shared);
            }
        } else {
            self.on_core.wait();
        }
        let now = Shared::now();
        for event in &*events {
            self.note_event(event);
        }
        self.land(now);
        self.take_scripted();
        self.take_arrivals(now);
        if let Some(acceptor) = &mut self.acceptor
            && acceptor.may_accept()
        {
            acceptor.accept(&self.shared);
            self.stamp_nobody(self.stamped_at);
        }
        now
    }

    /// The work since `began` was for nobody in particular.
    fn stamp_nobody(&mut self, began: Instant) {
        self.stamped_at = Instant::now();
        let ns = self.stamped_at.saturating_duration_since(began).as_nanos() as u64;
        self.cpu.note_nobody(ns);
    }

    /// At the end of a turn in which the interval of the model has passed: estimates what was served.
    fn estimate(&mut self) {
        let now_us = self.since_start_us(self.stamped_at);
        if let Some(next) = &mut self.next_estimate
            && next.is_now(now_us)
            && let Some(estimating) = self.shared.tenants.estimating()
        {
            self.cpu.estimate(estimating, now_us);
        }
    }

    /// Reads the thread's CPU clock and shares the elapsed part.
    fn read_cpu(&mut self) {
        self.cpu.settle(self.stamped_at, thread_cpu_time(), &self.shared);
    }

    fn note_event(&mut self, event: &mio::event::Event) {
        match event.token() {
            WAKER => {}
            FLASH => {
                if let Some(reads) = &mut self.reads {
                    reads.note_event();
                }
            }
            MEMCACHED_LISTENER | REDIS_LISTENER => {
                if let Some(acceptor) = &mut self.acceptor {
                    acceptor.note_ready();
                }
            }
            Token(place) => {
                let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else {
                    return;
                };
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    connection.is_readable = true;
                    connection.is_closing |= event.is_read_closed();
                }
                connection.is_writable |= event.is_writable();
                // A client that has only sent everything is still answered.
                connection.is_reset |= event.is_error() || (event.is_read_closed() && event.is_write_closed());
                if connection.is_reset && (connection.room.is_waiting() || connection.parked.is_some()) {
                    // It is not read from while it waits, which would show the error.
                    self.close(place);
                } else {
                    self.queue(place, false);
                }
            }
        }
    }

    /// Puts a connection in the list of those to serve, if it has something to be served with. `was_served` says that it comes
    /// from a visit, which left that behind.
    fn queue(&mut self, place: usize, was_served: bool) {
        if let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut)
            && !connection.is_queued
            && connection.wants_turn()
        {
            connection.is_queued = true;
            connection.ready_visit = self.visits;
            connection.ready_us = self.ready_since_us;
            let (owner, weight) = connection.owner();
            let waiting = Waiting {
                place,
                work_ns: connection.usual_ns,
                // After a visit without replies that wait, the system may have more of its requests.
                is_endless: connection.has_leftover || (was_served && connection.unsent.is_empty()),
                is_small: connection.is_small && connection.unsent.is_empty(),
            };
            self.ready.push(owner, weight, waiting, connection.charge.lane);
        }
    }

    fn take_arrivals(&mut self, now: UnixMs) {
        let arrivals = std::mem::take(&mut *self.mailbox.arrivals.lock());
        if arrivals.is_empty() {
            return;
        }
        for (socket, entrance) in arrivals {
            if let Err(error) = self.add(socket, entrance, now) {
                tracing::debug!(%error, "a connection was gone before it was served");
                self.shared
                    .tenants
                    .sockets()
                    .connections
                    .fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.stamp_nobody(self.stamped_at);
    }

    fn add(&mut self, mut socket: TcpStream, entrance: Entrance, now: UnixMs) -> io::Result<()> {
        let arrival = Arrival {
            peer: socket.peer_addr()?,
            local: socket.local_addr()?,
            worker: self.number,
            at: now,
            since_start: self.shared.started.elapsed(),
        };
        let place = self.free.pop().unwrap_or(self.connections.len());
        if let Err(error) =
            self.poll
                .registry()
                .register(&mut socket, Token(place), Interest::READABLE | Interest::WRITABLE)
        {
            if place < self.connections.len() {
                self.free.push(place);
            }
            return Err(error);
        }
        let client = self.shared.clients.add(arrival);
        client.place.store(place as u32, Ordering::Relaxed);
        let session = Session::new(entrance, client, &self.shared);
        if let Some(tenant) = &session.tenant {
            tenant.touch();
        }
        let connection = Box::new(Connection::new(socket, session, now));
        if place == self.connections.len() {
            self.connections.push(Some(connection));
        } else {
            self.connections[place] = Some(connection);
        }
        self.queue(place, false);
        Ok(())
    }

    /// Serves the connections that are ready, up to a turn's share. Returns the time when the system was last asked.
    fn serve(&mut self, events: &mut Events, mut now: UnixMs) -> UnixMs {
        let mut left = self.ready.len().min(TURN_CONNECTIONS);
        if left == 0 {
            return now;
        }
        let mut began = self.stamped_at;
        while left > 0 {
            let mut group = self.turn.take_group();
            let work = group_work(self.ready.is_uneven(), began - self.looked_at);
            left -= self.gather(&mut group, left, work).clamp(1, left);
            self.visits += group.len() as u64;
            let only_sends = match &mut group[..] {
                [(_, one)] if !one.unsent.is_empty() => {
                    one.send_unsent(now);
                    one.charge(&self.shared, now);
                    true
                }
                _ => {
                    self.turn.serve(&mut group, &self.shared, now);
                    if !self.turn.waits.is_empty() {
                        self.park(&mut group, now);
                    }
                    false
                }
            };
            let ended = Instant::now();
            self.settle(&mut group, now, (ended, ended - began), only_sends);
            self.turn.put_group(group);
            (began, self.stamped_at) = (ended, ended);
            if left > 0 && ended - self.looked_at >= poll_every(self.ready.is_uneven()) {
                now = self.look(events, Some(Duration::ZERO));
                began = self.stamped_at;
            }
        }
        now
    }

    /// Takes the next connections, at most so many, and as many as are expected to be served with so much work, but one
    /// at least. Returns the number taken; some of them may not be served now.
    fn gather(&mut self, group: &mut Vec<Member>, most: usize, work: Duration) -> usize {
        let mut left_ns = work.as_nanos() as i64;
        let mut taken = 0;
        while taken < most.min(GROUP_CONNECTIONS) {
            let connections = &self.connections;
            let fits = |place: usize, expected_ns: u32| {
                let connection = connections.get(place).and_then(Option::as_ref);
                let comes_alone = connection.is_some_and(|connection| comes_alone(connection));
                taken == 0 || (!comes_alone && i64::from(expected_ns) <= left_ns)
            };
            let Some(picked) = self.ready.next(fits) else { break };
            taken += 1;
            left_ns -= i64::from(picked.charge.work_ns);
            let Some(mut connection) = self.connections[picked.place].take() else {
                // It was closed while it waited.
                self.ready.settle(picked.charge, 0);
                self.free.push(picked.place);
                continue;
            };
            connection.is_queued = false;
            if let Some(tenant) = &connection.session.tenant {
                tenant.note_waited(self.visits - connection.ready_visit);
            }
            connection.charge = picked.charge;
            connection.wait_bytes = 0;
            let is_all = comes_alone(&connection);
            group.push((picked.place, connection));
            if is_all {
                break;
            }
        }
        taken
    }

    /// Puts the connections of a group back and shares the time that it took among them. Only time on the core counts,
    /// as far as it goes by the work done for each.
    fn settle(&mut self, group: &mut Vec<Member>, now: UnixMs, (ended, took): (Instant, Duration), only_sends: bool) {
        // A connection that is ready again at once has been so since now.
        self.ready_since_us = self.since_start_us(ended);
        let estimated_ns: f32 = group.iter().map(|(_, connection)| connection.work_ns as f32).sum();
        let worked = self.on_core.worked(took, ended, thread_cpu_time);
        // The work took at least the usual time for it, however long the worker was kept from its core.
        let worked_ns = (worked.as_nanos() as f32).max(estimated_ns.min(took.as_nanos() as f32));
        let scale = worked_ns / estimated_ns.max(1.0);
        for (_, connection) in group.iter() {
            if connection.executed > 0
                && let Some(tenant) = &connection.session.tenant
            {
                tenant.counts.prefetch_served(self.took_us(connection));
            }
        }
        for (place, mut connection) in group.drain(..) {
            connection.work_ns = (connection.work_ns as f32 * scale) as u32;
            if !only_sends {
                connection.usual_ns = connection.work_ns;
            }
            self.ready.settle(connection.charge, connection.work_ns);
            self.note_waiting(place, &mut connection, now);
            match &connection.session.tenant {
                Some(tenant) if !self.ready.is_of_strangers(connection.charge) => {
                    let ready_us = (connection.executed > 0).then_some(connection.ready_us);
                    self.cpu
                        .serve(connection.charge.lane, tenant, connection.work_ns, ready_us);
                }
                // A connection that logs in is nobody's yet.
                _ => self.cpu.note_nobody(u64::from(connection.work_ns)),
            }
            // Waiting input, and a request that is received in several visits, have been ready for longer.
            let waits = connection.has_leftover || connection.executed == 0;
            let since_us = waits.then_some(connection.ready_us);
            if connection.executed > 0
                && let Some(tenant) = &connection.session.tenant
            {
                let (took_us, requests) = (self.took_us(&connection), u64::from(connection.executed));
                tenant.counts.note_served(took_us, requests);
                if let Some(times) = self.shared.tenants.sockets().served.get(self.number) {
                    times.record(took_us, requests);
                }
            }
            if connection.session.failed_logins.is_waiting() && !connection.is_held {
                connection.is_held = true;
                let until = ended + self.shared.limits.failed_login;
                self.held.push_back((until, place, connection.client().id));
            }
            let lives = !connection.is_done();
            self.connections[place] = Some(connection);
            if lives {
                self.queue(place, true);
                if let (Some(since_us), Some(connection)) = (since_us, &mut self.connections[place]) {
                    connection.ready_us = since_us;
                }
            } else {
                self.close(place);
            }
        }
    }

    /// How long requests took that have just been answered.
    fn took_us(&self, connection: &Connection) -> u64 {
        self.ready_since_us.saturating_sub(connection.ready_us)
    }

    fn since_start_us(&self, moment: Instant) -> u64 {
        // Wraps after half a million years.
        moment.saturating_duration_since(self.shared.started).as_micros() as u64
    }

    fn close(&mut self, place: usize) {
        let Some(mut connection) = self.connections[place].take() else {
            return;
        };
        // An error means that the socket is not registered any more, as wanted.
        let _ = self.poll.registry().deregister(&mut connection.socket);
        connection.discharge(&self.shared);
        self.shared.clients.remove(connection.client().id);
        self.shared
            .tenants
            .sockets()
            .connections
            .fetch_sub(1, Ordering::Relaxed);
        let tenant = connection.session.tenant.clone();
        let is_queued = connection.is_queued;
        drop(connection);
        // The count comes after that, so that the next snapshot knows of one connection less.
        if let Some(tenant) = tenant {
            tenant.touch();
        }
        // Nobody else may have its place in the list of those to serve.
        if !is_queued {
            self.free.push(place);
        }
    }

    fn next_timeout(&self, kept: Option<Duration>, swept: bool) -> Option<Duration> {
        if !self.ready.is_empty() || self.mailbox.has_given.load(Ordering::Acquire) {
            return Some(Duration::ZERO);
        }
        let sweep = swept.then_some(SWEEP_EVERY);
        let accept = self.acceptor.as_ref().and_then(Acceptor::retry_after);
        let drain = self
            .drain_until
            .map(|until| until.saturating_duration_since(Instant::now()));
        let held = self.held.front();
        let held = held.map(|(until, ..)| until.saturating_duration_since(Instant::now()));
        [kept, sweep, accept, drain, held].into_iter().flatten().min()
    }
}

/// Work after which the system is asked again which connections are ready.
fn poll_every(is_uneven: bool) -> Duration {
    if is_uneven { POLL_EVERY_UNEVEN } else { POLL_EVERY }
}

/// The work of a group that begins so long after the system was asked. Beside a tenant that asks for little, it is the
/// time that is left until the next question.
fn group_work(is_uneven: bool, since_asked: Duration) -> Duration {
    if is_uneven {
        POLL_EVERY_UNEVEN.saturating_sub(since_asked)
    } else {
        POLL_EVERY
    }
}

/// Whether a connection is served by itself. The replies of a group are sent when all of its commands are executed. A
/// tenant that asks for little would wait for one that asks for much. A connection with unsent replies is not served
/// otherwise.
fn comes_alone(connection: &Connection) -> bool {
    !connection.unsent.is_empty() || u128::from(connection.usual_ns) > LONG_VISIT.as_nanos()
}

fn token_of(protocol: Protocol) -> Token {
    match protocol {
        Protocol::Memcached => MEMCACHED_LISTENER,
        Protocol::Redis => REDIS_LISTENER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_who_asks_for_little_no_group_is_longer_than_until_the_system_is_asked_again() {
        let micros = Duration::from_micros;
        assert!(poll_every(true) < poll_every(false));
        for since in [0, 10, 49, 50, 51, 1000].map(micros) {
            assert_eq!(group_work(false, since), POLL_EVERY);
            assert_eq!(group_work(true, since), poll_every(true).saturating_sub(since));
        }
    }
}
