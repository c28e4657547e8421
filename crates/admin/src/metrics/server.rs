//! The metrics of the server and of its process.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{Counter, Gauge};
use tidemark_control::ServerView;

use super::text::{Metric, Number, write, write_durations, write_info, write_one};

/// Writes the server's metrics.
pub(super) fn write_server(server: &ServerView, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    write_info(
        encoder,
        Metric("build", "The version of the program"),
        &vec![("version", server.version)],
    )?;
    let real = |value: Option<f64>| value.map(Number::Real);
    for (name, help, kind, value) in [
        (
            "pool_bytes",
            "Memory for all tenants",
            Gauge,
            Some(server.pool_bytes.into()),
        ),
        (
            "granted_bytes",
            "Memory that tenants may hold now",
            Gauge,
            Some(server.granted_bytes.into()),
        ),
        (
            "flash_size_bytes",
            "Flash for all tenants",
            Gauge,
            server.flash_bytes.map(Number::Whole),
        ),
        (
            "flash_granted_bytes",
            "Flash that tenants may hold now",
            Gauge,
            server.flash_granted_bytes.map(Number::Whole),
        ),
        (
            "flash_failed",
            "Whether the device of flash has failed and is not used any more",
            Gauge,
            server.flash_failed.map(|failed| Number::Whole(failed.into())),
        ),
        (
            "connections",
            "Connections now open",
            Gauge,
            Some(server.connections.into()),
        ),
        (
            "failed_logins",
            "Logins that failed, whatever name they gave",
            Counter,
            Some(server.failed_logins_total.into()),
        ),
        (
            "rounds",
            "Rounds of the control plane",
            Counter,
            Some(server.rounds_total.into()),
        ),
        (
            "network_occupancy",
            "The part of what the network carries that requests and replies take, of the last 10 s",
            Gauge,
            real(server.network_occupancy),
        ),
        (
            "unattributed_cpu_seconds",
            "CPU time that is no tenant's",
            Counter,
            real(server.unattributed_cpu_seconds_total),
        ),
        (
            "unexplained_cpu_seconds",
            "CPU time that nothing explains",
            Counter,
            real(server.unexplained_cpu_seconds_total),
        ),
    ] {
        write_one(encoder, Metric(name, help), kind, value)?;
    }
    if let Some(times) = &server.request_duration {
        let help =
            "How long requests were in the server, from when their connection was ready until their replies were sent";
        write_durations(encoder, Metric("request_duration_seconds", help), times)?;
    }
    let results = server.alerts.iter().flat_map(|alerts| {
        [
            ("sent", alerts.sent_total),
            ("failed", alerts.failed_total),
            ("dropped", alerts.dropped_total),
        ]
    });
    let metric = Metric("alerts", "Alerts about spending limits, by what became of them");
    let samples = results.map(|(result, count)| (vec![("result", result)], count.into()));
    write(encoder, metric, Counter, samples)
}

/// The process, by the names that every Prometheus client gives them
/// (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>).
#[derive(Debug)]
pub(super) struct Process(pub(super) ServerView);

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (server, process) = (&self.0, &self.0.process);
        let whole = |value: Option<u64>| value.map(Number::Whole);
        for (name, help, kind, value) in [
            (
                "cpu_seconds",
                "CPU time of all threads, user and system",
                Counter,
                Some(Number::Real(server.cpu_seconds_total)),
            ),
            (
                "resident_memory_bytes",
                "Physical memory",
                Gauge,
                whole(server.rss_bytes),
            ),
            (
                "virtual_memory_bytes",
                "Address space",
                Gauge,
                whole(process.virtual_bytes),
            ),
            ("threads", "Threads", Gauge, whole(process.threads)),
            ("open_fds", "Open file descriptors", Gauge, whole(process.open_files)),
            (
                "max_fds",
                "The limit of open file descriptors",
                Gauge,
                whole(process.open_files_max),
            ),
            (
                "start_time_seconds",
                "When the process began, in seconds since 1970",
                Gauge,
                process.started_at_seconds.map(Number::Real),
            ),
        ] {
            write_one(&mut encoder, Metric(name, help), kind, value)?;
        }
        Ok(())
    }
}
