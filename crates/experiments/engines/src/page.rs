//! The page about it: tables, put into a text that people write.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tidemark_experiments::experiment::{Folders, Report, Spread, figure, write_json};

use crate::bench::Who;
use crate::load::Name;
use crate::measure::Outcome;
use crate::report::{NAME, hit_percent, points_behind_best};
use crate::settings::{Equal, Setting, contestants};

/// The folder of the page in the repository.
pub(crate) const FOLDER: &str = "docs/experiments";

/// A table by the name of its place: between `<!-- table NAME -->` and `<!-- end -->`.
pub(crate) type Table = (&'static str, String);

/// Every table.
pub(crate) fn tables(settings: &[Setting], report: &Report) -> Vec<Table> {
    let of = |equal, is_trace: bool, write: fn(&Setting) -> String| {
        let all = settings.iter();
        let own = all.filter(|setting| setting.equal == equal && (setting.load != Name::Zipf) == is_trace);
        own.map(write).collect::<String>()
    };
    vec![
        ("circumstances", circumstances(report)),
        ("targets", targets(report)),
        ("payload", of(Equal::Payload, false, equal_payload)),
        ("threads", of(Equal::PayloadThreads, false, threads)),
        ("memory", of(Equal::Memory, false, equal_memory)),
        ("traces", traces(settings)),
        ("forms", forms()),
    ]
}

/// The tables without the page, for a terminal.
pub(crate) fn plain(tables: &[Table]) -> String {
    tables
        .iter()
        .map(|(name, table)| format!("{name}\n\n{table}\n"))
        .collect()
}

/// Writes the JSON, and the page of the repository with these tables, into their folders.
pub(crate) fn write(root: &Path, folders: &Folders, report: &Report, tables: &[Table]) -> Result<()> {
    let file = format!("{NAME}.md");
    let text = root.join(FOLDER).join(&file);
    let text = fs::read_to_string(&text).with_context(|| format!("{} can not be read", text.display()))?;
    let page = tables.iter().try_fold(text, |text, table| put(&text, table))?;
    write_json(&folders.json, report)?;
    fs::write(folders.pages.join(file), page)?;
    Ok(())
}

fn put(page: &str, (name, table): &Table) -> Result<String> {
    let (begin, end) = (format!("<!-- table {name} -->\n"), "<!-- end -->");
    let missing = || format!("the page has no place for the table `{name}`: write {begin}{end}");
    let (before, rest) = page.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(end).with_context(missing)?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", table.trim_end()))
}

/// The first row are the columns' names; all columns but the first are figures.
fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|---|{}", "---:|".repeat(row.len().saturating_sub(1)));
        }
    }
    text
}

fn header<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn shown(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".into(),
        |spread| {
            format!(
                "{} ({}–{})",
                figure(spread.median),
                figure(spread.low),
                figure(spread.high)
            )
        },
    )
}

fn middle(setting: &Setting, who: Who, of: fn(&Outcome) -> f64) -> f64 {
    setting.spread(who, of).map_or(f64::NAN, |spread| spread.median)
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}"))
}

/// How many times as fast as the fastest other that holds keys and values of any length.
fn times(setting: &Setting, who: Who) -> String {
    let ratio = setting.over_fastest_other(who).map_or(f64::NAN, |spread| spread.median);
    figure(1.0 / ratio)
}

fn circumstances(report: &Report) -> String {
    let machine = &report.machine;
    let versions: Vec<_> = machine
        .software
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    format!(
        "Commit {}, seed {}; {}. {}, {} cores, {:.0} GiB, Linux {}; {}. Other programs had {:.2} cores meanwhile.\n",
        report.commit,
        report.seed,
        report.scale,
        machine.cpu,
        machine.cores,
        machine.memory_bytes as f64 / f64::from(1 << 30),
        machine.kernel,
        versions.join(", "),
        machine.others_cores
    )
}

fn targets(report: &Report) -> String {
    let met = report.targets.iter().filter(|target| target.met).count();
    let mut rows = vec![header(["target", "found", "at most", ""])];
    for target in &report.targets {
        let verdict = if target.met { "met" } else { "**missed**" };
        rows.push(vec![
            target.name.clone(),
            figure(target.value),
            figure(target.limit),
            verdict.into(),
        ]);
    }
    format!("{met} of {} are met.\n\n{}", report.targets.len(), table(&rows))
}

fn equal_payload(setting: &Setting) -> String {
    let names = [
        "cache",
        "million operations a second",
        "of the fastest other's",
        "hit ratio, %",
        "bytes per item",
        "refused",
    ];
    let mut rows = vec![header(names)];
    for &who in &setting.whom {
        rows.push(vec![
            who.name(),
            shown(setting.spread(who, Outcome::mops)),
            times(setting, who),
            percent(Some(middle(setting, who, |outcome| outcome.hit_ratio) * 100.0)),
            shown(setting.spread(who, Outcome::bytes_per_item)),
            figure(middle(setting, who, |outcome| outcome.refused as f64)),
        ]);
    }
    table(&rows)
}

fn threads(setting: &Setting) -> String {
    let mut rows = vec![header([
        "cache",
        "million operations a second",
        "of the fastest other's",
        "hit ratio, %",
    ])];
    for &who in &setting.whom {
        rows.push(vec![
            who.name(),
            shown(setting.spread(who, Outcome::mops)),
            times(setting, who),
            percent(Some(middle(setting, who, |outcome| outcome.hit_ratio) * 100.0)),
        ]);
    }
    table(&rows)
}

fn equal_memory(setting: &Setting) -> String {
    let names = [
        "cache",
        "memory, MiB",
        "items",
        "hit ratio from empty, %",
        "points behind the best",
        "hit ratio then, %",
        "million operations a second",
    ];
    let mut rows = vec![header(names)];
    for &who in &setting.whom {
        rows.push(vec![
            who.name(),
            figure(middle(setting, who, |outcome| outcome.fill_rss_bytes as f64) / f64::from(1 << 20)),
            figure(middle(setting, who, |outcome| outcome.items as f64)),
            percent(hit_percent(setting, who)),
            percent(points_behind_best(setting, who)),
            percent(Some(middle(setting, who, |outcome| outcome.hit_ratio) * 100.0)),
            shown(setting.spread(who, Outcome::mops)),
        ]);
    }
    table(&rows)
}

/// A table for each trace: sizes beside each other.
fn traces(settings: &[Setting]) -> String {
    let mut text = String::new();
    for name in Name::ALL.into_iter().filter(|&name| name != Name::Zipf) {
        let own: Vec<_> = settings.iter().filter(|setting| setting.load == name).collect();
        if own.is_empty() {
            continue;
        }
        let mib = |setting: &Setting| format!("{:.1} MiB", setting.bytes as f64 / f64::from(1 << 20));
        let mut rows = vec![header(["cache"])];
        rows[0].extend(own.iter().map(|setting| format!("hit ratio at {}, %", mib(setting))));
        rows[0].extend(
            own.iter()
                .map(|setting| format!("million operations a second at {}", mib(setting))),
        );
        rows[0].extend(own.iter().map(|setting| format!("memory at {}", mib(setting))));
        for who in everybody(&own) {
            let mut row = vec![who.name()];
            row.extend(own.iter().map(|setting| percent(hit_percent(setting, who))));
            row.extend(own.iter().map(|setting| shown(setting.spread(who, Outcome::mops))));
            let memory = |setting: &&Setting| middle(setting, who, |outcome| outcome.fill_rss_bytes as f64);
            row.extend(own.iter().map(|setting| figure(memory(setting) / f64::from(1 << 20))));
            rows.push(row);
        }
        let _ = writeln!(text, "### {name}\n\n{}", table(&rows));
    }
    text
}

/// Each who took part in one of the settings, in the order of the first.
fn everybody(settings: &[&Setting]) -> Vec<Who> {
    let mut all = Vec::new();
    for &who in settings.iter().flat_map(|setting| &setting.whom) {
        if !all.contains(&who) {
            all.push(who);
        }
    }
    all
}

fn forms() -> String {
    let kinds = contestants();
    kinds.map(|kind| format!("- `{kind}`: {}\n", kind.form())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::setting;

    #[test]
    fn tables_go_into_their_places() {
        let page = "a\n<!-- table x -->\nold\n<!-- end -->\nb\n<!-- table y -->\n<!-- end -->\n";
        let put = |name| put(page, &(name, "new\n".into()));
        assert_eq!(
            put("x").unwrap(),
            "a\n<!-- table x -->\n\nnew\n\n<!-- end -->\nb\n<!-- table y -->\n<!-- end -->\n"
        );
        assert!(put("y").unwrap().contains("old"));
        assert!(put("z").unwrap_err().to_string().contains("`z`"));
    }

    #[test]
    fn the_page_of_the_repository_has_a_place_for_every_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let settings = [setting()];
        let report = crate::report::report(&settings, &crate::settings::QUICK, 1, &root);
        let folder = tempfile::tempdir().unwrap();
        write(
            &root,
            &Folders::one(folder.path()),
            &report,
            &tables(&settings, &report),
        )
        .unwrap();
        let page = fs::read_to_string(folder.path().join("engines.md")).unwrap();
        assert!(
            page.contains("| tidemark, 16 keys at once | 8.00 (8.00–8.00) |"),
            "{page}"
        );
        assert!(folder.path().join("engines.json").is_file());
    }

    #[test]
    fn a_setting_becomes_a_row_for_each_cache() {
        let setting = setting();
        for (text, rows) in [
            (equal_payload(&setting), 4),
            (equal_memory(&setting), 4),
            (threads(&setting), 4),
        ] {
            assert_eq!(text.lines().count(), rows + 2, "{text}");
        }
        assert!(
            equal_payload(&setting).contains("| segcache | 2.50 (2.25–2.75) | 1.00 | 75.00 | 200 (200–200) | 0.000 |")
        );
        let trace = Setting {
            load: Name::OrmBusy,
            ..setting
        };
        assert!(traces(&[trace]).starts_with("### orm-busy\n\n| cache | hit ratio at 3.0 MiB, % |"));
    }
}
