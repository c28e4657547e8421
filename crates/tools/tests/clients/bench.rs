//! `bench` against the fake server.

use tidemark_tools::bench::{Options, Report, Workload, run};
use tidemark_tools::client::{Login, Protocol, Secrets};
use tidemark_tools::load::{Distribution, Lifetimes, Order, ValueSize};
use tidemark_tools::{Error, Fault as Whose};

use crate::fake::{Fake, Fault, Setup};

const KEYS: u64 = 200;

fn options(fake: &Fake, protocol: Protocol) -> Options {
    Options {
        address: fake.address,
        protocol,
        logins: vec![None],
        keys_apart: false,
        connections: 4,
        pipeline: 8,
        threads: 2,
        workload: Workload {
            keys: KEYS,
            distribution: Distribution::Zipf { alpha: 0.9 },
            order: Order::Scrambled,
            key_size_bytes: 12,
            value_size: ValueSize::Range(10, 100),
            reads_ratio: 0.5,
            fresh_ratio: 0.0,
            lifetimes: Lifetimes::default(),
            seed: 1,
        },
        rate: None,
        burst: 1,
        sleeps: false,
        seconds: 0.2,
        preload: true,
        look_aside: false,
        verify: true,
    }
}

fn start(protocol: Protocol, fault: Fault) -> Fake {
    Setup {
        fault,
        ..Setup::new(protocol)
    }
    .start()
}

/// A server of [`TENANTS`].
fn start_with_tenants(protocol: Protocol) -> (Fake, Options) {
    let fake = Setup {
        tenants: TENANTS,
        ..Setup::new(protocol)
    }
    .start();
    let options = options(&fake, protocol);
    (fake, options)
}

fn measure(options: &Options) -> Result<Report, Error> {
    run(options, &mut |_| {})
}

#[test]
fn a_good_server_makes_no_errors() {
    for protocol in Protocol::ALL {
        for (value_size, pipeline) in [
            (ValueSize::Fixed(0), 1),
            (ValueSize::Fixed(1), 3),
            (ValueSize::Range(10, 3000), 50),
            (ValueSize::Fixed(600_000), 2),
            (ValueSize::Etc, 8),
        ] {
            let fake = start(protocol, Fault::None);
            let mut options = options(&fake, protocol);
            options.pipeline = pipeline;
            options.workload.value_size = value_size;
            let report = measure(&options).unwrap();
            let case = format!("{protocol} {value_size:?}: {report:?}");
            assert!(report.requests > 0 && report.ops_per_second > 0.0, "{case}");
            assert_eq!(
                (report.errors, report.preload_errors, report.hit_ratio),
                (0, 0, Some(1.0)),
                "{case}"
            );
            // The server is this process: its time would be the load's too.
            assert_eq!(report.server_cpu_ns_per_op, None);
            let (cache, latency) = (fake.cache("default"), report.latency_us.unwrap());
            assert_eq!(
                cache.gets.len() as u64 + cache.sets.len() as u64,
                report.requests + KEYS,
                "{case}"
            );
            assert!(cache.sets[..].iter().all(|key| key.len() == 12));
            assert!(
                latency.p50 > 0.0 && latency.p50 <= latency.p99 && latency.p99 <= latency.p999,
                "{case}"
            );
        }
    }
}

#[test]
fn replies_may_come_in_pieces() {
    for protocol in Protocol::ALL {
        let fake = start(protocol, Fault::Pieces);
        let report = measure(&options(&fake, protocol)).unwrap();
        assert_eq!((report.errors, report.hit_ratio), (0, Some(1.0)), "{report:?}");
        assert!(report.receives > 0, "{report:?}");
    }
}

#[test]
fn mistakes_of_the_server_are_counted() {
    for protocol in Protocol::ALL {
        for (fault, wrong, said) in [
            (Fault::WrongByte, true, "not the bytes"),
            (Fault::ShortValue, true, "bytes where"),
            (Fault::WrongKey, protocol == Protocol::Memcached, "another key's value"),
            (Fault::Stored, true, "another request's reply"),
        ] {
            let fake = start(protocol, fault);
            let report = measure(&options(&fake, protocol)).unwrap();
            let gets = fake.cache("default").gets.len() as u64;
            let case = format!("{protocol} {fault:?}: {report:?}");
            if !wrong {
                assert_eq!(report.errors, 0, "{case}");
                continue;
            }
            let expected = if fault == Fault::Stored { report.errors } else { gets };
            assert!(report.errors > 0 && report.errors == expected, "{case}");
            assert_eq!((report.mistakes.wrong, report.hit_ratio), (expected, None), "{case}");
            assert!(report.first_mistake.as_ref().unwrap().contains(said), "{case}");
        }
    }
}

#[test]
fn without_verify_lengths_and_keys_are_checked_but_not_bytes() {
    for (fault, errors) in [
        (Fault::WrongByte, false),
        (Fault::ShortValue, true),
        (Fault::WrongKey, true),
    ] {
        let fake = start(Protocol::Memcached, fault);
        let mut options = options(&fake, Protocol::Memcached);
        options.verify = false;
        assert_eq!(measure(&options).unwrap().errors > 0, errors, "{fault:?}");
    }
}

#[test]
fn refused_sets_are_errors_and_the_rest_goes_on() {
    for protocol in Protocol::ALL {
        let fake = start(protocol, Fault::RefuseAbove(50));
        let report = measure(&options(&fake, protocol)).unwrap();
        assert!(
            report.mistakes.refused > 0 && report.errors == report.mistakes.refused,
            "{report:?}"
        );
        assert!(
            report.errors < report.requests && report.preload_errors > 0,
            "{report:?}"
        );
        assert!(report.first_mistake.unwrap().contains("refused"));
    }
}

#[test]
fn what_makes_a_run_useless_is_an_error() {
    for protocol in Protocol::ALL {
        for (fault, said, whose) in [
            (Fault::RefuseAll, "refused every request", Whose::Denied),
            (Fault::Garbage, "does not answer in the", Whose::Failed),
            (Fault::CloseAt(0), "closed the connection", Whose::Failed),
            (Fault::CloseAt(KEYS + 50), "closed the connection", Whose::Failed),
        ] {
            let fake = start(protocol, fault);
            let error = measure(&options(&fake, protocol)).unwrap_err();
            assert!(error.to_string().contains(said), "{protocol} {fault:?}: {error}");
            assert!(error.to_string().contains(&fake.address.to_string()), "{error}");
            assert_eq!(error.fault(), whose, "{error}");
        }
    }
}

#[test]
fn a_closed_port_is_named() {
    let fake = start(Protocol::Redis, Fault::None);
    let mut options = options(&fake, Protocol::Redis);
    // A port that was free a moment ago.
    options.address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = measure(&options).unwrap_err().to_string();
    assert!(
        error.contains(&format!("can not connect to {}", options.address)),
        "{error}"
    );
}

const TENANTS: &[(&str, &str)] = &[("shop", "s1"), ("blog", "s2"), ("mail", "s3")];

fn login(secrets: &str, tenant: &str) -> Option<Login> {
    Secrets::parse(secrets)
        .unwrap()
        .login(&tenant.parse().unwrap())
        .unwrap()
}

#[test]
fn tenants_share_the_connections() {
    for protocol in Protocol::ALL {
        let (fake, mut options) = start_with_tenants(protocol);
        options.connections = 7;
        options.logins = TENANTS
            .iter()
            .map(|(name, _)| login("shop s1\nblog s2\nmail s3", name))
            .collect();
        let report = measure(&options).unwrap();
        assert_eq!((report.errors, report.hit_ratio), (0, Some(1.0)), "{report:?}");
        let caches: Vec<_> = TENANTS.iter().map(|(name, _)| fake.cache(name)).collect();
        assert_eq!(
            caches.iter().map(|cache| cache.connections).collect::<Vec<_>>(),
            [3, 2, 2]
        );
        for cache in caches {
            let mut preloaded = cache.sets[..usize::try_from(KEYS).unwrap()].to_vec();
            preloaded.sort_unstable();
            preloaded.dedup();
            assert_eq!(preloaded.len() as u64, KEYS);
        }
    }
}

/// As many tenants would, each connection for a part of the keys.
#[test]
fn one_tenant_may_be_asked_for_the_keys_of_several() {
    const PARTS: usize = 3;
    for protocol in Protocol::ALL {
        let (fake, mut options) = start_with_tenants(protocol);
        options.connections = 7;
        options.logins = vec![login("s1", "shop"); PARTS];
        options.keys_apart = true;
        let report = measure(&options).unwrap();
        assert_eq!((report.errors, report.hit_ratio), (0, Some(1.0)), "{report:?}");
        let cache = fake.cache("shop");
        assert_eq!(cache.connections, 7);
        let mut stored = cache.sets.clone();
        stored.sort_unstable();
        stored.dedup();
        assert_eq!(stored.len() as u64, PARTS as u64 * KEYS);
        // A login is followed by a get of a key that is none of these.
        let part_of = |key: &Vec<u8>| Some(String::from_utf8_lossy(key).parse::<u64>().ok()? / KEYS);
        let is_asked_for = |part: u64| cache.gets.iter().any(|key| part_of(key) == Some(part));
        assert!((0..PARTS as u64).all(is_asked_for));
    }
}

#[test]
fn a_wrong_secret_is_denied() {
    for protocol in Protocol::ALL {
        let (_fake, mut options) = start_with_tenants(protocol);
        options.logins = vec![login("s2", "shop")];
        let error = measure(&options).unwrap_err();
        assert_eq!(error.fault(), Whose::Denied);
        let said = error.to_string();
        assert!(
            said.contains("refused the login of tenant `shop`") && !said.contains("s2"),
            "{said}"
        );
    }
}

#[test]
fn a_login_that_is_stored_as_a_value_is_none() {
    let fake = start(Protocol::Memcached, Fault::None);
    let mut options = options(&fake, Protocol::Memcached);
    options.logins = vec![login("s1", "shop")];
    let error = measure(&options).unwrap_err();
    assert_eq!(error.fault(), Whose::Denied);
    let said = error.to_string();
    let expected = format!("{} did not take the login of tenant `shop`", fake.address);
    assert!(said.starts_with(&expected) && !said.contains("s1"), "{said}");
    // The secret is not left behind, and nothing was measured under another name.
    let cache = fake.cache("default");
    assert_eq!((cache.keys().count(), cache.sets.len()), (0, 1));
    assert!(cache.sets[0].starts_with(b"auth"));
}

#[test]
fn what_was_missed_is_stored_when_looking_aside() {
    for rate in [None, Some(20_000.0)] {
        let fake = start(Protocol::Memcached, Fault::None);
        let mut options = options(&fake, Protocol::Memcached);
        (options.preload, options.look_aside, options.rate) = (false, true, rate);
        (options.connections, options.threads, options.pipeline) = (1, 1, 4);
        options.workload.reads_ratio = 1.0;
        let report = measure(&options).unwrap();
        let cache = fake.cache("default");
        assert_eq!(report.errors, 0);
        // One set for each miss; nearly one miss for each key: gets of a key overlap in a pipeline.
        let misses = cache.sets.len() as f64;
        let expected = 1.0 - misses / cache.gets.len() as f64;
        assert!((report.hit_ratio.unwrap() - expected).abs() < 1e-9, "{report:?}");
        assert!(misses > 20.0 && misses < 2.0 * KEYS as f64, "{misses}");
    }
}

#[test]
fn an_open_loop_sends_what_is_due_and_no_more() {
    for (threads, burst) in [(1, 1), (2, 1), (1, 8), (2, 5)] {
        let fake = start(Protocol::Redis, Fault::None);
        let mut options = options(&fake, Protocol::Redis);
        (options.rate, options.seconds, options.threads) = (Some(2000.0), 0.5, threads);
        options.burst = burst;
        let report = measure(&options).unwrap();
        assert_eq!(
            (report.requests + report.unsent, report.errors),
            (1000, 0),
            "{report:?}"
        );
    }
}

/// One request is in flight, 100 a second, and the server stands still from the 20th on until a second has passed. Only
/// one request was really waited for. About eighty were due meanwhile, and their latencies have to say so.
#[test]
fn a_stall_shows_in_all_requests_that_were_due() {
    let fake = start(Protocol::Redis, Fault::StallAt(20));
    let mut options = options(&fake, Protocol::Redis);
    (options.connections, options.pipeline, options.threads, options.preload) = (1, 1, 1, false);
    (options.rate, options.seconds) = (Some(100.0), 2.0);
    let report = run(&options, &mut |progress| {
        if progress.elapsed.as_secs_f64() >= 1.0 {
            fake.open_gate();
        }
    })
    .unwrap();
    // The last ones are not sent where this machine stands still at the end; they count all the same.
    assert_eq!((report.requests + report.unsent, report.errors), (200, 0), "{report:?}");
    assert!(report.unsent <= 5, "{report:?}");
    // 80 of 200 waited 0 to 0.8 s: by rank, all but two waited no longer than 0.78 s, the longest 0.8 s.
    let latency = report.latency_us.unwrap();
    assert!(latency.p99 > 700_000.0 && latency.p999 > 750_000.0, "{report:?}");
}

/// As above, but nobody opens the gate: due requests could not be sent, and are not forgotten.
#[test]
fn what_is_never_answered_counts() {
    let fake = start(Protocol::Redis, Fault::StallAt(0));
    let mut options = options(&fake, Protocol::Redis);
    (options.connections, options.pipeline, options.threads, options.preload) = (1, 1, 1, false);
    (options.rate, options.seconds) = (Some(100.0), 0.3);
    let error = measure(&options).unwrap_err();
    assert!(error.to_string().contains("did not answer within 2 s"), "{error}");
    assert_eq!(error.fault(), Whose::Failed);

    let fake = start(Protocol::Redis, Fault::StallAt(10));
    options.address = fake.address;
    let report = measure(&options).unwrap();
    assert_eq!(
        (report.requests, report.mistakes.unanswered, report.unsent),
        (11, 1, 19),
        "{report:?}"
    );
    assert!(report.latency_us.unwrap().p99 > 200_000.0, "{report:?}");
}

#[test]
fn the_seed_decides_what_is_asked() {
    let asked = |seed| {
        let fake = start(Protocol::Redis, Fault::None);
        let mut options = options(&fake, Protocol::Redis);
        (options.connections, options.threads, options.preload) = (1, 1, false);
        options.workload.seed = seed;
        measure(&options).unwrap();
        let cache = fake.cache("default");
        let first = |keys: &[Vec<u8>]| keys.iter().take(50).cloned().collect::<Vec<_>>();
        (first(&cache.gets), first(&cache.sets))
    };
    assert_eq!(asked(1), asked(1));
    assert_ne!(asked(1), asked(2));
}

#[test]
fn impossible_options_are_refused() {
    type Change = fn(&mut Options);
    let fake = start(Protocol::Redis, Fault::None);
    let cases: [(Change, &str); 12] = [
        (|o| o.connections = 0, "--connections 0"),
        (|o| o.connections = 1_000_000, "--connections 1000000"),
        (|o| o.connections = 1, "--connections 1: at least one"),
        (|o| o.pipeline = 0, "--pipeline 0"),
        (|o| o.threads = 0, "--threads 0"),
        (|o| o.burst = 9, "burst 9: allowed are 1 to 8"),
        (|o| o.seconds = 0.0, "--seconds 0"),
        (|o| o.rate = Some(f64::NAN), "--rate NaN"),
        (|o| o.workload.reads_ratio = 1.5, "--reads 1.5"),
        (|o| o.workload.keys = 0, "--keys 0: "),
        (|o| o.workload.key_size_bytes = 1, "--key-size 1: "),
        (
            |o| o.workload.distribution = Distribution::Zipf { alpha: -1.0 },
            "--zipf -1: ",
        ),
    ];
    for (change, said) in cases {
        let mut options = options(&fake, Protocol::Redis);
        change(&mut options);
        let error = measure(&options).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.fault(), Whose::Usage, "{error}");
    }
}

#[test]
fn the_json_has_the_fields_of_the_interface() {
    let fake = start(Protocol::Redis, Fault::None);
    let report = measure(&options(&fake, Protocol::Redis)).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let names: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "errors",
            "hit_ratio",
            "latency_us",
            "ops_per_second",
            "requests",
            "server_cpu_ns_per_op"
        ]
    );
    let names: Vec<&String> = json["latency_us"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["p50", "p99", "p999"]);
}
