//! Tidemark's store beside other cache libraries, in process: operations per second, bytes per item, hit ratio.
//!
//! Every measurement runs in a process of its own, which this program starts with its subcommand `measure`, one at a
//! time. The caches alternate, so that a machine that gets slower does so for all.
#![forbid(unsafe_code)]

mod bench;
mod engine;
mod load;
mod measure;
mod page;
mod report;
mod search;
mod settings;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use bench::Bench;
use measure::Spec;
use tidemark_experiments::experiment::Folders;

/// Compares Tidemark's store with segcache, quick_cache, foyer and moka, in process.
///
/// Writes the tables of docs/experiments/engines.md, and engines.json beside the build, in about half an hour.
#[derive(Debug, Parser)]
#[command(
    version,
    before_help = "Examples:\n  cargo run --release --manifest-path crates/experiments/engines/Cargo.toml\n  \
        cargo run --release --manifest-path crates/experiments/engines/Cargo.toml -- --quick"
)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    compare: Compare,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One measurement in this process; prints what came of it as JSON
    Measure(Spec),
}

#[derive(Args, Debug)]
struct Compare {
    /// Small loads, two rounds: two minutes that only show that it works; prints the tables, and writes only with --out
    #[arg(long)]
    quick: bool,
    /// The folder of all files [default: docs/experiments of the repository, JSON beside the build]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Rounds in which all caches take turns [default: 7, quick 2]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// The seed of the generated load
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// A file that is locked during each round, for programs that must not be measured at the same time
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.command {
        Some(Command::Measure(spec)) => measure_one(spec),
        None => compare(&options.compare),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, there is nobody to tell.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure_one(spec: &Spec) -> Result<()> {
    let outcome = measure::measure(spec)?;
    print(&serde_json::to_string(&outcome)?)
}

fn compare(options: &Compare) -> Result<()> {
    let scale = if options.quick { settings::QUICK } else { settings::FULL };
    let scale = settings::Scale {
        rounds: options.rounds.unwrap_or(scale.rounds).max(1),
        ..scale
    };
    let bench = Bench::new(options.lock.as_deref())?;
    let results = settings::run(&bench, &scale, options.seed)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let report = report::report(&results, &scale, options.seed, &root);
    let tables = page::tables(&results, &report);
    let folders = match &options.out {
        Some(folder) => Folders::one(folder),
        None if options.quick => return print(&page::plain(&tables)),
        None => Folders::of_repository(&root, page::FOLDER),
    };
    page::write(&root, &folders, &report, &tables)
        .with_context(|| format!("{}: the results can not be written", folders.pages.display()))
}

fn print(text: &str) -> Result<()> {
    writeln!(io::stdout(), "{text}").context("standard output can not be written")
}
