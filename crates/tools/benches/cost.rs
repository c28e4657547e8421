//! The cost of a request to the load generator itself: drawing a key, writing a request, taking a reply. The benchmark
//! prints nanoseconds per operation, the median of several rounds. It asserts nothing about time.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

use std::hint::black_box;
use std::time::Instant;

use tidemark_tools::client::{Decoded, Decoder, Protocol};
use tidemark_tools::load::{Distribution, KeyText, Keys, Order, Rng, ValueSize, Values};

const ROUNDS: usize = 9;
const OPERATIONS: u32 = 1_000_000;
const KEYS: u64 = 100_000_000;
const VALUE_BYTES: usize = 64;
const KEY_BYTES: usize = 16;

fn main() {
    draws();
    texts();
    for protocol in Protocol::ALL {
        requests(protocol);
        replies(protocol);
    }
}

/// Runs `operation` often and prints what one of it took.
fn measure(name: &str, mut operation: impl FnMut(u32)) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for n in 0..OPERATIONS {
                operation(n);
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<48} {:>7.1} ns", rounds[ROUNDS / 2]);
}

fn draws() {
    let distributions = [
        ("uniform", Distribution::Uniform),
        ("zipf 0.9", Distribution::Zipf { alpha: 0.9 }),
        ("zipf 0.99", Distribution::Zipf { alpha: 0.99 }),
        ("zipf 1", Distribution::Zipf { alpha: 1.0 }),
        ("zipf 1.15", Distribution::Zipf { alpha: 1.15 }),
        ("zipf 2", Distribution::Zipf { alpha: 2.0 }),
        ("exponential 1e-6", Distribution::Exponential { lambda: 1e-6 }),
    ];
    for (name, distribution) in distributions {
        for order in [Order::Ranked, Order::Scrambled] {
            let Ok(keys) = Keys::new(KEYS, distribution, order) else {
                continue;
            };
            let mut rng = Rng::new(1);
            let name = format!("draw {name}, {order:?}").to_lowercase();
            measure(&name, |_| {
                black_box(keys.draw(&mut rng));
            });
        }
    }
}

fn texts() {
    let Ok(mut text) = KeyText::new(KEY_BYTES, KEYS) else {
        return;
    };
    measure("key text", |n| {
        black_box(text.of(u64::from(n) * 97));
    });
    let values = Values::default();
    let mut out = Vec::with_capacity(2 * VALUE_BYTES);
    measure("write a value", |n| {
        out.clear();
        values.write(u64::from(n), VALUE_BYTES, &mut out);
        black_box(&out);
    });
    measure("check a value", |n| {
        out.clear();
        values.write(u64::from(n), VALUE_BYTES, &mut out);
        black_box(values.matches(u64::from(n), 0, &out));
    });
    measure("size of an etc value", |n| {
        black_box(ValueSize::Etc.of(u64::from(n)));
    });
}

fn requests(protocol: Protocol) {
    let key = [b'7'; KEY_BYTES];
    let value = [b'v'; VALUE_BYTES];
    let mut out = Vec::with_capacity(4 * VALUE_BYTES);
    measure(&format!("{protocol}: write a get"), |_| {
        out.clear();
        protocol.write_get(black_box(&key), &mut out);
        black_box(&out);
    });
    measure(&format!("{protocol}: write a set"), |_| {
        out.clear();
        protocol.write_set(black_box(&key), VALUE_BYTES, None, &mut out, |out| {
            out.extend_from_slice(&value);
        });
        black_box(&out);
    });
}

fn replies(protocol: Protocol) {
    let value = "v".repeat(VALUE_BYTES);
    let key = "7".repeat(KEY_BYTES);
    let (hit, miss, stored) = match protocol {
        Protocol::Memcached => (
            format!("VALUE {key} 0 {VALUE_BYTES}\r\n{value}\r\nEND\r\n"),
            "END\r\n",
            "STORED\r\n",
        ),
        Protocol::Redis => (format!("${VALUE_BYTES}\r\n{value}\r\n"), "$-1\r\n", "+OK\r\n"),
    };
    for (name, reply) in [("hit", hit.as_str()), ("miss", miss), ("stored", stored)] {
        let mut decoder = Decoder::new(protocol);
        measure(&format!("{protocol}: take a {name}"), |_| {
            let Decoded::Reply(length, reply) = decoder.next(black_box(reply.as_bytes())) else {
                return;
            };
            black_box((length, reply));
        });
    }
}
