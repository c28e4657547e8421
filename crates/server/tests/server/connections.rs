//! Connections side by side and to their end. A pipeline means what its commands mean one by one, on several workers at
//! once. A draining server lets commands be finished that have begun.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use tidemark_types::{MIB, TenantPlan};

use crate::harness::{
    Client, Harness, PATIENCE, Random, Setup, found, open_tenant, random_seed, set, tenant, wait_until,
};
use crate::transcript::show;

/// Commands in a pipeline.
const COMMANDS: usize = 10_000;
/// Keys that a pipeline uses: so few that most of them are there.
const KEYS: usize = 200;

/// Any command that is always answered, and always the same after the same commands. Keys begin with `who`.
fn command(random: &mut Random, who: usize) -> Vec<u8> {
    let key = |random: &mut Random| format!("{who}-{}", random.below(KEYS));
    let (k, other) = (key(random), key(random));
    let number = random.below(1000);
    let value = value(random);
    let store = |line: String| [line.as_bytes(), b"\r\n", &value, b"\r\n"].concat();
    let bytes = value.len();
    let line = match random.below(22) {
        0..=3 => format!("get {k}"),
        4 => format!("get {k} {other} {k} missing"),
        5 => format!("gat 0 {k} {other}"),
        6..=8 => return store(format!("set {k} {number} 0 {bytes}")),
        9 => return store(format!("add {k} 0 0 {bytes}")),
        10 => return store(format!("replace {k} 1 0 {bytes}")),
        11 => return store(format!("append {k} 0 0 {bytes}")),
        12 => return store(format!("prepend {k} 0 0 {bytes}")),
        13 => format!("incr {k} {number}"),
        14 => format!("decr {k} {number}"),
        15 => format!("delete {k}"),
        16 => format!("touch {k} 0"),
        17 => format!("mg {k} k f s h t v O{number}"),
        18 => return store(format!("ms {k} {bytes} F{number} MP b")),
        19 => format!("md {k} k O{number}"),
        20 => format!("ma {k} D{number} v t"),
        _ => "bogus".into(),
    };
    format!("{line}\r\n").into_bytes()
}

/// A number, a short text, or one that is not copied into the reply.
fn value(random: &mut Random) -> Vec<u8> {
    let letter = b'a' + random.below(26) as u8;
    match random.below(100) {
        0 => vec![letter; 20_000 + random.below(10_000)],
        1..40 => random.below(1_000_000).to_string().into_bytes(),
        _ => vec![letter; random.below(300)],
    }
}

/// Sends a pipeline with one write and compares all that is answered.
fn check_pipeline(mut client: Client, pipeline: &[u8], replies: &[u8]) {
    let mut sender = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(pipeline).unwrap());
        client.expect(replies);
    });
    client.ask(b"mn\r\n", b"MN\r\n");
}

#[test]
fn a_pipeline_means_what_its_commands_mean_one_by_one() {
    const CLIENTS: usize = 6;
    let wide = |id, name| TenantPlan {
        grant_bytes: 64 * MIB,
        shards: 4,
        ..tenant(id, name)
    };
    let tenants = vec![wide(1, "one-by-one"), wide(2, "all-at-once")];
    let harness = Harness::start(Setup {
        workers: 3,
        tenants,
        ..Setup::default()
    });
    let seed = random_seed();
    println!("seed {seed}");
    let streams: Vec<(Vec<u8>, Vec<u8>)> = (0..CLIENTS)
        .map(|who| {
            let (mut random, mut client) = (Random(seed + 2 * who as u64), harness.log_in("one-by-one"));
            let (mut pipeline, mut replies) = (Vec::new(), Vec::new());
            for _ in 0..COMMANDS {
                let command = command(&mut random, who);
                let reply = client.answer(&command);
                assert!(!reply.is_empty(), "{}", show(&command));
                pipeline.extend(command);
                replies.extend(reply);
            }
            (pipeline, replies)
        })
        .collect();
    // One pipeline after the other, then all at once, two on each worker.
    for (pipeline, replies) in &streams {
        check_pipeline(harness.log_in("all-at-once"), pipeline, replies);
    }
    harness.log_in("all-at-once").ask(b"flush_all\r\n", b"OK\r\n");
    std::thread::scope(|scope| {
        for (pipeline, replies) in &streams {
            let client = harness.log_in("all-at-once");
            scope.spawn(|| check_pipeline(client, pipeline, replies));
        }
    });
    for name in ["one-by-one", "all-at-once"] {
        assert_eq!(harness.log_in(name).stat("evictions"), 0);
    }
}

#[test]
fn draining_waits_for_the_rest_of_a_command() {
    const LONG: usize = 1_000_000;
    // One worker: input sent before a reply on another connection has been received.
    let harness = Harness::start(Setup {
        workers: 1,
        tenants: vec![open_tenant()],
        ..Setup::default()
    });
    let mut other = harness.connect();
    let long = set("long", &[b'l'; LONG]);
    let both = [&set("k", b"value")[..], b"get k\r\n"].concat();
    let last_byte = set("last", b"value");
    let cases: [(&[u8], usize, Vec<u8>); 5] = [
        (b"mg missing\r\n", 4, b"EN\r\n".to_vec()),
        (&both, 18, [&b"STORED\r\n"[..], &found("k", b"value")].concat()),
        (&long, 100, b"STORED\r\n".to_vec()),
        (&long, LONG, b"STORED\r\n".to_vec()),
        (&last_byte, last_byte.len() - 1, b"STORED\r\n".to_vec()),
    ];
    let mut clients: Vec<Client> = cases.iter().map(|_| harness.connect()).collect();
    for (client, (request, sent, _)) in clients.iter_mut().zip(&cases) {
        client.ask(b"mn\r\n", b"MN\r\n");
        client.send(&request[..*sent]);
    }
    other.ask(b"mn\r\n", b"MN\r\n");
    let (address, begin) = (harness.address, Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| harness.drain(PATIENCE));
        wait_until("no connection is accepted", || TcpStream::connect(address).is_err());
        other.expect_end(b"");
        for (client, (request, sent, reply)) in clients.iter_mut().zip(&cases) {
            client.send(&request[*sent..]);
            client.expect_end(reply);
        }
    });
    assert!(begin.elapsed() < PATIENCE, "it waited for its limit");
}
