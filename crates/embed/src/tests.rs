//! What a program may rely on: values stay while they are held, tenants come and go, everything changes live, nothing is
//! left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidemark_control::{Change, Idling, SettingsPatch, TenantSettings};
use tidemark_types::{Clock, MIB, ManualClock, Policy, PolicyChoice, UnixMs};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    clock: Arc<ManualClock>,
    cache: Cache,
    driver: Driver,
}

impl Scene {
    fn new(memory_bytes: u64) -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(1_700_000_000_000)));
        let builder = Builder::new(memory_bytes).parallelism(2).clock(Arc::clone(&clock) as _);
        let (cache, driver) = builder.build_driven().unwrap();
        Self { clock, cache, driver }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.clock.now().plus(time);
        while self.clock.now() < end {
            self.clock.advance(Duration::from_millis(10));
            while self.driver.step().is_zero() {}
        }
    }
}

fn cap(bytes: u64) -> TenantSettings {
    TenantSettings {
        cap_bytes: Some(bytes),
        ..TenantSettings::default()
    }
}

fn fill(tenant: &Tenant, items: u32, value_bytes: usize) {
    let value = vec![b'v'; value_bytes];
    for number in 0..items {
        tenant.insert(&number.to_le_bytes(), &value).unwrap();
    }
}

/// Waits for what a thread of the cache's does.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < 20 * SECOND, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_stored_is_found_until_it_is_removed_or_expires() {
    let mut scene = Scene::new(16 * MIB);
    let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
    assert!(tenant.get(b"k").is_none() && !tenant.remove(b"k"));
    tenant.insert(b"k", b"one").unwrap();
    tenant.insert(b"k", b"two, which is longer").unwrap();
    assert_eq!(tenant.get(b"k").unwrap(), b"two, which is longer");
    let mut buffer = b"> ".to_vec();
    assert!(tenant.get_into(b"k", &mut buffer) && !tenant.get_into(b"none", &mut buffer));
    assert_eq!(buffer, b"> two, which is longer");
    assert!(tenant.contains(b"k") && tenant.remove(b"k") && !tenant.contains(b"k"));
    tenant.insert_for(b"k", b"", 2 * SECOND).unwrap();
    assert!(tenant.get(b"k").unwrap().is_empty());
    scene.pass(SECOND);
    assert!(tenant.contains(b"k"));
    scene.pass(SECOND);
    assert!(!tenant.contains(b"k"));
    // Gone before the clock moves.
    tenant.insert_for(b"k", b"v", Duration::ZERO).unwrap();
    scene.pass(Duration::from_millis(10));
    assert!(!tenant.contains(b"k"));
    let stats = tenant.stats();
    assert_eq!((stats.gets, stats.hits, stats.sets), (5, 3, 4));
    assert_eq!(stats.hit_ratio(), Some(0.6));
    tenant.insert(b"k", b"v").unwrap();
    tenant.clear();
    assert!(!tenant.contains(b"k"));
}

#[test]
fn impossible_things_are_refused_with_what_is_possible() {
    let scene = Scene::new(16 * MIB);
    let tenant = scene.cache.create("shop", cap(2 * MIB)).unwrap();
    let long_key = vec![0; KEY_BYTES_MAX + 1];
    let error = tenant.insert(&long_key, b"").unwrap_err().to_string();
    assert!(error.contains("65537") && error.contains("65536"), "{error}");
    assert!(tenant.get(&long_key).is_none() && !tenant.contains(&long_key) && !tenant.remove(&long_key));
    assert!(tenant.get_many(&[&long_key[..], b"k"]).iter().all(Option::is_none));
    let error = tenant.reserve(b"k", VALUE_BYTES_MAX + 1).unwrap_err().to_string();
    assert!(error.contains("67108864"), "{error}");
    assert!(matches!(tenant.insert(b"k", &vec![0; 3 << 20]), Err(Error::NoRoom)));
    assert!(matches!(scene.cache.create("shop", cap(MIB)), Err(Error::Control(_))));
    assert!(matches!(
        scene.cache.create("no/name", cap(MIB)),
        Err(Error::Control(_))
    ));
    assert!(matches!(scene.cache.create("small", cap(1)), Err(Error::Control(_))));
    assert!(scene.cache.tenant("other").is_none());
    assert!(matches!(scene.cache.remove("other"), Err(Error::Control(_))));
    assert!(matches!(scene.cache.resize(MIB), Err(Error::Control(_))));
    assert!(
        matches!(scene.cache.resize(65 * MIB), Err(Error::Control(_))),
        "above the limit"
    );
    assert!(matches!(Cache::with_memory(MIB), Err(Error::Control(_))));
}

#[test]
fn a_value_stays_as_it_was_while_it_is_held() {
    let mut scene = Scene::new(16 * MIB);
    let tenant = scene.cache.create("shop", cap(4 * MIB)).unwrap();
    for value_bytes in [100, 600_000] {
        tenant.insert(b"held", &vec![b'h'; value_bytes]).unwrap();
        let held = tenant.get(b"held").unwrap();
        assert!(held.is_in_place());
        assert_eq!(held.parts().count(), value_bytes.div_ceil(65_536));
        tenant.insert(b"held", &vec![b'x'; value_bytes]).unwrap();
        // Everything is turned over around it.
        fill(&tenant, 20_000, 400);
        scene.pass(SECOND);
        assert_eq!(held.to_vec(), vec![b'h'; value_bytes]);
        assert_eq!(*held.as_bytes(), vec![b'h'; value_bytes]);
    }
    // Of the many, some are copies; all are right.
    for number in 0..40_u32 {
        tenant
            .insert(&number.to_be_bytes(), &vec![number as u8; 50_000])
            .unwrap();
    }
    let keys: Vec<[u8; 4]> = (0..40_u32).map(u32::to_be_bytes).collect();
    let values = tenant.get_many(&keys);
    assert!(values.iter().flatten().count() >= 35);
    for (number, value) in values.iter().enumerate() {
        assert!(
            value
                .as_ref()
                .is_none_or(|value| value.to_vec() == vec![number as u8; 50_000])
        );
    }
}

#[test]
fn a_reservation_is_seen_when_it_is_committed_or_never() {
    let scene = Scene::new(16 * MIB);
    let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
    for value_bytes in [0, 10, 2 << 20] {
        let value: Vec<u8> = (0..value_bytes).map(|i| (i % 251) as u8).collect();
        let mut room = tenant.reserve(b"k", value_bytes).unwrap();
        assert_eq!(room.fill(&value), value_bytes);
        assert_eq!(room.fill(&[]), 0);
        assert!(!tenant.contains(b"k"));
        drop(room);
        assert!(!tenant.contains(b"k"), "{value_bytes}");
        let mut room = tenant.reserve(b"k", value_bytes).unwrap();
        assert_eq!(
            room.fill(&[value.clone(), vec![1]].concat()),
            value_bytes,
            "no more than there is room for"
        );
        room.commit().unwrap();
        assert_eq!(tenant.get(b"k").unwrap().to_vec(), value);
        let room = tenant.reserve(b"k", value_bytes).unwrap();
        room.commit_for(SECOND).unwrap();
        scene.clock.advance(SECOND);
        assert!(tenant.get(b"k").is_none());
    }
}

#[test]
fn tenants_come_and_go_and_leave_nothing() {
    let mut scene = Scene::new(32 * MIB);
    for _ in 0..50 {
        let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
        fill(&tenant, 10_000, 500);
        let held = tenant.get(&9_999_u32.to_le_bytes()).unwrap();
        scene.cache.remove("shop").unwrap();
        assert!(scene.cache.tenant("shop").is_none());
        assert!(tenant.get(&9_999_u32.to_le_bytes()).is_none());
        assert!(matches!(tenant.insert(b"k", b"v"), Err(Error::NoRoom)));
        assert!(tenant.set(SettingsPatch::default()).is_err());
        assert_eq!(held.len(), 500, "what is held is still there");
        drop(held);
        scene.pass(2 * SECOND);
        assert_eq!(scene.cache.stats().usage_bytes, 0);
    }
}

#[test]
fn settings_change_while_it_is_used() {
    let mut scene = Scene::new(32 * MIB);
    let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
    fill(&tenant, 40_000, 500);
    scene.pass(3 * SECOND);
    let before = tenant.stats();
    assert!(before.usage_bytes > 15 * MIB, "{before:?}");
    let patch = SettingsPatch {
        cap_bytes: Change::Set(8 * MIB),
        policy: Change::Set(PolicyChoice::Fixed(Policy::Fifo)),
        ..SettingsPatch::default()
    };
    let view = tenant.set(patch).unwrap();
    assert_eq!((view.policy.as_str(), view.goals.cap_bytes), ("fifo", Some(8 * MIB)));
    scene.pass(SECOND);
    let after = tenant.stats();
    assert!(after.usage_bytes <= 8 * MIB && after.items > 10_000, "{after:?}");
    assert!(!tenant.moves().unwrap().is_empty());
    scene.cache.resize(12 * MIB).unwrap();
    scene.cache.set_round_period(Duration::from_millis(200)).unwrap();
    assert_eq!(scene.cache.stats().memory_bytes, 12 * MIB);
    scene.cache.resize(64 * MIB).unwrap();
    tenant
        .set(SettingsPatch {
            cap_bytes: Change::Clear,
            ..SettingsPatch::default()
        })
        .unwrap();
    // More is granted as more is written.
    for _ in 0..8 {
        scene.pass(SECOND);
        fill(&tenant, 100_000, 500);
    }
    assert!(tenant.stats().usage_bytes > 32 * MIB);
}

#[test]
fn threads_of_its_own_share_the_memory_out_and_end_with_it() {
    let idling = Idling {
        first_grant_bytes: 2 * MIB,
        ..Idling::default()
    };
    let cache = Builder::new(64 * MIB).parallelism(4).idling(idling).build().unwrap();
    cache.set_round_period(Duration::from_millis(100)).unwrap();
    let tenant = cache.create("shop", TenantSettings::default()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (tenant, stop) = (tenant.clone(), &stop);
            scope.spawn(move || {
                for number in (0..50_000_u32).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = (number * 4 + thread).to_le_bytes();
                    if let Some(value) = tenant.get(&key) {
                        assert_eq!(value.to_vec(), [key, key].concat());
                    } else {
                        tenant.insert(&key, &[key, key].concat()).unwrap();
                    }
                }
            });
        }
        wait_for("more than the first grant", || tenant.stats().usage_bytes > 4 * MIB);
        tenant
            .set(SettingsPatch {
                cap_bytes: Change::Set(3 * MIB),
                ..SettingsPatch::default()
            })
            .unwrap();
        wait_for("a lower cap", || tenant.stats().usage_bytes <= 3 * MIB);
        stop.store(true, Ordering::Relaxed);
    });
    tenant.insert_for(b"short", b"lived", Duration::from_millis(1)).unwrap();
    cache.remove("shop").unwrap();
    assert_eq!(cache.stats().usage_bytes, 0);
}

#[test]
fn the_last_user_ends_it() {
    let cache = Cache::with_memory(16 * MIB).unwrap();
    let tenant = cache.create("shop", TenantSettings::default()).unwrap();
    drop(cache);
    fill(&tenant, 10_000, 100);
    let held = tenant.get(&1_u32.to_le_bytes()).unwrap();
    let (plane, store) = tenant.weak_parts();
    drop(tenant);
    assert!(plane.upgrade().is_none());
    assert_eq!(held.len(), 100, "a value outlives the cache");
    drop(held);
    assert!(store.upgrade().is_none());
}
