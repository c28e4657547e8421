//! The memory tier of Tidemark: the pool, and in it each tenant's shards with their index, log and eviction.
//!
//! ```text
//! Pool ---- arena of units (64 KiB) and blocks (2 MiB), one budget
//!   |
//! TenantStore ---- grant, policy
//!   |
//! Shard ---- index: hash -> place      log: segments in a small and a main queue      values too large for it
//! ```
//!
//! A [`TenantStore`] is used through [`TenantStore::lock`]: one short lock per shard. A [`Keeper`] that the program
//! drives does the work that no command has to wait for. Time comes in as a value.
//!
//! `unsafe` is confined to reading and writing the arena: `arena` (addresses, advice to the system), `item` (layout),
//! `index` and `ghost` (buckets). The places in `shard` that write, move and mark items use it, too. Every address
//! comes from a run that the shard owns, and changes need `&mut Shard`, which the lock hands out once. Beside that,
//! `index` compares a bucket's entries with vector instructions.

mod arena;
mod buddy;
mod ghost;
mod grave;
mod hash;
mod index;
mod item;

#[cfg(test)]
mod model;
mod policy;
mod pool;
mod priority;
#[cfg(test)]
mod quiet;
#[cfg(test)]
mod rogue;
#[cfg(test)]
mod roomy;
mod sample;
mod segment;
mod shard;
mod shared;
mod tenant;
#[cfg(test)]
mod undriven;

pub use arena::prefetch_value;
pub use hash::{Hasher, KeyHash, PLACE_BITS};
pub use item::{Attributes, EXPIRY_MAX, KEY_BYTES_MAX};
pub use policy::{EvictionPolicy, Newcomer, Queue, Resident, Verdict};
pub use pool::{Pool, PoolStats};
pub use priority::{return_freed_allocations, return_large_allocations, step_back, thread_cpu_time};
pub use shard::{Counters, DATABASES, Found, Key, Prospect, Refused, Shard, Value, Watch};
pub use shared::{Alarm, Below, Hooks, Leaving, Left, Listener};
pub use tenant::{
    Keeper, KeeperInbox, PinnedValue, Reservation, SHARDS_MAX, ShardGuard, StoreCounts, TenantConfig, TenantReport,
    TenantStore,
};
