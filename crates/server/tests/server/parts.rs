//! Commands that are done in parts: the view of others meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use tidemark_server::Limits;
use tidemark_types::{CommandCount, MIB, Outcome, TenantPlan};

use crate::harness::{Client, Harness, Setup, StopAtEnd, found, open_tenant, set, wait_until};

/// As much as a transaction may have is one step.
const STEP_PAIRS: usize = 1024;
/// Connections that are looked at in a turn.
const TURN_CLIENTS: usize = 128;

fn server(workers: usize) -> Harness {
    let tenants = vec![TenantPlan {
        grant_bytes: 128 * MIB,
        shards: 4,
        ..open_tenant()
    }];
    Harness::start(Setup {
        workers,
        tenants,
        ..Setup::default()
    })
}

fn array<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let words: Vec<&str> = words.into_iter().collect();
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    request.into_bytes()
}

/// `verb key0 VALUE key1 VALUE ...`
fn pairs(verb: &str, count: usize, value: &str) -> Vec<u8> {
    let keys: Vec<String> = (0..count).map(|number| format!("key{number}")).collect();
    let pairs = keys.iter().flat_map(|key| [key.as_str(), value]);
    array([verb].into_iter().chain(pairs))
}

/// Looks at the first and the last key while `write` is done so often, or until they were once not of one write; whether they
/// were not.
fn is_torn(harness: &Harness, last: usize, writes: usize, mut write: impl FnMut(&str)) -> bool {
    let (is_over, is_torn) = (AtomicBool::new(false), AtomicBool::new(false));
    let last = format!("key{last}");
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&is_over);
        let looker = scope.spawn(|| {
            let mut client = Client::connect(harness.redis);
            let request = array(["MGET", "key0", &last]);
            while !is_over.load(Ordering::Relaxed) {
                client.send(&request);
                let (reply, _) = client.receive_until(|bytes| bytes.ends_with(b"END\r\n"));
                let text = String::from_utf8(reply).unwrap();
                let values: Vec<&str> = text.lines().filter(|line| line.ends_with("END")).collect();
                is_torn.fetch_or(values[0] != values[values.len() - 1], Ordering::Relaxed);
            }
        });
        let values = ["1-END", "2-END", "3-END", "4-END"].into_iter().cycle();
        for value in values.take(writes) {
            if is_torn.load(Ordering::Relaxed) {
                break;
            }
            write(value);
        }
        is_over.store(true, Ordering::Relaxed);
        looker.join().unwrap();
    });
    is_torn.into_inner()
}

#[test]
fn a_long_mset_lets_others_in_between_and_one_as_long_as_a_transaction_does_not() {
    // The long one is written as often as it takes: on a busy machine nobody may look during the first ones.
    for (count, is_one_step, writes) in [(STEP_PAIRS, true, 24), (50 * STEP_PAIRS, false, 1000)] {
        let harness = server(1 + usize::from(is_one_step));
        let mut client = Client::connect(harness.redis);
        client.ask(&pairs("MSET", count, "0-END"), b"+OK\r\n");
        let is_torn = is_torn(&harness, count - 1, writes, |value| {
            client.ask(&pairs("MSET", count, value), b"+OK\r\n");
        });
        assert_eq!(is_torn, !is_one_step, "{count} pairs");
        client.ask(&array(["DBSIZE"]), format!(":{count}\r\n").as_bytes());
    }
}

#[test]
fn a_step_ends_with_its_bytes_too() {
    let harness = server(1);
    let mut client = Client::connect(harness.redis);
    let long = "x".repeat(MIB as usize / 8);
    client.ask(&pairs("MSET", 20, &long), b"+OK\r\n");
    client.ask(&array(["DBSIZE"]), b":20\r\n");
    // One that is longer than a step is one.
    let longest = "y".repeat(MIB as usize);
    client.ask(&pairs("MSETNX", 1, &longest), b":0\r\n");
    client.ask(&pairs("MSET", 2, &longest), b"+OK\r\n");
    client.ask(
        &pairs("MSETNX", 20, &long),
        b"-ERR the list of pairs is above the limit of 1048576 bytes\r\n",
    );
    client.ask(
        &pairs("MSETNX", STEP_PAIRS + 1, "v"),
        b"-ERR the list of pairs is above the limit of 1024 pairs\r\n",
    );
    client.ask(&array(["FLUSHALL"]), b"+OK\r\n");
    client.ask(&pairs("MSETNX", STEP_PAIRS, "v"), b":1\r\n");
    client.ask(&pairs("MSETNX", STEP_PAIRS, "v"), b":0\r\n");
}

#[test]
fn many_connections_are_listed_and_killed_in_parts() {
    const CONNECTIONS: usize = 5 * TURN_CLIENTS;
    let harness = server(1);
    let mut client = Client::connect(harness.redis);
    let mut others: Vec<Client> = (0..CONNECTIONS).map(|_| Client::connect(harness.redis)).collect();
    for other in &mut others {
        other.ask(b"PING\r\n", b"+PONG\r\n");
    }
    client.send(&array(["CLIENT", "LIST"]));
    client.send(b"PING\r\n");
    let (reply, _) = client.receive_until(|bytes| bytes.ends_with(b"+PONG\r\n"));
    let text = String::from_utf8(reply).unwrap();
    let (header, list) = text.split_once("\r\n").unwrap();
    let list = list.strip_suffix("\r\n+PONG\r\n").unwrap();
    assert_eq!(header, format!("${}", list.len()));
    let id = |line: &str| -> u64 {
        line.strip_prefix("id=")
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    let ids: Vec<u64> = list.lines().map(id).collect();
    assert_eq!(ids.len(), 1 + CONNECTIONS);
    assert!(ids.is_sorted());
    // One step is no longer than a part.
    client.ask(b"MULTI\r\n", b"+OK\r\n");
    client.ask(&array(["CLIENT", "LIST"]), b"+QUEUED\r\n");
    client.ask(
        b"EXEC\r\n",
        b"*1\r\n-ERR a transaction looks at no more than 128 connections\r\n",
    );
    let last = ids[ids.len() - 1].to_string();
    client.ask(&array(["CLIENT", "KILL", "ID", &last]), b":1\r\n");
    let kill = array(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    client.ask(&kill, format!(":{}\r\n", CONNECTIONS - 1).as_bytes());
    for other in &mut others {
        other.expect_end(b"");
    }
    client.ask(b"MULTI\r\n", b"+OK\r\n");
    client.ask(&array(["CLIENT", "KILL", "TYPE", "normal"]), b"+QUEUED\r\n");
    client.ask(b"EXEC\r\n", b"*1\r\n:0\r\n");
}

#[test]
fn a_command_in_parts_counts_once_with_the_outcome_of_all() {
    /// A line of so many keys is parsed, and answered, in many parts.
    const KEYS: usize = 30_000;

    let harness = server(1);
    let mut client = harness.connect();
    client.ask(&set("first", b"1"), b"STORED\r\n");
    let line = |first: &str| {
        let keys: Vec<String> = (0..KEYS).map(|number| format!("none{number}")).collect();
        format!("get {first} {}\r\n", keys.join(" "))
    };
    client.ask(line("first").as_bytes(), &found("first", b"1"));
    client.ask(line("none").as_bytes(), b"END\r\n");
    client.ask(b"incr none 1\r\n", b"NOT_FOUND\r\n");
    client.ask(b"md none\r\n", b"NF\r\n");
    let mut redis = Client::connect(harness.redis);
    for (first, is_found) in [("first", true), ("none", false)] {
        let names: Vec<String> = (0..KEYS).map(|number| format!("none{number}")).collect();
        redis.send(&array(
            ["MGET", first].into_iter().chain(names.iter().map(String::as_str)),
        ));
        let value = if is_found { "$1\r\n1\r\n" } else { "$-1\r\n" };
        redis.read_exactly(format!("*{}\r\n{value}{}", KEYS + 1, "$-1\r\n".repeat(KEYS)).as_bytes());
    }
    check_counts(
        &harness,
        &[
            ("memcached", "get", [1, 1, 0]),
            ("memcached", "incr", [0, 1, 0]),
            ("memcached", "decr", [0, 0, 0]),
            ("memcached", "md", [0, 1, 0]),
            ("redis", "mget", [1, 1, 0]),
        ],
    );
}

/// How often a command was executed: those that did what they were asked, that missed, that failed.
fn counts_of(harness: &Harness, protocol: &str, command: &str) -> [u64; 3] {
    let counts = harness.tenant(1).unwrap().commands;
    [Outcome::Ok, Outcome::Miss, Outcome::Error].map(|outcome| {
        let is_it =
            |count: &&CommandCount| (count.protocol, count.command, count.outcome) == (protocol, command, outcome);
        counts.iter().find(is_it).map_or(0, |count| count.count)
    })
}

fn check_counts(harness: &Harness, expected: &[(&str, &str, [u64; 3])]) {
    for (protocol, command, expected) in expected {
        let counted = counts_of(harness, protocol, command);
        assert_eq!(counted, *expected, "{protocol} {command}: ok, miss, error");
    }
}

#[test]
fn a_transaction_counts_each_of_its_commands_and_itself() {
    let harness = server(1);
    let mut client = Client::connect(harness.redis);
    let queue = |client: &mut Client, commands: &[&[&str]]| {
        client.ask(&array(["MULTI"]), b"+OK\r\n");
        for command in commands {
            client.ask(&array(command.iter().copied()), b"+QUEUED\r\n");
        }
    };
    client.ask(&array(["SET", "text", "a"]), b"+OK\r\n");
    // Neither its commands' misses nor their errors are its own.
    queue(&mut client, &[&["GET", "none"], &["GET", "text"], &["INCR", "text"]]);
    client.ask(
        &array(["EXEC"]),
        b"*3\r\n$-1\r\n$1\r\na\r\n-ERR value is not an integer or out of range\r\n",
    );
    queue(&mut client, &[&["MGET", "none", "nothing"], &["MGET", "none", "text"]]);
    client.ask(&array(["EXEC"]), b"*2\r\n*2\r\n$-1\r\n$-1\r\n*2\r\n$-1\r\n$1\r\na\r\n");
    // Commands that were queued and not executed do not count.
    queue(&mut client, &[&["DEL", "text"]]);
    client.ask(&array(["DISCARD"]), b"+OK\r\n");
    client.ask(&array(["EXEC"]), b"-ERR EXEC without MULTI\r\n");
    wait_until("all are counted", || {
        counts_of(&harness, "redis", "exec").iter().sum::<u64>() == 3
    });
    check_counts(
        &harness,
        &[
            ("redis", "exec", [2, 0, 1]),
            ("redis", "get", [1, 1, 0]),
            ("redis", "mget", [1, 1, 0]),
            ("redis", "incr", [0, 0, 1]),
            ("redis", "del", [0, 0, 0]),
            ("redis", "multi", [3, 0, 0]),
            ("redis", "discard", [1, 0, 0]),
        ],
    );
}

#[test]
fn a_command_that_waits_for_memory_counts_once() {
    /// Connections have 4 MiB together: replies of this length are more than holders leave.
    const VALUE_BYTES: usize = 700_000;
    const HOLDERS: usize = 4;
    const HELD_BYTES: usize = 900_000;
    let harness = Harness::start(Setup {
        workers: 1,
        pool_bytes: 8 * MIB,
        limits: Limits {
            buffer_bytes: MIB,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let value = "v".repeat(VALUE_BYTES);
    for key in ["k", "old"] {
        harness.connect().ask(&set(key, value.as_bytes()), b"STORED\r\n");
    }
    let hold = || {
        let mut holder = Client::connect(harness.redis);
        holder.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nh\r\n${}\r\n", HELD_BYTES + 1).as_bytes());
        holder.send(&[b'h'; HELD_BYTES]);
        holder
    };
    let holders: Vec<Client> = (0..HOLDERS).map(|_| hold()).collect();
    wait_until("memory is held", || {
        harness.buffer_bytes() >= (HOLDERS * HELD_BYTES) as u64
    });

    let bulk = format!("${VALUE_BYTES}\r\n{value}\r\n").into_bytes();
    let meta = format!("VA {VALUE_BYTES}\r\n{value}\r\n").into_bytes();
    let kinds: [(&str, &str, Vec<u8>, Vec<u8>); 4] = [
        ("memcached", "get", b"get k\r\n".to_vec(), found("k", value.as_bytes())),
        ("memcached", "mg", b"mg k v\r\n".to_vec(), meta),
        ("redis", "get", array(["GET", "k"]), bulk.clone()),
        ("redis", "set", array(["SET", "old", "new", "GET"]), bulk),
    ];
    let mut clients: Vec<Client> = Vec::new();
    for (protocol, _, request, _) in &kinds {
        let (mut client, first, answer) = if *protocol == "redis" {
            (Client::connect(harness.redis), &b"PING\r\n"[..], &b"+PONG\r\n"[..])
        } else {
            (harness.connect(), &b"mn\r\n"[..], &b"MN\r\n"[..])
        };
        client.send(&[first, request].concat());
        // It is answered when the command behind it was tried.
        client.expect(answer);
        clients.push(client);
    }
    drop(holders);
    for (client, (.., reply)) in clients.iter_mut().zip(&kinds) {
        client.expect(reply);
    }
    for (protocol, command, ..) in &kinds {
        wait_until("all are counted", || counts_of(&harness, protocol, command)[0] >= 1);
    }
    let expected = [
        ("memcached", "get", [1, 0, 0]),
        ("memcached", "mg", [1, 0, 0]),
        // Two have stored.
        ("memcached", "set", [2, 0, 0]),
        ("redis", "get", [1, 0, 0]),
        ("redis", "set", [1, 0, 0]),
    ];
    check_counts(&harness, &expected);
}
