//! vCPUs of a load that changes five times: Genie's Fig. 10 (TKDE 2025, section VI.B).

use super::chart::{Chart, Marks, Panel};
use super::measure::{Data, Endpoint, Load, Sample, others_cores};
use super::metered::Metered;
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Distribution;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig10",
    title: "vCPUs by the model and measured, of a load that changes (Genie, Fig. 10)",
    minutes: 5,
    about: "\
The five stages of Genie's Fig. 10, in each of which one thing differs from the stage before: 8+8 bytes, uniform, 95 % reads, at a
rate; twice the rate; 16+64 bytes; Zipf 0.99; 50 % reads. The paper has 8 Mi items and 6 and 12 million requests a second on eight
cores with DPDK. Here one worker has one core, the load the other one, over loopback TCP: the items are 1/128 of the paper's, and the
higher rate is six tenths of what server and load reach together in the last stage. Open loop, memcached's protocol, 16
connections, 10 requests at a time. The model is the built-in one; `TIDEMARK_CPU_MODEL` names a file of another.

The measured figure is the CPU time that the tenant is charged, the modelled one what the model says of its load; both are the
server's own, read before and after. What is judged is the modelled one against the measured one in each stage, and whether each
changes in the direction of the paper's (0.92, 2.2, 2.87, 2.36, 2.6 vCPUs). A fixed provision would be as much above the highest stage
as the paper's eight cores were. Last, each stage in closed loop, with the model and with it off, by turns.",
    run,
};

/// The paper's 8 Mi items, divided by 128.
const KEYS: u64 = 65_536;
const PIPELINE: usize = 10;
const CONNECTIONS: usize = 16;
/// Room for both sizes of items.
const MEMORY_BYTES: u64 = 256 << 20;
/// The higher rate, as a part of the peak of the last stage.
const HIGH_RATE: f64 = 0.6;
/// The paper's vCPUs, and what it provides for all stages.
const PAPER: [f64; 5] = [0.92, 2.2, 2.87, 2.36, 2.6];
const PAPER_PROVISION: f64 = 8.0;
/// How far the modelled figure may be from the measured one.
const OFF_MAX: f64 = 0.1;

struct Stage {
    name: &'static str,
    /// For the higher rate.
    rate_ratio: f64,
    data: Data,
    distribution: Distribution,
    reads_ratio: f64,
}

const TINY: Data = Data {
    keys: KEYS,
    key_bytes: 8,
    value_bytes: 8,
};
const SMALL: Data = Data {
    keys: KEYS,
    key_bytes: 16,
    value_bytes: 64,
};
const FIRST: Stage = Stage {
    name: "S1: 8+8 bytes, uniform, 95 % reads",
    rate_ratio: 0.5,
    data: TINY,
    distribution: Distribution::Uniform,
    reads_ratio: 0.95,
};
const STAGES: [Stage; 5] = [
    FIRST,
    Stage {
        name: "S2: twice the rate",
        rate_ratio: 1.0,
        ..FIRST
    },
    Stage {
        name: "S3: 16+64 bytes",
        rate_ratio: 1.0,
        data: SMALL,
        ..FIRST
    },
    Stage {
        name: "S4: Zipf 0.99",
        rate_ratio: 1.0,
        data: SMALL,
        distribution: Distribution::Zipf { alpha: 0.99 },
        ..FIRST
    },
    Stage {
        name: "S5: 50 % reads",
        rate_ratio: 1.0,
        data: SMALL,
        distribution: Distribution::Zipf { alpha: 0.99 },
        reads_ratio: 0.5,
    },
];

impl Stage {
    fn load(&self, rate: Option<f64>, seconds: f64) -> Load {
        Load {
            distribution: self.distribution,
            reads_ratio: self.reads_ratio,
            pipeline: PIPELINE,
            rate: rate.map(|rate| rate * self.rate_ratio),
            seconds,
        }
    }
}

/// How much is done.
struct Scale {
    rounds: usize,
    seconds: f64,
    closed_seconds: f64,
}

/// The findings of one stage: a value for each round.
#[derive(Clone, Debug, Default)]
struct Found {
    measured: Vec<f64>,
    modelled: Vec<f64>,
    /// Throughput with the model and without it, of one turn each.
    throughput: Vec<(f64, f64)>,
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = if context.quick {
        Scale {
            rounds: 1,
            seconds: 2.0,
            closed_seconds: 0.3,
        }
    } else {
        Scale {
            rounds: 5,
            seconds: 6.0,
            closed_seconds: 1.0,
        }
    };
    let modelling = Metered::start_modelling(context, MEMORY_BYTES, &[])?;
    let plain = Metered::start(context, MEMORY_BYTES, &["--cpu-model", "off"])?;
    let endpoint = |name, server: &Metered| {
        let address = server.address(Protocol::Memcached)?;
        Ok::<_, Error>(Endpoint {
            connections: CONNECTIONS,
            ..Endpoint::open(name, address, Protocol::Memcached)
        })
    };
    let endpoints = [endpoint("with the model", &modelling)?, endpoint("without it", &plain)?];
    for endpoint in &endpoints {
        endpoint.preload(TINY, context.seed)?;
        endpoint.preload(SMALL, context.seed)?;
    }
    let last = &STAGES[STAGES.len() - 1];
    let peak = endpoints[0].measure(last.data, last.load(None, scale.seconds / 2.0), context.seed)?;
    let rate = peak.ops_per_second * HIGH_RATE;
    context.tell(&format!("the higher rate is {rate:.0} requests a second"));
    let (mut found, mut samples) = (vec![Found::default(); STAGES.len()], Vec::new());
    for round in 1..=scale.rounds {
        context.tell(&format!("round {round} of {}", scale.rounds));
        for (stage, found) in STAGES.iter().zip(&mut found) {
            let seed = context.seed + round as u64;
            let before = modelling.reading()?;
            let sample = endpoints[0].measure(stage.data, stage.load(Some(rate), scale.seconds), seed)?;
            let used = modelling.reading()?.since(&before);
            found.measured.push(used.cpu_seconds / scale.seconds);
            found.modelled.push(used.model_seconds / scale.seconds);
            samples.push(sample);
            let closed = stage.load(None, scale.closed_seconds);
            let mut turns: Vec<Sample> = Vec::new();
            for endpoint in &endpoints {
                turns.push(endpoint.measure(stage.data, closed, seed)?);
            }
            found
                .throughput
                .push((turns[0].ops_per_second, turns[1].ops_per_second));
            samples.extend(turns);
        }
    }
    let (targets, series) = (targets(&found), series(&found));
    Ok(Outcome {
        scale: format!(
            "{} rounds of {} s for each stage; the higher rate is {:.0} requests/s",
            scale.rounds, scale.seconds, rate
        ),
        targets,
        chart: chart(&series),
        series,
        others_cores: others_cores(samples.iter()),
    })
}

fn median(values: &[f64]) -> f64 {
    Spread::of(values.iter().copied()).map_or(f64::NAN, |spread| spread.median)
}

fn targets(found: &[Found]) -> Vec<Target> {
    let off = STAGES.iter().zip(found).map(|(stage, found)| {
        let ratios = Spread::of_ratios(found.modelled.iter().copied().zip(found.measured.iter().copied()));
        let off = ratios.map_or(f64::NAN, |ratios| (ratios.median - 1.0).abs());
        let name = format!("{}: the modelled figure is off the measured one by", stage.name);
        Target::at_most(name, off, OFF_MAX)
    });
    let mut targets: Vec<Target> = off.collect();
    for (figure, of) in [
        ("measured", (|found| &found.measured) as fn(&Found) -> &Vec<f64>),
        ("modelled", |found| &found.modelled),
    ] {
        for place in 1..STAGES.len() {
            let change = median(of(&found[place])) - median(of(&found[place - 1]));
            let sign = (PAPER[place] - PAPER[place - 1]).signum();
            let way = if sign > 0.0 { "more" } else { "less" };
            let (stage, before) = (STAGES[place].name, place);
            let name = format!("{stage}: vCPUs {way} than in S{before}, {figure}");
            targets.push(Target::at_least(name, change * sign, 0.0));
        }
    }
    targets
}

const VCPUS: &str = "vCPUs";
const SAVED: &str = "saved against a fixed provision";
const THROUGHPUT: &str = "throughput in closed loop";
const X: &str = "stage";

fn series(found: &[Found]) -> Vec<Series> {
    let mut series = Vec::new();
    let mut add = |name: &str, (measure, unit): (&str, &str), stage: &Stage, values: Vec<f64>| {
        if let Some(spread) = Spread::of(values) {
            let point = Point::spread(stage.name, spread);
            add_point(&mut series, (name, measure, unit), ("", X), point);
        }
    };
    let highest = found.iter().map(|found| median(&found.measured)).fold(0.0, f64::max);
    let provision = highest * PAPER_PROVISION / PAPER.iter().copied().fold(0.0, f64::max);
    for ((stage, found), paper) in STAGES.iter().zip(found).zip(PAPER) {
        add("measured", (VCPUS, VCPUS), stage, found.measured.clone());
        add("modelled", (VCPUS, VCPUS), stage, found.modelled.clone());
        add("the paper's", ("the paper's vCPUs", VCPUS), stage, vec![paper]);
        let saved = |used: &f64| (1.0 - used / provision) * 100.0;
        add(
            "by the modelled figure",
            (SAVED, "%"),
            stage,
            found.modelled.iter().map(saved).collect(),
        );
        let (with, without) = found.throughput.iter().copied().unzip();
        add("with the model", (THROUGHPUT, "operations/s"), stage, with);
        add("without it", (THROUGHPUT, "operations/s"), stage, without);
    }
    series
}

fn chart(series: &[Series]) -> Chart {
    let panel = |title: &str, measure: &str| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        let mut panel = Panel::of_series(title, Marks::Bars, &own);
        // S1 to S5: the names are in the tables.
        panel.places = (1..=STAGES.len()).map(|stage| format!("S{stage}")).collect();
        panel
    };
    Chart {
        title: "A load that changes in five stages".into(),
        panels: vec![
            panel("vCPUs", VCPUS),
            panel("The paper's vCPUs", "the paper's vCPUs"),
            panel("Saved against a fixed provision", SAVED),
            panel("Throughput in closed loop", THROUGHPUT),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_judged_by_its_distance_and_its_direction() {
        let found = |measured: f64, modelled: f64| Found {
            measured: vec![measured],
            modelled: vec![modelled],
            throughput: vec![(1.0, 1.0)],
        };
        // The model says of the fourth stage that it takes more than the third, and is far off in the last one.
        let found = [(1.0, 1.05), (2.0, 1.9), (3.0, 2.8), (2.7, 2.9), (2.8, 3.2)].map(|(one, other)| found(one, other));
        let failed: Vec<String> = targets(&found)
            .into_iter()
            .filter(|target| !target.met)
            .map(|target| target.name)
            .collect();
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed[0].starts_with("S5") && failed[0].contains("off"), "{failed:?}");
        assert!(
            failed[1].starts_with("S4") && failed[1].contains("less than in S3, modelled"),
            "{failed:?}"
        );
    }
}
