//! Who a connection is, and what it is in the middle of.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// The state of a connection that commands see.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) protocol: Protocol,
    pub(crate) client: Arc<Client>,
    pub(crate) tenant: Option<Arc<Tenant>>,
    pub(crate) permissions: Permissions,
    pub(crate) db: u8,
    pub(crate) version: Version,
    pub(crate) reply_mode: ReplyMode,
    /// Whether a command was received; memcached's login must be the first.
    pub(crate) has_begun: bool,
    /// Of a long `get` whose replies are sent in parts, the keys that are answered.
    pub(crate) keys_answered: usize,
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
            permissions: Permissions::NONE,
            db: 0,
            version: Version::Resp2,
            reply_mode: ReplyMode::default(),
            has_begun: false,
            keys_answered: 0,
            is_ending: false,
            transaction: None,
            charged_bytes: 0,
        };
        let open = shared.tenants.open_for(session.peer());
        session.set_tenant(open.map(|tenant| (tenant, Permissions::ALL)));
        session
    }

    pub(crate) fn peer(&self) -> IpAddr {
        self.client.peer.ip()
    }

    /// Moves the connection to a tenant, or to none, with the charge for its buffers.
    pub(crate) fn set_tenant(&mut self, login: Option<(Arc<Tenant>, Permissions)>) {
        let charged_bytes = self.charged_bytes as u64;
        if let Some(old) = self.tenant.take() {
            old.buffer_bytes.fetch_sub(charged_bytes, Ordering::Relaxed);
            old.connections.fetch_sub(1, Ordering::AcqRel);
        }
        self.permissions = Permissions::NONE;
        self.client.set_tenant(login.as_ref().map(|(tenant, _)| tenant.id));
        if let Some((tenant, permissions)) = login {
            tenant.connections.fetch_add(1, Ordering::AcqRel);
            tenant.buffer_bytes.fetch_add(charged_bytes, Ordering::Relaxed);
            tenant.counts.add(Count::Connections, 1);
            self.tenant = Some(tenant);
            self.permissions = permissions;
        }
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
        self.set_tenant(None);
    }
}

/// What a command works with beside its session.
pub(crate) struct Exec<'a> {
    pub(crate) now: UnixMs,
    pub(crate) shared: &'a Shared,
    pub(crate) out: &'a mut Output,
    pub(crate) counts: &'a mut TurnCounts,
}
