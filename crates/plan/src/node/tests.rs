//! The shares of instances, and that no order of reading, stating and dying lets them hold too much.

mod protocol;

use proptest::prelude::*;
use tidemark_types::MIB;

use super::*;

const LEAST: u64 = 8 * MIB;

/// A member in MiB: floor, goals by class, worth as length and value, wanted.
#[derive(Clone, Debug, Default)]
struct Asks<'a> {
    lease: u64,
    floor: u64,
    goals: &'a [(u32, u64)],
    worth: &'a [(u64, f64)],
    wanted: u64,
    most: Option<u64>,
    is_stalled: bool,
}

fn member(asks: &Asks<'_>) -> Member {
    let goal = |&(class, mib): &(u32, u64)| GoalDemand {
        class,
        bytes: mib * MIB,
    };
    let worth = |&(mib, value_per_mib): &(u64, f64)| Worth {
        bytes: mib * MIB,
        value_per_mib,
    };
    Member {
        lease_bytes: asks.lease * MIB,
        is_stalled: asks.is_stalled,
        demand: Demand {
            floor_bytes: asks.floor * MIB,
            goals: asks.goals.iter().map(goal).collect(),
            worth: asks.worth.iter().map(worth).collect(),
            wanted_bytes: asks.wanted * MIB,
            most_bytes: asks.most.map_or(u64::MAX, |mib| mib * MIB),
        },
    }
}

fn node(bytes: u64, members: &[Member]) -> Node<'_> {
    Node {
        bytes,
        least_bytes: LEAST,
        members,
    }
}

#[test]
fn floors_come_before_goals_before_worth_before_the_rest() {
    let nobody = Asks::default();
    for (what, asks, targets) in [
        ("alone", vec![nobody.clone()], vec![100]),
        ("all alike", vec![nobody.clone(), nobody.clone()], vec![50, 50]),
        (
            "at most so much",
            vec![
                Asks {
                    most: Some(20),
                    ..nobody.clone()
                },
                nobody.clone(),
            ],
            vec![20, 80],
        ),
        (
            "a floor against what is dear",
            vec![
                Asks {
                    floor: 60,
                    ..nobody.clone()
                },
                Asks {
                    worth: &[(100, 9.0)],
                    lease: 92,
                    ..nobody.clone()
                },
            ],
            vec![60, 40],
        ),
        (
            "floors that do not fit are cut to one height",
            vec![
                Asks {
                    floor: 90,
                    ..nobody.clone()
                },
                Asks {
                    floor: 30,
                    ..nobody.clone()
                },
            ],
            vec![70, 30],
        ),
        (
            "a goal of a later class has nothing while one of an earlier class misses something",
            vec![
                Asks {
                    goals: &[(0, 95)],
                    ..nobody.clone()
                },
                Asks {
                    goals: &[(1, 50)],
                    ..nobody.clone()
                },
            ],
            vec![92, 8],
        ),
        (
            "goals of one class miss the same part",
            vec![
                Asks {
                    goals: &[(3, 83)],
                    ..nobody.clone()
                },
                Asks {
                    goals: &[(3, 38)],
                    ..nobody.clone()
                },
            ],
            vec![68, 32],
        ),
        (
            "a goal against what is dear",
            vec![
                Asks {
                    goals: &[(0, 60)],
                    worth: &[(40, 1.0)],
                    ..nobody.clone()
                },
                Asks {
                    worth: &[(100, 9.0)],
                    ..nobody.clone()
                },
            ],
            vec![60, 40],
        ),
        (
            "the dearest pieces of two hulls",
            vec![
                Asks {
                    worth: &[(20, 9.0), (20, 5.0), (60, 1.0)],
                    ..nobody.clone()
                },
                Asks {
                    worth: &[(30, 7.0), (70, 2.0)],
                    ..nobody.clone()
                },
            ],
            vec![40, 60],
        ),
        (
            "a little dearer is not dear enough to move",
            vec![
                Asks {
                    worth: &[(100, 1.2)],
                    lease: 8,
                    ..nobody.clone()
                },
                Asks {
                    worth: &[(100, 1.0)],
                    lease: 92,
                    ..nobody.clone()
                },
            ],
            vec![8, 92],
        ),
        (
            "a good deal dearer is",
            vec![
                Asks {
                    worth: &[(100, 1.3)],
                    lease: 8,
                    ..nobody.clone()
                },
                Asks {
                    worth: &[(100, 1.0)],
                    lease: 92,
                    ..nobody.clone()
                },
            ],
            vec![92, 8],
        ),
        (
            "what is wanted comes before the rest, which is shared",
            vec![
                Asks {
                    wanted: 64,
                    ..nobody.clone()
                },
                Asks {
                    wanted: 20,
                    ..nobody.clone()
                },
            ],
            vec![72, 28],
        ),
        (
            "one that stands still keeps what it has",
            vec![
                Asks {
                    lease: 70,
                    is_stalled: true,
                    ..nobody.clone()
                },
                Asks {
                    floor: 60,
                    ..nobody.clone()
                },
            ],
            vec![70, 30],
        ),
        ("too many for the least", vec![nobody.clone(); 25], vec![4; 25]),
    ] {
        let members: Vec<Member> = asks.iter().map(member).collect();
        let shares = shares(&node(100 * MIB, &members));
        let mib: Vec<u64> = shares.target.iter().map(|bytes| bytes / MIB).collect();
        assert_eq!(mib, targets, "{what}");
    }
}

#[test]
fn one_steps_when_it_is_worth_it_and_at_once_for_promises() {
    let nobody = Asks::default();
    let lease = |lease| Asks {
        lease,
        ..Asks::default()
    };
    for (what, asks, pace, expected) in [
        ("all that is free", vec![lease(8), lease(40)], 10, Step::Grow(50)),
        ("only what is free", vec![lease(8), lease(60)], 10, Step::Grow(40)),
        ("nothing is free", vec![lease(8), lease(92)], 10, Step::Stay),
        ("surplus at its pace", vec![lease(92), lease(8)], 10, Step::Shrink(82)),
        (
            "no further than the target",
            vec![lease(92), lease(8)],
            99,
            Step::Shrink(50),
        ),
        (
            "what is little for one and much for another",
            vec![
                Asks {
                    worth: &[(100, 1.0)],
                    ..lease(92)
                },
                Asks {
                    worth: &[(13, 9.0)],
                    ..lease(8)
                },
            ],
            10,
            Step::Shrink(87),
        ),
        ("not for a trifle", vec![lease(53), lease(47)], 10, Step::Stay),
        (
            "a floor at once",
            vec![lease(92), Asks { floor: 40, ..lease(8) }],
            1,
            Step::Shrink(60),
        ),
        (
            "also for a trifle",
            vec![lease(62), Asks { floor: 39, ..lease(38) }],
            1,
            Step::Shrink(61),
        ),
        (
            "its part of a floor",
            vec![lease(46), lease(46), Asks { floor: 40, ..lease(8) }],
            1,
            Step::Shrink(30),
        ),
        (
            "what is free is kept for a floor",
            vec![lease(8), Asks { floor: 60, ..lease(30) }, lease(52)],
            1,
            Step::Stay,
        ),
        (
            "after the node was made smaller",
            vec![lease(80), lease(40)],
            1,
            Step::Shrink(60),
        ),
        (
            "not below the least",
            vec![lease(8), Asks { floor: 99, ..lease(92) }],
            1,
            Step::Stay,
        ),
        (
            "who stands still gives nothing",
            vec![
                lease(50),
                Asks {
                    is_stalled: true,
                    ..lease(42)
                },
                Asks { floor: 30, ..lease(8) },
            ],
            1,
            Step::Shrink(28),
        ),
        (
            "one alone below the least",
            vec![Asks { lease: 0, ..nobody }],
            1,
            Step::Grow(100),
        ),
    ] {
        let members: Vec<Member> = asks.iter().map(member).collect();
        let expected = match expected {
            Step::Stay => Step::Stay,
            Step::Shrink(mib) => Step::Shrink(mib * MIB),
            Step::Grow(mib) => Step::Grow(mib * MIB),
        };
        assert_eq!(step(&node(100 * MIB, &members), 0, pace * MIB), expected, "{what}");
    }
}

fn demand() -> impl Strategy<Value = Demand> {
    let mib = |most: u64| 0..most * MIB;
    let goals = prop::collection::vec((0_u32..3, mib(60)), 0..3);
    let worth = prop::collection::vec((mib(60), 0.0_f64..100.0), 0..5);
    (mib(80), goals, worth, mib(400), prop::option::of(mib(300))).prop_map(
        |(floor_bytes, goals, mut worth, wanted_bytes, most)| {
            worth.sort_by(|a, b| b.1.total_cmp(&a.1));
            Demand {
                floor_bytes,
                goals: goals
                    .into_iter()
                    .map(|(class, bytes)| GoalDemand { class, bytes })
                    .collect(),
                worth: worth
                    .into_iter()
                    .map(|(bytes, value_per_mib)| Worth { bytes, value_per_mib })
                    .collect(),
                wanted_bytes,
                most_bytes: most.unwrap_or(u64::MAX),
            }
        },
    )
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let member = (0..100 * MIB, prop::bool::weighted(0.1), demand());
    let member = member.prop_map(|(lease_bytes, is_stalled, demand)| Member {
        lease_bytes,
        is_stalled,
        demand,
    });
    prop::collection::vec(member, 1..6)
}

/// The most that a member is promised.
fn promise(member: &Member) -> u64 {
    let goals: u64 = member.demand.goals.iter().map(|goal| goal.bytes).sum();
    let most = member.demand.most_bytes.max(LEAST) / MIB * MIB;
    (member.demand.floor_bytes + goals)
        .next_multiple_of(MIB)
        .max(LEAST)
        .min(most)
}

proptest! {
    #[test]
    fn shares_fit_keep_promises_and_are_final(bytes in 8 * MIB..1000 * MIB, members in members()) {
        let shares = shares(&node(bytes, &members));
        let fixed: u64 = members.iter().filter(|member| member.is_stalled).map(|member| member.lease_bytes).sum();
        prop_assert!(shares.target.iter().sum::<u64>() <= bytes.max(fixed.next_multiple_of(MIB) + 5 * MIB));
        let is_whole = |index: &usize| members[*index].is_stalled || shares.promised[*index] == promise(&members[*index]);
        let all_kept = (0..members.len()).all(|index| is_whole(&index));
        for (index, member) in members.iter().enumerate() {
            prop_assert!(shares.target[index] >= shares.promised[index]);
            if !member.is_stalled {
                prop_assert!(shares.target[index] <= member.demand.most_bytes.max(LEAST));
                // Nobody has more than it was promised while a promise is not kept.
                prop_assert!(all_kept || shares.target[index] == shares.promised[index]);
            }
        }
        let settled: Vec<Member> = members
            .iter()
            .zip(&shares.target)
            .map(|(member, target)| Member { lease_bytes: *target, ..member.clone() })
            .collect();
        prop_assert_eq!(&super::shares(&node(bytes, &settled)), &shares);
        for me in 0..settled.len() {
            if !settled[me].is_stalled && settled[me].lease_bytes >= LEAST && fixed == 0 {
                prop_assert_eq!(step(&node(bytes, &settled), me, MIB), Step::Stay);
            }
        }
    }

    #[test]
    fn the_dearest_is_served_as_an_exhaustive_search_would(
        bytes in 24..60_u64,
        worth in prop::collection::vec(prop::collection::vec((1..12_u64, 0.0_f64..10.0), 0..4), 2..4),
    ) {
        // Nobody holds anything, so that nothing is dearer for being held already.
        let members: Vec<Member> = worth
            .iter()
            .map(|pieces| {
                let mut pieces = pieces.clone();
                pieces.sort_by(|a, b| b.1.total_cmp(&a.1));
                member(&Asks { worth: &pieces, ..Asks::default() })
            })
            .collect();
        let shares = shares(&node(bytes * MIB, &members));
        let value = |index: usize, mib: u64| -> f64 {
            let (mut left, mut sum) = (mib, 0.0);
            for piece in &members[index].demand.worth {
                let units = left.min(piece.bytes / MIB);
                sum += units as f64 * piece.value_per_mib;
                left -= units;
            }
            sum
        };
        let given: f64 = shares.target.iter().enumerate().map(|(index, bytes)| value(index, bytes / MIB)).sum();
        // The best value of so much room over the first members, by dynamic programming.
        let mut best = vec![0.0_f64; usize::try_from(bytes).unwrap() + 1];
        for index in 0..members.len() {
            best = (0..best.len())
                // Without the least for everyone it is no way to share.
                .map(|room| (8..=room).map(|own| value(index, own as u64) + best[room - own]).fold(f64::MIN, f64::max))
                .collect();
        }
        prop_assert!((given - best[best.len() - 1]).abs() < 1e-6, "{} of {}", given, best[best.len() - 1]);
    }
}
