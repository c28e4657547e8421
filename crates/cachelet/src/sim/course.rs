//! Courses: a load that changes from phase to phase, under one configuration or under a chooser. The same operations come at the
//! same times whatever is configured, so that courses can be compared interval by interval.

use super::network::Costs;
use super::rng::Rng;
use super::world::World;
use crate::choose::price::{Features, Load as Priced};
use crate::choose::{Access, Chooser, Counters, Meter, Pins, Rates, Switch};
use crate::config::{Config, Promise, Replication, Scope};
use crate::message::Source;
use crate::types::{Key, Value, mix};

/// Nodes that are there from the beginning.
pub const NODES: u32 = 6;
/// Nodes that a burst adds.
pub const BURST_NODES: u32 = 6;
/// Clusters that nodes are in, by turns.
const CLUSTERS: u32 = 2;
/// The limit of a node's copies.
pub const BUDGET_BYTES: u64 = 8 << 20;
/// How long is counted for one decision.
pub const INTERVAL_US: u64 = 1_000_000;
/// A chooser has the first look after so many intervals: the domain has come together by then.
const SETTLING_US: u64 = 2_000_000;

/// The operations of functions in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A few small values, read by all.
    ReadOnlySmall,
    /// Each value is read and written by one node after the other.
    PingPong,
    /// A few large values that all nodes share, with some writes.
    LargeShared,
    /// More values than fit, one after the other, beside a few that are used again.
    Scan,
    /// As many nodes again join, and all read the same values.
    Burst,
    /// Values that nobody reads twice.
    NoReuse,
    /// One of the paper's grid.
    Cell(Cell),
    /// One of its grid of orders in which copies go.
    Local(Local),
}

/// Twice as many bytes as a node keeps, read by one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Values.
    pub elements: u64,
    /// The exponent of the distribution of sizes, in tenths: zero is uniform, ten is Zipf's.
    pub size_tenths: u32,
    /// The same of how often values are read.
    pub popularity_tenths: u32,
}

impl Local {
    /// The size of a value: sizes follow from another order than popularity.
    fn size_bytes(self, key: u64) -> u64 {
        let alpha = f64::from(self.size_tenths) / 10.0;
        let weight = |place: u64| (place as f64 + 1.0).powf(-alpha);
        // The mean over all places, to a few percent.
        let mean = (0..64).map(|part| weight(part * self.elements / 64)).sum::<f64>() / 64.0;
        let mean_bytes = (2 * BUDGET_BYTES / self.elements) as f64;
        let bytes = mean_bytes * weight(mix(key) % self.elements) / mean;
        // No value takes more than a quarter of what a node keeps.
        (bytes as u64).clamp(16, BUDGET_BYTES / 4)
    }

    /// A value that is read, from a number between zero and one.
    fn key(self, chance: f64) -> u64 {
        let (elements, alpha) = (self.elements as f64, f64::from(self.popularity_tenths) / 10.0);
        // The inverse of the distribution function for places that are no whole numbers.
        let place = if alpha < 1.0 {
            elements * chance.powf(1.0 / (1.0 - alpha))
        } else {
            elements.powf(chance) - 1.0
        };
        (place as u64).min(self.elements - 1)
    }
}

/// A load of the paper's grid: a few values, shared by some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Bytes of a value.
    pub size_bytes: u64,
    /// Nodes that use a value.
    pub sharers: u32,
    /// Writes of a hundred operations.
    pub write_percent: u64,
    /// Operations of one node on a value until the next node's.
    pub run: u64,
}

/// Values of a cell.
const CELL_KEYS: u64 = 4;

impl Load {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ReadOnlySmall,
        Self::PingPong,
        Self::LargeShared,
        Self::Scan,
        Self::NoReuse,
        Self::Burst,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnlySmall => "read-only small",
            Self::PingPong => "ping-pong writes",
            Self::LargeShared => "large, many sharers",
            Self::Scan => "scan",
            Self::Burst => "burst of instances",
            Self::NoReuse => "no reuse",
            Self::Cell(_) | Self::Local(_) => "grid",
        }
    }

    /// Operations in a second, low enough that no configuration queues them up for long.
    fn per_second(self) -> u64 {
        match self {
            Self::ReadOnlySmall | Self::Burst => 400,
            Self::PingPong => 120,
            Self::LargeShared => 20,
            Self::Scan | Self::NoReuse | Self::Local(_) => 240,
            Self::Cell(cell) if cell.size_bytes > 256 << 10 => 12,
            Self::Cell(_) => 80,
        }
    }

    fn size_bytes(self, key: u64) -> u64 {
        match self {
            Self::ReadOnlySmall => 1 << 10,
            Self::PingPong => 4 << 10,
            Self::LargeShared => 1 << 20,
            Self::Scan => 16 << 10,
            Self::Burst | Self::NoReuse => 8 << 10,
            Self::Cell(cell) => cell.size_bytes,
            Self::Local(local) => local.size_bytes(key),
        }
    }

    /// The operation of this number.
    fn operation(self, number: u64, rng: &mut Rng, nodes: u64) -> Operation {
        let (node, chance) = (rng.below(nodes), rng.below(100));
        let (key, node, is_write) = match self {
            Self::ReadOnlySmall => (rng.below(64), node, false),
            // A writer has read before; the next node takes over.
            Self::PingPong => {
                let (key, turn) = (number / 2 % 16, number / 32);
                (key, (key + turn) % nodes, number % 2 == 1)
            }
            Self::LargeShared => (rng.below(6), node, chance < 5),
            Self::Scan if chance < 30 => (1_000_000 + rng.below(20), node, false),
            Self::Scan => (number % 4_000, node, false),
            Self::Burst => (rng.below(50), node, chance < 2),
            Self::NoReuse => (number, node, false),
            Self::Local(local) => (local.key(rng.unit()), node, false),
            Self::Cell(cell) => {
                let (key, turn) = (number % CELL_KEYS, number / CELL_KEYS / cell.run.max(1));
                (key, (key + turn) % u64::from(cell.sharers), chance < cell.write_percent)
            }
        };
        Operation { key, node, is_write }
    }
}

struct Operation {
    key: u64,
    node: u64,
    is_write: bool,
}

/// A course.
#[derive(Clone, Debug)]
pub struct Course {
    /// The seed of all chance.
    pub seed: u64,
    /// Nodes that are there from the beginning.
    pub nodes: u32,
    /// The phases.
    pub phases: Vec<Load>,
    /// Intervals of each.
    pub intervals: u64,
}

/// The events of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The phase's load.
    pub load: Load,
    /// The configuration at its end.
    pub config: Config,
    /// Operations that ended in it.
    pub count: u64,
    /// The time of all together, in microseconds.
    pub took_us: u64,
    /// The characteristics of the load.
    pub features: Features,
    /// The price of that configuration for what was counted, with the simulator's costs, in microseconds.
    pub price_us: f64,
}

impl Interval {
    /// The mean time of an operation, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.took_us as f64 / self.count.max(1) as f64
    }
}

/// The fixed part of all courses: a node has one cachelet, and as none is lost, nothing is replicated.
#[must_use]
pub fn pins() -> Pins {
    Pins {
        scope: Some(Scope::Application),
        replication: Some(Replication::None),
        ..Pins::default()
    }
}

/// The configurations that a course may have.
#[must_use]
pub fn configs() -> Vec<Config> {
    crate::choose::allowed(Promise::default(), pins(), Config::CONCORD)
}

struct Running<'a> {
    world: World,
    chooser: Option<&'a mut dyn Chooser>,
    meters: Vec<Meter>,
    rng: Rng,
    switches: Vec<Switch>,
    wanted: Config,
}

impl Course {
    /// Passes it under one configuration.
    #[must_use]
    pub fn fixed(&self, config: Config) -> Vec<Interval> {
        self.pass(config, None).0
    }

    /// Passes it under a chooser that begins with a configuration. Also its switches.
    pub fn chosen(&self, config: Config, chooser: &mut dyn Chooser) -> (Vec<Interval>, Vec<Switch>) {
        chooser.pin(pins());
        self.pass(config, Some(chooser))
    }

    fn pass(&self, config: Config, chooser: Option<&mut dyn Chooser>) -> (Vec<Interval>, Vec<Switch>) {
        let clusters: Vec<u32> = (0..self.nodes).map(|node| node % CLUSTERS).collect();
        let promise = Promise::default();
        let mut world = World::new(self.seed, &clusters, (config, promise), BUDGET_BYTES, Costs::default());
        world.settle();
        world.run_for(SETTLING_US);
        let mut running = Running {
            world,
            chooser,
            meters: clusters
                .iter()
                .map(|cluster| Meter::new(*cluster, BUDGET_BYTES))
                .collect(),
            rng: Rng::new(self.seed ^ 0xc0de),
            switches: Vec::new(),
            wanted: config,
        };
        let mut intervals = Vec::new();
        for (phase, load) in self.phases.iter().enumerate() {
            running.begin(phase, *load, load.per_second() * self.intervals);
            for interval in 0..self.intervals {
                intervals.push(running.interval(phase, *load, interval));
            }
        }
        (intervals, running.switches)
    }
}

fn key_of(phase: usize, number: u64) -> Key {
    Key::new(&format!("p{phase}-{number}"))
}

impl Running<'_> {
    fn begin(&mut self, phase: usize, load: Load, operations: u64) {
        let keys: Vec<u64> = match load {
            Load::ReadOnlySmall => (0..64).collect(),
            Load::PingPong => (0..16).collect(),
            Load::LargeShared => (0..6).collect(),
            Load::Scan => (0..4_000).chain(1_000_000..1_000_020).collect(),
            Load::Burst => (0..50).collect(),
            Load::NoReuse => (0..operations).collect(),
            Load::Cell(_) => (0..CELL_KEYS).collect(),
            Load::Local(local) => (0..local.elements).collect(),
        };
        for key in keys {
            let value = Value::simulated(key + 1, load.size_bytes(key));
            self.world.put_object(&key_of(phase, key), value);
        }
        if load == Load::Burst {
            for node in 0..BURST_NODES {
                self.world.add_node(node % CLUSTERS);
                self.meters.push(Meter::new(node % CLUSTERS, BUDGET_BYTES));
            }
        }
    }

    fn interval(&mut self, phase: usize, load: Load, interval: u64) -> Interval {
        let (from_us, count) = (self.world.now_us(), load.per_second());
        for step in 0..count {
            self.world.run_until(from_us + step * INTERVAL_US / count);
            let number = interval * count + step;
            let operation = load.operation(number, &mut self.rng, self.meters.len() as u64);
            let (key, node) = (key_of(phase, operation.key), operation.node as usize);
            if operation.is_write {
                let value = Value::simulated(1_000_000 + number, load.size_bytes(operation.key));
                self.world.write(node, &key, value);
            } else {
                self.world.read(node, &key);
            }
        }
        self.world.run_until(from_us + INTERVAL_US);
        let ended = self.world.take_finished();
        let now_us = self.world.now_us();
        for one in &ended {
            let access = Access {
                key: &one.key,
                size_bytes: one.size_bytes,
                is_write: one.is_write,
                version: one.version.as_ref(),
                source: one.source.unwrap_or(Source::Store),
                function: 0,
                instance: one.node as u64,
                took_us: one.took_us,
            };
            self.meters[one.node].note(now_us, &access);
        }
        let counters = self.counters();
        self.choose(now_us, &counters);
        self.world.forget_records();
        let (config, priced) = (self.world.view().config, Priced::of(&counters));
        Interval {
            load,
            config,
            count: ended.len() as u64,
            took_us: ended.iter().map(|one| one.took_us).sum(),
            features: priced.features(),
            price_us: priced.price_us(&config, &Rates::default()),
        }
    }

    fn counters(&mut self) -> Counters {
        let world = &self.world;
        let copies = |node| world.cachelet(node).copies() as u64;
        let reports = self.meters.iter_mut().enumerate();
        Counters {
            interval_us: INTERVAL_US,
            reports: reports.map(|(node, meter)| meter.take(copies(node))).collect(),
        }
    }

    fn choose(&mut self, now_us: u64, counters: &Counters) {
        let Some(chooser) = &mut self.chooser else { return };
        let view = self.world.view();
        // As in the agent: what is counted while a change is under way says nothing.
        if view.config != self.wanted || !self.world.is_settled() {
            return;
        }
        chooser.adopted(now_us, view.config, view.trial);
        if let Some(switch) = chooser.observe(now_us, counters) {
            self.wanted = switch.config;
            self.world.want(switch.config, switch.trial);
            self.switches.push(switch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::Kind;

    #[test]
    fn the_same_operations_come_whatever_is_chosen() {
        let course = Course {
            seed: 3,
            nodes: NODES,
            phases: vec![Load::NoReuse, Load::ReadOnlySmall, Load::NoReuse],
            intervals: 12,
        };
        let fixed = course.fixed(Config::CONCORD);
        let count = |intervals: &[Interval]| intervals.iter().map(|interval| interval.count).sum::<u64>();
        for kind in [Kind::Hedge, Kind::Sarsa, Kind::Principles] {
            let mut chooser = kind.make(Promise::default(), Config::CONCORD, Rates::default());
            let (intervals, switches) = course.chosen(Config::CONCORD, chooser.as_mut());
            assert_eq!(intervals.len(), 36);
            assert!(
                switches.iter().all(|switch| switch.config.is_valid(Promise::default())),
                "{switches:#?}"
            );
            assert!(count(&fixed).abs_diff(count(&intervals)) < 20, "{kind:?}");
        }
    }

    /// How far the price of what an operation takes may be off.
    const PRICE_ERROR_RATIO: f64 = 0.15;
    /// The same, in microseconds, where operations take hardly any time.
    const PRICE_ERROR_US: f64 = 100.0;

    #[test]
    fn prices_are_what_operations_take() {
        let mut wrong = Vec::new();
        for load in Load::ALL {
            let course = Course {
                seed: 5,
                nodes: NODES,
                phases: vec![load],
                intervals: 9,
            };
            for config in configs() {
                let settled = &course.fixed(config)[3..];
                let mean = |of: fn(&Interval) -> f64| settled.iter().map(of).sum::<f64>() / settled.len() as f64;
                let (took_us, price_us) = (mean(Interval::mean_us), mean(|interval| interval.price_us));
                if (price_us - took_us).abs() > PRICE_ERROR_RATIO * took_us + PRICE_ERROR_US {
                    wrong.push(format!(
                        "{}: {price_us:.0} us, not {took_us:.0}: {config:?}",
                        load.name()
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// How much longer operations may take than with what is best in each interval.
    const MOST_REGRET: f64 = 0.04;
    /// The same in the last intervals of a phase, when everything has been learned.
    const MOST_REGRET_AT_END: f64 = 0.02;

    fn follows(phases: [Load; 3]) {
        let course = Course {
            seed: 2,
            nodes: NODES,
            phases: phases.to_vec(),
            intervals: 30,
        };
        let means = |intervals: &[Interval]| intervals.iter().map(Interval::mean_us).collect::<Vec<_>>();
        // All of these values fit or are used once, so that the order of replacement makes no difference.
        let arms = configs()
            .into_iter()
            .filter(|config| config.replacement == Config::CONCORD.replacement);
        let fixed: Vec<_> = arms.map(|config| means(&course.fixed(config))).collect();
        let mut hedge = Kind::Hedge.make(Promise::default(), Config::CONCORD, Rates::default());
        let (intervals, switches) = course.chosen(Config::CONCORD, hedge.as_mut());
        let chosen = means(&intervals);
        let sum = |means: &[f64]| means.iter().sum::<f64>();
        let oracle: Vec<f64> = (0..chosen.len())
            .map(|at| fixed.iter().map(|means| means[at]).fold(f64::INFINITY, f64::min))
            .collect();
        let best_fixed = fixed.iter().map(|means| sum(means)).fold(f64::INFINITY, f64::min);
        let regret = sum(&chosen) / sum(&oracle) - 1.0;
        println!(
            "{phases:?}: regret {regret:.4}, of the best fixed {:.4}",
            sum(&chosen) / best_fixed
        );
        assert!(sum(&chosen) < best_fixed, "{phases:?} gains nothing: {switches:#?}");
        assert!(regret < MOST_REGRET, "{phases:?}: {regret}: {switches:#?}");
        for phase in 1..=phases.len() {
            let end = phase * 30 - 10..phase * 30;
            let (own, best) = (sum(&chosen[end.clone()]), sum(&oracle[end]));
            // A microsecond on the average is nothing.
            assert!(
                own <= best * (1.0 + MOST_REGRET_AT_END) + 10.0,
                "{phases:?}: {own} us at the end of phase {phase}, and {best} with the best: {switches:#?}"
            );
        }
    }

    #[test]
    fn a_chooser_follows_three_loads_and_gains() {
        follows([Load::NoReuse, Load::ReadOnlySmall, Load::NoReuse]);
        follows([Load::ReadOnlySmall, Load::PingPong, Load::NoReuse]);
        follows([Load::NoReuse, Load::PingPong, Load::ReadOnlySmall]);
    }
}
