//! `tidemark tenant s3-key`: a tenant's access key, derived from the server's key, and which buckets it opens.

use anyhow::Context as _;
use hyper::Method;
use serde_json::{Value, json};
use tidemark_gateway::access::{AccessTable, Entry, Grant, Placing, ServerKey, access_key};
use tidemark_types::{TenantId, TenantName};

use crate::client::{Body, Client};
use crate::failure::Failure;
use crate::output::{note, print};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark tenant s3-key shop
  tidemark tenant s3-key shop --allow photos --allow logs/shop/ --allow shared:read
  tidemark tenant s3-key shop --place functions
  tidemark tenant s3-key shop --rotate, then, when every client has the new key: tidemark tenant s3-key shop --finish";

#[derive(Debug, clap::Args)]
pub(super) struct S3KeyArgs {
    /// A bucket, or the keys in it that begin so, that the tenant may use, instead of all; `:read` behind it for reading only
    #[arg(long, value_name = "BUCKET[/PREFIX][:read]")]
    allow: Vec<Grant>,
    /// The place of the tenant's objects: auto (the cheapest), memory, functions or origin
    #[arg(long, value_name = "PLACE")]
    place: Option<Placing>,
    /// Make a new key; the one before it still works
    #[arg(long, conflicts_with = "finish")]
    rotate: bool,
    /// End every key but the newest
    #[arg(long)]
    finish: bool,
}

impl S3KeyArgs {
    /// On an agent, keys are the same on all nodes, and the agent has them changed. `None`: it is a server.
    fn of_agent(&self, client: &Client, name: &TenantName) -> anyhow::Result<Option<Value>> {
        if client.get("/api/v1/agent").is_err() {
            return Ok(None);
        }
        let path = format!("/api/v1/agent/apps/{name}/key");
        if self.place.is_some() {
            return Err(Failure::usage("--place: an agent keeps objects in memory").into());
        }
        if !self.rotate && !self.finish && self.allow.is_empty() {
            return client.get(&path).map(Some);
        }
        let allow: Vec<String> = self.allow.iter().map(ToString::to_string).collect();
        let body = Body::of([
            ("rotate", json!(self.rotate)),
            ("finish", json!(self.finish)),
            ("allow", json!(allow)),
        ]);
        client.call(Method::POST, &path, Some(body)).map(Some)
    }

    pub(super) fn run(&self, client: &Client, name: &TenantName, json: bool) -> anyhow::Result<()> {
        if let Some(shown) = self.of_agent(client, name)? {
            return show_key(&shown, json);
        }
        let tenant = client.get(&super::path(name))?;
        let id = tenant
            .get("id")
            .and_then(Value::as_u64)
            .and_then(|id| u32::try_from(id).ok());
        let id = TenantId(id.context("the server does not say which tenant this is")?);
        let folder = client.folder();
        let key = ServerKey::open(folder)?;
        let mut table = AccessTable::read(folder)?;
        let before = table.get(name.as_str()).cloned();
        // An earlier tenant of the same name has nothing to do with this one.
        let known = before.clone().filter(|entry| entry.tenant == id.0);
        let mut entry = known.clone().unwrap_or_else(|| Entry::first(id));
        if self.rotate && known.is_some() {
            entry.rotate();
        }
        if self.finish {
            entry.finish();
        }
        if !self.allow.is_empty() {
            entry.allow(self.allow.clone())?;
        }
        if let Some(place) = self.place {
            entry.place = place;
        }
        if before.as_ref() != Some(&entry) {
            table.set(name.as_str(), entry.clone());
            table.write(folder)?;
        }
        show(name, &key.secret(id, name.as_str(), entry.generation), &entry, json)
    }
}

/// The key that an agent says.
fn show_key(shown: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return Ok(print(&shown.to_string())?);
    }
    let text = |field: &str| shown[field].as_str().unwrap_or_default();
    let allowed = shown["allow"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let allowed: Vec<_> = allowed.collect();
    explain(text("access_key"), text("secret_key"), &allowed.join(", "))
}

/// The key as data; how to use it as messages.
fn show(name: &TenantName, secret: &str, entry: &Entry, json: bool) -> anyhow::Result<()> {
    let id = access_key(name.as_str(), entry.generation);
    let grants: Vec<String> = entry.grants.iter().map(ToString::to_string).collect();
    if json {
        let shown = json!({"name": name.as_str(), "access_key": id, "secret_key": secret, "allow": grants, "place": entry.place});
        return Ok(print(&shown.to_string())?);
    }
    explain(&id, secret, &grants.join(", "))?;
    Ok(print(&format!("place       {}", entry.place))?)
}

fn explain(id: &str, secret: &str, allowed: &str) -> anyhow::Result<()> {
    print(&format!(
        "access key  {id}\nsecret key  {secret}\nallowed     {allowed}"
    ))?;
    note("\nTo use it:");
    note(&format!(
        "  export AWS_ACCESS_KEY_ID={id} AWS_SECRET_ACCESS_KEY={secret} AWS_REGION=us-east-1"
    ));
    note("  aws --endpoint-url http://ADDRESS s3 ls s3://BUCKET    (ADDRESS: what --s3 says)");
    Ok(())
}
