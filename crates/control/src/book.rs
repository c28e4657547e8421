//! Every tenant with its settings, its grant and the data plane's last report; and the plan that follows.
//!
//! Snapshots and commands go in, plans come out; no clock, file, socket or thread in here.
//!
//! Invariants: a tenant that holds nothing is in none of the lists that a round walks, so that it costs a round
//! nothing. A tenant is in a plan exactly when something in it changed since its last plan. The caller gives the time,
//! which does not go back.

mod flash;
mod limited;
mod needs;
mod node;
mod preview;
mod regrant;
mod seen;
mod sides;
mod tenant;
mod tiers;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tidemark_meter::spending::Restraint;
use tidemark_types::{
    Fault, FlashUse, Plan, PoolSnapshot, Snapshot, TenantId, TenantName, TenantSnapshot, UNIT_BYTES, UnixMs,
};

use crate::config::FirstLease;
use crate::credit::Credit;
use crate::grant::{Grant, Holder, Problem, grantable_bytes, grants};
use crate::idle::make_room;
use crate::moves::{Move, Moves, Prediction, Reason};
use crate::pace::Between;
use crate::settings::{DEFAULT_HIT_COST, DEFAULT_ROUND_PERIOD, Idling};
use crate::shards::shards_for;
use crate::sizing::CustomSizing;
use crate::state::TenantRecord;
use crate::tiers::TierPrices;
use crate::utility::CustomUtility;
use needs::{Need, Needs};
pub(crate) use node::WORTH_PIECES_MAX;
pub(crate) use preview::Previewed;
use regrant::{Cause, Given};
use sides::{Change, other_sides};
pub(crate) use tenant::Tenant;
use tiers::TiersState;

/// A tenant that was emptied keeps its grant this long, because the next write often follows the flush.
const EMPTY_LINGERS: Duration = Duration::from_secs(2);
/// The longest time without a decision that the next one makes up for, or a round's period if that is longer. A quiet
/// hour is thus not followed by a jump.
const ELAPSED_MAX: Duration = Duration::from_secs(1);
/// The outcome of a move is measured over ten seconds.
const JUDGED_PER_MINUTE: u64 = 6;
/// How fast a tenant writes is taken over about so many seconds.
const INFLOW_SECONDS: f64 = 5.0;
/// The divisor of the pool that moves per second, in a full pool, to tenants to which it is worth more. Memory for
/// floors and goals is not limited by it.
const STEPS_PER_POOL: u64 = 50;
/// The divisor of the pool that idle tenants give up per second. It is larger, since nobody misses that memory.
const IDLE_STEPS_PER_POOL: u64 = 8;
/// A goal that others leave this much of a hit ratio short is met: it could not be measured better.
const SHORTFALL_MIN: f64 = 0.01;

/// All tenants.
#[derive(Debug)]
pub(crate) struct Book {
    workers: usize,
    idling: Idling,
    /// The time of a hit from the client's side.
    hit_cost: Duration,
    /// Time between rounds.
    round_period: Duration,
    pool_bytes: u64,
    /// The size that the pool could reach, if it follows a lease on the node's memory.
    reach_bytes: Option<u64>,
    /// The pool's size in the last plan; `None` before the first.
    planned_pool_bytes: Option<u64>,
    pool: PoolSnapshot,
    tenants: HashMap<TenantId, Tenant>,
    /// The floors of all tenants together, but for those that are being removed.
    floors_bytes: u64,
    names: BTreeMap<TenantName, TenantId>,
    /// Those that hold memory or ask for some.
    holders: BTreeSet<TenantId>,
    /// Those that have an estimator.
    estimated: BTreeSet<TenantId>,
    /// Holders whose usage is zero, and since when.
    empty_since: BTreeMap<TenantId, UnixMs>,
    /// The tenant whose curve was looked at last for the node's other instances.
    worked_out_last: TenantId,
    /// All flash; zero: there is none.
    flash_bytes: u64,
    /// Those that have something on flash.
    on_flash: BTreeSet<TenantId>,
    /// Those that had a part of flash at the last decision.
    shared_flash: BTreeSet<TenantId>,
    /// The prices of memory and flash.
    tier_prices: TierPrices,
    /// When memory and flash were sized together last.
    tiers_at: UnixMs,
    /// Those that have a spending limit.
    limited: BTreeSet<TenantId>,
    /// Those that the next plan must mention.
    changed: BTreeSet<TenantId>,
    /// Those whose settings were changed since the last decision.
    operated: BTreeSet<TenantId>,
    /// Something happened that may move grants.
    is_dirty: bool,
    sequence: u64,
    /// The time that was last told, and first.
    now: UnixMs,
    began_at: UnixMs,
    decided_at: UnixMs,
    /// Moves that nobody was told of yet.
    fresh_moves: Vec<(TenantId, Move)>,
    /// The same of flash.
    fresh_flash_moves: Vec<(TenantId, Move)>,
    /// Moves whose outcome became known since then.
    measured_moves: Vec<(TenantId, Move)>,
    /// Programs' code that failed, which nobody was told of yet.
    fresh_faults: Vec<(TenantId, Fault)>,
    /// The remembered grants of tenants that are not in the state file yet.
    to_remember: BTreeMap<TenantId, Option<u64>>,
}

impl Book {
    /// A book with the tenants of the state file; none holds anything yet.
    pub(crate) fn new(pool_bytes: u64, workers: usize, records: Vec<TenantRecord>) -> Self {
        Self::with(pool_bytes, None, workers, records)
    }

    /// The same, with a pool that follows a lease.
    pub(crate) fn leased(lease: FirstLease, workers: usize, records: Vec<TenantRecord>) -> Self {
        Self::with(lease.bytes, Some(lease.reach_bytes), workers, records)
    }

    fn with(pool_bytes: u64, reach_bytes: Option<u64>, workers: usize, records: Vec<TenantRecord>) -> Self {
        let mut book = Self {
            workers,
            idling: Idling::default(),
            hit_cost: DEFAULT_HIT_COST,
            round_period: DEFAULT_ROUND_PERIOD,
            pool_bytes,
            reach_bytes,
            planned_pool_bytes: None,
            pool: PoolSnapshot::default(),
            tenants: HashMap::with_capacity(records.len()),
            floors_bytes: 0,
            names: BTreeMap::new(),
            holders: BTreeSet::new(),
            estimated: BTreeSet::new(),
            empty_since: BTreeMap::new(),
            worked_out_last: TenantId(0),
            flash_bytes: 0,
            on_flash: BTreeSet::new(),
            shared_flash: BTreeSet::new(),
            tier_prices: TierPrices::default(),
            tiers_at: UnixMs(0),
            limited: BTreeSet::new(),
            changed: BTreeSet::new(),
            operated: BTreeSet::new(),
            is_dirty: true,
            sequence: 0,
            now: UnixMs(0),
            began_at: UnixMs(0),
            decided_at: UnixMs(0),
            fresh_moves: Vec::new(),
            fresh_flash_moves: Vec::new(),
            measured_moves: Vec::new(),
            fresh_faults: Vec::new(),
            to_remember: BTreeMap::new(),
        };
        for record in records {
            book.insert(record);
        }
        book
    }

    /// Adds a tenant.
    pub(crate) fn insert(&mut self, record: TenantRecord) {
        let id = record.id;
        self.names.insert(record.name.clone(), id);
        self.floors_bytes += record.settings.floor_bytes.unwrap_or(0);
        self.changed.insert(id);
        if record.settings.spending.is_some() {
            self.limited.insert(id);
        }
        let tenant = Tenant {
            shards: shards_for(record.settings.cap_bytes, self.reach_bytes(), self.workers),
            grant_bytes: 0,
            flash_grant_bytes: None,
            lent_bytes: 0,
            reading: None,
            credit: Credit::default(),
            policy: record.settings.policy.unwrap_or_default().first(),
            predicted: None,
            needs: Needs::default(),
            tiers: TiersState::default(),
            sizing: CustomSizing::default(),
            utility: CustomUtility::default(),
            moves: Moves::default(),
            flash_moves: Moves::default(),
            is_removing: false,
            seen: None,
            restraint: Restraint::default(),
            gives_all_back: false,
            plan_version: 0,
            record,
        };
        self.tenants.insert(id, tenant);
    }

    /// Takes over a tenant's new settings or secrets.
    pub(crate) fn update(&mut self, record: TenantRecord) {
        let Some(tenant) = self.tenants.get_mut(&record.id) else {
            return;
        };
        self.changed.insert(record.id);
        let (before, after) = (tenant.record.settings, record.settings);
        if before != after {
            self.operated.insert(record.id);
        }
        if before.policy.unwrap_or_default() != after.policy.unwrap_or_default() {
            tenant.policy = after.policy.unwrap_or_default().first();
        }
        if after.floor_bytes.is_none() {
            // It has a credit for the part of a promise that it lent, and nothing is promised to it any more.
            tenant.credit = Credit::default();
        }
        if after.spending.is_some() {
            self.limited.insert(record.id);
        } else {
            self.limited.remove(&record.id);
            tenant.restraint = Restraint::default();
        }
        self.floors_bytes -= before.floor_bytes.unwrap_or(0);
        self.floors_bytes += after.floor_bytes.unwrap_or(0);
        if !before.has_same_goal(&after) {
            tenant.reading = None;
        }
        tenant.record = record;
    }

    /// Begins a tenant's removal; it ends with the snapshot that says that its memory is back.
    pub(crate) fn start_removing(&mut self, id: TenantId) {
        self.regrant(id, Given::freely(0, Reason::Leave), None);
        if let Some(tenant) = self.tenants.get_mut(&id) {
            if !tenant.is_removing {
                self.floors_bytes -= tenant.record.settings.floor_bytes.unwrap_or(0);
            }
            tenant.is_removing = true;
            self.holders.remove(&id);
            self.empty_since.remove(&id);
            self.changed.insert(id);
        }
        self.stop_estimating(id);
    }

    /// Changes how tenants come and go.
    pub(crate) fn set_idling(&mut self, idling: Idling) {
        if idling.first_grant_bytes != self.idling.first_grant_bytes {
            self.changed.extend(self.tenants.keys());
        }
        self.idling = idling;
    }

    /// The least time of a hit.
    pub(crate) fn hit_cost(&self) -> Duration {
        self.hit_cost
    }

    /// Changes the least time of a hit.
    pub(crate) fn set_hit_cost(&mut self, hit_cost: Duration) {
        self.hit_cost = hit_cost;
    }

    /// Changes the time between rounds.
    pub(crate) fn set_round_period(&mut self, round_period: Duration) {
        self.round_period = round_period;
    }

    /// Changes the pool's size.
    pub(crate) fn set_pool_bytes(&mut self, pool_bytes: u64) {
        self.is_dirty |= self.pool_bytes != pool_bytes;
        self.pool_bytes = pool_bytes;
    }

    /// The pool's size.
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.pool_bytes
    }

    /// The size that the pool could reach. If it follows a lease that may grow, that is more than its present size.
    pub(crate) fn reach_bytes(&self) -> u64 {
        self.reach_bytes.unwrap_or(0).max(self.pool_bytes)
    }

    /// Another lease could be had from now on.
    pub(crate) fn set_reach_bytes(&mut self, reach_bytes: u64) {
        self.reach_bytes = Some(reach_bytes);
    }

    /// The last report of the data plane on the pool.
    pub(crate) fn pool(&self) -> PoolSnapshot {
        self.pool
    }

    /// All grants together.
    pub(crate) fn granted_bytes(&self) -> u64 {
        self.holders
            .iter()
            .filter_map(|id| self.tenants.get(id))
            .map(|tenant| tenant.grant_bytes)
            .sum()
    }

    /// The flash that all tenants may hold, what they hold of it, and the memory that it takes.
    pub(crate) fn flash_held(&self) -> FlashUse {
        let of = |tenant: &Tenant| tenant.seen.as_ref()?.counters.flash;
        let add = |sum: FlashUse, flash: FlashUse| FlashUse {
            grant_bytes: sum.grant_bytes + flash.grant_bytes,
            usage_bytes: sum.usage_bytes + flash.usage_bytes,
            memory_bytes: sum.memory_bytes + flash.memory_bytes,
            ..sum
        };
        self.tenants.values().filter_map(of).fold(FlashUse::default(), add)
    }

    /// A tenant by its name, also one that is being removed.
    pub(crate) fn find(&self, name: &str) -> Option<&Tenant> {
        let name: TenantName = name.parse().ok()?;
        self.tenants.get(self.names.get(&name)?)
    }

    /// A tenant's name.
    pub(crate) fn name_of(&self, id: TenantId) -> Option<String> {
        Some(self.tenants.get(&id)?.record.name.to_string())
    }

    /// The name of the tenant on the other side of a move, if there is one still.
    pub(crate) fn name_of_other(&self, change: &Move) -> Option<String> {
        self.name_of(change.other?)
    }

    /// Every tenant by name.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.names.values().filter_map(|id| self.tenants.get(id))
    }

    /// How many tenants there are.
    pub(crate) fn len(&self) -> usize {
        self.tenants.len()
    }

    /// How many tenants a round looks at.
    #[cfg(test)]
    pub(crate) fn holder_count(&self) -> usize {
        self.holders.len()
    }

    /// Takes over the data plane's report. Its cost is that of the tenants in the snapshot.
    pub(crate) fn observe(&mut self, snapshot: &Snapshot, now: UnixMs, between: Between<'_>) {
        self.pool = snapshot.pool;
        self.now = now;
        if self.began_at == UnixMs(0) {
            self.began_at = now;
        }
        for report in &snapshot.tenants {
            self.observe_tenant(now, report, between);
            between();
        }
        for id in &snapshot.removed {
            if let Some(tenant) = self.tenants.remove(id) {
                self.names.remove(&tenant.record.name);
            }
            self.holders.remove(id);
            self.limited.remove(id);
            self.on_flash.remove(id);
            self.shared_flash.remove(id);
            self.empty_since.remove(id);
            self.changed.remove(id);
            self.operated.remove(id);
            self.to_remember.remove(id);
            self.is_dirty = true;
        }
    }

    fn observe_tenant(&mut self, now: UnixMs, report: &TenantSnapshot, between: Between<'_>) {
        let Some(tenant) = self.tenants.get_mut(&report.id) else {
            return;
        };
        let seen = tenant.seen.get_or_insert_default();
        let before = seen.counters;
        seen.take_over(now, report);
        let was_short = seen.was_short;
        if let Some(change) = tenant.moves.observe(now, &report.counters) {
            self.measured_moves.push((report.id, change));
        }
        tenant.flash_moves.observe(now, &report.counters);
        if tenant.is_removing {
            return;
        }
        self.note_flash(report);
        let Some(tenant) = self.tenants.get(&report.id) else {
            return;
        };
        // A first grant is the data plane's own; every other one is the last plan's.
        if tenant.grant_bytes == 0 {
            self.note_grant(report.id, Given::freely(report.grant_bytes, Reason::Join), None);
        }
        self.note_activity(now, report, &before);
        // One that holds nothing is not worth an estimator; gets before its first write are counted then.
        if self
            .tenants
            .get(&report.id)
            .is_some_and(|tenant| tenant.grant_bytes > 0)
        {
            self.observe_samples(now, report, before.gets, between);
        }
        self.is_dirty = true;
        // One whose memory is being reclaimed still holds some, without a grant.
        let tenant = self.tenants.get(&report.id);
        if was_short || tenant.is_some_and(|tenant| tenant.grant_bytes > 0) {
            self.holders.insert(report.id);
        }
        if report.usage_bytes > 0 {
            self.empty_since.remove(&report.id);
        } else if self.holders.contains(&report.id) {
            let wrote = report.counters.sets > before.sets;
            let since = self.empty_since.entry(report.id).or_insert(now);
            *since = if wrote { now } else { *since };
        }
    }

    /// The changes for the data plane from now on; `None` if nothing changes. The cost is that of the tenants that hold
    /// memory, and nothing when nothing happened.
    pub(crate) fn plan(&mut self, now: UnixMs, between: Between<'_>) -> Option<Plan> {
        self.now = now;
        self.retire_empty(now);
        let must_decide = std::mem::take(&mut self.is_dirty) || !self.changed.is_empty();
        if !must_decide {
            return None;
        }
        let operated = self.operated.clone();
        self.decide(now, between);
        self.share_flash(&operated);
        if self.changed.is_empty() && self.planned_pool_bytes == Some(self.pool_bytes) {
            return None;
        }
        self.sequence += 1;
        self.planned_pool_bytes = Some(self.pool_bytes);
        let mut tenants = Vec::with_capacity(self.changed.len());
        for id in std::mem::take(&mut self.changed) {
            if let Some(tenant) = self.tenants.get_mut(&id) {
                tenants.push(tenant.plan(self.idling.first_grant_bytes));
            }
        }
        Some(Plan {
            sequence: self.sequence,
            pool_bytes: self.pool_bytes,
            tenants,
        })
    }

    /// Takes the grant of tenants that have been empty for a while.
    fn retire_empty(&mut self, now: UnixMs) {
        let due: Vec<TenantId> = self
            .empty_since
            .iter()
            .filter(|(_, since)| now.since(**since) >= EMPTY_LINGERS)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.retire(id);
        }
    }

    /// Sets the grants of all holders.
    fn decide(&mut self, now: UnixMs, between: Between<'_>) {
        self.size_tiers(now, between);
        let ids: Vec<TenantId> = self.holders.iter().copied().collect();
        let mut needs: Vec<Need> = Vec::with_capacity(ids.len());
        for id in &ids {
            needs.push(self.need(*id, now));
            between();
        }
        let (mut holders, mut asleep) = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
        for (id, need) in ids.iter().zip(&needs) {
            if let Some(tenant) = self.tenants.get_mut(id) {
                holders.push(Holder {
                    goal: need.goal,
                    returns: need.returns.as_deref(),
                    custom_worth: need.custom_worth.as_ref(),
                    ..tenant.holder(now, self.hit_cost)
                });
                asleep.push(tenant.sleeper(now, self.idling.idle_after));
            }
        }
        self.govern_sampling(now, between);
        let elapsed = now.since(self.decided_at).min(self.round_period.max(ELAPSED_MAX));
        self.decided_at = now;
        let available_bytes = grantable_bytes(self.pool_bytes);
        let elapsed_ms = elapsed.as_millis() as u64;
        let step_bytes = |per_pool: u64| (available_bytes / per_pool / 1000).saturating_mul(elapsed_ms);
        let caps: Vec<Option<u64>> = holders.iter().map(|holder| holder.cap_bytes).collect();
        make_room(&mut holders, &asleep, available_bytes, step_bytes(IDLE_STEPS_PER_POOL));
        let decided = grants(&Problem {
            pool_bytes: self.pool_bytes,
            // A short round in a small pool may move a unit all the same.
            step_bytes: step_bytes(STEPS_PER_POOL).max(UNIT_BYTES),
            holders: &holders,
        });
        let operated = std::mem::take(&mut self.operated);
        let pool = self
            .planned_pool_bytes
            .map_or(Ordering::Equal, |before| self.pool_bytes.cmp(&before));
        // A larger lease is nobody's command: grants that grow with it keep their own reasons.
        let pool = if self.reach_bytes.is_some() {
            pool.min(Ordering::Equal)
        } else {
            pool
        };
        let change = |((id, holder), grant): ((&TenantId, &Holder<'_>), &Grant)| Change {
            id: *id,
            from_bytes: holder.grant_bytes,
            to_bytes: grant.bytes,
        };
        let changes: Vec<Change> = ids.iter().zip(&holders).zip(&decided).map(change).collect();
        let others = other_sides(&changes);
        let holders_of_ids = ids.iter().zip(&holders).zip(caps);
        for (((&id, holder), cap), (grant, other)) in holders_of_ids.zip(decided.iter().zip(others)) {
            let cause = Cause {
                makes_room: holder.cap_bytes != cap,
                is_operated: operated.contains(&id),
                is_borrower: self.tenants.get(&id).is_some_and(|tenant| tenant.lent_bytes > 0),
                pool,
                other,
            };
            self.adopt(id, holder, grant, cause, elapsed);
            between();
        }
        for (id, need) in ids.into_iter().zip(needs) {
            if let Some(tenant) = self.tenants.get_mut(&id) {
                tenant.needs.decided = Some(need);
            }
        }
    }

    /// Takes over the decision about one holder.
    fn adopt(&mut self, id: TenantId, holder: &Holder<'_>, grant: &Grant, cause: Cause, elapsed: Duration) {
        if cause.makes_room && grant.bytes == 0 {
            self.retire(id);
            return;
        }
        let reason = cause.reason(holder, grant);
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return;
        };
        tenant.lent_bytes = grant.bytes - grant.own_bytes;
        tenant.credit.note(
            self.now,
            elapsed,
            holder.floor_bytes.saturating_sub(grant.bytes),
            tenant.lent_bytes,
        );
        let is_left_short = tenant.is_left_short(self.now, holder, grant);
        tenant.read_goal(self.now, is_left_short);
        // The hit ratio that is expected of its goal's size, if it is given all of that at once.
        let is_whole = holder.goal.is_some_and(|goal| goal.bytes <= grant.bytes);
        let predicted = match reason {
            Reason::Goal if is_whole => tenant.predicted.map(Prediction::plainly),
            _ => tenant.hit_ratio_soon(self.now, holder, grant.bytes),
        };
        let given = Given {
            bytes: grant.bytes,
            reason,
            other: cause.other,
        };
        self.regrant(id, given, predicted);
    }
}

#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod tests;
