//! Large objects from functions and from Redis, on the same machine and in the same run; and from an origin with and without functions
//! before it.

use std::time::{Duration, Instant};

use super::chart::{Chart, Marks, Panel};
use super::objects::{
    AccessKey, BUCKET, Client, Cloud, Found, Gateway, Limits, Origin, Pace, Pool, Resp, S3, Slowness, repeat,
};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::server::{Server, Stage};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use crate::functions;
use tidemark_tools::client::Protocol;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "infinicache-redis",
    title: "Objects of 10 to 100 MB from functions and from Redis (InfiniCache, Figs. 11(f) and 15)",
    minutes: 10,
    about: "\
All that runs here is real: `tidemark serve` with its S3 address and a pool of 14 functions, each a process of the program that Lambda would
run, in the product's emulator of Lambda; `redis-server`, one process or ten between which the objects are divided; and clients that read
object after object whole, each on a connection of its own. All of it shares the machine's cores, as the system places it, and nothing limits a
function's bandwidth; the paper had a machine for the proxy, others for Redis, and functions of 50 to 160 MB/s each. Bytes go twice through loopback on their
way from a function to a client, and once from Redis.

*Functions* are awake: they stay for a second after a read (`billing_unit = \"1s\"`), and reads follow each other at once. The code is 10+2; data chunks are
asked for first, or all and the first ten are taken (*first 10*). The talk with functions is not encrypted, but where it says TLS. *Asleep*: a function that has
served returns within 20 ms, and reads are 0.2 s apart, so that each invokes all that it needs. A client goes round four objects. *Streams at once* are 64 clients that
read objects of 100 MB and keep nothing of them: what the server takes for that, which is gateway and proxy in one process, beside 256 MiB that it may give to tenants.

Then an *origin* of 30 ms and 50 MiB/s a connection, as distant as that of `tidemark demo functions`, and objects as long as those that the 50 hours of the IBM
registry ask for (one for each part of the requests in the order of their size). Each is read from the origin, and from functions that are awake, by the same client. The
paper's functions were 100 times as fast as S3 for 60 % of the large requests; that depends on how slow the origin is, and on how fast the network before it.",
    run,
};

const SIZES_MB: [u64; 6] = [10, 20, 40, 60, 80, 100];
/// Objects of each size.
const OBJECTS: u64 = 4;
/// Clients at a time.
const CLIENTS: [usize; 2] = [1, 4];
const ONE: &str = "one client";
const FOUR: &str = "four clients";
/// Redis processes that share the objects.
const PROCESSES: usize = 10;
/// Between two reads from functions that sleep in between.
const PAUSE: Duration = Duration::from_millis(200);
const FUNCTIONS: usize = 14;
const MEMORY_MIB: u64 = 512;
/// Tenants' memory, which holds nothing here.
const MEMORY_BYTES: u64 = 256 << 20;
const SLOWNESS: Slowness = Slowness {
    delay: Duration::from_millis(30),
    bytes_per_s: 50 << 20,
};
/// Longer objects of the registry are left out: there is one, of 8 GB, and a few that take longer than all others together.
const REGISTRY_BYTES_MAX: u64 = 500_000_000;

/// A server with functions.
#[derive(Clone, Copy)]
struct Arm {
    name: &'static str,
    reads: &'static str,
    billing_unit: &'static str,
    encryption: &'static str,
    is_asleep: bool,
    has_streams: bool,
}

const AWAKE: Arm = Arm {
    name: "functions",
    reads: "data-first",
    billing_unit: "1s",
    encryption: "none",
    is_asleep: false,
    has_streams: true,
};
const ARMS: [Arm; 4] = [
    AWAKE,
    Arm {
        name: "functions, first 10",
        reads: "first-d",
        has_streams: false,
        ..AWAKE
    },
    Arm {
        name: "functions, TLS",
        encryption: "tls",
        ..AWAKE
    },
    Arm {
        name: "functions, asleep",
        billing_unit: "1ms",
        is_asleep: true,
        has_streams: false,
        ..AWAKE
    },
];
const REDIS: &str = "Redis";
const TEN: &str = "ten Redis";
const ORIGIN: &str = "the origin";

/// How much is done.
#[derive(Clone, Copy)]
struct Scale {
    sizes_mb: &'static [u64],
    seconds: f64,
    /// Objects of the registry.
    registry: usize,
    /// Clients that read at once.
    streams: usize,
    /// How often each of them is read from functions.
    rounds: u64,
}

impl Scale {
    fn of(context: &Context) -> Self {
        if context.quick {
            Self {
                sizes_mb: &[10, 100],
                seconds: 1.5,
                registry: 5,
                streams: 8,
                rounds: 3,
            }
        } else {
            Self {
                sizes_mb: &SIZES_MB,
                seconds: 4.0,
                registry: 25,
                streams: 64,
                rounds: 5,
            }
        }
    }
}

fn key(size_mb: u64, number: u64) -> String {
    format!("/{BUCKET}/{size_mb}mb-{number}")
}

/// The object that a client reads next.
fn next(size_mb: u64, client: usize, number: u64) -> String {
    key(size_mb, (client as u64 + number) % OBJECTS)
}

fn unfit(server: &str, error: &std::io::Error) -> Error {
    Error::Unfit {
        server: server.to_owned(),
        reason: error.to_string(),
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let (others, scale) = (Others::watch(), Scale::of(context));
    let stage = context.stage.on_all_cores()?;
    let mut series = Vec::new();
    for (name, processes) in [(REDIS, 1), (TEN, PROCESSES)] {
        context.tell(name);
        redis(&stage, (name, processes), scale, &mut series)?;
    }
    let (cloud, origin) = (Cloud::start(&stage)?, Origin::start().map_err(Error::System)?);
    for size_mb in scale.sizes_mb {
        (0..OBJECTS).for_each(|number| origin.put(&key(*size_mb, number), *size_mb as usize * 1_000_000));
    }
    for arm in &ARMS {
        context.tell(arm.name);
        from_functions(&stage, (&cloud, &origin), arm, scale, &mut series)?;
    }
    drop(origin);
    context.tell(ORIGIN);
    let times_faster = registry(context, &stage, &cloud, scale, &mut series)?;
    Ok(Outcome {
        scale: format!(
            "{} s of reads of each size and number of clients; {} objects of the registry's sizes, {} reads of each",
            scale.seconds, scale.registry, scale.rounds
        ),
        targets: targets(&series, scale, &times_faster),
        chart: chart(&series),
        series,
        others_cores: others.cores(),
    })
}

fn add_found(series: &mut Vec<Series>, name: &str, clients: usize, size_mb: u64, found: &Found) {
    let condition = if clients == 1 { ONE } else { FOUR };
    for (figure, share) in [("median", 0.5), ("99th percentile", 0.99)] {
        let measure = format!("{condition}, {figure}");
        let point = Point::single(size_mb.to_string(), found.reads.at(share));
        add_point(series, (name, &measure, "ms"), ("", "MB of the object"), point);
    }
    let gb_per_s = found.bytes as f64 / 1e9 / found.seconds;
    let point = Point::single(size_mb.to_string(), gb_per_s);
    add_point(
        series,
        (name, &format!("{condition}, throughput"), "GB/s"),
        ("", "MB of the object"),
        point,
    );
}

/// A client of several processes, each of which has some of the objects.
struct Shared(Vec<Resp>);

impl Shared {
    fn of(&mut self, key: &str) -> &mut Resp {
        let sum: usize = key.bytes().map(usize::from).sum();
        let place = sum % self.0.len();
        &mut self.0[place]
    }
}

impl Client for Shared {
    fn read(&mut self, key: &str) -> std::io::Result<usize> {
        self.of(key).read(key)
    }

    fn write(&mut self, key: &str, bytes: &[u8]) -> std::io::Result<()> {
        self.of(key).write(key, bytes)
    }
}

fn redis(stage: &Stage, (name, processes): (&str, usize), scale: Scale, series: &mut Vec<Series>) -> Result<(), Error> {
    let servers: Result<Vec<Server>, Error> = (0..processes).map(|_| Server::redis(stage)).collect();
    let servers = servers?;
    let failed = |error| unfit(name, &error);
    let connect = || -> Result<Shared, Error> {
        let addresses = servers.iter().map(|server| server.address(Protocol::Redis));
        let connections = addresses.map(|address| Resp::connect(address?).map_err(failed));
        Ok(Shared(connections.collect::<Result<_, _>>()?))
    };
    let mut storing = connect()?;
    for size_mb in scale.sizes_mb {
        let value = vec![b'.'; *size_mb as usize * 1_000_000];
        for number in 0..OBJECTS {
            storing.write(&key(*size_mb, number), &value).map_err(failed)?;
        }
        for clients in CLIENTS {
            let connections = (0..clients).map(|_| connect()).collect::<Result<Vec<_>, _>>()?;
            let how = (Limits::seconds(scale.seconds), Pace::Full);
            let read = |client: &mut Shared, at, number| client.read(&next(*size_mb, at, number)).map(Some);
            let found = repeat(connections, how, read).map_err(failed)?;
            add_found(series, name, clients, *size_mb, &found);
        }
    }
    Ok(())
}

fn pool(arm: &Arm) -> Pool<'static> {
    Pool {
        name: "large",
        count: FUNCTIONS,
        memory_mib: MEMORY_MIB,
        code: "10+2",
        reads: arm.reads,
        billing_unit: arm.billing_unit,
        encryption: arm.encryption,
    }
}

fn from_functions(
    stage: &Stage,
    (cloud, origin): (&Cloud, &Origin),
    arm: &Arm,
    scale: Scale,
    series: &mut Vec<Series>,
) -> Result<(), Error> {
    let gateway = Gateway::start(stage, cloud, origin, MEMORY_BYTES, &pool(arm))?;
    let access = gateway.tenant(stage, "large", "functions")?;
    let failed = |error| unfit(arm.name, &error);
    for size_mb in scale.sizes_mb {
        let paths: Vec<String> = (0..OBJECTS).map(|number| key(*size_mb, number)).collect();
        gateway.fill(origin, &access, &paths)?;
        for clients in CLIENTS {
            if arm.is_asleep && clients > 1 {
                continue;
            }
            let pace = if arm.is_asleep { Pace::After(PAUSE) } else { Pace::Full };
            let connections = (0..clients).map(|_| gateway.client(&access));
            let connections = connections.collect::<Result<Vec<_>, _>>().map_err(failed)?;
            let read = |client: &mut S3, at, number| client.read(&next(*size_mb, at, number)).map(Some);
            let before = (gateway.cpu_s(), origin.reads());
            let found = repeat(connections, (Limits::seconds(scale.seconds), pace), read).map_err(failed)?;
            if origin.reads() != before.1 {
                return Err(failed(std::io::Error::other(
                    "the origin was asked for what functions have",
                )));
            }
            add_found(series, arm.name, clients, *size_mb, &found);
            if clients == 1 {
                // The first read is not counted, but takes as much.
                let gb = (found.bytes + *size_mb * 1_000_000) as f64 / 1e9;
                let point = Point::single(size_mb.to_string(), (gateway.cpu_s() - before.0) / gb);
                let what = (arm.name, "one client, CPU of the server for a GB", "s");
                add_point(series, what, ("", "MB of the object"), point);
            }
        }
    }
    if arm.has_streams {
        streams(&gateway, &access, (arm.name, scale), series)?;
    }
    Ok(())
}

const STREAMS: &str = "streams at once";
const CPU_OF_GB: &str = "CPU-seconds for a GB";
const PEAK_MIB: &str = "most memory, MiB";

/// What the server takes for many clients at once.
fn streams(
    gateway: &Gateway,
    access: &AccessKey,
    (name, scale): (&str, Scale),
    series: &mut Vec<Series>,
) -> Result<(), Error> {
    let size_mb = scale.sizes_mb.last().copied().unwrap_or_default();
    let failed = |error| unfit(name, &error);
    let connections = (0..scale.streams).map(|_| gateway.client(access));
    let connections = connections.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let once = Limits {
        seconds: 0.0,
        least: 1,
        most: 1,
    };
    let before_s = gateway.cpu_s();
    let read = |client: &mut S3, at, number| client.pass(&next(size_mb, at, number)).map(Some);
    let found = repeat(connections, (once, Pace::Full), read).map_err(failed)?;
    // Each client has read once before, which is not counted.
    let gb = 2.0 * found.bytes as f64 / 1e9;
    for (what, value) in [
        (CPU_OF_GB, (gateway.cpu_s() - before_s) / gb),
        (PEAK_MIB, gateway.peak_mib()),
        ("GB/s", found.bytes as f64 / 1e9 / found.seconds),
    ] {
        add_point(
            series,
            (name, STREAMS, ""),
            ("", "of the server"),
            Point::single(what, value),
        );
    }
    Ok(())
}

/// As many sizes as asked for, each of an equal part of the requests.
fn registry_sizes(context: &Context, count: usize) -> Result<Vec<u64>, Error> {
    let (load, _) = functions::registry(context.seed, REGISTRY_BYTES_MAX)?;
    let mut sizes: Vec<u64> = load.iter().map(|asked| asked.bytes).collect();
    sizes.sort_unstable();
    Ok((0..count)
        .map(|part| sizes[(2 * part + 1) * sizes.len() / (2 * count)])
        .collect())
}

/// How many times as fast objects are that functions have.
fn registry(
    context: &Context,
    stage: &Stage,
    cloud: &Cloud,
    scale: Scale,
    series: &mut Vec<Series>,
) -> Result<Vec<f64>, Error> {
    let origin = Origin::slow(SLOWNESS).map_err(Error::System)?;
    let gateway = Gateway::start(stage, cloud, &origin, MEMORY_BYTES, &pool(&AWAKE))?;
    let access = gateway.tenant(stage, "large", "functions")?;
    let failed = |error| unfit(ORIGIN, &error);
    let from = std::net::Ipv4Addr::LOCALHOST.into();
    let mut straight = S3::connect(from, origin.address(), &access).map_err(failed)?;
    let mut times_faster = Vec::new();
    for (number, bytes) in registry_sizes(context, scale.registry)?.into_iter().enumerate() {
        let path = format!("/{BUCKET}/registry-{number}");
        origin.put(&path, bytes as usize);
        let began = Instant::now();
        straight.read(&path).map_err(failed)?;
        let slow_ms = began.elapsed().as_secs_f64() * 1e3;
        gateway.fill(&origin, &access, std::slice::from_ref(&path))?;
        let limits = Limits {
            seconds: 0.0,
            least: scale.rounds,
            most: scale.rounds,
        };
        let connection = gateway.client(&access).map_err(failed)?;
        let read = |client: &mut S3, _, _| client.read(&path).map(Some);
        let found = repeat(vec![connection], (limits, Pace::Full), read).map_err(failed)?;
        let fast_ms = found.reads.at(0.5);
        times_faster.push(slow_ms / fast_ms);
        let place = format!("{:.1}", bytes as f64 / 1e6);
        for (name, ms) in [(ORIGIN, slow_ms), (AWAKE.name, fast_ms)] {
            let what = (name, "objects of the registry's sizes", "ms");
            add_point(series, what, ("", "MB of the object"), Point::single(&place, ms));
        }
    }
    let spread = Spread::of(times_faster.iter().copied());
    if let Some(spread) = spread {
        let what = (AWAKE.name, "times as fast as the origin", "");
        add_point(
            series,
            what,
            ("", "of the requests"),
            Point::spread("median and quartiles", spread),
        );
    }
    for least in LEAST_TIMES {
        let what = (AWAKE.name, "times as fast as the origin", "");
        let point = Point::single(format!("share of {least} times at least"), share(&times_faster, least));
        add_point(series, what, ("", "of the requests"), point);
    }
    Ok(times_faster)
}

const LEAST_TIMES: [f64; 2] = [10.0, 100.0];

/// The share that is so many times as fast.
fn share(times_faster: &[f64], least: f64) -> f64 {
    let count = times_faster.iter().filter(|times| **times >= least).count();
    count as f64 / times_faster.len().max(1) as f64
}

/// A figure of one server.
fn figure(series: &[Series], name: &str, measure: &str, place: &str) -> f64 {
    let own = series
        .iter()
        .find(|series| series.name == name && series.measure == measure);
    let point = own.and_then(|series| series.points.iter().find(|point| point.x == place));
    point.map_or(f64::NAN, |point| point.y)
}

/// Half a second for what is read from functions without TLS.
const CPU_OF_GB_MAX: f64 = 0.5;
/// Twice the 256 MiB of stripes that may be on their way to clients.
const PEAK_MIB_MAX: f64 = 512.0;

/// The paper's: not slower than one Redis, and 100 times as fast as S3 for 60 % of the large requests. And ours.
fn targets(series: &[Series], scale: Scale, times_faster: &[f64]) -> Vec<Target> {
    let mut targets = Vec::new();
    for clients in [ONE, FOUR] {
        for figure_name in ["median", "99th percentile"] {
            for size_mb in scale.sizes_mb {
                let of = |name| figure(series, name, &format!("{clients}, {figure_name}"), &size_mb.to_string());
                let name = format!("{clients}, {size_mb} MB: {figure_name} over that of Redis, one process");
                targets.push(Target::at_most(name, of(AWAKE.name) / of(REDIS), 1.0));
            }
        }
    }
    let streams = scale.streams;
    for (what, most) in [(CPU_OF_GB, CPU_OF_GB_MAX), (PEAK_MIB, PEAK_MIB_MAX)] {
        let value = figure(series, AWAKE.name, STREAMS, what);
        targets.push(Target::at_most(
            format!("{streams} streams without TLS: {what}"),
            value,
            most,
        ));
    }
    targets.push(Target::at_least(
        "share of the registry's requests that are 100 times as fast as from the origin",
        share(times_faster, 100.0),
        0.6,
    ));
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
            panel(&format!("{ONE}, median")),
            panel(&format!("{ONE}, 99th percentile")),
            panel(&format!("{FOUR}, median")),
            panel(&format!("{FOUR}, 99th percentile")),
            panel(&format!("{FOUR}, throughput")),
            panel("objects of the registry's sizes"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_requests() {
        let times = [9.9, 10.0, 40.0, 100.0, 250.0];
        assert_eq!(LEAST_TIMES.map(|least| share(&times, least)), [0.8, 0.4]);
        assert_eq!(share(&[], 10.0), 0.0);
    }

    #[test]
    fn who_is_slower_than_redis_misses_the_target() {
        let mut series = Vec::new();
        for (name, ms) in [(AWAKE.name, 20.0), (REDIS, 20.0)] {
            for clients in CLIENTS {
                let slower = if clients == 4 && name == AWAKE.name { 1.0 } else { 0.0 };
                let found = Found {
                    reads: vec![ms + slower; 3].into(),
                    seconds: 1.0,
                    ..Found::default()
                };
                add_found(&mut series, name, clients, 10, &found);
            }
        }
        let scale = Scale {
            sizes_mb: &[10],
            seconds: 1.0,
            registry: 0,
            streams: 0,
            rounds: 0,
        };
        let missed = targets(&series, scale, &[120.0])
            .into_iter()
            .filter(|target| !target.met);
        let missed: Vec<String> = missed.map(|target| target.name).collect();
        assert!(
            missed.len() == 4 && missed[..2].iter().all(|name| name.starts_with(FOUR)) && missed[2].contains("CPU"),
            "{missed:?}"
        );
    }

    #[test]
    fn objects_are_spread_over_processes() {
        let numbers = |size_mb| (0..OBJECTS).map(move |number| key(size_mb, number));
        let places = numbers(10).map(|key| key.bytes().map(usize::from).sum::<usize>() % PROCESSES);
        let mut places: Vec<usize> = places.collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), OBJECTS as usize, "each of a size is at another process");
    }
}
