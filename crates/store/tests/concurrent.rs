//! Several threads at once on one tenant, while its grant, its policy and its keeper are at work.
//!
//! Each thread owns the keys with its number in front, so it knows exactly what they may hold: its last value, or
//! nothing. Everybody also reads keys that nobody ever writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidemark_store::{Attributes, Hasher, Keeper, KeeperInbox, Pool, TenantConfig, TenantStore};
use tidemark_types::{LogShare, MIB, Policy, SampleKind, SamplingThreshold, TenantCounters, TenantId, UnixMs};

const THREADS: u64 = 4;
const KEYS: u64 = 3_000;
const OPERATIONS: u64 = 150_000;
/// In the test of samples.
const SAMPLED_OPERATIONS: u64 = 30_000;

/// splitmix64.
fn mixed(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The value that a thread writes at an operation: its length and every byte follow from both.
fn value(thread: u64, operation: u64) -> Vec<u8> {
    let seed = mixed(thread << 40 | operation);
    let length = match seed % 1000 {
        0 => 300_000 + seed % 400_000,
        1..=20 => 20_000 + seed % 60_000,
        _ => 1 + seed % 400,
    };
    (0..length)
        .map(|i| (seed.rotate_left(i as u32 % 64) as u8).wrapping_add(i as u8))
        .collect()
}

fn work(store: &Arc<TenantStore>, thread: u64, operations: u64, clock: &AtomicU64) -> u64 {
    let mut written = vec![None; KEYS as usize];
    let mut pins = Vec::new();
    let mut hits = 0;
    for operation in 0..operations {
        let random = mixed(thread.wrapping_mul(0x1_0000_0001) ^ operation << 8);
        let now = UnixMs(clock.load(Ordering::Relaxed));
        let n = (random >> 16) % KEYS;
        let name = format!("{thread}-{n}");
        let key = store.key(0, name.as_bytes());
        let shard = store.shard_of(key.hash);
        match random % 16 {
            0..=6 => {
                let new = value(thread, operation);
                let result = if random & 1 << 40 == 0 {
                    store.put(&key, &new, Attributes::default(), now)
                } else {
                    store.lock(shard).put(&key, &new, Attributes::default(), now)
                };
                if result.is_ok() {
                    written[n as usize] = Some(operation);
                }
            }
            7 => {
                store.lock(shard).delete(&key, now);
                written[n as usize] = None;
            }
            8 => {
                let mut guard = store.lock(shard);
                if let Some(length) = guard.get(&key, now).map(|found| found.value().len())
                    && let Some(pin) = guard.pin(&key, length)
                {
                    drop(guard);
                    pins.push((pin, written[n as usize]));
                }
            }
            9 => pins.clear(),
            _ => {
                let found = store.lock(shard).get(&key, now).map(|found| found.value().to_vec());
                if let Some(found) = found {
                    let expected = written[n as usize].map(|operation| value(thread, operation));
                    assert!(expected.as_ref() == Some(&found), "{name}: not what was written last");
                    hits += 1;
                }
            }
        }
        for (pin, operation) in &pins {
            let expected = operation.map(|operation| value(thread, operation)).unwrap_or_default();
            assert!(pin.parts().flatten().eq(expected.iter()), "a pinned value changed");
        }
        let absent = store.key(0, b"nobody writes this");
        assert!(store.lock(store.shard_of(absent.hash)).peek(&absent, now).is_none());
    }
    hits
}

fn any_policy(random: u64) -> Policy {
    let share = LogShare::from_thousandths((random >> 32) as u16 % 1001).unwrap_or(LogShare::HALF);
    match Policy::PLAIN.get(random as usize % 6) {
        Some(plain) => *plain,
        None => Policy::ApproxLru(share),
    }
}

fn tenant(pool: &Pool, inbox: &Arc<KeeperInbox>, hasher: Hasher) -> Arc<TenantStore> {
    let config = TenantConfig {
        shards: 4,
        ..TenantConfig::with_keeper(Arc::clone(inbox), hasher)
    };
    let store = TenantStore::new(pool, config);
    store.set_grant(16 * MIB, 0);
    store
}

#[test]
fn threads_see_their_own_last_writes_or_nothing() {
    let pool = Pool::start(256 * MIB, Some(512 * MIB)).unwrap();
    let inbox = KeeperInbox::new(Box::new(|| {}));
    let store = tenant(&pool, &inbox, Hasher::random().unwrap());
    let clock = AtomicU64::new(1_700_000_000_000);
    let is_over = AtomicBool::new(false);
    let hits: u64 = std::thread::scope(|scope| {
        let (store, clock, is_over) = (&store, &clock, &is_over);
        scope.spawn(move || {
            let mut keeper = Keeper::new(inbox);
            let mut turn = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                turn += 1;
                let now = UnixMs(clock.fetch_add(1, Ordering::Relaxed));
                keeper.run(now, Duration::from_micros(20));
                if turn.is_multiple_of(512) {
                    store.set_grant((1 + mixed(turn) % 32) * MIB, 0);
                }
                if turn.is_multiple_of(4096) {
                    store.set_policy(any_policy(mixed(turn)));
                }
                std::thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|n| scope.spawn(move || work(store, n, OPERATIONS, clock)))
            .collect();
        let hits = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        is_over.store(true, Ordering::Relaxed);
        hits
    });
    assert!(hits > THREADS * OPERATIONS / 50, "{hits} hits");
    store.clear();
    assert_eq!(store.usage_bytes(), 0);
    assert_eq!(pool.stats().usage_bytes, 0);
}

/// Takes one report after the other until the work is over, and one more. How many had all records.
fn watch(store: &Arc<TenantStore>, is_over: &AtomicBool, now: UnixMs) -> u64 {
    let (mut before, mut complete) = (TenantCounters::default(), 0);
    let mut last_of_keys = HashMap::new();
    loop {
        // It is read first: operations done by then are in the report.
        let was_over = is_over.load(Ordering::Acquire);
        let report = store.report(TenantId(1), now).snapshot;
        let samples = report.samples;
        assert!(samples.records.is_sorted_by(|a, b| a.sequence < b.sequence));
        for sample in &samples.records {
            assert!(samples.threshold.takes(sample.order));
            let last = last_of_keys.insert(sample.order, sample.sequence);
            assert!(last.is_none_or(|last| last < sample.sequence), "out of order");
        }
        let count = |kinds: &[SampleKind]| {
            let is_meant = |sample: &&tidemark_types::Sample| kinds.contains(&sample.kind);
            samples.records.iter().filter(is_meant).count() as u64
        };
        let after = report.counters;
        let recorded = [
            count(&[SampleKind::GetHit, SampleKind::GetMiss]),
            count(&[SampleKind::GetHit]),
            count(&[SampleKind::Fill, SampleKind::Overwrite]),
        ];
        let counted = [
            after.gets - before.gets,
            after.hits - before.hits,
            after.sets - before.sets,
        ];
        if samples.threshold == SamplingThreshold::ALL {
            assert_eq!(recorded, counted);
            complete += u64::from(counted[0] > 0);
        } else {
            assert!(
                recorded
                    .iter()
                    .zip(counted)
                    .all(|(recorded, counted)| *recorded <= counted)
            );
        }
        before = after;
        store.set_sampling(SamplingThreshold::ALL);
        if was_over {
            return complete;
        }
    }
}

#[test]
fn reports_taken_meanwhile_have_every_record() {
    let pool = Pool::start(256 * MIB, Some(512 * MIB)).unwrap();
    let store = tenant(&pool, &KeeperInbox::new(Box::new(|| {})), Hasher::random().unwrap());
    store.set_sampling(SamplingThreshold::ALL);
    let clock = AtomicU64::new(1_700_000_000_000);
    let is_over = AtomicBool::new(false);
    let complete = std::thread::scope(|scope| {
        let (store, clock, is_over) = (&store, &clock, &is_over);
        let watcher = scope.spawn(move || watch(store, is_over, UnixMs(1_700_000_000_000)));
        let workers: Vec<_> = (0..THREADS)
            .map(|n| scope.spawn(move || work(store, n, SAMPLED_OPERATIONS, clock)))
            .collect();
        let hits: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        assert!(hits > 0);
        is_over.store(true, Ordering::Release);
        watcher.join().unwrap()
    });
    assert!(complete > 10, "{complete} reports had all records");
}
