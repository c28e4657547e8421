//! The registry's trace through a pool of functions: what it costs, and what is lost.

use tidemark_functions::availability::Reclaim;
use tidemark_functions::codec::CodeTable;
use tidemark_functions::cost::Prices;
use tidemark_functions::proxy::Reading;

use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{HOURS, Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use crate::functions::{self, Asked, CloudTimes, Found, HOUR_S, Hour, Purpose, Setup};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "infinicache-trace",
    title: "50 hours of a registry in the memory of functions (InfiniCache, Figs. 13 and 14)",
    minutes: 8,
    about: "\
The GETs of the first 50 hours of the IBM Docker registry in Dallas for objects of more than 10 MB, the paper's large-object load, without
the one object of 8 GB, as there. A request that misses puts the object at once, as the paper's replayer does: the origin takes no time. 400
functions of 1.5 GB, of which chunks have nine tenths; 10+2; warm-ups each minute, backups each five minutes or none; lost chunks are
computed when they are read. The memory is that of the paper's node: 600 GB against 636.

It is run in virtual time, nothing compressed: placement, eviction, connections and leases, how long an invocation runs, the order of a
backup, the schedule, lateness and billing are the product's code; tasks and sockets are events of a simulator, and of bytes there are
lengths and hashes only. The cloud is as in the paper: a warm function begins after 13 ms in the mean, its bandwidth is 104 MB/s each way, a
cold start takes 0.2 s more. In each minute it takes back as many of the functions' first instances as are drawn from Poisson's
distribution with a mean of 0.6 (36 an hour, as the paper saw in December 2019), and independently as many of their second. Not those
that run. Deterministic by seed: two runs are equal to the byte.

A *hit* is an object that functions answered whole; a *RESET* one that should have been there and of which a stripe had too few chunks left; a
*recovery* a hit for which a lost chunk was computed. Availability is 1 - RESETs / hits. An invocation is billed from its beginning in the
function to its return, in whole units. The *paper's prices*: $0.20 for a million invocations, $0.0000166667 for a GB-second, units of 100
ms, all chunks asked for and the first ten taken. *Today's*: units of 1 ms, data chunks first, as is the default. The proxy's machine is not in it: the
paper's, a c5n.4xlarge, was $0.864 an hour, $43.20 in all, and is the machine of the cache's user in either case.",
    run,
};

const HOURS_ALL: u64 = 50;
/// The paper leaves out the one object that is larger.
const BYTES_MAX: u64 = 5_000_000_000;
const FUNCTIONS: u16 = 400;
pub(super) const MEMORY_BYTES: u64 = 1536 << 20;
/// The share of a function's memory that chunks have, as the server's setting has it.
const ROOM_PERCENT: u64 = 90;
/// Instances that are taken back in a minute, in the mean: 36 an hour (the paper's 4.1).
const RECLAIMED: f64 = 0.6;
/// The cost of the paper's node of ElastiCache.
const NODE_DOLLARS: f64 = 518.40;

/// One run.
#[derive(Clone, Copy)]
pub(super) struct Arm {
    name: &'static str,
    has_backup: bool,
    pub(super) is_today: bool,
}

pub(super) const WITH: Arm = Arm {
    name: "backup",
    has_backup: true,
    is_today: false,
};
const WITHOUT: Arm = Arm {
    name: "no backup",
    has_backup: false,
    is_today: false,
};
pub(super) const TODAY: Arm = Arm {
    name: "backup, today",
    is_today: true,
    ..WITH
};
const ARMS: [Arm; 4] = [
    WITH,
    WITHOUT,
    TODAY,
    Arm {
        name: "no backup, today",
        is_today: true,
        ..WITHOUT
    },
];

impl Arm {
    fn setup(self, functions: u16, seed: u64) -> Result<Setup, Error> {
        let codes = "10+2"
            .parse()
            .ok()
            .and_then(|code| CodeTable::new(vec![(0, code)]).ok());
        let codes = codes.ok_or_else(|| Error::Usage("10+2 is no code".into()))?;
        let (unit_ms, reading) = if self.is_today {
            (1, Reading::DataFirst)
        } else {
            (100, Reading::FirstD)
        };
        Ok(Setup {
            functions,
            memory_bytes: MEMORY_BYTES,
            room_bytes: MEMORY_BYTES / 100 * ROOM_PERCENT,
            least_functions: functions.into(),
            codes,
            reading,
            unit_ms,
            warm_every_s: Some(60),
            backup_every_s: self.has_backup.then_some(300),
            refill_at_once: false,
            reclaim: Some(Reclaim::Poisson { mean: RECLAIMED }),
            cloud: CloudTimes::default(),
            seed,
        })
    }

    pub(super) fn prices(self) -> Prices {
        if self.is_today { Prices::TODAY } else { Prices::PAPER }
    }
}

/// The trace, or one in its image where it is not there; shorter for a quick run.
pub(super) fn load(context: &Context) -> Result<(Vec<Asked>, &'static str), Error> {
    let (mut load, from) = functions::registry(context.seed, BYTES_MAX)?;
    load.retain(|asked| asked.at_us < hours(context) * HOUR_S * 1_000_000);
    Ok((load, from))
}

pub(super) fn hours(context: &Context) -> u64 {
    if context.quick { 3 } else { HOURS_ALL }
}

/// Passes a load through the pool, with each of these settings.
pub(super) fn pass(context: &Context, arms: &[Arm], load: &[Asked]) -> Result<Vec<(Arm, Found)>, Error> {
    let mut passed = Vec::new();
    for arm in arms {
        context.tell(arm.name);
        let found = functions::run(&arm.setup(FUNCTIONS, context.seed)?, load);
        context.tell(&format!("{:?}", found.all()));
        passed.push((*arm, found));
    }
    Ok(passed)
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let (load, from) = load(context)?;
    let passed = pass(context, &ARMS, &load)?;
    let series = series(&passed, &PAPER);
    Ok(Outcome {
        scale: scale(load.len(), from),
        targets: targets(&passed),
        chart: chart(EXPERIMENT.title, &series),
        series,
        others_cores: others.cores(),
    })
}

pub(super) fn scale(requests: usize, from: &str) -> String {
    format!("{requests} requests of {from}; {FUNCTIONS} functions of 1.5 GB, in virtual time")
}

/// A measure: its name, unit, and value of an arm.
type Measure = (&'static str, &'static str, fn(&Found, &Hour) -> f64);

const MEASURES: [Measure; 11] = [
    ("requests", "", |_, all| all.requests as f64),
    ("hits", "", |_, all| all.hits as f64),
    ("hit ratio", "", |_, all| all.hit_ratio()),
    ("RESETs", "", |_, all| all.resets as f64),
    ("availability", "", |_, all| all.availability()),
    ("recoveries", "", |_, all| all.recoveries as f64),
    ("instances taken back", "", |_, all| all.reclaimed as f64),
    ("objects evicted", "", |found, _| found.evicted as f64),
    ("GB from instance to instance", "", |found, _| {
        found.backup_bytes as f64 / 1e9
    }),
    ("ms to the last byte of a hit, median", "", |found, _| {
        took_ms(found, 0.5)
    }),
    ("ms to the last byte of a hit, 99th percentile", "", |found, _| {
        took_ms(found, 0.99)
    }),
];

fn took_ms(found: &Found, share: f64) -> f64 {
    let last = found.took_us.len().saturating_sub(1);
    let at = (share * last as f64).round() as usize;
    found
        .took_us
        .get(at)
        .map_or(f64::NAN, |took_us| *took_us as f64 / 1000.0)
}

const COST: &str = "cost of 50 hours";
const HAPPENED: &str = "what happened";
const ALL: &str = "all";
const OVER_ALL: &str = "the node of memory, over all";

/// What the runs came to, with the paper's figures.
pub(super) fn series(passed: &[(Arm, Found)], paper: &[Printed]) -> Vec<Series> {
    let mut series = Vec::new();
    for (arm, found) in passed {
        let all = found.all();
        let dollars = all.dollars(&arm.prices(), MEMORY_BYTES);
        let mut add = |measure: (&str, &str), x: &str, place: &str, value| {
            let point = Point::single(place, value);
            add_point(&mut series, (arm.name, measure.0, measure.1), ("", x), point);
        };
        let sum: f64 = dollars.iter().sum();
        for (purpose, dollars) in Purpose::ALL.iter().zip(dollars) {
            add((COST, "$"), "purpose", purpose.name(), dollars);
        }
        add((COST, "$"), "purpose", ALL, sum);
        add((COST, "$"), "purpose", OVER_ALL, NODE_DOLLARS / sum);
        for (purpose, billed) in Purpose::ALL.iter().zip(all.billed) {
            let thousands = billed.invocations as f64 / 1000.0;
            add(("invocations", "thousands"), "purpose", purpose.name(), thousands);
        }
        for (name, _, value) in MEASURES {
            add((HAPPENED, ""), "of 50 hours", name, value(found, &all));
        }
        by_hour(&mut series, *arm, found);
    }
    for (name, measure, place, value) in paper {
        let (unit, x) = if *measure == COST {
            ("$", "purpose")
        } else {
            ("", "of 50 hours")
        };
        add_point(
            &mut series,
            (name, measure, unit),
            ("", x),
            Point::single(*place, *value),
        );
    }
    series
}

/// The courses of the runs.
pub(super) fn chart(title: &str, series: &[Series]) -> Chart {
    let panel = |title: &str, measure: &str| {
        let drawn: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(title, Marks::Course, &drawn)
    };
    Chart {
        title: title.into(),
        panels: vec![
            panel("Cost so far", "cost so far"),
            panel("Instances taken back in an hour", "taken back by hour"),
            panel("RESETs in an hour", "RESETs by hour"),
            panel("Recoveries in an hour", "recoveries by hour"),
        ],
    }
}

/// The courses of the runs at the paper's prices.
fn by_hour(series: &mut Vec<Series>, arm: Arm, found: &Found) {
    if arm.is_today {
        return;
    }
    let mut so_far = 0.0;
    for (place, hour) in found.hours.iter().enumerate() {
        so_far += hour.dollars(&arm.prices(), MEMORY_BYTES).iter().sum::<f64>();
        let label = if place % 10 == 0 {
            place.to_string()
        } else {
            String::new()
        };
        for (measure, unit, value) in [
            ("cost so far", "$", so_far),
            ("taken back by hour", "instances", hour.reclaimed as f64),
            ("RESETs by hour", "RESETs", hour.resets as f64),
            ("recoveries by hour", "recoveries", hour.recoveries as f64),
        ] {
            let point = Point::spread(
                label.clone(),
                Spread {
                    median: value,
                    low: value,
                    high: value,
                },
            );
            add_point(series, (arm.name, measure, unit), ("", HOURS), point);
        }
    }
}

/// A figure that the paper prints: of which run, of which measure, at which place.
pub(super) type Printed = (&'static str, &'static str, &'static str, f64);

const PAPER: [Printed; 11] = [
    ("the paper, backup", COST, ALL, 16.51),
    ("the paper, backup", COST, OVER_ALL, NODE_DOLLARS / 16.51),
    ("the paper, no backup", COST, ALL, 5.41),
    ("the paper, no backup", COST, OVER_ALL, NODE_DOLLARS / 5.41),
    ("the paper, backup", HAPPENED, "hit ratio", 0.636),
    ("the paper, backup", HAPPENED, "RESETs", 1_085.0),
    ("the paper, backup", HAPPENED, "availability", 0.954),
    ("the paper, no backup", HAPPENED, "hits", 21_022.0),
    ("the paper, no backup", HAPPENED, "hit ratio", 0.561),
    ("the paper, no backup", HAPPENED, "RESETs", 3_912.0),
    ("the paper, no backup", HAPPENED, "availability", 0.814),
];

/// The paper's of all objects.
pub(super) const PAPER_ALL: [Printed; 4] = [
    ("the paper", COST, "serving", ALL_OBJECTS_DOLLARS * ALL_OBJECTS_SERVING),
    ("the paper", COST, ALL, ALL_OBJECTS_DOLLARS),
    ("the paper", COST, OVER_ALL, NODE_DOLLARS / ALL_OBJECTS_DOLLARS),
    ("the paper", HAPPENED, "RESETs", ALL_OBJECTS_RESETS),
];
/// The paper's cost of all objects, the share of it that serving them has, and their RESETs.
pub(super) const ALL_OBJECTS_DOLLARS: f64 = 20.52;
pub(super) const ALL_OBJECTS_SERVING: f64 = 0.41;
pub(super) const ALL_OBJECTS_RESETS: f64 = 5_720.0;

/// The paper's figures, which are to be reached.
fn targets(passed: &[(Arm, Found)]) -> Vec<Target> {
    let mut targets = Vec::new();
    for (arm, dollars, hit_ratio) in [(WITH, 16.51, 0.636), (WITHOUT, 5.41, 0.561)] {
        let Some((_, found)) = passed.iter().find(|(one, _)| one.name == arm.name) else {
            continue;
        };
        let (all, name) = (found.all(), arm.name);
        let cost = all.dollars(&arm.prices(), MEMORY_BYTES).iter().sum();
        targets.push(Target::at_most(format!("{name}: dollars for 50 hours"), cost, dollars));
        targets.push(Target::at_least(
            format!("{name}: hit ratio"),
            all.hit_ratio(),
            hit_ratio,
        ));
        if arm.has_backup {
            targets.push(Target::at_least(
                format!("{name}: availability"),
                all.availability(),
                0.954,
            ));
        }
    }
    targets
}
