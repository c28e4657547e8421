//! A tenant that was idle has its memory back sooner than a new one gets it. CI halves the rates; `make soak` does not.

use tidemark_control::SettingsPatch;
use tidemark_types::MIB;

use super::scale::divisor;
use super::scene::{MINUTE, goal, node, reached_after, uniform, watch};

const GOAL: f64 = 0.9;

#[test]
fn a_tenant_comes_back_sooner_than_a_new_one_comes() {
    // 400,000 items of about 100 bytes: twice a first grant.
    let rate = 20_000.0 / divisor(2) as f64;
    let load = uniform(400_000, rate);
    let greedy = uniform(2_000_000, rate);
    let mut node = node(
        100 * MIB,
        &[
            ("greedy", SettingsPatch::default(), &greedy),
            ("shop", goal(GOAL), &load),
        ],
    );
    let new = watch(&mut node, "shop", 6 * MINUTE);
    let settled = node.view("shop").unwrap();
    assert_eq!(settled.goal_state, "met");
    node.rest("shop");
    node.run(10 * MINUTE);
    let idle = node.view("shop").unwrap();
    assert!(idle.usage_bytes < settled.usage_bytes / 4, "others wanted it: {idle:?}");

    node.load("shop", &load).unwrap();
    let back = watch(&mut node, "shop", 6 * MINUTE);
    let (new, back) = (reached_after(&new, GOAL).unwrap(), reached_after(&back, GOAL).unwrap());
    assert!(back < new, "back after {back} s, new after {new} s");
}
