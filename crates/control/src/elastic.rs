//! The consequences of a tenant's own load: the size that its goal needs, and the policy that serves it best.
//!
//! The phase ([`Phase`]) says where the size comes from.
//!
//! ```text
//!          the settings have a goal                 it is taken back
//!   Back --------------------------> Aiming -------------------------> Free
//!     |                                ^                                |
//!     |  they have none                |    the settings have a goal    |
//!     +------------------------------> Free ----------------------------+
//! ```
//!
//! | event | from | to | consequence |
//! |---|---|---|---|
//! | a goal | `Back` | `Aiming` | the sizer begins with the memory that the tenant had before it was idle |
//! | a goal | `Free` | `Aiming` | the sizer begins with nothing |
//! | no goal, or none any more | `Back`, `Aiming` | `Free` | the load is watched here, and hit ratios teach the policy's efficiency |
//! | a goal of another hit ratio | `Aiming` | - | whether it can be reached is found out anew |
//! | another load, which the sizer sees | `Aiming` | - | curve and counts begin anew |
//! | another load, which the watch sees | `Back`, `Free` | - | older counts count less |
//!
//! Invariant: the module knows one tenant, and no clock. The needs of others and the available memory are weighed where
//! grants are made.

mod phase;
mod tuning;

use std::sync::Arc;
use std::time::Duration;

use tidemark_curve::Curve;
use tidemark_plan::{
    Count, HitGoal, Load, LoadWatch, MET_WITHIN, Prospect, Reach, Reading, Returns, Sizing, efficiency_seen,
};
use tidemark_types::{
    HitRatio, LogShare, MIB, Policy, PolicyChoice, TenantCounters, TenantId, TenantSnapshot, UNIT_BYTES, UnixMs,
};

use crate::estimator::Estimator;
use crate::pace::Between;
use crate::settings::TenantSettings;
use phase::{Goal, Phase};
use tuning::{CONTESTS, COSTS, SKEWS};
pub(crate) use tuning::{GAINS, LEARNING};

/// A tenant's load and its needs.
#[derive(Debug)]
pub(crate) struct Elastic {
    estimator: Estimator,
    phase: Phase,
    /// Watches whether the load stays the same, while there is no goal whose sizer does, and since when it is measured.
    watch: LoadWatch,
    watched_from: Option<Count>,
    /// Since when the load is known that a goal finds.
    known_since: Count,
    judged_skew_at: UnixMs,
    contest_began_at: UnixMs,
    id: TenantId,
    /// The curve of this turn, and the tenant's gain from memory by it.
    known: Option<Known>,
    /// Memory of an LRU cache over that of the tenant's policy for the same hit ratio, while it has no goal whose sizer
    /// knows.
    efficiency: f64,
    /// The hit ratio that goes with the latency that is asked for.
    latency_ratio: Option<LatencyRatio>,
}

/// The values that are computed once in a turn ([`turn_of`]).
#[derive(Clone, Debug)]
struct Known {
    turn: u64,
    curve: Arc<Curve>,
    returns: Option<Arc<Returns>>,
}

/// See [`Elastic::goal_ratio`].
#[derive(Clone, Copy, Debug)]
struct LatencyRatio {
    latency: Duration,
    miss_cost: Option<Duration>,
    ratio: HitRatio,
    within: f64,
}

/// The size that a tenant with a goal should have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GoalSize {
    /// The size, in bytes.
    pub(crate) bytes: u64,
    /// The hit ratio to expect of it.
    pub(crate) predicted: Option<f64>,
    /// Whether all the memory that there is for it would reach it, as far as is known.
    pub(crate) reach: Reach,
}

/// How it stands with a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Progress {
    /// The hit ratio that is asked for.
    pub(crate) asked: HitGoal,
    pub(crate) reach: Reach,
    pub(crate) prospect: Option<Prospect>,
    /// The least memory that reaches it, once something is known of that.
    pub(crate) bytes: Option<u64>,
}

/// The memory of a tenant, for [`Elastic::policy`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) usage_bytes: u64,
    pub(crate) items: u64,
}

/// The memory of a tenant, for [`Elastic::wants`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) usage_bytes: u64,
    pub(crate) grant_bytes: u64,
    /// The most that it could have.
    pub(crate) most_bytes: u64,
    /// The memory available for its goal: that, less the other tenants' floors.
    pub(crate) reach_bytes: u64,
}

impl Elastic {
    /// A tenant's number only decides when its gain from memory is computed.
    pub(crate) fn new(id: TenantId, estimator: Estimator, now: UnixMs, gets_before: u64) -> Self {
        Self {
            id,
            estimator,
            phase: Phase::Back,
            watch: LoadWatch::default(),
            watched_from: None,
            known_since: Count {
                at: now,
                gets: gets_before,
                hits: 0,
            },
            judged_skew_at: now,
            contest_began_at: now,
            known: None,
            efficiency: 1.0,
            latency_ratio: None,
        }
    }

    pub(crate) fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    pub(crate) fn estimator_mut(&mut self) -> &mut Estimator {
        &mut self.estimator
    }

    pub(crate) fn observe(&mut self, now: UnixMs, report: &TenantSnapshot, between: Between<'_>) {
        let is_aiming = self.phase.goal().is_some();
        self.estimator.set_patient(!is_aiming);
        self.estimator.observe(now, report, between);
        if !is_aiming {
            let TenantCounters { gets, hits, .. } = report.counters;
            self.watch(Count { at: now, gets, hits });
        }
    }

    /// Without a sizer, notes whether the load is another one. Older counts then count less.
    fn watch(&mut self, count: Count) {
        if self.watch.note(count) {
            self.estimator.note_change(count.at);
            self.watch.expect_anything();
            self.watched_from = None;
            self.known_since = count;
        }
        let from = *self.watched_from.get_or_insert(count);
        if count.at.since(from.at) >= LEARNING.watched_every {
            if let Some(measured) = count.since(from) {
                self.watch.set_expected(measured.hit_ratio);
            }
            self.watched_from = Some(count);
        }
    }

    /// The rate of the tenant's gets, and the cost of answers, if a hit takes `hit_cost`.
    pub(crate) fn load(&self, now: UnixMs, miss_cost: Option<Duration>, hit_cost: Duration) -> Load {
        let hit_cost_us = micros(hit_cost);
        let measured = self.estimator.miss_cost().map(micros);
        let miss_cost_us = match (miss_cost.map(micros), measured) {
            (Some(set), _) => set.max(hit_cost_us * COSTS.set_miss_per_hit_min),
            (None, Some(measured)) => measured.max(hit_cost_us * COSTS.measured_miss_per_hit_min),
            (None, None) => hit_cost_us * COSTS.miss_per_hit,
        };
        Load {
            gets_per_second: self.estimator.gets_per_second(now),
            hit_cost_us,
            miss_cost_us,
        }
    }

    /// [`Self::load`] as a client that waits for the answers sees it. A hit takes as long as requests were measured to
    /// be in the server, where others' work is waited for too. It takes no less than on an idle server, the way there
    /// and back included. Shares of memory do not go by that: a tenant that waits for longer is not worth less.
    pub(crate) fn waited_for(&self, load: &Load) -> Load {
        let measured_us = self.estimator.hit_cost().map_or(0.0, micros);
        with_hits_of(load, measured_us.max(load.hit_cost_us))
    }

    /// The load by which a goal for this mean latency goes: [`Self::waited_for`], with a limit. If hits alone take more
    /// than half of the latency, the server's time is short. All available memory would not mend that, and is not asked
    /// for.
    pub(crate) fn answers_within(&self, load: &Load, latency: Duration) -> Load {
        let most_us = (micros(latency) / 2.0).max(load.hit_cost_us);
        with_hits_of(load, self.waited_for(load).hit_cost_us.min(most_us))
    }

    /// The hit ratio that these settings come to: the one that is asked for or that of the latency, whichever is stricter.
    pub(crate) fn goal_ratio(&mut self, settings: &TenantSettings, load: &Load) -> Option<HitRatio> {
        self.latency_ratio = settings.latency.and_then(|latency| {
            let (ratio, within) = self.ratio_within(load, latency)?;
            let settled = self.latency_ratio.filter(|before| {
                let moved = (before.ratio.get() - ratio.get()).abs();
                before.latency == latency
                    && before.miss_cost == settings.miss_cost
                    && moved < COSTS.latency_ratio_moves * (1.0 - before.ratio.get())
            });
            Some(settled.unwrap_or(LatencyRatio {
                latency,
                miss_cost: settings.miss_cost,
                ratio,
                within,
            }))
        });
        stricter(settings.hit_ratio, self.latency_ratio.map(|latency| latency.ratio))
    }

    /// The same of settings that are not in force.
    pub(crate) fn goal_ratio_under(&self, settings: &TenantSettings, load: &Load) -> Option<HitRatio> {
        let latency = settings.latency.and_then(|latency| self.ratio_within(load, latency));
        stricter(settings.hit_ratio, latency.map(|(ratio, _)| ratio))
    }

    /// The hit ratio that this mean latency needs, and how much less is as good.
    fn ratio_within(&self, load: &Load, latency: Duration) -> Option<(HitRatio, f64)> {
        let asked = HitGoal::of_latency(&self.answers_within(load, latency), micros(latency));
        Some((HitRatio::new(asked.goal).ok()?, asked.within))
    }

    /// The tenant's gain from memory, in units; `None` while nothing is known. `measured` is the hit ratio of the last
    /// seconds with so many bytes in use, if those were all that the tenant might use.
    pub(crate) fn returns(&mut self, now: UnixMs, measured: Option<(f64, u64)>) -> Option<Arc<Returns>> {
        if self.estimator.curve_gets() < GAINS.gets_min {
            return None;
        }
        let curve = self.curve_of_turn(now);
        if let Some(returns) = self.known.as_ref().and_then(|known| known.returns.as_ref()) {
            return Some(Arc::clone(returns));
        }
        let overhead = self.estimator.overhead();
        if let Some((hit_ratio, usage_bytes)) = measured {
            self.learn(&curve, overhead, hit_ratio, usage_bytes);
        }
        let returns = Arc::new(Returns::of(&curve, self.bytes_per_curve_byte() / UNIT_BYTES as f64)?);
        if let Some(known) = &mut self.known {
            known.returns = Some(Arc::clone(&returns));
        }
        Some(returns)
    }

    /// The tenant's bytes for as many hits as the curve, an LRU cache's, has with one byte. They include the store's
    /// overhead of items and the efficiency of the tenant's policy.
    pub(crate) fn bytes_per_curve_byte(&self) -> f64 {
        let goal = self.phase.goal();
        let efficiency = goal.map_or(self.efficiency, |goal| goal.sizer.efficiency());
        self.estimator.overhead() / efficiency
    }

    /// The curve as it was when the turn began, or was first asked for in it: reckoning a thousand anew takes a round's
    /// time.
    pub(crate) fn curve_of_turn(&mut self, now: UnixMs) -> Arc<Curve> {
        let (turn, curve) = (turn_of(self.id, now), self.curve_at(now));
        if self.known.as_ref().is_none_or(|known| known.turn != turn) {
            self.known = Some(Known {
                turn,
                curve: Arc::clone(&curve),
                returns: None,
            });
        }
        curve
    }

    /// The same, which is not kept for the turn.
    pub(crate) fn curve_at(&self, now: UnixMs) -> Arc<Curve> {
        let known = self.known.as_ref();
        let known = known.filter(|known| known.turn == turn_of(self.id, now));
        known.map_or_else(|| Arc::new(self.estimator.curve()), |known| Arc::clone(&known.curve))
    }

    /// Since when the load is the one that it is now.
    pub(crate) fn known_since(&self) -> UnixMs {
        self.known_since.at
    }

    /// Learns the efficiency of the tenant's policy, beside an LRU cache, from a hit ratio.
    fn learn(&mut self, curve: &Curve, overhead: f64, hit_ratio: f64, usage_bytes: u64) {
        if let Some((seen, _)) = efficiency_seen(curve, overhead, hit_ratio, usage_bytes, LEARNING.slope_min) {
            self.efficiency += (seen - self.efficiency) * LEARNING.efficiency_weight;
        }
    }

    /// The size that the tenant should have for its goal.
    pub(crate) fn wants(
        &mut self,
        now: UnixMs,
        hit_ratio: HitRatio,
        remembered_bytes: u64,
        holding: Holding,
    ) -> GoalSize {
        let is_met = self.phase.goal().is_some_and(Goal::is_met);
        // A tenant on the way goes by the last second, too.
        let curve = if is_met {
            self.curve_of_turn(now)
        } else {
            Arc::new(self.estimator.curve())
        };
        let phase = std::mem::replace(&mut self.phase, Phase::Free);
        let mut goal = phase.aim(hit_ratio, remembered_bytes, self.known_since);
        let reading = Reading {
            now,
            goal: hit_ratio.get(),
            gets: holding.gets,
            hits: holding.hits,
            usage_bytes: holding.usage_bytes,
            grant_bytes: holding.grant_bytes,
            most_bytes: holding.most_bytes,
            reach_bytes: holding.reach_bytes,
            curve: &curve,
            curve_gets: self.estimator.curve_gets(),
            keys: self.estimator.keys(),
            overhead: self.estimator.overhead(),
        };
        let Sizing {
            bytes,
            predicted,
            load_changed,
        } = goal.step(&reading);
        if load_changed {
            self.estimator.begin_anew(now);
            self.known = None;
            self.known_since = Count {
                at: now,
                gets: holding.gets,
                hits: holding.hits,
            };
        }
        let reach = goal.reach;
        self.phase = Phase::Aiming(goal);
        GoalSize {
            bytes,
            predicted,
            reach,
        }
    }

    /// The goal was taken back.
    pub(crate) fn drop_goal(&mut self) {
        self.phase = Phase::Free;
    }

    /// How it stands with the goal, if there is one.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let of_latency = |ratio: HitRatio| self.latency_ratio.filter(|latency| latency.ratio == ratio);
        self.phase.goal().map(|goal| Progress {
            asked: HitGoal {
                goal: goal.hit_ratio.get(),
                within: of_latency(goal.hit_ratio).map_or(MET_WITHIN, |latency| latency.within),
            },
            reach: goal.reach,
            prospect: goal.prospect,
            bytes: goal.bytes.filter(|_| goal.reach.claims()),
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
        if held.usage_bytes < CONTESTS.bytes_min {
            self.estimator.end_contest();
            return in_force;
        }
        let Some(contest) = self.estimator.contest(&Policy::PLAIN, held.usage_bytes, held.items) else {
            return in_force;
        };
        if contest.gets() == 0 {
            self.contest_began_at = now;
        }
        let elapsed = now.since(self.contest_began_at);
        if elapsed < CONTESTS.lasts {
            return in_force;
        }
        let Some(lead) = contest.lead(in_force) else {
            return in_force;
        };
        let chance = CONTESTS.certain * lead.standard_error;
        let wins = lead.gain - chance > CONTESTS.gain;
        if wins || lead.gain + chance < CONTESTS.gain || elapsed >= CONTESTS.lasts_most {
            contest.count_anew();
            self.contest_began_at = now;
        }
        if !wins {
            return in_force;
        }
        // The gain over a policy outside of the candidates is not known.
        if let Some(goal) = self.phase.goal_mut().filter(|_| Policy::PLAIN.contains(&in_force)) {
            goal.sizer.gain(lead.gain);
        }
        lead.policy
    }

    /// Genie's switch: it keeps its policy where no law fits the uses of the keys.
    fn by_skew(&mut self, now: UnixMs, in_force: Policy) -> Policy {
        if now.since(self.judged_skew_at) < SKEWS.every {
            return in_force;
        }
        self.judged_skew_at = now;
        match self.estimator.skew().filter(|skew| skew.is_good_fit()) {
            Some(skew) if skew.alpha >= SKEWS.skewed => Policy::ApproxLru(LogShare::HALF),
            Some(_) => Policy::Fifo,
            None => in_force,
        }
    }
}

/// A number that changes whenever it is this tenant's turn to have what memory gives it reckoned anew.
fn turn_of(id: TenantId, now: UnixMs) -> u64 {
    /// Between tenants of following numbers; far from every simple part of a turn, so that also a few are spread over it.
    const STEP_MS: u64 = 1_910;
    (now.0 + u64::from(id.0) * STEP_MS) / GAINS.every.as_millis() as u64
}

/// The load with hits that take so long, and misses that take longer.
fn with_hits_of(load: &Load, hit_cost_us: f64) -> Load {
    Load {
        hit_cost_us,
        miss_cost_us: load.miss_cost_us.max(hit_cost_us * COSTS.set_miss_per_hit_min),
        ..*load
    }
}

/// The stricter of two goals.
fn stricter(one: Option<HitRatio>, other: Option<HitRatio>) -> Option<HitRatio> {
    [one, other]
        .into_iter()
        .flatten()
        .max_by(|a, b| a.get().total_cmp(&b.get()))
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The size beyond which one more MiB gains too little to be asked for, in bytes held.
pub(crate) fn demand_bytes(curve: &Curve, overhead: f64) -> Option<u64> {
    let gain_per_byte = GAINS.per_mib_min / MIB as f64 * overhead;
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
    use crate::estimator::Limits;
    use tidemark_curve::Point;
    use tidemark_types::{Samples, Served, VisitSamples};

    #[test]
    fn tenants_take_turns() {
        let begin = UnixMs(1_700_000_000_000);
        for tenants in [5, 1000] {
            for second in 0..10 {
                let (from, to) = (
                    begin.plus(Duration::from_secs(second)),
                    begin.plus(Duration::from_secs(second + 1)),
                );
                let due = (0..tenants).filter(|id| turn_of(TenantId(*id), from) != turn_of(TenantId(*id), to));
                let due = due.count() as u32;
                assert!(due <= tenants / 5 + 1, "{due} of {tenants} in second {second}");
            }
            let later = begin.plus(GAINS.every);
            assert!((0..tenants).all(|id| turn_of(TenantId(id), begin) + 1 == turn_of(TenantId(id), later)));
        }
    }

    #[test]
    fn a_goal_for_the_latency_goes_by_what_a_hit_was_measured_to_take() {
        const HIT_COST: Duration = Duration::from_micros(50);
        let now = UnixMs(1_700_000_000_000);
        let settings = TenantSettings {
            latency: Some(Duration::from_micros(300)),
            miss_cost: Some(Duration::from_micros(1100)),
            ..TenantSettings::default()
        };
        let mut elastic = Elastic::new(TenantId(1), Estimator::new(Limits::LEAST, now, 0), now, 0);
        let load = elastic.load(now, settings.miss_cost, HIT_COST);
        let ratio = elastic.goal_ratio(&settings, &load).unwrap().get();
        assert!((ratio - 800.0 / 1050.0).abs() < 1e-6, "{ratio}");
        // Hits take 100 us, and then far longer than they shall.
        for (second, us) in [(0, 0), (1, 100_000), (2, 200_000), (3, 20_000_000)] {
            let report = TenantSnapshot {
                id: TenantId(1),
                grant_bytes: MIB,
                usage_bytes: MIB,
                items: 1,
                connections: 1,
                counters: TenantCounters {
                    served: Served {
                        requests: second * 1_000,
                        us,
                    },
                    ..TenantCounters::default()
                },
                samples: Samples::default(),
                shards: Vec::new(),
                commands: Vec::new(),
                visits: VisitSamples::default(),
            };
            elastic.observe(now.plus(Duration::from_secs(second)), &report, &mut || ());
            let again = elastic.load(now, settings.miss_cost, HIT_COST);
            assert_eq!(again.hit_cost_us, load.hit_cost_us, "shares do not go by it");
            let ratio = elastic.goal_ratio(&settings, &again).unwrap().get();
            let (hit_us, shown_us) = match second {
                2 => (100.0, 600),
                3 => (150.0, 6_700),
                _ => continue,
            };
            assert!((ratio - 800.0 / (1100.0 - hit_us)).abs() < 1e-6, "{ratio}");
            let shown = elastic.waited_for(&again).mean_cost_us(0.5) as u64;
            assert!(shown.abs_diff(shown_us) < 100, "{shown}");
        }
    }

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
