//! Genie's Fig. 11 in virtual time, at a quarter of its keys and its rate, so that times are as they are on a server.
//!
//! The oracle here is the store itself with a fixed grant: with a little less memory than the tenant settled at the goal must
//! be missed, with a little more it must be reached. So it is the goal's machinery that is judged; how far the store is from
//! an ideal of the same policy is the business of the experiment over the wire.

use std::time::Duration;

use tidemark_control::{Change, SettingsPatch, TenantView};
use tidemark_lab::elastic::{Course, StageTimes};
use tidemark_lab::load::ValueSize;
use tidemark_lab::node::{Load, Node, Standing};
use tidemark_types::{MIB, PolicyChoice, UNIT_BYTES};

use super::scene::{MINUTE, SECOND, ends, goal, node, uniform, watch, zipf};

const GOAL: f64 = 0.9;
const KEYS: u64 = 500_000;
const RATE: f64 = 50_000.0;
<<<<<<< HEAD
/// As in the paper; three points are the aim.
const DIP: f64 = 0.05;
/// No window is further from the goal: on the uniform load a segment more or less of so small a shard is a point.
const FURTHEST: f64 = 0.03;
/// The last minute is this near to it.
const NEAR_AT_END: f64 = 0.015;
/// The least segment of a small shard, which holds about a 64th of its memory in each.
const LEAST_SEGMENT_BYTES: f64 = 65_536.0;
=======
const POOL_BYTES: u64 = 120 * MIB;
/// How far from the oracle's memory the tenant may settle, but for two segments of the least size.
const DISTANCE: f64 = 0.08;
const SEGMENTS_BYTES: f64 = 2.0 * UNIT_BYTES as f64;
>>>>>>> el-c

fn stages() -> [Load; 3] {
    let mut tiny = uniform(2 * KEYS, RATE);
    tiny.workload.key_size_bytes = 8;
    tiny.workload.value_size = ValueSize::Fixed(8);
    [zipf(KEYS, 1.1, RATE), uniform(KEYS, RATE), tiny]
}

/// One shard, so that its log is long enough for the policy that a server would have.
fn elastic_node(load: &Load) -> Node {
    node(POOL_BYTES, &[("shop", goal(GOAL), load)])
}

#[test]
fn memory_follows_the_load_and_settles_at_what_it_needs() {
    let stages = stages();
    let mut node = elastic_node(&stages[0]);
    // Of twice the keys it takes nearly five minutes until the tenant is judged.
    for (number, load, minutes) in [(1, &stages[0], 5), (2, &stages[1], 5), (3, &stages[2], 6)] {
        node.load("shop", load).unwrap();
        let course = watch(&mut node, "shop", minutes * MINUTE);
        let (view, standing) = (node.view("shop").unwrap(), node.standing("shop").unwrap());
        check(number, load, &course, &view, &standing);
    }
}

fn check(number: u32, load: &Load, course: &Course, view: &TenantView, standing: &Standing) {
    let (from, to) = ends(course);
    let settling = settling(load, standing);
    let settled_from = from + settling.as_secs_f64();
    let judgement = course.judge(StageTimes { from, settled_from, to }, GOAL);
    let what = format!("stage {number}: {judgement:?}, {view:?}");
    assert!(judgement.windows >= 1, "{what}");
<<<<<<< HEAD
    assert!(judgement.furthest_ratio <= FURTHEST, "{what}");
    assert!((judgement.end_hit_ratio - GOAL).abs() <= NEAR_AT_END, "{what}");
    assert!(judgement.dip_ratio <= DIP, "{what}");
    // Where it has too much, it gives it back once the new load's keys are in memory.
    let needs_more = course.moments[0].usage_bytes < oracle.bytes;
    let answered = judgement.first_grant_seconds.is_some_and(|seconds| seconds <= 5.0);
    assert!(!needs_more || answered, "{what}");
    let distance = (judgement.end_usage_bytes - oracle.bytes as f64).abs();
    assert!(distance <= tolerance_bytes(&oracle), "{what}");
=======
    assert!(judgement.near_ratio >= 1.0, "{what}");
    assert!(judgement.dip_ratio <= 0.03, "{what}");
    assert!(
        judgement.first_grant_seconds.is_some_and(|seconds| seconds <= 5.0),
        "{what}"
    );
>>>>>>> el-c
    assert_eq!(view.goal_state, "met", "{what}");
    let usage = judgement.end_usage_bytes;
    let less = usage - (usage * (1.0 - 1.0 / (1.0 + DISTANCE))).max(SEGMENTS_BYTES);
    let more = usage + (usage * (1.0 / (1.0 - DISTANCE) - 1.0)).max(SEGMENTS_BYTES);
    let policy: PolicyChoice = view.policy_in_force.parse().unwrap();
    // Both at once: a server has two cores, too.
    let [less, more] = std::thread::scope(|scope| {
        [less, more]
            .map(|bytes| scope.spawn(move || with_fixed_grant(load, policy, bytes, settling)))
            .map(|running| running.join().unwrap())
    });
    assert!(less < GOAL, "{less} would do: {what}");
    assert!(more >= GOAL, "{more} with more: {what}");
}

<<<<<<< HEAD
/// 15 % or two segments: segments of shards this small, and S3-FIFO after a shrink, cost more than the 8 % that a server
/// aims at.
fn tolerance_bytes(oracle: &Oracle) -> f64 {
    let bytes = oracle.bytes as f64;
    (0.15 * bytes).max(2.0 * LEAST_SEGMENT_BYTES.max(bytes / 64.0))
=======
/// The time in which twice the keys' number of gets arrive, that to fill the memory at the goal's miss ratio, and a minute.
fn settling(load: &Load, standing: &Standing) -> Duration {
    let gets = 2.0 * load.workload.keys as f64;
    let fills = standing.items as f64 / (1.0 - GOAL);
    MINUTE + Duration::from_secs_f64((gets + fills) / load.rate)
>>>>>>> el-c
}

/// The hit ratio of the last half minute with so much memory, no more and no less.
fn with_fixed_grant(load: &Load, policy: PolicyChoice, bytes: f64, time: Duration) -> f64 {
    let fixed = SettingsPatch {
        cap_bytes: Change::Set(bytes as u64),
        policy: Change::Set(policy),
        ..SettingsPatch::default()
    };
    let mut node = node(POOL_BYTES, &[("shop", fixed, load)]);
    let course = watch(&mut node, "shop", time);
    let (_, to) = ends(&course);
    course.hit_ratio(to - 30.0, to).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_course() {
    let run = || {
        let mut node = elastic_node(&zipf(20_000, 1.1, 4_000.0));
        let first = watch(&mut node, "shop", 40 * SECOND);
        node.load("shop", &uniform(20_000, 4_000.0)).unwrap();
        (first, watch(&mut node, "shop", 40 * SECOND))
    };
    assert_eq!(run(), run());
}
