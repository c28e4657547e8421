//! Keys that lie on flash, and walks over them, within transactions.

use super::*;

/// The replies to these commands in a transaction.
fn transaction(client: &mut Client, commands: &[&str]) -> Vec<Reply> {
    assert_eq!(client.one("MULTI"), ok());
    for command in commands {
        assert_eq!(client.one(command), Reply::Line("+QUEUED".to_owned()), "{command}");
    }
    match client.one("EXEC") {
        Reply::Array(replies) => replies,
        other => panic!("{other:?}"),
    }
}

/// The cursor and the keys of a reply to SCAN.
fn scanned(reply: &Reply) -> (String, Vec<String>) {
    match reply {
        Reply::Array(parts) => match &parts[..] {
            [Reply::Bulk(Some(next)), Reply::Array(found)] => (next.clone(), found.iter().map(text).collect()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn scans_in_transactions_meet_keys_that_lie_on_flash_only() {
    let server = start(tempfile::tempdir().unwrap());
    let mut client = Client::connect(&server, "redis");
    client.fill(0..KEYS, 1);
    let all: HashSet<String> = scan(&mut client, "", |_| ()).into_iter().collect();
    assert!(all.len() >= FOUND_MIN, "{}", all.len());
    // One after the other, beside other commands whose items lie on flash.
    let (mut met, mut cursor, mut steps) = (HashSet::new(), "0".to_owned(), 0);
    loop {
        let n = steps * BATCH % KEYS;
        let replies = transaction(
            &mut client,
            &[&format!("GET {}", key(n)), &format!("SCAN {cursor} COUNT 2000")],
        );
        assert!(replies[0] == bulk(&value(n, 1)) || replies[0] == NONE, "{n}");
        let (next, keys) = scanned(&replies[1]);
        met.extend(keys);
        steps += 1;
        if next == "0" {
            break;
        }
        assert_ne!(next, cursor, "it goes on");
        cursor = next;
    }
    let missed: Vec<&String> = all.difference(&met).collect();
    let there = missed.iter().filter(|key| client.one(&format!("GET {key}")) != NONE);
    assert_eq!(there.count(), 0, "{} missed", missed.len());
    // As many as there are segments, at least: a transaction reads one of them.
    assert!(steps >= 15, "{steps}");
    // A second one in the same transaction has no segment of its own, and goes on from where it is.
    let replies = transaction(&mut client, &["SCAN 0 COUNT 1", "SCAN 0 COUNT 1", "DBSIZE"]);
    let (first, keys) = scanned(&replies[0]);
    assert!(!keys.is_empty() && first != "0");
    let (mut cursor, mut met) = scanned(&replies[1]);
    assert_ne!(cursor, "0");
    while cursor != "0" {
        let (next, keys) = scanned(&client.one(&format!("SCAN {cursor}")));
        met.extend(keys);
        cursor = next;
    }
    let met: HashSet<String> = met.into_iter().collect();
    assert!(met.len() >= FOUND_MIN, "{}", met.len());
    assert_eq!(replies[2], client.one("DBSIZE"));
    // All at once is too much for a transaction.
    let refused = transaction(&mut client, &["KEYS *"]).remove(0);
    assert!(
        matches!(&refused, Reply::Line(error) if error.starts_with("-ERR") && error.contains("flash")),
        "{refused:?}"
    );
    server.stop();
}

#[test]
fn a_transaction_has_all_its_keys_from_flash_or_none_of_them() {
    let server = start(tempfile::tempdir().unwrap());
    let mut client = Client::connect(&server, "redis");
    let text = |n: usize| format!("{n:03}").repeat(64 << 10);
    for n in 0..80 {
        assert_eq!(client.one(&format!("SET large-{n} {}", text(n))), ok());
    }
    let gets = |keys: std::ops::Range<usize>| -> Vec<String> { keys.map(|n| format!("GET large-{n}")).collect() };
    // The first ones lie on flash. Some of them have room in memory together: a reply is whole.
    let commands = gets(0..12);
    let replies = transaction(&mut client, &commands.iter().map(|get| &**get).collect::<Vec<_>>());
    for (n, reply) in replies.iter().enumerate() {
        assert_eq!(reply, &bulk(&text(n)), "{n}");
    }
    // All have not: what came first is on flash again when the last ones come, which must not pass for keys that are gone.
    assert_eq!(client.one("MULTI"), ok());
    for command in gets(0..80) {
        assert_eq!(client.one(&command), Reply::Line("+QUEUED".to_owned()));
    }
    assert_eq!(client.one("INCR large-made"), Reply::Line("+QUEUED".to_owned()));
    let refused = client.one("EXEC");
    assert!(
        matches!(&refused, Reply::Line(error) if error.starts_with("-TRYAGAIN") && error.contains("flash")),
        "{refused:?}"
    );
    assert_eq!(
        client.one("EXISTS large-made"),
        Reply::Number(0),
        "nothing of it was done"
    );
    assert_eq!(client.one("GET large-3"), bulk(&text(3)));
    server.stop();
}
