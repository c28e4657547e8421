//! Items of all sizes through memory and through functions: Genie's Figs. 15 and 16 (TKDE 2025, section VI.D).

use std::io;

use super::chart::{Chart, Marks, Panel};
use super::objects::{BUCKET, Client, Cloud, Found, Gateway, Limits, Origin, Pace, Pool, Resp, repeat};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::server::Stage;
use super::{Context, Experiment, Outcome};
use crate::Error;
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Rng;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig15",
    title: "Items of 8 bytes to 16 MiB through memory and through functions (Genie, Figs. 15 and 16)",
    minutes: 7,
    about: "\
First Genie's data sets, 50 % GETs, uniform: *Tiny* (keys of 8 bytes and values of 8), *Small* (16 and 64) and *Large* (128 and 1,024), a thousand items of
each. Then GETs alone of 4 KiB to 4 MiB, and beyond. Four clients, each with one request at a time. *Memory* is asked by Redis's protocol, which takes values up to 1 MiB, and by
the S3 address, whose requests are signed and pass through HTTP. *Functions* are asked by the S3 address: items in 8 chunks of data, in 7 and one of parity, in 6 and two, and
whole in one. They are eight processes, awake, without encryption, as in [infinicache-redis](infinicache-redis.md). All processes share the machine's cores. A write by
the S3 address goes to the origin first, which is in the load's process and takes no time of its own.

The paper ran Genie on 28 cores with many requests in flight, so that its millions a second can not be had here; its InfiniCache ran on the same machine. *The size threshold*, read
from the table of medians, is the size from which on functions answer within twice the time of memory, both by the S3 address: below, the invocations and the round
trips are what takes long, above it, the bytes. By default the product keeps no object below 1 MiB in functions.",
    run,
};

const CLIENTS: usize = 4;
const ITEMS: u64 = 1_000;
const MEMORY_BYTES: u64 = 1 << 30;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The longest value in Redis's protocol.
const VALUE_BYTES_MAX: usize = MIB;
/// Functions are as fast as memory within this many times.
const WITHIN: f64 = 2.0;
/// The product's least object in functions, in MiB.
const LEAST_OBJECT_MIB: f64 = 1.0;

/// Items of one kind.
#[derive(Clone, Copy, Debug)]
struct Items {
    name: &'static str,
    key_bytes: usize,
    value_bytes: usize,
    count: u64,
    /// Whether half of the requests are writes.
    is_mixed: bool,
}

const fn mixed(name: &'static str, key_bytes: usize, value_bytes: usize) -> Items {
    Items {
        name,
        key_bytes,
        value_bytes,
        count: ITEMS,
        is_mixed: true,
    }
}

const fn read(name: &'static str, value_bytes: usize, count: u64) -> Items {
    Items {
        name,
        key_bytes: 16,
        value_bytes,
        count,
        is_mixed: false,
    }
}

const ALL: [Items; 11] = [
    mixed("Tiny", 8, 8),
    mixed("Small", 16, 64),
    mixed("Large", 128, 1024),
    read("4 KiB", 4 * KIB, 256),
    read("16 KiB", 16 * KIB, 256),
    read("64 KiB", 64 * KIB, 256),
    read("256 KiB", 256 * KIB, 64),
    read("512 KiB", 512 * KIB, 64),
    read("1 MiB", MIB, 32),
    read("4 MiB", 4 * MIB, 16),
    read("16 MiB", 16 * MIB, 8),
];

const BY_REDIS: &str = "memory, Redis's protocol";
const BY_S3: &str = "memory, S3";
const CODED: [(&str, &str); 3] = [
    ("functions, 8+0", "8+0"),
    ("functions, 7+1", "7+1"),
    ("functions, 6+2", "6+2"),
];
const WHOLE: (&str, &str) = ("functions, whole", "1+0");
const GENIE: &str = "Genie, the paper";
const INFINICACHE: &str = "InfiniCache, the paper";
const INFINICACHE_WHOLE: &str = "InfiniCache, whole, the paper";

const THROUGHPUT: &str = "throughput";
const MEAN: &str = "mean of a GET";
const MEDIAN: &str = "median of a GET";
const P99: &str = "99th percentile of a GET";

/// The paper's figures: of whom, which, of which items.
const PRINTED: [(&str, &str, &str, f64); 19] = [
    (GENIE, THROUGHPUT, "Tiny", 35e6),
    (GENIE, THROUGHPUT, "Small", 28e6),
    (GENIE, THROUGHPUT, "Large", 13e6),
    (GENIE, THROUGHPUT, "4 KiB", 6.4e6),
    (GENIE, THROUGHPUT, "4 MiB", 3_218.0),
    (GENIE, MEAN, "4 KiB", 0.040),
    (GENIE, MEAN, "512 KiB", 0.250),
    (GENIE, MEAN, "4 MiB", 2.5),
    (INFINICACHE, THROUGHPUT, "Tiny", 28.0),
    (INFINICACHE, THROUGHPUT, "Small", 22.0),
    (INFINICACHE, THROUGHPUT, "Large", 17.0),
    (INFINICACHE, THROUGHPUT, "4 KiB", 29.0),
    (INFINICACHE, THROUGHPUT, "4 MiB", 5.0),
    (INFINICACHE, MEAN, "4 KiB", 38.0),
    (INFINICACHE, MEAN, "512 KiB", 70.0),
    (INFINICACHE, MEAN, "4 MiB", 184.0),
    (INFINICACHE_WHOLE, THROUGHPUT, "Tiny", 122.0),
    (INFINICACHE_WHOLE, THROUGHPUT, "Small", 107.0),
    (INFINICACHE_WHOLE, THROUGHPUT, "Large", 90.0),
];

impl Items {
    /// A key of the right length; an object's path has the bucket before it.
    fn key(&self, number: u64) -> String {
        format!("{:0width$}", number, width = self.key_bytes)
    }

    fn path(&self, number: u64) -> String {
        format!("/{BUCKET}/{}", self.key(number))
    }
}

fn pool(code: &str) -> Pool<'_> {
    Pool {
        name: "items",
        count: 8,
        memory_mib: 256,
        code,
        reads: "data-first",
        billing_unit: "1s",
        encryption: "none",
    }
}

fn unfit(server: &str, error: &io::Error) -> Error {
    Error::Unfit {
        server: server.to_owned(),
        reason: error.to_string(),
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let stage = context.stage.on_all_cores()?;
    let (seconds, all) = if context.quick {
        (0.7, ALL.into_iter().step_by(2).collect())
    } else {
        (4.0, ALL.to_vec())
    };
    let cloud = Cloud::start(&stage)?;
    let mut found: Vec<(&str, Vec<Option<Found>>)> = Vec::new();
    for (number, (name, code)) in CODED.into_iter().chain([WHOLE]).enumerate() {
        let origin = Origin::start().map_err(Error::System)?;
        let gateway = Gateway::start(&stage, &cloud, &origin, MEMORY_BYTES, &pool(code))?;
        let load = Load {
            gateway: &gateway,
            seconds,
            seed: context.seed,
        };
        if number == 0 {
            context.tell(BY_REDIS);
            found.push((BY_REDIS, load.by_redis(&all)?));
            context.tell(BY_S3);
            found.push((BY_S3, load.by_s3(&stage, (BY_S3, "memory"), &all)?));
        }
        context.tell(name);
        found.push((name, load.by_s3(&stage, (name, "functions"), &all)?));
    }
    let series = series(&all, &found);
    Ok(Outcome {
        scale: format!("{seconds} s of requests for each kind of items, after all were stored"),
        targets: targets(&all, &series),
        chart: chart(&series),
        series,
        others_cores: others.cores(),
    })
}

/// The load of one server.
struct Load<'a> {
    gateway: &'a Gateway,
    seconds: f64,
    seed: u64,
}

impl Load<'_> {
    fn by_redis(&self, all: &[Items]) -> Result<Vec<Option<Found>>, Error> {
        let address = self.gateway.server().address(Protocol::Redis)?;
        let of_items = |items: &Items| {
            let key = |number| items.key(number);
            self.pass(items, key, || Resp::connect(address))
        };
        let fits = |items: &Items| items.value_bytes <= VALUE_BYTES_MAX;
        let found = all.iter().map(|items| fits(items).then(|| of_items(items)).transpose());
        let found: io::Result<Vec<Option<Found>>> = found.collect();
        found.map_err(|error| unfit(BY_REDIS, &error))
    }

    fn by_s3(&self, stage: &Stage, (name, place): (&str, &str), all: &[Items]) -> Result<Vec<Option<Found>>, Error> {
        let access = self.gateway.tenant(stage, place, place)?;
        let of_items = |items: &Items| {
            let path = |number| items.path(number);
            self.pass(items, path, || self.gateway.client(&access)).map(Some)
        };
        let found: io::Result<Vec<Option<Found>>> = all.iter().map(of_items).collect();
        found.map_err(|error| unfit(name, &error))
    }

    /// Stores all items, reads each once, and then does what is measured.
    fn pass<C: Client>(
        &self,
        items: &Items,
        key: impl Fn(u64) -> String + Sync,
        connect: impl Fn() -> io::Result<C>,
    ) -> io::Result<Found> {
        let value = vec![b'.'; items.value_bytes];
        let mut storing = connect()?;
        for number in 0..items.count {
            storing.write(&key(number), &value)?;
        }
        for number in 0..items.count {
            storing.read(&key(number))?;
        }
        let clients = (0..CLIENTS).map(|_| connect()).collect::<io::Result<Vec<_>>>()?;
        let how = (Limits::seconds(self.seconds), Pace::Full);
        repeat(clients, how, |client, at, number| {
            // Each request draws for itself, the same for the same seed.
            let mut rng = Rng::stream(self.seed, ((at as u64) << 32) | number);
            let key = key(rng.below(items.count));
            if items.is_mixed && rng.below(2) == 0 {
                return client.write(&key, &value).map(|()| None);
            }
            client.read(&key).map(Some)
        })
    }
}

fn series(all: &[Items], found: &[(&str, Vec<Option<Found>>)]) -> Vec<Series> {
    let mut series = Vec::new();
    let mut add = |name: &str, measure: &str, items: &str, value| {
        let unit = if measure == THROUGHPUT {
            "requests a second"
        } else {
            "ms"
        };
        add_point(
            &mut series,
            (name, measure, unit),
            ("", "items"),
            Point::single(items, value),
        );
    };
    for (at, items) in all.iter().enumerate() {
        for (name, of) in found {
            let Some(of) = &of[at] else { continue };
            add(name, THROUGHPUT, items.name, of.done as f64 / of.seconds);
            add(name, MEDIAN, items.name, of.reads.at(0.5));
            add(name, P99, items.name, of.reads.at(0.99));
            add(name, MEAN, items.name, of.reads.mean());
        }
    }
    for (name, measure, items, value) in PRINTED {
        if all.iter().any(|one| one.name == items) {
            add(name, measure, items, value);
        }
    }
    series
}

fn figure(series: &[Series], name: &str, measure: &str, items: &str) -> Option<f64> {
    let own = series
        .iter()
        .find(|series| series.name == name && series.measure == measure)?;
    own.points.iter().find(|point| point.x == items).map(|point| point.y)
}

/// The size from which on functions answer within twice the time of memory, in MiB: of coded items, with one chunk of parity.
fn threshold_mib(all: &[Items], series: &[Series]) -> f64 {
    let is_within = |items: &&Items| {
        let of = |name: &str| figure(series, name, MEDIAN, items.name).unwrap_or(f64::NAN);
        of(CODED[1].0) <= of(BY_S3) * WITHIN
    };
    let last = all.iter().rev().take_while(is_within).last();
    last.map_or(f64::INFINITY, |items| items.value_bytes as f64 / MIB as f64)
}

/// Not less than the paper's InfiniCache, memory as fast as Genie, and the threshold where the product has it.
fn targets(all: &[Items], series: &[Series]) -> Vec<Target> {
    let mut targets = Vec::new();
    for (name, measure, items, value) in PRINTED {
        if !all.iter().any(|one| one.name == items) {
            continue;
        }
        let of = |name: &str| figure(series, name, measure, items);
        let coded = CODED.iter().filter_map(|(name, _)| of(name));
        let what = format!("{items}: {measure}");
        match (name, measure) {
            (INFINICACHE, THROUGHPUT) => {
                let best = coded.fold(f64::NAN, f64::max);
                targets.push(Target::at_least(
                    format!("{what} of coded items in functions"),
                    best,
                    value,
                ));
            }
            (INFINICACHE_WHOLE, _) => {
                let whole = of(WHOLE.0).unwrap_or(f64::NAN);
                targets.push(Target::at_least(
                    format!("{what} of whole items in functions"),
                    whole,
                    value,
                ));
            }
            (INFINICACHE, _) => {
                let best = coded.fold(f64::NAN, f64::min);
                targets.push(Target::at_most(
                    format!("{what} of coded items in functions, ms"),
                    best,
                    value,
                ));
            }
            (_, MEAN) => {
                let memory = of(BY_REDIS).or_else(|| of(BY_S3)).unwrap_or(f64::NAN);
                targets.push(Target::at_most(format!("{what} from memory, ms"), memory, value));
            }
            // Genie's throughput is that of many more cores.
            _ => {}
        }
    }
    targets.push(Target::at_most(
        "MiB from which on functions answer within twice the time of memory",
        threshold_mib(all, series),
        LEAST_OBJECT_MIB,
    ));
    targets
}

/// Small items have panels of their own: beside large ones nothing could be told apart.
const SMALL: [&str; 7] = ["Tiny", "Small", "Large", "4 KiB", "16 KiB", "64 KiB", "256 KiB"];

fn chart(series: &[Series]) -> Chart {
    let panel = |measure: &str, are_small: bool| {
        let mut shown: Vec<Series> = Vec::new();
        for one in series.iter().filter(|one| one.measure == measure) {
            // Memory by Redis's protocol has no longest items, and the paper's figures are of some.
            if one.name == BY_REDIS && !are_small || one.name.contains("the paper") {
                continue;
            }
            let mut one = one.clone();
            one.points
                .retain(|point| SMALL.contains(&point.x.as_str()) == are_small);
            shown.push(one);
        }
        let title = format!("{measure}, {}", if are_small { "small items" } else { "large items" });
        Panel::of_series(&title, Marks::Lines, &shown.iter().collect::<Vec<_>>())
    };
    let measures = [MEDIAN, P99, THROUGHPUT].into_iter();
    Chart {
        title: EXPERIMENT.title.into(),
        panels: measures
            .flat_map(|measure| [true, false].map(|are_small| panel(measure, are_small)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_length_and_differ() {
        for items in ALL {
            let keys: std::collections::BTreeSet<String> = (0..items.count).map(|number| items.key(number)).collect();
            assert_eq!(keys.len() as u64, items.count, "{}", items.name);
            assert!(keys.iter().all(|key| key.len() == items.key_bytes), "{}", items.name);
        }
    }

    #[test]
    fn the_threshold_is_where_functions_stay_within() {
        let of = |coded: [f64; 3]| {
            let all = [ALL[3], ALL[8], ALL[9]];
            let mut series = Vec::new();
            for (items, ms) in all.iter().zip(coded) {
                for (name, ms) in [(CODED[1].0, ms), (BY_S3, 1.0)] {
                    let point = Point::single(items.name, ms);
                    add_point(&mut series, (name, MEDIAN, "ms"), ("", "items"), point);
                }
            }
            threshold_mib(&all, &series)
        };
        assert_eq!(of([9.0, 2.0, 1.5]), 1.0);
        assert_eq!(of([1.0, 3.0, 1.5]), 4.0, "a smaller size by chance says nothing");
        assert_eq!(of([1.0, 1.0, 1.0]), 4.0 / 1024.0);
        assert_eq!(of([1.0, 1.0, 3.0]), f64::INFINITY);
    }
}
