//! Transactions of several connections at once: commands of others in between, and that nobody sees the half of one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::harness::{Client, Harness, bulk, wait_until};

/// The answer of EXEC to a transaction that was given up.
const GIVEN_UP: &str = "*-1\r\n";

/// Waits until a key is gone.
fn wait_for_end(client: &mut Client, key: &str) {
    wait_until(&format!("{key} is gone"), || {
        client.number(&format!("EXISTS {key}")) == 0
    });
}

#[test]
fn watched_keys_that_went_end_the_transaction() {
    let harness = Harness::start();
    let (mut client, mut other) = (harness.connect(), harness.connect());
    // How key `a` was written, and the command of another connection behind WATCH.
    for (write, commands, reply) in [
        ("SET a 1", &["FLUSHALL"][..], GIVEN_UP),
        ("SET a 1", &["FLUSHDB"], GIVEN_UP),
        ("SET a 1", &["FLUSHALL", "SET a 1"], GIVEN_UP),
        ("SET a 1", &["SELECT 1", "FLUSHDB", "SELECT 0"], "*1\r\n$1\r\n1\r\n"),
        ("SET b 1", &["FLUSHALL"], "*1\r\n$-1\r\n"),
        ("SET b 1", &["SET a 1"], GIVEN_UP),
        ("SET a 1", &["MULTI", "DEL a", "SET a 1", "EXEC"], GIVEN_UP),
        ("SET a 1", &["MULTI", "SET a 2", "DISCARD"], "*1\r\n$1\r\n1\r\n"),
        ("SET a 1", &["RENAME a b", "RENAME b a"], GIVEN_UP),
        ("SET a 1", &["PEXPIRE a 1"], GIVEN_UP),
    ] {
        client.ask("FLUSHALL");
        client.ask(write);
        client.ask("WATCH a");
        commands.iter().for_each(|command| {
            other.ask(command);
        });
        client.ask("MULTI");
        client.ask("GET a");
        assert_eq!(client.ask("EXEC"), reply, "{write}, {commands:?}");
    }
}

#[test]
fn a_watched_key_that_expires_ends_the_transaction() {
    let harness = Harness::start();
    let (mut client, mut other) = (harness.connect(), harness.connect());
    client.ask("SET a 1 PX 1500");
    client.ask("WATCH a b");
    client.ask("MULTI");
    client.ask("SET b 1");
    wait_for_end(&mut other, "a");
    assert_eq!(client.ask("EXEC"), GIVEN_UP);
    assert_eq!(other.number("EXISTS b"), 0);
    // One that had expired before is absent, and stays so.
    client.ask("SET a 1 PX 1");
    wait_for_end(&mut other, "a");
    client.ask("WATCH a");
    client.ask("MULTI");
    client.ask("SET b 1");
    assert_eq!(client.ask("EXEC"), "*1\r\n+OK\r\n");
}

#[test]
fn what_is_queued_ends_with_its_connection() {
    let harness = Harness::start();
    let (mut client, mut other) = (harness.connect(), harness.connect());
    let id = client.number("CLIENT ID");
    client.ask("MULTI");
    client.ask("SET a 1");
    assert_eq!(other.number(&format!("CLIENT KILL ID {id}")), 1);
    assert_eq!(client.rest(), b"");
    assert_eq!(other.number("EXISTS a"), 0);
}

/// Increments a counter by WATCH, GET, MULTI, SET, EXEC until it has succeeded so often.
fn increment(client: &mut Client, times: u32) {
    let mut done = 0;
    while done < times {
        client.ask("WATCH counter");
        let number = client.text("GET counter").parse::<u32>().unwrap();
        client.ask("MULTI");
        client.ask(&format!("SET counter {}", number + 1));
        match client.ask("EXEC").as_str() {
            "*1\r\n+OK\r\n" => done += 1,
            reply => assert_eq!(reply, GIVEN_UP),
        }
    }
}

#[test]
fn no_increment_is_lost() {
    const CLIENTS: u32 = 4;
    const TIMES: u32 = 300;
    let harness = Harness::start();
    harness.connect().ask("SET counter 0");
    thread::scope(|scope| {
        for mut client in (0..CLIENTS).map(|_| harness.connect()) {
            scope.spawn(move || increment(&mut client, TIMES));
        }
    });
    assert_eq!(harness.connect().text("GET counter"), (CLIENTS * TIMES).to_string());
}

/// Ends the writers when the reader has seen enough, or has failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends commands as a transaction, in one piece, and returns what EXEC answers.
fn transact(client: &mut Client, commands: &[String]) -> String {
    let lines = [&["MULTI".to_owned()], commands, &["EXEC".to_owned()]].concat();
    client.send(lines.join("\r\n").as_bytes());
    client.send(b"\r\n");
    let replies: Vec<Vec<u8>> = lines.iter().map(|_| client.reply()).collect();
    String::from_utf8(replies.last().unwrap().clone()).unwrap()
}

#[test]
fn nobody_sees_the_half_of_a_transaction() {
    // In all shards, and so many that others come in between if they can.
    let keys: Vec<String> = (0..200).map(|n| format!("key-{n}")).collect();
    let each = |before: &str, behind: &str| -> Vec<String> {
        keys.iter()
            .map(|key| format!("{before} {key} {behind}").trim_end().to_owned())
            .collect()
    };
    let (set, get) = (each("SET", "set"), each("GET", ""));
    let mset = [format!("MSET {}", each("", "mset").concat())];
    let harness = Harness::start();
    let (mut by_set, mut by_mset, mut reader) = (harness.connect(), harness.connect(), harness.connect());
    transact(&mut by_mset, &mset);
    let is_over = AtomicBool::new(false);
    let write = |client: &mut Client, commands: &[String]| {
        while !is_over.load(Ordering::Relaxed) {
            transact(client, commands);
        }
    };
    thread::scope(|scope| {
        let _ends = Ends(&is_over);
        scope.spawn(|| write(&mut by_set, &set));
        scope.spawn(|| write(&mut by_mset, &mset));
        let mut changes = 0;
        let mut last = String::new();
        wait_until("values of both writers were seen", || {
            let reply = transact(&mut reader, &get);
            let values: Vec<&str> = reply.split("\r\n").skip(2).step_by(2).take(keys.len()).collect();
            assert!(values.iter().all(|value| *value == values[0]), "{reply}");
            changes += u32::from(values[0] != last);
            last = values[0].to_owned();
            changes >= 50
        });
    });
}

#[test]
fn a_swap_returns_each_value_once() {
    const LENGTH: usize = 300_000;
    const TIMES: usize = 60;
    let harness = Harness::start();
    let swap = |mut client: Client, name: usize| -> Vec<String> {
        let value = |n| format!("{name}-{n}-{}", "v".repeat(LENGTH));
        let swapped = (0..TIMES).map(|n| client.call(&["SET", "key", &value(n), "GET"]));
        swapped
            .map(|reply| String::from_utf8_lossy(&reply[..20]).into_owned())
            .collect()
    };
    harness.connect().call(&["SET", "key", &"first".repeat(4)]);
    let mut returned: Vec<String> = thread::scope(|scope| {
        let swaps: Vec<_> = (0..4).map(|name| (name, harness.connect())).collect();
        let swaps: Vec<_> = swaps
            .into_iter()
            .map(|(name, client)| scope.spawn(move || swap(client, name)))
            .collect();
        swaps.into_iter().flat_map(|swaps| swaps.join().unwrap()).collect()
    });
    let all = returned.len();
    returned.sort();
    returned.dedup();
    assert_eq!(
        (all, returned.len()),
        (4 * TIMES, 4 * TIMES),
        "a value was returned twice"
    );
}

#[test]
fn long_values_are_read_and_written_within_a_transaction() {
    let harness = Harness::start();
    let mut client = harness.connect();
    for length in [16 << 10, 300 << 10, 1 << 20] {
        let value = "v".repeat(length);
        for command in [
            "MULTI".to_owned(),
            format!("SET a {value}"),
            "GET a".to_owned(),
            "GETDEL a".to_owned(),
        ] {
            client.ask(&command);
        }
        let reply = client.ask("EXEC");
        let value = String::from_utf8(bulk(value.as_bytes())).unwrap();
        assert!(reply == format!("*3\r\n+OK\r\n{value}{value}"), "{length} bytes");
        assert_eq!(client.number("EXISTS a"), 0);
    }
}

#[test]
fn nobody_sees_the_half_of_a_long_value() {
    const LENGTH: usize = 700_000;
    let harness = Harness::start();
    let mut reader = harness.connect();
    let is_over = AtomicBool::new(false);
    // Written with and without a condition, which go different ways.
    let writers = [
        ("a", &[][..]),
        ("b", &["EX", "100"]),
        ("c", &["KEEPTTL"]),
        ("d", &["XX", "GET"]),
    ];
    reader.call(&["SET", "key", &"a".repeat(LENGTH)]);
    thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for (letter, options) in writers {
            let (mut client, is_over) = (harness.connect(), &is_over);
            scope.spawn(move || {
                let value = letter.repeat(LENGTH);
                while !is_over.load(Ordering::Relaxed) {
                    client.call(&[&["SET", "key", &value], options].concat());
                }
            });
        }
        let mut seen = BTreeSet::new();
        wait_until("each writer's value was seen", || {
            let value = reader.text("GET key");
            assert_eq!(value.len(), LENGTH);
            let letter = value.as_bytes()[0];
            assert!(value.bytes().all(|byte| byte == letter), "a value of several writers");
            seen.insert(letter);
            seen.len() == writers.len()
        });
    });
}
