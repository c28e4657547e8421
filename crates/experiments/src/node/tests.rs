//! The virtual node by itself: time, determinism, and that it keeps the rules of a data plane.

use tidemark_control::Change;
use tidemark_types::MIB;

use super::*;
use tidemark_tools::load::{Distribution, Lifetimes};

const SECOND: Duration = Duration::from_secs(1);

fn load(keys: u64, rate: f64) -> Load {
    Load {
        workload: Workload::gets(keys, Distribution::Zipf { alpha: 0.9 }, 16, 200),
        rate,
    }
}

fn node() -> Node {
    Node::new(64 * MIB, 2, 1).unwrap()
}

fn cap(bytes: u64) -> SettingsPatch {
    SettingsPatch {
        cap_bytes: Change::Set(bytes),
        ..SettingsPatch::default()
    }
}

#[test]
fn two_runs_of_the_same_calls_are_equal() {
    let run = |seed| {
        let mut node = Node::new(64 * MIB, 2, seed).unwrap();
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            node.create(name, SettingsPatch::default()).unwrap();
            node.load(name, &load(100_000 << number, 20_000.0)).unwrap();
        }
        let courses = node.watch(["a", "b", "c"], 8 * SECOND).unwrap();
        // Memory is short, so that there is something to decide.
        node.command(|control| control.set_tenant("a", cap(4 * MIB))).unwrap();
        let later = node.watch(["a", "b", "c"], 5 * SECOND).unwrap();
        (courses, later, node.standing("b").unwrap().shards)
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2), "another seed places keys elsewhere");
}

#[test]
fn requests_come_at_their_rate_and_misses_are_stored() {
    let mut node = node();
    node.create("a", SettingsPatch::default()).unwrap();
    for (rate, seconds, gets) in [(0.25, 8, 2), (3.0, 4, 12), (1000.0, 2, 2000)] {
        let before = node.standing("a").unwrap().moment.gets;
        node.load("a", &load(100, rate)).unwrap();
        node.run(seconds * SECOND);
        let standing = node.standing("a").unwrap();
        assert!(
            (standing.moment.gets - before).abs_diff(gets) <= 1,
            "{rate}: {standing:?}"
        );
        assert!(
            standing.moment.hits + standing.items == standing.moment.gets,
            "{standing:?}"
        );
    }
    node.rest("a");
    let before = node.standing("a").unwrap().moment;
    node.run(SECOND);
    assert_eq!(node.standing("a").unwrap().moment.gets, before.gets);
    assert_eq!(node.seconds(), 15.0);
}

#[test]
fn a_first_grant_is_followed_by_rounds() {
    let mut node = node();
    node.create("a", SettingsPatch::default()).unwrap();
    node.load("a", &load(200_000, 100_000.0)).unwrap();
    assert_eq!(node.standing("a").unwrap().moment.grant_bytes, 0);
    node.run(TICK);
    assert!(node.standing("a").unwrap().moment.grant_bytes > 0, "the store's own");
    node.run(10 * SECOND);
    let moment = node.standing("a").unwrap().moment;
    assert!(moment.usage_bytes > 30 * MIB, "more than the first grant: {moment:?}");
    let (granted, pool) = node.granted_and_pool_bytes();
    assert!(granted <= pool && pool == 64 * MIB, "{granted} of {pool}");
}

#[test]
fn a_smaller_cap_is_met_and_a_removed_tenant_leaves_nothing() {
    let mut node = node();
    node.create("a", SettingsPatch::default()).unwrap();
    node.load("a", &load(200_000, 100_000.0)).unwrap();
    node.run(5 * SECOND);
    node.command(|control| control.set_tenant("a", cap(4 * MIB))).unwrap();
    node.run(2 * SECOND);
    let moment = node.standing("a").unwrap().moment;
    assert!(
        moment.usage_bytes <= 4 * MIB && moment.usage_bytes > 2 * MIB,
        "{moment:?}"
    );
    node.rest("a");
    let gone = node.control.ask(|control| control.remove_tenant("a"));
    node.run(2 * SECOND);
    gone.wait().unwrap();
    assert!(node.standing("a").is_err() && node.load("a", &load(1, 1.0)).is_err());
}

#[test]
fn what_is_stored_for_a_time_is_gone_after_it() {
    let mut node = node();
    node.create("a", SettingsPatch::default()).unwrap();
    let mut short = load(1000, 0.0);
    short.workload.lifetimes = Lifetimes::new([(1.0, Duration::from_millis(1500))]).unwrap();
    node.load("a", &short).unwrap();
    for key in 0..1000 {
        node.request("a", Operation::Get(key));
    }
    for (pause, hits) in [(SECOND, 1000), (SECOND, 1000)] {
        node.run(pause);
        for key in 0..1000 {
            node.request("a", Operation::Get(key));
        }
        assert_eq!(node.standing("a").unwrap().moment.hits, hits);
    }
}
