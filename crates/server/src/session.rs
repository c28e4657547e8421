//! The identity of a connection, and the state of its current commands.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_protocol::memcached as mc;
use tidemark_protocol::resp::Version;
use tidemark_types::{Permissions, Secret, TenantName, UnixMs};

use crate::clients::Client;
use crate::counts::{Before, Count, TurnCounts};
use crate::entrance::{Entrance, Protocol};
use crate::limits::{OWN_REPLY_BYTES, PIN_BYTES, REPLY_BYTES};
use crate::logins::FailedLogins;
use crate::memory::Room;
use crate::output::Output;
use crate::progress::Progress;
use crate::shared::Shared;
use crate::suspend::Waits;
use crate::tenant::Tenant;
use crate::tenants::Tenants;
use crate::transaction::Transaction;

/// Which replies a RESP client wants (CLIENT REPLY).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyMode {
    /// None until it says so.
    pub(crate) is_off: bool,
    /// Not the one to the present command.
    pub(crate) skips_this: bool,
    /// Not the one to the command behind the present one.
    pub(crate) skips_next: bool,
}

impl ReplyMode {
    /// Whether appended replies are dropped now.
    #[inline]
    pub(crate) fn is_silent(self) -> bool {
        self.is_off || self.skips_this
    }

    /// Notes that a command is over.
    #[inline]
    pub(crate) fn end_command(&mut self) {
        self.skips_this = std::mem::take(&mut self.skips_next);
    }
}

/// A line of keys of which further parts come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenGet {
    pub(crate) get: mc::OpenGet,
    /// It was refused, and the client was told so: its other parts are dropped.
    pub(crate) is_dropped: bool,
}

/// The state of a connection that commands see.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) protocol: Protocol,
    pub(crate) client: Arc<Client>,
    pub(crate) tenant: Option<Arc<Tenant>>,
    /// The tenant of its listener's connections without a login, if there is one.
    pub(crate) home: Option<Arc<TenantName>>,
    /// The tenant that it was to be in and that has as many connections as it may have. It may still log in as another.
    pub(crate) turned_away_by: Option<Arc<Tenant>>,
    pub(crate) permissions: Permissions,
    /// The secret that it logged in with; `None` in the open tenant.
    pub(crate) secret: Option<Secret>,
    pub(crate) db: u8,
    pub(crate) version: Version,
    pub(crate) reply_mode: ReplyMode,
    /// Whether a command was received; memcached's login must be the first.
    pub(crate) has_begun: bool,
    pub(crate) failed_logins: FailedLogins,
    /// The number of answered keys of a long `get` whose replies are sent in parts.
    pub(crate) keys_answered: usize,
    /// The lookups and errors of an unfinished command's pieces so far.
    pub(crate) so_far: Before,
    /// memcached's line of keys that is in the middle of being executed.
    pub(crate) open_get: Option<OpenGet>,
    /// Close when the replies so far are sent.
    pub(crate) is_ending: bool,
    /// MULTI and WATCH, which few connections use.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// The part of the connection's buffers that is shown as its tenant's.
    pub(crate) charged_bytes: usize,
}

impl Session {
    /// A new connection; it belongs to its listener's tenant, or to the open one if there is one for its address.
    pub(crate) fn new(entrance: Entrance, client: Arc<Client>, shared: &Shared) -> Self {
        let mut session = Self::of_nobody(entrance.protocol, client);
        session.home = entrance.tenant;
        if let Some(first) = session.first_tenant(&shared.tenants) {
            // If not, it is told so at its first command, unless that is a login.
            session.enter(&first, Permissions::ALL);
        }
        session
    }

    fn of_nobody(protocol: Protocol, client: Arc<Client>) -> Self {
        Self {
            protocol,
            client,
            tenant: None,
            home: None,
            turned_away_by: None,
            permissions: Permissions::NONE,
            secret: None,
            db: 0,
            version: Version::Resp2,
            reply_mode: ReplyMode::default(),
            has_begun: false,
            failed_logins: FailedLogins::default(),
            keys_answered: 0,
            so_far: Before::default(),
            open_get: None,
            is_ending: false,
            transaction: None,
            charged_bytes: 0,
        }
    }

    /// The session of a script that a client runs: as what its commands are executed.
    pub(crate) fn of_script(client: Arc<Client>, db: u8, permissions: Permissions) -> Self {
        let mut session = Self::of_nobody(Protocol::Redis, client);
        (session.db, session.permissions) = (db, permissions);
        session
    }

    /// The tenant that the connection is in without logging in.
    pub(crate) fn first_tenant(&self, tenants: &Tenants) -> Option<Arc<Tenant>> {
        match &self.home {
            Some(name) => tenants.named(name.as_str().as_bytes()),
            None => tenants.open_for(self.peer()),
        }
    }

    pub(crate) fn peer(&self) -> IpAddr {
        self.client.peer.ip()
    }

    /// Moves the connection to a tenant, with the charge for its buffers. If that one has as many as it may have, the
    /// connection is nobody's. Whether it was moved.
    pub(crate) fn enter(&mut self, tenant: &Arc<Tenant>, permissions: Permissions) -> bool {
        self.leave();
        if !tenant.open_connection() {
            self.turned_away_by = Some(Arc::clone(tenant));
            return false;
        }
        tenant
            .buffer_bytes
            .fetch_add(self.charged_bytes as u64, Ordering::Relaxed);
        tenant.counts.add(Count::Connections, 1);
        self.client.set_tenant(Some(tenant.id));
        self.tenant = Some(Arc::clone(tenant));
        self.permissions = permissions;
        true
    }

    /// Takes the connection from its tenant, if it has one.
    pub(crate) fn leave(&mut self) {
        if let Some(old) = self.tenant.take() {
            old.buffer_bytes.fetch_sub(self.charged_bytes as u64, Ordering::Relaxed);
            old.connections.fetch_sub(1, Ordering::AcqRel);
            self.client.set_tenant(None);
        }
        self.permissions = Permissions::NONE;
        self.secret = None;
        self.turned_away_by = None;
    }

    /// Whether the connection's reads do not count as uses (CLIENT NO-TOUCH).
    #[inline]
    pub(crate) fn is_reading_quietly(&self) -> bool {
        self.client.no_touch.load(Ordering::Relaxed)
    }

    /// Whether the client is to be told, behind each read, not to keep the value that it has read (CLIENT TRACKING).
    #[inline]
    pub(crate) fn is_tracking(&self) -> bool {
        self.client.is_tracking.load(Ordering::Relaxed)
    }

    /// Memory that the session holds besides the connection's buffers: queued commands and watched keys.
    pub(crate) fn held_bytes(&self) -> usize {
        self.transaction
            .as_ref()
            .map_or(0, |transaction| transaction.memory_bytes())
    }

    /// Whether the connection has yet to log in.
    pub(crate) fn needs_login(&self) -> bool {
        self.tenant.is_none()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The tools of a command beside its session.
pub(crate) struct Exec<'a> {
    pub(crate) now: UnixMs,
    pub(crate) shared: &'a Shared,
    pub(crate) out: &'a mut Output,
    pub(crate) counts: &'a mut TurnCounts,
    pub(crate) room: &'a Room,
    pub(crate) visit: &'a mut Visit,
}

/// How far a command came in an earlier visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Begun {
    #[default]
    Not,
    /// It is admitted by its tenant's limits.
    Admitted,
    /// The key that is next is counted, and waits for memory.
    Counted,
}

/// The limits of a connection in one visit, and the state of its next command.
#[derive(Debug)]
pub(crate) struct Visit {
    /// Replies after which it has had its share of the turn.
    pub(crate) reply_bytes: usize,
    /// A value or another reply of so many bytes takes memory before it is made. Shorter ones are part of the worker's
    /// memory in hand, or of the connection's own part.
    long_bytes: usize,
    /// Memory that a command has to wait for; zero if none does.
    pub(crate) wait_bytes: usize,
    /// How far the command at the input's beginning came in an earlier visit.
    pub(crate) begun: Begun,
    /// The same of the command that is executed now.
    pub(crate) now: Begun,
    /// Whether the command that was executed last goes on in a later turn.
    pub(crate) is_suspended: bool,
    /// The end of the replies for which memory was taken before they were begun.
    promised: Option<usize>,
    /// Whether that is a transaction's, in which nothing waits.
    is_transaction: bool,
    /// The progress of a command that goes on in a later turn.
    pub(crate) progress: Option<Box<Progress>>,
    /// The reads of flash that the command waits for.
    pub(crate) waits: Waits,
}

// One is made for each visit.
const _: () = assert!(size_of::<Visit>() <= 120 && size_of::<Exec<'_>>() <= 56);

impl Visit {
    /// A visit to a connection that may take so much memory.
    #[inline]
    pub(crate) fn new(left: u64) -> Self {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        Self {
            reply_bytes: left.clamp(OWN_REPLY_BYTES, REPLY_BYTES),
            long_bytes: if left >= REPLY_BYTES {
                PIN_BYTES
            } else {
                OWN_REPLY_BYTES
            },
            wait_bytes: 0,
            begun: Begun::Not,
            now: Begun::Not,
            is_suspended: false,
            promised: None,
            is_transaction: false,
            progress: None,
            waits: Waits::default(),
        }
    }
}

impl Visit {
    /// Turns to the command at the input's beginning.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.now = self.begun;
        self.waits.enter(true);
    }

    /// Turns to the input behind it.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.now = Begun::Not;
        self.waits.enter(false);
    }

    /// Whether the command that is executed now was admitted in an earlier visit.
    #[inline]
    pub(crate) fn is_resumed(&self) -> bool {
        self.now != Begun::Not
    }

    /// Whether the key that is looked up now was counted in an earlier visit.
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        self.now == Begun::Counted
    }

    /// Memory is taken for the replies up to there, which `is_transaction` says to be a transaction's.
    pub(crate) fn promise(&mut self, end: usize, is_transaction: bool) {
        self.promised = Some(end);
        self.is_transaction = is_transaction;
    }

    /// Ends [`Self::promise`].
    pub(crate) fn end_promise(&mut self) {
        self.promised = None;
        self.is_transaction = false;
    }

    /// Whether a command for whose reply there is no memory fails, because it cannot wait.
    pub(crate) fn must_fail(&self) -> bool {
        self.is_transaction
    }

    /// The state to remember of the command that the visit ends before; `is_first` says that it is at the input's
    /// beginning.
    pub(crate) fn left(&self, is_first: bool) -> Begun {
        match (self.is_suspended, self.wait_bytes) {
            (true, 0) => Begun::Admitted,
            (true, _) => Begun::Counted,
            (false, _) if is_first => self.begun,
            (false, _) => Begun::Not,
        }
    }
}

impl Exec<'_> {
    /// Whether a reply of so many bytes may be made now: memory for a long one is taken. If not, the command has to be
    /// executed again when there is room, and must have changed nothing.
    #[inline]
    pub(crate) fn may_answer(&mut self, bytes: usize) -> bool {
        (bytes < self.visit.long_bytes && !self.visit.is_transaction) || self.take_for_reply(bytes)
    }

    #[cold]
    fn take_for_reply(&mut self, bytes: usize) -> bool {
        let missing = match self.visit.promised {
            Some(end) => (self.out.len() + bytes).saturating_sub(end),
            None => bytes,
        };
        let is_taken = missing == 0 || self.room.take(missing as u64);
        if !is_taken && !self.visit.is_transaction {
            self.visit.wait_bytes = missing;
        }
        if is_taken && let Some(end) = &mut self.visit.promised {
            *end += missing;
        }
        is_taken
    }

    /// The longest reply that can be promised as a whole.
    pub(crate) fn reply_bytes_max(&self) -> usize {
        self.shared.reply_bytes_max
    }
}
