//! Random schedules: from a seed, a configuration, functions that read and write, and faults. What functions saw must be
//! what was promised, whatever happened; and when the faults end, everything must work again.

use super::history::check;
use super::network::Costs;
use super::rng::Rng;
use super::world::{Faults, World};
use crate::config::{Coherence, Config, Durability, Level, Promise};
use crate::protocol::bug::Bug;
use crate::types::{Key, Value};

/// Schedules in a run of the tests; `TIDEMARK_SCHEDULES` asks for more.
const SCHEDULES: u64 = 10_000;

/// One schedule.
#[derive(Clone, Debug)]
struct Schedule {
    seed: u64,
    nodes: u64,
    keys: u64,
    steps: u64,
    promise: Promise,
    config: Config,
    faults: Faults,
    /// Whether a process may end. Where writes are acknowledged ahead of the store and nobody else holds them, it would
    /// lose them, as was agreed.
    may_lose: bool,
    /// Whether another program writes to the store, which only validation there can see.
    has_outsider: bool,
    switches: bool,
}

fn random_level(rng: &mut Rng) -> Level {
    match rng.below(10) {
        0 => Level::Bounded(rng.between(10_000, 1_000_000)),
        1 => Level::Eventual,
        _ => Level::Linearizable,
    }
}

impl Schedule {
    fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let promise = Promise {
            level: random_level(&mut rng),
            durability: rng.pick(&[Durability::Strict, Durability::Strict, Durability::None]),
        };
        let configs = Config::all(promise);
        let config = rng.pick(&configs);
        let faulty = rng.below(4);
        let rate = |rng: &mut Rng, most: u64| {
            if faulty == 0 {
                0
            } else {
                u32::try_from(rng.below(most)).unwrap()
            }
        };
        let faults = Faults {
            lost: rate(&mut rng, 100_000),
            doubled: rate(&mut rng, 150_000),
            late: rate(&mut rng, 300_000),
            late_us: rng.between(1_000, 500_000),
            throttled: rate(&mut rng, 100_000),
            unanswered: rate(&mut rng, 150_000),
            zombie_us: rng.between(10_000, 2_500_000),
            timeout_us: rng.between(50_000, 300_000),
        };
        let has_outsider = config.coherence == Coherence::SequenceAtStore && rng.happens(300_000);
        Self {
            seed,
            nodes: rng.between(2, 6),
            keys: rng.between(1, 4),
            steps: rng.between(20, 60),
            promise,
            config,
            faults,
            may_lose: promise.durability == Durability::Strict,
            has_outsider,
            switches: !has_outsider && rng.happens(600_000),
        }
    }

    /// Runs it. The error says what was wrong.
    fn run(&self, bug: Option<Bug>) -> Result<(), String> {
        let mut rng = Rng::new(self.seed ^ 0xfau64);
        let clusters: Vec<u32> = (0..self.nodes).map(|node| u32::try_from(node / 2).unwrap()).collect();
        let costs = Costs {
            store_us: rng.between(1_000, 30_000),
            ..Costs::default()
        };
        let budget = rng.pick(&[1 << 20, 1 << 20, 400]);
        let mut world = World::new(self.seed, &clusters, (self.config, self.promise), budget, costs);
        world.set_bug(bug);
        world.settle();
        world.faults = self.faults;
        let mut value = 0;
        for _ in 0..self.steps {
            self.step(&mut world, &mut rng, &mut value);
            world.run_for(rng.pick(&[0, 1_000, 5_000, 40_000, 200_000]));
        }
        self.finish(world)
    }

    fn step(&self, world: &mut World, rng: &mut Rng, value: &mut u64) {
        let nodes = self.nodes;
        let node = rng.below(nodes) as usize;
        let key = Key::new(&format!("k{}", rng.below(self.keys)));
        *value += 1;
        let new = Value::simulated(*value, 100);
        match rng.below(100) {
            0..55 => {
                world.read(node, &key);
            }
            55..85 => {
                world.write(node, &key, new);
            }
            85..88 if self.has_outsider => world.write_outside(&key, new),
            88..92 if self.switches => self.switch(world, rng),
            92..100 if self.faults.late > 0 => self.trouble(world, rng, node),
            _ => {}
        }
    }

    fn switch(&self, world: &mut World, rng: &mut Rng) {
        let configs = Config::all(self.promise);
        let config = rng.pick(&configs);
        let trial = rng.happens(300_000).then(|| crate::view::Trial {
            config: rng.pick(&configs),
            partition: u8::try_from(rng.below(16)).unwrap(),
        });
        world.want(config, trial);
    }

    fn trouble(&self, world: &mut World, rng: &mut Rng, node: usize) {
        let other = rng.below(self.nodes) as usize;
        let long_us = rng.between(100_000, 3_000_000);
        match rng.below(8) {
            0 if self.may_lose => world.kill(node),
            1 if self.may_lose => world.restart(node),
            // A pause or a cut that outlasts the lease loses what only this node held.
            2 => world.pause(node, if self.may_lose { long_us } else { long_us.min(200_000) }),
            3 if other != node => world.partition(node, other, long_us),
            4 if self.may_lose => world.cut_off(node, long_us),
            5 => world.set_clock_rate(node, rng.between(970_000, 1_030_000)),
            6 => world.set_budget(node, rng.pick(&[0, 200, 1 << 20])),
            7 if self.may_lose && rng.happens(500_000) => world.back_up(),
            7 if self.may_lose => world.restore(),
            _ => {}
        }
    }

    /// The faults end: every operation must be answered, and everything must work again.
    fn finish(&self, mut world: World) -> Result<(), String> {
        world.faults = Faults::default();
        for node in 0..self.nodes as usize {
            world.restart(node);
        }
        world.run_for(30_000_000);
        if world.open_operations() > 0 {
            return Err(format!("{} operations were never answered", world.open_operations()));
        }
        if !world.is_settled() {
            return Err("the view does not settle".to_owned());
        }
        let failed = world.tally().failed;
        for node in 0..self.nodes as usize {
            for key in 0..self.keys {
                world.read(node, &Key::new(&format!("k{key}")));
                world.run_for(500_000);
            }
        }
        if world.tally().failed > failed || world.open_operations() > 0 {
            return Err("a read fails without faults".to_owned());
        }
        check(&world.records(), self.promise.level).map_err(|violation| format!("{violation:?}"))
    }
}

fn fails(seed: u64, bug: Option<Bug>) -> Option<String> {
    Schedule::random(seed).run(bug).err()
}

#[test]
fn schedules_keep_the_promise() {
    let asked = std::env::var("TIDEMARK_SCHEDULES")
        .ok()
        .and_then(|count| count.parse().ok());
    let first: u64 = std::env::var("TIDEMARK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0);
    let mut failed = Vec::new();
    for seed in first..first + asked.unwrap_or(SCHEDULES) {
        if let Some(what) = fails(seed, None) {
            failed.push(format!("seed {seed}: {what}\n{:?}", Schedule::random(seed)));
        }
    }
    assert!(
        failed.is_empty(),
        "{} schedules failed:\n{}",
        failed.len(),
        failed[..failed.len().min(5)].join("\n")
    );
}

#[test]
fn the_same_seed_does_the_same() {
    let records = |seed| {
        let mut world = World::new(
            seed,
            &[0, 0, 0],
            (Config::CONCORD, Promise::default()),
            1 << 20,
            Costs::default(),
        );
        world.settle();
        world.faults = Schedule::random(2).faults;
        for step in 0..50 {
            world.read(step % 3, &Key::new("k"));
            world.write((step + 1) % 3, &Key::new("k"), Value::simulated(step as u64 + 1, 10));
            world.run_for(10_000);
        }
        world.run_for(10_000_000);
        world.records()
    };
    assert_eq!(records(7), records(7));
    assert_ne!(records(7), records(8));
}

/// Schedules in which a mistake must show.
const BUG_SCHEDULES: u64 = 20_000;

#[test]
fn every_known_mistake_is_found() {
    let shows = |seed: &u64, bug| fails(*seed, Some(bug)).is_some_and(|what| what.starts_with("Violation"));
    for bug in Bug::ALL {
        let found = (0..BUG_SCHEDULES).find(|seed| shows(seed, bug));
        println!("{bug:?}: first seen with seed {found:?}");
        assert!(found.is_some(), "{bug:?} is not found in {BUG_SCHEDULES} schedules");
    }
}
