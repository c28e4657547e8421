//! Nanoseconds per command for the commonest commands and replies: `cargo bench -p tidemark-protocol`.
//!
//! Every line is the median of many short runs over the same bytes in the first-level cache; nothing is asserted.

#![expect(clippy::print_stdout, reason = "the output is the result")]

use std::hint::black_box;
use std::time::Instant;

use tidemark_protocol::memcached::{self, compose};
use tidemark_protocol::resp::{self, ArgList, Reply, Version, command};

const RUNS: usize = 101;
const COMMANDS_PER_RUN: u32 = 20_000;

/// Prints how long one call of `work` takes.
fn measure(name: &str, mut work: impl FnMut()) {
    let mut nanoseconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..COMMANDS_PER_RUN {
                work();
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(COMMANDS_PER_RUN)
        })
        .collect();
    nanoseconds.sort_by(f64::total_cmp);
    println!("{name:<44} {:>7.1} ns", nanoseconds[RUNS / 2]);
}

fn parse_memcached(name: &str, input: &[u8]) {
    let limits = memcached::Limits::default();
    measure(name, || {
        let parsed = memcached::parse(black_box(input), &limits);
        assert!(matches!(black_box(&parsed), memcached::Parsed::Complete { .. }));
    });
}

fn parse_resp(name: &str, input: &[u8]) {
    let limits = resp::Limits::with_value_bytes(1 << 20);
    let mut list = ArgList::new();
    measure(name, || {
        let parsed = resp::parse(black_box(input), &limits, &mut list);
        assert!(matches!(parsed, resp::Parsed::Complete { .. }));
        black_box(list.args(input).arg(1));
    });
}

fn resolve(name: &str, input: &[u8]) {
    let limits = resp::Limits::with_value_bytes(1 << 20);
    let mut list = ArgList::new();
    let parsed = resp::parse(input, &limits, &mut list);
    assert!(matches!(parsed, resp::Parsed::Complete { .. }));
    measure(name, || {
        assert!(black_box(command::resolve(black_box(list.args(input)))).is_ok());
    });
}

fn compose(name: &str, mut append: impl FnMut(&mut Vec<u8>)) {
    let mut out = Vec::with_capacity(4096);
    measure(name, || {
        out.clear();
        append(black_box(&mut out));
    });
}

/// The forms of keys and values here.
const KEY: &[u8; 16] = b"key:000000000042";
const VALUE: [u8; 64] = [b'v'; 64];

fn with_body(line: &str) -> Vec<u8> {
    [line.as_bytes(), &VALUE, b"\r\n"].concat()
}

fn memcached_commands() {
    let ten_keys = format!("get{}\r\n", " key:000000000042".repeat(10));
    for (name, input) in [
        ("get, 16-byte key", b"get key:000000000042\r\n".to_vec()),
        (
            "get, more behind",
            b"get key:000000000042\r\nget key:000000000043\r\n".to_vec(),
        ),
        ("get, ten keys", ten_keys.into_bytes()),
        ("gets, 16-byte key", b"gets key:000000000042\r\n".to_vec()),
        ("set, 64-byte value", with_body("set key:000000000042 0 0 64\r\n")),
        ("set, noreply", with_body("set key:000000000042 0 3600 64 noreply\r\n")),
        ("add, 64-byte value", with_body("add key:000000000042 0 0 64\r\n")),
        ("delete", b"delete key:000000000042\r\n".to_vec()),
        ("incr", b"incr key:000000000042 1\r\n".to_vec()),
        ("mg v", b"mg key:000000000042 v\r\n".to_vec()),
        ("mg f c v k O123", b"mg key:000000000042 f c v k O123\r\n".to_vec()),
        ("ms T60, 64-byte value", with_body("ms key:000000000042 64 T60\r\n")),
    ] {
        parse_memcached(name, &input);
    }
}

fn resp_commands() {
    let set = with_body("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$64\r\n");
    let key = b"$16\r\nkey:000000000042\r\n";
    parse_resp("GET, 16-byte key", &[b"*2\r\n$3\r\nGET\r\n", &key[..]].concat());
    parse_resp("SET, 64-byte value", &set);
    parse_resp(
        "SET EX, 64-byte value",
        &[b"*5", &set[2..], b"$2\r\nEX\r\n$4\r\n3600\r\n"].concat(),
    );
    parse_resp(
        "MGET, ten keys",
        &[&b"*11\r\n$4\r\nMGET\r\n"[..], &key.repeat(10)].concat(),
    );
    parse_resp("PING, inline", b"PING\r\n");
    for (name, line) in [
        ("resolve GET", "GET k\r\n"),
        ("resolve set", "set k v\r\n"),
        ("resolve PEXPIRETIME", "PEXPIRETIME k\r\n"),
        ("resolve CLIENT SETINFO", "CLIENT SETINFO LIB-NAME x\r\n"),
    ] {
        resolve(name, line.as_bytes());
    }
}

fn replies() {
    compose("VALUE, 64 bytes", |out| {
        compose::value(out, black_box(KEY), 0, None, black_box(&VALUE));
    });
    compose("VALUE with flags and CAS, 64 bytes", |out| {
        compose::value(out, black_box(KEY), 32, Some(black_box(123_456_789)), black_box(&VALUE));
    });
    compose("bulk, 64 bytes", |out| {
        Reply::new(out, Version::Resp2).bulk(black_box(&VALUE));
    });
    compose("integer", |out| {
        Reply::new(out, Version::Resp2).integer(black_box(12345));
    });
    let limits = memcached::Limits::default();
    let parsed = memcached::parse(b"mg key:000000000042 f c v\r\n", &limits);
    if let memcached::Parsed::Complete {
        command: memcached::Command::MetaGet(meta),
        ..
    } = parsed
    {
        let facts = compose::Facts {
            value_bytes: VALUE.len(),
            cas: 7,
            ..compose::Facts::default()
        };
        compose("VA f c, 64 bytes", |out| {
            compose::meta_hit(out, black_box(&meta), &facts, black_box(&VALUE));
        });
    }
}

fn main() {
    memcached_commands();
    resp_commands();
    replies();
}
