//! The grant rule against its promises, for cases that people think of and for many that they do not.

use std::sync::LazyLock;

use proptest::prelude::*;
use tidemark_curve::{Curve, Point};
use tidemark_types::GIB;

use super::*;

/// A step that no test reaches.
const NO_STEP_LIMIT: u64 = u64::MAX;

fn holder(usage_mib: u64, wants_more: bool) -> Holder<'static> {
    Holder {
        grant_bytes: usage_mib * MIB,
        usage_bytes: usage_mib * MIB,
        shards: 1,
        wants_more,
        is_full: wants_more,
        inflow_bytes: if wants_more { GIB } else { 0 },
        ..Holder::default()
    }
}

fn decide(pool_bytes: u64, step_bytes: u64, holders: &[Holder<'_>]) -> Vec<u64> {
    let decided = grants(&Problem {
        pool_bytes,
        step_bytes,
        holders,
    });
    decided.iter().map(|grant| grant.bytes).collect()
}

/// Rounds in which every tenant that wants more fills its grant, until nothing moves.
fn settle(pool_bytes: u64, step_bytes: u64, holders: &mut [Holder<'_>]) -> usize {
    for round in 0..1000 {
        let decided = decide(pool_bytes, step_bytes, holders);
        let moved = holders
            .iter()
            .zip(&decided)
            .any(|(holder, grant)| holder.grant_bytes != *grant);
        if !moved {
            return round;
        }
        for (holder, grant) in holders.iter_mut().zip(decided) {
            holder.grant_bytes = grant;
            holder.usage_bytes = if holder.wants_more {
                grant
            } else {
                holder.usage_bytes.min(grant)
            };
        }
    }
    panic!("grants still move after 1000 rounds: {holders:?}");
}

#[test]
fn the_reserve_is_a_64th_and_at_least_a_mebibyte() {
    for (pool_bytes, reserve) in [(GIB, 16 * MIB), (64 * MIB, MIB), (8 * MIB, MIB), (0, MIB)] {
        assert_eq!(reserve_bytes(pool_bytes), reserve);
    }
    assert_eq!(grantable_bytes(GIB), GIB - 16 * MIB);
    assert_eq!(grantable_bytes(0), 0);
}

#[test]
fn one_tenant_gets_everything_at_once() {
    for cap_bytes in [None, Some(64 * MIB), Some(64 * MIB + 1)] {
        let one = Holder {
            cap_bytes,
            ..holder(1, true)
        };
        let expected = cap_bytes.map_or(grantable_bytes(GIB), |cap| cap / UNIT_BYTES * UNIT_BYTES);
        assert_eq!(decide(GIB, 0, &[one]), [expected]);
    }
}

#[test]
fn what_is_free_lifts_those_that_grow_to_one_height() {
    let decided = decide(GIB, 0, &[holder(100, true), holder(200, true), holder(300, false)]);
    // Everyone keeps usage and a 16th of it; of the rest, the two that grow get so much that they have the same.
    assert_eq!(decided[2], 300 * MIB + 300 * MIB / 16 / UNIT_BYTES * UNIT_BYTES);
    assert!(decided[0].abs_diff(decided[1]) <= MIB, "{decided:?}");
    assert_eq!(decided.iter().sum::<u64>(), grantable_bytes(GIB));
}

/// A tenant that has so much less than it may hold, and fills it at so many mebibytes a second.
fn filling(usage_mib: u64, grant_mib: u64, mib_per_second: u64) -> Holder<'static> {
    Holder {
        grant_bytes: grant_mib * MIB,
        inflow_bytes: mib_per_second * MIB,
        inflow_bytes_per_minute: mib_per_second * 60 * MIB,
        ..holder(usage_mib, true)
    }
}

#[test]
fn who_is_about_to_evict_comes_before_what_is_filled_in_minutes() {
    // Half of the pool is the slow one's, which has hardly begun to fill it.
    let decided = decide(GIB, 0, &[filling(10, 504, 1), filling(480, 480, 20)]);
    assert!(decided[1] >= (480 + 3 * 20) * MIB, "{decided:?}");
    assert!(decided[0] >= 20 * MIB, "{decided:?}");
    assert_eq!(decided.iter().sum::<u64>(), grantable_bytes(GIB));
}

#[test]
fn who_writes_in_bursts_keeps_what_it_was_given_between_them() {
    // It was given 20 MiB of a full pool after a burst, and nothing was written since the last decision.
    let bursts = Holder {
        inflow_bytes: 0,
        ..filling(50, 70, 3)
    };
    let decided = decide(GIB, 0, &[bursts, filling(938, 938, 20)]);
    assert_eq!(decided, [70 * MIB, 938 * MIB]);
}

#[test]
fn nobody_loses_what_nobody_else_wants() {
    let mut quiet = holder(100, false);
    quiet.grant_bytes = 900 * MIB;
    assert_eq!(decide(GIB, NO_STEP_LIMIT, &[quiet, holder(10, false)])[0], 900 * MIB);
}

#[test]
fn a_newcomer_reaches_its_equal_share_by_steps() {
    let full_mib = grantable_bytes(GIB) / MIB;
    for (old_wants, step_bytes) in [(true, GIB / 8), (false, GIB / 8), (true, 4 * MIB)] {
        let mut holders = [holder(full_mib, old_wants), holder(1, true)];
        let first = decide(GIB, step_bytes, &holders);
        assert!(first[1] <= step_bytes + MIB, "{first:?}");
        let rounds = settle(GIB, step_bytes, &mut holders);
        let share = grantable_bytes(GIB) / 2;
        assert!(holders[1].grant_bytes >= share - share / 60, "{rounds} {holders:?}");
        assert!(holders[0].grant_bytes >= share, "{rounds} {holders:?}");
    }
}

#[test]
fn a_slow_newcomer_takes_only_what_it_fills() {
    let full_mib = grantable_bytes(GIB) / MIB;
    let slow = Holder {
        inflow_bytes: MIB,
        ..holder(1, true)
    };
    let decided = decide(GIB, NO_STEP_LIMIT, &[holder(full_mib, true), slow]);
    assert!(decided[1] <= 5 * MIB, "{decided:?}");
}

#[test]
fn floors_come_back_at_once_and_only_as_far_as_they_are_needed() {
    let full_mib = grantable_bytes(GIB) / MIB;
    for (wants_more, least, most) in [(true, 256 * MIB, 256 * MIB), (false, 8 * MIB, 10 * MIB)] {
        let with_floor = Holder {
            floor_bytes: 256 * MIB,
            inflow_bytes: 0,
            ..holder(8, wants_more)
        };
        let decided = decide(GIB, 0, &[holder(full_mib - 8, true), with_floor]);
        assert!((least..=most).contains(&decided[1]), "{decided:?}");
    }
}

#[test]
fn floors_hold_against_any_number_of_others() {
    let mut holders = vec![holder(1, true); 200];
    holders[0].floor_bytes = 512 * MIB;
    settle(GIB, GIB / 8, &mut holders);
    assert!(holders[0].grant_bytes >= 512 * MIB, "{:?}", holders[0]);
    let others = (grantable_bytes(GIB) - 512 * MIB) / 199;
    assert!(
        holders[1..]
            .iter()
            .all(|other| other.grant_bytes >= others - others / 10),
        "{holders:?}"
    );
}

#[test]
fn a_smaller_pool_takes_from_the_largest_first() {
    let holders = [holder(600, true), holder(300, true), holder(50, false)];
    for (pool_mib, expected_mib) in [(512, [227, 227, 50]), (900, [536, 300, 50])] {
        let decided = decide(pool_mib * MIB, 0, &holders);
        assert!(decided.iter().sum::<u64>() <= grantable_bytes(pool_mib * MIB));
        for (grant, expected_mib) in decided.iter().zip(expected_mib) {
            assert!(grant.abs_diff(expected_mib * MIB) <= MIB, "{pool_mib} {decided:?}");
        }
    }
}

#[test]
fn floors_above_a_pool_that_shrank_are_cut_to_one_height() {
    let floor = |bytes| Holder {
        floor_bytes: bytes,
        ..holder(200, true)
    };
    let decided = decide(128 * MIB, 0, &[floor(200 * MIB), floor(100 * MIB), floor(10 * MIB)]);
    assert_eq!(decided[2], 10 * MIB);
    assert!(decided[0].abs_diff(decided[1]) <= UNIT_BYTES, "{decided:?}");
}

#[test]
fn small_differences_move_nothing() {
    let share_mib = grantable_bytes(GIB) / MIB / 2;
    let near = [holder(share_mib + 4, true), holder(share_mib - 4, true)];
    assert_eq!(decide(GIB, NO_STEP_LIMIT, &near), near.map(|holder| holder.grant_bytes));
    let far = [holder(share_mib + 40, true), holder(share_mib - 40, true)];
    assert_ne!(decide(GIB, NO_STEP_LIMIT, &far), far.map(|holder| holder.grant_bytes));
}

#[test]
fn memory_moves_from_where_it_is_worth_the_least() {
    // By `RETURNS`: everything in a mebibyte, a law of large sizes, a second step that is far away.
    let with = |returns: usize, usage_mib| Holder {
        returns: Some(&RETURNS[returns]),
        inflow_bytes_per_minute: GIB,
        utility: Utility::Cost,
        load: Load {
            gets_per_second: 1000.0,
            ..STRANGER
        },
        ..holder(usage_mib, true)
    };
    let decided = decide(GIB, 16 * MIB, &[with(1, 300), with(2, 408), with(3, 300)]);
    assert_eq!(decided[0], 284 * MIB, "it loses nothing: {decided:?}");
    assert!(decided[1] >= 408 * MIB && decided[2] >= 300 * MIB, "{decided:?}");
    assert_eq!(decided.iter().sum::<u64>(), grantable_bytes(GIB));
}

#[test]
fn nobody_is_kept_from_what_is_clearly_worth_more() {
    let through = |corners: &[(u64, f64)], standard_error| {
        let points = corners.iter().map(|(mib, hit_ratio)| Point {
            bytes: mib * MIB,
            miss_ratio: 1.0 - hit_ratio,
            standard_error,
        });
        Returns::of(&Curve::through(points), 1.0 / UNIT_BYTES as f64).unwrap()
    };
    let of = |corners: &[(u64, f64)]| through(corners, 0.001);
    let slight = of(&[(100, 0.3), (1000, 0.33), (3000, 0.33)]);
    let few = of(&[(20, 0.2), (40, 0.4), (3000, 0.4)]);
    let many = of(&[(100, 0.3), (400, 0.6), (3000, 0.6)]);
    let guess = through(&[(100, 0.3), (400, 0.9), (3000, 0.9)], 0.3);
    let (steep, steeper) = (
        of(&[(100, 0.5), (1000, 0.9), (3000, 0.9)]),
        of(&[(100, 0.5), (1000, 0.99), (3000, 0.99)]),
    );
    let with = |returns, usage_mib: u64, utility| Holder {
        returns: Some(returns),
        inflow_bytes_per_minute: GIB,
        utility,
        load: Load {
            gets_per_second: 1000.0,
            ..STRANGER
        },
        ..holder(usage_mib, true)
    };
    let (cost, fair) = (Utility::Cost, Utility::Proportional);
    let slowly = |holder| Holder {
        inflow_bytes: 0,
        inflow_bytes_per_minute: MIB / 10,
        ..holder
    };
    for (what, holders) in [
        (
            "one that soon has all",
            vec![with(&slight, 868, cost), with(&few, 20, cost), with(&many, 120, cost)],
        ),
        (
            "one of which little is known",
            vec![
                with(&slight, 788, cost),
                with(&guess, 100, cost),
                with(&many, 120, cost),
            ],
        ),
        (
            "one to take from of which little is known",
            vec![
                with(&slight, 688, cost),
                with(&guess, 200, cost),
                with(&many, 120, cost),
            ],
        ),
        (
            "one that fills slowly",
            vec![
                with(&slight, 868, cost),
                slowly(with(&few, 20, cost)),
                with(&many, 120, cost),
            ],
        ),
        (
            "the first steps of a long way",
            vec![with(&steep, 908, fair), with(&steeper, 100, fair)],
        ),
    ] {
        let decided = decide(GIB, 16 * MIB, &holders);
        let last = holders.len() - 1;
        assert!(decided[last] > holders[last].grant_bytes, "{what}: {decided:?}");
        assert!(decided[0] < holders[0].grant_bytes, "{what}: {decided:?}");
    }
}

#[test]
fn what_is_filled_slowly_counts_little_of_the_next_minute() {
    for (growth, filled, part) in [
        (-50.0, 0, 1.0),
        (100.0, 1000, 0.95),
        (100.0, 100, 0.5),
        (100.0, 1, 0.005),
    ] {
        assert!(
            (part_of_next_minute(growth, filled) - part).abs() < 1e-9,
            "{growth} {filled}"
        );
    }
}

/// One that is full, and wrote so much since the last round.
fn writing(inflow_mib: u64, usage_mib: u64) -> Holder<'static> {
    Holder {
        inflow_bytes: inflow_mib * MIB,
        ..holder(usage_mib, true)
    }
}

/// With a goal that needs so much and is so far known to be met by that.
fn reaching(reach: Reach, goal_mib: u64, holder: Holder<'static>) -> Holder<'static> {
    let holder = with_goal(goal_mib, true, holder);
    let goal = holder.goal.map(|goal| GoalNeed { reach, ..goal });
    Holder { goal, ..holder }
}

/// With a goal that needs so much.
fn with_goal(goal_mib: u64, claims: bool, holder: Holder<'static>) -> Holder<'static> {
    Holder {
        goal: Some(GoalNeed {
            bytes: goal_mib * MIB,
            reach: if claims { Reach::Within } else { Reach::Out },
        }),
        ..holder
    }
}

#[test]
fn a_goal_gets_what_it_needs_and_no_more() {
    let all_mib = grantable_bytes(GIB) / MIB;
    for (what, holders, expected_mib) in [
        (
            "all that is free, without a neighbour",
            vec![with_goal(300, true, holder(20, true))],
            vec![300],
        ),
        (
            "from one without a goal, as far as it fills it",
            vec![with_goal(300, true, writing(4, 20)), holder(all_mib - 20, true)],
            vec![36, all_mib - 36],
        ),
        (
            "more of it, the more it holds",
            vec![with_goal(300, true, writing(4, 100)), holder(all_mib - 100, true)],
            vec![125, all_mib - 125],
        ),
        (
            "but not the eighth of an equal share that the neighbour holds",
            vec![with_goal(2000, true, holder(800, true)), holder(all_mib - 800, true)],
            vec![all_mib - all_mib / 16, all_mib / 16],
        ),
        (
            "nor a neighbour's floor",
            vec![
                with_goal(700, true, holder(500, true)),
                Holder {
                    floor_bytes: 600 * MIB,
                    ..holder(480, true)
                },
            ],
            vec![all_mib - 600, 600],
        ),
        (
            "nothing of a neighbour's beyond an equal share for what can not be reached",
            vec![
                with_goal(900, false, holder(all_mib / 2, true)),
                holder(all_mib / 2, true),
            ],
            vec![all_mib / 2, all_mib / 2],
        ),
        (
            "nor for what may be out of reach before what is not, whatever the priorities",
            vec![
                Holder {
                    priority: 9,
                    ..reaching(Reach::Open, 900, holder(all_mib - 500, true))
                },
                with_goal(500, true, holder(500, true)),
            ],
            vec![all_mib - 500, 500],
        ),
        (
            "of two within reach the higher priority",
            vec![
                Holder {
                    priority: 9,
                    ..with_goal(900, true, holder(all_mib - 500, true))
                },
                with_goal(500, true, holder(500, true)),
            ],
            vec![900, all_mib - 900],
        ),
        (
            "it gives the rest to others",
            vec![with_goal(100, true, holder(400, true)), holder(all_mib - 400, true)],
            vec![100, all_mib - 100],
        ),
        (
            "or to nobody",
            vec![with_goal(100, true, holder(400, false))],
            vec![100],
        ),
    ] {
        let decided = decide(GIB, 0, &holders);
        let decided_mib: Vec<u64> = decided.iter().map(|bytes| bytes / MIB).collect();
        assert_eq!(decided_mib, expected_mib, "{what}");
    }
}

/// The possible gains from memory: nothing, everything at once, a little of everything, a second step after a long way.
static RETURNS: LazyLock<Vec<Returns>> = LazyLock::new(|| {
    let through = |corners: &[(u64, f64)]| {
        let points = corners.iter().map(|(mib, hit_ratio)| Point {
            bytes: mib * MIB,
            miss_ratio: 1.0 - hit_ratio,
            standard_error: 0.002,
        });
        Returns::of(&Curve::through(points), 1.1 / UNIT_BYTES as f64)
    };
    let curves: [&[(u64, f64)]; 4] = [
        &[(100, 0.0), (2000, 0.0)],
        &[(1, 0.999), (2000, 1.0)],
        &[(1, 0.1), (10, 0.3), (100, 0.5), (500, 0.65), (2000, 0.8)],
        &[(10, 0.2), (900, 0.2), (1000, 0.9), (3000, 0.9)],
    ];
    curves.into_iter().filter_map(through).collect()
});

/// A holder with any worth of memory.
fn any_worth() -> impl Strategy<Value = Holder<'static>> {
    let utility = prop::sample::select(Utility::ALL.to_vec());
    let load = (0.0..1e6, 0.1..100.0, 1.0..1e4).prop_map(|(gets_per_second, hit_cost_us, times)| Load {
        gets_per_second,
        hit_cost_us,
        miss_cost_us: hit_cost_us * times,
    });
    let returns = prop::option::of(0..RETURNS.len()).prop_map(|index| index.map(|index| &RETURNS[index]));
    let credit = prop_oneof![Just(0), 0..2 * GIB];
    let weight = (1..=100_u32).prop_map(f64::from);
    (utility, load, returns, credit, weight, 0..4_u8).prop_map(
        |(utility, load, returns, credit_bytes, weight, priority)| Holder {
            utility,
            load,
            returns,
            credit_bytes,
            weight,
            priority,
            ..Holder::default()
        },
    )
}

fn any_holder() -> impl Strategy<Value = Holder<'static>> {
    let size = || prop_oneof![Just(0), 0..2 * MIB, 0..2 * GIB, Just(u64::MAX)];
    let cap = prop_oneof![Just(None), (0..2 * GIB).prop_map(Some), (MIB..4 * MIB).prop_map(Some)];
    let flags = (any::<bool>(), any::<bool>(), 0..2 * GIB, 1_u16..65);
    let grant = (0..4 * GIB / UNIT_BYTES).prop_map(|units| units * UNIT_BYTES);
    let reach = prop::sample::select(&[Reach::Unknown, Reach::Out, Reach::Open, Reach::Within][..]);
    let need = (size(), reach).prop_map(|(bytes, reach)| GoalNeed { bytes, reach });
    let goal = prop::option::of(need);
    (size(), cap, grant, size(), flags, goal, any_worth()).prop_map(
        |(
            floor_bytes,
            cap_bytes,
            grant_bytes,
            usage_bytes,
            (wants_more, is_full, inflow_bytes, shards),
            goal,
            worth,
        )| {
            Holder {
                floor_bytes,
                cap_bytes,
                goal,
                grant_bytes,
                usage_bytes,
                shards,
                wants_more,
                is_full,
                inflow_bytes,
                inflow_bytes_per_minute: inflow_bytes.saturating_mul(20),
                ..worth
            }
        },
    )
}

/// Floors of up to forty holders of 4 GiB, together at most the grantable memory: settings that promise more are
/// refused.
fn with_small_floors(mut holders: Vec<Holder<'static>>) -> Vec<Holder<'static>> {
    let most = grantable_bytes(4 * GIB) / 40 / UNIT_BYTES * UNIT_BYTES;
    for holder in &mut holders {
        holder.floor_bytes = holder.floor_bytes.min(most);
    }
    holders
}

/// The part of the floor that a holder must have: as much as it can use of it.
fn claimed_floor(holder: &Holder<'_>, available: u64) -> u64 {
    let goal = holder.goal.map_or(u64::MAX, |goal| goal.bytes);
    let most = holder.cap_bytes.unwrap_or(u64::MAX).min(goal).min(available) / UNIT_BYTES * UNIT_BYTES;
    let floor = holder.floor_bytes.next_multiple_of(UNIT_BYTES).min(most);
    if holder.wants_more {
        floor
    } else {
        floor.min(holder.usage_bytes.min(most).next_multiple_of(UNIT_BYTES).min(most))
    }
}

proptest! {
    #[test]
    fn limits_hold_for_any_input(
        pool_bytes in prop_oneof![0..4 * GIB, Just(u64::MAX)],
        step_bytes in prop_oneof![Just(0), 0..GIB, Just(u64::MAX)],
        holders in prop::collection::vec(any_holder(), 0..40),
    ) {
        let decided = decide(pool_bytes, step_bytes, &holders);
        prop_assert_eq!(decided.len(), holders.len());
        prop_assert!(decided.iter().sum::<u64>() <= grantable_bytes(pool_bytes));
        for (holder, grant) in holders.iter().zip(&decided) {
            prop_assert!(grant.is_multiple_of(UNIT_BYTES));
            prop_assert!(*grant <= holder.cap_bytes.unwrap_or(u64::MAX));
            let least = u64::from(holder.shards).max(HEADROOM.units_min) * UNIT_BYTES;
            let goal = holder.goal.map_or(u64::MAX, |goal| goal.bytes.max(least));
            prop_assert!(*grant <= goal.saturating_add(UNIT_BYTES - 1));
        }
    }

    #[test]
    fn floors_are_kept_and_no_more_is_taken_than_the_step(
        step_bytes in 0..GIB,
        holders in prop::collection::vec(any_holder(), 1..40),
    ) {
        let available = grantable_bytes(4 * GIB);
        let without_goals = |holder| Holder { goal: None, ..holder };
        let holders: Vec<Holder<'_>> = with_small_floors(holders).into_iter().map(without_goals).collect();
        let decided = decide(4 * GIB, step_bytes, &holders);
        let (mut needed_bytes, mut lost_bytes) = (0, 0);
        for (holder, grant) in holders.iter().zip(&decided) {
            let most = holder.cap_bytes.unwrap_or(u64::MAX).min(available) / UNIT_BYTES * UNIT_BYTES;
            let held = holder.usage_bytes.min(most).next_multiple_of(UNIT_BYTES).min(most);
            let floor = holder.floor_bytes.next_multiple_of(UNIT_BYTES).min(most);
            prop_assert!(*grant >= claimed_floor(holder, available), "{holder:?} {grant}");
            needed_bytes += held.max(floor);
            lost_bytes += held.min(holder.grant_bytes).saturating_sub(*grant);
        }
        let forced_bytes = needed_bytes.saturating_sub(available);
        prop_assert!(lost_bytes <= step_bytes + forced_bytes, "{lost_bytes} {step_bytes} {forced_bytes}");
    }

    #[test]
    fn floors_are_kept_whatever_goals_claim(
        step_bytes in 0..GIB,
        holders in prop::collection::vec(any_holder(), 1..40),
    ) {
        let available = grantable_bytes(4 * GIB);
        let holders = with_small_floors(holders);
        for (holder, grant) in holders.iter().zip(decide(4 * GIB, step_bytes, &holders)) {
            prop_assert!(grant >= claimed_floor(holder, available), "{holder:?} {grant}");
        }
    }

    #[test]
    fn grants_settle(
        pool_mib in 8_u64..2048,
        sides in prop::collection::vec((0_u64..512, any::<bool>(), 0_u64..3), 1..30),
    ) {
        let mut holders: Vec<Holder<'_>> = sides
            .iter()
            .map(|(usage, wants, floor)| Holder { floor_bytes: floor * MIB, ..holder(*usage, *wants) })
            .collect();
        settle(pool_mib * MIB, pool_mib * MIB / 8, &mut holders);
    }
}
