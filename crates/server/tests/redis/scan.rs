//! SCAN and KEYS over keys that come and go.

use std::collections::BTreeSet;

use crate::harness::{Client, Harness, array, wait_until};

/// Sends commands in one piece and returns the replies.
fn pipeline(client: &mut Client, commands: &[Vec<String>]) -> Vec<Vec<u8>> {
    client.send(&commands.iter().flat_map(|words| array(words)).collect::<Vec<u8>>());
    commands.iter().map(|_| client.reply()).collect()
}

/// `SET name-n` for each number, or `DEL`.
fn each(command: &str, name: &str, numbers: impl Iterator<Item = usize>) -> Vec<Vec<String>> {
    let words = |n| match command {
        "SET" => vec!["SET".to_owned(), format!("{name}-{n}"), "v".to_owned()],
        other => vec![other.to_owned(), format!("{name}-{n}")],
    };
    numbers.map(words).collect()
}

/// One call of SCAN: the next cursor and the keys.
fn scan(client: &mut Client, cursor: &str, options: &str) -> (String, Vec<String>) {
    let reply = client.ask(format!("SCAN {cursor} {options}").trim_end());
    let lines: Vec<&str> = reply.split("\r\n").collect();
    assert_eq!(lines[0], "*2", "{reply}");
    // Clients keep cursors in floating-point and in signed numbers.
    assert!(lines[2].parse::<u64>().unwrap() < 1 << 53, "{reply}");
    let keys = lines[4..].iter().skip(1).step_by(2).filter(|key| !key.is_empty());
    (lines[2].to_owned(), keys.map(|key| (*key).to_owned()).collect())
}

/// All calls of SCAN until the cursor is zero again; `between` is called between two of them. The keys, and how many calls.
fn scan_all(client: &mut Client, options: &str, mut between: impl FnMut(usize)) -> (Vec<String>, usize) {
    let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
    for call in 1.. {
        let (next, keys) = scan(client, &cursor, options);
        all.extend(keys);
        if next == "0" {
            return (all, call);
        }
        cursor = next;
        between(call);
    }
    unreachable!()
}

fn set_of(keys: Vec<String>) -> BTreeSet<String> {
    keys.into_iter().collect()
}

#[test]
fn every_key_that_stays_is_seen_however_many_come_and_go() {
    const STAYING: usize = 3_000;
    // At each call: how many keys come, and how many of the others there were from the beginning go.
    for (comes, goes, others) in [(0, 0, 0), (50, 0, 0), (0, 400, 60_000), (50, 200, 20_000)] {
        let harness = Harness::start();
        let (mut client, mut other) = (harness.connect(), harness.connect());
        pipeline(&mut other, &each("SET", "stay", 0..STAYING));
        for from in (0..others).step_by(10_000) {
            pipeline(&mut other, &each("SET", "go", from..from + 10_000));
        }
        let (keys, calls) = scan_all(&mut client, "COUNT 50", |call| {
            pipeline(&mut other, &each("SET", "come", call * comes..(call + 1) * comes));
            let gone = call * goes;
            pipeline(
                &mut other,
                &each("DEL", "go", gone..(gone + goes).min(others.max(gone))),
            );
        });
        assert!(calls > 50, "only {calls} calls");
        let keys = set_of(keys);
        let seen = (0..STAYING).filter(|n| keys.contains(&format!("stay-{n}"))).count();
        assert_eq!(seen, STAYING, "{comes} come, {goes} go");
        let is_known = |key: &String| ["stay-", "go-", "come-"].iter().any(|name| key.starts_with(name));
        assert!(keys.iter().all(is_known));
    }
}

#[test]
fn options_choose_among_the_keys() {
    let harness = Harness::start();
    let mut client = harness.connect();
    pipeline(&mut client, &each("SET", "a", 0..1000));
    pipeline(&mut client, &each("SET", "b", 0..10));
    client.ask("SELECT 1");
    pipeline(&mut client, &each("SET", "c", 0..500));
    client.ask("SELECT 0");
    for (options, count) in [
        ("", 1010),
        ("COUNT 1", 1010),
        ("COUNT 1000000", 1010),
        ("MATCH a-*", 1000),
        ("MATCH b-* COUNT 3", 10),
        ("MATCH b-[0-4]", 5),
        ("MATCH b-?", 10),
        ("MATCH c-*", 0),
        ("TYPE string", 1010),
        ("TYPE STRING MATCH b-*", 10),
        ("TYPE list", 0),
        ("TYPE none", 0),
    ] {
        let (keys, _) = scan_all(&mut client, options, |_| {});
        assert_eq!(set_of(keys).len(), count, "{options}");
    }
}

#[test]
fn a_call_looks_at_about_as_many_keys_as_it_is_asked_for() {
    let harness = Harness::start();
    let mut client = harness.connect();
    for from in (0..50_000).step_by(10_000) {
        pipeline(&mut client, &each("SET", "key", from..from + 10_000));
    }
    for (options, least, most) in [
        ("", 10, 40),
        ("COUNT 100", 100, 140),
        ("COUNT 5000", 5_000, 5_100),
        // The bound on the time that one call may take.
        ("COUNT 1000000", 10_000, 10_100),
    ] {
        let (cursor, keys) = scan(&mut client, "0", options);
        assert_ne!(cursor, "0");
        assert!((least..=most).contains(&keys.len()), "{options}: {}", keys.len());
    }
}

#[test]
fn expired_keys_are_not_seen() {
    let harness = Harness::start();
    let mut client = harness.connect();
    pipeline(&mut client, &each("SET", "stay", 0..100));
    let short = |n| {
        ["SET", &format!("short-{n}"), "v", "PX", "30"]
            .map(str::to_owned)
            .to_vec()
    };
    pipeline(&mut client, &(0..100).map(short).collect::<Vec<_>>());
    wait_until("the last is gone", || client.number("EXISTS short-99") == 0);
    let (keys, _) = scan_all(&mut client, "", |_| {});
    assert!(keys.iter().all(|key| key.starts_with("stay-")));
    assert_eq!(set_of(keys).len(), 100);
    assert_eq!(client.ask("KEYS short-*"), "*0\r\n");
}

#[test]
fn keys_are_listed_up_to_a_number_only() {
    let harness = Harness::start();
    let mut client = harness.connect();
    pipeline(&mut client, &each("SET", "many", 0..10_000));
    assert!(client.ask("KEYS *").starts_with("*10000\r\n"));
    client.ask("SET one v");
    let refused = "-ERR KEYS answers at most 10000 keys, and more match: use SCAN\r\n";
    assert_eq!(client.ask("KEYS *"), refused);
    assert_eq!(client.ask("KEYS on?"), "*1\r\n$3\r\none\r\n");
    assert!(client.ask("KEYS many-*").starts_with("*10000\r\n"));
    assert_eq!(client.number("DBSIZE"), 10_001);
}

#[test]
fn a_random_key_is_one_of_the_database_s() {
    let harness = Harness::start();
    let mut client = harness.connect();
    assert_eq!(client.ask("RANDOMKEY"), "$-1\r\n");
    // Many of another database lie between.
    client.ask("SELECT 1");
    pipeline(&mut client, &each("SET", "other", 0..5000));
    client.ask("SELECT 0");
    pipeline(&mut client, &each("SET", "key", 0..4));
    let mut seen = BTreeSet::new();
    wait_until("each was picked", || {
        let key = client.text("RANDOMKEY");
        assert!(key.starts_with("key-"), "{key}");
        seen.insert(key);
        seen.len() == 4
    });
}
