//! Domains while something fails: a correct answer or an error, never a stale value.

use std::time::{Duration, Instant};

use hyper::Method;
use tidemark_gateway::coherent::{Reading, Writing};

use crate::nodes::{Nodes, is_applied, wait_for};
use crate::origin::Fault;

#[test]
fn an_origin_that_refuses_or_is_silent_leaves_no_doubt() {
    let nodes = Nodes::start(2);
    assert!(is_applied(&nodes.write(0, "k", "one")));
    nodes.origin.fail(Method::PUT, &[Fault::SlowDown, Fault::SlowDown]);
    assert!(is_applied(&nodes.write(1, "k", "two")), "it is tried again");
    assert_eq!(nodes.read(0, "k").unwrap().as_deref(), Some("two"));
    nodes.origin.fail(Method::PUT, &[Fault::DoneButFailed]);
    assert!(
        is_applied(&nodes.write(0, "k", "three")),
        "the origin says that it has it"
    );
    assert_eq!(nodes.read(1, "k").unwrap().as_deref(), Some("three"));
    nodes.origin.fail(Method::PUT, &[Fault::Forbidden]);
    assert_eq!(nodes.write(0, "k", "four"), Writing::Denied(403));
    assert_eq!(nodes.read(1, "k").unwrap().as_deref(), Some("three"));
    nodes.origin.fail(Method::GET, &[Fault::SlowDown]);
    nodes.origin.put("other", "there");
    assert_eq!(nodes.read(1, "other").unwrap().as_deref(), Some("there"));
    nodes
        .origin
        .fail(Method::GET, &[Fault::Forbidden, Fault::Forbidden, Fault::Forbidden]);
    assert_eq!(nodes.read(1, "secret"), Err(Reading::Denied(403)));
}

#[test]
fn a_write_without_an_answer_is_found_or_not_and_the_same_for_all() {
    let nodes = Nodes::start(2);
    assert!(is_applied(&nodes.write(0, "k", "one")));
    // It is applied long after the agent has given the call up.
    nodes.origin.fail(Method::PUT, &[Fault::Silent(Duration::from_secs(9))]);
    let written = nodes.write(0, "k", "two");
    assert!(
        !matches!(written, Writing::Unavailable | Writing::Denied(_)),
        "{written:?}"
    );
    let end = Instant::now() + Duration::from_secs(12);
    while Instant::now() < end {
        let (one, other) = (nodes.read(0, "k"), nodes.read(1, "k"));
        // Once the new value was seen, the old one is never seen again.
        if one == Ok(Some("two".into())) {
            assert_ne!(other, Ok(Some("one".into())));
        }
    }
    assert_eq!(nodes.read(0, "k").unwrap(), nodes.origin.get("k"));
    assert_eq!(nodes.read(1, "k").unwrap(), nodes.origin.get("k"));
}

#[test]
fn without_etcd_reads_come_from_the_origin_and_writes_fail() {
    let mut nodes = Nodes::start(2);
    assert!(is_applied(&nodes.write(0, "k", "one")));
    assert_eq!(nodes.read(1, "k").unwrap().as_deref(), Some("one"));
    nodes.etcd.kill();
    wait_for("the lease to end", || {
        nodes.shown(0)["cachelets"][0]["is_leased"] == false
    });
    wait_for("the lease to end", || {
        nodes.shown(1)["cachelets"][0]["is_leased"] == false
    });
    // Somebody else may write now: nobody is served a copy any more.
    nodes.origin.put("k", "elsewhere");
    for reader in 0..2 {
        assert_eq!(nodes.read(reader, "k").unwrap().as_deref(), Some("elsewhere"));
    }
    assert_eq!(nodes.write(0, "k", "two"), Writing::Unavailable);
    nodes.etcd.resume();
    nodes.settle(2);
    assert!(is_applied(&nodes.write(0, "k", "three")));
    assert_eq!(nodes.read(1, "k").unwrap().as_deref(), Some("three"));
}

#[test]
fn a_short_silence_of_etcd_is_not_noticed() {
    let nodes = Nodes::start(2);
    assert!(is_applied(&nodes.write(0, "k", "one")));
    nodes.etcd.pause(true);
    let end = Instant::now() + Duration::from_millis(1_500);
    let mut turn = 0;
    while Instant::now() < end {
        turn += 1;
        let value = format!("{turn}");
        let written = nodes.write(turn % 2, "k", &value);
        if is_applied(&written) {
            assert_eq!(nodes.read(0, "k").unwrap(), Some(value));
        }
    }
    nodes.etcd.pause(false);
    nodes.settle(2);
    assert!(turn > 5, "the domain stood still: {turn} writes");
}

#[test]
fn a_silence_of_etcd_that_outlasts_the_lease_is_overcome() {
    let nodes = Nodes::start(2);
    assert!(is_applied(&nodes.write(0, "k", "one")));
    let incarnations = || [0, 1].map(|place| nodes.shown(place)["cachelets"][0]["id"].clone());
    let before = incarnations();
    nodes.etcd.pause(true);
    let paused = Instant::now();
    for place in 0..2 {
        wait_for("the lease to end", || {
            nodes.shown(place)["cachelets"][0]["is_leased"] == false
        });
    }
    // Nobody renews a lease while etcd stands still: by its own clock, too, each has ended then.
    wait_for("the leases to end at etcd", || {
        paused.elapsed() > Duration::from_secs(tidemark_agent::decider::LEASE_SECONDS)
    });
    nodes.etcd.pause(false);
    // Only the new incarnations are members: one that is over would never drain.
    nodes.settle(2);
    wait_for("new incarnations", || {
        incarnations()
            .iter()
            .zip(&before)
            .all(|(after, before)| after != before)
    });
    nodes.settle(2);
    assert!(is_applied(&nodes.write(1, "k", "two")));
    assert_eq!(nodes.read(0, "k").unwrap().as_deref(), Some("two"));
}
