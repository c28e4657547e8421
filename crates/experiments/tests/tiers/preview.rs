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

/// Whether a size is within a quarter of what was foretold, or three segments.
fn is_near(expected_bytes: u64, found_bytes: u64) -> bool {
    expected_bytes.abs_diff(found_bytes) <= (expected_bytes / 4).max(3 * MIB)
}

/// Whether a tenant is as it was foretold.
fn is_as_told(node: &mut Node, told: &PreviewedView) -> bool {
    let (memory, flash) = sizes_bytes(node, &told.name);
    let off = told.changed_hit_ratio.unwrap() - hit_ratio(node, &told.name);
    is_near(told.changed_bytes, memory) && is_near(told.changed_flash_bytes.unwrap(), flash) && off.abs() < 0.03
}

/// What is learnt on the way may move the sizes on, so that they are asked for until they are as foretold.
#[test]
fn sizes_of_both_tiers_come_to_what_was_foretold() {
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
        let told = preview(&mut node, patch);
        let shop = &told[1];
        assert_eq!(before, sizes_bytes(&mut node, "shop"), "{what}: asking changes nothing");
        assert!(is_near(shop.unchanged_bytes, before.0), "{what}: {shop:?}");
        assert!(
            is_near(shop.unchanged_flash_bytes.unwrap(), before.1),
            "{what}: {shop:?}"
        );
        let moved = |now: u64, changed: u64| now.abs_diff(changed) > 4 * MIB;
        assert!(
            moved(shop.grant_bytes, shop.changed_bytes)
                || moved(shop.flash_grant_bytes.unwrap(), shop.changed_flash_bytes.unwrap()),
            "{what} is felt: {shop:?}"
        );
        node.command(|control| control.set_tenant("shop", patch)).unwrap();
        let is_reached = (0..seconds).any(|_| {
            node.run(Duration::from_secs(1));
            told.iter().all(|told| is_as_told(&mut node, told))
        });
        let found = ["blog", "shop"].map(|name| (sizes_bytes(&mut node, name), hit_ratio(&mut node, name)));
        assert!(is_reached, "{what}: {found:?} where {told:?} was foretold");
    }
}
