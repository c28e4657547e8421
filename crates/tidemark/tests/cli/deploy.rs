//! The files in `deploy/`: every metric that they ask for is one that the server has.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::*;

/// The words of a text that begin as metrics of this server do.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter: char| !is_part(letter) && letter != ':');
    let named = words.filter(|word| word.starts_with("tidemark_"));
    named.map(str::to_owned).collect()
}

/// `GET /metrics` with the token.
pub(super) fn scrape(server: &Server) -> String {
    let token = std::fs::read_to_string(Path::new(&server.data()).join("admin.token")).unwrap();
    let mut socket = TcpStream::connect(address(server, "admin=")).unwrap();
    let token = token.trim();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

pub(super) fn address<'a>(server: &'a Server, key: &str) -> &'a str {
    let words = server.ready.split(' ');
    words.filter_map(|word| word.strip_prefix(key)).next().unwrap()
}

/// A server of which there is every metric: with prices, a goal, a floor, a cap and a spending limit.
pub(super) fn limited_server() -> Server {
    limited_server_with(&[])
}

/// The same with more options.
pub(super) fn limited_server_with(more: &[&str]) -> Server {
    let prices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../prices.example.toml");
    let webhook = ["--webhook", "http://127.0.0.1:9/"];
    let server = Server::start(&[&["--prices", prices.to_str().unwrap()], &webhook[..], more].concat());
    assert!(
        server
            .run(&[
                "tenant",
                "set",
                "default",
                "--hit-ratio",
                "0.9",
                "--floor",
                "2MiB",
                "--cap",
                "512MiB",
                "--spending-limit",
                "9"
            ])
            .status
            .success()
    );
    server
}

/// A connection that reads and writes.
pub(super) struct Client(TcpStream);

impl Client {
    pub(super) fn new(server: &Server) -> Self {
        Self(TcpStream::connect(address(server, "memcached=")).unwrap())
    }

    pub(super) fn ask(&mut self) {
        self.0.write_all(b"set key 0 0 5\r\nvalue\r\nget none\r\n").unwrap();
        self.0.read_exact(&mut [0; 8 + 5]).unwrap();
    }
}

#[test]
fn boards_and_alerts_ask_for_metrics_that_there_are() {
    let server = limited_server();
    Client::new(&server).ask();
    // A goal of which nothing is known yet has no sample.
    let deadline = Instant::now() + PATIENCE;
    let there = loop {
        let answer = scrape(&server);
        let samples = answer.lines().filter(|line| !line.starts_with('#'));
        let there: BTreeSet<String> = samples.flat_map(metrics_in).collect();
        let is_whole = ["tidemark_tenant_goal_met", "tidemark_tenant_spent_ratio"]
            .iter()
            .all(|metric| there.contains(*metric));
        if is_whole || Instant::now() > deadline {
            break there;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    for file in ["prometheus/tidemark.rules.yml", "grafana/tidemark.json"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let wanted = metrics_in(&text);
        assert!(wanted.len() > 5, "{file}: {wanted:?}");
        for metric in wanted {
            assert!(there.contains(&metric), "{file}: {metric} is not among {there:?}");
        }
    }
    server.stop();
}
