//! How long objects take by code, size and functions' memory, where some functions are slow.

use std::time::Instant;

use tidemark_functions::Code;
use tidemark_functions::codec::{CodeTable, CodecError, Rs, STRIPE_BYTES, StripeCodec as _, chunk_bytes};
use tidemark_functions::proxy::Reading;

use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use crate::functions::{self, Asked, CloudTimes, Found, Setup, Stragglers};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "infinicache-fig11",
    title: "Objects of 10 to 100 MB by code and functions' memory, with stragglers (InfiniCache, Fig. 11)",
    minutes: 5,
    about: "\
One object is stored in a pool of 50 functions and read again and again, so far apart that functions sleep in between: each read invokes
them, as in the paper. Its codes, (10+0), (10+1), (10+2), (4+2) and (5+1), are read in its way: all chunks are asked for, and the first
that are enough are taken. Beside them stands the default of this server, *data first*: chunks of data are asked for, and others
when one is later than the mean and four deviations of those before.

It is run in virtual time, with the product's code for placement, connections, leases and lateness ([infinicache-trace](infinicache-trace.md)
says what is simulated). A warm function begins after 8 to 18 ms. Its bandwidth is 50 MB/s with 128 MB of memory and 160 MB/s with
3,008 MB, the paper's ends, and proportional in between. One invocation in a hundred is a *straggler* with a tenth of the bandwidth. The paper
says that there are stragglers, not how many nor how slow; this is ours. Latency is from the request to the last byte, with two stripes of 4
MiB under way at a time, as the server reads ahead. Computing lost chunks takes no time there; how long it takes on this machine is
measured apart. There is no Redis beside it: virtual time has no network in which both could be.",
    run,
};

const FUNCTIONS: u16 = 50;
/// Between two reads: more than a straggler needs for all that it was asked for, so that functions sleep.
const EVERY_US: u64 = 20_000_000;
const STRAGGLERS: Stragglers = Stragglers { one_in: 100, times: 10 };
const SIZES_MB: [u64; 6] = [10, 20, 40, 60, 80, 100];
const MEMORIES_MB: [u64; 6] = [128, 256, 512, 1024, 2048, 3008];
/// The fixed one, while the other one is varied.
const MEMORY_MB: u64 = 1024;
const SIZE_MB: u64 = 100;
/// How often the codec is measured.
const ROUNDS: usize = 31;

/// A code and a way to read.
#[derive(Clone, Copy)]
struct Arm {
    name: &'static str,
    code: &'static str,
    reading: Reading,
}

const fn first_d(code: &'static str) -> Arm {
    Arm {
        name: code,
        code,
        reading: Reading::FirstD,
    }
}

const ARMS: [Arm; 7] = [
    first_d("10+0"),
    first_d("10+1"),
    first_d("10+2"),
    first_d("4+2"),
    first_d("5+1"),
    Arm {
        name: "10+1, data first",
        code: "10+1",
        reading: Reading::DataFirst,
    },
    Arm {
        name: "10+2, data first",
        code: "10+2",
        reading: Reading::DataFirst,
    },
];

/// The bandwidth of a function with so much memory, in bytes a second.
fn bytes_per_s(memory_mb: u64) -> u64 {
    50_000_000 + (160 - 50) * 1_000_000 * (memory_mb - 128) / (3008 - 128)
}

fn code(text: &str) -> Result<Code, Error> {
    text.parse().map_err(|_| Error::Usage(format!("{text} is no code")))
}

impl Arm {
    fn read(
        self,
        size_mb: u64,
        memory_mb: u64,
        stragglers: Option<Stragglers>,
        context: &Context,
    ) -> Result<Found, Error> {
        let codes = CodeTable::new(vec![(0, code(self.code)?)]).map_err(|error| Error::Usage(error.to_string()))?;
        let setup = Setup {
            functions: FUNCTIONS,
            memory_bytes: memory_mb << 20,
            room_bytes: (memory_mb << 20) / 10 * 9,
            least_functions: FUNCTIONS.into(),
            codes,
            reading: self.reading,
            unit_ms: 100,
            warm_every_s: None,
            backup_every_s: None,
            refill_at_once: false,
            reclaim: None,
            cloud: CloudTimes {
                bytes_per_s: bytes_per_s(memory_mb),
                stragglers,
                ..CloudTimes::default()
            },
            seed: context.seed,
        };
        let ask = |number| Asked {
            at_us: number * EVERY_US,
            key: 1,
            bytes: size_mb * 1_000_000,
        };
        // The first one stores it.
        let load: Vec<Asked> = (0..=reads(context)).map(ask).collect();
        Ok(functions::run(&setup, &load))
    }
}

fn reads(context: &Context) -> u64 {
    if context.quick { 100 } else { 2000 }
}

fn took_ms(found: &Found, share: f64) -> f64 {
    let last = found.took_us.len().saturating_sub(1);
    let took_us = found.took_us.get((share * last as f64).round() as usize);
    took_us.map_or(f64::NAN, |took_us| *took_us as f64 / 1000.0)
}

/// Figures of a course of reads.
const SHARES: [(&str, f64); 2] = [("median", 0.5), ("99th percentile", 0.99)];
const WITHOUT: &str = "without stragglers";

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let mut series = Vec::new();
    for arm in ARMS {
        context.tell(arm.name);
        let mut add = |measure: &str, x: &str, at: String, found: &Found| {
            for (figure, share) in SHARES {
                let (measure, point) = (
                    format!("{measure}, {figure}"),
                    Point::single(&at, took_ms(found, share)),
                );
                add_point(&mut series, (arm.name, &measure, "ms"), ("", x), point);
            }
        };
        for size_mb in SIZES_MB {
            let found = arm.read(size_mb, MEMORY_MB, Some(STRAGGLERS), context)?;
            add("by size", "MB of the object", size_mb.to_string(), &found);
        }
        for memory_mb in MEMORIES_MB {
            let found = arm.read(SIZE_MB, memory_mb, Some(STRAGGLERS), context)?;
            add("by memory", "MB of a function", memory_mb.to_string(), &found);
        }
        let found = arm.read(SIZE_MB, MEMORY_MB, None, context)?;
        add(WITHOUT, "MB of the object", SIZE_MB.to_string(), &found);
    }
    codec(&mut series)?;
    let targets = targets(&series);
    Ok(Outcome {
        scale: format!(
            "{} reads of each object, in virtual time; {ROUNDS} rounds of the codec",
            reads(context)
        ),
        chart: chart(&series),
        targets,
        series,
        others_cores: others.cores(),
    })
}

/// How long a stripe takes on this machine: its parity, and as many lost chunks as there is parity.
fn codec(series: &mut Vec<Series>) -> Result<(), Error> {
    for arm in ARMS.iter().filter(|arm| arm.name == arm.code) {
        let took = codec_took_ms(code(arm.code)?).map_err(|error| Error::Usage(error.to_string()))?;
        for (what, took) in ["parity", "as many lost chunks as there is parity"]
            .into_iter()
            .zip(took)
        {
            if let Some(spread) = Spread::of(took) {
                let point = Point::spread(what, spread);
                add_point(
                    series,
                    (arm.name, "computing for a stripe of 4 MiB", "ms"),
                    ("", "what"),
                    point,
                );
            }
        }
    }
    Ok(())
}

fn codec_took_ms(code: Code) -> Result<[Vec<f64>; 2], CodecError> {
    let (rs, bytes) = (Rs::default(), chunk_bytes(code, STRIPE_BYTES as usize));
    let chunk = |index: usize| {
        (0..bytes)
            .map(|at| ((at + index * bytes).wrapping_mul(0x9e37_79b9) >> 17) as u8)
            .collect()
    };
    let data: Vec<Vec<u8>> = (0..code.data() as usize).map(chunk).collect();
    let lost: Vec<usize> = (0..code.parity() as usize).collect();
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let began = Instant::now();
        let parity = rs.parity(code, &data)?;
        took[0].push(began.elapsed().as_secs_f64() * 1000.0);
        if lost.is_empty() {
            continue;
        }
        let all = data.into_iter().map(<[u8]>::to_vec).chain(parity).enumerate();
        let some = all
            .map(|(index, chunk)| (index >= lost.len()).then(|| chunk.into()))
            .collect();
        let began = Instant::now();
        rs.rebuild(code, some, &lost)?;
        took[1].push(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(took)
}

/// A figure of an arm.
fn figure(series: &[Series], name: &str, measure: &str, x: &str) -> f64 {
    let own = series
        .iter()
        .find(|series| series.name == name && series.measure == measure);
    let point = own.and_then(|series| series.points.iter().find(|point| point.x == x));
    point.map_or(f64::NAN, |point| point.y)
}

/// The paper: (10+0) suffers from stragglers, which (10+1) does not wait for.
fn targets(series: &[Series]) -> Vec<Target> {
    let mut targets = Vec::new();
    for size_mb in SIZES_MB {
        let of = |name| figure(series, name, "by size, 99th percentile", &size_mb.to_string());
        let name = format!("{size_mb} MB: 99th percentile of 10+1 over that of 10+0");
        targets.push(Target::at_most(name, of("10+1") / of("10+0"), 1.0));
    }
    let size = SIZE_MB.to_string();
    let of = |name| figure(series, name, "by size, 99th percentile", &size);
    targets.push(Target::at_most(
        "100 MB: 99th percentile of 10+2, data first, over that of 10+0",
        of("10+2, data first") / of("10+0"),
        1.0,
    ));
    targets
}

fn chart(series: &[Series]) -> Chart {
    let panel = |measure: String| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(&measure, Marks::Lines, &own)
    };
    let measures = ["by size", "by memory"].into_iter();
    let measures = measures.flat_map(|measure| SHARES.map(|(figure, _)| format!("{measure}, {figure}")));
    Chart {
        title: EXPERIMENT.title.into(),
        panels: measures.map(panel).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_the_papers_at_both_ends() {
        assert_eq!(
            [128, 1536, 3008].map(bytes_per_s),
            [50_000_000, 103_777_777, 160_000_000]
        );
    }

    #[test]
    fn a_code_that_waits_for_stragglers_misses_its_target() {
        let mut series = Vec::new();
        for (name, p99) in [("10+0", 200.0), ("10+1", 150.0), ("10+2, data first", 250.0)] {
            for size_mb in SIZES_MB {
                let y = if size_mb == 20 && name == "10+1" { 201.0 } else { p99 };
                let point = Point::single(size_mb.to_string(), y);
                add_point(&mut series, (name, "by size, 99th percentile", "ms"), ("", "MB"), point);
            }
        }
        let missed: Vec<String> = targets(&series)
            .into_iter()
            .filter(|target| !target.met)
            .map(|target| target.name)
            .collect();
        assert_eq!(missed.len(), 2, "{missed:?}");
        assert!(
            missed[0].starts_with("20 MB") && missed[1].contains("data first"),
            "{missed:?}"
        );
    }
}
