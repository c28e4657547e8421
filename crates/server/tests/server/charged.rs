//! The upkeep of a tenant's items is on that tenant's account, while it does nothing itself.

use tidemark_types::{MIB, TenantPlan, TenantSnapshot};

use crate::harness::{Client, Harness, Setup, open_tenant, set, tenant, wait_until};

const ITEMS: usize = 5_000;
const VALUE_BYTES: usize = 2_000;

/// All stamps until now are in the tenants' CPU time: another tenant's work had the worker read its clock.
fn settle(harness: &Harness, other: &mut Client) {
    let read = || harness.tenant(1).unwrap().counters.cpu_ns;
    let before = read();
    wait_until("the clock is read", || {
        other.ask(&b"get none\r\n".repeat(100), &b"END\r\n".repeat(100));
        read() > before
    });
}

#[test]
fn eviction_and_expiry_are_charged_to_the_tenant_whose_items_go() {
    let harness = Harness::start(Setup {
        workers: 1,
        tenants: vec![open_tenant(), tenant(2, "shop")],
        ..Setup::default()
    });
    let mut other = harness.connect();
    let mut shop = harness.log_in("shop");
    let value = "v".repeat(VALUE_BYTES);
    let filled = |shop: &mut Client, other: &mut Client, seconds: u32| -> TenantSnapshot {
        for number in 0..ITEMS {
            let request = format!("set k{number} 0 {seconds} {VALUE_BYTES}\r\n{value}\r\n");
            shop.ask(request.as_bytes(), b"STORED\r\n");
        }
        settle(&harness, other);
        harness.tenant(2).unwrap()
    };
    let full = filled(&mut shop, &mut other, 0);
    harness.apply(vec![TenantPlan {
        version: 2,
        grant_bytes: MIB,
        ..tenant(2, "shop")
    }]);
    let shown = || harness.tenant(2).unwrap();
    wait_until("items are evicted", || shown().usage_bytes <= MIB);
    settle(&harness, &mut other);
    let evicted = shown();
    assert!(evicted.counters.evicted > full.counters.evicted, "{evicted:?}");
    assert!(evicted.counters.cpu_ns > full.counters.cpu_ns, "{full:?} {evicted:?}");
    assert_eq!(evicted.counters.operations, full.counters.operations);

    harness.apply(vec![TenantPlan {
        version: 3,
        ..tenant(2, "shop")
    }]);
    let full = filled(&mut shop, &mut other, 1);
    wait_until("items expire", || shown().counters.expired >= ITEMS as u64);
    settle(&harness, &mut other);
    let expired = shown();
    assert!(expired.counters.cpu_ns > full.counters.cpu_ns, "{full:?} {expired:?}");
    assert_eq!(expired.counters.operations, full.counters.operations);
    // It is still there, and did nothing.
    shop.ask(&set("k", b"1"), b"STORED\r\n");
}
