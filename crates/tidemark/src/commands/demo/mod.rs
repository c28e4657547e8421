//! `tidemark demo`: a part of Tidemark at work on this machine, started, shown and ended again.

mod client;
mod functions;
mod origin;
pub(super) mod server;

use clap::Subcommand;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark demo functions
  tidemark demo functions --objects 20 --object-size 40MiB --rounds 10";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    demo: Demo,
}

#[derive(Debug, Subcommand)]
enum Demo {
    /// Keep large objects in functions, take functions away, and show cost and availability
    ///
    /// Starts an origin with the delay and bandwidth of a distant one, and an emulator of AWS Lambda whose functions
    /// are processes. Starts a server with an S3 address. It uploads objects, reads them again and again, and takes
    /// functions away meanwhile.
    #[command(before_help = EXAMPLES)]
    Functions(functions::FunctionsArgs),
}

pub(super) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    match &args.demo {
        Demo::Functions(args) => functions::run(args, json),
    }
}
