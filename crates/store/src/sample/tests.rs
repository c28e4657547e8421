//! The records are compared with those that a reference makes of the store's answers.

use std::sync::Arc;
use std::time::Duration;

use tidemark_types::{MIB, Policy, Sample, SampleKind, Samples, SamplingThreshold, TenantId, UNIT_BYTES, UnixMs};

use super::{SAMPLES_MAX, SHARD_SAMPLES_MIN, Sampler, merged};
use crate::hash::KeyHash;
use crate::item::Attributes;
use crate::pool::Pool;
use crate::shard::{Found, Key, Value};
use crate::tenant::TenantStore;
use crate::undriven;

fn threshold(one_in: u32) -> SamplingThreshold {
    SamplingThreshold::new(SamplingThreshold::ALL.get() / one_in)
}

/// The inverse of the factor by which an order is made of a hash.
const UNDO_ORDER: u64 = 0xF1DE83E19937733D;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

const ID: TenantId = TenantId(1);

/// A tenant, and the events of all its keys since the last report, as its answers tell them.
struct Reference {
    random: Random,
    tenant: Arc<TenantStore>,
    _pool: Pool,
    now: UnixMs,
    all: Vec<Sample>,
    /// The threshold in force since the last report.
    threshold: SamplingThreshold,
    last_sequence: Option<u32>,
    kinds: [u64; 7],
    lowered: u64,
}

impl Reference {
    fn new(seed: u64, shards: usize, grant_bytes: u64, threshold: SamplingThreshold) -> Self {
        let pool = Pool::without_thread(64 * MIB, Some(128 * MIB)).unwrap();
        let tenant = undriven::tenant(&pool, shards, Policy::S3Fifo, seed, grant_bytes);
        tenant.set_sampling(threshold);
        Self {
            random: Random(seed),
            tenant,
            _pool: pool,
            now: UnixMs(1_700_000_000_123),
            all: Vec::new(),
            threshold,
            last_sequence: None,
            kinds: [0; 7],
            lowered: 0,
        }
    }

    fn operation(&mut self) {
        let number = self.random.below(700);
        let name = format!("key-{}", number * number / 100).into_bytes();
        let tenant = Arc::clone(&self.tenant);
        let key = tenant.key(self.random.below(8).saturating_sub(5) as u8, &name);
        match self.random.below(100) {
            0..50 => self.get(&key),
            50..80 => self.put(&key),
            80..88 => self.delete(&key),
            88..96 => self.set_expiry(&key),
            96..99 => self.now = self.now.plus(Duration::from_millis(self.random.below(900))),
            _ if self.random.below(20) == 0 => self.flush(),
            // Neither a get nor a change.
            _ => drop(tenant.lock(tenant.shard_of(key.hash)).access(&key, self.now)),
        }
    }

    fn note(&mut self, kind: SampleKind, key: &Key<'_>, found: Option<(u32, u32, Option<UnixMs>)>) {
        let (payload_bytes, item_bytes, expiry) = found.unwrap_or_default();
        self.all.push(Sample {
            order: key.hash.order(),
            sequence: 0,
            second: self.now.seconds() as u32,
            millisecond: (self.now.0 % 1000) as u16,
            expires_after_ms: Sample::expires_after_ms(expiry, self.now),
            payload_bytes,
            item_bytes,
            kind,
            db: key.db,
        });
    }

    fn get(&mut self, key: &Key<'_>) {
        let tenant = Arc::clone(&self.tenant);
        let mut shard = tenant.lock(tenant.shard_of(key.hash));
        let found = if self.random.below(4) == 0 {
            shard.get_unused(key, self.now)
        } else {
            shard.get(key, self.now)
        };
        let found = found.map(|found| sizes(key, found));
        let kind = if found.is_some() {
            SampleKind::GetHit
        } else {
            SampleKind::GetMiss
        };
        self.note(kind, key, found);
    }

    fn put(&mut self, key: &Key<'_>) {
        let tenant = Arc::clone(&self.tenant);
        let was_there = tenant.lock(tenant.shard_of(key.hash)).peek(key, self.now).is_some();
        let bound = if self.random.below(60) == 0 { 300_000 } else { 400 };
        let value = vec![b'v'; self.random.below(bound) as usize];
        let expiry =
            (self.random.below(3) == 0).then(|| self.now.plus(Duration::from_millis(1 + self.random.below(20_000))));
        let attributes = Attributes {
            expiry,
            client_flags: self.random.below(2) as u32,
            ..Attributes::default()
        };
        let written = if self.random.below(2) == 0 {
            tenant.put(key, &value, attributes, self.now)
        } else {
            tenant
                .lock(tenant.shard_of(key.hash))
                .put(key, &value, attributes, self.now)
        };
        if written.is_ok() {
            let mut shard = tenant.lock(tenant.shard_of(key.hash));
            let found = shard.peek(key, self.now).map(|found| sizes(key, found));
            drop(shard);
            let kind = if was_there {
                SampleKind::Overwrite
            } else {
                SampleKind::Fill
            };
            self.note(kind, key, found);
        }
    }

    fn delete(&mut self, key: &Key<'_>) {
        let tenant = Arc::clone(&self.tenant);
        if tenant.lock(tenant.shard_of(key.hash)).delete(key, self.now) {
            self.note(SampleKind::Delete, key, None);
        }
    }

    fn set_expiry(&mut self, key: &Key<'_>) {
        let tenant = Arc::clone(&self.tenant);
        let mut shard = tenant.lock(tenant.shard_of(key.hash));
        let before = shard.peek(key, self.now).map(|found| found.attributes().expiry);
        let expiry = (self.random.below(3) > 0).then(|| UnixMs(self.now.0 - 1_000 + self.random.below(20_000)));
        let is_there = shard.set_expiry(key, expiry, self.now);
        let after = shard.peek(key, self.now).map(|found| sizes(key, found));
        drop(shard);
        match (is_there, after) {
            (Ok(true), None) => self.note(SampleKind::Delete, key, None),
            (Ok(true), after) if before != Some(expiry) => self.note(SampleKind::Retime, key, after),
            _ => {}
        }
    }

    fn flush(&mut self) {
        let db = (self.random.below(2) == 0).then_some(0);
        self.tenant.flush(db, self.now);
        let key = Key {
            db: db.unwrap_or(Sample::ALL_DATABASES),
            bytes: b"",
            hash: KeyHash(0),
        };
        self.note(SampleKind::Flush, &key, None);
    }

    fn set(&mut self, threshold: SamplingThreshold) {
        self.tenant.set_sampling(threshold);
        self.threshold = self.threshold.min(threshold);
    }

    /// Compares the report with the events.
    fn report(&mut self) {
        let Samples { threshold, records } = self.tenant.report(ID, self.now).snapshot.samples;
        let all = std::mem::take(&mut self.all);
        let taken = |threshold: SamplingThreshold| all.iter().filter(move |sample| threshold.takes(sample.order));
        assert!(threshold <= self.threshold);
        if taken(self.threshold).count() < SHARD_SAMPLES_MIN {
            assert_eq!(threshold, self.threshold, "lowered without need");
        }
        self.lowered += u64::from(threshold < self.threshold);
        let samples = self.without_repeated_flushes(&records);
        let expected = self.without_repeated_flushes(&taken(threshold).copied().collect::<Vec<_>>());
        assert_eq!(samples.len(), expected.len());
        for (sample, mut expected) in samples.iter().zip(expected) {
            assert!(self.last_sequence.is_none_or(|last| last < sample.sequence));
            self.last_sequence = Some(sample.sequence);
            self.kinds[sample.kind as usize] += 1;
            expected.sequence = sample.sequence;
            if expected.kind == SampleKind::Overwrite && u64::from(expected.item_bytes) > UNIT_BYTES {
                // The old item may have been evicted for room for the new one.
                assert!(matches!(sample.kind, SampleKind::Fill | SampleKind::Overwrite));
                expected.kind = sample.kind;
            }
            assert_eq!(*sample, expected);
        }
        self.threshold = self.tenant.sampling_threshold();
    }

    /// A flush is left out if another one follows without a record between them in the first shard, which records
    /// flushes.
    fn without_repeated_flushes(&self, samples: &[Sample]) -> Vec<Sample> {
        let mut kept: Vec<Sample> = Vec::new();
        let mut next: Option<(SampleKind, u8)> = None;
        for sample in samples.iter().rev() {
            let this = (sample.kind, sample.db);
            let is_flush = sample.kind == SampleKind::Flush;
            if !(is_flush && next == Some(this)) {
                kept.push(*sample);
            }
            let hash = KeyHash(sample.order.wrapping_mul(UNDO_ORDER));
            assert_eq!(hash.order(), sample.order);
            if is_flush || self.tenant.shard_of(hash) == 0 {
                next = Some(this);
            }
        }
        kept.reverse();
        kept
    }
}

/// Bytes of payload, bytes taken, and expiry.
fn sizes(key: &Key<'_>, found: Found<'_>) -> (u32, u32, Option<UnixMs>) {
    let value = found.value();
    let outside = match value {
        Value::Whole(_) => 0,
        Value::Pieces(_) => value.len().next_multiple_of(UNIT_BYTES as usize),
    };
    let payload = key.bytes.len() + value.len();
    let taken = found.item_bytes() + outside;
    (payload as u32, taken as u32, found.attributes().expiry)
}

#[test]
fn records_are_what_happened_to_the_keys_that_the_threshold_takes() {
    let steps = [
        threshold(1),
        threshold(64),
        threshold(7),
        SamplingThreshold::OFF,
        threshold(2),
    ];
    // Ample and scarce memory; reports often enough for all records, and too seldom.
    for (seed, shards, grant_bytes, every) in [
        (1, 1, 32 * MIB, 200),
        (2, 4, 32 * MIB, 200),
        (3, 1, MIB, 200),
        (4, 4, 24 * MIB, 9_000),
    ] {
        for fixed in steps {
            let mut reference = Reference::new(seed, shards, grant_bytes, fixed);
            for n in 1..=30_000 {
                reference.operation();
                if n % every == 0 {
                    reference.report();
                    if reference.threshold < fixed {
                        reference.set(fixed);
                    }
                }
            }
            let is_recorded = fixed > SamplingThreshold::OFF;
            assert_eq!(
                reference.kinds.iter().all(|count| *count > 0),
                is_recorded,
                "{:?}",
                reference.kinds
            );
            assert!(every > 200 || reference.lowered == 0);
        }
        let mut reference = Reference::new(seed + 10, shards, grant_bytes, steps[0]);
        for n in 1..=60_000 {
            reference.operation();
            if n % (every / 2) == 0 {
                let step = steps[reference.random.below(5) as usize];
                reference.set(step);
            }
            if n % every == 0 {
                reference.report();
            }
        }
        assert_eq!(
            reference.lowered > 0,
            every > 200,
            "lowered {} times",
            reference.lowered
        );
    }
}

#[test]
fn nothing_is_held_while_nothing_is_sampled() {
    let mut reference = Reference::new(5, 2, 32 * MIB, SamplingThreshold::OFF);
    (0..5_000).for_each(|_| reference.operation());
    assert_eq!(reference.tenant.report(ID, reference.now).sample_buffer_bytes, 0);
    reference.set(SamplingThreshold::ALL);
    (0..200).for_each(|_| reference.operation());
    assert_eq!(
        reference.tenant.report(ID, reference.now).sample_buffer_bytes,
        0,
        "in force from here on"
    );
    (0..200).for_each(|_| reference.operation());
    reference.set(SamplingThreshold::OFF);
    assert_eq!(
        reference.tenant.report(ID, reference.now).sample_buffer_bytes,
        0,
        "put back at once"
    );
    (0..5_000).for_each(|_| reference.operation());
    assert_eq!(reference.tenant.report(ID, reference.now).sample_buffer_bytes, 0);
}

#[test]
fn a_report_frees_what_it_hands_over() {
    let mut reference = Reference::new(6, 2, 32 * MIB, SamplingThreshold::ALL);
    (0..500).for_each(|_| reference.operation());
    let report = reference.tenant.report(ID, reference.now);
    assert!(report.snapshot.samples.records.len() > 350);
    assert!(report.sample_buffer_bytes >= 32 * report.snapshot.samples.records.len() as u64);
    assert_eq!(reference.tenant.report(ID, reference.now).sample_buffer_bytes, 0);
}

#[test]
fn a_tenant_that_was_never_used_reports_the_threshold_that_it_begins_with() {
    let reference = Reference::new(7, 2, MIB, threshold(3));
    let reported = reference.tenant.report(ID, reference.now).snapshot.samples;
    assert_eq!((reported.threshold, reported.records.len()), (threshold(3), 0));
}

fn sample(order: u64, sequence: u32) -> Sample {
    Sample {
        order,
        sequence,
        second: 0,
        millisecond: 0,
        expires_after_ms: Sample::NO_EXPIRY,
        payload_bytes: 0,
        item_bytes: 0,
        kind: SampleKind::GetMiss,
        db: 0,
    }
}

#[test]
fn a_full_buffer_keeps_half_of_the_records_and_all_of_a_key() {
    let mut sampler = Sampler::new(SamplingThreshold::ALL, 0);
    let keys: Vec<u64> = (0..50_u64).map(|n| (n + 1) << 56).collect();
    let push = |sampler: &mut Sampler, n: usize| sampler.push(sample(keys[n % keys.len()], n as u32));
    assert!((1..SAMPLES_MAX).all(|n| push(&mut sampler, n).is_none()));
    let lower = push(&mut sampler, SAMPLES_MAX).unwrap();
    assert!((0.4..0.6).contains(&(lower.ratio() * 256.0 / 50.0)), "{lower:?}");
    let half = merged(vec![sampler.take(lower)], lower);
    assert_eq!(half.threshold, lower);
    let numbers = half.records.iter().map(|sample| sample.sequence as usize);
    assert!(numbers.eq((1..=SAMPLES_MAX).filter(|n| lower.takes(keys[n % keys.len()]))));
}

#[test]
fn a_key_that_is_most_of_what_happens_goes_too() {
    let mut sampler = Sampler::new(SamplingThreshold::ALL, 6);
    let hot = 3 << 60;
    let orders = (0_u64..).map(|n| if n % 3 == 0 { n << 52 } else { hot });
    let lower = orders.zip(0..).find_map(|(order, n)| sampler.push(sample(order, n)));
    assert_eq!(lower, Some(SamplingThreshold::below(hot)));
    assert!(sampler.take(SamplingThreshold::OFF).records.len() <= SHARD_SAMPLES_MIN / 3 + 1);
}

#[test]
fn flushes_alone_fill_nothing() {
    let mut sampler = Sampler::new(threshold(1000), 0);
    let flush = |sequence| Sample {
        kind: SampleKind::Flush,
        ..sample(0, sequence)
    };
    assert!((0..100_000).all(|n| sampler.push(flush(n)).is_none()));
    sampler.push(sample(0, 100_000));
    sampler.push(flush(100_001));
    let numbers: Vec<u32> = sampler
        .take(threshold(1000))
        .records
        .iter()
        .map(|sample| sample.sequence)
        .collect();
    assert_eq!(numbers, [99_999, 100_000, 100_001]);
}

#[test]
fn flushes_by_turns_leave_room_for_keys() {
    let mut sampler = Sampler::new(SamplingThreshold::ALL, 0);
    // Numbers begin anew at zero meanwhile.
    let first = u32::MAX - 50_000;
    for n in 0..100_000_u32 {
        let sequence = first.wrapping_add(n);
        let flush = Sample {
            kind: SampleKind::Flush,
            db: (n % 3) as u8,
            ..sample(0, sequence)
        };
        // A key now and then: fewer than fill the buffer.
        let is_key = n.is_multiple_of(100);
        let pushed = if is_key {
            sample(u64::from(n) << 40, sequence)
        } else {
            flush
        };
        assert_eq!(sampler.push(pushed), None, "{n}");
    }
    let samples = sampler.take(SamplingThreshold::ALL);
    assert_eq!(samples.threshold, SamplingThreshold::ALL);
    let (flushes, keys): (Vec<Sample>, Vec<Sample>) = samples
        .records
        .iter()
        .partition(|sample| sample.kind == SampleKind::Flush);
    assert_eq!(keys.len(), 1000);
    for db in 0..3 {
        let last = flushes.iter().map(|flush| flush.sequence.wrapping_sub(first));
        let own = last.zip(&flushes).filter(|(_, flush)| flush.db == db).map(|(n, _)| n);
        assert!(own.max().is_some_and(|n| n > 99_990), "{db}");
    }
}

#[test]
fn records_of_shards_become_one() {
    let samples = |one_in, records: &[(u64, u32)]| Samples {
        threshold: threshold(one_in),
        records: records
            .iter()
            .map(|(order, sequence)| sample(*order, *sequence))
            .collect(),
    };
    let (low, high) = (1 << 60, 3 << 62);
    for (shards, expected) in [
        (vec![], samples(9, &[])),
        (
            vec![samples(2, &[(low, 1), (low, 2)])],
            samples(2, &[(low, 1), (low, 2)]),
        ),
        (
            vec![samples(1, &[(low, 1), (high, 4)]), samples(1, &[(high, 2), (low, 3)])],
            samples(1, &[(low, 1), (high, 2), (low, 3), (high, 4)]),
        ),
        // One shard lowered its threshold.
        (
            vec![samples(1, &[(low, 1), (high, 4)]), samples(2, &[(low, 3)])],
            samples(2, &[(low, 1), (low, 3)]),
        ),
        (vec![samples(1, &[(high, 4)]), samples(2, &[])], samples(2, &[])),
        // The numbers began anew.
        (
            vec![
                samples(1, &[(low, 5), (low, 7)]),
                samples(1, &[(low, u32::MAX), (low, 6)]),
            ],
            samples(1, &[(low, u32::MAX), (low, 5), (low, 6), (low, 7)]),
        ),
    ] {
        assert_eq!(merged(shards.clone(), threshold(9)), expected, "{shards:?}");
    }
}
