//! Domains while nothing fails: newest values everywhere, joining and leaving, every configuration, pins.

use hyper::Method;
use tidemark_cachelet::config::{Coherence, Config, Promise, Scope};

use crate::nodes::{APP, Nodes, is_applied, wait_for};

#[test]
fn a_read_anywhere_finds_the_newest_value() {
    let nodes = Nodes::start(3);
    nodes.origin.put("old", "from before");
    assert_eq!(nodes.read(1, "old").unwrap().as_deref(), Some("from before"));
    assert_eq!(nodes.read(1, "none").unwrap(), None);
    for turn in 0..60 {
        let value = format!("value {turn}");
        let key = ["a", "b"][turn % 2];
        assert!(is_applied(&nodes.write(turn % 3, key, &value)));
        for reader in [0, 1, 2, 0] {
            assert_eq!(
                nodes.read(reader, key).unwrap().as_deref(),
                Some(&*value),
                "turn {turn} at {reader}"
            );
        }
        assert_eq!(
            nodes.origin.get(key).as_deref(),
            Some(&*value),
            "it is acknowledged when the origin has it"
        );
    }
    assert!(is_applied(&nodes.delete(2, "a")));
    for reader in 0..3 {
        assert_eq!(nodes.read(reader, "a").unwrap(), None);
    }
    // Copies are served without asking anybody.
    let before = nodes.origin.requests(&Method::GET);
    for _ in 0..50 {
        nodes.read(0, "b").unwrap();
    }
    assert_eq!(nodes.origin.requests(&Method::GET), before);
}

#[test]
fn agents_come_and_go() {
    let mut nodes = Nodes::start(1);
    assert!(is_applied(&nodes.write(0, "k", "one")));
    let other = nodes.add();
    nodes.settle(2);
    assert_eq!(nodes.read(other, "k").unwrap().as_deref(), Some("one"));
    assert!(is_applied(&nodes.write(other, "k", "two")));
    nodes.leave(0);
    nodes.settle(1);
    let shown = nodes.shown(other);
    assert_eq!(
        shown["suspicions"], 0,
        "whoever leaves in order is not suspected of anything"
    );
    assert_eq!(nodes.read(other, "k").unwrap().as_deref(), Some("two"));
}

/// Every configuration gives the same values. Scope, admission and the like are covered by the simulator; here are
/// those that differ in their messages.
#[test]
fn every_configuration_gives_the_same_values() {
    let nodes = Nodes::start(3);
    let configs = Config::all(Promise::default());
    let is_tried =
        |config: &&Config| config.scope == Scope::Application && config.replacement == Config::CONCORD.replacement;
    for (turn, config) in configs.iter().filter(is_tried).enumerate() {
        let agent = std::sync::Arc::clone(nodes.agent(0));
        let wanted = *config;
        let changed = nodes.agent(0).handle().spawn(async move {
            agent
                .change_app(APP, |record| {
                    record.config = wanted;
                    Ok(())
                })
                .await
        });
        nodes.runtime.block_on(changed).unwrap().unwrap();
        let expected = serde_json::to_value(config).unwrap();
        wait_for("the configuration", || {
            (0..3).all(|place| nodes.shown(place)["config"] == expected)
        });
        nodes.settle(3);
        for round in 0..3 {
            let value = format!("{turn} {round}");
            assert!(is_applied(&nodes.write(round, "k", &value)), "{config:?}");
            for reader in [0, 1, 2] {
                assert_eq!(nodes.read(reader, "k").unwrap().as_deref(), Some(&*value), "{config:?}");
            }
        }
    }
}

#[test]
fn writers_outside_of_the_domain_are_seen_where_copies_are_checked_at_the_store() {
    let nodes = Nodes::start(2);
    let agent = std::sync::Arc::clone(nodes.agent(0));
    let changed = nodes.agent(0).handle().spawn(async move {
        agent
            .change_app(APP, |record| {
                record.config.coherence = Coherence::SequenceAtStore;
                Ok(())
            })
            .await
    });
    nodes.runtime.block_on(changed).unwrap().unwrap();
    wait_for("the configuration", || {
        nodes.shown(1)["config"]["coherence"] == "sequence-at-store"
    });
    nodes.settle(2);
    for value in ["one", "two", "three"] {
        nodes.origin.put("k", value);
        assert_eq!(nodes.read(0, "k").unwrap().as_deref(), Some(value));
        assert_eq!(nodes.read(1, "k").unwrap().as_deref(), Some(value));
    }
}
