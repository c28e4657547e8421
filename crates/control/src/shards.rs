//! How many shards a tenant has.

use tidemark_types::MIB;

/// Memory per shard: one lock over more would let a hot tenant wait for itself.
const SHARD_BYTES: u64 = 64 * MIB;
/// More shards than this per worker would lower no waiting, only make each log coarser. A worker by itself waits for no
/// other, and of many small tenants the logs' ends are most of the memory.
const SHARDS_PER_WORKER: u64 = 4;
/// More would make a window's commands meet no shard twice, so that taking the lock once per window saves nothing.
const MAX_SHARDS: u64 = 64;

/// One shard per 64 MiB that the tenant may come to hold, a power of two, at most four per worker, at most 64. With one
/// worker it is one shard.
pub fn shards_for(cap_bytes: Option<u64>, pool_bytes: u64, workers: usize) -> u16 {
    if workers <= 1 {
        return 1;
    }
    let possible_bytes = cap_bytes.unwrap_or(u64::MAX).min(pool_bytes);
    let per_worker = SHARDS_PER_WORKER.saturating_mul(u64::try_from(workers).unwrap_or(u64::MAX));
    let wanted = (possible_bytes / SHARD_BYTES).min(per_worker).clamp(1, MAX_SHARDS);
    // The highest power of two that is not above `wanted`; `wanted` is between 1 and 64.
    1 << wanted.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::GIB;

    #[test]
    fn shards_follow_the_possible_size() {
        for (cap_bytes, pool_bytes, workers, shards) in [
            (None, GIB, 2, 8),
            (None, GIB, 1, 1),
            (None, GIB, 64, 16),
            (None, 1024 * GIB, 64, 64),
            (None, 8 * MIB, 2, 1),
            (None, 200 * MIB, 2, 2),
            (Some(MIB), GIB, 2, 1),
            (Some(127 * MIB), GIB, 2, 1),
            (Some(128 * MIB), GIB, 2, 2),
            (Some(2 * GIB), 256 * MIB, 2, 4),
            (None, GIB, 3, 8),
            (None, GIB, 0, 1),
        ] {
            assert_eq!(
                shards_for(cap_bytes, pool_bytes, workers),
                shards,
                "{cap_bytes:?} {pool_bytes} {workers}"
            );
        }
    }
}
