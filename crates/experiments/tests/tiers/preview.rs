//! Previews of both tiers, held against what the sizes come to when the settings are made.

use tidemark_control::{PreviewView, PreviewedView};

use super::*;

/// A tenant with a goal beside one without.
fn scene() -> Node {
    let mut node = node(prices("0.38", "0.01"));
    node.create("shop", goal(300)).unwrap();
    node.create("blog", SettingsPatch::default()).unwrap();
    node.load("shop", &load(8_000.0)).unwrap();
    node.load("blog", &load(8_000.0)).unwrap();
    node.run(Duration::from_secs(120));
    node
}

fn preview(node: &mut Node, patch: SettingsPatch) -> [PreviewedView; 2] {
    let PreviewView { tenants, .. } = node.command(|control| control.preview("shop", patch)).unwrap();
    let [blog, shop] = <[PreviewedView; 2]>::try_from(tenants).unwrap();
    assert_eq!((&*blog.name, &*shop.name), ("blog", "shop"));
    [blog, shop]
}

fn hit_ratio(node: &mut Node, name: &str) -> f64 {
    node.view(name).unwrap().hit_ratio.unwrap()
}

fn sizes_bytes(node: &mut Node, name: &str) -> (u64, u64) {
    let view = node.view(name).unwrap();
    (view.grant_bytes, view.flash_grant_bytes.unwrap())
}

/// Both sizes are within a quarter of what is expected, or three segments.
fn is_near(expected_bytes: u64, (found_bytes, what): (u64, &str)) {
    let off = expected_bytes.abs_diff(found_bytes);
    assert!(
        off <= (expected_bytes / 4).max(3 * MIB),
        "{what}: {found_bytes} bytes where {expected_bytes} were foretold"
    );
}

#[test]
fn what_both_tiers_would_get_is_what_they_come_to() {
    let no_goal = SettingsPatch {
        latency: Change::Clear,
        ..SettingsPatch::default()
    };
    let flash_cap = SettingsPatch {
        flash: FlashPatch {
            cap_bytes: Change::Set(4 * MIB),
            ..FlashPatch::default()
        },
        ..SettingsPatch::default()
    };
    for (what, patch, seconds) in [
        ("a stricter latency", goal(180), 60),
        ("less flash", flash_cap, 60),
        ("no goal", no_goal, 180),
    ] {
        let mut node = scene();
        let before = sizes_bytes(&mut node, "shop");
        let [blog, shop] = preview(&mut node, patch);
        assert_eq!(before, sizes_bytes(&mut node, "shop"), "{what}: asking changes nothing");
        is_near(shop.unchanged_bytes, (before.0, what));
        is_near(shop.unchanged_flash_bytes.unwrap(), (before.1, what));
        let moved = |now: u64, changed: u64| now.abs_diff(changed) > 4 * MIB;
        assert!(
            moved(shop.grant_bytes, shop.changed_bytes)
                || moved(shop.flash_grant_bytes.unwrap(), shop.changed_flash_bytes.unwrap()),
            "{what} is felt: {shop:?}"
        );
        node.command(|control| control.set_tenant("shop", patch)).unwrap();
        node.run(Duration::from_secs(seconds));
        for (name, told) in [("shop", &shop), ("blog", &blog)] {
            let (memory, flash) = sizes_bytes(&mut node, name);
            let what = format!("{what}, {name}");
            is_near(told.changed_bytes, (memory, &what));
            is_near(told.changed_flash_bytes.unwrap(), (flash, &what));
            let (expected, found) = (told.changed_hit_ratio.unwrap(), hit_ratio(&mut node, name));
            assert!((expected - found).abs() < 0.03, "{what}: {expected} {found}");
        }
    }
}
