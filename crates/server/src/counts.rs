//! What is counted for each tenant beside what its shards count: traffic and commands.
//!
//! A worker counts a connection's turn in a [`TurnCounts`] of its own and adds it to the tenant's once, so that a command
//! costs no shared cache line.

use std::sync::atomic::{AtomicU64, Ordering};

/// A thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Commands executed, of both protocols.
    Commands,
    NetworkIn,
    NetworkOut,
    /// Time that workers spent on this tenant's commands, in nanoseconds, shared evenly within a group of connections.
    BusyNanos,
    GetHits,
    GetMisses,
    GetExpired,
    Sets,
    TouchHits,
    TouchMisses,
    DeleteHits,
    DeleteMisses,
    IncrementHits,
    IncrementMisses,
    DecrementHits,
    DecrementMisses,
    CasHits,
    CasBad,
    CasMisses,
    Metas,
    Flushes,
    TooLarge,
    NoMemory,
    AuthCommands,
    AuthErrors,
    Denied,
    Errors,
    /// Connections that were ever this tenant's.
    Connections,
}

const COUNTS: usize = Count::Connections as usize + 1;

/// A tenant's counts, shared by all workers.
#[derive(Debug)]
pub(crate) struct TenantCounts([AtomicU64; COUNTS]);

impl Default for TenantCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl TenantCounts {
    pub(crate) fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: Count, by: u64) {
        self.0[count as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Sets everything to zero (`stats reset`).
    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// Counts of one connection's turn.
#[derive(Debug)]
pub(crate) struct TurnCounts {
    counts: [u32; COUNTS],
    /// Which of them are not zero.
    touched: u64,
}

impl Default for TurnCounts {
    fn default() -> Self {
        Self { counts: [0; COUNTS], touched: 0 }
    }
}

const _: () = assert!(COUNTS <= 64, "one bit for each count");

impl TurnCounts {
    #[inline]
    pub(crate) fn add(&mut self, count: Count, by: u32) {
        self.counts[count as usize] += by;
        self.touched |= 1 << count as u32;
    }

    /// Counts a lookup.
    #[inline]
    pub(crate) fn hit_or_miss(&mut self, hit: bool, hits: Count, misses: Count) {
        self.add(if hit { hits } else { misses }, 1);
    }

    /// Adds everything to a tenant's counts and begins anew.
    pub(crate) fn hand_over(&mut self, tenant: &TenantCounts) {
        while self.touched != 0 {
            let count = self.touched.trailing_zeros() as usize;
            self.touched &= self.touched - 1;
            tenant.0[count].fetch_add(u64::from(std::mem::take(&mut self.counts[count])), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_handed_over_once() {
        let tenant = TenantCounts::default();
        let mut turn = TurnCounts::default();
        turn.add(Count::Commands, 3);
        turn.hit_or_miss(true, Count::GetHits, Count::GetMisses);
        turn.hit_or_miss(false, Count::GetHits, Count::GetMisses);
        turn.add(Count::Connections, 1);
        turn.hand_over(&tenant);
        turn.hand_over(&tenant);
        let counts = [Count::Commands, Count::GetHits, Count::GetMisses, Count::Connections, Count::Sets];
        assert_eq!(counts.map(|count| tenant.get(count)), [3, 1, 1, 1, 0]);
        tenant.reset();
        assert_eq!(tenant.get(Count::Commands), 0);
    }
}
