//! The reports of a tenant's shards, put together.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_types::{
    LoadShape, Sample, SamplingThreshold, TenantCounters, TenantId, TenantSnapshot, UnixMs, VisitSamples,
};

use super::TenantStore;
use crate::sample::merged;
use crate::shard::Counters;

/// The state of a tenant's shards, and their events.
#[derive(Debug)]
pub struct TenantReport {
    /// Without connections and traffic, which the store knows nothing of.
    pub snapshot: TenantSnapshot,
    /// Memory that the samples took until now.
    pub sample_buffer_bytes: u64,
}

/// The counts of all shards of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Counts that only grow.
    pub counters: Counters,
    /// Items now, expired ones that were not met yet included.
    pub items: u64,
}

impl TenantStore {
    /// The state of the shards, and their events. The samples are handed over: the next report goes on from here, with
    /// the threshold that was set last.
    pub fn report(self: &Arc<Self>, id: TenantId, now: UnixMs) -> TenantReport {
        let mut counters = Counters::default();
        let mut recorded = Vec::new();
        let shards = 0..self.cells.get().map_or(0, |cells| cells.len());
        let snapshots = shards.map(|shard| {
            let mut guard = self.lock(shard);
            guard.shard.note_reported();
            counters.add(&guard.counters());
            recorded.push(guard.shard.take_samples());
            guard.snapshot(now)
        });
        let shards: Vec<_> = snapshots.collect();
        let held: usize = recorded.iter().map(|samples| samples.records.capacity()).sum();
        TenantReport {
            snapshot: TenantSnapshot {
                id,
                grant_bytes: self.grant_bytes(),
                usage_bytes: self.usage_bytes(),
                items: shards.iter().map(|shard| shard.items).sum(),
                connections: 0,
                counters: TenantCounters {
                    gets: counters.gets,
                    hits: counters.hits,
                    sets: counters.sets,
                    evicted: counters.evicted,
                    expired: counters.expired,
                    refused_memory: counters.refused_memory,
                    cpu_ns: self.upkeep_cpu_ns.load(Ordering::Relaxed),
                    shape: LoadShape {
                        written_key_bytes: counters.written_key_bytes,
                        written_value_bytes: counters.written_value_bytes,
                        ..LoadShape::default()
                    },
                    ..TenantCounters::default()
                },
                samples: merged(recorded, self.sampling_threshold()),
                shards,
                commands: Vec::new(),
                visits: VisitSamples::default(),
            },
            sample_buffer_bytes: (held * size_of::<Sample>()) as u64,
        }
    }

    /// The counts of all shards together. They are locked one after the other.
    pub fn counters(self: &Arc<Self>) -> StoreCounts {
        let mut all = StoreCounts::default();
        for shard in 0..self.cells.get().map_or(0, |cells| cells.len()) {
            let guard = self.lock(shard);
            all.counters.add(&guard.counters());
            all.items += guard.items();
        }
        all
    }

    /// The sampling threshold that was set last, or the lower one that a full buffer has set since.
    pub fn sampling_threshold(&self) -> SamplingThreshold {
        self.shared.sampling_threshold()
    }

    /// Sets which keys are sampled: fewer than before at once, more from the next report on.
    pub fn set_sampling(self: &Arc<Self>, threshold: SamplingThreshold) {
        if self.shared.set_sampling(threshold) > threshold {
            for shard in 0..self.cells.get().map_or(0, |cells| cells.len()) {
                self.lock(shard).shard.lower_sampling(threshold);
            }
        }
    }
}
