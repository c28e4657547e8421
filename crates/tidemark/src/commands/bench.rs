//! `tidemark bench`: a generated load on a running server.

use std::path::{Path, PathBuf};

use tidemark_tools::bench::{self, Options, Progress, Report, Workload};
use tidemark_tools::client::{Protocol, Secrets, resolve};
use tidemark_tools::load::{Distribution, Lifetimes, Order, ValueSize};
use tidemark_tools::progress::Lines;
use tidemark_tools::{Error, Fault};
use tidemark_types::TenantName;

use crate::failure::{Failure, FailureKind};
use crate::output::{note, print};

/// The environment variable that may hold a secret, besides a file.
const SECRET_VARIABLE: &str = "TIDEMARK_SECRET";

const NOTES: &str = "\
More examples:
  tidemark bench --preload --keys 10000000 --pipeline 50        store all keys, then measure
  tidemark bench --zipf 0.99 --look-aside --value-size etc      a cache's load: what was missed is stored
  TIDEMARK_SECRET=... tidemark bench --tenant shop              as a tenant
  tidemark bench --tenant shop --tenant blog --secret-file F    as two; F has a line `name secret` for each

Without --rate every connection keeps its pipeline full (closed loop). With --rate requests are due at fixed times and \
latency counts from then (open loop); the load uses a whole core while it waits. A value's size and bytes follow from \
its key, so that a reply of another length counts as an error, with --verify one of other bytes too. A run with errors \
ends with exit code 1.";

#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// memcached or redis
    #[arg(long, default_value_t = Protocol::Memcached, value_name = "P")]
    protocol: Protocol,
    /// The server [default: 127.0.0.1:11211 for memcached, 127.0.0.1:6379 for redis]
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// A tenant to log in as; several share the connections evenly. Its secret: TIDEMARK_SECRET or --secret-file
    #[arg(long = "tenant", value_name = "NAME")]
    tenants: Vec<TenantName>,
    /// A file with one secret, or a line `name secret` for each tenant
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Connections, of all tenants and threads together
    #[arg(long, default_value_t = 64, value_name = "N")]
    connections: usize,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 1, value_name = "N")]
    pipeline: usize,
    /// Threads that share the connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: usize,
    #[command(flatten)]
    load: LoadArgs,
    /// Requests per second, of all connections together (open loop)
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How long to measure
    #[arg(long, default_value_t = 10.0, value_name = "N")]
    seconds: f64,
    /// Store every key before measuring
    #[arg(long)]
    preload: bool,
    /// Store missed keys
    #[arg(long)]
    look_aside: bool,
    /// Check every byte of every value
    #[arg(long)]
    verify: bool,
}

// The load. (It is no documentation comment: clap would take it for the command's.)
#[derive(Debug, clap::Args)]
struct LoadArgs {
    /// How many keys there are, per tenant
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    keys: u64,
    #[command(flatten)]
    distribution: DistributionArgs,
    /// Make the smallest key numbers the popular ones instead of scattering them
    #[arg(long)]
    ranked: bool,
    /// Bytes per key
    #[arg(long, default_value_t = 16, value_name = "N")]
    key_size: usize,
    /// Bytes per value: a size, a range A-B, or etc (Facebook's general-purpose pool)
    #[arg(long, default_value = "64", value_name = "N|A-B|etc")]
    value_size: ValueSize,
    /// The share of gets, 0 to 1; the rest are sets
    #[arg(long, default_value_t = 0.9, value_name = "R")]
    reads: f64,
    /// The seed of all randomness
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct DistributionArgs {
    /// Keys by Zipf's law with this exponent
    #[arg(long, value_name = "S")]
    zipf: Option<f64>,
    /// All keys equally often (the default)
    #[arg(long)]
    uniform: bool,
    /// Keys by an exponential law with this rate per key
    #[arg(long, value_name = "L")]
    exponential: Option<f64>,
}

pub(crate) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let options = options(args)?;
    let lines = Lines::new(&["bench".into()]);
    let report = bench::run(&options, &mut |progress| {
        lines.set(0, progress.done_ratio, message(progress));
    });
    drop(lines);
    let report = report.map_err(|error| failure(&error))?;
    for remark in remarks(&report) {
        note(&remark);
    }
    let text = if json {
        serde_json::to_string(&report)?
    } else {
        table(&report)
    };
    print(&text)?;
    Ok(verdict(&report)?)
}

/// A run with errors is a failure: its figures are of a load that was not served in full.
fn verdict(report: &Report) -> Result<(), Failure> {
    let errors = report.errors + report.preload_errors;
    if errors == 0 {
        return Ok(());
    }
    let first = report.first_mistake.as_deref().unwrap_or("not told");
    Err(Failure::failed(format!("{errors} requests failed; the first: {first}")))
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let load = &args.load;
    let distribution = match (load.distribution.zipf, load.distribution.exponential) {
        (Some(alpha), _) => Distribution::Zipf { alpha },
        (None, Some(lambda)) => Distribution::Exponential { lambda },
        (None, None) => Distribution::Uniform,
    };
    let address = args.address.as_deref().unwrap_or(args.protocol.default_address());
    let secrets = secrets(args.secret_file.as_deref())?;
    let mut logins = Vec::new();
    for tenant in &args.tenants {
        logins.push(secrets.login(tenant).map_err(|error| failure(&error))?);
    }
    Ok(Options {
        address: resolve(address).map_err(|error| failure(&error))?,
        protocol: args.protocol,
        logins: if logins.is_empty() { vec![None] } else { logins },
        keys_apart: false,
        connections: args.connections,
        pipeline: args.pipeline,
        threads: args.threads,
        workload: Workload {
            keys: load.keys,
            distribution,
            order: if load.ranked { Order::Ranked } else { Order::Scrambled },
            key_size_bytes: load.key_size,
            value_size: load.value_size,
            reads_ratio: load.reads,
            fresh_ratio: 0.0,
            lifetimes: Lifetimes::default(),
            seed: load.seed,
        },
        rate: args.rate,
        burst: 1,
        sleeps: false,
        seconds: args.seconds,
        preload: args.preload,
        look_aside: args.look_aside,
        verify: args.verify,
    })
}

/// The secrets from the file, or else from the environment.
pub(super) fn secrets(file: Option<&Path>) -> anyhow::Result<Secrets> {
    let text = match file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => FailureKind::NotFound,
                _ => FailureKind::Failed,
            };
            Failure::new(kind, format!("--secret-file {}: {error}", file.display()))
        })?,
        None => std::env::var(SECRET_VARIABLE).unwrap_or_default(),
    };
    Ok(Secrets::parse(&text).map_err(|error| failure(&error))?)
}

/// The failure, and so the exit code, that an error of the lab is.
pub(super) fn failure(error: &Error) -> Failure {
    let kind = match error.fault() {
        Fault::Usage => FailureKind::Usage,
        Fault::Denied => FailureKind::Denied,
        Fault::NotFound => FailureKind::NotFound,
        Fault::Failed => FailureKind::Failed,
    };
    Failure::new(kind, error.to_string())
}

fn message(progress: &Progress) -> String {
    let per_second = progress.requests as f64 / progress.elapsed.as_secs_f64().max(1e-9);
    let part = if progress.preloading {
        "storing keys"
    } else {
        "measuring"
    };
    let errors = match progress.errors {
        0 => String::new(),
        errors => format!(", {errors} errors"),
    };
    format!("{part}, {per_second:.0}/s{errors}")
}

/// The remarks for people besides the figures.
fn remarks(report: &Report) -> Vec<String> {
    let mut remarks = Vec::new();
    let bench::Mistakes {
        refused,
        wrong,
        unanswered,
    } = report.mistakes;
    if report.errors > 0 {
        remarks.push(format!(
            "errors: {refused} refused, {wrong} wrong replies, {unanswered} unanswered"
        ));
    }
    if report.preload_errors > 0 {
        remarks.push(format!(
            "errors while storing keys beforehand: {}",
            report.preload_errors
        ));
    }
    if report.unsent > 0 {
        let unsent = report.unsent;
        remarks.push(format!(
            "the server did not keep the rate: {unsent} requests that were due could not be sent"
        ));
    }
    remarks
}

fn table(report: &Report) -> String {
    let us = |value: Option<f64>| value.map_or("-".into(), |us| format!("{us:.1} us"));
    let latency = report.latency_us;
    let rows = [
        ("requests", report.requests.to_string()),
        ("errors", report.errors.to_string()),
        ("per second", format!("{:.0}", report.ops_per_second)),
        ("latency p50", us(latency.map(|latency| latency.p50))),
        ("latency p99", us(latency.map(|latency| latency.p99))),
        ("latency p99.9", us(latency.map(|latency| latency.p999))),
        (
            "hit ratio",
            report
                .hit_ratio
                .map_or("-".into(), |ratio| format!("{:.2} %", ratio * 100.0)),
        ),
        (
            "server cpu",
            report
                .server_cpu_ns_per_op
                .map_or("-".into(), |ns| format!("{ns:.0} ns per request")),
        ),
    ];
    rows.map(|(name, value)| format!("{name:<13}  {value}")).join("\n")
}
