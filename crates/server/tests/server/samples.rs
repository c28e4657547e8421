//! The records of sampled keys.

use std::time::Instant;

use tidemark_types::{SampleKind, SamplingThreshold, TenantPlan};

use crate::harness::{Harness, Setup, open_tenant, set};

use SampleKind::{Delete, Fill, Flush, GetHit, GetMiss, Overwrite, Retime};

fn server(sampling_threshold: SamplingThreshold) -> Harness {
    Harness::start(Setup {
        tenants: vec![TenantPlan {
            sampling_threshold,
            ..open_tenant()
        }],
        ..Setup::default()
    })
}

#[test]
fn commands_make_the_records_of_what_they_did() {
    let harness = server(SamplingThreshold::ALL);
    let mut client = harness.connect();
    let mut check = |request: &str, expected: &[SampleKind]| {
        client.answer(request.as_bytes());
        let samples = harness.tenant(1).unwrap().samples;
        assert_eq!(samples.threshold, SamplingThreshold::ALL);
        let kinds: Vec<_> = samples.records.iter().map(|sample| sample.kind).collect();
        assert_eq!(kinds, expected, "{request}");
    };
    for (request, expected) in [
        ("get k\r\n", &[GetMiss][..]),
        ("set k 0 0 5\r\nhello\r\n", &[Fill]),
        ("get k\r\n", &[GetHit]),
        ("get k x k\r\n", &[GetHit, GetMiss, GetHit]),
        ("gets k\r\n", &[GetHit]),
        ("gat 100 k\r\n", &[GetHit, Retime]),
        ("gats 100 x\r\n", &[GetMiss]),
        ("mg k v\r\n", &[GetHit]),
        ("mg k u\r\n", &[GetHit]),
        ("mg x v\r\n", &[GetMiss]),
        ("mg y N30\r\n", &[GetMiss, Fill]),
        ("mg k T0\r\n", &[GetHit, Retime]),
        ("touch k 100\r\n", &[Retime]),
        ("touch x 100\r\n", &[]),
        ("set k 0 0 1\r\n5\r\n", &[Overwrite]),
        ("ms k 1\r\n5\r\n", &[Overwrite]),
        ("add k 0 0 1\r\n6\r\n", &[]),
        ("add z 0 0 1\r\n6\r\n", &[Fill]),
        ("append k 0 0 1\r\n0\r\n", &[Overwrite]),
        ("incr k 1\r\n", &[Overwrite]),
        ("ma k\r\n", &[Overwrite]),
        ("set k 0 -1 1\r\n5\r\n", &[Delete]),
        ("delete k\r\n", &[]),
        ("delete z\r\n", &[Delete]),
        ("md y\r\n", &[Delete]),
        ("me y\r\nstats\r\nversion\r\n", &[]),
        ("set k 0 0 1\r\n5\r\nflush_all\r\nget k\r\n", &[Fill, Flush, GetMiss]),
    ] {
        check(request, expected);
    }
}

#[test]
fn the_time_of_each_request_in_the_server_is_counted() {
    const REQUESTS: u64 = 100;
    let harness = server(SamplingThreshold::OFF);
    let mut client = harness.connect();
    let begun = Instant::now();
    (0..REQUESTS).for_each(|_| client.ask(b"get k\r\n", b"END\r\n"));
    let served = harness.tenant(1).unwrap().counters.served;
    // The last one is counted when its reply is out already.
    assert!((REQUESTS - 1..=REQUESTS).contains(&served.requests), "{served:?}");
    assert!(
        served.us > 0 && u128::from(served.us) <= begun.elapsed().as_micros(),
        "{served:?}"
    );
    // Commands that come at once count as many.
    client.ask(&b"get k\r\n".repeat(100), &b"END\r\n".repeat(100));
    client.ask(b"get k\r\n", b"END\r\n");
    let both = harness.tenant(1).unwrap().counters.served;
    assert!((200..=201).contains(&both.requests), "{both:?}");
}

#[test]
fn samples_tell_sizes_and_expiries() {
    let harness = server(SamplingThreshold::ALL);
    let mut client = harness.connect();
    let mut records = |request: &[u8]| {
        client.answer(request);
        harness.tenant(1).unwrap().samples.records
    };
    let stored = records(b"set key 0 100 7\r\n1234567\r\n")[0];
    assert_eq!(stored.payload_bytes, 10);
    assert!((11..40).contains(&stored.item_bytes), "{stored:?}");
    let left = stored.expiry().unwrap().0 - u64::from(stored.second) * 1000;
    assert!((99_000..=101_000).contains(&left), "{left} ms");
    let got = records(b"get key\r\n")[0];
    assert_eq!(
        (got.order, got.payload_bytes, got.item_bytes),
        (stored.order, 10, stored.item_bytes)
    );
    assert_eq!(got.expiry(), stored.expiry());
    // A value outside of the log takes whole units.
    let large = records(&set("large", &[0; 500_000]))[0];
    assert_ne!(large.order, stored.order);
    assert_eq!((large.payload_bytes, large.expiry()), (500_005, None));
    assert!((524_288..525_000).contains(&large.item_bytes), "{large:?}");
}

#[test]
fn plans_say_how_much_is_sampled() {
    const KEYS: usize = 2_000;
    let harness = server(SamplingThreshold::OFF);
    let mut client = harness.connect();
    let requests: Vec<u8> = (0..KEYS)
        .flat_map(|n| format!("get key-{n}\r\n").into_bytes())
        .collect();
    let mut version = 1;
    let mut run = |harness: &Harness, sampling_threshold| {
        version += 1;
        harness.apply(vec![TenantPlan {
            version,
            sampling_threshold,
            ..open_tenant()
        }]);
        // More keys are sampled from a snapshot of the tenant on.
        client.answer(b"get other\r\n");
        harness.look();
        client.answer(&requests);
        harness.tenant(1).unwrap().samples
    };
    let mut previous: Option<Vec<u64>> = None;
    for part in [1, 2, 8, 64] {
        let threshold = SamplingThreshold::new(SamplingThreshold::ALL.get() / part);
        let samples = run(&harness, threshold);
        assert_eq!(samples.threshold, threshold);
        let orders: Vec<u64> = samples.records.iter().map(|sample| sample.order).collect();
        // A binomial is within 6 standard deviations of its mean all but once in 10^9.
        let mean = KEYS as f64 / f64::from(part);
        assert!(
            (orders.len() as f64 - mean).abs() < 6.0 * mean.sqrt() + 1.0,
            "{} of {mean}",
            orders.len()
        );
        if let Some(previous) = previous {
            assert!(
                orders.iter().all(|order| previous.contains(order)),
                "not a part of those before"
            );
        }
        previous = Some(orders);
    }
    let samples = run(&harness, SamplingThreshold::OFF);
    assert_eq!((samples.threshold, samples.records.len()), (SamplingThreshold::OFF, 0));
}

#[test]
fn samples_count_as_memory_beside_the_pool_until_they_are_handed_over() {
    let harness = server(SamplingThreshold::ALL);
    let mut client = harness.connect();
    client.answer(b"get k\r\n");
    harness.look();
    let before = harness.buffer_bytes();
    client.answer(&b"get k\r\n".repeat(1_000));
    assert!(harness.buffer_bytes() >= before + 32_000);
    // The visit that gave the answers has ended with this one, and with it the buffer of a request that came in two pieces.
    client.answer(b"version\r\n");
    assert_eq!(harness.buffer_bytes(), before);
}

#[test]
fn a_flood_lowers_the_threshold_until_a_plan_says_otherwise() {
    let harness = server(SamplingThreshold::ALL);
    let mut client = harness.connect();
    let requests: Vec<u8> = (0..20_000)
        .flat_map(|n| format!("get key-{n}\r\n").into_bytes())
        .collect();
    client.answer(&requests);
    let flooded = harness.tenant(1).unwrap().samples;
    assert!(flooded.threshold < SamplingThreshold::ALL && flooded.threshold > SamplingThreshold::OFF);
    // All of those that the threshold takes, and no others: keys are distributed evenly.
    let expected = 20_000.0 * flooded.threshold.ratio();
    let count = flooded.records.len() as f64;
    assert!(
        (count - expected).abs() < 6.0 * expected.sqrt(),
        "{count} records instead of {expected}"
    );
    client.answer(b"get key-1\r\n");
    assert_eq!(harness.tenant(1).unwrap().samples.threshold, flooded.threshold);
    harness.apply(vec![TenantPlan {
        version: 2,
        sampling_threshold: SamplingThreshold::ALL,
        ..open_tenant()
    }]);
    client.answer(b"get key-1\r\n");
    harness.look();
    client.answer(b"get key-1\r\n");
    assert_eq!(harness.tenant(1).unwrap().samples.threshold, SamplingThreshold::ALL);
}
