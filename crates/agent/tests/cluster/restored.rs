//! Epochs follow etcd's revision, also where etcd is restored from a backup and the revision goes back.

use std::collections::BTreeSet;

use tidemark_agent::etcd::Etcd;
use tidemark_agent::layout::document_key;

use crate::nodes::{APP, Nodes, is_applied, wait_for};

/// The epoch in force at a node.
fn epoch(nodes: &Nodes, place: usize) -> u64 {
    nodes.shown(place)["epoch"].as_u64().unwrap()
}

/// etcd's revision, and that of the last write of the domain's document.
fn revisions(nodes: &Nodes) -> (u64, u64) {
    let etcd = Etcd::new(&nodes.etcd.address()).unwrap();
    let (header, pairs) = nodes.runtime.block_on(etcd.range(&document_key(APP))).unwrap();
    (header.revision, pairs[0].revision)
}

#[test]
fn epochs_are_above_the_revision_that_they_were_decided_at() {
    let mut nodes = Nodes::start(1);
    let first = epoch(&nodes, 0);
    assert!(first > 1, "{first} is no revision of etcd");
    let (_, written) = revisions(&nodes);
    assert!(first <= written, "{first}, written at {written}");
    // The revision moves with every key; what comes next is above it.
    let etcd = Etcd::new(&nodes.etcd.address()).unwrap();
    for number in 0..50 {
        let value = number.to_string();
        nodes.runtime.block_on(etcd.put("/tidemark-else", &value, 0)).unwrap();
    }
    let (now, _) = revisions(&nodes);
    nodes.add();
    nodes.settle(2);
    let second = epoch(&nodes, 0);
    let (_, written) = revisions(&nodes);
    assert!(first + 40 < second, "{first}, then {second}; etcd was at {now}");
    assert!(second <= written, "{second}, written at {written}");
}

#[test]
fn a_restored_etcd_gives_no_epoch_twice_and_nothing_stale() {
    let mut nodes = Nodes::start(2);
    assert!(is_applied(&nodes.write(0, "k", "before")));
    nodes.etcd.back_up();
    nodes.settle(2);
    // The backup does not know this one, and none of the epochs since.
    let third = nodes.add();
    nodes.settle(3);
    assert!(is_applied(&nodes.write(third, "k", "since")));
    for place in 0..3 {
        assert_eq!(nodes.read(place, "k").unwrap().as_deref(), Some("since"));
    }
    let before = epoch(&nodes, third);
    nodes.etcd.restore();
    // This one has never seen the etcd of before.
    let fresh = nodes.add();
    // Values that a read may return: the last that was acknowledged, and later ones of which nobody knows.
    let mut allowed = BTreeSet::from(["since".to_owned()]);
    let mut turn = 0;
    let is_over = |nodes: &Nodes| (0..4).all(|place| epoch(nodes, place) > before) && nodes.is_settled(4);
    wait_for("all to be members of a new view", || {
        turn += 1;
        // A write may wait for a home as long as one is patient: most turns only read.
        if turn % 8 == 0 {
            let value = format!("turn {turn}");
            allowed.insert(value.clone());
            if is_applied(&nodes.write([0, third, fresh][turn / 8 % 3], "k", &value)) {
                allowed = BTreeSet::from([value]);
            }
        }
        for place in 0..4 {
            if let Ok(read) = nodes.read(place, "k") {
                let read = read.unwrap();
                assert!(allowed.contains(&read), "{read} at {place}, not {allowed:?}");
            }
        }
        is_over(&nodes)
    });
    assert!(is_applied(&nodes.write(1, "k", "after")));
    for place in 0..4 {
        assert_eq!(nodes.read(place, "k").unwrap().as_deref(), Some("after"));
    }
}
