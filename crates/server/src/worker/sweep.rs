//! Closing connections: those that have passed a limit or were cut off, and all of them when the server drains.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tidemark_types::UnixMs;

use super::Worker;
use crate::connection::{Connection, Reason};
use crate::limits::SWEEP_EVERY;

impl Worker {
    /// Closes connections that have passed a limit or were cut off. Whether there is a reason to look again.
    pub(super) fn sweep(&mut self, now: UnixMs) -> bool {
        let asked = self.mailbox.wants_sweep.swap(false, Ordering::Acquire);
        if !asked && now < self.next_sweep && self.next_sweep.0 - now.0 <= SWEEP_EVERY.as_millis() as u64 {
            return true;
        }
        self.next_sweep = now.plus(SWEEP_EVERY);
        let began = Instant::now();
        // Before lanes are given to others.
        self.read_cpu();
        self.cpu.tidy();
        self.ready.tidy();
        for stuck in self.shared.memory.find_stuck(now) {
            self.shared.mailboxes[stuck.worker].ask_for_sweep();
        }
        let mut any = self.turn.tidy(&self.shared);
        let mut closed = Closed::default();
        for place in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[place] else {
                continue;
            };
            // The system says that there is room only when there is much, while a slow reader makes room little by
            // little. A connection that waits for its turn to be sent to is not slow.
            let is_served_late = connection.is_writable && connection.is_queued;
            connection.is_writable = true;
            let overdue = || connection.overdue(&self.shared.limits, now).filter(|_| !is_served_late);
            let reason = if connection.is_cut_off() {
                Some(Reason::CutOff)
            } else {
                overdue()
            };
            if let Some(reason) = reason {
                closed.note(reason, connection);
                self.close_for(place, reason);
            } else {
                any |= connection.has_deadline();
                // Lent memory is asked for as long as it is missed.
                connection.room.recall(now);
                if connection.parked.is_some() {
                    any = true;
                    self.end_parking(place, now);
                }
                self.queue(place, false);
            }
        }
        closed.log();
        self.take_given(now);
        self.stamp_nobody(began);
        any
    }

    /// Closes a connection, and counts why.
    fn close_for(&mut self, place: usize, reason: Reason) {
        let Some(connection) = &mut self.connections[place] else {
            return;
        };
        if let (Some(count), Some(tenant)) = (reason.count(), &connection.session.tenant) {
            tenant.counts.add(count, 1);
        }
        let waits = !connection.unsent.is_empty() || connection.room.is_waiting();
        if waits || reason.count().is_some() {
            // The system's buffer for a client that does not read goes at once, too. If the system cannot be told so,
            // it goes later.
            let _ = SockRef::from(&connection.socket).set_linger(Some(Duration::ZERO));
        }
        self.close(place);
    }

    /// While the server drains: closes connections that have nothing in flight. Whether none is left, or the time is over.
    pub(super) fn is_drained(&mut self) -> bool {
        if !self.shared.is_draining.load(Ordering::Acquire) {
            return false;
        }
        let Some(until) = self.drain_until else {
            // Input that has arrived by now is in flight: each connection is read and served once more.
            self.acceptor = None;
            self.drain_until = Some(Instant::now() + self.shared.drain_limit());
            for place in 0..self.connections.len() {
                if let Some(connection) = &mut self.connections[place] {
                    connection.is_readable = true;
                    self.queue(place, false);
                }
            }
            return self.connections.iter().all(Option::is_none);
        };
        for place in 0..self.connections.len() {
            let Some(connection) = &self.connections[place] else {
                continue;
            };
            let in_flight = connection.is_queued || !connection.unsent.is_empty() || !connection.input.is_empty();
            if !in_flight {
                self.close(place);
            }
        }
        self.connections.iter().all(Option::is_none) || Instant::now() >= until
    }
}

/// Connections that a sweep closed, for the log: one line for each reason, however many there are.
#[derive(Default)]
struct Closed {
    reasons: Vec<(Reason, usize, SocketAddr)>,
}

impl Closed {
    fn note(&mut self, reason: Reason, connection: &Connection) {
        let client = connection.client();
        tracing::debug!(client = client.id, peer = %client.peer, reason = reason.text(), "closed");
        match self.reasons.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, count, _)) => *count += 1,
            None => self.reasons.push((reason, 1, client.peer)),
        }
    }

    fn log(&self) {
        for (reason, connections, peer) in &self.reasons {
            if *reason != Reason::CutOff {
                tracing::info!(connections, first = %peer, reason = reason.text(), "closed connections");
            }
        }
    }
}
