//! Loads: requests for objects at times.

use std::collections::HashMap;
use std::path::Path;

use tidemark_tools::load::Rng;
use tidemark_tools::trace::Trace;

use crate::Error;

/// A request for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When, in us since the start.
    pub at_us: u64,
    /// The object.
    pub key: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// The requests of a trace for objects of at most so many bytes. An object that has several sizes, since parts of it were asked
/// for, has the largest.
///
/// # Errors
/// It cannot be read.
pub fn of_trace(path: &Path, bytes_max: u64) -> Result<Vec<Asked>, Error> {
    let (mut load, mut sizes) = (Vec::new(), HashMap::<u64, u64>::new());
    let mut first_s = None;
    for request in Trace::open(path, None)? {
        let request = request?;
        let time_s = request.time_seconds.unwrap_or(0.0);
        let since_s = time_s - *first_s.get_or_insert(time_s);
        let (key, bytes) = (request.key, request.size_bytes.unwrap_or(0));
        let size = sizes.entry(key).or_default();
        *size = bytes.max(*size);
        let at_us = (since_s.max(0.0) * 1e6) as u64;
        load.push(Asked { at_us, key, bytes });
    }
    for asked in &mut load {
        asked.bytes = sizes.get(&asked.key).copied().unwrap_or(asked.bytes);
    }
    load.retain(|asked| (1..=bytes_max).contains(&asked.bytes));
    load.sort_by_key(|asked| asked.at_us);
    Ok(load)
}

/// A load in the image of the registry's: so many requests over so many hours for objects of 10 MB to 1 GB, half of them below
/// 42 MB. A third of the requests are for objects that nobody asked for before, the others for one of the last that were,
/// recent ones more often.
pub fn made(seed: u64, requests: usize, hours: u64) -> Vec<Asked> {
    const LEAST: f64 = 10e6;
    const MEDIAN_OVER_LEAST: f64 = 4.2;
    const MOST: f64 = 1e9;
    const NEW: f64 = 1.0 / 3.0;
    let mut rng = Rng::new(seed);
    let mut known: Vec<(u64, u64)> = Vec::new();
    let span_us = hours * super::HOUR_S * 1_000_000;
    let mut times: Vec<u64> = (0..requests).map(|_| rng.below(span_us)).collect();
    times.sort_unstable();
    let mut load = Vec::with_capacity(requests);
    for at_us in times {
        let (key, bytes) = if known.is_empty() || rng.unit() < NEW {
            // Pareto's distribution from the least on: its median is the least times 2 to the power of 1 / shape.
            let shape = 2.0_f64.ln() / MEDIAN_OVER_LEAST.ln();
            let bytes = (LEAST * (1.0 - rng.unit()).powf(-1.0 / shape)).min(MOST) as u64;
            known.push((rng.bits(), bytes));
            known[known.len() - 1]
        } else {
            let back = (known.len() as f64).powf(rng.unit()) as usize;
            known[known.len() - back.clamp(1, known.len())]
        };
        load.push(Asked { at_us, key, bytes });
    }
    load
}
