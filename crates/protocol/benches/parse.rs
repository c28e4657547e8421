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

fn main() {
    let value = [b'v'; 64];
    let with_body = |line: &str| [line.as_bytes(), &value, b"\r\n"].concat();
    let key = b"key:000000000042";

    parse_memcached("get, 16-byte key", b"get key:000000000042\r\n");
    parse_memcached(
        "get, 16-byte key, more behind",
        b"get key:000000000042\r\nget key:000000000043\r\n",
    );
    parse_memcached(
        "get, ten keys",
        format!("get{}\r\n", " key:000000000042".repeat(10)).as_bytes(),
    );
    parse_memcached("gets, 16-byte key", b"gets key:000000000042\r\n");
    parse_memcached("set, 64-byte value", &with_body("set key:000000000042 0 0 64\r\n"));
    parse_memcached(
        "set, 64-byte value, noreply",
        &with_body("set key:000000000042 0 3600 64 noreply\r\n"),
    );
    parse_memcached("add, 64-byte value", &with_body("add key:000000000042 0 0 64\r\n"));
    parse_memcached("delete", b"delete key:000000000042\r\n");
    parse_memcached("incr", b"incr key:000000000042 1\r\n");
    parse_memcached("mg v", b"mg key:000000000042 v\r\n");
    parse_memcached("mg f c v k O123", b"mg key:000000000042 f c v k O123\r\n");
    parse_memcached("ms T60, 64-byte value", &with_body("ms key:000000000042 64 T60\r\n"));

    parse_resp("GET, 16-byte key", b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n");
    let set = [
        &b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$64\r\n"[..],
        &value,
        b"\r\n",
    ]
    .concat();
    parse_resp("SET, 64-byte value", &set);
    parse_resp(
        "SET EX, 64-byte value",
        &[b"*5", &set[2..], b"$2\r\nEX\r\n$4\r\n3600\r\n"].concat(),
    );
    parse_resp(
        "MGET, ten keys",
        &[
            b"*11\r\n$4\r\nMGET\r\n",
            b"$16\r\nkey:000000000042\r\n".repeat(10).as_slice(),
        ]
        .concat(),
    );
    parse_resp("PING, inline", b"PING\r\n");
    resolve("resolve GET", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    resolve("resolve set", b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$1\r\nv\r\n");
    resolve("resolve PEXPIRETIME", b"*2\r\n$11\r\nPEXPIRETIME\r\n$1\r\nk\r\n");
    resolve("resolve CLIENT SETINFO", b"CLIENT SETINFO LIB-NAME x\r\n");

    compose("VALUE, 64 bytes", |out| {
        compose::value(out, black_box(key), 0, None, black_box(&value));
    });
    compose("VALUE with flags and CAS, 64 bytes", |out| {
        compose::value(out, black_box(key), 32, Some(black_box(123_456_789)), black_box(&value));
    });
    compose("bulk, 64 bytes", |out| {
        Reply::new(out, Version::Resp2).bulk(black_box(&value));
    });
    compose("integer", |out| {
        Reply::new(out, Version::Resp2).integer(black_box(12345));
    });
    let limits = memcached::Limits::default();
    let memcached::Parsed::Complete {
        command: memcached::Command::MetaGet(meta),
        ..
    } = memcached::parse(b"mg key:000000000042 f c v\r\n", &limits)
    else {
        return;
    };
    let facts = compose::Facts {
        value_bytes: value.len(),
        cas: 7,
        ..compose::Facts::default()
    };
    compose("VA f c, 64 bytes", |out| {
        compose::meta_hit(out, black_box(&meta), &facts, black_box(&value));
    });
}
