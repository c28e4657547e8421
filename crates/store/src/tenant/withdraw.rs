//! Taking a grant back as a whole, from a tenant that is idle or holds nothing.
//!
//! The plan was made from a report, and clients went on since then. Each step therefore looks under the locks whether
//! the tenant is still as in the plan. Invariant: while the grant is zero no segment is open, so that the next write
//! takes one, and with it a first grant. Its items are then within a grant, and no upkeep takes them away.

use std::sync::Arc;

use tidemark_types::UNIT_BYTES;

use super::{ShardGuard, TenantStore};
use crate::shared::Left;

impl TenantStore {
    /// Evicts everything of a tenant that was asked nothing since the last report. If it is asked something in the
    /// middle of that, eviction stops there.
    pub(super) fn reclaim(self: &Arc<Self>) {
        let shards = 0..self.cells.get().map_or(0, |cells| cells.len());
        if shards.clone().any(|shard| self.lock(shard).is_asked_since_report()) {
            return;
        }
        for shard in shards {
            let mut guard = self.lock(shard);
            if guard.is_asked_since_report() {
                return;
            }
            guard.shard.empty(Left::Evicted);
            drop(guard);
            self.nudge_one(shard);
        }
    }

    /// Takes the grant of a tenant that has no items. One that has some keeps it, up to its cap: the next report tells of
    /// it.
    pub(super) fn withdraw_grant(self: &Arc<Self>, cap_bytes: u64, first_grant_bytes: u64) {
        let was_never_used = self.cells.get().is_none() && self.shared.grant() == 0;
        if was_never_used {
            self.shared.set_first_grant(first_grant_bytes);
            return;
        }
        let mut guards = self.lock_all();
        let has_items = guards.iter().any(|guard| guard.items() > 0);
        let kept_bytes = if has_items {
            self.grant_bytes().min(cap_bytes)
        } else {
            0
        };
        if !has_items {
            // Also what lingers for the next write, and is open. Replies that are being sent keep their values in
            // place.
            guards
                .iter_mut()
                .for_each(|guard: &mut ShardGuard<'_>| guard.shard.clear());
        }
        self.shared
            .set_grant(kept_bytes / UNIT_BYTES * UNIT_BYTES, first_grant_bytes);
        drop(guards);
        if self.shared.excess() > 0 || self.shared.has_buried() {
            self.nudge();
        }
    }
}
