//! `tidemark usage`: the use of tenants, from the ledger; and whether the ledger is as it was written.
//!
//! It reads the ledger's file, so that it also works while no server runs.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::{Subcommand, ValueEnum};
use serde_json::json;
use tidemark_control::{LedgerReader, Query};
use tidemark_meter::{Entry, Kind, Resource, Row, Totals, export};
use tidemark_types::{Clock as _, Outcome, SystemClock, UnixMs, parse_duration, utc};

use crate::client::ClientArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::{bytes_text, print, table};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark usage                                  every tenant, the last 24 hours
  tidemark usage shop --since 7d
  tidemark usage shop --since 2026-08-01 --format csv
  tidemark usage --format cloudevents | curl --data-binary @- ...
  tidemark usage verify                           whether each row is as it was written";

const VERIFY_EXAMPLES: &str = "Examples:\n  tidemark usage verify\n  tidemark usage verify --data /var/lib/tidemark";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    /// One tenant; without it all of them, and use that is no tenant's
    tenant: Option<String>,
    /// From so long ago (`7d`), or from a moment in UTC (`2026-08-01`, `2026-08-01T12:00:00Z`)
    #[arg(long, value_name = "T", default_value = "24h")]
    since: String,
    /// `table` sums up; all others have every row
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that no row was changed, removed, put in or moved
    #[command(before_help = VERIFY_EXAMPLES)]
    Verify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
    /// FinOps FOCUS 1.2
    Focus,
    /// CloudEvents 1.0, one event a line
    Cloudevents,
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let client = args.client.client(data)?;
    let ledger = open(client.folder())?;
    if let Some(Command::Verify) = args.command {
        return verify(&ledger, json);
    }
    let query = Query {
        tenant: args.tenant.clone(),
        from: since(&args.since, SystemClock.now())?,
        ..Query::default()
    };
    let format = if json && args.format == Format::Table {
        Format::Json
    } else {
        args.format
    };
    match format {
        Format::Table => show(&ledger, &query),
        Format::Focus => super::bill::focus(&ledger, &query),
        Format::Json | Format::Csv | Format::Cloudevents => write_rows(&ledger, &query, format),
    }
}

/// The ledger in a data folder.
pub(super) fn open(folder: &Path) -> Result<LedgerReader, Failure> {
    LedgerReader::open(folder).map_err(|error| {
        let folder = folder.display();
        Failure::new(
            FailureKind::NotFound,
            format!("there is no ledger to read in {folder}: {error}; name the server's data folder with --data"),
        )
    })
}

/// A moment, or how long ago one was.
fn since(text: &str, now: UnixMs) -> Result<UnixMs, Failure> {
    if let Some(at) = utc::parse(text) {
        return Ok(at);
    }
    let ago = parse_duration(text).map_err(|_| {
        let allowed = "write a time such as 24h or 7d, or a moment in UTC such as 2026-08-01 or 2026-08-01T12:00:00Z";
        Failure::usage(format!("--since {text}: {allowed}"))
    })?;
    Ok(UnixMs(
        now.0.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
    ))
}

fn verify(ledger: &LedgerReader, json: bool) -> anyhow::Result<()> {
    let verified = ledger
        .verify()?
        .map_err(|broken| Failure::failed(format!("the ledger is not whole: {broken}")))?;
    let text = if json {
        json!({
            "rows": verified.rows,
            "last_sequence": verified.last.sequence,
            "last_hash": verified.last.hash.to_string(),
            "dropped_sequence": verified.dropped,
        })
        .to_string()
    } else {
        let rows = [
            ("rows", verified.rows.to_string()),
            ("dropped before", verified.dropped.to_string()),
            ("last row", verified.last.sequence.to_string()),
            ("last hash", verified.last.hash.to_string()),
        ];
        let rows: Vec<Vec<String>> = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
        format!("every row is as it was written\n{}", table(&rows))
    };
    Ok(print(&text)?)
}

/// Every row, as it is read.
fn write_rows(ledger: &LedgerReader, query: &Query, format: Format) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if format == Format::Csv {
        writeln!(out, "{}", export::csv_header())?;
    }
    let (mut result, mut is_first) = (Ok(()), true);
    ledger.each(query, |row| {
        result = write_row(&mut out, &row, format, std::mem::take(&mut is_first));
        result.is_ok()
    })?;
    result?;
    if format == Format::Json {
        writeln!(out, "{}", if is_first { "{\"rows\":[]}" } else { "]}" })?;
    }
    Ok(out.flush()?)
}

fn write_row(out: &mut impl Write, row: &Row, format: Format, is_first: bool) -> io::Result<()> {
    match format {
        Format::Csv => writeln!(out, "{}", export::csv(row)),
        Format::Cloudevents => match export::cloud_event(row) {
            Some(event) => writeln!(out, "{event}"),
            None => Ok(()),
        },
        _ => {
            let before = if is_first { "{\"rows\":[" } else { ",\n" };
            write!(out, "{before}{}", export::json(row))
        }
    }
}

/// The subject of a sum: a tenant, or use that is no tenant's.
type Line = (Kind, String);

/// The use of all rows of a subject.
#[derive(Default)]
struct Sums {
    totals: Totals,
    /// Commands that found none of their keys, and those that were answered with an error.
    misses: u64,
    errors: u64,
    is_modelled: bool,
}

impl Sums {
    fn add(&mut self, entry: &Entry) {
        self.totals.add(&entry.usage);
        self.misses += entry.commands_with(Outcome::Miss);
        self.errors += entry.commands_with(Outcome::Error);
        self.is_modelled |= entry.is_modelled;
    }
}

fn show(ledger: &LedgerReader, query: &Query) -> anyhow::Result<()> {
    let mut sums: BTreeMap<Line, Sums> = BTreeMap::new();
    let mut events = Vec::new();
    ledger.each(query, |row| {
        let entry = &row.entry;
        match entry.kind {
            Kind::Use | Kind::Unattributed | Kind::Unexplained => {
                let name = entry
                    .tenant
                    .as_ref()
                    .map_or_else(|| format!("({})", entry.kind.name()), |tenant| tenant.name.clone());
                sums.entry((entry.kind, name)).or_default().add(entry);
            }
            Kind::Gap | Kind::Jump => {
                let (from, to) = (utc::rfc3339(entry.from), utc::rfc3339(entry.to));
                events.push(format!("{} {from} to {to}: {}", entry.kind.name(), entry.note));
            }
            Kind::End | Kind::Checkpoint => {}
        }
        true
    })?;
    let names = [
        "TENANT",
        "CPU",
        "CPU BY MODEL",
        "MEMORY",
        "IN",
        "OUT",
        "OPERATIONS",
        "MISSES",
        "ERRORS",
        "HIT RATIO",
    ];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    rows.extend(sums.iter().map(|((kind, name), sums)| line(*kind, name, sums)));
    let mut text = table(&rows);
    for event in events {
        text += &format!("\n{event}");
    }
    Ok(print(&text)?)
}

fn line(kind: Kind, name: &str, sums: &Sums) -> Vec<String> {
    let totals = &sums.totals;
    let seconds = |resource| format!("{:.3} s", totals.get(resource) as f64 / 1e9);
    let bytes = |resource| bytes_text(totals.get(resource) as f64);
    let is_tenant = kind == Kind::Use;
    let of_tenant = |text: String| if is_tenant { text } else { "-".into() };
    let gets = totals.get(Resource::Gets);
    let hit_ratio = totals.get(Resource::Hits) as f64 / gets.max(1) as f64 * 100.0;
    vec![
        name.to_owned(),
        seconds(Resource::CpuNs),
        if sums.is_modelled {
            seconds(Resource::CpuModelNs)
        } else {
            "-".into()
        },
        of_tenant(format!(
            "{:.6} GiB h",
            totals.get(Resource::MemoryByteSeconds) as f64 / (3600.0 * (1_u64 << 30) as f64)
        )),
        of_tenant(bytes(Resource::NetworkInBytes)),
        of_tenant(bytes(Resource::NetworkOutBytes)),
        of_tenant(totals.get(Resource::Operations).to_string()),
        of_tenant(sums.misses.to_string()),
        of_tenant(sums.errors.to_string()),
        if gets > 0 {
            format!("{hit_ratio:.2} %")
        } else {
            "-".into()
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_moment_or_a_time() {
        let now = UnixMs(1_785_542_400_000);
        for (text, expected) in [
            ("1h", now.0 - 3_600_000),
            ("2026-07-31", now.0 - 86_400_000),
            ("2026-07-31T23:59:59Z", now.0 - 1000),
            ("99999d", 0),
        ] {
            assert_eq!(since(text, now).unwrap(), UnixMs(expected), "{text}");
        }
        for text in ["", "yesterday", "2026-13-01", "-5h"] {
            assert!(since(text, now).is_err(), "{text}");
        }
    }
}
