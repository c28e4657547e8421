//! Commands and reports of the lease's keeper, if the pool follows a lease on the node's memory. An agent's pool
//! follows what the instances beside it do not use.

use tidemark_plan::node::Demand;

use super::Controller;
use crate::grant::pool_for;
use crate::settings::MIN_POOL_BYTES;
use crate::view::NodeView;

/// The state of the pool and its demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LeaseReading {
    /// The limit of the pool: the one that it was told or still has, whichever is larger.
    pub(crate) limit_bytes: u64,
    /// The most of it that is backed by memory.
    pub(crate) resident_bytes: u64,
    /// All floors as they are set.
    pub(crate) floors_set_bytes: u64,
    pub(crate) demand: Demand,
}

impl Controller {
    /// Changes the memory that the server is set to: at once, or, where the pool follows a lease, the most that it will be.
    pub(super) fn set_memory(&mut self, memory_bytes: u64) {
        self.memory_bytes = memory_bytes;
        if self.config.lease.is_none() {
            let pool_bytes = match self.unused_bytes {
                Some(unused_bytes) => {
                    let least_bytes = self.floors_bytes().max(MIN_POOL_BYTES);
                    unused_bytes.max(least_bytes).min(memory_bytes)
                }
                None => memory_bytes,
            };
            self.book.set_pool_bytes(pool_bytes);
        }
    }

    /// Makes the pool as large as what others on this machine do not use, or, while that is not known, as it is set to.
    /// All floors fit into it.
    pub(crate) fn follow_unused(&mut self, unused_bytes: Option<u64>) {
        self.unused_bytes = unused_bytes;
        self.set_memory(self.memory_bytes);
        self.publish();
    }

    /// The limit of floors: the pool, or the size that it could reach.
    pub(super) fn reach_bytes(&self) -> u64 {
        self.book.reach_bytes().min(self.memory_bytes)
    }

    /// The state of the pool and its demand.
    pub(crate) fn lease_reading(&mut self) -> LeaseReading {
        let now = self.refresh();
        let pool = self.book.pool();
        LeaseReading {
            // After a plan with a smaller pool the last snapshot may still be of the larger one.
            limit_bytes: pool.pool_bytes.max(self.book.pool_bytes()),
            resident_bytes: pool.usage_bytes.saturating_add(pool.resident_free_bytes),
            floors_set_bytes: self.floors_bytes(),
            demand: self.book.demand(now, self.memory_bytes),
        }
    }

    /// All floors as they are set, needed now or not.
    fn floors_bytes(&mut self) -> u64 {
        let floors_bytes = match self.floors_bytes {
            Some(floors_bytes) => floors_bytes,
            None => self.floors(None).fold(0, u64::saturating_add),
        };
        self.floors_bytes = Some(floors_bytes);
        pool_for(floors_bytes)
    }

    /// Makes the pool as large as the lease allows or demands.
    pub(crate) fn follow_lease(&mut self, pool_bytes: u64) {
        self.book.set_pool_bytes(pool_bytes);
        self.publish();
    }

    /// Takes over the state of the node, and the size that the pool could reach.
    pub(crate) fn note_node(&mut self, view: NodeView, reach_bytes: u64) {
        self.node = Some(view);
        self.book.set_reach_bytes(reach_bytes);
    }
}

#[cfg(test)]
mod tests;
