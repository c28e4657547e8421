//! Reports as Markdown: figures as people write them, tables of series, an experiment's page.

use std::fmt::Write as _;

use super::report::{Bound, Point, Report, Series, Target};
use super::{Experiment, Machine, Spread};

/// A figure as people write it: thousands apart, no digits that measure nothing.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && digit.is_ascii_digit() && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped}{rest}")
}

/// A median with its quartiles.
pub(super) fn spread(spread: &Spread) -> String {
    format!(
        "{} ({}–{})",
        figure(spread.median),
        figure(spread.low),
        figure(spread.high)
    )
}

fn point(point: &Point) -> String {
    match (point.low, point.high) {
        (Some(low), Some(high)) => spread(&Spread {
            median: point.y,
            low,
            high,
        }),
        _ => figure(point.y),
    }
}

/// A table: the first row are the columns' names; all columns but the first are figures.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|---|{}", "---:|".repeat(row.len().saturating_sub(1)));
        }
    }
    text
}

/// A table for each measure: conditions and places below each other, names beside each other. Courses have none.
pub fn tables(series: &[Series]) -> String {
    let series: Vec<&Series> = series.iter().filter(|series| !series.is_course()).collect();
    let mut text = String::new();
    for measure in in_order(series.iter().map(|series| (&series.measure, &series.unit, &series.x))) {
        let (name, unit, x) = measure;
        let own = || {
            series
                .iter()
                .copied()
                .filter(move |series| (&series.measure, &series.unit, &series.x) == measure)
        };
        let names = in_order(own().map(|series| &series.name));
        let conditions = in_order(own().map(|series| &series.condition));
        let has_conditions = conditions.iter().any(|condition| !condition.is_empty());
        let mut rows = vec![if has_conditions {
            vec!["condition".into(), x.clone()]
        } else {
            vec![x.clone()]
        }];
        rows[0].extend(names.iter().map(|name| (*name).clone()));
        for condition in conditions {
            let of_condition = || own().filter(|series| series.condition == *condition);
            for place in in_order(of_condition().flat_map(|series| &series.points).map(|point| &point.x)) {
                let value = |name: &String| {
                    let column = of_condition().find(|series| series.name == *name);
                    let found = column.and_then(|series| series.points.iter().find(|point| point.x == *place));
                    found.map_or_else(|| "-".into(), point)
                };
                let mut row = if has_conditions {
                    vec![condition.clone()]
                } else {
                    Vec::new()
                };
                row.push(place.clone());
                row.extend(names.iter().map(|name| value(name)));
                rows.push(row);
            }
        }
        let comma = if unit.is_empty() { "" } else { ", " };
        let _ = writeln!(text, "### {}{comma}{unit}\n\n{}", capital(name), table(&rows));
    }
    text
}

/// Each once, in the order in which they first occur.
fn in_order<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// The targets, and whether they were reached.
pub(super) fn targets(targets: &[Target]) -> String {
    let all_at_most = targets.iter().all(|target| target.bound == Bound::AtMost);
    let head = if all_at_most { Bound::AtMost.words() } else { "limit" };
    let mut rows = vec![["target", "found", head, ""].map(str::to_owned).to_vec()];
    for target in targets {
        let limit = figure(target.limit);
        rows.push(vec![
            target.name.clone(),
            figure(target.value),
            if all_at_most {
                limit
            } else {
                format!("{} {limit}", target.bound.words())
            },
            if target.met { "met" } else { "**missed**" }.into(),
        ]);
    }
    table(&rows)
}

/// The place and the means of the measurement.
pub(super) fn circumstances(report: &Report) -> String {
    let Machine {
        cpu,
        cores,
        kernel,
        memory_bytes,
        software,
        others_cores,
    } = &report.machine;
    let memory = *memory_bytes as f64 / f64::from(1 << 30);
    let versions: Vec<String> = software
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    format!(
        "Commit {}, seed {}; {}. {cpu}, {cores} cores, {memory:.0} GiB, Linux {kernel}; {}. \
         Other processes had {others_cores:.2} of a core meanwhile.",
        report.commit,
        report.seed,
        report.scale,
        versions.join(", ")
    )
}

/// An experiment's page.
pub(super) fn page(experiment: &Experiment, report: &Report) -> String {
    let name = &report.name;
    let mut text = format!(
        "# {}\n\n{}\n\nWritten by `make experiment NAME={name}`, about {} minutes. {}\n\n![{}]({name}.svg)\n\n",
        experiment.title,
        experiment.about,
        experiment.minutes,
        circumstances(report),
        experiment.title
    );
    if !report.targets.is_empty() {
        let met = report.targets.iter().filter(|target| target.met).count();
        let _ = writeln!(
            text,
            "## Targets: {met} of {} met\n\n{}",
            report.targets.len(),
            targets(&report.targets)
        );
    }
    let _ = write!(
        text,
        "## Figures\n\nMedians, with quartiles in brackets where there were rounds.\n\n"
    );
    text.push_str(tables(&report.series).trim_end());
    text.push('\n');
    text
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::report::COURSE;

    #[test]
    fn figures_are_readable() {
        for (value, text) in [
            (0.0, "0.000"),
            (0.8466, "0.847"),
            (-0.5, "-0.500"),
            (1.0, "1.00"),
            (12.345, "12.3"),
            (123.4, "123"),
            (-123.4, "-123"),
            (1234.0, "1,234"),
            (1_234_567.0, "1,234,567"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn limits_are_named_where_they_differ() {
        let most = Target::at_most("a", 0.1, 0.2);
        let least = Target::at_least("b", 0.1, 0.2);
        assert_eq!(
            targets(std::slice::from_ref(&most)),
            "| target | found | at most |  |\n|---|---:|---:|---:|\n| a | 0.100 | 0.200 | met |\n"
        );
        assert_eq!(
            targets(&[most, least]),
            "| target | found | limit |  |\n|---|---:|---:|---:|\n| a | 0.100 | at most 0.200 | met |\n\
             | b | 0.100 | at least 0.200 | **missed** |\n"
        );
    }

    #[test]
    fn series_become_tables() {
        let series = |name: &str, condition: &str, points| Series {
            name: name.into(),
            measure: "time".into(),
            unit: "ns".into(),
            condition: condition.into(),
            x: "pipeline".into(),
            points,
        };
        let spread = Spread {
            median: 2.0,
            low: 1.5,
            high: 3.0,
        };
        let plain = [
            series("a", "", vec![Point::single("1", 5.0), Point::spread("10", spread)]),
            series("b", "", vec![Point::single("10", 7000.0)]),
        ];
        let expected = "### Time, ns\n\n| pipeline | a | b |\n|---|---:|---:|\n| 1 | 5.00 | - |\n\
                        | 10 | 2.00 (1.50–3.00) | 7,000 |\n\n";
        assert_eq!(tables(&plain), expected);
        let conditions = [
            series("a", "cold", vec![Point::single("1", 5.0)]),
            series("a", "warm", vec![Point::single("1", 6.0)]),
        ];
        let expected = "### Time, ns\n\n| condition | pipeline | a |\n|---|---:|---:|\n| cold | 1 | 5.00 |\n\
                        | warm | 1 | 6.00 |\n\n";
        assert_eq!(tables(&conditions), expected);
        let course = Series {
            x: COURSE.into(),
            ..conditions[0].clone()
        };
        assert_eq!(tables(&[course]), "");
    }
}
