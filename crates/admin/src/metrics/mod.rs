//! `GET /metrics`: server and tenants as Prometheus and whatever reads its format scrape them.
//!
//! Invariants: tenants are labelled in the order in which they were made. A new one thus never takes the label from an
//! older one, and only a removal lets one out of [`OTHER`]. An unknown value has no sample; it is never a made-up zero.
//! No counter falls while the server runs.

mod series;
mod server;
mod text;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tidemark_control::{ServerView, TenantView};

use series::{
    COUNTED, Counts, EVICTIONS, EXPIRATIONS, FLASH, GETS, HITS, Happened, NETWORK, REFUSED, SETS, Series, moves,
    operations,
};
use server::{Process, write_server};
use text::{Metric, Number, write};

/// The format of [`Metrics::text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Tenants with a label of their own: each has a dozen time series, and scrapers keep every one of them.
const LABELS_MAX: usize = 1_000;
/// All others together. No tenant can have this name.
const OTHER: &str = "_other";

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
        let (moves, flash_moves) = (
            moves(&tenants, LABELS_MAX, |tenant| &tenant.moves_total),
            moves(&tenants, LABELS_MAX, |tenant| &tenant.flash_moves_total),
        );
        let series = tenants.into_iter().map(Series::from).collect();
        written(Scrape {
            server: server.clone(),
            series: self.capped(series, LABELS_MAX),
            operations,
            moves,
            flash_moves,
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
    let mut process = Registry::with_prefix("process");
    process.register_collector(Box::new(Process(scrape.server.clone())));
    let mut registry = Registry::with_prefix("tidemark");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    encode_registry(&mut text, &process)?;
    encode_registry(&mut text, &registry)?;
    encode_eof(&mut text)?;
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
    server: ServerView,
    series: Vec<Series>,
    operations: Vec<Happened<3>>,
    moves: Vec<Happened<1>>,
    flash_moves: Vec<Happened<1>>,
}

impl Scrape {
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
        let floor: Read = |tenant| tenant.asked.floor_bytes.map(Number::Whole);
        let cap: Read = |tenant| tenant.asked.cap_bytes.map(Number::Whole);
        let goal: Read = |tenant| tenant.asked.hit_ratio.map(Number::Real);
        let latency_goal: Read = |tenant| tenant.asked.latency_seconds.map(Number::Real);
        let shortfall: Read = |tenant| tenant.goal?.shortfall_ratio.map(Number::Real);
        for (metric, read) in [
            (Metric("tenant_grant_bytes", "Memory that the tenant may hold"), grant),
            (Metric("tenant_usage_bytes", "Memory that the tenant holds"), usage),
            (Metric("tenant_items", "Items in the cache"), items),
            (
                Metric(
                    "tenant_floor_bytes",
                    "Memory that the tenant is guaranteed, of those with a floor",
                ),
                floor,
            ),
            (
                Metric(
                    "tenant_cap_bytes",
                    "Memory that the tenant never exceeds, of those with a cap",
                ),
                cap,
            ),
            (
                Metric(
                    "tenant_goal_hit_ratio",
                    "The hit ratio that is the tenant's goal, of those with one",
                ),
                goal,
            ),
            (
                Metric(
                    "tenant_goal_latency_seconds",
                    "The mean time of a get that is the tenant's goal, of those with one",
                ),
                latency_goal,
            ),
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
        for metric in [GETS, HITS, SETS, EVICTIONS, EXPIRATIONS, NETWORK, REFUSED] {
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
        let of_memory = Metric("tenant_moves", "Moves of the tenant's grant, by their reason");
        let of_flash = Metric("flash_moves", "Moves of the tenant's part of flash, by their reason");
        for (metric, moves) in [(of_memory, &self.moves), (of_flash, &self.flash_moves)] {
            write(encoder, metric, MetricType::Counter, moves.iter().map(Happened::sample))?;
        }
        let operations = self.operations.iter().map(Happened::sample);
        let metric = Metric("tenant_operations", "Commands executed, by outcome: ok, miss or error");
        write(encoder, metric, MetricType::Counter, operations)
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        write_server(&self.server, &mut encoder)?;
        self.write_standing(&mut encoder)?;
        self.write_counts(&mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use tidemark_control::{DurationBucketView, DurationsView, ProcessView};

    use super::series::{Asked, Goal};
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
            asked: Asked::default(),
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
                server: ServerView {
                    version: "1.2.3",
                    pool_bytes: 7,
                    connections: 1,
                    failed_logins_total: 6,
                    unexplained_cpu_seconds_total: Some(0.5),
                    network_occupancy: Some(0.25),
                    rss_bytes: Some(9),
                    process: ProcessView {
                        started_at_seconds: Some(12.5),
                        ..ProcessView::default()
                    },
                    request_duration: Some(DurationsView {
                        sum_us: 1_500_000,
                        count: 5,
                        buckets: [(Some(64), 2), (Some(1_048_576), 3), (None, 0)]
                            .map(|(below_us, count)| DurationBucketView { below_us, count })
                            .to_vec(),
                    }),
                    ..ServerView::default()
                },
                series,
                operations: Vec::new(),
                moves: vec![Happened {
                    tenant: "a".into(),
                    labels: [("reason", "surplus")],
                    count: 8,
                }],
                flash_moves: vec![Happened {
                    tenant: "a".into(),
                    labels: [("reason", "goal")],
                    count: 9,
                }],
            })
            .unwrap()
        };
        let text = scrape(Vec::new());
        assert!(
            !text.contains("tidemark_tenant_g") && !text.contains("unattributed") && !text.contains("open_fds"),
            "{text}"
        );
        assert!(text.contains("tidemark_unexplained_cpu_seconds_total 0.5\n"), "{text}");
        let text = scrape(vec![
            series_of("a", 3, None),
            series_of("b", 4, goal(false, Some(0.25))),
            Series {
                asked: Asked {
                    floor_bytes: Some(11),
                    cap_bytes: Some(12),
                    hit_ratio: Some(0.875),
                    latency_seconds: Some(0.5),
                },
                ..series_of("c", 5, goal(true, None))
            },
        ]);
        for line in [
            "tidemark_pool_bytes 7",
            "tidemark_build_info{version=\"1.2.3\"} 1",
            "process_resident_memory_bytes 9",
            "process_start_time_seconds 12.5",
            "# TYPE tidemark_request_duration_seconds histogram",
            "tidemark_request_duration_seconds_bucket{le=\"0.000064\"} 2",
            "tidemark_request_duration_seconds_bucket{le=\"1.048576\"} 5",
            "tidemark_request_duration_seconds_bucket{le=\"+Inf\"} 5",
            "tidemark_request_duration_seconds_sum 1.5",
            "tidemark_request_duration_seconds_count 5",
            "tidemark_failed_logins_total 6",
            "tidemark_tenant_moves_total{tenant=\"a\",reason=\"surplus\"} 8",
            "tidemark_flash_moves_total{tenant=\"a\",reason=\"goal\"} 9",
            "tidemark_tenant_floor_bytes{tenant=\"c\"} 11",
            "tidemark_tenant_cap_bytes{tenant=\"c\"} 12",
            "tidemark_tenant_goal_hit_ratio{tenant=\"c\"} 0.875",
            "tidemark_tenant_goal_latency_seconds{tenant=\"c\"} 0.5",
            "tidemark_tenant_evictions_total{tenant=\"b\"} 4",
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
        let absent = [
            "goal_met{tenant=\"a\"",
            "tenant_cap_bytes{tenant=\"a\"",
            "shortfall_ratio{tenant=\"c\"",
        ];
        assert!(absent.iter().all(|part| !text.contains(part)), "{text}");
    }
}
