//! The promises to a program: values stay while they are held, tenants come and go, everything changes live, and
//! nothing is left behind.

mod flash;
mod program;
mod sizes;

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
        Self::build(Builder::new(memory_bytes))
    }

    fn with_events(memory_bytes: u64, events: Arc<dyn Events>) -> Self {
        Self::build(Builder::new(memory_bytes).events(events))
    }

    fn build(builder: Builder) -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(1_700_000_000_000)));
        let builder = builder.parallelism(2).clock(Arc::clone(&clock) as _);
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

/// Waits for the work of a thread of the cache's.
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
    // Copied under the lock, copied after it, and in place.
    for (value_bytes, is_in_place) in [(100, false), (20_000, false), (600_000, true)] {
        tenant.insert(b"held", &vec![b'h'; value_bytes]).unwrap();
        let held = tenant.get(b"held").unwrap();
        assert_eq!(held.is_in_place(), is_in_place, "{value_bytes}");
        assert_eq!(held.parts().count(), value_bytes.div_ceil(65_536));
        let mut buffer = b"> ".to_vec();
        assert!(tenant.get_into(b"held", &mut buffer));
        assert_eq!(buffer.len(), 2 + value_bytes);
        tenant.insert(b"held", &vec![b'x'; value_bytes]).unwrap();
        // Everything is turned over around it.
        fill(&tenant, 20_000, 400);
        scene.pass(SECOND);
        assert_eq!(held.to_vec(), vec![b'h'; value_bytes]);
        assert_eq!(*held.as_bytes(), vec![b'h'; value_bytes]);
    }
}

/// Held values take no room from writes: they are copied, or their memory is their own.
#[test]
fn many_values_are_held_while_others_are_written() {
    let scene = Scene::new(64 * MIB);
    let tenant = scene.cache.create("shop", cap(8 * MIB)).unwrap();
    fill(&tenant, 20_000, 300);
    let keys: Vec<[u8; 4]> = (0..20_000_u32).map(u32::to_le_bytes).collect();
    let held = tenant.get_many(&keys);
    assert!(held.iter().flatten().count() > 10_000);
    fill(&tenant, 40_000, 300);
    assert!(held.iter().flatten().all(|value| value.to_vec() == vec![b'v'; 300]));
    // More than is held in place at a time.
    let large = scene.cache.create("large", TenantSettings::default()).unwrap();
    let keys: Vec<[u8; 1]> = (0..20).map(|number| [number]).collect();
    for key in &keys {
        large.insert(key, &vec![key[0]; 900_000]).unwrap();
    }
    let values = large.get_many(&keys);
    let in_place = values.iter().flatten().filter(|value| value.is_in_place()).count();
    assert_eq!((values.iter().flatten().count(), in_place), (20, 18));
    for (key, value) in keys.iter().zip(&values) {
        assert!(
            value
                .as_ref()
                .is_some_and(|value| value.to_vec() == vec![key[0]; 900_000])
        );
    }
}

#[test]
fn a_first_value_may_need_more_than_a_first_grant() {
    let mut scene = Scene::new(64 * MIB);
    let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
    let tries = (0..10).position(|_| {
        scene.pass(SECOND);
        tenant.reserve(b"k", 30 << 20).is_ok_and(|room| room.commit().is_ok())
    });
    assert!(tries.is_some());
    // However long, it is read where it lies.
    assert!(tenant.get(b"k").unwrap().is_in_place());
}

#[test]
fn a_handle_of_a_removed_tenant_does_nothing_to_a_later_one() {
    let mut scene = Scene::new(32 * MIB);
    let before = scene.cache.create("shop", TenantSettings::default()).unwrap();
    scene.cache.remove("shop").unwrap();
    scene.pass(SECOND);
    let after = scene.cache.create("shop", TenantSettings::default()).unwrap();
    let patch = SettingsPatch {
        cap_bytes: Change::Set(2 * MIB),
        ..SettingsPatch::default()
    };
    assert!(matches!(before.set(patch), Err(Error::Removed(_))));
    assert!(matches!(before.view(), Err(Error::Removed(_))));
    assert_eq!(after.view().unwrap().settings.cap_bytes, None);
}

#[test]
fn a_tenant_is_removed_while_a_value_of_it_is_held() {
    let cache = Cache::with_memory(32 * MIB).unwrap();
    let tenant = cache.create("shop", TenantSettings::default()).unwrap();
    tenant.insert(b"k", &vec![b'v'; 600_000]).unwrap();
    let held = tenant.get(b"k").unwrap();
    let began = Instant::now();
    cache.remove("shop").unwrap();
    // The control plane waits ten seconds for memory that does not come back; nobody waits for that here.
    assert!(began.elapsed() < 5 * SECOND);
    assert!(held.parts().all(|part| part.iter().all(|byte| *byte == b'v')));
    drop(held);
    wait_for("the name", || cache.create("shop", TenantSettings::default()).is_ok());
}

#[test]
fn many_first_writes_are_in_no_commands_way() {
    let mut scene = Scene::new(64 * MIB);
    let names: Vec<String> = (0..1100).map(|number| format!("t{number}")).collect();
    for name in &names {
        scene.cache.create(name, TenantSettings::default()).unwrap();
    }
    // Each first grant wakes the control plane, which has room for 1,024 messages.
    for name in &names {
        let tenant = scene.cache.tenant(name).unwrap();
        tenant.insert(b"k", b"v").unwrap();
        scene.driver.step();
        scene.driver.step();
        tenant.clear();
    }
    assert!(scene.cache.tenant("t7").unwrap().view().is_ok());
}

/// A clock that shows what it is told.
#[derive(Debug, Default)]
struct FreeClock(std::sync::atomic::AtomicU64);

impl Clock for FreeClock {
    fn now(&self) -> UnixMs {
        UnixMs(self.0.load(Ordering::Relaxed))
    }
}

#[test]
fn a_clock_that_is_set_back_keeps_no_round_away() {
    let clock = Arc::new(FreeClock(10_000_000.into()));
    let builder = Builder::new(64 * MIB).clock(Arc::clone(&clock) as _);
    let (cache, mut driver) = builder.build_driven().unwrap();
    let tenant = cache.create("shop", TenantSettings::default()).unwrap();
    fill(&tenant, 1000, 100);
    while driver.step().is_zero() {}
    clock.0.store(5_000_000, Ordering::Relaxed);
    assert!(driver.step() <= SECOND, "the next round is within a period");
}

#[test]
fn values_and_tenants_go_where_threads_need_them() {
    fn is_shared<T: Send + Sync>() {}
    fn is_sent<T: Send>() {}
    is_shared::<Cache>();
    is_shared::<Tenant>();
    is_shared::<Value>();
    is_sent::<Reservation>();
    is_sent::<Driver>();
}

#[test]
fn without_its_driver_a_cache_still_ends() {
    let (cache, driver) = Builder::new(16 * MIB).build_driven().unwrap();
    let tenant = cache.create("shop", TenantSettings::default()).unwrap();
    drop(driver);
    fill(&tenant, 1000, 100);
    let (plane, store) = tenant.weak_parts();
    drop((tenant, cache));
    assert!(plane.upgrade().is_none() && store.upgrade().is_none());
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
    assert_eq!((view.policy.as_str(), view.settings.cap_bytes), ("fifo", Some(8 * MIB)));
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
