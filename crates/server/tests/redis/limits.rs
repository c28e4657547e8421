//! Requests that are too large: Redis's own protocol errors, the limits that Tidemark sets, and pipelines that are long
//! and deep.

use std::io::Write;
use std::thread;

use crate::harness::{Client, Harness, array, bulk};

const MIB: usize = 1 << 20;
const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";

/// Sends everything while the replies are read elsewhere, so that neither side waits for the other.
fn send_aside(client: &Client, bytes: Vec<u8>) -> thread::JoinHandle<()> {
    let mut stream = client.stream.try_clone().unwrap();
    thread::spawn(move || stream.write_all(&bytes).unwrap())
}

#[test]
fn what_can_not_be_a_command_closes_the_connection() {
    let harness = Harness::start();
    let digits = "1".repeat(64 << 10);
    for (sent, error) in [
        ("*1048577\r\n".to_owned(), "invalid multibulk length"),
        ("*9223372036854775808\r\n".to_owned(), "invalid multibulk length"),
        ("*1 \r\n".to_owned(), "invalid multibulk length"),
        (format!("*{digits}1"), "too big mbulk count string"),
        ("*2\r\n$3\r\nGET\r\n$536870913\r\n".to_owned(), "invalid bulk length"),
        ("*2\r\n$3\r\nGET\r\n$\r\n".to_owned(), "invalid bulk length"),
        ("*2\r\n$3\r\nGET\r\n$+1\r\n".to_owned(), "invalid bulk length"),
        (format!("*2\r\n$3\r\nGET\r\n${digits}1"), "too big bulk count string"),
        (format!("GET {digits}"), "too big inline request"),
        ("*2\r\n$3\r\nGET\r\n:1\r\n".to_owned(), "expected '$', got ':'"),
        ("GET \"a\r\n".to_owned(), "unbalanced quotes in request"),
    ] {
        let mut client = harness.connect();
        client.ask("SET a 1");
        client.send(sent.as_bytes());
        let answered = String::from_utf8(client.rest()).unwrap();
        assert_eq!(
            answered,
            format!("-ERR Protocol error: {error}\r\n"),
            "{}",
            &sent[..sent.len().min(40)]
        );
    }
}

#[test]
fn what_is_too_long_changes_nothing() {
    let harness = Harness::start();
    let mut client = harness.connect();
    let (longest, longer) = ("v".repeat(MIB), "w".repeat(MIB + 1));
    let (key, long_key) = ("k".repeat(64 << 10), "k".repeat((64 << 10) + 1));
    assert_eq!(client.call(&["MSET", "a", &longest, &key, "1"]), b"+OK\r\n");
    let above_key = "-ERR a key is above the limit of 65536 bytes\r\n";
    let refused: [(&[&str], &str); 13] = [
        (&["SET", "a", &longer], TOO_LONG),
        (&["SETEX", "a", "100", &longer], TOO_LONG),
        (&["SET", "b", &longer], TOO_LONG),
        (&["MSET", "b", "1", "a", &longer], TOO_LONG),
        (&["GETSET", "a", &longer], TOO_LONG),
        (&["APPEND", "a", "x"], TOO_LONG),
        (&["SETRANGE", "a", "1048576", "x"], TOO_LONG),
        (&["SETRANGE", "b", "1048575", "xy"], TOO_LONG),
        (&["ECHO", &longer], TOO_LONG),
        (&["SET", &long_key, "1"], above_key),
        (&["MSET", "b", "1", &long_key, "1"], above_key),
        (&["GET", &long_key], above_key),
        (&["RENAME", "a", &long_key], above_key),
    ];
    for (words, reply) in refused {
        let answered = String::from_utf8(client.call(words)).unwrap();
        assert_eq!(answered, reply, "{}", words[0]);
        assert_eq!(client.number("DBSIZE"), 2, "{}", words[0]);
    }
    assert!(client.call(&["GET", "a"]) == bulk(longest.as_bytes()), "the old value");
    assert_eq!(client.call(&["GET", &key]), bulk(b"1"));
    assert_eq!(client.number("SETRANGE b 1048575 x"), MIB as i64);
    // Nine of the longest do not fit into one command.
    let nine: Vec<&str> = (0..9).flat_map(|_| ["b", longest.as_str()]).collect();
    let answered = client.call(&[&["MSET"], &nine[..]].concat());
    assert_eq!(answered, TOO_LONG.as_bytes());
}

#[test]
fn a_long_value_that_is_refused_is_dropped_as_it_comes() {
    let harness = Harness::start();
    let mut client = harness.connect();
    const COUNT: usize = 40;
    let value = "v".repeat(3 * MIB);
    let mut sent = Vec::new();
    for _ in 0..COUNT {
        sent.extend(array(&["SET", "a", &value]));
        sent.extend(array(&["INCR", "n"]));
    }
    let sender = send_aside(&client, sent);
    for n in 1..=COUNT {
        assert_eq!(client.reply(), TOO_LONG.as_bytes());
        assert_eq!(client.reply(), format!(":{n}\r\n").as_bytes());
    }
    sender.join().unwrap();
    assert_eq!(client.number("EXISTS a"), 0);
}

#[test]
fn transactions_are_bounded() {
    let harness = Harness::start();
    let keys = |count: usize, bytes: usize| -> Vec<String> { (0..count).map(|n| format!("{n:0bytes$}")).collect() };
    let gets = |count, bytes| {
        keys(count, bytes)
            .into_iter()
            .map(|key| vec!["GET".to_owned(), key])
            .collect::<Vec<_>>()
    };
    let sets = |count, bytes| {
        (0..count)
            .map(|_| ["SET", "a", &"v".repeat(bytes)].map(str::to_owned).to_vec())
            .collect()
    };
    let watch = |keys: Vec<String>| vec![[vec!["WATCH".to_owned()], keys].concat()];
    let cases: [(Vec<Vec<String>>, Option<&str>); 8] = [
        (gets(1024, 1), None),
        (gets(1025, 1), Some("a transaction is above the limit of 1024 commands")),
        (gets(992, 66), None),
        (
            gets(993, 66),
            Some("a transaction is above the limit of 65536 bytes of keys"),
        ),
        (sets(4, 250 << 10), None),
        (
            sets(5, 250 << 10),
            Some("a transaction is above the limit of 1114112 bytes"),
        ),
        (
            watch(keys(1025, 4)),
            Some("what is watched is above the limit of 1024 keys"),
        ),
        (
            watch(keys(993, 66)),
            Some("what is watched is above the limit of 65536 bytes of keys"),
        ),
    ];
    for (commands, error) in cases {
        let mut client = harness.connect();
        let is_watch = commands[0][0] == "WATCH";
        if !is_watch {
            client.ask("MULTI");
        }
        let replies: Vec<Vec<u8>> = commands.iter().map(|words| client.call(words)).collect();
        let (last, first) = replies.split_last().unwrap();
        let Some(error) = error else {
            assert!(replies.iter().all(|reply| reply == b"+QUEUED\r\n"));
            assert!(client.ask("EXEC").starts_with(&format!("*{}\r\n", commands.len())));
            continue;
        };
        assert!(first.iter().all(|reply| reply == b"+QUEUED\r\n"), "{error}");
        assert_eq!(String::from_utf8_lossy(last), format!("-ERR {error}\r\n"));
        if is_watch {
            // A refused WATCH watches nothing.
            client.ask("MULTI");
            assert_eq!(client.ask("EXEC"), "*0\r\n");
        } else {
            assert!(client.ask("EXEC").starts_with("-EXECABORT"), "{error}");
        }
    }
}

#[test]
fn one_reply_is_bounded() {
    let harness = Harness::start();
    let mut client = harness.connect();
    let value = "v".repeat(MIB);
    client.call(&["SET", "a", &value]);
    let mget = |count: usize| [vec!["MGET"], vec!["a"; count]].concat();
    // Half of the memory for connections, which is 64 MiB.
    let refused = b"-ERR the reply is above the limit of 33554432 bytes\r\n";
    for (count, is_whole) in [(1, true), (31, true), (33, false), (100_000, false)] {
        let reply = client.call(&mget(count));
        if is_whole {
            assert!(
                reply
                    == [
                        format!("*{count}\r\n").into_bytes(),
                        bulk(value.as_bytes()).repeat(count)
                    ]
                    .concat()
            );
        } else {
            assert_eq!(
                String::from_utf8_lossy(&reply),
                String::from_utf8_lossy(refused),
                "{count}"
            );
        }
    }
    // A transaction whose reply is longer is not executed.
    for command in [mget(20), mget(20), vec!["SET", "b", "1"]] {
        client.ask("MULTI");
        client.call(&mget(20));
        client.call(&command);
        let reply = client.ask("EXEC");
        let is_whole = command[0] == "SET";
        assert_eq!(reply.as_bytes() == refused, !is_whole, "{}", reply.len());
        assert_eq!(client.number("EXISTS b"), i64::from(is_whole));
    }
    // One that writes the value that it reads behind that fails where its reply would come to be longer.
    client.ask("DEL b");
    client.ask("MULTI");
    client.call(&["SET", "b", &value]);
    client.call(&[vec!["MGET"], vec!["b"; 20]].concat());
    client.call(&[vec!["MGET"], vec!["b"; 60]].concat());
    client.ask("SET c 1");
    let reply = client.ask("EXEC");
    let [behind, before] = reply.rsplitn(2, "-ERR the reply").collect::<Vec<_>>()[..] else {
        panic!("no error")
    };
    assert!(before.len() > 20 * MIB && before.len() < 21 * MIB, "{}", before.len());
    assert!(behind.ends_with("+OK\r\n"), "{behind}");
}

#[test]
fn a_deep_pipeline_is_answered_in_order() {
    const COMMANDS: usize = 200_000;
    let harness = Harness::start();
    let mut client = harness.connect();
    let sent = (0..COMMANDS / 2)
        .flat_map(|_| [array(&["INCR", "n"]), array(&["GET", "n"])].concat())
        .collect();
    let sender = send_aside(&client, sent);
    for n in 1..=COMMANDS / 2 {
        assert_eq!(client.reply(), format!(":{n}\r\n").as_bytes());
        assert_eq!(client.reply(), bulk(n.to_string().as_bytes()));
    }
    sender.join().unwrap();
}

#[test]
fn a_pipeline_of_long_values_is_answered_in_order() {
    let harness = Harness::start();
    let mut client = harness.connect();
    // Copied and sent from where they lie, one behind the other.
    let values: Vec<Vec<u8>> = [1, 5_000, 16 << 10, 70_000, 300_000, MIB]
        .map(|length| vec![b'v'; length])
        .to_vec();
    for value in &values {
        client.call(&[b"SET", value.len().to_string().as_bytes(), value]);
    }
    let order: Vec<&Vec<u8>> = (0..300).map(|n| &values[n * 7 % values.len()]).collect();
    let sent = order
        .iter()
        .flat_map(|value| array(&["GET", &value.len().to_string()]))
        .collect();
    let sender = send_aside(&client, sent);
    for value in order {
        assert!(client.reply() == bulk(value), "{} bytes", value.len());
    }
    sender.join().unwrap();
    // None of them is charged for as the connection's own.
    assert!(client.text("INFO memory").contains("mem_clients_normal:0\r\n"));
}

#[test]
fn long_values_are_stored_on_their_conditions_and_in_their_order() {
    const LONG: usize = 900_001;
    let harness = Harness::start();
    let mut client = harness.connect();
    let [one, two] = ["a", "b"].map(|letter| letter.repeat(LONG));
    let (null, ok): (&[u8], &[u8]) = (b"$-1\r\n", b"+OK\r\n");
    let exchanges: Vec<(Vec<&str>, Vec<u8>)> = vec![
        (vec!["SET", "k", &one, "XX"], null.to_vec()),
        (vec!["SET", "k", &one, "NX"], ok.to_vec()),
        (vec!["SET", "k", &two, "NX"], null.to_vec()),
        (vec!["GET", "k"], bulk(one.as_bytes())),
        (vec!["SET", "k", &two, "XX", "GET"], bulk(one.as_bytes())),
        (vec!["SETNX", "k", &one], b":0\r\n".to_vec()),
        (vec!["SETEX", "k", "100", &one], ok.to_vec()),
        (vec!["SET", "k", &two, "KEEPTTL"], ok.to_vec()),
        (vec!["TTL", "k"], b":100\r\n".to_vec()),
        (vec!["APPEND", "k", "c"], format!(":{}\r\n", LONG + 1).into_bytes()),
        (vec!["GETRANGE", "k", "-2", "-1"], bulk(b"bc")),
        (vec!["SET", "k", &one], ok.to_vec()),
        (vec!["TTL", "k"], b":-1\r\n".to_vec()),
        (vec!["GET", "k"], bulk(one.as_bytes())),
        (vec!["FLUSHALL"], ok.to_vec()),
    ];
    for (words, reply) in &exchanges {
        assert!(client.call(words) == *reply, "{:?}", words.first());
    }
    let requests: Vec<u8> = exchanges.iter().flat_map(|(words, _)| array(words)).collect();
    let sender = send_aside(&client, requests);
    for (words, reply) in &exchanges {
        assert!(client.reply() == *reply, "{:?} in a stream", words.first());
    }
    sender.join().unwrap();
}

#[test]
fn patterns_and_lists_of_names_are_bounded() {
    let harness = Harness::start();
    let mut client = harness.connect();
    client.call(&["SET", &"bc".repeat(30_000), "v"]);
    let (longest, longer) = (format!("*[{}]", "bc".repeat(510)), format!("*[{}]x", "bc".repeat(511)));
    let refused = "-ERR a pattern is above the limit of 1024 bytes\r\n";
    let text = |reply: Vec<u8>| String::from_utf8(reply).unwrap();
    for command in [
        ["SCAN", "0", "MATCH"].as_slice(),
        &["KEYS"],
        &["CONFIG", "GET"],
        &["COMMAND", "LIST", "FILTERBY", "PATTERN"],
    ] {
        let with = |pattern| [command, &[pattern]].concat();
        assert_eq!(text(client.call(&with(&longer))), refused, "{command:?}");
        assert!(text(client.call(&with(&longest))).starts_with('*'), "{command:?}");
    }
    for command in [["COMMAND", "DOCS"], ["COMMAND", "INFO"], ["CONFIG", "GET"]] {
        let names = [command.as_slice(), &["get"; 511]].concat();
        assert_eq!(
            text(client.call(&names)),
            "-ERR a description is above the limit of 512 names\r\n",
            "{command:?}"
        );
    }
    assert_eq!(text(client.call(&["KEYS", &longest])).lines().count(), 3);
}
