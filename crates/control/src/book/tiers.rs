//! Memory and flash of tenants with a goal for their latency, sized together.
//!
//! Every few seconds the program is solved for all of them at once, by a price for each pool. Sizes change where the goal is
//! missed with those in force, or where others save more than the way to them costs. A tenant of which too little is
//! known, or to which flash is of no use, is sized by the rule for memory alone.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tidemark_meter::spending::AtLimit;
use tidemark_plan::tiers::{self, Change, Minimise, Pools, Range, Sizes, Target, solve};
use tidemark_plan::{Load, Prospect, reach};
use tidemark_types::{TenantId, UNIT_BYTES, UnixMs};

use super::{Book, Tenant};
use crate::elastic::{Elastic, GAINS, micros};
use crate::grant::{GoalNeed, grantable_bytes};
use crate::moves::MEASURED_GETS;
use crate::pace::Between;
use crate::settings::{DEFAULT_PRIORITY, MIN_CAP_BYTES, MIN_FLASH_CAP_BYTES, TenantSettings};
use crate::tiers::{
    Bounds, FLASH_WAIT_US, Known, LASTS_HOURS, Learnt, Measured, TierPrices, Tiers, aim_us, begun, goal, grants,
    sizes_of, within,
};

/// A load of which less is known may turn out to have more keys that come again.
const YOUNG_FOR: Duration = Duration::from_secs(60);
/// A goal that others leave this part short is met: it could not be measured better.
const SHORT_MIN: f64 = 0.03;
/// A plan is made near the sizes in force, so that it may take another one to come where it leads to. So many are seen ahead.
const ROUNDS_AHEAD: usize = 4;

/// The plan for a tenant on both tiers, and what was learnt for it.
#[derive(Debug, Default)]
pub(crate) struct TiersState {
    pub(super) learnt: Learnt,
    pub(crate) plan: Option<Tiers>,
    /// Money for an hour of memory and flash, of a tenant with a spending limit.
    budget: Option<f64>,
}

/// A tenant's demand on both tiers: a mean latency at the least cost, the least latency for so much money an hour, or what is to be
/// least within both.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Aim {
    latency: Option<Duration>,
    money: Option<f64>,
    minimise: Minimise,
}

/// The mean latencies of a tenant's goal, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GoalLatencies {
    /// The one that it asked for, where it did.
    goal_us: f64,
    /// The one that its sizes are judged by: what its money buys, where that decides.
    asked_us: f64,
    /// The one that sizes are looked for with.
    aim_us: f64,
}

impl Aim {
    /// The load that it is judged by.
    fn load_of(self, elastic: &Elastic, load: &Load) -> Load {
        match self.latency {
            Some(latency) => elastic.answers_within(load, latency),
            None => elastic.waited_for(load),
        }
    }

    /// The latencies where the best that there is takes `best_us`, and the money buys `bought_us`.
    fn wanted(self, best_us: f64, bought_us: Option<f64>) -> Option<GoalLatencies> {
        let exactly = |goal_us, asked_us| GoalLatencies {
            goal_us,
            asked_us,
            aim_us: asked_us,
        };
        match (self.latency.map(micros), bought_us) {
            (None, bought_us) => bought_us.map(|bought_us| exactly(bought_us, bought_us)),
            // The money does not buy it, or is to be spent all the same.
            (Some(goal_us), Some(bought_us)) if bought_us > goal_us || self.minimise == Minimise::Latency => {
                Some(exactly(goal_us, bought_us))
            }
            (Some(goal_us), bought_us) => Some(GoalLatencies {
                goal_us,
                asked_us: goal_us,
                aim_us: aim_us(goal_us, best_us).max(bought_us.unwrap_or(0.0)),
            }),
        }
    }
}

/// Settings that a tenant does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supposed<'a> {
    pub(super) id: TenantId,
    pub(super) settings: &'a TenantSettings,
    /// The money for an hour that goes with them: see [`TiersState`].
    pub(super) budget: Option<f64>,
}

/// The terms on which the program is solved.
#[derive(Clone, Copy, Debug)]
struct Question<'a> {
    supposed: Option<&'a Supposed<'a>>,
    free: Free,
    now: UnixMs,
}

/// Memory and flash that no floor takes.
#[derive(Clone, Copy, Debug)]
struct Free {
    memory_bytes: u64,
    flash_bytes: u64,
}

/// A tenant with its part in the program.
struct Party<'k> {
    id: TenantId,
    tenant: tiers::Tenant,
    wanted: GoalLatencies,
    goal: tiers::Goal,
    /// Its money for an hour, where it asks for no more than that buys.
    budget: Option<f64>,
    /// Without sizes yet.
    plan: Tiers,
    known: &'k Known,
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
        let mut known = BTreeMap::new();
        for id in &ids {
            known.extend(self.learn(*id, now).map(|known| (*id, known)));
            between();
        }
        let question = self.question(None, now);
        let before = |id: TenantId| self.tenants.get(&id)?.tiers.plan;
        let parties = self.parties(&known, &question, before, between);
        let plans = self.solved(&parties, &question, between);
        for id in ids {
            if let Some(tenant) = self.tenants.get_mut(&id) {
                tenant.tiers.plan = plans.get(&id).copied();
            }
            between();
        }
    }

    /// The plans that the next rounds come to, as the settings are or supposed that one tenant's are others, by what is known of
    /// the tenants. Nothing is changed.
    pub(super) fn plans_if(
        &self,
        known: &BTreeMap<TenantId, Known>,
        supposed: Option<&Supposed<'_>>,
        now: UnixMs,
    ) -> BTreeMap<TenantId, Tiers> {
        let question = self.question(supposed, now);
        let in_force = |id: &TenantId| Some((*id, self.tenants.get(id)?.tiers.plan?));
        let mut plans: BTreeMap<TenantId, Tiers> = known.keys().filter_map(in_force).collect();
        for _ in 0..ROUNDS_AHEAD {
            let before = |id: TenantId| plans.get(&id).copied();
            let parties = self.parties(known, &question, before, &mut || ());
            let next = self.solved(&parties, &question, &mut || ());
            if next == plans {
                break;
            }
            plans = next;
        }
        plans
    }

    /// The sizes of these tenants.
    fn solved(
        &self,
        parties: &[Party<'_>],
        question: &Question<'_>,
        between: Between<'_>,
    ) -> BTreeMap<TenantId, Tiers> {
        if parties.is_empty() {
            return BTreeMap::new();
        }
        let pools = self.pools_for(parties, question);
        let goals: Vec<Option<tiers::Goal>> = parties.iter().map(|party| Some(party.goal)).collect();
        let tenants: Vec<tiers::Tenant> = parties.iter().map(|party| party.tenant.clone()).collect();
        let plan = solve(&tenants, self.tier_prices.held, pools, Target::Each(&goals));
        between();
        let settled = parties.iter().zip(&plan.sizes);
        let settled = settled.map(|(party, next)| self.settle(party, *next)).collect();
        let sizes = within(pools, settled, plan.sizes);
        let plans = parties.iter().zip(sizes);
        plans
            .map(|(party, sizes)| (party.id, self.plan_with(party, sizes)))
            .collect()
    }

    /// The pools for these tenants together: others keep what they are guaranteed.
    fn pools_for(&self, parties: &[Party<'_>], question: &Question<'_>) -> Pools {
        let (mut memory, mut flash) = (grantable_bytes(self.reach_bytes()), self.flash_bytes);
        let ids: HashSet<TenantId> = parties.iter().map(|party| party.id).collect();
        let others = self
            .tenants
            .iter()
            .filter(|(id, tenant)| !tenant.is_removing && !ids.contains(id));
        for (id, tenant) in others {
            let settings = tenant.settings_if(*id, question.supposed);
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

    /// What is known of a tenant that is to be sized on both tiers; what it taught is kept.
    fn learn(&mut self, id: TenantId, now: UnixMs) -> Option<Known> {
        let prices = self.tier_prices;
        let tenant = self.tenants.get_mut(&id)?;
        tenant.aim(&tenant.record.settings, tenant.tiers.budget, prices)?;
        // The turn's curve is reckoned once.
        tenant.needs.elastic_mut()?.curve_of_turn(now);
        let known = self.known(id, now)?;
        self.tenants.get_mut(&id)?.tiers.learnt = known.learnt;
        Some(known)
    }

    /// What is known of a tenant's load on both tiers.
    pub(super) fn known(&self, id: TenantId, now: UnixMs) -> Option<Known> {
        let tenant = self.tenants.get(&id).filter(|_| !self.pool.has_flash_failed)?;
        let seen = tenant.seen.as_deref()?;
        let flash = seen.counters.flash?;
        let elastic = tenant.needs.elastic()?;
        if elastic.estimator().curve_gets() < GAINS.gets_min {
            return None;
        }
        let measured = Measured {
            curve: elastic.curve_at(now),
            memory_per_byte: elastic.bytes_per_curve_byte(),
            in_force_bytes: tenant.in_force(tenant.tiers.plan).0,
            usage_bytes: seen.usage_bytes,
            index_bytes: seen.index_bytes,
            items: seen.items,
            flash,
            hits: seen.hits.measured(now, MEASURED_GETS),
            hits_error: seen
                .hits
                .lately(now)
                .map_or(1.0, |(_, measured)| measured.standard_error),
            load: elastic.waited_for(&tenant.load(now, self.hit_cost)?),
            flash_wait_us: elastic.estimator().flash_wait().map(micros),
        };
        let goal = tenant.tiers.plan.map(|plan| plan.hit_goal());
        let depths = elastic.estimator().depths();
        Some(Known::of(measured, &depths, tenant.tiers.learnt, goal))
    }

    /// The parts of these tenants in the program, of those that have a demand on both tiers.
    fn parties<'k>(
        &self,
        known: &'k BTreeMap<TenantId, Known>,
        question: &Question<'_>,
        before: impl Fn(TenantId) -> Option<Tiers>,
        between: Between<'_>,
    ) -> Vec<Party<'k>> {
        let mut parties = Vec::with_capacity(known.len());
        for (id, known) in known {
            parties.extend(self.party(*id, known, question, before(*id)));
            between();
        }
        parties
    }

    fn party<'k>(
        &self,
        id: TenantId,
        known: &'k Known,
        question: &Question<'_>,
        before: Option<Tiers>,
    ) -> Option<Party<'k>> {
        let prices = self.tier_prices;
        let tenant = self.tenants.get(&id)?;
        let settings = tenant.settings_if(id, question.supposed);
        let supposed = question.supposed.filter(|supposed| supposed.id == id);
        let budget = supposed.map_or(tenant.tiers.budget, |supposed| supposed.budget);
        let aim = tenant.aim(settings, budget, prices)?;
        let bounds = tenant.bounds(settings, question.free);
        if bounds.flash_most < MIN_FLASH_CAP_BYTES {
            return None;
        }
        let (memory_bytes, flash_bytes) = tenant.in_force(before);
        let elastic = tenant.needs.elastic()?;
        let load = tenant.load_under(settings, question.now, self.hit_cost)?;
        let measured = Measured {
            load: aim.load_of(elastic, &load),
            in_force_bytes: memory_bytes,
            ..known.measured.clone()
        };
        let program = measured.tenant(&known.composed, known.learnt, bounds)?;
        let bought_us = aim.money.map(|money| bought_us(&program, money, prices));
        let best_us = measured.best_latency_us(&known.composed, known.learnt, bounds);
        let wanted = aim.wanted(best_us, bought_us)?;
        let prospect = Prospect {
            // A latency that the money does not buy is out of reach as one that no sizes have.
            hit_ratio: measured.load.hit_ratio_for(best_us.max(bought_us.unwrap_or(0.0))),
            standard_error: measured.error_at(tenant.grant_bytes),
            is_final: question.now.since(elastic.known_since()) >= YOUNG_FOR,
        };
        let mut plan = Tiers {
            memory_bytes,
            flash_bytes,
            goal_us: wanted.goal_us,
            ..Tiers::to_be_sized(&measured, prospect)
        };
        let reach_before = before.map(|plan| plan.reach).unwrap_or_default();
        plan.reach = reach(reach_before, plan.hit_goal(), Some(prospect));
        let above = i32::from(settings.priority.unwrap_or(DEFAULT_PRIORITY)) - i32::from(DEFAULT_PRIORITY);
        Some(Party {
            id,
            goal: goal(&program, wanted.aim_us, prices, above, plan.reach),
            wanted,
            budget: aim.money,
            now: sizes_of(memory_bytes, flash_bytes),
            known,
            plan,
            tenant: program,
        })
    }

    /// The sizes that a tenant has from now on, where the program has found these.
    fn settle(&self, party: &Party<'_>, next: Sizes) -> Sizes {
        let change = Change {
            tenant: &party.tenant,
            prices: self.tier_prices.held,
            written: self.tier_prices.written,
            latency_us: party.wanted.asked_us,
            requests_per_hour: party.tenant.weight * 3600.0,
            object_bytes: party.known.measured.object_bytes(),
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
    fn plan_with(&self, party: &Party<'_>, sizes: Sizes) -> Tiers {
        let (memory_bytes, flash_bytes) = grants(sizes);
        // By the classes' hits: the program's own figure is exact at the memory in force alone.
        let (in_memory, in_both) = party.known.hit_ratios(sizes);
        let load = party.plan.load;
        let latency_us = load.mean_cost_us(in_both) + party.plan.wait_us * (in_both - in_memory);
        Tiers {
            memory_bytes,
            flash_bytes,
            latency_us,
            hit_ratio: in_both,
            cost: party.tenant.cost(sizes, self.tier_prices.held),
            is_short: party.plan.reach.claims() && latency_us > party.wanted.asked_us * (1.0 + SHORT_MIN),
            ..party.plan
        }
    }

    /// What the program is asked now.
    fn question<'a>(&self, supposed: Option<&'a Supposed<'a>>, now: UnixMs) -> Question<'a> {
        let (mut memory_floors, mut flash_floors) = (0_u64, 0_u64);
        for (id, tenant) in self.tenants.iter().filter(|(_, tenant)| !tenant.is_removing) {
            let settings = tenant.settings_if(*id, supposed);
            memory_floors = memory_floors.saturating_add(settings.floor_bytes.unwrap_or(0));
            flash_floors = flash_floors.saturating_add(settings.flash.floor_bytes.unwrap_or(0));
        }
        Question {
            supposed,
            free: Free {
                memory_bytes: grantable_bytes(self.reach_bytes()).saturating_sub(memory_floors),
                flash_bytes: self.flash_bytes.saturating_sub(flash_floors),
            },
            now,
        }
    }
}

/// The mean latency that this money for an hour buys a tenant, in microseconds.
fn bought_us(tenant: &tiers::Tenant, money: f64, prices: TierPrices) -> f64 {
    let one = std::slice::from_ref(tenant);
    let best = solve(one, prices.held, Pools::ANY, Target::Spending(money)).sizes[0];
    tenant.hull_latency_us(best)
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
    /// Its settings, or those that are supposed.
    pub(super) fn settings_if<'a>(&'a self, id: TenantId, supposed: Option<&'a Supposed<'_>>) -> &'a TenantSettings {
        let supposed = supposed.filter(|supposed| supposed.id == id);
        supposed.map_or(&self.record.settings, |supposed| supposed.settings)
    }

    /// Its demand on both tiers with these settings, if it has one. A budget without prices says nothing.
    fn aim(&self, settings: &TenantSettings, budget: Option<f64>, prices: TierPrices) -> Option<Aim> {
        if settings.hit_ratio.is_some() || self.sizing.is_some() || self.is_removing || self.grant_bytes == 0 {
            return None;
        }
        let limited = budget.filter(|_| {
            prices.is_stated
                && settings
                    .spending_limit()
                    .is_some_and(|limit| takes_memory(limit.at_limit))
        });
        let aim = Aim {
            latency: settings.latency,
            money: limited,
            minimise: settings.minimise.unwrap_or_default(),
        };
        (aim.latency.is_some() || aim.money.is_some()).then_some(aim)
    }

    /// Memory and flash in force: those of the plan before. Without one, those that a first plan starts from.
    fn in_force(&self, before: Option<Tiers>) -> (u64, u64) {
        let Some(plan) = before else {
            let seen = self.seen.as_deref();
            let flash = seen.and_then(|seen| seen.counters.flash);
            let used = (
                seen.map_or(0, |seen| seen.usage_bytes),
                flash.map_or(0, |flash| flash.usage_bytes),
            );
            return begun((self.grant_bytes, self.flash_grant_bytes.unwrap_or(0)), used);
        };
        (plan.memory_bytes, plan.flash_bytes)
    }

    /// Its least and most with these settings, where no floor takes so much.
    fn bounds(&self, settings: &TenantSettings, free: Free) -> Bounds {
        let flash_floor = settings.flash.floor_bytes.unwrap_or(0);
        let flash_most = free
            .flash_bytes
            .saturating_add(flash_floor)
            .min(settings.flash.cap_bytes.unwrap_or(u64::MAX));
        let memory_most = free.memory_bytes.saturating_add(settings.floor_bytes.unwrap_or(0));
        Bounds {
            memory_least: MIN_CAP_BYTES
                .max(u64::from(self.shards) * UNIT_BYTES)
                .max(settings.floor_bytes.unwrap_or(0)),
            memory_most: memory_most.min(self.cap_under(settings).unwrap_or(u64::MAX)),
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
        Some(plan.goal_need())
    }
}

#[cfg(test)]
mod tests;
