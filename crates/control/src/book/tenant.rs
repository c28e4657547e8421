//! One tenant as the grant rule sees it, and as the data plane shall know it.

use std::time::Duration;

use tidemark_meter::spending::Restraint;
use tidemark_plan::GoalReading;
use tidemark_types::{FlashPlan, Policy, Secret, TenantLimits, TenantPlan, TenantState, UNIT_BYTES, UnixMs};

use super::needs::{FULL_DIVISOR, Needs};
use super::seen::Seen;
use super::tiers::TiersState;
use super::{INFLOW_SECONDS, JUDGED_PER_MINUTE, SHORTFALL_MIN};
use crate::credit::Credit;
use crate::grant::{Grant, Holder};
use crate::idle::Sleeper;
use crate::moves::{MEASURED_GETS, Moves, Prediction};
use crate::settings::{DEFAULT_PRIORITY, MIN_CAP_BYTES, TenantSettings};
use crate::sizing::CustomSizing;
use crate::state::TenantRecord;
use crate::utility::CustomUtility;

/// One tenant.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) record: TenantRecord,
    pub(crate) shards: u16,
    pub(crate) grant_bytes: u64,
    /// Flash that it may hold; `None`: that was never decided.
    pub(crate) flash_grant_bytes: Option<u64>,
    /// The part of the grant that is lent to it: nobody gains by it, and it is taken back first.
    pub(crate) lent_bytes: u64,
    /// How it stood with its goal when it was last asked something.
    pub(super) reading: Option<GoalReading>,
    pub(super) credit: Credit,
    /// The policy in force: the operator's, or the one that follows from the choice.
    pub(crate) policy: Policy,
    /// The hit ratio that is expected of the size that the goal asked for last.
    pub(super) predicted: Option<f64>,
    pub(super) needs: Needs,
    /// Memory and flash, where they are sized together.
    pub(crate) tiers: TiersState,
    pub(super) sizing: CustomSizing,
    pub(super) utility: CustomUtility,
    pub(crate) moves: Moves,
    /// The moves of its part of flash.
    pub(crate) flash_moves: Moves,
    pub(crate) is_removing: bool,
    /// The reports of the data plane, for a tenant that was ever touched.
    pub(crate) seen: Option<Box<Seen>>,
    /// The restraint that follows from its spending.
    pub(crate) restraint: Restraint,
    /// The next plan takes its memory away.
    pub(super) gives_all_back: bool,
    pub(super) plan_version: u64,
}

impl Tenant {
    /// As one that may have to make room for others; `None` while it is not idle.
    pub(super) fn sleeper(&self, now: UnixMs, idle_after: Duration) -> Option<Sleeper> {
        let seen = self.seen.as_deref()?;
        (now.since(seen.active_at) >= idle_after).then_some(Sleeper {
            usage_bytes: seen.usage_bytes,
            active_at: seen.active_at,
        })
    }

    /// The hit ratio to expect until a move to so many bytes is judged. It is the recent one, plus the curve's
    /// difference between the memory then and the memory filled by the middle of that time.
    pub(super) fn hit_ratio_soon(&self, now: UnixMs, holder: &Holder<'_>, grant_bytes: u64) -> Option<Prediction> {
        let returns = holder.returns?;
        let at = |bytes: u64| returns.hit_ratio(bytes as f64 / UNIT_BYTES as f64);
        let filled_bytes = holder
            .usage_bytes
            .saturating_add(holder.inflow_bytes_per_minute / JUDGED_PER_MINUTE / 2);
        let lately = self
            .seen
            .as_deref()
            .and_then(|seen| seen.hits.measured(now, MEASURED_GETS));
        Some(Prediction {
            by_curve: at(grant_bytes.min(filled_bytes)),
            offset: Some(lately.map_or(0.0, |(hit_ratio, bytes)| hit_ratio - at(bytes))),
        })
    }

    /// Whether its goal is missed noticeably because others come first.
    pub(super) fn is_left_short(&self, now: UnixMs, holder: &Holder<'_>, grant: &Grant) -> bool {
        if let Some(plan) = self.tiers.plan {
            return plan.is_short || grant.is_short;
        }
        let Some((goal, returns)) = self.goal_in_force().zip(holder.returns).filter(|_| grant.is_short) else {
            return false;
        };
        let expected = returns.hit_ratio(grant.own_bytes as f64 / UNIT_BYTES as f64);
        // If the curve sees no use for memory that was found to be needed, the measured hit ratio counts.
        let measured = || self.seen.as_deref()?.hits.measured(now, MEASURED_GETS);
        let is_missed = |reached: f64| goal - reached > SHORTFALL_MIN;
        is_missed(expected) || measured().is_some_and(|(reached, _)| is_missed(reached))
    }

    /// The tenant as the grant rule sees it. Begins a new count of events until the next decision.
    pub(super) fn holder(&mut self, now: UnixMs, hit_cost: Duration) -> Holder<'static> {
        let holder = self.holder_under(&self.record.settings, now, hit_cost);
        if let Some(seen) = &mut self.seen {
            (seen.was_short, seen.inflow_bytes) = (false, 0);
        }
        holder
    }

    /// The same if its settings were these. Nothing is begun.
    pub(super) fn holder_under(&self, settings: &TenantSettings, now: UnixMs, hit_cost: Duration) -> Holder<'static> {
        let mut holder = Holder {
            priority: settings.priority.unwrap_or(DEFAULT_PRIORITY),
            weight: settings.weight.unwrap_or_default().get() as f64,
            utility: settings.utility.unwrap_or_default(),
            credit_bytes: self.credit.bytes(),
            floor_bytes: settings.floor_bytes.unwrap_or(0),
            cap_bytes: self.cap_under(settings),
            grant_bytes: self.grant_bytes,
            shards: self.shards,
            ..Holder::default()
        };
        if let Some(load) = self.load_under(settings, now, hit_cost) {
            holder.load = load;
        }
        if let Some(seen) = self.seen.as_deref() {
            let is_at_grant = seen.usage_bytes >= self.grant_bytes - self.grant_bytes / FULL_DIVISOR;
            holder.usage_bytes = seen.usage_bytes;
            holder.wants_more = seen.want.is_there(now);
            holder.is_full = seen.was_short || is_at_grant;
            holder.inflow_bytes = seen.inflow_bytes;
            // Nothing came since for a tenant without a report.
            let silence = now.since(seen.inflow_at).as_secs_f64() / INFLOW_SECONDS;
            holder.inflow_bytes_per_minute = (seen.inflow_bytes_per_second * (-silence).exp() * 60.0) as u64;
        }
        holder
    }

    /// Memory that it never exceeds: its cap, or its floor while it is at its spending limit.
    pub(crate) fn cap_bytes(&self) -> Option<u64> {
        self.cap_under(&self.record.settings)
    }

    pub(super) fn cap_under(&self, settings: &TenantSettings) -> Option<u64> {
        // Without any it could not even be read.
        let at_floor = || settings.floor_bytes.unwrap_or(0).max(MIN_CAP_BYTES);
        least(settings.cap_bytes, self.restraint.is_at_floor.then(at_floor))
    }

    /// The tenant as the data plane shall know it. `first_grant_bytes` is the memory that a tenant without a remembered
    /// grant may take by itself.
    pub(super) fn plan(&mut self, first_grant_bytes: u64) -> TenantPlan {
        self.plan_version += 1;
        let gives_all_back = std::mem::take(&mut self.gives_all_back);
        let remembered_bytes = self.record.remembered_grant_bytes.unwrap_or(0);
        let settings = self.record.settings;
        let secret = |stored: &crate::state::StoredSecret| Secret {
            hash: stored.hash,
            permissions: stored.permissions,
        };
        TenantPlan {
            id: self.record.id,
            version: self.plan_version,
            name: self.record.name.clone(),
            open: self.record.name.is_default(),
            secrets: self.record.secrets.iter().map(secret).collect(),
            policy: self.policy,
            shards: self.shards,
            grant_bytes: self.grant_bytes,
            first_grant_bytes: remembered_bytes
                .max(first_grant_bytes)
                .min(self.cap_bytes().unwrap_or(u64::MAX)),
            cap_bytes: self.cap_bytes(),
            limits: TenantLimits {
                ops_per_second: least(settings.limits.ops_per_second, self.restraint.ops_per_second),
                ..settings.limits
            },
            refuses_writes: self.restraint.refuses_writes,
            weight: settings.weight.unwrap_or_default(),
            sampling_threshold: self.needs.sampling(),
            flash: FlashPlan {
                grant_bytes: self.flash_grant_bytes,
                staleness: settings.flash.staleness.unwrap_or_default(),
                write_bytes_per_second: settings.flash.write_bytes_per_second,
            },
            state: match (self.is_removing, self.grant_bytes) {
                (true, _) => TenantState::Removing,
                (false, 0) if gives_all_back => TenantState::Reclaimed,
                (false, 0) => TenantState::Idle,
                (false, _) => TenantState::Active,
            },
        }
    }
}

/// The lower of two limits.
fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
