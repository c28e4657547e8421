//! Copies whose bytes are in the tenant's memory: what is counted there, and what is evicted there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::budgets::{LIMIT_BYTES, happens, uses};
use crate::nodes::{Nodes, is_applied, wait_for};
use tidemark_agent::instances::Happening;
use tidemark_store::TenantStore;

const MIB: u64 = 1 << 20;

#[test]
fn each_read_is_one_of_the_tenants_and_hits_are_what_copies_answer() {
    let nodes = Nodes::with_memory(1, 64 * MIB);
    for number in 0..10 {
        assert!(is_applied(&nodes.write(0, &format!("k{number}"), &"x".repeat(5_000))));
    }
    for _ in 0..3 {
        for number in 0..10 {
            let read = nodes.read(0, &format!("k{number}")).unwrap();
            assert_eq!(read, Some("x".repeat(5_000)));
        }
    }
    for number in 0..5 {
        assert_eq!(nodes.read(0, &format!("none{number}")).unwrap(), None);
    }
    let memory = nodes.shown(0)["memory"].clone();
    assert_eq!(
        (&memory["gets_total"], &memory["hits_total"]),
        (&35.into(), &30.into()),
        "{memory}"
    );
    assert!(memory["usage_bytes"].as_u64().unwrap() > 50_000, "{memory}");
    assert_eq!(memory["items"], 10, "{memory}");
    let counts = nodes.shown(0)["counts"].clone();
    assert_eq!(
        (&counts["reads"]["copy"], &counts["evicted"]),
        (&30.into(), &0.into()),
        "{counts}"
    );
    // A deleted object has no bytes here either.
    assert!(is_applied(&nodes.delete(0, "k0")));
    assert_eq!(nodes.shown(0)["memory"]["items"], 9);
    assert_eq!(nodes.read(0, "k0").unwrap(), None);
}

#[test]
fn what_memory_evicts_is_missed_and_nothing_else() {
    let nodes = Nodes::with_memory(3, 64 * MIB);
    let value = |turn: u64, number: u64| format!("{turn}-{number}-{}", "y".repeat(2_000));
    for number in 0..30 {
        assert!(is_applied(&nodes.write(0, &format!("k{number}"), &value(0, number))));
        for place in 0..3 {
            assert_eq!(
                nodes.read(place, &format!("k{number}")).unwrap(),
                Some(value(0, number))
            );
        }
    }
    // All of it, at all nodes, behind the back of the cachelets.
    nodes.memories.iter().for_each(|memory| memory.store.clear());
    for number in 0..30 {
        for place in 0..3 {
            assert_eq!(
                nodes.read(place, &format!("k{number}")).unwrap(),
                Some(value(0, number))
            );
        }
    }
    let evicted = |place: usize| nodes.shown(place)["counts"]["evicted"].as_u64().unwrap();
    assert!(
        (0..3).map(evicted).sum::<u64>() >= 30,
        "{:?}",
        [evicted(0), evicted(1), evicted(2)]
    );
    assert!((0..3).all(|place| nodes.shown(place)["counts"]["failed"] == 0));
    // While it goes on, values change.
    let is_over = Arc::new(AtomicBool::new(false));
    let stores: Vec<_> = nodes.memories.iter().map(|memory| Arc::clone(&memory.store)).collect();
    let rounds = Arc::new(AtomicU64::new(0));
    let (ends, counted) = (Arc::clone(&is_over), Arc::clone(&rounds));
    let evicting = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            stores.iter().for_each(TenantStore::clear);
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let mut turn = 0;
    while turn < 40 || rounds.load(Ordering::Relaxed) < 10 {
        turn += 1;
        let (number, writer) = (turn % 3, (turn % 2) as usize);
        let key = format!("k{number}");
        assert!(is_applied(&nodes.write(writer, &key, &value(turn, number))));
        for place in [2, 0, 1, 2, 1] {
            assert_eq!(
                nodes.read(place, &key).unwrap(),
                Some(value(turn, number)),
                "turn {turn} at {place}"
            );
        }
    }
    is_over.store(true, Ordering::Relaxed);
    evicting.join().unwrap();
    // It is used again afterwards.
    let before = nodes.memories[0].store.counters().counters.hits;
    for _ in 0..5 {
        nodes.read(0, "k1").unwrap();
    }
    assert!(nodes.memories[0].store.counters().counters.hits >= before + 3);
}

#[test]
fn a_grant_limits_copies_and_cachelets_choose_what_goes() {
    let nodes = Nodes::with_memory(1, 8 * MIB);
    let text = "z".repeat(20_000);
    // Far less than the budget of 64 MiB: the grant counts.
    wait_for("the grant to be known", || {
        nodes.shown(0)["cachelets"][0]["budget_bytes"].as_u64() == Some(8 * MIB)
    });
    for number in 0..800 {
        assert!(is_applied(&nodes.write(0, &format!("k{number}"), &text)));
        // This one is used all the time; the core's order keeps it.
        assert_eq!(nodes.read(0, "k0").unwrap().as_deref(), Some(text.as_str()));
    }
    let used = nodes.shown(0)["cachelets"][0]["used_bytes"].as_u64().unwrap();
    assert!(used <= 7 * MIB && used > 4 * MIB, "{used}");
    assert!(nodes.memories[0].store.usage_bytes() <= 8 * MIB);
    let counts = nodes.shown(0)["counts"].clone();
    let copies = counts["reads"]["copy"].as_u64().unwrap();
    assert!(copies > 700, "{counts}");
    // A smaller one takes effect by itself.
    nodes.memories[0].store.set_grant(2 * MIB, 0);
    wait_for("copies to follow", || {
        nodes.memories[0].store.usage_bytes() <= 2 * MIB
            && nodes.shown(0)["cachelets"][0]["used_bytes"].as_u64().unwrap() <= 2 * MIB
    });
    assert_eq!(nodes.read(0, "k0").unwrap().as_deref(), Some(text.as_str()));
}

#[test]
fn memory_that_instances_need_is_given_back_by_the_data_plane_itself() {
    // As much as is wanted is granted all the time: it is not a plan that takes memory back.
    let nodes = Nodes::with_memory(1, 256 * MIB);
    let usage = || nodes.memories[0].store.usage_bytes();
    uses(&nodes, "a", 8 * MIB);
    happens(&nodes, Happening::Created, "a");
    wait_for("the budget", || {
        nodes.shown(0)["cachelets"][0]["budget_bytes"].as_u64() == Some(LIMIT_BYTES - 16 * MIB)
    });
    let text = "x".repeat(60_000);
    for number in 0..1_600 {
        assert!(is_applied(&nodes.write(0, &format!("k{number}"), &text)));
    }
    let filled = usage();
    assert!(filled > 80 * MIB && filled <= 112 * MIB, "{filled}");
    let from = Instant::now();
    uses(&nodes, "a", LIMIT_BYTES - 24 * MIB);
    let mut given_back = Duration::ZERO;
    wait_for("64 MiB", || {
        given_back = from.elapsed();
        filled - usage() >= 64 * MIB
    });
    println!("64 MiB of the tenant's memory were given back after {given_back:?}");
    wait_for("the rest", || usage() <= 16 * MIB);
    for number in 0..10 {
        assert_eq!(
            nodes.read(0, &format!("k{number}")).unwrap().as_deref(),
            Some(text.as_str())
        );
    }
    // Nothing is left to copies.
    uses(&nodes, "a", LIMIT_BYTES);
    wait_for("all", || usage() == 0);
    assert_eq!(nodes.read(0, "k1").unwrap().as_deref(), Some(text.as_str()));
    assert_eq!(usage(), 0);
    happens(&nodes, Happening::Removed, "a");
    wait_for("the budget without instances", || {
        nodes.read(0, "k2").unwrap();
        usage() > 0
    });
    assert_eq!(nodes.shown(0)["cachelets"][0]["budget_bytes"], 64 * MIB);
    assert_eq!(nodes.read(0, "k2").unwrap().as_deref(), Some(text.as_str()));
}
