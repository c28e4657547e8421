//! Tenants and server as the API shows them: the fields of `GET /api/v1/server`, `GET /api/v1/tenants/{name}` and what is
//! below it. What is not known or not measured is `None` and becomes null; it is never a made-up zero.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;
use tidemark_types::TenantId;

/// The server.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct ServerView {
    pub version: &'static str,
    pub uptime_seconds: u64,
    pub workers: usize,
    pub pool_bytes: u64,
    pub granted_bytes: u64,
    pub usage_bytes: u64,
    pub other_bytes: u64,
    pub connections: u64,
    pub failed_logins_total: u64,
    pub rss_bytes: Option<u64>,
    pub cpu_seconds_total: f64,
    pub unattributed_cpu_seconds_total: Option<f64>,
    pub unexplained_cpu_seconds_total: Option<f64>,
    pub rounds_total: u64,
    pub round_period_us: u64,
    pub memcached: Option<SocketAddr>,
    pub redis: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
    /// The node whose memory is shared; `None`: the pool is the server's own.
    pub node: Option<NodeView>,
}

/// A node whose memory several instances share, as this one sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct NodeView {
    pub folder: PathBuf,
    pub memory_bytes: u64,
    /// What this instance's pool may hold, or still holds.
    pub lease_bytes: u64,
    pub instances: usize,
    /// Why the lease stays as it is; `None` while all is well.
    pub problem: Option<String>,
    /// Of every instance; this one's is the last.
    pub leases: Vec<LeaseView>,
}

/// The lease of an instance of the node. What it states may not be readable.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct LeaseView {
    pub process: Option<u32>,
    pub lease_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    /// `active`, `stalled` (it keeps its lease, and nothing is expected of it) or `unknown`.
    pub state: &'static str,
}

fn number<S: serde::Serializer>(id: &TenantId, to: S) -> Result<S::Ok, S::Error> {
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
    pub goals: GoalsView,
    pub goal_state: &'static str,
    pub shortfall_ratio: Option<f64>,
    pub best_hit_ratio: Option<f64>,
    /// How long ago the measurement ended that the three above come from.
    pub goal_age_seconds: Option<f64>,
    /// Of the shortfall; of a goal that is met, of the hit ratio that was measured.
    pub goal_standard_error: Option<f64>,
    pub latency: LatencyView,
    pub limits: LimitsView,
    /// As it was chosen, or the default.
    pub policy: String,
    /// The one that the choice comes to now.
    pub policy_in_force: String,
    pub shards: u16,
    pub grant_bytes: u64,
    pub usage_bytes: u64,
    pub lent_bytes: Option<u64>,
    pub demand_bytes: Option<u64>,
    pub items: u64,
    pub gets_total: u64,
    pub hits_total: u64,
    pub sets_total: u64,
    pub hit_ratio: Option<f64>,
    pub cpu_seconds_total: Option<f64>,
    pub cpu_model_seconds_total: Option<f64>,
    pub vcpus: Option<f64>,
    pub memory_byte_seconds_total: Option<u64>,
    pub network_in_bytes_total: u64,
    pub network_out_bytes_total: u64,
    pub connections: u64,
    pub refused_total: RefusedView,
    /// Of each command that was ever executed, since the server began.
    pub operations_total: Vec<OperationsView>,
}

/// How often a command was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct OperationsView {
    pub protocol: &'static str,
    pub command: &'static str,
    pub count: u64,
}

/// What limits refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct RefusedView {
    pub ops_per_second: u64,
    pub bytes_per_second: u64,
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
    pub predicted_hit_ratio: Option<f64>,
    pub measured_hit_ratio: Option<f64>,
}

/// A tenant's miss-ratio curve. While nothing is known of it there are no points.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct CurveView {
    pub requests: Option<u64>,
    /// In ascending order of size.
    pub points: Vec<CurvePointView>,
    /// What the tenant may hold now.
    pub now_bytes: u64,
    /// The least size that meets its goal.
    pub goal_bytes: Option<u64>,
    /// What decides in it which item goes: the tenant's policy in force.
    pub policy: Option<String>,
    pub age_seconds: Option<f64>,
    /// Of the miss ratio at what the tenant holds now.
    pub standard_error: Option<f64>,
}

/// A size, and what would miss in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct CurvePointView {
    pub bytes: u64,
    pub miss_ratio: f64,
}

/// What is known of a secret: never the secret.
#[derive(Clone, Debug, Serialize)]
pub struct SecretView {
    /// When it was made (RFC 3339).
    pub created_at: String,
    /// What it allows: `read,write,flush,admin`.
    pub permissions: String,
}

/// A tenant's goals as they are set.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct GoalsView {
    pub hit_ratio: Option<f64>,
    pub latency_us: Option<u64>,
    pub miss_cost_us: Option<u64>,
    pub floor_bytes: Option<u64>,
    pub cap_bytes: Option<u64>,
    pub priority: Option<u32>,
    pub weight: Option<u64>,
    pub utility: Option<&'static str>,
}

/// How long answers take, as far as that is known: what a goal for the mean latency is reckoned by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencyView {
    /// A get on average, at the hit ratio of the last 10 s.
    pub mean_us: Option<u64>,
    /// A hit: the time in the server, as it was measured, or what it takes on an idle one if that is more.
    pub hit_us: Option<u64>,
    /// A miss, until the value is there: set, measured, or what is taken for it.
    pub miss_us: Option<u64>,
}

/// A tenant's limits as they are set.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct LimitsView {
    pub ops_per_second: Option<u64>,
    pub bytes_per_second: Option<u64>,
    pub connections: Option<u64>,
}
