//! Freeing segments: the oldest one of a tenant, with its used items kept, or many at once.

use super::{ERRORS_MIN, Open, READY_SEGMENTS, Slot, State, TenantNumber, Volume};
use crate::format::{Entry, SEGMENT_BYTES, UNIT_BYTES, decode_footer, decode_record};

/// Uses from which on an item is copied to a newer segment.
const REINSERT_USES: u8 = 2;
/// A segment's part that copies may take: a fifth, which bounds the write amplification to 1.25.
const REINSERT_DIVISOR: usize = 5;
/// Segments that are freed at a time because the journal has too many deaths: each is read first.
const RELIEVED_MAX: usize = 4;

/// How the writes of a segment went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Good,
    /// One of them failed.
    Failed,
    /// Nothing in it is needed any more.
    Unwanted,
}

impl Volume {
    /// Begins to free slots for the next segments.
    pub(crate) fn make_room(&mut self, number: TenantNumber) {
        if let Some(tenant) = self.tenant(number) {
            // With the one that is about to be opened, and one to spare.
            let surplus = (tenant.segments() + 2).saturating_sub(tenant.grant);
            for _ in tenant.reclaiming..surplus {
                self.reclaim_oldest(number);
            }
        }
        let coming = self.freeing.len()
            + self
                .tenants
                .iter()
                .flatten()
                .map(|tenant| tenant.reclaiming)
                .sum::<usize>();
        if self.free.len() + coming <= READY_SEGMENTS {
            let over = |(index, tenant): (usize, &super::Tenant)| {
                let sealed = tenant
                    .queue
                    .iter()
                    .any(|slot| matches!(self.slots[*slot as usize].state, State::Sealed));
                sealed.then_some((tenant.segments() as i64 - tenant.grant as i64, index))
            };
            let present = self
                .tenants
                .iter()
                .enumerate()
                .filter_map(|(index, tenant)| Some((index, tenant.as_ref()?)));
            if let Some((_, index)) = present.filter_map(over).max() {
                self.reclaim_oldest(TenantNumber(index as u32));
            }
        }
    }

    /// Reads the tenant's oldest segment, to keep its used records.
    fn reclaim_oldest(&mut self, number: TenantNumber) {
        let is_sealed = |slot: &&u32| matches!(self.slots[**slot as usize].state, State::Sealed);
        let oldest = self
            .tenant(number)
            .and_then(|tenant| tenant.queue.iter().find(is_sealed));
        if let Some(slot) = oldest.copied() {
            self.reclaim(slot, REINSERT_USES);
        }
    }

    /// Reads a sealed segment in order to free it, and to keep what was used so often.
    fn reclaim(&mut self, number: u32, uses_min: u8) {
        let slot = &mut self.slots[number as usize];
        slot.state = State::Reclaiming { uses_min };
        let tenant = slot.tenant;
        if let Some(tenant) = self.tenant_mut(tenant) {
            tenant.queue.retain(|slot| *slot != number);
            tenant.reclaiming += 1;
        }
        self.request_read(number);
    }

    /// A segment of which nothing is alive is of no use.
    pub(crate) fn retire_if_dead(&mut self, number: u32, now_ms: u64) {
        let slot = &self.slots[number as usize];
        if slot.live_bytes > 0 || !matches!(slot.state, State::Sealed) {
            return;
        }
        if let Some(tenant) = self.tenant_mut(slot.tenant) {
            tenant.queue.retain(|slot| *slot != number);
        }
        self.free_slot(number, now_ms);
    }

    /// The segment was read: its entries leave the index, and used records are written anew.
    pub(crate) fn reclaim_read(&mut self, number: u32, bytes: Option<&[u8]>, now_ms: u64) {
        let State::Reclaiming { uses_min } = self.slots[number as usize].state else {
            return;
        };
        let tenant_number = self.slots[number as usize].tenant;
        if let Some(tenant) = self.tenant_mut(tenant_number) {
            tenant.reclaiming -= 1;
        }
        let uuid = self.superblock.uuid;
        let footer = bytes.and_then(|bytes| decode_footer(bytes, &uuid));
        let sequence = self.slots[number as usize].sequence;
        let Some((bytes, entries)) = bytes
            .zip(footer)
            .and_then(|(bytes, (header, entries))| (header.sequence == sequence).then_some((bytes, entries)))
        else {
            self.count_io(false, now_ms);
            self.quarantine(number, now_ms);
            return;
        };
        let first_unit = self.slot_offset(number) / UNIT_BYTES as u64;
        let identity = self.identity(number);
        for entry in entries {
            let unit = first_unit + u64::from(entry.at);
            let Some(tenant) = self.tenant_mut(tenant_number) else {
                break;
            };
            let Some(taken) = tenant.take(entry.hash, unit) else {
                continue;
            };
            let is_kept =
                taken.uses() >= uses_min && !taken.is_shadow() && entry.sequence >= tenant.flushed_before(entry.db);
            if !is_kept || !self.has_room_for_copy(tenant_number, usize::from(entry.units) * UNIT_BYTES) {
                continue;
            }
            let at = usize::from(entry.at) * UNIT_BYTES;
            let record = bytes.get(at..).and_then(|bytes| decode_record(bytes, &identity));
            let is_alive = |record: &crate::format::Record<'_>| record.expires_ms == 0 || record.expires_ms > now_ms;
            if let Some(record) = record.filter(is_alive)
                && self.append(tenant_number, entry.hash, &record, now_ms).is_ok()
                && let Some(tenant) = self.tenant_mut(tenant_number)
            {
                tenant.stats.reinserted += 1;
                if let Some(open) = tenant.open.as_mut() {
                    open.reinserted += record.bytes();
                }
            }
        }
        self.free_slot(number, now_ms);
    }

    /// Copies never open a segment: in the one that is open they take at most a fifth.
    fn has_room_for_copy(&self, number: TenantNumber, bytes: usize) -> bool {
        let fits = |open: &Open| {
            open.reinserted + bytes <= SEGMENT_BYTES / REINSERT_DIVISOR
                && open.used + bytes + crate::format::footer_bytes(open.entries.len() + 1) <= SEGMENT_BYTES
        };
        self.tenant(number)
            .and_then(|tenant| tenant.open.as_ref())
            .is_some_and(fits)
    }

    /// Frees the tenant's oldest segments down to so many, without a look at their items. It takes time in proportion to the
    /// segments; their entries in the index count for nothing from now on, and are taken out bit by bit.
    pub(crate) fn discard(&mut self, number: TenantNumber, keep: usize, now_ms: u64) {
        let mut gone = Vec::new();
        while let Some(tenant) = self.tenant_mut(number).filter(|tenant| tenant.segments() > keep) {
            if let Some(slot) = tenant.queue.pop_front() {
                gone.push(slot);
            } else if let Some(open) = tenant.open.take() {
                gone.push(open.slot);
            }
        }
        if keep == 0 {
            // Segments that are being reclaimed have no items any more, either.
            self.forget_index(number);
        } else {
            self.sweep_later(number, &gone);
        }
        for slot in gone {
            let Slot {
                state,
                previous,
                sequence,
                kills,
                ..
            } = &mut self.slots[slot as usize];
            match state {
                // It was never written: the slot is unchanged. It goes only with all others.
                State::Open => {
                    *state = State::Free;
                    self.deaths -= u64::from(std::mem::take(kills));
                    *sequence = previous.take().unwrap_or(0);
                    self.free.push_back(slot);
                }
                State::Writing { outcome, .. } => *outcome = Outcome::Unwanted,
                _ => self.free_slot(slot, now_ms),
            }
        }
    }

    /// The device failed in this segment: nothing in it counts, and nothing is written there again.
    pub(crate) fn quarantine(&mut self, number: u32, now_ms: u64) {
        if matches!(
            self.slots[number as usize].state,
            State::Quarantined | State::Free | State::Open | State::Writing { .. }
        ) {
            return;
        }
        let tenant_number = self.slots[number as usize].tenant;
        if let Some(tenant) = self.tenant_mut(tenant_number) {
            tenant.queue.retain(|slot| *slot != number);
        }
        if matches!(self.slots[number as usize].state, State::Reclaiming { .. })
            && let Some(tenant) = self.tenant_mut(tenant_number)
        {
            // Its read is under way, and will find that nothing is to be done.
            tenant.reclaiming = tenant.reclaiming.saturating_sub(1);
        }
        self.sweep(tenant_number, &[number]);
        self.free_slot(number, now_ms);
        self.freeing.retain(|slot| *slot != number);
        self.slots[number as usize].state = State::Quarantined;
    }

    /// The journal says that the segment is gone; when it says so durably, the slot is free.
    pub(crate) fn free_slot(&mut self, number: u32, now_ms: u64) {
        let entry = Entry::Free {
            slot: number,
            sequence: self.slots[number as usize].sequence,
        };
        let barrier = self.journal.append(entry, now_ms);
        let slot = &mut self.slots[number as usize];
        slot.state = State::Freeing(barrier);
        slot.live_bytes = 0;
        self.deaths -= u64::from(std::mem::take(&mut slot.kills));
        let tenant = slot.tenant;
        self.freeing.push(number);
        if let Some(tenant) = self.tenant_mut(tenant) {
            tenant.barrier = barrier;
        }
    }

    /// A journal that has too many deaths is relieved of them by freeing the segments that have the most of them for what is
    /// alive there: their freeing is one entry. Live records are copied, as far as copies may go.
    pub(crate) fn relieve_journal(&mut self) {
        let mut under_way: usize = self.tenants.iter().flatten().map(|tenant| tenant.reclaiming).sum();
        while self.deaths > self.journal.deaths_max() && under_way < RELIEVED_MAX {
            let sealed = (0..)
                .zip(&self.slots)
                .filter(|(_, slot)| matches!(slot.state, State::Sealed) && slot.kills > 0);
            let deaths_per_live = |slot: &Slot| (u64::from(slot.kills) << 32) / (u64::from(slot.live_bytes) + 1);
            let Some((number, _)) = sealed.max_by_key(|(_, slot)| deaths_per_live(slot)) else {
                return;
            };
            // They are no reason to free another one.
            self.deaths -= u64::from(std::mem::take(&mut self.slots[number as usize].kills));
            self.reclaim(number, 0);
            under_way += 1;
        }
    }

    /// Takes all entries of these segments out of the tenant's index.
    fn sweep(&mut self, number: TenantNumber, slots: &[u32]) {
        if slots.is_empty() {
            return;
        }
        let gone: std::collections::HashSet<u32> = slots.iter().copied().collect();
        let (data_offset, unit, segment) = (self.data_offset(), UNIT_BYTES as u64, SEGMENT_BYTES as u64);
        if let Some(tenant) = self.tenant_mut(number) {
            tenant.retain(|entry| !gone.contains(&(((entry.place() * unit - data_offset) / segment) as u32)));
        }
    }
}

/// A device is given up no sooner than it has failed more than once.
const _: () = assert!(ERRORS_MIN > 1);
