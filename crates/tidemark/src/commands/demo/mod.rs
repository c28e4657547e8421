//! `tidemark demo`: a part of Tidemark at work on this machine, started, shown and ended again.

mod cachelets;
mod client;
mod functions;
mod origin;
pub(super) mod server;

use clap::Subcommand;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark demo functions
  tidemark demo functions --objects 20 --object-size 40MiB --rounds 10
  tidemark demo cachelets
  tidemark demo cachelets --duration 5m --phase 30s";

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
    /// Run a Python function on three nodes, and show hits, coherence traffic and the chosen configuration
    ///
    /// Starts etcd, an origin with the delay of a distant one, and three agents with a way of 2 ms between them. An instance of
    /// an unmodified function per node reads and writes through its agent. The load changes meanwhile. Needs etcd and python3.
    #[command(before_help = EXAMPLES)]
    Cachelets(cachelets::CacheletsArgs),
}

pub(super) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    match &args.demo {
        Demo::Functions(args) => functions::run(args, json),
        Demo::Cachelets(args) => cachelets::run(args, json),
    }
}
