//! Prometheus itself scrapes a server by the configuration in `deploy/`, and every query of the board and the rules has data.

use serde_json::Value;

use super::deploy::{address, limited_server};
use super::*;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// A Prometheus that scrapes one server.
struct Prometheus {
    _process: Running,
    address: String,
    _log: BufReader<ChildStderr>,
}

impl Prometheus {
    /// With the example configuration, but for this server's address and token, and without its patience.
    fn scraping(server: &Server, folder: &Path) -> Self {
        let made = server.run(&["token", "create", "--role", "scraper"]);
        assert!(made.status.success(), "{}", stderr(&made));
        let token = folder.join("token");
        std::fs::write(&token, &made.stdout).unwrap();
        let rules = format!("{DEPLOY}/prometheus/tidemark.rules.yml");
        let mut config = std::fs::read_to_string(format!("{DEPLOY}/prometheus/prometheus.example.yml")).unwrap();
        for (text, here) in [
            (
                "scrape_interval: 10s",
                "scrape_interval: 200ms\n  evaluation_interval: 200ms",
            ),
            ("- tidemark.rules.yml", &format!("- {rules}")),
            ("/etc/prometheus/tidemark.token", token.to_str().unwrap()),
            ("127.0.0.1:7070", address(server, "admin=")),
        ] {
            assert!(config.contains(text), "{text} is not in the example:\n{config}");
            config = config.replace(text, here);
        }
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let mut process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("series").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`prometheus` is needed: scripts/install test");
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let process = Running(process);
        let mut text = String::new();
        let address = loop {
            let before = text.len();
            assert!(log.read_line(&mut text).unwrap() > 0, "{text}");
            let line = text[before..].trim_end();
            if let Some((_, address)) = line.split_once("msg=\"Listening on\" address=") {
                break address.to_owned();
            }
        };
        Self {
            _process: process,
            address,
            _log: log,
        }
    }

    /// The data of an answer of its API.
    fn get(&self, path: &str, query: Option<&str>) -> Value {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--show-error",
            "--get",
            &format!("http://{}{path}", self.address),
        ]);
        if let Some(query) = query {
            command.args(["--data-urlencode", &format!("query={query}")]);
        }
        let output = command.output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        assert_eq!(answer["status"], "success", "{query:?}: {answer}");
        answer["data"].clone()
    }

    fn has_data(&self, query: &str) -> bool {
        !self.get("/api/v1/query", Some(query))["result"]
            .as_array()
            .unwrap()
            .is_empty()
    }
}

/// The queries of the board, for all tenants.
fn board() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{DEPLOY}/grafana/tidemark.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| target["expr"].as_str().unwrap().replace("$tenant", ".*"));
    queries.collect()
}

/// The expression that an alert compares with a number.
fn compared(query: &str) -> &str {
    let operators = [" > ", " == ", " < "];
    let end = operators.iter().filter_map(|operator| query.rfind(operator)).max();
    let (left, right) = query.split_at(end.unwrap_or_else(|| panic!("{query} compares nothing")));
    let number = right.rsplit(' ').next().unwrap();
    assert!(number.parse::<f64>().is_ok(), "{query} ends in no number");
    left
}

#[test]
fn every_query_of_board_and_rules_has_data() {
    let server = limited_server();
    let folder = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::scraping(&server, folder.path());
    let groups = prometheus.get("/api/v1/rules", None);
    let rules = groups["groups"][0]["rules"].as_array().unwrap().clone();
    let of_rules = rules.iter().map(|rule| match rule["type"].as_str() {
        Some("recording") => rule["name"].as_str().unwrap().to_owned(),
        _ => compared(rule["query"].as_str().unwrap()).to_owned(),
    });
    let mut waiting: Vec<String> = of_rules.chain(board()).collect();
    assert!(rules.len() >= 8 && waiting.len() >= 20, "{waiting:?}");
    let mut client = deploy::Client::new(&server);
    let deadline = Instant::now() + PATIENCE;
    while !waiting.is_empty() {
        // Rates are of what happens while it scrapes.
        client.ask();
        waiting.retain(|query| !prometheus.has_data(query));
        assert!(Instant::now() < deadline, "no data for {waiting:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let rules = prometheus.get("/api/v1/rules", None);
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    server.stop();
}
