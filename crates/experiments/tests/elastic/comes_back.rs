//! A tenant that was idle has its memory back sooner than a new one gets it.

use tidemark_control::SettingsPatch;
use tidemark_types::MIB;

use super::scene::{MINUTE, goal, node, reached_after, uniform, watch};

const GOAL: f64 = 0.9;

#[test]
fn a_tenant_comes_back_sooner_than_a_new_one_comes() {
    // 400,000 items of about 100 bytes: twice a first grant.
    let load = uniform(400_000, 20_000.0);
    let greedy = uniform(2_000_000, 20_000.0);
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
