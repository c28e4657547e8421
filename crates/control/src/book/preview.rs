//! The memory that a plan would give everybody if a tenant's settings were others. Nothing is changed by asking.
//!
//! It says where grants would come to, not the way there, and goes by the facts of the last decision: a load that changes
//! meanwhile changes it, too. It does not solve the program for memory and flash together: what other settings come to there,
//! it does not say.

use tidemark_plan::{Reach, Returns};
use tidemark_types::{TenantId, UNIT_BYTES, UnixMs};

use super::needs::Need;
use super::{Book, Tenant};
use crate::grant::{GoalNeed, Holder, targets};
use crate::moves::MEASURED_GETS;
use crate::settings::TenantSettings;

/// A tenant's memory, and the hit ratio with it as far as it can be foretold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) bytes: u64,
    pub(crate) hit_ratio: Option<f64>,
}

/// A tenant, with the settings as they are and with the others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Previewed {
    pub(crate) name: String,
    pub(crate) now: Outcome,
    pub(crate) unchanged: Outcome,
    /// `None`: unknown, since memory and flash are sized together and the others change that.
    pub(crate) changed: Option<Outcome>,
}

impl Book {
    /// Every tenant that holds memory or asks for some, by name, and where its grant would come to if the settings of `id`
    /// were these.
    pub(crate) fn preview(&self, id: TenantId, settings: &TenantSettings, now: UnixMs) -> Vec<Previewed> {
        let holders = || self.holders.iter().filter_map(|id| Some((*id, self.tenants.get(id)?)));
        let come_to = |changed: Option<&TenantSettings>| {
            let holders: Vec<Holder<'_>> = holders()
                .map(|(holder, tenant)| match changed.filter(|_| holder == id) {
                    Some(settings) => self.holder_if(tenant, settings, now),
                    None => self.holder_if(tenant, &tenant.record.settings, now),
                })
                .collect();
            targets(self.pool_bytes, &holders)
        };
        let (unchanged, changed) = (come_to(None), come_to(Some(settings)));
        let mut all: Vec<Previewed> = holders()
            .zip(unchanged.into_iter().zip(changed))
            .map(|((holder, tenant), (unchanged, changed))| {
                let is_known =
                    holder != id || tenant.tiers.plan.is_none() || !settings.changes_tiers(&tenant.record.settings);
                let outcome = |bytes| Outcome {
                    bytes,
                    hit_ratio: tenant.hit_ratio_with(bytes, now),
                };
                Previewed {
                    name: tenant.record.name.to_string(),
                    now: Outcome {
                        bytes: tenant.grant_bytes,
                        hit_ratio: tenant.seen.as_deref().and_then(|seen| seen.hits.ratio(now)),
                    },
                    unchanged: outcome(unchanged),
                    changed: is_known.then(|| outcome(changed)),
                }
            })
            .collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn holder_if<'a>(&self, tenant: &'a Tenant, settings: &TenantSettings, now: UnixMs) -> Holder<'a> {
        let need = tenant.needs.decided.as_ref();
        Holder {
            goal: self.goal_if(tenant, settings, need, now),
            returns: need.and_then(|need| need.returns.as_deref()),
            custom_worth: need.and_then(|need| need.custom_worth.as_ref()),
            ..tenant.holder_under(settings, now, self.hit_cost)
        }
    }

    /// The need of a goal: of the one in force as it was decided, of another one by the curve.
    fn goal_if(
        &self,
        tenant: &Tenant,
        settings: &TenantSettings,
        need: Option<&Need>,
        now: UnixMs,
    ) -> Option<GoalNeed> {
        if settings.has_same_goal(&tenant.record.settings) {
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
