//! Loads that are no steady ones: a grant neither runs away nor swings.

use tidemark_lab::load::Operation;
use tidemark_lab::node::Node;
use tidemark_types::MIB;

use super::scene::{MINUTE, NEAR, SECOND, ends, goal, largest_grant, lowest, node, one_hit, uniform, watch, zipf};

const GOAL: f64 = 0.9;
const KEYS: u64 = 100_000;
const RATE: f64 = 10_000.0;

/// A tenant that has settled, and what it holds.
fn settled() -> (Node, f64) {
    let mut node = node(120 * MIB, &[("shop", goal(GOAL), &zipf(KEYS, 0.9, RATE))]);
    node.run(4 * MINUTE);
    let course = watch(&mut node, "shop", MINUTE);
    assert!(lowest(&course) > GOAL - NEAR, "{}", lowest(&course));
    let (from, to) = ends(&course);
    (node, course.mean_usage_bytes(from, to))
}

/// After a disturbance the tenant holds what it held, and meanwhile never much more.
fn check_recovery(node: &mut Node, before: f64, disturbed: &tidemark_lab::elastic::Course) {
    let most = largest_grant(disturbed) as f64;
    assert!(most < 3.0 * before, "{most}, before {before}");
    let recovering = watch(node, "shop", 5 * MINUTE);
    let most = largest_grant(&recovering) as f64;
    assert!(most < 3.0 * before, "{most}, before {before}");
    let (_, to) = ends(&recovering);
    let after = recovering.mean_usage_bytes(to - 60.0, to);
    assert!((after / before - 1.0).abs() < 0.15, "{after}, before {before}");
    let ratio = recovering.hit_ratio(to - 60.0, to).unwrap();
    assert!((ratio - GOAL).abs() < NEAR, "{ratio}");
}

#[test]
fn a_burst_of_unique_keys() {
    let (mut node, before) = settled();
    node.create("unused", goal(GOAL)).unwrap();
    let mut keys = 1_000_000_u64..;
    let mut disturbed = tidemark_lab::elastic::Course::default();
    for _ in 0..10 {
        for key in keys.by_ref().take(20_000) {
            node.request("shop", Operation::Get(key));
        }
        disturbed.moments.extend(watch(&mut node, "shop", SECOND).moments);
    }
    check_recovery(&mut node, before, &disturbed);
}

#[test]
fn a_scan() {
    let (mut node, before) = settled();
    let mut disturbed = tidemark_lab::elastic::Course::default();
    let mut keys = 0..KEYS;
    for _ in 0..20 {
        for key in keys.by_ref().take(5_000) {
            node.request("shop", Operation::Get(key));
        }
        disturbed.moments.extend(watch(&mut node, "shop", SECOND).moments);
    }
    check_recovery(&mut node, before, &disturbed);
}

#[test]
fn a_load_that_flips_every_ten_seconds() {
    let loads = [zipf(KEYS, 1.1, RATE), uniform(KEYS, RATE)];
    let mut node = node(120 * MIB, &[("shop", goal(GOAL), &loads[0])]);
    let mut course = tidemark_lab::elastic::Course::default();
    for load in loads.iter().cycle().take(60) {
        node.load("shop", load).unwrap();
        course.moments.extend(watch(&mut node, "shop", 10 * SECOND).moments);
    }
    // After the first minutes the grant does not follow the flips: of 30 of them, few move it far.
    let late = tidemark_lab::elastic::Course {
        moments: course.moments.split_off(course.moments.len() / 2),
    };
    assert!(late.turns(0.25) <= 6, "{} turns", late.turns(0.25));
    // All of it takes 10 MiB.
    assert!(largest_grant(&late) < 24 * MIB, "{}", largest_grant(&late));
}

#[test]
fn three_requests_a_minute() {
    let mut node = node(
        64 * MIB,
        &[
            ("rare", goal(GOAL), &zipf(1000, 0.9, 0.05)),
            ("rarer", goal(GOAL), &one_hit(0.05)),
        ],
    );
    for name in ["rare", "rarer"] {
        let course = watch(&mut node, name, 15 * MINUTE);
        let view = node.view(name).unwrap();
        assert!(view.usage_bytes <= MIB, "{view:?}");
        assert!(
            largest_grant(&course) <= 20 * MIB,
            "no more than a first grant: {view:?}"
        );
        assert!(course.turns(0.1) <= 2, "{} turns", course.turns(0.1));
        for ratio in [view.best_hit_ratio, view.shortfall_ratio].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&ratio), "{view:?}");
        }
    }
}
