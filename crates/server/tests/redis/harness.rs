//! A running server, and clients that speak RESP to it byte by byte.
//!
//! Everything waits for a condition, up to [`PATIENCE`].

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use socket2::{Domain, Socket, Type};
use tidemark_server::{Config, CpuMeasure, Limits, Server};
use tidemark_types::{
    CommandCount, DataPlane, FlashPlan, MIB, Permissions, Plan, Policy, PoolSnapshot, Sample, SamplingThreshold,
    Secret, SecretHash, TenantId, TenantLimits, TenantPlan, TenantState, Weight,
};

/// How long a test waits for something that must come. Much longer than it takes, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const POOL_BYTES: u64 = 512 * MIB;

/// A running server.
pub(crate) struct Harness {
    server: Option<Server>,
    plane: Arc<dyn DataPlane>,
    address: SocketAddr,
    memcached: SocketAddr,
}

/// A tenant with 64 MiB in four shards.
pub(crate) fn tenant(id: u32, name: &str, secrets: &[(&str, Permissions)]) -> TenantPlan {
    let secret = |(text, permissions): &(&str, Permissions)| Secret {
        hash: SecretHash(Sha256::digest(text).into()),
        permissions: *permissions,
    };
    TenantPlan {
        id: TenantId(id),
        version: 1,
        name: name.parse().unwrap(),
        open: false,
        secrets: secrets.iter().map(secret).collect(),
        policy: Policy::default(),
        shards: 4,
        grant_bytes: 64 * MIB,
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
        ..tenant(1, "default", &[])
    }
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        // The rest between two looks, so that the awaited work gets the CPU.
        std::thread::yield_now();
    }
}

impl Harness {
    /// A server with two workers and the open tenant.
    pub(crate) fn start() -> Self {
        Self::with(2, vec![open_tenant()])
    }

    pub(crate) fn with(workers: usize, tenants: Vec<TenantPlan>) -> Self {
        let config = Config {
            memcached: Some((Ipv4Addr::LOCALHOST, 0).into()),
            redis: Some((Ipv4Addr::LOCALHOST, 0).into()),
            of_tenants: Vec::new(),
            allowed: Vec::new(),
            workers,
            pin: false,
            pool_bytes: POOL_BYTES,
            limits: Limits {
                // Tests log in wrongly again and again.
                failed_login: Duration::from_millis(5),
                ..Limits::default()
            },
            flash: None,
            estimating: None,
            measure: CpuMeasure::default(),
        };
        let server = Server::start(&config, Arc::new(|| {})).unwrap();
        let plane = server.data_plane();
        plane.apply(&Plan {
            sequence: 1,
            pool_bytes: POOL_BYTES,
            tenants,
        });
        let address = server.redis_addr().unwrap();
        let memcached = server.memcached_addr().unwrap();
        Self {
            memcached,
            server: Some(server),
            plane,
            address,
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).unwrap())
    }

    /// A connection to the other protocol's port.
    pub(crate) fn connect_memcached(&self) -> Client {
        Client::new(TcpStream::connect(self.memcached).unwrap())
    }

    /// A connection from another address of this machine.
    pub(crate) fn connect_from(&self, address: Ipv4Addr) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        Client::new(socket.into())
    }

    /// Applies a plan with these tenants, after the first one.
    pub(crate) fn apply(&self, tenants: Vec<TenantPlan>) {
        self.plane.apply(&Plan {
            sequence: 2,
            pool_bytes: POOL_BYTES,
            tenants,
        });
    }

    /// The data plane's report on the pool.
    pub(crate) fn pool(&self) -> PoolSnapshot {
        self.plane.snapshot().pool
    }

    /// The most visits to others that a connection of a tenant waited for since this was asked last.
    pub(crate) fn take_visits_waited(&self, tenant: &str) -> Option<u64> {
        self.server.as_ref()?.take_visits_waited(tenant)
    }

    /// How often each command was executed, by outcome.
    pub(crate) fn executed(&self) -> Vec<CommandCount> {
        let tenants = self.plane.snapshot().tenants;
        tenants.into_iter().flat_map(|tenant| tenant.commands).collect()
    }

    /// CPU time that is a tenant's, in nanoseconds; zero if the tenant was not used since somebody asked last.
    pub(crate) fn cpu_ns(&self, tenant: TenantId) -> u64 {
        let tenants = self.plane.snapshot().tenants;
        let of_it = tenants.iter().filter(|one| one.id == tenant);
        of_it.map(|one| one.counters.cpu_ns).sum()
    }

    /// The records of sampled keys since the last call.
    pub(crate) fn sampled(&self) -> Vec<Sample> {
        let tenants = self.plane.snapshot().tenants;
        tenants.into_iter().flat_map(|tenant| tenant.samples.records).collect()
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.drain(Duration::ZERO);
        }
    }
}

/// A command as an array of bulk strings.
pub(crate) fn array<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(&bulk(word.as_ref()));
    }
    bytes
}

/// A bulk string.
pub(crate) fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// A client's end of a connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            received: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a command and returns its whole reply.
    pub(crate) fn call<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Vec<u8> {
        self.send(&array(words));
        self.reply()
    }

    /// Sends a command whose words are separated by spaces and returns its reply as text.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        String::from_utf8(self.call(&words)).unwrap()
    }

    /// The integer that a command answers.
    pub(crate) fn number(&mut self, line: &str) -> i64 {
        let reply = self.ask(line);
        let number = reply.strip_prefix(':').and_then(|text| text.trim_end().parse().ok());
        number.unwrap_or_else(|| panic!("{line}: {reply}"))
    }

    /// The text that a command answers.
    pub(crate) fn text(&mut self, line: &str) -> String {
        let reply = self.ask(line);
        let (header, text) = reply.split_once("\r\n").unwrap();
        assert!(header.starts_with(['$', '=']), "{line}: {reply}");
        text.trim_end_matches("\r\n").to_owned()
    }

    /// All that is answered to lines of memcached's protocol; the server's next reply is known.
    pub(crate) fn memcached(&mut self, request: &[u8]) -> Vec<u8> {
        const MARK: &[u8] = b"MN\r\n";
        self.send(request);
        self.send(b"mn\r\n");
        while !self.received.ends_with(MARK) {
            assert!(self.receive(), "closed after {}", self.received.escape_ascii());
        }
        let mut answered = std::mem::take(&mut self.received);
        answered.truncate(answered.len() - MARK.len());
        answered
    }

    /// The next whole reply.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        self.next_reply()
            .unwrap_or_else(|| panic!("closed after {}", self.received.escape_ascii()))
    }

    /// The next whole reply; `None` if the server has closed the connection before.
    pub(crate) fn next_reply(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = reply_end(&self.received, 0) {
                return Some(self.received.drain(..end).collect());
            }
            if !self.receive() {
                return None;
            }
        }
    }

    /// Whether a whole reply has come.
    pub(crate) fn has_reply(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        self.stream.set_nonblocking(true).unwrap();
        if let Ok(received) = self.stream.read(&mut buffer) {
            self.received.extend_from_slice(&buffer[..received]);
        }
        self.stream.set_nonblocking(false).unwrap();
        reply_end(&self.received, 0).is_some()
    }

    /// All that comes until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.receive() {}
        std::mem::take(&mut self.received)
    }

    /// Receives something. `false` at the end of the connection.
    fn receive(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(received) => {
                self.received.extend_from_slice(&buffer[..received]);
                received > 0
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => false,
            Err(error) => panic!("{error}; received {}", self.received.escape_ascii()),
        }
    }
}

/// The end of the reply that begins at `at`, if it is all there.
fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let line = at + bytes.get(at..)?.windows(2).position(|window| window == b"\r\n")?;
    let length = || str::from_utf8(&bytes[at + 1..line]).ok()?.parse::<i64>().ok();
    let behind = line + 2;
    let elements = match bytes[at] {
        b'$' | b'=' => {
            let Ok(length) = usize::try_from(length()?) else {
                return Some(behind);
            };
            return Some(behind + length + 2).filter(|end| *end <= bytes.len());
        }
        b'*' | b'~' | b'>' => length()?,
        b'%' => length()? * 2,
        _ => 0,
    };
    (0..elements).try_fold(behind, |at, _| reply_end(bytes, at))
}
