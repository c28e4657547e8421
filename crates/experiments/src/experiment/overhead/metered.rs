//! What elasticity and metering cost together, in instructions (`docs/experiments/overhead-metered.md`).

use std::time::Duration;

use super::switched::Metered;
use super::{ALL_STAYS, Asked, Cell, Scale, Scene, instructions};
use crate::Error;
use crate::experiment::others::Others;
use crate::experiment::report::{Point, Series, Target, add_point};
use crate::experiment::{Chart, Context, Experiment, Marks, Outcome, Panel, Spread};
use tidemark_tools::load::Distribution;

pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "overhead-metered",
    title: "What elasticity and metering cost together: instructions",
    minutes: 20,
    about: "\
Instructions per operation of servers with elasticity and metering, over those of a server with neither: nothing is sampled, no round
is made, no CPU time is measured, no row is written. Loads of Genie's Fig. 12 with one tenant and of its Fig. 14 with 8 and 128; in each,
every tenant aims at a hit ratio of 99.99 %, so that all items stay and every server does the same for the same requests. 128
connections have 10 requests in flight each, in closed loop.
Further servers have metering without the model, and with estimates more often.

All threads are counted by valgrind (callgrind). Under it a server is some fifty times slower. So the control plane's time goes fifty times
slower there, rounds, rows and intervals of estimates are as much further apart, and workers read their CPU clocks as much later. A round takes
more of an operation than in use where the machine has other work: run it when there is none. What the kernel does is not counted: a worker
asks for its CPU time once in 400 us, which takes 0.3 us, also where nothing is metered, since turns are shared by it. The paper loses 1 to 2 % of throughput, and 4 to 6 % with 128
tenants.",
    run,
};

const ZIPF: Distribution = Distribution::Zipf { alpha: 0.99 };
const SMALL: Asked = Asked {
    goal: ALL_STAYS,
    key_bytes: 8,
    value_bytes: 8,
    distribution: ZIPF,
    reads_ratio: 0.95,
    // So many that under valgrind all are answered soon after a window's end.
    pipeline: 10,
};
const MIDDLE: Asked = Asked {
    key_bytes: 16,
    value_bytes: 64,
    ..SMALL
};
const LARGE: Asked = Asked {
    key_bytes: 128,
    value_bytes: 1024,
    distribution: Distribution::Uniform,
    reads_ratio: 0.5,
    ..SMALL
};

const SECOND: Metered = Metered::Modelled(Duration::from_secs(1));
const MILLI: Metered = Metered::Modelled(Duration::from_millis(1));
const TENTH: Metered = Metered::Modelled(Duration::from_micros(100));

/// A load, and the servers that it is put to beside the one with neither.
struct Case {
    name: &'static str,
    tenants: usize,
    asked: Asked,
    metered: &'static [Metered],
    /// The limit of everything over neither.
    limit: f64,
    /// The limits of the model at intervals, over metering without it.
    of_model: &'static [(Metered, f64)],
}

const CASES: [Case; 4] = [
    Case {
        name: "Fig. 12: 8+8, Zipf 0.99, 95 % reads",
        tenants: 1,
        asked: SMALL,
        metered: &[SECOND, Metered::Rows, MILLI, TENTH],
        limit: 1.01,
        of_model: &[(MILLI, 1.005), (TENTH, 1.02)],
    },
    Case {
        name: "Fig. 12: 128+1024, uniform, 50 % reads",
        tenants: 1,
        asked: LARGE,
        metered: &[SECOND],
        limit: 1.01,
        of_model: &[],
    },
    Case {
        name: "Fig. 14: 8 tenants",
        tenants: 8,
        asked: MIDDLE,
        metered: &[SECOND],
        limit: 1.01,
        of_model: &[],
    },
    Case {
        name: "Fig. 14: 128 tenants",
        tenants: 128,
        asked: MIDDLE,
        metered: &[SECOND, Metered::Rows],
        limit: 1.01,
        of_model: &[(SECOND, 1.005)],
    },
];

fn scale(context: &Context, asked: Asked) -> Scale {
    let (pairs, seconds, settle_seconds, keys) = if context.quick {
        (1, 2.0, 2.0, 8_192)
    } else {
        // A round.
        (1, 50.0, 20.0, 65_536)
    };
    Scale {
        pairs,
        seconds,
        settle_seconds,
        // As many bytes at most.
        keys: if asked.value_bytes > 64 { keys / 4 } else { keys },
        counted_slowed: Some(if context.quick { 1 } else { 50 }),
    }
}

/// The name of a server on the page.
fn name_of(metered: Metered) -> String {
    match metered {
        Metered::No => "neither".into(),
        Metered::Rows => "both, no model".into(),
        other => format!("both, model each {other}"),
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let (mut series, mut targets) = (Vec::new(), Vec::new());
    for case in &CASES {
        let mut found: Vec<(Metered, Spread)> = Vec::new();
        for metered in [Metered::No].iter().chain(case.metered) {
            context.tell(&format!("{}: {}", case.name, name_of(*metered)));
            let counts = counted(context, case, *metered)?;
            if let Some(spread) = Spread::of(counts) {
                found.push((*metered, spread));
            }
        }
        add(&mut series, case, &found);
        targets.extend(judged(case, &found));
    }
    let scales = CASES.map(|case| scale(context, case.asked));
    Ok(Outcome {
        scale: format!(
            "{} times {} s under valgrind for each server; {} keys, of 1 KiB a quarter of them",
            scales[0].pairs, scales[0].seconds, scales[0].keys
        ),
        chart: Chart {
            title: "Elasticity and metering, in instructions".into(),
            panels: vec![Panel::of_series(
                OVER,
                Marks::Bars,
                &series
                    .iter()
                    .filter(|one: &&Series| one.measure == OVER)
                    .collect::<Vec<_>>(),
            )],
        },
        targets,
        series,
        others_cores: others.cores(),
    })
}

/// Instructions per operation, window after window.
fn counted(context: &Context, case: &Case, metered: Metered) -> Result<Vec<f64>, Error> {
    let scale = scale(context, case.asked);
    let mut scene = Scene::asked(context, case.tenants, (metered, case.asked), scale)?;
    if metered == Metered::No {
        scene.switch(false)?;
    }
    let cell = Cell {
        tenants: case.tenants,
        pipeline: case.asked.pipeline,
        rate: None,
        limit: case.limit,
    };
    let mut load = scene.open(&scene.options_of(&cell))?;
    let mut counter = instructions::Counter::default();
    let mut counts = Vec::new();
    for _ in 0..scale.pairs {
        counter.since_last(&scene.process)?;
        let report = scene.measure(&mut load)?;
        let instructions = counter.since_last(&scene.process)?;
        counts.push(instructions as f64 / report.requests.max(1) as f64);
    }
    Ok(counts)
}

const COUNT: &str = "instructions per operation";
const OVER: &str = "over the server with neither";

fn median_of(found: &[(Metered, Spread)], metered: Metered) -> f64 {
    let of = found.iter().find(|(one, _)| *one == metered);
    of.map_or(f64::NAN, |(_, spread)| spread.median)
}

fn add(series: &mut Vec<Series>, case: &Case, found: &[(Metered, Spread)]) {
    let neither = median_of(found, Metered::No);
    for (metered, spread) in found {
        let name = name_of(*metered);
        let point = Point::spread(case.name, *spread);
        add_point(series, (&name, COUNT, "count"), ("", "load"), point);
        if *metered != Metered::No {
            let ratio = Spread::of([spread.median / neither]);
            if let Some(ratio) = ratio {
                add_point(
                    series,
                    (&name, OVER, "ratio"),
                    ("", "load"),
                    Point::spread(case.name, ratio),
                );
            }
        }
    }
}

fn judged(case: &Case, found: &[(Metered, Spread)]) -> Vec<Target> {
    let all = median_of(found, SECOND) / median_of(found, Metered::No);
    let mut targets = vec![Target::at_most(
        format!("{}: elasticity and metering, over neither", case.name),
        all,
        case.limit,
    )];
    targets.extend(case.of_model.iter().map(|(metered, limit)| {
        let ratio = median_of(found, *metered) / median_of(found, Metered::Rows);
        Target::at_most(
            format!("{}: the model each {metered}, over metering without it", case.name),
            ratio,
            *limit,
        )
    }));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_compared_with_neither_and_the_model_with_metering_without_it() {
        let spread = |median: f64| Spread {
            median,
            low: median,
            high: median,
        };
        let found = [
            (Metered::No, spread(1000.0)),
            (SECOND, spread(1012.0)),
            (Metered::Rows, spread(1008.0)),
            (MILLI, spread(1010.0)),
            (TENTH, spread(1040.0)),
        ];
        let targets = judged(&CASES[0], &found);
        let told: Vec<bool> = targets.iter().map(|target| target.met).collect();
        assert_eq!(told, [false, true, false], "{targets:?}");
        let mut series = Vec::new();
        add(&mut series, &CASES[0], &found);
        let ratios = series.iter().filter(|one| one.measure == OVER).count();
        assert_eq!((ratios, series.len()), (4, 9));
    }
}
