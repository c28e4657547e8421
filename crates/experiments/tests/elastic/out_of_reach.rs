//! A goal that cannot be met takes nothing from one that can, whatever the priorities, also while that is being found
//! out. The state of a goal comes from one reading.

use tidemark_control::{Change, SettingsPatch, TenantView};
use tidemark_experiments::elastic::Course;
use tidemark_experiments::node::{Load, Node};
use tidemark_types::MIB;

use super::scene::{MINUTE, NEAR, SECOND, ends, goal, lowest, node, one_hit, reached_after, uniform, watch, zipf};

const POOL_BYTES: u64 = 48 * MIB;
/// Met at about 25 MiB.
const GOAL: f64 = 0.8;
/// No memory in the pool meets it with [`web`].
const OUT_OF_REACH: f64 = 0.9999;

fn api() -> Load {
    uniform(300_000, 10_000.0)
}

/// About nine hits in ten with all of the pool.
fn web() -> Load {
    zipf(800_000, 0.9, 20_000.0)
}

fn prior(ratio: f64, priority: u8) -> SettingsPatch {
    SettingsPatch {
        priority: Change::Set(priority),
        ..goal(ratio)
    }
}

fn set(node: &mut Node, name: &str, patch: SettingsPatch) {
    node.command(|control| control.set_tenant(name, patch)).unwrap();
}

/// `api` has settled beside a tenant without a goal; returns its grant.
fn settled() -> (Node, u64) {
    let tenants = [("api", goal(GOAL), &api()), ("web", SettingsPatch::default(), &web())];
    let mut node = node(POOL_BYTES, &tenants);
    node.run(3 * MINUTE);
    let view = node.view("api").unwrap();
    assert_eq!(view.goal_state, "met", "{view:?}");
    (node, view.grant_bytes)
}

/// `api` keeps its hits and its memory.
fn check_unharmed(course: &Course, settled_bytes: u64) {
    let least = course.moments.iter().map(|moment| moment.grant_bytes).min();
    assert!(lowest(course) > GOAL - 2.0 * NEAR, "{}", lowest(course));
    assert!(least > Some(settled_bytes / 10 * 9), "{least:?} of {settled_bytes}");
}

/// State, shortfall and best hit ratio agree with each other and with the measurement.
fn check_reading(view: &TenantView, goal: f64) {
    let best = view.best_hit_ratio;
    let is_near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let agrees = match view.goal_state {
        "met" => view.shortfall_ratio.is_none() && view.hit_ratio.is_some_and(|found| found > goal - 4.0 * NEAR),
        "infeasible" => {
            let sum = view.shortfall_ratio.zip(best).map(|(missed, best)| missed + best);
            sum.is_some_and(|sum| is_near(sum, goal)) && best < Some(goal - NEAR)
        }
        "converging" => view.shortfall_ratio.is_none_or(|missed| missed > NEAR),
        _ => view.shortfall_ratio.is_none() && best.is_none(),
    };
    assert!(agrees, "{view:?}");
    let has_reading = view.goal_age_seconds.is_some() && view.goal_standard_error.is_some();
    assert!(
        has_reading || view.shortfall_ratio.is_none() && best.is_none(),
        "{view:?}"
    );
    assert!(view.goal_age_seconds.is_none_or(|age| age <= 31.0), "{view:?}");
}

/// Runs on with a look at how it stands with both goals every second.
fn watch_both(node: &mut Node, goals: [f64; 2], seconds: u32) -> Course {
    let mut course = Course::default();
    for _ in 0..seconds {
        let moments = watch(node, "api", SECOND).moments;
        course.moments.extend(moments);
        for (name, goal) in ["api", "web"].into_iter().zip(goals) {
            check_reading(&node.view(name).unwrap(), goal);
        }
    }
    course.moments.dedup_by_key(|moment| moment.gets);
    course
}

#[test]
fn a_goal_that_is_set_out_of_reach_takes_nothing_from_one_that_is_met() {
    for priority in [6, 5] {
        let (mut node, settled_bytes) = settled();
        set(&mut node, "web", prior(OUT_OF_REACH, priority));
        let course = watch_both(&mut node, [GOAL, OUT_OF_REACH], 60);
        check_unharmed(&course, settled_bytes);
        // The best hit ratio does not wander.
        let mut best = Vec::new();
        let mut course = Course::default();
        for _ in 0..90 {
            course
                .moments
                .extend(watch_both(&mut node, [GOAL, OUT_OF_REACH], 1).moments);
            best.extend(node.view("web").unwrap().best_hit_ratio);
        }
        check_unharmed(&course, settled_bytes);
        best.sort_by(f64::total_cmp);
        let (least, most) = (best[0], best[best.len() - 1]);
        assert!(best.len() == 90 && most - least < 0.04, "{least} {most}");
        let web = node.view("web").unwrap();
        assert_eq!(web.goal_state, "infeasible", "{web:?}");
        // The memory that the others leave is its own.
        assert!(web.usage_bytes > 18 * MIB, "{web:?}");
        assert_eq!(node.view("api").unwrap().goal_state, "met");
    }
}

#[test]
fn nor_does_a_tenant_that_is_new_while_nothing_is_known_of_it() {
    let mut node = node(POOL_BYTES, &[("api", goal(GOAL), &api())]);
    node.run(3 * MINUTE);
    let settled_bytes = node.view("api").unwrap().grant_bytes;
    node.create("web", prior(OUT_OF_REACH, 9)).unwrap();
    node.load("web", &web()).unwrap();
    let course = watch_both(&mut node, [GOAL, OUT_OF_REACH], 180);
    check_unharmed(&course, settled_bytes);
    assert_eq!(node.view("web").unwrap().goal_state, "infeasible");
}

#[test]
fn beside_it_a_goal_is_reached_nearly_as_soon_as_beside_none() {
    let reached = |patch: SettingsPatch| {
        let mut node = node(POOL_BYTES, &[("web", patch, &web()), ("api", goal(GOAL), &api())]);
        let course = watch(&mut node, "api", 4 * MINUTE);
        let after = reached_after(&course, GOAL).unwrap();
        let (from, to) = ends(&course);
        let late = course.intervals(from + after, to).map(|(_, ratio)| ratio);
        (after, late.fold(1.0, f64::min))
    };
    let (alone, _) = reached(SettingsPatch::default());
    let (beside, lowest) = reached(prior(OUT_OF_REACH, 9));
    println!(
        "a goal is reached in {alone} s beside none, and in {beside} s beside one out of reach of a higher priority"
    );
    // Priorities do not count until it is known that a goal is within reach; an equal part is taken by the other until then.
    assert!(beside < 1.25 * alone + 5.0, "{beside} s, and {alone} s beside none");
    assert!(lowest > GOAL - 2.0 * NEAR, "{lowest}");
}

#[test]
fn several_out_of_reach_share_what_is_left() {
    let (mut node, settled_bytes) = settled();
    for (name, priority, load) in [
        ("scan", 9, one_hit(10_000.0)),
        ("wide", 5, uniform(2_000_000, 20_000.0)),
    ] {
        node.create(name, prior(GOAL, priority)).unwrap();
        node.load(name, &load).unwrap();
    }
    set(&mut node, "web", prior(OUT_OF_REACH, 7));
    let course = watch(&mut node, "api", 4 * MINUTE);
    check_unharmed(&course, settled_bytes);
    for name in ["scan", "wide", "web"] {
        let view = node.view(name).unwrap();
        assert_eq!(view.goal_state, "infeasible", "{view:?}");
    }
    let web = node.view("web").unwrap();
    assert!(web.usage_bytes > node.view("scan").unwrap().usage_bytes, "{web:?}");
}

#[test]
fn a_goal_that_is_lowered_again_is_met() {
    let (mut node, settled_bytes) = settled();
    set(&mut node, "web", prior(OUT_OF_REACH, 6));
    node.run(MINUTE);
    // Within its own part of the pool.
    set(&mut node, "web", prior(0.7, 6));
    let course = watch_both(&mut node, [GOAL, 0.7], 120);
    check_unharmed(&course, settled_bytes);
    for name in ["api", "web"] {
        let view = node.view(name).unwrap();
        assert_eq!(view.goal_state, "met", "{view:?}");
    }
}

#[test]
fn without_a_load_there_is_no_state() {
    let (mut node, settled_bytes) = settled();
    set(&mut node, "web", prior(OUT_OF_REACH, 6));
    node.run(MINUTE);
    node.rest("web");
    let course = watch_both(&mut node, [GOAL, OUT_OF_REACH], 60);
    check_unharmed(&course, settled_bytes);
    let web = node.view("web").unwrap();
    assert_eq!((web.goal_state, web.best_hit_ratio), ("none", None), "{web:?}");
    // Nor of one whose goal was met to the end.
    node.rest("api");
    node.run(MINUTE);
    let api = node.view("api").unwrap();
    assert_eq!((api.goal_state, api.shortfall_ratio), ("none", None), "{api:?}");
    node.load("api", &self::api()).unwrap();
    node.run(MINUTE);
    assert_eq!(node.view("api").unwrap().goal_state, "met");
}

/// Memory that others free goes to it, too. It is not held to the grant that it had when its goal was found to be out
/// of reach.
#[test]
fn what_others_leave_later_is_its_own_too() {
    let (mut node, _) = settled();
    set(&mut node, "web", prior(OUT_OF_REACH, 6));
    node.run(3 * MINUTE);
    let before = node.view("web").unwrap().usage_bytes;
    node.remove("api");
    node.run(2 * MINUTE);
    let web = node.view("web").unwrap();
    assert!(web.usage_bytes > before + 10 * MIB, "{before} {web:?}");
    assert_eq!(web.goal_state, "infeasible", "{web:?}");
}

/// After a load changed, the state is that of the last seconds.
#[test]
fn a_state_follows_the_load() {
    let (mut node, _) = settled();
    node.load("api", &uniform(900_000, 20_000.0)).unwrap();
    let mut said = Vec::new();
    for _ in 0..20 {
        node.run(SECOND);
        let view = node.view("api").unwrap();
        check_reading(&view, GOAL);
        said.push(view.goal_state);
    }
    assert_ne!(said[7], "met", "{said:?}");
}
