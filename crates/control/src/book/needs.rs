//! The needs of tenants' own loads: sizes for goals, policies, and the samples that tell both.
//!
//! Invariants: all estimators together take at most [`POOL_SHARE`] of the pool. All records that the data plane makes
//! for them are at most [`RECORDS_PER_GET`] of the gets. Tenants that do not fit are not sampled; those with goals come
//! first. A tenant that holds nothing has no estimator.

use std::sync::Arc;
use std::time::Duration;

use tidemark_curve::Curve;
use tidemark_plan::{GoalReading, HitGoal, HitWorth, Load, Outlook, Reach, Returns};
use tidemark_types::{Fault, PolicyChoice, SamplingThreshold, TenantId, TenantName, TenantSnapshot, UnixMs};

use super::node::Brings;
use super::{Book, Tenant};
use crate::elastic::{Elastic, Held, Holding, demand_bytes};
use crate::estimator::{self, Estimator, Limits, Span};
use crate::goal::{CurveReport, GoalReport, stands};
use crate::grant::{GoalNeed, grantable_bytes};
use crate::pace::Between;
use crate::settings::TenantSettings;
use crate::sizing::{CustomSizing, HitCurve, SizeReading};
use crate::tiers::Tiers;
use crate::utility::CustomUtility;

/// The part of the pool that all estimators together may take: a hundredth.
const POOL_SHARE: u64 = 100;
/// All in all, a record costs about as much as a get does at deep pipelines: so many make half a percent of it, or
/// less.
const RECORDS_PER_GET: f64 = 0.005;
/// If there are few gets, so many records a second cost nobody anything.
const RECORDS_MIN: f64 = 1_000.0;
/// With more, the control thread would not keep up beside busy workers.
const RECORDS_MAX: f64 = 20_000.0;
/// Within this part of the grant a tenant uses all of it: no shard finds a free segment.
pub(super) const FULL_DIVISOR: u64 = 32;
/// Points of a curve that are shown: the eye sees no more, and an answer stays small.
const POINTS_SHOWN: usize = 128;

/// The estimator of a tenant and its results.
#[derive(Debug, Default)]
pub(super) struct Needs {
    elastic: Option<Box<Elastic>>,
    /// Whether there was no room for an estimator.
    is_left_out: bool,
    /// Its gain from memory, as last computed for the node's other instances.
    pub(super) brings: Brings,
    /// The facts of the last decision.
    pub(super) decided: Option<Need>,
}

impl Needs {
    /// The tenant's load, if it has an estimator.
    pub(super) fn elastic(&self) -> Option<&Elastic> {
        self.elastic.as_deref()
    }

    /// The same to change it.
    pub(super) fn elastic_mut(&mut self) -> Option<&mut Elastic> {
        self.elastic.as_deref_mut()
    }

    /// The threshold of sampling. An unknown tenant is sampled in full, so that nothing of its beginning is missed.
    pub(super) fn sampling(&self) -> SamplingThreshold {
        match &self.elastic {
            Some(elastic) => elastic.estimator().asked(),
            None if self.is_left_out => SamplingThreshold::OFF,
            None => SamplingThreshold::ALL,
        }
    }
}

/// The facts about a tenant in a round beside its memory.
#[derive(Debug)]
pub(super) struct Need {
    /// The need of its goal, if it has one.
    pub(super) goal: Option<GoalNeed>,
    /// Its gain from memory, as far as it is known.
    pub(super) returns: Option<Arc<Returns>>,
    /// The custom worth of its hits, if its program has one.
    pub(super) custom_worth: Option<HitWorth>,
}

/// The memory that one tenant could have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// All that can be granted.
    available_bytes: u64,
    /// The same without what other tenants are guaranteed.
    pub(super) for_goal_bytes: u64,
}

impl Book {
    /// Takes the samples of a tenant since its counter of gets stood at `gets_before`.
    pub(super) fn observe_samples(
        &mut self,
        now: UnixMs,
        report: &TenantSnapshot,
        gets_before: u64,
        between: Between<'_>,
    ) {
        let is_off = report.samples.threshold == SamplingThreshold::OFF;
        let is_asked = |tenant: &Tenant| tenant.needs.sampling() > SamplingThreshold::OFF;
        if is_off && self.tenants.get(&report.id).is_some_and(is_asked) {
            // The data plane does not sample as it was asked to, not yet or not any more: it is told again.
            self.changed.insert(report.id);
        }
        let is_known = self.estimated.contains(&report.id);
        if !is_known && (is_off || !self.admit(now, report.id, gets_before)) {
            return;
        }
        if let Some(elastic) = self.elastic(report.id) {
            elastic.observe(now, report, between);
        }
    }

    /// Gives a tenant an estimator, if there is room for one.
    fn admit(&mut self, now: UnixMs, id: TenantId, gets_before: u64) -> bool {
        let Some(tenant) = self.tenants.get(&id) else {
            return false;
        };
        let has_goal = tenant.record.settings.has_goal();
        if self.estimated.len() >= self.estimators_max() {
            let without_goal = |id: &&TenantId| {
                let tenant = self.tenants.get(id);
                tenant.is_none_or(|tenant| !tenant.record.settings.has_goal())
            };
            let yields = self.estimated.iter().find(without_goal).copied();
            match yields.filter(|_| has_goal) {
                Some(other) => self.leave_out(other),
                None => {
                    self.leave_out(id);
                    return false;
                }
            }
        }
        self.estimated.insert(id);
        let (bytes, span) = (self.bytes_each(), self.curve_span());
        if let Some(tenant) = self.tenants.get_mut(&id) {
            let limits = tenant.limits(bytes, span);
            let estimator = if span.has_classes {
                Estimator::of_classes(limits, now, gets_before)
            } else {
                Estimator::new(limits, now, gets_before)
            };
            tenant.needs = Needs {
                elastic: Some(Box::new(Elastic::new(id, estimator, now, gets_before))),
                ..Needs::default()
            };
        }
        true
    }

    fn leave_out(&mut self, id: TenantId) {
        self.estimated.remove(&id);
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.needs = Needs {
                is_left_out: true,
                ..Needs::default()
            };
            self.changed.insert(id);
        }
    }

    /// Forgets the estimator of a tenant that holds nothing any more.
    pub(super) fn stop_estimating(&mut self, id: TenantId) {
        self.estimated.remove(&id);
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.needs = Needs::default();
            tenant.tiers.plan = None;
        }
    }

    /// Curves reach over memory and flash.
    fn curve_span(&self) -> Span {
        Span {
            bytes: self.reach_bytes().saturating_add(self.flash_bytes),
            has_classes: self.flash_bytes > 0,
        }
    }

    fn estimators_max(&self) -> usize {
        let least_bytes = estimator::least_bytes(self.curve_span());
        usize::try_from(self.pool_bytes / POOL_SHARE / least_bytes).unwrap_or(usize::MAX)
    }

    /// Memory for each estimator.
    fn bytes_each(&self) -> u64 {
        self.pool_bytes / POOL_SHARE / (self.estimated.len() as u64).max(1)
    }

    fn elastic(&mut self, id: TenantId) -> Option<&mut Elastic> {
        self.tenants.get_mut(&id)?.needs.elastic.as_deref_mut()
    }

    /// Keeps the samples within their bounds.
    pub(super) fn govern_sampling(&mut self, now: UnixMs, between: Between<'_>) {
        self.make_fit();
        self.readmit();
        let bytes = self.bytes_each();
        let (mut rates, mut gets_per_second) = (Vec::with_capacity(self.estimated.len()), 0.0);
        for id in &self.estimated {
            let elastic = self.tenants.get(id).and_then(|tenant| tenant.needs.elastic.as_deref());
            if let Some(elastic) = elastic {
                rates.push(elastic.estimator().records_per_second(now));
                gets_per_second += elastic.estimator().gets_per_second(now);
            }
        }
        let allowed = (gets_per_second * RECORDS_PER_GET).clamp(RECORDS_MIN, RECORDS_MAX);
        let most = level(allowed, rates);
        let (reach_bytes, flash_bytes) = (self.reach_bytes(), self.flash_bytes);
        let span = self.curve_span();
        for id in self.estimated.clone() {
            let Some(tenant) = self.tenants.get_mut(&id) else {
                continue;
            };
            let flash_cap_bytes = tenant.record.settings.flash.cap_bytes.unwrap_or(u64::MAX);
            let most_bytes = tenant.cap_bytes().unwrap_or(u64::MAX).min(reach_bytes) + flash_cap_bytes.min(flash_bytes);
            let limits = tenant.limits(bytes, span);
            let Some(elastic) = tenant.needs.elastic.as_deref_mut() else {
                continue;
            };
            if elastic.estimator_mut().keep_within(now, limits, most, most_bytes) {
                self.changed.insert(id);
            }
            between();
        }
    }

    /// Leaves tenants out after the pool has become smaller, first those without a goal.
    fn make_fit(&mut self) {
        let excess = self.estimated.len().saturating_sub(self.estimators_max());
        if excess == 0 {
            return;
        }
        let has_goal = |id: &TenantId| {
            let tenant = self.tenants.get(id);
            tenant.is_some_and(|tenant| tenant.record.settings.has_goal())
        };
        let (with_goal, without): (Vec<TenantId>, Vec<TenantId>) = self.estimated.iter().copied().partition(has_goal);
        for id in without.into_iter().chain(with_goal).take(excess) {
            self.leave_out(id);
        }
    }

    /// Lets tenants that were left out back in where there is room again.
    fn readmit(&mut self) {
        let room = self.estimators_max().saturating_sub(self.estimated.len());
        if room == 0 {
            return;
        }
        let is_left_out = |id: &&TenantId| self.tenants.get(id).is_some_and(|tenant| tenant.needs.is_left_out);
        let back: Vec<TenantId> = self.holders.iter().filter(is_left_out).take(room).copied().collect();
        for id in back {
            if let Some(tenant) = self.tenants.get_mut(&id) {
                tenant.needs.is_left_out = false;
                self.changed.insert(id);
            }
        }
    }

    /// The facts for a round. It also adopts the policy that the tenant's load asks for.
    pub(super) fn need(&mut self, id: TenantId, now: UnixMs) -> Need {
        let returns = self.returns(id, now);
        // Without a curve nobody knows which hits more memory would bring.
        let custom_worth = returns.as_ref().and_then(|_| self.custom_worth(id, now));
        Need {
            goal: self.goal_need(id, now),
            returns,
            custom_worth,
        }
    }

    /// The memory that a tenant could have.
    pub(super) fn room_for(&self, tenant: &Tenant) -> Room {
        let available_bytes = grantable_bytes(self.reach_bytes());
        let own_floor_bytes = tenant.record.settings.floor_bytes.unwrap_or(0);
        Room {
            available_bytes,
            for_goal_bytes: available_bytes.saturating_sub(self.floors_bytes.saturating_sub(own_floor_bytes)),
        }
    }

    fn goal_need(&mut self, id: TenantId, now: UnixMs) -> Option<GoalNeed> {
        let there_is = self.room_for(self.tenants.get(&id)?);
        let (available_bytes, hit_cost) = (there_is.available_bytes, self.hit_cost);
        let tenant = self.tenants.get_mut(&id)?;
        if tenant.follow_policy(now) {
            self.changed.insert(id);
        }
        let built_in = tenant.need(now, there_is, hit_cost);
        if !tenant.sizing.is_some() {
            return built_in;
        }
        tenant.own_need(now, available_bytes, built_in).unwrap_or_else(|fault| {
            self.fresh_faults.push((id, fault));
            built_in
        })
    }

    /// Has a program's strategy decide from now on how much a tenant wants, or none.
    pub(crate) fn set_sizing(&mut self, id: TenantId, sizing: CustomSizing) {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.sizing = sizing;
            self.changed.insert(id);
            self.operated.insert(id);
        }
    }

    /// The worth of each hit ratio to a tenant, if a program says that.
    fn custom_worth(&mut self, id: TenantId, now: UnixMs) -> Option<HitWorth> {
        let hit_cost = self.hit_cost;
        let tenant = self.tenants.get_mut(&id)?;
        let load = tenant.load(now, hit_cost)?;
        tenant.utility.worth(&load).unwrap_or_else(|fault| {
            self.fresh_faults.push((id, fault));
            None
        })
    }

    /// Has a program's function say from now on how much hits are worth to a tenant, or none.
    pub(crate) fn set_utility(&mut self, id: TenantId, utility: CustomUtility) {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.utility = utility;
            self.changed.insert(id);
            self.operated.insert(id);
        }
    }

    /// Tells of each program's code that failed since the last call.
    pub(crate) fn tell_faults(&mut self, mut tell: impl FnMut(&TenantName, &Fault)) {
        for (id, fault) in self.fresh_faults.drain(..) {
            if let Some(tenant) = self.tenants.get(&id) {
                tell(&tenant.record.name, &fault);
            }
        }
    }

    /// A tenant's gain from memory, as far as it is known.
    pub(super) fn returns(&mut self, id: TenantId, now: UnixMs) -> Option<Arc<Returns>> {
        let tenant = self.tenants.get_mut(&id)?;
        let seen = tenant.seen.as_deref()?;
        let is_full = seen.usage_bytes >= tenant.grant_bytes - tenant.grant_bytes / FULL_DIVISOR;
        // By hits in memory: what flash answers is no merit of the memory.
        let measured = seen.hits.lately_worth(now, 0.0).filter(|_| is_full);
        let measured = measured.map(|(_, measured)| measured.hit_ratio);
        let measured = measured.map(|hit_ratio| (hit_ratio, seen.usage_bytes));
        tenant.needs.elastic.as_deref_mut()?.returns(now, measured)
    }
}

impl Tenant {
    /// The size of the custom strategy, beside this one of the built-in strategy.
    fn own_need(
        &mut self,
        now: UnixMs,
        available_bytes: u64,
        built_in: Option<GoalNeed>,
    ) -> Result<Option<GoalNeed>, Fault> {
        // It is asked of a tenant that holds something: the first grant is made before anything is known.
        let Some(seen) = self.seen.as_deref().filter(|_| self.grant_bytes > 0) else {
            return Ok(built_in);
        };
        let curve = match self.needs.elastic.as_deref().map(Elastic::estimator) {
            Some(estimator) => HitCurve::new(estimator.curve(), estimator.overhead(), estimator.curve_gets()),
            None => HitCurve::new(Curve::through([]), 1.0, 0),
        };
        let settings = self.record.settings;
        let most_bytes = available_bytes.min(self.cap_bytes().unwrap_or(u64::MAX));
        let wanted = self.sizing.wanted_bytes(&SizeReading {
            now,
            goal: settings.hit_ratio,
            gets: seen.counters.gets,
            hits: seen.counters.hits,
            usage_bytes: seen.usage_bytes,
            // One that is to shrink anyhow is asked as if it had: its present grant is always a possible answer.
            grant_bytes: self.grant_bytes.min(most_bytes),
            most_bytes,
            built_in_bytes: built_in.map(|need| need.bytes),
            curve: &curve,
        })?;
        let Some(bytes) = wanted else { return Ok(built_in) };
        self.predicted = curve.hit_ratio_at(bytes);
        // A custom size is asked for, but not before goals that are within reach.
        let reach = match built_in.map(|need| need.reach) {
            None | Some(Reach::Within) => Reach::Within,
            Some(Reach::Unknown | Reach::Out | Reach::Open) => Reach::Open,
        };
        Ok(Some(GoalNeed { bytes, reach }))
    }

    /// The limits of its estimator in so many bytes.
    fn limits(&self, bytes: u64, span: Span) -> Limits {
        let choice = self.record.settings.policy.unwrap_or_default();
        Limits::within(bytes, span, choice == PolicyChoice::Adaptive).unwrap_or(Limits::LEAST)
    }

    /// Whether another policy is in force from now on.
    fn follow_policy(&mut self, now: UnixMs) -> bool {
        let choice = self.record.settings.policy.unwrap_or_default();
        let (Some(elastic), Some(seen)) = (self.needs.elastic.as_deref_mut(), self.seen.as_deref()) else {
            return false;
        };
        let held = Held {
            usage_bytes: seen.usage_bytes,
            items: seen.items,
        };
        let policy = elastic.policy(now, choice, self.policy, held);
        std::mem::replace(&mut self.policy, policy) != policy
    }

    /// The hit ratio that it is being sized for.
    pub(super) fn goal_in_force(&self) -> Option<f64> {
        let progress = self.needs.elastic.as_deref()?.progress()?;
        Some(progress.asked.goal)
    }

    /// The rate of its gets, and the cost of answers, as far as they are known.
    pub(super) fn load(&self, now: UnixMs, hit_cost: Duration) -> Option<Load> {
        self.load_under(&self.record.settings, now, hit_cost)
    }

    /// The same if its settings were these.
    pub(super) fn load_under(&self, settings: &TenantSettings, now: UnixMs, hit_cost: Duration) -> Option<Load> {
        let elastic = self.needs.elastic.as_deref()?;
        Some(elastic.load(now, settings.miss_cost, hit_cost))
    }

    /// [`Self::load`] as a client that waits for the answers sees it.
    pub(crate) fn waited_for(&self, now: UnixMs, hit_cost: Duration) -> Option<Load> {
        let elastic = self.needs.elastic.as_deref()?;
        Some(elastic.waited_for(&self.load(now, hit_cost)?))
    }

    /// The sources of the times of a hit and of a miss; `None` of a tenant of which nothing is known.
    pub(crate) fn sources(&self, hit_cost: Duration) -> Option<(&'static str, &'static str)> {
        let estimator = self.needs.elastic.as_deref()?.estimator();
        let told = |is_measured| if is_measured { "measured" } else { "assumed" };
        // A hit takes no less than is assumed of an idle server.
        let is_hit_measured = estimator.hit_cost().is_some_and(|measured| measured > hit_cost);
        let miss = match self.record.settings.miss_cost {
            Some(_) => "set",
            None => told(estimator.miss_cost().is_some()),
        };
        Some((told(is_hit_measured), miss))
    }

    fn need(&mut self, now: UnixMs, there_is: Room, hit_cost: Duration) -> Option<GoalNeed> {
        if let Some(need) = self.need_of_tiers() {
            return Some(need);
        }
        let load = self.load(now, hit_cost)?;
        let cap_bytes = self.cap_bytes().unwrap_or(u64::MAX);
        let elastic = self.needs.elastic.as_deref_mut()?;
        let seen = self.seen.as_deref()?;
        let Some(hit_ratio) = elastic.goal_ratio(&self.record.settings, &load) else {
            elastic.drop_goal();
            return None;
        };
        if self.grant_bytes == 0 {
            return None;
        }
        let wanted = elastic.wants(
            now,
            hit_ratio,
            self.record.remembered_grant_bytes.unwrap_or(0),
            Holding {
                gets: seen.counters.gets,
                hits: seen.counters.hits,
                usage_bytes: seen.usage_bytes,
                grant_bytes: self.grant_bytes,
                most_bytes: there_is.available_bytes.min(cap_bytes),
                reach_bytes: there_is.for_goal_bytes.min(cap_bytes),
            },
        );
        self.predicted = wanted.predicted;
        Some(GoalNeed {
            bytes: wanted.bytes,
            reach: wanted.reach,
        })
    }

    /// The state of the tenant's goal, and the memory that it could use.
    pub(crate) fn goal(&self, now: UnixMs) -> GoalReport {
        let has_goal = self.record.settings.has_goal();
        let elastic = self.needs.elastic.as_deref();
        let demand_bytes = elastic.and_then(|elastic| {
            let estimator = elastic.estimator();
            demand_bytes(&estimator.curve(), estimator.overhead())
        });
        let has_load = || self.seen.as_deref().is_some_and(|seen| seen.hits.ratio(now).is_some());
        let (state, reading) = if has_goal {
            stands(self.reading, has_load(), now)
        } else {
            (None, None)
        };
        GoalReport {
            state,
            reading,
            demand_bytes,
            goal_bytes: match self.tiers.plan {
                Some(plan) => plan.reach.claims().then_some(plan.memory_bytes),
                None => elastic.and_then(Elastic::progress).and_then(|progress| progress.bytes),
            },
        }
    }

    /// Reads how the tenant stands with a goal for both tiers: hits on flash count for what they are worth.
    fn read_goal_of(&mut self, plan: &Tiers, now: UnixMs) {
        let seen = self.seen.as_deref();
        let Some((at, measured)) = seen.and_then(|seen| seen.hits.lately_worth(now, plan.worth())) else {
            return;
        };
        self.reading = Some(GoalReading::of(
            at,
            &Outlook {
                asked: plan.hit_goal(),
                measured,
                reach: plan.reach,
                prospect: Some(plan.prospect),
                is_left_short: plan.is_short,
            },
        ));
    }

    /// Reads how the tenant stands with its goal, if it was asked something since the last reading.
    pub(super) fn read_goal(&mut self, now: UnixMs, is_left_short: bool) {
        if let Some(plan) = self.tiers.plan {
            self.read_goal_of(&plan, now);
            return;
        }
        let progress = self.needs.elastic.as_deref().and_then(Elastic::progress);
        let asked = match progress {
            Some(progress) => Some(progress.asked),
            // Which hit ratio goes with a latency is known with the load alone.
            None => self
                .record
                .settings
                .hit_ratio
                .map(|ratio| HitGoal::plainly(ratio.get())),
        };
        let lately = self.seen.as_deref().and_then(|seen| seen.hits.lately(now));
        let Some((asked, (at, measured))) = asked.zip(lately) else {
            return;
        };
        self.reading = Some(GoalReading::of(
            at,
            &Outlook {
                asked,
                measured,
                reach: progress.map(|progress| progress.reach).unwrap_or_default(),
                prospect: progress.and_then(|progress| progress.prospect),
                is_left_short,
            },
        ));
    }

    /// The tenant's curve as it is known; `None` while nothing is.
    pub(crate) fn curve(&self, now: UnixMs) -> Option<CurveReport> {
        let elastic = self.needs.elastic.as_deref()?;
        let (estimator, scale) = (elastic.estimator(), elastic.bytes_per_curve_byte());
        let curve = estimator.curve();
        let points = curve.points();
        if points.len() < 2 {
            return None;
        }
        let held_bytes = self.seen.as_deref().map_or(0, |seen| seen.usage_bytes);
        let every = points.len().div_ceil(POINTS_SHOWN);
        let shown = points.iter().rev().step_by(every).rev();
        Some(CurveReport {
            requests: estimator.curve_gets(),
            points: shown
                .map(|point| ((point.bytes as f64 * scale) as u64, point.miss_ratio))
                .collect(),
            age: now.since(estimator.reported_at()),
            standard_error: curve.at((held_bytes as f64 / scale) as u64).standard_error,
        })
    }
}

/// The height up to which these may reach so that together they are at most `allowed`.
fn level(allowed: f64, mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    let (mut rest, mut count) = (allowed, rates.len() as f64);
    for rate in rates {
        if rate * count >= rest {
            return rest / count;
        }
        rest -= rate;
        count -= 1.0;
    }
    // All together are below: each may take the rest.
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_above_the_level_share_what_the_others_leave() {
        for (allowed, rates, expected) in [
            (100.0, vec![], f64::INFINITY),
            (100.0, vec![10.0, 20.0], f64::INFINITY),
            (100.0, vec![500.0], 100.0),
            (100.0, vec![500.0, 10.0], 90.0),
            (100.0, vec![500.0, 500.0, 20.0, 0.0], 40.0),
        ] {
            assert_eq!(level(allowed, rates.clone()), expected, "{rates:?}");
        }
    }
}
