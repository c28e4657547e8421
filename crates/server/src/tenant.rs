//! A tenant as the sockets' front knows it: its access and its counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidemark_meter::model::{Present, Tally, Work};
use tidemark_plane::{Limited, Throttled, TooManyConnections};
use tidemark_store::Counters;
use tidemark_types::{LoadShape, Permissions, Secret, SecretHash, TenantPlan, VisitSamples};

use crate::counts::{Count, TenantCounts};
use crate::estimates::Estimating;
use crate::memory::Account;
use crate::scripts::Known;
use crate::suspend::Suspended;

/// A tenant, with the data that this front attaches to it.
pub(crate) type Tenant = tidemark_plane::Tenant<Attached>;

/// The data that this front attaches to a tenant.
pub(crate) struct Attached {
    pub(crate) counts: TenantCounts,
    /// Its share of connections' memory, and the taken part.
    pub(crate) account: Arc<Account>,
    /// Bytes that its connections hold in buffers, their own parts included.
    pub(crate) buffer_bytes: AtomicU64,
    /// The most visits to others that one of its connections waited for while it was ready to be served.
    visits_waited: AtomicU64,
    terms: RwLock<Terms>,
    /// The samples of visits since the last snapshot; most tenants have none.
    samples: Mutex<Option<Box<VisitSamples>>>,
    /// Modelled CPU time, where workers estimate it; most tenants of most servers have none.
    tally: Mutex<Option<Box<Tally>>>,
    /// The scripts that it can call by their names; most tenants have none.
    pub(crate) scripts: Mutex<Option<Box<Known>>>,
    /// Its commands that wait for flash.
    pub(crate) suspended: Suspended,
}

/// A secret that nobody has: no text is known to have this hash.
pub(crate) const NO_SECRET: Secret = Secret {
    hash: SecretHash([0; 32]),
    permissions: Permissions::NONE,
};

/// Which of those that are known a secret is. Takes the same time whichever it is.
pub(crate) fn known_as(known: &[Secret], secret: &[u8]) -> Option<Secret> {
    let given = Sha256::digest(secret);
    let mut found = None;
    for known in known {
        if bool::from(known.hash.0.ct_eq(given.as_slice())) {
            found = Some(*known);
        }
    }
    found
}

/// Whether a secret is among others, with the same permissions. Both are known, so nobody can learn anything from the time.
fn contains(all: &[Secret], secret: &Secret) -> bool {
    all.iter()
        .any(|one| one.hash.0 == secret.hash.0 && one.permissions == secret.permissions)
}

/// The count for a command above a limit.
pub(crate) fn refused_as(refused: &Throttled) -> Count {
    match refused.limit {
        Limited::Operations => Count::RefusedOps,
        Limited::Bytes => Count::RefusedBytes,
        Limited::Spending => Count::RefusedSpending,
        Limited::Flash => Count::RefusedFlash,
    }
}

/// Estimates what a tenant did until `now_us` if it is time to; another worker that is at it does as well.
pub(crate) fn estimate(tenant: &Tenant, estimating: &Estimating, now_us: u64) {
    let Some(mut tally) = tenant.tally.try_lock() else {
        return;
    };
    let tally = tally.get_or_insert_default();
    estimating.estimate_after(tally, now_us, || work_until_now(tenant));
}

/// All that a tenant did, and what it has.
pub(crate) fn work_until_now(tenant: &Tenant) -> (Work, Present) {
    let stored = tenant.store.counters();
    let present = Present {
        connections: tenant.connections.load(Ordering::Relaxed),
        items: stored.items,
    };
    (work_of(tenant, &stored.counters), present)
}

/// All that a tenant did.
fn work_of(tenant: &Tenant, stored: &Counters) -> Work {
    let counts = &tenant.counts;
    Work {
        operations: counts.total(Count::Commands),
        resp_operations: counts.resp_operations(),
        gets: stored.gets,
        hits: stored.hits,
        sets: stored.sets,
        shape: LoadShape {
            visits: counts.total(Count::Visits),
            arrivals: counts.total(Count::Arrivals),
            written_key_bytes: stored.written_key_bytes,
            written_value_bytes: stored.written_value_bytes,
        },
    }
}

/// Counts a connection that is refused, and says what it is told.
pub(crate) fn refuse_connection(tenant: &Tenant) -> TooManyConnections {
    tenant.counts.add(Count::RefusedConnections, 1);
    TooManyConnections(tenant.throttle.connections_max())
}

/// The terms on which a tenant is served.
#[derive(Default)]
struct Terms {
    secrets: Vec<Secret>,
    cap_bytes: Option<u64>,
}

impl Attached {
    /// The data attached to a new tenant that has this account.
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self {
            counts: TenantCounts::default(),
            account,
            buffer_bytes: AtomicU64::new(0),
            visits_waited: AtomicU64::new(0),
            terms: RwLock::default(),
            samples: Mutex::default(),
            tally: Mutex::default(),
            scripts: Mutex::default(),
            suspended: Suspended::default(),
        }
    }

    /// Takes over what was recorded of a visit.
    pub(crate) fn add_samples(&self, visit: &mut VisitSamples) {
        self.samples.lock().get_or_insert_default().append(visit);
    }

    /// The records since the last call.
    pub(crate) fn take_samples(&self) -> VisitSamples {
        self.samples
            .lock()
            .take()
            .map_or_else(VisitSamples::default, |samples| *samples)
    }

    /// Modelled CPU time of all work until now, in nanoseconds. `until_now` says the moment in microseconds and the work. It is
    /// asked when no worker is estimating: one that estimated behind it would have its work estimated twice.
    pub(crate) fn modelled_ns(&self, estimating: &Estimating, until_now: impl FnOnce() -> (u64, Work, Present)) -> u64 {
        let mut tally = self.tally.lock();
        if tally.is_none() && self.counts.total(Count::Commands) == 0 {
            return 0;
        }
        let (now_us, work, present) = until_now();
        let tally = tally.get_or_insert_default();
        estimating.estimate(tally, now_us, work, present);
        tally.ns()
    }

    /// Notes for how many visits to others a connection waited that was ready.
    #[inline]
    pub(crate) fn note_waited(&self, visits: u64) {
        // Mostly it is none, and nothing is written.
        if visits > self.visits_waited.load(Ordering::Relaxed) {
            self.visits_waited.fetch_max(visits, Ordering::Relaxed);
        }
    }

    /// The most visits that a connection waited for since this was asked last.
    pub(crate) fn take_visits_waited(&self) -> u64 {
        self.visits_waited.swap(0, Ordering::Relaxed)
    }

    /// Follows a plan. Whether one of the secrets that there were has ended.
    pub(crate) fn adopt(&self, plan: &TenantPlan) -> bool {
        self.account.set_weight(plan.weight.get());
        let terms = Terms {
            secrets: plan.secrets.clone(),
            cap_bytes: plan.cap_bytes,
        };
        let before = std::mem::replace(&mut *self.terms.write(), terms);
        before.secrets.iter().any(|secret| !contains(&plan.secrets, secret))
    }

    /// Which of this tenant's secrets it is. Takes the same time whatever the secret.
    pub(crate) fn known_as(&self, secret: &[u8]) -> Option<Secret> {
        known_as(&self.terms.read().secrets, secret)
    }

    /// Whether this secret lets in still, with the same permissions.
    pub(crate) fn has_secret(&self, secret: &Secret) -> bool {
        contains(&self.terms.read().secrets, secret)
    }

    /// Whether anybody can log in as this tenant.
    pub(crate) fn has_secrets(&self) -> bool {
        !self.terms.read().secrets.is_empty()
    }

    /// Memory that the tenant never exceeds.
    pub(crate) fn cap_bytes(&self) -> Option<u64> {
        self.terms.read().cap_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::estimates::tests::by_rate;
    use crate::memory::Memory;

    #[test]
    fn work_is_asked_for_when_nobody_else_estimates() {
        let attached = Attached::new(Memory::new(0, Box::new(|_| {})).account(1));
        let estimating = Estimating {
            model: by_rate(0.0),
            interval: Duration::from_micros(100),
        };
        let asked = |operations: u64| {
            let mut was_locked = None;
            attached.modelled_ns(&estimating, || {
                was_locked = Some(attached.tally.try_lock().is_none());
                let work = Work {
                    operations,
                    ..Work::default()
                };
                (1_000_000 + operations, work, Present::default())
            });
            was_locked
        };
        assert_eq!(asked(0), None, "nothing was done");
        attached.counts.add(Count::Commands, 1);
        assert_eq!([asked(1), asked(2)], [Some(true); 2]);
    }
}
