//! Tenants come, go, grow and shrink, and none of it concerns another.

use std::sync::atomic::{AtomicBool, Ordering};

use tidemark_types::{MIB, TenantPlan};

use crate::harness::{Client, Harness, Setup, set, tenant, wait_until};

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
            is_small.store(true, Ordering::Relaxed);
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
