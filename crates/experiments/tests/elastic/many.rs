//! Many tenants of any rate: sampling and estimating stay within their bounds.

use tidemark_control::SettingsPatch;
use tidemark_experiments::node::Node;
use tidemark_types::MIB;

use super::scene::{SECOND, goal, zipf};

/// All tenants' gets per second together.
const RATE: f64 = 40_000.0;
/// A record costs about as much as a get: half a percent of the CPU time are so many records for each get.
const SAMPLES_PER_GET: f64 = 0.005;
/// At a low rate of gets, so many records a second cost nobody anything.
const SAMPLES_PER_SECOND: f64 = 1_000.0;
/// The sample follows the gets of the last seconds.
const LATE: f64 = 1.5;

/// Tenants whose rates follow Zipf's law, every other one with a goal.
fn check(tenants: u32) {
    let mut node = Node::new(512 * MIB, 1, 1).unwrap();
    let all: f64 = (1..=tenants).map(|rank| 1.0 / f64::from(rank)).sum();
    for rank in 1..=tenants {
        let name = format!("tenant-{rank}");
        let settings = if rank % 2 == 0 {
            goal(0.9)
        } else {
            SettingsPatch::default()
        };
        node.create(&name, settings).unwrap();
        let rate = RATE / all / f64::from(rank);
        let mut load = zipf(1000 + u64::from(20_000 / rank), 0.9, rate);
        load.workload.seed = u64::from(rank);
        node.load(&name, &load).unwrap();
    }
    // All thresholds have had time to fall.
    node.run(30 * SECOND);
    let before = node.samples_total();
    node.run(20 * SECOND);
    let per_second = (node.samples_total() - before) as f64 / 20.0;
    assert!(per_second > 0.0, "nothing is sampled");
    let allowed = LATE * SAMPLES_PER_SECOND.max(SAMPLES_PER_GET * RATE);
    assert!(per_second < allowed, "{per_second} records a second");
    let (granted, pool) = node.granted_and_pool_bytes();
    assert!(granted <= pool, "{granted} of {pool}");
    let first = node.view("tenant-2").unwrap();
    assert_ne!(first.goal_state, "none", "{first:?}");
}

#[test]
fn of_128_tenants_only_so_much_is_sampled() {
    check(128);
}

#[test]
fn of_1000_tenants_only_so_much_is_sampled() {
    check(1000);
}
