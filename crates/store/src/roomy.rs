//! A tenant with more memory than it needs loses nothing, whatever comes and goes and in whatever order.
//!
//! It is compared with a map that has every key: each is found with its value, and the counts of items are exact at every
//! visit of the keeper. The grant changes, but never to less than there is. Time is virtual.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidemark_types::{MIB, Policy, UnixMs};

use crate::tenant::{Keeper, KeeperInbox};
use crate::{Attributes, Hasher, Pool, TenantConfig, TenantStore};

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const GRANT: u64 = 48 * MIB;
/// Twice what the most items of a run take.
const LEAST_GRANT: u64 = 12 * MIB;

struct Roomy {
    store: Arc<TenantStore>,
    keeper: Keeper,
    pool: Pool,
    now: UnixMs,
    /// Value and expiry by database and name.
    items: HashMap<(u8, u64), (u64, Option<UnixMs>)>,
    /// Keys that expire live for less.
    life_ms: u64,
    random: u64,
    names: u64,
}

impl Roomy {
    fn new(shards: usize, policy: Policy, seed: u64) -> Self {
        let pool = Pool::without_thread(64 * MIB, None).unwrap();
        let inbox = KeeperInbox::new(Box::new(|| {}));
        let config = TenantConfig {
            shards,
            policy,
            ..TenantConfig::with_keeper(Arc::clone(&inbox), Hasher::with_seed(seed))
        };
        let store = TenantStore::new(&pool, config);
        store.set_grant(GRANT, 0);
        Self {
            store,
            keeper: Keeper::new(inbox),
            pool,
            now: NOW,
            items: HashMap::new(),
            life_ms: 3_000,
            random: seed << 32,
            names: 0,
        }
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// New keys of a database. One in `expiring` of them has a life; none if that is zero.
    fn insert(&mut self, db: u8, count: u64, expiring: u64) {
        for _ in 0..count {
            self.names += 1;
            let life = Duration::from_millis(1 + self.below(self.life_ms));
            let expiry = (expiring > 0 && self.names.is_multiple_of(expiring)).then(|| self.now.plus(life));
            self.write(db, self.names, expiry);
        }
    }

    fn write(&mut self, db: u8, name: u64, expiry: Option<UnixMs>) {
        let (value, bytes) = (self.next(), name.to_le_bytes());
        let key = self.store.key(db, &bytes);
        let attributes = Attributes {
            expiry,
            ..Attributes::default()
        };
        self.store
            .put(&key, &value.to_le_bytes(), attributes, self.now)
            .unwrap();
        self.items.insert((db, name), (value, expiry));
    }

    fn delete(&mut self, db: u8, name: u64) {
        let (now, bytes) = (self.now, name.to_le_bytes());
        let key = self.store.key(db, &bytes);
        let was_there = self.store.lock(self.store.shard_of(key.hash)).delete(&key, now);
        let expected = self.items.remove(&(db, name));
        let lives = expected.is_some_and(|(_, expiry)| expiry.is_none_or(|expiry| expiry > now));
        assert_eq!(was_there, lives, "{db} {name}");
    }

    /// Deletes as a client does with SCAN and DEL, from a part of the positions on.
    fn delete_in_the_order_of_hashes(&mut self, db: u8, from: u64, most: usize, one_in: usize) {
        let (store, now) = (Arc::clone(&self.store), self.now);
        let mut deleted = 0;
        for shard in 0..store.shards() {
            let mut position = Some(from);
            while let Some(at) = position
                && deleted < most
            {
                let mut seen = Vec::new();
                let name = |key: &[u8]| u64::from_le_bytes(key.try_into().unwrap());
                position = store.lock(shard).scan(at, db, now, |key| seen.push(name(key)), || true);
                for name in seen.into_iter().step_by(one_in) {
                    self.delete(db, name);
                    deleted += 1;
                }
            }
        }
    }

    fn delete_in_the_order_of_writing(&mut self, db: u8, most: usize) {
        let mut names: Vec<u64> = self.items.keys().filter(|(of, _)| *of == db).map(|key| key.1).collect();
        names.sort_unstable();
        names.into_iter().take(most).for_each(|name| self.delete(db, name));
    }

    fn flush(&mut self, db: Option<u8>) {
        self.store.flush(db, self.now);
        self.items.retain(|(of, _), _| db.is_some_and(|db| *of != db));
        for (items, of) in (0..3).map(|of| (self.store.sum(|shard| shard.items_in(of)), of)) {
            assert!(items == 0 || db.is_some_and(|db| db != of), "{items} in {of}");
        }
    }

    /// Time passes, and the keeper does what there is to do, but for the last pieces.
    fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        for _ in 0..self.below(200) {
            let _ = self.keeper.run(self.now, Duration::ZERO);
        }
    }

    /// Two seconds later, when the keeper has visited all shards in each. The first visit may end a sweep that began before.
    fn visit(&mut self) {
        for _ in 0..2 {
            self.now = self.now.plus(SECOND);
            while self.keeper.run(self.now, Duration::from_millis(1)) == Some(Duration::ZERO) {}
        }
        let now = self.now;
        self.items
            .retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
        for db in 0..3 {
            let of_db = || self.items.iter().filter(|((of, _), _)| *of == db);
            let expiring = of_db().filter(|(_, (_, expiry))| expiry.is_some()).count() as u64;
            let counted = (
                self.store.sum(|shard| shard.items_in(db)),
                self.store.sum(|shard| shard.expiring_in(db)),
            );
            assert_eq!(counted, (of_db().count() as u64, expiring), "database {db}");
        }
    }

    /// Every key is there that has not expired, with its value, and none has been evicted.
    fn check(&self) {
        let mut missing = 0;
        for ((db, name), (value, expiry)) in &self.items {
            if expiry.is_some_and(|expiry| expiry <= self.now) {
                continue;
            }
            let bytes = name.to_le_bytes();
            let key = self.store.key(*db, &bytes);
            let mut shard = self.store.lock(self.store.shard_of(key.hash));
            match shard.peek(&key, self.now) {
                Some(found) => assert_eq!(found.value().to_vec(), value.to_le_bytes()),
                None => missing += 1,
            }
        }
        let evicted = self.store.sum(|shard| shard.counters().evicted);
        assert_eq!((missing, evicted), (0, 0), "of {} items", self.items.len());
        (0..self.store.shards()).for_each(|shard| self.store.lock(shard).audit());
        assert_eq!(self.pool.stats().usage_bytes, self.store.usage_bytes());
    }

    /// Everything goes, and with it all memory.
    fn end(mut self) {
        self.flush(None);
        // One second for the memory to linger, and one for the visit after it.
        (0..3).for_each(|_| self.visit());
        self.check();
        assert_eq!(self.store.usage_bytes(), 0);
    }
}

/// Keys that stay lie between those that expire, which a sweep removes in the order of their hashes: the index of what is
/// left is half as full in its swept part as in the other.
#[test]
fn what_stays_is_not_lost_when_a_sweep_removes_the_rest() {
    for (seed, shards) in [(1, 1), (2, 1), (3, 2), (4, 4), (5, 8)] {
        for expiring in [1, 2, 3] {
            let mut roomy = Roomy::new(shards, Policy::default(), seed);
            // All within one second: a single sweep finds them.
            roomy.life_ms = 900;
            roomy.insert(0, 66_000, expiring);
            for _ in 0..2 {
                roomy.visit();
                roomy.check();
            }
            assert_eq!(roomy.items.len() as u64, 66_000 - 66_000 / expiring);
            roomy.end();
        }
    }
}

/// As a client does that cleans up.
#[test]
fn what_is_left_is_not_lost_when_a_client_deletes_what_a_scan_shows() {
    for seed in 1..4 {
        for from in [0, 1 << 62, 1 << 63] {
            let mut roomy = Roomy::new(2, Policy::default(), seed);
            roomy.insert(0, 60_000, 0);
            for one_in in [1, 2, 1] {
                roomy.delete_in_the_order_of_hashes(0, from, 15_000, one_in);
                roomy.check();
                roomy.visit();
                roomy.check();
            }
            // The emptier part fills again, and the fuller one more.
            roomy.insert(0, 50_000, 0);
            roomy.check();
            roomy.end();
        }
    }
}

#[test]
fn equals_a_map_whatever_comes_and_goes() {
    for seed in 0..12 {
        let policy = Policy::PLAIN[seed as usize % Policy::PLAIN.len()];
        let mut roomy = Roomy::new(1 << (seed % 4), policy, seed + 1);
        for _ in 0..40 {
            let (db, some) = (roomy.below(3) as u8, roomy.below(12_000));
            match roomy.below(12) {
                0..=3 if roomy.items.len() < 100_000 => {
                    let expiring = roomy.below(4);
                    roomy.insert(db, some, expiring);
                }
                0..=4 => {
                    let (from, one_in) = (roomy.next(), 1 + roomy.below(3) as usize);
                    roomy.delete_in_the_order_of_hashes(db, from, some as usize, one_in);
                }
                5 => roomy.delete_in_the_order_of_writing(db, some as usize),
                6 if some < 4_000 => roomy.flush(Some(db)),
                7 if some < 2_000 => roomy.flush(None),
                8 => {
                    let grant = LEAST_GRANT + roomy.below(GRANT - LEAST_GRANT);
                    roomy.store.set_grant(grant, 0);
                }
                9 | 10 => {
                    let time = Duration::from_millis(roomy.below(900));
                    roomy.pass(time);
                }
                _ => roomy.visit(),
            }
            roomy.check();
        }
        roomy.end();
    }
}
