//! One client's connection: its socket, the command that is incomplete, the replies that are unsent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::TcpStream;
use tidemark_protocol::resp::{ArgList, Discard};
use tidemark_store::Reservation;
use tidemark_types::UnixMs;

use crate::clients::Client;
use crate::limits::{BUFFER_REPLY_FRACTION, Limits};
use crate::output::{Sent, Unsent};
use crate::ready::{Charge, Owner, work_ns};
use crate::session::Session;
use crate::shared::Shared;

/// What is dropped of the input before commands go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Skip {
    Nothing,
    /// So many bytes: the body of a refused storage command.
    Bytes(usize),
    /// The rest of a refused RESP command.
    Command(Discard),
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) session: Session,
    /// An incomplete command. Empty while there is none: an idle connection owns no buffer.
    pub(crate) input: Vec<u8>,
    /// Parsing the input is of no use below so many bytes.
    pub(crate) needed: usize,
    /// How far an incomplete RESP command was parsed: one of many arguments that comes in many pieces is read once.
    pub(crate) parsed: Option<Box<ArgList>>,
    pub(crate) skip: Skip,
    /// Where the value at the input's beginning is being copied to, piece by piece.
    pub(crate) room: Option<Reservation>,
    pub(crate) unsent: Unsent,
    /// The system may have more to read: said so, and not read to the end since.
    pub(crate) is_readable: bool,
    /// The system said that the other side has sent everything; that is read to its end, since it is said only once.
    pub(crate) is_closing: bool,
    /// In the list of connections to serve.
    pub(crate) is_queued: bool,
    /// Complete commands may wait in the input: the connection's share of a turn was used up, or its replies were too many.
    pub(crate) has_leftover: bool,
    /// The other side has sent everything.
    pub(crate) is_finished: bool,
    /// The system may take more of what is unsent: said so, and took all that it was given since.
    pub(crate) is_writable: bool,
    /// The socket failed.
    pub(crate) is_broken: bool,
    /// No buffer could be had for its input; it is tried again at the next sweep.
    pub(crate) is_starved: bool,
    /// What its lane of [`crate::ready::Ready`] was charged when it was picked last.
    pub(crate) charge: Charge,
    /// About how much work serving it was the last time.
    pub(crate) work_ns: u32,
    /// The same of the last time that it was received from, which is what is expected of the next time.
    pub(crate) usual_ns: u32,
    /// Since when it has been ready, in microseconds since the server's start.
    pub(crate) ready_us: u64,
    /// Commands that the last visit executed.
    pub(crate) executed: u32,
    pub(crate) connected_at: UnixMs,
    /// Since when the input holds an incomplete command.
    pub(crate) incomplete_since: Option<UnixMs>,
    /// When a send last made progress while something is unsent.
    pub(crate) sending_since: Option<UnixMs>,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, session: Session, now: UnixMs) -> Self {
        Self {
            socket,
            session,
            input: Vec::new(),
            needed: 0,
            parsed: None,
            skip: Skip::Nothing,
            room: None,
            unsent: Unsent::default(),
            is_readable: true,
            is_closing: false,
            is_queued: false,
            has_leftover: false,
            is_finished: false,
            is_writable: false,
            is_broken: false,
            is_starved: false,
            charge: Charge::NONE,
            work_ns: 0,
            usual_ns: work_ns(1, 0),
            ready_us: 0,
            executed: 0,
            connected_at: now,
            incomplete_since: None,
            sending_since: None,
        }
    }

    /// Whether there is something to do for it in a turn: replies that wait are sent first.
    pub(crate) fn wants_turn(&self) -> bool {
        if !self.unsent.is_empty() {
            return self.is_writable;
        }
        !self.is_starved && ((self.is_readable && !self.is_finished) || self.has_leftover)
    }

    /// Whether nothing more will come of it.
    pub(crate) fn is_done(&self) -> bool {
        let is_over = self.session.is_ending || (self.is_finished && !self.has_leftover);
        self.is_broken || (is_over && self.unsent.is_empty())
    }

    /// Sends of what is unsent as much as a visit may, which is what such a visit is for.
    pub(crate) fn send_unsent(&mut self, now: UnixMs) {
        let sent = self.unsent.send(&mut self.socket);
        self.work_ns = work_ns(0, sent.as_ref().map_or(0, |sent| sent.bytes));
        self.executed = 0;
        self.note_sent(&sent, now);
    }

    /// Notes what became of sending.
    pub(crate) fn note_sent(&mut self, sent: &io::Result<Sent>, now: UnixMs) {
        let Ok(sent) = sent else {
            self.is_broken = true;
            return;
        };
        self.is_writable = !sent.is_blocked;
        if self.unsent.is_empty() {
            self.sending_since = None;
        } else if sent.bytes > 0 || self.sending_since.is_none() {
            self.sending_since = Some(now);
        }
    }

    /// The limit that the connection has passed, if any.
    pub(crate) fn overdue(&self, limits: &Limits, now: UnixMs) -> Option<&'static str> {
        let is_over = |since: Option<UnixMs>, limit| since.is_some_and(|since| now.since(since) >= limit);
        if is_over(self.sending_since, limits.stalled_send) {
            return Some("replies were not read in time");
        }
        if is_over(self.incomplete_since, limits.incomplete_command) {
            return Some("a command was incomplete for too long");
        }
        let late = self.session.needs_login() && is_over(Some(self.connected_at), limits.login);
        late.then_some("no login in time")
    }

    /// Whether a limit may pass while the connection is silent.
    pub(crate) fn has_deadline(&self) -> bool {
        self.sending_since.is_some() || self.incomplete_since.is_some() || self.session.needs_login()
    }

    /// Charges the buffers' present size to the server's and the tenant's accounts.
    pub(crate) fn charge(&mut self, shared: &Shared) {
        let parsed = self.parsed.as_ref().map_or(0, |parsed| parsed.memory_bytes());
        let held = self.input.capacity() + parsed + self.unsent.buffer_bytes() + self.session.held_bytes();
        if held == self.session.charged_bytes {
            return;
        }
        let (old, new) = (self.session.charged_bytes as u64, held as u64);
        self.session.charged_bytes = held;
        let accounts = [
            Some(&shared.tenants.sockets().buffer_bytes),
            self.session.tenant.as_ref().map(|t| &t.buffer_bytes),
        ];
        for account in accounts.into_iter().flatten() {
            account.fetch_add(new, Ordering::Relaxed);
            account.fetch_sub(old, Ordering::Relaxed);
        }
    }

    /// Takes the charge back before the connection goes.
    pub(crate) fn discharge(&mut self, shared: &Shared) {
        let bytes = std::mem::take(&mut self.session.charged_bytes) as u64;
        shared
            .tenants
            .sockets()
            .buffer_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
        if let Some(tenant) = &self.session.tenant {
            tenant.buffer_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether so many more bytes may be held for it. One tenant gets at most half of all.
    pub(crate) fn may_hold(&self, bytes: usize, shared: &Shared) -> bool {
        self.fits(bytes as u64, 0, shared)
    }

    /// Whether it may be served. Where no more may be held, nothing is received; what was received already is executed,
    /// since that makes room, up to a limit for the sake of those who do not read their replies, and who are gone after a
    /// while.
    pub(crate) fn may_go_on(&self, shared: &Shared) -> bool {
        let beyond = if self.input.is_empty() {
            0
        } else {
            shared.buffer_bytes_max / BUFFER_REPLY_FRACTION
        };
        self.fits(0, beyond, shared)
    }

    fn fits(&self, bytes: u64, beyond: u64, shared: &Shared) -> bool {
        let most = shared.buffer_bytes_max;
        let all = shared.tenants.sockets().buffer_bytes.load(Ordering::Relaxed);
        let own = self
            .session
            .tenant
            .as_ref()
            .map_or(0, |tenant| tenant.buffer_bytes.load(Ordering::Relaxed));
        all + bytes <= most + beyond && own + bytes <= most / 2 + beyond
    }

    /// Whether the tenant was removed or someone killed the connection.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.session.client.is_killed() || self.session.tenant.as_ref().is_some_and(|tenant| tenant.is_removed())
    }

    /// Who its turns are taken from, and how much weight that one has.
    #[inline]
    pub(crate) fn owner(&self) -> (Owner, u64) {
        match &self.session.tenant {
            Some(tenant) => (Owner::tenant(tenant.id), tenant.weight()),
            None => (Owner::STRANGERS, 1),
        }
    }

    /// The entry in the list of clients.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.session.client
    }
}
