//! Giving memory back: how long it takes until the system has it, how long a turn is for it, and the effect on others.

mod in_process;
mod over_the_wire;

use tidemark_types::{GIB, MIB};

use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::{Chart, Context, Experiment, Marks, Outcome, Panel, Spread};
use crate::Error;
use in_process::Slices;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "give-back",
    title: "A gibibyte given back: how fast, and what others feel",
    minutes: 8,
    about: "\
A tenant holds 1 GiB of items of 1 KiB, then of 100 bytes (key and value), and its cap is set to 16 MiB while another tenant
is asked 50,000 gets a second over 16 connections. Over the wire, with one worker on one core and the load on the other, it
is measured how long it takes from the operator's request until the tenant holds no more than its cap and until the
process's resident memory has fallen by nine tenths of what was given, and the other tenant's latency in the time that giving
back may take against that in as long a time just before: at the client, whose thread sleeps until a request is due, so that the
operator's has the same core meanwhile, and beside it the time in the server as that counts it. In this process, on the same
store with nothing else to do, each slice of upkeep that a worker would do between two turns is timed, and as long a slice of
nothing after each; the worst one in a hundred is what is judged, because the longest ones are the system's doing, as those of nothing show.",
    run,
};

/// The memory that is given back, and the time for it.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    key_bytes: usize,
    value_bytes: usize,
    /// The most that it may take, in seconds.
    seconds_max: f64,
}

const LOADS: [Load; 2] = [
    Load {
        name: "1-KiB items",
        key_bytes: 16,
        value_bytes: 1008,
        seconds_max: 1.0,
    },
    Load {
        name: "100-byte items",
        key_bytes: 16,
        value_bytes: 84,
        seconds_max: 3.0,
    },
];

impl Load {
    /// So many keys fill this memory, and a few more: items take more than their key and their value.
    fn keys(&self, bytes: u64) -> u64 {
        bytes / (self.key_bytes + self.value_bytes) as u64
    }
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rounds: usize,
    /// The memory that the tenant holds at first.
    held_bytes: u64,
}

/// The memory that it keeps.
const KEPT_BYTES: u64 = 16 * MIB;
/// The time that a turn may take for it, in microseconds.
const SLICE_US_MAX: f64 = 20.0;
/// How much the other tenant's slowest one in a hundred may grow.
const LATENCY_MAX: f64 = 1.25;

/// A tenant's 99th percentile in microseconds.
#[derive(Clone, Copy, Debug)]
struct Latency {
    /// From when a request was due until its reply was there.
    client_us: f64,
    /// From when a connection was ready until its replies were given to the system, as the server counts it.
    server_us: f64,
}

/// The result of one round.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The time until the tenant held its grant.
    usage_seconds: f64,
    /// Until the system had the memory.
    resident_seconds: f64,
    /// The other tenant's, before and meanwhile.
    latency: [Latency; 2],
    /// The slices in this process, and the empty ones.
    slices: [Slices; 2],
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = if context.quick {
        Scale {
            rounds: 1,
            held_bytes: 128 * MIB,
        }
    } else {
        Scale {
            rounds: 7,
            held_bytes: GIB,
        }
    };
    let others = Others::watch();
    let mut found = Found::default();
    for load in LOADS {
        let mut samples = Vec::new();
        let wire = over_the_wire::Scene::start(context, load, scale.held_bytes)?;
        for round in 1..=scale.rounds {
            context.tell(&format!("{}: round {round} of {}", load.name, scale.rounds));
            let (usage_seconds, resident_seconds, latency) = wire.round()?;
            samples.push(Sample {
                usage_seconds,
                resident_seconds,
                latency,
                slices: in_process::slices(load, scale.held_bytes, context.stage.cores)?,
            });
        }
        found.add(load, &samples);
    }
    let chart = found.chart();
    Ok(Outcome {
        scale: format!("{} rounds of {} MiB each", scale.rounds, scale.held_bytes / MIB),
        targets: found.targets,
        series: found.series,
        chart,
        others_cores: others.cores(),
    })
}

#[derive(Default)]
struct Found {
    targets: Vec<Target>,
    series: Vec<Series>,
}

/// A figure of a sample.
type Figure = fn(&Sample) -> f64;

const TIME: &str = "time until it is back";
const LATENCY: &str = "the other tenant's 99th percentile";
const SLICE: &str = "slices of upkeep";

impl Found {
    fn add(&mut self, load: Load, samples: &[Sample]) {
        let figures: [(&str, &str, &str, Figure); 11] = [
            (TIME, "s", "held by the tenant", |sample| sample.usage_seconds),
            (TIME, "s", "resident memory", |sample| sample.resident_seconds),
            (LATENCY, "µs", "before", |sample| sample.latency[0].client_us),
            (LATENCY, "µs", "meanwhile", |sample| sample.latency[1].client_us),
            (LATENCY, "µs", "in the server, before", |sample| {
                sample.latency[0].server_us
            }),
            (LATENCY, "µs", "in the server, meanwhile", |sample| {
                sample.latency[1].server_us
            }),
            (SLICE, "µs", "median", |sample| sample.slices[0].median_us),
            (SLICE, "µs", "99th percentile", |sample| sample.slices[0].p99_us),
            (SLICE, "µs", "longest", |sample| sample.slices[0].longest_us),
            (SLICE, "µs", "99th percentile, of nothing", |sample| {
                sample.slices[1].p99_us
            }),
            (SLICE, "µs", "longest, of nothing", |sample| {
                sample.slices[1].longest_us
            }),
        ];
        for (measure, unit, name, of) in figures {
            if let Some(spread) = Spread::of(samples.iter().map(of)) {
                let point = Point::spread(load.name, spread);
                add_point(&mut self.series, (name, measure, unit), ("", "items"), point);
            }
        }
        let mut target = |what: &str, spread: Option<Spread>, limit: f64| {
            let value = spread.map_or(f64::NAN, |spread| spread.median);
            self.targets
                .push(Target::at_most(format!("{}: {what}", load.name), value, limit));
        };
        let of = |figure: Figure| Spread::of(samples.iter().map(figure));
        target(
            "seconds until the system has the memory",
            of(|sample| sample.resident_seconds.max(sample.usage_seconds)),
            load.seconds_max,
        );
        target(
            "microseconds of a turn for it, 99th percentile",
            of(|sample| sample.slices[0].p99_us),
            SLICE_US_MAX,
        );
        target(
            "the other tenant's 99th percentile, meanwhile over before",
            Spread::of_ratios(
                samples
                    .iter()
                    .map(|sample| (sample.latency[1].client_us, sample.latency[0].client_us)),
            ),
            LATENCY_MAX,
        );
    }

    fn chart(&self) -> Chart {
        let panel = |measure: &str| {
            let own: Vec<&Series> = self.series.iter().filter(|series| series.measure == measure).collect();
            Panel::of_series(measure, Marks::Bars, &own)
        };
        Chart {
            title: "A gibibyte given back".into(),
            panels: [TIME, LATENCY, SLICE].map(panel).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_of_the_middle_round() {
        let sample = |seconds: f64, meanwhile: f64| Sample {
            usage_seconds: seconds / 2.0,
            resident_seconds: seconds,
            latency: [100.0, meanwhile].map(|client_us| Latency {
                client_us,
                server_us: 30.0,
            }),
            slices: [19.0, 16.0].map(|p99_us| Slices {
                median_us: 15.0,
                p99_us,
                longest_us: 500.0,
            }),
        };
        let mut found = Found::default();
        found.add(LOADS[0], &[sample(0.5, 110.0), sample(0.7, 120.0), sample(9.0, 900.0)]);
        let values: Vec<(f64, bool)> = found.targets.iter().map(|target| (target.value, target.met)).collect();
        assert_eq!(values, [(0.7, true), (19.0, true), (1.2, true)]);
        assert_eq!(found.chart().panels.len(), 3);
    }
}
