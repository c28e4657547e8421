//! An estimator fed as the data plane feeds it.

use tidemark_types::{GIB, Samples, TenantCounters, TenantId, VisitSamples};

use super::*;

/// The bytes of an item of the tenant.
const ITEM_BYTES: u32 = 100;

/// So many keys, and as many items in miniature caches.
/// The reach of a curve that has no flash below.
fn span(bytes: u64) -> Span {
    Span {
        bytes,
        has_classes: false,
    }
}

fn limits(keys: usize) -> Limits {
    Limits {
        keys,
        contest_items: keys,
    }
}

/// A look-aside tenant whose cache holds nothing or everything, sampled as the data plane would.
struct Tenant {
    estimator: Estimator,
    counters: TenantCounters,
    now: UnixMs,
    keys: u64,
    next: u64,
    sequence: u32,
    /// How long an item lives, in milliseconds.
    lifetime_ms: u32,
}

impl Tenant {
    fn new(keys_max: usize, keys: u64) -> Self {
        let now = UnixMs(1_000_000);
        Self {
            estimator: Estimator::new(limits(keys_max), now, 0),
            counters: TenantCounters::default(),
            now,
            keys,
            next: 0,
            sequence: 0,
            lifetime_ms: Sample::NO_EXPIRY,
        }
    }

    /// A second of so many gets, going round the keys.
    fn second(&mut self, gets: u64) {
        self.now = self.now.plus(Duration::from_secs(1));
        let threshold = self.estimator.asked();
        let mut records = Vec::new();
        for _ in 0..gets {
            let order = (self.next % self.keys + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.next += 1;
            if threshold.takes(order) {
                records.push(self.sample(SampleKind::GetMiss, order, 0));
                records.push(self.sample(SampleKind::Fill, order, ITEM_BYTES));
            }
        }
        self.counters.gets += gets;
        self.report(Samples { threshold, records });
    }

    fn sample(&mut self, kind: SampleKind, order: u64, item_bytes: u32) -> Sample {
        self.sequence += 1;
        Sample {
            order,
            sequence: self.sequence,
            second: self.now.seconds() as u32,
            millisecond: (self.now.0 % 1000) as u16,
            expires_after_ms: self.lifetime_ms,
            payload_bytes: item_bytes,
            item_bytes,
            kind,
            db: 0,
        }
    }

    fn report(&mut self, samples: Samples) {
        let report = TenantSnapshot {
            id: TenantId(1),
            grant_bytes: 1,
            usage_bytes: 1,
            items: 1,
            connections: 1,
            counters: self.counters,
            samples,
            shards: Vec::new(),
            commands: Vec::new(),
            visits: VisitSamples::default(),
        };
        let (records, mut pieces) = (report.samples.records.len(), 0);
        self.estimator.observe(self.now, &report, &mut || pieces += 1);
        // However much there is, others may have the core meanwhile.
        assert_eq!(pieces, records.div_ceil(RECORDS_PER_PIECE));
    }

    fn keep_within(&mut self, keys: usize, records_per_second: f64) {
        self.estimator
            .keep_within(self.now, limits(keys), records_per_second, 1 << 40);
    }
}

#[test]
fn the_curve_is_that_of_the_keys() {
    let mut tenant = Tenant::new(KEYS_MAX, 10_000);
    for _ in 0..10 {
        tenant.second(10_000);
        tenant.keep_within(1_000, 1e9);
    }
    assert!(tenant.estimator.asked() < SamplingThreshold::ALL);
    assert!(tenant.estimator.keys().abs_diff(10_000) < 1_000);
    let curve = tenant.estimator.curve();
    assert!(curve.at(800_000).miss_ratio > 0.9);
    assert!(curve.at(1_200_000).miss_ratio < 0.3);
}

#[test]
fn records_a_second_stay_within_their_limit() {
    let mut tenant = Tenant::new(KEYS_MAX, 5_000);
    for second in 0..60 {
        tenant.second(20_000);
        tenant.keep_within(KEYS_MAX, 500.0);
        if second > 20 {
            let rate = tenant.estimator.records_per_second(tenant.now);
            assert!((100.0..700.0).contains(&rate), "{rate} in second {second}");
        }
    }
    // A tenant that asks for less is sampled more again.
    let before = tenant.estimator.asked();
    for _ in 0..120 {
        tenant.second(100);
        tenant.keep_within(KEYS_MAX, 500.0);
    }
    assert!(tenant.estimator.asked() > before, "{:?}", tenant.estimator.asked());
}

#[test]
fn gets_from_before_do_not_count() {
    let mut tenant = Tenant::new(KEYS_MAX, 100);
    tenant.counters.gets = 1_000_000;
    tenant.estimator = Estimator::new(limits(KEYS_MAX), tenant.now, 1_000_000);
    tenant.second(200);
    assert_eq!(tenant.estimator.curve_gets(), 200);
}

#[test]
fn without_sampling_gets_are_not_counted() {
    let mut tenant = Tenant::new(KEYS_MAX, 100);
    tenant.counters.gets = 1_000;
    tenant.report(Samples::default());
    tenant.second(200);
    assert_eq!(tenant.estimator.curve_gets(), 200);
}

#[test]
fn a_flush_empties_what_is_known() {
    let mut tenant = Tenant::new(KEYS_MAX, 100);
    tenant.second(200);
    assert_eq!(tenant.estimator.keys(), 100);
    for (db, keys) in [(5, 100), (0, 0)] {
        let mut flush = tenant.sample(SampleKind::Flush, 0, 0);
        flush.db = db;
        tenant.report(Samples {
            threshold: SamplingThreshold::ALL,
            records: vec![flush],
        });
        assert_eq!(tenant.estimator.keys(), keys, "database {db}");
    }
}

#[test]
fn another_load_begins_a_new_curve() {
    let mut tenant = Tenant::new(KEYS_MAX, 100);
    tenant.second(1_000);
    let now = tenant.now;
    tenant.estimator.begin_anew(now);
    assert_eq!(tenant.estimator.curve_gets(), 0);
    tenant.second(100);
    // The keys are still known: none of these gets is a first one.
    assert!(tenant.estimator.curve().best_hit_ratio() > 0.999);
}

#[test]
fn memory_decides_how_many_keys_are_followed() {
    let least = least_bytes(span(GIB));
    assert_eq!(Limits::within(least - 1, span(GIB), true), None);
    assert_eq!(Limits::within(least, span(GIB), true), Some(Limits::LEAST));
    assert_eq!(Limits::within(u64::MAX, span(GIB), true), Some(limits(KEYS_MAX)));
    // Policies compete only where that leaves enough keys for a curve.
    let enough = fixed_bytes(span(GIB)) + CONTEST_KEYS_MIN as u64 * (KEY_BYTES + CONTEST_ITEM_BYTES);
    assert_eq!(Limits::within(enough, span(GIB), true), Some(limits(CONTEST_KEYS_MIN)));
    assert_eq!(Limits::within(enough - 1, span(GIB), true).unwrap().contest_items, 0);
    assert_eq!(Limits::within(enough, span(GIB), false).unwrap().contest_items, 0);
    // Longer distances take more.
    assert!(least_bytes(span(1 << 40)) > least && least > least_bytes(span(GIB / 2)));
    assert!(GIB / 100 / least >= 128, "128 tenants in a GiB");
}

#[test]
fn what_it_holds_fits_into_the_memory_for_it() {
    const KEYS: u64 = 300_000;
    for (keys, compete, lifetime_ms, has_classes) in [
        (KEYS_MIN, false, 20_000, false),
        (1_000, false, Sample::NO_EXPIRY, false),
        (1_500, true, Sample::NO_EXPIRY, true),
        (KEYS_MAX, false, 20_000, false),
        (KEYS_MAX, true, 20_000, true),
    ] {
        let each = KEY_BYTES + if compete { CONTEST_ITEM_BYTES } else { 0 };
        let reach = Span {
            bytes: reach_of(KEYS),
            has_classes,
        };
        let bytes = fixed_bytes(reach) + keys as u64 * each;
        let limits = Limits::within(bytes, reach, compete).unwrap();
        assert_eq!(limits.keys, keys);
        let mut tenant = None;
        let allocated = allocation_counter::measure(|| {
            let mut asked = Tenant::new(limits.keys, KEYS);
            asked.lifetime_ms = lifetime_ms;
            asked.estimator = if has_classes {
                Estimator::of_classes(limits, asked.now, 0)
            } else {
                Estimator::new(limits, asked.now, 0)
            };
            ask_for_a_while(&mut asked, limits);
            tenant = Some(asked);
        });
        let mut tenant = tenant.unwrap();
        let what = format!("{limits:?}, {bytes} bytes, items for {lifetime_ms} ms");
        assert!(tenant.estimator.curve().points().len() > 2, "{what}");
        assert_eq!(tenant.estimator.contest.is_some(), compete, "{what}");
        let held = allocated.bytes_current.unsigned_abs();
        assert!((bytes / 4..=bytes).contains(&held), "{held}: {what}");

        // Others come: it makes room.
        let freed = allocation_counter::measure(|| ask_for_a_while(&mut tenant, Limits::LEAST));
        let left = held.saturating_add_signed(freed.bytes_current);
        assert!(left <= least_bytes(reach), "{left} of {held}: {what}");
    }
}

/// The bytes of all keys' items.
fn reach_of(keys: u64) -> u64 {
    keys * u64::from(ITEM_BYTES)
}

/// Goes round the keys, within these limits.
fn ask_for_a_while(tenant: &mut Tenant, limits: Limits) {
    for _ in 0..40 {
        tenant.second(tenant.keys / 10);
        tenant
            .estimator
            .keep_within(tenant.now, limits, 1e9, reach_of(tenant.keys));
        let items = tenant.keys * 9 / 10;
        tenant.estimator.contest(&Policy::PLAIN, items * 100, items);
    }
}

#[test]
fn policies_compete_only_within_the_memory_for_it() {
    let mut tenant = Tenant::new(KEYS_MAX, 4_000);
    tenant.second(4_000);
    let usage_bytes = 4_000 * 100;
    assert!(tenant.estimator.contest(&Policy::PLAIN, usage_bytes, 4_000).is_some());
    tenant.estimator.limits.contest_items = 3_999;
    assert!(tenant.estimator.contest(&Policy::PLAIN, usage_bytes, 4_000).is_none());
}

#[test]
fn what_is_steady_is_remembered_longer_until_it_changes() {
    // In the balance of new and fading counts, the curve is made of so many seconds' gets.
    let seconds = |is_patient: bool, changes: bool| {
        let mut tenant = Tenant::new(KEYS_MAX, 1_000);
        for second in 0..900 {
            tenant.estimator.set_patient(is_patient);
            tenant.second(10_000);
            if changes && second == 780 {
                tenant.estimator.note_change(tenant.now);
            }
        }
        tenant.estimator.curve_gets() / 10_000
    };
    // The mean age is the half-life over ln 2: 29 s of 20 s, 173 s of 120 s.
    let (impatient, patient, changed) = (seconds(false, false), seconds(true, false), seconds(true, true));
    assert!((25..35).contains(&impatient), "{impatient}");
    assert!((140..180).contains(&patient), "{patient}");
    assert!((25..70).contains(&changed), "{changed}");
}
