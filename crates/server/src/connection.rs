//! One client's connection: its socket, the command that is incomplete, the replies that are unsent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::TcpStream;
use tidemark_protocol::resp::{ArgList, Discard};
use tidemark_store::Reservation;
use tidemark_types::UnixMs;

use crate::clients::Client;
use crate::counts::Count;
use crate::kept::Kept;
use crate::limits::{KEPT_REQUEST_BYTES, Limits, RECALLED_AFTER, RECEIVE_BYTES, WANTED_AFTER};
use crate::memory::Room;
use crate::output::{Sent, Unsent};
use crate::progress::Progress;
use crate::ready::{Charge, Owner, work_ns};
use crate::receive::read;
use crate::session::{Begun, Session};
use crate::shared::Shared;
use crate::suspend::Parked;

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    CutOff,
    Stalled,
    Incomplete,
    NoLogin,
    Recalled,
    Wanted,
    Stuck,
}

impl Reason {
    /// The text in the log.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::CutOff => "cut off",
            Self::Stalled => "nothing moved in time while replies or requests waited",
            Self::Incomplete => "a command was incomplete for too long",
            Self::NoLogin => "no login in time",
            Self::Recalled => "it held memory that was lent and is wanted back",
            Self::Wanted => "it held memory that others of its tenant wait for",
            Self::Stuck => "it waited for memory that is held by others that wait, and held the most",
        }
    }

    /// The count of its tenant to which it belongs.
    pub(crate) fn count(self) -> Option<Count> {
        match self {
            Self::CutOff | Self::NoLogin => None,
            Self::Stalled => Some(Count::ClosedStalled),
            Self::Incomplete => Some(Count::ClosedIncomplete),
            Self::Recalled | Self::Wanted | Self::Stuck => Some(Count::ClosedForMemory),
        }
    }
}

/// The part of the input that is dropped before commands go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Skip {
    Nothing,
    /// The number of bytes to drop: the body of a refused storage command.
    Bytes(usize),
    /// The rest of a refused RESP command.
    Command(Discard),
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) session: Session,
    /// Its hold on its tenant's memory for connections.
    pub(crate) room: Room,
    /// An incomplete command, or requests that wait. Empty while there is none: an idle connection owns no buffer.
    pub(crate) input: Kept,
    /// Parsing the input is of no use below so many bytes.
    pub(crate) needed: usize,
    /// How far an incomplete RESP command was parsed: one of many arguments that comes in many pieces is read once.
    pub(crate) parsed: Option<Box<ArgList>>,
    pub(crate) skip: Skip,
    /// The place to which the value at the input's beginning is being copied, piece by piece.
    pub(crate) place: Option<Reservation>,
    /// How far the command at the input's beginning came.
    pub(crate) begun: Begun,
    /// The progress of its command, if that goes on in a later turn, and the command's length if it need not be parsed
    /// again.
    pub(crate) progress: Option<Box<Progress>>,
    pub(crate) begun_bytes: Option<usize>,
    /// Its first command waits for flash, which says so when it has come.
    pub(crate) parked: Option<Parked>,
    /// Its replies wait until what they acknowledge survives a crash.
    pub(crate) is_withheld: bool,
    /// Keys of that command that were looked for on flash.
    pub(crate) sought: usize,
    /// Memory that its next visit needs and that was not to be had; zero if there is none.
    pub(crate) wait_bytes: u64,
    pub(crate) unsent: Unsent,
    /// The system may have more to read: said so, and not read to the end since.
    pub(crate) is_readable: bool,
    /// The system said that the other side has sent everything; that is read to its end, since it is said only once.
    pub(crate) is_closing: bool,
    /// The connection is in the list of connections to serve.
    pub(crate) is_queued: bool,
    /// Complete commands may wait in the input: the connection's share of a turn was used up, or its replies were too many.
    pub(crate) has_leftover: bool,
    /// The other side has sent everything.
    pub(crate) is_finished: bool,
    /// The system may take more of the unsent replies: it said so, and took all that it was given since.
    pub(crate) is_writable: bool,
    /// The socket failed.
    pub(crate) is_broken: bool,
    /// The system said that the other side has reset the connection. Its earlier input can still be read.
    pub(crate) is_reset: bool,
    /// Something was received in this visit.
    pub(crate) has_received: bool,
    /// It waits for the answer to a failed login, and is in the worker's list of such.
    pub(crate) is_held: bool,
    /// The charge to its lane of [`crate::ready::Ready`] when it was picked last.
    pub(crate) charge: Charge,
    /// About how much work serving it was the last time.
    pub(crate) work_ns: u32,
    /// The same of the last receive, which is expected of the next one.
    pub(crate) usual_ns: u32,
    /// Whether that was small, by its commands and bytes.
    pub(crate) is_small: bool,
    /// Since when it has been ready, in microseconds since the server's start.
    pub(crate) ready_us: u64,
    /// How many connections its worker had served by then.
    pub(crate) ready_visit: u64,
    /// Nothing of it was executed yet: it may be about to log in.
    pub(crate) is_new: bool,
    /// Commands that the last visit executed.
    pub(crate) executed: u32,
    pub(crate) connected_at: UnixMs,
    /// The time since which the input holds an incomplete command.
    pub(crate) incomplete_since: Option<UnixMs>,
    /// When something moved last, in either direction, while replies or requests wait.
    pub(crate) moved_at: Option<UnixMs>,
    /// When something was received, sent or executed last, or it was given the memory that it had waited for.
    active_at: UnixMs,
    /// Since when it has held more than its own part.
    held_since: Option<UnixMs>,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, session: Session, now: UnixMs) -> Self {
        let mut room = Room::default();
        room.follow(session.tenant.as_ref().map(|tenant| &tenant.account));
        Self {
            socket,
            session,
            room,
            input: Kept::default(),
            needed: 0,
            parsed: None,
            skip: Skip::Nothing,
            place: None,
            begun: Begun::Not,
            progress: None,
            begun_bytes: None,
            parked: None,
            is_withheld: false,
            sought: 0,
            wait_bytes: 0,
            unsent: Unsent::default(),
            is_readable: true,
            is_closing: false,
            is_queued: false,
            has_leftover: false,
            is_finished: false,
            is_writable: false,
            is_broken: false,
            is_reset: false,
            has_received: false,
            is_held: false,
            charge: Charge::NONE,
            work_ns: 0,
            usual_ns: work_ns(1, 0),
            is_small: true,
            ready_us: 0,
            ready_visit: 0,
            is_new: true,
            executed: 0,
            connected_at: now,
            incomplete_since: None,
            moved_at: None,
            active_at: now,
            held_since: None,
        }
    }

    /// Whether there is something to do for it in a turn: replies that wait are sent first, and requests are kept meanwhile.
    pub(crate) fn wants_turn(&self) -> bool {
        if !self.unsent.is_empty() {
            return (self.is_writable && !self.is_withheld) || (self.may_keep_more() && !self.room.is_waiting());
        }
        let waits = self.room.is_waiting() || self.is_held || self.parked.is_some();
        !waits && ((self.is_readable && !self.is_finished) || self.has_leftover)
    }

    /// Whether requests are kept while replies wait.
    fn may_keep_more(&self) -> bool {
        let is_open = self.is_readable && !self.is_finished && !self.session.is_ending;
        is_open && self.input.len() < KEPT_REQUEST_BYTES && !self.session.needs_login() && !self.is_held
    }

    /// Whether nothing more will come of it.
    pub(crate) fn is_done(&self) -> bool {
        let is_over = self.session.is_ending || (self.is_finished && !self.has_leftover);
        self.is_broken || (is_over && self.unsent.is_empty())
    }

    /// Sends as much of the unsent replies as a visit may, and keeps requests that came meanwhile. Such a visit does
    /// nothing else.
    pub(crate) fn send_unsent(&mut self, now: UnixMs) {
        let sent = if self.is_withheld {
            Ok(Sent::default())
        } else {
            self.unsent.send(&mut self.socket)
        };
        let sent_bytes = sent.as_ref().map_or(0, |sent| sent.bytes);
        self.note_sent(&sent, now);
        let kept_bytes = if self.unsent.is_empty() { 0 } else { self.keep_more() };
        if kept_bytes > 0 {
            self.moved_at = Some(now);
        }
        self.work_ns = work_ns(0, sent_bytes + kept_bytes);
        self.executed = 0;
    }

    /// Receives requests to be kept unexecuted, as far as there is memory. Returns how many bytes.
    fn keep_more(&mut self) -> usize {
        if !self.may_keep_more() {
            return 0;
        }
        let mut most = RECEIVE_BYTES.min(KEPT_REQUEST_BYTES - self.input.len());
        if self.input.growth(most) > 0 {
            // Twice as much each time, so that the moved bytes stay in proportion.
            let more = most.max(self.input.len().min(KEPT_REQUEST_BYTES / 2));
            let growth = self.input.growth(more) as u64;
            if self.room.take(growth) {
                self.input.reserve(more);
            } else {
                // If little is left, it does with its tenant's share.
                most = most.min(self.room.step() as usize);
                let growth = self.input.growth(most) as u64;
                if !self.room.take(growth) {
                    self.wait_bytes = growth;
                    return 0;
                }
                self.input.reserve(most);
            }
        }
        let mut input = std::mem::take(&mut self.input);
        let received = input.fill(most, |buffer| read(self, buffer));
        self.input = input;
        self.has_leftover |= received > 0;
        received
    }

    /// Notes what became of sending.
    pub(crate) fn note_sent(&mut self, sent: &io::Result<Sent>, now: UnixMs) {
        let Ok(sent) = sent else {
            self.is_broken = true;
            return;
        };
        self.is_writable = !sent.is_blocked;
        if sent.bytes > 0 {
            self.active_at = now;
            self.moved_at = self.moved_at.map(|_| now);
        }
    }

    /// Goes on now that there may be the memory that it waited for: the wait is no part of any limit.
    pub(crate) fn end_wait(&mut self, now: UnixMs) {
        self.room.end_wait();
        self.active_at = now;
        self.incomplete_since = self.incomplete_since.map(|_| now);
    }

    /// Notes at the end of a visit whether something waits on it, and if so, since when nothing has moved.
    pub(crate) fn note_waiting(&mut self, now: UnixMs) {
        let waits = !self.unsent.is_empty() || self.room.is_waiting();
        self.moved_at = match self.moved_at {
            Some(at) if waits => Some(at),
            _ => waits.then_some(now),
        };
        if self.room.is_waiting() {
            // It cannot go on with its command.
            self.incomplete_since = self.incomplete_since.map(|_| now);
        }
    }

    /// Why the connection is to be closed, if a limit has passed or its memory is wanted.
    pub(crate) fn overdue(&self, limits: &Limits, now: UnixMs) -> Option<Reason> {
        let is_over = |since: Option<UnixMs>, limit| since.is_some_and(|since| now.since(since) >= limit);
        if is_over(self.moved_at, limits.stalled) {
            return Some(Reason::Stalled);
        }
        if is_over(self.incomplete_since, limits.incomplete_command) && !self.room.is_waiting() {
            return Some(Reason::Incomplete);
        }
        if self.session.needs_login() && is_over(Some(self.connected_at), limits.login) {
            return Some(Reason::NoLogin);
        }
        if self.room.is_condemned() {
            return Some(Reason::Stuck);
        }
        let account = self.room.account().filter(|_| self.room.taken() > 0)?;
        if account.is_recalling(now) && account.is_above_share() && is_over(self.held_since, RECALLED_AFTER) {
            return Some(Reason::Recalled);
        }
        let is_still = is_over(Some(self.active_at), WANTED_AFTER);
        // A connection that only waits holds little.
        let is_holder = !self.unsent.is_empty() || !self.room.is_waiting();
        (is_still && is_holder && account.lacks_room()).then_some(Reason::Wanted)
    }

    /// Whether a limit may pass while the connection is silent.
    pub(crate) fn has_deadline(&self) -> bool {
        let has_begun = self.moved_at.is_some() || self.incomplete_since.is_some();
        has_begun || self.session.needs_login() || self.room.taken() > 0
    }

    /// Charges the connection's memory to its tenant's account, and shows it as the server's and the tenant's.
    #[inline]
    pub(crate) fn charge(&mut self, shared: &Shared, now: UnixMs) {
        self.room
            .follow(self.session.tenant.as_ref().map(|tenant| &tenant.account));
        let goes_on = self.has_leftover && self.unsent.is_empty() && self.wait_bytes == 0;
        if std::mem::take(&mut self.has_received) || goes_on {
            self.active_at = now;
        }
        let (holds_input, holds_replies) = (self.input.memory_bytes() > 0, !self.unsent.is_empty());
        let has_begun = self.parsed.is_some() || self.progress.is_some() || self.session.transaction.is_some();
        let was_charged = self.session.charged_bytes > 0 || self.room.taken() > 0;
        if holds_input || holds_replies || has_begun || was_charged {
            self.charge_held(shared, now);
        }
    }

    fn charge_held(&mut self, shared: &Shared, now: UnixMs) {
        let parsed = self.parsed.as_ref().map_or(0, |parsed| parsed.memory_bytes());
        let (buffered, promised) = self
            .progress
            .as_ref()
            .map_or((0, 0), |progress| (progress.buffer_bytes(), progress.held_bytes()));
        let input = self.input.memory_bytes() + parsed + self.session.held_bytes();
        let copied = self.unsent.copied_bytes();
        self.room
            .settle((input + promised + copied + self.unsent.pinned_bytes()) as u64);
        if self.room.taken() == 0 {
            self.held_since = None;
        } else if self.held_since.is_none() {
            self.held_since = Some(now);
        }
        self.show(input + buffered + copied, shared);
    }

    fn show(&mut self, held: usize, shared: &Shared) {
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
        self.show(0, shared);
    }

    /// Whether the connection must go: its tenant was removed, the secret that it logged in with has ended, or someone killed it.
    pub(crate) fn is_cut_off(&self) -> bool {
        let session = &self.session;
        let has_lost = |tenant: &crate::tenant::Tenant| {
            tenant.is_removed() || session.secret.is_some_and(|secret| !tenant.has_secret(&secret))
        };
        session.client.is_killed() || session.tenant.as_deref().is_some_and(has_lost)
    }

    /// The owner whose share of turns it takes, and that owner's weight. A first command waits with those that log in,
    /// even if the listener has an open tenant.
    #[inline]
    pub(crate) fn owner(&self) -> (Owner, u64) {
        match &self.session.tenant {
            Some(tenant) if !self.is_new => (Owner::tenant(tenant.id), tenant.weight()),
            _ => (Owner::STRANGERS, 1),
        }
    }

    /// The entry in the list of clients.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.session.client
    }
}
