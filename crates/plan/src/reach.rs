//! Whether a goal can be met at all, and how it stands with it.
//!
//! Invariant: both follow from plain values of one moment. A goal is out of reach when all the memory available for it
//! misses it by two standard errors. The available memory is the pool less the other tenants' floors, at most the
//! tenant's cap.

use tidemark_types::{HitRatio, UnixMs};

use crate::count::Measured;
use crate::reading::GoalState;
use crate::share::Load;

/// A hit ratio at most this much below the goal meets it, if nothing finer is asked for.
pub const MET_WITHIN: f64 = 0.01;
/// A latency at most this part above the goal meets it, unless that is more of the hit ratio.
const LATENCY_WITHIN: f64 = 0.03;
/// Standard errors that chance does not exceed.
const CERTAIN: f64 = 2.0;
/// A goal that was found to be out of reach, or within it, stays so within this distance of the limit. Curves move a
/// little from second to second.
const BAND: f64 = 0.005;

/// Whether the memory that there is would meet a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Nothing is known of the load yet: the goal takes surplus only.
    #[default]
    Unknown,
    /// It would not: the goal takes surplus only.
    Out,
    /// It may. The goal comes before the surplus, and behind all goals that are within reach.
    Open,
    /// It would: the goal comes before all that are not within reach, whatever their priorities.
    Within,
}

impl HitGoal {
    /// A hit ratio that is the goal itself.
    pub fn plainly(goal: f64) -> Self {
        Self {
            goal,
            within: MET_WITHIN,
        }
    }

    /// The one that a mean latency comes to where answers take so long.
    pub fn of_latency(load: &Load, latency_us: f64) -> Self {
        let goal = load.hit_ratio_for(latency_us);
        let within = LATENCY_WITHIN * latency_us / (load.miss_cost_us - load.hit_cost_us).max(f64::MIN_POSITIVE);
        Self {
            goal: goal.clamp(HitRatio::LEAST.get(), HitRatio::MOST.get()),
            within: within.min(MET_WITHIN),
        }
    }
}

impl Reach {
    /// Whether others give memory for the goal.
    pub fn claims(self) -> bool {
        matches!(self, Self::Open | Self::Within)
    }
}

/// The result that all the memory available for a goal would give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// Hits per get, by the curve.
    pub hit_ratio: f64,
    /// The standard error of that hit ratio.
    pub standard_error: f64,
    /// Whether all keys that are asked for were met: else it may become more with time.
    pub is_final: bool,
}

/// A hit ratio to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HitGoal {
    /// The hit ratio.
    pub goal: f64,
    /// One at most this much below it is as good: [`MET_WITHIN`] where the hit ratio is the goal itself. That of a latency is
    /// finer where misses take long: a hundredth of them would be more than the whole latency.
    pub within: f64,
}

/// Whether a goal is within reach, where `before` is the last finding. `None` is a load of which nothing is known, as
/// after a change: then a goal that was within reach may still be.
pub fn reach(before: Reach, asked: HitGoal, prospect: Option<Prospect>) -> Reach {
    let Some(prospect) = prospect else {
        return if before.claims() { Reach::Open } else { Reach::Unknown };
    };
    let band = BAND.min(asked.within / 2.0);
    let band = if before == Reach::Out { band } else { -band };
    let chance = CERTAIN * prospect.standard_error;
    let asked = asked.goal - asked.within;
    if prospect.hit_ratio - chance >= asked {
        Reach::Within
    } else if prospect.is_final && prospect.hit_ratio + chance < asked + band {
        Reach::Out
    } else if before == Reach::Within {
        Reach::Within
    } else {
        Reach::Open
    }
}

/// The facts about a goal at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// The hit ratio that is asked for.
    pub asked: HitGoal,
    /// The measurement until the moment.
    pub measured: Measured,
    /// Whether the goal is within reach.
    pub reach: Reach,
    /// The prospect with all the memory available for it, if known.
    pub prospect: Option<Prospect>,
    /// Others come first, and leave less than it needs.
    pub is_left_short: bool,
}

/// How it stands with a goal: all of it by one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalReading {
    /// When the measurement ended.
    pub at: UnixMs,
    /// Whether the goal is reached.
    pub state: GoalState,
    /// By how much it is missed: by the measurement for a goal that is not met, by [`Self::best_hit_ratio`] for one
    /// that cannot be met.
    pub shortfall_ratio: Option<f64>,
    /// The best possible hit ratio, if known: with all memory available for the goal. If others' claims are why the
    /// goal is missed, it is the hit ratio with the memory that they leave.
    pub best_hit_ratio: Option<f64>,
    /// The standard error of the shortfall; for a goal that is met, that of the measurement.
    pub standard_error: f64,
}

impl GoalReading {
    /// The state that follows from a measurement that ended at `at`.
    pub fn of(at: UnixMs, outlook: &Outlook) -> Self {
        let Outlook { asked, measured, .. } = *outlook;
        let HitGoal { goal, within } = asked;
        // A measured hit ratio is possible.
        let best = outlook
            .prospect
            .map(|prospect| prospect.hit_ratio.max(measured.hit_ratio));
        let by_measured = Self {
            at,
            state: GoalState::Converging,
            shortfall_ratio: Some(goal - measured.hit_ratio),
            best_hit_ratio: best.filter(|_| outlook.is_best_known()),
            standard_error: measured.standard_error,
        };
        if meets(asked, &measured) {
            return Self {
                state: GoalState::Met,
                shortfall_ratio: None,
                ..by_measured
            };
        }
        if outlook.reach != Reach::Out && !outlook.is_left_short {
            return by_measured;
        }
        // The curve promises the goal, but all available memory did not keep the promise: the measured hit ratio is the
        // best.
        let promised = best.filter(|best| outlook.reach == Reach::Out && *best < goal - within);
        let best = promised.unwrap_or(measured.hit_ratio);
        let of_curve = outlook.prospect.filter(|_| promised.is_some());
        Self {
            state: GoalState::Infeasible,
            shortfall_ratio: Some(goal - best),
            best_hit_ratio: Some(best),
            standard_error: of_curve.map_or(measured.standard_error, |prospect| prospect.standard_error),
            ..by_measured
        }
    }
}

impl Outlook {
    fn is_best_known(&self) -> bool {
        self.reach == Reach::Within || self.prospect.is_some_and(|prospect| prospect.is_final)
    }
}

/// Whether the measurement meets a goal, as far as chance lets one tell.
pub(crate) fn meets(asked: HitGoal, measured: &Measured) -> bool {
    asked.goal - measured.hit_ratio <= asked.within + CERTAIN * measured.standard_error
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn prospect(hit_ratio: f64, is_final: bool) -> Option<Prospect> {
        Some(Prospect {
            hit_ratio,
            standard_error: 0.01,
            is_final,
        })
    }

    #[test]
    fn out_of_reach_is_what_two_standard_errors_say() {
        for (before, found, is_final, expected) in [
            (Reach::Unknown, 0.92, true, Reach::Within),
            (Reach::Unknown, 0.90, true, Reach::Open),
            (Reach::Unknown, 0.86, true, Reach::Out),
            // Keys that were not met yet may be asked for again.
            (Reach::Unknown, 0.3, false, Reach::Open),
            (Reach::Unknown, 0.92, false, Reach::Within),
            // Within its error it does not change.
            (Reach::Within, 0.89, true, Reach::Within),
            (Reach::Within, 0.867, true, Reach::Within),
            (Reach::Within, 0.86, true, Reach::Out),
            (Reach::Out, 0.873, true, Reach::Out),
            (Reach::Out, 0.88, true, Reach::Open),
        ] {
            let found_reach = reach(before, HitGoal::plainly(0.9), prospect(found, is_final));
            assert_eq!(found_reach, expected, "{before:?} {found} {is_final}");
        }
        for (before, expected) in [
            (Reach::Unknown, Reach::Unknown),
            (Reach::Out, Reach::Unknown),
            (Reach::Open, Reach::Open),
            (Reach::Within, Reach::Open),
        ] {
            assert_eq!(reach(before, HitGoal::plainly(0.9), None), expected, "{before:?}");
        }
    }

    fn measured(hit_ratio: f64) -> Measured {
        Measured {
            gets: 10_000,
            hit_ratio,
            standard_error: 0.002,
            elapsed: Duration::from_secs(10),
        }
    }

    #[test]
    fn a_reading_agrees_with_itself() {
        let out = |best| (Reach::Out, prospect(best, true), false);
        let left_short = (Reach::Within, prospect(0.97, true), true);
        for (found, (reach, prospect, is_left_short), state, shortfall, best) in [
            (0.89, out(0.8), GoalState::Met, None, Some(0.89)),
            (0.7, out(0.8), GoalState::Infeasible, Some(0.1), Some(0.8)),
            (0.82, out(0.8), GoalState::Infeasible, Some(0.08), Some(0.82)),
            // All available memory did not keep the curve's promise.
            (0.7, out(0.95), GoalState::Infeasible, Some(0.2), Some(0.7)),
            (0.7, left_short, GoalState::Infeasible, Some(0.2), Some(0.7)),
            (0.9, left_short, GoalState::Met, None, Some(0.97)),
            (
                0.7,
                (Reach::Unknown, None, false),
                GoalState::Converging,
                Some(0.2),
                None,
            ),
            (
                0.7,
                (Reach::Open, prospect_of_young(), false),
                GoalState::Converging,
                Some(0.2),
                None,
            ),
            (
                0.7,
                (Reach::Within, prospect_of_young(), false),
                GoalState::Converging,
                Some(0.2),
                Some(0.75),
            ),
        ] {
            let reading = GoalReading::of(
                UnixMs(1),
                &Outlook {
                    asked: HitGoal::plainly(0.9),
                    measured: measured(found),
                    reach,
                    prospect,
                    is_left_short,
                },
            );
            assert_eq!(reading.state, state, "{reading:?}");
            for (found, expected) in [(reading.shortfall_ratio, shortfall), (reading.best_hit_ratio, best)] {
                let is_expected = match (found, expected) {
                    (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
                    (found, expected) => found == expected,
                };
                assert!(is_expected, "{reading:?}, not {shortfall:?} {best:?}");
            }
        }
    }

    #[test]
    fn a_latency_is_a_finer_goal_where_misses_take_long() {
        let load = |miss_cost_us| Load {
            gets_per_second: 1.0,
            hit_cost_us: 50.0,
            miss_cost_us,
        };
        for (miss_us, latency_us, goal, within) in [
            (1_050.0, 300.0, 0.75, 0.009),
            (1_050.0, 900.0, 0.15, MET_WITHIN),
            (10_050.0, 60.0, 0.999, 0.000_18),
            (10_050.0, 40.0, HitRatio::MOST.get(), 0.000_12),
        ] {
            let found = HitGoal::of_latency(&load(miss_us), latency_us);
            assert!(
                (found.goal - goal).abs() < 1e-9 && (found.within - within).abs() < 1e-9,
                "{miss_us} {latency_us}: {found:?}"
            );
        }
    }

    #[test]
    fn a_finer_goal_is_not_met_by_a_hundredth_less() {
        let of = |within, found, best, before| {
            let asked = HitGoal { goal: 0.998, within };
            let prospect = Some(Prospect {
                hit_ratio: best,
                standard_error: 0.0,
                is_final: true,
            });
            let measured = Measured {
                standard_error: 0.0,
                ..measured(found)
            };
            let reach = reach(before, asked, prospect);
            let outlook = Outlook {
                asked,
                measured,
                reach,
                prospect,
                is_left_short: false,
            };
            (reach, GoalReading::of(UnixMs(1), &outlook).state)
        };
        for (within, found, best, before, expected) in [
            (
                MET_WITHIN,
                0.995,
                0.999,
                Reach::Unknown,
                (Reach::Within, GoalState::Met),
            ),
            (
                0.0002,
                0.995,
                0.999,
                Reach::Unknown,
                (Reach::Within, GoalState::Converging),
            ),
            (0.0002, 0.9979, 0.999, Reach::Unknown, (Reach::Within, GoalState::Met)),
            (
                MET_WITHIN,
                0.995,
                0.997,
                Reach::Unknown,
                (Reach::Within, GoalState::Met),
            ),
            (
                0.0002,
                0.995,
                0.997,
                Reach::Unknown,
                (Reach::Out, GoalState::Infeasible),
            ),
            // A band of half a hundredth would hold it back.
            (0.0002, 0.995, 0.999, Reach::Out, (Reach::Within, GoalState::Converging)),
        ] {
            assert_eq!(
                of(within, found, best, before),
                expected,
                "{within} {found} {best} {before:?}"
            );
        }
    }

    fn prospect_of_young() -> Option<Prospect> {
        prospect(0.75, false)
    }

    proptest! {
        #[test]
        fn more_memory_never_puts_a_goal_out_of_reach(
            before in prop::sample::select(&[Reach::Unknown, Reach::Out, Reach::Open, Reach::Within][..]),
            goal in 0.001_f64..0.9999,
            within in 0.00001_f64..0.01,
            less in 0.0_f64..1.0,
            more in 0.0_f64..1.0,
            standard_error in 0.0_f64..0.1,
            is_final in any::<bool>(),
        ) {
            let rank = |reach| [Reach::Unknown, Reach::Out, Reach::Open, Reach::Within].iter().position(|at| *at == reach);
            let of = |hit_ratio: f64| reach(before, HitGoal { goal, within }, Some(Prospect { hit_ratio, standard_error, is_final }));
            prop_assert!(rank(of(less.max(more))) >= rank(of(less.min(more))));
        }

        #[test]
        fn readings_agree_with_themselves_for_any_input(
            goal in 0.001_f64..0.9999,
            within in 0.00001_f64..0.01,
            found in 0.0_f64..1.0,
            known in prop::option::of((0.0_f64..1.0, any::<bool>())),
            before in prop::sample::select(&[Reach::Unknown, Reach::Out, Reach::Open, Reach::Within][..]),
            is_left_short in any::<bool>(),
        ) {
            let prospect = known.and_then(|(hit_ratio, is_final)| prospect(hit_ratio, is_final));
            let measured = measured(found);
            let asked = HitGoal { goal, within };
            let reading = GoalReading::of(UnixMs(1), &Outlook {
                asked,
                measured,
                reach: reach(before, asked, prospect),
                prospect,
                is_left_short,
            });
            prop_assert_eq!(reading.state == GoalState::Met, reading.shortfall_ratio.is_none());
            prop_assert!(reading.best_hit_ratio.is_none_or(|best| best >= found));
            if reading.state == GoalState::Infeasible {
                let sum = reading.shortfall_ratio.zip(reading.best_hit_ratio).map(|(missed, best)| missed + best);
                prop_assert!(sum.is_some_and(|sum| (sum - goal).abs() < 1e-9), "{:?}", reading);
                prop_assert!(reading.best_hit_ratio < Some(goal - within));
            }
        }
    }
}
