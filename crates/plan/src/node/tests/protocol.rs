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
