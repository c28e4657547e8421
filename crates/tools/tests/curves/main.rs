//! Curves of real traces: exact ones against libcachesim's counts, sampled ones against exact ones.
//!
//! A trace that is not there is said to be so, and a generated load takes its place.

#![expect(clippy::print_stdout, reason = "figures and skips are to be seen")]
#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod accuracy;
mod golden;

use std::path::PathBuf;

use tidemark_tools::load::{Distribution, Keys, Order, Rng};
use tidemark_tools::trace::Trace;

/// Keys and sizes in bytes.
type Requests = Vec<(u64, u64)>;

/// The file's requests, where the file is there; objects whose size it does not tell have one byte.
fn load(file: &str) -> Option<Requests> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = std::env::var_os("TIDEMARK_TRACES").map_or_else(|| PathBuf::from(default), PathBuf::from);
    let path = folder.join(file);
    if !path.exists() {
        println!("skipped, a generated load takes its place: {file} is not there");
        return None;
    }
    let requests = Trace::open(&path, None).unwrap().map(Result::unwrap);
    Some(
        requests
            .map(|request| (request.key, request.size_bytes.unwrap_or(1)))
            .collect(),
    )
}

/// Requests by Zipf's law, each object with a size of its own: about a hundred times more for the largest than for the
/// smallest.
fn skewed(requests: usize, keys: u64, alpha: f64, largest_bytes: u64) -> Requests {
    let law = Distribution::Zipf { alpha };
    let keys = Keys::new(keys, law, Order::Scrambled).unwrap();
    let mut rng = Rng::new(1);
    let mut draw = |_| {
        let key = keys.draw(&mut rng);
        (key, 1 + key.wrapping_mul(0x9E37_79B9_7F4A_7C15) % largest_bytes)
    };
    (0..requests).map(&mut draw).collect()
}

/// The sizes that `tidemark curve` shows if it is not told others.
fn default_sizes(requests: &Requests) -> Vec<u64> {
    let sizes: std::collections::HashMap<u64, u64> = requests.iter().copied().collect();
    let distinct: u64 = sizes.values().sum();
    [1, 2, 5, 10, 20, 40, 60, 80]
        .map(|percent| distinct * percent / 100)
        .into()
}
