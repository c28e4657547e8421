//! Many tenants, and tenants that come: Genie's Fig. 14 (TKDE 2025, section VI.F).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::chart::{Chart, Marks, Panel};
use super::info::Info;
use super::measure::{Data, Endpoint, Load, Measure, Sample};
use super::others::Others;
use super::report::{COURSE, Point, Series, Target, add_point};
use super::server::{Kind, Limits, Server, create_tenant, login};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use crate::elastic::Moment;
use tidemark_tools::bench::{self, Options, Workload};
use tidemark_tools::client::{Login, Protocol};
use tidemark_tools::load::Distribution;
use tidemark_tools::process_cpu::process_cpu_ns;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig14",
    title: "Throughput with 1 to 128 tenants, and a tenant that others join (Genie, Fig. 14)",
    minutes: 20,
    about: "\
First, what tenants cost: the same keys, a million of 16+64 bytes, divided among 8, 32 and 128 tenants or as one tenant's, asked
for by the same 128 connections with 50 requests each in flight, in closed loop; uniform and Zipf 0.99, 95 and 50 % reads, as
in Genie's Fig. 14(a). Each tenant has popular keys of its own. The one tenant is asked for its keys in just the same way, each
connection for its 8th, 32nd or 128th of them, so that nothing but the number of tenants differs. All are on one server with one
worker on a core of its own; the load has the other core. Before the first round the server makes huge pages of what was stored,
as long as it finds some to make. In each round many tenants and one take turns of a fifth of a second, after a second of each
that is not counted: a machine with neighbours may be twice as fast for a second or so as before. Throughput is what both
reach together; the server's CPU time per operation is its own. What is judged is the median of the ratios of all turns to those
of one tenant beside them.

Second, tenants that come, as in its Fig. 14(b): a tenant with a goal of 90 % of hits asks at a steady rate, a fifth of what
the server can do, in open loop, Zipf 0.99 on a million keys of 16+64 bytes, and stores what it misses. Two others with as much to
ask and no goal join at 30 and at 60 s, the first uniform, the second Zipf 0.99. What is judged is the first one's throughput and
hit ratio in the second and third 30 s against the first.",
    run,
};

/// How many tenants share the keys.
const TENANTS: [usize; 3] = [8, 32, 128];
/// A connection for each of the most tenants.
const CONNECTIONS: usize = 128;
const DATA: Data = Data {
    keys: 1 << 20,
    key_bytes: 16,
    value_bytes: 64,
};
const PIPELINE: usize = 50;
const DISTRIBUTIONS: [(&str, Distribution); 2] = [
    ("uniform", Distribution::Uniform),
    ("Zipf 0.99", Distribution::Zipf { alpha: 0.99 }),
];
const READS: [f64; 2] = [0.95, 0.5];
/// Room for all keys four times, and for the first grant of each tenant.
const MEMORY_BYTES: u64 = 4 << 30;
/// The least part of the throughput of one tenant that must remain.
const OF_ONE: f64 = 0.97;

/// The tenant of the beginning, and those that join.
const COMERS: [&str; 3] = ["first", "second", "third"];
const COMERS_GOAL: &str = "0.9";
/// Not enough for all items of all three.
const COMERS_MEMORY_BYTES: u64 = 256 << 20;
const COMERS_CONNECTIONS: usize = 16;
/// The requests in flight of each tenant: together as many as come in twenty milliseconds. The three clients share a
/// core, and run one after the other. Nobody reads the others' replies meanwhile.
const COMERS_PIPELINE: usize = 800;
/// The rate of each of the three, as a part of the server's peak.
const COMERS_RATIO: f64 = 0.2;
/// More turns than a round has.
const SEEDS_PER_ROUND: u64 = 1000;
/// How much the first one's throughput may change, as a part, and its hit ratio.
const THROUGHPUT_CHANGE: f64 = 0.03;
const HIT_RATIO_CHANGE: f64 = 0.005;
/// The time without a new huge page after which none is left to make, and how often that is looked at. An idle server
/// makes one huge page in a second, of memory that was taken a second ago.
const HUGE_SETTLED: Duration = Duration::from_secs(5);
const HUGE_LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked how the first one stands.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rounds: usize,
    /// The number of measurements of each load in each round.
    turns: usize,
    /// The longest wait for huge pages of the stored items.
    huge_seconds: u64,
    /// Before the turns: keys of tenants that come are sampled more until it is known how many there are.
    settle_seconds: f64,
    turn_seconds: f64,
    /// Until the first one's goal is met.
    warm_up_seconds: u64,
    stage_seconds: u64,
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = if context.quick {
        Scale {
            rounds: 2,
            turns: 2,
            huge_seconds: 10,
            settle_seconds: 0.3,
            turn_seconds: 0.2,
            warm_up_seconds: 10,
            stage_seconds: 5,
        }
    } else {
        Scale {
            rounds: 13,
            turns: 8,
            huge_seconds: 300,
            settle_seconds: 1.0,
            turn_seconds: 0.2,
            warm_up_seconds: 120,
            stage_seconds: 30,
        }
    };
    let others = Others::watch();
    let many = many(context, scale)?;
    let course = comers(context, scale)?;
    let mut targets = many.targets();
    targets.extend(course.targets());
    let mut series = many.series();
    series.extend(course.series());
    Ok(Outcome {
        scale: format!(
            "{} MiB on huge pages; {} rounds of {} turns of {} s; stages of {} s",
            many.huge_bytes >> 20,
            scale.rounds,
            scale.turns,
            scale.turn_seconds,
            scale.stage_seconds
        ),
        targets,
        chart: chart(&series),
        series,
        others_cores: others.cores(),
    })
}

struct Many {
    /// The samples of each load: of each number of tenants, one after the other, of one tenant in their place, and so
    /// on.
    samples: Vec<Vec<Vec<Sample>>>,
    /// On huge pages before the first round.
    huge_bytes: u64,
}

fn loads(seconds: f64) -> impl Iterator<Item = (String, Load)> {
    DISTRIBUTIONS.into_iter().flat_map(move |(name, distribution)| {
        READS.into_iter().map(move |reads_ratio| {
            let load = Load {
                distribution,
                reads_ratio,
                pipeline: PIPELINE,
                rate: None,
                seconds,
            };
            (format!("{name}, {:.0} % reads", reads_ratio * 100.0), load)
        })
    })
}

fn many(context: &Context, scale: Scale) -> Result<Many, Error> {
    let limits = Limits {
        memory_bytes: MEMORY_BYTES,
        value_bytes: DATA.value_bytes,
    };
    let server = Server::start(&context.stage, Kind::Tidemark, limits)?;
    let address = server.address(Protocol::Memcached)?;
    let create = |name: String| login(&name, &create_tenant(&context.stage, &server, &name, &[])?);
    let one = create("one".to_owned())?;
    let mut logins: Vec<Vec<Option<Login>>> = Vec::new();
    for count in TENANTS {
        let own = (0..count).map(|number| create(format!("of-{count}-{number}")));
        logins.push(own.collect::<Result<_, Error>>()?);
        logins.push(vec![one.clone(); count]);
    }
    let names = TENANTS.map(|count| [format!("{count} tenants"), format!("one tenant for {count}")]);
    let endpoints: Vec<Endpoint<'_>> = logins
        .iter()
        .zip(names.as_flattened())
        .enumerate()
        .map(|(index, (logins, name))| Endpoint {
            logins,
            is_one: index % 2 == 1,
            connections: CONNECTIONS,
            ..Endpoint::open(name, address, Protocol::Memcached)
        })
        .collect();
    // The one tenant's keys are the same each time.
    let stores = |index: &usize| index.is_multiple_of(2) || *index == 1;
    for endpoint in (0..endpoints.len()).filter(stores).map(|index| &endpoints[index]) {
        context.tell(&format!("storing the keys of {}", endpoint.name));
        endpoint.preload(DATA, context.seed)?;
    }
    context.tell("waiting for huge pages");
    let huge_bytes = wait_for_huge_pages(&server, Duration::from_secs(scale.huge_seconds))?;
    let loads: Vec<Load> = loads(scale.turn_seconds).map(|(_, load)| load).collect();
    let mut samples = vec![vec![Vec::new(); endpoints.len()]; loads.len()];
    for round in 1..=scale.rounds {
        context.tell(&format!("round {round} of {}", scale.rounds));
        for (load, samples) in loads.iter().zip(&mut samples) {
            let pairs = endpoints.chunks_exact(2).zip(samples.chunks_exact_mut(2));
            for (pair, samples) in pairs {
                take_turns(pair, samples, *load, scale, context.seed + round as u64)?;
            }
        }
    }
    Ok(Many { samples, huge_bytes })
}

/// Measures a number of tenants, and one in their place, turn by turn.
fn take_turns(
    pair: &[Endpoint<'_>],
    samples: &mut [Vec<Sample>],
    load: Load,
    scale: Scale,
    seed: u64,
) -> Result<(), Error> {
    let settling = Load {
        seconds: scale.settle_seconds,
        ..load
    };
    for endpoint in pair {
        endpoint.measure(DATA, settling, seed)?;
    }
    for turn in 0..scale.turns {
        // Each is first as often as the other.
        for place in 0..pair.len() {
            let index = (turn + place) % pair.len();
            // Both are asked for the same keys in the same order.
            let seed = seed.wrapping_mul(SEEDS_PER_ROUND).wrapping_add(turn as u64);
            samples[index].push(pair[index].measure(DATA, load, seed)?);
        }
    }
    Ok(())
}

/// Waits until the server makes no more huge pages, but not longer than that. How many bytes lie on some.
fn wait_for_huge_pages(server: &Server, patience: Duration) -> Result<u64, Error> {
    let path = format!("/proc/{}/smaps_rollup", server.process.id());
    let huge_bytes = || {
        let text = std::fs::read_to_string(&path).map_err(|source| Error::File {
            path: path.as_str().into(),
            source,
        })?;
        let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
        let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kib.map(|kib| kib << 10)
            .ok_or_else(|| server.process.failure("its huge pages are not known"))
    };
    let began = Instant::now();
    let (mut grew, mut bytes) = (began, huge_bytes()?);
    while grew.elapsed() < HUGE_SETTLED && began.elapsed() < patience {
        thread::sleep(HUGE_LOOK_EVERY);
        let now = huge_bytes()?;
        if now != bytes {
            (grew, bytes) = (Instant::now(), now);
        }
    }
    Ok(bytes)
}

const THROUGHPUT: &str = "throughput";
/// The name, after the load, of the series of the one tenant for comparison.
const ONE: &str = ", one tenant";
const CPU: &str = "CPU per operation";
const OVER_ONE: &str = "throughput over that of one tenant";
const X_TENANTS: &str = "tenants";

impl Many {
    /// Each number of tenants with their findings, and with those of one in their place.
    fn pairs(samples: &[Vec<Sample>]) -> impl Iterator<Item = (usize, &[Sample], &[Sample])> {
        let pairs = TENANTS.into_iter().zip(samples.chunks_exact(2));
        pairs.map(|(count, pair)| (count, pair[0].as_slice(), pair[1].as_slice()))
    }

    fn ratios(own: &[Sample], one: &[Sample]) -> Option<Spread> {
        let pairs = own.iter().zip(one);
        Spread::of_ratios(pairs.map(|(own, one)| (own.ops_per_second, one.ops_per_second)))
    }

    fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for ((name, _), samples) in loads(0.0).zip(&self.samples) {
            for (count, own, one) in Self::pairs(samples) {
                let median = Self::ratios(own, one).map_or(f64::NAN, |ratios| ratios.median);
                let name = format!("{name}: throughput with {count} tenants over that with one");
                targets.push(Target::at_least(name, median, OF_ONE));
            }
        }
        targets
    }

    fn series(&self) -> Vec<Series> {
        let mut series = Vec::new();
        let mut add = |name: &str, (measure, unit): (&str, &str), count: usize, spread: Option<Spread>| {
            if let Some(spread) = spread {
                let point = Point::spread(count.to_string(), spread);
                add_point(&mut series, (name, measure, unit), ("", X_TENANTS), point);
            }
        };
        for ((name, _), samples) in loads(0.0).zip(&self.samples) {
            for (count, own, one) in Self::pairs(samples) {
                add(&name, (OVER_ONE, ""), count, Self::ratios(own, one));
            }
        }
        let figures: [((&str, &str), Measure); 2] = [
            ((THROUGHPUT, "operations/s"), |sample| sample.ops_per_second),
            ((CPU, "ns"), |sample| sample.cpu_ns),
        ];
        for (measure, of) in figures {
            for ((name, _), samples) in loads(0.0).zip(&self.samples) {
                for (count, own, one) in Self::pairs(samples) {
                    add(&name, measure, count, Spread::of(own.iter().map(of)));
                    add(&format!("{name}{ONE}"), measure, count, Spread::of(one.iter().map(of)));
                }
            }
        }
        series
    }
}

/// How the first tenant stood, second by second, from the beginning of the first stage on.
struct Course {
    looks: Vec<Look>,
    stage_seconds: f64,
}

/// The standing of the first tenant, and the CPU time until then.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    moment: Moment,
    server_ns: Option<u64>,
    load_ns: Option<u64>,
}

/// The events between two looks.
#[derive(Clone, Copy, Debug)]
struct Stage {
    gets_per_second: f64,
    hit_ratio: f64,
    /// Cores that the server had, and this process, as far as it is known.
    server_cores: Option<f64>,
    load_cores: Option<f64>,
}

impl Stage {
    fn between(from: &Look, to: &Look) -> Self {
        let seconds = to.moment.seconds - from.moment.seconds;
        let gets = to.moment.gets.saturating_sub(from.moment.gets) as f64;
        let hits = to.moment.hits.saturating_sub(from.moment.hits) as f64;
        let cores = |from: Option<u64>, to: Option<u64>| Some(to?.checked_sub(from?)? as f64 / 1e9 / seconds);
        Self {
            gets_per_second: gets / seconds,
            hit_ratio: hits / gets,
            server_cores: cores(from.server_ns, to.server_ns),
            load_cores: cores(from.load_ns, to.load_ns),
        }
    }
}

fn comers(context: &Context, scale: Scale) -> Result<Course, Error> {
    let limits = Limits {
        memory_bytes: COMERS_MEMORY_BYTES,
        value_bytes: DATA.value_bytes,
    };
    let server = Server::start(&context.stage, Kind::Tidemark, limits)?;
    let redis = server.address(Protocol::Redis)?;
    let mut secrets = Vec::new();
    for (number, name) in COMERS.into_iter().enumerate() {
        let goal: &[&str] = if number == 0 {
            &["--hit-ratio", COMERS_GOAL]
        } else {
            &[]
        };
        secrets.push(create_tenant(&context.stage, &server, name, goal)?);
    }
    let options =
        |number: usize, rate: Option<f64>, seconds: u64| comer(redis, number, &secrets[number], rate, seconds);
    context.tell("how much the server can do");
    let peak = bench::run(&options(0, None, 3)?, &mut |_| {})?.ops_per_second;
    let rate = Some(peak * COMERS_RATIO);
    context.tell(&format!(
        "{peak:.0} requests a second; each tenant asks for {:.0}",
        peak * COMERS_RATIO
    ));
    let (warm_up, stage) = (scale.warm_up_seconds, scale.stage_seconds);
    let mut info = Info::open(redis, COMERS[0], &secrets[0])?;
    let begin = Instant::now() + Duration::from_secs(warm_up);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for number in 0..COMERS.len() as u64 {
            let joins = begin + Duration::from_secs(stage * number);
            // The first one is there while the server warms up.
            let waits = if number == 0 {
                Duration::ZERO
            } else {
                joins.saturating_duration_since(Instant::now())
            };
            // A little longer than the last look.
            let seconds = stage * (COMERS.len() as u64 - number) + if number == 0 { warm_up } else { 0 } + 1;
            let options = options(number as usize, rate, seconds)?;
            running.push(scope.spawn(move || {
                thread::sleep(waits);
                bench::run(&options, &mut |_| {})
            }));
        }
        let looks = stage * COMERS.len() as u64 / LOOK_EVERY.as_secs();
        let looks = (0..=looks)
            .map(|look| {
                thread::sleep((begin + LOOK_EVERY * look as u32).saturating_duration_since(Instant::now()));
                Ok(Look {
                    moment: info.moment(begin.elapsed().as_secs_f64())?,
                    server_ns: process_cpu_ns(server.process.id()),
                    load_ns: process_cpu_ns(std::process::id()),
                })
            })
            .collect::<Result<Vec<Look>, Error>>()?;
        for load in running {
            let report = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            if report.errors > 0 {
                return Err(Error::Usage(format!("{} requests failed", report.errors)));
            }
        }
        Ok(Course {
            looks,
            stage_seconds: stage as f64,
        })
    })
}

/// The load of one of those that come.
fn comer(address: SocketAddr, number: usize, secret: &str, rate: Option<f64>, seconds: u64) -> Result<Options, Error> {
    let distribution = match number {
        1 => Distribution::Uniform,
        _ => Distribution::Zipf { alpha: 0.99 },
    };
    Ok(Options {
        address,
        protocol: Protocol::Redis,
        logins: vec![login(COMERS[number], secret)?],
        keys_apart: false,
        connections: COMERS_CONNECTIONS,
        pipeline: if rate.is_some() { COMERS_PIPELINE } else { PIPELINE },
        threads: 1,
        workload: Workload {
            seed: number as u64 + 1,
            ..Workload::gets(DATA.keys, distribution, DATA.key_bytes, DATA.value_bytes)
        },
        rate,
        burst: 1,
        sleeps: rate.is_some(),
        seconds: seconds as f64,
        preload: false,
        look_aside: true,
        verify: false,
    })
}

impl Course {
    fn stages(&self) -> Vec<Stage> {
        let at = |stage: usize| {
            let seconds = self.stage_seconds * stage as f64;
            let index = self.looks.partition_point(|look| look.moment.seconds < seconds);
            self.looks.get(index).or(self.looks.last()).copied().unwrap_or_default()
        };
        (0..COMERS.len())
            .map(|stage| Stage::between(&at(stage), &at(stage + 1)))
            .collect()
    }

    fn targets(&self) -> Vec<Target> {
        let stages = self.stages();
        let mut targets = Vec::new();
        for (name, stage) in COMERS.into_iter().zip(&stages).skip(1) {
            targets.push(Target::at_most(
                format!("the {name} joins: change of the first one's throughput, as a part"),
                (stage.gets_per_second / stages[0].gets_per_second - 1.0).abs(),
                THROUGHPUT_CHANGE,
            ));
            targets.push(Target::at_most(
                format!("the {name} joins: change of the first one's hit ratio"),
                (stage.hit_ratio - stages[0].hit_ratio).abs(),
                HIT_RATIO_CHANGE,
            ));
        }
        targets
    }

    fn series(&self) -> Vec<Series> {
        let mut series = Vec::new();
        let places = ["alone", "beside one", "beside two"];
        for (place, stage) in places.into_iter().zip(self.stages()) {
            for (who, measure, unit, value) in [
                (FIRST, COMERS_GETS, "gets/s", Some(stage.gets_per_second)),
                (FIRST, COMERS_HITS, "", Some(stage.hit_ratio)),
                ("the server", COMERS_CORES, "cores", stage.server_cores),
                ("the load", COMERS_CORES, "cores", stage.load_cores),
            ] {
                let Some(value) = value else { continue };
                let point = Point::single(place, value);
                add_point(&mut series, (who, measure, unit), ("", "the first one is"), point);
            }
        }
        for pair in self.looks.windows(2) {
            let hit_ratio = Stage::between(&pair[0], &pair[1]).hit_ratio;
            let point = Point::single(format!("{:.0}", pair[1].moment.seconds), hit_ratio);
            add_point(
                &mut series,
                (FIRST, COMERS_COURSE, ""),
                ("", COURSE),
                Point {
                    low: Some(hit_ratio),
                    high: Some(hit_ratio),
                    ..point
                },
            );
        }
        series
    }
}

const FIRST: &str = "the first one";
const COMERS_CORES: &str = "cores in use";
const COMERS_GETS: &str = "gets of the first one";
const COMERS_HITS: &str = "hit ratio of the first one";
const COMERS_COURSE: &str = "hit ratio of the first one, each second";

fn chart(series: &[Series]) -> Chart {
    // The tenant for comparison is in the tables: there are only so many colours.
    let panel = |title: &str, measure: &str, marks| {
        let of_many = |series: &&Series| series.measure == measure && !series.name.ends_with(ONE);
        let own: Vec<&Series> = series.iter().filter(of_many).collect();
        Panel::of_series(title, marks, &own)
    };
    Chart {
        title: EXPERIMENT.title.into(),
        panels: vec![
            panel(
                "Throughput by number of tenants, over that of one",
                OVER_ONE,
                Marks::Bars,
            ),
            panel("The server's CPU time per operation", CPU, Marks::Bars),
            panel(
                "Hit ratio of the first one; others join at 30 and 60 s",
                COMERS_COURSE,
                Marks::Course,
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_compared_with_the_first() {
        let moment = |seconds: f64, gets: u64, hits: u64| Look {
            moment: Moment {
                seconds,
                gets,
                hits,
                ..Moment::default()
            },
            server_ns: Some((seconds * 4e8) as u64),
            load_ns: Some((seconds * 7e8) as u64),
        };
        for (last, met) in [
            (moment(90.01, 3_000, 2_700), [true, true, true, true]),
            (moment(90.01, 2_960, 2_664), [true, true, false, true]),
            (moment(90.01, 3_000, 2_690), [true, true, true, false]),
        ] {
            let course = Course {
                looks: vec![
                    moment(0.01, 0, 0),
                    moment(29.5, 990, 891),
                    moment(30.01, 1_000, 900),
                    moment(60.01, 2_000, 1_800),
                    last,
                ],
                stage_seconds: 30.0,
            };
            let found: Vec<bool> = course.targets().iter().map(|target| target.met).collect();
            assert_eq!(found, met, "{last:?}");
            let series = course.series();
            assert_eq!(series.len(), 5);
            let cores = series.iter().filter(|series| series.measure == COMERS_CORES);
            let cores: Vec<f64> = cores.map(|series| series.points[1].y).collect();
            assert!(
                (cores[0] - 0.4).abs() < 0.01 && (cores[1] - 0.7).abs() < 0.01,
                "{cores:?}"
            );
        }
    }

    #[test]
    fn more_tenants_are_compared_with_one() {
        let sample = |ops_per_second| Sample {
            cpu_ns: 1.0,
            ops_per_second,
            p50_us: 1.0,
            p75_us: 1.0,
            p99_us: 1.0,
            receives: 1.0,
            unsent_ratio: 0.0,
            requests: 1,
            others_cores: 0.0,
        };
        let of_load = [98.0, 100.0, 97.0, 100.0, 96.0, 100.0].map(|ops| vec![sample(ops); 3]);
        let many = Many {
            samples: vec![of_load.to_vec(); 4],
            huge_bytes: 0,
        };
        let met: Vec<bool> = many.targets().iter().map(|target| target.met).collect();
        assert_eq!(met, [true, true, false].repeat(4));
        assert_eq!(many.series().len(), 4 + 8 + 8);
    }
}
