//! The rules of the data plane, with a front that has nothing but a count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tidemark_store::{Attributes, Hasher, KeeperInbox, Pool};
use tidemark_types::{
    DataPlane, FlashPlan, MIB, ManualClock, Plan, Policy, SamplingThreshold, Snapshot, TenantId, TenantLimits,
    TenantPlan, TenantSnapshot, TenantState, UnixMs, Weight,
};

use crate::{Front, Plane, PlaneParts, Tenant};

const POOL_BYTES: u64 = 16 * MIB;

/// Counts the plans that each tenant followed.
pub(crate) struct Counting;

impl Front for Counting {
    type Attached = AtomicU64;

    fn attach(&self, _plan: &TenantPlan) -> AtomicU64 {
        AtomicU64::new(0)
    }

    fn adopted(&self, tenant: &Arc<Tenant<AtomicU64>>, _plan: &TenantPlan) {
        tenant.fetch_add(1, Ordering::Relaxed);
    }

    fn report(&self, tenant: &Tenant<AtomicU64>, snapshot: &mut TenantSnapshot) {
        snapshot.counters.network_in_bytes = tenant.load(Ordering::Relaxed);
    }

    fn complete(&self, snapshot: &mut Snapshot) {
        snapshot.pool.connections = 7;
    }
}

fn plane() -> Plane<Counting> {
    Plane::new(parts(), Counting)
}

fn parts() -> PlaneParts {
    PlaneParts {
        pool: Pool::without_thread(POOL_BYTES, Some(2 * POOL_BYTES)).unwrap(),
        hasher: Hasher::with_seed(1),
        keepers: Arc::new([KeeperInbox::new(Box::new(|| {}))]),
        alarm: Arc::new(|| {}),
        clock: Arc::new(ManualClock::new(UnixMs(1_000))),
        flash: None,
    }
}

pub(crate) fn tenant(id: u32, name: &str, version: u64) -> TenantPlan {
    TenantPlan {
        id: TenantId(id),
        version,
        name: name.parse().unwrap(),
        open: false,
        secrets: Vec::new(),
        policy: Policy::Fifo,
        shards: 1,
        grant_bytes: MIB,
        first_grant_bytes: 0,
        cap_bytes: None,
        limits: TenantLimits::default(),
        refuses_writes: false,
        weight: Weight::default(),
        sampling_threshold: SamplingThreshold::default(),
        flash: FlashPlan::default(),
        state: TenantState::Active,
    }
}

fn apply(plane: &Plane<Counting>, sequence: u64, tenants: Vec<TenantPlan>) {
    plane.apply(&Plan {
        sequence,
        pool_bytes: POOL_BYTES,
        tenants,
    });
}

fn put(tenant: &Tenant<AtomicU64>) {
    let key = tenant.store.key(0, b"k");
    tenant
        .store
        .put(&key, b"v", Attributes::default(), UnixMs(1_000))
        .unwrap();
    tenant.touch_store();
}

#[test]
fn plans_are_followed_in_their_order() {
    let plane = plane();
    apply(&plane, 2, vec![tenant(1, "a", 5)]);
    let a = plane.tenant(b"a").unwrap();
    for (sequence, version, followed) in [(1, 6, 1), (2, 6, 1), (3, 4, 1), (4, 5, 2), (5, 6, 3)] {
        apply(&plane, sequence, vec![tenant(1, "a", version)]);
        assert_eq!(
            a.load(Ordering::Relaxed),
            followed,
            "plan {sequence}, version {version}"
        );
    }
}

#[test]
fn a_snapshot_has_the_tenants_that_something_happened_to() {
    let plane = plane();
    apply(&plane, 1, vec![tenant(2, "b", 1), tenant(1, "a", 1), tenant(3, "c", 1)]);
    let reported = || {
        let snapshot = plane.snapshot();
        assert_eq!(snapshot.pool.connections, 7);
        snapshot.tenants.iter().map(|tenant| tenant.id.0).collect::<Vec<_>>()
    };
    reported();
    assert!(reported().is_empty());
    put(&plane.tenant(b"b").unwrap());
    plane.tenant(b"a").unwrap().touch();
    assert_eq!(reported(), [1, 2]);
    assert!(reported().is_empty());
}

#[test]
fn a_front_adds_its_figures() {
    let plane = plane();
    apply(&plane, 1, vec![tenant(1, "a", 1)]);
    let a = plane.tenant(b"a").unwrap();
    assert!(a.open_connection());
    a.fetch_add(41, Ordering::Relaxed);
    a.touch();
    let snapshot = plane.snapshot();
    assert_eq!(snapshot.tenants[0].counters.network_in_bytes, 42);
    assert_eq!(snapshot.tenants[0].connections, 1);
}

#[test]
fn a_tenant_is_gone_when_its_memory_and_connections_are() {
    let plane = plane();
    apply(&plane, 1, vec![tenant(1, "a", 1)]);
    let old = plane.tenant(b"a").unwrap();
    assert!(old.open_connection());
    put(&old);
    let removing = TenantPlan {
        state: TenantState::Removing,
        ..tenant(1, "a", 2)
    };
    apply(&plane, 2, vec![removing, tenant(2, "a", 1)]);
    assert!(old.is_removed());
    assert_eq!(
        plane.tenant(b"a").unwrap().id,
        TenantId(2),
        "the name is the new tenant's"
    );
    assert!(plane.snapshot().removed.is_empty(), "a connection is left");
    old.connections.fetch_sub(1, Ordering::Release);
    assert_eq!(plane.snapshot().removed, [TenantId(1)]);
    assert!(plane.snapshot().removed.is_empty(), "it is said once");
    assert_eq!(plane.granted_bytes(), MIB);
}

#[test]
fn connections_are_limited() {
    let plane = plane();
    let limits = TenantLimits {
        connections: Some(1),
        ..TenantLimits::default()
    };
    apply(
        &plane,
        1,
        vec![TenantPlan {
            limits,
            ..tenant(1, "a", 1)
        }],
    );
    let a = plane.tenant(b"a").unwrap();
    assert!(a.open_connection());
    assert!(!a.open_connection());
    assert_eq!(a.connections_max(100), 1);
    apply(&plane, 2, vec![tenant(1, "a", 2)]);
    assert!(a.open_connection());
    assert_eq!(a.connections_max(100), 100);
}

/// Uses each tenant while it is being adopted, and has a snapshot taken meanwhile.
#[derive(Default)]
struct Early(OnceLock<Weak<Plane<Self>>>);

impl Front for Early {
    type Attached = ();

    fn attach(&self, _plan: &TenantPlan) {}

    fn adopted(&self, tenant: &Arc<Tenant<()>>, _plan: &TenantPlan) {
        tenant.touch();
        let plane = self.0.get().and_then(Weak::upgrade).unwrap();
        assert_eq!(plane.snapshot().tenants.len(), 1);
    }

    fn report(&self, _tenant: &Tenant<()>, _snapshot: &mut TenantSnapshot) {}

    fn complete(&self, _snapshot: &mut Snapshot) {}
}

#[test]
fn who_is_used_while_it_is_adopted_is_reported_then_and_later() {
    let plane = Arc::new(Plane::new(parts(), Early::default()));
    plane.front().0.set(Arc::downgrade(&plane)).unwrap();
    plane.apply(&Plan {
        sequence: 1,
        pool_bytes: POOL_BYTES,
        tenants: vec![tenant(1, "a", 1)],
    });
    plane.tenant(b"a").unwrap().touch();
    assert_eq!(plane.snapshot().tenants.len(), 1);
}
