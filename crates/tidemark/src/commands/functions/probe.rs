//! `tidemark functions probe`: how often the cloud takes functions back (the InfiniCache paper's section 4.1).
//!
//! Each function is invoked once in an interval and says which instance answered. One that was never seen before took the place
//! of one that was reclaimed. One pool is watched, the shared one unless a tenant's is asked for.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use tidemark_functions::availability::{Pool, Reclaim, availability};
use tidemark_functions::engine::{EngineError, FunctionEngine as _, LambdaApi};
use tidemark_functions::event::{Invocation, Returned, Work};
use tidemark_functions::reclaimed::{INTERVALS_LEAST, Observed};
use tidemark_types::parse_duration;

use super::pool::{CALLS_AT_ONCE, PoolArgs};
use crate::failure::Failure;
use crate::functions_file::FunctionsFile;
use crate::output::{note, print, table};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, clap::Args)]
pub(super) struct ProbeArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Time between two invocations of a function
    #[arg(long, value_name = "T", default_value = "1m", value_parser = period)]
    every: Duration,
    /// Intervals to watch
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    intervals: u32,
}

fn period(text: &str) -> Result<Duration, String> {
    let period = parse_duration(text).map_err(|error| error.to_string())?;
    let is_right = period >= Duration::from_millis(100) && period <= HOUR;
    is_right
        .then_some(period)
        .ok_or_else(|| "allowed are 100ms to 1h".into())
}

pub(super) fn run(args: &ProbeArgs, json: bool) -> anyhow::Result<()> {
    let file = args.pool.read()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seen = runtime.block_on(watch(&file, args))?;
    let report = seen.report(&file, args.every)?;
    if json {
        return Ok(print(&report.to_string())?);
    }
    print(&tables(&report))?;
    if seen.observed.count() < INTERVALS_LEAST {
        note(&format!(
            "a distribution is fitted to {INTERVALS_LEAST} intervals at least"
        ));
    }
    note("loss and availability are those of an object in the pool without backup, by the paper's Equations 2 and 3");
    Ok(())
}

/// The observations.
#[derive(Default)]
struct Seen {
    observed: Observed,
    invocations: u64,
    failures: u64,
}

async fn watch(file: &FunctionsFile, args: &ProbeArgs) -> anyhow::Result<Seen> {
    let failed = |error: EngineError| Failure::failed(error.to_string());
    let api = file.api().map_err(failed)?;
    let names = file.pools[0].names();
    let mut known: Vec<HashSet<u64>> = vec![HashSet::new(); names.len()];
    let mut seen = Seen::default();
    let mut timer = tokio::time::interval(args.every);
    // The first round only learns who is there.
    for round in 0..=args.intervals {
        timer.tick().await;
        let answers = ask_all(&api, file, &names).await?;
        let mut reclaimed = 0;
        for (known, answer) in known.iter_mut().zip(answers) {
            seen.invocations += 1;
            match answer {
                Ok(instance) => reclaimed += u32::from(known.insert(instance) && known.len() > 1),
                Err(error @ EngineError::NotFound(_)) => return Err(failed(error).into()),
                Err(_) => seen.failures += 1,
            }
        }
        if round > 0 {
            seen.observed.note(reclaimed);
        }
    }
    Ok(seen)
}

/// Which instance of each function answers.
async fn ask_all(
    api: &LambdaApi,
    file: &FunctionsFile,
    names: &[String],
) -> anyhow::Result<Vec<Result<u64, EngineError>>> {
    let mut answers = Vec::with_capacity(names.len());
    for names in names.chunks(CALLS_AT_ONCE) {
        let mut calls = Vec::new();
        for name in names {
            let event = Invocation {
                work: Work::Warm,
                name: name.clone(),
                epoch: 0,
                proxy: String::new(),
                key: None,
                token: String::new(),
                ends_ms: 0,
                unit_ms: file.unit_ms,
                memory_bytes: file.pools[0].room_bytes(),
            };
            calls.push(tokio::spawn(api.invoke(name, serde_json::to_vec(&event)?)));
        }
        for call in calls {
            let instance = |answer: &[u8]| {
                let returned: Result<Returned, _> = serde_json::from_slice(answer);
                returned
                    .map(|returned| returned.instance)
                    .map_err(|error| EngineError::Function(error.to_string()))
            };
            answers.push(call.await?.and_then(|answer| instance(&answer)));
        }
    }
    Ok(answers)
}

impl Seen {
    fn report(&self, file: &FunctionsFile, every: Duration) -> anyhow::Result<Value> {
        let functions = u32::try_from(file.pools[0].count)?;
        let code = file.codes.rows()[0].1;
        let pool = Pool::new(functions, code).map_err(|error| Failure::usage(error.to_string()))?;
        let an_hour = (HOUR.as_secs_f64() / every.as_secs_f64()).round() as u32;
        let fit = |fit: Option<tidemark_functions::reclaimed::Fit>| {
            fit.map(|fit| {
                let loss = pool.loss(fit.reclaim);
                json!({
                    "reclaim": rounded(fit.reclaim).to_string(),
                    "log_likelihood": fit.log_likelihood,
                    "loss_ratio": loss,
                    "loss_ratio_approximate": pool.loss_approximately(fit.reclaim),
                    "availability": availability(loss, an_hour),
                })
            })
        };
        let best = self.observed.fit(functions);
        let both = best.map(|_| [self.observed.poisson(functions), self.observed.zipf(functions)]);
        Ok(json!({
            "functions": functions,
            "code": code.to_string(),
            "interval_seconds": every.as_secs_f64(),
            "invocations": self.invocations,
            "failures": self.failures,
            "reclaimed_per_interval": self.observed.mean(),
            "intervals": self.observed.intervals().map(|(r, count)| json!({"reclaimed": r, "intervals": count})).collect::<Vec<_>>(),
            "best": fit(best),
            "fits": both.into_iter().flatten().map(|one| fit(Some(one))).collect::<Vec<_>>(),
        }))
    }
}

/// With as many digits as `plan --reclaim` needs.
fn rounded(reclaim: Reclaim) -> Reclaim {
    let round = |number: f64| (number * 1e4).round() / 1e4;
    match reclaim {
        Reclaim::Poisson { mean } => Reclaim::Poisson { mean: round(mean) },
        Reclaim::Zipf { exponent } => Reclaim::Zipf {
            exponent: round(exponent),
        },
    }
}

fn tables(report: &Value) -> String {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let list = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    let mut rows = vec![words(&["RECLAIMED", "INTERVALS"])];
    rows.extend(
        list("intervals")
            .iter()
            .map(|row| vec![row["reclaimed"].to_string(), row["intervals"].to_string()]),
    );
    let mut fits = vec![words(&[
        "FIT",
        "LOG LIKELIHOOD",
        "LOSS IN AN INTERVAL",
        "AVAILABILITY IN AN HOUR",
    ])];
    let percent = |value: &Value| format!("{:.4} %", 100.0 * value.as_f64().unwrap_or_default());
    for fit in list("fits") {
        let is_best = fit["reclaim"] == report["best"]["reclaim"];
        fits.push(vec![
            format!(
                "{}{}",
                fit["reclaim"].as_str().unwrap_or_default(),
                if is_best { " *" } else { "" }
            ),
            format!("{:.2}", fit["log_likelihood"].as_f64().unwrap_or_default()),
            percent(&fit["loss_ratio"]),
            percent(&fit["availability"]),
        ]);
    }
    format!("{}\n\n{}", table(&rows), table(&fits))
}
