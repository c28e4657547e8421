//! Memory and flash of tenants with a goal for their latency, sized together.
//!
//! Every few seconds the program is solved for all of them at once, by a price for each pool. Sizes change where the goal is
//! missed with those in force, or where others save more than the way to them costs. A tenant of which too little is
//! known, or to which flash is of no use, is sized by the rule for memory alone.

use std::collections::HashSet;
use std::time::Duration;

use tidemark_meter::spending::AtLimit;
use tidemark_plan::tiers::{self, Change, Composed, Pools, Range, Sizes, Target, solve};
use tidemark_plan::{Prospect, Reach, reach};
use tidemark_types::{TenantId, UNIT_BYTES, UnixMs};

use super::{Book, Tenant};
use crate::elastic::{Elastic, GAINS, micros};
use crate::grant::{GoalNeed, grantable_bytes};
use crate::moves::MEASURED_GETS;
use crate::pace::Between;
use crate::settings::{DEFAULT_PRIORITY, MIN_CAP_BYTES, MIN_FLASH_CAP_BYTES};
use crate::tiers::{
    AIM, Bounds, FLASH_WAIT_US, LASTS_HOURS, Learnt, Measured, TierPrices, Tiers, begun, goal, grants, sizes_of, within,
};

/// A load of which less is known may turn out to have more keys that come again.
const YOUNG_FOR: Duration = Duration::from_secs(60);
/// A goal that others leave this part short is met: it could not be measured better.
const SHORT_MIN: f64 = 0.03;

/// The plan for a tenant on both tiers, and what was learnt for it.
#[derive(Debug, Default)]
pub(crate) struct TiersState {
    pub(super) learnt: Learnt,
    pub(crate) plan: Option<Tiers>,
    /// Money for an hour of memory and flash, of a tenant with a spending limit.
    budget: Option<f64>,
}

/// A tenant's demand on both tiers.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// This mean latency at the least cost.
    Latency(Duration),
    /// The least latency for so much money an hour.
    Spending(f64),
}

/// A tenant with its part in the program.
struct Party {
    id: TenantId,
    tenant: tiers::Tenant,
    /// The latency that it asks for.
    goal_us: f64,
    goal: tiers::Goal,
    /// Its money for an hour, where it asks for no more than that buys.
    budget: Option<f64>,
    /// Without a plan yet.
    plan: Tiers,
    object_bytes: f64,
    /// The curves of its size classes, and the bytes of records that a byte of flash has for it.
    composed: Composed,
    flash_yield: f64,
    /// The sizes in force.
    now: Sizes,
}

impl Book {
    /// Changes the prices of memory and flash.
    pub(crate) fn set_tier_prices(&mut self, prices: TierPrices) {
        if self.tier_prices != prices {
            self.tier_prices = prices;
            self.tiers_at = UnixMs(0);
        }
    }

    /// Says how much money a tenant has for an hour of memory and flash; `None`: that is not known, or not limited.
    pub(crate) fn set_budget(&mut self, id: TenantId, budget: Option<f64>) {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.tiers.budget = budget;
        }
    }

    /// Sizes memory and flash of those whose goals reach over both.
    pub(super) fn size_tiers(&mut self, now: UnixMs, between: Between<'_>) {
        let is_due = now.since(self.tiers_at) >= GAINS.every || !self.operated.is_empty();
        if self.flash_bytes == 0 || !is_due {
            return;
        }
        self.tiers_at = now;
        let ids: Vec<TenantId> = self.holders.iter().copied().collect();
        let flash_floors_bytes = self.flash_floors_bytes();
        let mut parties = Vec::new();
        for id in ids {
            let party = self.party(id, flash_floors_bytes, now);
            if party.is_none()
                && let Some(tenant) = self.tenants.get_mut(&id)
            {
                tenant.tiers.plan = None;
            }
            parties.extend(party);
            between();
        }
        if parties.is_empty() {
            return;
        }
        let pools = self.pools_for(&parties);
        let goals: Vec<Option<tiers::Goal>> = parties.iter().map(|party| Some(party.goal)).collect();
        let tenants: Vec<tiers::Tenant> = parties.iter().map(|party| party.tenant.clone()).collect();
        let plan = solve(&tenants, self.tier_prices.held, pools, Target::Each(&goals));
        between();
        let settled = parties.iter().zip(&plan.sizes);
        let settled = settled.map(|(party, next)| self.settle(party, *next)).collect();
        for (party, sizes) in parties.iter().zip(within(pools, settled, plan.sizes)) {
            let plan = self.plan_with(party, sizes);
            if let Some(tenant) = self.tenants.get_mut(&party.id) {
                tenant.tiers.plan = Some(plan);
            }
            between();
        }
    }

    /// The pools for these tenants together: others keep what they are guaranteed.
    fn pools_for(&self, parties: &[Party]) -> Pools {
        let (mut memory, mut flash) = (grantable_bytes(self.reach_bytes()), self.flash_bytes);
        let ids: HashSet<TenantId> = parties.iter().map(|party| party.id).collect();
        let others = self
            .tenants
            .iter()
            .filter(|(id, tenant)| !tenant.is_removing && !ids.contains(id));
        for (_, tenant) in others {
            let settings = &tenant.record.settings;
            memory = memory.saturating_sub(settings.floor_bytes.unwrap_or(0));
            flash = flash.saturating_sub(settings.flash.floor_bytes.unwrap_or(0));
        }
        // Each has segments that hold nothing yet.
        let spare = grants(Sizes {
            flash_bytes: 1.0,
            ..Sizes::default()
        });
        Pools {
            memory_bytes: memory as f64,
            flash_bytes: flash.saturating_sub(spare.1 * parties.len() as u64) as f64,
            holds_index: false,
        }
    }

    fn party(&mut self, id: TenantId, flash_floors_bytes: u64, now: UnixMs) -> Option<Party> {
        if self.pool.has_flash_failed {
            return None;
        }
        let aim = self.tenants.get(&id)?.aim(self.tier_prices)?;
        let (available, flash_bytes, hit_cost) = (grantable_bytes(self.reach_bytes()), self.flash_bytes, self.hit_cost);
        let (floors, prices) = (self.floors_bytes, self.tier_prices);
        let tenant = self.tenants.get_mut(&id)?;
        let settings = tenant.record.settings;
        let flash = tenant.seen.as_deref()?.counters.flash?;
        let bounds = tenant.bounds(
            available.saturating_sub(floors),
            flash_bytes.saturating_sub(flash_floors_bytes),
        );
        if bounds.flash_most < MIN_FLASH_CAP_BYTES {
            return None;
        }
        let load = tenant.load(now, hit_cost)?;
        let before = tenant.tiers.plan;
        let seen = tenant.seen.as_deref()?;
        let (memory_bytes, flash_bytes) = before.map_or_else(
            || {
                let granted = (tenant.grant_bytes, tenant.flash_grant_bytes.unwrap_or(0));
                begun(granted, (seen.usage_bytes, flash.usage_bytes))
            },
            |plan| (plan.memory_bytes, plan.flash_bytes),
        );
        let elastic = tenant.needs.elastic_mut()?;
        if elastic.estimator().curve_gets() < GAINS.gets_min {
            return None;
        }
        let curve = elastic.curve_of_turn(now);
        let depths = elastic.estimator().depths();
        let measured = Measured {
            curve: &curve,
            depths: &depths,
            memory_per_byte: elastic.bytes_per_curve_byte(),
            in_force_bytes: memory_bytes,
            usage_bytes: seen.usage_bytes,
            index_bytes: seen.index_bytes,
            items: seen.items,
            flash,
            hits: seen.hits.measured(now, MEASURED_GETS),
            load: match aim {
                Aim::Latency(latency) => elastic.answers_within(&load, latency),
                Aim::Spending(_) => elastic.waited_for(&load),
            },
            flash_wait_us: elastic.estimator().flash_wait().map(micros),
        };
        let composed = measured.composed();
        tenant.tiers.learnt.note(&measured, &composed);
        let program = measured.tenant(&composed, tenant.tiers.learnt, bounds)?;
        let best_us = measured.best_latency_us(&composed, tenant.tiers.learnt, bounds);
        let (goal_us, aim_us) = match aim {
            Aim::Latency(latency) => (micros(latency), micros(latency) * AIM),
            Aim::Spending(money) => {
                let one = std::slice::from_ref(&program);
                let best = solve(one, prices.held, Pools::ANY, Target::Spending(money)).sizes[0];
                (program.hull_latency_us(best), program.hull_latency_us(best))
            }
        };
        let mut plan = Tiers {
            memory_bytes,
            flash_bytes,
            goal_us,
            latency_us: 0.0,
            hit_ratio: 0.0,
            cost: 0.0,
            load: measured.load,
            wait_us: measured.wait_us(),
            prospect: Prospect {
                hit_ratio: measured.load.hit_ratio_for(best_us),
                standard_error: curve
                    .at((tenant.grant_bytes as f64 / measured.memory_per_byte) as u64)
                    .standard_error,
                is_final: now.since(elastic.known_since()) >= YOUNG_FOR,
            },
            reach: Reach::Unknown,
            is_short: false,
        };
        plan.reach = reach(
            before.map(|plan| plan.reach).unwrap_or_default(),
            plan.goal_ratio(),
            Some(plan.prospect),
        );
        let above = i32::from(settings.priority.unwrap_or(DEFAULT_PRIORITY)) - i32::from(DEFAULT_PRIORITY);
        Some(Party {
            id,
            goal: goal(&program, aim_us, prices, above, plan.reach),
            goal_us,
            budget: match aim {
                Aim::Latency(_) => None,
                Aim::Spending(money) => Some(money),
            },
            object_bytes: measured.object_bytes(),
            flash_yield: measured.flash_yield(tenant.tiers.learnt),
            composed,
            now: sizes_of(plan.memory_bytes, plan.flash_bytes),
            plan,
            tenant: program,
        })
    }

    /// The sizes that a tenant has from now on, where the program has found these.
    fn settle(&self, party: &Party, next: Sizes) -> Sizes {
        let change = Change {
            tenant: &party.tenant,
            prices: self.tier_prices.held,
            written: self.tier_prices.written,
            latency_us: party.goal_us,
            requests_per_hour: party.tenant.weight * 3600.0,
            object_bytes: party.object_bytes,
            budget: party.budget,
            hours: LASTS_HOURS,
            now: party.now,
            next,
        };
        let verdict = change.verdict();
        let tiers::Shape::Free { memory, flash } = party.tenant.shape else {
            return party.now;
        };
        if verdict.is_change() || is_outside(party.now, memory, flash) {
            next
        } else {
            party.now
        }
    }

    /// The plan for a tenant with these sizes.
    fn plan_with(&self, party: &Party, sizes: Sizes) -> Tiers {
        let (memory_bytes, flash_bytes) = grants(sizes);
        // By the classes' hits: the program's own figure is exact at the memory in force alone.
        let (in_memory, in_both) = party
            .composed
            .hit_ratios(sizes.memory_bytes, sizes.flash_bytes * party.flash_yield);
        let load = party.plan.load;
        let latency_us = load.mean_cost_us(in_both) + party.plan.wait_us * (in_both - in_memory);
        Tiers {
            memory_bytes,
            flash_bytes,
            latency_us,
            hit_ratio: in_both,
            cost: party.tenant.cost(sizes, self.tier_prices.held),
            is_short: party.plan.reach.claims() && latency_us > party.goal_us * (1.0 + SHORT_MIN),
            ..party.plan
        }
    }

    /// The floors of flash of all tenants together.
    fn flash_floors_bytes(&self) -> u64 {
        let floors = self.tenants.values().filter(|tenant| !tenant.is_removing);
        floors
            .filter_map(|tenant| tenant.record.settings.flash.floor_bytes)
            .sum()
    }
}

/// Whether a tenant may not have these sizes any longer: others' goals may need them, or its own floors were raised.
fn is_outside(sizes: Sizes, memory: Range, flash: Range) -> bool {
    let is_in = |size: f64, range: Range| (range.least..=range.most).contains(&size);
    !is_in(sizes.memory_bytes, memory) || !is_in(sizes.flash_bytes, flash)
}

/// Whether a tenant whose money ends may have less memory for that.
fn takes_memory(action: AtLimit) -> bool {
    match action {
        AtLimit::Alert | AtLimit::RejectWrites => false,
        AtLimit::Throttle | AtLimit::EvictOnly => true,
    }
}

impl Tenant {
    /// Its demand on both tiers, if it has one. A budget without prices says nothing.
    fn aim(&self, prices: TierPrices) -> Option<Aim> {
        let settings = &self.record.settings;
        if settings.hit_ratio.is_some() || self.sizing.is_some() || self.is_removing || self.grant_bytes == 0 {
            return None;
        }
        let limited = self.tiers.budget.filter(|_| {
            prices.is_stated
                && settings
                    .spending_limit()
                    .is_some_and(|limit| takes_memory(limit.at_limit))
        });
        let latency = settings.latency.map(Aim::Latency);
        latency.or(limited.map(Aim::Spending))
    }

    /// Its least and most, where others are guaranteed the rest of this: what is nobody's, its own floors not included.
    fn bounds(&self, memory_free: u64, flash_free: u64) -> Bounds {
        let settings = &self.record.settings;
        let flash_floor = settings.flash.floor_bytes.unwrap_or(0);
        let flash_most = flash_free
            .saturating_add(flash_floor)
            .min(settings.flash.cap_bytes.unwrap_or(u64::MAX));
        let memory_most = memory_free.saturating_add(settings.floor_bytes.unwrap_or(0));
        Bounds {
            memory_least: MIN_CAP_BYTES
                .max(u64::from(self.shards) * UNIT_BYTES)
                .max(settings.floor_bytes.unwrap_or(0)),
            memory_most: memory_most.min(self.cap_bytes().unwrap_or(u64::MAX)),
            flash_least: flash_floor,
            flash_most: if self.restraint.is_at_floor {
                flash_floor
            } else {
                flash_most
            },
        }
    }

    /// How long a command waits for flash, as far as it has any.
    pub(crate) fn flash_wait_us(&self) -> Option<f64> {
        self.seen.as_deref()?.counters.flash?;
        let waits = self
            .needs
            .elastic()
            .and_then(|elastic| elastic.estimator().flash_wait());
        Some(waits.map_or(FLASH_WAIT_US, micros))
    }

    /// The need of its goal for memory, where that is planned with flash.
    pub(super) fn need_of_tiers(&mut self) -> Option<GoalNeed> {
        let plan = self.tiers.plan?;
        if let Some(elastic) = self.needs.elastic_mut() {
            Elastic::drop_goal(elastic);
        }
        self.predicted = Some(plan.hit_ratio);
        Some(GoalNeed {
            bytes: plan.memory_bytes,
            reach: plan.reach,
        })
    }
}

#[cfg(test)]
mod tests;
