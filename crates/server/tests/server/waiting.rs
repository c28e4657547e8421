//! Waiting: a command that is parked, and replies that nobody reads. Order is kept, others are served meanwhile, and a
//! connection that ends takes with it what it has waited for.

use tidemark_types::MIB;

use crate::harness::{Client, Harness, Setup, found, set, wait_until};

/// More replies of this length than a client's share of memory, all pins and a socket's buffers take together.
const VALUE_BYTES: usize = 1_000_000;
const REPLIES: usize = 100;

const SCRIPT: &str = "while true do end";

/// A server of one worker, so that others are served by the same one.
fn server() -> Harness {
    Harness::start(Setup {
        workers: 1,
        ..Setup::default()
    })
}

fn eval(script: &str) -> Vec<u8> {
    format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len()).into_bytes()
}

/// Ends a script that runs, as soon as it does.
fn kill_script(killer: &mut Client) {
    wait_until("a script was ended", || {
        killer.send(b"SCRIPT KILL\r\n");
        killer.line() == b"+OK\r\n"
    });
}

#[test]
fn behind_a_command_that_waits_nothing_is_done_and_others_are_served() {
    let harness = server();
    let mut waiting = Client::connect(harness.redis);
    let mut other = Client::connect(harness.redis);
    let mut memcached = harness.connect();
    waiting.send(&[b"SET n 1\r\n", &eval(SCRIPT)[..], b"INCR n\r\nGET n\r\n"].concat());
    // The replies before it are not kept back.
    waiting.expect(b"+OK\r\n");
    for _ in 0..100 {
        other.ask(b"GET n\r\n", b"$1\r\n1\r\n");
        memcached.ask(b"get n\r\n", &found("n", b"1"));
    }
    kill_script(&mut other);
    let error = waiting.line();
    assert!(
        error.starts_with(b"-ERR Error running script"),
        "{}",
        error.escape_ascii()
    );
    waiting.expect(b":2\r\n$1\r\n2\r\n");
}

#[test]
fn a_connection_that_ends_while_its_command_waits_releases_it() {
    const CLIENTS: usize = 20;
    let harness = server();
    let mut other = Client::connect(harness.redis);
    let waiting: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(harness.redis);
            client.send(&[b"PING\r\n", &eval(SCRIPT)[..]].concat());
            client.expect(b"+PONG\r\n");
            client
        })
        .collect();
    assert_eq!(harness.look().connections, 1 + CLIENTS as u64);
    drop(waiting);
    // Those that run already are ended by hand.
    wait_until("all are gone", || {
        other.send(b"SCRIPT KILL\r\n");
        other.line();
        harness.look().connections == 1
    });
    wait_until("nothing is held", || harness.buffer_bytes() == 0);
    other.ask(&eval("return redis.call('ping')"), b"+PONG\r\n");
}

fn deaf(harness: &Harness) -> Client {
    let mut client = harness.connect();
    client.send(&[&b"get l\r\n".repeat(REPLIES)[..], b"incr n 1\r\n"].concat());
    client
}

#[test]
fn replies_that_wait_keep_their_order_and_delay_nobody() {
    let harness = server();
    let value = "l".repeat(VALUE_BYTES);
    let mut other = harness.connect();
    other.ask(&set("l", value.as_bytes()), b"STORED\r\n");
    other.ask(&set("n", b"0"), b"STORED\r\n");
    let (mut slow, gone) = (deaf(&harness), deaf(&harness));
    wait_until("replies wait", || harness.buffer_bytes() > MIB / 4);
    for _ in 0..100 {
        // Commands behind them are not done yet.
        other.ask(b"get n\r\n", &found("n", b"0"));
    }
    drop(gone);
    let reply = found("l", value.as_bytes());
    (0..REPLIES).for_each(|_| slow.read_exactly(&reply));
    // Nothing was done for the one that has gone.
    slow.expect(b"1\r\n");
    other.ask(b"get n\r\n", &found("n", b"1"));
    wait_until("nothing is held", || harness.buffer_bytes() == 0);
}
