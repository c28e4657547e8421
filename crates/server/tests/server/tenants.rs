//! Tenants come, go, grow and shrink, and none of it concerns another.

use std::sync::atomic::{AtomicBool, Ordering};

use tidemark_types::{MIB, TenantId, TenantPlan, TenantState};

use crate::harness::{Client, Harness, Setup, StopAtEnd, found, login, set, tenant, wait_until};

/// Writes the items of these numbers, of 1 KiB each.
fn write(client: &mut Client, numbers: std::ops::Range<usize>) {
    let request: Vec<u8> = numbers
        .clone()
        .flat_map(|number| set(&format!("k{number}"), &[b'v'; 1000]))
        .collect();
    client.ask(&request, &b"STORED\r\n".repeat(numbers.len()));
}

#[test]
fn a_neighbour_that_shrinks_costs_nothing() {
    // The one that shrinks, and the one that does not.
    let wide = TenantPlan {
        grant_bytes: 512 * MIB,
        ..tenant(1, "wide")
    };
    let steady = TenantPlan {
        grant_bytes: 64 * MIB,
        ..tenant(2, "steady")
    };
    let tenants = vec![wide.clone(), steady];
    let harness = Harness::start(Setup {
        pool_bytes: 576 * MIB,
        tenants,
        ..Setup::default()
    });
    let (mut filler, mut client) = (harness.log_in("wide"), harness.log_in("steady"));
    (0..500).for_each(|batch| write(&mut filler, batch * 1000..(batch + 1) * 1000));
    (0..30).for_each(|batch| write(&mut client, batch * 1000..(batch + 1) * 1000));
    let is_small = AtomicBool::new(false);
    let (items, evicted) = (client.stat("curr_items"), client.stat("evictions"));
    let mut written = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop_at_end = StopAtEnd(&is_small);
            harness.resize_pool(
                96 * MIB,
                vec![TenantPlan {
                    version: 2,
                    grant_bytes: 32 * MIB,
                    ..wide
                }],
            );
            wait_until("the neighbour has shrunk", || {
                harness.tenant(1).unwrap().usage_bytes <= 32 * MIB
            });
        });
        while !is_small.load(Ordering::Relaxed) {
            write(&mut client, 60_000 + written..60_100 + written);
            written += 100;
        }
    });
    let (items_left, evicted) = (client.stat("curr_items"), client.stat("evictions") - evicted);
    println!("{written} written meanwhile; {items} items before, {items_left} after, {evicted} evicted");
    assert!(items_left > items * 9 / 10, "{items} items before, {items_left} after");
}

#[test]
fn a_grant_is_first_made_at_the_first_write() {
    let new = TenantPlan {
        grant_bytes: 0,
        first_grant_bytes: 8 * MIB,
        state: TenantState::Idle,
        ..tenant(1, "shop")
    };
    let harness = Harness::start(Setup {
        pool_bytes: 16 * MIB,
        tenants: vec![new.clone()],
        ..Setup::default()
    });
    let grant = || harness.tenant(1).map_or(0, |tenant| tenant.grant_bytes);
    let mut client = harness.log_in("shop");
    client.ask(b"mg k v\r\n", b"EN\r\n");
    client.ask(b"delete k\r\n", b"NOT_FOUND\r\n");
    assert_eq!((grant(), harness.alarms()), (0, 0));
    client.ask(&set("k", b"v"), b"STORED\r\n");
    assert_eq!((grant(), harness.alarms()), (8 * MIB, 1));
    // A plan that was made before the write was known takes nothing back.
    harness.apply(vec![TenantPlan { version: 2, ..new }]);
    client.ask(b"get k\r\n", &found("k", b"v"));
    assert_eq!(grant(), 8 * MIB);
}

#[test]
fn a_reclaimed_tenant_gives_all_back_and_may_return() {
    let first = TenantPlan {
        first_grant_bytes: 8 * MIB,
        ..tenant(1, "shop")
    };
    let harness = Harness::start(Setup {
        pool_bytes: 64 * MIB,
        tenants: vec![first.clone()],
        ..Setup::default()
    });
    let mut client = harness.log_in("shop");
    (0..10).for_each(|batch| write(&mut client, batch * 1000..(batch + 1) * 1000));
    let usage = || harness.tenant(1).unwrap().usage_bytes;
    let held_bytes = usage();
    assert!(held_bytes > 5 * MIB, "{held_bytes}");
    let without_grant = |version, state| TenantPlan {
        version,
        state,
        grant_bytes: 0,
        ..first.clone()
    };
    // Without a grant alone, written items stay: the plan may not know of it.
    harness.apply(vec![without_grant(2, TenantState::Idle)]);
    client.ask(b"set touched 0 0 1\r\n1\r\n", b"STORED\r\n");
    assert!(usage() >= held_bytes);
    harness.apply(vec![without_grant(3, TenantState::Reclaimed)]);
    wait_until("all memory is back", || harness.look().usage_bytes == 0);
    client.ask(b"get k1\r\n", b"END\r\n");
    client.ask(&set("k1", b"again"), b"STORED\r\n");
    // A plan for another reason takes nothing again.
    harness.apply(vec![without_grant(4, TenantState::Idle)]);
    client.ask(b"get k1\r\n", &found("k1", b"again"));
    assert_eq!(harness.tenant(1).unwrap().grant_bytes, 8 * MIB);
}

#[test]
fn a_removed_tenant_leaves_nothing() {
    let harness = Harness::start(Setup {
        pool_bytes: 64 * MIB,
        tenants: vec![tenant(1, "shop"), tenant(2, "blog")],
        ..Setup::default()
    });
    let (mut shop, mut idle, mut blog) = (harness.log_in("shop"), harness.log_in("shop"), harness.log_in("blog"));
    (0..10).for_each(|batch| write(&mut shop, batch * 1000..(batch + 1) * 1000));
    blog.ask(&set("k1", b"of the blog"), b"STORED\r\n");
    assert!(harness.look().usage_bytes > 10 * MIB);
    let end = TenantPlan {
        version: 2,
        state: TenantState::Removing,
        ..tenant(1, "shop")
    };
    harness.apply(vec![end]);
    wait_until("the tenant is gone", || harness.removed() == [TenantId(1)]);
    assert!(harness.look().usage_bytes <= MIB, "{:?}", harness.look());
    idle.expect_end(b"");
    shop.expect_end(b"");
    let mut late = harness.connect();
    late.send(&login("shop", crate::harness::SECRET));
    late.expect(b"CLIENT_ERROR authentication failure\r\n");
    // Another one of the same name begins with nothing.
    harness.apply(vec![tenant(3, "shop")]);
    harness.log_in("shop").ask(b"get k1\r\n", b"END\r\n");
    blog.ask(b"get k1\r\n", &found("k1", b"of the blog"));
}

#[test]
fn tenants_share_nothing() {
    let harness = Harness::start(Setup {
        pool_bytes: 64 * MIB,
        tenants: vec![tenant(1, "shop"), tenant(2, "blog")],
        ..Setup::default()
    });
    let (mut shop, mut blog) = (harness.log_in("shop"), harness.log_in("blog"));
    write(&mut blog, 0..5000);
    shop.ask(&set("k1", b"of the shop"), b"STORED\r\n");
    shop.ask(b"get k2\r\n", b"END\r\n");
    // Four times the grant.
    (10..70).for_each(|batch| write(&mut shop, batch * 1000..(batch + 1) * 1000));
    assert!(shop.stat("evictions") > 40_000);
    shop.ask(b"flush_all\r\n", b"OK\r\n");
    shop.ask(b"stats reset\r\n", b"RESET\r\n");
    let counts = ["curr_items", "evictions", "cmd_set", "cmd_flush"].map(|name| blog.stat(name));
    assert_eq!(counts, [5000, 0, 5000, 0]);
    blog.ask(b"get k1\r\n", &found("k1", &[b'v'; 1000]));
}
