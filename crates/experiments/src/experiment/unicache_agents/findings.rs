//! The measurements as targets, tables and a picture.

use super::super::chart::{Chart, Marks, Panel};
use super::super::objects::Place;
use super::super::report::{Point, Series, Target, add_point};
use super::super::{Experiment, Outcome, Spread};
use super::apps::{App, accesses_per_request};
use super::cluster::{DIMENSIONS, FAR, NODES};
use super::drive::{Found, Probed};
use super::{ALL_BUT_OURS, AT_STORE, All, CONCORD, LOADS, Measured, OURS};

/// The paper's means: response time, its 99th percentile and throughput of the baseline against UniCache.
const MEAN_TIMES: f64 = 5.7;
const P99_TIMES: f64 = 4.3;
const THROUGHPUT_TIMES: f64 = 4.6;
/// Ours may take so many times as long as Concord in one place.
const BEHIND_MAX: f64 = 1.02;
/// A read that the own node's copy answers, in milliseconds.
const LOCAL_MS_MAX: f64 = 0.2;
/// A read that another node's copy answers, in round trips between nodes.
const ROUND_TRIPS_MAX: f64 = 1.2;

/// The figure that is compared.
type Figure = fn(&Found) -> f64;

impl All {
    fn of(&self, app: &App, arm: &str) -> Option<&Measured> {
        self.measured
            .iter()
            .find(|one| one.app.name == app.name && one.arm == arm)
    }

    fn apps(&self) -> impl Iterator<Item = &'static App> {
        self.measured.iter().filter(|one| one.arm == OURS).map(|one| one.app)
    }

    /// How many times as long as ours another one takes, by loads.
    fn ratios(&self, app: &App, arm: &str, figure: Figure) -> Vec<f64> {
        let both = self.of(app, arm).zip(self.of(app, OURS));
        let pairs = both
            .into_iter()
            .flat_map(|(other, ours)| other.loads.iter().zip(&ours.loads));
        pairs.map(|(other, ours)| figure(other) / figure(ours)).collect()
    }

    /// The same with (i) as if each access, also a write, took one round trip to the origin and nothing else.
    fn least_ratio(&self, app: &App) -> Option<f64> {
        let ours = self.of(app, OURS)?.loads.iter().map(Found::mean_ms);
        Some(2e3 * FAR.as_secs_f64() * accesses_per_request(app) / mean(ours))
    }

    /// How many times as many requests a second as another one ours holds.
    fn throughput(&self, app: &App, arm: &str) -> Option<f64> {
        let (other, ours) = self.of(app, arm).zip(self.of(app, OURS))?;
        Some(ours.full.per_second() / other.full.per_second())
    }

    /// The times of reads one after the other.
    fn probed(&self, times: fn(&Probed) -> &[f64]) -> Option<Spread> {
        Spread::of(self.measured.iter().flat_map(|one| times(&one.probed)).copied())
    }

    /// The times of small reads that were answered from a place, under the directory's configurations and the low load.
    fn small_reads(&self, place: Place) -> Option<Spread> {
        let directory = self.measured.iter().filter(|one| [CONCORD, OURS].contains(&one.arm));
        let reads = directory
            .filter_map(|one| one.loads.first())
            .flat_map(|found| &found.small_reads);
        Spread::of(reads.filter(|(at, _)| *at == place).map(|(_, took_ms)| *took_ms))
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of logarithms: one application with a very large ratio does not hide the others.
fn geometric(values: impl IntoIterator<Item = f64>) -> f64 {
    mean(values.into_iter().map(f64::ln)).exp()
}

pub(super) fn outcome(experiment: &Experiment, all: &All, others_cores: f64) -> Outcome {
    let mut series = Vec::new();
    responses(all, &mut series);
    ratios(all, &mut series);
    hits(all, &mut series);
    chosen(all, &mut series);
    let panels = [
        "mean response, (i) by ours",
        "P99, (i) by ours",
        "mean response, Concord by ours",
    ]
    .into_iter()
    .map(|measure| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(measure, Marks::Bars, &own)
    });
    Outcome {
        scale: scale(all),
        targets: targets(all),
        chart: Chart {
            title: experiment.title.into(),
            panels: panels.collect(),
        },
        series,
        others_cores,
    }
}

fn scale(all: &All) -> String {
    let requests: usize = all
        .measured
        .iter()
        .flat_map(|one| &one.loads)
        .map(|found| found.response_ms.len())
        .sum();
    let source = if all.is_traced {
        "Azure's trace"
    } else {
        "generated patterns, as there was no trace"
    };
    format!(
        "{NODES} agents, {} applications one after the other, five configurations, three loads of {} s each and {} s at full load; {requests} requests by \
         {source}",
        all.apps().count(),
        all.times.point,
        all.times.full,
    )
}

fn targets(all: &All) -> Vec<Target> {
    let over = |arm: &'static str, figure: Figure| all.apps().flat_map(move |app| all.ratios(app, arm, figure));
    let throughput = |arm: &'static str| all.apps().filter_map(move |app| all.throughput(app, arm));
    let behind = over(CONCORD, Found::mean_ms)
        .map(|ratio| 1.0 / ratio)
        .fold(0.0, f64::max);
    let held = throughput(CONCORD).map(|ratio| 1.0 / ratio).fold(0.0, f64::max);
    let median = |times| all.probed(times).map_or(f64::INFINITY, |spread| spread.median);
    vec![
        Target::at_least(
            "mean response: (i) by ours",
            mean(over(AT_STORE, Found::mean_ms)),
            MEAN_TIMES,
        ),
        Target::at_least(
            "mean response: (i) with one round trip an access, by ours",
            mean(all.apps().filter_map(|app| all.least_ratio(app))),
            MEAN_TIMES,
        ),
        Target::at_least("P99: (i) by ours", mean(over(AT_STORE, Found::p99_ms)), P99_TIMES),
        Target::at_least("throughput: ours by (i)", mean(throughput(AT_STORE)), THROUGHPUT_TIMES),
        Target::at_least(
            "mean response: Concord by ours",
            mean(over(CONCORD, Found::mean_ms)),
            1.0,
        ),
        Target::at_most("mean response: ours by Concord, where it is worst", behind, BEHIND_MAX),
        Target::at_most("throughput: Concord by ours, where it is worst", held, BEHIND_MAX),
        Target::at_most("local hit, median, ms", median(|probed| &probed.local_ms), LOCAL_MS_MAX),
        Target::at_most(
            "remote hit, median, round trips",
            median(|probed| &probed.remote_ms) / median(|probed| &probed.round_trips_ms),
            ROUND_TRIPS_MAX,
        ),
    ]
}

/// The measurements as they are.
fn responses(all: &All, series: &mut Vec<Series>) {
    let figures: [(&str, Figure); 2] = [("mean response", Found::mean_ms), ("P99 of responses", Found::p99_ms)];
    for (measure, figure) in figures {
        for one in &all.measured {
            for ((load, _), found) in LOADS.iter().zip(&one.loads) {
                let point = Point::single(*load, figure(found));
                add_point(series, (one.arm, measure, "ms"), (one.app.name, "load"), point);
            }
        }
    }
    for one in &all.measured {
        let point = Point::single(one.app.name, one.full.per_second());
        add_point(
            series,
            (one.arm, "maximal throughput", "requests/s"),
            ("", "application"),
            point,
        );
    }
}

/// Ours beside the others.
fn ratios(all: &All, series: &mut Vec<Series>) {
    for (measure, arm, figure) in [
        ("mean response, (i) by ours", AT_STORE, Found::mean_ms as Figure),
        ("P99, (i) by ours", AT_STORE, Found::p99_ms as Figure),
        ("mean response, Concord by ours", CONCORD, Found::mean_ms as Figure),
    ] {
        for (place, (load, _)) in LOADS.iter().enumerate() {
            for app in all.apps() {
                if let Some(ratio) = all.ratios(app, arm, figure).get(place) {
                    let point = Point::single(app.name, *ratio);
                    add_point(series, (load, measure, "times"), ("", "application"), point);
                }
            }
        }
    }
    for app in all.apps() {
        if let Some(ratio) = all.least_ratio(app) {
            let name = "all, if an access with (i) took one round trip";
            let measure = "mean response, (i) by ours";
            add_point(
                series,
                (name, measure, "times"),
                ("", "application"),
                Point::single(app.name, ratio),
            );
        }
    }
    for arm in ALL_BUT_OURS {
        let ratios = |figure: Figure| {
            all.apps()
                .flat_map(move |app| all.ratios(app, arm, figure))
                .collect::<Vec<_>>()
        };
        let throughput: Vec<f64> = all.apps().filter_map(|app| all.throughput(app, arm)).collect();
        for (name, values) in [
            ("mean response", ratios(Found::mean_ms)),
            ("P99", ratios(Found::p99_ms)),
            ("throughput", throughput),
        ] {
            let summary = "how many times better ours is";
            for (kind, value) in [("mean", mean(values.clone())), ("geometric mean", geometric(values))] {
                add_point(series, (name, summary, ""), (kind, "than"), Point::single(arm, value));
            }
        }
    }
}

/// The places that reads were answered from, and how fast.
fn hits(all: &All, series: &mut Vec<Series>) {
    for one in &all.measured {
        let (hits, reads) = one
            .loads
            .iter()
            .fold((0, 0), |(hits, reads), found| (hits + found.hits, reads + found.reads));
        let point = Point::single(one.app.name, 100.0 * hits as f64 / reads.max(1) as f64);
        add_point(
            series,
            (one.arm, "reads without the origin's bytes", "%"),
            ("", "application"),
            point,
        );
    }
    for (name, place) in [
        ("own copy", Place::Copy),
        ("another node", Place::Home),
        ("origin", Place::Store),
    ] {
        if let Some(spread) = all.small_reads(place) {
            let measure = "reads of up to 4 KiB, low load, Concord and ours";
            add_point(
                series,
                ("took", measure, "ms"),
                ("", "from"),
                Point::spread(name, spread),
            );
        }
    }
    for (name, times) in [
        ("own copy", (|probed| &probed.local_ms) as fn(&Probed) -> &[f64]),
        ("another node", |probed| &probed.remote_ms),
        ("a byte there and back", |probed| &probed.round_trips_ms),
    ] {
        if let Some(spread) = all.probed(times) {
            let measure = "small reads one after the other";
            add_point(
                series,
                ("took", measure, "ms"),
                ("", "from"),
                Point::spread(name, spread),
            );
        }
    }
    for one in &all.measured {
        let again: u64 = one.loads.iter().map(|found| found.again).sum();
        let point = Point::single(one.app.name, again as f64);
        add_point(
            series,
            (one.arm, "attempts after a 503 or 500", ""),
            ("", "application"),
            point,
        );
    }
}

/// The chosen configurations beside the paper's.
fn chosen(all: &All, series: &mut Vec<Series>) {
    for one in all.measured.iter().filter(|one| one.arm == OURS) {
        let both = format!("{}; the paper: {}", one.config.join(", "), one.app.paper);
        let Some(concord) = all.of(one.app, CONCORD) else {
            continue;
        };
        let changed = (0..DIMENSIONS.len()).filter(|place| one.config.get(*place) != concord.config.get(*place));
        let point = Point::single(one.app.name, changed.count() as f64);
        let measure = "chosen configuration: scope, write, replacement, coherence, replication, domain, admission";
        add_point(
            series,
            ("other than Concord's", measure, "dimensions"),
            (&both, "application"),
            point,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ARMS, AT_HOME, NO_CACHE, Times, apps};
    use super::*;

    fn found(mean_ms: f64, per_second: f64) -> Found {
        Found {
            response_ms: vec![mean_ms; 10],
            small_reads: vec![(Place::Copy, 0.1), (Place::Home, 2.2), (Place::Copy, 0.3)],
            seconds: 10.0 / per_second,
            ..Found::default()
        }
    }

    /// Two applications; ours takes 10 ms, the others a multiple.
    fn all(concord: [f64; 2]) -> All {
        let mut measured = Vec::new();
        for (app, concord) in [apps::ALL[0], apps::ALL[3]].into_iter().zip(concord) {
            for arm in ARMS {
                let times = match arm.name {
                    CONCORD => concord,
                    OURS => 1.0,
                    _ => 6.0,
                };
                measured.push(Measured {
                    app,
                    arm: arm.name,
                    loads: vec![found(10.0 * times, 50.0); LOADS.len()],
                    full: found(10.0, 100.0 / times),
                    probed: Probed {
                        local_ms: vec![0.1, 0.3],
                        remote_ms: vec![2.2],
                        round_trips_ms: vec![2.0],
                    },
                    config: arm.values.map(str::to_owned).to_vec(),
                });
            }
        }
        All {
            measured,
            is_traced: true,
            times: Times {
                warm: 1,
                chosen: 1,
                point: 1,
                full: 1,
            },
        }
    }

    fn check(concord: [f64; 2], expected: &[(&str, f64, bool)]) {
        let targets = targets(&all(concord));
        for (name, value, met) in expected {
            let target = targets.iter().find(|target| target.name.starts_with(name)).unwrap();
            assert!((target.value - value).abs() < 1e-9 && target.met == *met, "{target:?}");
        }
    }

    #[test]
    fn ratios_are_of_the_same_application_and_load() {
        let least = 3.0 * accesses_per_request(apps::ALL[3]);
        check(
            [1.0, 1.5],
            &[
                ("mean response: (i) by", 6.0, true),
                // Two accesses of 30 ms, and 6.8 of them, by 10 ms.
                ("mean response: (i) with", (6.0 + least) / 2.0, true),
                ("P99", 6.0, true),
                ("throughput: ours", 6.0, true),
                ("mean response: Concord", 1.25, true),
                ("mean response: ours by Concord", 1.0, true),
                ("local hit", 0.2, true),
                ("remote hit", 1.1, true),
            ],
        );
        check(
            [0.8, 1.5],
            &[
                ("mean response: Concord", 1.15, true),
                ("mean response: ours by Concord", 1.25, false),
                ("throughput: Concord", 1.25, false),
            ],
        );
    }

    #[test]
    fn every_measure_has_a_table() {
        let all = all([1.0, 1.5]);
        let outcome = outcome(&super::super::EXPERIMENT, &all, 0.0);
        let of = |measure: &str, name: &str| {
            let found = outcome
                .series
                .iter()
                .filter(|series| series.measure == measure && series.name == name);
            found
                .flat_map(|series| &series.points)
                .map(|point| point.y)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("mean response", OURS), [10.0; 6]);
        assert_eq!(of("maximal throughput", AT_HOME).len(), 2);
        assert_eq!(of("small reads one after the other", "took"), [0.2, 2.2, 2.0]);
        assert_eq!(
            of("reads of up to 4 KiB, low load, Concord and ours", "took"),
            [0.2, 2.2]
        );
        assert_eq!(of("mean response, Concord by ours", "high"), [1.0, 1.5]);
        assert_eq!(
            of("how many times better ours is", "throughput").len(),
            2 * ALL_BUT_OURS.len()
        );
        assert!(ALL_BUT_OURS.contains(&NO_CACHE) && !ALL_BUT_OURS.contains(&OURS));
        assert!((geometric([2.0, 8.0]) - 4.0).abs() < 1e-9);
    }
}
