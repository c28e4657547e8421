//! `tidemark curve`: the miss-ratio curve of a trace.
//!
//! The trace is read once for an LRU curve at given sizes. It is read twice when the whole trace must be known first.
//! This holds for sizes that follow from the trace, policies other than LRU, and sizes smaller than the largest object.
//! Invariant: memory is bounded by the sampling (and, for simulated caches, by their content), not by the trace's
//! length.

mod axis;
mod chart;
pub(crate) mod picture;
mod png;
mod scatter;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidemark_curve::{Classes, Curve, Eviction, Miniatures, Point, Profile, Sampling, Threshold};

use crate::Error;
use crate::trace::{Format, Request, Trace};

pub use chart::Chart;
pub(crate) use chart::grouped;
pub use picture::Picture;
pub use png::png;
pub use scatter::Scatter;

/// Keys that are sampled if nothing else is asked for: traces of up to a million objects are measured exactly, in at
/// most 150 MiB.
pub const DEFAULT_SAMPLES: usize = 1 << 20;
/// Sizes at once: a policy's curve simulates a cache for each.
pub const MAX_SIZES: usize = 256;
/// The largest size, 256 TiB: more than a machine has.
pub const MAX_SIZE_BYTES: u64 = 1 << 48;
/// The sizes that are shown if none are given, in percent of the distinct bytes.
const DEFAULT_PERCENTS: [u64; 8] = [1, 2, 5, 10, 20, 40, 60, 80];
/// How often progress is told, and after how many requests the clock is looked at.
const OBSERVED_EVERY: Duration = Duration::from_millis(100);
const REQUESTS_BETWEEN_LOOKS: u64 = 1 << 14;

/// The measurement that is to be made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The trace's file.
    pub path: PathBuf,
    /// How it is written, where its name does not tell.
    pub format: Option<Format>,
    /// Which objects go.
    pub eviction: Eviction,
    /// How many keys are followed.
    pub sampling: Sampling,
    /// Sizes in bytes; those of [`Report`]'s points. If there are none: 1, 2, 5, 10, 20, 40, 60 and 80 % of the distinct
    /// bytes.
    pub sizes: Vec<u64>,
    /// The size of objects whose trace does not say it, in bytes.
    pub value_size_bytes: u64,
    /// The bytes of each object beside its size.
    pub overhead_bytes: u64,
    /// LRU's curve is that of a cache with slab classes, composed of theirs.
    pub by_class: bool,
}

/// The result; serialised, it is what `tidemark curve --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Requests of the trace.
    pub requests: u64,
    /// The points in ascending order of size; none for an empty trace.
    pub points: Vec<PointReport>,
    /// The name of the policy that decided which object goes.
    pub policy: String,
    /// Objects of the trace; an estimate, as all else, if it was sampled.
    pub objects: u64,
    /// Their sizes added up, each as it was last.
    pub distinct_bytes: u64,
    /// Objects that were followed, if not all were.
    pub sampled_objects: Option<u64>,
    /// How unevenly the objects are asked for; `null` if too few are asked for often enough.
    pub skew: Option<SkewReport>,
    /// The whole curve.
    #[serde(skip)]
    pub curve: Curve,
    /// The curve of LRU beside it.
    #[serde(skip)]
    pub lru: Curve,
}

/// A size and its misses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PointReport {
    /// The size in bytes.
    pub bytes: u64,
    /// Misses over requests.
    pub miss_ratio: f64,
    /// The standard error of the miss ratio; `null` where it is exact.
    pub standard_error: Option<f64>,
}

/// Zipf's law as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SkewReport {
    /// Its exponent.
    pub alpha: f64,
    /// How well it fits, 0 to 1; the law may be relied on from 0.8 on.
    pub r_squared: f64,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Requests read, of all passes.
    pub requests: u64,
    /// How much is done, 0 to 1.
    pub done_ratio: f64,
}

/// Reads the trace and makes its curve; `observe` is told ten times a second how far it is.
///
/// # Errors
/// The options make no sense, or the trace cannot be read to its end.
pub fn run(options: &Options, observe: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    check(options)?;
    let is_lru = options.eviction == Eviction::Lru;
    let mut reader = Reader {
        options,
        observe,
        requests: 0,
        passes: 1.0,
        pass: 0.0,
    };
    if !is_lru || options.sizes.is_empty() {
        reader.passes = 2.0;
        check_file(options)?;
    }
    let mut profile = Profile::new(options.sampling, &options.sizes);
    reader.pass(|key, bytes| profile.request(key, bytes))?;
    let sizes = sizes(options, &profile);
    if profile.gets() == 0 {
        return Ok(report(options, &profile, &[], profile.curve(), profile.curve()));
    }
    let threshold = profile.threshold();
    if is_lru && options.by_class {
        reader.passes = 2.0;
        check_file(options)?;
        let mut classes = Classes::new(options.sampling);
        reader.pass(|key, bytes| classes.request(key, bytes))?;
        let composed = classes.curve();
        return Ok(report(options, &profile, &sizes, composed.clone(), composed));
    }
    if is_lru {
        let lru = lru(&mut reader, &mut profile, &sizes)?;
        return Ok(report(options, &profile, &sizes, lru.clone(), lru));
    }
    let mut caches = Miniatures::new(options.eviction, &sizes, threshold, options.sampling.seed);
    reader.pass(|key, bytes| caches.request(key, bytes))?;
    Ok(report(options, &profile, &sizes, caches.curve(), profile.curve()))
}

/// The curve of LRU. Without sampling it is exact at the sizes, also at those smaller than the largest object. Objects
/// that bypass a cache are no matter of distances, so those caches are simulated.
fn lru(reader: &mut Reader, profile: &mut Profile, sizes: &[u64]) -> Result<Curve, Error> {
    let options = reader.options;
    let largest = profile.largest_bytes();
    let small: Vec<u64> = sizes.iter().copied().filter(|size| *size < largest).collect();
    if !profile.threshold().is_all() || (small.is_empty() && !options.sizes.is_empty()) {
        return Ok(profile.curve());
    }
    reader.passes = 2.0;
    check_file(options)?;
    let mut again = Profile::new(options.sampling, sizes);
    let mut caches = Miniatures::new(Eviction::Lru, &small, Threshold::ALL, 0);
    reader.pass(|key, bytes| {
        again.request(key, bytes);
        caches.request(key, bytes);
    })?;
    let (distances, simulated) = (again.curve(), caches.curve());
    *profile = again;
    let from_distances = distances.points().iter().filter(|point| !small.contains(&point.bytes));
    Ok(Curve::through(from_distances.chain(simulated.points()).copied()))
}

/// The sizes that were asked for, or those that follow from the trace.
fn sizes(options: &Options, profile: &Profile) -> Vec<u64> {
    let mut sizes = if options.sizes.is_empty() {
        let distinct = u128::from(profile.bytes());
        let part = |percent: u64| u64::try_from(distinct * u128::from(percent) / 100).unwrap_or(u64::MAX);
        DEFAULT_PERCENTS
            .map(|percent| part(percent).clamp(1, MAX_SIZE_BYTES))
            .to_vec()
    } else {
        options.sizes.clone()
    };
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn report(options: &Options, profile: &Profile, sizes: &[u64], curve: Curve, lru: Curve) -> Report {
    let is_exact = profile.threshold().is_all();
    let point = |bytes: &u64| {
        let Point {
            bytes,
            miss_ratio,
            standard_error,
        } = curve.at(*bytes);
        PointReport {
            bytes,
            miss_ratio,
            standard_error: (!is_exact).then_some(standard_error),
        }
    };
    Report {
        requests: profile.gets(),
        points: sizes.iter().map(point).collect(),
        policy: options.eviction.to_string(),
        objects: profile.keys(),
        distinct_bytes: profile.bytes(),
        sampled_objects: (!is_exact).then_some(profile.sampled_keys()),
        skew: profile.skew().map(|skew| SkewReport {
            alpha: skew.alpha,
            r_squared: skew.r_squared,
        }),
        curve,
        lru,
    }
}

/// Reads the trace, from its beginning each time.
struct Reader<'a> {
    options: &'a Options,
    observe: &'a mut dyn FnMut(Progress),
    requests: u64,
    /// How often the trace will be read, as far as is known.
    passes: f64,
    pass: f64,
}

impl Reader<'_> {
    fn pass(&mut self, mut take: impl FnMut(u64, u64)) -> Result<(), Error> {
        let options = self.options;
        let mut trace = Trace::open(&options.path, options.format)?;
        let position = trace.position();
        let mut next = Instant::now() + OBSERVED_EVERY;
        for request in &mut trace {
            let Request { key, size_bytes, .. } = request?;
            let bytes = size_bytes.unwrap_or(options.value_size_bytes);
            take(key, bytes.saturating_add(options.overhead_bytes));
            self.requests += 1;
            if self.requests.is_multiple_of(REQUESTS_BETWEEN_LOOKS) && Instant::now() >= next {
                next = Instant::now() + OBSERVED_EVERY;
                let of_pass = position.read_bytes() as f64 / position.file_bytes().max(1) as f64;
                (self.observe)(Progress {
                    requests: self.requests,
                    done_ratio: (self.pass + of_pass) / self.passes,
                });
            }
        }
        self.pass += 1.0;
        Ok(())
    }
}

fn check(options: &Options) -> Result<(), Error> {
    let usage = |text: String| Err(Error::Usage(text));
    let samples = options.sampling.keys;
    if !(1..=Sampling::EXACT.keys).contains(&samples) {
        return usage(format!(
            "--samples {samples}: allowed are 1 to {}",
            Sampling::EXACT.keys
        ));
    }
    let count = options.sizes.len();
    if count > MAX_SIZES {
        return usage(format!("--sizes: {count} sizes: allowed are at most {MAX_SIZES}"));
    }
    match options.sizes.iter().find(|size| !(1..=MAX_SIZE_BYTES).contains(size)) {
        Some(size) => usage(format!("--sizes: {size} bytes: allowed are 1 byte to 256TiB")),
        None => Ok(()),
    }
}

/// A trace that has to be read twice has to be a file.
fn check_file(options: &Options) -> Result<(), Error> {
    let is_pipe = std::fs::metadata(&options.path).is_ok_and(|facts| !facts.is_file() && !facts.is_dir());
    if !is_pipe {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: it can be read only once, which is enough for lru at given --sizes that are no smaller than the largest object; \
         otherwise write the trace to a file",
        options.path.display()
    )))
}

#[cfg(test)]
mod tests;
