//! `tidemark token create | list | remove`: tokens for programs that call the admin API over TCP.

use std::path::Path;

use clap::Subcommand;
use hyper::Method;
use serde_json::Value;
use tidemark_admin::Role;

use super::tenant::{array, print_as};
use crate::client::{Body, Client, ClientArgs};
use crate::output::{Field, Form, columns, note, print};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark token create --role scraper > /etc/prometheus/tidemark.token
  tidemark token create --role viewer --name board
  tidemark token list
  tidemark token remove board";

const CREATE_EXAMPLES: &str = "\
Examples:
  tidemark token create --role scraper > /etc/prometheus/tidemark.token
  tidemark token create --role operator --name ansible --json";
const LIST_EXAMPLES: &str = "Examples:\n  tidemark token list\n  tidemark token list --json";
const REMOVE_EXAMPLES: &str = "Examples:\n  tidemark token remove board";

const TOKENS: &str = "/api/v1/tokens";

const COLUMNS: [Field; 3] = [
    ("name", "/name", Form::Plain),
    ("role", "/role", Form::Plain),
    ("made at", "/created_at", Form::Plain),
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
    /// Make a token and print it, once
    #[command(before_help = CREATE_EXAMPLES)]
    Create {
        /// The calls that it opens: `scraper` only /metrics, `viewer` all that changes nothing but tokens and the keys of applications,
        /// `operator` all but tokens
        #[arg(long)]
        role: Role,
        /// Its name: letters, digits, `-`, `_` and `.` [default: its role]
        #[arg(long)]
        name: Option<String>,
    },
    /// Show all tokens but the admin token, without their texts
    #[command(before_help = LIST_EXAMPLES)]
    List,
    /// End a token, at once
    #[command(before_help = REMOVE_EXAMPLES)]
    Remove {
        /// The token's name
        name: String,
    },
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let client = args.client.client(data)?;
    match &args.command {
        Command::Create { role, name } => create(&client, *role, name.as_deref(), json),
        Command::List => {
            let answer = client.get(TOKENS)?;
            print_as(&answer, json, || columns(array(&answer, "/tokens"), &COLUMNS))
        }
        Command::Remove { name } => {
            client.call(Method::DELETE, &format!("{TOKENS}/{}", escaped(name)), None)?;
            note(&format!("token {name} opens nothing any more"));
            Ok(())
        }
    }
}

/// The token alone is the data, so that it can be written to a scraper's file.
fn create(client: &Client, role: Role, name: Option<&str>, json: bool) -> anyhow::Result<()> {
    let body = Body::of([("role", role.name().into()), ("name", name.into())]);
    let made = client.call(Method::POST, TOKENS, Some(body))?;
    if json {
        return Ok(print(&made.to_string())?);
    }
    let text = |field: &str| made.get(field).and_then(Value::as_str).unwrap_or_default();
    print(text("token"))?;
    note(&format!(
        "token {} (role {role}); it is not shown again, and goes as `Authorization: Bearer TOKEN`",
        text("name")
    ));
    Ok(())
}

/// A name as a part of a path: whatever is no letter or digit is written as its bytes.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'-' | b'_' | b'.' => (byte as char).to_string(),
        _ if byte.is_ascii_alphanumeric() => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(escaped("board-1_a.b"), "board-1_a.b");
        assert_eq!(escaped("../tenants/a b?"), "..%2Ftenants%2Fa%20b%3F");
    }
}
