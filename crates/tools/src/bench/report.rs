//! The result of a run of [`super::run`].

use serde::Serialize;

use super::tally::Tally;

/// The result of a run; serialised, it is what `tidemark bench --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Requests that were answered, or given up at the end.
    pub requests: u64,
    /// The number of operations that were answered with an error, wrongly or not at all.
    pub errors: u64,
    /// Requests per second from the first request to the last reply.
    pub ops_per_second: f64,
    /// How long requests took; `null` where there was none.
    pub latency_us: Option<Latency>,
    /// Hits over gets that were answered well; `null` without gets.
    pub hit_ratio: Option<f64>,
    /// CPU time of the server's process per request, where it runs on this machine and may be looked at.
    pub server_cpu_ns_per_op: Option<f64>,
    /// The errors by kind.
    #[serde(skip)]
    pub mistakes: Mistakes,
    /// A description of the first mistake.
    #[serde(skip)]
    pub first_mistake: Option<String>,
    /// Requests of an open loop that were due but could not be sent because all connections were waiting. Their lateness
    /// at the end is in the latencies, they are not in the requests.
    #[serde(skip)]
    pub unsent: u64,
    /// How often the load received something from the system: replies that come together are one.
    #[serde(skip)]
    pub receives: u64,
    /// Errors while the keys were stored before the measurement.
    #[serde(skip)]
    pub preload_errors: u64,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the requests took at most this.
    pub p50: f64,
    /// Three in four. It is not in reports.
    #[serde(skip)]
    pub p75: f64,
    /// All but one in a hundred.
    pub p99: f64,
    /// All but one in a thousand.
    pub p999: f64,
}

/// Errors by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// The server answered with an error.
    pub refused: u64,
    /// A value of another length, another key's value, or a reply that the request does not have.
    pub wrong: u64,
    /// No reply came before the run was given up.
    pub unanswered: u64,
}

impl Mistakes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.refused + self.wrong + self.unanswered
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.refused += other.refused;
        self.wrong += other.wrong;
        self.unanswered += other.unanswered;
    }
}

impl Report {
    pub(super) fn new(tally: &Tally, preload: &Tally, server_cpu_ns: Option<u64>) -> Self {
        let requests = tally.requests as f64;
        let us = |quantile| Some(round(tally.latency_ns(quantile)? as f64 / 1e3, 1e3));
        let latency_us = us(0.5).zip(us(0.75)).zip(us(0.99).zip(us(0.999)));
        let latency_us = latency_us.map(|((p50, p75), (p99, p999))| Latency { p50, p75, p99, p999 });
        let seconds = tally.last_ns as f64 / 1e9;
        Self {
            requests: tally.requests,
            errors: tally.mistakes.total(),
            ops_per_second: if seconds > 0.0 {
                round(requests / seconds, 10.0)
            } else {
                0.0
            },
            latency_us,
            hit_ratio: (tally.gets > 0).then(|| tally.hits as f64 / tally.gets as f64),
            server_cpu_ns_per_op: server_cpu_ns
                .filter(|_| tally.requests > 0)
                .map(|ns| round(ns as f64 / requests, 10.0)),
            mistakes: tally.mistakes,
            first_mistake: tally.first_mistake.clone().or_else(|| preload.first_mistake.clone()),
            unsent: tally.unsent,
            receives: tally.receives,
            preload_errors: preload.mistakes.total(),
        }
    }
}

/// Digits behind the point that measure nothing are cut.
fn round(value: f64, factor: f64) -> f64 {
    (value * factor).round() / factor
}
