//! Agents that are processes: what functions see while agents are killed, stopped and parted is linearizable.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tidemark_cachelet::config::Level;
use tidemark_cachelet::sim::history::{Deed, Record, check};
use tidemark_cachelet::types::{Key, mix};
use tidemark_gateway::{Client, ClientError};

use crate::agent::{etcd, free_port};
use crate::s3::{Bucket, client, until_it_is_let_in};
use crate::{Server, data, send, tidemark, wait_until};

const AGENTS: usize = 3;
/// Functions at each agent, each of which asks again when it has its answer.
const FUNCTIONS: usize = 2;
const KEYS: u64 = 3;
/// Between a failure and the next request.
const REST: Duration = Duration::from_millis(20);
/// Longer than a lease lasts.
const LONG: Duration = Duration::from_millis(3_500);
/// Shorter than that.
const SHORT: Duration = Duration::from_millis(800);

/// The way to an address, which a test can cut.
struct Way {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self {
            address: listener.local_addr().unwrap(),
            is_cut: Arc::default(),
            open: Arc::default(),
        };
        let (is_cut, open) = (Arc::clone(&way.is_cut), Arc::clone(&way.open));
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let mut open = open.lock().unwrap();
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(to) = TcpStream::connect(&target) else { continue };
                for (mut source, mut sink) in [(&from, &to), (&to, &from)].map(|(a, b)| (copy(a), copy(b))) {
                    std::thread::spawn(move || {
                        let mut buffer = [0; 16 << 10];
                        while let Ok(bytes @ 1..) = source.read(&mut buffer) {
                            if sink.write_all(&buffer[..bytes]).is_err() {
                                break;
                            }
                        }
                        // It may be closed already.
                        let _ = sink.shutdown(Shutdown::Both);
                        let _ = source.shutdown(Shutdown::Both);
                    });
                }
                open.extend([from, to]);
            }
        });
        way
    }

    fn cut(&self, is_cut: bool) {
        let mut open = self.open.lock().unwrap();
        self.is_cut.store(is_cut, Ordering::SeqCst);
        for stream in open.drain(..) {
            // The other end may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn copy(stream: &TcpStream) -> TcpStream {
    stream.try_clone().unwrap()
}

/// One agent, and the ways to it and from it.
struct Node {
    agent: Option<Server>,
    peer: String,
    s3: String,
    from_others: Way,
    to_etcd: Way,
}

impl Node {
    fn start(number: usize, etcd: &str, origin: SocketAddr, cgroups: &Path) -> Self {
        let [peer, s3] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let mut node = Self {
            agent: None,
            from_others: Way::to(peer.clone()),
            to_etcd: Way::to(etcd.to_owned()),
            peer,
            s3,
        };
        node.resume(number, origin, cgroups);
        node
    }

    /// A process in place of one that is over: nothing of that one is left.
    fn resume(&mut self, number: usize, origin: SocketAddr, cgroups: &Path) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tidemark();
        command
            .args(["agent", "--origin", &format!("s3://photos?endpoint=http://{origin}")])
            .args(["--etcd", &self.to_etcd.address.to_string(), "--peer", &self.peer])
            .args(["--advertise", &self.from_others.address.to_string(), "--s3", &self.s3])
            .args([
                "--admin",
                "127.0.0.1:0",
                "--domain",
                "shop",
                "--node",
                &format!("n{number}"),
            ])
            .args(["--memory", "64MiB", "--chooser", "off"])
            .args(["--cgroup-root", cgroups.to_str().unwrap(), "--data", &data(&folder)])
            .env("TIDEMARK_LOG", "error");
        self.agent = Some(Server::started(command, folder));
    }

    fn agent(&self) -> &Server {
        self.agent.as_ref().unwrap()
    }

    fn stops(&self, for_so_long: Duration) {
        self.agent().signal(Signal::STOP);
        std::thread::sleep(for_so_long);
        self.agent().signal(Signal::CONT);
    }

    fn shown(&self) -> Value {
        self.agent().json(&["agent", "show", "shop"])
    }
}

fn settle(nodes: &[Node]) {
    wait_until("all to be members of one view", || {
        nodes.iter().all(|node| {
            let shown = node.shown();
            let members = shown["members"].as_array().map_or(0, Vec::len);
            let own = &shown["cachelets"][0];
            members == AGENTS && shown["change"].is_null() && own["is_member"] == true && own["is_leased"] == true
        })
    });
}

/// The deeds of all functions, by one clock.
struct History {
    from: Instant,
    records: Mutex<Vec<Record>>,
    values: AtomicU64,
    is_over: AtomicBool,
}

impl History {
    fn now_us(&self) -> u64 {
        u64::try_from(self.from.elapsed().as_micros()).unwrap()
    }

    /// A function's operations, until the end.
    fn note_all(&self, client: &Client, seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut chance = mix(seed);
        while !self.is_over.load(Ordering::Relaxed) {
            chance = mix(chance);
            let (key, is_write) = (format!("k{}", chance % KEYS), (chance >> 32) % 10 < 3);
            let from_us = self.now_us();
            let deed_and_end = if is_write {
                let value = self.values.fetch_add(1, Ordering::Relaxed) + 1;
                let put = client.put("photos", &key, value.to_string().into());
                Some((Deed::Write(value), runtime.block_on(put).is_ok()))
            } else {
                match runtime.block_on(client.get("photos", &key, None)) {
                    Ok(read) => Some((Deed::Read(std::str::from_utf8(&read).unwrap().parse().unwrap()), true)),
                    Err(ClientError::Refused { status: 404, .. }) => Some((Deed::Read(0), true)),
                    // Whoever read nothing knows nothing.
                    Err(_) => None,
                }
            };
            let to_us = deed_and_end.filter(|(_, is_known)| *is_known).map(|_| self.now_us());
            if to_us.is_none() {
                // As a function's SDK does before it asks again.
                std::thread::sleep(REST);
            }
            let Some((deed, _)) = deed_and_end else { continue };
            self.records.lock().unwrap().push(Record {
                key: Key::new(&key),
                deed,
                from_us,
                to_us,
            });
        }
    }

    fn count(&self, is_it: impl Fn(&Record) -> bool) -> usize {
        self.records
            .lock()
            .unwrap()
            .iter()
            .filter(|record| is_it(record))
            .count()
    }
}

/// Has functions end, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_functions_see_is_linearizable_whatever_happens_to_agents() {
    let files = tempfile::tempdir().unwrap();
    let (etcd_process, etcd) = etcd(files.path());
    let (_bucket, origin) = Bucket::with_conditions();
    let cgroups = files.path().join("cgroups");
    let mut nodes: Vec<_> = (0..AGENTS)
        .map(|number| Node::start(number, &etcd, origin, &cgroups))
        .collect();
    settle(&nodes);
    let key = nodes[0].agent().json(&["tenant", "s3-key", "shop"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let history = History {
        from: Instant::now(),
        records: Mutex::default(),
        values: AtomicU64::default(),
        is_over: AtomicBool::default(),
    };
    // Addresses stay as they are when a process is another one.
    let clients: Vec<_> = nodes.iter().map(|node| client(&[node.agent()], &key)).collect();
    clients.iter().for_each(|client| until_it_is_let_in(&runtime, client));
    std::thread::scope(|scope| {
        let _ends = Ends(&history.is_over);
        for (at, client) in clients.iter().enumerate() {
            for function in 0..FUNCTIONS {
                let history = &history;
                scope.spawn(move || history.note_all(client, (at * FUNCTIONS + function) as u64));
            }
        }
        let acknowledged = || history.count(|record| matches!(record.deed, Deed::Write(_)) && record.to_us.is_some());
        let goes_on = |nodes: &[Node]| {
            settle(nodes);
            let before = acknowledged();
            wait_until("writes", || acknowledged() >= before + 10);
        };
        goes_on(&nodes);
        // Killed, and another process at its place.
        for number in [0, 1] {
            drop(nodes[number].agent.take());
            std::thread::sleep(SHORT);
            nodes[number].resume(number, origin, &cgroups);
            goes_on(&nodes);
        }
        // Stopped for a moment, and for longer than its lease lasts.
        for (number, long) in [(1, SHORT), (2, LONG), (0, LONG)] {
            nodes[number].stops(long);
            goes_on(&nodes);
        }
        // Parted from the other agents, and from etcd.
        for (number, long) in [(0, SHORT), (2, LONG)] {
            nodes[number].from_others.cut(true);
            std::thread::sleep(long);
            nodes[number].from_others.cut(false);
            goes_on(&nodes);
            nodes[number].to_etcd.cut(true);
            std::thread::sleep(long);
            nodes[number].to_etcd.cut(false);
            goes_on(&nodes);
        }
        send(&etcd_process, Signal::STOP);
        std::thread::sleep(LONG);
        send(&etcd_process, Signal::CONT);
        goes_on(&nodes);
    });
    let mut records = history.records.into_inner().unwrap();
    let reads = records
        .iter()
        .filter(|record| matches!(record.deed, Deed::Read(1..)))
        .count();
    let open = records.iter().filter(|record| record.to_us.is_none()).count();
    println!(
        "{} operations, {reads} reads, {open} writes of which nobody knows",
        records.len()
    );
    assert!(reads >= 200, "{reads} reads");
    check(&records, Level::Linearizable).unwrap();
    // The check finds one read of what had been before.
    let last = records.iter().filter_map(|record| record.to_us).max().unwrap();
    let of = records
        .iter()
        .find(|record| matches!(record.deed, Deed::Read(1..)))
        .unwrap()
        .clone();
    records.push(Record {
        deed: Deed::Read(0),
        from_us: last + 1,
        to_us: Some(last + 2),
        ..of
    });
    assert!(check(&records, Level::Linearizable).is_err());
}
