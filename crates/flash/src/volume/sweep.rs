//! Entries of segments that are gone leave the index bit by bit, so that a smaller grant takes no longer the more items there are.
//!
//! Invariant: a slot is not used again before no entry names a place in it. Inserts move entries about: a look through the tables
//! after which that happened may have missed some, and is done again.

use super::{TenantNumber, Volume};
use crate::format::{SEGMENT_BYTES, UNIT_BYTES};
use crate::index::IndexEntry;

/// Buckets of 64 bytes that a tick looks through.
const BUCKETS_PER_TICK: usize = 2048;
/// Looks that were spoilt in a row after which one is made at once.
const SPOILT_MAX: u32 = 2;

impl Volume {
    /// Whether an entry of an index counts.
    pub(super) fn counts(&self, entry: IndexEntry) -> bool {
        self.slots[self.slot_of(entry.place()) as usize].has_entries()
    }

    /// These segments of a tenant are gone; their entries are to follow.
    pub(super) fn sweep_later(&mut self, number: TenantNumber, slots: &[u32]) {
        for slot in slots {
            self.slots[*slot as usize].is_unswept = true;
        }
        if let Some(tenant) = self.tenant_mut(number) {
            tenant.sweep.due.extend(slots);
        }
    }

    /// All entries of a tenant are gone.
    pub(super) fn forget_index(&mut self, number: TenantNumber) {
        let Some(tenant) = self.tenant_mut(number) else {
            return;
        };
        tenant.forget_all();
        let sweep = std::mem::take(&mut tenant.sweep);
        self.end_sweep(sweep.due.into_iter().chain(sweep.under_way));
    }

    /// Whether something is still to be looked through.
    pub(super) fn is_sweeping(&self) -> bool {
        let is_due = |tenant: &super::Tenant| !tenant.sweep.due.is_empty() || !tenant.sweep.under_way.is_empty();
        self.tenants.iter().flatten().any(is_due)
    }

    /// Looks through some of the index of each tenant of which segments are gone.
    pub(super) fn sweep_some(&mut self) {
        for number in 0..self.tenants.len() as u32 {
            let done = self.sweep_tenant(TenantNumber(number));
            if !done.is_empty() {
                self.end_sweep(done.into_iter());
            }
        }
    }

    /// The slots of which nothing is left in the tenant's index.
    fn sweep_tenant(&mut self, number: TenantNumber) -> Vec<u32> {
        let (slots, data_offset) = (&self.slots, self.data_offset());
        let slot_of = |entry: IndexEntry| (entry.place() * UNIT_BYTES as u64 - data_offset) / SEGMENT_BYTES as u64;
        let stays = |entry: IndexEntry| slots[slot_of(entry) as usize].has_entries();
        let Some(tenant) = self.tenants[number.0 as usize].as_mut() else {
            return Vec::new();
        };
        if tenant.sweep.under_way.is_empty() {
            if tenant.sweep.due.is_empty() {
                return Vec::new();
            }
            let shape = tenant.shape();
            let sweep = &mut tenant.sweep;
            sweep.under_way = std::mem::take(&mut sweep.due);
            (sweep.at, sweep.shape) = ((0, 0), shape);
        }
        if tenant.sweep.spoilt > SPOILT_MAX {
            tenant.retain(stays);
            tenant.sweep.spoilt = 0;
            return std::mem::take(&mut tenant.sweep.under_way);
        }
        let (table, from) = tenant.sweep.at;
        if let Some(buckets) = tenant.buckets_of(table) {
            let to = (from + BUCKETS_PER_TICK).min(buckets);
            tenant.retain_in(table, from..to, stays);
            tenant.sweep.at = if to == buckets { (table + 1, 0) } else { (table, to) };
            return Vec::new();
        }
        if tenant.shape() == tenant.sweep.shape {
            tenant.sweep.spoilt = 0;
            return std::mem::take(&mut tenant.sweep.under_way);
        }
        let shape = tenant.shape();
        let sweep = &mut tenant.sweep;
        sweep.spoilt += 1;
        (sweep.at, sweep.shape) = ((0, 0), shape);
        Vec::new()
    }

    fn end_sweep(&mut self, slots: impl Iterator<Item = u32>) {
        for slot in slots {
            self.slots[slot as usize].is_unswept = false;
        }
        self.reuse_freed();
    }
}
