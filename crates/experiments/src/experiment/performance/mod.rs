//! `make bench`: the cost of an operation to Tidemark, memcached and Redis, each over its own protocol, and to a
//! responder that stores nothing.
//!
//! Written to `performance.json` beside the build, and as tables into `docs/performance.md` ([`tables`]), whose prose stays as it is.

mod cells;
mod run;
mod tables;

use std::fs;
use std::path::Path;

use super::measure::others_cores;
use super::report::Report;
use super::{Context, Folders, Outcome, write_json};
use crate::Error;

use cells::Findings;

/// The name of the report, and of its files.
pub const NAME: &str = "performance";

/// A run's result.
#[derive(Debug)]
pub struct Performance {
    findings: Findings,
    /// Targets and series.
    pub report: Report,
}

impl Performance {
    /// Measures everything, in so many rounds or as many as is usual; the sources, whose commit is noted, are in `root`.
    ///
    /// # Errors
    /// A server does not start, or not behave.
    pub fn measure(context: &Context, rounds: Option<usize>, root: &Path) -> Result<Self, Error> {
        let findings = run::run(context, rounds)?;
        let outcome = Outcome {
            scale: findings.scale.clone(),
            targets: findings.targets(),
            series: findings.series(),
            chart: findings.chart(),
            others_cores: others_cores(findings.samples.values().flatten()),
        };
        let report = context.report(NAME, &outcome, root);
        Ok(Self { findings, report })
    }

    /// All tables, one below the other.
    pub fn text(&self) -> String {
        let tables = tables::all(&self.findings, &self.report);
        tables.into_iter().map(|(_, table)| table + "\n").collect()
    }

    /// Writes `performance.svg`, the tables of `performance.md` and `performance.json` into their folders.
    ///
    /// # Errors
    /// A file cannot be read or written, or the page lacks a table's place.
    pub fn write(&self, folders: &Folders) -> Result<(), Error> {
        write_json(&folders.json, &self.report)?;
        super::write_file(&folders.pages.join(format!("{NAME}.svg")), &self.findings.chart().svg())?;
        let path = folders.pages.join(format!("{NAME}.md"));
        let file = |source| Error::File {
            path: path.clone(),
            source,
        };
        let mut page = fs::read_to_string(&path).map_err(file)?;
        for (name, table) in tables::all(&self.findings, &self.report) {
            page = tables::put(&page, name, &table)?;
        }
        fs::write(&path, page).map_err(file)
    }
}
