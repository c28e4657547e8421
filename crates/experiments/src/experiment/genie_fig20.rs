//! The cost of estimating often: Genie's Fig. 20 (TKDE 2025, section VI.G).

use super::chart::{Chart, Marks, Panel};
use super::measure::{Data, Endpoint, Load, Measure, Plan, Rounds, others_cores, rounds};
use super::metered::Metered;
use super::overhead::{ALL_STAYS, Metered as Measured, Started};
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Distribution;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig20",
    title: "Throughput and latency by the interval of estimates (Genie, Fig. 20)",
    minutes: 6,
    about: "\
One tenant's load, on servers that estimate its vCPUs at intervals of 1 s to 1 us, and on one without the model. Items of 8+8 bytes,
95 % reads, uniform and Zipf 0.99, memcached's protocol, 64 connections, 10 requests at a time, closed loop; each server has one worker,
all of them the same core, and they take turns. The paper sees no loss down to 100 us, and 7 to 10 % at 1 us. An estimate is made
at the end of a worker's turn, so that there are never more of them than turns. What is judged is CPU time per operation over that
of the server without the model, of the same round. The model is the built-in one; `TIDEMARK_CPU_MODEL` names a file of another.

Beside them a server that takes the time before and behind each request and charges it to its tenant, over one that shares its CPU
time by stamps of visits, as this server does; by RESP, with their own rounds. (The paper loses 25 % of throughput by that.)",
    run,
};

const INTERVALS: [&str; 7] = ["1s", "100ms", "10ms", "1ms", "100us", "10us", "1us"];
/// How much more CPU time an operation may take with estimates at these intervals.
const LIMITS: [(&str, f64); 3] = [("1s", 1.005), ("1ms", 1.005), ("100us", 1.02)];
const DISTRIBUTIONS: [(&str, Distribution); 2] = [
    ("uniform", Distribution::Uniform),
    ("Zipf 0.99", Distribution::Zipf { alpha: 0.99 }),
];
const DATA: Data = Data {
    keys: 262_144,
    key_bytes: 8,
    value_bytes: 8,
};
const PIPELINE: usize = 10;
const MEMORY_BYTES: u64 = 256 << 20;

fn run(context: &Context) -> Result<Outcome, Error> {
    let (count, seconds, keys) = if context.quick {
        (2, 0.2, DATA.keys / 16)
    } else {
        (15, 0.5, DATA.keys)
    };
    let data = Data { keys, ..DATA };
    let off = Metered::start(context, MEMORY_BYTES, &["--cpu-model", "off"])?;
    let mut servers = vec![off];
    for interval in INTERVALS {
        let options = ["--cpu-model-interval", interval];
        servers.push(Metered::start_modelling(context, MEMORY_BYTES, &options)?);
    }
    let names = ["off"].into_iter().chain(INTERVALS);
    let endpoints = names.zip(&servers).map(|(name, server)| {
        let address = server.address(Protocol::Memcached)?;
        Ok(Endpoint::open(name, address, Protocol::Memcached))
    });
    let endpoints: Vec<Endpoint<'_>> = endpoints.collect::<Result<_, Error>>()?;
    for endpoint in &endpoints {
        endpoint.preload(data, context.seed)?;
    }
    let loads = DISTRIBUTIONS.map(|(_, distribution)| Load {
        distribution,
        reads_ratio: 0.95,
        pipeline: PIPELINE,
        rate: None,
        seconds,
    });
    let plan = Plan {
        rounds: count,
        seed: context.seed,
    };
    let found = rounds(&endpoints, data, &loads, plan, &mut |round| {
        context.tell(&format!("round {round} of {count}"));
    })?;
    context.tell("each request stamped");
    let stamped = stamped(context, data, &loads, plan)?;
    let mut series = series(&found);
    add_stamped(&mut series, &stamped);
    Ok(Outcome {
        scale: format!("{count} interleaved rounds of {seconds} s for each server and load"),
        targets: targets(&found),
        chart: chart(&series),
        series,
        others_cores: others_cores(found.iter().chain(&stamped).flatten().flatten()),
    })
}

/// A server that shares CPU time by stamps of visits, and one that stamps each request, in rounds of their own.
fn stamped(context: &Context, data: Data, loads: &[Load], plan: Plan) -> Result<Rounds, Error> {
    let started = [Measured::Shares, Measured::Requests].map(|measured| {
        Started::start(context, (1, ALL_STAYS), measured, None).map(|started| (measured.to_string(), started))
    });
    let started = started.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let endpoints: Vec<Endpoint<'_>> = started
        .iter()
        .map(|(name, one)| Endpoint {
            logins: &one.logins,
            ..Endpoint::open(name, one.address, Protocol::Redis)
        })
        .collect();
    for endpoint in &endpoints {
        endpoint.preload(data, context.seed)?;
    }
    rounds(&endpoints, data, loads, plan, &mut |round| {
        context.tell(&format!("stamps: round {round} of {}", plan.rounds));
    })
}

fn add_stamped(series: &mut Vec<Series>, found: &Rounds) {
    for (of_load, (distribution, _)) in found.iter().zip(DISTRIBUTIONS) {
        let of: [(&str, Measure); 2] = [
            ("CPU per operation", |sample| sample.cpu_ns),
            ("throughput", |sample| sample.ops_per_second),
        ];
        for (place, measure) in of {
            let pairs = of_load[1].iter().zip(&of_load[0]);
            if let Some(spread) = Spread::of_ratios(pairs.map(|(own, shares)| (measure(own), measure(shares)))) {
                let point = Point::spread(place, spread);
                add_point(series, (distribution, STAMPED, ""), ("", "figure"), point);
            }
        }
    }
}

/// A figure of the server with an interval over that of the one without the model, round by round.
fn over_off(found: &Rounds, load: usize, place: usize, of: Measure) -> Option<Spread> {
    let (off, own) = (&found[load][0], &found[load][place + 1]);
    Spread::of_ratios(own.iter().zip(off).map(|(own, off)| (of(own), of(off))))
}

fn targets(found: &Rounds) -> Vec<Target> {
    let mut targets = Vec::new();
    for (load, (distribution, _)) in DISTRIBUTIONS.into_iter().enumerate() {
        for (interval, limit) in LIMITS {
            let place = INTERVALS.iter().position(|name| *name == interval);
            let ratio = place.and_then(|place| over_off(found, load, place, |sample| sample.cpu_ns));
            let name = format!("{distribution}: CPU per operation with estimates each {interval}, over none");
            targets.push(Target::at_most(
                name,
                ratio.map_or(f64::NAN, |ratio| ratio.median),
                limit,
            ));
        }
    }
    targets
}

const MEASURES: [(&str, &str, Measure); 4] = [
    ("throughput", "operations/s", |sample| sample.ops_per_second),
    ("latency, p50", "us", |sample| sample.p50_us),
    ("latency, p75", "us", |sample| sample.p75_us),
    ("latency, p99", "us", |sample| sample.p99_us),
];
const STAMPED: &str = "each request stamped, over visits stamped";
const OVER: &str = "CPU per operation over that without the model";

fn series(found: &Rounds) -> Vec<Series> {
    let mut series = Vec::new();
    for (load, (distribution, _)) in DISTRIBUTIONS.into_iter().enumerate() {
        let mut add = |(measure, unit): (&str, &str), place: &str, spread: Option<Spread>| {
            if let Some(spread) = spread {
                let point = Point::spread(place, spread);
                add_point(&mut series, (distribution, measure, unit), ("", "interval"), point);
            }
        };
        for (place, interval) in INTERVALS.into_iter().enumerate() {
            add(
                (OVER, ""),
                interval,
                over_off(found, load, place, |sample| sample.cpu_ns),
            );
        }
        for (measure, unit, of) in MEASURES {
            for (place, interval) in ["off"].into_iter().chain(INTERVALS).enumerate() {
                add((measure, unit), interval, Spread::of(found[load][place].iter().map(of)));
            }
        }
    }
    series
}

fn chart(series: &[Series]) -> Chart {
    let panel = |measure: &str| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(measure, Marks::Bars, &own)
    };
    let measures = MEASURES.map(|(measure, ..)| measure);
    Chart {
        title: "One tenant, by the interval of estimates".into(),
        panels: [OVER].into_iter().chain(measures).map(panel).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Sample;
    use super::*;

    #[test]
    fn each_interval_is_compared_with_none_in_the_same_round() {
        let sample = |cpu_ns: f64| Sample {
            cpu_ns,
            ops_per_second: 1.0,
            p50_us: 1.0,
            p75_us: 1.0,
            p99_us: 1.0,
            receives: 1.0,
            unsent_ratio: 0.0,
            requests: 1,
            others_cores: 0.0,
        };
        // The second round is twice as slow for all; at 100 us an operation takes 3 % more.
        let of = |place: usize| {
            let cost = if place == 5 { 1030.0 } else { 1000.0 };
            vec![sample(cost), sample(2.0 * cost)]
        };
        let found: Rounds = vec![(0..=INTERVALS.len()).map(of).collect(); 2];
        let failed: Vec<String> = targets(&found)
            .into_iter()
            .filter(|target| !target.met)
            .map(|target| target.name)
            .collect();
        let mut series = Vec::new();
        let stamped: Rounds = vec![vec![vec![sample(1000.0)], vec![sample(1250.0)]]];
        add_stamped(&mut series, &stamped);
        let found: Vec<f64> = series.iter().flat_map(|one| &one.points).map(|point| point.y).collect();
        assert_eq!(found, [1.25, 1.0], "{series:?}");
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed.iter().all(|name| name.contains("100us")), "{failed:?}");
    }
}
