//! Caches without values: what a hit ratio should be.
//!
//! Each policy follows libCacheSim (<https://github.com/1a1a11a/libCacheSim>, the Python package `libcachesim` 0.3.5), request
//! for request, so that a server's measured hit ratio can be held against the field's reference. Capacities and sizes are
//! bytes. Invariant: what is held never exceeds the capacity.

mod clock;
mod fifo;
mod queue;
mod s3fifo;

pub use clock::Clock;
pub use fifo::Fifo;
pub use s3fifo::S3Fifo;

/// A simulated cache.
pub trait Simulator {
    /// Asks for `key`, and on a miss inserts it with `size_bytes`, evicting what has to go. Returns whether it was a hit.
    /// An object that can not fit is not inserted.
    fn request(&mut self, key: u64, size_bytes: u64) -> bool;
}

/// How much room a simulated cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// All room, in bytes.
    pub bytes: u64,
    /// What each object takes beside its size, in bytes.
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

#[cfg(test)]
mod tests;
