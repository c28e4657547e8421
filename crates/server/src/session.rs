//! Who a connection is, and what it is in the middle of.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_protocol::memcached as mc;
use tidemark_protocol::resp::Version;
use tidemark_types::{Permissions, UnixMs};

use crate::clients::Client;
use crate::counts::{Count, TurnCounts};
use crate::output::Output;
use crate::shared::Shared;
use crate::tenant::Tenant;
use crate::transaction::Transaction;

/// Which protocol a connection's listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    Memcached,
    Redis,
}

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
    /// Whether what is appended now is dropped.
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
    /// The tenant that it was to be in and that has as many connections as it may have. It may still log in as another.
    pub(crate) turned_away_by: Option<Arc<Tenant>>,
    pub(crate) permissions: Permissions,
    pub(crate) db: u8,
    pub(crate) version: Version,
    pub(crate) reply_mode: ReplyMode,
    /// Whether a command was received; memcached's login must be the first.
    pub(crate) has_begun: bool,
    /// Of a long `get` whose replies are sent in parts, the keys that are answered.
    pub(crate) keys_answered: usize,
    /// memcached's line of keys that is in the middle of being executed.
    pub(crate) open_get: Option<OpenGet>,
    /// Close when the replies so far are sent.
    pub(crate) is_ending: bool,
    /// MULTI and WATCH, which few connections use.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// What the tenant is charged for the connection's buffers.
    pub(crate) charged_bytes: usize,
}

impl Session {
    /// A new connection; it belongs to the open tenant if there is one for its address.
    pub(crate) fn new(protocol: Protocol, client: Arc<Client>, shared: &Shared) -> Self {
        let mut session = Self {
            protocol,
            client,
            tenant: None,
            turned_away_by: None,
            permissions: Permissions::NONE,
            db: 0,
            version: Version::Resp2,
            reply_mode: ReplyMode::default(),
            has_begun: false,
            keys_answered: 0,
            open_get: None,
            is_ending: false,
            transaction: None,
            charged_bytes: 0,
        };
        if let Some(open) = shared.tenants.open_for(session.peer()) {
            // If not, it is told so at its first command, unless that is a login.
            session.enter(&open, Permissions::ALL);
        }
        session
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
        }
        self.permissions = Permissions::NONE;
        self.turned_away_by = None;
        self.client.set_tenant(None);
    }

    /// Whether what the connection reads does not count as used (CLIENT NO-TOUCH).
    #[inline]
    pub(crate) fn is_reading_quietly(&self) -> bool {
        self.client.no_touch.load(Ordering::Relaxed)
    }

    /// Memory that the session holds besides the connection's buffers: what is queued and watched.
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

/// What a command works with beside its session.
pub(crate) struct Exec<'a> {
    pub(crate) now: UnixMs,
    pub(crate) shared: &'a Shared,
    pub(crate) out: &'a mut Output,
    pub(crate) counts: &'a mut TurnCounts,
}
