//! `tidemark agent`: cachelets beside serverless functions, and the operators' commands.

mod run;
mod show;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use hyper::Method;
use serde_json::{Map, Value, json};
use tidemark_agent::Kind;

use crate::client::{Body, Client, ClientArgs};
use crate::failure::Failure;
use crate::output::print;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark agent --origin 's3://photos?endpoint=https://s3.example.com' --etcd 10.0.0.1:2379 --peer 10.0.0.7:7071 --domain shop
  tidemark agent show shop                      which configuration, why, and what it does
  tidemark agent pin shop coherence=update      fix a dimension on all nodes; `coherence=` gives it free";

const SHOW_EXAMPLES: &str =
    "Examples:\n  tidemark agent show\n  tidemark agent show shop\n  tidemark agent show shop --json";
const CREATE_EXAMPLES: &str = "\
Examples:
  tidemark agent create shop
  tidemark agent create feed --consistency bounded:500ms
  tidemark agent create drafts --durability none            a write may be lost with the nodes that hold it";
const PIN_EXAMPLES: &str = "\
Examples:
  tidemark agent pin shop coherence=update write=through
  tidemark agent pin shop coherence=             whoever chooses may change it again";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

/// The flags of the agent itself.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The origins of the objects: s3://BUCKET?endpoint=URL, several with commas between them
    #[arg(long, value_name = "URL", required = true)]
    origin: Option<String>,
    /// The addresses of etcd, several with commas between them
    #[arg(long, value_name = "ADDR", required = true)]
    etcd: Option<String>,
    /// The address on which other agents connect
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7071")]
    peer: std::net::SocketAddr,
    /// The address at which other agents reach this one, if it is not that of --peer
    #[arg(long, value_name = "ADDR")]
    advertise: Option<std::net::SocketAddr>,
    /// The file with the secret that all agents share, instead of one in etcd
    #[arg(long, value_name = "FILE")]
    peer_secret_file: Option<PathBuf>,
    /// The number of the cluster of nodes that this one is in, for hierarchical domains
    #[arg(long, value_name = "N", default_value_t = 0)]
    cluster: u32,
    /// The node's name, in Kubernetes as well [default: the machine's]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// An application that is served from the start; it is created if it is not there
    #[arg(long, value_name = "APP")]
    domain: Vec<String>,
    /// The limit of the copies of an application whose instances are not known
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    budget: tidemark_types::Size,
    /// How configurations are chosen: hedge (prices of all of them), sarsa or principles (as UniCache does), or off
    #[arg(long, value_name = "NAME", default_value = "hedge", value_parser = chooser)]
    chooser: Chooser,
    /// Where the host's control groups are: copies live in what instances do not use of their memory
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    cgroup_root: PathBuf,
    /// The API server of Kubernetes whose pods on this node are instances: https://HOST:PORT, or http:// for `kubectl proxy`
    #[arg(long, value_name = "URL")]
    kubernetes: Option<String>,
    /// The file with the token for it [default: that of the agent's own pod, if it has one]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    kubernetes_token: Option<PathBuf>,
    /// The certificates that sign the API server's, in PEM [default: those of the agent's own pod, or the system's]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    kubernetes_ca: Option<PathBuf>,
    /// A trace of instances or invocations that is played in place of a platform: CSV, also of Azure Functions
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How many seconds of the trace pass in a second
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed, requires = "trace")]
    trace_speed: f64,
    /// The address for S3 clients
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    s3: String,
    /// Threads of the S3 address
    #[arg(long, value_name = "N")]
    s3_workers: Option<String>,
    /// The admin address, or off
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Memory of all applications on this node: copies, and blocks of large objects
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Threads of the server
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// The data folder [env: TIDEMARK_DATA]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Options of `tidemark serve` in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Speeds at which times stay times.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1e6;

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| SPEEDS.contains(speed));
    speed.ok_or_else(|| "write a number from 0.001 to 1000000".to_owned())
}

/// The chooser; none if it is off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chooser(Option<Kind>);

fn chooser(text: &str) -> Result<Chooser, String> {
    if text == "off" {
        return Ok(Chooser(None));
    }
    let known = Kind::ALL.into_iter().find(|kind| kind.to_string() == text);
    let all = Kind::ALL.map(|kind| kind.to_string());
    known
        .map(|kind| Chooser(Some(kind)))
        .ok_or_else(|| format!("allowed are {}, off", all.join(", ")))
}

/// The promise to an application.
#[derive(Debug, clap::Args)]
pub(super) struct PromiseArgs {
    /// How fresh an application's reads are: linearizable, bounded:T (stale by T at most) or eventual [default: linearizable]
    #[arg(long, value_name = "LEVEL")]
    consistency: Option<String>,
    /// Which acknowledged writes of an application survive: strict (all) or none [default: strict]
    #[arg(long, value_name = "KIND")]
    durability: Option<String>,
}

impl PromiseArgs {
    /// Whether anything is said.
    pub(super) fn is_given(&self) -> bool {
        self.consistency.is_some() || self.durability.is_some()
    }

    /// Has an agent make an application with this promise, and shows it.
    pub(super) fn create(&self, client: &Client, app: &str, json: bool) -> anyhow::Result<()> {
        let body = Body::of([
            ("name", json!(app)),
            ("consistency", json!(self.consistency)),
            ("durability", json!(self.durability)),
        ]);
        client.call(Method::POST, &format!("{}/apps", show::PATH), Some(body))?;
        show::run(client, Some(app), json)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the applications, or one of them
    #[command(before_help = SHOW_EXAMPLES)]
    Show {
        /// The application
        app: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Create an application with a promise, which stays as it is
    #[command(before_help = CREATE_EXAMPLES)]
    Create {
        /// The application
        app: String,
        #[command(flatten)]
        promise: PromiseArgs,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Fix dimensions of an application's configuration
    #[command(before_help = PIN_EXAMPLES)]
    Pin {
        /// The application
        app: String,
        /// A dimension and its value; without a value it is given free
        #[arg(value_name = "DIMENSION=VALUE", required = true)]
        dimensions: Vec<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    match &args.command {
        None => run::run(&args.run, data),
        Some(Command::Show { app, client }) => show::run(&client.client(data)?, app.as_deref(), json),
        Some(Command::Create { app, promise, client }) => promise.create(&client.client(data)?, app, json),
        Some(Command::Pin {
            app,
            dimensions,
            client,
        }) => {
            let mut pin = Map::new();
            for written in dimensions {
                let (dimension, value) = written
                    .split_once('=')
                    .ok_or_else(|| Failure::usage(format!("{written}: write DIMENSION=VALUE")))?;
                let value = Some(value).filter(|value| !value.is_empty());
                pin.insert(dimension.to_owned(), json!(value));
            }
            let body = Body::of([("pin", Value::Object(pin))]);
            let path = format!("{}/apps/{app}", show::PATH);
            let answer = client.client(data)?.call(Method::PATCH, &path, Some(body))?;
            if json {
                return Ok(print(&answer.to_string())?);
            }
            Ok(print(&show::configuration(&answer))?)
        }
    }
}
