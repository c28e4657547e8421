//! What follows from a tenant's own load: the size that its goal needs, and the policy that serves it best.
//!
//! Invariant: one tenant's, and no clock. What others need, and what there is, is weighed where grants are made.

use std::time::Duration;

use tidemark_curve::Curve;
use tidemark_plan::{GoalState, Reading, Sizer, Sizing};
use tidemark_types::{HitRatio, LogShare, MIB, Policy, PolicyChoice, TenantSnapshot, UnixMs};

use crate::estimator::{Estimator, Limits};

/// Genie looks at the skew once a minute (section V.A).
const SKEW_EVERY: Duration = Duration::from_secs(60);
/// From this skew on it takes approximate LRU.
const SKEWED: f64 = 1.0;
/// Policies compete in a tenant of at least this size: below, a shard has too few segments for more than a clock.
const CONTEST_BYTES_MIN: u64 = 4 * MIB;
/// They compete for this long.
const CONTEST_LASTS: Duration = Duration::from_secs(60);
/// Another policy must gain so much hit ratio, beyond what chance gives.
const CONTEST_GAIN: f64 = 0.01;
/// One more MiB is worth it while it gains at least this hit ratio (design, section 2: demand).
const DEMAND_GAIN_PER_MIB: f64 = 0.0001;

/// A tenant's load and what it needs.
#[derive(Debug)]
pub(crate) struct Elastic {
    estimator: Estimator,
    goal: Option<Goal>,
    /// Whether what the tenant held before it was idle still says what its goal needs: until there is a goal or none.
    remembers: bool,
    judged_skew_at: UnixMs,
    contest_began_at: UnixMs,
}

/// A goal on its way.
#[derive(Debug)]
struct Goal {
    hit_ratio: HitRatio,
    sizer: Sizer,
    /// The least memory that reaches it, once something is known of that.
    bytes: Option<u64>,
}

/// What a tenant with a goal should hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// In bytes.
    pub(crate) bytes: u64,
    /// The hit ratio to expect of it.
    pub(crate) predicted: Option<f64>,
    /// Whether others should give memory for it. A goal that can not be reached takes none from them.
    pub(crate) claims: bool,
}

/// How it stands with a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    pub(crate) state: GoalState,
    pub(crate) measured: Option<f64>,
    pub(crate) best: Option<f64>,
    pub(crate) bytes: Option<u64>,
}

/// What a tenant holds, for [`Elastic::policy`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) usage_bytes: u64,
    pub(crate) items: u64,
}

/// What a tenant holds, for [`Elastic::wants`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) usage_bytes: u64,
    pub(crate) grant_bytes: u64,
    /// What it could have at most.
    pub(crate) most_bytes: u64,
}

impl Elastic {
    pub(crate) fn new(limits: Limits, now: UnixMs, gets_before: u64) -> Self {
        Self {
            estimator: Estimator::new(limits, now, gets_before),
            goal: None,
            remembers: true,
            judged_skew_at: now,
            contest_began_at: now,
        }
    }

    pub(crate) fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    pub(crate) fn estimator_mut(&mut self) -> &mut Estimator {
        &mut self.estimator
    }

    pub(crate) fn observe(&mut self, now: UnixMs, report: &TenantSnapshot) {
        self.estimator.observe(now, report);
    }

    /// What the tenant should hold for its goal.
    pub(crate) fn wants(
        &mut self,
        now: UnixMs,
        hit_ratio: HitRatio,
        remembered_bytes: u64,
        holding: Holding,
    ) -> Wanted {
        let remembers = std::mem::take(&mut self.remembers);
        let goal = match &mut self.goal {
            Some(goal) if goal.hit_ratio == hit_ratio => goal,
            goal => goal.insert(Goal {
                hit_ratio,
                sizer: Sizer::remembering(if remembers { remembered_bytes } else { 0 }),
                bytes: None,
            }),
        };
        let curve = self.estimator.curve();
        let Sizing {
            bytes,
            predicted,
            load_changed,
        } = goal.sizer.step(&Reading {
            now,
            goal: hit_ratio.get(),
            gets: holding.gets,
            hits: holding.hits,
            usage_bytes: holding.usage_bytes,
            grant_bytes: holding.grant_bytes,
            most_bytes: holding.most_bytes,
            curve: &curve,
            curve_gets: self.estimator.curve_gets(),
            keys: self.estimator.keys(),
            overhead: self.estimator.overhead(),
        });
        if load_changed {
            self.estimator.begin_anew(now);
        }
        goal.bytes = match goal.sizer.state() {
            GoalState::Met => Some(bytes),
            // Without a prediction it is only what is held already.
            GoalState::Converging => predicted.map(|_| bytes).or(goal.bytes),
            GoalState::Infeasible => None,
        };
        Wanted {
            bytes,
            predicted,
            claims: goal.sizer.state() != GoalState::Infeasible,
        }
    }

    /// The goal was taken back.
    pub(crate) fn drop_goal(&mut self) {
        self.goal = None;
        self.remembers = false;
    }

    /// How it stands with the goal, if there is one.
    pub(crate) fn progress(&self) -> Option<Progress> {
        self.goal.as_ref().map(|goal| Progress {
            state: goal.sizer.state(),
            measured: goal.sizer.measured_hit_ratio(),
            best: goal.sizer.best_hit_ratio(),
            bytes: goal.bytes,
        })
    }

    /// The policy to have from now on, for a tenant that holds so much.
    pub(crate) fn policy(&mut self, now: UnixMs, choice: PolicyChoice, in_force: Policy, held: Held) -> Policy {
        if choice != PolicyChoice::Adaptive {
            self.estimator.end_contest();
        }
        match choice {
            PolicyChoice::Fixed(policy) => policy,
            PolicyChoice::Genie => self.by_skew(now, in_force),
            PolicyChoice::Adaptive => self.by_contest(now, in_force, held),
        }
    }

    /// The policy that the miniature caches favour, if it gains enough.
    fn by_contest(&mut self, now: UnixMs, in_force: Policy, held: Held) -> Policy {
        if held.usage_bytes < CONTEST_BYTES_MIN {
            self.estimator.end_contest();
            return in_force;
        }
        let Some(contest) = self.estimator.contest(&Policy::PLAIN, held.usage_bytes, held.items) else {
            return in_force;
        };
        if contest.gets() == 0.0 {
            self.contest_began_at = now;
        }
        if now.since(self.contest_began_at) < CONTEST_LASTS {
            return in_force;
        }
        let best = contest.best(in_force);
        // The two differ in at most this share of the gets, so that the difference has this standard error.
        let error = |gain: f64| (gain.abs().max(CONTEST_GAIN) / contest.gets()).sqrt();
        let winner = best.filter(|(_, gain)| *gain > CONTEST_GAIN + 2.0 * error(*gain));
        contest.count_anew();
        self.contest_began_at = now;
        winner.map_or(in_force, |(policy, _)| policy)
    }

    /// Genie's switch: it keeps its policy where no law fits the uses of the keys.
    fn by_skew(&mut self, now: UnixMs, in_force: Policy) -> Policy {
        if now.since(self.judged_skew_at) < SKEW_EVERY {
            return in_force;
        }
        self.judged_skew_at = now;
        match self.estimator.skew().filter(|skew| skew.is_good_fit()) {
            Some(skew) if skew.alpha >= SKEWED => Policy::ApproxLru(LogShare::HALF),
            Some(_) => Policy::Fifo,
            None => in_force,
        }
    }
}

/// The size beyond which one more MiB gains too little to be asked for, in bytes held.
pub(crate) fn demand_bytes(curve: &Curve, overhead: f64) -> Option<u64> {
    let gain_per_byte = DEMAND_GAIN_PER_MIB / MIB as f64 * overhead;
    let hull = curve.hull();
    let points = hull.points();
    let last_worth = points.windows(2).rposition(|pair| {
        let gain = pair[0].miss_ratio - pair[1].miss_ratio;
        gain / (pair[1].bytes - pair[0].bytes) as f64 >= gain_per_byte
    })?;
    Some((points[last_worth + 1].bytes as f64 * overhead) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_curve::Point;

    #[test]
    fn demand_ends_where_memory_gains_too_little() {
        let point = |mib: u64, miss_ratio| Point {
            bytes: mib * MIB,
            miss_ratio,
            standard_error: 0.0,
        };
        let curve = Curve::through([point(10, 0.5), point(20, 0.4), point(1020, 0.39)]);
        assert_eq!(demand_bytes(&curve, 1.0), Some(20 * MIB));
        assert_eq!(demand_bytes(&Curve::through([]), 1.0), None);
    }
}
