//! Tenants and server as the API shows them: the fields of `GET /api/v1/server`, `GET /api/v1/tenants/{name}` and
//! below. A value that is not known or not measured is `None` and becomes null; it is never a made-up zero.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use tidemark_types::TenantId;

mod top;

use crate::settings::{SETTINGS, TenantSettings};
pub(crate) use top::Priced;
pub use top::{TopCommandView, TopKeyView, TopView, UsedView};

/// The server.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct ServerView {
    pub version: &'static str,
    pub uptime_seconds: u64,
    pub workers: usize,
    pub pool_bytes: u64,
    pub granted_bytes: u64,
    pub usage_bytes: u64,
    pub other_bytes: u64,
    /// The same of flash: what there is, what tenants may hold of it, and what they hold; `None`: there is none.
    pub flash_bytes: Option<u64>,
    pub flash_granted_bytes: Option<u64>,
    pub flash_usage_bytes: Option<u64>,
    /// Memory beside the pool that it takes.
    pub flash_memory_bytes: Option<u64>,
    /// Whether its device has failed and is not used any more.
    pub flash_failed: Option<bool>,
    pub connections: u64,
    pub failed_logins_total: u64,
    /// All tenants' requests and replies, of the last 10 s.
    pub network_bytes_per_second: Option<f64>,
    /// The capacity of the network, as it was configured.
    pub network_limit_bytes_per_second: Option<u64>,
    /// The part of it that is used; `None`: it was not said.
    pub network_occupancy: Option<f64>,
    pub rss_bytes: Option<u64>,
    pub process: ProcessView,
    /// How long requests of all tenants were in the server; `None`: no server is in front.
    pub request_duration: Option<DurationsView>,
    pub cpu_seconds_total: f64,
    pub unattributed_cpu_seconds_total: Option<f64>,
    pub unexplained_cpu_seconds_total: Option<f64>,
    /// The model of CPU time; `None`: there is none.
    pub cpu_model: Option<CpuModelView>,
    /// The outcomes of alerts about spending limits; `None`: nobody is to be sent them.
    pub alerts: Option<AlertsView>,
    pub rounds_total: u64,
    pub round_period_us: u64,
    pub memcached: Option<SocketAddr>,
    pub redis: Option<SocketAddr>,
    pub tenant_listeners: Vec<TenantAddress>,
    pub admin: Option<SocketAddr>,
    /// The node whose memory is shared; `None`: the pool is the server's own.
    pub node: Option<NodeView>,
}

/// The model of CPU time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct CpuModelView {
    /// A vCPU is a core of this machine.
    pub reference: String,
    /// A core of this machine is `factor` vCPUs.
    pub machine: String,
    pub factor: f64,
    pub r_squared: f64,
    pub mean_error: f64,
    pub held_out_loads: u32,
    pub loads: u32,
}

/// The process, as the system shows it. `None`: the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct ProcessView {
    /// Seconds since 1970.
    pub started_at_seconds: Option<f64>,
    pub virtual_bytes: Option<u64>,
    pub threads: Option<u64>,
    pub open_files: Option<u64>,
    pub open_files_max: Option<u64>,
}

/// How long requests were in the server since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct DurationsView {
    pub sum_us: u64,
    pub count: u64,
    pub buckets: Vec<DurationBucketView>,
}

/// Requests that took less than a time, and are in no bucket before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct DurationBucketView {
    /// `None`: all longer ones.
    pub below_us: Option<u64>,
    pub count: u64,
}

/// The outcomes of alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct AlertsView {
    pub sent_total: u64,
    pub failed_total: u64,
    pub dropped_total: u64,
}

/// A listener whose connections belong to a tenant without a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct TenantAddress {
    pub protocol: &'static str,
    pub address: SocketAddr,
    pub tenant: String,
}

/// A node whose memory several instances share, as this one sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct NodeView {
    pub folder: PathBuf,
    pub memory_bytes: u64,
    /// The memory that this instance's pool may hold, or still holds.
    pub lease_bytes: u64,
    pub instances: usize,
    /// Why the lease stays as it is; `None` while all is well.
    pub problem: Option<String>,
    /// The leases of every instance; this one's is the last.
    pub leases: Vec<LeaseView>,
}

/// The lease of an instance of the node. Its statement may not be readable.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct LeaseView {
    pub process: Option<u32>,
    pub lease_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    /// `active`, `stalled` (it keeps its lease, and nothing is expected of it) or `unknown`.
    pub state: &'static str,
}

fn number<S: Serializer>(id: &TenantId, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(id.0)
}

/// A tenant.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct TenantView {
    /// Greater than that of every tenant that was made before.
    #[serde(serialize_with = "number")]
    pub id: TenantId,
    pub name: String,
    pub state: &'static str,
    /// Whether connections from loopback are this tenant's without logging in.
    pub open: bool,
    /// Oldest first.
    pub secrets: Vec<SecretView>,
    /// All of its settings as they are set; answers have them by section.
    #[serde(skip)]
    pub settings: TenantSettings,
    pub goals: SectionView,
    /// The last move of its grant, as far as moves are kept.
    pub last_move: Option<LastMoveView>,
    pub goal_state: &'static str,
    pub shortfall_ratio: Option<f64>,
    pub best_hit_ratio: Option<f64>,
    /// How long ago the measurement ended that the three above come from.
    pub goal_age_seconds: Option<f64>,
    /// The standard error of the shortfall; for a goal that is met, that of the measured hit ratio.
    pub goal_standard_error: Option<f64>,
    pub latency: LatencyView,
    pub limits: SectionView,
    /// Its spending in this month (UTC); `None`: there are no prices, or it is not known yet.
    pub spending: Option<SpendingView>,
    /// The policy as it was chosen, or the default.
    pub policy: String,
    /// The one that the choice comes to now.
    pub policy_in_force: String,
    pub shards: u16,
    pub grant_bytes: u64,
    pub usage_bytes: u64,
    pub lent_bytes: Option<u64>,
    pub demand_bytes: Option<u64>,
    pub items: u64,
    pub flash: SectionView,
    /// The fields of flash: none if there is no flash, or the tenant was never used.
    pub flash_grant_bytes: Option<u64>,
    pub flash_usage_bytes: Option<u64>,
    /// Memory beside `usage_bytes` that it takes.
    pub flash_memory_bytes: Option<u64>,
    pub flash_items: Option<u64>,
    pub flash_hits_total: Option<u64>,
    pub flash_written_bytes_total: Option<u64>,
    pub flash_refused_total: Option<u64>,
    /// Whether the device of all tenants' flash has failed and is not used any more.
    pub flash_failed: Option<bool>,
    pub gets_total: u64,
    pub hits_total: u64,
    pub sets_total: u64,
    /// Items that left memory for want of space, and because their time had come.
    pub evictions_total: u64,
    pub expirations_total: u64,
    pub hit_ratio: Option<f64>,
    pub cpu_seconds_total: Option<f64>,
    pub cpu_model_seconds_total: Option<f64>,
    /// Cores that were used over the last ten seconds.
    pub cores: Option<f64>,
    /// The same by the model, of the reference machine; without a model a vCPU is a core of this one.
    pub vcpus: Option<f64>,
    pub memory_byte_seconds_total: Option<u64>,
    pub network_in_bytes_total: u64,
    pub network_out_bytes_total: u64,
    /// In and out, of the last 10 s.
    pub network_bytes_per_second: Option<f64>,
    /// The part of `limits.bytes_per_second` that it is; `None`: there is no limit.
    pub network_occupancy: Option<f64>,
    pub connections: u64,
    pub shape_total: ShapeView,
    pub refused_total: RefusedView,
    /// How often its grant was moved since the server began, by reason.
    pub moves_total: Vec<MovesView>,
    /// The same of its flash.
    pub flash_moves_total: Vec<MovesView>,
    /// The counts of each command that was ever executed, since the server began.
    pub operations_total: Vec<OperationsView>,
}

/// How often a command was executed with an outcome: `ok`, `miss` or `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct OperationsView {
    pub protocol: &'static str,
    pub command: &'static str,
    pub outcome: &'static str,
    pub count: u64,
}

/// How often a grant was moved for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct MovesView {
    pub reason: &'static str,
    pub count: u32,
}

/// How requests came, and what they wrote: what the model of CPU time needs beside the counts of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct ShapeView {
    pub visits: u64,
    pub arrivals: u64,
    pub written_key_bytes: u64,
    pub written_value_bytes: u64,
}

/// The counts of refusals by limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct RefusedView {
    pub ops_per_second: u64,
    pub bytes_per_second: u64,
    pub spending_limit: u64,
    pub flash_waits: u64,
    pub connections: u64,
    pub failed_logins: u64,
    pub reply_size: u64,
    pub stalled_connections: u64,
    pub incomplete_commands: u64,
    pub connection_memory: u64,
}

/// A change of a tenant's grant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct MoveView {
    /// RFC 3339, with milliseconds.
    pub at: String,
    pub from_bytes: u64,
    pub to_bytes: u64,
    pub reason: &'static str,
    /// The tenant that most of it came from or went to; `None`: free memory, or a tenant that is gone.
    pub other: Option<String>,
    pub predicted_hit_ratio: Option<f64>,
    pub measured_hit_ratio: Option<f64>,
    /// `flash`; absent: memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<&'static str>,
}

/// Everybody's memory and flash after it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct PreviewView {
    pub pool_bytes: u64,
    /// Every tenant that holds memory or asks for some, by name.
    pub tenants: Vec<PreviewedView>,
}

/// A tenant's memory and flash now, and where they would come to with the settings as they are and with the changed ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct PreviewedView {
    pub name: String,
    pub grant_bytes: u64,
    /// This and the other sizes of flash: `None` where there is none.
    pub flash_grant_bytes: Option<u64>,
    /// In the last 10 s.
    pub hit_ratio: Option<f64>,
    pub unchanged_bytes: u64,
    pub unchanged_flash_bytes: Option<u64>,
    pub unchanged_hit_ratio: Option<f64>,
    pub changed_bytes: u64,
    pub changed_flash_bytes: Option<u64>,
    pub changed_hit_ratio: Option<f64>,
}

/// A tenant's miss-ratio curve. While nothing is known of it there are no points.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct CurveView {
    pub requests: Option<u64>,
    /// The points, in ascending order of size.
    pub points: Vec<CurvePointView>,
    /// The memory that the tenant may hold now.
    pub now_bytes: u64,
    /// The least size that meets its goal.
    pub goal_bytes: Option<u64>,
    /// The rule that decides in it which item goes: the tenant's policy in force.
    pub policy: Option<String>,
    pub age_seconds: Option<f64>,
    /// The standard error of the miss ratio at the tenant's present memory.
    pub standard_error: Option<f64>,
}

/// A size, and the miss ratio at it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct CurvePointView {
    pub bytes: u64,
    pub miss_ratio: f64,
}

/// The facts about a secret: never the secret.
#[derive(Clone, Debug, Serialize)]
pub struct SecretView {
    /// Which one of the tenant's.
    pub name: String,
    /// When it was made (RFC 3339).
    pub created_at: String,
    /// The permissions that it gives: `read,write,flush,admin`.
    pub permissions: String,
}

/// A section of a tenant's settings, with the fields that the table of settings has for it.
#[derive(Clone, Debug)]
pub struct SectionView {
    section: &'static str,
    settings: TenantSettings,
}

impl SectionView {
    pub(crate) fn new(section: &'static str, settings: &TenantSettings) -> Self {
        Self {
            section,
            settings: *settings,
        }
    }
}

impl Serialize for SectionView {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let fields = SETTINGS.iter().filter(|setting| setting.place.section == self.section);
        to.collect_map(fields.map(|setting| (setting.place.name, setting.told(&self.settings))))
    }
}

/// How long answers take, as far as that is known. A goal for the mean latency is computed by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencyView {
    /// A get on average, at the hit ratio of the last 10 s.
    pub mean_us: Option<u64>,
    /// A hit: the measured time in the server, or the time on an idle one if that is more.
    pub hit_us: Option<u64>,
    /// A hit on flash: that, and the measured time of a read; `None`: there is no flash.
    pub flash_hit_us: Option<u64>,
    /// A miss, until the value is there.
    pub miss_us: Option<u64>,
    /// The least mean that there could be, of a tenant with a goal for it, as far as it is known.
    pub best_us: Option<u64>,
    /// By how much such a goal is missed.
    pub shortfall_us: Option<u64>,
    /// The sources of the times of a hit and of a miss: `set`, `measured` or `assumed`.
    pub hit_is: Option<&'static str>,
    /// See [`Self::hit_is`].
    pub miss_is: Option<&'static str>,
}

/// When and why a tenant's grant was moved last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct LastMoveView {
    pub at: String,
    pub reason: &'static str,
}

/// The spending of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct SpendingView {
    /// The month in UTC, as `2026-08`.
    pub month: String,
    pub currency: String,
    /// Decimal numbers: the amount of its bill now, and the limit.
    pub spent: String,
    pub limit: Option<String>,
    pub spent_ratio: Option<f64>,
    /// The part of the limit that is reached, in hundredths: 0, 50, 80 or 100.
    pub reached_percent: Option<u8>,
    /// The restraint of the tenant because of it: `throttle`, `reject-writes` or `evict-only`.
    pub restraint: Option<&'static str>,
    /// Operations per second that `throttle` leaves.
    pub ops_per_second: Option<u64>,
}
