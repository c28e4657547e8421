//! The needs of every test: a running server whose tenants plans name, clients as raw sockets, waiting for conditions,
//! and processes of a test's own.
//!
//! Nothing here waits for a time to pass: everything waits for a condition, up to [`PATIENCE`], and says what it waited for.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use socket2::{Domain, Socket, Type};
use tidemark_plane::Flash;
use tidemark_server::{Config, CpuMeasure, Limits, Server};
use tidemark_types::{
    DataPlane, FlashPlan, MIB, Permissions, Plan, Policy, PoolSnapshot, SamplingThreshold, Secret, SecretHash,
    TenantId, TenantLimits, TenantPlan, TenantSnapshot, TenantState, Weight,
};

use crate::transcript::show;

/// How long a test waits for something that must come. Much longer than it takes, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The secret of [`tenant`]: of the form that `tidemark` gives out.
pub(crate) const SECRET: &str = "0123456789-abcdefghijklmnopqrstuvwxyz_ABCDE";

/// A running server.
pub(crate) struct Harness {
    server: Option<Server>,
    plane: Arc<dyn DataPlane>,
    sequence: AtomicU64,
    pool_bytes: AtomicU64,
    seen: Mutex<Seen>,
    /// How often the server asked for a round at once.
    alarms: Arc<AtomicU64>,
    /// The memory of the server beside the pool without a connection.
    base_bytes: u64,
    pub(crate) address: SocketAddr,
    /// The address for RESP.
    pub(crate) redis: SocketAddr,
}

/// The content of snapshots so far.
#[derive(Default)]
struct Seen {
    tenants: HashMap<TenantId, TenantSnapshot>,
    removed: Vec<TenantId>,
}

/// How a server is started.
pub(crate) struct Setup {
    pub(crate) workers: usize,
    pub(crate) pool_bytes: u64,
    pub(crate) limits: Limits,
    pub(crate) tenants: Vec<TenantPlan>,
    pub(crate) flash: Option<Arc<Flash>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            workers: 2,
            pool_bytes: 256 * MIB,
            limits: quick_to_refuse(),
            tenants: vec![open_tenant()],
            flash: None,
        }
    }
}

/// The usual limits, but for tests that log in wrongly again and again.
pub(crate) fn quick_to_refuse() -> Limits {
    Limits {
        failed_login: Duration::from_millis(5),
        ..Limits::default()
    }
}

/// A tenant with one secret, [`SECRET`], and 16 MiB.
pub(crate) fn tenant(id: u32, name: &str) -> TenantPlan {
    TenantPlan {
        id: TenantId(id),
        version: 1,
        name: name.parse().unwrap(),
        open: false,
        secrets: vec![secret(SECRET, Permissions::ALL)],
        policy: Policy::default(),
        shards: 1,
        grant_bytes: 16 * MIB,
        first_grant_bytes: 0,
        cap_bytes: None,
        limits: TenantLimits::default(),
        refuses_writes: false,
        weight: Weight::default(),
        sampling_threshold: SamplingThreshold::OFF,
        flash: FlashPlan::default(),
        state: TenantState::Active,
    }
}

/// The tenant that loopback connections start in.
pub(crate) fn open_tenant() -> TenantPlan {
    TenantPlan {
        open: true,
        ..tenant(1, "default")
    }
}

/// A secret as plans name it.
pub(crate) fn secret(text: &str, permissions: Permissions) -> Secret {
    Secret {
        hash: SecretHash(Sha256::digest(text).into()),
        permissions,
    }
}

/// Calls until it gives something; panics if it does not in time.
pub(crate) fn wait_for<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        // The rest between two looks, so that the awaited work gets the CPU.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends those that look at this, also when the wait fails.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

impl Harness {
    pub(crate) fn start(setup: Setup) -> Self {
        let config = Config {
            memcached: Some((Ipv4Addr::LOCALHOST, 0).into()),
            redis: Some((Ipv4Addr::LOCALHOST, 0).into()),
            of_tenants: Vec::new(),
            allowed: Vec::new(),
            workers: setup.workers,
            pin: false,
            pool_bytes: setup.pool_bytes,
            limits: setup.limits,
            flash: setup.flash,
            estimating: None,
            measure: CpuMeasure::default(),
        };
        let alarms = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&alarms);
        let count_alarm = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let server = Server::start(&config, Arc::new(count_alarm)).unwrap();
        let mut harness = Self {
            plane: server.data_plane(),
            address: server.memcached_addr().unwrap(),
            redis: server.redis_addr().unwrap(),
            server: Some(server),
            sequence: AtomicU64::new(0),
            pool_bytes: AtomicU64::new(setup.pool_bytes),
            seen: Mutex::default(),
            alarms,
            base_bytes: 0,
        };
        harness.apply(setup.tenants);
        harness.base_bytes = harness.look().other_bytes;
        harness
    }

    /// Applies a plan with these tenants.
    pub(crate) fn apply(&self, tenants: Vec<TenantPlan>) {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        self.plane.apply(&Plan {
            sequence,
            pool_bytes: self.pool_bytes.load(Ordering::Relaxed),
            tenants,
        });
    }

    /// Changes the pool's size, and with it these tenants.
    pub(crate) fn resize_pool(&self, bytes: u64, tenants: Vec<TenantPlan>) {
        self.pool_bytes.store(bytes, Ordering::Relaxed);
        self.apply(tenants);
    }

    /// How often the server asked for a round at once.
    pub(crate) fn alarms(&self) -> u64 {
        self.alarms.load(Ordering::Relaxed)
    }

    /// Takes a snapshot. Its facts about tenants are remembered.
    pub(crate) fn look(&self) -> PoolSnapshot {
        let snapshot = self.plane.snapshot();
        let mut seen = self.seen.lock();
        seen.tenants
            .extend(snapshot.tenants.into_iter().map(|tenant| (tenant.id, tenant)));
        seen.removed.extend(snapshot.removed);
        snapshot.pool
    }

    /// The bytes of connections' buffers.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.look().other_bytes.checked_sub(self.base_bytes).unwrap()
    }

    /// The newest that is known of a tenant.
    pub(crate) fn tenant(&self, id: u32) -> Option<TenantSnapshot> {
        self.look();
        self.seen.lock().tenants.get(&TenantId(id)).cloned()
    }

    /// The most visits to others that a connection of a tenant waited for since this was asked last.
    pub(crate) fn visits_waited(&self, tenant: &str) -> Option<u64> {
        self.server.as_ref()?.take_visits_waited(tenant)
    }

    /// The tenants whose removal snapshots said to be complete.
    pub(crate) fn removed(&self) -> Vec<TenantId> {
        self.look();
        self.seen.lock().removed.clone()
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// A new connection from another address of this machine.
    pub(crate) fn connect_from(&self, address: Ipv4Addr) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        Client::new(socket.into())
    }

    /// A new connection, logged in with [`SECRET`].
    pub(crate) fn log_in(&self, name: &str) -> Client {
        let mut client = self.connect();
        client.ask(&login(name, SECRET), b"STORED\r\n");
        client
    }

    /// Drains the server.
    pub(crate) fn drain(mut self, limit: Duration) {
        self.stop(limit);
    }

    fn stop(&mut self, limit: Duration) {
        if let Some(server) = self.server.take() {
            server.drain(limit);
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// memcached's login.
pub(crate) fn login(name: &str, secret: &str) -> Vec<u8> {
    set("auth", format!("{name} {secret}").as_bytes())
}

/// A `set` without flags and time.
pub(crate) fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
    request.extend_from_slice(value);
    request.extend_from_slice(b"\r\n");
    request
}

/// The answer of `get`.
pub(crate) fn found(key: &str, value: &[u8]) -> Vec<u8> {
    let mut reply = format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes();
    reply.extend_from_slice(value);
    reply.extend_from_slice(b"\r\nEND\r\n");
    reply
}

/// A client's end of a connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).unwrap())
    }

    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            received: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .unwrap_or_else(|error| panic!("sending {}: {error}", show(bytes)));
    }

    /// Receives exactly this.
    #[track_caller]
    pub(crate) fn expect(&mut self, reply: &[u8]) {
        while self.received.len() < reply.len() && reply.starts_with(&self.received) {
            if let Err(why) = self.receive() {
                panic!("{why}\nexpected {}\nreceived {}", show(reply), show(&self.received));
            }
        }
        if !self.received.starts_with(reply) {
            let same = reply.iter().zip(&self.received).take_while(|(a, b)| a == b).count();
            let (expected, received) = (show(&reply[same..]), show(&self.received[same..]));
            panic!("the same up to byte {same}\nexpected {expected}\nreceived {received}");
        }
        self.received.drain(..reply.len());
    }

    /// Receives exactly this, and takes no more from the system.
    #[track_caller]
    pub(crate) fn read_exactly(&mut self, reply: &[u8]) {
        let mut received = vec![0; reply.len()];
        self.stream.read_exact(&mut received).unwrap();
        assert!(
            received == reply,
            "expected {}\nreceived {}",
            show(reply),
            show(&received)
        );
    }

    /// Sends a request and receives exactly this reply.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: &[u8], reply: &[u8]) {
        self.send(request);
        self.expect(reply);
    }

    /// Everything that is answered to a request; the server's next reply is known.
    pub(crate) fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        self.send(request);
        self.send(b"mn\r\n");
        let (mut answered, ended) = self.receive_until(|bytes| bytes.ends_with(b"MN\r\n"));
        assert!(!ended, "the connection was closed after {}", show(&answered));
        answered.truncate(answered.len() - b"MN\r\n".len());
        answered
    }

    /// Receives a line.
    pub(crate) fn line(&mut self) -> Vec<u8> {
        let end = |bytes: &[u8]| bytes.windows(2).position(|window| window == b"\r\n").map(|at| at + 2);
        let (mut received, _) = self.receive_until(|bytes| end(bytes).is_some());
        let length = end(&received).unwrap_or_else(|| panic!("no line: {}", show(&received)));
        self.received = received.split_off(length);
        received
    }

    /// A figure of `stats`.
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        let stats = String::from_utf8(self.answer(b"stats\r\n")).unwrap();
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("no figure {name}: {stats}"))
    }

    /// Receives the rest, up to the end of the connection.
    #[track_caller]
    pub(crate) fn expect_end(&mut self, rest: &[u8]) {
        self.expect(rest);
        match self.receive() {
            Err(why) if why.is_end() => {}
            Err(why) => panic!("the connection was not closed: {why}"),
            Ok(()) => panic!("more came: {}", show(&self.received)),
        }
    }

    /// Receives until the input satisfies `is_all` or the connection ends; returns it and whether the connection ended.
    pub(crate) fn receive_until(&mut self, mut is_all: impl FnMut(&[u8]) -> bool) -> (Vec<u8>, bool) {
        loop {
            if is_all(&self.received) {
                return (std::mem::take(&mut self.received), false);
            }
            match self.receive() {
                Ok(()) => {}
                Err(why) if why.is_end() => return (std::mem::take(&mut self.received), true),
                Err(why) => panic!("{why}; received {}", show(&self.received)),
            }
        }
    }

    fn receive(&mut self) -> Result<(), Silence> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(Silence::Closed),
            Ok(received) => {
                self.received.extend_from_slice(&buffer[..received]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                Err(Silence::Reset)
            }
            Err(error) => Err(Silence::Late(error)),
        }
    }
}

/// Why nothing came.
#[derive(Debug)]
enum Silence {
    Closed,
    Reset,
    Late(std::io::Error),
}

impl Silence {
    fn is_end(&self) -> bool {
        !matches!(self, Self::Late(_))
    }
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Reset => f.write_str("the server reset the connection"),
            Self::Late(error) => write!(f, "nothing came within {PATIENCE:?}: {error}"),
        }
    }
}

/// Random numbers that a seed determines (xorshift64*, Vigna 2016).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)) * bound as u128) >> 64) as usize
    }
}

/// A seed, another one each time; print it.
pub(crate) fn random_seed() -> u64 {
    tidemark_types::Clock::now(&tidemark_types::SystemClock).0 | 1
}
