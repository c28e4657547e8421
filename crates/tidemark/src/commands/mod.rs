//! The commands; one file each.

mod agent;
mod backup;
mod bench;
mod bill;
mod calibrate;
mod curve;
mod demo;
mod estimate;
mod functions;
mod plan;
mod replay;
mod serve;
mod server;
mod tenant;
mod token;
mod top;
mod usage;

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// An elastic, multi-tenant cache that speaks memcached and Redis
#[derive(Debug, Parser)]
#[command(name = "tidemark", version, before_help = EXAMPLES, after_help = EXIT_CODES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    /// Print data as JSON
    #[arg(long, global = true)]
    json: bool,
    /// The data folder of the server: for commands about one, which also take it behind their names
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tidemark serve                              start with nothing configured
  tidemark tenant create shop --cap 256MiB    make a tenant; prints its secret
  tidemark tenant list                        who has how much memory
  tidemark server set --memory 4GiB           resize while it runs";

const EXIT_CODES: &str = "Exit codes: 0; 1 failure; 2 usage; 3 not found; 4 denied or over a limit";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server
    #[command(before_help = serve::EXAMPLES)]
    Serve(serve::Args),
    /// Serve functions of this node, coherently with other nodes
    #[command(before_help = agent::EXAMPLES)]
    Agent(Box<agent::Args>),
    /// Show or change the running server
    #[command(before_help = server::EXAMPLES)]
    Server(server::Args),
    /// Create, show, change and remove tenants
    #[command(before_help = tenant::EXAMPLES)]
    Tenant(tenant::Args),
    /// Make and end tokens for programs that call the admin API
    #[command(before_help = token::EXAMPLES)]
    Token(token::Args),
    /// Follow tenants as they are now: memory, hit ratio, CPU, money, the last move
    #[command(before_help = top::EXAMPLES)]
    Top(top::Args),
    /// Write the server's settings and usage to a file, while it runs or not
    #[command(before_help = backup::EXAMPLES)]
    Backup(backup::Args),
    /// Put a backup back
    #[command(before_help = backup::RESTORE_EXAMPLES)]
    Restore(backup::RestoreArgs),
    /// Show who used how much
    #[command(before_help = usage::EXAMPLES)]
    Usage(usage::Args),
    /// Show what a tenant owes for a month
    #[command(before_help = bill::EXAMPLES)]
    Bill(bill::Args),
    /// Say what a trace's load would cost here
    #[command(before_help = estimate::EXAMPLES)]
    Estimate(estimate::Args),
    /// Load a server and measure it
    #[command(before_help = BENCH_EXAMPLES)]
    Bench(bench::Args),
    /// Replay traces against a server and count hits
    #[command(before_help = REPLAY_EXAMPLES)]
    Replay(replay::Args),
    /// Measure loads on this machine, and train the model of CPU time on them
    #[command(before_help = CALIBRATE_EXAMPLES)]
    Calibrate(calibrate::Args),
    /// Measure how a trace's miss ratio falls with the cache's size
    #[command(before_help = CURVE_EXAMPLES)]
    Curve(curve::Args),
    /// Size memory and flash for traces: least cost for a latency, or least latency for a cost
    #[command(before_help = PLAN_EXAMPLES)]
    Plan(plan::Args),
    /// See a part of Tidemark at work on this machine
    #[command(before_help = demo::EXAMPLES)]
    Demo(demo::Args),
    /// Plan, make and look at a cache in the memory of cloud functions
    #[command(before_help = functions::EXAMPLES)]
    Functions(functions::Args),
}

const BENCH_EXAMPLES: &str = "\
Examples:
  tidemark bench --protocol redis --address 127.0.0.1:6379
  tidemark bench --protocol memcached --address 127.0.0.1:11211 --connections 64 --pipeline 10 --reads 0.9 --seconds 10
  tidemark bench --protocol redis --address 127.0.0.1:6379 --rate 50000 --zipf 0.99 --value-size 100-1000 --json";

const REPLAY_EXAMPLES: &str = "\
Examples:
  tidemark replay trace.oracleGeneral.zst
  tidemark replay shop=orders.i64be.xz blog=pages.lis --protocol memcached --address 127.0.0.1:11211";

const CURVE_EXAMPLES: &str = "\
Examples:
  tidemark curve trace.oracleGeneral.zst
  tidemark curve trace.oracleGeneral.zst --policy s3fifo --svg curve.svg --png curve.png";

const CALIBRATE_EXAMPLES: &str = "\
Examples:
  tidemark calibrate
  tidemark calibrate cpu-model.toml --minutes 30 --svg residuals.svg
  tidemark serve --cpu-model cpu-model.toml         model CPU time by what came of it";

const PLAN_EXAMPLES: &str = "\
Examples:
  tidemark plan --trace orders.oracleGeneral.zst --latency 300us
  tidemark plan --trace shop=orders.i64be.xz --trace blog=pages.lis --spending 12 --profile elasticache-tiered
  tidemark plan --trace orders.i64be.xz --latency 300us --price dram=13.8,flash=0.36 --svg plan.svg";

/// Commands of later versions. They are known by name, so that a user that types one is told.
const LATER: [&str; 3] = ["doctor", "completions", "man"];

/// Reads the command line and does what it says.
pub(crate) fn run() -> anyhow::Result<()> {
    let cli = Cli::try_parse().or_else(|error| refuse(&error))?;
    let data = cli.data.as_deref();
    match (&cli.command, data) {
        (Command::Agent(args), _) => agent::run(args, data, cli.json),
        (Command::Server(args), _) => server::run(args, data, cli.json),
        (Command::Tenant(args), _) => tenant::run(args, data, cli.json),
        (Command::Token(args), _) => token::run(args, data, cli.json),
        (Command::Top(args), _) => top::run(args, data, cli.json),
        (Command::Backup(args), _) => backup::run(args, data, cli.json),
        (Command::Restore(args), _) => backup::run_restore(args, data, cli.json),
        (Command::Usage(args), _) => usage::run(args, data, cli.json),
        (Command::Bill(args), _) => bill::run(args, data, cli.json),
        (Command::Estimate(args), _) => estimate::run(args, data, cli.json),
        (Command::Functions(args), _) => functions::run(args, data, cli.json),
        (_, Some(folder)) => {
            let folder = folder.display();
            Err(Failure::usage(format!(
                "--data {folder}: only commands about a server take it before their names"
            ))
            .into())
        }
        (Command::Serve(args), _) => serve::run(args, cli.json),
        (Command::Bench(args), _) => bench::run(args, cli.json),
        (Command::Replay(args), _) => replay::run(args, cli.json),
        (Command::Calibrate(args), _) => calibrate::run(args, cli.json),
        (Command::Curve(args), _) => curve::run(args, cli.json),
        (Command::Demo(args), _) => demo::run(args, cli.json),
        (Command::Plan(args), _) => plan::run(args, cli.json),
    }
}

/// The fault of the command line, told in clap's way; the exit codes (0 for help, 2 for mistakes) are ours.
fn refuse(error: &clap::Error) -> anyhow::Result<Cli> {
    let first = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let later = first.filter(|name| error.kind() == ErrorKind::InvalidSubcommand && LATER.contains(&name.as_str()));
    match later {
        Some(name) => Err(Failure::usage(format!("`tidemark {name}` is not available in this version")).into()),
        None => error.exit(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_and_every_help_begins_with_examples() {
        fn check(command: &clap::Command) {
            let help = command.clone().render_long_help().to_string();
            assert!(help.starts_with("Examples:"), "{}: {help}", command.get_name());
            for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
                check(below);
            }
        }
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        check(&command);
    }

    #[test]
    fn commands_of_later_versions_are_absent() {
        for name in LATER {
            let error = Cli::try_parse_from(["tidemark", name]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSubcommand, "{name}");
        }
    }
}
