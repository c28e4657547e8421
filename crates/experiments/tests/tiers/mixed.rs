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

/// The hit ratio of the next seconds, with memory and flash in use, in bytes.
fn hits(node: &mut Node) -> (f64, f64, f64) {
    let before = node.standing("shop").unwrap();
    node.run(Duration::from_secs(60));
    let after = node.standing("shop").unwrap();
    let gets = (after.moment.gets - before.moment.gets) as f64;
    let flash = after.flash.unwrap();
    (
        (after.moment.hits - before.moment.hits) as f64 / gets,
        after.moment.usage_bytes as f64,
        (flash.usage_bytes - flash.shadow_bytes) as f64,
    )
}

/// The whole curve, as it is shown: bytes of memory and hit ratios, ascending.
fn whole(node: &mut Node) -> Vec<(f64, f64)> {
    let curve = node.command(|control| control.curve("shop")).unwrap();
    let points = curve.points.iter();
    points
        .map(|point| (point.bytes as f64, 1.0 - point.miss_ratio))
        .collect()
}

/// A straight line through the two of these points between which `x` lies.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let mut pairs = points.windows(2);
    let pair = pairs.find(|pair| pair[1].0 > x).unwrap_or(&points[points.len() - 2..]);
    let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
    y0 + (y1 - y0) * ((x - x0) / (x1 - x0).max(1e-12)).clamp(0.0, 1.0)
}

#[test]
fn composed_of_size_classes_more_flash_is_foretold_better_than_by_the_whole_curve() {
    let mut node = node(prices("0.38", "0.2"));
    node.create("shop", beside_memory(500)).unwrap();
    node.load("shop", &mixed()).unwrap();
    node.run(Duration::from_secs(150));
    let curve = whole(&mut node);
    let (few_hits, memory, flash) = hits(&mut node);
    // Here, where it was learnt, the whole curve is right: so many of its bytes are in a byte of flash.
    let turned: Vec<(f64, f64)> = curve.iter().map(|(bytes, hits)| (*hits, *bytes)).collect();
    let reach = between(&turned, few_hits);
    let held = (reach - memory) / flash;

    let patch = beside_memory(260);
    node.command(|control| control.set_tenant("shop", patch)).unwrap();
    node.run(Duration::from_secs(6));
    let moves = node.command(|control| control.moves("shop")).unwrap();
    let grew = moves
        .iter()
        .filter(|change| change.tier == Some("flash") && change.reason == "goal");
    let foretold = grew.max_by_key(|change| change.at.clone()).unwrap();
    node.run(Duration::from_secs(150));
    let (more_hits, memory, more_flash) = hits(&mut node);
    let by_whole = between(&curve, memory + held * more_flash);
    let by_classes = foretold.predicted_hit_ratio.unwrap();
    let errors = ((by_classes - more_hits).abs(), (by_whole - more_hits).abs());
    let what = format!(
        "{few_hits} with {flash}, {more_hits} with {more_flash}; foretold {by_classes}, by the whole curve {by_whole}, {held} held; {foretold:?}"
    );
    assert!(more_flash > 1.5 * flash && more_hits > few_hits + 0.04, "{what}");
    assert!(
        errors.0 < 0.02 && errors.1 > 2.0 * errors.0 && errors.1 > 0.03,
        "{what}"
    );
}
