//! memcached's protocol: every command with the replies that memcached gives, in any division of the stream into pieces.

use std::collections::HashMap;

use tidemark_types::{Permissions, TenantPlan};

use crate::harness::{Client, Harness, SECRET, Setup, secret, set, tenant, wait_until};
use crate::transcript::{Case, Exchange, Names, count, parse, show};

/// Asked behind every request: the bytes before its answer are the whole reply.
const MARK: &[u8] = b"mn\r\n";
const MARK_REPLY: &[u8] = b"MN\r\n";

#[test]
fn storage() {
    check(include_str!("transcripts/storage.txt"));
}

#[test]
fn cas() {
    check(include_str!("transcripts/cas.txt"));
}

#[test]
fn counters() {
    check(include_str!("transcripts/counters.txt"));
}

#[test]
fn expiry() {
    check(include_str!("transcripts/expiry.txt"));
}

#[test]
fn meta() {
    check(include_str!("transcripts/meta.txt"));
}

#[test]
fn stampede() {
    check(include_str!("transcripts/stampede.txt"));
}

#[test]
fn errors() {
    check(include_str!("transcripts/errors.txt"));
}

#[test]
fn suites() {
    check(include_str!("transcripts/suites.txt"));
}

#[test]
fn server() {
    check(include_str!("transcripts/server.txt"));
}

#[test]
fn statistics_count_what_monitoring_asks_for() {
    let harness = Harness::start(Setup::default());
    let mut client = harness.connect();
    let figures = ["get_expired", "get_flushed", "conn_yields", "listen_disabled_num"];
    assert_eq!(figures.map(|name| client.stat(name)), [0; 4]);
    // Met before it is swept: the item is gone in the same millisecond in which it is asked for.
    wait_until("an expired item is met", || {
        client.ask(b"set e 0 1 1\r\nx\r\n", b"STORED\r\n");
        wait_until("it has expired", || client.answer(b"get e\r\n") == b"END\r\n");
        client.stat("get_expired") > 0
    });
    // More than a connection's share of a turn, at once.
    client.send(&b"version\r\n".repeat(2000));
    client.answer(b"");
    assert!(client.stat("conn_yields") > 0);
}

#[test]
fn keys_that_have_expired_are_not_counted() {
    const KEYS: usize = 33_000;
    let harness = Harness::start(Setup::default());
    let mut client = harness.connect();
    let sets: Vec<u8> = (0..KEYS)
        .flat_map(|n| format!("set e{n} 0 1 1 noreply\r\nx\r\nset s{n} 0 0 1 noreply\r\nx\r\n").into_bytes())
        .collect();
    client.send(&sets);
    client.answer(b"");
    // Nobody asks for them.
    wait_until("all have gone", || client.stat("curr_items") == KEYS as u64);
    assert_eq!(client.stat("reclaimed"), KEYS as u64);
}

/// 41 bytes a key: a line of 410 kB.
const LONG_LINE_KEYS: usize = 10_000;

/// Many keys and the answer of `get` for those that are there, every other one.
fn many(client: &mut Client, keys: usize) -> (Vec<String>, Vec<u8>) {
    let names: Vec<String> = (0..keys).map(|n| format!("{n:040}")).collect();
    let mut values = Vec::new();
    for (n, name) in names.iter().enumerate().step_by(2) {
        client.ask(&set(name, n.to_string().as_bytes()), b"STORED\r\n");
        let text = n.to_string();
        values.extend_from_slice(format!("VALUE {name} 0 {}\r\n{text}\r\n", text.len()).as_bytes());
    }
    (names, values)
}

#[test]
fn a_line_of_keys_may_be_as_long_as_it_likes() {
    let harness = Harness::start(Setup::default());
    let mut client = harness.connect();
    let (names, values) = many(&mut client, LONG_LINE_KEYS);
    let line = names.join(" ");
    for begin in ["get", "gat 0"] {
        client.send(format!("{begin} {line}\r\n").as_bytes());
        client.ask(b"mn\r\n", &[&values[..], b"END\r\nMN\r\n"].concat());
    }
    // Also where it comes piece by piece: no more of it is held than a part.
    client.send(b"get ");
    for (n, name) in names.iter().enumerate() {
        client.send(format!("{name} ").as_bytes());
        if n % 1000 == 999 {
            wait_until("what has come is executed", || harness.buffer_bytes() <= 16 << 10);
        }
    }
    client.ask(b"\r\nmn\r\n", &[&values[..], b"END\r\nMN\r\n"].concat());
    assert_eq!(client.stat("cmd_get"), 2 * LONG_LINE_KEYS as u64);
}

#[test]
fn a_long_line_with_a_word_that_is_no_key_is_answered_once_and_dropped_to_its_end() {
    let harness = Harness::start(Setup::default());
    let mut client = harness.connect();
    let (names, _) = many(&mut client, 1000);
    let (first, rest) = (names[1..].join(" "), &names[0]);
    client.send(format!("get {} {} {rest}\r\n", "k".repeat(251), first).as_bytes());
    client.ask(b"mn\r\n", b"CLIENT_ERROR bad command line format\r\nMN\r\n");
    client.send(format!("get {}{} {rest}\r\n", "a ".repeat(3000), "k".repeat(6000)).as_bytes());
    client.ask(b"mn\r\n", b"CLIENT_ERROR bad command line format\r\nMN\r\n");
    // One that is not permitted is answered once, too.
    let plan = TenantPlan {
        secrets: vec![secret(SECRET, Permissions::WRITE)],
        ..tenant(2, "writer")
    };
    harness.apply(vec![plan]);
    let mut writer = harness.log_in("writer");
    writer.send(format!("get {first}\r\n").as_bytes());
    writer.ask(
        b"mn\r\n",
        b"CLIENT_ERROR this secret does not permit the command\r\nMN\r\n",
    );
}

/// Plays every case of a transcript, each on new connections to an empty tenant.
fn check(text: &str) {
    let harness = Harness::start(Setup::default());
    for case in parse(text) {
        let mut clients: HashMap<usize, Client> = HashMap::new();
        let mut names = Names::default();
        harness
            .connect()
            .ask(b"stats reset\r\nflush_all\r\n", b"RESET\r\nOK\r\n");
        for exchange in &case.exchanges {
            let client = clients.entry(exchange.client).or_insert_with(|| harness.connect());
            if exchange.is_polled {
                let asked = exchange.request.bytes(&names);
                let what = format!("{}, line {}: {}", case.title, exchange.line, exchange.reply.shown());
                wait_until(&what, || {
                    exchange.reply.matches(&answer(client, &asked, exchange), &mut names)
                });
            } else {
                play(client, exchange, &mut names, &case);
            }
        }
    }
}

fn play(client: &mut Client, exchange: &Exchange, names: &mut Names, case: &Case) {
    let asked = exchange.request.bytes(names);
    let answered = answer(client, &asked, exchange);
    assert!(
        exchange.reply.matches(&answered, names),
        "{}, line {}\nasked    {}\nexpected {}\nanswered {}",
        case.title,
        exchange.line,
        show(&asked),
        exchange.reply.shown(),
        show(&answered)
    );
}

/// Sends a request and receives everything that comes of it.
fn answer(client: &mut Client, asked: &[u8], exchange: &Exchange) -> Vec<u8> {
    client.send(asked);
    if exchange.closes {
        let (answered, ended) = client.receive_until(|_| false);
        assert!(ended);
        return answered;
    }
    client.send(MARK);
    let marks = exchange.reply.count(MARK_REPLY) + 1;
    let (mut answered, ended) =
        client.receive_until(|bytes| bytes.ends_with(MARK_REPLY) && count(bytes, MARK_REPLY) >= marks);
    assert!(
        !ended,
        "line {}: the connection was closed after {}",
        exchange.line,
        show(&answered)
    );
    answered.truncate(answered.len() - MARK_REPLY.len());
    answered
}
