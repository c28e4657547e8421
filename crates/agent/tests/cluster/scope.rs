//! Scope and replacement in running agents: which instances share a cachelet, and that no choice of both changes a value.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use tidemark_agent::instances::{Happening, LifeEvent};
use tidemark_cachelet::config::{Config, Replacement, Scope};
use tidemark_gateway::coherent::{Caller, Reading};

use crate::nodes::{APP, Nodes, is_applied, text_of, wait_for};

/// Instances of node 0: two of one function, one of another one.
const INSTANCES: [(&str, &str, &str); 3] = [
    ("a", "pay", "127.0.0.2"),
    ("b", "pay", "127.0.0.3"),
    ("c", "list", "127.0.0.4"),
];

fn nodes_with_instances() -> Nodes {
    let nodes = Nodes::start(2);
    for (instance, function, address) in INSTANCES {
        let event = LifeEvent {
            event: Happening::Created,
            instance: instance.into(),
            app: Some(APP.into()),
            function: Some(function.into()),
            address: Some(address.parse().unwrap()),
            cgroup: Some(format!("pods/{instance}")),
            memory_limit_bytes: None,
        };
        // The budget of each holds a few values, so that copies have to go.
        let folder = nodes.cgroups.path().join("pods").join(instance);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("memory.max"), (64 << 20).to_string()).unwrap();
        std::fs::write(folder.join("memory.current"), (59 << 20).to_string()).unwrap();
        let agent = Arc::clone(nodes.agent(0));
        let taken = nodes.agent(0).handle().spawn(async move { agent.take(event).await });
        nodes.runtime.block_on(taken).unwrap().unwrap();
    }
    nodes
}

/// Waits until the domain has a configuration, and node 0 has so many cachelets that are members.
fn configure(nodes: &Nodes, config: Config, cachelets: usize) {
    let agent = Arc::clone(nodes.agent(0));
    let changed = nodes.agent(0).handle().spawn(async move {
        let change = |record: &mut tidemark_agent::layout::AppRecord| {
            record.config = config;
            Ok(())
        };
        agent.change_app(APP, change).await
    });
    nodes.runtime.block_on(changed).unwrap().unwrap();
    let expected = serde_json::to_value(config).unwrap();
    wait_for("the configuration", || {
        (0..2).all(|place| nodes.shown(place)["config"] == expected)
    });
    nodes.settle(cachelets + 1);
    let labels = labels(nodes);
    assert_eq!(labels.len(), cachelets, "{config:?}: {labels:?}");
}

fn labels(nodes: &Nodes) -> BTreeSet<String> {
    let shown = nodes.shown(0);
    let cachelets = shown["cachelets"].as_array().unwrap();
    let label = |cachelet: &serde_json::Value| cachelet["label"].as_str().unwrap().to_owned();
    cachelets.iter().map(label).collect()
}

/// An instance of node 0 reads.
fn reads(nodes: &Nodes, address: &str, key: &str) -> Option<String> {
    let objects = nodes.agent(0).objects();
    let caller = Caller {
        tenant: APP.into(),
        address: Some(address.parse::<IpAddr>().unwrap()),
    };
    match nodes.runtime.block_on(objects.read(&caller, &format!("b/{key}"))) {
        Reading::Object { content, .. } => Some(text_of(&content)),
        Reading::Nothing => None,
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn instances_share_copies_as_the_scope_says() {
    let nodes = nodes_with_instances();
    // A cachelet without a copy gets the value from the origin; one with a copy only validates it there.
    for (scope, cachelets, expected) in [
        (Scope::Application, 1, [1, 0, 0]),
        (Scope::Function, 2, [1, 0, 1]),
        (Scope::Instance, 3, [1, 1, 1]),
    ] {
        let config = Config {
            scope,
            ..Config::BASELINE_STORE
        };
        configure(&nodes, config, cachelets);
        let key = format!("{scope:?}");
        nodes.origin.put(&key, "value");
        let shown = || nodes.shown(0)["counts"]["reads"]["store"].as_u64().unwrap();
        let read = INSTANCES.map(|(_, _, address)| {
            let before = shown();
            assert_eq!(reads(&nodes, address, &key).as_deref(), Some("value"));
            shown() - before
        });
        assert_eq!(read, expected, "{scope:?}: reads that brought the value, by instance");
    }
}

#[test]
fn every_scope_and_replacement_gives_the_same_values() {
    let nodes = nodes_with_instances();
    for (scope, cachelets) in [(Scope::Application, 1), (Scope::Function, 2), (Scope::Instance, 3)] {
        for replacement in Replacement::ALL {
            let config = Config {
                scope,
                replacement,
                ..Config::CONCORD
            };
            configure(&nodes, config, cachelets);
            // Each instance gives 1 MiB: these values do not fit there together.
            let long = "x".repeat(200_000);
            for round in 0..8 {
                let (key, value) = (format!("k{round}"), format!("{config:?} {round} {long}"));
                assert!(is_applied(&nodes.write(round % 2, &key, &value)), "{config:?}");
                for (_, _, address) in INSTANCES {
                    assert_eq!(reads(&nodes, address, &key).as_ref(), Some(&value), "{config:?}");
                }
                assert_eq!(nodes.read(1, &key).unwrap().as_ref(), Some(&value), "{config:?}");
            }
            for round in 0..8 {
                let read = reads(&nodes, INSTANCES[round % 3].2, &format!("k{round}"));
                assert!(read.is_some_and(|read| read.starts_with(&format!("{config:?} {round} "))));
            }
        }
    }
}
