//! Connections that wait for memory or for the answer to a failed login, and how they go on.

use crate::connection::Connection;
use crate::memory::Account;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemark_types::UnixMs;

use super::Worker;

impl Worker {
    /// Notes at the end of a visit whether the connection waits for memory, or for its other side.
    #[inline]
    pub(super) fn note_waiting(&mut self, place: usize, connection: &mut Connection, now: UnixMs) {
        if connection.wait_bytes > 0 {
            connection.is_broken |= connection.is_reset;
            self.begin_wait(place, connection, now);
        } else if connection.room.is_waiting() {
            connection.room.end_wait();
        }
        if connection.moved_at.is_some() || !connection.unsent.is_empty() || connection.wait_bytes > 0 {
            connection.note_waiting(now);
        }
    }

    #[cold]
    fn begin_wait(&mut self, place: usize, connection: &mut Connection, now: UnixMs) {
        if !std::mem::replace(&mut connection.is_listed, true) {
            self.waiting.push_back((place, connection.client().id));
        }
        let must_recall = connection.room.begin_wait(connection.wait_bytes, now);
        // There may have been room since it was looked for: it is looked for once more.
        self.mailbox.has_waiting.store(true, Ordering::SeqCst);
        self.mailbox.has_room.store(true, Ordering::SeqCst);
        if must_recall {
            self.shared.mailboxes.iter().for_each(|mailbox| mailbox.ask_for_sweep());
        }
    }

    /// Has connections go on for which there is memory now, in the order in which they have waited.
    pub(super) fn wake_waiting(&mut self, now: UnixMs) {
        if self.waiting.is_empty() || !self.mailbox.has_room.swap(false, Ordering::SeqCst) {
            return;
        }
        // What is promised in this pass, by account.
        let mut promised: Vec<(*const Account, u64)> = Vec::new();
        for _ in 0..self.waiting.len() {
            let Some((place, id)) = self.waiting.pop_front() else {
                break;
            };
            let Some(connection) = self.connections[place].as_mut().filter(|one| one.client().id == id) else {
                continue;
            };
            connection.is_listed = connection.room.is_waiting();
            if !connection.is_listed {
                continue;
            }
            let account = connection.room.account().map_or(std::ptr::null(), Arc::as_ptr);
            let at = promised.iter().position(|(of, _)| *of == account).unwrap_or_else(|| {
                promised.push((account, 0));
                promised.len() - 1
            });
            if connection.room.can_go_on(promised[at].1) {
                promised[at].1 += connection.room.waits_for();
                connection.end_wait(now);
                connection.is_listed = false;
                self.queue(place, false);
            } else {
                self.waiting.push_back((place, id));
            }
        }
        self.mailbox
            .has_waiting
            .store(!self.waiting.is_empty(), Ordering::SeqCst);
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
