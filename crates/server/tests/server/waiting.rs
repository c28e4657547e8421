//! A command that is parked: the order of its connection is kept, and others are served meanwhile.

use crate::harness::{Client, Harness, Setup, found, wait_until};

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
