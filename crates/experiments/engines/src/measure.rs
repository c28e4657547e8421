//! One measurement, in a process that does nothing else: fill a cache with one pass, then time others.
//!
//! Invariant: everything that is not the cache (the keys above all) is in memory before the cache is made. It stays
//! there until the cache's memory has been read, so that the difference is the cache's.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::engine::{
    Engine, Foyer, KEY_BYTES, KeyBytes, Kind, Moka, QuickCache, QuickCacheFixed, Segcache, Tally, Tidemark,
};

/// The measurement that is to be made.
#[derive(Args, Clone, Debug)]
pub(crate) struct Spec {
    /// The cache
    #[arg(long)]
    pub(crate) cache: Kind,
    /// Its capacity as it counts itself: bytes of payload; for segcache of segments, for Tidemark of grant
    #[arg(long)]
    pub(crate) capacity: u64,
    /// Keys asked for at once (above 1 only Tidemark can)
    #[arg(long, default_value_t = 1)]
    pub(crate) batch: usize,
    /// Threads that share the timed operations, each on its own core
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// A file of 16-byte keys in the order of asking
    #[arg(long)]
    pub(crate) keys: PathBuf,
    /// A file of the same keys, each once
    #[arg(long)]
    pub(crate) distinct: PathBuf,
    /// How many of the keys fill the cache; the others are for the timed pass, or all if none is left
    #[arg(long)]
    pub(crate) fill: usize,
    /// How many operations are timed at least; 0 to end after filling
    #[arg(long)]
    pub(crate) timed: usize,
}

impl Spec {
    /// The options from which this is read.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let numbers = [
            ("--capacity", self.capacity),
            ("--batch", self.batch as u64),
            ("--threads", self.threads as u64),
            ("--fill", self.fill as u64),
            ("--timed", self.timed as u64),
        ];
        let numbers = numbers.map(|(name, value)| [name.into(), value.to_string().into()]);
        let mut all: Vec<OsString> = numbers.into_iter().flatten().collect();
        all.extend(["--cache".into(), self.cache.name().into()]);
        all.extend([
            "--keys".into(),
            self.keys.clone().into(),
            "--distinct".into(),
            self.distinct.clone().into(),
        ]);
        all
    }
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Part of the lookups that hit while the cache was filled, from empty.
    pub(crate) fill_hit_ratio: f64,
    /// The cache's memory after that.
    pub(crate) fill_rss_bytes: u64,
    /// Part of the timed lookups that hit.
    pub(crate) hit_ratio: f64,
    /// The cache's memory at the end.
    pub(crate) rss_bytes: u64,
    /// Items held at the end.
    pub(crate) items: u64,
    /// Sets that the cache refused.
    pub(crate) refused: u64,
    /// Operations that were timed.
    pub(crate) operations: u64,
    /// The time of the operations. With one thread it is the CPU time of the whole process. On one core that is the
    /// elapsed time, less the core's time for other programs. With several threads it is the elapsed time.
    pub(crate) seconds: f64,
    /// How many cores other programs had meanwhile, in the mean.
    pub(crate) others_cores: f64,
}

impl Outcome {
    /// Million operations a second.
    pub(crate) fn mops(&self) -> f64 {
        self.operations as f64 / self.seconds / 1e6
    }

    /// Bytes of memory for each item.
    pub(crate) fn bytes_per_item(&self) -> f64 {
        self.rss_bytes as f64 / self.items as f64
    }
}

/// Measures in this process, on as many cores as threads.
pub(crate) fn measure(spec: &Spec) -> Result<Outcome> {
    ensure!(
        spec.batch == 1 || matches!(spec.cache, Kind::Tidemark(_)),
        "{} has no way to ask for several keys at once",
        spec.cache
    );
    stay_on_cores(spec.threads)?;
    let keys = read_keys(&spec.keys)?;
    ensure!(
        !keys.is_empty() && spec.fill <= keys.len(),
        "{} keys are too few",
        keys.len()
    );
    let before = resident_bytes()?;
    let (capacity, threads) = (spec.capacity, spec.threads);
    match spec.cache {
        Kind::Tidemark(policy) => run(
            Tidemark::new(capacity, policy, spec.batch, threads)?,
            spec,
            &keys,
            before,
        ),
        Kind::Segcache => run(Segcache::new(capacity)?, spec, &keys, before),
        Kind::QuickCache => run(QuickCache::new(capacity, threads)?, spec, &keys, before),
        Kind::QuickCacheFixed => run(QuickCacheFixed::new(capacity, threads)?, spec, &keys, before),
        Kind::Foyer => run(Foyer::new(capacity, threads)?, spec, &keys, before),
        Kind::Moka => run(Moka::new(capacity), spec, &keys, before),
    }
}

fn run(mut engine: impl Engine, spec: &Spec, keys: &[KeyBytes], rss_before: u64) -> Result<Outcome> {
    let (fill, rest) = keys.split_at(spec.fill);
    let timed = if rest.is_empty() { keys } else { rest };
    let filled = engine.pass(fill);
    let fill_rss_bytes = resident_bytes()?.saturating_sub(rss_before);
    let others = Others::watch()?;
    let all = if spec.threads == 1 {
        alone(&mut engine, timed, spec.timed)
    } else {
        together(&mut engine, timed, spec)?
    };
    let others_cores = others.cores()?;
    let rss_bytes = resident_bytes()?.saturating_sub(rss_before);
    let wrong = filled.wrong + all.tally.wrong;
    ensure!(
        wrong == 0,
        "{} returned {wrong} values that were not the keys'",
        spec.cache
    );
    let distinct = read_keys(&spec.distinct)?;
    Ok(Outcome {
        fill_hit_ratio: filled.hits as f64 / fill.len().max(1) as f64,
        fill_rss_bytes,
        hit_ratio: all.tally.hits as f64 / all.operations.max(1) as f64,
        rss_bytes,
        items: distinct.iter().filter(|key| engine.holds(key)).count() as u64,
        refused: filled.refused + all.tally.refused,
        operations: all.operations as u64,
        seconds: all.seconds,
        others_cores,
    })
}

/// Operations that were timed.
struct Timed {
    tally: Tally,
    operations: usize,
    seconds: f64,
}

fn alone(engine: &mut impl Engine, keys: &[KeyBytes], at_least: usize) -> Timed {
    let begin = cpu_seconds();
    let (tally, operations) = repeat(engine, keys, at_least);
    let seconds = cpu_seconds() - begin;
    Timed {
        tally,
        operations,
        seconds,
    }
}

/// Each thread asks for its own part of the keys.
fn together<E: Engine>(engine: &mut E, keys: &[KeyBytes], spec: &Spec) -> Result<Timed> {
    let parts = keys.chunks(keys.len().div_ceil(spec.threads));
    let start = Barrier::new(parts.len());
    let work = |engine: &mut E, part| {
        start.wait();
        let begin = Instant::now();
        let (tally, operations) = repeat(engine, part, spec.timed / spec.threads);
        (tally, operations, begin, Instant::now())
    };
    let mut others: Vec<E> = (1..parts.len()).map(|_| engine.share()).collect();
    let handles = iter::once(engine).chain(&mut others);
    let done: Vec<_> = thread::scope(|scope| {
        let work = &work;
        let threads = handles
            .zip(parts)
            .map(|(engine, part)| scope.spawn(move || work(engine, part)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let (mut tally, mut operations) = (Tally::default(), 0);
    let mut span: Option<(Instant, Instant)> = None;
    for one in done {
        let (part, count, begin, end) = one.map_err(|_| anyhow!("a thread of {} panicked", spec.cache))?;
        tally += part;
        operations += count;
        span = Some(span.map_or((begin, end), |(first, last)| (first.min(begin), last.max(end))));
    }
    let seconds = span.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
    Ok(Timed {
        tally,
        operations,
        seconds,
    })
}

fn repeat(engine: &mut impl Engine, keys: &[KeyBytes], at_least: usize) -> (Tally, usize) {
    let (mut tally, mut operations) = (Tally::default(), 0);
    while operations < at_least {
        tally += engine.pass(keys);
        operations += keys.len();
    }
    (tally, operations)
}

/// Keeps this thread, and those that it starts, on the last cores that it may use: the first ones serve most interrupts.
fn stay_on_cores(count: usize) -> Result<()> {
    let allowed = sched_getaffinity(None).context("the allowed cores can not be read")?;
    let mut own = CpuSet::new();
    let last = (0..CpuSet::MAX_CPU).rev().filter(|&core| allowed.is_set(core));
    last.take(count).for_each(|core| own.set(core));
    ensure!(
        count > 0 && own.count() as usize == count,
        "{count} threads need as many cores"
    );
    sched_setaffinity(None, &own).context("the cores can not be chosen")
}

/// The CPU use of other programs from a moment on.
struct Others {
    began: Instant,
    seconds: f64,
}

impl Others {
    fn watch() -> Result<Self> {
        Ok(Self {
            began: Instant::now(),
            seconds: busy_seconds()? - cpu_seconds(),
        })
    }

    /// The cores that they had since then, in the mean.
    fn cores(&self) -> Result<f64> {
        let seconds = busy_seconds()? - cpu_seconds() - self.seconds;
        Ok((seconds / self.began.elapsed().as_secs_f64()).max(0.0))
    }
}

/// CPU time of all programs and of the system.
fn busy_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("the system's CPU time can not be read")?;
    let ticks = busy_ticks(&text).context("the system's CPU time is not told as expected")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Fields of the line of all cores: `user`, `nice`, `system`, and behind `idle` and `iowait` the interrupts (proc(5)).
fn busy_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .map(str::parse::<u64>);
    let programs = fields.by_ref().take(3).sum::<Result<u64, _>>().ok()?;
    Some(programs + fields.skip(2).take(2).sum::<Result<u64, _>>().ok()?)
}

/// CPU time of all threads of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn read_keys(path: &Path) -> Result<Vec<KeyBytes>> {
    let read = || {
        let mut file = File::open(path)?;
        let count = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX) / KEY_BYTES;
        let mut keys = vec![[0; KEY_BYTES]; count];
        file.read_exact(keys.as_flattened_mut())?;
        std::io::Result::Ok(keys)
    };
    read().with_context(|| format!("{}: the keys can not be read", path.display()))
}

/// Resident memory that no file stands behind (so without the program itself), in bytes. The exact sum over all mappings;
/// the kernel's cheaper counters are some pages behind.
fn resident_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("the process's memory can not be read")?;
    resident_in(&text).context("the process's memory is not told as expected")
}

fn resident_in(rollup: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    // The proportional set of a process that shares nothing is the resident one.
    Some((kib("Pss_Anon:")? + kib("Pss_Shmem:")?) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tidemark_types::Policy;

    #[test]
    fn the_systems_summary_is_read() {
        let text = "Rss:   900 kB\nPss:   800 kB\nPss_Anon:     120 kB\nPss_File:   20 kB\nPss_Shmem:    3 kB\n";
        assert_eq!(resident_in(text), Some(123 << 10));
        assert_eq!(resident_in("Rss: 1 kB\n"), None);
        assert!(resident_bytes().unwrap() > 0);
    }

    #[test]
    fn the_systems_busy_time_is_read() {
        assert_eq!(
            busy_ticks("cpu  1 20 300 4000 50000 600000 7000000 8 9 10\ncpu0 1"),
            Some(7_600_321)
        );
        assert_eq!(busy_ticks("cpu  1 x 3 4 5 6 7"), None);
        assert!(busy_seconds().unwrap() > 0.0);
    }

    #[test]
    fn a_measurement_counts_hits_items_and_memory() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, numbers: &mut dyn Iterator<Item = u64>| {
            let path = folder.path().join(name);
            let mut file = File::create(&path).unwrap();
            numbers.for_each(|number| write!(file, "{number:016}").unwrap());
            path
        };
        let spec = Spec {
            cache: Kind::TIDEMARK,
            capacity: 16 << 20,
            batch: 1,
            threads: 1,
            keys: write("keys", &mut (0..30_000).map(|i| i % 10_000)),
            distinct: write("distinct", &mut (0..10_000)),
            fill: 20_000,
            timed: 15_000,
        };
        let outcome = measure(&spec).unwrap();
        assert_eq!((outcome.fill_hit_ratio, outcome.hit_ratio), (0.5, 1.0));
        assert_eq!(
            (outcome.items, outcome.refused, outcome.operations),
            (10_000, 0, 20_000)
        );
        assert!((100.0..400.0).contains(&outcome.bytes_per_item()), "{outcome:?}");
        let batched = Spec {
            cache: Kind::Moka,
            batch: 16,
            ..spec.clone()
        };
        assert!(measure(&batched).unwrap_err().to_string().contains("moka has no way"));
        let too_many = Spec {
            threads: CpuSet::MAX_CPU,
            ..spec
        };
        assert!(measure(&too_many).unwrap_err().to_string().contains("as many cores"));
    }

    #[test]
    fn threads_share_the_operations() {
        let keys: Vec<KeyBytes> = (0..2_000)
            .map(|i| format!("{i:016}").into_bytes().try_into().unwrap())
            .collect();
        let spec = Spec {
            cache: Kind::TIDEMARK,
            capacity: 16 << 20,
            batch: 1,
            threads: 2,
            keys: PathBuf::new(),
            distinct: PathBuf::new(),
            fill: 0,
            timed: 5_000,
        };
        let mut engine = Tidemark::new(spec.capacity, Policy::S3Fifo, 1, 2).unwrap();
        engine.pass(&keys);
        let timed = together(&mut engine, &keys, &spec).unwrap();
        // Each repeats its thousand keys until it has done 2,500.
        assert_eq!(
            (timed.operations, timed.tally.hits, timed.tally.wrong),
            (6_000, 6_000, 0)
        );
        assert!(timed.seconds > 0.0);
    }
}
