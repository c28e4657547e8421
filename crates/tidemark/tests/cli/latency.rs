//! A goal for the mean latency: the time of answers is measured on a real server with a client that fetches missed
//! values.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;

use serde_json::Value;

use super::*;

/// Keys that are asked for at once.
const BATCH: usize = 32;
/// Gets of one key at once: a few milliseconds of work.
const OFTEN: usize = 3_000;
/// The time to fetch a missed value.
const FETCH: Duration = Duration::from_millis(20);

/// A look-aside client of the memcached protocol.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Server) -> Self {
        let memcached = server.ready.split(' ').find_map(|word| word.strip_prefix("memcached="));
        Self(BufReader::new(TcpStream::connect(memcached.unwrap()).unwrap()))
    }

    /// Asks for all of these; fetches and writes those that are missed.
    fn ask(&mut self, keys: std::ops::Range<usize>) {
        let mut gets = String::new();
        keys.clone().for_each(|key| write!(gets, "get key-{key}\r\n").unwrap());
        self.0.get_mut().write_all(gets.as_bytes()).unwrap();
        let missed: Vec<usize> = keys.filter(|_| !self.is_hit()).collect();
        if missed.is_empty() {
            return;
        }
        let fetched_at = Instant::now() + FETCH;
        while let Some(left) = fetched_at.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        let mut sets = String::new();
        missed
            .iter()
            .for_each(|key| write!(sets, "set key-{key} 0 0 5\r\nvalue\r\n").unwrap());
        self.0.get_mut().write_all(sets.as_bytes()).unwrap();
        missed.iter().for_each(|_| assert_eq!(self.line(), "STORED\r\n"));
    }

    /// Asks for a key that is there, in one request after the other without waiting.
    fn hit_often(&mut self, key: usize) {
        self.0
            .get_mut()
            .write_all(format!("get key-{key}\r\n").repeat(OFTEN).as_bytes())
            .unwrap();
        assert!((0..OFTEN).all(|_| self.is_hit()));
    }

    fn is_hit(&mut self) -> bool {
        match self.line().as_str() {
            "END\r\n" => false,
            _ => {
                assert_eq!((self.line(), self.line()), ("value\r\n".into(), "END\r\n".into()));
                true
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
}

#[test]
fn what_hits_and_misses_take_is_measured_and_shown() {
    let server = Server::start(&["--workers", "1"]);
    server.json(&["tenant", "set", "default", "--latency", "5ms"]);
    let latency = || server.json(&["tenant", "show", "default"])["latency"].clone();
    assert_eq!(latency()["mean_us"], Value::Null, "nothing was asked yet");
    let mut client = Client::connect(&server);
    let begun = Instant::now();
    let mut next = 0;
    // New keys, and one of them so often at a time that the server works at it for longer than the network would take.
    let seen = loop {
        for first in (0..10).map(|batch| next + batch * BATCH) {
            client.ask(first..first + BATCH);
            client.hit_often(first);
        }
        next += 10 * BATCH;
        let seen = latency();
        // Until it is measured, a hit counts 50 us and a miss two hundred times as much.
        if seen["miss_us"].as_f64() > Some(15_000.0) && seen["hit_us"].as_f64() > Some(50.0) {
            break seen;
        }
        assert!(begun.elapsed() < PATIENCE, "{seen}");
    };
    let [mean, hit, miss] = ["mean_us", "hit_us", "miss_us"].map(|name| seen[name].as_f64().unwrap());
    // From the get of the first key of a batch to the write of the last one a little more than the fetch passes.
    assert!((20_000.0..200_000.0).contains(&miss), "{seen}");
    assert!(hit < mean && mean < miss, "{seen}");
    let shown = stdout(&server.run(&["tenant", "show", "default"]));
    for line in ["latency goal, us", "latency, us", "of a hit", "of a miss"] {
        assert!(shown.contains(line), "{shown}");
    }
    assert_eq!(server.stop().0, Some(0));
}
