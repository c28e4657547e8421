//! memcached's protocol: every command with the replies that memcached gives, in any division of the stream into pieces.

use std::collections::HashMap;

use crate::harness::{Client, Harness, Setup, wait_until};
use crate::transcript::{Case, Exchange, Names, count, parse, show};

/// Asked behind every request: what comes before its answer is the whole reply.
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
fn server() {
    check(include_str!("transcripts/server.txt"));
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
