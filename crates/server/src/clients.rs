//! The connections as CLIENT LIST shows them and CLIENT KILL ends them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidemark_protocol::resp::command::CommandId;
use tidemark_types::{TenantId, UnixMs};

/// No tenant: not logged in.
const NOBODY: u64 = u64::MAX;

/// The part of a connection that others may see.
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

/// The names that a client gives itself.
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

    /// Whether it is a tenant's, and was not killed.
    fn is_of(&self, tenant: TenantId) -> bool {
        self.tenant() == Some(tenant) && !self.is_killed()
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
    /// The clients in the order in which they came.
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// The origin of a new connection, and the listener that serves it.
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
        // It is never refused; the former one comes back.
        let last = self.last_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        micros.max(last.unwrap_or_default() + 1)
    }

    pub(crate) fn remove(&self, id: u64) {
        self.by_id.lock().remove(&id);
    }

    /// A tenant's connections from a number on, in the order in which they came, without those that were killed. At
    /// most so many are looked at. The second part is the number to go on from, unless that were all.
    pub(crate) fn some_of(&self, tenant: TenantId, from: u64, most: usize) -> (Vec<Arc<Client>>, Option<u64>) {
        let by_id = self.by_id.lock();
        let mut rest = by_id.range(from..);
        let looked = rest.by_ref().take(most).map(|(_, client)| client);
        let found = looked.filter(|client| client.is_of(tenant)).cloned().collect();
        (found, rest.next().map(|(id, _)| *id))
    }

    /// How many of a tenant's connections are so, of each kind.
    pub(crate) fn count_of<const N: usize>(&self, tenant: TenantId, kinds: [fn(&Client) -> bool; N]) -> [u64; N] {
        let mut counts = [0; N];
        for client in self.by_id.lock().values().filter(|client| client.is_of(tenant)) {
            for (count, is_so) in counts.iter_mut().zip(kinds) {
                *count += u64::from(is_so(client));
            }
        }
        counts
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

    #[test]
    fn they_are_shown_in_parts_however_many_are_others() {
        let clients = Clients::default();
        let (ours, theirs) = (TenantId(1), TenantId(2));
        let mut expected = Vec::new();
        for number in 0..1000_u64 {
            let client = clients.add(Arrival {
                peer: ([127, 0, 0, 1], 1).into(),
                local: ([127, 0, 0, 1], 2).into(),
                worker: 0,
                at: UnixMs(0),
                since_start: Duration::from_micros(number),
            });
            client.set_tenant(Some(if number % 7 == 0 { ours } else { theirs }));
            if number % 21 == 0 {
                client.kill();
            } else if number % 7 == 0 {
                expected.push(client.id);
            }
        }
        for most in [1, 10, 999, 1000, 5000] {
            let (mut found, mut from, mut parts) = (Vec::new(), Some(0), 0_usize);
            while let Some(next) = from {
                let (some, next) = clients.some_of(ours, next, most);
                found.extend(some.iter().map(|client| client.id));
                (from, parts) = (next, parts + 1);
            }
            assert_eq!(found, expected);
            assert_eq!(parts, 1000_usize.div_ceil(most));
        }
        assert_eq!(
            clients.count_of(ours, [|_| true, |_| false]),
            [expected.len() as u64, 0]
        );
    }
}
