//! Metrics to an OpenTelemetry collector: OTLP over HTTP, in JSON.
//!
//! Each export holds every metric as it is then, counters since the start. So nothing is kept for a collector that is gone: the
//! next export says it all. After failures the time to the next one grows, up to [`PAUSE_MAX`].

mod encode;
mod histogram;

use std::io;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tidemark_types::{Clock, SystemClock};

use crate::post::{PostError, Poster};
use crate::target::Target;
use encode::{Resource, request};

/// The longest time between two exports while they fail: ten minutes, unless the period is longer.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The path at which a collector takes metrics, if the URL has none (OTLP 1.5, "OTLP/HTTP Request").
const USUAL_PATH: &str = "/v1/metrics";

/// The receiver of metrics, and the interval.
#[derive(Clone, Debug)]
pub struct Otlp {
    /// The collector. It may be at an address of this host, where collectors mostly are.
    pub target: Target,
    /// Time between two exports.
    pub period: Duration,
    /// The instance's name.
    pub instance: String,
}

/// Starts the thread that sends metrics. `scrape` gives them as OpenMetrics' text; `None` ends the thread. The end of the
/// process does not wait for it.
///
/// # Errors
/// There is no thread to be had, or the certificates that the system trusts cannot be read.
pub fn start_otlp(otlp: &Otlp, scrape: impl FnMut() -> Option<String> + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exporting = Exporting {
        poster: Poster::new(otlp.target.clone().with_usual_path(USUAL_PATH), true)?,
        runtime,
        resource: Resource {
            version: env!("CARGO_PKG_VERSION"),
            instance: otlp.instance.clone(),
            began_ns: nanos(),
        },
        period: otlp.period,
        failures: 0,
    };
    std::thread::Builder::new()
        .name("tidemark-otlp".into())
        .spawn(move || exporting.run(scrape))?;
    Ok(())
}

/// Now, in nanoseconds since 1970.
fn nanos() -> u64 {
    SystemClock.now().0.saturating_mul(1_000_000)
}

struct Exporting {
    poster: Poster,
    runtime: tokio::runtime::Runtime,
    resource: Resource,
    period: Duration,
    /// In a row.
    failures: u32,
}

impl Exporting {
    fn run(mut self, mut scrape: impl FnMut() -> Option<String>) {
        let mut due = Instant::now();
        loop {
            // Not woken before: there is nobody who would.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let Some(text) = scrape() else { return };
            let body = request(&text, &self.resource, nanos()).to_string();
            let sent = self
                .runtime
                .block_on(self.poster.post("application/json", &[], Bytes::from(body)));
            self.note(sent);
            due = Instant::now() + pause(self.period, self.failures);
        }
    }

    /// Says in the log when exports begin to fail, and when they go through again.
    fn note(&mut self, sent: Result<(), PostError>) {
        let shown = self.poster.shown();
        match (sent, self.failures) {
            (Ok(()), 0) => {}
            (Ok(()), failures) => {
                self.failures = 0;
                tracing::info!(failures, "the collector at {shown} takes metrics again");
            }
            (Err(error), failures) => {
                self.failures = failures.saturating_add(1);
                if failures == 0 {
                    tracing::warn!("the collector at {shown} does not take metrics: {error}");
                }
            }
        }
    }
}

/// How long it is from one export to the next, after so many failures in a row.
fn pause(period: Duration, failures: u32) -> Duration {
    let longest = PAUSE_MAX.max(period);
    // From the second failure on: a collector that restarts misses one export.
    let doublings = failures.saturating_sub(1).min(16);
    period.saturating_mul(1 << doublings).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_make_pauses_longer_up_to_a_bound() {
        let seconds = |period, failures| pause(Duration::from_secs(period), failures).as_secs();
        for (period, failures, expected) in [
            (10, 0, 10),
            (10, 1, 10),
            (10, 2, 20),
            (10, 3, 40),
            (10, 7, 600),
            (10, u32::MAX, 600),
            (3600, 5, 3600),
        ] {
            assert_eq!(seconds(period, failures), expected, "{period} {failures}");
        }
    }
}
