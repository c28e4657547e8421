//! Limits in time per tenant, over memcached's protocol. Refusals have their words and no other effect, and a tenant
//! that floods does not keep others waiting.
//!
//! Bytes that are written at once are received at once, and limits are kept by the time of receipt. The answers of a
//! bucket thus do not depend on how fast the test runs.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemark_types::{Refused, TenantLimits, TenantPlan, Weight};

use crate::harness::{Client, Harness, SECRET, Setup, StopAtEnd, found, login, open_tenant, set, tenant, wait_until};

const OPS_REFUSED: &str = "SERVER_ERROR the tenant's limit of 10 operations per second is reached, retry in 100 ms\r\n";

const VERSION: &str = concat!("VERSION 1.6.45-tidemark-", env!("CARGO_PKG_VERSION"), "\r\n");

fn limited(limits: TenantLimits) -> TenantPlan {
    TenantPlan {
        limits,
        ..tenant(2, "shop")
    }
}

/// One worker, the open tenant, and `shop` with these limits.
fn start(limits: TenantLimits) -> Harness {
    Harness::start(Setup {
        workers: 1,
        tenants: vec![open_tenant(), limited(limits)],
        ..Setup::default()
    })
}

/// One worker, `shop`, and another tenant.
fn beside_flood(shop: TenantPlan) -> Harness {
    Harness::start(Setup {
        workers: 1,
        tenants: vec![shop, tenant(3, "flood")],
        ..Setup::default()
    })
}

fn ten_operations() -> TenantLimits {
    TenantLimits {
        ops_per_second: Some(10),
        ..TenantLimits::default()
    }
}

fn refused(harness: &Harness) -> Refused {
    harness.tenant(2).unwrap().counters.refused
}

#[test]
fn what_is_above_the_operations_is_refused_and_is_nothing_else() {
    let harness = start(ten_operations());
    let mut client = harness.log_in("shop");
    let before = harness.tenant(2).unwrap().counters;
    let sets: Vec<Vec<u8>> = (0..20).map(|n| set(&format!("k{n:02}"), b"get k\r\n")).collect();
    client.ask(
        &sets.concat(),
        ["STORED\r\n".repeat(10), OPS_REFUSED.repeat(10)].concat().as_bytes(),
    );
    let after = harness.tenant(2).unwrap().counters;
    assert_eq!(after.refused.ops, 10);
    assert_eq!((after.sets - before.sets, after.gets), (10, 0));
    // Neither request nor reply is the tenant's to pay for.
    let moved = [
        after.network_in_bytes - before.network_in_bytes,
        after.network_out_bytes - before.network_out_bytes,
    ];
    assert_eq!(moved, [sets[..10].concat().len() as u64, 80]);
    // Without the limit, it shows what was stored.
    harness.apply(vec![TenantPlan {
        version: 2,
        ..limited(TenantLimits::default())
    }]);
    client.ask(b"get k09\r\n", &found("k09", b"get k\r\n"));
    client.ask(b"get k10\r\n", b"END\r\n");
    assert_eq!((client.stat("refused_ops"), client.stat("cmd_set")), (10, 10));
}

#[test]
fn each_key_is_an_operation_and_what_is_quiet_stays_quiet() {
    for (title, request, reply) in [
        (
            "six keys, six more that are too many, and the four that are left",
            "get a b c d e f\r\nget a b c d e f\r\nget a b c d\r\n".to_owned(),
            format!("END\r\n{}END\r\n", OPS_REFUSED.replace("100 ms", "200 ms")),
        ),
        (
            "more than there ever are, once",
            format!("get{}\r\nget a\r\n", " k".repeat(30)),
            format!("END\r\n{}", OPS_REFUSED.replace("100 ms", "2100 ms")),
        ),
        (
            "no reply is none, and what waits behind it is answered",
            format!("{}mn\r\n", "delete k noreply\r\n".repeat(12)),
            "MN\r\n".to_owned(),
        ),
        (
            "quiet meta commands tell of errors",
            format!("{}mn\r\n", "mg k q\r\n".repeat(12)),
            format!("{}MN\r\n", OPS_REFUSED.repeat(2)),
        ),
        (
            "commands that are executed by themselves",
            format!("{}mn\r\n", "version\r\nflush_all noreply\r\n".repeat(6)),
            format!("{}{OPS_REFUSED}MN\r\n", VERSION.repeat(5)),
        ),
    ] {
        let harness = start(ten_operations());
        let mut client = harness.log_in("shop");
        println!("{title}");
        client.ask(request.as_bytes(), reply.as_bytes());
        assert!(refused(&harness).ops > 0, "{title}");
    }
}

#[test]
fn bytes_are_those_of_requests_and_replies() {
    let harness = start(TenantLimits {
        bytes_per_second: Some(4096),
        ..TenantLimits::default()
    });
    let mut client = harness.log_in("shop");
    let (value, large) = ([b'v'; 2000], [b'w'; 2500]);
    let request = [&set("k", &value)[..], &set("l", &large), b"get k\r\nget k\r\nget k\r\n"].concat();
    client.send(&request);
    client.expect(b"STORED\r\n");
    let is_refusal = |line: &[u8]| {
        line.starts_with(b"SERVER_ERROR the tenant's limit of 4096 bytes per second is reached, retry in ")
            && line.ends_with(b" ms\r\n")
    };
    // The body of a refused command is not taken for commands.
    assert!(is_refusal(&client.line()));
    client.expect(&found("k", &value));
    // The rest is little, and the reply may take more than that; then it is over.
    client.expect(&found("k", &value));
    assert!(is_refusal(&client.line()));
    assert_eq!(refused(&harness).bytes, 2);
}

#[test]
fn a_connection_too_many_is_told_and_closed() {
    const TOO_MANY: &[u8] = b"SERVER_ERROR too many open connections: the tenant's limit of 2 connections is reached, \
        retry when one is closed\r\n";
    let limits = TenantLimits {
        connections: Some(2),
        ..TenantLimits::default()
    };
    let harness = Harness::start(Setup {
        tenants: vec![
            TenantPlan {
                limits,
                ..open_tenant()
            },
            limited(limits),
        ],
        ..Setup::default()
    });
    let (first, mut second) = (harness.log_in("shop"), harness.log_in("shop"));
    let mut third = harness.connect();
    third.send(&login("shop", SECRET));
    third.expect_end(TOO_MANY);
    second.ask(b"get k\r\n", b"END\r\n");
    assert_eq!((second.stat("max_connections"), refused(&harness).connections), (2, 1));
    drop(first);
    wait_until("the place is free", || harness.tenant(2).unwrap().connections == 1);
    harness.log_in("shop").ask(b"get k\r\n", b"END\r\n");

    // In the open tenant a connection is without a login; one too many may still be somebody else's.
    let mut inside = [harness.connect(), harness.connect()];
    inside
        .iter_mut()
        .for_each(|client| client.ask(b"get k\r\n", b"END\r\n"));
    for request in [&b"get k\r\n"[..], &set("k", b"v"), &set("k", &[b'v'; 10_000])] {
        let mut outside = harness.connect();
        outside.send(request);
        outside.expect_end(TOO_MANY);
    }
    wait_until("the place is free", || harness.tenant(2).unwrap().connections == 1);
    let mut other = harness.connect();
    other.ask(&login("shop", SECRET), b"STORED\r\n");
    other.ask(b"get k\r\n", b"END\r\n");
}

/// Connections of the tenant that floods, and commands in the pipeline of each.
const FLOODING: usize = 64;
const PIPELINE: usize = 5000;

#[test]
fn who_asks_for_little_does_not_wait_for_all_of_a_flood() {
    let harness = beside_flood(tenant(2, "shop"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&is_over);
        for _ in 0..FLOODING {
            let mut client = harness.log_in("flood");
            let is_over = &is_over;
            scope.spawn(move || {
                let (request, reply) = (b"get k\r\n".repeat(PIPELINE), b"END\r\n".repeat(PIPELINE));
                while !is_over.load(Ordering::Relaxed) {
                    client.ask(&request, &reply);
                }
            });
        }
        let mut shop = harness.log_in("shop");
        let flooded = || harness.tenant(3).map_or(0, |tenant| tenant.counters.gets);
        wait_until("the flood is there", || flooded() > (FLOODING * PIPELINE) as u64);
        // The part of the flood that is served while one get waits. Some of that is the time that this thread itself
        // waits for a core. The least of many is therefore the server's.
        let waited = (0..200).map(|_| {
            let before = flooded();
            shop.ask(b"get k\r\n", b"END\r\n");
            flooded() - before
        });
        let least = waited.min().unwrap();
        // First come, first served, it would be a visit to each connection: 256 commands each.
        assert!(least < 8 * 256, "{least} gets of the flood while one waited");
    });
}

/// Connections of each thread of a storm.
const STORM: usize = 500;

#[test]
fn a_storm_of_connections_and_failed_logins_keeps_nobody_else_out() {
    let harness = beside_flood(tenant(2, "shop"));
    let attacker = Ipv4Addr::new(127, 0, 0, 2);
    let refused_logins = || harness.tenant(3).map_or(0, |tenant| tenant.counters.refused.logins);
    std::thread::scope(|scope| {
        let storm: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..STORM {
                        drop(harness.connect_from(attacker));
                        let mut client = harness.connect_from(attacker);
                        client.send(&login("flood", &SECRET.replace('0', "1")));
                        let line = client.line();
                        assert!(line.starts_with(b"CLIENT_ERROR authentication failure"), "{line:?}");
                    }
                })
            })
            .collect();
        wait_until("the storm is there", || refused_logins() > 0);
        let (mut visits, mut shop) = (0, harness.log_in("shop"));
        while visits == 0 || storm.iter().any(|thread| !thread.is_finished()) {
            visits += 1;
            let (key, value) = (format!("k{visits}"), visits.to_string());
            shop.ask(&set(&key, value.as_bytes()), b"STORED\r\n");
            let mut other = harness.log_in("shop");
            other.ask(format!("get {key}\r\n").as_bytes(), &found(&key, value.as_bytes()));
        }
    });
    assert_eq!(refused_logins(), 4 * STORM as u64);
    assert_eq!(refused(&harness), Refused::default());
    wait_until("nobody is left", || harness.look().connections == 0);
}

#[test]
fn a_weight_is_a_share_of_the_server() {
    let heavy = TenantPlan {
        weight: Weight::new(4).unwrap(),
        ..tenant(2, "shop")
    };
    let harness = beside_flood(heavy);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&is_over);
        let flood = |mut client: Client| {
            let is_over = &is_over;
            scope.spawn(move || {
                // The server's work, not the clients', is to be what takes time: many keys in few bytes, and nothing found.
                let request = format!("get{}\r\n", " k".repeat(500)).into_bytes().repeat(40);
                let reply = b"END\r\n".repeat(40);
                while !is_over.load(Ordering::Relaxed) {
                    client.ask(&request, &reply);
                }
            });
        };
        (0..4).for_each(|_| flood(harness.log_in("shop")));
        (0..4).for_each(|_| flood(harness.log_in("flood")));
        let gets = || [2, 3].map(|id| harness.tenant(id).map_or(0, |tenant| tenant.counters.gets));
        wait_until("both are busy", || gets().iter().all(|gets| *gets > 200_000));
        let before = gets();
        wait_until("enough was served", || gets()[1] - before[1] > 2_000_000);
        let after = gets();
        let ratio = (after[0] - before[0]) as f64 / (after[1] - before[1]) as f64;
        assert!((2.5..6.0).contains(&ratio), "{ratio}, of weights 4 and 1");
    });
}
