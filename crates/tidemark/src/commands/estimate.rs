//! `tidemark estimate --trace FILE`: the cost of a load here. Memory follows from the trace's miss-ratio curve, CPU
//! time from the commands on this server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use tidemark_control::{LedgerReader, Query};
use tidemark_curve::{Eviction, Sampling};
use tidemark_meter::bill::{Bill, bill};
use tidemark_meter::estimate::{Load, size_for};
use tidemark_meter::price::Tariff;
use tidemark_meter::{Kind, Resource};
use tidemark_tools::curve::{self, Options, Report};
use tidemark_tools::progress::Lines;
use tidemark_tools::trace::{Format, Trace};
use tidemark_types::{Clock as _, HitRatio, Size, SystemClock};

use super::bench::failure;
use crate::client::ClientArgs;
use crate::failure::Failure;
use crate::output::{bytes_text, print, table};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark estimate --trace orders.oracleGeneral.zst
  tidemark estimate --trace pages.lis --rate 20000 --value-size 1KiB --hit-ratio 0.95
  tidemark estimate --trace pages.lis --rate 20000 --prices prices.toml --cpu-per-operation 2us";

/// Objects that are followed of a trace: enough for a ratio within a hundredth.
const SAMPLES: usize = 65_536;
/// Operations that a server's ledger must have for its CPU time per operation to mean something.
const OPERATIONS_MIN: u128 = 10_000;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    /// The trace, each request a get
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// How the trace is written, where its name does not tell
    #[arg(long, value_name = "F")]
    format: Option<Format>,
    /// The share of gets that shall find their key
    #[arg(long, value_name = "R", default_value = "0.9")]
    hit_ratio: f64,
    /// Requests a second, where the trace has no times or they should come faster
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Bytes per object, where the trace does not say it
    #[arg(long, default_value = "100", value_name = "SIZE")]
    value_size: Size,
    /// Bytes that each object takes beside its value: key, header, index
    #[arg(long, default_value = "50", value_name = "SIZE")]
    overhead: Size,
    /// CPU time of a command [default: as in this server's ledger]
    #[arg(long, value_name = "T")]
    cpu_per_operation: Option<String>,
    /// Prices [default: this server's]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    HitRatio::new(args.hit_ratio)
        .map_err(|error| Failure::usage(format!("--hit-ratio {}: {error}", args.hit_ratio)))?;
    if args.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
        return Err(Failure::usage("--rate must be above 0").into());
    }
    let client = args.client.client(data)?;
    // If both figures are given, no server is needed.
    let needs_server = args.prices.is_none() || args.cpu_per_operation.is_none();
    let ledger = needs_server.then(|| super::usage::open(client.folder())).transpose()?;
    let tariff = tariff(args, ledger.as_ref())?;
    let cpu_ns_per_operation = cpu_ns_per_operation(args, ledger.as_ref())?;
    let version = tariff.at(SystemClock.now()).map(|prices| prices.version.clone());
    let version = version.ok_or_else(|| Failure::usage("no prices are in force now"))?;
    let (gets_per_second, report) = read_trace(args)?;
    let points: Vec<(u64, f64)> = report
        .points
        .iter()
        .map(|point| (point.bytes, point.miss_ratio))
        .collect();
    // A ratio beyond the curve's end is had, if at all, by keeping everything.
    let memory_bytes = size_for(&points, args.hit_ratio).unwrap_or(report.distinct_bytes);
    let load = Load {
        gets_per_second,
        hit_ratio: args.hit_ratio,
        value_bytes: (report.distinct_bytes as f64 / report.objects.max(1) as f64 - args.overhead.0 as f64).max(0.0),
        memory_bytes,
        cpu_ns_per_operation,
    };
    let made = bill(&BTreeMap::from([(version, load.month())]), &tariff);
    Ok(print(&if json {
        as_json(&load, &made, &tariff)
    } else {
        as_text(&load, &made, &tariff)
    })?)
}

fn tariff(args: &Args, ledger: Option<&LedgerReader>) -> anyhow::Result<Tariff> {
    match (&args.prices, ledger) {
        (Some(file), _) => Ok(super::bill::read_prices(file)?),
        (None, Some(ledger)) => super::bill::kept_prices(ledger),
        (None, None) => Err(Failure::usage("give prices with --prices").into()),
    }
}

fn cpu_ns_per_operation(args: &Args, ledger: Option<&LedgerReader>) -> anyhow::Result<f64> {
    if let Some(text) = &args.cpu_per_operation {
        let time = tidemark_types::parse_duration(text);
        let time = time.map_err(|error| Failure::usage(format!("--cpu-per-operation {text}: {error}")))?;
        return Ok(time.as_nanos() as f64);
    }
    let (mut cpu_ns, mut operations) = (0_u128, 0_u128);
    if let Some(ledger) = ledger {
        ledger.each(&Query::default(), |row| {
            if row.entry.kind == Kind::Use {
                cpu_ns += u128::from(row.entry.usage.get(Resource::CpuNs));
                operations += u128::from(row.entry.usage.get(Resource::Operations));
            }
            true
        })?;
    }
    if operations < OPERATIONS_MIN {
        let message = "this server's ledger has too few commands to tell what one takes: give --cpu-per-operation T";
        return Err(Failure::usage(message).into());
    }
    Ok(cpu_ns as f64 / operations as f64)
}

/// How many requests a second there are, and the trace's curve.
fn read_trace(args: &Args) -> anyhow::Result<(f64, Report)> {
    let rate = match args.rate {
        Some(rate) => rate,
        None => rate_of(args)?,
    };
    let options = Options {
        by_class: false,
        path: args.trace.clone(),
        format: args.format,
        eviction: Eviction::Lru,
        sampling: Sampling { keys: SAMPLES, seed: 1 },
        sizes: Vec::new(),
        value_size_bytes: args.value_size.0,
        overhead_bytes: args.overhead.0,
    };
    let name = args
        .trace
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let lines = Lines::new(std::slice::from_ref(&name));
    let report = curve::run(&options, &mut |progress| {
        lines.set(0, progress.done_ratio, format!("{} requests", progress.requests));
    });
    Ok((rate, report.map_err(|error| failure(&error))?))
}

fn rate_of(args: &Args) -> anyhow::Result<f64> {
    let trace = Trace::open(&args.trace, args.format).map_err(|error| Failure::failed(error.to_string()))?;
    let (mut requests, mut first, mut last) = (0_u64, None, None);
    for request in trace {
        let request = request.map_err(|error| Failure::failed(error.to_string()))?;
        requests += 1;
        first = first.or(request.time_seconds);
        last = request.time_seconds.or(last);
    }
    let seconds = first
        .zip(last)
        .map(|(first, last)| last - first)
        .filter(|seconds| *seconds > 0.0);
    let unknown = || Failure::usage("the trace has no times: give the requests a second with --rate N");
    Ok(requests as f64 / seconds.ok_or_else(unknown)?)
}

fn as_text(load: &Load, made: &Bill, tariff: &Tariff) -> String {
    let mut text = format!(
        "{:.1} gets a second at a hit ratio of {:.2} %, with {} of memory and {:.0} ns of CPU time a command; 30 days:\n\n",
        load.gets_per_second,
        load.hit_ratio * 100.0,
        bytes_text(load.memory_bytes as f64),
        load.cpu_ns_per_operation
    );
    let names = ["METER", "AMOUNT", "PRICE OF A UNIT", "COST"];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    rows.extend(made.lines.iter().map(|line| {
        let amount = format!("{:.3} {}", line.quantity(), line.meter.unit);
        vec![
            line.meter.title.into(),
            amount,
            line.unit_price.to_string(),
            format!("{:.4}", line.cost.as_f64()),
        ]
    }));
    let total = format!("{:.4} {}", made.total.as_f64(), tariff.currency);
    rows.push(vec!["total".into(), String::new(), String::new(), total]);
    text += &table(&rows);
    text
}

fn as_json(load: &Load, made: &Bill, tariff: &Tariff) -> String {
    let lines: Vec<_> = made
        .lines
        .iter()
        .map(|line| json!({"meter": line.meter.key, "quantity": line.quantity(), "unit": line.meter.unit, "cost": line.cost.to_string()}))
        .collect();
    json!({
        "gets_per_second": load.gets_per_second,
        "hit_ratio": load.hit_ratio,
        "memory_bytes": load.memory_bytes,
        "cpu_ns_per_operation": load.cpu_ns_per_operation,
        "currency": tariff.currency,
        "days": 30,
        "lines": lines,
        "total": made.total.to_string(),
    })
    .to_string()
}
