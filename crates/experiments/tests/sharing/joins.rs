//! Tenants that join: how soon they have their promised memory, and how soon a sensible decision comes.

use std::time::Duration;

use tidemark_control::{Change, SettingsPatch};
use tidemark_experiments::node::{Load, Node};
use tidemark_tools::load::{Distribution, Workload};
use tidemark_types::{HitRatio, MIB};

const SECOND: Duration = Duration::from_secs(1);

/// Items of a kibibyte.
fn load(distribution: Distribution, rate: f64, seed: u64) -> Load {
    Load {
        workload: Workload {
            seed,
            ..Workload::gets(500_000, distribution, 16, 1008)
        },
        rate,
    }
}

#[test]
fn a_newcomer_to_a_full_pool_may_have_its_floor_within_two_rounds() {
    let mut node = Node::new(128 * MIB, 1, 1).unwrap();
    for (seed, name) in (1..).zip(["a", "b"]) {
        node.create(name, SettingsPatch::default()).unwrap();
        node.load(name, &load(Distribution::Zipf { alpha: 0.9 }, 5_000.0, seed))
            .unwrap();
    }
    node.run(60 * SECOND);
    let (granted, _) = node.granted_and_pool_bytes();
    assert!(granted >= 125 * MIB, "{granted}");

    let floor = SettingsPatch {
        floor_bytes: Change::Set(40 * MIB),
        ..SettingsPatch::default()
    };
    node.create("c", floor).unwrap();
    node.load("c", &load(Distribution::Uniform, 20_000.0, 3)).unwrap();
    let mut ticks = 0;
    while node.view("c").unwrap().sets_total == 0 {
        assert!(ticks < 1000, "it asks for nothing");
        ticks += 1;
        node.run(SECOND / 100);
    }
    // A round a second; the second one ends within them.
    node.run(2 * SECOND + SECOND / 10);
    let view = node.view("c").unwrap();
    assert!(view.grant_bytes >= 40 * MIB, "{}", view.grant_bytes);
    node.run(5 * SECOND);
    let usage_bytes = node.view("c").unwrap().usage_bytes;
    assert!(usage_bytes >= 38 * MIB, "{usage_bytes}");
}

#[test]
fn the_first_decisions_that_know_something_come_within_ten_seconds() {
    let mut node = Node::new(512 * MIB, 1, 1).unwrap();
    let goal = SettingsPatch {
        hit_ratio: Change::Set(HitRatio::new(0.9).unwrap()),
        ..SettingsPatch::default()
    };
    // The tenant with a goal fills its first grant in seconds and needs more; the others would each use all of the pool.
    node.create("goal", goal).unwrap();
    node.load("goal", &load(Distribution::Zipf { alpha: 1.1 }, 20_000.0, 1))
        .unwrap();
    for (seed, name, alpha) in [(2, "skewed", 1.2), (3, "flat", 0.4)] {
        node.create(name, SettingsPatch::default()).unwrap();
        node.load(name, &load(Distribution::Zipf { alpha }, 10_000.0, seed))
            .unwrap();
    }
    node.run(10 * SECOND);
    for name in ["goal", "skewed", "flat"] {
        let moves = node.command(|control| control.moves(name.to_owned())).unwrap();
        let known = moves.iter().any(|change| change.predicted_hit_ratio.is_some());
        assert!(known, "{name}: {moves:?}");
    }
}
