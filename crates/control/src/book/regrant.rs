//! How a grant changes: with a reason, and remembered where it ends.

use std::cmp::Ordering;
use std::time::Duration;

use tidemark_types::{TenantCounters, TenantId, TenantName, TenantSnapshot, UnixMs};

use super::Book;
use crate::grant::{Grant, Holder};
use crate::hit_interval::HitInterval;
use crate::moves::{Keeping, Move, Prediction, Reason, kept_of_each};
use crate::settings::round_up;

/// However short rounds are, steps nearer together than this are one move.
const STEPS_WITHIN_MIN: Duration = Duration::from_secs(2);

impl Book {
    /// Gives a tenant another grant from the next plan on. `predicted` is the hit ratio that is expected of it, where one
    /// is. Every grant is changed by this, so that every change has its reason.
    pub(crate) fn regrant(&mut self, id: TenantId, given: Given, predicted: Option<Prediction>) {
        if self.note_grant(id, given, predicted) {
            self.changed.insert(id);
        }
    }

    /// How moves are kept.
    pub(super) fn keeping(&self) -> Keeping {
        Keeping {
            most: kept_of_each(self.tenants.len()),
            // One round may be quiet, or late.
            steps_within: (self.round_period * 2).max(STEPS_WITHIN_MIN),
        }
    }

    /// Enters a grant that the data plane knows of. Returns whether it is another one than before.
    pub(super) fn note_grant(&mut self, id: TenantId, given: Given, predicted: Option<Prediction>) -> bool {
        let Given { bytes, reason, other } = given;
        let keeping = self.keeping();
        let Some(tenant) = self.tenants.get_mut(&id).filter(|tenant| tenant.grant_bytes != bytes) else {
            return false;
        };
        let change = Move {
            at: self.now,
            from_bytes: tenant.grant_bytes,
            to_bytes: bytes,
            reason,
            other,
            predicted_hit_ratio: None,
            measured_hit_ratio: None,
        };
        tenant.grant_bytes = bytes;
        let counters = tenant.seen.as_ref().map(|seen| seen.counters).unwrap_or_default();
        let noted = tenant.moves.note(change, predicted, &counters, keeping);
        let step = Move {
            predicted_hit_ratio: noted.predicted_hit_ratio,
            ..change
        };
        self.fresh_moves.push((id, step));
        self.measured_moves.extend(noted.measured.map(|before| (id, before)));
        true
    }

    /// Takes all of a tenant's memory, and remembers how much it was.
    pub(super) fn retire(&mut self, id: TenantId) {
        self.empty_since.remove(&id);
        self.holders.remove(&id);
        self.regrant(id, Given::freely(0, Reason::Idle), None);
        // Also one that never had a grant is to be known as idle.
        self.changed.insert(id);
        self.stop_estimating(id);
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return;
        };
        let Some(seen) = &mut tenant.seen else { return };
        (tenant.lent_bytes, tenant.reading) = (0, None);
        tenant.gives_all_back = seen.usage_bytes > 0;
        seen.hits = HitInterval::default();
        self.remember(id, None);
    }

    /// How much a tenant could make use of is to be known when it comes back, and that it is no less than `at_least`.
    fn remember(&mut self, id: TenantId, at_least: Option<u64>) {
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return;
        };
        let Some(seen) = &tenant.seen else { return };
        // A first grant as any other's needs no memory.
        let used = Some(seen.active_bytes).filter(|bytes| *bytes > self.idling.first_grant_bytes);
        let remembered = used.max(at_least);
        if tenant.record.remembered_grant_bytes != remembered {
            tenant.record.remembered_grant_bytes = remembered;
            self.to_remember.insert(id, remembered);
        }
    }

    /// The same for every tenant that holds something, when there will be no round any more. Soon after the beginning a
    /// tenant may only have begun to fill what it had before. It keeps no less than its remembered grant then.
    pub(crate) fn remember_holders(&mut self) {
        let is_young = self.now.since(self.began_at) < self.idling.idle_after;
        for id in self.holders.clone() {
            let before = self.tenants.get(&id).filter(|_| is_young);
            let at_least = before.and_then(|tenant| tenant.record.remembered_grant_bytes);
            self.remember(id, at_least);
        }
    }

    /// If the tenant was asked something, notes how much it could make use of. That is its whole grant if a goal
    /// decides it, else its usage: memory of the pool that nobody else wanted is no need of its own.
    pub(super) fn note_activity(&mut self, now: UnixMs, report: &TenantSnapshot, before: &TenantCounters) {
        let counters = &report.counters;
        let was_asked = counters.gets > before.gets
            || counters.sets > before.sets
            || counters.refused_memory > before.refused_memory;
        let Some(tenant) = self.tenants.get_mut(&report.id).filter(|_| was_asked) else {
            return;
        };
        let grant_bytes = tenant.grant_bytes;
        let has_goal = tenant.record.settings.has_goal();
        if let Some(seen) = &mut tenant.seen {
            seen.active_at = now;
            seen.active_bytes = if has_goal {
                grant_bytes
            } else {
                round_up(report.usage_bytes).min(grant_bytes)
            };
        }
    }

    /// Tells of each step of a move since the last call.
    pub(crate) fn tell_moves(&mut self, mut tell: impl FnMut(&TenantName, &Move)) {
        for (id, change) in self.fresh_moves.drain(..) {
            if let Some(tenant) = self.tenants.get(&id) {
                tell(&tenant.record.name, &change);
            }
        }
    }

    /// Tells of each step of a move of flash since the last call.
    pub(crate) fn tell_flash_moves(&mut self, mut tell: impl FnMut(&TenantName, &Move)) {
        for (id, change) in self.fresh_flash_moves.drain(..) {
            if let Some(tenant) = self.tenants.get(&id) {
                tell(&tenant.record.name, &change);
            }
        }
    }

    /// Tells of each move of which it is known since the last call what came of it.
    pub(crate) fn tell_measured(&mut self, mut tell: impl FnMut(&TenantName, &Move)) {
        for (id, change) in self.measured_moves.drain(..) {
            if let Some(tenant) = self.tenants.get(&id) {
                tell(&tenant.record.name, &change);
            }
        }
    }

    /// The remembered grants of tenants from now on, as far as they changed since the last call.
    pub(crate) fn take_to_remember(&mut self) -> Vec<(TenantId, Option<u64>)> {
        std::mem::take(&mut self.to_remember).into_iter().collect()
    }
}

/// A grant that a tenant is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) bytes: u64,
    pub(crate) reason: Reason,
    /// The tenant that most of the difference comes from or goes to; `None`: free memory.
    pub(crate) other: Option<TenantId>,
}

impl Given {
    /// From free memory, or to it.
    pub(crate) fn freely(bytes: u64, reason: Reason) -> Self {
        Self {
            bytes,
            reason,
            other: None,
        }
    }
}

/// The cause of a change of grants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    /// The tenant is idle and others want its memory.
    pub(super) makes_room: bool,
    /// Its settings were changed.
    pub(super) is_operated: bool,
    /// Some of its memory until now was lent to it.
    pub(super) is_borrower: bool,
    /// The pool, compared with its former size.
    pub(super) pool: Ordering,
    /// The tenant on the other side of it, if that is not free memory.
    pub(super) other: Option<TenantId>,
}

impl Cause {
    /// Why a tenant was given another grant.
    pub(super) fn reason(self, before: &Holder<'_>, grant: &Grant) -> Reason {
        let (from_bytes, grant_bytes) = (before.grant_bytes, grant.bytes);
        let is_above_cap = before.cap_bytes.is_some_and(|cap| from_bytes > cap);
        let grows = grant_bytes > from_bytes;
        if self.makes_room {
            Reason::Idle
        } else if grows && from_bytes == 0 {
            Reason::Join
        } else if !grows && (is_above_cap || self.pool == Ordering::Less) {
            Reason::Cap
        } else if self.is_operated || (grows && self.pool == Ordering::Greater) {
            Reason::Operator
        } else if before.goal.is_some() {
            Reason::Goal
        } else if grows && from_bytes < before.floor_bytes {
            Reason::Floor
        } else if grows && from_bytes >= grant.own_bytes {
            Reason::Lend
        } else if !grows && self.is_borrower {
            Reason::Recall
        } else {
            Reason::Surplus
        }
    }
}
