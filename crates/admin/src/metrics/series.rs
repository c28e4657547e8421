//! The figures of tenants that metrics are made of, of one tenant or of several together.

use prometheus_client::metrics::MetricType;
use tidemark_control::{MovesView, TenantView};
use tidemark_types::HitRatio;

use super::text::{Labels, Metric, Number};

/// The counts of a tenant: a metric, and the label that tells it from others of the same metric.
pub(super) const COUNTED: [(Metric, Option<(&str, &str)>); 17] = [
    (GETS, None),
    (HITS, None),
    (SETS, None),
    (EVICTIONS, None),
    (EXPIRATIONS, None),
    (NETWORK, Some(("direction", "in"))),
    (NETWORK, Some(("direction", "out"))),
    (REFUSED, Some(("reason", "ops_per_second"))),
    (REFUSED, Some(("reason", "bytes_per_second"))),
    (REFUSED, Some(("reason", "spending_limit"))),
    (REFUSED, Some(("reason", "flash_waits"))),
    (REFUSED, Some(("reason", "connections"))),
    (REFUSED, Some(("reason", "failed_logins"))),
    (REFUSED, Some(("reason", "reply_size"))),
    (REFUSED, Some(("reason", "stalled_connection"))),
    (REFUSED, Some(("reason", "incomplete_command"))),
    (REFUSED, Some(("reason", "connection_memory"))),
];
pub(super) const GETS: Metric = Metric("tenant_gets", "Keys looked up");
pub(super) const HITS: Metric = Metric("tenant_hits", "Keys found");
pub(super) const SETS: Metric = Metric("tenant_sets", "Items written");
pub(super) const EVICTIONS: Metric = Metric("tenant_evictions", "Items that left memory for want of space");
pub(super) const EXPIRATIONS: Metric = Metric("tenant_expirations", "Items that left because their time had come");
pub(super) const NETWORK: Metric = Metric("tenant_network_bytes", "Bytes of requests and replies");
pub(super) const REFUSED: Metric = Metric(
    "tenant_refused",
    "Refused or closed by one of the tenant's or the server's limits, and logins that failed",
);

/// The counts, in the order of [`COUNTED`].
pub(super) type Counts = [u64; COUNTED.len()];

/// How often something happened to a tenant, by labels beside its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Happened<const LABELS: usize> {
    pub(super) tenant: String,
    pub(super) labels: [(&'static str, &'static str); LABELS],
    pub(super) count: u64,
}

impl<const LABELS: usize> Happened<LABELS> {
    /// A sample of it.
    pub(super) fn sample(&self) -> (Labels<'_>, Number) {
        let labels = std::iter::once(("tenant", self.tenant.as_str())).chain(self.labels);
        (labels.collect(), Number::Whole(self.count))
    }
}

/// The figures of one tenant, or of several together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series {
    pub(super) tenant: String,
    pub(super) grant_bytes: u64,
    pub(super) usage_bytes: u64,
    pub(super) items: u64,
    pub(super) flash: Flash,
    pub(super) counts: Counts,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) cpu_model_seconds: Option<f64>,
    pub(super) memory_byte_seconds: Option<u64>,
    pub(super) network_occupancy: Option<f64>,
    pub(super) asked: Asked,
    pub(super) goal: Option<Goal>,
    pub(super) spending: Option<Spending>,
}

/// The settings of a tenant; of several together there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Asked {
    pub(super) floor_bytes: Option<u64>,
    pub(super) cap_bytes: Option<u64>,
    pub(super) hit_ratio: Option<f64>,
    pub(super) latency_seconds: Option<f64>,
}

/// The spending in this month, and its ratio to a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spending {
    pub(super) spent: f64,
    pub(super) ratio: Option<f64>,
    pub(super) is_restrained: bool,
}

/// Figures of flash, in the order of [`FLASH`]; none without flash.
pub(super) type Flash = [Option<u64>; FLASH.len()];

/// The metrics of each tenant with flash, and whether they only grow.
pub(super) const FLASH: [(Metric, MetricType); 7] = [
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
pub(super) struct Goal {
    pub(super) is_met: bool,
    pub(super) shortfall_ratio: Option<f64>,
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
                view.sets_total,
                view.evictions_total,
                view.expirations_total,
                view.network_in_bytes_total,
                view.network_out_bytes_total,
                refused.ops_per_second,
                refused.bytes_per_second,
                refused.spending_limit,
                refused.flash_waits,
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
            asked: Asked {
                floor_bytes: view.settings.floor_bytes,
                cap_bytes: view.settings.cap_bytes,
                hit_ratio: view.settings.hit_ratio.map(HitRatio::get),
                latency_seconds: view.settings.latency.map(|latency| latency.as_secs_f64()),
            },
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
    pub(super) fn with(self, other: &Self) -> Self {
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
            asked: Asked::default(),
            // Not of several: a month's end makes it fall, and nearness to a limit is a tenant's own.
            spending: None,
            goal: either(self.goal, other.goal, |a, b| Goal {
                is_met: a.is_met && b.is_met,
                shortfall_ratio: either(a.shortfall_ratio, b.shortfall_ratio, f64::max),
            }),
            tenant: self.tenant,
        }
    }

    pub(super) fn labels(&self) -> Labels<'_> {
        vec![("tenant", &self.tenant)]
    }
}

/// The commands of the first tenants each by itself. The others have none: their sum would fall when one of them
/// leaves.
pub(super) fn operations(tenants: &[TenantView], labels_max: usize) -> Vec<Happened<3>> {
    let of = |tenant: &TenantView| {
        let counts = tenant.operations_total.iter().map(|count| Happened {
            tenant: tenant.name.clone(),
            labels: [
                ("command", count.command),
                ("protocol", count.protocol),
                ("outcome", count.outcome),
            ],
            count: count.count,
        });
        counts.collect::<Vec<_>>()
    };
    tenants.iter().take(labels_max).flat_map(of).collect()
}

/// The moves of their grants of memory or of flash, in the same way.
pub(super) fn moves(
    tenants: &[TenantView],
    labels_max: usize,
    counts: impl Fn(&TenantView) -> &[MovesView],
) -> Vec<Happened<1>> {
    let of = |tenant: &TenantView| {
        let counts = counts(tenant).iter().map(|count| Happened {
            tenant: tenant.name.clone(),
            labels: [("reason", count.reason)],
            count: u64::from(count.count),
        });
        counts.collect::<Vec<_>>()
    };
    tenants.iter().take(labels_max).flat_map(of).collect()
}

/// Both, where both are known; else the one that is.
pub(super) fn either<T>(one: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}
