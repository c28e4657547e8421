//! Loads: requests for objects at times.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tidemark_tools::load::Rng;
use tidemark_tools::trace::Trace;

use crate::Error;

/// The requests of the IBM registry in Dallas for objects of more than 10 MB, and how many hours they are.
const REGISTRY: (&str, u64) = ("ibm-registry-dal09-10mb-50h.tar.gz", 50);
/// So many of them are for objects of at most 5 GB.
const REGISTRY_REQUESTS: usize = 37_469;
/// Objects of at most so many bytes are small.
const SMALL_BYTES_MAX: f64 = 10e6;

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

/// The registry's requests for objects of at most so many bytes, or some in their image where the trace is not there; and which of these.
///
/// # Errors
/// The trace cannot be read.
pub fn registry(seed: u64, bytes_max: u64) -> Result<(Vec<Asked>, &'static str), Error> {
    let (file, hours) = REGISTRY;
    let folder = std::env::var_os("TIDEMARK_TRACES").map_or_else(|| "../shared/traces".into(), PathBuf::from);
    let path = folder.join(file);
    if path.exists() {
        return Ok((of_trace(&path, bytes_max)?, "the trace"));
    }
    let load = made(seed, REGISTRY_REQUESTS, hours);
    Ok((load, "a generated load in the trace's image"))
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
    const MEDIAN_OVER_LEAST: f64 = 4.2;
    const MOST: f64 = 1e9;
    const NEW: f64 = 1.0 / 3.0;
    let mut rng = Rng::new(seed);
    let span_us = hours * super::HOUR_S * 1_000_000;
    let times = (0..requests).map(|_| rng.below(span_us)).collect();
    drawn(&mut rng, times, NEW, |unit| {
        // Pareto's distribution from the least on: its median is the least times 2 to the power of 1 / shape.
        let shape = 2.0_f64.ln() / MEDIAN_OVER_LEAST.ln();
        (SMALL_BYTES_MAX * (1.0 - unit).powf(-1.0 / shape)).min(MOST) as u64
    })
}

/// So many requests for objects of a byte to 10 MB, at the times of a load for larger ones: three tenths are for objects that nobody
/// asked for before. Half of the objects are below 2 MB, a tenth below 50 KB, and their mean is 3 MB.
pub fn made_small(seed: u64, beside: &[Asked], requests: usize) -> Vec<Asked> {
    const NEW: f64 = 0.3;
    const POWER: f64 = 7.0 / 3.0;
    /// Within so many us behind another request.
    const BEHIND_US: u64 = 600_000_000;
    let mut rng = Rng::new(seed);
    let time = |_| {
        let other = beside.get(rng.below(beside.len() as u64) as usize);
        other.map_or(0, |other| other.at_us) + rng.below(BEHIND_US)
    };
    let times = (0..requests).map(time).collect();
    drawn(&mut rng, times, NEW, |unit| {
        (SMALL_BYTES_MAX * unit.powf(POWER)).ceil().max(1.0) as u64
    })
}

/// Requests at these times: a share is for objects that nobody asked for before, whose bytes `size` makes of a number below 1, the others
/// for one of the last that were, recent ones more often.
fn drawn(rng: &mut Rng, mut times: Vec<u64>, new: f64, size: impl Fn(f64) -> u64) -> Vec<Asked> {
    times.sort_unstable();
    let mut known: Vec<(u64, u64)> = Vec::new();
    let mut load = Vec::with_capacity(times.len());
    for at_us in times {
        let (key, bytes) = if known.is_empty() || rng.unit() < new {
            let bytes = size(rng.unit());
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
