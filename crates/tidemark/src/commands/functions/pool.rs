//! `tidemark functions deploy|status|resize|remove`: the functions of pools in the cloud.

use std::io::{Cursor, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};
use tidemark_functions::engine::{BoxFuture, EngineError, LambdaApi, NewFunction};
use tidemark_types::TenantName;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::client::Client;
use crate::failure::Failure;
use crate::functions_file::FunctionsFile;
use crate::output::{note, print, table};

/// Calls of the cloud's API at once: it throttles more.
pub(super) const CALLS_AT_ONCE: usize = 8;
/// How long an invocation may run: as long as AWS allows. The program ends by itself, long before.
const TIMEOUT_S: u32 = 900;

#[derive(Debug, clap::Args)]
pub(super) struct PoolArgs {
    /// The file that describes the pools
    file: PathBuf,
    /// Only the functions that are this tenant's own
    #[arg(long, value_name = "NAME")]
    tenant: Option<TenantName>,
}

#[derive(Debug, clap::Args)]
pub(super) struct DeployArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// The functions' program, built without other libraries (for a musl target)
    #[arg(long, value_name = "FILE")]
    bootstrap: PathBuf,
    /// The processors that it is built for: x86_64 or arm64
    #[arg(long, value_name = "NAME", default_value = "x86_64", value_parser = ["x86_64", "arm64"])]
    architecture: String,
}

impl PoolArgs {
    pub(super) fn read(&self) -> anyhow::Result<FunctionsFile> {
        let wrong = |problem: String| Failure::usage(format!("{}: {problem}", self.file.display()));
        let mut read = FunctionsFile::read(&self.file).map_err(wrong)?;
        if let Some(tenant) = &self.tenant {
            read.pools.retain(|pool| pool.tenant.as_ref() == Some(tenant));
            if read.pools.is_empty() {
                return Err(wrong(format!("there is no [tenants.{tenant}]")).into());
            }
        }
        Ok(read)
    }
}

/// The outcome of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    AsItWas,
}

pub(super) fn deploy(args: &DeployArgs, json: bool) -> anyhow::Result<()> {
    let file = args.pool.read()?;
    let place = args.bootstrap.display();
    let program = std::fs::read(&args.bootstrap).map_err(|error| Failure::usage(format!("{place}: {error}")))?;
    let zip: Arc<str> = STANDARD
        .encode(zipped(&program).with_context(|| format!("{place}"))?)
        .into();
    let (role, architecture): (Arc<str>, Arc<str>) = (file.role.as_str().into(), args.architecture.as_str().into());
    let outcomes = for_all(&file, move |api, memory_mib, name| {
        let (zip, role, architecture) = (Arc::clone(&zip), Arc::clone(&role), Arc::clone(&architecture));
        Box::pin(async move {
            if api.memory_mib(&name).await?.is_some() {
                return Ok(Outcome::AsItWas);
            }
            let new = NewFunction {
                name: &name,
                role: &role,
                memory_mib,
                timeout_s: TIMEOUT_S,
                zip_base64: &zip,
                architecture: &architecture,
            };
            api.create(&new).await.map(|()| Outcome::Done)
        })
    })?;
    tell(&outcomes, json, "made", "were there")
}

pub(super) fn resize(args: &PoolArgs, json: bool) -> anyhow::Result<()> {
    let file = args.read()?;
    let outcomes = for_all(&file, |api, memory_mib, name| {
        Box::pin(async move {
            if api.memory_mib(&name).await? == Some(memory_mib) {
                return Ok(Outcome::AsItWas);
            }
            api.resize(&name, memory_mib).await.map(|()| Outcome::Done)
        })
    })?;
    tell(&outcomes, json, "resized", "had that memory")
}

pub(super) fn remove(args: &PoolArgs, json: bool) -> anyhow::Result<()> {
    let file = args.read()?;
    let outcomes = for_all(&file, |api, _, name| {
        Box::pin(async move {
            match api.remove(&name).await {
                Ok(()) => Ok(Outcome::Done),
                Err(EngineError::NotFound(_)) => Ok(Outcome::AsItWas),
                Err(error) => Err(error),
            }
        })
    })?;
    tell(&outcomes, json, "removed", "were not there")
}

fn tell(outcomes: &[Outcome], json: bool, done: &str, as_it_was: &str) -> anyhow::Result<()> {
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let (changed, same) = (count(Outcome::Done), count(Outcome::AsItWas));
    if json {
        return Ok(print(&json!({"changed": changed, "unchanged": same}).to_string())?);
    }
    note(&format!("{changed} functions {done}, {same} {as_it_was}"));
    Ok(())
}

/// Does the same for all functions of all pools, each with its memory in MiB, a few at a time. The first failure ends it.
fn for_all(
    file: &FunctionsFile,
    call: impl Fn(LambdaApi, u64, String) -> BoxFuture<Result<Outcome, EngineError>>,
) -> anyhow::Result<Vec<Outcome>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let failed = |error: EngineError| Failure::failed(error.to_string());
        let api = file.api().map_err(failed)?;
        let mut outcomes = Vec::new();
        for functions in file.functions().chunks(CALLS_AT_ONCE) {
            let calls: Vec<_> = functions
                .iter()
                .map(|(pool, name)| tokio::spawn(call(api.clone(), pool.memory_mib, name.clone())))
                .collect();
            for outcome in calls {
                outcomes.push(outcome.await?.map_err(failed)?);
            }
        }
        Ok(outcomes)
    })
}

/// A zip with the program as `bootstrap`, which may be executed.
fn zipped(program: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .unix_permissions(0o755);
    zip.start_file("bootstrap", options)?;
    zip.write_all(program)?;
    Ok(zip.finish()?.into_inner())
}

/// Shows the objects that the running server keeps in functions.
pub(super) fn status(client: &Client, json: bool) -> anyhow::Result<()> {
    let report = client.call(Method::GET, "/api/v1/functions", None)?;
    if json {
        return Ok(print(&report.to_string())?);
    }
    print(&tables(&report))?;
    if let Some(pools) = pools(&report) {
        print(&pools)?;
    }
    note("dollars are of AWS Lambda at today's prices; durations are measured here, the way to the functions included");
    Ok(())
}

fn tables(report: &Value) -> String {
    let (totals, now) = (&report["totals"], &report["now"]);
    let whole = |value: &Value| value.as_u64().unwrap_or_default().to_string();
    let mib = |value: &Value| format!("{:.1} MiB", value.as_f64().unwrap_or_default() / f64::from(1 << 20));
    let pairs = [
        (
            "functions",
            format!(
                "{} of {} in use",
                whole(&now["functions_in_use"]),
                whole(&now["functions"])
            ),
        ),
        ("objects", whole(&now["objects"])),
        (
            "chunks",
            format!("{} of {}", mib(&now["used_bytes"]), mib(&now["room_bytes"])),
        ),
        (
            "reads",
            format!("{} hits, {} misses", whole(&totals["hits"]), whole(&totals["misses"])),
        ),
        (
            "computed",
            format!(
                "{} reads, {} chunks put back",
                whole(&totals["decoded"]),
                whole(&totals["repaired_chunks"])
            ),
        ),
        (
            "lost",
            format!(
                "{} chunks, {} instances, {} stripes",
                whole(&totals["lost_chunks"]),
                whole(&totals["reclaimed"]),
                whole(&totals["resets"])
            ),
        ),
        (
            "backups",
            format!(
                "{} done, {} not finished, {}",
                whole(&totals["backups"]),
                whole(&totals["failed_backups"]),
                mib(&totals["backup_bytes"])
            ),
        ),
        (
            "availability",
            format!(
                "{:.4} %",
                100.0 * now["availability_ratio"].as_f64().unwrap_or_default()
            ),
        ),
        (
            "model",
            match now["modelled_availability_ratio"].as_f64() {
                Some(ratio) => format!(
                    "{} an interval, {:.4} % in an hour without backup",
                    report["reclaim"].as_str().unwrap_or_default(),
                    100.0 * ratio
                ),
                None => "too few intervals were seen".to_owned(),
            },
        ),
        (
            "invocations",
            format!(
                "{} serving, {} warm, {} backup",
                whole(&totals["serving_invocations"]),
                whole(&totals["warm_invocations"]),
                whole(&totals["backup_invocations"])
            ),
        ),
        (
            "cost",
            format!(
                "${:.6} serving, ${:.6} warm, ${:.6} backup",
                now["serving_dollars"].as_f64().unwrap_or_default(),
                now["warm_dollars"].as_f64().unwrap_or_default(),
                now["backup_dollars"].as_f64().unwrap_or_default()
            ),
        ),
    ];
    let rows: Vec<Vec<String>> = pairs
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    table(&rows)
}

/// Each pool, if there are several.
fn pools(report: &Value) -> Option<String> {
    let pools = report["pools"].as_array().filter(|pools| pools.len() > 1)?;
    let heads = [
        "POOL",
        "FUNCTIONS",
        "OBJECTS",
        "MIB",
        "HITS",
        "MISSES",
        "LOST",
        "DOLLARS",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for pool in pools {
        let (totals, now) = (&pool["totals"], &pool["now"]);
        let whole = |value: &Value| value.as_u64().unwrap_or_default().to_string();
        let dollars = ["serving_dollars", "warm_dollars", "backup_dollars"].map(|part| now[part].as_f64());
        rows.push(vec![
            pool["tenant"].as_str().unwrap_or("(shared)").to_owned(),
            format!("{}/{}", whole(&now["functions_in_use"]), whole(&now["functions"])),
            whole(&now["objects"]),
            format!(
                "{:.1}",
                now["used_bytes"].as_f64().unwrap_or_default() / f64::from(1 << 20)
            ),
            whole(&totals["hits"]),
            whole(&totals["misses"]),
            whole(&totals["lost_chunks"]),
            format!("{:.6}", dollars.into_iter().flatten().sum::<f64>()),
        ]);
    }
    Some(table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zip_has_the_program() {
        let zip = zipped(b"#!/bin/sh\n").unwrap();
        let mut read = zip::ZipArchive::new(Cursor::new(zip)).unwrap();
        let mut file = read.by_name("bootstrap").unwrap();
        assert_eq!(file.unix_mode().unwrap() & 0o777, 0o755);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "#!/bin/sh\n");
    }
}
