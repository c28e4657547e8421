//! The expected gain of moves for a goal, and the gain that comes. CI halves keys and rates; `make soak` does not.

use tidemark_types::MIB;

use crate::scale::divisor;
use crate::scene::{MINUTE, goal, node, uniform, zipf};

const GOAL: f64 = 0.85;

#[test]
fn moves_for_a_goal_bring_what_was_expected() {
    let keys = |full: u64| full / divisor(2);
    let rate = 20_000.0 / divisor(2) as f64;
    let mut node = node(128 * MIB, &[("shop", goal(GOAL), &zipf(keys(300_000), 1.0, rate))]);
    node.run(5 * MINUTE);
    node.load("shop", &uniform(keys(200_000), rate)).unwrap();
    node.run(5 * MINUTE);
    node.load("shop", &zipf(keys(300_000), 1.1, rate)).unwrap();
    node.run(5 * MINUTE);

    let moves = node.command(|control| control.moves("shop".to_owned())).unwrap();
    let of_goals = moves.iter().filter(|change| change.reason == "goal");
    let judged: Vec<(f64, f64)> = of_goals
        .filter_map(|change| Some((change.predicted_hit_ratio?, change.measured_hit_ratio?)))
        .collect();
    assert!(judged.len() >= 8, "{moves:?}");
    let mut errors: Vec<f64> = judged
        .iter()
        .map(|(predicted, measured)| (predicted - measured).abs() / measured)
        .collect();
    errors.sort_by(f64::total_cmp);
    let median = errors[errors.len() / 2];
    assert!(median <= 0.04, "{median}: {judged:?}");
    // The expectation of a step is not the goal itself.
    let steps = judged.iter().filter(|(predicted, _)| (predicted - GOAL).abs() > 0.002);
    assert!(steps.count() >= 3, "{judged:?}");
}
