//! The connections as CLIENT LIST shows them and CLIENT KILL ends them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidemark_protocol::resp::command::CommandId;
use tidemark_types::{TenantId, UnixMs};

/// No tenant: not logged in.
const NOBODY: u64 = u64::MAX;

/// What others may see of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) connected_at: UnixMs,
    /// The worker whose connection it is, and its place there.
    pub(crate) worker: usize,
    pub(crate) place: AtomicU32,
    tenant: AtomicU64,
    last_active: AtomicU64,
    /// Number of the last RESP command, plus one.
    last_command: AtomicU32,
    pub(crate) db: AtomicU8,
    pub(crate) resp: AtomicU8,
    /// Commands queued since MULTI, plus one; zero outside of a transaction.
    pub(crate) queued: AtomicU32,
    pub(crate) watches: AtomicU32,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// CLIENT TRACKING.
    pub(crate) is_tracking: AtomicBool,
    /// Someone asked for its end.
    is_killed: AtomicBool,
    pub(crate) names: Mutex<Names>,
}

/// What a client says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) name: Box<str>,
    pub(crate) library: Box<str>,
    pub(crate) library_version: Box<str>,
}

impl Client {
    pub(crate) fn tenant(&self) -> Option<TenantId> {
        u32::try_from(self.tenant.load(Ordering::Relaxed)).ok().map(TenantId)
    }

    pub(crate) fn set_tenant(&self, tenant: Option<TenantId>) {
        self.tenant
            .store(tenant.map_or(NOBODY, |id| u64::from(id.0)), Ordering::Relaxed);
    }

    pub(crate) fn last_active(&self) -> UnixMs {
        UnixMs(self.last_active.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn note_active(&self, now: UnixMs) {
        self.last_active.store(now.0, Ordering::Relaxed);
    }

    /// Notes which RESP command came last.
    #[inline]
    pub(crate) fn note_command(&self, id: CommandId) {
        // Mostly the same one again: then the cache line stays as it is.
        if self.last_command.load(Ordering::Relaxed) != id as u32 + 1 {
            self.last_command.store(id as u32 + 1, Ordering::Relaxed);
        }
    }

    /// The number ([`CommandId`]) of the last RESP command.
    pub(crate) fn last_command(&self) -> Option<usize> {
        self.last_command
            .load(Ordering::Relaxed)
            .checked_sub(1)
            .map(|number| number as usize)
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Acquire)
    }

    /// Asks for the connection's end; its worker must be woken.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::Release);
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// The largest number that was given.
    last_id: AtomicU64,
    by_id: Mutex<HashMap<u64, Arc<Client>>>,
}

/// Where a new connection comes from and where it is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) worker: usize,
    pub(crate) at: UnixMs,
    /// The same since the server's start, finer.
    pub(crate) since_start: Duration,
}

impl Clients {
    /// Adds a connection.
    pub(crate) fn add(&self, arrival: Arrival) -> Arc<Client> {
        let client = Arc::new(Client {
            id: self.next_id(arrival.since_start),
            peer: arrival.peer,
            local: arrival.local,
            connected_at: arrival.at,
            worker: arrival.worker,
            place: AtomicU32::new(0),
            tenant: AtomicU64::new(NOBODY),
            last_active: AtomicU64::new(arrival.at.0),
            last_command: AtomicU32::new(0),
            db: AtomicU8::new(0),
            resp: AtomicU8::new(2),
            queued: AtomicU32::new(0),
            watches: AtomicU32::new(0),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            is_tracking: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            names: Mutex::default(),
        });
        self.by_id.lock().insert(client.id, Arc::clone(&client));
        client
    }

    /// A number for a connection that came so long after the start: as in Redis, larger than that of every one before. It is the
    /// time in microseconds. Consecutive numbers would tell a tenant how many connections others open.
    fn next_id(&self, since_start: Duration) -> u64 {
        let micros = since_start.as_micros() as u64;
        let next = |last: u64| Some(micros.max(last + 1));
        // It is never refused; what comes back is the one before.
        let last = self.last_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        micros.max(last.unwrap_or_default() + 1)
    }

    pub(crate) fn remove(&self, id: u64) {
        self.by_id.lock().remove(&id);
    }

    /// A tenant's connections in the order in which they came, without those that were killed.
    pub(crate) fn of_tenant(&self, tenant: TenantId) -> Vec<Arc<Client>> {
        let by_id = self.by_id.lock();
        let is_its = |client: &&Arc<Client>| client.tenant() == Some(tenant) && !client.is_killed();
        let mut clients: Vec<_> = by_id.values().filter(is_its).cloned().collect();
        drop(by_id);
        clients.sort_unstable_by_key(|client| client.id);
        clients
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_with_time_and_not_with_others_connections() {
        let clients = Clients::default();
        let id = |micros| clients.next_id(Duration::from_micros(micros));
        assert_eq!(id(1000), 1000);
        // Ten connections of somebody else.
        for micros in 1001..1011 {
            assert_eq!(id(micros), micros);
        }
        assert_eq!(id(5000), 5000, "as without them");
        // Two at once are told apart, in their order; a worker may be behind.
        assert_eq!(id(5000), 5001);
        assert_eq!(id(4000), 5002);
        assert_eq!(id(6000), 6000);
        assert!(id(u64::from(u32::MAX) * 1_000_000) < 1 << 53, "clients hold no more");
    }
}
