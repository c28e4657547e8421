//! Prices of scopes: several cachelets on each machine, beside what operations take with them.

use std::collections::BTreeMap;

use super::network::Costs;
use super::rng::Rng;
use super::world::World;
use crate::choose::price::Load;
use crate::choose::{Access, Counters, Meter, Rates};
use crate::config::{Coherence, Config, Domain, Promise, Scope};
use crate::message::Source;
use crate::types::{Key, OperationId, Value};

const MACHINES: usize = 4;
const CLUSTERS: usize = 2;
/// Instances of a machine, by the function that they are of.
const FUNCTIONS: [usize; 6] = [0, 0, 0, 1, 1, 1];
const KEYS: u64 = 12;
const BYTES: u64 = 4 << 10;
const OPERATIONS: u64 = 3_000;
const PAUSE_US: u64 = 8_000;
const BUDGET_BYTES: u64 = 8 << 20;

/// Messages are dear beside the store, so that it shows how many there are.
const COSTS: Costs = Costs {
    one_way_us: 500,
    store_us: 3_000,
    node_bytes_per_us: 1_250,
    store_bytes_per_us: 125,
    message_us: 100,
};

/// The cachelet of an instance among those of its machine, and how many there are.
fn cachelet_of(scope: Scope, instance: usize) -> (usize, usize) {
    match scope {
        Scope::Instance => (instance, FUNCTIONS.len()),
        Scope::Function => (FUNCTIONS[instance], 2),
        Scope::Application => (0, 1),
    }
}

/// Machines with instances, under one configuration.
struct Machines {
    config: Config,
    world: World,
    meters: Vec<Meter>,
    /// The machine and the instance of each operation.
    who: BTreeMap<OperationId, (usize, usize)>,
    took_us: u64,
    count: u32,
    since_us: u64,
}

fn key_of(number: u64) -> Key {
    Key::new(&format!("k{number}"))
}

impl Machines {
    fn new(config: Config) -> Self {
        let (_, each) = cachelet_of(config.scope, 0);
        let cluster_of = |machine: usize| (machine % CLUSTERS) as u32;
        let clusters: Vec<u32> = (0..MACHINES * each).map(|node| cluster_of(node / each)).collect();
        let mut world = World::new(4, &clusters, (config, Promise::default()), BUDGET_BYTES, COSTS);
        (0..clusters.len()).for_each(|node| world.move_to_machine(node, node / each));
        world.settle();
        world.run_for(2_000_000);
        (0..KEYS).for_each(|number| world.put_object(&key_of(number), Value::simulated(number + 1, BYTES)));
        Self {
            config,
            world,
            meters: (0..MACHINES)
                .map(|machine| Meter::new(cluster_of(machine), BUDGET_BYTES))
                .collect(),
            who: BTreeMap::new(),
            took_us: 0,
            count: 0,
            since_us: 0,
        }
    }

    /// Some instance reads or writes, and what has ended since is counted.
    fn go(&mut self, rng: &mut Rng, number: u64) {
        let machine = rng.below(MACHINES as u64) as usize;
        let instance = rng.below(FUNCTIONS.len() as u64) as usize;
        let (cachelet, each) = cachelet_of(self.config.scope, instance);
        let (node, key) = (machine * each + cachelet, key_of(rng.below(KEYS)));
        let operation = if rng.happens(100_000) {
            self.world.write(node, &key, Value::simulated(100 + number, BYTES))
        } else {
            self.world.read(node, &key)
        };
        self.who.insert(operation, (machine, instance));
        self.world.run_for(PAUSE_US);
        for one in self.world.take_finished() {
            let (machine, instance) = self.who[&one.operation];
            let access = Access {
                key: &one.key,
                size_bytes: one.size_bytes,
                is_write: one.is_write,
                version: one.version.as_ref(),
                source: one.source.unwrap_or(Source::Store),
                function: FUNCTIONS[instance] as u64,
                instance: instance as u64,
                took_us: one.took_us,
            };
            self.meters[machine].note(self.world.now_us(), &access);
            self.took_us += one.took_us;
            self.count += 1;
        }
    }

    /// The counts since the last time, and the mean time of an operation.
    fn take(&mut self) -> (Counters, f64) {
        let now_us = self.world.now_us();
        let counters = Counters {
            interval_us: now_us - self.since_us,
            reports: self.meters.iter_mut().map(|meter| meter.take(KEYS)).collect(),
        };
        let mean_us = self.took_us as f64 / f64::from(self.count.max(1));
        (self.since_us, self.took_us, self.count) = (now_us, 0, 0);
        (counters, mean_us)
    }
}

/// The mean time of an operation, and its price.
fn took_and_price(config: Config) -> (f64, f64) {
    let (mut machines, mut rng) = (Machines::new(config), Rng::new(9));
    // Cachelets are filled first.
    (0..OPERATIONS / 3).for_each(|number| machines.go(&mut rng, number));
    machines.take();
    (OPERATIONS / 3..OPERATIONS).for_each(|number| machines.go(&mut rng, number));
    let (counters, took_us) = machines.take();
    let rates = Rates {
        hop_us: COSTS.one_way_us as f64,
        message_us: COSTS.message_us as f64,
        node_us_per_byte: 1.0 / COSTS.node_bytes_per_us as f64,
        store_us: COSTS.store_us as f64,
        store_us_per_byte: 1.0 / COSTS.store_bytes_per_us as f64,
        touch_us: 0.0,
        ..Rates::default()
    };
    (took_us, Load::of(&counters).price_us(&config, &rates))
}

/// How far a price may be off, as a part of what an operation takes.
const PRICE_ERROR_RATIO: f64 = 0.12;

#[test]
fn a_price_is_of_the_messages_to_all_cachelets_of_a_node() {
    let mut wrong = Vec::new();
    for coherence in Coherence::LINEARIZABLE {
        for scope in Scope::ALL {
            for domain in [Domain::Flat, Domain::Hierarchical] {
                let config = Config {
                    scope,
                    coherence,
                    domain,
                    ..Config::CONCORD
                };
                if !config.is_valid(Promise::default()) {
                    continue;
                }
                let (took_us, price_us) = took_and_price(config);
                let line = format!("{scope:?} {coherence:?} {domain:?}: {price_us:.0} us, not {took_us:.0}");
                println!("{line}");
                if (price_us - took_us).abs() > PRICE_ERROR_RATIO * took_us {
                    wrong.push(line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
