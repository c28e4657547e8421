//! A day of changing demand, and what is billed of it: Genie's Fig. 1(b) (TKDE 2025, section II.A).

use std::f64::consts::TAU;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::chart::{Chart, Marks, Panel};
use super::measure::{Data, Endpoint, Load, others_cores};
use super::metered::Metered;
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Distribution;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig1b",
    title: "A compressed day, and the CPU that is billed of it (Genie, Fig. 1b)",
    minutes: 5,
    about: "\
A day with the rise and fall of Facebook's ETC load, compressed: 24 hours of a few seconds each, in which the rate follows a sine
whose mean is 80.7 % of its peak, as the paper's 19.3 % of unused vCPUs say. Items of 16+64 bytes, 95 % reads, Zipf 0.99, memcached's
protocol, 16 connections, 10 requests at a time, in open loop; the peak is half of what server and load reach together. The curve
is the CPU time of the whole process in each hour, as the system tells it. What is billed is the sum of the CPU time in the
tenant's rows of the ledger. What is judged is how far the bill is from the area under the curve. Beside it stands what a
fixed instance would have left unused that the peak just fits, and one of twice the size, which is needed where the peak is just above.",
    run,
};

const HOURS: usize = 24;
/// The busiest hour.
const PEAK_HOUR: f64 = 20.0;
/// The mean of the day as a part of its peak.
const MEAN: f64 = 0.807;
/// The peak's rate, as a part of what is possible.
const PEAK_RATE: f64 = 0.5;
const DATA: Data = Data {
    keys: 65_536,
    key_bytes: 16,
    value_bytes: 64,
};
const PIPELINE: usize = 10;
const CONNECTIONS: usize = 16;
const MEMORY_BYTES: u64 = 256 << 20;
const OFF_MAX: f64 = 0.05;
/// How long the ledger may take to have rows of all that was used, and how often it is looked.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The rate in an hour, as a part of the peak's.
fn rate_ratio(hour: usize) -> f64 {
    let from_peak = (hour as f64 - PEAK_HOUR) / HOURS as f64;
    1.0 - (1.0 - MEAN) * (1.0 - (TAU * from_peak).cos())
}

/// The findings.
#[derive(Clone, Debug, Default)]
struct Day {
    /// Cores of the process in each hour.
    cores: Vec<f64>,
    /// How long each hour was, in seconds.
    seconds: Vec<f64>,
    /// CPU time in the tenant's rows, in seconds: measured, and by the model.
    billed: (f64, f64),
}

impl Day {
    fn area(&self) -> f64 {
        self.cores
            .iter()
            .zip(&self.seconds)
            .map(|(cores, seconds)| cores * seconds)
            .sum()
    }

    fn off(&self, billed: f64) -> f64 {
        (billed / self.area() - 1.0).abs()
    }

    /// The part of an instance that is so many times the peak that the day leaves unused.
    fn unused(&self, peaks: f64) -> f64 {
        let peak = self.cores.iter().copied().fold(0.0, f64::max);
        1.0 - self.area() / self.seconds.iter().sum::<f64>() / (peak * peaks)
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let hour_seconds: f64 = if context.quick { 0.5 } else { 8.0 };
    let server = Metered::start(context, MEMORY_BYTES, &["--ledger-period", "1s"])?;
    let endpoint = Endpoint {
        connections: CONNECTIONS,
        ..Endpoint::open("tidemark", server.address(Protocol::Memcached)?, Protocol::Memcached)
    };
    endpoint.preload(DATA, context.seed)?;
    let load = |rate, seconds| Load {
        distribution: Distribution::Zipf { alpha: 0.99 },
        reads_ratio: 0.95,
        pipeline: PIPELINE,
        rate,
        seconds,
    };
    let peak = endpoint.measure(DATA, load(None, hour_seconds.min(3.0)), context.seed)?;
    let peak_rate = peak.ops_per_second * PEAK_RATE;
    let before = server.reading()?;
    let rows_before = billed(&rows(&server, before.cpu_seconds)?);
    let (mut day, mut samples) = (Day::default(), Vec::new());
    for hour in 0..HOURS {
        context.tell(&format!("hour {hour}"));
        let (began, before_ns) = (Instant::now(), server.process_cpu_ns()?);
        let load = load(Some(peak_rate * rate_ratio(hour)), hour_seconds);
        samples.push(endpoint.measure(DATA, load, context.seed + hour as u64)?);
        let (used_ns, seconds) = (server.process_cpu_ns()? - before_ns, began.elapsed().as_secs_f64());
        day.cores.push(used_ns as f64 / 1e9 / seconds);
        day.seconds.push(seconds);
    }
    let after = billed(&rows(&server, server.reading()?.cpu_seconds)?);
    day.billed = (after.0 - rows_before.0, after.1 - rows_before.1);
    let series = series(&day);
    Ok(Outcome {
        scale: format!("24 hours of {hour_seconds} s; {peak_rate:.0} requests/s at the peak"),
        targets: targets(&day),
        chart: Chart {
            title: "A compressed day".into(),
            panels: vec![Panel::of_series(CURVE, Marks::Lines, &[&series[0]])],
        },
        series,
        others_cores: others_cores(samples.iter()),
    })
}

/// The rows of the tenant once they have all that it was charged.
fn rows(server: &Metered<'_>, cpu_seconds: f64) -> Result<Vec<Value>, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        let usage = server.ask(&["usage", "default", "--json"])?;
        let rows = usage["rows"].as_array().cloned().unwrap_or_default();
        if billed(&rows).0 >= cpu_seconds * 0.9999 {
            return Ok(rows);
        }
        if Instant::now() > until {
            return Err(Error::Usage("the ledger does not have what was used".into()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// CPU time in rows, in seconds: measured, and by the model.
fn billed(rows: &[Value]) -> (f64, f64) {
    let sum = |field: &str| rows.iter().filter_map(|row| row[field].as_f64()).sum();
    (sum("cpu_seconds"), sum("cpu_model_seconds"))
}

fn targets(day: &Day) -> Vec<Target> {
    let (measured, modelled) = day.billed;
    let mut targets = vec![Target::at_most(
        "CPU that is billed as measured: off the area under the curve by",
        day.off(measured),
        OFF_MAX,
    )];
    if modelled > 0.0 {
        let name = "CPU that is billed by the model: off the area under the curve by";
        targets.push(Target::at_most(name, day.off(modelled), OFF_MAX));
    }
    targets
}

const CURVE: &str = "vCPUs over the day";

fn series(day: &Day) -> Vec<Series> {
    let mut series = Vec::new();
    let mut add = |name: &str, (measure, unit): (&str, &str), (x, place): (&str, &str), value: f64| {
        if let Some(spread) = Spread::of([value]) {
            let point = Point::spread(place, spread);
            add_point(&mut series, (name, measure, unit), ("", x), point);
        }
    };
    for (hour, cores) in day.cores.iter().enumerate() {
        add("of the process", (CURVE, "vCPUs"), ("hour", &hour.to_string()), *cores);
    }
    let amounts = [
        ("area under the curve", day.area()),
        ("measured", day.billed.0),
        ("by the model", day.billed.1),
    ];
    for (place, seconds) in amounts {
        add("CPU time", ("CPU time of the day", "s"), ("figure", place), seconds);
    }
    for (place, peaks) in [("the peak just fits", 1.0), ("the peak is just above", 2.0)] {
        let unused = ("left unused of a fixed instance", "%");
        add("unused", unused, ("instance", place), day.unused(peaks) * 100.0);
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_the_mean_and_the_peak_that_it_should() {
        let rates: Vec<f64> = (0..HOURS).map(rate_ratio).collect();
        let mean = rates.iter().sum::<f64>() / HOURS as f64;
        assert!((mean - MEAN).abs() < 1e-9, "{mean}");
        let peak = rates.iter().copied().fold(0.0, f64::max);
        assert!((peak - 1.0).abs() < 1e-9 && rates[20] >= peak, "{rates:?}");
    }

    #[test]
    fn a_bill_is_judged_by_the_area_and_instances_by_the_peak() {
        let day = Day {
            cores: vec![0.2, 0.4],
            seconds: vec![10.0, 10.0],
            billed: (5.9, 6.6),
        };
        assert!((day.area() - 6.0).abs() < 1e-9);
        assert_eq!(
            targets(&day).iter().map(|target| target.met).collect::<Vec<_>>(),
            [true, false]
        );
        assert!((day.unused(1.0) - 0.25).abs() < 1e-9 && (day.unused(2.0) - 0.625).abs() < 1e-9);
    }
}
