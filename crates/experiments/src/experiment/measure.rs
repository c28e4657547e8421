//! One short measurement of one server, and rounds of them over several servers.
//!
//! Figures of different moments differ by more than the effect under study, because other users of the machine come and
//! go. The servers therefore alternate. Each round measures every server once at every load, in the reverse order of
//! the round before, and compares figures of the same round. A measurement during which other processes were busy is
//! repeated, as long as there is patience. The repetition depends on those processes only, never on the result.

use std::net::SocketAddr;

use super::others::{DISTURBED_CORES, Others};
use crate::Error;
use tidemark_tools::bench::{self, Options, Workload};
use tidemark_tools::client::{Login, Protocol};
use tidemark_tools::load::Distribution;

/// Connections where there is one tenant.
pub(super) const CONNECTIONS: usize = 64;
/// Requests in flight per connection while keys are stored, and how much they are at most.
const PRELOAD_PIPELINE: usize = 50;
const PRELOAD_PIPELINE_BYTES: usize = 1 << 20;
/// How long it is looked whether stored keys are there, in seconds.
const CHECK_SECONDS: f64 = 0.2;
/// How often all keys are stored until they are all there: memory that grows while it is written to may evict some.
const PRELOAD_ATTEMPTS: usize = 4;
/// Keys that may be missing: a measurement of misses is one of something else.
const MISSES_ALLOWED: f64 = 0.001;

/// The items that are stored and asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Data {
    /// The number of keys of all tenants together.
    pub(super) keys: u64,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
}

/// How it is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) distribution: Distribution,
    pub(super) reads_ratio: f64,
    pub(super) pipeline: usize,
    /// Requests per second in open loop, in bursts of a pipeline's length; closed loop where there is none.
    pub(super) rate: Option<f64>,
    pub(super) seconds: f64,
}

/// The result of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// CPU time of the server's process per operation.
    pub(super) cpu_ns: f64,
    pub(super) ops_per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p75_us: f64,
    pub(super) p99_us: f64,
    /// How often the load received something, per operation.
    pub(super) receives: f64,
    /// The share of due requests of an open loop that could not even be sent.
    pub(super) unsent_ratio: f64,
    pub(super) requests: u64,
    /// How many cores processes had that are no part of the measurement.
    pub(super) others_cores: f64,
}

/// The mean CPU use of other processes during measurements.
pub(super) fn others_cores<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    let (sum, count) = samples.fold((0.0, 0_u32), |(sum, count), sample| {
        (sum + sample.others_cores, count + 1)
    });
    sum / f64::from(count.max(1))
}

/// A figure of a sample.
pub(super) type Measure = fn(&Sample) -> f64;

/// The server that is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) name: &'a str,
    pub(super) address: SocketAddr,
    pub(super) protocol: Protocol,
    /// The logins of the connections, in rotation; at least one.
    pub(super) logins: &'a [Option<Login>],
    /// Whether all logins are one tenant's, which has the keys of all.
    pub(super) is_one: bool,
    pub(super) connections: usize,
}

impl<'a> Endpoint<'a> {
    /// A server with nobody to log in as.
    pub(super) fn open(name: &'a str, address: SocketAddr, protocol: Protocol) -> Self {
        Self {
            name,
            address,
            protocol,
            logins: &[None],
            is_one: false,
            connections: CONNECTIONS,
        }
    }

    /// Stores every key.
    pub(super) fn preload(&self, data: Data, seed: u64) -> Result<(), Error> {
        let load = Load {
            distribution: Distribution::Uniform,
            reads_ratio: 1.0,
            pipeline: (PRELOAD_PIPELINE_BYTES / data.value_bytes).clamp(1, PRELOAD_PIPELINE),
            rate: None,
            seconds: CHECK_SECONDS,
        };
        for _ in 0..PRELOAD_ATTEMPTS {
            let options = Options {
                preload: true,
                verify: true,
                ..self.options(data, load, seed)
            };
            let report = bench::run(&options, &mut |_| {})?;
            if report.preload_errors + report.errors > 0 {
                return Err(self.unfit(report.first_mistake.unwrap_or_else(|| "keys were not stored".into())));
            }
            if report.hit_ratio.is_some_and(|ratio| ratio >= 1.0) {
                return Ok(());
            }
        }
        Err(self.unfit("not all keys are there after they were stored: it needs more memory".into()))
    }

    /// Measures once.
    pub(super) fn measure(&self, data: Data, load: Load, seed: u64) -> Result<Sample, Error> {
        let others = Others::watch();
        let report = bench::run(&self.options(data, load, seed), &mut |_| {})?;
        let others_cores = others.cores();
        if report.errors > 0 {
            return Err(self.unfit(report.first_mistake.unwrap_or_else(|| "requests failed".into())));
        }
        if let Some(ratio) = report.hit_ratio.filter(|ratio| *ratio < 1.0 - MISSES_ALLOWED) {
            return Err(self.unfit(format!(
                "only {:.2} % of the stored keys are still there",
                ratio * 100.0
            )));
        }
        let (Some(cpu_ns), Some(latency)) = (report.server_cpu_ns_per_op, report.latency_us) else {
            return Err(self.unfit("its CPU time can not be read".into()));
        };
        let due = (report.requests + report.unsent) as f64;
        Ok(Sample {
            cpu_ns,
            ops_per_second: report.ops_per_second,
            p50_us: latency.p50,
            p75_us: latency.p75,
            p99_us: latency.p99,
            receives: report.receives as f64 / report.requests as f64,
            unsent_ratio: report.unsent as f64 / due,
            requests: report.requests,
            others_cores,
        })
    }

    fn options(&self, data: Data, load: Load, seed: u64) -> Options {
        Options {
            address: self.address,
            protocol: self.protocol,
            logins: self.logins.to_vec(),
            keys_apart: self.is_one,
            connections: self.connections,
            pipeline: load.pipeline,
            threads: 1,
            workload: Workload {
                reads_ratio: load.reads_ratio,
                seed,
                ..Workload::gets(
                    data.keys / self.logins.len() as u64,
                    load.distribution,
                    data.key_bytes,
                    data.value_bytes,
                )
            },
            rate: load.rate,
            burst: if load.rate.is_some() { load.pipeline } else { 1 },
            sleeps: false,
            seconds: load.seconds,
            preload: false,
            look_aside: false,
            verify: false,
        }
    }

    fn unfit(&self, reason: String) -> Error {
        Error::Unfit {
            server: self.name.to_owned(),
            reason,
        }
    }
}

/// The samples of every endpoint at every load in every round: indices are load, endpoint, round.
pub(super) type Rounds = Vec<Vec<Vec<Sample>>>;

/// How often, and from which seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    pub(super) seed: u64,
}

/// Measures every endpoint at every load, round after round; `tell` is told before each round.
pub(super) fn rounds(
    endpoints: &[Endpoint<'_>],
    data: Data,
    loads: &[Load],
    plan: Plan,
    tell: &mut dyn FnMut(usize),
) -> Result<Rounds, Error> {
    let mut all = vec![vec![Vec::with_capacity(plan.rounds); endpoints.len()]; loads.len()];
    for round in 0..plan.rounds {
        tell(round + 1);
        let mut patience = REPEATS_PER_MEASUREMENT * endpoints.len() * loads.len();
        for (load, samples) in loads.iter().zip(&mut all) {
            for index in order(endpoints.len(), round) {
                // All of a round are asked for the same keys in the same order.
                let seed = plan.seed.wrapping_mul(SEEDS_PER_RUN).wrapping_add(round as u64);
                let mut sample = endpoints[index].measure(data, *load, seed)?;
                while sample.others_cores > DISTURBED_CORES && patience > 0 {
                    patience -= 1;
                    sample = endpoints[index].measure(data, *load, seed)?;
                }
                samples[index].push(sample);
            }
        }
    }
    Ok(all)
}

/// How many measurements of a round may be made again, for each of it: an experiment takes at most twice its time.
const REPEATS_PER_MEASUREMENT: usize = 1;
/// More rounds than any experiment has.
const SEEDS_PER_RUN: u64 = 1000;

/// Forwards in one round, backwards in the next.
fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| {
        if round.is_multiple_of(2) {
            place
        } else {
            count - 1 - place
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_their_order() {
        for (count, round, expected) in [
            (3, 0, &[0, 1, 2][..]),
            (3, 1, &[2, 1, 0]),
            (3, 2, &[0, 1, 2]),
            (0, 1, &[]),
        ] {
            assert_eq!(
                order(count, round).collect::<Vec<_>>(),
                expected,
                "{count} in round {round}"
            );
        }
    }
}
