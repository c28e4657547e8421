//! `tidemark bill TENANT --month YYYY-MM`: the amount that a tenant owes, as formulas with their numbers, and the cost
//! of a fixed instance. It reads the ledger's file and the prices that are kept in it.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidemark_control::{LedgerReader, Query};
use tidemark_meter::bill::{Bill, Fixed, Peak, Used, bill, fixed};
use tidemark_meter::export::Focus;
use tidemark_meter::price::{CpuFigure, Tariff, parse};
use tidemark_meter::{Entry, Kind, Resource};
use tidemark_types::utc;

use crate::client::ClientArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::{bytes_text, print, table};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark bill shop --month 2026-08
  tidemark bill shop --month 2026-08 --prices other.toml    what it would cost by other prices
  tidemark bill shop --month 2026-08 --json";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    tenant: String,
    /// A month in UTC
    #[arg(long, value_name = "YYYY-MM")]
    month: String,
    /// Prices to reckon with instead of those that were in force; all of the month by those at its end
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let client = args.client.client(data)?;
    let Some((from, to)) = utc::month_range(&args.month) else {
        let place = format!("--month {}", args.month.escape_debug());
        return Err(Failure::usage(format!("{place}: write a month such as 2026-08")).into());
    };
    let ledger = super::usage::open(client.folder())?;
    let (tariff, only) = match &args.prices {
        Some(file) => {
            let tariff = read_prices(file)?;
            let last = tariff
                .at(tidemark_types::UnixMs(to.0 - 1))
                .map(|prices| prices.version.clone());
            let none = || Failure::usage(format!("--prices {}: no prices for {}", file.display(), args.month));
            (tariff.clone(), Some(last.ok_or_else(none)?))
        }
        None => (kept_prices(&ledger)?, None),
    };
    let query = Query {
        tenant: Some(args.tenant.clone()),
        from,
        to,
        ..Query::default()
    };
    let month = Month::read(&ledger, &query, args, &tariff, only.as_deref())?;
    if month.used.is_empty() {
        let message = format!(
            "the ledger has nothing of tenant `{}` in {}",
            args.tenant.escape_debug(),
            args.month
        );
        return Err(Failure::new(FailureKind::NotFound, message).into());
    }
    let made = bill(&month.used, &tariff);
    let beside = fixed(&tariff, &month.peak, &month.all());
    let text = if json {
        as_json(args, &month, &made, &beside, &tariff).to_string()
    } else {
        as_text(args, &month, &made, &beside, &tariff)
    };
    Ok(print(&text)?)
}

/// Rows of the ledger as FOCUS.
pub(super) fn focus(ledger: &LedgerReader, query: &Query) -> anyhow::Result<()> {
    let tariff = kept_prices(ledger)?;
    let (mut focus, mut out) = (Focus::new(&tariff), BufWriter::new(io::stdout().lock()));
    writeln!(out, "{}", Focus::header())?;
    let mut result = Ok(());
    ledger.each(query, |row| {
        result = focus.charges(&row).iter().try_for_each(|line| writeln!(out, "{line}"));
        result.is_ok()
    })?;
    result?;
    Ok(out.flush()?)
}

/// A prices file, a mistake named with its line.
pub(super) fn read_prices(file: &Path) -> Result<Tariff, Failure> {
    let place = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| Failure::usage(format!("{place}: {error}")))?;
    parse(&text).map_err(|error| Failure::usage(format!("{place}: {error}")))
}

/// All prices that the ledger's rows name: of each version the newest file that has it.
pub(super) fn kept_prices(ledger: &LedgerReader) -> anyhow::Result<Tariff> {
    let mut together: Option<Tariff> = None;
    for (version, text) in ledger.prices()? {
        let one =
            parse(&text).map_err(|error| Failure::failed(format!("prices `{version}` in the ledger: {error}")))?;
        let of_version = one.prices.iter().find(|prices| prices.version == version).cloned();
        match &mut together {
            Some(tariff) => tariff.prices.extend(of_version),
            None => {
                together = Some(Tariff {
                    prices: of_version.into_iter().collect(),
                    ..one
                });
            }
        }
    }
    let none = "the ledger names no prices: start the server with --prices FILE, or give a file with --prices";
    Ok(together.ok_or_else(|| Failure::new(FailureKind::NotFound, none))?)
}

/// The use of a tenant in a month.
#[derive(Default)]
struct Month {
    /// The use by prices.
    used: BTreeMap<String, Used>,
    peak: Peak,
    measured_cpu_ns: u128,
    modelled_cpu_ns: Option<u128>,
    rows: u64,
}

impl Month {
    fn read(
        ledger: &LedgerReader,
        query: &Query,
        args: &Args,
        tariff: &Tariff,
        only: Option<&str>,
    ) -> anyhow::Result<Self> {
        let mut month = Self::default();
        let version = |version: &str| only.unwrap_or(version).to_owned();
        for (key, sums) in ledger.carried()?.0 {
            let is_it = key.kind == Kind::Use && key.month == args.month;
            if is_it && key.tenant.is_some_and(|tenant| tenant.name == args.tenant) {
                let commands = sums.commands.iter().map(|(command, count)| (command.as_str(), *count));
                let used = month.used.entry(version(&key.price_version)).or_default();
                used.add_sums(&sums.totals, commands, key.is_modelled, tariff);
                month.measured_cpu_ns += sums.totals.get(Resource::CpuNs);
            }
        }
        ledger.each(query, |row| {
            month.add(&row.entry, tariff, version(&row.entry.price_version));
            true
        })?;
        Ok(month)
    }

    fn add(&mut self, entry: &Entry, tariff: &Tariff, version: String) {
        if entry.kind != Kind::Use {
            return;
        }
        self.rows += 1;
        self.used.entry(version).or_default().add(entry, tariff);
        self.peak.add(entry, Some(tariff));
        self.measured_cpu_ns += u128::from(entry.usage.get(Resource::CpuNs));
        if let Some(ns) = entry.cpu_model_ns() {
            *self.modelled_cpu_ns.get_or_insert(0) += u128::from(ns);
        }
    }

    fn all(&self) -> Used {
        self.used.values().fold(Used::default(), |mut all, used| {
            all.add_all(used);
            all
        })
    }
}

fn as_text(args: &Args, month: &Month, made: &Bill, beside: &[Fixed], tariff: &Tariff) -> String {
    let currency = &tariff.currency;
    let mut text = format!(
        "Bill of tenant {} for {}, in {currency}, by {} rows of the ledger\n\n",
        args.tenant, args.month, month.rows
    );
    let names = ["METER", "PRICES", "AMOUNT", "PRICE OF A UNIT", "COST"];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    rows.extend(made.lines.iter().map(|line| {
        let amount = format!("{:.9} {}", line.quantity(), line.meter.unit);
        vec![
            line.meter.title.into(),
            line.version.clone(),
            amount,
            line.unit_price.to_string(),
            line.cost.to_string(),
        ]
    }));
    rows.push(vec![
        "total".into(),
        String::new(),
        String::new(),
        String::new(),
        made.total.to_string(),
    ]);
    text += &table(&rows);
    text += "\n\nHow each cost follows from the ledger's sums:\n";
    for line in &made.lines {
        text += &format!("  {} ({}): {}\n", line.meter.title, line.version, line.formula());
    }
    text += &cpu_text(month, tariff);
    for version in &made.unpriced {
        let version = if version.is_empty() {
            "no prices".to_owned()
        } else {
            format!("prices `{version}`, which are not known")
        };
        text += &format!("Not in the total: use under {version}.\n");
    }
    text += &fixed_text(month, beside, made, currency);
    text.trim_end().to_owned()
}

fn cpu_text(month: &Month, tariff: &Tariff) -> String {
    let seconds = |ns: u128| format!("{:.3} s", ns as f64 / 1e9);
    let measured = seconds(month.measured_cpu_ns);
    match (month.modelled_cpu_ns, tariff.cpu) {
        (None, CpuFigure::Measured) => format!("CPU time: {measured} measured, which is billed.\n"),
        (None, CpuFigure::Modelled) => {
            format!("CPU time: {measured} measured, which is billed since no model was in use.\n")
        }
        (Some(modelled), figure) => {
            let billed = if figure == CpuFigure::Modelled {
                "the modelled"
            } else {
                "the measured"
            };
            let modelled = seconds(modelled);
            format!(
                "CPU time: {measured} measured, {modelled} modelled; {billed} one is billed. Modelled figures of all tenants need \
                 not add up to what the process used.\n"
            )
        }
    }
}

fn fixed_text(month: &Month, beside: &[Fixed], made: &Bill, currency: &str) -> String {
    let Peak {
        vcpus,
        memory_bytes,
        hours,
        ..
    } = month.peak;
    let peak = format!(
        "a peak of {vcpus:.3} vCPU and {} over {hours:.2} h",
        bytes_text(memory_bytes as f64)
    );
    if beside.is_empty() {
        return format!("\nNo fixed instance in the prices fits {peak}.\n");
    }
    let mut text = format!("\nA fixed instance for {peak}:\n");
    for (number, one) in beside.iter().enumerate() {
        let case = if number == 0 {
            "the peak just fits"
        } else {
            "the peak is just above the one before"
        };
        text += &format!(
            "  {}: {} {currency} ({case}); {:.1} % of its CPU and {:.1} % of its memory unused; the bill above is {} {currency}\n",
            one.instance.name,
            one.cost,
            one.unused_cpu_ratio * 100.0,
            one.unused_memory_ratio * 100.0,
            made.total
        );
    }
    text
}

fn as_json(args: &Args, month: &Month, made: &Bill, beside: &[Fixed], tariff: &Tariff) -> Value {
    let lines: Vec<Value> = made
        .lines
        .iter()
        .map(|line| {
            json!({
                "meter": line.meter.key,
                "price_version": line.version,
                "amount": line.amount.to_string(),
                "quantity": line.quantity(),
                "unit": line.meter.unit,
                "unit_price": line.unit_price.to_string(),
                "cost": line.cost.to_string(),
                "formula": line.formula(),
            })
        })
        .collect();
    let beside: Vec<Value> = beside
        .iter()
        .map(|one| {
            json!({
                "instance": one.instance.name,
                "cost": one.cost.to_string(),
                "unused_cpu_ratio": one.unused_cpu_ratio,
                "unused_memory_ratio": one.unused_memory_ratio,
            })
        })
        .collect();
    json!({
        "tenant": args.tenant,
        "month": args.month,
        "currency": tariff.currency,
        "lines": lines,
        "total": made.total.to_string(),
        "unpriced": made.unpriced,
        "cpu_measured_seconds": month.measured_cpu_ns as f64 / 1e9,
        "cpu_modelled_seconds": month.modelled_cpu_ns.map(|ns| ns as f64 / 1e9),
        "fixed": beside,
    })
}
