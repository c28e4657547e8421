//! memcached's ASCII login: who gets in, what happens to others, and what may be sent before it.

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use tidemark_server::Limits;

use crate::harness::{Client, Harness, SECRET, Setup, found, login, open_tenant, set, tenant, wait_until};

const FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const BAD_FORM: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
/// Of the right form, but nobody's.
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
    let harness = closed_server(Limits::default());
    let mut client = harness.connect();
    client.ask(&login("shop", SECRET), b"STORED\r\n");
    client.ask(b"get login\r\n", b"END\r\n");
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
    let harness = closed_server(Limits::default());
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
        // From elsewhere, since failures from one address are counted.
        harness
            .connect_from(Ipv4Addr::new(127, 0, 7, 1))
            .ask(&login("blog", SECRET), b"STORED\r\n");
    }
}

#[test]
fn before_login_little_is_received_and_not_for_long() {
    let limits = Limits {
        login: Duration::from_millis(300),
        ..Limits::default()
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
        ..Limits::default()
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
        ..Limits::default()
    });
    let mut client = harness.connect();
    client.ask(&set("k", b"open"), b"STORED\r\n");
    let mut other = harness.log_in("shop");
    other.ask(b"get k\r\n", b"END\r\n");
    // Later, the same text is a value.
    client.ask(&login("shop", SECRET), b"STORED\r\n");
    client.ask(b"get login\r\n", &found("login", format!("shop {SECRET}").as_bytes()));
    client.ask(b"get k\r\n", &found("k", b"open"));
    // A first value that only resembles a login is a value, too.
    for value in [
        "shop secret".into(),
        format!("-shop {SECRET}"),
        format!("shop {SECRET}!"),
        "shop".into(),
    ] {
        let mut client = harness.connect();
        client.ask(&set("v", value.as_bytes()), b"STORED\r\n");
        client.ask(b"get v\r\n", &found("v", value.as_bytes()));
    }
    // A mistyped secret is none, nor is one with a name that is nobody's: which names there are is not told.
    check_closed(harness.connect(), &login("shop", WRONG_SECRET), FAILURE);
    check_closed(harness.connect(), &login("nobody", SECRET), FAILURE);
    client.ask(
        &[&b"delete login\r\n"[..], b"get login\r\n"].concat(),
        b"DELETED\r\nEND\r\n",
    );
    // Whoever is in the open tenant has no time limit: one that is looked at every second passed meanwhile.
    client.ask(b"set timer 0 2 1\r\nx\r\n", b"STORED\r\n");
    wait_until("two seconds are over", || client.answer(b"mg timer\r\n") == b"EN\r\n");
}

#[test]
fn too_many_failures_are_refused_unread_and_tell_nothing() {
    const FAILURES: usize = 20;
    const FAILURES_OF_ADDRESS: usize = 200;
    let harness = closed_server(Limits::default());
    let [one, two] = [1, 2].map(|last| Ipv4Addr::new(127, 0, 7, last));
    let refused = |address, name| {
        let mut client = harness.connect_from(address);
        client.send(&login(name, SECRET));
        let (reply, ended) = client.receive_until(|_| false);
        let expected = b"CLIENT_ERROR authentication failure: the limit of ";
        assert!(ended && reply.starts_with(expected), "{}", reply.escape_ascii());
    };
    // Whether there is such a tenant makes no difference.
    for name in ["shop", "nobody"] {
        for _ in 0..FAILURES {
            check_closed(harness.connect_from(one), &login(name, WRONG_SECRET), FAILURE);
        }
        refused(one, name);
    }
    // Nobody else is kept out by it.
    harness.connect_from(one).ask(&login("blog", SECRET), b"STORED\r\n");
    harness.connect_from(two).ask(&login("shop", SECRET), b"STORED\r\n");
    for number in 2 * FAILURES..FAILURES_OF_ADDRESS {
        check_closed(
            harness.connect_from(one),
            &login(&format!("nobody{number}"), SECRET),
            FAILURE,
        );
    }
    refused(one, "blog");
    harness.connect_from(two).ask(&login("blog", SECRET), b"STORED\r\n");
}
