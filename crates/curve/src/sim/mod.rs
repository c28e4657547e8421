//! Caches without values: the reference for a hit ratio.
//!
//! Each policy follows libCacheSim (<https://github.com/1a1a11a/libCacheSim>, the Python package `libcachesim` 0.3.5),
//! request for request. A server's measured hit ratio can thus be compared with the field's reference. [`ApproxLru`],
//! which libCacheSim lacks, follows the paper. Capacities and sizes are bytes. Invariant: the held bytes never exceed
//! the capacity.

mod approx_lru;
mod clock;
mod fifo;
mod lru;
mod queue;
mod s3fifo;

use std::fmt;
use std::str::FromStr;

use tidemark_types::Policy;

pub use approx_lru::ApproxLru;
pub use clock::Clock;
pub use fifo::Fifo;
pub use lru::Lru;
pub use s3fifo::S3Fifo;

/// A simulated cache.
pub trait Simulator {
    /// Asks for `key`, and on a miss inserts it with `size_bytes`, evicting others to make room. Returns whether it was
    /// a hit. An object that cannot fit is not inserted.
    fn request(&mut self, key: u64, size_bytes: u64) -> bool;
}

/// How much room a simulated cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// All room, in bytes.
    pub bytes: u64,
    /// The bytes of each object beside its size.
    pub overhead_bytes: u64,
}

impl Capacity {
    /// Room of so many bytes, in which objects take their size and no more.
    pub fn of_bytes(bytes: u64) -> Self {
        Self {
            bytes,
            overhead_bytes: 0,
        }
    }
}

/// The rule that decides which object goes: LRU, the base of comparisons, or a policy of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Eviction {
    /// The object that was not used for the longest time.
    #[default]
    Lru,
    /// A policy that tenants can have.
    Policy(Policy),
}

/// Uses that the server's two-bit clock remembers.
const CLOCK_USES: u8 = 3;
/// The name of [`Eviction::Lru`].
const LRU: &str = "lru";

impl Eviction {
    /// An empty cache that evicts so.
    pub fn simulator(self, capacity: Capacity) -> Box<dyn Simulator + Send> {
        match self {
            Self::Lru => Box::new(Lru::new(capacity)),
            // Nothing here knows a custom policy: its replacement after a failure stands for it.
            Self::Policy(Policy::Fifo | Policy::Custom) => Box::new(Fifo::new(capacity)),
            Self::Policy(Policy::Clock) => Box::new(Clock::new(capacity, CLOCK_USES)),
            Self::Policy(Policy::S3Fifo) => Box::new(S3Fifo::new(capacity)),
            Self::Policy(Policy::ApproxLru(share)) => Box::new(ApproxLru::new(capacity, share)),
        }
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lru => f.write_str(LRU),
            Self::Policy(policy) => policy.fmt(f),
        }
    }
}

/// A text that names nothing that can be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` can not be simulated: allowed are {}, {}", LRU, Policy::FORMS)]
pub struct EvictionError {
    given: String,
}

impl FromStr for Eviction {
    type Err = EvictionError;

    fn from_str(text: &str) -> Result<Self, EvictionError> {
        if text == LRU {
            return Ok(Self::Lru);
        }
        text.parse().map(Self::Policy).map_err(|_| EvictionError {
            given: text.chars().take(80).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
