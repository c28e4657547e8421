//! Limits in time per tenant, over RESP: refusals and their words.
//!
//! Bytes that are written at once are received at once, and limits are kept by the time of receipt. The answers of a
//! bucket thus do not depend on how fast the test runs.

use tidemark_types::{Permissions, TenantLimits, TenantPlan};

use crate::harness::{Client, Harness, array, open_tenant, tenant, wait_until};

/// The answer to a command above ten operations per second while all are used up.
fn refused(millis: u32) -> String {
    format!("-THROTTLED the tenant's limit of 10 operations per second is reached, retry in {millis} ms\r\n")
}

fn ten_operations() -> TenantLimits {
    TenantLimits {
        ops_per_second: Some(10),
        ..TenantLimits::default()
    }
}

fn start(limits: TenantLimits) -> Harness {
    let shop = TenantPlan {
        limits,
        ..tenant(2, "shop", &[("all", Permissions::ALL)])
    };
    Harness::with(1, vec![open_tenant(), shop])
}

fn log_in(harness: &Harness) -> Client {
    let mut client = harness.connect();
    assert_eq!(client.ask("AUTH shop all"), "+OK\r\n");
    client
}

/// Sends commands with one write.
fn send(client: &mut Client, lines: &[&str]) {
    let words = |line: &&str| array(&line.split(' ').collect::<Vec<_>>());
    client.send(&lines.iter().flat_map(words).collect::<Vec<u8>>());
}

fn info(client: &mut Client, field: &str) -> u64 {
    let text = client.text("INFO all");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("{field}: {text}"))
}

#[test]
fn what_is_above_the_operations_is_refused() {
    let many = "MGET".to_owned() + &" k".repeat(20);
    for (title, lines, replies) in [
        (
            "commands of windows",
            [["SET k v"; 10], ["GET k"; 10]].concat(),
            ["+OK\r\n".repeat(10), refused(100).repeat(10)].concat(),
        ),
        (
            "each key is one",
            vec!["MSET a 1 b 2 c 3 d 4 e 5 f 6", "DEL a b c d e", "DEL a b c d", "PING"],
            format!("+OK\r\n{}:4\r\n{}", refused(100), refused(100)),
        ),
        (
            "more keys than there ever are, once",
            vec![&many, "PING"],
            format!("*20\r\n{}{}", "$-1\r\n".repeat(20), refused(1100)),
        ),
        (
            "who one is costs nothing",
            [&["AUTH shop all"; 12][..], &["PING"; 11]].concat(),
            ["+OK\r\n".repeat(12), "+PONG\r\n".repeat(10), refused(100)].concat(),
        ),
        (
            "a transaction is refused when it is queued, and all of it",
            [&["PING"; 8][..], &["MULTI", "SET k v", "SET l w", "EXEC", "EXEC"]].concat(),
            [
                &"+PONG\r\n".repeat(8),
                "+OK\r\n+QUEUED\r\n",
                &refused(100),
                "-EXECABORT Transaction discarded because of previous errors.\r\n",
                "-ERR EXEC without MULTI\r\n",
            ]
            .concat(),
        ),
        (
            "what was queued is executed",
            [&["PING"; 7][..], &["MULTI", "SET k v", "GET k", "EXEC", "PING"]].concat(),
            [
                &"+PONG\r\n".repeat(7),
                "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\nv\r\n",
                &refused(100),
            ]
            .concat(),
        ),
        (
            "who wants no reply gets none",
            [&["PING"; 9][..], &["CLIENT REPLY SKIP", "PING", "PING"]].concat(),
            ["+PONG\r\n".repeat(9), refused(100)].concat(),
        ),
    ] {
        let harness = start(ten_operations());
        let mut client = log_in(&harness);
        send(&mut client, &lines);
        let mut answered = String::new();
        while answered.len() < replies.len() {
            answered += &String::from_utf8(client.reply()).unwrap();
        }
        assert_eq!(answered, replies, "{title}");
    }
}

#[test]
fn refusals_are_counted_and_are_no_calls() {
    let harness = start(ten_operations());
    let mut client = log_in(&harness);
    send(&mut client, &[["SET k v"; 6], ["GET k"; 6]].concat());
    (0..12).for_each(|_| drop(client.reply()));
    let unlimited = TenantPlan {
        version: 2,
        ..tenant(2, "shop", &[("all", Permissions::ALL)])
    };
    harness.apply(vec![unlimited]);
    let counts = [
        "tidemark_refused_ops",
        "keyspace_hits",
        "keyspace_misses",
        "total_error_replies",
    ];
    assert_eq!(counts.map(|field| info(&mut client, field)), [2, 4, 0, 2]);
    let text = client.text("INFO all");
    for part in [
        "cmdstat_get:calls=4,",
        "rejected_calls=2,failed_calls=0",
        "errorstat_THROTTLED:count=2",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_connection_too_many_is_told_and_closed() {
    const TOO_MANY: &str = "-ERR max number of clients reached: the tenant's limit of 2 connections is reached, \
        retry when one is closed\r\n";
    let limits = TenantLimits {
        connections: Some(2),
        ..TenantLimits::default()
    };
    let open = TenantPlan {
        limits,
        ..open_tenant()
    };
    let shop = TenantPlan {
        limits,
        ..tenant(2, "shop", &[("all", Permissions::ALL)])
    };
    let harness = Harness::with(2, vec![open, shop]);
    let (first, mut second) = (log_in(&harness), log_in(&harness));
    for login in ["AUTH shop all", "HELLO 3 AUTH shop all"] {
        let mut third = harness.connect();
        third.send(&array(&login.split(' ').collect::<Vec<_>>()));
        assert_eq!(String::from_utf8(third.rest()).unwrap(), TOO_MANY, "{login}");
    }
    assert_eq!(
        (
            info(&mut second, "maxclients"),
            info(&mut second, "rejected_connections")
        ),
        (2, 2)
    );
    assert_eq!(
        second.ask("CONFIG GET maxclients"),
        "*2\r\n$10\r\nmaxclients\r\n$1\r\n2\r\n"
    );
    // A connection that is in already may log in again.
    assert_eq!(second.ask("AUTH shop all"), "+OK\r\n");
    drop(first);
    wait_until("the place is free", || info(&mut second, "connected_clients") == 1);
    assert_eq!(log_in(&harness).ask("PING"), "+PONG\r\n");

    // In the open tenant a connection is without a login; one too many may still be somebody else's.
    let mut inside = [harness.connect(), harness.connect()];
    inside
        .iter_mut()
        .for_each(|client| assert_eq!(client.ask("PING"), "+PONG\r\n"));
    let large = format!("SET k {}", "v".repeat(10_000));
    for line in ["PING", "GET k", "HELLO", "RESET", &large] {
        let mut outside = harness.connect();
        outside.send(&array(&line.split(' ').collect::<Vec<_>>()));
        assert_eq!(String::from_utf8(outside.rest()).unwrap(), TOO_MANY, "{line}");
    }
    wait_until("the place is free", || info(&mut second, "connected_clients") == 1);
    assert_eq!(log_in(&harness).ask("PING"), "+PONG\r\n");
}
