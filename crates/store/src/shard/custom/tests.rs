use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemark_types::{Fault, MIB, Policy};

use super::*;
use crate::rogue::{Rogue, Way};
use crate::{
    Attributes, EvictionPolicy, Hasher, Hooks, Keeper, KeeperInbox, Listener, Pool, TenantConfig, TenantStore,
};

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const VALUE: [u8; 200] = [7; 200];
const SECOND: Duration = Duration::from_secs(1);

/// A tenant with a custom policy, and the events that were told of it.
struct Cache {
    store: Arc<TenantStore>,
    keeper: Keeper,
    told: Arc<Told>,
    _pool: Pool,
}

#[derive(Default)]
struct Told {
    faults: Mutex<Vec<Fault>>,
    left: Mutex<Vec<(Vec<u8>, usize, Left)>>,
    emptied: Mutex<Vec<(u64, Left)>>,
}

impl Listener for Told {
    fn left(&self, key: &[u8], value_bytes: usize, why: Left) {
        self.left.lock().push((key.to_vec(), value_bytes, why));
    }

    fn emptied(&self, items: u64, why: Left) {
        self.emptied.lock().push((items, why));
    }
}

impl Cache {
    fn new(policy: Policy, grant_bytes: u64) -> Self {
        let pool = Pool::without_thread(32 * MIB, Some(64 * MIB)).unwrap();
        let inbox = KeeperInbox::new(Box::new(|| {}));
        let config = TenantConfig {
            policy,
            ..TenantConfig::with_keeper(Arc::clone(&inbox), Hasher::with_seed(1))
        };
        let told = Arc::new(Told::default());
        let reported = Arc::clone(&told);
        let hooks = Hooks {
            below: None,
            left: Some(Arc::clone(&told) as _),
            replaced: Some(Arc::new(move |fault| reported.faults.lock().push(fault))),
        };
        let store = TenantStore::with_hooks(&pool, config, hooks);
        store.set_grant(grant_bytes, 0);
        Self {
            store,
            keeper: Keeper::new(inbox),
            told,
            _pool: pool,
        }
    }

    fn with(custom: impl EvictionPolicy + 'static) -> Self {
        let cache = Self::new(Policy::Custom, MIB);
        cache.store.supply_eviction(Arc::new(custom)).unwrap();
        cache
    }

    fn put(&self, name: &str) {
        let key = self.store.key(0, name.as_bytes());
        self.store.put(&key, &VALUE, Attributes::default(), NOW).unwrap();
    }

    fn put_for(&self, name: &str, lifetime: Duration) {
        let key = self.store.key(0, name.as_bytes());
        let attributes = Attributes::expiring(NOW, Some(lifetime));
        self.store.put(&key, &VALUE, attributes, NOW).unwrap();
    }

    fn get(&self, name: &str) -> bool {
        let key = self.store.key(0, name.as_bytes());
        self.store.lock(0).get(&key, NOW).is_some()
    }

    /// Writes what takes so many mebibytes.
    fn flood(&self, mebibytes: usize) {
        for number in 0..mebibytes * 5_000 {
            self.put(&format!("flood-{number:06}"));
        }
    }

    fn evicted(&self) -> u64 {
        self.store.lock(0).counters().evicted
    }

    fn audit(&self) {
        self.store.lock(0).audit();
    }
}

/// Keeps what its keys begin with.
struct Keeps(&'static str);

impl EvictionPolicy for Keeps {
    fn judge(&self, item: &Resident<'_>) -> Verdict {
        if item.key.starts_with(self.0.as_bytes()) {
            Verdict::Keep { uses: 3 }
        } else {
            Verdict::Drop
        }
    }
}

/// Items that fit into a third of a segment.
const HOT: usize = 100;

#[test]
fn what_the_program_keeps_stays() {
    let hot: Vec<String> = (0..HOT).map(|number| format!("hot-{number:05}")).collect();
    let kept = |cache: &Cache| {
        hot.iter().for_each(|name| cache.put(name));
        cache.flood(5);
        cache.audit();
        hot.iter().filter(|name| cache.get(name)).count()
    };
    let cache = Cache::with(Keeps("hot"));
    assert_eq!((kept(&cache), kept(&Cache::new(Policy::Fifo, MIB))), (HOT, 0));
    assert_eq!(*cache.told.faults.lock(), []);
    // A policy that is chosen by its name decides instead, and the program's again when it is chosen again.
    cache.store.set_policy(Policy::Fifo);
    assert_eq!(kept(&cache), 0);
    cache.store.set_policy(Policy::Custom);
    assert_eq!(kept(&cache), HOT);
    // Without one, it is as with `fifo`.
    assert_eq!(kept(&Cache::new(Policy::Custom, MIB)), 0);
}

/// An item's key, value bytes, uses, age, idle time and time until it expires.
type Asked = (Vec<u8>, usize, u8, Duration, Duration, Option<Duration>);

/// The calls to the policy.
#[derive(Default)]
struct Asks {
    residents: Mutex<Vec<Asked>>,
    newcomers: Mutex<Vec<(Vec<u8>, usize)>>,
    used: Mutex<Vec<Vec<u8>>>,
}

impl EvictionPolicy for Arc<Asks> {
    fn judge(&self, item: &Resident<'_>) -> Verdict {
        self.residents.lock().push((
            item.key.to_vec(),
            item.value_bytes,
            item.uses,
            item.age,
            item.idle,
            item.expires_in,
        ));
        Verdict::Drop
    }

    fn queue(&self, item: &Newcomer<'_>) -> Queue {
        self.newcomers.lock().push((item.key.to_vec(), item.value_bytes));
        Queue::Main
    }

    fn notes_uses(&self) -> bool {
        true
    }

    fn used(&self, key: &[u8]) {
        self.used.lock().push(key.to_vec());
    }
}

#[test]
fn the_policy_is_told_what_is_so() {
    let asks = Arc::new(Asks::default());
    let cache = Cache::with(Arc::clone(&asks));
    cache.put("plain");
    cache.put_for("short", 3600 * SECOND);
    let large = cache.store.key(0, b"large");
    cache
        .store
        .put(&large, &[1; 100_000], Attributes::default(), NOW)
        .unwrap();
    assert!(cache.get("short") && cache.get("short") && !cache.get("none"));
    assert_eq!(*asks.used.lock(), [b"short", b"short"]);
    // An overwritten item is no new one.
    cache.put("plain");
    let first: Vec<_> = asks.newcomers.lock().clone();
    let newcomer = |name: &str, bytes| (name.as_bytes().to_vec(), bytes);
    assert_eq!(
        first,
        [
            newcomer("plain", 200),
            newcomer("short", 200),
            newcomer("large", 100_000)
        ]
    );
    // All of it is judged when there is no place any more, a hundred seconds later.
    let later = NOW.plus(100 * SECOND);
    for number in 0..6_000 {
        let name = format!("{number:06}");
        let key = cache.store.key(0, name.as_bytes());
        cache.store.put(&key, &VALUE, Attributes::default(), later).unwrap();
    }
    let residents = asks.residents.lock();
    let (age, idle) = (100 * SECOND, 100 * SECOND);
    let expected = [
        (b"plain".to_vec(), 200, 0, age, idle, None),
        (b"short".to_vec(), 200, 2, age, idle, Some(3500 * SECOND)),
        (b"large".to_vec(), 100_000, 0, age, idle, None),
    ];
    assert_eq!(residents[..3], expected);
    cache.audit();
}

/// S3-FIFO, as a program would write it.
struct CustomS3Fifo;

impl EvictionPolicy for CustomS3Fifo {
    fn judge(&self, item: &Resident<'_>) -> Verdict {
        match (item.queue, item.uses) {
            (Queue::Small, 2..) => Verdict::Keep { uses: 0 },
            (Queue::Small, _) => Verdict::DropToGhost,
            (Queue::Main, 0) => Verdict::Drop,
            (Queue::Main, uses) => Verdict::Keep { uses: uses - 1 },
        }
    }

    fn small_share(&self) -> f64 {
        0.1
    }

    fn has_ghosts(&self) -> bool {
        true
    }
}

/// Queues, ghosts, uses and shares are those of the built-in policies.
#[test]
fn a_programs_s3fifo_hits_what_the_built_in_one_hits() {
    let hits = |policy: Policy| {
        let cache = Cache::new(policy, 4 * MIB);
        cache.store.supply_eviction(Arc::new(CustomS3Fifo)).unwrap();
        let mut state = 1_u64;
        let mut hits = 0_i32;
        for _ in 0..400_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let fraction = (state >> 11) as f64 / (1_u64 << 53) as f64;
            let name = format!("{:08}", (fraction.powi(3) * 100_000.0) as u64);
            if cache.get(&name) {
                hits += 1;
            } else {
                cache.put(&name);
            }
        }
        cache.audit();
        assert_eq!(*cache.told.faults.lock(), []);
        hits
    };
    let (custom, built_in, fifo) = (hits(Policy::Custom), hits(Policy::S3Fifo), hits(Policy::Fifo));
    // They differ only in the beginning: the built-in one is the clock until there are sixteen segments.
    assert!((custom - built_in).abs() < 400, "{custom} {built_in} {fifo}");
    assert!(built_in > fifo + 8_000, "{custom} {built_in} {fifo}");
}

#[test]
fn what_fails_is_replaced_by_fifo_and_reported_once() {
    for (way, said) in [
        (Way::Panics, "panicked"),
        (Way::Babbles, "200 uses: allowed are 0 to 3"),
        (Way::Hoards, "something has to go"),
    ] {
        let cache = Cache::with(Rogue::new(way, 7));
        cache.flood(8);
        cache.audit();
        let faults = cache.told.faults.lock().clone();
        assert_eq!(faults.len(), 1, "{way:?}: {faults:?}");
        assert!(faults[0].to_string().contains(said), "{way:?}: {}", faults[0]);
        // From then on the oldest go, whatever they were.
        let evicted = cache.evicted();
        cache.put("before");
        cache.flood(2);
        assert!(cache.evicted() > evicted && !cache.get("before"), "{way:?}");
        // Another one may be supplied.
        cache.store.supply_eviction(Arc::new(Keeps("kept"))).unwrap();
        cache.put("kept");
        cache.flood(3);
        assert!(cache.get("kept"), "{way:?}");
        cache.audit();
        assert_eq!(cache.told.faults.lock().len(), 1, "{way:?}");
    }
}

/// One that gives no share.
struct Shareless;

impl EvictionPolicy for Shareless {
    fn judge(&self, _: &Resident<'_>) -> Verdict {
        Verdict::Drop
    }

    fn small_share(&self) -> f64 {
        f64::NAN
    }
}

#[test]
fn what_is_refused_at_once_changes_nothing() {
    let cache = Cache::with(Keeps("hot"));
    let fault = cache.store.supply_eviction(Arc::new(Shareless)).unwrap_err();
    assert!(fault.to_string().contains("allowed are 0 to 1"), "{fault}");
    cache.put("hot");
    cache.flood(3);
    assert!(cache.get("hot"));
}

#[test]
fn every_item_that_leaves_is_told_of() {
    let mut cache = Cache::new(Policy::S3Fifo, MIB);
    let mut names = HashSet::new();
    for number in 0..20_000 {
        let name = format!("{number:06}");
        match number % 4 {
            0 => cache.put_for(&name, SECOND),
            _ => cache.put(&name),
        }
        names.insert(name);
    }
    let key = cache.store.key(0, b"019999");
    assert!(cache.store.lock(0).delete(&key, NOW));
    let later = NOW.plus(2 * SECOND);
    // Some are met by gets, others by upkeep.
    for number in (19_000..20_000).step_by(8) {
        let name = format!("{number:06}");
        let key = cache.store.key(0, name.as_bytes());
        assert!(cache.store.lock(0).get(&key, later).is_none());
    }
    while cache.keeper.run(later, Duration::from_millis(1)) == Some(Duration::ZERO) {}
    let left = std::mem::take(&mut *cache.told.left.lock());
    let why = |wanted| left.iter().filter(|(_, _, why)| *why == wanted).count() as u64;
    let counters = cache.store.lock(0).counters();
    assert_eq!(
        (why(Left::Evicted), why(Left::Expired), why(Left::Removed)),
        (counters.evicted, counters.expired, 1)
    );
    assert!(counters.evicted > 10_000 && counters.expired > 100, "{counters:?}");
    assert!(left.iter().all(|(_, bytes, _)| *bytes == 200));
    // An item that was not told of is there.
    left.iter().for_each(|(key, _, _)| {
        assert!(names.remove(std::str::from_utf8(key).unwrap()), "told twice");
    });
    let items = cache.store.sum(|shard| shard.items());
    assert_eq!(names.len() as u64, items);
    // Expired ones that nobody met yet are among them.
    names.retain(|name| name.parse::<u32>().unwrap() % 4 != 0);
    assert!(names.iter().all(|name| {
        let key = cache.store.key(0, name.as_bytes());
        cache.store.lock(0).peek(&key, later).is_some()
    }));
    cache.store.flush(None, later);
    assert_eq!(*cache.told.emptied.lock(), [(items, Left::Removed)]);
    assert_eq!(*cache.told.left.lock(), []);
}

#[test]
fn all_that_go_at_once_are_told_of_as_one() {
    for (why, lifetime) in [(Left::Expired, Some(SECOND)), (Left::Evicted, None)] {
        let mut cache = Cache::new(Policy::Clock, MIB);
        for number in 0..100 {
            let name = format!("{number:06}");
            match lifetime {
                Some(lifetime) => cache.put_for(&name, lifetime),
                None => cache.put(&name),
            }
        }
        if lifetime.is_none() {
            cache.store.set_grant(0, 0);
        }
        let later = NOW.plus(2 * SECOND);
        while cache.keeper.run(later, Duration::from_millis(1)) == Some(Duration::ZERO) {}
        assert_eq!(*cache.told.emptied.lock(), [(100, why)]);
        assert_eq!(cache.store.sum(|shard| shard.items()), 0);
    }
}

#[test]
fn keys_that_were_refused_are_remembered_if_they_shall_be() {
    let cache = Cache::new(Policy::Fifo, MIB);
    let prospect = |name: &str| {
        let key = cache.store.key(0, name.as_bytes());
        cache.store.lock(0).prospect(&key, NOW)
    };
    let remember = |name: &str| {
        let key = cache.store.key(0, name.as_bytes());
        cache.store.lock(0).remember(&key)
    };
    assert!(!prospect("new").is_full, "nothing is there yet");
    cache.flood(1);
    let known = prospect("flood-004999");
    assert!(known.is_stored && known.is_full && !known.was_seen);
    assert!(!remember("new"), "nobody wants it");
    cache.store.set_remembering(true);
    // If memory is used up, the next write makes room.
    while !remember("new") {
        cache.flood(1);
    }
    assert!(prospect("new").was_seen && !prospect("newer").was_seen);
    assert!(prospect("new").was_seen, "also when it is asked again");
    cache.put("new");
    assert!(!prospect("new").was_seen && prospect("new").is_stored);
    cache.audit();
    // As many are remembered as there are items, about.
    let refused: Vec<String> = (0..20_000).map(|number| format!("refused-{number}")).collect();
    assert!(refused.iter().all(|name| remember(name)));
    let seen = |names: &[String]| names.iter().filter(|name| prospect(name).was_seen).count();
    assert!(seen(&refused[19_000..]) > 950 && seen(&refused[..1_000]) < 50);
}
