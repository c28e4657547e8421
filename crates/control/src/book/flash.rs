//! Each tenant's part of flash.

use std::collections::BTreeSet;

use tidemark_types::{MIB, TenantId, TenantSnapshot};

use super::tiers::Supposed;
use super::{Book, Tenant};
use crate::flash::{FlashHolder, shares};
use crate::moves::{Move, Prediction, Reason};
use crate::settings::TenantSettings;
use crate::tiers::Tiers;

impl Book {
    /// How much flash there is.
    pub(crate) fn set_flash_bytes(&mut self, flash_bytes: u64) {
        self.flash_bytes = flash_bytes;
    }

    /// Notes who has something on flash.
    pub(super) fn note_flash(&mut self, report: &TenantSnapshot) {
        if report.counters.flash.is_some_and(|flash| flash.usage_bytes > 0) {
            self.on_flash.insert(report.id);
        } else {
            self.on_flash.remove(&report.id);
        }
    }

    /// Shares flash among those that hold memory or have something on flash. Others have none until they hold memory.
    pub(super) fn share_flash(&mut self, operated: &BTreeSet<TenantId>) {
        if self.flash_bytes == 0 {
            return;
        }
        let decided = self.flash_shares(|_, tenant| tenant.tiers.plan, None);
        let left = self
            .shared_flash
            .iter()
            .filter(|id| !self.holders.contains(id) && !self.on_flash.contains(id));
        let left: Vec<(TenantId, u64)> = left.map(|id| (*id, 0)).collect();
        self.shared_flash = decided.iter().map(|(id, _)| *id).collect();
        for (id, bytes) in decided.into_iter().chain(left) {
            self.regrant_flash(id, bytes, operated.contains(&id));
        }
    }

    /// The parts of flash with these plans, as the settings are or supposed that one tenant's are others.
    pub(super) fn flash_shares(
        &self,
        plan: impl Fn(TenantId, &Tenant) -> Option<Tiers>,
        supposed: Option<&Supposed<'_>>,
    ) -> Vec<(TenantId, u64)> {
        let tenants = self.holders.union(&self.on_flash);
        let holder = |id: &TenantId| {
            let tenant = self.tenants.get(id)?;
            let settings = tenant.settings_if(*id, supposed);
            Some((*id, tenant.flash_holder(settings, plan(*id, tenant), self.flash_bytes)))
        };
        let (ids, holders): (Vec<TenantId>, Vec<FlashHolder>) = tenants.filter_map(holder).unzip();
        ids.into_iter().zip(shares(self.flash_bytes, &holders)).collect()
    }

    /// Gives a tenant another part of flash from the next plan on.
    fn regrant_flash(&mut self, id: TenantId, bytes: u64, is_operated: bool) {
        let (at, keeping) = (self.now, self.keeping());
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return;
        };
        let before = tenant.flash_grant_bytes.replace(bytes);
        if before == Some(bytes) {
            return;
        }
        self.changed.insert(id);
        let from_bytes = before.unwrap_or(0);
        if from_bytes == bytes {
            return;
        }
        let change = Move {
            at,
            from_bytes,
            to_bytes: bytes,
            reason: tenant.flash_reason(from_bytes, bytes, is_operated),
            other: None,
            predicted_hit_ratio: None,
            measured_hit_ratio: None,
        };
        let predicted = tenant.tiers.plan.map(|plan| Prediction::plainly(plan.hit_ratio));
        let counters = tenant.seen.as_ref().map(|seen| seen.counters).unwrap_or_default();
        let noted = tenant.flash_moves.note(change, predicted, &counters, keeping);
        let step = Move {
            predicted_hit_ratio: noted.predicted_hit_ratio,
            ..change
        };
        self.fresh_flash_moves.push((id, step));
    }
}

impl Tenant {
    /// Why its part of flash is another one.
    fn flash_reason(&self, from_bytes: u64, bytes: u64, is_operated: bool) -> Reason {
        let settings = &self.record.settings.flash;
        let grows = bytes > from_bytes;
        if self.is_removing {
            Reason::Leave
        } else if self.grant_bytes == 0 {
            Reason::Idle
        } else if grows && from_bytes == 0 {
            Reason::Join
        } else if !grows && (self.restraint.is_at_floor || settings.cap_bytes.is_some_and(|cap| from_bytes > cap)) {
            Reason::Cap
        } else if is_operated {
            Reason::Operator
        } else if self.tiers.plan.is_some() {
            Reason::Goal
        } else if grows && settings.floor_bytes.is_some_and(|floor| from_bytes < floor) {
            Reason::Floor
        } else {
            Reason::Surplus
        }
    }

    /// As one that has a part in so much flash, with these settings and this plan.
    fn flash_holder(&self, settings: &TenantSettings, plan: Option<Tiers>, flash_bytes: u64) -> FlashHolder {
        let promised_bytes = settings.flash.floor_bytes.unwrap_or(0);
        let mut floor_bytes = promised_bytes;
        let mut most_bytes = settings.flash.cap_bytes.unwrap_or(u64::MAX).min(flash_bytes);
        if let Some(plan) = plan {
            // Sized with its memory, and no more than that: the rest is others'.
            floor_bytes = floor_bytes.max(plan.flash_bytes);
            most_bytes = most_bytes.min(floor_bytes);
        }
        if self.grant_bytes == 0 {
            // One without memory writes nothing: it keeps what it has.
            let flash = self.seen.as_deref().and_then(|seen| seen.counters.flash);
            let usage_bytes = flash.map_or(0, |flash| flash.usage_bytes);
            most_bytes = most_bytes.min(usage_bytes.next_multiple_of(MIB));
        }
        if self.restraint.is_at_floor {
            most_bytes = most_bytes.min(promised_bytes.next_multiple_of(MIB));
        }
        if self.is_removing {
            most_bytes = 0;
        }
        FlashHolder {
            promised_bytes,
            floor_bytes,
            most_bytes,
            weight: settings.weight.unwrap_or_default().get() as f64,
        }
    }
}
