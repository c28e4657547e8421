//! Previews, held against what the grants come to when the settings are made.

use std::sync::Arc;
use std::time::Duration;

use tidemark_types::{Clock as _, DataPlane as _, HitRatio, MIB, ManualClock};

use super::*;
use crate::fake::FakeDataPlane;
use crate::settings::FlashSettings;
use crate::state::TenantRecord;

const POOL: u64 = 64 * MIB;
const SHOP: TenantId = TenantId(1);
const BLOG: TenantId = TenantId(2);

struct Scene {
    clock: Arc<ManualClock>,
    data_plane: FakeDataPlane,
    book: Book,
}

impl Scene {
    /// Two tenants that each want more than the whole pool, and are asked for all of it, for two minutes.
    fn of_two() -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(1_000_000)));
        let mut scene = Self {
            data_plane: FakeDataPlane::new(Arc::clone(&clock) as _),
            clock,
            book: Book::new(POOL, 2, Vec::new()),
        };
        for (id, name) in [(SHOP, "shop"), (BLOG, "blog")] {
            scene.book.insert(TenantRecord {
                id,
                name: name.parse().unwrap(),
                version: 1,
                settings: TenantSettings::default(),
                secrets: Vec::new(),
                created_at: UnixMs(0),
                remembered_grant_bytes: None,
            });
        }
        scene.round();
        for name in ["shop", "blog"] {
            scene.data_plane.set_demand(name, 2 * POOL);
        }
        scene.seconds(120);
        scene
    }

    fn round(&mut self) {
        let snapshot = self.data_plane.snapshot();
        self.book.observe(&snapshot, self.clock.now(), &mut || ());
        if let Some(plan) = self.book.plan(self.clock.now(), &mut || ()) {
            self.data_plane.apply(&plan);
        }
    }

    fn seconds(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            for name in ["shop", "blog"] {
                self.data_plane.ask(name, POOL);
            }
            self.data_plane.write();
            self.round();
        }
    }

    fn preview(&self, settings: &TenantSettings) -> [Previewed; 2] {
        let previewed = self.book.preview(SHOP, settings, None, self.clock.now());
        let names: Vec<&str> = previewed.iter().map(|tenant| tenant.name.as_str()).collect();
        assert_eq!(names, ["blog", "shop"]);
        previewed.try_into().unwrap()
    }

    fn set(&mut self, settings: TenantSettings) {
        let mut record = self.book.find("shop").unwrap().record.clone();
        record.settings = settings;
        self.book.update(record);
    }

    fn grants(&self) -> [u64; 2] {
        ["blog", "shop"].map(|name| self.book.find(name).unwrap().grant_bytes)
    }
}

#[test]
fn a_preview_says_where_grants_come_to() {
    for (what, settings) in [
        (
            "a cap",
            TenantSettings {
                cap_bytes: Some(8 * MIB),
                ..TenantSettings::default()
            },
        ),
        (
            "a floor",
            TenantSettings {
                floor_bytes: Some(48 * MIB),
                ..TenantSettings::default()
            },
        ),
        (
            "a goal",
            TenantSettings {
                hit_ratio: HitRatio::new(0.3).ok(),
                ..TenantSettings::default()
            },
        ),
    ] {
        let mut scene = Scene::of_two();
        let before = scene.grants();
        let [blog, shop] = scene.preview(&settings);
        assert_eq!([blog.now.bytes, shop.now.bytes], before, "{what}");
        assert_eq!(scene.grants(), before, "{what}: asking changes nothing");
        let at = scene.clock.now();
        assert!(scene.book.plan(at, &mut || ()).is_none(), "{what}");
        let moved = blog.changed.bytes.abs_diff(blog.unchanged.bytes);
        assert!(moved >= 4 * MIB, "{what} is felt: {blog:?} {shop:?}");
        let more = |tenant: &Previewed| {
            let (before, after) = (tenant.unchanged, tenant.changed);
            let ratios = before.hit_ratio.unwrap().total_cmp(&after.hit_ratio.unwrap());
            assert_eq!(ratios, before.bytes.cmp(&after.bytes), "{what}: {tenant:?}");
        };
        more(&blog);
        more(&shop);
        scene.set(settings);
        scene.seconds(240);
        for (previewed, grant) in [&blog, &shop].into_iter().zip(scene.grants()) {
            let off = previewed.changed.bytes.abs_diff(grant);
            assert!(off <= 4 * MIB, "{what}: {previewed:?}, but it came to {grant}");
        }
    }
}

#[test]
fn parts_of_flash_are_foretold_with_their_floors_and_caps() {
    let of_flash = |flash| TenantSettings {
        flash,
        ..TenantSettings::default()
    };
    let mut scene = Scene::of_two();
    assert!(
        scene.preview(&TenantSettings::default())[0]
            .changed
            .flash_bytes
            .is_none()
    );
    scene.book.set_flash_bytes(96 * MIB);
    scene.seconds(5);
    for settings in [
        of_flash(FlashSettings {
            cap_bytes: Some(8 * MIB),
            ..FlashSettings::default()
        }),
        of_flash(FlashSettings {
            floor_bytes: Some(64 * MIB),
            ..FlashSettings::default()
        }),
    ] {
        let flash = |scene: &Scene| ["blog", "shop"].map(|name| scene.book.find(name).unwrap().flash_grant_bytes);
        let before = flash(&scene);
        let [blog, shop] = scene.preview(&settings);
        assert_eq!([blog.now.flash_bytes, shop.now.flash_bytes], before, "{settings:?}");
        assert_eq!(
            [blog.unchanged.flash_bytes, shop.unchanged.flash_bytes],
            before,
            "{settings:?}"
        );
        assert_eq!(flash(&scene), before, "{settings:?}: asking changes nothing");
        scene.set(settings);
        scene.seconds(2);
        let after = flash(&scene);
        assert_eq!(
            [blog.changed.flash_bytes, shop.changed.flash_bytes],
            after,
            "{settings:?}"
        );
        assert!(after != before, "{settings:?} is felt");
        scene.set(TenantSettings::default());
        scene.seconds(2);
    }
}

#[test]
fn what_one_loses_another_is_said_to_have_gained() {
    let mut scene = Scene::of_two();
    scene.set(TenantSettings {
        cap_bytes: Some(8 * MIB),
        ..TenantSettings::default()
    });
    let at = scene.clock.now();
    scene.seconds(60);
    for (name, other) in [("shop", BLOG), ("blog", SHOP)] {
        let tenant = scene.book.find(name).unwrap();
        let since = tenant.moves.newest_first().filter(|change| change.at > at);
        let others: Vec<_> = since.map(|change| change.other).collect();
        assert!(others.contains(&Some(other)), "{name}: {others:?}");
    }
}
