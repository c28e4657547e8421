//! Shares beside those of slow solvers that try everything.

use proptest::prelude::*;

use super::*;

/// A tenant of at most forty units, whose returns have corners of whole units.
#[derive(Clone, Debug)]
struct Any {
    corners: Option<Vec<(u64, f64)>>,
    floor: u64,
    most: u64,
    is_within_reach: bool,
    priority: u8,
    goal: Option<u64>,
    weight: f64,
    credit: u64,
    /// The custom worth of the upper half of the hits, and of the lower one.
    own: Option<(f64, f64)>,
}

impl Any {
    fn custom_worth(&self) -> Option<HitWorth> {
        let (upper, lower) = self.own?;
        let worth = |hit_ratio: f64| lower * hit_ratio.min(0.5) + upper * (hit_ratio - 0.5).max(0.0);
        Some(HitWorth::of(worth).unwrap())
    }
}

fn any_claimant() -> impl Strategy<Value = Any> {
    let corners = prop::collection::vec((1_u64..40, 0.0_f64..1.0), 1..5);
    let corners = prop::option::weighted(0.8, corners);
    let goal = prop::option::of(0_u64..40);
    let own = prop::option::weighted(0.3, (0.0_f64..9.0, 0.0_f64..9.0));
    (
        corners,
        0_u64..6,
        0_u64..40,
        (any::<bool>(), 0_u8..3),
        goal,
        0.25_f64..4.0,
        0_u64..20,
        own,
    )
        .prop_map(
            |(corners, floor, most, (is_within_reach, priority), goal, weight, credit, own)| Any {
                corners,
                floor,
                most,
                is_within_reach,
                priority,
                goal,
                weight,
                credit,
                own,
            },
        )
}

/// The upper concave hull at every whole size, by trying all pairs of sizes.
fn hull_by_pairs(from: u64, most: u64, worth: impl Fn(u64) -> f64) -> Vec<f64> {
    let at = |size: u64| {
        let mut best = worth(size);
        for low in from..size {
            for high in size + 1..=most {
                let share = (size - low) as f64 / (high - low) as f64;
                best = best.max(worth(low) + (worth(high) - worth(low)) * share);
            }
        }
        best
    };
    (from..=most).map(at).collect()
}

/// The most that tables, each from its first entry on, come to with `rest` more units: every way is tried.
fn best_sum(rest: usize, tables: &[Vec<f64>]) -> f64 {
    let mut best = vec![0.0; rest + 1];
    for table in tables {
        let with = |given: usize| {
            let each = (0..=given.min(table.len() - 1)).map(|more| best[given - more] + table[more]);
            each.fold(f64::NEG_INFINITY, f64::max)
        };
        best = (0..=rest).map(with).collect();
    }
    best[rest]
}

/// The part of a deficit of hits that a size closes; of memory, where the curve sees no use for it.
fn closed(returns: Option<&Returns>, floor: u64, need: u64, size: u64) -> f64 {
    let at = |size: u64| returns.map_or(0.0, |returns| returns.hit_ratio(size as f64));
    if size >= need {
        1.0
    } else if at(need) - at(floor) > FLAT {
        (at(size) - at(floor)) / (at(need) - at(floor))
    } else {
        (size - floor) as f64 / (need - floor) as f64
    }
}

/// The largest part of everybody's deficit that `rest` more units close together: each part that any size closes is
/// tried. Members: gain from memory, floor and need.
fn best_level(rest: u64, members: &[(Option<&Returns>, u64, u64)]) -> f64 {
    let parts = |&(returns, floor, need): &(Option<&Returns>, u64, u64)| -> Vec<f64> {
        (floor..=need).map(|size| closed(returns, floor, need, size)).collect()
    };
    let all: Vec<Vec<f64>> = members.iter().map(parts).collect();
    let taken = |level: f64| -> usize {
        let least = |parts: &Vec<f64>| parts.iter().position(|part| *part >= level).unwrap_or(parts.len() - 1);
        all.iter().map(least).sum()
    };
    let levels = all.iter().flatten().copied();
    levels.filter(|level| taken(*level) as u64 <= rest).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn goals_are_served_as_the_slow_solver_does(
        available in 0_u64..100,
        tenants in prop::collection::vec(any_claimant(), 1..6),
    ) {
        let known: Vec<Option<Returns>> = tenants.iter().map(|tenant| tenant.corners.as_deref().map(returns)).collect();
        let claimants: Vec<Claimant<'_>> = tenants
            .iter()
            .zip(&known)
            .map(|(tenant, returns)| Claimant {
                floor: tenant.floor,
                is_within_reach: tenant.is_within_reach,
                priority: tenant.priority,
                goal: tenant.goal,
                returns: returns.as_ref(),
                ..anyone(tenant.most)
            })
            .collect();
        let decided = shares(available, &claimants);
        let floor = |claimant: &Claimant<'_>| claimant.floor.min(claimant.most);
        let mut rest = available.checked_sub(claimants.iter().map(floor).sum());
        prop_assume!(rest.is_some());
        let mut is_short = false;
        // The three classes within reach come first of the six.
        for class in (0..6_u8).rev() {
            let class = (class >= 3, class % 3);
            let class: Vec<usize> = (0..claimants.len())
                .filter(|index| claimants[*index].class() == class && claimants[*index].goal.is_some())
                .collect();
            let members: Vec<(Option<&Returns>, u64, u64)> = class
                .iter()
                .map(|index| {
                    let claimant = &claimants[*index];
                    let need = claimant.goal.unwrap_or(0).min(claimant.most).max(floor(claimant));
                    (claimant.returns, floor(claimant), need)
                })
                .collect();
            let left = rest.unwrap_or(0);
            let needed: u64 = members.iter().map(|(_, floor, need)| need - floor).sum();
            let level = best_level(left, &members);
            for (index, (returns, floor, need)) in class.iter().zip(&members) {
                let claim = decided[*index].claim;
                if is_short {
                    prop_assert_eq!(claim, *floor, "a higher priority is short");
                } else if needed <= left {
                    prop_assert_eq!(claim, *need, "there is enough");
                } else {
                    // One common part is closed, and of its sizes whole units count.
                    let above = closed(*returns, *floor, *need, (claim + 1).min(*need));
                    prop_assert!(above >= level - 1e-9, "{level} {above} {decided:?}");
                }
            }
            let taken: u64 = class.iter().zip(&members).map(|(index, (_, floor, _))| decided[*index].claim - floor).sum();
            prop_assert!(taken <= left);
            rest = Some(left - taken);
            is_short |= needed > left;
        }
    }

    #[test]
    fn the_surplus_is_that_of_the_slow_solver(
        available in 0_u64..80,
        tenants in prop::collection::vec(any_claimant(), 1..5),
        utility in prop::sample::select(&[Utility::Proportional, Utility::Throughput, Utility::Cost][..]),
    ) {
        let known: Vec<Returns> = tenants
            .iter()
            .map(|tenant| returns(tenant.corners.as_deref().unwrap_or(&[(20, 0.7)])))
            .collect();
        let own: Vec<Option<HitWorth>> = tenants.iter().map(Any::custom_worth).collect();
        let claimants: Vec<Claimant<'_>> = tenants
            .iter()
            .zip(known.iter().zip(&own))
            .map(|(tenant, (returns, own))| Claimant {
                floor: tenant.floor,
                weight: tenant.weight,
                utility,
                custom_worth: own.as_ref(),
                returns: Some(returns),
                ..anyone(tenant.most)
            })
            .collect();
        let decided = shares(available, &claimants);
        let floors: u64 = claimants.iter().map(|claimant| claimant.floor.min(claimant.most)).sum();
        prop_assume!(floors <= available);
        let scale = scale(&claimants);
        let tables: Vec<Vec<f64>> = claimants
            .iter()
            .map(|claimant| {
                let worth = |size: u64| {
                    let hit_ratio = claimant.returns.unwrap().hit_ratio(size as f64);
                    claimant.weight * scale.worth(claimant, hit_ratio)
                };
                hull_by_pairs(claimant.floor.min(claimant.most), claimant.most, worth)
            })
            .collect();
        let best = best_sum(usize::try_from(available - floors).unwrap(), &tables);
        let found: f64 = decided
            .iter()
            .zip(&claimants)
            .zip(&tables)
            .map(|((share, claimant), table)| {
                table[usize::try_from(share.own - claimant.floor.min(claimant.most)).unwrap()]
            })
            .sum();
        // If a tenant's custom worth bends within a unit, that unit goes by weight.
        let of_own = own.iter().zip(&tables).filter(|(own, _)| own.is_some());
        let steps = |table: &[f64]| table.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        let inexact: f64 = of_own.map(|(_, table)| steps(table)).sum();
        prop_assert!((best - found).abs() <= 1e-9 * best.abs().max(1.0) + inexact, "{best} {found} {decided:?}");
    }

    #[test]
    fn max_min_lifts_the_slowest_as_far_as_memory_does(
        available in 20_u64..2000,
        best in prop::collection::vec(0.2_f64..1.0, 2..6),
        knees in prop::collection::vec(10_u64..1000, 6),
    ) {
        let known: Vec<Returns> = best
            .iter()
            .zip(&knees)
            .map(|(best, knee)| returns(&[(*knee, best * 0.7), (knee * 3, *best)]))
            .collect();
        let claimants: Vec<Claimant<'_>> = known
            .iter()
            .map(|returns| Claimant { returns: Some(returns), utility: Utility::MaxMin, ..anyone(5000) })
            .collect();
        // All load is alike, so that the slowest is the one with the fewest hits.
        let needed = |hit_ratio: f64| known.iter().map(|returns| returns.size_for(hit_ratio)).sum::<f64>();
        let reachable = best.iter().copied().fold(1.0, f64::min);
        let (mut low, mut high) = (0.0, reachable);
        for _ in 0..50 {
            let middle = (low + high) / 2.0;
            if needed(middle) <= available as f64 { low = middle } else { high = middle }
        }
        let decided = shares(available, &claimants);
        let slowest = decided
            .iter()
            .zip(&known)
            .map(|(share, returns)| LOAD.mean_cost_us(returns.hit_ratio(share.own as f64)))
            .fold(0.0, f64::max);
        prop_assert!(slowest <= LOAD.mean_cost_us(low) * 1.12 + 1.0, "{slowest} {} {decided:?}", LOAD.mean_cost_us(low));
    }

    #[test]
    fn no_goal_out_of_reach_lowers_one_within_reach(
        available in 0_u64..200,
        more in 0_u64..50,
        tenants in prop::collection::vec(any_claimant(), 1..12),
        priorities in prop::collection::vec(0_u8..10, 12),
        needs in prop::collection::vec(prop::option::of(0_u64..400), 12),
    ) {
        let known: Vec<Option<Returns>> = tenants.iter().map(|tenant| tenant.corners.as_deref().map(returns)).collect();
        let claimants: Vec<Claimant<'_>> = tenants
            .iter()
            .zip(&known)
            .map(|(tenant, returns)| Claimant {
                floor: tenant.floor,
                is_within_reach: tenant.is_within_reach,
                priority: tenant.priority,
                goal: tenant.goal,
                returns: returns.as_ref(),
                ..anyone(tenant.most)
            })
            .collect();
        let decided = shares(available, &claimants);
        let within = |index: &usize| claimants[*index].is_within_reach && claimants[*index].goal.is_some();
        let within: Vec<usize> = (0..claimants.len()).filter(within).collect();
        let claims = |decided: &[Share]| -> Vec<u64> { within.iter().map(|index| decided[*index].claim).collect() };
        // Those within reach have the same memory, whatever the others ask for, with whatever priority.
        let mut others = claimants.clone();
        for (index, other) in others.iter_mut().enumerate().filter(|(index, _)| !within.contains(index)) {
            (other.is_within_reach, other.priority, other.goal) = (false, priorities[index], needs[index]);
        }
        prop_assert_eq!(claims(&decided), claims(&shares(available, &others)));
        // More memory takes from none of them.
        for (before, after) in claims(&decided).iter().zip(claims(&shares(available + more, &claimants))) {
            prop_assert!(after >= *before, "{after} {before} {claimants:?}");
        }
        // Nor does it cost a goal anything to be known to be within reach.
        for index in (0..claimants.len()).filter(|index| claimants[*index].goal.is_some()) {
            let mut found = claimants.clone();
            found[index].is_within_reach = true;
            let now = shares(available, &found)[index].claim;
            prop_assert!(now + 1 >= decided[index].claim, "{now} {:?}", decided[index]);
        }
    }

    #[test]
    fn promises_hold_for_any_input(
        available in prop_oneof![0_u64..200, Just(u64::MAX)],
        tenants in prop::collection::vec(any_claimant(), 0..12),
        utility in prop::sample::select(&Utility::ALL[..]),
    ) {
        let known: Vec<Option<Returns>> = tenants.iter().map(|tenant| tenant.corners.as_deref().map(returns)).collect();
        let own: Vec<Option<HitWorth>> = tenants.iter().map(Any::custom_worth).collect();
        let mut claimants: Vec<Claimant<'_>> = tenants
            .iter()
            .zip(known.iter().zip(&own))
            .map(|(tenant, (returns, own))| Claimant {
                floor: tenant.floor,
                most: tenant.most,
                is_within_reach: tenant.is_within_reach,
                priority: tenant.priority,
                goal: tenant.goal,
                weight: tenant.weight,
                credit: tenant.credit,
                utility,
                custom_worth: own.as_ref(),
                returns: returns.as_ref(),
                ..anyone(0)
            })
            .collect();
        let decided = shares(available, &claimants);
        prop_assert_eq!(check(available, &claimants, &decided), Ok(()));
        let all: u64 = decided.iter().map(|share| share.size).sum();
        let most: u64 = claimants.iter().map(|claimant| claimant.most).sum();
        let floors: u64 = claimants.iter().map(|claimant| claimant.floor.min(claimant.most)).sum();
        prop_assert!(all <= available);
        for (share, claimant) in decided.iter().zip(&claimants) {
            prop_assert!(share.claim <= share.own && share.own <= share.size && share.size <= claimant.most);
            prop_assert!(floors > available || share.claim >= claimant.floor.min(claimant.most));
        }
        if floors <= available {
            // Nothing is left over that somebody could take.
            prop_assert_eq!(all, available.min(most));
        }
        // Asked again with its decision, it decides the same.
        for (claimant, share) in claimants.iter_mut().zip(&decided) {
            claimant.present = share.size;
        }
        for (again, share) in shares(available, &claimants).iter().zip(&decided) {
            // Utilities of other kinds are compared with the unknown by the mean tenant, which is another one now. The
            // same holds for memory that is worth the same whatever the mean is.
            let is_alike = known.iter().all(Option::is_some) && own.iter().all(Option::is_none);
            let is_comparable = utility == Utility::Proportional || is_alike;
            prop_assert!(!is_comparable || again.size.abs_diff(share.size) <= 1, "{again:?} {share:?}");
        }
        // A higher priority never has less for its goal.
        for index in 0..claimants.len() {
            let before = claimants[index].priority;
            claimants[index].priority = 9;
            let raised = shares(available, &claimants)[index].claim;
            claimants[index].priority = before;
            prop_assert!(raised + 1 >= decided[index].claim, "{raised} {:?}", decided[index]);
        }
    }
}
