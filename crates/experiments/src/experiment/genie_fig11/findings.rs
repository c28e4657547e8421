//! The results of the loads: targets, figures and pictures.

use super::loads::Scale;
use super::{Found, Outcome};
use crate::elastic::{Course, INTERVAL_SECONDS, Judgement, Reach};
use crate::experiment::chart::{Chart, Marks, Panel};
use crate::experiment::report::{COURSE, Point, Series, Target, add_point};
use crate::experiment::{Spread, markdown};

/// The names, in the order of the tenants.
const NAMES: [&str; 2] = ["Tidemark", "policy genie"];
const ORACLE: &str = "oracle";
const GOAL: &str = "goal";
/// The most that the hit ratio may fall below the goal when memory is given back (the paper's is five points).
const DIP_MAX: f64 = 0.03;
/// How far from the oracle's memory a tenant may settle.
const DISTANCE_MAX: f64 = 0.08;
/// How long a change of load may wait for the first change of the grant, in seconds.
const FIRST_GRANT_MAX: f64 = 5.0;
/// The limits, as parts of the memory that `genie` needs: on skewed loads, on uniform ones, and in the mean of all.
const SKEWED_MAX: f64 = 0.75;
const UNIFORM_MAX: f64 = 1.05;
const MEAN_MAX: f64 = 0.85;
/// A label of the axis for each minute.
const LABEL_SECONDS: f64 = 60.0;

const MIB: f64 = 1_048_576.0;

/// Collects the findings.
#[derive(Default)]
pub(super) struct Findings {
    targets: Vec<Target>,
    series: Vec<Series>,
    panels: Vec<Panel>,
    /// Memory over that of `genie`.
    ratios: Vec<f64>,
    /// The states that the tenants reported of their goals.
    states: Vec<String>,
}

impl Findings {
    /// Adds loads that followed each other in the same courses.
    pub(super) fn add(&mut self, found: Vec<Found>, courses: &[Course; 2]) {
        for found in found {
            self.add_targets(&found);
            self.add_figures(&found);
            self.add_course(&found, courses);
            let Found {
                policy,
                states: [own, genie],
                ..
            } = &found;
            self.states
                .push(format!("{}: {own} with {policy}, {genie}", found.demand.name));
        }
    }

    pub(super) fn outcome(mut self, scale: Scale, rates: &[f64], others_cores: f64) -> Outcome {
        let mean = self.ratios.iter().sum::<f64>() / self.ratios.len().max(1) as f64;
        self.targets.push(Target::at_most(
            "all loads: memory for the goal over that of `genie`, mean",
            mean,
            MEAN_MAX,
        ));
        let rates: Vec<String> = rates.iter().map(|rate| markdown::figure(*rate)).collect();
        let quick = if scale.is_quick() {
            "; a quick run, too short to settle in"
        } else {
            ""
        };
        Outcome {
            scale: format!(
                "{} gets a second of each tenant{quick}; said of their goals at the end ({}): {}",
                rates.join(", "),
                NAMES.join(", "),
                self.states.join("; ")
            ),
            targets: self.targets,
            series: self.series,
            chart: Chart {
                title: "Hit ratio and memory under changing loads".into(),
                panels: self.panels,
            },
            others_cores,
        }
    }

    fn add_targets(&mut self, found: &Found) {
        let [own, genie] = &found.judgements;
        let name = found.demand.name;
        let mut target = |what: &str, value: f64, limit: f64| {
            self.targets
                .push(Target::at_most(format!("{name}: {what}"), value, limit));
        };
        let ratio = own.end_usage_bytes / genie.end_usage_bytes;
        let of_genie = if found.demand.is_skewed {
            SKEWED_MAX
        } else {
            UNIFORM_MAX
        };
        target(
            "windows after T not within a point of the goal",
            1.0 - own.near_ratio,
            0.0,
        );
        target("dip below the goal when memory is given back", own.dip_ratio, DIP_MAX);
        match found.reach {
            Reach::With(oracle) => {
                let distance = (own.end_usage_bytes / oracle.bytes as f64 - 1.0).abs();
                target("distance of the memory from the oracle's", distance, DISTANCE_MAX);
            }
            Reach::Never { .. } => {
                let is_said = found.states[0] == "infeasible";
                target("not said to be infeasible", f64::from(u8::from(!is_said)), 0.0);
            }
        }
        // Memory that is not needed is given back once the new load's keys are known, not before.
        let needs_more = match found.reach {
            Reach::With(oracle) => (own.first_grant_bytes as f64) < oracle.bytes as f64 * (1.0 - DISTANCE_MAX),
            Reach::Never { .. } => true,
        };
        if needs_more {
            target(
                "seconds from the change of load to the first grant",
                own.first_grant_seconds.unwrap_or(f64::NAN),
                FIRST_GRANT_MAX,
            );
        }
        target("memory for the goal over that of `genie`", ratio, of_genie);
        self.ratios.push(ratio);
    }

    fn add_figures(&mut self, found: &Found) {
        let reached = match found.reach {
            Reach::With(oracle) => oracle.hit_ratio,
            Reach::Never { best_hit_ratio } => best_hit_ratio,
        };
        let measures: [(&str, &str, Figure); 5] = [
            (END_RATIO, "ratio", |judgement| judgement.end_hit_ratio),
            (END_MEMORY, "MiB", |judgement| judgement.end_usage_bytes / MIB),
            ("furthest window after T from the goal", "ratio", |judgement| {
                judgement.furthest_ratio
            }),
            ("dip below the goal when memory is given back", "ratio", |judgement| {
                judgement.dip_ratio
            }),
            ("from the change of load to the first grant", "s", |judgement| {
                judgement.first_grant_seconds.unwrap_or(f64::NAN)
            }),
        ];
        let place = found.demand.name;
        for (measure, unit, of) in measures {
            for (name, judgement) in NAMES.into_iter().zip(&found.judgements) {
                self.add_point((name, measure, unit), place, of(judgement));
            }
        }
        self.add_point((ORACLE, END_RATIO, "ratio"), place, reached);
        self.add_point((GOAL, END_RATIO, "ratio"), place, found.demand.goal);
        if let Reach::With(oracle) = found.reach {
            self.add_point((ORACLE, END_MEMORY, "MiB"), place, oracle.bytes as f64 / MIB);
        }
        self.add_point(("T", "time to settle", "s"), place, found.settling_seconds);
    }

    fn add_point(&mut self, (name, measure, unit): (&str, &str, &str), place: &str, value: f64) {
        add_point(
            &mut self.series,
            (name, measure, unit),
            ("", "load"),
            Point::single(place, value),
        );
    }

    /// A picture of the hit ratio and one of the memory.
    fn add_course(&mut self, found: &Found, [own, genie]: &[Course; 2]) {
        let (from, to) = (found.times.from, found.times.to);
        let ratios = |course: &Course| {
            course
                .intervals(from, to)
                .map(|(at, ratio)| (at - from, ratio))
                .collect()
        };
        let at_intervals = |course: &Course, of: fn(&Course, f64, f64) -> f64| -> Vec<(f64, f64)> {
            let intervals = course.intervals(from, to);
            intervals
                .map(|(at, _)| (at - from, of(course, at, at + INTERVAL_SECONDS) / MIB))
                .collect()
        };
        let level = |value: f64| own.intervals(from, to).map(|(at, _)| (at - from, value)).collect();
        let grant = |course: &Course, from, to| course.largest_grant_bytes(from, to) as f64;
        let mut memory = vec![
            ("usage", at_intervals(own, Course::mean_usage_bytes)),
            ("grant", at_intervals(own, grant)),
            ("usage, policy genie", at_intervals(genie, Course::mean_usage_bytes)),
        ];
        if let Reach::With(oracle) = found.reach {
            memory.push((ORACLE, level(oracle.bytes as f64 / MIB)));
        }
        let hits = vec![
            ("hit ratio", ratios(own)),
            ("hit ratio, policy genie", ratios(genie)),
            (GOAL, level(found.demand.goal)),
        ];
        for (measure, unit, courses) in [("hit ratio", "ratio", hits), ("memory", "MiB", memory)] {
            self.panels
                .push(panel(&format!("{}: {measure}", found.demand.name), unit, &courses));
            self.series.extend(courses.into_iter().map(|(name, points)| {
                Series {
                    name: name.into(),
                    measure: format!("{measure} over time"),
                    unit: unit.into(),
                    condition: found.demand.name.into(),
                    x: COURSE.into(),
                    points: points
                        .into_iter()
                        .map(|(at, value)| Point::single(format!("{at:.0}"), value))
                        .collect(),
                }
            }));
        }
    }
}

const END_RATIO: &str = "hit ratio at the end";
const END_MEMORY: &str = "memory at the end";

/// A figure of a tenant's outcome.
type Figure = fn(&Judgement) -> f64;

/// Seconds and values, by their subject.
type Courses = [(&'static str, Vec<(f64, f64)>)];

fn panel(title: &str, unit: &str, courses: &Courses) -> Panel {
    let places = courses.first().map(|(_, points)| &points[..]).unwrap_or_default();
    let label = |at: f64| {
        // The first interval that begins in a minute, however it was rounded.
        let is_label = at % LABEL_SECONDS < INTERVAL_SECONDS / 2.0;
        if is_label {
            format!("{:.0}", at / LABEL_SECONDS)
        } else {
            String::new()
        }
    };
    let value = |(_, value): &(f64, f64)| Spread::of([*value]);
    Panel {
        title: title.to_owned(),
        x_label: "minutes".into(),
        y_label: unit.to_owned(),
        places: places.iter().map(|(at, _)| label(*at)).collect(),
        marks: Marks::Course,
        series: courses
            .iter()
            .map(|(name, points)| ((*name).to_owned(), points.iter().map(value).collect()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use tidemark_types::Policy;

    use super::*;
    use crate::elastic::{Moment, Oracle, StageTimes};
    use crate::experiment::genie_fig11::loads::demands;

    fn found(reach: Reach, states: [&str; 2]) -> (Found, [Course; 2]) {
        let moment = |second: u64, usage_mib: u64| Moment {
            seconds: second as f64,
            gets: second * 1000,
            hits: second * 900,
            grant_bytes: (usage_mib + u64::from(second > 2)) << 20,
            usage_bytes: usage_mib << 20,
        };
        let course = |usage| Course {
            moments: (0..=180).map(|second| moment(second, usage)).collect(),
        };
        let times = StageTimes {
            from: 0.0,
            settled_from: 60.0,
            to: 180.0,
        };
        let courses = [course(100), course(200)];
        let demand = demands(Scale::of(false), 1).unwrap().remove(0).remove(0);
        let found = Found {
            judgements: courses.each_ref().map(|course| course.judge(times, demand.goal)),
            demand,
            reach,
            settling_seconds: 60.0,
            times,
            states: states.map(str::to_owned),
            policy: Policy::S3Fifo,
        };
        (found, courses)
    }

    #[test]
    fn targets_say_what_was_met() {
        let with = |mib: u64| {
            Reach::With(Oracle {
                bytes: mib << 20,
                hit_ratio: 0.9,
            })
        };
        let never = Reach::Never { best_hit_ratio: 0.8 };
        for (reach, state, targets, missed) in [
            (with(100), "met", 5, 0),
            (with(90), "met", 5, 1),
            // More than it might hold at first: it is judged how soon it got more.
            (with(109), "met", 6, 1),
            (never, "infeasible", 6, 0),
            (never, "met", 6, 1),
        ] {
            let (found, courses) = found(reach, [state, "met"]);
            let mut findings = Findings::default();
            findings.add(vec![found], &courses);
            let outcome = findings.outcome(Scale::of(false), &[200_000.0], 0.0);
            let missed_targets: Vec<_> = outcome.targets.iter().filter(|target| !target.met).collect();
            assert_eq!(missed_targets.len(), missed, "{missed_targets:?}");
            assert_eq!(outcome.targets.len(), targets);
            assert!(outcome.scale.starts_with("200,000 gets a second"), "{}", outcome.scale);
            assert_eq!(outcome.chart.panels.len(), 2);
        }
    }

    #[test]
    fn courses_are_drawn_and_kept_but_not_tabulated() {
        let (found, courses) = found(Reach::Never { best_hit_ratio: 0.8 }, ["met", "met"]);
        let mut findings = Findings::default();
        findings.add(vec![found], &courses);
        let drawn = findings.panels[0].places.iter().filter(|label| !label.is_empty());
        assert_eq!(drawn.collect::<Vec<_>>(), ["0", "1", "2"]);
        let course = findings.series.iter().find(|series| series.is_course()).unwrap();
        assert_eq!((course.points.len(), &course.points[1].x[..]), (18, "10"));
        let tables = markdown::tables(&findings.series);
        assert!(
            !tables.contains("over time") && tables.contains("Memory at the end"),
            "{tables}"
        );
    }
}
