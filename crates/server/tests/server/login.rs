//! memcached's ASCII login: right and wrong logins, and the input that may come before them.

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tidemark_server::Limits;
use tidemark_types::{Permissions, TenantPlan};

use crate::harness::{
    Client, Harness, SECRET, Setup, found, login, open_tenant, quick_to_refuse, secret, set, tenant, wait_until,
};

const FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const BAD_FORM: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
/// A secret of the right form, but nobody's.
const WRONG_SECRET: &str = "0123456789-abcdefghijklmnopqrstuvwxyz_ABCDF";

/// A server without an open tenant.
fn closed_server(limits: Limits) -> Harness {
    Harness::start(Setup {
        limits,
        tenants: vec![tenant(2, "shop"), tenant(3, "blog")],
        ..Setup::default()
    })
}

/// A server with the open tenant beside another one.
fn open_server(limits: Limits) -> Harness {
    Harness::start(Setup {
        limits,
        tenants: vec![open_tenant(), tenant(2, "shop")],
        ..Setup::default()
    })
}

/// On a new connection, the request gets the reply, and the connection is closed.
#[track_caller]
fn check_closed(mut client: Client, request: &[u8], reply: &[u8]) {
    client.send(request);
    client.expect_end(reply);
}

#[test]
fn the_right_secret_lets_in() {
    let harness = closed_server(quick_to_refuse());
    let mut client = harness.connect();
    client.ask(&login("shop", SECRET), b"STORED\r\n");
    client.ask(b"get auth\r\n", b"END\r\n");
    client.ask(&set("k", b"of shop"), b"STORED\r\n");
    // A login and commands in one piece; whatever key, flags and time.
    let mut other = harness.connect();
    let body = format!("blog {SECRET}");
    let pieces = format!("set x 7 99 {}\r\n{body}\r\nget k\r\nmn\r\n", body.len());
    other.ask(pieces.as_bytes(), b"STORED\r\nEND\r\nMN\r\n");
    let mut silent = harness.connect();
    let pieces = format!("set x 0 0 {} noreply\r\nshop {SECRET}\r\nget k\r\n", body.len());
    silent.ask(pieces.as_bytes(), &found("k", b"of shop"));
}

#[test]
fn nobody_else_gets_in() {
    let harness = closed_server(quick_to_refuse());
    let named = |text: &str| set("login", text.as_bytes());
    for (request, reply) in [
        (login("shop", WRONG_SECRET), FAILURE),
        (login("nobody", SECRET), FAILURE),
        (login("shop", &SECRET[1..]), FAILURE),
        (login("shop", &format!("{SECRET} ")), FAILURE),
        (login("SHOP", SECRET), FAILURE),
        (named("shop"), BAD_FORM),
        (named("shop "), BAD_FORM),
        (named(&format!(" {SECRET}")), BAD_FORM),
        (named(""), BAD_FORM),
        (b"get k\r\n".to_vec(), UNAUTHENTICATED),
        (b"gets a b\r\n".to_vec(), UNAUTHENTICATED),
        (b"mg k v\r\n".to_vec(), UNAUTHENTICATED),
        (b"ms k 1\r\nx\r\n".to_vec(), UNAUTHENTICATED),
        (b"mn\r\n".to_vec(), UNAUTHENTICATED),
        (b"version\r\n".to_vec(), UNAUTHENTICATED),
        (b"stats\r\n".to_vec(), UNAUTHENTICATED),
        (b"flush_all\r\n".to_vec(), UNAUTHENTICATED),
        (b"incr k 1\r\n".to_vec(), UNAUTHENTICATED),
        (
            login("shop", SECRET)
                .strip_prefix(b"set")
                .map(|rest| [b"add", rest].concat())
                .unwrap(),
            UNAUTHENTICATED,
        ),
        (b"quit\r\n".to_vec(), b""),
    ] {
        check_closed(harness.connect(), &request, reply);
        // Nothing that comes behind is done.
        check_closed(
            harness.connect(),
            &[&request[..], &login("shop", SECRET)].concat(),
            reply,
        );
        // A client with the right secret is let in, from the same address.
        harness.connect().ask(&login("blog", SECRET), b"STORED\r\n");
    }
}

#[test]
fn before_login_little_is_received_and_not_for_long() {
    let limits = Limits {
        login: Duration::from_millis(300),
        ..quick_to_refuse()
    };
    let harness = closed_server(limits);
    let mut logged_in = harness.log_in("shop");
    // Silent, or always in the middle of something.
    harness.connect().expect_end(b"");
    let mut slow = harness.connect();
    slow.send(b"set login 0 0 48\r\nshop ");
    slow.expect_end(b"");
    logged_in.ask(b"mn\r\n", b"MN\r\n");
    drop(harness);
    // Within the time of this one, only the length can close.
    let harness = closed_server(Limits {
        login: Duration::from_secs(3600),
        ..quick_to_refuse()
    });
    for request in [
        "x".repeat(5000),
        format!("get {}", "k ".repeat(2500)),
        format!("set login 0 0 5000\r\n{}", "x".repeat(5002)),
        format!("set login 0 0 1000000000\r\n{}", "x".repeat(5002)),
        format!("set login 0 0 4096\r\n{}", "x".repeat(5000)),
    ] {
        let mut client = harness.connect();
        // The server may close before all of it is sent.
        let _ = client.stream.write_all(request.as_bytes());
        let (reply, ended) = client.receive_until(|_| false);
        assert!(ended && reply.len() < 100, "{}", reply.escape_ascii());
    }
    wait_until("nothing is held for them", || harness.buffer_bytes() == 0);
}

#[test]
fn on_loopback_the_open_tenant_needs_no_login() {
    let harness = open_server(Limits {
        login: Duration::from_millis(100),
        ..quick_to_refuse()
    });
    let mut client = harness.connect();
    client.ask(&set("k", b"open"), b"STORED\r\n");
    let mut other = harness.log_in("shop");
    other.ask(b"get k\r\n", b"END\r\n");
    // Later, the same text is a value, and so it is at once with another key or another command.
    let text = format!("shop {SECRET}");
    client.ask(&login("shop", SECRET), b"STORED\r\n");
    client.ask(b"get auth\r\n", &found("auth", text.as_bytes()));
    client.ask(b"delete auth\r\n", b"DELETED\r\n");
    client.ask(b"get k\r\n", &found("k", b"open"));
    harness.connect().ask(&set("v", text.as_bytes()), b"STORED\r\n");
    client.ask(b"get v\r\n", &found("v", text.as_bytes()));
    harness.connect().ask(b"add auth 0 0 1\r\nx\r\n", b"STORED\r\n");
    client.ask(b"get auth\r\n", &found("auth", b"x"));
    client.ask(b"delete auth\r\n", b"DELETED\r\n");
    // Whatever a login lacks, it is none of the open tenant's values, and the following commands are not done there.
    // Which names there are is not told.
    for (request, reply) in [
        (login("shop", WRONG_SECRET), FAILURE),
        (login("shop", &SECRET[1..]), FAILURE),
        (login("shop", &format!("{SECRET}!")), FAILURE),
        (login("nobody", SECRET), FAILURE),
        (login("-", SECRET), FAILURE),
        (set("auth", b"shop"), BAD_FORM),
        (set("auth", b""), BAD_FORM),
        (
            b"set auth 0 0\r\n".to_vec(),
            b"CLIENT_ERROR bad command line format\r\n",
        ),
        (b"SET auth 0 0 6\r\nshop x\r\n".to_vec(), b"ERROR\r\n"),
        (
            b"set auth x 0 6\r\nshop x\r\n".to_vec(),
            b"CLIENT_ERROR bad command line format\r\n",
        ),
        (
            b"set auth 0 0 4000000\r\n".to_vec(),
            b"SERVER_ERROR object too large for cache\r\n",
        ),
    ] {
        check_closed(harness.connect(), &[&request[..], b"flush_all\r\n"].concat(), reply);
        client.ask(b"get k auth\r\n", &found("k", b"open"));
    }
    // A client of the open tenant has no time limit: one that is looked at every second passed meanwhile.
    client.ask(b"set timer 0 2 1\r\nx\r\n", b"STORED\r\n");
    wait_until("two seconds are over", || client.answer(b"mg timer\r\n") == b"EN\r\n");
}

#[test]
fn a_right_secret_is_never_refused() {
    const FAILURES: usize = 300;
    let harness = closed_server(quick_to_refuse());
    let here = Ipv4Addr::new(127, 0, 7, 1);
    for number in 0..FAILURES {
        let name = if number % 2 == 0 {
            "shop".to_owned()
        } else {
            format!("nobody{number}")
        };
        check_closed(harness.connect_from(here), &login(&name, WRONG_SECRET), FAILURE);
    }
    for name in ["shop", "blog"] {
        harness.connect_from(here).ask(&login(name, SECRET), b"STORED\r\n");
    }
    let failed = harness.look().failed_logins;
    assert_eq!(failed, FAILURES as u64, "with whatever name");
    let of_shop = harness.tenant(2).unwrap().counters.refused.logins;
    assert_eq!(of_shop, FAILURES as u64 / 2);
}

#[test]
fn a_failure_is_answered_late_and_costs_nobody_else() {
    let delay = Duration::from_millis(700);
    let harness = Harness::start(Setup {
        workers: 1,
        limits: Limits {
            failed_login: delay,
            ..Limits::default()
        },
        tenants: vec![open_tenant(), tenant(2, "shop")],
        ..Setup::default()
    });
    let mut other = harness.log_in("shop");
    let mut failing: Vec<Client> = (0..50).map(|_| harness.connect()).collect();
    let began = Instant::now();
    for client in &mut failing {
        // The following commands are not executed meanwhile, and not later.
        client.send(&[&login("shop", WRONG_SECRET)[..], &set("k", b"x")].concat());
    }
    wait_until("all have failed", || harness.look().failed_logins == 50);
    let mut answers = 0;
    while began.elapsed() < delay / 2 {
        other.ask(b"get k\r\n", b"END\r\n");
        answers += 1;
    }
    assert!(answers > 100, "{answers}");
    for mut client in failing {
        client.expect_end(FAILURE);
        assert!(began.elapsed() >= delay);
    }
    harness.connect().ask(b"get k\r\n", b"END\r\n");
}

#[test]
fn a_connection_ends_with_its_secret() {
    let harness = open_server(quick_to_refuse());
    let (new, newest) = (WRONG_SECRET, "newest");
    let plan = |version, secrets: &[&str]| TenantPlan {
        version,
        secrets: secrets.iter().map(|text| secret(text, Permissions::ALL)).collect(),
        ..tenant(2, "shop")
    };
    let (mut open, mut old) = (harness.connect(), harness.log_in("shop"));
    harness.apply(vec![plan(2, &[SECRET, new])]);
    let mut young = harness.connect();
    young.ask(&login("shop", new), b"STORED\r\n");
    // Both hold until the older one ends, and only its connections end with it.
    old.ask(&set("k", b"v"), b"STORED\r\n");
    harness.apply(vec![plan(3, &[new, newest])]);
    old.expect_end(b"");
    young.ask(b"get k\r\n", &found("k", b"v"));
    check_closed(harness.connect(), &login("shop", SECRET), FAILURE);
    // A secret whose permissions change has ended, too.
    let reader = TenantPlan {
        secrets: vec![secret(new, Permissions::READ)],
        ..plan(4, &[])
    };
    harness.apply(vec![reader]);
    young.expect_end(b"");
    open.ask(b"get k\r\n", b"END\r\n");
}
