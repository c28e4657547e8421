//! Nanoseconds per access: `cargo bench -p tidemark-curve`.
//!
//! Every line is the median of several passes over the same requests, both skewed (about Zipf 1) and even. The keys do
//! not fit the processor's caches. Nothing is asserted.

#![expect(clippy::print_stdout, reason = "the output is the result")]

use std::hint::black_box;
use std::time::Instant;

use tidemark_curve::{Eviction, Miniatures, Profile, Sampling, Threshold};
use tidemark_types::{LogShare, Policy};

const RUNS: usize = 5;
const REQUESTS: usize = 2_000_000;
/// Keys that are asked for.
const KEYS: f64 = 1_000_000.0;
/// An item as caches have them.
const BYTES: u64 = 100;

/// Prints how long a request takes in `pass`, which makes all of them.
fn measure(name: &str, keys: &[u64], mut pass: impl FnMut(&[u64])) {
    let mut nanoseconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            pass(black_box(keys));
            start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64
        })
        .collect();
    nanoseconds.sort_by(f64::total_cmp);
    println!("{name:<44} {:>7.1} ns", nanoseconds[RUNS / 2]);
}

/// Keys from a generator's numbers between 0 and 1.
fn keys(key: impl Fn(f64) -> f64) -> Vec<u64> {
    let mut state = 1_u64;
    let draw = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        key((state >> 11) as f64 / (1_u64 << 53) as f64) as u64
    };
    (0..REQUESTS).map(draw).collect()
}

fn profile(name: &str, keys: &[u64], sampling: Sampling) {
    measure(name, keys, |keys| {
        let mut profile = Profile::new(sampling, &[1 << 20, 10 << 20]);
        for key in keys {
            profile.request(*key, BYTES);
        }
        black_box(profile.curve());
    });
}

fn main() {
    for (load, keys) in [
        ("skewed", keys(|unit| KEYS.powf(unit))),
        ("even", keys(|unit| KEYS * unit)),
    ] {
        profile(&format!("{load}: exact"), &keys, Sampling::EXACT);
        for samples in [8192, 1024] {
            let sampling = Sampling { keys: samples, seed: 1 };
            profile(&format!("{load}: {samples} samples"), &keys, sampling);
        }
        let full = Threshold::ALL;
        let policies = Policy::PLAIN.into_iter().chain([Policy::ApproxLru(LogShare::HALF)]);
        for eviction in [Eviction::Lru].into_iter().chain(policies.map(Eviction::Policy)) {
            measure(&format!("{load}: {eviction}, one whole cache"), &keys, |keys| {
                let mut caches = Miniatures::new(eviction, &[10 << 20], full, 1);
                for key in keys {
                    caches.request(*key, BYTES);
                }
                black_box(caches.curve());
            });
        }
    }
}
