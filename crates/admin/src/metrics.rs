//! `GET /metrics`: server and tenants as Prometheus and whatever reads its format scrape them.
//!
//! Invariants: tenants are labelled in the order in which they were made, so that a new one never takes the label from an
//! older one, and only a removal lets one out of [`OTHER`]. What is not known has no sample; it is never a made-up zero.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, GaugeValueEncoder, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tidemark_control::{RefusedView, ServerView, TenantView};

/// What [`text`] is written in.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Tenants with a label of their own: each has a dozen time series, and scrapers keep every one of them.
const LABELS_MAX: usize = 1_000;
/// All others together. No tenant can have this name.
const OTHER: &str = "_other";

/// The metrics of a server and its tenants, in OpenMetrics' text format
/// (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).
///
/// # Errors
/// A number is beyond what the format can say.
pub(crate) fn text(server: &ServerView, mut tenants: Vec<TenantView>) -> Result<String, fmt::Error> {
    tenants.sort_unstable_by_key(|tenant| tenant.id);
    let series = tenants.into_iter().map(Series::from).collect();
    let mut registry = Registry::with_prefix("tidemark");
    registry.register_collector(Box::new(Scrape {
        pool_bytes: server.pool_bytes,
        connections: server.connections,
        unattributed_cpu_seconds: server.unattributed_cpu_seconds_total,
        unexplained_cpu_seconds: server.unexplained_cpu_seconds_total,
        series: capped(series, LABELS_MAX),
    }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape {
    pool_bytes: u64,
    connections: u64,
    unattributed_cpu_seconds: Option<f64>,
    unexplained_cpu_seconds: Option<f64>,
    series: Vec<Series>,
}

/// What is told of one tenant, or of several together.
#[derive(Clone, Debug, Default, PartialEq)]
struct Series {
    tenant: String,
    grant_bytes: u64,
    usage_bytes: u64,
    items: u64,
    gets: u64,
    hits: u64,
    cpu_seconds: Option<f64>,
    network_in_bytes: u64,
    network_out_bytes: u64,
    refused: RefusedView,
    goal: Option<Goal>,
}

/// How a goal stands, or the worst of several.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Goal {
    is_met: bool,
    shortfall_ratio: Option<f64>,
}

impl From<TenantView> for Series {
    fn from(view: TenantView) -> Self {
        Self {
            grant_bytes: view.grant_bytes,
            usage_bytes: view.usage_bytes,
            items: view.items,
            gets: view.gets_total,
            hits: view.hits_total,
            cpu_seconds: view.cpu_seconds_total,
            network_in_bytes: view.network_in_bytes_total,
            network_out_bytes: view.network_out_bytes_total,
            refused: view.refused_total,
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
        let refused = |count: fn(&RefusedView) -> u64| count(&self.refused) + count(&other.refused);
        Self {
            grant_bytes: self.grant_bytes + other.grant_bytes,
            usage_bytes: self.usage_bytes + other.usage_bytes,
            items: self.items + other.items,
            gets: self.gets + other.gets,
            hits: self.hits + other.hits,
            cpu_seconds: either(self.cpu_seconds, other.cpu_seconds, |a, b| a + b),
            network_in_bytes: self.network_in_bytes + other.network_in_bytes,
            network_out_bytes: self.network_out_bytes + other.network_out_bytes,
            refused: RefusedView {
                ops_per_second: refused(|refused| refused.ops_per_second),
                bytes_per_second: refused(|refused| refused.bytes_per_second),
                connections: refused(|refused| refused.connections),
                failed_logins: refused(|refused| refused.failed_logins),
            },
            goal: either(self.goal, other.goal, |a, b| Goal {
                is_met: a.is_met && b.is_met,
                shortfall_ratio: either(a.shortfall_ratio, b.shortfall_ratio, f64::max),
            }),
            tenant: self.tenant,
        }
    }
}

/// Both, where both are known; else the one that is.
fn either<T>(one: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

/// The first ones by themselves, and all beyond `labels_max` as one.
fn capped(mut series: Vec<Series>, labels_max: usize) -> Vec<Series> {
    let others = series.split_off(labels_max.min(series.len()));
    if !others.is_empty() {
        let nobody = Series {
            tenant: OTHER.into(),
            ..Series::default()
        };
        series.push(others.iter().fold(nobody, Series::with));
    }
    series
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

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
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

/// What a value is of: pairs of a label's name and its text.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// One metric with all its samples; nothing of one without any.
fn metric<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, kind): (&str, &str, MetricType),
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
    /// What is the server's.
    fn server(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        use MetricType::{Counter, Gauge};
        let one = |value: Option<Number>| value.map(|value| (Labels::new(), value)).into_iter();
        let pool_bytes = Some(self.pool_bytes.into());
        metric(
            encoder,
            ("pool_bytes", "Memory for all tenants", Gauge),
            one(pool_bytes),
        )?;
        let connections = Some(self.connections.into());
        metric(
            encoder,
            ("connections", "Connections now open", Gauge),
            one(connections),
        )?;
        let unattributed = self.unattributed_cpu_seconds.map(Number::Real);
        let described = ("unattributed_cpu_seconds", "CPU time that is no tenant's", Counter);
        metric(encoder, described, one(unattributed))?;
        let unexplained = self.unexplained_cpu_seconds.map(Number::Real);
        let described = ("unexplained_cpu_seconds", "CPU time that nothing explains", Counter);
        metric(encoder, described, one(unexplained))
    }

    /// What each tenant has one of.
    fn plain(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        use MetricType::{Counter, Gauge};
        type Read = fn(&Series) -> Option<Number>;
        let metrics: [(&str, &str, MetricType, Read); 8] = [
            ("grant_bytes", "Memory that the tenant may hold", Gauge, |tenant| {
                Some(tenant.grant_bytes.into())
            }),
            ("usage_bytes", "Memory that the tenant holds", Gauge, |tenant| {
                Some(tenant.usage_bytes.into())
            }),
            ("items", "Items in the cache", Gauge, |tenant| Some(tenant.items.into())),
            (
                "goal_met",
                "Whether the goal is met, of those with one",
                Gauge,
                |tenant| tenant.goal.map(|goal| u64::from(goal.is_met).into()),
            ),
            (
                "goal_shortfall_ratio",
                "The hit ratio that is missing to a goal that is not met",
                Gauge,
                |tenant| Some(tenant.goal?.shortfall_ratio?.into()),
            ),
            ("gets", "Keys looked up", Counter, |tenant| Some(tenant.gets.into())),
            ("hits", "Keys found", Counter, |tenant| Some(tenant.hits.into())),
            ("cpu_seconds", "CPU time that the tenant used", Counter, |tenant| {
                tenant.cpu_seconds.map(Number::Real)
            }),
        ];
        for (name, help, kind, read) in metrics {
            let samples = self
                .series
                .iter()
                .filter_map(|tenant| Some((tenant.labels(), read(tenant)?)));
            metric(encoder, (&format!("tenant_{name}"), help, kind), samples)?;
        }
        Ok(())
    }

    /// What each tenant has several of, by another label.
    fn labelled(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let described = (
            "tenant_network_bytes",
            "Bytes of requests and replies",
            MetricType::Counter,
        );
        let samples = self.series.iter().flat_map(|tenant| {
            let values = [("in", tenant.network_in_bytes), ("out", tenant.network_out_bytes)];
            tenant.by("direction", values)
        });
        metric(encoder, described, samples)?;
        let described = (
            "tenant_refused",
            "Refused by one of the tenant's limits",
            MetricType::Counter,
        );
        let samples = self.series.iter().flat_map(|tenant| {
            let values = [
                ("ops_per_second", tenant.refused.ops_per_second),
                ("bytes_per_second", tenant.refused.bytes_per_second),
                ("connections", tenant.refused.connections),
                ("failed_logins", tenant.refused.failed_logins),
            ];
            tenant.by("reason", values)
        });
        metric(encoder, described, samples)
    }
}

impl Series {
    fn labels(&self) -> Labels<'_> {
        vec![("tenant", &self.tenant)]
    }

    /// Samples that differ in one more label.
    fn by<const N: usize>(&self, label: &'static str, values: [(&'static str, u64); N]) -> [(Labels<'_>, Number); N] {
        values.map(|(text, value)| {
            let mut labels = self.labels();
            labels.push((label, text));
            (labels, value.into())
        })
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.server(&mut encoder)?;
        self.plain(&mut encoder)?;
        self.labelled(&mut encoder)
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
            gets: number,
            hits: number,
            cpu_seconds: None,
            network_in_bytes: number,
            network_out_bytes: number,
            refused: RefusedView {
                ops_per_second: number,
                bytes_per_second: number,
                connections: number,
                failed_logins: number,
            },
            goal,
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
        assert_eq!(capped(Vec::new(), 2), []);
        assert_eq!(labels(&capped(all(2), 2)), ["1", "2"]);
        let capped = capped(all(5), 2);
        assert_eq!(labels(&capped), ["1", "2", OTHER]);
        assert_eq!(capped[2], series_of(OTHER, 3 + 4 + 5, None));
    }

    #[test]
    fn what_is_not_known_has_no_sample() {
        let scrape = |series| {
            let mut registry = Registry::with_prefix("tidemark");
            registry.register_collector(Box::new(Scrape {
                pool_bytes: 7,
                connections: 1,
                unattributed_cpu_seconds: None,
                unexplained_cpu_seconds: Some(0.5),
                series,
            }));
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
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
        assert!(
            !text.contains("goal_met{tenant=\"a\"") && !text.contains("shortfall_ratio{tenant=\"c\""),
            "{text}"
        );
        assert!(!text.contains("tenant_cpu"), "{text}");
    }
}
