//! Loads that are no steady ones: a grant neither runs away nor swings.

use std::ops::Range;

use tidemark_control::{Change, SettingsPatch};
use tidemark_experiments::elastic::Course;
use tidemark_experiments::node::Node;
use tidemark_tools::load::Operation;
use tidemark_types::MIB;

use super::scene::{MINUTE, NEAR, SECOND, ends, goal, largest_grant, lowest, node, one_hit, uniform, watch, zipf};

const GOAL: f64 = 0.9;
const KEYS: u64 = 100_000;
const RATE: f64 = 10_000.0;
/// About what an item of 16+64 bytes takes in all.
const ITEM_BYTES: f64 = 105.0;

/// A tenant that has settled, and its memory.
fn settled() -> (Node, f64) {
    let mut node = node(120 * MIB, &[("shop", goal(GOAL), &zipf(KEYS, 0.9, RATE))]);
    node.run(4 * MINUTE);
    let course = watch(&mut node, "shop", MINUTE);
    assert!(lowest(&course) > GOAL - NEAR, "{}", lowest(&course));
    let (from, to) = ends(&course);
    (node, course.mean_usage_bytes(from, to))
}

/// After a disturbance that brought so many items the tenant holds as much as before. Meanwhile it never holds more
/// than that and the new items. The bound is half as much again, for late measurements.
fn check_recovery(node: &mut Node, before: f64, disturbed: &Course, items: u64) {
    let bound = 1.5 * (before + items as f64 * ITEM_BYTES);
    let recovering = watch(node, "shop", 12 * MINUTE);
    for course in [disturbed, &recovering] {
        let most = largest_grant(course) as f64;
        assert!(most < bound, "{most}, before {before}");
    }
    let (_, to) = ends(&recovering);
    let after = recovering.mean_usage_bytes(to - 60.0, to);
    assert!((after / before - 1.0).abs() < 0.15, "{after}, before {before}");
    let ratio = recovering.hit_ratio(to - 60.0, to).unwrap();
    assert!((ratio - GOAL).abs() < NEAR, "{ratio}");
}

/// Asks for these keys beside the load, so many a second, each once.
fn disturb(node: &mut Node, mut keys: Range<u64>, each_second: usize) -> Course {
    let mut disturbed = Course::default();
    while !keys.is_empty() {
        for key in keys.by_ref().take(each_second) {
            node.request("shop", Operation::Get(key));
        }
        disturbed.moments.extend(watch(node, "shop", SECOND).moments);
    }
    disturbed
}

#[test]
fn a_burst_of_unique_keys() {
    let (mut node, before) = settled();
    let disturbed = disturb(&mut node, 1_000_000..1_200_000, 20_000);
    check_recovery(&mut node, before, &disturbed, 200_000);
}

#[test]
fn a_scan() {
    let (mut node, before) = settled();
    let disturbed = disturb(&mut node, 0..KEYS, 5_000);
    check_recovery(&mut node, before, &disturbed, KEYS);
}

#[test]
fn a_load_that_flips_every_ten_seconds() {
    let loads = [zipf(KEYS, 1.1, RATE), uniform(KEYS, RATE)];
    let mut node = node(120 * MIB, &[("shop", goal(GOAL), &loads[0])]);
    let mut course = Course::default();
    for load in loads.iter().cycle().take(60) {
        node.load("shop", load).unwrap();
        course.moments.extend(watch(&mut node, "shop", 10 * SECOND).moments);
    }
    // After the first minutes the grant does not follow the flips: of 30 of them, few move it far.
    let late = Course {
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

/// All policies serve a load alike, but for the memory that one takes to remember keys. Chance favours now one and now
/// another of the rest.
#[test]
fn policies_that_serve_alike_do_not_take_turns() {
    let capped = SettingsPatch {
        cap_bytes: Change::Set(6 * MIB),
        ..SettingsPatch::default()
    };
    let mut node = node(120 * MIB, &[("shop", capped, &uniform(KEYS, 2.0 * RATE))]);
    let mut in_force = vec![node.view("shop").unwrap().policy_in_force];
    for _ in 0..600 {
        node.run(SECOND);
        in_force.push(node.view("shop").unwrap().policy_in_force);
    }
    in_force.dedup();
    assert_eq!(in_force[0], "s3fifo");
    assert!(in_force.len() <= 2, "{in_force:?}");
}
