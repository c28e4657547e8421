//! The tables of `docs/performance.md`, and how they get into it: between `<!-- table NAME -->` and `<!-- end -->`.

use super::super::markdown::{circumstances, figure, spread, table};
use super::super::report::Report;
use super::super::statistics::Spread;
use super::cells::{Cell, Findings, LATENCY, Loop, MAIN, Mix, PAIRS, PIPELINES, Pair, SET_LIMIT, Who, cpu};
use crate::Error;

/// The least and the most that was found, in ns.
type Range = (f64, f64);

/// memcached 1.6.45 at the load of the main table and at each of [`PIPELINES`], on an equal machine at another time.
/// The cost of a responder that stores nothing at that time stands beside it.
const MEMCACHED_1_6_45: [Range; 3] = [(8800.0, 9700.0), (1380.0, 1720.0), (1360.0, 1390.0)];
const FLOOR_THEN: [Range; 3] = [(6600.0, 7000.0), (720.0, 1000.0), (370.0, 550.0)];

/// Every table by its name.
pub(super) fn all(findings: &Findings, report: &Report) -> Vec<(&'static str, String)> {
    vec![
        ("circumstances", circumstances(report) + "\n"),
        ("summary", summary(report)),
        ("main", main(findings)),
        (
            "ratios",
            PAIRS.iter().map(|pair| ratios(findings, pair) + "\n").collect(),
        ),
        ("sets", sets(findings)),
        ("open", open(findings)),
        ("latency", latency(findings)),
        ("calls", calls(findings)),
        ("newer-memcached", newer_memcached(findings)),
    ]
}

/// Puts a table into its place.
pub(super) fn put(page: &str, name: &str, table: &str) -> Result<String, Error> {
    let (begin, end) = (format!("<!-- table {name} -->\n"), "<!-- end -->");
    let missing = || {
        Error::Usage(format!(
            "the page has no place for the table `{name}`: write {begin}{end}"
        ))
    };
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", table.trim_end()))
}

/// The first column's name, and one for each pipeline.
fn header(first: &str) -> Vec<String> {
    let pipelines = PIPELINES.iter().map(|pipeline| format!("pipeline {pipeline}"));
    std::iter::once(first.to_owned()).chain(pipelines).collect()
}

fn cell(mix: Mix, pipeline: usize, how: Loop) -> Cell {
    Cell {
        group: MAIN,
        mix,
        pipeline,
        how,
    }
}

/// The number of met targets, by their subject.
fn summary(report: &Report) -> String {
    let kinds = [
        ("CPU per operation, of memcached's", "over memcached"),
        ("CPU per operation, of Redis's", "over Redis"),
        ("CPU per SET, of a GET's", "SET over GET"),
        (
            "99th percentile of the latency, of the other server's",
            "99th percentile",
        ),
    ];
    let mut rows = vec![["target", "met", "of"].map(str::to_owned).to_vec()];
    for (index, (kind, part)) in kinds.iter().enumerate() {
        let is_latency = index + 1 == kinds.len();
        let own = || {
            let all = report.targets.iter().filter(|target| target.name.contains(part));
            all.filter(move |target| is_latency || !target.name.contains("99th percentile"))
        };
        let met = own().filter(|target| target.met).count();
        rows.push(vec![(*kind).to_owned(), met.to_string(), own().count().to_string()]);
    }
    table(&rows)
}

/// Everybody at the main load.
fn main(findings: &Findings) -> String {
    let mut rows = vec![header("CPU per operation, ns")];
    for who in Who::ALL {
        let mut row = vec![who.name().to_owned()];
        row.extend(
            PIPELINES.map(|pipeline| text(findings.spread(cell(Mix::NineToOne, pipeline, Loop::Closed), who, cpu))),
        );
        rows.push(row);
    }
    table(&rows)
}

/// Tidemark's CPU time per operation over the other server's, in closed loop.
fn ratios(findings: &Findings, pair: &Pair) -> String {
    let mut rows = vec![header(&format!("{} over {}", pair.own.name(), pair.other.name()))];
    let limits = pair.limits.map(|limit| format!("at most {limit}"));
    rows.push([vec!["target".to_owned()], limits.to_vec()].concat());
    for group in findings.groups() {
        for mix in Mix::ALL {
            let mut row = vec![format!("{}, {}", mix.name(), group.name())];
            for (pipeline, limit) in PIPELINES.into_iter().zip(pair.limits) {
                let cell = Cell {
                    group,
                    ..cell(mix, pipeline, Loop::Closed)
                };
                row.push(judged(findings.ratio((cell, pair.own), (cell, pair.other), cpu), limit));
            }
            rows.push(row);
        }
    }
    table(&rows)
}

/// The cost of a SET over that of a GET.
fn sets(findings: &Findings) -> String {
    let mut rows = vec![header(&format!("SET over GET, at most {SET_LIMIT}"))];
    for pair in &PAIRS {
        for who in [pair.own, pair.other] {
            for group in findings.groups() {
                let mut row = vec![format!("{}, {}", who.name(), group.name())];
                row.extend(PIPELINES.map(|pipeline| {
                    let set = Cell {
                        group,
                        ..cell(Mix::Set, pipeline, Loop::Closed)
                    };
                    let get = Cell { mix: Mix::Get, ..set };
                    let ratio = findings.ratio((set, who), (get, who), cpu);
                    if who == pair.own {
                        judged(ratio, SET_LIMIT)
                    } else {
                        text(ratio)
                    }
                }));
                rows.push(row);
            }
        }
    }
    table(&rows)
}

/// The open loop at one rate for all.
fn open(findings: &Findings) -> String {
    let names = [
        "load",
        "rate",
        "over memcached",
        "over Redis",
        "receives of the load per operation",
    ];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    for group in findings.groups() {
        for pipeline in PIPELINES {
            let cell = Cell {
                group,
                ..cell(Mix::NineToOne, pipeline, Loop::Open)
            };
            let Some(rate) = findings.rates.get(&(cell, Who::Memcached)) else {
                continue;
            };
            let receives = Who::ALL[..4]
                .iter()
                .filter_map(|who| findings.spread(cell, *who, |sample| sample.receives));
            let receives: Vec<String> = receives.map(|spread| figure(spread.median)).collect();
            let unsent = Who::ALL[..4]
                .iter()
                .filter_map(|who| findings.spread(cell, *who, |sample| sample.unsent_ratio));
            let unsent = unsent.map(|spread| spread.median).fold(0.0, f64::max);
            let late = if unsent > UNSENT_WORTH_A_WORD {
                format!(", {:.1} % not kept", unsent * 100.0)
            } else {
                String::new()
            };
            let mut row = vec![
                format!("{}, pipeline {pipeline}", group.name()),
                format!("{}/s{late}", figure(*rate)),
            ];
            row.extend(
                PAIRS
                    .iter()
                    .map(|pair| text(findings.ratio((cell, pair.own), (cell, pair.other), cpu))),
            );
            row.push(receives.join(" / "));
            rows.push(row);
        }
    }
    table(&rows)
}

/// An open loop of which more could not be sent did not have its rate.
const UNSENT_WORTH_A_WORD: f64 = 0.001;

fn latency(findings: &Findings) -> String {
    let names = [
        "",
        "rate",
        "median, µs",
        "99th percentile, µs",
        "ratio of the 99th percentiles",
    ];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    for pair in &PAIRS {
        for who in [pair.own, pair.other, pair.floor] {
            let ratio = findings.ratio((LATENCY, pair.own), (LATENCY, pair.other), |sample| sample.p99_us);
            rows.push(vec![
                who.name().to_owned(),
                findings
                    .rates
                    .get(&(LATENCY, who))
                    .map_or_else(|| "-".into(), |rate| format!("{}/s", figure(*rate))),
                text(findings.spread(LATENCY, who, |sample| sample.p50_us)),
                text(findings.spread(LATENCY, who, |sample| sample.p99_us)),
                if who == pair.own {
                    judged(ratio, super::cells::LATENCY_LIMIT)
                } else {
                    String::new()
                },
            ]);
        }
    }
    table(&rows)
}

fn calls(findings: &Findings) -> String {
    if findings.calls.is_empty() {
        return "Not counted: that needs `perf`, and the right to trace.\n".into();
    }
    let mut rows = vec![header("receives / sends / waits per operation")];
    for (how, name) in [(Loop::Closed, "closed loop"), (Loop::Open, "open loop")] {
        for who in Who::ALL {
            let mut row = vec![format!("{}, {name}", who.name())];
            row.extend(PIPELINES.map(|pipeline| {
                let calls = findings.calls.get(&(cell(Mix::NineToOne, pipeline, how), who));
                calls.map_or_else(
                    || "-".into(),
                    |calls| [calls.receives, calls.sends, calls.waits].map(figure).join(" / "),
                )
            }));
            if row[1..].iter().any(|cell| cell != "-") {
                rows.push(row);
            }
        }
    }
    table(&rows)
}

/// Tidemark beside figures of another run: each over the floor of its own run, because machines and days differ.
fn newer_memcached(findings: &Findings) -> String {
    let range = |(least, most): Range| format!("{}–{}", figure(least), figure(most));
    let over = |((least, most), (floor_least, floor_most)): (Range, Range)| (least / floor_most, most / floor_least);
    let then = MEMCACHED_1_6_45.into_iter().zip(FLOOR_THEN);
    let now = |pipeline, who| {
        let cell = cell(Mix::NineToOne, pipeline, Loop::Closed);
        findings.ratio((cell, who), (cell, Who::FloorMemcached), cpu)
    };
    let row = |name: &str, cells: Vec<String>| [vec![name.to_owned()], cells].concat();
    table(&[
        header(&format!("9:1, {}", MAIN.name())),
        row(
            "memcached 1.6.45, another run, ns",
            MEMCACHED_1_6_45.map(range).to_vec(),
        ),
        row("the floor in that run, ns", FLOOR_THEN.map(range).to_vec()),
        row(
            "memcached 1.6.45 over that floor",
            then.map(|both| range(over(both))).collect(),
        ),
        row(
            "memcached of this run over the floor of this run",
            PIPELINES.map(|pipeline| text(now(pipeline, Who::Memcached))).to_vec(),
        ),
        row(
            "Tidemark over the floor of this run",
            PIPELINES
                .map(|pipeline| text(now(pipeline, Who::TidemarkMemcached)))
                .to_vec(),
        ),
    ])
}

fn text(found: Option<Spread>) -> String {
    found.map_or_else(|| "-".into(), |found| spread(&found))
}

/// The figure, in bold if the limit is missed.
fn judged(found: Option<Spread>, limit: f64) -> String {
    match found {
        Some(found) if found.median > limit => format!("**{}**", spread(&found)),
        found => text(found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::tests::findings;
    use super::*;

    #[test]
    fn tables_take_their_places_and_leave_the_rest() {
        let page = "a\n<!-- table one -->\nold\n<!-- end -->\nb\n<!-- table two -->\n<!-- end -->\nc\n";
        let page = put(page, "one", "| new |\n").unwrap();
        let page = put(&page, "two", "| 2 |\n").unwrap();
        let expected =
            "a\n<!-- table one -->\n\n| new |\n\n<!-- end -->\nb\n<!-- table two -->\n\n| 2 |\n\n<!-- end -->\nc\n";
        assert_eq!(page, expected);
        // Again: nothing more changes.
        assert_eq!(put(&page, "one", "| new |\n").unwrap(), expected);
        assert!(put(&page, "three", "").is_err());
        assert!(put("<!-- table one -->\n", "one", "").is_err());
    }

    #[test]
    fn missed_targets_are_bold() {
        let found = ratios(&findings(), &PAIRS[1]);
        let row = found.lines().find(|line| line.starts_with("| GET, 64 bytes")).unwrap();
        let good = "0.700 (0.700–0.700)";
        assert_eq!(
            row,
            format!("| GET, 64 bytes, 1 million keys | {good} | **{good}** | **{good}** |")
        );
    }

    #[test]
    fn figures_of_another_run_are_over_the_floor_of_that_run() {
        let found = newer_memcached(&findings());
        // 8,800 over 7,000 to 9,700 over 6,600, and so on; 700 over 400 in every round.
        for row in ["| 1.26–1.47 | 1.38–2.39 | 2.47–3.76 |", "| 1.75 (1.75–1.75) |"] {
            assert!(found.contains(row), "{row}: {found}");
        }
    }
}
