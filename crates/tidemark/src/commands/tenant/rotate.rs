//! `tidemark tenant rotate`: a tenant's secrets, each name by itself.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hyper::Method;
use serde_json::Value;
use tidemark_control::SecretName;
use tidemark_types::{Permissions, TenantName};

use super::{path, show_secret};
use crate::client::{Body, Client};
use crate::failure::Failure;
use crate::output::note;

/// More than the longest secret and a line end.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

/// The action on a tenant's secrets.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RotateArgs {
    /// Which of the tenant's secrets, up to eight by name: each has permissions of its own and is rotated by itself
    #[arg(long, value_name = "NAME", default_value_t)]
    secret: SecretName,
    /// The permissions of the new secret: read, write, flush, admin, separated by commas [default: all; of another name
    /// than `default`, as the newest one of it]
    #[arg(long, value_name = "LIST", conflicts_with_all = ["finish", "end"])]
    permissions: Option<Permissions>,
    /// A file with a secret of your own, of 128 random bits at least; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["finish", "end"])]
    secret_file: Option<PathBuf>,
    /// If there are two already: end the older one, which may be in use
    #[arg(long, conflicts_with_all = ["finish", "end"])]
    force: bool,
    /// End the older of two secrets instead
    #[arg(long, conflicts_with = "end")]
    finish: bool,
    /// End all secrets of the name instead
    #[arg(long)]
    end: bool,
}

impl RotateArgs {
    pub(super) fn run(&self, client: &Client, name: &TenantName, json: bool) -> anyhow::Result<()> {
        let rotated = client.call(Method::POST, &format!("{}/rotate", path(name)), Some(self.body()?))?;
        if json || !(self.finish || self.end || self.secret_file.is_some()) {
            return show_secret(client, name, &rotated, json);
        }
        let of = match self.secret.is_default() {
            true => format!("of {name}"),
            false => format!("`{}` of {name}", self.secret),
        };
        note(&match (self.finish, self.end) {
            (true, _) => format!("only the newest secret {of} works now"),
            (_, true) => format!("no secret {of} works any more"),
            _ => format!("the secret {of} is the one in the file now"),
        });
        Ok(())
    }

    fn body(&self) -> anyhow::Result<Body> {
        let mut body = Body::of([("secret_name", Value::from(self.secret.as_str()))]);
        let mut add = |key: &str, value: Value| body.json.insert(key.to_owned(), value);
        if self.finish || self.end {
            add(if self.finish { "finish" } else { "end" }, true.into());
            return Ok(body);
        }
        if let Some(permissions) = self.permissions {
            add("permissions", permissions.to_string().into());
        }
        if let Some(file) = &self.secret_file {
            add("secret", read_secret(file)?.into());
        }
        if self.force {
            add("force", true.into());
        }
        Ok(body)
    }
}

/// The secret in a file, without the line end behind it.
pub(super) fn read_secret(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text)
    } else {
        let opened = fs::File::open(file).with_context(|| format!("opening {}", file.display()))?;
        opened.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text)
    };
    read.with_context(|| format!("reading a secret from {}", file.display()))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        return Err(Failure::usage(format!("{} is empty: there is no secret in it", file.display())).into());
    }
    Ok(secret.to_owned())
}
