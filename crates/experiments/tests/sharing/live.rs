//! A change of settings while a tenant is served loses no item, except those that a smaller memory cannot hold.

use std::time::Duration;

use tidemark_control::{Change, ServerPatch, SettingsPatch};
use tidemark_experiments::node::{Load, Node};
use tidemark_tools::load::{Distribution, Workload};
use tidemark_types::{MIB, Weight};

const SECOND: Duration = Duration::from_secs(1);
const KEYS: u64 = 100_000;

/// A tenant that holds all its keys, nearly half of the pool.
fn settled() -> Node {
    let mut node = Node::new(64 * MIB, 1, 1).unwrap();
    node.create("shop", SettingsPatch::default()).unwrap();
    let load = Load {
        workload: Workload::gets(KEYS, Distribution::Uniform, 16, 240),
        rate: 20_000.0,
    };
    node.load("shop", &load).unwrap();
    node.run(90 * SECOND);
    assert_eq!(items(&node), KEYS);
    node
}

fn items(node: &Node) -> u64 {
    node.standing("shop").unwrap().items
}

#[test]
fn settings_change_under_load_and_nothing_is_lost() {
    let mut node = settled();
    let misses = |node: &Node| {
        let moment = node.standing("shop").unwrap().moment;
        moment.gets - moment.hits
    };
    let before = misses(&node);
    let default = SettingsPatch::default;
    let policies = ["fifo", "clock", "approx-lru:0.5", "s3fifo", "genie", "adaptive"];
    let policies = policies.map(|policy| SettingsPatch {
        policy: Change::Set(policy.parse().unwrap()),
        ..default()
    });
    let others = [
        SettingsPatch {
            weight: Change::Set(Weight::new(7).unwrap()),
            priority: Change::Set(7),
            ..default()
        },
        SettingsPatch {
            utility: Change::Set("throughput".parse().unwrap()),
            miss_cost: Change::Set(Duration::from_millis(2)),
            ..default()
        },
        SettingsPatch {
            floor_bytes: Change::Set(16 * MIB),
            cap_bytes: Change::Set(48 * MIB),
            ..default()
        },
        SettingsPatch {
            floor_bytes: Change::Clear,
            cap_bytes: Change::Clear,
            ..default()
        },
    ];
    for patch in policies.into_iter().chain(others) {
        node.command(|control| control.set_tenant("shop", patch)).unwrap();
        node.run(5 * SECOND);
        assert_eq!((items(&node), misses(&node)), (KEYS, before), "after {patch:?}");
    }
    for (pool_mib, period_ms) in [(56, 100), (60, 5_000), (64, 1_000)] {
        let patch = ServerPatch {
            pool_bytes: Change::Set(pool_mib * MIB),
            round_period: Change::Set(Duration::from_millis(period_ms)),
        };
        node.command(|control| control.set_server(patch)).unwrap();
        node.run(10 * SECOND);
        assert_eq!((items(&node), misses(&node)), (KEYS, before), "after {patch:?}");
    }
}

#[test]
fn a_smaller_pool_takes_what_it_can_not_hold_and_a_larger_one_nothing() {
    let mut node = settled();
    let used = node.standing("shop").unwrap().moment.usage_bytes;
    let resize = |node: &mut Node, bytes: u64| {
        let pool_bytes = Change::Set(bytes);
        let patch = ServerPatch {
            pool_bytes,
            ..ServerPatch::default()
        };
        node.command(|control| control.set_server(patch)).unwrap();
    };
    let pool_bytes = 3 * used / 4;
    resize(&mut node, pool_bytes);
    // At each moment from then on.
    for _ in 0..300 {
        node.run(SECOND / 10);
        let held = items(&node) as f64 / KEYS as f64;
        // A tenth is free in segments that are being filled, taken by the policy's ghosts, or the pool's reserve.
        assert!(held >= 0.75 * 0.9, "{held} of the items");
    }
    assert!(node.standing("shop").unwrap().moment.usage_bytes <= pool_bytes);
    let before = items(&node);
    resize(&mut node, 64 * MIB);
    for _ in 0..100 {
        node.run(SECOND / 10);
        assert!(items(&node) >= before, "{} of {before}", items(&node));
    }
    node.run(90 * SECOND);
    assert_eq!(items(&node), KEYS);
}
