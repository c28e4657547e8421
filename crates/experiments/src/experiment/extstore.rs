//! Items on flash, beside memcached's extstore.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tempfile::TempDir;
use tidemark_tools::bench::{self, Options, Workload};
use tidemark_tools::client::{Login, Protocol};
use tidemark_tools::load::Distribution;
use tidemark_types::Size;

use super::chart::{Chart, Marks, Panel};
use super::info::Info;
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::server::{Kind, Limits, Server, create_tenant, login};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "extstore",
    title: "Items on flash, beside memcached's extstore",
    minutes: 8,
    about: "\
Tidemark and memcached 1.6 with extstore, each with one thread for clients on a core of its own, 64 MiB of memory and 1 GiB of flash on the
same disk. All keys are stored, 512 MiB of values, eight times the memory. Extstore drops what comes faster than it writes, so keys that are
missed are then stored again until at most one get in fifty misses, or six times. After that 64 connections get keys at random, all alike,
and store nothing. Both take turns in each round. Ratios are of figures of a round.

*Hits* are gets that found the value, a second. CPU time is that of the server's process with all its threads, over its requests: the fewer
values are found, the less it is, since a miss reads nothing. *Memory of an item on flash* is, of Tidemark, the flash tier's memory beside
the pool over its items, which counts an index for as many items as flash has room for; of memcached, the chunks that are smaller than a
value, which hold the heads of items on flash, over those items, and the hash table over all items. Memcached reads its file through the
system's page cache, which this machine has room for, and Tidemark past it: many of memcached's reads never come to the disk. What a
read of the disk takes of the processor alone is in [flash-device](flash-device.md).

Small values are 100 bytes, below what extstore takes (512 bytes with the item's head and key): found is the share of gets that found one.",
    run,
};

const MEMORY_BYTES: u64 = 64 << 20;
const FLASH_BYTES: u64 = 1 << 30;
/// Eight times the memory.
const VALUES_BYTES: u64 = 8 * MEMORY_BYTES;
const KEY_BYTES: usize = 16;
const CONNECTIONS: usize = 64;
const VALUE_BYTES: [usize; 4] = [512, 1024, 4096, 16_384];
const SMALL_VALUE_BYTES: usize = 100;
const SMALL_KEYS: u64 = 1_500_000;
/// Bytes of sets that are in flight on a connection while all keys are stored.
const PRELOAD_BYTES: usize = 64 << 10;
/// What is missed is stored again so often at most, each time for so long, until so many gets find a value.
const REFILLS: usize = 6;
const REFILL_SECONDS: f64 = 5.0;
const REFILLED: f64 = 0.98;
const TENANT: &str = "cache";
const PATIENCE: Duration = Duration::from_secs(5);
/// The limit of memory for an item on flash, over memcached's.
const MEMORY_RATIO_MAX: f64 = 0.25;
const FOUND_MIN: f64 = 0.9;
const SIDES: [&str; 2] = ["tidemark", "memcached"];

#[derive(Clone, Copy, Debug)]
struct Scale {
    /// Keys are the full number over this.
    divisor: u64,
    rounds: usize,
    seconds: f64,
}

/// One run of the load.
#[derive(Clone, Copy, Debug)]
struct Sample {
    hits_per_second: f64,
    cpu_us: f64,
    hit_ratio: f64,
}

/// A server with flash.
struct Side {
    server: Server,
    address: SocketAddr,
    logins: Vec<Option<Login>>,
    secret: Option<String>,
    /// Tidemark's file goes with it.
    _folder: TempDir,
}

impl Side {
    fn tidemark(context: &Context) -> Result<Self, Error> {
        let folder = TempDir::with_prefix("tidemark-experiments-").map_err(Error::System)?;
        let file = folder.path().join("flash").display().to_string();
        let size = Size(FLASH_BYTES).to_string();
        let options = ["--flash", &file, "--flash-size", &size];
        let server = Server::start_tidemark(&context.stage, MEMORY_BYTES, &options)?;
        let secret = create_tenant(&context.stage, &server, TENANT, &[])?;
        Ok(Self {
            address: server.address(Protocol::Memcached)?,
            logins: vec![login(TENANT, &secret)?],
            secret: Some(secret),
            server,
            _folder: folder,
        })
    }

    fn memcached(context: &Context) -> Result<Self, Error> {
        let limits = Limits {
            memory_bytes: MEMORY_BYTES,
            value_bytes: VALUE_BYTES[VALUE_BYTES.len() - 1],
        };
        let folder = TempDir::with_prefix("tidemark-experiments-").map_err(Error::System)?;
        let flash_bytes = FLASH_BYTES;
        let server = Server::start(&context.stage, Kind::Extstore { flash_bytes }, limits)?;
        Ok(Self {
            address: server.address(Protocol::Memcached)?,
            logins: vec![None],
            secret: None,
            server,
            _folder: folder,
        })
    }

    fn options(&self, keys: u64, value_bytes: usize, seconds: f64, seed: u64) -> Options {
        Options {
            address: self.address,
            protocol: Protocol::Memcached,
            logins: self.logins.clone(),
            keys_apart: false,
            connections: CONNECTIONS,
            pipeline: 1,
            threads: 1,
            workload: Workload {
                seed,
                ..Workload::gets(keys, Distribution::Uniform, KEY_BYTES, value_bytes)
            },
            rate: None,
            burst: 1,
            sleeps: false,
            seconds,
            preload: false,
            look_aside: false,
            verify: false,
        }
    }

    fn preload(&self, keys: u64, value_bytes: usize) -> Result<(), Error> {
        let options = Options {
            preload: true,
            pipeline: (PRELOAD_BYTES / value_bytes).clamp(1, 50),
            ..self.options(keys, value_bytes, REFILL_SECONDS, 1)
        };
        bench::run(&options, &mut |_| {})?;
        for refill in 0..REFILLS {
            let options = Options {
                look_aside: true,
                ..self.options(keys, value_bytes, REFILL_SECONDS, 2 + refill as u64)
            };
            let report = bench::run(&options, &mut |_| {})?;
            if report.hit_ratio.is_some_and(|ratio| ratio >= REFILLED) {
                break;
            }
        }
        Ok(())
    }

    fn measure(&self, keys: u64, value_bytes: usize, seconds: f64, seed: u64) -> Result<Sample, Error> {
        let report = bench::run(&self.options(keys, value_bytes, seconds, seed), &mut |_| {})?;
        if report.errors > 0 {
            let reason = report.first_mistake.unwrap_or_else(|| "requests failed".into());
            return Err(self.server.process.failure(&reason));
        }
        let hit_ratio = report.hit_ratio.unwrap_or(0.0);
        Ok(Sample {
            hits_per_second: report.ops_per_second * hit_ratio,
            cpu_us: report.server_cpu_ns_per_op.unwrap_or(f64::NAN) / 1e3,
            hit_ratio,
        })
    }

    /// The memory of an item on flash, in bytes.
    fn memory_of_item(&self, value_bytes: usize) -> Result<f64, Error> {
        let Some(secret) = &self.secret else {
            let ask = |what: &str| statistics(self.address, what);
            return Ok(heads_of_items(&ask("stats")?, &ask("stats slabs")?, value_bytes));
        };
        let mut info = Info::open(self.server.address(Protocol::Redis)?, TENANT, secret)?;
        let fields = info.read("memory stats tidemark")?;
        let of = |name: &str| fields.number(name);
        Ok(of("tidemark_flash_memory_bytes")? as f64 / of("tidemark_flash_items")? as f64)
    }
}

/// The lines that memcached answers a question for statistics with.
fn statistics(address: SocketAddr, question: &str) -> Result<Vec<(String, String)>, Error> {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{question}\r\n").as_bytes())?;
        let mut lines = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line = line?;
            if line == "END" {
                break;
            }
            let named = line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' '));
            lines.extend(named.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        Ok(lines)
    };
    ask().map_err(Error::System)
}

/// Memory of memcached for an item on flash: its head's chunk, and its place in the hash table.
fn heads_of_items(general: &[(String, String)], slabs: &[(String, String)], value_bytes: usize) -> f64 {
    let number = |lines: &[(String, String)], name: &str| -> f64 {
        let found = lines.iter().find(|(other, _)| other == name);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(f64::NAN)
    };
    let classes = slabs.iter().filter_map(|(name, size)| {
        let class = name.strip_suffix(":chunk_size")?;
        Some((class, size.parse::<f64>().ok()?))
    });
    let heads = classes
        .filter(|(_, size)| *size < value_bytes as f64)
        .map(|(class, size)| size * number(slabs, &format!("{class}:used_chunks")))
        .sum::<f64>();
    heads / number(general, "extstore_objects_used") + number(general, "hash_bytes") / number(general, "curr_items")
}

/// The results of a size of values.
struct Case {
    value_bytes: usize,
    samples: [Vec<Sample>; 2],
    memory_of_item: [f64; 2],
}

fn case(context: &Context, scale: Scale, value_bytes: usize, keys: u64) -> Result<Case, Error> {
    let sides = [Side::tidemark(context)?, Side::memcached(context)?];
    for (side, name) in sides.iter().zip(SIDES) {
        context.tell(&format!("values of {value_bytes} bytes: storing {keys} in {name}"));
        side.preload(keys, value_bytes)?;
    }
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for round in 0..scale.rounds {
        let mut turns = [0, 1];
        turns.rotate_left(round % 2);
        for turn in turns {
            let seed = context.seed + 100 + round as u64;
            samples[turn].push(sides[turn].measure(keys, value_bytes, scale.seconds, seed)?);
        }
    }
    let memory_of_item = [
        sides[0].memory_of_item(value_bytes)?,
        sides[1].memory_of_item(value_bytes)?,
    ];
    Ok(Case {
        value_bytes,
        samples,
        memory_of_item,
    })
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = if context.quick {
        Scale {
            divisor: 8,
            rounds: 1,
            seconds: 1.0,
        }
    } else {
        Scale {
            divisor: 1,
            rounds: 3,
            seconds: 5.0,
        }
    };
    let others = Others::watch();
    let mut cases = Vec::new();
    for value_bytes in VALUE_BYTES {
        let keys = VALUES_BYTES / value_bytes as u64 / scale.divisor;
        cases.push(case(context, scale, value_bytes, keys)?);
    }
    let small = case(context, scale, SMALL_VALUE_BYTES, SMALL_KEYS / scale.divisor)?;
    let series = series(&cases, &small);
    let panel = |measure: &str| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(measure, Marks::Bars, &own)
    };
    let panels = [HITS, CPU, MEMORY, FOUND].map(panel).into();
    Ok(Outcome {
        scale: format!("{} rounds of {} s for each size of values", scale.rounds, scale.seconds),
        targets: targets(&cases, &small),
        chart: Chart {
            title: "Items on flash".into(),
            panels,
        },
        series,
        others_cores: others.cores(),
    })
}

type Figure = fn(&Sample) -> f64;

fn median(samples: &[Sample], of: Figure) -> f64 {
    Spread::of(samples.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
}

fn targets(cases: &[Case], small: &Case) -> Vec<Target> {
    let mut targets = Vec::new();
    for case in cases {
        let [ours, theirs] = &case.samples;
        let ratio = |of: Figure| {
            let pairs = ours.iter().zip(theirs).map(|(ours, theirs)| (of(ours), of(theirs)));
            Spread::of_ratios(pairs).map_or(f64::NAN, |spread| spread.median)
        };
        let name = |what: &str| format!("values of {} bytes: {what}, over memcached's", case.value_bytes);
        let memory = case.memory_of_item[0] / case.memory_of_item[1];
        targets.push(Target::at_least(
            name("hits"),
            ratio(|sample| sample.hits_per_second),
            1.0,
        ));
        targets.push(Target::at_most(name("CPU time"), ratio(|sample| sample.cpu_us), 1.0));
        targets.push(Target::at_most(
            name("memory of an item on flash"),
            memory,
            MEMORY_RATIO_MAX,
        ));
    }
    let found = median(&small.samples[0], |sample| sample.hit_ratio);
    targets.push(Target::at_least("small values: found", found, FOUND_MIN));
    targets
}

const HITS: &str = "hits";
const CPU: &str = "CPU time of a request";
const FOUND: &str = "gets that found a value";
const MEMORY: &str = "memory of an item on flash";

fn series(cases: &[Case], small: &Case) -> Vec<Series> {
    let mut series = Vec::new();
    let figures: [(&str, &str, Figure); 3] = [
        (HITS, "1/s", |sample| sample.hits_per_second),
        (CPU, "µs", |sample| sample.cpu_us),
        (FOUND, "%", |sample| sample.hit_ratio * 100.0),
    ];
    const X: &str = "bytes of a value";
    for case in std::iter::once(small).chain(cases) {
        let place = || case.value_bytes.to_string();
        for (side, name) in SIDES.into_iter().enumerate() {
            for (measure, unit, of) in figures {
                if let Some(spread) = Spread::of(case.samples[side].iter().map(of)) {
                    add_point(
                        &mut series,
                        (name, measure, unit),
                        ("", X),
                        Point::spread(place(), spread),
                    );
                }
            }
            // Extstore has no small values on flash.
            if case.value_bytes != SMALL_VALUE_BYTES {
                let point = Point::single(place(), case.memory_of_item[side]);
                add_point(&mut series, (name, MEMORY, "bytes"), ("", X), point);
            }
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_below_a_value_are_heads() {
        let lines = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let general = lines(&[
            ("curr_items", "200"),
            ("hash_bytes", "1600"),
            ("extstore_objects_used", "100"),
        ]);
        let slabs = lines(&[
            ("1:chunk_size", "96"),
            ("1:used_chunks", "100"),
            ("9:chunk_size", "600"),
            ("9:used_chunks", "100"),
            ("active_slabs", "2"),
        ]);
        assert_eq!(heads_of_items(&general, &slabs, 512), 96.0 + 8.0);
        assert!(heads_of_items(&[], &slabs, 512).is_nan());
    }
}
