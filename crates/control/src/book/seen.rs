//! The way that a snapshot's report on a tenant is taken over.

use tidemark_types::{CommandCount, TenantCounters, TenantSnapshot, UnixMs};

use super::INFLOW_SECONDS;
use crate::hit_interval::HitInterval;
use crate::rate_interval::RateInterval;
use crate::want::Want;

/// The knowledge of a tenant from snapshots.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) usage_bytes: u64,
    /// The part of it that is the index.
    pub(crate) index_bytes: u64,
    pub(crate) items: u64,
    pub(crate) connections: u64,
    pub(crate) counters: TenantCounters,
    pub(crate) hits: HitInterval,
    /// CPU time, in nanoseconds.
    pub(crate) cpu: RateInterval,
    /// Bytes of requests and replies.
    pub(crate) network: RateInterval,
    pub(crate) commands: Vec<CommandCount>,
    /// When it was last asked something.
    pub(super) active_at: UnixMs,
    /// How much it could make use of then.
    pub(super) active_bytes: u64,
    /// Shown when it grew or was short of memory.
    pub(super) want: Want,
    /// Whether it was short of memory since the last decision.
    pub(super) was_short: bool,
    /// About how much it wrote since the last decision.
    pub(super) inflow_bytes: u64,
    /// The same per second, smoothed, and when that was reckoned last.
    pub(super) inflow_bytes_per_second: f64,
    pub(super) inflow_at: UnixMs,
}

impl Seen {
    pub(super) fn take_over(&mut self, now: UnixMs, report: &TenantSnapshot) {
        if self.hits.is_empty() {
            // So that the interval knows the counters before its first gets.
            self.hits.note(now, &self.counters, self.usage_bytes);
        }
        self.hits.note(now, &report.counters, report.usage_bytes);

        let grown_bytes = report.usage_bytes.saturating_sub(self.usage_bytes);
        let evicted = report.counters.evicted.saturating_sub(self.counters.evicted);
        let refused = report
            .counters
            .refused_memory
            .saturating_sub(self.counters.refused_memory);
        let mean_item_bytes = report.usage_bytes.checked_div(report.items).unwrap_or(0);
        // A tenant that did not write and evicted has only followed a smaller grant.
        let written = report.counters.sets.saturating_sub(self.counters.sets);
        let was_short = (evicted > 0 && written > 0) || refused > 0;
        if was_short || grown_bytes > 0 {
            self.want.show(now);
        }
        if report.items > self.items {
            self.want.add_items(now);
        }
        self.was_short |= was_short;
        // Evictions beyond the writes made room for nothing: the grant became smaller.
        let inflow_bytes = grown_bytes.saturating_add(evicted.min(written).saturating_mul(mean_item_bytes));
        self.inflow_bytes = self.inflow_bytes.saturating_add(inflow_bytes);
        // The first write, or one after a long silence, was not written over all of it.
        let elapsed = now.since(self.inflow_at).as_secs_f64().clamp(0.001, INFLOW_SECONDS);
        self.inflow_at = now;
        let weight = 1.0 - (-elapsed / INFLOW_SECONDS).exp();
        self.inflow_bytes_per_second += (inflow_bytes as f64 / elapsed - self.inflow_bytes_per_second) * weight;

        self.usage_bytes = report.usage_bytes;
        self.index_bytes = report.shards.iter().map(|shard| shard.index_bytes).sum();
        self.items = report.items;
        self.connections = report.connections;
        self.counters = report.counters;
        self.cpu.note(now, report.counters.cpu_ns);
        let network_bytes = report.counters.network_in_bytes + report.counters.network_out_bytes;
        if self.network.is_empty() {
            self.network.note(now, 0);
        }
        self.network.note(now, network_bytes);
        self.commands.clone_from(&report.commands);
    }
}
