//! `tidemark functions plan`: the losses and the cost of a cache in the memory of cloud functions.

use std::time::Duration;

use serde_json::{Value, json};
use tidemark_functions::Code;
use tidemark_functions::availability::{Pool, Reclaim, availability};
use tidemark_functions::cost::{Prices, Use};
use tidemark_types::{Size, parse_duration};

use crate::failure::Failure;
use crate::output::{note, print, table};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// Functions in the pool
    #[arg(long, value_name = "N", default_value_t = 400)]
    functions: u32,
    /// Memory of each
    #[arg(long, value_name = "SIZE", default_value = "1536MiB")]
    memory: Size,
    /// Chunks of data and of parity of an object
    #[arg(long, value_name = "DATA+PARITY", default_value = "10+2")]
    code: Code,
    /// Functions that are reclaimed between two warm-ups: poisson:MEAN or zipf:EXPONENT
    #[arg(long, value_name = "DISTRIBUTION", default_value = "poisson:0.6")]
    reclaim: Reclaim,
    /// Requests for objects in an hour
    #[arg(long, value_name = "N", default_value_t = 1000)]
    requests: u32,
    /// How long a function serves a chunk
    #[arg(long, value_name = "T", default_value = "100ms", value_parser = time)]
    serve_time: Duration,
    /// How long a warm-up takes
    #[arg(long, value_name = "T", default_value = "5ms", value_parser = time)]
    warm_time: Duration,
    /// Time between two warm-ups
    #[arg(long, value_name = "T", default_value = "1m", value_parser = period)]
    warm_every: Duration,
    /// How long a backup takes; the paper's cross-over comes out with 1600 ms
    #[arg(long, value_name = "T", default_value = "1600ms", value_parser = time)]
    backup_time: Duration,
    /// Time between two backups, or `never`
    #[arg(long, value_name = "T|never", default_value = "5m", value_parser = period_or_never)]
    backup_every: Period,
    /// Price of a node of memory for an hour, in dollars
    #[arg(long, value_name = "AMOUNT", default_value_t = Prices::PAPER.node_hour)]
    node_price: f64,
}

/// A time between two, if there is one.
#[derive(Clone, Copy, Debug)]
struct Period(Option<Duration>);

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn period(text: &str) -> Result<Duration, String> {
    let period = time(text)?;
    if period < Duration::from_secs(1) || period > 24 * HOUR {
        return Err("allowed are 1s to 24h".into());
    }
    Ok(period)
}

fn period_or_never(text: &str) -> Result<Period, String> {
    if text == "never" {
        return Ok(Period(None));
    }
    period(text).map(|period| Period(Some(period)))
}

pub(super) fn run(args: &PlanArgs, json: bool) -> anyhow::Result<()> {
    if !args.node_price.is_finite() || args.node_price < 0.0 {
        return Err(Failure::usage("--node-price: write an amount of dollars, such as 10.368").into());
    }
    let report = args.report()?;
    if json {
        return Ok(print(&report.to_string())?);
    }
    print(&tables(&report))?;
    note("availability is without backup; prices are of AWS Lambda, in dollars an hour");
    Ok(())
}

impl PlanArgs {
    fn report(&self) -> anyhow::Result<Value> {
        let pool = Pool::new(self.functions, self.code).map_err(|error| Failure::usage(error.to_string()))?;
        let (exact, approximate) = (pool.loss(self.reclaim), pool.loss_approximately(self.reclaim));
        let intervals = per_hour(self.warm_every);
        let in_use = self.in_use();
        let costs = [("paper", Prices::PAPER), ("today", Prices::TODAY)].map(|(name, prices)| {
            let prices = Prices {
                node_hour: self.node_price,
                ..prices
            };
            let hour = in_use.hour(&prices, f64::from(self.requests));
            json!({
                "prices": name,
                "serving": hour.serving,
                "warm_up": hour.warm_up,
                "backup": hour.backup,
                "total": hour.total(),
                "cross_over_requests": in_use.cross_over(&prices).round(),
            })
        });
        Ok(json!({
            "functions": self.functions,
            "memory_bytes": self.memory.0,
            "code": self.code.to_string(),
            "reclaim": self.reclaim.to_string(),
            "requests": self.requests,
            "node_price": self.node_price,
            "loss_ratio": exact,
            "loss_ratio_approximate": approximate,
            "availability": availability(exact, intervals),
            "availability_approximate": availability(approximate, intervals),
            "least_over_next_loss": self.least_over_next(&pool),
            "cost": costs,
        }))
    }

    /// How many times as probable it is that just enough chunks of an object are lost to lose it, as that one more is, if as
    /// many functions are reclaimed as it has chunks (the paper's p3 / p4 for 10+2): Equation 3 leaves the rest out.
    fn least_over_next(&self, pool: &Pool) -> Option<f64> {
        let (least, chunks) = (self.code.losing(), self.code.chunks());
        (least < chunks).then(|| pool.lost_chunks(least, chunks) / pool.lost_chunks(least + 1, chunks))
    }

    fn in_use(&self) -> Use {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let times = |period: Duration| HOUR.as_secs_f64() / period.as_secs_f64();
        Use {
            functions: self.functions,
            memory_gb: self.memory.0 as f64 / f64::from(1 << 30),
            code: self.code,
            serve_ms: ms(self.serve_time),
            warm_ms: ms(self.warm_time),
            warm_ups: times(self.warm_every),
            backup_ms: ms(self.backup_time),
            backups: self.backup_every.0.map_or(0.0, times),
        }
    }
}

/// Whole intervals in an hour, at least one.
fn per_hour(period: Duration) -> u32 {
    (HOUR.as_secs_f64() / period.as_secs_f64()).round().max(1.0) as u32
}

fn tables(report: &Value) -> String {
    let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_f64).unwrap_or_default();
    let percent = |key: &str| format!("{:.4} %", 100.0 * number(report, key));
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let row = |name: &str, exact: &str, approximate: &str| vec![name.to_owned(), percent(exact), percent(approximate)];
    let first = table(&[
        words(&["", "EXACT", "APPROXIMATE"]),
        row("loss between two warm-ups", "loss_ratio", "loss_ratio_approximate"),
        row("availability in an hour", "availability", "availability_approximate"),
    ]);
    let ratio = report["least_over_next_loss"].as_f64().map_or_else(String::new, |ratio| {
        format!(
            "If as many functions are reclaimed as an object has chunks, it loses just enough chunks to be lost {ratio:.1} times as \
             often as one more.\n\n"
        )
    });
    let mut rows = vec![words(&[
        "PRICES",
        "SERVING",
        "WARM-UP",
        "BACKUP",
        "TOTAL",
        "NODE IS CHEAPER FROM",
    ])];
    for cost in report.get("cost").and_then(Value::as_array).into_iter().flatten() {
        let mut row = words(&[cost.get("prices").and_then(Value::as_str).unwrap_or_default()]);
        let parts = ["serving", "warm_up", "backup", "total"];
        row.extend(parts.map(|part| format!("{:.4}", number(cost, part))));
        row.push(format!("{:.0} requests an hour", number(cost, "cross_over_requests")));
        rows.push(row);
    }
    format!("{first}\n\n{ratio}{}", table(&rows))
}
