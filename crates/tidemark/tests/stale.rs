//! A control plane that stands still, and one that ends by a panic: the data plane goes on, `/readyz` and the log say so.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidemark_admin::{Admin, AdminConfig, BoundAdmin};
use tidemark_control::{Control, ControlConfig, ControlError, Mailbox, SettingsPatch, StateFile};
use tidemark_server::{Config, CpuMeasure, Limits, Server};
use tidemark_types::{Clock, DataPlane, MIB, ManualClock, Plan, Snapshot, SystemClock, UnixMs};

/// Far longer than any step takes, so that only a hang is one.
const PATIENCE: Duration = Duration::from_secs(30);
const POOL_BYTES: u64 = 64 * MIB;

/// A data plane whose snapshots can be held back, and say nothing of whose removal is done.
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
        let mut snapshot = self.behind.snapshot();
        snapshot.removed.clear();
        snapshot
    }
}

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

/// The system's time at the start and the time that passes, until the control plane cannot bear it.
struct Fragile {
    time: ManualClock,
    is_broken: AtomicBool,
}

impl Clock for Fragile {
    fn now(&self) -> UnixMs {
        let is_control = std::thread::current().name() == Some("tidemark-control");
        assert!(
            !(is_control && self.is_broken.load(Ordering::SeqCst)),
            "no idea what time it is"
        );
        self.time.now()
    }
}

/// A server with its parts in sight.
struct Scene {
    folder: tempfile::TempDir,
    log: Log,
    clock: Arc<Fragile>,
    gate: Arc<Gate>,
    server: Server,
    control: Control,
    admin: Admin,
}

impl Scene {
    fn start() -> Self {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .init();
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(Fragile {
            time: ManualClock::new(SystemClock.now()),
            is_broken: AtomicBool::new(false),
        });
        let mailbox = Mailbox::default();
        let config = Config {
            memcached: Some("127.0.0.1:0".parse().unwrap()),
            redis: None,
            of_tenants: Vec::new(),
            allowed: Vec::new(),
            workers: 1,
            pin: false,
            pool_bytes: POOL_BYTES,
            limits: Limits::default(),
            flash: None,
            estimating: None,
            measure: CpuMeasure::default(),
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
            open_metrics: false,
            reports: Default::default(),
        });
        let config = ControlConfig::new(POOL_BYTES, POOL_BYTES, 1);
        let control = Control::start(mailbox, state, Arc::clone(&gate) as _, Arc::clone(&clock) as _, config).unwrap();
        let admin = admin.unwrap().serve(&control.handle(), None).unwrap();
        Self {
            folder,
            log,
            clock,
            gate,
            server,
            control,
            admin,
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.server.memcached_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// The answer to a GET: status line and body.
    fn get(&self, path: &str) -> (String, String) {
        let mut stream = UnixStream::connect(self.folder.path().join("admin.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    fn is_well(&self) -> bool {
        self.get("/readyz").1.contains("\"control\":\"ok\"")
    }

    /// Present items and new clients are served.
    fn still_serves(&self, old: &mut TcpStream, key: &str) {
        ask(old, b"get before\r\n", b"VALUE before 0 1\r\n1\r\nEND\r\n");
        let set = format!("set {key} 0 0 1\r\n2\r\n");
        ask(&mut self.connect(), set.as_bytes(), b"STORED\r\n");
        let (get, value) = (format!("get {key}\r\n"), format!("VALUE {key} 0 1\r\n2\r\nEND\r\n"));
        ask(old, get.as_bytes(), value.as_bytes());
    }
}

#[test]
fn a_control_plane_that_hangs_or_dies_is_reported_and_stops_nothing() {
    let scene = Scene::start();
    let mut client = scene.connect();
    ask(&mut client, b"set before 0 0 1\r\n1\r\n", b"STORED\r\n");
    assert!(scene.is_well());

    scene.gate.set_shut(true);
    scene.gate.wait_for_somebody();
    scene.clock.time.advance(Duration::from_secs(10));
    scene.log.wait_for("the control plane stands still");
    let (status, body) = scene.get("/readyz");
    assert!(status.contains(" 200 "), "{status}");
    for part in ["\"ready\":true", "\"control\":\"stale\"", "\"age_seconds\":10"] {
        assert!(body.contains(part), "{body}");
    }
    scene.still_serves(&mut client, "meanwhile");

    scene.gate.set_shut(false);
    scene.log.wait_for("the control plane plans again");
    assert!(scene.is_well());
    assert_eq!(scene.log.count("the control plane stands still"), 1, "it is said once");

    // Somebody waits for memory that does not come back, and somebody else for an answer.
    let control = scene.control.handle();
    control.create_tenant("old", SettingsPatch::default()).wait().unwrap();
    let removal = control.remove_tenant("old");
    // It is under way when a later request is answered.
    control.server().wait().unwrap();
    scene.gate.set_shut(true);
    scene.gate.wait_for_somebody();
    let question = control.server();
    scene.clock.is_broken.store(true, Ordering::SeqCst);
    scene.gate.set_shut(false);
    scene.log.wait_for("the control plane has ended by a panic");
    assert!(matches!(removal.wait(), Err(ControlError::Stopped)));
    assert!(matches!(question.wait(), Err(ControlError::Stopped)));
    let (status, body) = scene.get("/readyz");
    assert!(
        status.contains(" 200 ") && body.contains("\"control\":\"stale\""),
        "{status} {body}"
    );
    scene.still_serves(&mut client, "afterwards");
    let (status, body) = scene.get("/api/v1/tenants");
    assert!(
        status.contains(" 503 ") && body.contains("must be started again"),
        "{status} {body}"
    );
    let open = || StateFile::open(scene.folder.path(), SystemClock.now());
    assert!(open().is_err(), "nobody else may have the folder yet");
    assert!(matches!(scene.control.stop(), Err(ControlError::Stopped)));
    assert!(open().is_ok());
    scene.admin.stop();
    scene.server.drain(Duration::ZERO);
}
