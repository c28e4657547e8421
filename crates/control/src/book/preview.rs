//! The memory and flash that plans would give everybody if a tenant's settings were others. Nothing is changed by asking.
//!
//! It says where grants would come to, not the way there, and goes by the facts of the last decision: a load that changes
//! meanwhile changes it, too.

use std::collections::BTreeMap;

use tidemark_plan::{Reach, Returns};
use tidemark_types::{TenantId, UNIT_BYTES, UnixMs};

use super::needs::Need;
use super::tiers::Supposed;
use super::{Book, Tenant};
use crate::grant::{GoalNeed, Holder, targets};
use crate::moves::MEASURED_GETS;
use crate::settings::TenantSettings;
use crate::tiers::{Known, Tiers, sizes_of};

/// A tenant's memory and flash, and the hit ratio with them as far as it can be foretold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) bytes: u64,
    /// `None`: there is no flash.
    pub(crate) flash_bytes: Option<u64>,
    pub(crate) hit_ratio: Option<f64>,
}

/// A tenant, with the settings as they are and with the others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Previewed {
    pub(crate) name: String,
    pub(crate) now: Outcome,
    pub(crate) unchanged: Outcome,
    pub(crate) changed: Outcome,
}

impl Book {
    /// Every tenant that holds memory or asks for some, by name, and where its grants would come to if the settings of `id`
    /// were these. `budget` is the money for an hour that goes with them: see [`Book::set_budget`].
    pub(crate) fn preview(
        &self,
        id: TenantId,
        settings: &TenantSettings,
        budget: Option<f64>,
        now: UnixMs,
    ) -> Vec<Previewed> {
        let known: BTreeMap<TenantId, Known> = if self.flash_bytes > 0 {
            let known = |id: &TenantId| Some((*id, self.known(*id, now)?));
            self.holders.iter().filter_map(known).collect()
        } else {
            BTreeMap::new()
        };
        let supposed = Supposed { id, settings, budget };
        let unchanged = self.outcomes(&known, None, now);
        let changed = self.outcomes(&known, Some(&supposed), now);
        let mut all: Vec<Previewed> = self
            .holders()
            .zip(unchanged.into_iter().zip(changed))
            .map(|((_, tenant), (unchanged, changed))| Previewed {
                name: tenant.record.name.to_string(),
                now: Outcome {
                    bytes: tenant.grant_bytes,
                    flash_bytes: (self.flash_bytes > 0).then(|| tenant.flash_grant_bytes.unwrap_or(0)),
                    hit_ratio: tenant.seen.as_deref().and_then(|seen| seen.hits.ratio(now)),
                },
                unchanged,
                changed,
            })
            .collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn holders(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.holders.iter().filter_map(|id| Some((*id, self.tenants.get(id)?)))
    }

    /// Where each holder's grants come to, in the order of the holders.
    fn outcomes(
        &self,
        known: &BTreeMap<TenantId, Known>,
        supposed: Option<&Supposed<'_>>,
        now: UnixMs,
    ) -> Vec<Outcome> {
        let plans = self.plans_if(known, supposed, now);
        let holders = self.holders().map(|(id, tenant)| {
            let settings = tenant.settings_if(id, supposed);
            self.holder_if(tenant, settings, plans.get(&id), now)
        });
        let holders: Vec<Holder<'_>> = holders.collect();
        let memory = targets(self.pool_bytes, &holders);
        let flash = self.flash_shares(|id, _| plans.get(&id).copied(), supposed);
        let flash: BTreeMap<TenantId, u64> = flash.into_iter().collect();
        let outcome = |((id, tenant), bytes): ((TenantId, &Tenant), u64)| {
            let flash_bytes = flash.get(&id).copied().unwrap_or(0);
            let hit_ratio = match known.get(&id) {
                Some(known) => Some(known.hit_ratio_with(sizes_of(bytes, flash_bytes))),
                None => tenant.hit_ratio_with(bytes, now),
            };
            Outcome {
                bytes,
                flash_bytes: (self.flash_bytes > 0).then_some(flash_bytes),
                hit_ratio,
            }
        };
        self.holders().zip(memory).map(outcome).collect()
    }

    fn holder_if<'a>(
        &self,
        tenant: &'a Tenant,
        settings: &TenantSettings,
        plan: Option<&Tiers>,
        now: UnixMs,
    ) -> Holder<'a> {
        let need = tenant.needs.decided.as_ref();
        let planned = plan.map(Tiers::goal_need);
        Holder {
            goal: planned.or_else(|| self.goal_if(tenant, settings, need, now)),
            returns: need.and_then(|need| need.returns.as_deref()),
            custom_worth: need.and_then(|need| need.custom_worth.as_ref()),
            ..tenant.holder_under(settings, now, self.hit_cost)
        }
    }

    /// The need for memory alone of a goal: of the one in force as it was decided, of another one by the curve.
    fn goal_if(
        &self,
        tenant: &Tenant,
        settings: &TenantSettings,
        need: Option<&Need>,
        now: UnixMs,
    ) -> Option<GoalNeed> {
        if settings.has_same_goal(&tenant.record.settings) && tenant.tiers.plan.is_none() {
            return need.and_then(|need| need.goal);
        }
        let load = tenant.load_under(settings, now, self.hit_cost)?;
        let ratio = tenant.needs.elastic()?.goal_ratio_under(settings, &load)?.get();
        let Some(returns) = need.and_then(|need| need.returns.as_deref()) else {
            return Some(GoalNeed::default());
        };
        let by_curve = ratio - tenant.offset(returns, now);
        let room = self.room_for(tenant).for_goal_bytes;
        let is_within = returns.hit_ratio(units(room)) >= by_curve;
        let bytes = (returns.size_for(by_curve).ceil() as u64).saturating_mul(UNIT_BYTES);
        Some(GoalNeed {
            bytes: bytes.min(room),
            reach: if is_within { Reach::Within } else { Reach::Out },
        })
    }
}

impl Tenant {
    /// The measured hit ratio less the curve's with the memory then.
    fn offset(&self, returns: &Returns, now: UnixMs) -> f64 {
        let seen = self.seen.as_deref();
        let lately = seen.and_then(|seen| seen.hits.measured(now, MEASURED_GETS));
        lately.map_or(0.0, |(hit_ratio, bytes)| hit_ratio - returns.hit_ratio(units(bytes)))
    }

    /// The hit ratio that is expected with so much memory, once it is filled; `None` while nothing is known of the load.
    fn hit_ratio_with(&self, bytes: u64, now: UnixMs) -> Option<f64> {
        let returns = self.needs.decided.as_ref()?.returns.as_deref()?;
        Some((returns.hit_ratio(units(bytes)) + self.offset(returns, now)).clamp(0.0, 1.0))
    }
}

fn units(bytes: u64) -> f64 {
    bytes as f64 / UNIT_BYTES as f64
}

#[cfg(test)]
mod tests;
