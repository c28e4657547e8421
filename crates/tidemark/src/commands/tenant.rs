//! `tidemark tenant create | show | top | list | set | remove | rotate`.

mod rotate;
mod s3_key;
mod settings;
mod show;
mod top;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use hyper::Method;
use serde_json::Value;
use tidemark_types::TenantName;

use super::agent::PromiseArgs;
use crate::client::{Client, ClientArgs};
use crate::failure::Failure;
use crate::output::{note, print};
use s3_key::S3KeyArgs;
use settings::SettingArgs;
use show::ShowArgs;
pub(super) use show::{array, print_as};
use top::TopArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark tenant create shop --cap 256MiB
  tidemark tenant set shop --hit-ratio 0.9
  tidemark tenant set shop --cap 64MiB --policy clock
  tidemark tenant set shop --cap none
  tidemark tenant rotate shop, then, when every client has the new secret: tidemark tenant rotate shop --finish
  tidemark tenant list";

const CREATE_EXAMPLES: &str = "\
Examples:
  tidemark tenant create shop
  tidemark tenant create shop --hit-ratio 0.95 --cap 1GiB
  tidemark tenant create shop --floor 64MiB --policy s3fifo
  tidemark tenant create shop --json";
const SHOW_EXAMPLES: &str = "\
Examples:
  tidemark tenant show shop
  tidemark tenant show shop --moves         when its memory changed, why, and what came of it
  tidemark tenant show shop --curve         what more or less memory would change
  tidemark tenant show shop --curve --svg curve.svg --png curve.png
  tidemark tenant show shop --moves --json";
const LIST_EXAMPLES: &str = "Examples:\n  tidemark tenant list\n  tidemark tenant list --json";
const SET_EXAMPLES: &str = "\
Examples:
  tidemark tenant set shop --hit-ratio 0.9
  tidemark tenant set shop --cap 64MiB
  tidemark tenant set shop --hit-ratio 0.95 --dry-run
                                            what it would give and take, and the hit ratios to expect
  tidemark tenant set shop --floor none --policy fifo
  tidemark tenant set shop --ops-limit 50000 --bytes-limit 100MiB --max-connections 200
  tidemark tenant set shop --spending-limit 20 --at-limit throttle
  tidemark tenant set shop --weight 3       three times the share of a tenant of weight 1";
const REMOVE_EXAMPLES: &str = "Examples:\n  tidemark tenant remove shop\n  tidemark tenant remove shop --yes";
const ROTATE_EXAMPLES: &str = "\
Examples:
  tidemark tenant rotate shop                           a second secret; both work
  tidemark tenant rotate shop --finish                  the older one ends
  tidemark tenant rotate shop --secret reader --permissions read
                                                        one beside it that can only read, and is rotated by itself";

const TENANTS: &str = "/api/v1/tenants";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a tenant and print its secret, once
    #[command(before_help = CREATE_EXAMPLES)]
    Create {
        /// Letters, digits, `-`, `_` and `.`
        name: TenantName,
        /// A file with a secret of your own, of 128 random bits at least; `-` for standard input
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        #[command(flatten)]
        promise: PromiseArgs,
        #[command(flatten)]
        settings: SettingArgs,
    },
    /// Show one tenant
    #[command(before_help = SHOW_EXAMPLES)]
    Show {
        /// The tenant
        name: TenantName,
        #[command(flatten)]
        what: ShowArgs,
    },
    /// Show what costs most of a tenant's load: keys, prefixes of keys, and commands
    #[command(before_help = top::EXAMPLES)]
    Top {
        /// The tenant
        name: TenantName,
        #[command(flatten)]
        what: TopArgs,
    },
    /// Show all tenants
    #[command(before_help = LIST_EXAMPLES)]
    List,
    /// Change a tenant's settings; `none` clears one
    #[command(before_help = SET_EXAMPLES)]
    Set {
        /// The tenant
        name: TenantName,
        #[command(flatten)]
        settings: SettingArgs,
        /// Change nothing, and show what everybody's memory and hit ratio would come to (`-`: unknown, where memory and flash are
        /// sized together)
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a tenant with all its items
    ///
    /// Without the tenant `default`, connections from this machine must log in, too; `tidemark tenant create default` makes
    /// an open one again, empty.
    #[command(before_help = REMOVE_EXAMPLES)]
    Remove {
        /// The tenant
        name: TenantName,
        /// Do not ask; needed where there is no terminal
        #[arg(long)]
        yes: bool,
    },
    /// Give a tenant a new secret, or end its older one
    #[command(before_help = ROTATE_EXAMPLES)]
    Rotate {
        /// The tenant
        name: TenantName,
        #[command(flatten)]
        what: rotate::RotateArgs,
    },
    /// Show a tenant's key for the S3 address, with its secret; make one if there is none
    #[command(before_help = s3_key::EXAMPLES)]
    S3Key {
        /// The tenant
        name: TenantName,
        #[command(flatten)]
        what: S3KeyArgs,
    },
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let client = args.client.client(data)?;
    match &args.command {
        Command::Create {
            name,
            secret_file,
            promise,
            settings,
        } => {
            if !promise.is_given() {
                return create(&client, name, secret_file.as_deref(), settings, json);
            }
            if secret_file.is_some() || !settings.body()?.json.is_empty() {
                let error = "an application is created with its promise alone: the rest by `tidemark tenant set`, and it has an access \
                             key (`tidemark tenant s3-key`) in place of a secret";
                return Err(Failure::usage(error).into());
            }
            promise.create(&client, name.as_str(), json)
        }
        Command::Show { name, what } => what.run(&client, name.as_str(), &path(name), json),
        Command::Top { name, what } => what.run(&client, &path(name), json),
        Command::List => show::all(&client.get(TENANTS)?, json),
        Command::Set {
            name,
            settings,
            dry_run,
        } => {
            let body = settings.body()?;
            if body.json.is_empty() {
                return Err(Failure::usage("nothing to set: see `tidemark tenant set --help`").into());
            }
            if *dry_run {
                let path = format!("{}/preview", path(name));
                return show::preview(&client.call(Method::POST, &path, Some(body))?, json);
            }
            show::one(&client.call(Method::PATCH, &path(name), Some(body))?, json)
        }
        Command::Remove { name, yes } => remove(&client, name, *yes),
        Command::Rotate { name, what } => what.run(&client, name, json),
        Command::S3Key { name, what } => what.run(&client, name, json),
    }
}

/// A name holds nothing that a path would have to escape.
fn path(name: &TenantName) -> String {
    format!("{TENANTS}/{name}")
}

fn create(
    client: &Client,
    name: &TenantName,
    secret_file: Option<&Path>,
    settings: &SettingArgs,
    json: bool,
) -> anyhow::Result<()> {
    let mut body = settings.body()?;
    body.json.insert("name".into(), name.as_str().into());
    if let Some(file) = secret_file {
        body.json.insert("secret".into(), rotate::read_secret(file)?.into());
    }
    let created = client.call(Method::POST, TENANTS, Some(body))?;
    if secret_file.is_some() && !json {
        note(&format!("tenant {name} is made, with the secret in the file"));
        return Ok(());
    }
    show_secret(client, name, &created, json)
}

/// The secret as data; how to use it as messages.
fn show_secret(client: &Client, name: &TenantName, answer: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return Ok(print(&answer.to_string())?);
    }
    let secret = answer.get("secret").and_then(Value::as_str).unwrap_or_default();
    print(&format!("name    {name}\nsecret  {secret}"))?;
    note("\nThe secret is not shown again. To use it:");
    for line in first_steps(name, secret, &client.get("/api/v1/server")?) {
        note(&format!("  {line}"));
    }
    Ok(())
}

/// Lines to paste into a shell, for the protocols that the server speaks.
fn first_steps(name: &TenantName, secret: &str, server: &Value) -> Vec<String> {
    let address = |key: &str| server.get(key)?.as_str()?.parse::<SocketAddr>().ok();
    let host = |address: SocketAddr| match address.ip() {
        // It listens everywhere: on this machine that includes loopback.
        ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
        ip if ip.is_unspecified() => "::1".to_owned(),
        ip => ip.to_string(),
    };
    let redis = address("redis").map(|at| {
        format!(
            "REDISCLI_AUTH={secret} redis-cli -h {} -p {} --user {name} SET greeting hello",
            host(at),
            at.port()
        )
    });
    let memcached = address("memcached").map(|at| {
        let login = format!("{name} {secret}");
        format!(
            "printf 'set auth 0 0 {}\\r\\n{login}\\r\\nset greeting 0 0 5\\r\\nhello\\r\\nget greeting\\r\\nquit\\r\\n' \
             | nc {} {}",
            login.len(),
            host(at),
            at.port()
        )
    });
    [redis, memcached].into_iter().flatten().collect()
}

fn remove(client: &Client, name: &TenantName, is_sure: bool) -> anyhow::Result<()> {
    if !is_sure {
        if !io::stdin().is_terminal() {
            let message = format!("tenant {name} is not removed: without a terminal to ask on, say so with --yes");
            return Err(Failure::usage(message).into());
        }
        if !confirm(client, name)? {
            note("nothing is removed");
            return Ok(());
        }
    }
    client.call(Method::DELETE, &path(name), None)?;
    note(&format!("tenant {name} is removed, and its memory is back"));
    Ok(())
}

fn confirm(client: &Client, name: &TenantName) -> anyhow::Result<bool> {
    let tenant = client.get(&path(name))?;
    let items = tenant.get("items").and_then(Value::as_u64).unwrap_or_default();
    let mut stderr = io::stderr();
    write!(
        stderr,
        "Remove tenant {name} with its secrets and {items} items? [y/N] "
    )?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn first_steps_name_the_protocols_that_are_on() {
        let name: TenantName = "shop".parse().unwrap();
        for (server, expected) in [
            (json!({}), vec![]),
            (
                json!({"redis": "0.0.0.0:6379"}),
                vec!["REDISCLI_AUTH=s3cret redis-cli -h 127.0.0.1 -p 6379 --user shop SET greeting hello"],
            ),
            (
                json!({"redis": null, "memcached": "[::1]:11211"}),
                vec![
                    "printf 'set auth 0 0 11\\r\\nshop s3cret\\r\\nset greeting 0 0 5\\r\\nhello\\r\\n\
                     get greeting\\r\\nquit\\r\\n' \
                     | nc ::1 11211",
                ],
            ),
        ] {
            assert_eq!(first_steps(&name, "s3cret", &server), expected, "{server}");
        }
    }
}
