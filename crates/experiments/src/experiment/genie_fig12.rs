//! Throughput and cost by item size, skew and mix: the loads of Genie's Fig. 12, and gets of large values as in its Fig. 16
//! (Genie, TKDE 2025, section VI.D and table I).

use super::chart::{Chart, Marks, Panel};
use super::measure::{Data, Endpoint, Load, Measure, Plan, Rounds, Sample, others_cores, rounds};
use super::report::{Point, Series, Target, add_point};
use super::server::{Kind, Limits, Server};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Distribution;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig12",
    title: "Throughput and cost by item size, skew and mix (Genie, Fig. 12)",
    minutes: 12,
    about: "\
The loads of Genie's Fig. 12: items of 8+8, 16+64 and 128+1,024 bytes (key+value; the paper's numbers of items divided by
32), uniform and Zipf 0.99, 95 and 50 % reads; and, as in its Fig. 16, gets of values of 4 KiB to 1 MiB, uniform. The paper
measures its server over DPDK on eight cores of one machine from another one, against its own base without elasticity, which
Tidemark does not have to offer; here each server has one thread on one core, the load has the other core, both over loopback
TCP with 64 connections, and Tidemark stands beside memcached and Redis. Every get finds its key. Closed loop: the throughput
is what server and load reach together, and the load, which has one core too, often is the slower of the two; the CPU time
of the server's process per operation is the server's own. The limits at pipelines 1 and 50 are those of `make bench`;
for large values: not above the others.",
    run,
};

/// Keys and values in bytes, and how many (the paper's 256 Mi, 128 Mi and 8 Mi, divided by 32).
const ITEMS: [Data; 3] = [
    Data {
        keys: 8 << 20,
        key_bytes: 8,
        value_bytes: 8,
    },
    Data {
        keys: 4 << 20,
        key_bytes: 16,
        value_bytes: 64,
    },
    Data {
        keys: 256 << 10,
        key_bytes: 128,
        value_bytes: 1024,
    },
];
/// The values of the large gets, in bytes.
const LARGE_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The bytes of the large values of one size together: beyond the processor's caches.
const LARGE_TOTAL_BYTES: usize = 512 << 20;
const DISTRIBUTIONS: [(&str, Distribution); 2] = [
    ("uniform", Distribution::Uniform),
    ("Zipf 0.99", Distribution::Zipf { alpha: 0.99 }),
];
const READS: [f64; 2] = [0.95, 0.5];
/// With the most that Tidemark's CPU time may be of each other server's (docs/performance.md: the same for both
/// here).
const PIPELINES: [(usize, f64); 2] = [(1, 0.85), (50, 0.65)];
/// For the values of [`LARGE_BYTES`].
const LARGE_LIMIT: f64 = 1.0;
/// Room for 8 Mi items of any of the servers, and for all large values.
const MEMORY_BYTES: u64 = 4 << 30;
/// In the order of [`endpoints`]: the place of a name, and the one that it is compared with.
const NAMES: [&str; 4] = ["Tidemark, memcached protocol", "memcached", "Tidemark, RESP", "Redis"];
const PAIRS: [(usize, usize); 2] = [(0, 1), (2, 3)];

/// How much is done.
struct Scale {
    rounds: usize,
    seconds: f64,
    /// The items are fewer by this factor.
    fewer: u64,
}

impl Scale {
    fn of(context: &Context) -> Self {
        if context.quick {
            Self {
                rounds: 3,
                seconds: 0.3,
                fewer: 32,
            }
        } else {
            Self {
                rounds: 8,
                seconds: 0.5,
                fewer: 1,
            }
        }
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = Scale::of(context);
    let mut found = Found::default();
    for data in ITEMS {
        let data = Data {
            keys: data.keys / scale.fewer,
            ..data
        };
        let loads: Vec<Load> = conditions().map(|condition| condition.load(scale.seconds)).collect();
        let rounds = measure(context, data, &loads, &scale)?;
        found.add_items(data, &rounds);
    }
    for value_bytes in LARGE_BYTES {
        let data = Data {
            keys: ((LARGE_TOTAL_BYTES / value_bytes) as u64 / scale.fewer).max(64),
            key_bytes: 16,
            value_bytes,
        };
        let load = Load {
            distribution: Distribution::Uniform,
            reads_ratio: 1.0,
            pipeline: 1,
            rate: None,
            seconds: scale.seconds,
        };
        let rounds = measure(context, data, &[load], &scale)?;
        found.add_large(data, &rounds);
    }
    let chart = found.chart();
    Ok(Outcome {
        scale: format!(
            "{} interleaved rounds of {} s for each server and load; 1/{} of the paper's items",
            scale.rounds,
            scale.seconds,
            32 * scale.fewer
        ),
        targets: found.targets,
        series: found.series,
        chart,
        others_cores: others_cores(found.samples.iter()),
    })
}

/// One load of the items.
#[derive(Clone, Copy)]
struct Condition {
    distribution: (&'static str, Distribution),
    reads_ratio: f64,
    pipeline: usize,
    limit: f64,
}

impl Condition {
    fn load(self, seconds: f64) -> Load {
        Load {
            distribution: self.distribution.1,
            reads_ratio: self.reads_ratio,
            pipeline: self.pipeline,
            rate: None,
            seconds,
        }
    }

    fn name(self) -> String {
        let (distribution, reads) = (self.distribution.0, self.reads_ratio * 100.0);
        format!("{distribution}, {reads:.0} % reads, pipeline {}", self.pipeline)
    }
}

fn conditions() -> impl Iterator<Item = Condition> {
    PIPELINES.into_iter().flat_map(|(pipeline, limit)| {
        DISTRIBUTIONS.into_iter().flat_map(move |distribution| {
            READS.into_iter().map(move |reads_ratio| Condition {
                distribution,
                reads_ratio,
                pipeline,
                limit,
            })
        })
    })
}

/// Starts all servers, stores the data in each, and measures them in rounds.
fn measure(context: &Context, data: Data, loads: &[Load], scale: &Scale) -> Result<Rounds, Error> {
    let item = format!("{}+{} bytes", data.key_bytes, data.value_bytes);
    context.tell(&format!("{item}: storing {} items", data.keys));
    let limits = Limits {
        memory_bytes: MEMORY_BYTES,
        value_bytes: data.value_bytes,
    };
    let start = |kind| Server::start(&context.stage, kind, limits);
    let servers = [start(Kind::Tidemark)?, start(Kind::Memcached)?, start(Kind::Redis)?];
    let endpoints = endpoints(&servers)?;
    // Tidemark's two protocols share their keys.
    for endpoint in [&endpoints[0], &endpoints[1], &endpoints[3]] {
        endpoint.preload(data, context.seed)?;
    }
    let plan = Plan {
        rounds: scale.rounds,
        seed: context.seed,
    };
    rounds(&endpoints, data, loads, plan, &mut |round| {
        context.tell(&format!("{item}: round {round} of {}", scale.rounds));
    })
}

fn endpoints([tidemark, memcached, redis]: &[Server; 3]) -> Result<[Endpoint<'static>; 4], Error> {
    let endpoint = |place: usize, server: &Server, protocol| -> Result<Endpoint<'static>, Error> {
        Ok(Endpoint::open(NAMES[place], server.address(protocol)?, protocol))
    };
    Ok([
        endpoint(0, tidemark, Protocol::Memcached)?,
        endpoint(1, memcached, Protocol::Memcached)?,
        endpoint(2, tidemark, Protocol::Redis)?,
        endpoint(3, redis, Protocol::Redis)?,
    ])
}

#[derive(Default)]
struct Found {
    targets: Vec<Target>,
    series: Vec<Series>,
    samples: Vec<Sample>,
}

const X_ITEM: &str = "item";
const X_VALUE: &str = "value";

impl Found {
    fn add_items(&mut self, data: Data, rounds: &Rounds) {
        let item = format!("{}+{}", data.key_bytes, data.value_bytes);
        self.samples.extend(rounds.iter().flatten().flatten());
        for (condition, samples) in conditions().zip(rounds) {
            let measures: [(&str, &str, Measure); 3] = [
                (CPU, "ns", |sample| sample.cpu_ns),
                ("throughput", "operations/s", |sample| sample.ops_per_second),
                ("latency, 99th percentile", "µs", |sample| sample.p99_us),
            ];
            for (measure, unit, of) in measures {
                self.add_points((measure, unit, &condition.name(), X_ITEM), &item, samples, of);
            }
            self.add_targets(&format!("{item} bytes, {}", condition.name()), samples, condition.limit);
        }
    }

    fn add_large(&mut self, data: Data, rounds: &Rounds) {
        let value = format!("{} KiB", data.value_bytes >> 10);
        let mib = data.value_bytes as f64 / f64::from(1 << 20);
        self.samples.extend(rounds.iter().flatten().flatten());
        let samples = &rounds[0];
        self.add_points((LARGE_THROUGHPUT, "MB/s", "", X_VALUE), &value, samples, |sample| {
            sample.ops_per_second * data.value_bytes as f64 / 1e6
        });
        self.add_points(
            ("CPU per get of a large value", "µs", "", X_VALUE),
            &value,
            samples,
            |sample| sample.cpu_ns / 1e3,
        );
        self.add_points((LARGE_CPU, "µs", "", X_VALUE), &value, samples, |sample| {
            sample.cpu_ns / 1e3 / mib
        });
        self.add_targets(&format!("gets of {value}"), samples, LARGE_LIMIT);
    }

    /// Adds a value of each endpoint to the series of a measure.
    fn add_points(
        &mut self,
        (measure, unit, condition, x): (&str, &str, &str, &str),
        place: &str,
        samples: &[Vec<Sample>],
        of: impl Fn(&Sample) -> f64,
    ) {
        for (name, samples) in NAMES.into_iter().zip(samples) {
            let Some(spread) = Spread::of(samples.iter().map(&of)) else {
                continue;
            };
            let point = Point::spread(place, spread);
            add_point(&mut self.series, (name, measure, unit), (condition, x), point);
        }
    }

    fn add_targets(&mut self, what: &str, samples: &[Vec<Sample>], limit: f64) {
        for (own, other) in PAIRS {
            let pairs = samples[own]
                .iter()
                .zip(&samples[other])
                .map(|(own, other)| (own.cpu_ns, other.cpu_ns));
            if let Some(ratio) = Spread::of_ratios(pairs) {
                let name = format!("{what}: CPU per operation, {} over {}", NAMES[own], NAMES[other]);
                self.targets.push(Target::at_most(name, ratio.median, limit));
            }
        }
    }

    fn chart(&self) -> Chart {
        let panel = |title: &str, (measure, condition): (&str, &str), marks| {
            let own = |series: &&Series| series.measure == measure && series.condition == condition;
            let own: Vec<&Series> = self.series.iter().filter(own).collect();
            let panel = Panel::of_series(title, marks, &own);
            Panel {
                x_label: match panel.x_label.as_str() {
                    X_ITEM => "item: key+value, bytes".into(),
                    other => other.to_owned(),
                },
                ..panel
            }
        };
        // The mildest and the hardest load at each pipeline.
        let shown = [0, 3, 4, 7];
        let mut panels: Vec<Panel> = shown
            .into_iter()
            .filter_map(|index| conditions().nth(index))
            .map(|condition| {
                panel(
                    &format!("CPU per operation: {}", condition.name()),
                    (CPU, &condition.name()),
                    Marks::Bars,
                )
            })
            .collect();
        panels.push(panel(
            "Gets of large values: throughput",
            (LARGE_THROUGHPUT, ""),
            Marks::Lines,
        ));
        panels.push(panel(
            "Gets of large values: CPU per MiB",
            (LARGE_CPU, ""),
            Marks::Lines,
        ));
        Chart {
            title: "One thread each: Tidemark beside memcached and Redis".into(),
            panels,
        }
    }
}

const CPU: &str = "CPU per operation";
const LARGE_THROUGHPUT: &str = "throughput of gets of large values";
const LARGE_CPU: &str = "CPU per MiB of large values";
