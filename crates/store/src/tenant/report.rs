//! What a tenant's shards say of themselves, put together.

use std::sync::Arc;

use tidemark_types::{Sample, Samples, SamplingThreshold, ShardSnapshot, UnixMs};

use super::TenantStore;
use crate::sample::merged;
use crate::shard::Counters;

/// How a tenant's shards stand, and what has happened in them.
#[derive(Debug)]
pub struct TenantReport {
    /// In shard order; empty if nothing was ever asked of the tenant.
    pub shards: Vec<ShardSnapshot>,
    /// Since the tenant was created.
    pub counters: Counters,
    /// Since the last report.
    pub samples: Samples,
    /// Memory that the samples took until now.
    pub sample_buffer_bytes: u64,
}

impl TenantStore {
    /// How the shards stand, and what has happened in them. The samples are handed over: the next report goes on from here,
    /// with the threshold that was set last.
    pub fn report(self: &Arc<Self>, now: UnixMs) -> TenantReport {
        let mut counters = Counters::default();
        let mut recorded = Vec::new();
        let shards = 0..self.cells.get().map_or(0, |cells| cells.len());
        let snapshots = shards.map(|shard| {
            let mut guard = self.lock(shard);
            counters.add(&guard.counters());
            recorded.push(guard.shard.take_samples());
            guard.snapshot(now)
        });
        let shards = snapshots.collect();
        let held: usize = recorded.iter().map(|samples| samples.records.capacity()).sum();
        TenantReport {
            shards,
            counters,
            samples: merged(recorded, self.sampling_threshold()),
            sample_buffer_bytes: (held * size_of::<Sample>()) as u64,
        }
    }

    /// The sampling threshold that was set last, or what a full buffer has lowered it to since.
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
