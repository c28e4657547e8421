//! The common part of the tests: loads, goals, and the checks of a course.

use std::time::Duration;

use tidemark_control::{Change, SettingsPatch};
use tidemark_experiments::elastic::{Course, INTERVAL_SECONDS};
use tidemark_experiments::node::{Load, Node};
use tidemark_tools::load::{Distribution, Workload};
use tidemark_types::HitRatio;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// A hit ratio this near to the goal is it: a point.
pub(crate) const NEAR: f64 = 0.01;

/// Items of 16+64 bytes, all gets.
pub(crate) fn load(keys: u64, distribution: Distribution, rate: f64) -> Load {
    Load {
        workload: Workload::gets(keys, distribution, 16, 64),
        rate,
    }
}

pub(crate) fn zipf(keys: u64, alpha: f64, rate: f64) -> Load {
    load(keys, Distribution::Zipf { alpha }, rate)
}

pub(crate) fn uniform(keys: u64, rate: f64) -> Load {
    load(keys, Distribution::Uniform, rate)
}

/// Nothing but keys that are never asked for again.
pub(crate) fn one_hit(rate: f64) -> Load {
    let mut load = uniform(1, rate);
    load.workload.fresh_ratio = 1.0;
    load
}

/// Aims at a hit ratio.
pub(crate) fn goal(ratio: f64) -> SettingsPatch {
    SettingsPatch {
        hit_ratio: Change::Set(HitRatio::new(ratio).unwrap()),
        ..SettingsPatch::default()
    }
}

/// A node with tenants that have these settings and loads.
pub(crate) fn node(pool_bytes: u64, tenants: &[(&str, SettingsPatch, &Load)]) -> Node {
    let mut node = Node::new(pool_bytes, 1, 1).unwrap();
    for (name, settings, load) in tenants {
        node.create(name, *settings).unwrap();
        node.load(name, load).unwrap();
    }
    node
}

/// Runs on, and says how one tenant fared.
pub(crate) fn watch(node: &mut Node, name: &str, time: Duration) -> Course {
    let [course] = node.watch([name], time).unwrap();
    course
}

/// When the hit ratio of an interval first was near the goal, in seconds since the course began; the interval's end.
pub(crate) fn reached_after(course: &Course, goal: f64) -> Option<f64> {
    let from = course.moments.first()?.seconds;
    let to = course.moments.last()?.seconds;
    let mut ends = (0..).map(|second| from + INTERVAL_SECONDS + f64::from(second));
    let is_near = |end: &f64| {
        course
            .hit_ratio(end - INTERVAL_SECONDS, *end)
            .is_some_and(|ratio| ratio >= goal - NEAR)
    };
    let found = ends.by_ref().take_while(|end| *end <= to).find(is_near)?;
    Some(found - from)
}

/// The lowest hit ratio of any interval of the course.
pub(crate) fn lowest(course: &Course) -> f64 {
    let (from, to) = ends(course);
    course.intervals(from, to).map(|(_, ratio)| ratio).fold(1.0, f64::min)
}

/// The most that was granted in the course.
pub(crate) fn largest_grant(course: &Course) -> u64 {
    let (from, to) = ends(course);
    course.largest_grant_bytes(from, to)
}

pub(crate) fn ends(course: &Course) -> (f64, f64) {
    let at = |moment: Option<&tidemark_experiments::elastic::Moment>| moment.map_or(0.0, |moment| moment.seconds);
    (at(course.moments.first()), at(course.moments.last()))
}
