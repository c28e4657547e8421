//! Logins: their check, and the cost of a failed one.
//!
//! A right secret is never refused. It has 192 bits or more, so that nobody guesses it, and a lock-out would only help
//! attackers. A failure costs the connection that makes it. Its answer waits for
//! [`Limits::failed_login`](crate::Limits::failed_login), during which nothing of the connection is read or executed.
//! After [`FAILED_LOGINS`] of them, in memcached's protocol after one, it is closed. No thread waits: the worker passes
//! the connection by. Failures are counted, for the named tenant if there is one, and logged with their address.

use std::net::SocketAddr;
use std::sync::Arc;

use tidemark_types::{Secret, UnixMs};

use crate::limits::{FAILED_LOGINS, LOGGED_FAILURES};
use crate::session::{Exec, Session};
use crate::tenant::Tenant;

/// The outcome of a login.
pub(crate) enum Login {
    /// The connection may become the tenant's.
    Right(Arc<Tenant>, Secret),
    /// The failure is to be answered now.
    Wrong,
    /// The login is to be executed again when the connection has waited.
    Later,
}

/// A connection's failed logins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FailedLogins {
    /// Those that were answered.
    answered: u32,
    /// One is to be answered when the connection has waited.
    is_waiting: bool,
}

impl FailedLogins {
    /// Whether a login failed that is not answered yet: the connection waits.
    #[inline]
    pub(crate) fn is_waiting(self) -> bool {
        self.is_waiting
    }

    /// Whether the connection has failed as often as it may.
    pub(crate) fn are_too_many(self) -> bool {
        self.answered >= FAILED_LOGINS
    }
}

/// Looks at a login. One that was found wrong before is answered now.
pub(crate) fn look(name: &[u8], secret: &[u8], session: &mut Session, exec: &Exec<'_>) -> Login {
    if std::mem::take(&mut session.failed_logins.is_waiting) {
        session.failed_logins.answered += 1;
        return Login::Wrong;
    }
    let peer = session.client.peer;
    match exec.shared.tenants.log_in(name, secret, peer, exec.now) {
        Some((tenant, secret)) => Login::Right(tenant, secret),
        None => {
            session.failed_logins.is_waiting = true;
            Login::Later
        }
    }
}

/// Which failures are logged: so many a second that an attack is seen, and not so many that it fills the disk.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    second: u64,
    logged: u32,
    unsaid: u64,
}

impl FailureLog {
    /// Whether a failure is logged; then how many before it were not.
    pub(crate) fn admit(&mut self, now: UnixMs) -> Option<u64> {
        let second = now.0 / 1000;
        if second != self.second {
            (self.second, self.logged) = (second, 0);
        }
        if self.logged == LOGGED_FAILURES {
            self.unsaid += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.unsaid))
    }

    /// Logs a failure. The name is said only if it is a tenant's: it could be a secret in the wrong place.
    pub(crate) fn note(&mut self, peer: SocketAddr, tenant: Option<&Tenant>, now: UnixMs) {
        if let Some(not_logged) = self.admit(now) {
            let tenant = tenant.map(|tenant| tenant.name.as_str());
            tracing::warn!(%peer, tenant, not_logged, "a login failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn so_many_failures_of_a_second_are_logged_and_the_others_are_counted() {
        let mut log = FailureLog::default();
        let now = UnixMs(5_000);
        for _ in 0..LOGGED_FAILURES {
            assert_eq!(log.admit(now), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(log.admit(now.plus(Duration::from_millis(999))), None);
        }
        let next = now.plus(Duration::from_secs(1));
        assert_eq!(log.admit(next), Some(7));
        assert_eq!(log.admit(next), Some(0));
    }

    #[test]
    fn a_connection_fails_only_so_often() {
        let failed = |answered| FailedLogins {
            answered,
            is_waiting: false,
        };
        for answered in 0..FAILED_LOGINS {
            assert!(!failed(answered).are_too_many());
        }
        assert!(failed(FAILED_LOGINS).are_too_many());
    }
}
