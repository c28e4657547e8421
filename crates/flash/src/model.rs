//! The volume against a model, on a simulated device with faults and crashes: random runs from seeds.
//!
//! I1 never wrong bytes for a key. I2 never an older content than the last acknowledged delete or overwrite, within the staleness. I3 a
//! failing device means misses, no panic, no hang. I4 what was sealed and flushed comes back. I5 segments of tenants add up and
//! stay within grants. I6 opening twice gives the same. I7 items are counted by the databases that they are in.

mod faults;

use std::collections::HashMap;

use crate::buffer::Buffer;
use crate::device::{Device, Faults, SimDevice};
use crate::format::{SEGMENT_BYTES, TenantUuid};
use crate::index::{DATABASES, IndexEntry, Table};
use crate::journal::Barrier;
use crate::recover;
use crate::volume::{Io, IoKind, Item, Lookup, Settings, Staleness, State, TenantNumber, Volume};

const SIZE_BYTES: u64 = 40 << 20;
const TENANTS: u32 = 2;
const KEYS: u64 = 2000;
const STEPS: u32 = 6000;
const BOUND_MS: u32 = 20;
/// Random runs of all tests together.
const SEEDS: u64 = 200;
/// The longest that a request is stalled.
const STALL_MS_MAX: u64 = 10_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The faults that a run inflicts on the device.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    faults: Faults,
    crashes: bool,
    /// Some requests take much longer than others.
    stalls: bool,
}

/// The facts about a key.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The version that a put took in and nothing removed, while no crash came between.
    present: Option<u64>,
    /// Versions up to here must never be seen again.
    dead: u64,
    /// Removals that count after a crash only if they were durable, or long enough ago: version, barrier, time.
    removals: Vec<(u64, Barrier, u64)>,
}

struct Run {
    seed: u64,
    random: Random,
    device: SimDevice,
    volume: Volume,
    settings: Vec<Settings>,
    known: HashMap<(u32, u8, u64), Known>,
    version: u64,
    now_ms: u64,
    hits: u64,
    stalls: bool,
    /// Requests that the device has not looked at yet, and until when.
    stalled: Vec<(Io, u64)>,
}

/// So many seeds from this one on; as many more as there are to be of all.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let all = std::env::var("TIDEMARK_FLASH_SEEDS").map_or(SEEDS, |all| all.parse().unwrap());
    first..first + count * all / SEEDS
}

fn settings(seed: u64) -> Vec<Settings> {
    let staleness = [Staleness::Strict, Staleness::Bounded(BOUND_MS), Staleness::None];
    (0..TENANTS)
        .map(|number| Settings {
            uuid: TenantUuid([number as u8 + 1; 16]),
            staleness: staleness[(seed + u64::from(number)) as usize % 3],
            grant_segments: 6 + (seed % 7) as usize,
            write_bytes_per_second: 0,
        })
        .collect()
}

fn hash(db: u8, key: u64) -> u64 {
    // Few tags, so that keys are taken for each other.
    let mixed = (key ^ u64::from(db) << 50).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed & !0xFFFF | (mixed >> 40) & 0x3FF
}

fn key(key: u64) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

fn value(key: u64, version: u64) -> Vec<u8> {
    let length = (key * 37 + version * 101) % 9000;
    let mut value = version.to_le_bytes().to_vec();
    value.extend((0..length).map(|n| (n ^ key ^ version) as u8));
    value
}

impl Run {
    fn new(seed: u64) -> Self {
        let device = SimDevice::new(SIZE_BYTES, seed);
        let settings = settings(seed);
        let mut random = [0; 24];
        random[..8].copy_from_slice(&seed.to_le_bytes());
        let volume = recover::open(&device, &settings, random, None).unwrap().0;
        Self {
            seed,
            random: Random(seed),
            device,
            volume,
            settings,
            known: HashMap::new(),
            version: 0,
            now_ms: 1000,
            hits: 0,
            stalls: false,
            stalled: Vec::new(),
        }
    }

    fn step(&mut self) {
        let tenant = self.random.below(u64::from(TENANTS)) as u32;
        let is_rare = self.random.below(8) == 0;
        let key = self.random.below(KEYS);
        let db = if is_rare { 1 + 7 * (key % 3) as u8 } else { 0 };
        match self.random.below(100) {
            0..45 => self.put(tenant, db, key),
            45..80 => self.get(tenant, db, key),
            80..88 => self.overwrite(tenant, db, key),
            88..94 => self.delete(tenant, db, key),
            94..96 => self.now_ms += self.random.below(8),
            96..97 if self.random.below(40) == 0 => {
                let of_db = (self.random.below(2) == 0).then_some(db);
                self.flush(tenant, of_db);
            }
            97..98 if self.random.below(40) == 0 => {
                let segments = 4 + self.random.below(8) as usize;
                self.settings[tenant as usize].grant_segments = segments;
                self.volume.set_grant(TenantNumber(tenant), segments, self.now_ms);
            }
            _ => self.work(3),
        }
        self.volume.tick(self.now_ms);
        if self.random.below(2) == 0 {
            self.work(1);
        }
    }

    /// Lets the device do some waiting requests, and notes what became durable.
    fn work(&mut self, most: u64) {
        let now_ms = self.now_ms;
        let due: Vec<(Io, u64)> = self.stalled.extract_if(.., |(_, until)| *until <= now_ms).collect();
        for (io, _) in due {
            self.perform(&io);
        }
        for _ in 0..most {
            let Some(io) = self.volume.next_io() else {
                break;
            };
            if self.stalls && self.random.below(40) == 0 {
                let longest = if self.random.below(20) == 0 { STALL_MS_MAX } else { 50 };
                let until = now_ms + self.random.below(longest);
                self.stalled.push((io, until));
            } else {
                self.perform(&io);
            }
        }
    }

    fn perform(&mut self, io: &Io) {
        let mut read = None;
        let result = match &io.kind {
            IoKind::Write { offset, bytes, part } => self.device.write(*offset, &(**bytes).as_ref()[part.clone()]),
            IoKind::Read { offset, bytes } => {
                let buffer = read.insert(Buffer::zeroed(*bytes));
                self.device.read(*offset, buffer.as_mut())
            }
            IoKind::Flush => self.device.flush(),
        };
        let bytes = read.as_ref().map(Buffer::as_ref);
        self.volume
            .io_done(io.id, result.map(|()| bytes).map_err(|_| ()), self.now_ms);
    }

    fn known(&mut self, tenant: u32, db: u8, key: u64) -> &mut Known {
        self.known.entry((tenant, db, key)).or_default()
    }

    fn put(&mut self, tenant: u32, db: u8, id: u64) {
        self.version += 1;
        let version = self.version;
        let item = Item {
            db,
            key: key(id),
            value: value(id, version),
            client_flags: id as u32,
            expires_ms: 0,
            token: version,
        };
        let taken = self
            .volume
            .put(TenantNumber(tenant), hash(db, id), &item, self.now_ms)
            .is_ok();
        let (barrier, now_ms) = (self.volume.barrier(TenantNumber(tenant)), self.now_ms);
        let known = self.known(tenant, db, id);
        // As for any write, older contents are gone. If this was refused, so is the one that memory had.
        known.removals.push((version - 1, barrier, now_ms));
        known.present = taken.then_some(version);
    }

    /// A write that memory keeps.
    fn overwrite(&mut self, tenant: u32, db: u8, id: u64) {
        self.version += 1;
        let version = self.version;
        let barrier = self.volume.drop_unread(TenantNumber(tenant), hash(db, id), self.now_ms);
        let now_ms = self.now_ms;
        let known = self.known(tenant, db, id);
        known.removals.push((version, barrier, now_ms));
        known.present = None;
    }

    fn look(&mut self, tenant: u32, db: u8, id: u64) -> Option<crate::volume::Found> {
        let mut lookup = self
            .volume
            .lookup(TenantNumber(tenant), hash(db, id), db, &key(id), self.now_ms);
        loop {
            match lookup {
                Lookup::Absent => return None,
                Lookup::Found(found) => return Some(found),
                Lookup::Read(read) => {
                    let mut bytes = Buffer::zeroed(read.bytes);
                    let result = self.device.read(read.offset, bytes.as_mut());
                    if self.random.below(4) == 0 {
                        // The world goes on while a read is under way.
                        self.work(2);
                    }
                    lookup = self
                        .volume
                        .finish(read, result.map(|()| bytes.as_ref()).map_err(|_| ()), self.now_ms);
                }
            }
        }
    }

    fn get(&mut self, tenant: u32, db: u8, id: u64) {
        let found = self.look(tenant, db, id);
        let seed = self.seed;
        let known = self.known(tenant, db, id).clone();
        let Some(found) = found else {
            return;
        };
        self.hits += 1;
        let version = found.item.token;
        assert_eq!(
            found.item.value,
            value(id, version),
            "I1, seed {seed}: wrong bytes of key {id}"
        );
        assert_eq!((found.item.db, &found.item.key), (db, &key(id)), "I1, seed {seed}");
        let owner = self.volume.tenant(TenantNumber(tenant)).unwrap();
        let is_its = |entry: &IndexEntry| entry.place() == found.place.unit;
        let entry = owner.matches(hash(db, id)).find(is_its).unwrap();
        assert_eq!(entry.db(), usize::from(db), "I7, seed {seed}");
        assert!(
            version > known.dead,
            "I2, seed {seed}: version {version} of key {id}, and {} is dead",
            known.dead
        );
        if let Some(present) = known.present {
            assert_eq!(version, present, "I2, seed {seed}: an older version of key {id}");
        }
        if let Some((removed, ..)) = known.removals.last() {
            assert!(
                version > *removed,
                "I2, seed {seed}: version {version} of key {id} was removed with {removed}"
            );
        }
        if self.random.below(3) == 0 {
            let memory_has_it = self.random.below(2) == 0;
            let tenant = TenantNumber(tenant);
            if memory_has_it {
                self.volume.promote(tenant, hash(db, id), found.place);
            } else {
                self.volume.demote_clean(tenant, hash(db, id), found.place);
            }
        }
    }

    fn delete(&mut self, tenant: u32, db: u8, id: u64) {
        let Some(found) = self.look(tenant, db, id) else {
            return;
        };
        let barrier = self
            .volume
            .remove(TenantNumber(tenant), hash(db, id), found.place, self.now_ms);
        let (now_ms, version) = (self.now_ms, self.version);
        let known = self.known(tenant, db, id);
        known.removals.push((version, barrier, now_ms));
        known.present = None;
    }

    /// Flushes are waited for.
    fn flush(&mut self, tenant: u32, db: Option<u8>) {
        let barrier = self.volume.flush(TenantNumber(tenant), db, self.now_ms);
        for _ in 0..10_000 {
            if self.volume.is_durable(barrier) || self.volume.is_given_up() {
                break;
            }
            self.volume.commit(self.now_ms);
            self.now_ms += u64::from(self.stalls) * 10;
            self.work(8);
        }
        if self.volume.is_given_up() {
            return;
        }
        assert!(self.volume.is_durable(barrier), "I3, seed {}: a flush hangs", self.seed);
        let version = self.version;
        for ((owner, of_db, _), known) in &mut self.known {
            if *owner == tenant && db.is_none_or(|db| db == *of_db) {
                known.dead = version;
                known.present = None;
                known.removals.clear();
            }
        }
    }

    /// Power is lost; acknowledged writes count by each tenant's staleness.
    fn crash(&mut self) {
        let (volume, now_ms) = (&self.volume, self.now_ms);
        for ((tenant, ..), known) in &mut self.known {
            let staleness = self.settings[*tenant as usize].staleness;
            for (version, barrier, at_ms) in known.removals.drain(..) {
                let counts = match staleness {
                    // A strict write is acknowledged when its barrier is durable.
                    Staleness::Strict | Staleness::None => volume.is_durable(barrier),
                    Staleness::Bounded(ms) => volume.is_durable(barrier) || at_ms + 10 * u64::from(ms) < now_ms,
                };
                if counts {
                    known.dead = known.dead.max(version);
                }
            }
            known.present = None;
        }
        self.stalled.clear();
        self.device.crash();
        self.reopen();
    }

    fn reopen(&mut self) {
        let mut random = [9; 24];
        random[..8].copy_from_slice(&self.now_ms.to_le_bytes());
        let once = recover::open(&self.device, &self.settings, random, None).unwrap().0;
        self.volume = recover::open(&self.device, &self.settings, random, None).unwrap().0;
        let records = |volume: &Volume| {
            (0..TENANTS)
                .map(|n| volume.stats(TenantNumber(n)).records)
                .collect::<Vec<_>>()
        };
        assert_eq!(records(&once), records(&self.volume), "I6, seed {}", self.seed);
    }

    /// I5 and I7.
    fn check_sums(&self) {
        for number in 0..TENANTS {
            let tenant = self.volume.tenant(TenantNumber(number)).unwrap();
            let mut items = [0; DATABASES];
            let entries = tenant.tables().iter().flat_map(Table::each);
            for entry in entries.filter(|entry| !entry.is_shadow()) {
                items[entry.db()] += 1;
            }
            for (db, items) in (0..).zip(items) {
                assert_eq!(tenant.items_in(db), items, "I7, seed {}, database {db}", self.seed);
            }
            assert!(tenant.segments() <= tenant.grant.max(1), "I5, seed {}", self.seed);
            let is_held = |slot: &&crate::volume::Slot| {
                slot.tenant == TenantNumber(number)
                    && matches!(slot.state, State::Open | State::Writing { .. } | State::Sealed)
            };
            let unwanted = self.volume.slots.iter().filter(|slot| {
                matches!(
                    slot.state,
                    State::Writing {
                        outcome: crate::volume::Outcome::Unwanted,
                        ..
                    }
                ) && slot.tenant == TenantNumber(number)
            });
            let held = self.volume.slots.iter().filter(is_held).count() - unwanted.count();
            assert_eq!(held, tenant.segments(), "I5, seed {}", self.seed);
        }
    }

    fn settle(&mut self) {
        self.volume.seal_all(self.now_ms);
        for _ in 0..100_000 {
            if (!self.volume.is_busy() && self.volume.is_committed()) || self.volume.is_given_up() {
                return;
            }
            if !self.volume.is_busy() {
                self.volume.commit(self.now_ms);
            }
            self.now_ms += u64::from(self.stalls) * 10;
            self.work(16);
        }
        panic!("I3, seed {}: the volume does not come to rest", self.seed);
    }
}

fn run(seed: u64, plan: Plan) -> Run {
    let mut run = Run::new(seed);
    run.device.set_faults(plan.faults);
    run.stalls = plan.stalls;
    for step in 0..STEPS {
        run.step();
        if plan.crashes && run.random.below(1500) == 0 {
            run.device.set_faults(Faults::default());
            run.crash();
            run.device.set_faults(plan.faults);
        }
        if step % 64 == 0 {
            run.check_sums();
        }
    }
    run
}

#[test]
fn a_sound_device_serves_what_was_put() {
    for seed in seeds(0, 40) {
        let run = run(seed, Plan::default());
        assert!(
            run.hits > 100 && !run.volume.is_given_up(),
            "seed {seed}: {} hits",
            run.hits
        );
    }
}

#[test]
fn crashes_bring_back_nothing_that_was_removed() {
    let mut hits = 0;
    for seed in seeds(100, 100) {
        let plan = Plan {
            crashes: true,
            ..Plan::default()
        };
        hits += run(seed, plan).hits;
    }
    assert!(hits > 10_000, "{hits}");
}

#[test]
fn what_was_sealed_and_flushed_comes_back() {
    for seed in 300..320 {
        let mut run = run(seed, Plan::default());
        run.settle();
        let before: Vec<u64> = (0..TENANTS)
            .map(|n| run.volume.stats(TenantNumber(n)).records)
            .collect();
        assert!(before.iter().all(|records| *records > 10), "seed {seed}: {before:?}");
        let present: Vec<((u32, u8, u64), u64)> = run
            .known
            .iter()
            .filter_map(|(key, known)| known.present.map(|version| (*key, version)))
            .collect();
        let mut found_before = Vec::new();
        for ((tenant, db, key), version) in &present {
            if run
                .look(*tenant, *db, *key)
                .is_some_and(|found| found.item.token == *version)
            {
                found_before.push((*tenant, *db, *key));
            }
        }
        run.settle();
        run.device.crash();
        run.reopen();
        for (tenant, db, key) in found_before {
            assert!(
                run.look(tenant, db, key).is_some(),
                "I4, seed {seed}: key {key} of tenant {tenant}"
            );
        }
    }
}

#[test]
fn write_amplification_is_bounded() {
    let mut run = Run::new(500);
    // Few keys that are used again and again beside many that are not.
    for n in 0..60_000_u64 {
        let key = if n % 4 == 0 { n / 4 % 200 } else { 10_000 + n };
        if n % 4 == 0 && run.look(0, 0, key).is_some() {
            run.look(0, 0, key);
        } else {
            run.put(0, 0, key);
        }
        run.volume.tick(run.now_ms);
        run.work(4);
        run.now_ms += 1;
    }
    let stats = run.volume.stats(TenantNumber(0));
    assert!(stats.reinserted > 50, "{stats:?}");
    let of_items = stats.demoted as f64 / (stats.demoted + stats.reinserted) as f64;
    assert!(of_items >= 0.75, "{stats:?}");
    assert!(stats.flash_bytes <= (12 * SEGMENT_BYTES) as u64);
}

#[test]
fn what_a_smaller_grant_drops_is_gone_at_once_and_its_room_is_used_again() {
    let mut run = Run::new(600);
    let tenant = TenantNumber(0);
    for key in 0..2000 {
        run.put(0, 0, key);
        run.volume.tick(run.now_ms);
        run.work(8);
    }
    let found = |run: &mut Run| (0..2000).filter(|key| run.look(0, 0, *key).is_some()).count() as u64;
    let before = run.volume.stats(tenant);
    assert!(
        before.flash_bytes > (8 * SEGMENT_BYTES) as u64 && before.records > 1500,
        "{before:?}"
    );
    let free = run.volume.free.len();
    run.volume.set_grant(tenant, 3, run.now_ms);
    let kept = found(&mut run);
    assert!((300..900).contains(&kept), "{kept}");
    assert!(run.volume.free.len() <= free, "the index has entries in them");
    for _ in 0..1000 {
        run.now_ms += 1;
        run.volume.tick(run.now_ms);
        run.work(8);
    }
    let after = run.volume.stats(tenant);
    assert_eq!((after.records, found(&mut run)), (kept, kept), "{after:?}");
    assert!(after.flash_bytes <= (3 * SEGMENT_BYTES) as u64);
    assert!(run.volume.free.len() >= free + 5 && run.volume.freeing.is_empty());
}
