//! UniCache's ten single loads (AIOps'24, figure 3), each under the configurations that it tells apart, in the simulator of
//! `tidemark-cachelet`.

use tidemark_cachelet::config::replacement::Policy as _;
use tidemark_cachelet::config::{Coherence, Config, Domain, Level, Promise, Replacement};
use tidemark_cachelet::message::Source;
use tidemark_cachelet::sim::{Costs, Ended, Rng, World};
use tidemark_cachelet::types::{Key, Value};

use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome};
use crate::Error;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "unicache-fig3",
    title: "Cachelets: which side wins in UniCache's ten loads (Fig. 3)",
    minutes: 1,
    about: "\
Each load of UniCache's figure 3 under the configurations that it compares, in the simulator of `tidemark-cachelet`, on the product's
protocol code: Concord's times (2 ms between nodes and back, 30 ms to the store), 10 Gbit/s between nodes and a tenth of that to the store.
To every operation 0.2 ms are added for what it takes on its own node, which the simulator leaves out, and half a microsecond where a
use moves the copy in the order of replacement. Writes go through. The paper says of its loads what stands in the table, and no more; the rest is
ours:

| | load | nodes | measured |
|---|---|---|---|
| Exp-1 | 16 values of 32 KB, only read | 8 | all |
| Exp-2 | a write of 4 KB, then a read by each of three others | 4 | reads |
| Exp-3 | three writes of 4 KB by one node, then a read by another one | 4 | all |
| Exp-4 | 4 values of 8 MB, 10 % writes, all nodes at once | 32 | all |
| Exp-5 | 10,000 values of 100 B that all fit | 1 | all |
| Exp-6 | 10 values of 256 KB, three of them hot for a while; six fit | 1 | all |
| Exp-7 | 1 MB five times, then the next three of ten values of 128 KB; 1.25 MB fit | 1 | all |
| Exp-8 | ten values of 128 KB, and one of 1 MB once in 50 reads; 1.5 MB fit | 1 | all |
| Exp-9 | 16 values of 512 KB, 10 % writes, five nodes at once, one of each of five clusters | 25 | all |
| Exp-10 | the same, all nodes at once | 32 | all |
| Exp-10, small | the same with values of 32 KB | 32 | all |

*update* is ours, of two phases; *one phase* is the paper's, which gives `eventual` only. *at the store* are the paper's sequence numbers, *at
home* those of Faa$T. Deterministic by seed.

*ours, one phase* is the paper's pair with its own update in place of ours.

Where ours is far from the paper's: a write through takes 30 ms whatever is sent between nodes, which hides most of Exp-3; one phase waits for
nobody, so that it wins there. A remote hit takes 2 ms here (Exp-2), and a copy that moves costs half a microsecond of 200 (Exp-5). In
Exp-10 the paper's leaders relieve the home's network. With one phase they win here too, by little, since 10 Gbit/s carry 31 values of 512 KB in
13 ms. With two phases each write passes the leaders twice, and flat wins.",
    run,
};

/// The time of an operation on its own node: the limit of a local hit.
const LOCAL_US: u64 = 200;
/// Moving a copy in the order of replacement, as prices have it.
const TOUCH_US: f64 = 0.5;
/// How finely nodes that work at once are looked at.
const SLICE_US: u64 = 100;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The order in which operations wait for each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// Each operation for the one before.
    OneByOne,
    /// Each node for its own operations.
    AtOnce,
}

struct Operation {
    node: u64,
    key: u64,
    is_write: bool,
}

/// The operation of a number; of a node's own number where nodes work at once.
type Next = fn(number: u64, nodes: u64, rng: &mut Rng) -> Operation;

/// One load of the figure.
struct Load {
    name: &'static str,
    /// The cluster of each node.
    clusters: Vec<u32>,
    /// Nodes that do anything, the first ones.
    sharers: u64,
    budget_bytes: u64,
    /// The sizes of the values, by their keys.
    sizes: Vec<u64>,
    /// Operations, a quarter of which is not measured.
    operations: u64,
    turns: Turns,
    next: Next,
    only_reads: bool,
    arms: Vec<Arm>,
    /// The paper's winner and loser, and how many times as long the loser takes.
    paper: (&'static str, &'static str, f64),
    /// The same pair with the paper's own update.
    one_phase: Option<(&'static str, &'static str)>,
}

/// A configuration under its name.
#[derive(Clone, Copy)]
struct Arm {
    name: &'static str,
    config: Config,
}

fn coherence(name: &'static str, coherence: Coherence) -> Arm {
    let config = Config {
        coherence,
        ..Config::CONCORD
    };
    Arm { name, config }
}

fn protocols() -> Vec<Arm> {
    vec![
        coherence("invalidate", Coherence::Invalidate),
        coherence("update", Coherence::Update),
        coherence("one phase", Coherence::UpdateOnePhase),
        coherence("at home", Coherence::SequenceAtHome),
        coherence("at the store", Coherence::SequenceAtStore),
    ]
}

fn replacements() -> Vec<Arm> {
    let names = ["FIFO", "LRU", "priority-LRU", "S3-FIFO"];
    let arm = |(name, replacement)| Arm {
        name,
        config: Config {
            replacement,
            ..Config::CONCORD
        },
    };
    names.into_iter().zip(Replacement::ALL).map(arm).collect()
}

fn domains() -> Vec<Arm> {
    let named = [
        ("flat, invalidate", Domain::Flat, Coherence::Invalidate),
        ("hierarchical, invalidate", Domain::Hierarchical, Coherence::Invalidate),
        ("flat, update", Domain::Flat, Coherence::Update),
        ("hierarchical, update", Domain::Hierarchical, Coherence::Update),
        ("flat, one phase", Domain::Flat, Coherence::UpdateOnePhase),
        (
            "hierarchical, one phase",
            Domain::Hierarchical,
            Coherence::UpdateOnePhase,
        ),
    ];
    let arm = |(name, domain, coherence)| Arm {
        name,
        config: Config {
            domain,
            coherence,
            ..Config::CONCORD
        },
    };
    named.into_iter().map(arm).collect()
}

/// Any node and any of so many values.
fn random(nodes: u64, keys: u64, write_percent: u64, rng: &mut Rng) -> Operation {
    Operation {
        node: rng.below(nodes),
        key: rng.below(keys),
        is_write: rng.below(100) < write_percent,
    }
}

fn read_here(key: u64) -> Operation {
    Operation {
        node: 0,
        key,
        is_write: false,
    }
}

/// The loads of the first principle.
fn shared_loads() -> Vec<Load> {
    let load = |name, nodes: u32, sizes, next, paper| Load {
        name,
        clusters: vec![0; nodes as usize],
        sharers: nodes.into(),
        budget_bytes: 64 * MIB,
        sizes,
        operations: 4_000,
        turns: Turns::OneByOne,
        next,
        only_reads: false,
        arms: protocols(),
        paper,
        one_phase: None,
    };
    let first: Next = |_, nodes, rng| random(nodes, 16, 0, rng);
    let second: Next = |number, _, _| Operation {
        node: number % 4,
        key: number / 4 % 8,
        is_write: number % 4 == 0,
    };
    let third: Next = |number, _, _| Operation {
        node: if number % 4 < 3 { 0 } else { 1 + number / 32 % 3 },
        key: number / 4 % 8,
        is_write: number % 4 < 3,
    };
    let fourth: Next = |_, nodes, rng| random(nodes, 4, 10, rng);
    vec![
        load(
            "Exp-1",
            8,
            vec![32 * KIB; 16],
            first,
            ("invalidate", "at the store", 78.9),
        ),
        Load {
            only_reads: true,
            one_phase: Some(("one phase", "invalidate")),
            ..load("Exp-2", 4, vec![4 * KIB; 8], second, ("update", "invalidate", 34.3))
        },
        Load {
            one_phase: Some(("invalidate", "one phase")),
            ..load("Exp-3", 4, vec![4 * KIB; 8], third, ("invalidate", "update", 2.3))
        },
        Load {
            turns: Turns::AtOnce,
            operations: 60,
            ..load(
                "Exp-4",
                32,
                vec![8 * MIB; 4],
                fourth,
                ("at the store", "invalidate", 4.1),
            )
        },
    ]
}

/// The loads of the second principle.
fn local_loads() -> Vec<Load> {
    let load = |name, budget_bytes, sizes, next, paper| Load {
        name,
        clusters: vec![0],
        sharers: 1,
        budget_bytes,
        sizes,
        operations: 8_000,
        turns: Turns::OneByOne,
        next,
        only_reads: false,
        arms: replacements(),
        paper,
        one_phase: None,
    };
    let with_large = || [vec![128 * KIB; 10], vec![MIB]].concat();
    let fifth: Next = |number, _, rng| read_here(if number < 10_000 { number } else { rng.below(10_000) });
    let sixth: Next = |number, _, rng| {
        let is_hot = rng.below(100) < 80;
        read_here(if is_hot {
            (number / 200 + rng.below(3)) % 10
        } else {
            rng.below(10)
        })
    };
    let seventh: Next = |number, _, _| {
        read_here(if number % 8 < 5 {
            10
        } else {
            (number / 8 * 3 + number % 8 - 5) % 10
        })
    };
    let eighth: Next = |number, _, rng| read_here(if number % 50 == 0 { 10 } else { rng.below(10) });
    vec![
        Load {
            operations: 40_000,
            ..load("Exp-5", 8 * MIB, vec![100; 10_000], fifth, ("FIFO", "LRU", 1.3))
        },
        load("Exp-6", 1_600 * KIB, vec![256 * KIB; 10], sixth, ("LRU", "FIFO", 1.4)),
        load(
            "Exp-7",
            1_290 * KIB,
            with_large(),
            seventh,
            ("priority-LRU", "LRU", 1.8),
        ),
        load("Exp-8", 1_540 * KIB, with_large(), eighth, ("LRU", "priority-LRU", 1.3)),
    ]
}

/// The loads of the third principle.
fn clustered_loads() -> Vec<Load> {
    let next: Next = |_, nodes, rng| random(nodes, 16, 10, rng);
    let load = |name, (nodes, sharers): (u32, u64), paper| Load {
        name,
        clusters: (0..nodes).map(|node| node % 5).collect(),
        sharers,
        budget_bytes: 64 * MIB,
        sizes: vec![512 * KIB; 16],
        operations: 400,
        turns: Turns::AtOnce,
        next,
        only_reads: false,
        arms: domains(),
        paper,
        one_phase: Some(("hierarchical, one phase", "flat, one phase")),
    };
    vec![
        Load {
            one_phase: None,
            ..load("Exp-9", (25, 5), ("flat, invalidate", "hierarchical, invalidate", 1.6))
        },
        load("Exp-10", (32, 32), ("hierarchical, update", "flat, update", 1.3)),
        Load {
            sizes: vec![32 * KIB; 16],
            ..load("Exp-10, small", (32, 32), ("hierarchical, update", "flat, update", 1.3))
        },
    ]
}

/// The mean time of an operation under a configuration, in microseconds.
fn pass(load: &Load, config: Config, seed: u64, operations: u64) -> f64 {
    let level = if config.coherence == Coherence::UpdateOnePhase {
        Level::Eventual
    } else {
        Level::default()
    };
    let promise = Promise {
        level,
        ..Promise::default()
    };
    let costs = Costs::default();
    let mut world = World::new(seed, &load.clusters, (config, promise), load.budget_bytes, costs);
    world.settle();
    for (number, size_bytes) in (0..).zip(&load.sizes) {
        world.put_object(&key(number), Value::simulated(number + 1, *size_bytes));
    }
    let mut running = Running {
        world,
        load,
        rng: Rng::new(seed ^ 0xf193),
        writes: 1_000_000,
        ended: Vec::new(),
    };
    match load.turns {
        Turns::OneByOne => running.one_by_one(operations),
        Turns::AtOnce => running.at_once(operations),
    }
    let skipped = running.ended.len() / 4;
    let counted = running.ended[skipped..]
        .iter()
        .filter(|one| !(load.only_reads && one.is_write));
    let (mut count, mut sum_us) = (0.0, 0.0);
    for one in counted {
        let is_moved = config.replacement.moves_on_use() && one.source == Some(Source::Copy);
        count += 1.0;
        sum_us += (one.took_us + LOCAL_US) as f64 + if is_moved { TOUCH_US } else { 0.0 };
    }
    sum_us / f64::max(count, 1.0)
}

fn key(number: u64) -> Key {
    Key::new(&format!("k{number}"))
}

struct Running<'a> {
    world: World,
    load: &'a Load,
    rng: Rng,
    writes: u64,
    ended: Vec<Ended>,
}

impl Running<'_> {
    fn begin(&mut self, node: usize, operation: &Operation) {
        let key_name = key(operation.key);
        if operation.is_write {
            self.writes += 1;
            let size_bytes = self.load.sizes[operation.key as usize];
            self.world
                .write(node, &key_name, Value::simulated(self.writes, size_bytes));
        } else {
            self.world.read(node, &key_name);
        }
    }

    fn one_by_one(&mut self, operations: u64) {
        let nodes = self.load.sharers;
        for number in 0..operations {
            let operation = (self.load.next)(number, nodes, &mut self.rng);
            self.begin(operation.node as usize, &operation);
            self.world.run_to_next();
            self.ended.extend(self.world.take_finished());
            self.world.forget_records();
            self.world.run_for(LOCAL_US);
        }
    }

    /// Each node begins its next operation when it has the answer to the one before.
    fn at_once(&mut self, operations: u64) {
        let nodes = self.load.sharers as usize;
        let mut done = vec![0; nodes];
        let mut ready_us: Vec<Option<u64>> = vec![Some(self.world.now_us()); nodes];
        while done.iter().any(|count| *count < operations) {
            let now_us = self.world.now_us();
            for (node, ready) in ready_us.iter_mut().enumerate() {
                if done[node] < operations && ready.is_some_and(|ready_us| ready_us <= now_us) {
                    *ready = None;
                    done[node] += 1;
                    let operation = (self.load.next)(done[node], nodes as u64, &mut self.rng);
                    // The node is this one, whichever was drawn.
                    self.begin(node, &operation);
                }
            }
            self.world.run_for(SLICE_US);
            for one in self.world.take_finished() {
                ready_us[one.node] = Some(self.world.now_us() + LOCAL_US);
                self.ended.push(one);
            }
        }
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let all = [shared_loads(), local_loads(), clustered_loads()];
    let loads: Vec<Load> = all.into_iter().flatten().collect();
    let (mut series, mut targets) = (Vec::new(), Vec::new());
    for load in &loads {
        context.tell(load.name);
        let operations = if context.quick {
            load.operations / 4
        } else {
            load.operations
        };
        let passed: Vec<(&str, f64)> = load
            .arms
            .iter()
            .map(|arm| (arm.name, pass(load, arm.config, context.seed, operations)))
            .collect();
        for (name, mean_us) in &passed {
            let point = Point::single(load.name, *mean_us);
            add_point(
                &mut series,
                (name, "mean time of an operation", "us"),
                ("", "load"),
                point,
            );
        }
        let (winner, loser, times) = load.paper;
        let of = |wanted: &str| {
            passed
                .iter()
                .find(|(name, _)| *name == wanted)
                .map_or(f64::NAN, |(_, us)| *us)
        };
        let ours = of(loser) / of(winner);
        let with_one_phase = load
            .one_phase
            .map(|(winner, loser)| ("ours, one phase", of(loser) / of(winner)));
        let both = [("ours", ours), ("the paper", times)];
        for (name, value) in both.into_iter().chain(with_one_phase) {
            let point = Point::single(load.name, value);
            add_point(&mut series, (name, "loser by winner", "times"), ("", "load"), point);
        }
        targets.push(Target::at_least(
            format!("{}: {loser} by {winner}", load.name),
            ours,
            1.0,
        ));
    }
    let shown: Vec<&Series> = series
        .iter()
        .filter(|series| series.measure == "loser by winner")
        .collect();
    let panel = Panel::of_series("How many times as long the paper's loser takes", Marks::Bars, &shown);
    Ok(Outcome {
        scale: format!("{} loads", loads.len()),
        targets,
        chart: Chart {
            title: EXPERIMENT.title.into(),
            panels: vec![panel],
        },
        series,
        others_cores: others.cores(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figure for a load and a name of an arm.
    fn mean_us(loads: &[Load], name: &str, arm: &str) -> f64 {
        let load = loads.iter().find(|load| load.name == name).unwrap();
        let config = load.arms.iter().find(|known| known.name == arm).unwrap().config;
        pass(load, config, 1, load.operations)
    }

    #[test]
    fn small_values_want_directories_and_runs_of_writes_invalidation() {
        let loads = shared_loads();
        let (invalidate, at_store) = (
            mean_us(&loads, "Exp-1", "invalidate"),
            mean_us(&loads, "Exp-1", "at the store"),
        );
        // Local hits against round trips to the store.
        assert!(invalidate < 2.0 * LOCAL_US as f64, "{invalidate}");
        assert!(at_store > 30_000.0, "{at_store}");
        assert!(mean_us(&loads, "Exp-2", "update") < mean_us(&loads, "Exp-2", "invalidate"));
        assert!(mean_us(&loads, "Exp-3", "invalidate") < mean_us(&loads, "Exp-3", "update"));
    }

    #[test]
    fn the_same_seed_gives_the_same() {
        let loads = clustered_loads();
        let once = mean_us(&loads, "Exp-9", "flat, update");
        assert_eq!(once, mean_us(&loads, "Exp-9", "flat, update"));
    }
}
