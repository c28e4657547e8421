//! Agents that choose their application's configuration while its load changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidemark_agent::{Agent, Kind};
use tidemark_gateway::coherent::{Reading, Writing};
use tokio::task::JoinHandle;

use crate::nodes::{APP, Nodes, caller, wait_for, write};

/// From one agent to another one.
const HOP: Duration = Duration::from_millis(3);
/// A call to the origin.
const STORE: Duration = Duration::from_millis(6);

/// The operations of functions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// A few objects, read by all.
    Shared,
    /// Objects that nobody reads twice.
    NoReuse,
}

/// Functions on every node, each of which asks again when it has its answer.
struct Functions {
    load: Arc<Mutex<Load>>,
    has_ended: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Functions {
    fn start(nodes: &Nodes, load: Load) -> Self {
        let load = Arc::new(Mutex::new(load));
        let has_ended = Arc::new(AtomicBool::new(false));
        let numbers = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for place in 0..nodes.agents.len() {
            for _ in 0..3 {
                let (load, has_ended, numbers) = (Arc::clone(&load), Arc::clone(&has_ended), Arc::clone(&numbers));
                let objects = nodes.agent(place).objects();
                tasks.push(nodes.runtime.spawn(async move {
                    while !has_ended.load(Ordering::Relaxed) {
                        let number = numbers.fetch_add(1, Ordering::Relaxed);
                        let key = match *load.lock().unwrap() {
                            Load::Shared => format!("shared-{}", number % 8),
                            Load::NoReuse => format!("once-{number}"),
                        };
                        let read = objects.read(&caller(), &format!("b/{key}")).await;
                        assert!(
                            matches!(read, Reading::Object { .. } | Reading::Nothing),
                            "{key}: {read:?}"
                        );
                        tokio::task::yield_now().await;
                    }
                }));
            }
        }
        Self { load, has_ended, tasks }
    }

    fn change(&self, load: Load) {
        *self.load.lock().unwrap() = load;
    }

    fn end(self, nodes: &Nodes) {
        self.has_ended.store(true, Ordering::Relaxed);
        for task in self.tasks {
            nodes.runtime.block_on(task).unwrap();
        }
    }
}

fn change(nodes: &Nodes, change: impl Fn(&mut tidemark_agent::layout::AppRecord) + Send + Sync + 'static) {
    let agent: Arc<Agent> = Arc::clone(nodes.agent(0));
    let changed = nodes.agent(0).handle().spawn(async move {
        let change = |record: &mut tidemark_agent::layout::AppRecord| {
            change(record);
            Ok(())
        };
        agent.change_app(APP, change).await
    });
    nodes.runtime.block_on(changed).unwrap().unwrap();
}

fn coherence(nodes: &Nodes) -> String {
    nodes.shown(1)["config"]["coherence"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn keeps(nodes: &Nodes) -> bool {
    nodes.shown(1)["config"]["admission"] == "keep"
}

#[test]
fn agents_follow_a_load_whose_best_configuration_changes() {
    let nodes = Nodes::far_apart(3, HOP, STORE, Some(Kind::Hedge));
    for number in 0..8 {
        nodes.origin.put(&format!("shared-{number}"), "of all");
    }
    let functions = Functions::start(&nodes, Load::NoReuse);
    // A reader that asks a home first asks the origin afterwards all the same.
    wait_for("reads to go to the origin", || {
        coherence(&nodes) == "sequence-at-store" || !keeps(&nodes)
    });
    wait_for("a gain", || {
        tuned(&nodes)["gained_seconds"].as_f64().unwrap_or_default() > 0.0
    });
    functions.change(Load::Shared);
    let has_directory = || ["invalidate", "update"].contains(&&*coherence(&nodes)) && keeps(&nodes);
    wait_for("copies to be served", has_directory);
    // An operation takes 6 ms or more before, and hardly anything afterwards.
    wait_for("times before and after", || {
        let last = &tuned(&nodes)["switches"][0];
        last["to"]["admission"] == "keep" && last["after_us"].as_f64() < last["before_us"].as_f64()
    });
    functions.change(Load::NoReuse);
    wait_for("reads to go to the origin again", || !has_directory());
    // A pinned dimension stays, whatever would be better.
    change(&nodes, |record| {
        tidemark_agent::dimensions::pin(record, "coherence", "sequence-at-home").unwrap();
        tidemark_agent::dimensions::pin(record, "admission", "keep").unwrap();
    });
    wait_for("what is fixed", || {
        coherence(&nodes) == "sequence-at-home" && keeps(&nodes)
    });
    let operations = || tuned(&nodes)["operations"].as_u64().unwrap_or_default();
    let before = operations();
    wait_for("an interval with it", || operations() > before);
    assert!(coherence(&nodes) == "sequence-at-home" && keeps(&nodes));
    functions.end(&nodes);
    what_it_did(&nodes);
}

/// The record of choosing, as the second agent shows it.
fn tuned(nodes: &Nodes) -> serde_json::Value {
    nodes.shown(1)["tuned"].clone()
}

/// The report on it, everywhere the same.
fn what_it_did(nodes: &Nodes) {
    wait_for("every agent to show the same", || {
        nodes.shown(0)["tuned"] == nodes.shown(2)["tuned"]
    });
    for place in 0..3 {
        let choosing = nodes.shown(place)["choosing"].clone();
        let seconds = |name: &str| choosing[name].as_f64().unwrap();
        assert!(
            seconds("cpu_seconds_total") > 0.0 && seconds("agent_cpu_seconds_total") > seconds("cpu_seconds_total"),
            "{choosing}"
        );
    }
    let tuned = tuned(nodes);
    assert!(tuned["switches_total"].as_u64().unwrap() >= 3);
    let switches = tuned["switches"].as_array().unwrap();
    assert!(
        switches
            .iter()
            .all(|switch| !switch["reason"].as_str().unwrap().is_empty())
    );
    // The choosing agent has all of table 1 but the tolerance of faults, which is the promise.
    let loads = [
        "size_bytes",
        "sharers",
        "write_ratio",
        "changed_ratio",
        "write_run",
        "elements",
        "operations_per_second",
        "clusters",
        "instances_ratio",
        "functions_ratio",
        "size_spread",
        "popularity_spread",
        "small_reuse_ratio",
    ];
    let loads = loads.map(|name| format!("load_{name}{{app=\"shop\"}}"));
    let others = [
        "switches_total{app=\"shop\"}",
        "choosing_cpu_seconds_total",
        "agent_cpu_seconds_total",
    ]
    .map(str::to_owned);
    for name in loads.iter().chain(&others) {
        let of_all: Vec<_> = (0..3)
            .map(|place| tidemark_agent::show::metrics(nodes.agent(place)))
            .filter(|metrics| metrics.contains(&format!("tidemark_cachelet_{name}")))
            .collect();
        assert!(!of_all.is_empty(), "{name} is in no agent's metrics");
    }
}

#[test]
fn values_stay_right_while_configurations_are_chosen() {
    let nodes = Nodes::far_apart(3, Duration::from_millis(1), Duration::from_millis(2), Some(Kind::Hedge));
    let until = Instant::now() + Duration::from_secs(12);
    let mut turn = 0_usize;
    while Instant::now() < until || nodes.shown(0)["tuned"]["operations"].as_u64().unwrap_or_default() == 0 {
        turn += 1;
        // The writers take turns, then one writes for long.
        let writer = if (turn / 200).is_multiple_of(2) { turn % 3 } else { 0 };
        let value = format!("value {turn}");
        let key = format!("k{}", turn % 5);
        let objects = nodes.agent(writer).objects();
        let written = nodes.runtime.block_on(write(objects, &key, Some(&value)));
        assert!(matches!(written, Writing::Applied(_)), "turn {turn}: {written:?}");
        for reader in 0..3 {
            assert_eq!(
                nodes.read(reader, &key).unwrap().as_deref(),
                Some(&*value),
                "turn {turn} at {reader}"
            );
        }
    }
}
