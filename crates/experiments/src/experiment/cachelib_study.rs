//! The study of CacheLib's experiment, by Tidemark's rule and by others: see [`crate::study`].

use tidemark_control::Utility;

use super::cachelib_goals::Goals;
use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{Point, Series, Target};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use crate::study::{ALPHAS, Found, Plot, Rule, Setting, TENANTS, name, run as share};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cachelib-study",
    title: "Four tenants that compete, static and coming and going (the study of CacheLib)",
    minutes: 18,
    about: "\
The experiment of the study of CacheLib (Idiosyncrasies of Programmable Caching Engines): four tenants, Zipf 1.2, 0.9, 0.6 and
uniform, each with 20 million items of 1 KiB of its own, a pool of 8 GiB, read-only look-aside, misses 218 times as costly as hits
(1.07 and 233 us, our fit of the study's figures). Static: all are there for 2,500 s. Dynamic: they join at 0, 500, 1000 and 1500 s
and leave in reverse from 2000 to 3500 s. Run on the real store and the real control plane in virtual time; sizes and rates are
divided by the number below \"scale\", times are not, and what is written here is multiplied by it again. Deterministic by seed.

Every rule runs in the same harness with the same eviction. *Tidemark* is its planner with floors of 5 % and a utility, no split
given by hand. *Quarter* gives a quarter to each, *equal* as much to each that is there, *custom* is the study's own rule (91 % to the
most skewed one, what is left over in proportion), *CacheLib* is a model of its optimizer: from a quarter for each, one slab of 4
MiB a second from the pool whose last slab brings the fewest hits to the one whose last slab brings the most, by smoothed
ranks, among those that were there at first and, to give, have evicted.

The *oracle* is the best fixed split that was found on a grid of 64ths of the pool with the same floors: each tenant is run at
seven sizes, its hit ratio between them interpolated, all splits of the grid are judged by that, and the best one is run; if
any other run with fixed grants was better, that one counts. For the dynamic plot it has the best split for whoever is there.

Goals on the same load, by throughput with the same floors: first t2 asks for the hit ratio that a quarter of the pool gives it. Then
t2 asks for what 35 % of the pool give it, and t3, at a lower priority, for what 60 % give it, which is more than is left: what it
is said to miss because of others is compared with what it misses where both are given the same memory by hand. These three
runs take 20,000 s: in 2,500 s eviction has not yet made the best of a large memory that fills with some hundred items a second,
least of all where it was given late.

*Custom* has no limit of what a tenant is expected to use: here everyone would use the whole pool. That the model of CacheLib does
what the quarter does follows from how it is made: as in the study, who was not there when it was first run gets nothing by it.",
    run,
};

/// Floors, over the pool.
pub(super) const FLOOR: f64 = 0.05;
/// Steps of the oracle's grid.
const GRID: usize = 64;
/// The sizes at which each tenant is run, over the pool, in sets that fit into it.
const PROBES: [[f64; TENANTS]; 4] = [
    [0.85, 0.05, 0.05, 0.05],
    [0.60, 0.25, 0.10, 0.05],
    [0.40, 0.35, 0.15, 0.10],
    [0.25, 0.25, 0.25, 0.25],
];
/// The least part of the oracle's value that a settled total, or a mean over the dynamic plot, reaches.
pub(super) const OF_ORACLE: f64 = 0.95;
/// The least part of its throughput with a quarter of the pool that a tenant keeps, under the default utility.
const OF_QUARTER: f64 = 0.8;
/// The median error of predicted hit ratios.
pub(super) const PREDICTION_ERROR: f64 = 0.04;
/// The memory that moves in a minute after settling, over the pool.
pub(super) const MOVED: f64 = 0.01;
/// How near the model of CacheLib must be to the static quarter in the dynamic plot, as the study's optimizer was.
const STUCK: f64 = 0.2;
/// Seconds between two points of a course.
pub(super) const STEP: usize = 50;

/// A rule's two plots.
struct Results {
    rule: &'static str,
    fixed: bool,
    static_plot: Option<Found>,
    dynamic_plot: Option<Found>,
}

fn tidemark(utility: Utility) -> Rule {
    Rule::tidemark(utility, FLOOR)
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let divisor = if context.quick { 128 } else { 8 };
    let others = Others::watch();
    let play = |what: &str, rule: &Rule, plot: Plot| {
        context.tell(&format!("{what}, {plot:?}"));
        let seed = context.seed;
        let setting = Setting {
            divisor,
            plot,
            haste: 1,
            seed,
        };
        share(&setting, rule)
    };
    let mut probes = Vec::new();
    for parts in probe_parts() {
        let rule = Rule::fixed(parts);
        probes.push((parts, play("probe", &rule, Plot::Static)?));
    }
    let oracle = Oracle::of(&probes);
    let all = [true; TENANTS];
    let sum = |throughputs: &[f64]| throughputs.iter().sum::<f64>();
    let product = |throughputs: &[f64]| throughputs.iter().map(|throughput| throughput.ln()).sum::<f64>();
    let best_product = play("best product", &Rule::fixed(oracle.best(all, product)), Plot::Static)?;
    let oracle_rule = Rule::of_sets(|there| oracle.best(there, sum));
    let rules = [
        ("oracle", oracle_rule, true, true),
        ("Tidemark, throughput", tidemark(Utility::Throughput), true, true),
        ("Tidemark, proportional", tidemark(Utility::Proportional), true, true),
        ("quarter", Rule::quarter(), true, true),
        ("equal", Rule::equal(), false, true),
        ("custom", Rule::custom(), true, true),
        ("CacheLib", Rule::CacheLib, true, true),
    ];
    let mut results = Vec::new();
    for (what, rule, is_static, is_dynamic) in rules {
        results.push(Results {
            rule: what,
            fixed: matches!(rule, Rule::Fixed(_)),
            static_plot: is_static.then(|| play(what, &rule, Plot::Static)).transpose()?,
            dynamic_plot: is_dynamic.then(|| play(what, &rule, Plot::Dynamic)).transpose()?,
        });
    }
    let quarter = probes.iter().find(|(parts, _)| *parts == [0.25; TENANTS]);
    let quarter = quarter
        .map(|(_, found)| found)
        .ok_or_else(|| Error::Usage("no probe gives a quarter".into()))?;
    let goals = Goals::play(play, quarter)?;
    let mut all_targets = targets(&results, &probes, &best_product);
    all_targets.extend(goals.targets());
    let mut all_series = series(&results);
    all_series.extend(goals.series());
    Ok(Outcome {
        scale: format!("1/{divisor} of the study's sizes and rates, in virtual time"),
        targets: all_targets,
        series: all_series,
        chart: chart(&results),
        others_cores: others.cores(),
    })
}

/// Every set of probes, each tenant at each place of it.
fn probe_parts() -> Vec<[f64; TENANTS]> {
    let mut all: Vec<[f64; TENANTS]> = Vec::new();
    for set in PROBES {
        for shift in 0..TENANTS {
            let parts = std::array::from_fn(|tenant| set[(tenant + shift) % TENANTS]);
            if !all.contains(&parts) {
                all.push(parts);
            }
        }
    }
    all
}

/// The throughput of each tenant at sizes that were tried.
struct Oracle {
    /// The tried parts of the pool of each tenant, ascending, and the throughput there.
    by_part: [Vec<(f64, f64)>; TENANTS],
}

impl Oracle {
    fn of(probes: &[([f64; TENANTS], Found)]) -> Self {
        let by_part = std::array::from_fn(|tenant| {
            let mut points: Vec<(f64, f64)> = probes
                .iter()
                .map(|(parts, found)| (parts[tenant], found.settled(tenant)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points.dedup_by(|a, b| a.0 == b.0);
            points
        });
        Self { by_part }
    }

    /// The throughput of a tenant: the time between two of its answers is interpolated, because the hit ratio is
    /// straight in it.
    fn throughput(&self, tenant: usize, part: f64) -> f64 {
        let points = &self.by_part[tenant];
        let right = points.partition_point(|(at, _)| *at < part).clamp(1, points.len() - 1);
        let ((low, slow), (high, fast)) = (points[right - 1], points[right]);
        // Hit ratios rise with the logarithm of the size.
        let share = ((part / low).ln() / (high / low).ln()).clamp(0.0, 1.0);
        1.0 / (1.0 / slow + (1.0 / fast - 1.0 / slow) * share)
    }

    /// The best split among those that are there: each has its floor and whole steps of the grid, the first one the rest.
    fn best(&self, there: [bool; TENANTS], worth: impl Fn(&[f64]) -> f64) -> [f64; TENANTS] {
        let tenants: Vec<usize> = (0..TENANTS).filter(|tenant| there[*tenant]).collect();
        let surplus = 1.0 - FLOOR * tenants.len() as f64;
        let most = (surplus * GRID as f64) as usize;
        let mut best = ([0.0; TENANTS], f64::NEG_INFINITY);
        let mut steps = vec![0; tenants.len()];
        loop {
            let used: usize = steps.iter().sum();
            if used <= most {
                let mut parts = [0.0; TENANTS];
                for (tenant, steps) in tenants.iter().zip(&steps) {
                    parts[*tenant] = FLOOR + *steps as f64 / GRID as f64;
                }
                parts[tenants[0]] += surplus - used as f64 / GRID as f64;
                let of = |tenant: &usize| self.throughput(*tenant, parts[*tenant]);
                let worth = worth(&tenants.iter().map(of).collect::<Vec<f64>>());
                if worth > best.1 {
                    best = (parts, worth);
                }
            }
            // The next split, as a number whose digits are the steps of all but the first.
            let Some(place) = (1..steps.len()).find(|place| steps[*place] < most) else {
                return best.0;
            };
            steps[place] += 1;
            steps[1..place].fill(0);
        }
    }
}

fn total(found: &Found) -> f64 {
    (0..TENANTS).map(|tenant| found.settled(tenant)).sum()
}

fn log_product(found: &Found) -> f64 {
    (0..TENANTS).map(|tenant| found.settled(tenant).ln()).sum()
}

fn targets(results: &[Results], probes: &[([f64; TENANTS], Found)], best_product: &Found) -> Vec<Target> {
    let find = |rule: &str| results.iter().find(|results| results.rule == rule);
    let static_of = |rule: &str| find(rule).and_then(|results| results.static_plot.as_ref());
    let dynamic_of = |rule: &str| find(rule).and_then(|results| results.dynamic_plot.as_ref());
    let mut targets = Vec::new();
    let has_floors = |parts: &[f64; TENANTS]| parts.iter().all(|part| *part >= FLOOR);
    let fixed = results
        .iter()
        .filter(|results| results.fixed && results.rule != "custom");
    let fixed_static = || {
        let rules = fixed.clone().filter_map(|results| results.static_plot.as_ref());
        let probes = probes
            .iter()
            .filter(|(parts, _)| has_floors(parts))
            .map(|(_, found)| found);
        rules.chain(probes).chain([best_product])
    };
    let best_static = fixed_static().map(total).fold(0.0, f64::max);
    let best_log_product = fixed_static().map(log_product).fold(f64::NEG_INFINITY, f64::max);
    if let (Some(own), Some(quarter)) = (static_of("Tidemark, throughput"), static_of("quarter")) {
        targets.push(Target::at_least(
            "static, throughput: settled total over the oracle's",
            total(own) / best_static,
            OF_ORACLE,
        ));
        let at_floor = |tenant: usize| {
            let probe = probes.iter().find(|(parts, _)| parts[tenant] == FLOOR);
            probe.map_or(f64::NAN, |(_, found)| found.settled(tenant))
        };
        for tenant in 1..TENANTS {
            let over = own.settled(tenant) / at_floor(tenant);
            targets.push(Target::at_least(
                format!("static, throughput: {} over what exactly its floor gives", name(tenant)),
                over,
                0.99,
            ));
        }
        targets.push(Target::at_most(
            "static, throughput: moved in a minute after settling, over the pool",
            own.moved_per_minute(),
            MOVED,
        ));
        let error = own.median_prediction_error().unwrap_or(f64::NAN);
        targets.push(Target::at_most(
            "static, throughput: median error of predicted hit ratios",
            error,
            PREDICTION_ERROR,
        ));
        if let Some(fair) = static_of("Tidemark, proportional") {
            let product = (log_product(fair) - best_log_product).exp();
            targets.push(Target::at_least(
                "static, proportional: product of throughputs over the oracle's",
                product,
                OF_ORACLE,
            ));
            let over_quarter = (log_product(fair) - log_product(quarter)).exp();
            targets.push(Target::at_least(
                "static, proportional: product of throughputs over the quarter's",
                over_quarter,
                1.0,
            ));
            for tenant in 0..TENANTS {
                let over = fair.settled(tenant) / quarter.settled(tenant);
                targets.push(Target::at_least(
                    format!("static, proportional: {} over its quarter", name(tenant)),
                    over,
                    OF_QUARTER,
                ));
            }
        }
    }
    if let (Some(own), Some(quarter)) = (dynamic_of("Tidemark, throughput"), dynamic_of("quarter")) {
        let best = fixed
            .clone()
            .filter_map(|results| results.dynamic_plot.as_ref())
            .map(Found::mean)
            .fold(0.0, f64::max);
        targets.push(Target::at_least(
            "dynamic, throughput: mean total over the oracle's",
            own.mean() / best,
            OF_ORACLE,
        ));
        if let Some(model) = dynamic_of("CacheLib") {
            let apart = (model.mean() / quarter.mean() - 1.0).abs();
            targets.push(Target::at_most(
                "dynamic: the model of CacheLib, apart from the quarter",
                apart,
                STUCK,
            ));
        }
    }
    targets
}

fn series(results: &[Results]) -> Vec<Series> {
    let mut all = Vec::new();
    for results in results {
        let plots = [
            ("static, settled", &results.static_plot, true),
            ("dynamic, while there", &results.dynamic_plot, false),
        ];
        for (condition, found, is_settled) in plots {
            let Some(found) = found else { continue };
            let of = |tenant: usize| {
                if is_settled {
                    found.settled(tenant)
                } else {
                    found.throughput_while_there(tenant)
                }
            };
            let mut points: Vec<Point> = (0..TENANTS)
                .map(|tenant| Point::single(label(tenant), of(tenant) / 1000.0))
                .collect();
            let all_of_them = if is_settled { total(found) } else { found.mean() };
            points.push(Point::single("all".to_owned(), all_of_them / 1000.0));
            all.push(Series {
                name: results.rule.into(),
                measure: "throughput".into(),
                unit: "thousands/s".into(),
                condition: condition.into(),
                x: "tenant".into(),
                points,
            });
        }
    }
    all
}

pub(super) fn label(tenant: usize) -> String {
    match ALPHAS[tenant] {
        0.0 => format!("{}, uniform", name(tenant)),
        alpha => format!("{}, Zipf {alpha}", name(tenant)),
    }
}

/// Total throughput over time of the rules, and Tidemark's grants.
fn chart(results: &[Results]) -> Chart {
    let course = |title: &str, plot: Plot, of: fn(&Results) -> Option<&Found>| {
        let places: Vec<usize> = (0..plot.seconds()).step_by(STEP).collect();
        let total = |found: &Found, from: usize| {
            let each = (0..TENANTS).filter_map(|tenant| found.throughput(tenant, from, from + STEP));
            Spread::of([each.sum::<f64>() / 1000.0])
        };
        let drawn = results
            .iter()
            .filter(|results| !matches!(results.rule, "equal" | "custom"));
        Panel {
            title: title.into(),
            x_label: "seconds".into(),
            y_label: "thousands/s".into(),
            places: time_labels(&places),
            marks: Marks::Course,
            series: drawn
                .filter_map(|results| {
                    let found = of(results)?;
                    Some((
                        results.rule.to_owned(),
                        places.iter().map(|from| total(found, *from)).collect(),
                    ))
                })
                .collect(),
        }
    };
    Chart {
        title: "Four tenants that compete for a pool".into(),
        panels: vec![
            course("All are there: operations of all", Plot::Static, |results| {
                results.static_plot.as_ref()
            }),
            course("They come and go: operations of all", Plot::Dynamic, |results| {
                results.dynamic_plot.as_ref()
            }),
        ],
    }
}

/// A label at every five hundredth second.
pub(super) fn time_labels(places: &[usize]) -> Vec<String> {
    let label = |second: &usize| {
        if second.is_multiple_of(500) {
            second.to_string()
        } else {
            String::new()
        }
    };
    places.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_s_best_split_is_found() {
        let linear = |slope: f64| [0.05, 0.25, 0.85].map(|part| (part, 1.0 + slope * part)).to_vec();
        let oracle = Oracle {
            by_part: [linear(1.0), linear(9.0), linear(2.0), linear(1.0)],
        };
        let sum = |throughputs: &[f64]| throughputs.iter().sum::<f64>();
        let best = oracle.best([true; TENANTS], sum);
        assert!((best[1] - (FLOOR + 51.0 / 64.0)).abs() < 1e-9, "{best:?}");
        assert!((best.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{best:?}");
        assert_eq!(oracle.best([true, false, false, false], sum), [1.0, 0.0, 0.0, 0.0]);
        // Every split of two is tried here, too.
        let two = oracle.best([true, false, true, false], sum);
        let worth = |part: f64| oracle.throughput(2, part) + oracle.throughput(0, 1.0 - part);
        let best = (0..=57)
            .map(|step| worth(FLOOR + f64::from(step) / 64.0))
            .fold(0.0, f64::max);
        assert!((worth(two[2]) - best).abs() < 1e-9 && two[2] > two[0], "{two:?}");
        assert_eq!((two[1], two[3]), (0.0, 0.0));
    }

    #[test]
    fn each_tenant_is_tried_at_each_size_and_all_fit() {
        let parts = probe_parts();
        assert_eq!(parts.len(), 13);
        assert!(parts.iter().all(|parts| parts.iter().sum::<f64>() <= 1.0 + 1e-9));
    }
}
