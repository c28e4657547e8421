//! `tidemark replay`: traces against a running server.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidemark_tools::client::{Protocol, resolve};
use tidemark_tools::progress::Lines;
use tidemark_tools::replay::{self, Options, Progress, Report, Source};
use tidemark_tools::trace::{Format, Trace};
use tidemark_types::{Size, TenantName};

use super::bench::{failure, secrets};
use crate::output::print;

const NOTES: &str = "\
More examples:
  tidemark replay keys.txt.gz --format decimal --value-size 500
  tidemark replay shop=orders.trace.xz blog=pages.lis --secret-file F     each as a tenant; F has lines `name secret`
  tidemark replay w1.oracleGeneral.zst --speed 60                         an hour of the trace in a minute

Every request is a get; what is missed is set, with the trace's size or --value-size, at most 1MiB.

Formats:
  oracleGeneral  libCacheSim's 24-byte records      i32be, i64be  big-endian keys (cache2k, Caffeine)
  decimal        one key per line                   lis           `start count 0 line` (ARC)
  ibm-csv        the IBM Docker registry's CSV, also in a tar archive
xz, gzip and zstd are read directly. A file whose name holds `=` is written ./NAME.";

#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Traces, replayed at once, each as its own tenant
    #[arg(required = true, value_name = "[TENANT=]TRACE")]
    traces: Vec<Named>,
    /// How the traces are written, where their names do not tell
    #[arg(long, value_name = "F")]
    format: Option<Format>,
    /// memcached or redis
    #[arg(long, default_value_t = Protocol::Memcached, value_name = "P")]
    protocol: Protocol,
    /// The server [default: 127.0.0.1:11211 for memcached, 127.0.0.1:6379 for redis]
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// A file with one secret, or a line `name secret` for each tenant; else TIDEMARK_SECRET
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Bytes per value, where the trace does not say it
    #[arg(long, default_value = "100", value_name = "SIZE")]
    value_size: Size,
    /// How many times faster than in the trace time passes; as fast as possible if not given
    #[arg(long, value_name = "X")]
    speed: Option<f64>,
}

/// A trace and, before a `=`, whose it is.
#[derive(Clone, Debug)]
struct Named {
    tenant: Option<TenantName>,
    path: PathBuf,
}

impl FromStr for Named {
    type Err = std::convert::Infallible;

    /// Text before a `=` that cannot be a tenant's name belongs to the file's.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let split = text
            .split_once('=')
            .and_then(|(name, path)| Some((name.parse().ok()?, path)));
        Ok(match split {
            Some((tenant, path)) => Self {
                tenant: Some(tenant),
                path: path.into(),
            },
            None => Self {
                tenant: None,
                path: text.into(),
            },
        })
    }
}

pub(crate) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let options = options(args)?;
    let lines = Lines::new(&args.traces.iter().map(label).collect::<Vec<_>>());
    let report = replay::run(options, &mut |progress| {
        for (line, progress) in progress.iter().enumerate() {
            lines.set(line, progress.done_ratio, message(progress));
        }
    });
    drop(lines);
    let report = report.map_err(|error| failure(&error))?;
    let text = if json {
        serde_json::to_string(&report)?
    } else {
        table(&report)
    };
    Ok(print(&text)?)
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let secrets = secrets(args.secret_file.as_deref())?;
    let mut sources = Vec::new();
    for named in &args.traces {
        let login = match &named.tenant {
            Some(tenant) => secrets.login(tenant).map_err(|error| failure(&error))?,
            None => None,
        };
        let trace = Trace::open(&named.path, args.format).map_err(|error| failure(&error.into()))?;
        sources.push(Source { trace, login });
    }
    let address = args.address.as_deref().unwrap_or(args.protocol.default_address());
    Ok(Options {
        address: resolve(address).map_err(|error| failure(&error))?,
        protocol: args.protocol,
        sources,
        value_size_bytes: usize::try_from(args.value_size.0).unwrap_or(usize::MAX),
        speed: args.speed,
    })
}

fn label(named: &Named) -> String {
    let file = Path::file_name(&named.path).unwrap_or_default().to_string_lossy();
    match &named.tenant {
        Some(tenant) => format!("{tenant}={file}"),
        None => file.into_owned(),
    }
}

fn message(progress: &Progress) -> String {
    let ratio = progress.hits as f64 / progress.requests.max(1) as f64;
    format!("{} requests, {:.2} % hits", progress.requests, ratio * 100.0)
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "{:>10}  {:>10}  {:>8}  {:>8}  {:>8}  TENANT  TRACE",
        "REQUESTS", "HITS", "RATIO", "REFUSED", "SECONDS"
    );
    for trace in &report.traces {
        let ratio = trace
            .hit_ratio
            .map_or("-".into(), |ratio| format!("{:.2} %", ratio * 100.0));
        text.push_str(&format!(
            "\n{:>10}  {:>10}  {ratio:>8}  {:>8}  {:>8.1}  {:<6}  {}",
            trace.requests, trace.hits, trace.refused, trace.seconds, trace.tenant, trace.trace
        ));
    }
    text
}
