//! The views of a tenant for operators, made of the control plane's knowledge.

use crate::book::{Previewed, Tenant};
use crate::goal::CurveReport;
use crate::goal::GoalReport;
use crate::goal::state_name;
use crate::moves::{Move, Reason};
use crate::state::StoredSecret;
use crate::tiers::worth;
use crate::view::CurvePointView;
use crate::view::CurveView;
use crate::view::DurationBucketView;
use crate::view::DurationsView;
use crate::view::LastMoveView;
use crate::view::LatencyView;
use crate::view::MoveView;
use crate::view::MovesView;
use crate::view::OperationsView;
use crate::view::PreviewedView;
use crate::view::RefusedView;
use crate::view::SecretView;
use crate::view::SectionView;
use crate::view::ShapeView;
use crate::view::SpendingView;
use crate::view::TenantView;
use std::time::Duration;
use tidemark_meter::price::Money;
use tidemark_meter::spending::Standing;
use tidemark_types::CommandCount;
use tidemark_types::Policy;
use tidemark_types::Refused;
use tidemark_types::SERVED_UP_TO_US;
use tidemark_types::ServedTimes;
use tidemark_types::UnixMs;
use tidemark_types::utc::{rfc3339, rfc3339_ms};

pub(super) fn previewed_view(previewed: Previewed) -> PreviewedView {
    PreviewedView {
        name: previewed.name,
        grant_bytes: previewed.now.bytes,
        flash_grant_bytes: previewed.now.flash_bytes,
        hit_ratio: previewed.now.hit_ratio,
        unchanged_bytes: previewed.unchanged.bytes,
        unchanged_flash_bytes: previewed.unchanged.flash_bytes,
        unchanged_hit_ratio: previewed.unchanged.hit_ratio,
        changed_bytes: previewed.changed.bytes,
        changed_flash_bytes: previewed.changed.flash_bytes,
        changed_hit_ratio: previewed.changed.hit_ratio,
    }
}

/// A move, and the name of the tenant on its other side.
pub(super) fn move_view(change: &Move, other: Option<String>) -> MoveView {
    MoveView {
        at: rfc3339_ms(change.at),
        from_bytes: change.from_bytes,
        to_bytes: change.to_bytes,
        reason: change.reason.name(),
        other,
        predicted_hit_ratio: change.predicted_hit_ratio,
        measured_hit_ratio: change.measured_hit_ratio,
        tier: None,
    }
}

/// A tenant's moves of memory and of flash, newest first.
pub(super) fn move_views(tenant: &Tenant, other: impl Fn(&Move) -> Option<String>) -> Vec<MoveView> {
    let memory = tenant.moves.newest_first();
    let memory = memory.map(|change| (change.at, move_view(change, other(change))));
    let on_flash = |change: &Move| MoveView {
        tier: Some("flash"),
        ..move_view(change, None)
    };
    let flash = tenant
        .flash_moves
        .newest_first()
        .map(|change| (change.at, on_flash(change)));
    let mut both: Vec<(UnixMs, MoveView)> = memory.chain(flash).collect();
    both.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    both.into_iter().map(|(_, view)| view).collect()
}

/// A tenant's curve; without a report, the fields that are known without one.
pub(super) fn curve_view(report: Option<&CurveReport>, now_bytes: u64, goal: &GoalReport, policy: Policy) -> CurveView {
    let point = |&(bytes, miss_ratio): &(u64, f64)| CurvePointView { bytes, miss_ratio };
    CurveView {
        requests: report.map(|report| report.requests),
        points: report.map_or_else(Vec::new, |report| report.points.iter().map(point).collect()),
        now_bytes,
        goal_bytes: goal.goal_bytes,
        policy: report.map(|_| policy.to_string()),
        age_seconds: report.map(|report| report.age.as_secs_f64()),
        standard_error: report.map(|report| report.standard_error),
    }
}

pub(super) fn tenant_view(tenant: &Tenant, now: UnixMs, hit_cost: Duration) -> TenantView {
    let record = &tenant.record;
    let seen = tenant.seen.as_deref();
    let counters = seen.map(|seen| seen.counters).unwrap_or_default();
    let flash = counters.flash;
    let usage_bytes = seen.map_or(0, |seen| seen.usage_bytes);
    let holds = tenant.grant_bytes > 0 || usage_bytes > 0;
    let goal = tenant.goal(now);
    let hit_ratio = seen.and_then(|seen| seen.hits.ratio(now));
    let secret = |secret: &StoredSecret| SecretView {
        name: secret.name.to_string(),
        created_at: rfc3339(secret.created_at),
        permissions: secret.permissions.to_string(),
    };
    TenantView {
        id: record.id,
        name: record.name.to_string(),
        state: match (tenant.is_removing, holds) {
            (true, _) => "removing",
            (false, true) => "active",
            (false, false) => "idle",
        },
        open: record.name.is_default(),
        secrets: record.secrets.iter().map(secret).collect(),
        settings: record.settings,
        goals: SectionView::new("goals", &record.settings),
        last_move: tenant.moves.newest_first().next().map(|last| LastMoveView {
            at: rfc3339_ms(last.at),
            reason: last.reason.name(),
        }),
        goal_state: state_name(goal.state),
        shortfall_ratio: goal.reading.and_then(|reading| reading.shortfall_ratio),
        best_hit_ratio: goal.reading.and_then(|reading| reading.best_hit_ratio),
        goal_age_seconds: goal.reading.map(|reading| now.since(reading.at).as_secs_f64()),
        goal_standard_error: goal.reading.map(|reading| reading.standard_error),
        latency: latency_view(tenant, now, hit_cost, &goal),
        limits: SectionView::new("limits", &record.settings),
        spending: None,
        policy: record.settings.policy.unwrap_or_default().to_string(),
        policy_in_force: tenant.policy.to_string(),
        shards: tenant.shards,
        grant_bytes: tenant.grant_bytes,
        usage_bytes,
        lent_bytes: holds.then_some(tenant.lent_bytes),
        demand_bytes: goal.demand_bytes,
        items: seen.map_or(0, |seen| seen.items),
        flash: SectionView::new("flash", &record.settings),
        flash_grant_bytes: flash.map(|flash| flash.grant_bytes),
        flash_usage_bytes: flash.map(|flash| flash.usage_bytes),
        flash_memory_bytes: flash.map(|flash| flash.memory_bytes),
        flash_items: flash.map(|flash| flash.items),
        flash_hits_total: flash.map(|flash| flash.hits),
        flash_written_bytes_total: flash.map(|flash| flash.written_bytes),
        flash_refused_total: flash.map(|flash| flash.refused),
        flash_failed: None,
        gets_total: counters.gets,
        hits_total: counters.hits,
        sets_total: counters.sets,
        evictions_total: counters.evicted,
        expirations_total: counters.expired,
        hit_ratio,
        cpu_seconds_total: None,
        cpu_model_seconds_total: None,
        cores: None,
        vcpus: None,
        memory_byte_seconds_total: None,
        network_in_bytes_total: counters.network_in_bytes,
        network_out_bytes_total: counters.network_out_bytes,
        network_bytes_per_second: None,
        network_occupancy: None,
        connections: seen.map_or(0, |seen| seen.connections),
        shape_total: ShapeView {
            visits: counters.shape.visits,
            arrivals: counters.shape.arrivals,
            written_key_bytes: counters.shape.written_key_bytes,
            written_value_bytes: counters.shape.written_value_bytes,
        },
        refused_total: refused_view(&counters.refused),
        moves_total: tenant.moves.counts().map(moves_view).collect(),
        flash_moves_total: tenant.flash_moves.counts().map(moves_view).collect(),
        operations_total: Vec::new(),
    }
}

/// The part of a limit that is used.
pub(super) fn occupancy(per_second: f64, limit_per_second: Option<u64>) -> Option<f64> {
    limit_per_second.map(|limit| per_second / limit as f64)
}

fn moves_view((reason, count): (Reason, u32)) -> MovesView {
    MovesView {
        reason: reason.name(),
        count,
    }
}

/// The times of requests. A whole microsecond is all of it: what took up to 15 took less than 16.
pub(super) fn durations_view(served: &ServedTimes) -> DurationsView {
    let below = SERVED_UP_TO_US.iter().map(|most| Some(most + 1)).chain([None]);
    let buckets = below.zip(served.requests);
    DurationsView {
        sum_us: served.us,
        count: served.requests.iter().sum(),
        buckets: buckets
            .map(|(below_us, count)| DurationBucketView { below_us, count })
            .collect(),
    }
}

fn latency_view(tenant: &Tenant, now: UnixMs, hit_cost: Duration, goal: &GoalReport) -> LatencyView {
    let answers = tenant.waited_for(now, hit_cost);
    let wait_us = tenant.flash_wait_us();
    let hits = &tenant.seen.as_deref().map(|seen| &seen.hits);
    let counted = answers.and_then(|answers| {
        let worth = wait_us.map_or(1.0, |wait_us| worth(&answers, wait_us));
        hits.and_then(|hits| hits.lately_worth(now, worth))
    });
    let at = |ratio: Option<f64>| {
        answers
            .zip(ratio)
            .map(|(answers, ratio)| answers.mean_cost_us(ratio) as u64)
    };
    let is_goal = tenant.record.settings.latency.is_some();
    let reading = goal.reading.filter(|_| is_goal);
    let spread_us = answers.map(|answers| answers.miss_cost_us - answers.hit_cost_us);
    let shortfall = reading.and_then(|reading| reading.shortfall_ratio);
    let sources = tenant.sources(hit_cost);
    LatencyView {
        mean_us: at(counted.map(|(_, measured)| measured.hit_ratio)),
        hit_us: answers.map(|answers| answers.hit_cost_us as u64),
        flash_hit_us: answers
            .zip(wait_us)
            .map(|(answers, wait_us)| (answers.hit_cost_us + wait_us) as u64),
        miss_us: answers.map(|answers| answers.miss_cost_us as u64),
        best_us: at(reading.and_then(|reading| reading.best_hit_ratio)),
        shortfall_us: spread_us.zip(shortfall).map(|(spread, ratio)| (spread * ratio) as u64),
        hit_is: sources.map(|(hit, _)| hit),
        miss_is: sources.map(|(_, miss)| miss),
    }
}

pub(super) fn operations_view(commands: &[CommandCount]) -> Vec<OperationsView> {
    let view = |count: &CommandCount| OperationsView {
        protocol: count.protocol,
        command: count.command,
        outcome: count.outcome.name(),
        count: count.count,
    };
    commands.iter().map(view).collect()
}

/// The standing of a tenant with its spending limit.
pub(super) fn spending_view(tenant: &Tenant, standing: Standing, currency: &str) -> SpendingView {
    let limit = tenant.record.settings.spending_limit();
    let ratio = |amount: Money| (amount > Money(0)).then(|| standing.spent.as_f64() / amount.as_f64());
    SpendingView {
        spent: standing.spent.to_string(),
        limit: limit.map(|limit| limit.amount.to_string()),
        spent_ratio: limit.and_then(|limit| ratio(limit.amount)),
        reached_percent: limit.map(|limit| limit.reached_percent(standing.spent)),
        restraint: tenant.restraint.name(),
        ops_per_second: tenant.restraint.ops_per_second,
        currency: currency.to_owned(),
        month: standing.month,
    }
}

fn refused_view(refused: &Refused) -> RefusedView {
    RefusedView {
        ops_per_second: refused.ops,
        bytes_per_second: refused.bytes,
        spending_limit: refused.spending,
        flash_waits: refused.flash,
        connections: refused.connections,
        failed_logins: refused.logins,
        reply_size: refused.replies,
        stalled_connections: refused.stalled,
        incomplete_commands: refused.incomplete,
        connection_memory: refused.memory,
    }
}
