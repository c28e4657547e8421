//! The model test: random operations on a tenant's store against a map, which allows misses and nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemark_types::{LogShare, MIB, Policy, UNIT_BYTES, UnixMs};

use crate::hash::Hasher;
use crate::item::Attributes;
use crate::pool::Pool;
use crate::rogue::{Rogue, Way};
use crate::shard::{DATABASES, Value};
use crate::shared::Hooks;
use crate::tenant::{Keeper, KeeperInbox, PinnedValue, Reservation, TenantConfig, TenantStore};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Expected {
    value: Vec<u8>,
    attributes: Attributes,
}

type Name = (u8, Vec<u8>);

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
struct Load {
    seed: u64,
    policy: Policy,
    shards: usize,
    grant_bytes: u64,
    keys: u64,
    value_max: u64,
    /// One write in so many is of up to a mebibyte.
    large_one_in: u64,
    dbs: u64,
    operations: u64,
    /// How a policy behaves that the program supplies, again and again.
    own: Option<Way>,
}

struct Model {
    load: Load,
    random: Random,
    pool: Pool,
    tenant: Arc<TenantStore>,
    keeper: Keeper,
    now: UnixMs,
    expected: HashMap<Name, Expected>,
    /// Every token that a key ever had.
    tokens: HashMap<Name, HashSet<u64>>,
    pins: Vec<(PinnedValue, Vec<u8>)>,
    reservations: Vec<(Reservation, Name, Expected)>,
    hits: u64,
    refused: u64,
    /// Policies of the program that were replaced.
    faults: Arc<AtomicU64>,
}

impl Model {
    fn new(load: Load) -> Self {
        let pool = Pool::without_thread(256 * MIB, Some(512 * MIB)).unwrap();
        let inbox = KeeperInbox::new(Box::new(|| {}));
        let config = TenantConfig {
            shards: load.shards,
            policy: load.policy,
            ..TenantConfig::with_keeper(Arc::clone(&inbox), Hasher::with_seed(load.seed))
        };
        let faults = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&faults);
        let hooks = Hooks {
            replaced: Some(Arc::new(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
            })),
            ..Hooks::default()
        };
        let tenant = TenantStore::with_hooks(&pool, config, hooks);
        tenant.set_grant(load.grant_bytes, 0);
        Self {
            load,
            random: Random(load.seed),
            pool,
            tenant,
            keeper: Keeper::new(inbox),
            now: UnixMs(1_700_000_000_000),
            expected: HashMap::new(),
            tokens: HashMap::new(),
            pins: Vec::new(),
            reservations: Vec::new(),
            hits: 0,
            refused: 0,
            faults,
        }
    }

    fn run(mut self) {
        for n in 0..self.load.operations {
            self.operation();
            if n % 500 == 0 {
                self.audit();
            }
        }
        self.audit();
        // A store that never holds anything would pass everything above.
        assert!(
            self.hits > self.load.operations / 200,
            "{} hits, {} refused",
            self.hits,
            self.refused
        );
        let faults = self.faults.load(Ordering::Relaxed);
        match self.load.own {
            Some(Way::Panics | Way::Babbles) => assert!(faults > 0, "nothing went wrong"),
            // To notice it takes more than what is written here, and it is hardly ever supplied for long enough.
            Some(Way::Hoards) => {}
            Some(Way::Moody) | None => assert_eq!(faults, 0),
        }
        self.pins.clear();
        self.reservations.clear();
        self.tenant.clear();
        self.audit();
        assert_eq!(self.tenant.usage_bytes(), 0);
        assert_eq!(self.pool.stats().usage_bytes, 0);
    }

    fn operation(&mut self) {
        let name = self.name();
        match self.random.below(1000) {
            0..=449 => self.write(name),
            450..=749 => self.read(&name),
            750..=829 => self.delete(&name),
            830..=869 => self.set_expiry(&name),
            870..=899 => self.take_token(&name),
            900..=919 => self.mark(&name),
            920..=929 => self.now = self.now.plus(Duration::from_millis(self.random.next() % 3_000)),
            930..=967 => self.upkeep(),
            968..=970 => self.change_grant(),
            971..=973 => self.change_policy(),
            974..=986 => self.pin(&name),
            987..=990 => drop((!self.pins.is_empty()).then(|| self.pins.swap_remove(0))),
            991 => self.reserve(name),
            992..=995 => self.end_reservation(),
            996 if self.random.chance(8) => self.flush(name.0),
            997 if self.random.chance(16) => self.clear(),
            _ => self.scan(name.0),
        }
    }

    fn name(&mut self) -> Name {
        let db = if self.random.chance(3) {
            self.random.below(self.load.dbs) as u8
        } else {
            0
        };
        // Skewed: half of all operations are on an eighth of the keys.
        let fraction = (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let n = (fraction.powi(3) * self.load.keys as f64) as u64;
        let mut key = format!("key-{n}").into_bytes();
        if n.is_multiple_of(97) {
            key.resize(300 + n as usize % 1000, b'x');
        }
        (db, key)
    }

    fn attributes(&mut self) -> Attributes {
        let expiry = self.random.chance(3).then(|| {
            let life = 1 << self.random.below(16);
            self.now.plus(Duration::from_millis(1 + self.random.below(life)))
        });
        let client_flags = if self.random.chance(4) {
            self.random.next() as u32
        } else {
            0
        };
        Attributes {
            expiry,
            client_flags,
            token: None,
            stale: false,
            won: false,
        }
    }

    fn write(&mut self, (db, key): Name) {
        let large = self.load.large_one_in > 0 && self.random.chance(self.load.large_one_in);
        let bound = if large { MIB + 1 } else { self.load.value_max };
        let length = self.random.below(bound) as usize;
        // Contents that tell which write they come from.
        let stamp = self.random.next().to_le_bytes();
        let value: Vec<u8> = stamp.iter().copied().cycle().take(length).collect();
        let mut attributes = self.attributes();
        let handle = self.tenant.key(db, &key);
        if self.random.chance(10) {
            let token = self.tenant.lock(self.tenant.shard_of(handle.hash)).new_token();
            attributes.token = Some(token);
            assert!(
                self.tokens.entry((db, key.clone())).or_default().insert(token),
                "a token twice"
            );
        }
        let written = if self.random.chance(2) {
            self.tenant.put(&handle, &value, attributes, self.now)
        } else {
            self.tenant
                .lock(self.tenant.shard_of(handle.hash))
                .put(&handle, &value, attributes, self.now)
        };
        if written.is_ok() {
            let mut shard = self.tenant.lock(self.tenant.shard_of(handle.hash));
            let found = shard.peek(&handle, self.now);
            assert!(
                found.is_none_or(|found| found.value().to_vec() == value),
                "not what was just written"
            );
            drop(shard);
            self.expected.insert((db, key), Expected { value, attributes });
        } else {
            self.refused += 1;
        }
    }

    fn read(&mut self, name: &Name) {
        let handle = self.tenant.key(name.0, &name.1);
        let mut shard = self.tenant.lock(self.tenant.shard_of(handle.hash));
        let expected = self.expected.get(name);
        match shard.get(&handle, self.now) {
            Some(found) => {
                let expected = expected.unwrap_or_else(|| panic!("{name:?} should not be there"));
                assert_eq!(found.attributes(), expected.attributes, "{name:?}");
                assert_eq!(found.value().len(), expected.value.len(), "{name:?}");
                assert!(found.value().to_vec() == expected.value, "{name:?}: another value");
                assert!(
                    expected.attributes.expiry.is_none_or(|expiry| expiry > self.now),
                    "{name:?} has expired"
                );
                let (from, to) = (expected.value.len() / 3, expected.value.len() / 2);
                let mut part = Vec::new();
                found.value().append_range(from, to, &mut part);
                assert!(part == expected.value[from..to]);
                self.hits += 1;
            }
            None => {
                drop(shard);
                self.expected.remove(name);
            }
        }
    }

    fn delete(&mut self, name: &Name) {
        let handle = self.tenant.key(name.0, &name.1);
        let mut shard = self.tenant.lock(self.tenant.shard_of(handle.hash));
        let was_there = shard.delete(&handle, self.now);
        let expected = self.expected.remove(name);
        assert!(!was_there || expected.is_some());
        assert!(shard.get(&handle, self.now).is_none());
    }

    fn set_expiry(&mut self, name: &Name) {
        let expiry = (!self.random.chance(4)).then(|| {
            let life = 1 << self.random.below(16);
            UnixMs(self.now.0 + self.random.below(life) - (life / 16).min(1))
        });
        let handle = self.tenant.key(name.0, &name.1);
        let done = self
            .tenant
            .lock(self.tenant.shard_of(handle.hash))
            .set_expiry(&handle, expiry, self.now);
        match (done, self.expected.get_mut(name)) {
            (Ok(true), Some(expected)) => expected.attributes.expiry = expiry,
            (Ok(true), None) => panic!("{name:?} should not be there"),
            (Ok(false), _) => drop(self.expected.remove(name)),
            (Err(_), _) => {}
        }
    }

    fn take_token(&mut self, name: &Name) {
        let handle = self.tenant.key(name.0, &name.1);
        let token = self
            .tenant
            .lock(self.tenant.shard_of(handle.hash))
            .token(&handle, self.now);
        let Ok(Some(token)) = token else { return };
        let expected = self
            .expected
            .get_mut(name)
            .unwrap_or_else(|| panic!("{name:?} should not be there"));
        if expected.attributes.token != Some(token) {
            assert_eq!(
                expected.attributes.token, None,
                "{name:?}: a token changed without a write"
            );
            assert!(
                self.tokens.entry(name.clone()).or_default().insert(token),
                "{name:?}: a token twice"
            );
            expected.attributes.token = Some(token);
        }
    }

    fn mark(&mut self, name: &Name) {
        let (stale, won) = (self.random.chance(2), self.random.chance(2));
        let handle = self.tenant.key(name.0, &name.1);
        let mut shard = self.tenant.lock(self.tenant.shard_of(handle.hash));
        let Some(before) = shard.peek(&handle, self.now).map(|found| found.attributes()) else {
            return;
        };
        if shard.set_attributes(&handle, Attributes { stale, won, ..before }, self.now) == Ok(true) {
            let attributes = &mut self.expected.get_mut(name).unwrap().attributes;
            (attributes.stale, attributes.won) = (stale, won);
        }
    }

    fn upkeep(&mut self) {
        for _ in 0..self.random.below(20) {
            let _ = self.keeper.run(self.now, Duration::ZERO);
        }
    }

    /// Half of the times back to the load's own.
    fn change_policy(&mut self) {
        let policy = if self.random.chance(2) {
            self.load.policy
        } else {
            any_policy(&mut self.random)
        };
        self.tenant.set_policy(policy);
        if let Some(way) = self.load.own {
            let rogue = Rogue::new(way, self.random.next());
            self.tenant.supply_eviction(Arc::new(rogue)).unwrap();
        }
    }

    fn change_grant(&mut self) {
        let (low, high) = (4 * UNIT_BYTES, 2 * self.load.grant_bytes);
        let grant = if self.random.chance(4) {
            low + self.random.below(high - low)
        } else {
            self.load.grant_bytes
        };
        self.tenant.set_grant(grant, 0);
        if self.random.chance(2) {
            while self.keeper.run(self.now, Duration::from_secs(1)) == Some(Duration::ZERO) {}
            if self.pins.is_empty() && self.reservations.is_empty() {
                assert!(
                    self.tenant.usage_bytes() <= grant,
                    "{} of {grant}",
                    self.tenant.usage_bytes()
                );
            }
        }
    }

    fn pin(&mut self, name: &Name) {
        let handle = self.tenant.key(name.0, &name.1);
        let mut shard = self.tenant.lock(self.tenant.shard_of(handle.hash));
        let Some(found) = shard.get(&handle, self.now) else {
            return;
        };
        let value: Value<'_> = found.value();
        let (copy, length) = (value.to_vec(), value.len());
        if self.pins.len() < 8
            && let Some(pin) = shard.pin(&handle, length)
        {
            drop(shard);
            self.pins.push((pin, copy));
        }
    }

    fn reserve(&mut self, name: Name) {
        // Nothing of it can be evicted until it is written, so that a few hold no more than the grant. No two of its units
        // are equal.
        let most = MIB.min(self.load.grant_bytes / 4);
        let first = self.random.next() as u8;
        let value: Vec<u8> = (0..=self.random.below(most))
            .map(|at| first.wrapping_add((at % 7) as u8))
            .collect();
        let handle = self.tenant.key(name.0, &name.1);
        let reservation = if self.random.chance(2) {
            self.tenant.begin(handle.hash, value.len())
        } else {
            let mut shard = self.tenant.lock(self.tenant.shard_of(handle.hash));
            shard.reserve(value.len(), self.now).ok().flatten()
        };
        if let Some(reservation) = reservation
            && self.reservations.len() < 2
        {
            let attributes = self.attributes();
            self.reservations
                .push((reservation, name, Expected { value, attributes }));
        }
    }

    /// Writes a piece of the last value that is being written, or ends it.
    fn end_reservation(&mut self) {
        let Some((mut reservation, name, new)) = self.reservations.pop() else {
            return;
        };
        if self.random.chance(8) {
            return;
        }
        let from = reservation.written_bytes();
        let missing = (new.value.len() - from) as u64;
        if missing > 0 {
            let to = from + 1 + self.random.below(missing) as usize;
            let is_written = reservation.write(&new.value[from..to], self.now).is_ok();
            assert_eq!(reservation.written_bytes(), if is_written { to } else { from });
            if is_written {
                self.reservations.push((reservation, name, new));
            }
            return;
        }
        let handle = self.tenant.key(name.0, &name.1);
        if reservation.commit(&handle, new.attributes, self.now).is_ok() {
            self.expected.insert(name, new);
        }
    }

    fn flush(&mut self, db: u8) {
        self.tenant.flush(Some(db), self.now);
        self.expected.retain(|(of, _), _| *of != db);
        assert_eq!(self.tenant.sum(|shard| shard.items_in(db)), 0);
    }

    fn clear(&mut self) {
        self.tenant.clear();
        self.expected.clear();
    }

    fn scan(&mut self, db: u8) {
        let mut seen = HashSet::new();
        for shard in 0..self.tenant.shards() {
            let mut position = Some(0);
            while let Some(from) = position {
                let guard = self.tenant.lock(shard);
                position = guard.scan(from, db, self.now, |key| seen.extend([key.to_vec()]), || true);
            }
        }
        for key in &seen {
            assert!(
                self.expected.contains_key(&(db, key.clone())),
                "{db} {key:?} should not be there"
            );
        }
        // The scan missed the keys that are there without having been seen.
        let missed = self
            .expected
            .keys()
            .filter(|(of, key)| *of == db && !seen.contains(key));
        for (_, key) in missed {
            let handle = self.tenant.key(db, key);
            let mut shard = self.tenant.lock(self.tenant.shard_of(handle.hash));
            assert!(shard.peek(&handle, self.now).is_none(), "{db} {key:?} was not scanned");
        }
    }

    fn audit(&self) {
        for shard in 0..self.tenant.shards() {
            self.tenant.lock(shard).audit();
        }
        let sum = self.tenant.sum(|shard| shard.usage_bytes());
        let held = self.tenant.usage_bytes();
        assert_eq!(held, sum + self.tenant.buried_bytes());
        assert_eq!(self.pool.stats().usage_bytes, held);
        for (pin, value) in &self.pins {
            assert!(pin.parts().flatten().eq(value.iter()), "a pinned value changed");
        }
    }
}

fn approx_lru(thousandths: u64) -> Policy {
    Policy::ApproxLru(LogShare::from_thousandths(thousandths as u16).unwrap())
}

fn any_policy(random: &mut Random) -> Policy {
    match Policy::PLAIN.get(random.below(4) as usize) {
        Some(plain) => *plain,
        None => approx_lru(random.below(11) * 100),
    }
}

const PLAIN: Load = Load {
    seed: 1,
    policy: Policy::Fifo,
    shards: 1,
    grant_bytes: MIB,
    keys: 20_000,
    value_max: 300,
    large_one_in: 0,
    dbs: 1,
    operations: 60_000,
    own: None,
};

mod loads;
