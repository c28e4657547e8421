//! The cost of choosing a configuration against an oracle. Choosers and fixed configurations run on one course of
//! loads, in the simulator of `tidemark-cachelet`.

use tidemark_cachelet::choose::principles::{Case, Principles, Thresholds};
use tidemark_cachelet::choose::{Chooser, Kind, Rates, Switch};
use tidemark_cachelet::config::{Config, Promise};
use tidemark_cachelet::sim::course::{Cell, Course, Interval, Load, Local, NODES, configs};

use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome};
use crate::Error;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cachelet-regret",
    title: "Choosing the configuration of cachelets: regret against an oracle",
    minutes: 6,
    about: "\
Six nodes in two clusters, 8 MiB for copies on each, in the simulator of `tidemark-cachelet` with Concord's costs (2 ms between
nodes and back, 30 ms to the store). A course has six phases: a few small values read by all; values that one node after the other
reads and writes; large values that all share, 5 % writes; a scan of more than fits beside values that are used again; values that
nobody reads twice; and as many nodes again that join. The same operations come at the same times under every configuration.

The *oracle* has, in each interval of a second, the configuration that was best in that interval when the course was passed under
each one from beginning to end; its switches cost nothing. *Regret* is how much longer operations take than with the oracle.
*Ours* prices all configurations (Hedge). *SARSA* is UniCache's: six experts and a moderator; trained, it has passed the course ten
times before. *Principles* are UniCache's four, with thresholds that are fitted to a grid of single loads. *Concord* is the fixed
configuration of Concord (HPCA'25), the *baselines* validate copies at the home or at the store; *best fixed* is the best one in
hindsight. Deterministic by seed.",
    run,
};

/// The most that ours may lose to the oracle.
const MOST_REGRET: f64 = 0.03;
/// How often SARSA has passed the course before it is measured.
const TRAINING: usize = 10;

/// Somebody who passed the course.
struct Passed {
    name: String,
    /// Mean time of an operation, by interval.
    mean_us: Vec<f64>,
    switches: Vec<Switch>,
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let course = Course {
        seed: context.seed,
        nodes: NODES,
        phases: Load::ALL.to_vec(),
        intervals: if context.quick { 6 } else { 40 },
    };
    let mut arms = Vec::new();
    for config in configs() {
        context.tell(&format!(
            "{} {} {}",
            config_name(&config),
            arms.len() + 1,
            configs().len()
        ));
        arms.push((config, course.fixed(config)));
    }
    let oracle = oracle(&arms);
    let mut passed = fixed(&course, &arms);
    for kind in Kind::ALL {
        context.tell(&kind.to_string());
        passed.extend(choose(&course, kind));
    }
    context.tell("the grid of single loads");
    let cases = grid(context);
    let thresholds = Thresholds::fit(&cases);
    let mut fitted = Principles::new(Promise::default(), Config::CONCORD, Rates::default(), thresholds);
    passed.push(pass(&course, "principles, fitted", &mut fitted));
    Ok(outcome(
        context,
        &course,
        &oracle,
        &passed,
        (&cases, thresholds),
        others.cores(),
    ))
}

fn config_name(config: &Config) -> String {
    format!(
        "{:?} {:?} {:?} {:?}",
        config.coherence, config.domain, config.replacement, config.admission
    )
    .to_lowercase()
}

/// The best of each interval.
fn oracle(arms: &[(Config, Vec<Interval>)]) -> Vec<(Config, f64)> {
    let count = arms.first().map_or(0, |(_, intervals)| intervals.len());
    let at = |place: usize| {
        let of = |(config, intervals): &(Config, Vec<Interval>)| Some((*config, intervals.get(place)?.mean_us()));
        arms.iter()
            .filter_map(of)
            .min_by(|one, other| one.1.total_cmp(&other.1))
            .unwrap_or((Config::CONCORD, 0.0))
    };
    (0..count).map(at).collect()
}

fn means(intervals: &[Interval]) -> Vec<f64> {
    intervals.iter().map(Interval::mean_us).collect()
}

fn fixed(course: &Course, arms: &[(Config, Vec<Interval>)]) -> Vec<Passed> {
    let total = |intervals: &[Interval]| means(intervals).iter().sum::<f64>();
    let best = arms
        .iter()
        .min_by(|(_, one), (_, other)| total(one).total_cmp(&total(other)));
    let named = [
        ("Concord", Config::CONCORD),
        ("baseline, home", Config::BASELINE_HOME),
        ("baseline, store", Config::BASELINE_STORE),
    ];
    let mut passed: Vec<_> = named
        .into_iter()
        .map(|(name, config)| Passed {
            name: name.into(),
            mean_us: means(&course.fixed(config)),
            switches: Vec::new(),
        })
        .collect();
    passed.extend(best.map(|(config, intervals)| Passed {
        name: format!("best fixed ({})", config_name(config)),
        mean_us: means(intervals),
        switches: Vec::new(),
    }));
    passed
}

fn pass(course: &Course, name: &str, chooser: &mut dyn Chooser) -> Passed {
    let (intervals, switches) = course.chosen(Config::CONCORD, chooser);
    Passed {
        name: name.into(),
        mean_us: means(&intervals),
        switches,
    }
}

fn choose(course: &Course, kind: Kind) -> Vec<Passed> {
    let mut chooser = kind.make(Promise::default(), Config::CONCORD, Rates::default());
    let name = match kind {
        Kind::Hedge => "ours",
        Kind::Sarsa => "SARSA",
        Kind::Principles => "principles",
    };
    let mut all = vec![pass(course, name, chooser.as_mut())];
    if kind == Kind::Sarsa {
        for round in 1..TRAINING as u64 {
            let training = Course {
                seed: course.seed + round,
                ..course.clone()
            };
            training.chosen(Config::CONCORD, chooser.as_mut());
        }
        all.push(pass(course, "SARSA, trained", chooser.as_mut()));
    }
    all
}

/// The grid's loads of one node, each under the configurations that principle 2 tells apart.
fn local_grid(context: &Context) -> Vec<Case> {
    let tried: Vec<Config> = configs()
        .into_iter()
        .filter(|config| {
            let replacement = config.replacement;
            *config
                == Config {
                    replacement,
                    ..Config::CONCORD
                }
        })
        .collect();
    let elements: &[u64] = if context.quick {
        &[100]
    } else {
        &[20, 100, 1_000, 10_000]
    };
    let mut cases = Vec::new();
    for elements in elements {
        for size_tenths in [0, 10] {
            for popularity_tenths in [0, 5, 10] {
                let load = Load::Local(Local {
                    elements: *elements,
                    size_tenths,
                    popularity_tenths,
                });
                cases.push(case(context.seed, 1, load, &tried));
            }
        }
    }
    cases
}

/// The grid's cells, each under the configurations that principles 1 and 3 tell apart.
fn grid(context: &Context) -> Vec<Case> {
    let mut cases = local_grid(context);
    let (sizes, sharers): (&[u64], &[u32]) = if context.quick {
        (&[1 << 10, 1 << 20], &[2])
    } else {
        (&[1 << 10, 32 << 10, 256 << 10, 4 << 20], &[2, 8, 24])
    };
    let tried: Vec<Config> = configs()
        .into_iter()
        .filter(|config| {
            config.replacement == Config::CONCORD.replacement && config.admission == Config::CONCORD.admission
        })
        .collect();
    for size_bytes in sizes {
        for sharers in sharers {
            for write_percent in [0, 10, 50, 90] {
                for run in [1, 4] {
                    let cell = Cell {
                        size_bytes: *size_bytes,
                        sharers: *sharers,
                        write_percent,
                        run,
                    };
                    cases.push(case(context.seed, *sharers, Load::Cell(cell), &tried));
                }
            }
        }
    }
    cases
}

fn case(seed: u64, nodes: u32, load: Load, tried: &[Config]) -> Case {
    // A cache of many values has to be filled first.
    let (intervals, settling) = if matches!(load, Load::Local(_)) {
        (40, 20)
    } else {
        (6, 2)
    };
    let course = Course {
        seed,
        nodes,
        phases: vec![load],
        intervals,
    };
    let passed: Vec<_> = tried.iter().map(|config| (*config, course.fixed(*config))).collect();
    let settled_us = |intervals: &[Interval]| {
        let settled = means(&intervals[settling..]);
        settled.iter().sum::<f64>() / settled.len() as f64
    };
    Case {
        features: passed
            .first()
            .map(|(_, intervals)| intervals[intervals.len() - 1].features)
            .unwrap_or_default(),
        took_us: passed
            .iter()
            .map(|(config, intervals)| (*config, settled_us(intervals)))
            .collect(),
    }
}

fn regret(mean_us: &[f64], oracle: &[(Config, f64)]) -> f64 {
    let (own, best): (f64, f64) = mean_us
        .iter()
        .zip(oracle)
        .fold((0.0, 0.0), |(own, best), (mean_us, (_, best_us))| {
            (own + mean_us, best + best_us)
        });
    own / best.max(1e-9) - 1.0
}

fn outcome(
    context: &Context,
    course: &Course,
    oracle: &[(Config, f64)],
    passed: &[Passed],
    (cases, thresholds): (&[Case], Thresholds),
    others_cores: f64,
) -> Outcome {
    let of = |name: &str| passed.iter().find(|passed| passed.name == name);
    let regret_of = |name: &str| of(name).map_or(f64::INFINITY, |passed| regret(&passed.mean_us, oracle));
    let mut series: Vec<Series> = Vec::new();
    let per_phase = course.intervals as usize;
    for one in passed {
        for (place, load) in course.phases.iter().enumerate() {
            let range = place * per_phase..(place + 1) * per_phase;
            let value = regret(&one.mean_us[range.clone()], &oracle[range]);
            let point = Point::single(load.name(), 100.0 * value);
            add_point(&mut series, (&one.name, "regret", "%"), ("", "phase"), point);
        }
        let all = Point::single("all", 100.0 * regret(&one.mean_us, oracle));
        add_point(&mut series, (&one.name, "regret", "%"), ("", "phase"), all);
        let switches = Point::single("course", one.switches.len() as f64);
        add_point(&mut series, (&one.name, "switches", ""), ("", "of"), switches);
    }
    for (place, load) in course.phases.iter().enumerate() {
        let last = oracle[(place + 1) * per_phase - 1];
        let point = Point::single(load.name(), last.1);
        let name = format!("oracle, at the end: {}", config_name(&last.0));
        add_point(&mut series, (&name, "oracle", "us"), ("", "phase"), point);
    }
    for (name, cost) in [
        ("fitted", thresholds.cost(cases)),
        ("default", Thresholds::default().cost(cases)),
    ] {
        let point = Point::single("grid", 100.0 * (cost - 1.0));
        add_point(
            &mut series,
            (name, "principles on the grid", "% above the best"),
            ("", "of"),
            point,
        );
    }
    for one in passed.iter().filter(|one| one.name == "ours" && context.quick) {
        one.switches
            .iter()
            .for_each(|switch| context.tell(&format!("{} because {}", config_name(&switch.config), switch.why)));
    }
    context.tell(&format!("{thresholds:?}"));
    let shown: Vec<&Series> = series.iter().filter(|series| series.measure == "regret").collect();
    let panel = Panel::of_series("Regret by phase", Marks::Bars, &shown);
    Outcome {
        scale: format!(
            "{per_phase} intervals of a second in each of six phases, {} loads of the grid",
            cases.len()
        ),
        targets: vec![
            Target::at_most("regret of ours, of one", regret_of("ours"), MOST_REGRET),
            Target::at_most(
                "regret of ours, of that of SARSA trained",
                regret_of("ours") / regret_of("SARSA, trained").max(1e-9),
                1.0,
            ),
            Target::at_most(
                "regret of ours, of that of Concord",
                regret_of("ours") / regret_of("Concord").max(1e-9),
                1.0,
            ),
        ],
        chart: Chart {
            title: EXPERIMENT.title.into(),
            panels: vec![panel],
        },
        series,
        others_cores,
    }
}
