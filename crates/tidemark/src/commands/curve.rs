//! `tidemark curve`: how the miss ratio of a trace falls with the cache's size.

use std::path::{Path, PathBuf};

use tidemark_curve::{Eviction, Sampling};
use tidemark_tools::curve::{self, Chart, DEFAULT_SAMPLES, Options, Picture, Progress, Report};
use tidemark_tools::progress::Lines;
use tidemark_tools::trace::Format;
use tidemark_types::Size;

use super::bench::failure;
use crate::failure::Failure;
use crate::output::{bytes_text, note, print};

const NOTES: &str = "\
More examples:
  tidemark curve pages.lis --sizes 1MiB,16MiB,256MiB --value-size 4KiB    at sizes of one's own
  tidemark curve orders.trace.xz --samples 8192 --seed 7                  from a sample, with its standard error
  tidemark curve orders.trace.xz --policy clock --overhead 50             with what a cache stores beside values

Each request is a get; what is missed is stored. Sizes count values, not keys, and --overhead for each object. A trace of \
more objects than --samples is sampled by its keys' hashes (SHARDS; other policies in miniature), and each ratio then comes \
with its standard error. A trace that has to be read twice (for default sizes, or a policy other than lru) can not be a pipe.

Formats:
  oracleGeneral  libCacheSim's 24-byte records      i32be, i64be  big-endian keys (cache2k, Caffeine)
  decimal        one key per line                   lis           `start count 0 line` (ARC)
  ibm-csv        the IBM Docker registry's CSV, also in a tar archive
xz, gzip and zstd are read directly.";

#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// How the trace is written, where its name does not tell
    #[arg(long, value_name = "F")]
    format: Option<Format>,
    /// The eviction policy: lru, fifo, clock, s3fifo or approx-lru:SHARE
    #[arg(long, default_value_t, value_name = "P")]
    policy: Eviction,
    /// Follow every object, whatever memory that takes (about 100 bytes each)
    #[arg(long, conflicts_with = "samples")]
    exact: bool,
    /// Objects followed at most; traces of no more are measured exactly
    #[arg(long, default_value_t = DEFAULT_SAMPLES, value_name = "N")]
    samples: usize,
    /// The seed that decides which objects are sampled
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Cache sizes [default: 1, 2, 5, 10, 20, 40, 60, 80 % of the distinct bytes]
    #[arg(long, value_delimiter = ',', value_name = "S,S,...")]
    sizes: Vec<Size>,
    /// Bytes per object, where the trace does not say it
    #[arg(long, default_value = "1", value_name = "SIZE")]
    value_size: Size,
    /// Bytes that each object takes beside its value
    #[arg(long, default_value = "0", value_name = "SIZE")]
    overhead: Size,
    /// Draw the curve as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw the curve as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let name = args
        .trace
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let lines = Lines::new(std::slice::from_ref(&name));
    let report = curve::run(&options(args), &mut |progress| {
        lines.set(0, progress.done_ratio, message(progress));
    });
    drop(lines);
    let report = report.map_err(|error| failure(&error))?;
    draw(&Chart::new(&name, &report), args.svg.as_deref(), args.png.as_deref())?;
    if json {
        return Ok(print(&serde_json::to_string(&report)?)?);
    }
    note(&summary(&report));
    Ok(print(&table(&report))?)
}

fn options(args: &Args) -> Options {
    let keys = if args.exact { Sampling::EXACT.keys } else { args.samples };
    Options {
        by_class: false,
        path: args.trace.clone(),
        format: args.format,
        eviction: args.policy,
        sampling: Sampling { keys, seed: args.seed },
        sizes: args.sizes.iter().map(|size| size.0).collect(),
        value_size_bytes: args.value_size.0,
        overhead_bytes: args.overhead.0,
    }
}

/// Draws the chart into the files that are asked for.
pub(super) fn draw(chart: &Chart<'_>, svg: Option<&Path>, png: Option<&Path>) -> anyhow::Result<()> {
    if svg.is_none() && png.is_none() {
        return Ok(());
    }
    draw_picture(&chart.picture(), svg, png)
}

/// Writes a picture into the files that are asked for.
pub(super) fn draw_picture(picture: &Picture, svg: Option<&Path>, png: Option<&Path>) -> anyhow::Result<()> {
    if let Some(file) = svg {
        write(file, picture.svg().as_bytes())?;
    }
    if let Some(file) = png {
        let png = curve::png(picture).ok_or_else(|| Failure::failed("there is no memory to draw the PNG in"))?;
        write(file, &png)?;
    }
    Ok(())
}

fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    std::fs::write(file, content).map_err(|error| Failure::failed(format!("{}: {error}", file.display())).into())
}

fn message(progress: Progress) -> String {
    format!("{} requests", progress.requests)
}

/// The subject of the figures, for people.
fn summary(report: &Report) -> String {
    let mut text = format!(
        "{} requests for {} objects of {} in all; {}",
        report.requests,
        report.objects,
        bytes_text(report.distinct_bytes as f64),
        report.policy
    );
    match report.sampled_objects {
        Some(sampled) => text.push_str(&format!(", from a sample of {sampled} objects")),
        None => text.push_str(", exact"),
    }
    if let Some(skew) = report.skew {
        text.push_str(&format!(
            "; Zipf's law with exponent {:.2} explains {:.0} %",
            skew.alpha,
            skew.r_squared * 100.0
        ));
    }
    text
}

fn table(report: &Report) -> String {
    let is_sampled = report.sampled_objects.is_some();
    let mut text = format!(
        "{:>16}  {:>10}  {:>10}  {:>10}",
        "BYTES", "SIZE", "MISS RATIO", "HIT RATIO"
    );
    if is_sampled {
        text.push_str("  STANDARD ERROR");
    }
    for point in &report.points {
        let ratio = |ratio: f64| format!("{:.2} %", ratio * 100.0);
        text.push_str(&format!(
            "\n{:>16}  {:>10}  {:>10}  {:>10}",
            point.bytes,
            bytes_text(point.bytes as f64),
            ratio(point.miss_ratio),
            ratio(1.0 - point.miss_ratio)
        ));
        if let Some(error) = point.standard_error {
            text.push_str(&format!("  {:>14}", ratio(error)));
        }
    }
    text
}
