//! Policies that follow the load: the paper's by its skew, ours by miniature caches. CI halves keys, rates and caps;
//! `make soak` does not.

use tidemark_control::{Change, SettingsPatch};
use tidemark_experiments::node::{Load, Node};
use tidemark_tools::load::{Distribution, Workload};
use tidemark_types::MIB;

use crate::scale::divisor;
use crate::scene::{MINUTE, SECOND, load, node, uniform, zipf};

/// Keys at this scale.
fn keys(full: u64) -> u64 {
    full / divisor(2)
}

/// Requests a second at this scale.
fn rate(full: f64) -> f64 {
    full / divisor(2) as f64
}

fn with(policy: &str, cap_mib: u64) -> SettingsPatch {
    SettingsPatch {
        policy: Change::Set(policy.parse().unwrap()),
        cap_bytes: Change::Set(cap_mib * MIB / divisor(2)),
        ..SettingsPatch::default()
    }
}

fn in_force(node: &mut Node) -> String {
    node.view("shop").unwrap().policy_in_force
}

#[test]
fn genie_follows_the_skew_and_keeps_its_policy_where_no_law_fits() {
    let mut node = node(
        64 * MIB,
        &[("shop", with("genie", 16), &zipf(keys(300_000), 1.1, rate(20_000.0)))],
    );
    assert_eq!(in_force(&mut node), "fifo");
    node.run(2 * MINUTE + 5 * SECOND);
    assert_eq!(in_force(&mut node), "approx-lru:0.5");
    // Popularity that falls with the rank's exponential is no power of it: nothing follows from its skew.
    let cut = Distribution::Exponential { lambda: 1e-3 };
    node.load("shop", &load(keys(300_000), cut, rate(20_000.0))).unwrap();
    node.run(5 * MINUTE);
    assert_eq!(in_force(&mut node), "approx-lru:0.5");
    node.load("shop", &uniform(keys(300_000), rate(20_000.0))).unwrap();
    node.run(10 * MINUTE);
    assert_eq!(in_force(&mut node), "fifo");
}

#[test]
fn adaptive_goes_where_the_miniature_caches_are_better_and_loses_nothing() {
    // If all keys are alike, the ghosts of s3fifo are of no use, and take a twentieth of these small items' memory.
    let alike = Load {
        workload: Workload::gets(keys(1_000_000), Distribution::Uniform, 8, 8),
        rate: rate(40_000.0),
    };
    let mut node = node(256 * MIB, &[("shop", with("adaptive", 16), &alike)]);
    assert_eq!(in_force(&mut node), "s3fifo");
    let mut switched = false;
    for _ in 0..420 {
        let (before, policy) = (node.view("shop").unwrap().items, in_force(&mut node));
        node.run(SECOND);
        let (after, now) = (node.view("shop").unwrap().items, in_force(&mut node));
        if policy != now {
            switched = true;
            // Each second evicts as much as it writes; the switch itself takes nothing away.
            assert!(
                after as f64 >= before as f64 * 0.99,
                "{policy} to {now}: {before} to {after} items"
            );
        }
    }
    assert!(switched);
    let left = in_force(&mut node);
    assert!(left == "fifo" || left == "clock", "{left}");

    // A few popular keys among many that never come again are what s3fifo is made for.
    let mut scanned = zipf(keys(300_000), 0.9, rate(40_000.0));
    scanned.workload.fresh_ratio = 0.5;
    node.load("shop", &scanned).unwrap();
    node.run(5 * MINUTE);
    assert_eq!(in_force(&mut node), "s3fifo");
}
