//! How long objects of a kilobyte to 200 MB take, over what they take from the origin and from Redis.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::chart::{Chart, Marks, Panel};
use super::objects::{
    AccessKey, BUCKET, Client, Cloud, Found, Gateway, Limits, Origin, Pace, Pool, Resp, S3, Slowness, repeat,
};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::server::{Server, Stage};
use super::{Context, Experiment, Outcome};
use crate::Error;
use tidemark_tools::client::Protocol;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "infinicache-fig16",
    title: "Latency by size, over the origin's and over Redis's (InfiniCache, Fig. 16)",
    minutes: 5,
    about: "\
Objects of a kilobyte to 200 MB are read by one client, one after the other, two of each size in turn. *Ours* is as a tenant has it: objects below 1 MiB in
its memory, larger ones in functions, which are awake; *all in functions* keeps the small ones there, too, as the paper does. Beside them stand one process of Redis,
and the origin itself, with 30 ms and 50 MiB/s a connection. All is as in [infinicache-redis](infinicache-redis.md): real processes that share this machine's
cores, and no network but loopback, which has no such thing as the 10 Gbit/s that all of the paper's had.

The paper found its own as fast as Redis from 1 to 100 MB, faster above, and slower below 1 MB, since invoking a function took 13 ms. Ratios are those of medians.",
    run,
};

const KB: u64 = 1_000;
const MB: u64 = 1_000_000;
const SIZES: [(&str, u64); 12] = [
    ("1 KB", KB),
    ("4 KB", 4 * KB),
    ("16 KB", 16 * KB),
    ("64 KB", 64 * KB),
    ("256 KB", 256 * KB),
    ("1 MB", MB),
    ("2 MB", 2 * MB),
    ("4 MB", 4 * MB),
    ("10 MB", 10 * MB),
    ("40 MB", 40 * MB),
    ("100 MB", 100 * MB),
    ("200 MB", 200 * MB),
];
/// Objects of each size: with two, a function sees that more is to come, and stays.
const OBJECTS: u64 = 2;
const MEMORY_BYTES: u64 = 256 << 20;
const SLOWNESS: Slowness = Slowness {
    delay: Duration::from_millis(30),
    bytes_per_s: 50 << 20,
};
const POOL: Pool<'static> = Pool {
    name: "sizes",
    count: 14,
    memory_mib: 512,
    code: "10+2",
    reads: "data-first",
    billing_unit: "1s",
    encryption: "none",
};
const OURS: &str = "ours";
const ALL_IN: &str = "all in functions";
const REDIS: &str = "Redis";
const ORIGIN: &str = "the origin";
/// Reads of the origin, which takes seconds for the largest.
const ORIGIN_READS: u64 = 2;
const LEAST_READS: u64 = 5;
/// From where on, and up to where, the paper's is as fast as Redis; beyond, it is faster.
const AS_FAST: std::ops::RangeInclusive<u64> = MB..=100 * MB;

fn path(bytes: u64, number: u64) -> String {
    format!("/{BUCKET}/{bytes}-{}", number % OBJECTS)
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let stage = context.stage.on_all_cores()?;
    let sizes: Vec<(&str, u64)> = if context.quick {
        SIZES.into_iter().step_by(3).collect()
    } else {
        SIZES.to_vec()
    };
    let seconds = if context.quick { 1.0 } else { 4.0 };
    let mut found = Vec::new();
    context.tell(REDIS);
    found.push((REDIS, redis(&stage, &sizes, seconds)?));
    context.tell(ORIGIN);
    let (cloud, origin) = (Cloud::start(&stage)?, Origin::slow(SLOWNESS).map_err(Error::System)?);
    for (_, bytes) in &sizes {
        (0..OBJECTS).for_each(|number| origin.put(&path(*bytes, number), *bytes as usize));
    }
    let nobody = AccessKey {
        id: "none".into(),
        secret: "none".into(),
    };
    let straight = || S3::connect(Ipv4Addr::LOCALHOST.into(), origin.address(), &nobody);
    found.push((ORIGIN, all_sizes(ORIGIN, &sizes, (0.0, ORIGIN_READS), straight)?));
    let gateway = Gateway::start(&stage, &cloud, &origin, MEMORY_BYTES, &POOL)?;
    for (name, place) in [(OURS, "auto"), (ALL_IN, "functions")] {
        context.tell(name);
        let access = gateway.tenant(&stage, place, place)?;
        let paths = sizes
            .iter()
            .flat_map(|(_, bytes)| (0..OBJECTS).map(|number| path(*bytes, number)));
        gateway.fill(&origin, &access, &paths.collect::<Vec<_>>())?;
        let own = || gateway.client(&access);
        found.push((name, all_sizes(name, &sizes, (seconds, LEAST_READS), own)?));
    }
    let series = series(&sizes, &found);
    Ok(Outcome {
        scale: format!("{seconds} s of reads of each size, {ORIGIN_READS} from the origin"),
        targets: targets(&sizes, &found),
        chart: chart(&series),
        series,
        others_cores: others.cores(),
    })
}

fn unfit(server: &str, error: &io::Error) -> Error {
    Error::Unfit {
        server: server.to_owned(),
        reason: error.to_string(),
    }
}

/// Reads of one client of each size.
fn all_sizes<C: Client>(
    name: &str,
    sizes: &[(&str, u64)],
    (seconds, least): (f64, u64),
    connect: impl Fn() -> io::Result<C>,
) -> Result<Vec<Found>, Error> {
    let limits = Limits {
        seconds,
        least,
        most: u64::MAX,
    };
    let of_size = |(_, bytes): &(&str, u64)| {
        let read = |client: &mut C, _, number| client.read(&path(*bytes, number)).map(Some);
        repeat(vec![connect()?], (limits, Pace::Full), read)
    };
    let found: io::Result<Vec<Found>> = sizes.iter().map(of_size).collect();
    found.map_err(|error| unfit(name, &error))
}

fn redis(stage: &Stage, sizes: &[(&str, u64)], seconds: f64) -> Result<Vec<Found>, Error> {
    let server = Server::redis(stage)?;
    let address = server.address(Protocol::Redis)?;
    let mut storing = Resp::connect(address).map_err(Error::System)?;
    for (_, bytes) in sizes {
        let value = vec![b'.'; *bytes as usize];
        for number in 0..OBJECTS {
            let stored = storing.write(&path(*bytes, number), &value);
            stored.map_err(|error| unfit(REDIS, &error))?;
        }
    }
    all_sizes(REDIS, sizes, (seconds, LEAST_READS), || Resp::connect(address))
}

type All = [(&'static str, Vec<Found>)];

/// The median of a server's reads of a size.
fn median(found: &All, name: &str, size: usize) -> f64 {
    let own = found.iter().find(|(other, _)| *other == name);
    let of_size = own.and_then(|(_, sizes)| sizes.get(size));
    of_size.map_or(f64::NAN, |found| found.reads.at(0.5))
}

fn series(sizes: &[(&str, u64)], found: &All) -> Vec<Series> {
    let mut series = Vec::new();
    for (at, (size, _)) in sizes.iter().enumerate() {
        let mut add = |name: &str, measure: (&str, &str), value| {
            let what = (name, measure.0, measure.1);
            add_point(&mut series, what, ("", "size"), Point::single(*size, value));
        };
        for (name, of) in found {
            let reads = &of[at].reads;
            add(name, ("median", "ms"), reads.at(0.5));
            if *name != ORIGIN {
                add(name, ("99th percentile", "ms"), reads.at(0.99));
            }
        }
        for below in [REDIS, ORIGIN] {
            for name in [OURS, ALL_IN] {
                let ratio = median(found, name, at) / median(found, below, at);
                add(name, (&format!("over {below}"), "times"), ratio);
            }
        }
    }
    series
}

/// The paper: not slower than the origin, as fast as Redis from 1 to 100 MB, and faster above.
fn targets(sizes: &[(&str, u64)], found: &All) -> Vec<Target> {
    let mut targets = Vec::new();
    for (at, (size, bytes)) in sizes.iter().enumerate() {
        let over = |below| median(found, OURS, at) / median(found, below, at);
        if AS_FAST.contains(bytes) || bytes > AS_FAST.end() {
            targets.push(Target::at_most(format!("{size}: ours over Redis"), over(REDIS), 1.0));
        }
        targets.push(Target::at_most(
            format!("{size}: ours over the origin"),
            over(ORIGIN),
            1.0,
        ));
    }
    targets
}

fn chart(series: &[Series]) -> Chart {
    let panel = |measure: &str| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(measure, Marks::Lines, &own)
    };
    Chart {
        title: EXPERIMENT.title.into(),
        panels: vec![
            panel("over Redis"),
            panel("over the origin"),
            panel("median"),
            panel("99th percentile"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_is_no_measure_of_small_objects() {
        let of = |ms| {
            vec![
                Found {
                    reads: vec![ms; 5].into(),
                    ..Found::default()
                };
                2
            ]
        };
        let found = [(REDIS, of(2.0)), (ORIGIN, of(40.0)), (OURS, of(3.0)), (ALL_IN, of(6.0))];
        let sizes = [("1 KB", KB), ("200 MB", 200 * MB)];
        let targets = targets(&sizes, &found);
        let missed: Vec<&str> = targets
            .iter()
            .filter(|target| !target.met)
            .map(|target| target.name.as_str())
            .collect();
        assert_eq!((targets.len(), missed), (3, vec!["200 MB: ours over Redis"]));
        let series = series(&sizes, &found);
        let over = series
            .iter()
            .find(|series| series.name == ALL_IN && series.measure == "over Redis");
        assert_eq!(over.map(|series| series.points[1].y), Some(3.0));
    }
}
