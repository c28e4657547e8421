//! The report of the data plane for a round.

use crate::{Samples, TenantId, UnixMs, VisitSamples};

/// The state of the data plane. Tenants that nothing happened to since the last snapshot are absent: an idle tenant costs
/// a round nothing.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken.
    pub at: UnixMs,
    /// The pool.
    pub pool: PoolSnapshot,
    /// Tenants touched since the last snapshot.
    pub tenants: Vec<TenantSnapshot>,
    /// Removed tenants whose memory is back in the pool and with the system since the last snapshot. Each is in `tenants` a last
    /// time, where the data plane meters.
    pub removed: Vec<TenantId>,
    /// CPU time of the data plane's threads; `None` where it is not measured.
    pub cpu: Option<PlaneCpu>,
}

/// CPU time of the threads that serve clients, in nanoseconds since the process began, by their own clocks. The counts never
/// fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneCpu {
    /// Charged to tenants, those that were removed included.
    pub attributed_ns: u64,
    /// Used for nobody in particular: accepting, timers, logins.
    pub unattributed_ns: u64,
}

/// The pool's state. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// The limit in force.
    pub pool_bytes: u64,
    /// Held by tenants.
    pub usage_bytes: u64,
    /// Free, but still (or already) backed by physical memory: given back or handed out soon.
    pub resident_free_bytes: u64,
    /// Memory beside the pool: the process's own, the connections' buffers, and the samples.
    pub other_bytes: u64,
    /// The device of flash failed and is not used any more.
    pub has_flash_failed: bool,
    /// Connections now open.
    pub connections: u64,
    /// Logins that failed since the start, whatever name they gave.
    pub failed_logins: u64,
    /// How long all requests were in the server; `None` where no server is.
    pub served: Option<ServedTimes>,
}

/// The longest times of the buckets of [`ServedTimes`] but for the last one, in microseconds: twice the one before up to four
/// milliseconds, where goals are, and coarser above.
pub const SERVED_UP_TO_US: [u64; 14] = [
    15, 31, 63, 127, 255, 511, 1_023, 2_047, 4_095, 16_383, 65_535, 262_143, 1_048_575, 16_777_215,
];

/// How long requests were in the server, of all tenants since the start, in whole microseconds: from when their connection was
/// ready until the system was given their replies. The counts never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedTimes {
    /// Requests by their times: each bucket has those up to its limit that are in none before it, the last one all longer ones.
    pub requests: [u64; ServedTimes::BUCKETS],
    /// Their times together, in microseconds.
    pub us: u64,
}

impl ServedTimes {
    /// One more than there are limits.
    pub const BUCKETS: usize = SERVED_UP_TO_US.len() + 1;

    /// The bucket of a time.
    pub fn bucket(us: u64) -> usize {
        SERVED_UP_TO_US.partition_point(|most| *most < us)
    }

    /// Both together.
    pub fn with(self, other: Self) -> Self {
        Self {
            requests: std::array::from_fn(|bucket| self.requests[bucket] + other.requests[bucket]),
            us: self.us + other.us,
        }
    }
}

/// One tenant's state.
#[derive(Clone, Debug)]
pub struct TenantSnapshot {
    /// The tenant.
    pub id: TenantId,
    /// The grant in force; a first grant that the data plane made by itself shows here first.
    pub grant_bytes: u64,
    /// Held in segments, values outside the log, and indexes.
    pub usage_bytes: u64,
    /// Items in the cache, expired ones that were not met yet included.
    pub items: u64,
    /// Connections now open.
    pub connections: u64,
    /// The counts since the tenant was created in this process.
    pub counters: TenantCounters,
    /// The records of sampled keys since the tenant's last snapshot. They are of exactly those events that `counters`
    /// counts more than it did then.
    pub samples: Samples,
    /// The shards in their order; empty for a tenant that never wrote.
    pub shards: Vec<ShardSnapshot>,
    /// Commands executed since the tenant was created in this process, those that there were any of.
    pub commands: Vec<CommandCount>,
    /// The commands of sampled visits since the tenant's last snapshot.
    pub visits: VisitSamples,
}

/// How often a command was executed with an outcome. The count never falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCount {
    /// `memcached`, `redis` or `s3`.
    pub protocol: &'static str,
    /// The command in lower case; a subcommand's as `client|list`.
    pub command: &'static str,
    /// Its outcome.
    pub outcome: Outcome,
    /// How often.
    pub count: u64,
}

/// The outcome of a command that was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It did what it was asked.
    #[default]
    Ok,
    /// None of the keys that it looked up was there.
    Miss,
    /// It was answered with an error.
    Error,
}

impl Outcome {
    /// The name in the API, in metrics and in the ledger.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Miss => "miss",
            Self::Error => "error",
        }
    }
}

/// Counts since the tenant was created in this process; they never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantCounters {
    /// Keys looked up by get/gets/gat/gats/mg, GET/MGET/GETEX/GETDEL.
    pub gets: u64,
    /// Those that were found.
    pub hits: u64,
    /// Items written.
    pub sets: u64,
    /// Items removed for lack of space.
    pub evicted: u64,
    /// Items removed because their time had come.
    pub expired: u64,
    /// Writes refused because they could not fit.
    pub refused_memory: u64,
    /// Application bytes received, before TLS.
    pub network_in_bytes: u64,
    /// Application bytes sent, before TLS.
    pub network_out_bytes: u64,
    /// How long requests were in the server.
    pub served: Served,
    /// The number of requests that a limit in time refused; they are in none of the other counts.
    pub refused: Refused,
    /// Commands executed, of all protocols; refused ones are not among them.
    pub operations: u64,
    /// CPU time of the threads that served it or looked after its shards, in nanoseconds; zero where it is not measured.
    pub cpu_ns: u64,
    /// The same by a model; `None` where the data plane has none, and the meter estimates it.
    pub cpu_model_ns: Option<u64>,
    /// How its requests came, and what they wrote.
    pub shape: LoadShape,
    /// Invocations of cloud functions that it pays for.
    pub function_invocations: u64,
    /// Memory of cloud functions in MiB, times the ms for which they ran for it.
    pub function_mib_ms: u64,
    /// The usage and the counts of flash; `None` without flash.
    pub flash: Option<FlashUse>,
}

/// How requests came, and what they wrote: what a model needs to know of a load beside how many commands of which kind there
/// were. The counts never fall; where no server is, there are no visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadShape {
    /// Visits to connections in which commands were executed.
    pub visits: u64,
    /// Moments since which connections that were visited had been ready. Those that became ready together share one.
    pub arrivals: u64,
    /// Keys of the items that were written.
    pub written_key_bytes: u64,
    /// Their values.
    pub written_value_bytes: u64,
}

/// A tenant's part of flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashUse {
    /// The flash that it may hold, in bytes of segments.
    pub grant_bytes: u64,
    /// The flash that it holds, in bytes of segments.
    pub usage_bytes: u64,
    /// Memory beside the pool that it takes: the index, and a segment that is being filled.
    pub memory_bytes: u64,
    /// Items, those included that memory holds, too.
    pub items: u64,
    /// Lookups that found an item there. This and the following fields never fall.
    pub hits: u64,
    /// Those of gets: hits for the hit ratio, too.
    pub get_hits: u64,
    /// Bytes of segments that were written.
    pub written_bytes: u64,
    /// Items that memory evicted and that were not taken, for the write budget or for want of a free segment.
    pub refused: u64,
    /// Bytes of items there that memory holds, too.
    pub shadow_bytes: u64,
    /// Commands that waited for items to be read, and how long they did. The counts never fall; where no server is, there are
    /// none.
    pub waited: Served,
}

/// Requests whose time in the server was measured: from when their connection was ready until the system was given their
/// replies. The counts never fall; where no server is, there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// How many there were.
    pub requests: u64,
    /// Their times together, in microseconds.
    pub us: u64,
}

/// The requests that limits refused, by limit. The counts never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Commands above the operations per second.
    pub ops: u64,
    /// Commands above the bytes per second.
    pub bytes: u64,
    /// Commands that would have added data, of a tenant that has reached its spending limit.
    pub spending: u64,
    /// Commands that would have had to wait for flash beside as many as may.
    pub flash: u64,
    /// Connections above those that may be open at a time.
    pub connections: u64,
    /// Logins with the tenant's name that failed.
    pub logins: u64,
    /// Commands whose reply is longer than can be promised, or for which there was no memory to be queued.
    pub replies: u64,
    /// Connections that were closed because nothing moved on them in time while replies or requests waited.
    pub stalled: u64,
    /// Connections that were closed in the middle of a command.
    pub incomplete: u64,
    /// Connections that were closed because others waited for the memory that they held.
    pub memory: u64,
}

/// One shard's state. All in bytes except where said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardSnapshot {
    /// Items in the shard (a count).
    pub items: u64,
    /// Segments, values outside the log and index.
    pub usage_bytes: u64,
    /// The part of it that is the index.
    pub index_bytes: u64,
    /// Not yet written parts of open segments.
    pub free_bytes: u64,
    /// In segments, of items that were deleted, overwritten or found expired.
    pub dead_bytes: u64,
    /// How long ago the oldest segment was begun, in milliseconds.
    pub oldest_age_ms: u64,
}
