//! Connections that wait for memory or for the answer to a failed login, and how they go on.

use std::sync::atomic::Ordering;

use tidemark_types::UnixMs;

use crate::connection::Connection;
use crate::memory::Caller;

use super::Worker;

impl Worker {
    /// Notes at the end of a visit whether the connection waits for memory, or for its other side.
    #[inline]
    pub(super) fn note_waiting(&mut self, place: usize, connection: &mut Connection, now: UnixMs) {
        let waits = connection.wait_bytes > 0;
        if waits || connection.room.is_waiting() {
            self.change_wait(place, connection, now);
        }
        if waits || connection.moved_at.is_some() || !connection.unsent.is_empty() {
            connection.note_waiting(now);
        }
    }

    #[cold]
    fn change_wait(&mut self, place: usize, connection: &mut Connection, now: UnixMs) {
        if connection.wait_bytes == 0 {
            connection.room.end_wait();
            return connection.room.return_given();
        }
        connection.is_broken |= connection.is_reset;
        let caller = Caller {
            worker: self.number,
            place,
            client: connection.client().id,
        };
        let is_new = connection.executed > 0;
        connection.room.begin_wait(connection.wait_bytes, is_new, caller);
        if connection.room.recall(now) {
            self.shared.mailboxes.iter().for_each(|mailbox| mailbox.ask_for_sweep());
        }
    }

    /// Has connections go on that were given the memory that they waited for.
    #[inline]
    pub(super) fn take_given(&mut self, now: UnixMs) {
        if self.mailbox.has_given.load(Ordering::Acquire) {
            self.go_on(now);
        }
    }

    #[cold]
    fn go_on(&mut self, now: UnixMs) {
        self.mailbox.has_given.store(false, Ordering::Release);
        let given = std::mem::take(&mut *self.mailbox.given.lock());
        for (place, client) in given {
            let connection = self.connections.get_mut(place).and_then(Option::as_mut);
            let Some(connection) = connection.filter(|one| one.client().id == client && one.room.is_given()) else {
                continue;
            };
            connection.end_wait(now);
            self.queue(place, false);
            // A connection that can do nothing now, since replies wait, asks again when it can.
            if let Some(connection) = self.connections[place].as_mut()
                && !connection.is_queued
            {
                connection.room.return_given();
            }
        }
    }

    /// Goes on with the connections that have waited for the answer to a failed login.
    pub(super) fn release(&mut self) {
        while let Some((until, place, client)) = self.held.front().copied()
            && until <= self.looked_at
        {
            self.held.pop_front();
            if let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut)
                && connection.client().id == client
            {
                connection.is_held = false;
                self.queue(place, false);
            }
        }
    }
}
