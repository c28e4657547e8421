//! A control plane that stands still: the data plane goes on, `/readyz` and the log say so, each once.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidemark_admin::{AdminConfig, BoundAdmin};
use tidemark_control::{Control, ControlConfig, Mailbox, StateFile};
use tidemark_server::{Config, Limits, Server};
use tidemark_types::{Clock as _, DataPlane, MIB, ManualClock, Plan, Snapshot, SystemClock};

/// Far longer than any step takes, so that only a hang is one.
const PATIENCE: Duration = Duration::from_secs(30);
const POOL_BYTES: u64 = 64 * MIB;

/// A data plane whose snapshots can be held back.
struct Gate {
    behind: Arc<dyn DataPlane>,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: bool,
    is_somebody_waiting: bool,
}

impl Gate {
    fn set_shut(&self, is_shut: bool) {
        self.state.lock().unwrap().is_shut = is_shut;
        self.changed.notify_all();
    }

    fn wait_for_somebody(&self) {
        let state = self.state.lock().unwrap();
        let is_alone = |state: &mut GateState| !state.is_somebody_waiting;
        let timeout = self.changed.wait_timeout_while(state, PATIENCE, is_alone).unwrap().1;
        assert!(!timeout.timed_out(), "no round came");
    }
}

impl DataPlane for Gate {
    fn apply(&self, plan: &Plan) {
        self.behind.apply(plan);
    }

    fn snapshot(&self) -> Snapshot {
        let mut state = self.state.lock().unwrap();
        state.is_somebody_waiting = state.is_shut;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.is_shut).unwrap();
        state.is_somebody_waiting = false;
        drop(state);
        self.behind.snapshot()
    }
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn count(&self, part: &str) -> usize {
        String::from_utf8(self.0.lock().unwrap().clone())
            .unwrap()
            .matches(part)
            .count()
    }

    fn wait_for(&self, part: &str) {
        let begun = Instant::now();
        while self.count(part) == 0 {
            assert!(begun.elapsed() < PATIENCE, "nothing was said of: {part}");
            std::thread::yield_now();
        }
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a request of memcached's and reads an answer of this length.
fn ask(client: &mut TcpStream, request: &[u8], answer: &[u8]) {
    client.write_all(request).unwrap();
    let mut got = vec![0; answer.len()];
    client.read_exact(&mut got).unwrap();
    assert_eq!(got, answer);
}

/// The answer to `GET /readyz`: status line and body.
fn readyz(folder: &Path) -> (String, String) {
    let mut stream = UnixStream::connect(folder.join("admin.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn a_control_plane_that_hangs_is_reported_and_stops_nothing() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .init();
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let mailbox = Mailbox::default();
    let config = Config {
        memcached: Some("127.0.0.1:0".parse().unwrap()),
        redis: None,
        workers: 1,
        pin: false,
        pool_bytes: POOL_BYTES,
        limits: Limits::default(),
    };
    let server = Server::start(&config, mailbox.waker()).unwrap();
    let gate = Arc::new(Gate {
        behind: server.data_plane(),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let state = StateFile::open(folder.path(), clock.now()).unwrap();
    let admin = BoundAdmin::bind(&AdminConfig {
        address: None,
        folder: folder.path().into(),
    })
    .unwrap();
    let config = ControlConfig::new(POOL_BYTES, POOL_BYTES, 1);
    let control = Control::start(mailbox, state, Arc::clone(&gate) as _, Arc::clone(&clock) as _, config).unwrap();
    let admin = admin.serve(&control.handle()).unwrap();
    let mut client = TcpStream::connect(server.memcached_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(&mut client, b"set before 0 0 1\r\n1\r\n", b"STORED\r\n");
    assert!(readyz(folder.path()).1.contains("\"control\":\"ok\""));

    gate.set_shut(true);
    gate.wait_for_somebody();
    clock.advance(Duration::from_secs(10));
    log.wait_for("the control plane stands still");
    let (status, body) = readyz(folder.path());
    assert!(status.contains(" 200 "), "{status}");
    for part in ["\"ready\":true", "\"control\":\"stale\"", "\"age_seconds\":10"] {
        assert!(body.contains(part), "{body}");
    }
    // Those that are there and those that come are served.
    ask(&mut client, b"get before\r\n", b"VALUE before 0 1\r\n1\r\nEND\r\n");
    let mut newcomer = TcpStream::connect(server.memcached_addr().unwrap()).unwrap();
    newcomer.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(&mut newcomer, b"set meanwhile 0 0 1\r\n2\r\n", b"STORED\r\n");
    ask(
        &mut client,
        b"get meanwhile\r\n",
        b"VALUE meanwhile 0 1\r\n2\r\nEND\r\n",
    );

    gate.set_shut(false);
    log.wait_for("the control plane plans again");
    assert!(readyz(folder.path()).1.contains("\"control\":\"ok\""));
    assert_eq!(log.count("the control plane stands still"), 1, "it is said once");
    control.stop().unwrap();
    admin.stop();
    server.drain(Duration::ZERO);
}
