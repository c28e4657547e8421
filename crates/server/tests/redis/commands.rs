//! Every command with Redis's replies, in both versions of RESP, and however its bytes are cut into pieces.

use std::collections::HashMap;
use std::io::Write;
use std::net::Shutdown;

use crate::harness::{Client, Harness, array, open_tenant};
use crate::notation::{Case, Resp, parse};

const CASES: [&str; 9] = [
    include_str!("cases/strings.txt"),
    include_str!("cases/ranges.txt"),
    include_str!("cases/counters.txt"),
    include_str!("cases/keys.txt"),
    include_str!("cases/expiry.txt"),
    include_str!("cases/transactions.txt"),
    include_str!("cases/connection.txt"),
    include_str!("cases/suites.txt"),
    include_str!("cases/newer.txt"),
];

fn cases() -> Vec<Case> {
    CASES.iter().flat_map(|text| parse(text)).collect()
}

/// A new client that speaks this version.
fn client(harness: &Harness, resp: Resp) -> Client {
    let mut client = harness.connect();
    if resp == Resp::Three {
        client.call(&["HELLO", "3"]);
    }
    client
}

#[test]
fn replies_are_redis_s() {
    let harness = Harness::start();
    for resp in [Resp::Two, Resp::Three] {
        for case in cases() {
            harness.connect().ask("FLUSHALL");
            let mut clients: HashMap<usize, Client> = HashMap::new();
            for step in &case.steps {
                let client = clients.entry(step.client).or_insert_with(|| client(&harness, resp));
                let reply = client.call(&step.words);
                let shown = reply.escape_ascii();
                assert!(
                    step.reply.is(&reply, resp),
                    "{} ({resp:?})\n{}\nanswered {shown}",
                    case.title,
                    step.line
                );
                if step.closes {
                    assert_eq!(client.rest(), b"", "{}", step.line);
                } else if step.words[0] == b"RESET" && resp == Resp::Three {
                    client.call(&["HELLO", "3"]);
                }
            }
        }
    }
}

/// A case of one client as one stream: its commands, and all of the replies.
fn stream(case: &Case, resp: Resp) -> (Vec<u8>, Vec<u8>) {
    let request = case.steps.iter().flat_map(|step| array(&step.words)).collect();
    let reply = case.steps.iter().flat_map(|step| step.reply.bytes(resp)).collect();
    (request, reply)
}

/// Cases of one client, in short, whose replies depend neither on the time nor on earlier commands.
fn short_cases() -> Vec<Case> {
    let mut short: Vec<Case> = cases()
        .into_iter()
        .filter(|case| case.steps.iter().all(|step| step.client == 1))
        .collect();
    for case in &mut short {
        // Failed logins are counted.
        case.steps
            .retain(|step| step.reply.is_exact() && !step.reply.is_error("WRONGPASS"));
        case.steps.truncate(12);
    }
    short
}

#[test]
fn a_stream_in_one_piece_gets_the_same_replies() {
    let harness = Harness::start();
    for case in cases()
        .iter()
        .filter(|case| case.steps.iter().all(|step| step.client == 1))
    {
        harness.connect().ask("FLUSHALL");
        let mut client = harness.connect();
        client.send(&stream(case, Resp::Two).0);
        for step in &case.steps {
            let reply = client.reply();
            assert!(
                step.reply.is(&reply, Resp::Two),
                "{}\n{}\n{}",
                case.title,
                step.line,
                reply.escape_ascii()
            );
        }
    }
}

#[test]
fn a_stream_cut_at_any_byte_gets_the_same_replies() {
    // One worker: an answer on one connection says that earlier input on the other has been received.
    let harness = Harness::with(1, vec![open_tenant()]);
    let mut other = harness.connect();
    let cases = short_cases();
    assert!(cases.len() > 25, "only {} cases", cases.len());
    for case in &cases {
        let (request, expected) = stream(case, Resp::Two);
        for at in 1..request.len() {
            other.ask("FLUSHALL");
            let mut client = harness.connect();
            client.send(&request[..at]);
            other.ask("PING");
            client.send(&request[at..]);
            client.stream.shutdown(Shutdown::Write).unwrap();
            let answered = client.rest();
            let (answered, expected) = (answered.escape_ascii().to_string(), expected.escape_ascii().to_string());
            assert_eq!(answered, expected, "{} cut at {at}", case.title);
        }
    }
}

#[test]
fn inline_commands_get_the_same_replies() {
    let harness = Harness::start();
    let quote = |word: &Vec<u8>| {
        let escaped: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{escaped}\"")
    };
    for case in cases()
        .iter()
        .filter(|case| case.steps.iter().all(|step| step.client == 1))
    {
        harness.connect().ask("FLUSHALL");
        let mut client = harness.connect();
        for step in &case.steps {
            let line: Vec<String> = step.words.iter().map(quote).collect();
            client.send(format!("{}\r\n", line.join(" ")).as_bytes());
            let reply = client.reply();
            assert!(
                step.reply.is(&reply, Resp::Two),
                "{}\n{}\n{}",
                case.title,
                step.line,
                reply.escape_ascii()
            );
        }
    }
}

const OPEN: &str = "";
const CLOSED: &str = "closed";

/// The answers of Redis 7.0.15 to these streams; the connection stays open unless said otherwise.
const STREAMS: [(&str, &str, &str); 32] = [
    (
        "CLIENT REPLY OFF\r\nPING\r\nFOO\r\nCLIENT REPLY x\r\nCLIENT REPLY ON\r\nPING\r\n",
        "+OK\r\n+PONG\r\n",
        OPEN,
    ),
    ("CLIENT REPLY SKIP\r\nPING\r\nECHO a\r\n", "$1\r\na\r\n", OPEN),
    ("CLIENT REPLY SKIP\r\nFOO\r\nECHO a\r\n", "$1\r\na\r\n", OPEN),
    (
        "CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO a\r\n",
        "$1\r\na\r\n",
        OPEN,
    ),
    (
        "CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nPING\r\n",
        "+OK\r\n+PONG\r\n",
        OPEN,
    ),
    (
        "CLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nPING\r\nPING\r\nCLIENT REPLY ON\r\n",
        "+OK\r\n",
        OPEN,
    ),
    (
        "CLIENT REPLY OFF\r\nPING\r\nRESET\r\nPING\r\n",
        "+RESET\r\n+PONG\r\n",
        OPEN,
    ),
    ("CLIENT REPLY SKIP\r\nRESET\r\nPING\r\n", "+PONG\r\n", OPEN),
    (
        "CLIENT REPLY OFF\r\nSET a 1\r\nGET a\r\nINCR a\r\nCLIENT REPLY ON\r\nGET a\r\n",
        "+OK\r\n$1\r\n2\r\n",
        OPEN,
    ),
    ("CLIENT REPLY OFF\r\nPING\r\nQUIT\r\n", "", CLOSED),
    ("CLIENT REPLY OFF\r\n*1\r\n+x\r\n", "", CLOSED),
    (
        "MULTI\r\nPING\r\nCLIENT REPLY OFF\r\nPING\r\nEXEC\r\nPING\r\nCLIENT REPLY ON\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+PONG\r\n+OK\r\n",
        OPEN,
    ),
    (
        "MULTI\r\nCLIENT REPLY SKIP\r\nECHO a\r\nEXEC\r\nPING\r\nECHO b\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        OPEN,
    ),
    (
        "CLIENT REPLY OFF\r\nMULTI\r\nPING\r\nCLIENT REPLY ON\r\nECHO a\r\nEXEC\r\n",
        "+OK\r\n$1\r\na\r\n",
        OPEN,
    ),
    (
        "MULTI\r\nCLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nECHO a\r\nEXEC\r\nPING\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n$1\r\na\r\n",
        OPEN,
    ),
    (
        "MULTI\r\nCLIENT REPLY SKIP\r\nCLIENT REPLY OFF\r\nEXEC\r\nRESET\r\nPING\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+PONG\r\n",
        OPEN,
    ),
    (
        "CLIENT REPLY OFF\r\nMULTI\r\nCLIENT REPLY ON\r\nECHO a\r\nCLIENT REPLY OFF\r\nPING\r\nEXEC\r\nPING\r\nRESET\r\n",
        "+OK\r\n$1\r\na\r\n+RESET\r\n",
        OPEN,
    ),
    (
        "CLIENT REPLY SKIP\r\nEXEC\r\nMULTI\r\nCLIENT REPLY OFF\r\nEXEC\r\nWATCH a\r\nSET a 1\r\nMULTI\r\nEXEC\r\n\
      CLIENT REPLY ON\r\n",
        "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n",
        OPEN,
    ),
    ("\r\n\r\nPING\r\n*0\r\n*-1\r\nPING\r\n", "+PONG\r\n+PONG\r\n", OPEN),
    ("PING\n", "+PONG\r\n", OPEN),
    (
        "SET a \"x\r\nPING\r\n",
        "-ERR Protocol error: unbalanced quotes in request\r\n",
        CLOSED,
    ),
    (
        "*1\r\n+PING\r\n",
        "-ERR Protocol error: expected '$', got '+'\r\n",
        CLOSED,
    ),
    ("*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n", CLOSED),
    ("*2\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n", CLOSED),
    ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", "", CLOSED),
    ("PING\r\nHost: x\r\nPING\r\n", "+PONG\r\n", CLOSED),
    ("PUT /x HTTP/1.1\r\nAccept: x\r\n\r\nSET a 1\r\n", "", CLOSED),
    ("GET /x HTTP/1.1\r\n\r\nSET a 1\r\n", "", CLOSED),
    ("GET HTTP/1.1\r\nSET a 1\r\n", "", CLOSED),
    // Told from a request by its form: lengths are not for web pages to choose.
    ("*2\r\n$4\r\nECHO\r\n$8\r\nHTTP/1.1\r\n", "$8\r\nHTTP/1.1\r\n", OPEN),
    // Behind a string that is longer than was said, the rest of it would be a command.
    (
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nxPING\r\n",
        "-ERR Protocol error: expected a line end behind the string\r\n",
        CLOSED,
    ),
    ("PING\r\nQUIT\r\nPING\r\n", "+PONG\r\n+OK\r\n", CLOSED),
];

#[test]
fn whole_streams() {
    let harness = Harness::start();
    for (sent, received, end) in STREAMS {
        let mut client = harness.connect();
        client.stream.write_all(sent.as_bytes()).unwrap();
        if end == OPEN {
            client.send(b"ECHO end\r\n");
            client.stream.shutdown(Shutdown::Write).unwrap();
        }
        let expected = format!("{received}{}", if end == OPEN { "$3\r\nend\r\n" } else { "" });
        assert_eq!(
            client.rest().escape_ascii().to_string(),
            expected.escape_default().to_string(),
            "{sent:?}"
        );
    }
}
