//! Instances in one real folder, with pools that are simulated and a time that the test moves. Joins, deaths, pauses
//! and garbage are random. The memory that all pools may hold is checked after each step.

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;
use tidemark_plan::node::{Demand, GoalDemand, Worth};
use tidemark_types::MIB;

use super::*;

const NODE: u64 = 400 * MIB;
const PERIOD: Duration = Duration::from_secs(1);

/// A pool that holds as much as it is told to, as far as its limit allows.
#[derive(Default)]
struct SimPool {
    limit_bytes: u64,
    resident_bytes: u64,
    demand: Demand,
    /// Nobody answers for it.
    is_hung: bool,
    view: Option<NodeView>,
    reach_bytes: u64,
}

impl SimPool {
    /// Sets the memory that it holds to so much, if it may.
    fn hold(&mut self, bytes: u64) {
        let grows_to = bytes.min(self.limit_bytes).max(self.resident_bytes);
        self.resident_bytes = if bytes < self.resident_bytes { bytes } else { grows_to };
    }
}

impl LeasedPool for SimPool {
    fn reading(&mut self) -> Result<LeaseReading, ControlError> {
        if self.is_hung {
            return Err(ControlError::Busy);
        }
        Ok(LeaseReading {
            limit_bytes: self.limit_bytes,
            resident_bytes: self.resident_bytes,
            floors_set_bytes: self.demand.floor_bytes,
            demand: self.demand.clone(),
        })
    }

    fn follow(&mut self, limit_bytes: u64) -> Result<(), ControlError> {
        self.limit_bytes = limit_bytes;
        Ok(())
    }

    fn note(&mut self, view: NodeView, reach_bytes: u64) {
        self.view = Some(view);
        self.reach_bytes = reach_bytes;
    }
}

struct Instance {
    steward: Steward,
    pool: SimPool,
    is_paused: bool,
}

struct World {
    place: TempDir,
    begun: Instant,
    elapsed: Duration,
    instances: Vec<Instance>,
}

impl World {
    fn new() -> Self {
        let world = Self {
            place: tempfile::tempdir().unwrap(),
            begun: Instant::now(),
            elapsed: Duration::ZERO,
            instances: Vec::new(),
        };
        world.set_memory(&NODE.to_string());
        world
    }

    fn set_memory(&self, text: &str) {
        fs::write(self.place.path().join("memory"), text).unwrap();
    }

    fn join(&mut self, demand: Demand) -> usize {
        let pool = SimPool {
            demand,
            ..SimPool::default()
        };
        self.instances.push(Instance {
            steward: Steward::join(self.place.path(), PERIOD).unwrap(),
            pool,
            is_paused: false,
        });
        self.instances.len() - 1
    }

    fn tick(&mut self, who: usize) -> Duration {
        let now = self.begun + self.elapsed;
        let instance = &mut self.instances[who];
        if instance.is_paused {
            return PERIOD;
        }
        instance.steward.tick(now, &mut instance.pool)
    }

    /// A period, in which every pool follows at once and then holds all that it may.
    fn period(&mut self) {
        self.elapsed += PERIOD;
        for who in 0..self.instances.len() {
            while self.tick(who) < PERIOD {
                let pool = &mut self.instances[who].pool;
                pool.hold(pool.limit_bytes);
            }
            self.check();
            if !self.instances[who].is_paused {
                let pool = &mut self.instances[who].pool;
                pool.hold(pool.limit_bytes);
            }
        }
    }

    fn periods(&mut self, count: u32) {
        (0..count).for_each(|_| self.period());
    }

    /// Checks the limits of the pools and their memory.
    fn check(&self) {
        let most = |instance: &Instance| instance.pool.limit_bytes.max(instance.pool.resident_bytes);
        let sum: u64 = self.instances.iter().map(most).sum();
        assert!(sum <= NODE, "{} MiB of {} MiB", sum / MIB, NODE / MIB);
    }

    fn mib(&self) -> Vec<u64> {
        self.instances
            .iter()
            .map(|instance| instance.pool.limit_bytes / MIB)
            .collect()
    }

    fn problem(&self, who: usize) -> Option<&str> {
        let view = self.instances[who].pool.view.as_ref().unwrap();
        let problem = view.problem.as_deref();
        assert_eq!(problem, self.instances[who].steward.problem());
        problem
    }

    /// The lease file of an instance.
    fn file(&self, who: usize) -> PathBuf {
        let folder = &self.instances[who].steward.folder;
        folder.path().join(folder.name())
    }
}

fn anything() -> Demand {
    Demand {
        most_bytes: u64::MAX,
        ..Demand::default()
    }
}

fn floor(mib: u64) -> Demand {
    Demand {
        floor_bytes: mib * MIB,
        ..anything()
    }
}

fn worth(mib: u64, value_per_mib: f64) -> Demand {
    Demand {
        worth: vec![Worth {
            bytes: mib * MIB,
            value_per_mib,
        }],
        ..anything()
    }
}

#[test]
fn memory_moves_to_where_it_is_worth_most_within_thirty_seconds() {
    let mut world = World::new();
    world.join(worth(400, 10.0));
    world.periods(1);
    assert_eq!(world.mib(), [400], "alone it has everything at once");
    world.join(worth(400, 1.0));
    world.join(floor(50));
    world.periods(30);
    assert_eq!(world.mib(), [342, 8, 50]);
    world.instances[1].pool.demand.worth = worth(400, 100.0).worth;
    world.periods(30);
    assert_eq!(world.mib(), [8, 342, 50]);
    let goal = GoalDemand {
        class: 0,
        bytes: 100 * MIB,
    };
    world.instances[0].pool.demand.goals = vec![goal];
    world.periods(3);
    assert_eq!(world.mib(), [100, 250, 50], "a goal does not wait for the pace");
    // Noise of an eighth moves nothing.
    for value in [90.0, 110.0, 95.0, 100.0] {
        world.instances[1].pool.demand.worth[0].value_per_mib = value;
        world.instances[0].pool.demand.worth[0].value_per_mib = 98.0;
        world.periods(2);
        assert_eq!(world.mib(), [100, 250, 50]);
    }
}

#[test]
fn one_that_is_paused_keeps_its_lease_until_it_dies() {
    let mut world = World::new();
    world.join(worth(400, 5.0));
    world.join(worth(400, 1.0));
    world.periods(20);
    assert_eq!(world.mib(), [392, 8]);
    world.instances[0].is_paused = true;
    world.instances[1].pool.demand = floor(200);
    world.join(floor(20));
    world.periods(20);
    assert_eq!(world.mib(), [392, 8, 0], "nothing is taken from it");
    let view = world.instances[1].pool.view.clone().unwrap();
    let states: Vec<&str> = view.leases.iter().map(|lease| lease.state).collect();
    assert_eq!(
        states.iter().filter(|state| **state == "stalled").count(),
        1,
        "{states:?}"
    );
    assert_eq!(view.instances, 3);
    // It goes on, and gives the others the memory that they need.
    world.instances[0].is_paused = false;
    world.periods(3);
    assert_eq!(world.mib(), [180, 200, 20]);
    world.instances[0].is_paused = true;
    world.instances.remove(0);
    world.periods(3);
    assert_eq!(world.mib(), [290, 110], "what nobody needs is shared");
}

#[test]
fn a_pool_that_comes_down_slowly_is_waited_for() {
    let mut world = World::new();
    world.join(worth(400, 1.0));
    world.periods(1);
    world.join(floor(300));
    world.tick(1);
    for left in [390, 250, 101] {
        world.elapsed += PERIOD;
        assert!(world.tick(0) < PERIOD, "it looks again soon");
        world.tick(1);
        world.check();
        world.instances[0].pool.hold(left * MIB);
    }
    assert_eq!(
        world.instances[1].pool.limit_bytes / MIB,
        150,
        "what was given up so far"
    );
    world.period();
    world.period();
    assert_eq!(world.mib(), [100, 300]);
}

#[test]
fn what_is_wrong_is_said_and_every_lease_stays() {
    let mut world = World::new();
    world.join(worth(400, 1.0));
    world.join(worth(400, 5.0));
    world.periods(30);
    let before = world.mib();
    assert_eq!(before, [8, 392]);
    // From here on memory should move.
    world.instances[0].pool.demand = floor(100);
    for text in ["", "garbage", "1048576"] {
        world.set_memory(text);
        world.periods(3);
        assert_eq!(world.mib(), before, "{text}");
        assert!(
            world.problem(0).unwrap().contains("memory holds no number of bytes"),
            "{text}"
        );
    }
    fs::remove_file(world.place.path().join("memory")).unwrap();
    world.period();
    assert!(world.problem(1).unwrap().contains("No such file"));

    world.set_memory(&NODE.to_string());
    // One stands still with garbage for a lease.
    world.instances[1].is_paused = true;
    fs::write(world.file(1), "garbage").unwrap();
    world.periods(10);
    assert_eq!(world.mib(), before);
    assert!(
        world.problem(0).unwrap().contains("is no lease"),
        "{:?}",
        world.problem(0)
    );
    world.instances[1].is_paused = false;

    let elsewhere = world.place.path().with_extension("away");
    fs::rename(world.place.path(), &elsewhere).unwrap();
    world.periods(3);
    assert_eq!(world.mib(), before);
    assert!(
        world.problem(0).unwrap().contains("No such file"),
        "{:?}",
        world.problem(0)
    );
    fs::rename(&elsewhere, world.place.path()).unwrap();

    world.instances[1].pool.is_hung = true;
    world.periods(3);
    assert_eq!(world.mib(), before);
    assert!(
        world.instances[1]
            .steward
            .problem()
            .unwrap()
            .contains("does not answer")
    );
    world.instances[1].pool.is_hung = false;

    world.periods(4);
    assert_eq!(world.mib(), [100, 300]);
    assert_eq!((world.problem(0), world.problem(1)), (None, None));
}

#[test]
fn the_nodes_memory_is_followed() {
    let mut world = World::new();
    world.join(anything());
    world.join(anything());
    world.periods(30);
    assert_eq!(world.mib(), [200, 200]);
    world.set_memory(&(100 * MIB).to_string());
    world.periods(3);
    assert_eq!(world.mib(), [50, 50]);
    assert_eq!(world.instances[0].pool.reach_bytes, 92 * MIB);
    world.set_memory(&NODE.to_string());
    world.periods(3);
    assert_eq!(world.mib(), [200, 200]);
    // Less than both need: each keeps the least that works, and says so.
    world.set_memory(&(12 * MIB).to_string());
    world.periods(3);
    assert_eq!(world.mib(), [8, 8]);
    assert!(world.problem(0).unwrap().contains("too little"));
    assert!(!world.instances[0].steward.is_enough());
}

#[test]
fn a_claim_that_does_not_fit_is_withdrawn() {
    let mut world = World::new();
    world.join(anything());
    world.join(anything());
    world.periods(30);
    // The case that the other one took the free memory between this one's look and its claim.
    let [first, second] = &mut world.instances[..] else {
        panic!("two have joined");
    };
    let reading = first.pool.reading().unwrap();
    for (claimed_mib, held_mib) in [(201, 200), (400, 200), (200, 200)] {
        first
            .steward
            .grow(claimed_mib * MIB, &reading, &mut first.pool)
            .unwrap();
        let stated = second.steward.folder.survey().unwrap()[0]
            .lease
            .as_ref()
            .unwrap()
            .lease_bytes;
        let found = [first.pool.limit_bytes, first.steward.held_bytes(), stated];
        assert_eq!(found, [held_mib * MIB; 3], "{claimed_mib}");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Tick(usize),
    Hold(usize, u64),
    Need(usize, u64, f64),
    Join(u64),
    Kill(usize),
    Pause(usize, bool),
    Hang(usize, bool),
    Garbage(usize),
    Unlink(usize),
    Memory(bool),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let who = 0_usize..8;
    prop_oneof![
        40 => who.clone().prop_map(Event::Tick),
        10 => (who.clone(), 0..NODE).prop_map(|(who, bytes)| Event::Hold(who, bytes)),
        3 => (who.clone(), 0..150_u64, 0.0_f64..10.0).prop_map(|(who, mib, value)| Event::Need(who, mib, value)),
        1 => (0..150_u64).prop_map(Event::Join),
        1 => who.clone().prop_map(Event::Kill),
        2 => (who.clone(), any::<bool>()).prop_map(|(who, is_paused)| Event::Pause(who, is_paused)),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, is_hung)| Event::Hang(who, is_hung)),
        1 => who.clone().prop_map(Event::Garbage),
        1 => who.prop_map(Event::Unlink),
        1 => any::<bool>().prop_map(Event::Memory),
        5 => (0..10_000_u64).prop_map(Event::Wait),
    ]
}

fn need(mib: u64, value: f64) -> Demand {
    Demand {
        floor_bytes: mib / 4 * MIB,
        ..worth(mib, value)
    }
}

impl World {
    fn happen(&mut self, event: &Event) {
        let count = self.instances.len();
        let pick = |who: usize| (count > 0).then(|| who % count);
        match *event {
            Event::Tick(who) => {
                if let Some(who) = pick(who) {
                    self.tick(who);
                }
            }
            Event::Hold(who, bytes) => {
                if let Some(who) = pick(who) {
                    self.instances[who].pool.hold(bytes);
                }
            }
            Event::Need(who, mib, value) => {
                if let Some(who) = pick(who) {
                    self.instances[who].pool.demand = need(mib, value);
                }
            }
            Event::Join(mib) => {
                if count < 6 && fs::read(self.place.path().join("memory")).unwrap() != b"garbage" {
                    self.join(need(mib, 1.0));
                }
            }
            Event::Kill(who) => {
                if let Some(who) = pick(who) {
                    self.instances.remove(who);
                }
            }
            Event::Pause(who, is_paused) => {
                if let Some(who) = pick(who) {
                    self.instances[who].is_paused = is_paused;
                }
            }
            Event::Hang(who, is_hung) => {
                if let Some(who) = pick(who) {
                    self.instances[who].pool.is_hung = is_hung;
                }
            }
            Event::Garbage(who) => {
                if let Some(who) = pick(who) {
                    fs::write(self.file(who), "garbage").unwrap();
                }
            }
            // Only if everybody saw it: an instance that comes before the file is there again could not know of it.
            Event::Unlink(who) => {
                if let Some(who) = pick(who) {
                    (0..count).for_each(|other| drop(self.instances[other].steward.folder.survey()));
                    fs::remove_file(self.file(who)).unwrap();
                    let reading = self.instances[who].pool.reading().unwrap_or_default();
                    self.instances[who].steward.state(&reading).unwrap();
                }
            }
            Event::Memory(is_garbage) => {
                let text = NODE.to_string();
                self.set_memory(if is_garbage { "garbage" } else { &text });
            }
            Event::Wait(ms) => self.elapsed += Duration::from_millis(ms),
        }
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_the_sum_holds_and_afterwards_all_is_well(events in prop::collection::vec(event(), 0..400)) {
        let mut world = World::new();
        world.join(need(100, 1.0));
        for event in &events {
            world.happen(event);
        }
        world.set_memory(&NODE.to_string());
        for instance in &mut world.instances {
            instance.is_paused = false;
            instance.pool.is_hung = false;
        }
        world.join(floor(10));
        world.periods(30);
        let last = world.instances.len() - 1;
        prop_assert_eq!(world.problem(last), None);
        let mib = world.mib();
        prop_assert!(mib.iter().sum::<u64>() >= NODE / MIB * 9 / 10, "{:?}", mib);
        let floors: Vec<u64> = world.instances.iter().map(|instance| instance.pool.demand.floor_bytes / MIB).collect();
        if floors.iter().map(|floor| floor.max(&8)).sum::<u64>() <= NODE / MIB {
            prop_assert!(mib.iter().zip(&floors).all(|(mib, floor)| mib >= floor), "{:?} {:?}", mib, floors);
        }
    }
}
