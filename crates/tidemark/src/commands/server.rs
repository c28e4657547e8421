//! `tidemark server show | set`.

use std::path::Path;

use clap::Subcommand;
use hyper::Method;
use serde_json::{Value, json};
use tidemark_types::{Size, UnitError, parse_duration};

use crate::client::{Body, ClientArgs};
use crate::failure::Failure;
use crate::output::{Field, Form, list, print};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark server show
  tidemark server show --json
  tidemark server set --memory 4GiB
  tidemark server set --memory none      back to what it was started with";

const SHOW_EXAMPLES: &str = "Examples:\n  tidemark server show\n  tidemark server show --json --data /var/lib/tidemark";
const SET_EXAMPLES: &str = "\
Examples:
  tidemark server set --memory 4GiB
  tidemark server set --round-period 500ms
  tidemark server set --memory none      back to what it was started with";

const PATH: &str = "/api/v1/server";

const FIELDS: [Field; 18] = [
    ("version", "/version", Form::Plain),
    ("uptime", "/uptime_seconds", Form::Seconds),
    ("workers", "/workers", Form::Plain),
    ("memcached", "/memcached", Form::Plain),
    ("redis", "/redis", Form::Plain),
    ("admin", "/admin", Form::Plain),
    ("memory", "/pool_bytes", Form::Bytes),
    ("granted", "/granted_bytes", Form::Bytes),
    ("used", "/usage_bytes", Form::Bytes),
    ("other", "/other_bytes", Form::Bytes),
    ("resident", "/rss_bytes", Form::Bytes),
    ("connections", "/connections", Form::Plain),
    ("network, bytes/s", "/network_bytes_per_second", Form::Count),
    ("  of its limit", "/network_occupancy", Form::Ratio),
    ("cpu time", "/cpu_seconds_total", Form::Seconds),
    ("vCPUs are cores of", "/cpu_model/reference", Form::Plain),
    ("rounds", "/rounds_total", Form::Plain),
    ("round period", "/round_period_us", Form::Microseconds),
];

/// The fields if there is flash below memory.
const FLASH_FIELDS: [Field; 5] = [
    ("flash", "/flash_bytes", Form::Bytes),
    ("  granted", "/flash_granted_bytes", Form::Bytes),
    ("  used", "/flash_usage_bytes", Form::Bytes),
    ("  takes memory", "/flash_memory_bytes", Form::Bytes),
    ("  has failed", "/flash_failed", Form::Plain),
];

/// The fields if the memory is the node's.
const NODE_FIELDS: [Field; 5] = [
    ("node", "/node/folder", Form::Plain),
    ("node memory", "/node/memory_bytes", Form::Bytes),
    ("lease", "/node/lease_bytes", Form::Bytes),
    ("instances", "/node/instances", Form::Plain),
    ("lease stays", "/node/problem", Form::Plain),
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the server's state
    #[command(before_help = SHOW_EXAMPLES)]
    Show,
    /// Change the server while it runs; it stays so over restarts until the configuration is changed
    #[command(before_help = SET_EXAMPLES)]
    Set {
        /// Memory for all tenants, of shared memory the most that this instance takes; `none`: as it was started with
        #[arg(long, value_name = "SIZE")]
        memory: Option<String>,
        /// Time between two rounds of the control plane; `none`: 1s
        #[arg(long, value_name = "T")]
        round_period: Option<String>,
    },
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let client = args.client.client(data)?;
    let server = match &args.command {
        Command::Show => client.get(PATH)?,
        Command::Set { memory, round_period } => {
            let body = patch(memory.as_deref(), round_period.as_deref())?;
            client.call(Method::PATCH, PATH, Some(body))?
        }
    };
    let text = if json {
        server.to_string()
    } else {
        let has = |place: &str| server.pointer(place).is_some_and(|part| !part.is_null());
        let flash: &[Field] = if has("/flash_bytes") { &FLASH_FIELDS } else { &[] };
        let node: &[Field] = if has("/node") { &NODE_FIELDS } else { &[] };
        list(&server, &[&FIELDS, flash, node].concat())
    };
    Ok(print(&text)?)
}

fn patch(memory: Option<&str>, round_period: Option<&str>) -> Result<Body, Failure> {
    let bytes = |text: &str| text.parse().map(|Size(bytes)| json!(bytes));
    let us =
        |text: &str| parse_duration(text).map(|period| json!(u64::try_from(period.as_micros()).unwrap_or(u64::MAX)));
    let mut body = Body::default();
    let mut put = |flag: &str, field, text: &str, parse: &dyn Fn(&str) -> Result<Value, UnitError>| {
        let place = format!("{flag} {text}");
        let value = if text == "none" { Ok(Value::Null) } else { parse(text) };
        let value = value.map_err(|error| Failure::usage(format!("{place}: {error}")))?;
        body.json.insert(String::from(field), value);
        body.places.push((field, place));
        Ok::<(), Failure>(())
    };
    if let Some(text) = memory {
        put("--memory", "pool_bytes", text, &bytes)?;
    }
    if let Some(text) = round_period {
        put("--round-period", "round_period_us", text, &us)?;
    }
    if body.json.is_empty() {
        return Err(Failure::usage("nothing to set: give --memory or --round-period"));
    }
    Ok(body)
}
