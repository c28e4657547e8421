//! Spending limits: alerts to a webhook, and each action, as clients and operators see it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::Value;

use super::*;

/// Each operation costs one, everything else nothing.
const PRICES: &str = "\
currency = \"USD\"
cpu = \"measured\"

[[prices]]
version = \"test-1\"
from = 2020-01-01
vcpu_hour = \"0\"
memory_gib_hour = \"MEMORY\"
network_in_gib = \"0\"
network_out_gib = \"0\"
operations_million = \"1000000\"
";
const SECRET: &str = "a secret of more than 24 bytes";

pub(super) const ACCEPTED: &str = "HTTP/1.1 204 No Content\r\n\r\n";
pub(super) const BROKEN: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

/// A request that a receiver got.
pub(super) struct Received {
    pub(super) head: String,
    body: String,
}

impl Received {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().unwrap().1
    }
}

/// A receiver of alerts.
pub(super) struct Receive {
    pub(super) address: SocketAddr,
    requests: Receiver<Received>,
}

impl Receive {
    /// `behave` gives the answer to a request by its number.
    pub(super) fn start(behave: impl Fn(u32) -> &'static str + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for (number, socket) in (0..).zip(listener.incoming()) {
                answer(socket.unwrap(), behave(number), &sender);
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}/hook?key=hidden", self.address)
    }

    pub(super) fn next(&self) -> Received {
        self.requests.recv_timeout(PATIENCE).unwrap()
    }
}

/// An empty answer: the receiver hangs.
fn answer(mut socket: TcpStream, answer: &'static str, sender: &Sender<Received>) {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    let is_whole = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.to_ascii_lowercase();
        let length = length.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        (body.len() >= length.parse().unwrap()).then(|| Received {
            head: head.to_owned(),
            body: body.to_owned(),
        })
    };
    let received = loop {
        let count = socket.read(&mut piece).unwrap_or(0);
        text.extend_from_slice(&piece[..count]);
        match is_whole(&text) {
            Some(received) => break received,
            None if count == 0 => return,
            None => {}
        }
    };
    let _ = sender.send(received);
    if answer.is_empty() {
        // As long as the test lasts.
        std::mem::forget(socket);
    } else {
        let _ = socket.write_all(answer.as_bytes());
    }
}

/// A server with prices, and options for a webhook.
pub(super) fn start(files: &TempDir, memory_price: &str, more: &[&str]) -> Server {
    let prices = files.path().join("prices.toml");
    std::fs::write(&prices, PRICES.replace("MEMORY", memory_price)).unwrap();
    let prices = prices.to_str().unwrap();
    Server::start(&[&["--ledger-period", "1s", "--prices", prices], more].concat())
}

fn limit(server: &Server, amount: &str, action: &str) {
    server.json(&[
        "tenant",
        "set",
        "default",
        "--spending-limit",
        amount,
        "--at-limit",
        action,
    ]);
}

/// Sends a line of a protocol and returns the first line of the reply.
fn ask(server: &Server, key: &str, request: &str) -> String {
    let address = server.ready.split(' ').find_map(|word| word.strip_prefix(key)).unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

pub(super) fn gets(server: &Server, count: usize) {
    let address = server
        .ready
        .split(' ')
        .find_map(|word| word.strip_prefix("memcached="))
        .unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all("get none\r\n".repeat(count).as_bytes()).unwrap();
    socket.read_exact(&mut vec![0; count * "END\r\n".len()]).unwrap();
}

/// Asks until the answer is the expected one.
fn wait_for<T: std::fmt::Debug>(mut ask: impl FnMut() -> T, is_it: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if is_it(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn spending(server: &Server) -> Value {
    server.json(&["tenant", "show", "default"])["spending"].clone()
}

fn alerts(server: &Server) -> Value {
    server.json(&["server", "show"])["alerts"].clone()
}

#[test]
fn alerts_are_sent_in_order_and_writes_are_refused_at_the_limit() {
    let files = tempfile::tempdir().unwrap();
    let receiver = Receive::start(|_| ACCEPTED);
    let secret = files.path().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let url = receiver.url();
    let webhook = [
        "--webhook",
        &url,
        "--webhook-local",
        "--webhook-secret-file",
        secret.to_str().unwrap(),
    ];
    let server = start(&files, "0", &webhook);
    limit(&server, "100", "reject-writes");
    gets(&server, 60);
    let first = receiver.next();
    let event = first.json();
    assert_eq!(event["type"], "io.tidemark.spending.v1");
    assert_eq!(
        (&event["data"]["percent"], &event["data"]["limit"]),
        (&50.into(), &"100.00".into())
    );
    assert_eq!(event["data"]["tenant"], "default");
    assert!(
        first.head.starts_with("POST /hook?key=hidden HTTP/1.1"),
        "{}",
        first.head
    );
    assert_eq!(first.header("webhook-id"), event["id"]);
    assert!(first.header("webhook-signature").starts_with("v1,"));
    assert_eq!(
        first.header("content-type"),
        "application/cloudevents+json; charset=utf-8"
    );
    assert_eq!(ask(&server, "memcached=", "set key 0 0 1\r\nx\r\n"), "STORED");

    gets(&server, 50);
    let percents = [receiver.next(), receiver.next()].map(|received| received.json()["data"]["percent"].clone());
    assert_eq!(percents, [80, 100]);
    let refused = wait_for(
        || ask(&server, "memcached=", "set key 0 0 1\r\ny\r\n"),
        |reply| reply.starts_with("SERVER_ERROR"),
    );
    assert!(refused.contains("spending limit"), "{refused}");
    let resp = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1\r\ny\r\n";
    assert!(
        ask(&server, "redis=", resp).starts_with("-OOM the tenant's spending limit"),
        "{resp}"
    );
    assert!(ask(&server, "redis=", "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n").starts_with("-OOM"));
    assert!(ask(&server, "memcached=", "ms key 1\r\ny\r\n").starts_with("SERVER_ERROR"));
    assert_eq!(
        ask(&server, "memcached=", "get key\r\n"),
        "VALUE key 0 1",
        "reads go on"
    );
    assert_eq!(
        ask(&server, "redis=", "*2\r\n$3\r\nDEL\r\n$4\r\nnone\r\n"),
        ":0",
        "what makes room goes on"
    );
    let shown = spending(&server);
    assert_eq!(
        (&shown["restraint"], &shown["reached_percent"]),
        (&"reject-writes".into(), &100.into()),
        "{shown}"
    );
    let sent = wait_for(|| alerts(&server), |alerts| alerts["sent_total"] == 3);
    assert_eq!((&sent["failed_total"], &sent["dropped_total"]), (&0.into(), &0.into()));
    let text = stdout(&server.run(&["tenant", "show", "default"]));
    assert!(
        text.contains("spent this month") && text.contains("reject-writes"),
        "{text}"
    );

    // A restart forgets neither the spending nor the sent alerts.
    let month = shown["month"].as_str().unwrap().to_owned();
    let (_, log, folder) = server.stop();
    assert!(!log.contains("hidden"), "a URL's query may hold a secret: {log}");
    let prices = files.path().join("prices.toml");
    let more = ["--ledger-period", "1s", "--prices", prices.to_str().unwrap()];
    let server = Server::start_in(folder, &[&more[..], &webhook[..]].concat());
    wait_for(
        || ask(&server, "memcached=", "set key 0 0 1\r\ny\r\n"),
        |reply| reply.starts_with("SERVER_ERROR"),
    );
    let spent: f64 = spending(&server)["spent"].as_str().unwrap().parse().unwrap();
    let bill = server.json(&["bill", "default", "--month", &month]);
    let billed: f64 = bill["total"].as_str().unwrap().parse().unwrap();
    assert!(spent >= 110.0 && billed <= spent, "{spent} {bill}");
    assert_eq!(alerts(&server)["sent_total"], 0);
    // A higher limit is in force at once.
    limit(&server, "100000", "reject-writes");
    assert_eq!(ask(&server, "memcached=", "set key 0 0 1\r\ny\r\n"), "STORED");
    assert_eq!(spending(&server)["restraint"], Value::Null);
    server.stop();
}

#[test]
fn throttle_leaves_what_the_rest_of_the_money_buys() {
    let files = tempfile::tempdir().unwrap();
    let server = start(&files, "0", &[]);
    limit(&server, "100", "throttle");
    gets(&server, 85);
    let shown = wait_for(|| spending(&server), |shown| shown["restraint"] == "throttle");
    assert_eq!(shown["ops_per_second"], 1, "fifteen are left for a month: {shown}");
    let refused = wait_for(|| ask(&server, "memcached=", "get none\r\n"), |reply| reply != "END");
    assert!(refused.contains("limit of 1 operations per second"), "{refused}");
    server.json(&[
        "tenant",
        "set",
        "default",
        "--spending-limit",
        "none",
        "--at-limit",
        "none",
    ]);
    gets(&server, 50);
    server.stop();
}

#[test]
fn evict_only_lets_the_grant_fall_to_the_floor() {
    let files = tempfile::tempdir().unwrap();
    let server = start(&files, "0", &[]);
    for number in 0..64 {
        let value = "x".repeat(100_000);
        assert_eq!(
            ask(
                &server,
                "memcached=",
                &format!("set k{number} 0 0 100000\r\n{value}\r\n")
            ),
            "STORED"
        );
    }
    let show = || server.json(&["tenant", "show", "default"]);
    wait_for(show, |tenant| tenant["usage_bytes"].as_u64() > Some(4 << 20));
    server.json(&["tenant", "set", "default", "--floor", "2MiB"]);
    limit(&server, "64", "evict-only");
    let tenant = wait_for(show, |tenant| tenant["usage_bytes"].as_u64() <= Some(2 << 20));
    assert_eq!(tenant["spending"]["restraint"], "evict-only", "{tenant}");
    assert!(tenant["grant_bytes"].as_u64() <= Some(2 << 20), "{tenant}");
    let moves = server.json(&["tenant", "show", "default", "--moves"]);
    assert_eq!(moves[0]["reason"], "cap", "{moves}");
    assert_eq!(
        ask(&server, "memcached=", "set key 0 0 1\r\ny\r\n"),
        "STORED",
        "it goes on with what it has"
    );
    server.stop();
}

fn set<'a>(data: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["tenant", "set", "default", "--data", data], more].concat()
}

#[test]
fn limits_that_can_not_be_are_refused() {
    let server = Server::start(&[]);
    let data = server.data();
    check_fails(
        &set(&data, &["--spending-limit", "5"]),
        USAGE,
        &["--spending-limit 5", "start the server with --prices"],
    );
    server.stop();
    let files = tempfile::tempdir().unwrap();
    let server = start(&files, "1", &[]);
    let data = server.data();
    check_fails(
        &set(&data, &["--floor", "32MiB", "--spending-limit", "20"]),
        DENIED,
        &["the floor of 32MiB alone costs 23.25", "only 20.00"],
    );
    check_fails(
        &set(&data, &["--spending-limit", "cheap"]),
        USAGE,
        &["--spending-limit cheap", "decimal number"],
    );
    check_fails(
        &set(&data, &["--at-limit", "panic"]),
        USAGE,
        &["--at-limit panic", "evict-only"],
    );
    check_fails(
        &set(&data, &["--at-limit", "throttle"]),
        USAGE,
        &["--at-limit throttle", "nothing to do"],
    );
    server.stop();
    for (more, part) in [
        (&["--webhook", "example.com"][..], "must begin with http"),
        (
            &["--webhook", "http://user:secret@example.com/"],
            "no name and no secret",
        ),
        (&["--webhook-local"], "--webhook URL"),
        (
            &["--webhook", "http://example.com", "--webhook-secret-file", "/none"],
            "/none",
        ),
    ] {
        check_fails(&[&["serve", "--check-config"], more].concat(), USAGE, &[part]);
    }
}

#[test]
fn an_alert_that_fails_is_tried_again_and_one_that_is_sent_elsewhere_is_not() {
    let files = tempfile::tempdir().unwrap();
    let elsewhere = Receive::start(|_| ACCEPTED);
    // The first two are broken; then one is accepted, and the next one is said to be somewhere else.
    let location = format!("location: http://{}/", elsewhere.address);
    let moved: &'static str =
        format!("HTTP/1.1 307 Temporary Redirect\r\n{location}\r\ncontent-length: 0\r\n\r\n").leak();
    let receiver = Receive::start(move |number| match number {
        0 | 1 => BROKEN,
        2 => ACCEPTED,
        _ => moved,
    });
    let server = start(&files, "0", &["--webhook", &receiver.url(), "--webhook-local"]);
    limit(&server, "100", "alert");
    gets(&server, 60);
    let ids = [receiver.next(), receiver.next(), receiver.next()].map(|received| received.json()["id"].clone());
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    wait_for(|| alerts(&server), |alerts| alerts["sent_total"] == 1);
    gets(&server, 25);
    receiver.next();
    wait_for(|| alerts(&server), |alerts| alerts["failed_total"] == 1);
    assert!(elsewhere.requests.try_recv().is_err());
    let (_, log, _) = server.stop();
    assert!(log.contains("redirects are not followed"), "{log}");
}

#[test]
fn a_webhook_that_hangs_delays_nobody() {
    let files = tempfile::tempdir().unwrap();
    let receiver = Receive::start(|_| "");
    let server = start(&files, "0", &["--webhook", &receiver.url(), "--webhook-local"]);
    limit(&server, "100", "reject-writes");
    gets(&server, 60);
    receiver.next();
    gets(&server, 60);
    // The thread waits for an answer; limits are judged and clients are served all the same.
    wait_for(
        || ask(&server, "memcached=", "set key 0 0 1\r\ny\r\n"),
        |reply| reply.starts_with("SERVER_ERROR"),
    );
    assert_eq!(alerts(&server)["sent_total"], 0);
    let began = Instant::now();
    let (code, ..) = server.stop();
    assert_eq!(code, Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "the end waits for no receiver: {:?}",
        began.elapsed()
    );
}

#[test]
fn no_address_of_this_host_is_sent_to_unless_that_is_allowed() {
    let files = tempfile::tempdir().unwrap();
    let receiver = Receive::start(|_| ACCEPTED);
    let url = format!("http://localhost:{}/", receiver.address.port());
    for url in [receiver.url(), url] {
        let mut server = start(&files, "0", &["--webhook", &url]);
        limit(&server, "100", "alert");
        gets(&server, 60);
        server.wait_for_log("which need to be allowed");
        assert!(receiver.requests.try_recv().is_err(), "{url}");
        server.stop();
    }
}
