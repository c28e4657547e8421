//! A tenant whose items are of two sizes, of which flash takes the smaller ones only.

use tidemark_tools::load::ValueSize;

use super::*;

const MEMORY_BYTES: u64 = 32 * MIB;

/// Every fifth key has a value that stays in memory: some 30 MiB of items for flash, and 130 MiB of others.
fn mixed() -> Load {
    let mut workload = Workload::gets(2_400, Distribution::Zipf { alpha: 0.7 }, 16, 0);
    workload.value_size = ValueSize::Outliers {
        bytes: 16 << 10,
        outlier_bytes: 280 << 10,
        one_in: 5,
    };
    Load {
        workload,
        rate: 1_500.0,
    }
}

/// A goal for the flash beside as much memory at any time.
fn beside_memory(latency_us: u64) -> SettingsPatch {
    SettingsPatch {
        floor_bytes: Change::Set(MEMORY_BYTES),
        cap_bytes: Change::Set(MEMORY_BYTES),
        ..goal(latency_us)
    }
}

/// The hit ratio of the next seconds, with the flash in use for it, in bytes.
fn hits(node: &mut Node) -> (f64, f64) {
    let before = node.standing("shop").unwrap();
    node.run(Duration::from_secs(60));
    let after = node.standing("shop").unwrap();
    let gets = (after.moment.gets - before.moment.gets) as f64;
    let flash = after.flash.unwrap();
    (
        (after.moment.hits - before.moment.hits) as f64 / gets,
        (flash.usage_bytes - flash.shadow_bytes) as f64,
    )
}

#[test]
fn more_flash_brings_the_hits_that_size_classes_foretell() {
    let mut node = node(prices("0.38", "0.2"));
    node.create("shop", beside_memory(500)).unwrap();
    node.load("shop", &mixed()).unwrap();
    node.run(Duration::from_secs(150));
    let (few_hits, flash) = hits(&mut node);

    let patch = beside_memory(260);
    node.command(|control| control.set_tenant("shop", patch)).unwrap();
    node.run(Duration::from_secs(6));
    let moves = node.command(|control| control.moves("shop")).unwrap();
    let grew = moves
        .iter()
        .filter(|change| change.tier == Some("flash") && change.reason == "goal");
    let change = grew.max_by_key(|change| change.at.clone()).unwrap();
    let foretold = change.predicted_hit_ratio.unwrap();
    node.run(Duration::from_secs(150));
    let (more_hits, more_flash) = hits(&mut node);
    let what = format!("{few_hits} with {flash}, {more_hits} with {more_flash}; foretold {foretold}; {change:?}");
    assert!(more_flash > 1.5 * flash && more_hits > few_hits + 0.04, "{what}");
    // It is known from samples.
    assert!((foretold - more_hits).abs() < 0.03, "{what}");
}
