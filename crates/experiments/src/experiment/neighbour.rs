//! The effect on a tenant of another one that floods the server.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use super::chart::{Chart, Marks, Panel};
use super::info::{Info, begin_anew};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::server::{Kind, Limits, Server, create_tenant, login, tidemark_json};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use tidemark_tools::bench::{self, Options, Workload};
use tidemark_tools::client::Protocol;
use tidemark_tools::load::{Distribution, MAX_VALUE_BYTES, ValueSize};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "neighbour",
    title: "A tenant beside one that floods: time in the server, hit ratio",
    minutes: 6,
    about: "\
Two tenants on one worker with a core of its own, the load on the other one. The flood: 64 connections with 50 requests each in
flight, as fast as they are answered, nine gets to a set, values of 1 KiB and, for one key in a hundred, of 1 MiB. The other
tenant: 64 connections, gets of 1 KiB and sets of what is missed, together half as many as it reaches by itself in a closed loop
without pipelines, the gets in open loop; it may hold 128 MiB, a third of its keys, with and without the flood, so that only time is shared.
Rounds by itself, beside the flood, and beside it with twice its weight take turns, forth and back, each three with keys drawn
anew. Half of its peak is somewhat more than half of the worker's time, which is what equal weights would leave it if as much
waited for both: what twice the weight changes is shown for that. Of the hit ratios, the median of the rounds' differences is
judged. What is judged is its time in the server, from when a connection was ready until its replies were given to the system, as
the server counts it: a percentile is at most an eighth above the truth, and while the server has work, a connection counts as
ready since it was looked at the time before, so that it is never less. The flood's
threads run on the load's core only while no other wants it, and the other tenant's sleeps until a request is due, so that requests
are sent when they are; what the clients wait for their own core is in their latency, which is shown beside.",
    run,
};

const QUIET: &str = "quiet";
const FLOOD: &str = "flood";
const CONNECTIONS: usize = 64;
const FLOOD_PIPELINE: usize = 50;
/// Requests of the open loop that a connection may have in flight.
const QUIET_PIPELINE: usize = 50;
const QUIET_KEYS: u64 = 400_000;
/// A third of its keys.
const QUIET_MEMORY: &str = "128MiB";
/// With values of 12 KiB in the mean.
const FLOOD_KEYS: u64 = 20_000;
const MEMORY_BYTES: u64 = 1 << 30;
/// The number of runs until the other tenant's memory is settled.
const WARM_UPS: usize = 3;
/// The part of the other tenant's peak rate, gets and sets together.
const RATE_RATIO: f64 = 0.5;
/// The flood begins before and ends after the other tenant's requests.
const FLOOD_MARGIN_SECONDS: f64 = 2.0;
/// Requests by which the flood is there.
const FLOODED_FROM: u64 = 20_000;
const LOOK_EVERY: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(10);
/// The limits of the other tenant's time: a factor of its time alone, and so many microseconds more.
const TIMES_MAX: f64 = 2.0;
const MORE_US_MAX: f64 = 200.0;
/// How far its hit ratio may be from that of the tenant alone.
const HIT_RATIO_MAX: f64 = 0.005;

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rounds: usize,
    seconds: f64,
}

/// The neighbour of the quiet tenant, and its own weight.
struct Way {
    place: &'static str,
    floods: bool,
    weight: &'static str,
}

const WAYS: [Way; 3] = [
    Way {
        place: "by itself",
        floods: false,
        weight: "1",
    },
    Way {
        place: "beside the flood",
        floods: true,
        weight: "1",
    },
    Way {
        place: "beside it, weight 2",
        floods: true,
        weight: "2",
    },
];

/// The samples of each of [`WAYS`].
type Samples = [Vec<Sample>; WAYS.len()];

/// The result of one run of the other tenant's load.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The median time in the server, in microseconds.
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// The 99th percentile as its clients see it.
    client_p99_us: f64,
    hit_ratio: f64,
    ops_per_second: f64,
    /// Zero by itself.
    flood_per_second: f64,
}

/// The peak of the other tenant alone.
#[derive(Clone, Copy, Debug)]
struct Peak {
    /// Gets, and sets of missed keys.
    per_second: f64,
    hit_ratio: f64,
}

impl Peak {
    /// The number of gets that are, with the sets of missed keys, this part of all requests.
    fn gets_per_second(self, part: f64) -> f64 {
        self.per_second * part / (2.0 - self.hit_ratio)
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = if context.quick {
        Scale {
            rounds: 2,
            seconds: 2.0,
        }
    } else {
        Scale {
            rounds: 7,
            seconds: 10.0,
        }
    };
    let others = Others::watch();
    let scene = Scene::start(context)?;
    context.tell("storing what both tenants have");
    let peak = scene.warm_up(scale)?;
    let gets_per_second = peak.gets_per_second(RATE_RATIO);
    context.tell(&format!(
        "by itself it reaches {:.0} requests a second",
        peak.per_second
    ));
    let mut samples = Samples::default();
    for round in 0..scale.rounds {
        context.tell(&format!("round {} of {}", round + 1, scale.rounds));
        for turn in 0..WAYS.len() {
            // The order is forth and back, so that changes in time fall on all alike.
            let turn = if round % 2 == 0 { turn } else { WAYS.len() - 1 - turn };
            let way = (round / 2 + turn) % WAYS.len();
            let seed = context.seed + 1 + round as u64;
            scene.weigh(context, WAYS[way].weight)?;
            samples[way].push(scene.round(gets_per_second, scale.seconds, seed, WAYS[way].floods)?);
        }
    }
    let series = series(&samples);
    Ok(Outcome {
        scale: format!(
            "{} rounds of {} s each; {:.0} requests a second of {:.0}, of which {gets_per_second:.0} gets",
            scale.rounds,
            scale.seconds,
            peak.per_second * RATE_RATIO,
            peak.per_second
        ),
        targets: targets(&samples),
        chart: chart(&series),
        series,
        others_cores: others.cores(),
    })
}

/// A server with both tenants.
struct Scene {
    server: Server,
    redis: SocketAddr,
    memcached: SocketAddr,
    secrets: [String; 2],
    seed: u64,
}

impl Scene {
    fn start(context: &Context) -> Result<Self, Error> {
        let limits = Limits {
            memory_bytes: MEMORY_BYTES,
            value_bytes: MAX_VALUE_BYTES,
        };
        let server = Server::start(&context.stage, Kind::Tidemark, limits)?;
        let create = |name: &str, settings: &[&str]| create_tenant(&context.stage, &server, name, settings);
        let secrets = [
            create(QUIET, &["--floor", QUIET_MEMORY, "--cap", QUIET_MEMORY])?,
            create(FLOOD, &["--cap", "512MiB"])?,
        ];
        Ok(Self {
            redis: server.address(Protocol::Redis)?,
            memcached: server.address(Protocol::Memcached)?,
            server,
            secrets,
            seed: context.seed,
        })
    }

    /// Gives the quiet tenant this weight; the flood has 1.
    fn weigh(&self, context: &Context, weight: &str) -> Result<(), Error> {
        let arguments = ["tenant", "set", QUIET, "--weight", weight, "--json"];
        tidemark_json(&context.stage, &self.server, &arguments).map(|_| ())
    }

    /// Fills both tenants' memory. Returns the peak of the quiet one alone.
    fn warm_up(&self, scale: Scale) -> Result<Peak, Error> {
        let flood = Options {
            preload: true,
            pipeline: 1,
            seconds: 0.1,
            ..self.flood(1.0)?
        };
        bench::run(&flood, &mut |_| {})?;
        let closed = Options {
            preload: true,
            pipeline: 1,
            rate: None,
            sleeps: false,
            ..self.quiet(1.0, scale.seconds, self.seed)?
        };
        // At first the memory is filled, and the popular keys come to stay.
        for _ in 0..WARM_UPS {
            bench::run(&closed, &mut |_| {})?;
        }
        let again = Options {
            preload: false,
            ..closed
        };
        let report = bench::run(&again, &mut |_| {})?;
        Ok(Peak {
            per_second: report.ops_per_second,
            hit_ratio: report.hit_ratio.unwrap_or(1.0),
        })
    }

    fn round(&self, rate: f64, seconds: f64, seed: u64, floods: bool) -> Result<Sample, Error> {
        let measure = || self.measure(&self.quiet(rate, seconds, seed)?);
        if !floods {
            return measure();
        }
        let flood = self.flood(seconds + 2.0 * FLOOD_MARGIN_SECONDS)?;
        let mut info = Info::open(self.redis, FLOOD, &self.secrets[1])?;
        std::thread::scope(|scope| {
            let flooding = scope.spawn(|| {
                yield_to_all()?;
                Ok::<_, Error>(bench::run(&flood, &mut |_| {})?)
            });
            let measured = wait_for_flood(&mut info).and_then(|()| measure());
            let flooded = flooding
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(Sample {
                flood_per_second: flooded.ops_per_second,
                ..measured?
            })
        })
    }

    /// The quiet tenant's requests, and the server's figures for them.
    fn measure(&self, quiet: &Options) -> Result<Sample, Error> {
        let mut info = Info::open(self.redis, QUIET, &self.secrets[0])?;
        begin_anew(self.memcached, QUIET, &self.secrets[0])?;
        let report = bench::run(quiet, &mut |_| {})?;
        let fields = info.read("latencystats")?;
        let percentile = |part: &str| fields.part("tidemark_request_duration_usec", part);
        Ok(Sample {
            p50_us: percentile("p50")?,
            p99_us: percentile("p99")?,
            p999_us: percentile("p99.9")?,
            client_p99_us: report.latency_us.map_or(f64::NAN, |latency| latency.p99),
            hit_ratio: report.hit_ratio.unwrap_or(f64::NAN),
            ops_per_second: report.ops_per_second,
            flood_per_second: 0.0,
        })
    }

    fn quiet(&self, rate: f64, seconds: f64, seed: u64) -> Result<Options, Error> {
        let workload = Workload {
            seed,
            ..Workload::gets(QUIET_KEYS, Distribution::Zipf { alpha: 0.99 }, 16, 1024)
        };
        Ok(Options {
            pipeline: QUIET_PIPELINE,
            rate: Some(rate),
            sleeps: true,
            look_aside: true,
            ..self.options(QUIET, workload, seconds)?
        })
    }

    fn flood(&self, seconds: f64) -> Result<Options, Error> {
        let workload = Workload {
            value_size: ValueSize::Outliers {
                bytes: 1024,
                outlier_bytes: MAX_VALUE_BYTES,
                one_in: 100,
            },
            reads_ratio: 0.9,
            seed: self.seed,
            ..Workload::gets(FLOOD_KEYS, Distribution::Uniform, 16, 1024)
        };
        self.options(FLOOD, workload, seconds)
    }

    fn options(&self, tenant: &str, workload: Workload, seconds: f64) -> Result<Options, Error> {
        let secret = &self.secrets[usize::from(tenant == FLOOD)];
        Ok(Options {
            address: self.redis,
            protocol: Protocol::Redis,
            logins: vec![login(tenant, secret)?],
            keys_apart: false,
            connections: CONNECTIONS,
            pipeline: FLOOD_PIPELINE,
            threads: 1,
            workload,
            rate: None,
            burst: 1,
            sleeps: false,
            seconds,
            preload: false,
            look_aside: false,
            verify: false,
        })
    }
}

/// Lets this thread, and those that it starts, run only while no other needs its core (`SCHED_IDLE`, sched(7)). A
/// thread of the lowest niceness would end its slice of some milliseconds first. Requests due meanwhile would come all
/// at once.
fn yield_to_all() -> Result<(), Error> {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let done = Command::new("chrt").args(["--idle", "--pid", "0", &thread]).output();
    let failed = |why: String| Error::Usage(format!("chrt --idle, of util-linux: {why}"));
    let done = done.map_err(|error| failed(error.to_string()))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(failed(String::from_utf8_lossy(&done.stderr).into_owned()))
    }
}

/// Waits until the flood is answered.
fn wait_for_flood(info: &mut Info) -> Result<(), Error> {
    let mut commands = || info.read("stats")?.number("total_commands_processed");
    let (began, before) = (Instant::now(), commands()?);
    while commands()? < before + FLOODED_FROM {
        if began.elapsed() > PATIENCE {
            return Err(Error::Usage("the flood does not come".into()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A figure of a sample.
type Figure = fn(&Sample) -> f64;

const X_PLACE: &str = "tenant";
const IN_SERVER: &str = "time in the server";
const AT_CLIENT: &str = "latency at the client";
const HIT_RATIO: &str = "hit ratio";
const THROUGHPUT: &str = "requests answered";

fn series(samples: &Samples) -> Vec<Series> {
    let figures: [(&str, &str, &str, Figure); 7] = [
        (IN_SERVER, "µs", "median", |sample| sample.p50_us),
        (IN_SERVER, "µs", "99th percentile", |sample| sample.p99_us),
        (IN_SERVER, "µs", "99.9th percentile", |sample| sample.p999_us),
        (AT_CLIENT, "µs", "99th percentile", |sample| sample.client_p99_us),
        (HIT_RATIO, "", "the tenant", |sample| sample.hit_ratio),
        (THROUGHPUT, "requests/s", "the tenant", |sample| sample.ops_per_second),
        (THROUGHPUT, "requests/s", "the flood", |sample| sample.flood_per_second),
    ];
    let mut series = Vec::new();
    for (Way { place, .. }, samples) in WAYS.iter().zip(samples) {
        for (measure, unit, name, of) in figures {
            if let Some(spread) = Spread::of(samples.iter().map(of)) {
                let point = Point::spread(*place, spread);
                add_point(&mut series, (name, measure, unit), ("", X_PLACE), point);
            }
        }
    }
    series
}

fn targets(samples: &Samples) -> Vec<Target> {
    let median =
        |way: usize, of: Figure| Spread::of(samples[way].iter().map(of)).map_or(f64::NAN, |spread| spread.median);
    let [alone_us, beside_us] = [0, 1].map(|way| median(way, |sample| sample.p99_us));
    // All turns of a round ask for the same keys.
    let pairs = samples[0].iter().zip(&samples[1]);
    let lost = Spread::of(pairs.map(|(alone, beside)| alone.hit_ratio - beside.hit_ratio));
    vec![
        Target::at_most(
            "microseconds in the server beside the flood, 99th percentile: twice what it is by itself, and 200 more",
            beside_us,
            TIMES_MAX * alone_us + MORE_US_MAX,
        ),
        Target::at_most(
            "hit ratio, by itself less beside the flood",
            lost.map_or(f64::NAN, |spread| spread.median),
            HIT_RATIO_MAX,
        ),
    ]
}

fn chart(series: &[Series]) -> Chart {
    let panel = |title: &str, measure: &str| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(title, Marks::Bars, &own)
    };
    Chart {
        title: EXPERIMENT.title.into(),
        panels: vec![
            panel("Time in the server", IN_SERVER),
            panel("Requests answered", THROUGHPUT),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_what_is_missed_are_part_of_the_rate() {
        let peak = Peak {
            per_second: 1000.0,
            hit_ratio: 0.75,
        };
        // And a hundred sets.
        assert_eq!(peak.gets_per_second(0.5), 400.0);
    }

    #[test]
    fn the_limit_follows_from_what_the_tenant_has_by_itself() {
        let sample = |p99_us, hit_ratio| Sample {
            p50_us: 1.0,
            p99_us,
            p999_us: 1.0,
            client_p99_us: 1.0,
            hit_ratio,
            ops_per_second: 1.0,
            flood_per_second: 1.0,
        };
        for (beside, met) in [
            ((399.0, 0.796), [true, true]),
            ((401.0, 0.794), [false, false]),
            ((401.0, 0.9), [false, true]),
        ] {
            let samples = [
                vec![sample(100.0, 0.8); 3],
                vec![sample(beside.0, beside.1); 3],
                // The results with other weights are shown, not judged.
                vec![sample(9_999.0, 0.1); 3],
            ];
            let found: Vec<bool> = targets(&samples).iter().map(|target| target.met).collect();
            assert_eq!(found, met, "{beside:?}");
        }
        assert_eq!(series(&[(); WAYS.len()].map(|()| vec![sample(1.0, 1.0)])).len(), 7);
    }
}
