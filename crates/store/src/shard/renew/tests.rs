use std::collections::HashMap;
use std::sync::Arc;

use tidemark_types::{LogShare, MIB, Policy, UnixMs};

use crate::{Attributes, Counters, Pool, TenantStore, undriven};

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const VALUE: [u8; 200] = [7; 200];
/// Items of 215 bytes that fit into a segment of a small shard, one unit.
const SEGMENT_ITEMS: usize = 304;
/// Such segments in a mebibyte, less the index.
const SEGMENTS: usize = 15;

fn approx_lru(thousandths: u16) -> Policy {
    Policy::ApproxLru(LogShare::from_thousandths(thousandths).unwrap())
}

/// A tenant of one shard.
struct Cache {
    store: Arc<TenantStore>,
    _pool: Pool,
}

impl Cache {
    fn new(policy: Policy, grant_bytes: u64) -> Self {
        let pool = Pool::without_thread(32 * MIB, Some(64 * MIB)).unwrap();
        let store = undriven::tenant(&pool, 1, policy, 1, grant_bytes);
        Self { store, _pool: pool }
    }

    fn put(&self, number: u64) {
        let name = format!("{number:08}");
        let key = self.store.key(0, name.as_bytes());
        self.store.put(&key, &VALUE, Attributes::default(), NOW).unwrap();
    }

    fn get(&self, number: u64) -> bool {
        let name = format!("{number:08}");
        let key = self.store.key(0, name.as_bytes());
        let mut shard = self.store.lock(0);
        let found = shard.get(&key, NOW).map(|found| found.value().to_vec());
        assert!(found.as_ref().is_none_or(|value| *value == VALUE));
        found.is_some()
    }

    fn holds(&self, number: u64) -> bool {
        let name = format!("{number:08}");
        let key = self.store.key(0, name.as_bytes());
        self.store.lock(0).peek(&key, NOW).is_some()
    }

    /// A get, and a put if it missed. Whether it was a hit.
    fn request(&self, number: u64) -> bool {
        let hit = self.get(number);
        if !hit {
            self.put(number);
        }
        hit
    }

    fn counters(&self) -> Counters {
        self.store.lock(0).counters()
    }

    /// Dead bytes over all that is held.
    fn dead_ratio(&self) -> f64 {
        let snapshot = self.store.lock(0).snapshot(NOW);
        snapshot.dead_bytes as f64 / snapshot.usage_bytes as f64
    }

    fn audit(&self) {
        self.store.lock(0).audit();
    }
}

/// Numbers below 12,000, small ones more often: as items they take two and a half times a mebibyte.
fn skewed(count: usize) -> impl Iterator<Item = u64> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let fraction = (state >> 11) as f64 / (1_u64 << 53) as f64;
        (fraction.powi(2) * 12_000.0) as u64
    })
    .take(count)
}

#[test]
fn with_the_whole_log_as_its_share_it_is_fifo() {
    let (fifo, approx) = (Cache::new(Policy::Fifo, MIB), Cache::new(approx_lru(1000), MIB));
    for number in skewed(100_000) {
        assert_eq!(fifo.request(number), approx.request(number));
    }
    assert_eq!(fifo.counters(), approx.counters());
    assert!(fifo.counters().evicted > 20_000);
    assert_eq!(fifo.dead_ratio(), approx.dead_ratio());
}

/// The number of present keys that were used less recently than a key that is gone.
fn out_of_order(policy: Policy) -> usize {
    let cache = Cache::new(policy, MIB);
    let mut last_use = HashMap::new();
    for (time, number) in skewed(100_000).enumerate() {
        cache.request(number);
        last_use.insert(number, time);
    }
    cache.audit();
    let (present, gone): (Vec<_>, Vec<_>) = last_use.into_iter().partition(|(number, _)| cache.holds(*number));
    assert!(present.len() > 2 * SEGMENT_ITEMS && gone.len() > 1000);
    let youngest_gone = gone.iter().map(|(_, time)| *time).max().unwrap();
    present.iter().filter(|(_, time)| *time < youngest_gone).count()
}

#[test]
fn without_a_share_it_is_lru_by_segments() {
    // The segment that is being emptied has some of both.
    let found = out_of_order(approx_lru(0));
    assert!(found <= SEGMENT_ITEMS, "{found} keys outlived a younger one");
    let found = out_of_order(Policy::Fifo);
    assert!(
        found > 4 * SEGMENT_ITEMS,
        "{found} keys outlived a younger one with fifo"
    );
}

#[test]
fn a_key_that_is_used_stays() {
    for (policy, stays) in [
        (approx_lru(0), true),
        (approx_lru(500), true),
        (approx_lru(700), true),
        (approx_lru(1000), false),
        (Policy::Fifo, false),
    ] {
        let cache = Cache::new(policy, MIB);
        let log_items = (SEGMENTS * SEGMENT_ITEMS) as u64;
        let mut misses = 0;
        for number in 0..20 * log_items {
            cache.put(1000 + number);
            if number % 50 == 0 {
                misses += u64::from(!cache.request(number / 50 % 10));
            }
        }
        cache.audit();
        // The ten keys are written once; where they do not stay, about once for each time that the log went by.
        let expected = if stays { 10..=10 } else { 150..=250 };
        assert!(expected.contains(&misses), "{policy}: {misses} misses");
    }
}

#[test]
fn what_copies_leave_behind_is_dead_until_its_turn_comes() {
    let cache = Cache::new(approx_lru(500), 2 * MIB);
    for number in skewed(100_000) {
        cache.request(number);
    }
    let dead = cache.dead_ratio();
    assert!((0.1..0.4).contains(&dead), "{dead} of the memory is dead");
    cache.audit();
    let counters = cache.counters();
    assert_eq!(counters.sets, counters.gets - counters.hits, "copies are no writes");
    cache.store.set_policy(Policy::Fifo);
    for number in skewed(100_000) {
        cache.request(number);
    }
    let dead = cache.dead_ratio();
    assert!(dead < 1.0 / SEGMENTS as f64, "{dead}: more than what is being emptied");
    cache.audit();
}

#[test]
fn while_there_is_room_nothing_is_copied() {
    let cache = Cache::new(approx_lru(500), 8 * MIB);
    (0..4000).for_each(|number| cache.put(number));
    let usage = cache.store.usage_bytes();
    for _ in 0..3 {
        assert!((0..4000).all(|number| cache.get(number)));
    }
    assert_eq!((cache.store.usage_bytes(), cache.dead_ratio()), (usage, 0.0));
    // The log is no longer than the tenant's grant.
    cache.store.set_grant(usage, 0);
    assert!((0..2000).all(|number| cache.holds(number) == cache.get(number)));
    assert!(cache.dead_ratio() > 0.0);
    cache.audit();
}

#[test]
fn reads_alone_move_the_log_on() {
    let cache = Cache::new(approx_lru(500), MIB);
    (0..6000).for_each(|number| cache.put(number));
    let before = cache.counters().evicted;
    // Half of every segment of the older half is copied; for three segments of copies, three have to go.
    let hits = (0..6000).step_by(2).filter(|number| cache.get(*number)).count();
    assert!(hits > (SEGMENTS - 2) / 2 * SEGMENT_ITEMS, "{hits} hits");
    let evicted = (cache.counters().evicted - before) as usize;
    assert!(evicted > SEGMENT_ITEMS, "{evicted} items were evicted");
    assert!(cache.dead_ratio() > 0.1, "{} of the memory is dead", cache.dead_ratio());
    cache.audit();
}

#[test]
fn a_segment_of_nothing_but_dead_copies_goes_at_once() {
    let cache = Cache::new(approx_lru(0), MIB);
    (0..4400).for_each(|number| cache.put(number));
    let before = cache.counters().evicted;
    for _ in 0..20 {
        assert!((4000..4400).all(|number| cache.get(number)));
    }
    // Twenty times four hundred copies have passed through two or three segments.
    let evicted = (cache.counters().evicted - before) as usize;
    assert!(evicted <= 3 * SEGMENT_ITEMS, "{evicted} items were evicted");
    cache.audit();
}

#[test]
fn what_is_being_emptied_is_copied_whatever_room_there_is() {
    for grant_bytes in [MIB, 4 * MIB] {
        let cache = Cache::new(approx_lru(900), MIB);
        // The first segment is being emptied, from its beginning on.
        let mut next = 0;
        while cache.counters().evicted == 0 {
            cache.put(next);
            next += 1;
        }
        let last_of_first = SEGMENT_ITEMS as u64 - 1;
        cache.store.set_grant(grant_bytes, 0);
        assert!(cache.get(last_of_first));
        cache.store.set_grant(MIB, 0);
        (next..next + 400).for_each(|number| cache.put(number));
        assert!(
            cache.holds(last_of_first) && !cache.holds(last_of_first - 1),
            "{grant_bytes}"
        );
        cache.audit();
    }
}

#[test]
fn where_there_is_no_room_a_hit_is_a_hit() {
    let cache = Cache::new(approx_lru(500), MIB);
    let mut pins = Vec::new();
    // Values that replies are being sent from cannot be evicted.
    for number in 0_u64.. {
        let name = format!("{number:08}");
        let key = cache.store.key(0, name.as_bytes());
        if cache.store.put(&key, &VALUE, Attributes::default(), NOW).is_err() {
            break;
        }
        pins.extend(cache.store.lock(0).pin(&key, VALUE.len()));
    }
    assert!(pins.len() > (SEGMENTS - 1) * SEGMENT_ITEMS, "{} items", pins.len());
    for _ in 0..3 {
        assert!((0..pins.len() as u64).all(|number| cache.get(number)));
    }
    assert_eq!((cache.dead_ratio(), cache.counters().evicted), (0.0, 0));
    // With the first of them free to go, the reads of the others move the log on.
    pins.drain(..SEGMENT_ITEMS);
    cache.put(1 << 20);
    assert!((SEGMENT_ITEMS as u64..2000).all(|number| cache.get(number)));
    assert!(cache.dead_ratio() > 0.0);
    assert!(pins.iter().all(|pin| pin.parts().flatten().eq(&VALUE)));
    drop(pins);
    cache.audit();
}

#[test]
fn without_a_grant_no_read_asks_for_one() {
    let cache = Cache::new(approx_lru(0), MIB);
    // Whole segments, so that a copy would need a new one.
    let count = 13 * SEGMENT_ITEMS as u64;
    (0..count).for_each(|number| cache.put(number));
    cache.store.set_grant(0, MIB);
    assert!((0..count).all(|number| cache.get(number)));
    assert_eq!(cache.store.grant_bytes(), 0);
}
