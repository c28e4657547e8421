//! The result of an experiment in its JSON form.

use serde::{Serialize, Serializer};

use super::Spread;
use super::machine::Machine;

/// The result of an experiment or of the benchmark; serialised, it is `docs/experiments/NAME.json` or
/// `docs/performance.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub name: String,
    /// The commit that was measured.
    pub commit: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// How much was done, in words: rounds, seconds, sizes.
    pub scale: String,
    /// The machine of the experiment.
    pub machine: Machine,
    /// The targets.
    pub targets: Vec<Target>,
    /// The measured series.
    pub series: Vec<Series>,
}

/// A figure that shall not be above a limit, or not below it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The name of the figure.
    pub name: String,
    /// The measured value.
    #[serde(serialize_with = "short")]
    pub value: f64,
    /// The most that it may be, or the least.
    pub limit: f64,
    /// Which of these.
    #[serde(skip)]
    pub bound: Bound,
    /// Whether it is within the limit.
    pub met: bool,
}

/// The kind of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The most that a figure may be.
    AtMost,
    /// The least.
    AtLeast,
}

impl Bound {
    /// The kind in words, before the limit.
    pub fn words(self) -> &'static str {
        match self {
            Self::AtMost => "at most",
            Self::AtLeast => "at least",
        }
    }
}

/// One line of a chart, one column of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The subject of the measurement.
    pub name: String,
    /// The measure: series of the same measure belong together.
    pub measure: String,
    /// The unit of the values.
    pub unit: String,
    /// Under which conditions; empty if there is only one set of them.
    pub condition: String,
    /// The meaning of the points' `x`.
    pub x: String,
    /// The values.
    pub points: Vec<Point>,
}

/// One value of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The place: a label of the axis.
    pub x: String,
    /// The value, or the median of several rounds.
    #[serde(serialize_with = "short")]
    pub y: f64,
    /// The lower quartile, if there were rounds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short_option")]
    pub low: Option<f64>,
    /// The upper quartile, if there were rounds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short_option")]
    pub high: Option<f64>,
}

impl Target {
    /// The target that `value` is at most `limit`.
    pub fn at_most(name: impl Into<String>, value: f64, limit: f64) -> Self {
        Self {
            name: name.into(),
            value,
            limit,
            bound: Bound::AtMost,
            met: value <= limit,
        }
    }

    /// The target that `value` is at least `limit`.
    pub fn at_least(name: impl Into<String>, value: f64, limit: f64) -> Self {
        Self {
            name: name.into(),
            value,
            limit,
            bound: Bound::AtLeast,
            met: value >= limit,
        }
    }
}

/// The meaning of the points' `x` in a course. It has too many points for a table, and is drawn and kept for programs.
pub(super) const COURSE: &str = "seconds";
/// The same of long ones.
pub(super) const HOURS: &str = "hours";

impl Series {
    /// Whether this is one value after the other in time.
    pub(super) fn is_course(&self) -> bool {
        self.x == COURSE || self.x == HOURS
    }

    /// The drawn part of it: its name, and at each place the median with its quartiles. A single value is its own
    /// quartiles.
    pub(super) fn drawn(&self) -> (String, Vec<Option<Spread>>) {
        let value = |point: &Point| {
            Some(Spread {
                median: point.y,
                low: point.low.unwrap_or(point.y),
                high: point.high.unwrap_or(point.y),
            })
        };
        (self.name.clone(), self.points.iter().map(value).collect())
    }
}

/// Adds a point to the series of this name, measure and condition; the first point makes it.
pub(super) fn add_point(
    all: &mut Vec<Series>,
    (name, measure, unit): (&str, &str, &str),
    (condition, x): (&str, &str),
    point: Point,
) {
    let own = all
        .iter_mut()
        .find(|series| series.name == name && series.measure == measure && series.condition == condition);
    match own {
        Some(series) => series.points.push(point),
        None => all.push(Series {
            name: name.into(),
            measure: measure.into(),
            unit: unit.into(),
            condition: condition.into(),
            x: x.into(),
            points: vec![point],
        }),
    }
}

impl Point {
    /// A single value.
    pub fn single(x: impl Into<String>, y: f64) -> Self {
        Self {
            x: x.into(),
            y,
            low: None,
            high: None,
        }
    }

    /// The point of several rounds.
    pub fn spread(x: impl Into<String>, spread: Spread) -> Self {
        Self {
            x: x.into(),
            y: spread.median,
            low: Some(spread.low),
            high: Some(spread.high),
        }
    }
}

/// Digits of a figure that measure something.
const DIGITS: i32 = 5;

/// A figure without the digits that measure nothing.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = DIGITS - 1 - value.abs().log10().floor() as i32;
    // Multiplying by a power of ten and dividing by the same one leaves the nearest short decimal.
    if places >= 0 {
        let factor = 10_f64.powi(places);
        (value * factor).round() / factor
    } else {
        value.round()
    }
}

pub(super) fn short<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rounded(*value))
}

fn short_option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(rounded).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_has_the_fields_of_the_interface() {
        let report = Report {
            name: "x".into(),
            commit: "abc".into(),
            seed: 3,
            scale: "full".into(),
            machine: Machine {
                cpu: "a".into(),
                cores: 2,
                kernel: "6.1".into(),
                memory_bytes: 1 << 30,
                software: Default::default(),
                others_cores: 0.012,
            },
            targets: vec![
                Target::at_most("a", 0.123_456_78, 0.2),
                Target::at_most("b", 0.3, 0.2),
                Target::at_most("c", f64::NAN, 0.2),
                Target::at_least("d", 0.3, 0.2),
                Target::at_least("e", f64::NAN, 0.2),
            ],
            series: vec![Series {
                name: "s".into(),
                measure: "m".into(),
                unit: "ns".into(),
                condition: String::new(),
                x: "pipeline".into(),
                points: vec![
                    Point::single("1", 1_234_567.0),
                    Point::spread(
                        "10",
                        Spread {
                            median: 2.0,
                            low: 1.0,
                            high: 3.0,
                        },
                    ),
                ],
            }],
        };
        let expected = json!({
            "name": "x", "commit": "abc", "seed": 3, "scale": "full",
            "machine": {"cpu": "a", "cores": 2, "kernel": "6.1", "memory_bytes": 1 << 30, "software": {},
                "others_cores": 0.012},
            "targets": [
                {"name": "a", "value": 0.12346, "limit": 0.2, "met": true},
                {"name": "b", "value": 0.3, "limit": 0.2, "met": false},
                {"name": "c", "value": null, "limit": 0.2, "met": false},
                {"name": "d", "value": 0.3, "limit": 0.2, "met": true},
                {"name": "e", "value": null, "limit": 0.2, "met": false},
            ],
            "series": [{"name": "s", "measure": "m", "unit": "ns", "condition": "", "x": "pipeline",
                "points": [{"x": "1", "y": 1_234_567.0}, {"x": "10", "y": 2.0, "low": 1.0, "high": 3.0}]}],
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }

    #[test]
    fn a_single_value_is_drawn_as_its_own_quartiles() {
        let series = Series {
            name: "s".into(),
            measure: "m".into(),
            unit: "ns".into(),
            condition: String::new(),
            x: "size".into(),
            points: vec![Point::single("1", 7.0)],
        };
        let spread = Spread {
            median: 7.0,
            low: 7.0,
            high: 7.0,
        };
        assert_eq!(series.drawn(), ("s".to_owned(), vec![Some(spread)]));
    }

    #[test]
    fn digits_that_measure_nothing_are_cut() {
        for (value, expected) in [
            (0.0, 0.0),
            (0.001_234_567, 0.001_234_6),
            (-7.654_321, -7.6543),
            (123_456.7, 123_457.0),
            (99_999.96, 100_000.0),
        ] {
            assert_eq!(rounded(value), expected, "{value}");
        }
    }
}
