//! The shares of instances, and that no order of reading, stating and dying lets them hold too much.

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

mod protocol {
    //! Instances that advance in single steps, in any order: reading one other file is a step, stating is one, moving the
    //! pool's limit is one.

    use super::*;

    #[derive(Clone, Debug)]
    enum At {
        Idle,
        /// Reads the others' statements, one after the other.
        Reading(Vec<(usize, u64)>, Vec<usize>),
        /// Has claimed; is about to state it.
        Claimed,
        /// Reads anew, to check.
        Checking(Vec<u64>, Vec<usize>),
        /// May raise its pool's limit.
        Raising,
        /// The claim did not fit: the held bytes are about to be stated.
        Stating,
    }

    #[derive(Clone, Debug)]
    struct Instance {
        file: u64,
        tenure: Tenure,
        limit: u64,
        resident: u64,
        demand: Demand,
        at: At,
        is_alive: bool,
    }

    impl Instance {
        fn new(demand: Demand) -> Self {
            Self {
                file: 0,
                tenure: Tenure::default(),
                limit: 0,
                resident: 0,
                demand,
                at: At::Idle,
                is_alive: true,
            }
        }

        /// Its pool takes or gives up memory: it takes nothing beyond its limit.
        fn use_memory(&mut self, wish: u64) {
            if wish < self.resident {
                self.resident = wish;
            } else {
                self.resident = wish.min(self.limit).max(self.resident);
            }
        }
    }

    struct World {
        bytes: u64,
        instances: Vec<Instance>,
    }

    impl World {
        fn others(&self, me: usize) -> Vec<usize> {
            let is_other = |index: &usize| *index != me && self.instances[*index].is_alive;
            (0..self.instances.len()).filter(is_other).collect()
        }

        /// One instance does its next step.
        fn advance(&mut self, me: usize) {
            let others = self.others(me);
            let files: Vec<u64> = self.instances.iter().map(|other| other.file).collect();
            let is_alive: Vec<bool> = self.instances.iter().map(|other| other.is_alive).collect();
            let at = std::mem::replace(&mut self.instances[me].at, At::Idle);
            let bytes = self.bytes;
            let demands: Vec<Demand> = self.instances.iter().map(|other| other.demand.clone()).collect();
            let own = &mut self.instances[me];
            own.at = match at {
                At::Idle => {
                    own.tenure.withdraw();
                    own.tenure.settle(own.limit, own.resident);
                    own.file = own.tenure.stated_bytes();
                    At::Reading(Vec::new(), others)
                }
                At::Reading(mut seen, mut left) => {
                    if let Some(next) = left.pop() {
                        if is_alive[next] {
                            seen.push((next, files[next]));
                        }
                        At::Reading(seen, left)
                    } else if own.limit < own.tenure.held_bytes() {
                        At::Idle
                    } else {
                        seen.push((me, own.tenure.held_bytes()));
                        seen.sort_unstable();
                        let members: Vec<Member> = seen
                            .iter()
                            .map(|(index, lease_bytes)| Member {
                                lease_bytes: *lease_bytes,
                                is_stalled: false,
                                demand: demands[*index].clone(),
                            })
                            .collect();
                        let index = seen.iter().position(|(index, _)| *index == me).unwrap();
                        match step(&node(bytes, &members), index, 20 * MIB) {
                            Step::Stay => At::Idle,
                            Step::Shrink(bytes) => {
                                own.limit = bytes;
                                At::Idle
                            }
                            Step::Grow(bytes) => {
                                own.tenure.claim(bytes);
                                At::Claimed
                            }
                        }
                    }
                }
                At::Claimed => {
                    own.file = own.tenure.stated_bytes();
                    At::Checking(Vec::new(), others)
                }
                At::Checking(mut seen, mut left) => {
                    if let Some(next) = left.pop() {
                        seen.extend(is_alive[next].then_some(files[next]));
                        At::Checking(seen, left)
                    } else if own.tenure.check(bytes, seen.into_iter().map(Some)) {
                        At::Raising
                    } else {
                        At::Stating
                    }
                }
                At::Raising => {
                    own.limit = own.tenure.held_bytes();
                    At::Idle
                }
                At::Stating => {
                    own.file = own.tenure.stated_bytes();
                    At::Idle
                }
            };
        }

        fn check(&self) -> Result<(), TestCaseError> {
            let alive = || self.instances.iter().filter(|instance| instance.is_alive);
            let possible: u64 = alive().map(|instance| instance.limit.max(instance.resident)).sum();
            prop_assert!(possible <= self.bytes, "{} of {}", possible, self.bytes);
            for instance in alive() {
                prop_assert!(instance.file >= instance.limit.max(instance.resident), "{instance:?}");
            }
            Ok(())
        }
    }

    #[derive(Clone, Debug)]
    enum Event {
        Advance(usize),
        Use(usize, u64),
        /// From now on it needs something else.
        Need(usize, Demand),
        Join(Demand),
        Die(usize),
        /// Its current step comes to nothing, as when stating or reading fails.
        Fail(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        let who = 0_usize..8;
        prop_oneof![
            40 => who.clone().prop_map(Event::Advance),
            10 => (who.clone(), 0..300 * MIB).prop_map(|(who, wish)| Event::Use(who, wish)),
            2 => (who.clone(), demand()).prop_map(|(who, demand)| Event::Need(who, demand)),
            1 => demand().prop_map(Event::Join),
            1 => who.clone().prop_map(Event::Die),
            2 => who.prop_map(Event::Fail),
        ]
    }

    proptest! {
        #[test]
        fn no_order_of_steps_lets_pools_hold_too_much(
            bytes in 16 * MIB..400 * MIB,
            first in prop::collection::vec(demand(), 1..4),
            events in prop::collection::vec(event(), 0..600),
        ) {
            let instances = first.into_iter().map(Instance::new).collect();
            let mut world = World { bytes, instances };
            for event in events {
                let alive: Vec<usize> = (0..world.instances.len()).filter(|index| world.instances[*index].is_alive).collect();
                let pick = |who: usize| alive.get(who % alive.len().max(1)).copied();
                match event {
                    Event::Advance(who) => {
                        // Some stand still for long because others are advanced instead.
                        if let Some(me) = pick(who) { world.advance(me) }
                    }
                    Event::Use(who, wish) => if let Some(me) = pick(who) { world.instances[me].use_memory(wish) },
                    Event::Need(who, demand) => if let Some(me) = pick(who) { world.instances[me].demand = demand },
                    Event::Join(demand) => if alive.len() < 6 { world.instances.push(Instance::new(demand)) },
                    Event::Die(who) => if let Some(me) = pick(who) { world.instances[me].is_alive = false },
                    Event::Fail(who) => if let Some(me) = pick(who) { world.instances[me].at = At::Idle },
                }
                world.check()?;
            }
        }
    }

    #[test]
    fn in_turn_they_come_to_their_shares() {
        let needs = [(60, 200), (0, 500), (100, 100)];
        let demand = |(floor, wanted): (u64, u64)| {
            member(&Asks {
                floor,
                worth: &[(50, 3.0), (100, 1.0)],
                wanted,
                ..Asks::default()
            })
            .demand
        };
        let mut world = World {
            bytes: 300 * MIB,
            instances: vec![Instance::new(demand(needs[0]))],
        };
        let rounds = |world: &mut World| {
            for _ in 0..40 {
                for me in 0..world.instances.len() {
                    // A whole period, with others' files to read twice.
                    for _ in 0..12 {
                        world.advance(me);
                        world.check().unwrap();
                    }
                    world.instances[me].use_memory(500 * MIB);
                    let limit = world.instances[me].limit;
                    world.instances[me].use_memory(limit);
                }
            }
        };
        rounds(&mut world);
        assert_eq!(world.instances[0].limit, 300 * MIB, "alone it has everything");
        for need in &needs[1..] {
            world.instances.push(Instance::new(demand(*need)));
        }
        rounds(&mut world);
        let members: Vec<Member> = world
            .instances
            .iter()
            .map(|instance| Member {
                lease_bytes: instance.limit,
                is_stalled: false,
                demand: instance.demand.clone(),
            })
            .collect();
        for (instance, target) in world.instances.iter().zip(shares(&node(world.bytes, &members)).target) {
            let tolerance = (instance.limit / 16).max(4 * MIB);
            assert!(
                instance.limit.abs_diff(target) < tolerance,
                "{} {target}",
                instance.limit
            );
        }
        let used: u64 = world.instances.iter().map(|instance| instance.limit).sum();
        assert!(used > 280 * MIB, "{used}");
    }
}
