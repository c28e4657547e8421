//! `GET /metrics`: server and tenants as Prometheus and whatever reads its format scrape them.
//!
//! Invariants: tenants are labelled in the order in which they were made. A new one thus never takes the label from an
//! older one, and only a removal lets one out of [`OTHER`]. An unknown value has no sample; it is never a made-up zero.
//! No counter falls while the server runs.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, GaugeValueEncoder, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tidemark_control::{AlertsView, ServerView, TenantView};

/// The format of [`Metrics::text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Tenants with a label of their own: each has a dozen time series, and scrapers keep every one of them.
const LABELS_MAX: usize = 1_000;
/// All others together. No tenant can have this name.
const OTHER: &str = "_other";

/// The counts of a tenant: a metric, and the label that tells it from others of the same metric.
const COUNTED: [(Metric, Option<(&str, &str)>); 13] = [
    (GETS, None),
    (HITS, None),
    (NETWORK, Some(("direction", "in"))),
    (NETWORK, Some(("direction", "out"))),
    (REFUSED, Some(("reason", "ops_per_second"))),
    (REFUSED, Some(("reason", "bytes_per_second"))),
    (REFUSED, Some(("reason", "spending_limit"))),
    (REFUSED, Some(("reason", "connections"))),
    (REFUSED, Some(("reason", "failed_logins"))),
    (REFUSED, Some(("reason", "reply_size"))),
    (REFUSED, Some(("reason", "stalled_connection"))),
    (REFUSED, Some(("reason", "incomplete_command"))),
    (REFUSED, Some(("reason", "connection_memory"))),
];
const GETS: Metric = Metric("tenant_gets", "Keys looked up");
const HITS: Metric = Metric("tenant_hits", "Keys found");
const NETWORK: Metric = Metric("tenant_network_bytes", "Bytes of requests and replies");
const REFUSED: Metric = Metric(
    "tenant_refused",
    "Refused or closed by one of the tenant's or the server's limits, and logins that failed",
);

/// A metric's name and its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Metric(&'static str, &'static str);

/// The counts, in the order of [`COUNTED`].
type Counts = [u64; COUNTED.len()];

/// The state that is kept from one scrape to the next.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    others: Steady,
}

impl Metrics {
    /// The metrics of a server and its tenants, in OpenMetrics' text format
    /// (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).
    ///
    /// # Errors
    /// A number is beyond the format's range.
    pub(crate) fn text(&mut self, server: &ServerView, mut tenants: Vec<TenantView>) -> Result<String, fmt::Error> {
        tenants.sort_unstable_by_key(|tenant| tenant.id);
        let operations = operations(&tenants, LABELS_MAX);
        let series = tenants.into_iter().map(Series::from).collect();
        written(Scrape {
            pool_bytes: server.pool_bytes,
            connections: server.connections,
            failed_logins: server.failed_logins_total,
            unattributed_cpu_seconds: server.unattributed_cpu_seconds_total,
            unexplained_cpu_seconds: server.unexplained_cpu_seconds_total,
            network_occupancy: server.network_occupancy,
            alerts: server.alerts,
            series: self.capped(series, LABELS_MAX),
            operations,
        })
    }

    /// The first ones by themselves, and all beyond `labels_max` as one.
    fn capped(&mut self, mut series: Vec<Series>, labels_max: usize) -> Vec<Series> {
        let others = series.split_off(labels_max.min(series.len()));
        if !others.is_empty() {
            let nobody = Series {
                tenant: OTHER.into(),
                ..Series::default()
            };
            let mut together = others.iter().fold(nobody, Series::with);
            together.counts = self.others.of(together.counts);
            series.push(together);
        }
        series
    }
}

fn written(scrape: Scrape) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tidemark");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Sums of tenants' counters that do not fall when a tenant leaves: its counts stay. To a scraper a counter that falls
/// has begun anew, and all of it has been counted since.
#[derive(Debug, Default)]
struct Steady {
    last: Counts,
    left: Counts,
}

impl Steady {
    fn of(&mut self, sums: Counts) -> Counts {
        let lefts = self.left.iter_mut().zip(&self.last).zip(sums);
        lefts.for_each(|((left, last), sum)| *left += last.saturating_sub(sum));
        self.last = sums;
        std::array::from_fn(|count| sums[count] + self.left[count])
    }
}

#[derive(Debug)]
struct Scrape {
    pool_bytes: u64,
    connections: u64,
    failed_logins: u64,
    unattributed_cpu_seconds: Option<f64>,
    unexplained_cpu_seconds: Option<f64>,
    network_occupancy: Option<f64>,
    alerts: Option<AlertsView>,
    series: Vec<Series>,
    operations: Vec<Operations>,
}

/// How often a tenant, or several together, executed a command.
#[derive(Clone, Debug, PartialEq)]
struct Operations {
    tenant: String,
    protocol: &'static str,
    command: &'static str,
    count: u64,
}

/// The figures of one tenant, or of several together.
#[derive(Clone, Debug, Default, PartialEq)]
struct Series {
    tenant: String,
    grant_bytes: u64,
    usage_bytes: u64,
    items: u64,
    flash: Flash,
    counts: Counts,
    cpu_seconds: Option<f64>,
    cpu_model_seconds: Option<f64>,
    memory_byte_seconds: Option<u64>,
    network_occupancy: Option<f64>,
    goal: Option<Goal>,
    spending: Option<Spending>,
}

/// The spending in this month, and its ratio to a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spending {
    spent: f64,
    ratio: Option<f64>,
    is_restrained: bool,
}

/// Figures of flash, in the order of [`FLASH`]; none without flash.
type Flash = [Option<u64>; FLASH.len()];

/// The metrics of each tenant with flash, and whether they only grow.
const FLASH: [(Metric, MetricType); 7] = [
    (
        Metric("flash_grant_bytes", "Flash that the tenant may hold"),
        MetricType::Gauge,
    ),
    (
        Metric("flash_usage_bytes", "Flash that the tenant holds"),
        MetricType::Gauge,
    ),
    (
        Metric(
            "flash_memory_bytes",
            "Memory beside the pool that the tenant's flash takes",
        ),
        MetricType::Gauge,
    ),
    (Metric("flash_items", "Items on flash"), MetricType::Gauge),
    (
        Metric("flash_hits", "Lookups that found an item on flash"),
        MetricType::Counter,
    ),
    (
        Metric("flash_written_bytes", "Bytes that were written to flash"),
        MetricType::Counter,
    ),
    (
        Metric("flash_refused", "Evicted items that flash did not take"),
        MetricType::Counter,
    ),
];

/// How a goal stands, or the worst of several.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Goal {
    is_met: bool,
    shortfall_ratio: Option<f64>,
}

impl From<TenantView> for Series {
    fn from(view: TenantView) -> Self {
        let refused = view.refused_total;
        Self {
            grant_bytes: view.grant_bytes,
            usage_bytes: view.usage_bytes,
            items: view.items,
            flash: [
                view.flash_grant_bytes,
                view.flash_usage_bytes,
                view.flash_memory_bytes,
                view.flash_items,
                view.flash_hits_total,
                view.flash_written_bytes_total,
                view.flash_refused_total,
            ],
            counts: [
                view.gets_total,
                view.hits_total,
                view.network_in_bytes_total,
                view.network_out_bytes_total,
                refused.ops_per_second,
                refused.bytes_per_second,
                refused.spending_limit,
                refused.connections,
                refused.failed_logins,
                refused.reply_size,
                refused.stalled_connections,
                refused.incomplete_commands,
                refused.connection_memory,
            ],
            cpu_seconds: view.cpu_seconds_total,
            cpu_model_seconds: view.cpu_model_seconds_total,
            memory_byte_seconds: view.memory_byte_seconds_total,
            network_occupancy: view.network_occupancy,
            spending: view.spending.as_ref().map(|spending| Spending {
                spent: spending.spent.parse().unwrap_or_default(),
                ratio: spending.spent_ratio,
                is_restrained: spending.restraint.is_some(),
            }),
            goal: (view.goal_state != "none").then(|| Goal {
                is_met: view.goal_state == "met",
                shortfall_ratio: view.shortfall_ratio,
            }),
            tenant: view.name,
        }
    }
}

impl Series {
    /// Both together, under this one's label.
    fn with(self, other: &Self) -> Self {
        Self {
            grant_bytes: self.grant_bytes + other.grant_bytes,
            usage_bytes: self.usage_bytes + other.usage_bytes,
            items: self.items + other.items,
            flash: std::array::from_fn(|place| either(self.flash[place], other.flash[place], |a, b| a + b)),
            counts: std::array::from_fn(|count| self.counts[count] + other.counts[count]),
            cpu_seconds: None,
            cpu_model_seconds: None,
            memory_byte_seconds: None,
            network_occupancy: None,
            // Not of several: a month's end makes it fall, and nearness to a limit is a tenant's own.
            spending: None,
            goal: either(self.goal, other.goal, |a, b| Goal {
                is_met: a.is_met && b.is_met,
                shortfall_ratio: either(a.shortfall_ratio, b.shortfall_ratio, f64::max),
            }),
            tenant: self.tenant,
        }
    }

    fn labels(&self) -> Labels<'_> {
        vec![("tenant", &self.tenant)]
    }
}

/// The commands of the first tenants each by itself. The others have none: their sum would fall when one of them
/// leaves.
fn operations(tenants: &[TenantView], labels_max: usize) -> Vec<Operations> {
    let of = |tenant: &TenantView| {
        let counts = tenant.operations_total.iter().map(|count| Operations {
            tenant: tenant.name.clone(),
            protocol: count.protocol,
            command: count.command,
            count: count.count,
        });
        counts.collect::<Vec<_>>()
    };
    tenants.iter().take(labels_max).flat_map(of).collect()
}

/// Both, where both are known; else the one that is.
fn either<T>(one: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

/// A sample's value.
#[derive(Clone, Copy, Debug)]
enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl EncodeGaugeValue for Number {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => EncodeGaugeValue::encode(number, encoder),
            Self::Real(number) => EncodeGaugeValue::encode(number, encoder),
        }
    }
}

impl EncodeCounterValue for Number {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => EncodeCounterValue::encode(number, encoder),
            Self::Real(number) => EncodeCounterValue::encode(number, encoder),
        }
    }
}

/// The labels of a value: pairs of a label's name and its text.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// One metric with all its samples; nothing of one without any.
fn write<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    Metric(name, help): Metric,
    kind: MetricType,
    samples: impl Iterator<Item = (Labels<'a>, Number)>,
) -> fmt::Result {
    let mut samples = samples.peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        let write = |encoder: &mut MetricEncoder<'_>| match kind {
            MetricType::Counter => encoder.encode_counter::<Labels<'_>, _, u64>(&value, None),
            _ => encoder.encode_gauge(&value),
        };
        // Else there would be braces without anything in them.
        if labels.is_empty() {
            write(&mut family)?;
        } else {
            write(&mut family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

impl Scrape {
    /// Writes the server's metrics.
    fn write_server(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        use MetricType::{Counter, Gauge};
        let pool = Metric("pool_bytes", "Memory for all tenants");
        let connections = Metric("connections", "Connections now open");
        let failed_logins = Metric("failed_logins", "Logins that failed, whatever name they gave");
        let occupancy = Metric(
            "network_occupancy",
            "The part of what the network carries that requests and replies take, of the last 10 s",
        );
        let unattributed = Metric("unattributed_cpu_seconds", "CPU time that is no tenant's");
        let unexplained = Metric("unexplained_cpu_seconds", "CPU time that nothing explains");
        for (metric, kind, value) in [
            (pool, Gauge, Some(self.pool_bytes.into())),
            (connections, Gauge, Some(self.connections.into())),
            (failed_logins, Counter, Some(self.failed_logins.into())),
            (occupancy, Gauge, self.network_occupancy.map(Number::Real)),
            (unattributed, Counter, self.unattributed_cpu_seconds.map(Number::Real)),
            (unexplained, Counter, self.unexplained_cpu_seconds.map(Number::Real)),
        ] {
            write(
                encoder,
                metric,
                kind,
                value.map(|value| (Labels::new(), value)).into_iter(),
            )?;
        }
        let results = self.alerts.iter().flat_map(|alerts| {
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

    /// How each tenant stands.
    fn write_standing(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Read = fn(&Series) -> Option<Number>;
        let grant: Read = |tenant| Some(tenant.grant_bytes.into());
        let usage: Read = |tenant| Some(tenant.usage_bytes.into());
        let items: Read = |tenant| Some(tenant.items.into());
        let is_met: Read = |tenant| tenant.goal.map(|goal| u64::from(goal.is_met).into());
        let occupancy: Read = |tenant| tenant.network_occupancy.map(Number::Real);
        let spent: Read = |tenant| tenant.spending.map(|spending| Number::Real(spending.spent));
        let spent_ratio: Read = |tenant| tenant.spending?.ratio.map(Number::Real);
        let is_restrained: Read = |tenant| {
            let spending = tenant.spending.filter(|spending| spending.ratio.is_some())?;
            Some(u64::from(spending.is_restrained).into())
        };
        let shortfall: Read = |tenant| tenant.goal?.shortfall_ratio.map(Number::Real);
        for (metric, read) in [
            (Metric("tenant_grant_bytes", "Memory that the tenant may hold"), grant),
            (Metric("tenant_usage_bytes", "Memory that the tenant holds"), usage),
            (Metric("tenant_items", "Items in the cache"), items),
            (
                Metric("tenant_goal_met", "Whether the goal is met, of those with one"),
                is_met,
            ),
            (
                Metric(
                    "tenant_goal_shortfall_ratio",
                    "The hit ratio that is missing to a goal that is not met",
                ),
                shortfall,
            ),
            (
                Metric(
                    "tenant_network_occupancy",
                    "The part of its limit of bytes per second that the tenant uses, of the last 10 s",
                ),
                occupancy,
            ),
            (
                Metric(
                    "tenant_spent",
                    "Money spent in this month, in the currency of the prices",
                ),
                spent,
            ),
            (
                Metric(
                    "tenant_spent_ratio",
                    "The part of its spending limit that the tenant has spent in this month",
                ),
                spent_ratio,
            ),
            (
                Metric(
                    "tenant_spending_restrained",
                    "Whether something is kept from the tenant because of what it has spent, of those with a limit",
                ),
                is_restrained,
            ),
        ] {
            let samples = self
                .series
                .iter()
                .filter_map(|tenant| Some((tenant.labels(), read(tenant)?)));
            write(encoder, metric, MetricType::Gauge, samples)?;
        }
        Ok(())
    }

    /// Writes the counts of each tenant.
    fn write_counts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for metric in [GETS, HITS, NETWORK, REFUSED] {
            let samples = self.series.iter().flat_map(|tenant| {
                let counted = COUNTED.iter().zip(tenant.counts);
                counted.filter(|((of, _), _)| *of == metric).map(|((_, label), count)| {
                    let labels = tenant.labels().into_iter().chain(*label).collect();
                    (labels, Number::Whole(count))
                })
            });
            write(encoder, metric, MetricType::Counter, samples)?;
        }
        let cpu = Metric("tenant_cpu_seconds", "CPU time that serving the tenant took");
        let cpu_model = Metric(
            "tenant_cpu_model_seconds",
            "CPU time by the model, of the reference machine",
        );
        let memory = Metric(
            "tenant_memory_byte_seconds",
            "Memory granted, times the time for which it was",
        );
        type Read = fn(&Series) -> Option<Number>;
        let read_cpu: Read = |tenant| tenant.cpu_seconds.map(Number::Real);
        let read_cpu_model: Read = |tenant| tenant.cpu_model_seconds.map(Number::Real);
        let read_memory: Read = |tenant| tenant.memory_byte_seconds.map(Number::Whole);
        for (metric, read) in [(cpu, read_cpu), (cpu_model, read_cpu_model), (memory, read_memory)] {
            let samples = self.series.iter();
            let samples = samples.filter_map(|tenant| Some((tenant.labels(), read(tenant)?)));
            write(encoder, metric, MetricType::Counter, samples)?;
        }
        for (place, (metric, kind)) in FLASH.into_iter().enumerate() {
            let of = |tenant: &Series| tenant.flash[place].map(Number::Whole);
            let samples = self.series.iter();
            let samples = samples.filter_map(|tenant| Some((tenant.labels(), of(tenant)?)));
            write(encoder, metric, kind, samples)?;
        }
        let operations = self.operations.iter().map(|of| {
            let labels = vec![
                ("tenant", of.tenant.as_str()),
                ("command", of.command),
                ("protocol", of.protocol),
            ];
            (labels, Number::Whole(of.count))
        });
        let metric = Metric("tenant_operations", "Commands executed");
        write(encoder, metric, MetricType::Counter, operations)
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.write_server(&mut encoder)?;
        self.write_standing(&mut encoder)?;
        self.write_counts(&mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series_of(tenant: &str, number: u64, goal: Option<Goal>) -> Series {
        Series {
            tenant: tenant.into(),
            grant_bytes: number,
            usage_bytes: number,
            items: number,
            flash: [Some(number); FLASH.len()],
            counts: [number; COUNTED.len()],
            cpu_seconds: None,
            cpu_model_seconds: None,
            memory_byte_seconds: None,
            network_occupancy: None,
            goal,
            spending: None,
        }
    }

    fn goal(is_met: bool, shortfall_ratio: Option<f64>) -> Option<Goal> {
        Some(Goal {
            is_met,
            shortfall_ratio,
        })
    }

    #[test]
    fn several_together_are_their_sums_and_the_worst_of_their_goals() {
        let of = |goal| series_of("a", 1, goal);
        for (one, other, both) in [
            (None, None, None),
            (goal(true, None), None, goal(true, None)),
            (None, goal(false, Some(0.2)), goal(false, Some(0.2))),
            (goal(true, None), goal(false, Some(0.2)), goal(false, Some(0.2))),
            (goal(false, Some(0.3)), goal(false, Some(0.2)), goal(false, Some(0.3))),
            (goal(false, None), goal(true, None), goal(false, None)),
        ] {
            assert_eq!(of(one).with(&of(other)), series_of("a", 2, both), "{one:?} {other:?}");
        }
    }

    #[test]
    fn beyond_so_many_labels_all_others_are_one() {
        let all = |count: u64| {
            (1..=count)
                .map(|number| series_of(&number.to_string(), number, None))
                .collect()
        };
        let labels = |series: &[Series]| series.iter().map(|one| one.tenant.clone()).collect::<Vec<_>>();
        let mut metrics = Metrics::default();
        assert_eq!(metrics.capped(Vec::new(), 2), []);
        assert_eq!(labels(&metrics.capped(all(2), 2)), ["1", "2"]);
        let capped = metrics.capped(all(5), 2);
        assert_eq!(labels(&capped), ["1", "2", OTHER]);
        assert_eq!(capped[2], series_of(OTHER, 3 + 4 + 5, None));
    }

    #[test]
    fn what_the_others_counted_never_falls() {
        let mut metrics = Metrics::default();
        let mut of_others = |numbers: &[u64]| {
            let all = numbers.iter().map(|number| series_of("x", *number, None)).collect();
            metrics
                .capped(all, 1)
                .get(1)
                .map(|others| (others.items, others.counts[1]))
        };
        for (numbers, expected) in [
            (&[1, 20, 30][..], Some((50, 50))),
            (&[2, 21, 33], Some((54, 54))),
            // One of them is removed, or has a label of its own now.
            (&[2, 21], Some((21, 54))),
            (&[2, 25], Some((25, 58))),
            (&[2], None),
            (&[2, 25, 7], Some((32, 65))),
        ] {
            assert_eq!(of_others(numbers), expected, "{numbers:?}");
        }
    }

    #[test]
    fn what_is_not_known_has_no_sample() {
        let scrape = |series| {
            written(Scrape {
                pool_bytes: 7,
                connections: 1,
                failed_logins: 6,
                unattributed_cpu_seconds: None,
                unexplained_cpu_seconds: Some(0.5),
                network_occupancy: Some(0.25),
                alerts: None,
                series,
                operations: Vec::new(),
            })
            .unwrap()
        };
        let text = scrape(Vec::new());
        assert!(
            !text.contains("tidemark_tenant") && !text.contains("unattributed"),
            "{text}"
        );
        assert!(text.contains("tidemark_unexplained_cpu_seconds_total 0.5\n"), "{text}");
        let text = scrape(vec![
            series_of("a", 3, None),
            series_of("b", 4, goal(false, Some(0.25))),
            series_of("c", 5, goal(true, None)),
        ]);
        for line in [
            "tidemark_pool_bytes 7",
            "tidemark_failed_logins_total 6",
            "tidemark_network_occupancy 0.25",
            "# TYPE tidemark_tenant_hits counter",
            "tidemark_tenant_hits_total{tenant=\"a\"} 3",
            "tidemark_tenant_goal_met{tenant=\"b\"} 0",
            "tidemark_tenant_goal_shortfall_ratio{tenant=\"b\"} 0.25",
            "tidemark_tenant_goal_met{tenant=\"c\"} 1",
            "tidemark_tenant_network_bytes_total{tenant=\"c\",direction=\"out\"} 5",
            "tidemark_tenant_refused_total{tenant=\"b\",reason=\"failed_logins\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        let absent = ["goal_met{tenant=\"a\"", "shortfall_ratio{tenant=\"c\""];
        assert!(absent.iter().all(|part| !text.contains(part)), "{text}");
    }
}
