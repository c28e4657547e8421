//! The figures for programs, in the form that all experiments have, and which targets they meet.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::available_parallelism;

use tidemark_experiments::experiment::{Machine, Point, Report, Series, Target, commit};

use crate::bench::Who;
use crate::engine::Kind;
use crate::measure::Outcome;
use crate::settings::{Equal, Scale, Setting, batched, one};

/// The experiment's name.
pub(crate) const NAME: &str = "engines";

/// Tidemark is to be so many times as fast as the fastest other: asked for one key at a time, and for several.
pub(crate) const SPEEDS: [(fn() -> Who, f64); 2] = [(|| one(Kind::TIDEMARK), 1.3), (batched, 2.0)];
/// Bytes that an item may take.
pub(crate) const ITEM_BYTES_MAX: f64 = 140.0;
/// Points of hit ratio that it may be behind the best at equal memory.
pub(crate) const POINTS_BEHIND_MAX: f64 = 0.5;

/// A column of each setting's table: the measure, its unit, its formula.
type Measure = (&'static str, &'static str, fn(&Outcome) -> f64);

const MEASURES: [Measure; 5] = [
    ("throughput", "million operations a second", Outcome::mops),
    ("hit ratio from empty", "part of the lookups", |outcome| {
        outcome.fill_hit_ratio
    }),
    ("hit ratio", "part of the lookups", |outcome| outcome.hit_ratio),
    ("memory", "bytes", |outcome| outcome.rss_bytes as f64),
    ("memory per item", "bytes", Outcome::bytes_per_item),
];

/// Everything that was found; the sources are in `root`.
pub(crate) fn report(settings: &[Setting], scale: &Scale, seed: u64, root: &Path) -> Report {
    let cores = available_parallelism().map_or(1, |cores| cores.get());
    Report {
        name: NAME.into(),
        commit: commit(root),
        seed,
        scale: format!("{}, {} rounds", scale.name, scale.rounds),
        machine: Machine::this(cores, versions(include_str!("../Cargo.lock")), others_cores(settings)),
        targets: settings.iter().flat_map(targets).collect(),
        series: series(settings),
    }
}

/// The targets of a setting. That something is so many times as fast is told as the time that it takes at most.
fn targets(setting: &Setting) -> Vec<Target> {
    let label = setting.label();
    let mut all = Vec::new();
    let is_generated_memory = setting.equal == Equal::Memory && setting.load.trace().is_none();
    if setting.equal != Equal::PayloadThreads && !is_generated_memory {
        for (who, times) in SPEEDS {
            if let Some(ratio) = setting.over_fastest_other(who()) {
                let name = format!("time of {} over the fastest other's: {label}", who().name());
                all.push(Target::at_most(name, ratio.median, 1.0 / times));
            }
        }
    }
    if setting.equal == Equal::Payload
        && let Some(bytes) = setting.spread(one(Kind::TIDEMARK), Outcome::bytes_per_item)
    {
        all.push(Target::at_most(
            format!("bytes per item: {label}"),
            bytes.median,
            ITEM_BYTES_MAX,
        ));
    }
    if setting.equal == Equal::Memory
        && let Some(points) = points_behind_best(setting, one(Kind::TIDEMARK))
    {
        let name = format!("points of hit ratio behind the best: {label}");
        all.push(Target::at_most(name, points, POINTS_BEHIND_MAX));
    }
    all
}

/// Part of the lookups that hit from empty on, in percent.
pub(crate) fn hit_percent(setting: &Setting, who: Who) -> Option<f64> {
    let spread = setting.spread(who, |outcome| outcome.fill_hit_ratio)?;
    Some(spread.median * 100.0)
}

/// How far somebody's hit ratio is behind that of the best of the others, never below zero.
pub(crate) fn points_behind_best(setting: &Setting, who: Who) -> Option<f64> {
    let others = Kind::OTHERS
        .into_iter()
        .filter_map(|kind| hit_percent(setting, one(kind)));
    Some((others.fold(0.0, f64::max) - hit_percent(setting, who)?).max(0.0))
}

fn series(settings: &[Setting]) -> Vec<Series> {
    let mut all = Vec::new();
    for setting in settings {
        let condition = match setting.equal {
            Equal::Payload => "equal payload",
            Equal::PayloadThreads => "equal payload, two threads",
            Equal::Memory => "equal memory",
        };
        for (measure, unit, figure) in MEASURES {
            for &who in &setting.whom {
                let points = setting
                    .spread(who, figure)
                    .map(|spread| Point::spread(setting.label(), spread));
                all.push(Series {
                    name: who.name(),
                    measure: measure.into(),
                    unit: unit.into(),
                    condition: condition.into(),
                    x: "load".into(),
                    points: points.into_iter().collect(),
                });
            }
        }
    }
    all
}

/// Cores that other programs had during the timed part, in the mean.
fn others_cores(settings: &[Setting]) -> f64 {
    let outcomes = settings.iter().flat_map(|setting| setting.rounds.iter().flatten());
    let (sum, count) = outcomes.fold((0.0, 0), |(sum, count), outcome| {
        (sum + outcome.others_cores, count + 1)
    });
    sum / f64::from(count.max(1))
}

/// The libraries' versions, from the lock file.
fn versions(lock: &str) -> BTreeMap<String, String> {
    let of = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some((name.to_owned(), rest.split_once('"')?.0.to_owned()))
    };
    Kind::OTHERS.iter().filter_map(|kind| of(kind.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::setting;

    #[test]
    fn every_library_has_a_version() {
        assert_eq!(versions(include_str!("../Cargo.lock")).len(), Kind::OTHERS.len());
        assert!(versions("").is_empty());
    }

    #[test]
    fn others_are_the_mean_of_all() {
        let mut setting = setting();
        setting.rounds[0][0].others_cores = 1.05;
        assert!((others_cores(&[setting]) - 0.35).abs() < 1e-9);
        assert_eq!(others_cores(&[]), 0.0);
    }

    #[test]
    fn targets_are_those_of_the_setting() {
        let check = |equal, expected: &[(&str, bool)]| {
            let found = targets(&Setting { equal, ..setting() });
            let found: Vec<_> = found.iter().map(|target| (target.name.as_str(), target.met)).collect();
            assert_eq!(found, expected);
        };
        let payload = [
            ("time of tidemark over the fastest other's: zipf, 3.0 MiB", true),
            (
                "time of tidemark, 16 keys at once over the fastest other's: zipf, 3.0 MiB",
                true,
            ),
            ("bytes per item: zipf, 3.0 MiB", true),
        ];
        check(Equal::Payload, &payload);
        check(Equal::PayloadThreads, &[]);
        check(
            Equal::Memory,
            &[("points of hit ratio behind the best: zipf, 3.0 MiB", true)],
        );
    }

    #[test]
    fn a_hit_ratio_is_compared_with_the_best_others() {
        let mut setting = setting();
        setting
            .rounds
            .iter_mut()
            .for_each(|round| round[2].fill_hit_ratio = 0.52);
        let behind = |who| points_behind_best(&setting, who).unwrap();
        assert!((behind(one(Kind::TIDEMARK)) - 2.0).abs() < 1e-9);
        assert_eq!(behind(one(Kind::Segcache)), 0.0);
    }
}
