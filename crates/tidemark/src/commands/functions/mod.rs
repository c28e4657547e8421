//! `tidemark functions`: plan, make and look at pools of cloud functions.

mod plan;
mod pool;
mod probe;

use std::path::Path;

use clap::Subcommand;

use crate::client::ClientArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark functions plan
  tidemark functions plan --functions 200 --memory 3GiB --code 10+2 --requests 5000
  tidemark functions plan --reclaim zipf:1.8 --backup-every never --json
  tidemark functions deploy functions.toml --bootstrap target/bootstrap/x86_64-unknown-linux-musl/release/bootstrap
  tidemark functions status
  tidemark functions probe functions.toml --every 1m --intervals 600
  tidemark functions resize functions.toml
  tidemark functions remove functions.toml
  tidemark functions remove functions.toml --tenant photos";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

const PROGRAM_EXAMPLES: &str = "Examples:\n  AWS_LAMBDA_RUNTIME_API=127.0.0.1:9001 tidemark functions program";

#[derive(Debug, Subcommand)]
enum Command {
    /// Work out availability and cost, and from how many requests on a node of memory is cheaper
    ///
    /// The defaults are those of the InfiniCache paper (FAST 2020). Costs are shown at its prices, which count durations in
    /// units of 100 ms, and at today's, in units of 1 ms. Availability is without backup.
    #[command(before_help = EXAMPLES)]
    Plan(plan::PlanArgs),
    /// Make the functions that a file describes
    ///
    /// Functions that are there already stay as they are.
    #[command(before_help = EXAMPLES)]
    Deploy(pool::DeployArgs),
    /// Show the objects that the running server keeps in functions
    #[command(before_help = EXAMPLES)]
    Status(ClientArgs),
    /// Watch how often the cloud takes functions back, and fit a distribution to it
    ///
    /// Each function of the shared pool, or of a tenant's, is invoked once in an interval. `plan --reclaim` takes what is found.
    #[command(before_help = EXAMPLES)]
    Probe(probe::ProbeArgs),
    /// Give the functions the memory that the file says; the cloud then starts them empty
    #[command(before_help = EXAMPLES)]
    Resize(pool::PoolArgs),
    /// Remove the functions that the file describes
    #[command(before_help = EXAMPLES)]
    Remove(pool::PoolArgs),
    /// Run as a function's own program, as the emulator does
    #[command(hide = true, before_help = PROGRAM_EXAMPLES)]
    Program,
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    match &args.command {
        Command::Plan(args) => plan::run(args, json),
        Command::Deploy(args) => pool::deploy(args, json),
        Command::Status(client) => pool::status(&client.client(data)?, json),
        Command::Probe(args) => probe::run(args, json),
        Command::Resize(args) => pool::resize(args, json),
        Command::Remove(args) => pool::remove(args, json),
        Command::Program => tidemark_functions::program::run().map_err(|error| anyhow::anyhow!("{error}")),
    }
}
