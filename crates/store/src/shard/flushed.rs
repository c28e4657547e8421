//! Flushes: what they remove is gone at once, their work is not the larger the more there was, and nothing has to go that
//! is written afterwards.

use std::sync::Arc;

use tidemark_types::{MIB, Policy, UNIT_BYTES, UnixMs};

use super::Upkeep;
use crate::{Attributes, Pool, TenantStore, undriven};

const NOW: UnixMs = UnixMs(1_000_000_000_000);
const GRANT: u64 = 32 * MIB;
/// Longer than what lies in the log.
const LARGE: usize = 300 << 10;

fn tenant(shards: usize) -> (Arc<TenantStore>, Pool) {
    let pool = Pool::without_thread(64 * MIB, None).unwrap();
    (undriven::tenant(&pool, shards, Policy::default(), 1, GRANT), pool)
}

fn put(store: &Arc<TenantStore>, db: u8, name: u64, value: &[u8]) {
    let name = name.to_le_bytes();
    store
        .put(&store.key(db, &name), value, Attributes::default(), NOW)
        .unwrap();
}

fn has(store: &Arc<TenantStore>, db: u8, name: u64) -> bool {
    let name = name.to_le_bytes();
    let key = store.key(db, &name);
    store.lock(store.shard_of(key.hash)).peek(&key, NOW).is_some()
}

fn counts(store: &Arc<TenantStore>, db: u8) -> (u64, u64) {
    let items = store.sum(|shard| shard.items_in(db));
    (items, store.sum(|shard| shard.counters().evicted))
}

fn audit(store: &Arc<TenantStore>) {
    (0..store.shards()).for_each(|shard| store.lock(shard).audit());
}

#[test]
fn a_flush_gives_nothing_back_by_itself_and_upkeep_little_at_a_time() {
    let (store, pool) = tenant(1);
    (0..20_000).for_each(|name| put(&store, 0, name, &[7; 1000]));
    (0..10).for_each(|name| put(&store, 0, 1 << 40 | name, &[7; LARGE]));
    let pinned: Vec<_> = [5, 1 << 40]
        .into_iter()
        .map(|name: u64| {
            let name = name.to_le_bytes();
            let key = store.key(0, &name);
            store.lock(0).pin(&key, 1000).unwrap()
        })
        .collect();
    for db in [None, Some(0)] {
        let before = pool.stats().usage_bytes;
        store.flush(db, NOW);
        assert_eq!((counts(&store, 0), has(&store, 0, 5)), ((0, 0), false));
        assert_eq!((pool.stats().usage_bytes, store.usage_bytes()), (before, before));
        audit(&store);
        let longest = 8 * UNIT_BYTES;
        let (mut last, mut pieces) = (before, 0);
        while store.upkeep(0, NOW) == Upkeep::More {
            let held = pool.stats().usage_bytes;
            assert!(last - held <= 16 * longest, "{} bytes in a piece", last - held);
            assert_eq!(store.usage_bytes(), held);
            (last, pieces) = (held, pieces + 1);
            audit(&store);
        }
        assert!(pieces >= 3, "{pieces} pieces");
        // A segment and five units of the pinned values are left.
        assert!(last <= longest + 5 * UNIT_BYTES, "{last} bytes of {before}");
        (0..20_000).for_each(|name| put(&store, 0, name, &[8; 1000]));
    }
    let values = pinned.iter().map(|pin| pin.parts().flatten().all(|&byte| byte == 7));
    assert!(values.into_iter().all(|same| same));
    store.flush(None, NOW);
    drop(pinned);
    while store.upkeep(0, NOW) == Upkeep::More {}
    assert_eq!((pool.stats().usage_bytes, store.usage_bytes()), (0, 0));
}

/// Nobody has given anything back yet, and the grant was full.
#[test]
fn what_is_written_after_a_flush_stays() {
    for shards in [1, 4] {
        for db in [None, Some(0)] {
            let (store, pool) = tenant(shards);
            (0..40_000).for_each(|name| put(&store, 0, name, &[7; 1000]));
            let (_, evicted) = counts(&store, 0);
            assert!(evicted > 0, "the grant was not full");
            store.flush(db, NOW);
            // In one shard only: it needs what the others have put aside.
            let is_first = |name: &u64| store.shard_of(store.key(0, &name.to_le_bytes()).hash) == 0;
            let names: Vec<u64> = (50_000..).filter(is_first).take(25_000).collect();
            for name in &names {
                put(&store, 0, *name, &[8; 1000]);
                assert!(store.usage_bytes() <= GRANT && pool.stats().usage_bytes <= GRANT);
            }
            assert_eq!(counts(&store, 0), (25_000, evicted));
            assert!(names.iter().all(|name| has(&store, 0, *name)));
            audit(&store);
            store.clear();
            assert_eq!((pool.stats().usage_bytes, store.usage_bytes()), (0, 0));
        }
    }
}

/// Items of two databases lie between each other.
#[test]
fn of_mixed_databases_a_piece_removes_a_batch() {
    let (store, _pool) = tenant(1);
    for name in 0..10_000 {
        put(&store, 0, name, &[7; 500]);
        put(&store, 1, name, &[7; 500]);
    }
    let before = store.usage_bytes();
    store.flush(Some(1), NOW);
    assert_eq!((counts(&store, 0).0, counts(&store, 1).0), (10_000, 0));
    // Written in between: none of it goes.
    (20_000..21_000).for_each(|name| put(&store, 1, name, &[8; 500]));
    let entries = || store.lock(0).index.len();
    let mut last = entries();
    assert_eq!(last, 21_000);
    while store.upkeep(0, NOW) == Upkeep::More {
        let left = entries();
        assert!(last - left <= 16, "{} in a piece", last - left);
        last = left;
    }
    audit(&store);
    assert_eq!((last, store.lock(0).flush_pending), (11_000, false));
    assert!((0..10_000).all(|name| has(&store, 0, name) && !has(&store, 1, name)));
    assert!((20_000..21_000).all(|name| has(&store, 1, name)));
    assert!(
        store.usage_bytes() < before * 7 / 10,
        "{} of {before}",
        store.usage_bytes()
    );
}
