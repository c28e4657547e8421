//! `replay` against the fake server.

use std::collections::HashSet;
use std::io::{Cursor, Write as _};
use std::path::PathBuf;
use std::time::Instant;

use tidemark_curve::sim::{Capacity, Fifo, Simulator};
use tidemark_tools::client::{Protocol, Secrets};
use tidemark_tools::load::{Distribution, Keys, Order, Rng};
use tidemark_tools::replay::{Options, Report, Source, run};
use tidemark_tools::trace::{Format, Trace};
use tidemark_tools::{Error, Fault as Whose};

use crate::fake::{Fake, Fault, Setup};

fn decimal(keys: &[u64]) -> Trace {
    let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
    Trace::from_reader("made.txt", Cursor::new(text.into_bytes()), Format::Decimal).unwrap()
}

fn options(fake: &Fake, protocol: Protocol, trace: Trace) -> Options {
    Options {
        address: fake.address,
        protocol,
        sources: vec![Source { trace, login: None }],
        value_size_bytes: 100,
        speed: None,
    }
}

fn replay(options: Options) -> Result<Report, Error> {
    run(options, &mut |_| {})
}

fn draw(distribution: Distribution, count: u64, requests: usize, seed: u64) -> Vec<u64> {
    let keys = Keys::new(count, distribution, Order::Scrambled).unwrap();
    let mut rng = Rng::new(seed);
    (0..requests).map(|_| keys.draw(&mut rng)).collect()
}

/// With room for everything, each key is missed exactly once and set exactly once. It does not matter how often it
/// comes while the first answer is on its way.
#[test]
fn each_key_is_missed_once_where_nothing_is_evicted() {
    for protocol in Protocol::ALL {
        for (seed, count) in (0..).zip([1, 2, 3, 5, 17, 40, 1000, 1_000_000]) {
            for distribution in [Distribution::Uniform, Distribution::Zipf { alpha: 1.1 }] {
                let keys = draw(distribution, count, 3000, seed);
                let distinct: HashSet<u64> = keys.iter().copied().collect();
                let fake = Setup::new(protocol).start();
                let report = replay(options(&fake, protocol, decimal(&keys))).unwrap();
                let case = format!("{protocol}, {count} keys, {distribution:?}: {report:?}");
                let (trace, cache) = (&report.traces[0], fake.cache("default"));
                assert_eq!(
                    (trace.requests, trace.hits),
                    (3000, 3000 - distinct.len() as u64),
                    "{case}"
                );
                assert_eq!(cache.sets.len(), distinct.len(), "{case}");
                // A key that was there a moment ago is there, so that nothing had to be asked twice.
                assert_eq!(cache.gets.len(), 3000, "{case}");
            }
        }
    }
}

#[test]
fn requests_are_made_in_the_order_of_the_trace() {
    let keys: Vec<u64> = (0..5000).map(|n| n * 7919 % 5003).collect();
    let text: Vec<Vec<u8>> = keys.iter().map(|key| key.to_string().into_bytes()).collect();
    for protocol in Protocol::ALL {
        let fake = Setup::new(protocol).start();
        replay(options(&fake, protocol, decimal(&keys))).unwrap();
        let cache = fake.cache("default");
        assert_eq!(cache.gets, text, "{protocol}");
        assert_eq!(cache.sets, text, "{protocol}");
    }
}

/// The hits of the same requests one by one, in a simulated cache.
fn simulate(requests: &[(u64, u64)], capacity_bytes: usize) -> f64 {
    let mut fifo = Fifo::new(Capacity::of_bytes(capacity_bytes as u64));
    let hits = requests.iter().filter(|(key, size)| fifo.request(*key, *size)).count();
    hits as f64 / requests.len() as f64
}

#[test]
fn the_hit_ratio_is_that_of_one_request_after_the_other() {
    for (count, alpha, objects) in [
        (2000, 0.8, 200),
        (10_000, 1.0, 1000),
        (300, 0.5, 250),
        (100_000, 0.9, 5000),
    ] {
        let keys = draw(Distribution::Zipf { alpha }, count, 40_000, 5);
        let requests: Vec<(u64, u64)> = keys.iter().map(|key| (*key, 100)).collect();
        let capacity_bytes = objects * 100;
        for protocol in Protocol::ALL {
            let fake = Setup {
                capacity_bytes,
                ..Setup::new(protocol)
            }
            .start();
            let report = replay(options(&fake, protocol, decimal(&keys))).unwrap();
            let (found, expected) = (report.traces[0].hit_ratio.unwrap(), simulate(&requests, capacity_bytes));
            // Sixteen requests of delay in a cache of 200 objects are the worst case here.
            let tolerance = if objects <= 250 { 0.01 } else { 0.003 };
            let case = format!("{protocol}, {count} keys, alpha {alpha}, {objects} objects");
            assert!(
                (found - expected).abs() < tolerance,
                "{case}: {found}, expected {expected}"
            );
        }
    }
}

/// Each key comes three times in a row, in a circle of 50, with room for 40. The first of the three misses when
/// requests come one after the other. All three are asked at once, because the key was there a moment ago. The answers
/// have to be the same.
#[test]
fn a_get_that_was_made_too_early_does_not_count() {
    let keys: Vec<u64> = (0..3000).map(|n| n / 3 % 50).collect();
    for protocol in Protocol::ALL {
        let fake = Setup {
            capacity_bytes: 40 * 100,
            ..Setup::new(protocol)
        }
        .start();
        let report = replay(options(&fake, protocol, decimal(&keys))).unwrap();
        let (trace, cache) = (&report.traces[0], fake.cache("default"));
        assert_eq!(
            (trace.requests, trace.hits, cache.sets.len()),
            (3000, 2000, 1000),
            "{protocol}"
        );
        assert!(cache.gets.len() > 3000, "{protocol}: nothing was asked too early");
    }
}

/// A real trace with sizes, where it is there.
#[test]
fn a_real_trace_has_its_hit_ratio() {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = std::env::var_os("TIDEMARK_TRACES").map_or_else(|| PathBuf::from(default), PathBuf::from);
    let path = folder.join("cloudPhysicsIO.oracleGeneral.bin");
    if !path.exists() {
        // The test above makes the same assertion on generated loads.
        return;
    }
    let open = || Trace::open(&path, None).unwrap();
    let requests: Vec<(u64, u64)> = open()
        .map(Result::unwrap)
        .map(|request| (request.key, request.size_bytes.unwrap()))
        .collect();
    let capacity_bytes = 64 << 20;
    let fake = Setup {
        capacity_bytes,
        ..Setup::new(Protocol::Memcached)
    }
    .start();
    let report = replay(options(&fake, Protocol::Memcached, open())).unwrap();
    let (found, expected) = (report.traces[0].hit_ratio.unwrap(), simulate(&requests, capacity_bytes));
    assert!((found - expected).abs() < 0.003, "{found}, expected {expected}");
}

#[test]
fn several_traces_are_several_tenants() {
    for protocol in Protocol::ALL {
        let fake = Setup {
            tenants: &[("shop", "s1"), ("blog", "s2")],
            ..Setup::new(protocol)
        }
        .start();
        let secrets = Secrets::parse("shop s1\nblog s2").unwrap();
        let source = |tenant: &str, keys: &[u64]| Source {
            trace: decimal(keys),
            login: secrets.login(&tenant.parse().unwrap()).unwrap(),
        };
        let options = Options {
            sources: vec![source("shop", &[1, 2, 1, 2, 1]), source("blog", &[1, 1, 1, 1])],
            ..options(&fake, protocol, decimal(&[]))
        };
        let report = replay(options).unwrap();
        let counts: Vec<_> = report
            .traces
            .iter()
            .map(|trace| (trace.tenant.as_str(), trace.requests, trace.hits))
            .collect();
        assert_eq!(counts, [("shop", 5, 3), ("blog", 4, 3)]);
        assert_eq!((fake.cache("shop").sets.len(), fake.cache("blog").sets.len()), (2, 1));
    }
}

fn oracle(requests: &[(u32, u64, u32)]) -> Trace {
    let mut bytes = Vec::new();
    for (time, key, size) in requests {
        bytes.extend(time.to_le_bytes());
        bytes.extend(key.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.write_all(&(-1_i64).to_le_bytes()).unwrap();
    }
    Trace::from_reader("made.oracleGeneral", Cursor::new(bytes), Format::OracleGeneral).unwrap()
}

#[test]
fn sizes_come_from_the_trace_up_to_the_largest_and_refusals_are_counted() {
    for protocol in Protocol::ALL {
        let fake = Setup {
            fault: Fault::RefuseAbove(1000),
            ..Setup::new(protocol)
        }
        .start();
        // The third is larger than any value may be, so that it is tried with the largest; each try is refused.
        let requests = [
            (0, 1, 1000),
            (0, 2, 1001),
            (0, 3, u32::MAX),
            (0, 1, 1000),
            (0, 2, 1001),
            (0, 4, 0),
            (0, 4, 0),
        ];
        let report = replay(options(&fake, protocol, oracle(&requests))).unwrap();
        let trace = &report.traces[0];
        assert_eq!(
            (trace.requests, trace.hits, trace.refused),
            (7, 2, 3),
            "{protocol}: {report:?}"
        );
    }
}

#[test]
fn time_passes_as_in_the_trace_times_the_speed() {
    let fake = Setup::new(Protocol::Redis).start();
    // The clock of the trace goes back once: that request is due at once.
    let trace = oracle(&[(1000, 1, 10), (1010, 2, 10), (990, 3, 10), (1040, 1, 10)]);
    let start = Instant::now();
    let report = replay(Options {
        speed: Some(100.0),
        ..options(&fake, Protocol::Redis, trace)
    })
    .unwrap();
    assert!(start.elapsed().as_secs_f64() >= 0.4, "{report:?}");
    assert!(
        report.traces[0].seconds >= 0.4 && report.traces[0].hits == 1,
        "{report:?}"
    );
    assert_eq!(fake.cache("default").gets, [b"1", b"2", b"3", b"1"]);
}

#[test]
fn failures_are_named() {
    for protocol in Protocol::ALL {
        for (fault, said, whose) in [
            (
                Fault::WrongByte,
                "key `1` has a value that this replay did not store",
                Whose::Failed,
            ),
            (Fault::RefuseAll, "refused a get", Whose::Denied),
            (Fault::Garbage, "does not answer in the", Whose::Failed),
            (Fault::Stored, "answered a get with `stored`", Whose::Failed),
            (Fault::CloseAt(5), "closed the connection", Whose::Failed),
        ] {
            let fake = Setup {
                fault,
                ..Setup::new(protocol)
            }
            .start();
            let error = replay(options(&fake, protocol, decimal(&[1, 2, 3, 4, 5, 6, 1, 1]))).unwrap_err();
            assert!(error.to_string().contains(said), "{protocol} {fault:?}: {error}");
            assert_eq!(error.fault(), whose, "{error}");
        }
    }
}

#[test]
fn options_and_traces_that_do_not_work_are_refused() {
    type Change = fn(&mut Options);
    let fake = Setup::new(Protocol::Redis).start();
    let cases: [(Change, &str); 6] = [
        (|o| o.sources.clear(), "0 traces"),
        (|o| o.value_size_bytes = (1 << 20) + 1, "--value-size 1048577"),
        (|o| o.speed = Some(0.0), "--speed 0"),
        (|o| o.speed = Some(f64::INFINITY), "--speed inf"),
        (|o| o.speed = Some(1.0), "made.txt: this trace does not say when"),
        (
            |o| {
                o.sources.extend((0..64).map(|_| Source {
                    trace: decimal(&[1]),
                    login: None,
                }));
            },
            "65 traces",
        ),
    ];
    for (change, said) in cases {
        let mut options = options(&fake, Protocol::Redis, decimal(&[1]));
        change(&mut options);
        let error = replay(options).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.fault(), Whose::Usage, "{error}");
    }
    let broken = Trace::from_reader("t", Cursor::new(b"1\n2\nx\n".to_vec()), Format::Decimal).unwrap();
    let error = replay(options(&fake, Protocol::Redis, broken)).unwrap_err().to_string();
    assert!(error.contains("t: line 3"), "{error}");
}

#[test]
fn the_json_has_the_fields_of_the_interface() {
    let fake = Setup::new(Protocol::Redis).start();
    let report = replay(options(&fake, Protocol::Redis, decimal(&[1, 1]))).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let names: Vec<&String> = json["traces"][0].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        ["hit_ratio", "hits", "refused", "requests", "seconds", "tenant", "trace"]
    );
}
