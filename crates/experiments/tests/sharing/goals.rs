//! Goals that cannot all be met, goals for the latency, and loads that come and go beside each other.

use std::time::Duration;

use tidemark_control::{Change, SettingsPatch};
use tidemark_experiments::node::{Load, Node};
use tidemark_tools::load::{Distribution, ValueSize, Workload};
use tidemark_types::{HitRatio, MIB};

const MINUTE: Duration = Duration::from_secs(60);
/// A hit ratio this near is the same: a point.
const NEAR: f64 = 0.01;

fn load(keys: u64, alpha: f64, rate: f64, seed: u64) -> Load {
    let distribution = if alpha == 0.0 {
        Distribution::Uniform
    } else {
        Distribution::Zipf { alpha }
    };
    Load {
        workload: Workload {
            seed,
            ..Workload::gets(keys, distribution, 16, 240)
        },
        rate,
    }
}

fn goal(ratio: f64, priority: u8) -> SettingsPatch {
    SettingsPatch {
        hit_ratio: Change::Set(HitRatio::new(ratio).unwrap()),
        priority: Change::Set(priority),
        ..SettingsPatch::default()
    }
}

fn hit_ratio(node: &mut Node, name: &str, time: Duration) -> f64 {
    let [hit_ratio] = hit_ratios(node, [name], time);
    hit_ratio
}

/// The hit ratio of each, over the same time.
fn hit_ratios<const N: usize>(node: &mut Node, names: [&str; N], time: Duration) -> [f64; N] {
    node.watch(names, time).unwrap().map(|course| {
        let (first, last) = (course.moments[0], course.moments[course.moments.len() - 1]);
        (last.hits - first.hits) as f64 / (last.gets - first.gets) as f64
    })
}

/// Two of the same load, each of which needs more than half of the pool.
#[test]
fn the_lower_priority_falls_first_and_says_by_how_much() {
    let mut node = Node::new(64 * MIB, 1, 1).unwrap();
    // 160,000 items of 256 bytes with their overhead: 90 % of them are about 44 MiB.
    for (name, priority) in [("low", 3), ("high", 7)] {
        node.create(name, goal(0.9, priority)).unwrap();
        node.load(name, &load(160_000, 0.0, 20_000.0, u64::from(priority)))
            .unwrap();
    }
    node.run(6 * MINUTE);
    let high = hit_ratio(&mut node, "high", MINUTE);
    let low = hit_ratio(&mut node, "low", MINUTE);
    assert!((high - 0.9).abs() <= NEAR, "{high}");
    let (high_view, low_view) = (node.view("high").unwrap(), node.view("low").unwrap());
    assert_eq!((high_view.goal_state, low_view.goal_state), ("met", "infeasible"));
    let shortfall = low_view.shortfall_ratio.unwrap();
    assert!((0.9 - low - shortfall).abs() <= 2.0 * NEAR, "{low} {shortfall}");
    assert!((0.3..0.8).contains(&low), "what is left is its own: {low}");

    // The other way round, while both are asked.
    for (name, priority) in [("low", 7), ("high", 3)] {
        let patch = SettingsPatch {
            priority: Change::Set(priority),
            ..SettingsPatch::default()
        };
        node.command(|control| control.set_tenant(name, patch)).unwrap();
    }
    node.run(4 * MINUTE);
    let (high, low) = (
        hit_ratio(&mut node, "high", MINUTE),
        hit_ratio(&mut node, "low", MINUTE),
    );
    assert!((low - 0.9).abs() <= NEAR && high < 0.8, "{low} {high}");
}

#[test]
fn a_latency_is_a_hit_ratio_by_what_misses_cost() {
    let mut node = Node::with_hit_cost(256 * MIB, 1, 1, Duration::from_micros(100)).unwrap();
    // 0.8 of 100 us and 0.2 of 1,100 us are 300 us.
    let patch = SettingsPatch {
        latency: Change::Set(Duration::from_micros(300)),
        miss_cost: Change::Set(Duration::from_micros(1100)),
        ..SettingsPatch::default()
    };
    node.create("shop", patch).unwrap();
    node.load("shop", &load(100_000, 0.0, 20_000.0, 1)).unwrap();
    node.run(5 * MINUTE);
    let ratio = hit_ratio(&mut node, "shop", MINUTE);
    assert!((ratio - 0.8).abs() <= NEAR, "{ratio}");
    let view = node.view("shop").unwrap();
    assert_eq!(
        (view.goal_state, view.settings.latency),
        ("met", Some(Duration::from_micros(300)))
    );
}

/// A tenant that was idle comes back in a burst, and another reads through all of its keys once. A tenant with the
/// memory that its goal needs keeps it.
#[test]
fn a_burst_and_a_scan_leave_others_alone() {
    let mut node = Node::new(160 * MIB, 1, 1).unwrap();
    node.create("steady", goal(0.85, 5)).unwrap();
    node.load("steady", &load(300_000, 0.9, 20_000.0, 1)).unwrap();
    // It has no goal: it lives on the memory that the others leave.
    node.create("plain", SettingsPatch::default()).unwrap();
    node.load("plain", &load(300_000, 0.9, 20_000.0, 5)).unwrap();
    for name in ["sleeper", "scanner"] {
        node.create(name, SettingsPatch::default()).unwrap();
    }
    node.load("sleeper", &load(100_000, 0.9, 10_000.0, 2)).unwrap();
    node.run(2 * MINUTE);
    node.rest("sleeper");
    node.run(6 * MINUTE);
    let others = ["steady", "plain"];
    let before = hit_ratios(&mut node, others, MINUTE);
    node.load("sleeper", &load(100_000, 0.9, 40_000.0, 3)).unwrap();
    let burst = hit_ratios(&mut node, others, Duration::from_secs(30));
    node.load("scanner", &load(10_000_000, 0.0, 20_000.0, 4)).unwrap();
    let scan = hit_ratios(&mut node, others, MINUTE);
    for (who, name) in others.iter().enumerate() {
        assert!(
            before[who] - burst[who] <= NEAR && before[who] - scan[who] <= NEAR,
            "{name}: {before:?} {burst:?} {scan:?}"
        );
    }
}

/// Four that fill their memory a segment in some seconds, one of them faster than the others, so that it needs theirs.
#[test]
fn nobody_evicts_before_the_pool_is_full() {
    let mut node = Node::new(1024 * MIB, 1, 1).unwrap();
    let tenants = [
        ("a", 1.2, 500.0),
        ("b", 0.9, 500.0),
        ("c", 0.6, 500.0),
        ("d", 0.0, 1200.0),
    ];
    for (seed, (name, alpha, rate)) in (1..).zip(tenants) {
        node.create(name, SettingsPatch::default()).unwrap();
        let mut load = load(2_500_000, alpha, rate, seed);
        load.workload.value_size = ValueSize::Fixed(1008);
        node.load(name, &load).unwrap();
    }
    node.run(7 * MINUTE);
    let mut usage_bytes = 0;
    for (name, ..) in tenants {
        let view = node.view(name).unwrap();
        assert_eq!(view.sets_total, view.items, "{name}: what was written is there");
        usage_bytes += view.usage_bytes;
    }
    assert!(node.view("d").unwrap().usage_bytes > 400 * MIB);
    assert!(usage_bytes > 700 * MIB, "{usage_bytes}");
}

/// Two tenants whose loads change places every ten seconds: memory that follows them is always where it is not needed.
#[test]
fn loads_that_flip_lose_little_against_the_best_fixed_split() {
    let names = ["left", "right"];
    let count = |node: &Node| -> u64 { names.map(|name| node.standing(name).unwrap().moment.hits).iter().sum() };
    let hits = |caps_mib: Option<[u64; 2]>| {
        let mut node = Node::new(64 * MIB, 1, 1).unwrap();
        for (index, name) in names.into_iter().enumerate() {
            let patch = SettingsPatch {
                cap_bytes: caps_mib.map_or(Change::Keep, |caps| Change::Set(caps[index] * MIB)),
                ..SettingsPatch::default()
            };
            node.create(name, patch).unwrap();
        }
        // Twice three minutes, of which the second three count.
        let mut before = 0;
        for flip in 0..36 {
            if flip == 18 {
                before = count(&node);
            }
            for (index, name) in (0..).zip(names) {
                let rate = if (flip + index) % 2 == 0 { 10_000.0 } else { 1_000.0 };
                // Another seed each time, so that the same keys are not asked for in the same order.
                node.load(name, &load(300_000, 0.9, rate, 2 * flip + index)).unwrap();
            }
            node.run(Duration::from_secs(10));
        }
        count(&node) - before
    };
    let splits = [[16, 46], [24, 38], [31, 31], [38, 24], [46, 16]];
    let best = splits.into_iter().map(|split| hits(Some(split))).max().unwrap();
    let own = hits(None);
    assert!(own as f64 >= 0.95 * best as f64, "{own} of {best}");
}
