//! Goals on the load of the study of CacheLib's experiment: one that can be met, and two that cannot both be.

use tidemark_control::Utility;
use tidemark_types::HitRatio;

use super::cachelib_study::{FLOOR, label};
use super::report::{Point, Series, Target};
use crate::Error;
use crate::study::{Found, Goal, Plot, Rule, TENANTS};

/// The tenant that asks for a hit ratio: the one that a quarter of the pool gives it.
const ASKER: usize = 1;
/// The tenant that gets the rest: by throughput, the most skewed one.
const TAKER: usize = 0;
/// The tenant that asks for more than is left, and is served after the other.
const LOWER: usize = 2;
/// A hit ratio this near is the same: a point.
const NEAR: f64 = 0.01;
/// A goal's memory takes so long to show what it gives after it was filled, in seconds.
const SETTLES: usize = 60;
/// A hit ratio is that of so many seconds.
const INTERVAL: usize = 60;
/// The least part of the rest that goes to where it is worth most.
const OF_REST: f64 = 0.95;
/// The part of the pool that is never granted.
const RESERVE: f64 = 1.0 / 64.0;
/// The needs of the two goals that cannot both be met, in parts of the pool. With the floors they exceed it.
const ASKER_RATIO: f64 = 0.35;
const LOWER_RATIO: f64 = 0.60;
/// The priorities of the two.
const PRIORITIES: [u8; 2] = [7, 3];

/// The outcome of the goals.
pub(super) struct Goals {
    quarter_ratio: f64,
    one: Found,
    goals: [f64; 2],
    two: Found,
    /// The same memory by hand: the need of its goal for the first one, the rest for the second one.
    by_hand: Found,
}

impl Goals {
    /// Plays the static plot with one goal, and the long one with two. `play` runs a rule; `quarter` is the result of a
    /// quarter for each.
    pub(super) fn play(
        play: impl Fn(&str, &Rule, Plot) -> Result<Found, Error>,
        quarter: &Found,
    ) -> Result<Self, Error> {
        let quarter_ratio = settled(quarter, ASKER)?;
        let mut goals = [None; TENANTS];
        goals[ASKER] = Some(goal(quarter_ratio, PRIORITIES[0])?);
        let one = play("a goal", &with(goals), Plot::Static)?;

        // The two ask for the hit ratio that so much gives them when all is settled.
        let mut parts = [(1.0 - ASKER_RATIO - LOWER_RATIO) / (TENANTS - 2) as f64; TENANTS];
        (parts[ASKER], parts[LOWER]) = (ASKER_RATIO, LOWER_RATIO);
        let enough = play("enough for two goals", &Rule::fixed(parts), Plot::Long)?;
        let ratios = [settled(&enough, ASKER)?, settled(&enough, LOWER)?];
        goals[ASKER] = Some(goal(ratios[0], PRIORITIES[0])?);
        goals[LOWER] = Some(goal(ratios[1], PRIORITIES[1])?);
        let two = play("two goals", &with(goals), Plot::Long)?;
        let mut parts = [FLOOR; TENANTS];
        parts[ASKER] = ASKER_RATIO;
        parts[LOWER] = 1.0 - ASKER_RATIO - FLOOR * (TENANTS - 2) as f64;
        let by_hand = play("two goals, by hand", &Rule::fixed(parts), Plot::Long)?;
        Ok(Self {
            quarter_ratio,
            one,
            goals: ratios,
            two,
            by_hand,
        })
    }

    pub(super) fn targets(&self) -> Vec<Target> {
        let last = self.one.courses[TAKER].len() - 1;
        let part = |tenant| self.one.part(tenant, last).unwrap_or(f64::NAN);
        let rest = 1.0 - RESERVE - part(ASKER) - FLOOR * (TENANTS - 2) as f64;
        let ratio = |found: &Found, tenant| settled(found, tenant).unwrap_or(f64::NAN);
        let by_hand = self.goals[1] - ratio(&self.by_hand, LOWER);
        let said = self.two.shortfalls[LOWER];
        vec![
            Target::at_most(
                "a goal: t2's furthest minute from its hit ratio, from a minute after its memory was filled on",
                furthest(&self.one, ASKER, self.quarter_ratio).unwrap_or(f64::NAN),
                NEAR,
            ),
            Target::at_least(
                "a goal: t1 has of what that and the floors leave",
                part(TAKER) / rest,
                OF_REST,
            ),
            Target::at_most(
                "goals that can not both be met: what the higher one misses",
                self.goals[0] - ratio(&self.two, ASKER),
                NEAR,
            ),
            Target::at_most(
                "goals that can not both be met: what the lower one is said to miss, apart from what it misses by hand",
                (said - by_hand).abs(),
                NEAR,
            ),
        ]
    }

    pub(super) fn series(&self) -> Vec<Series> {
        let series = |name: &str, condition: &str, found: &Found, goals: [Option<f64>; TENANTS]| {
            let measured = |tenant| Point::single(label(tenant), settled(found, tenant).unwrap_or(f64::NAN));
            let asked = |tenant| Point::single(label(tenant), goals[tenant].unwrap_or(f64::NAN));
            let one = |what: &str, points| Series {
                name: format!("{name}{what}"),
                measure: "hit ratio with goals".into(),
                unit: "ratio".into(),
                condition: condition.into(),
                x: "tenant".into(),
                points,
            };
            let who: Vec<usize> = (0..TENANTS).filter(|tenant| goals[*tenant].is_some()).collect();
            [
                one(", asked", who.iter().copied().map(asked).collect()),
                one("", who.iter().copied().map(measured).collect()),
            ]
        };
        let (mut one, mut two) = ([None; TENANTS], [None; TENANTS]);
        one[ASKER] = Some(self.quarter_ratio);
        two[ASKER] = Some(self.goals[0]);
        two[LOWER] = Some(self.goals[1]);
        let mut all: Vec<Series> = series("Tidemark", "one goal", &self.one, one).into();
        all.extend(series("Tidemark", "two goals", &self.two, two));
        all.push(series("by hand", "two goals", &self.by_hand, two)[1].clone());
        all
    }
}

fn with(goals: [Option<Goal>; TENANTS]) -> Rule {
    Rule::Tidemark {
        utility: Utility::Throughput,
        floor: FLOOR,
        goals,
    }
}

fn goal(hit_ratio: f64, priority: u8) -> Result<Goal, Error> {
    let hit_ratio = HitRatio::new(hit_ratio).map_err(|error| Error::Usage(error.to_string()))?;
    Ok(Goal { hit_ratio, priority })
}

fn settled(found: &Found, tenant: usize) -> Result<f64, Error> {
    let nothing = || Error::Usage(format!("{} was asked for nothing", label(tenant)));
    found.settled_hit_ratio(tenant).ok_or_else(nothing)
}

/// How far the furthest minute's hit ratio is from a goal, from a minute after the tenant's memory was filled on.
fn furthest(found: &Found, tenant: usize, goal: f64) -> Option<f64> {
    let from = found.filled_from(tenant)? + SETTLES;
    let until = found.courses[tenant].len().checked_sub(INTERVAL)?;
    let off = |second| Some((found.hit_ratio(tenant, second, second + INTERVAL - 1)? - goal).abs());
    (from..until).filter_map(off).reduce(f64::max)
}
