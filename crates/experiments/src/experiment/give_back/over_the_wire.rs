//! A server that is told to take memory from one tenant while it serves another.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{KEPT_BYTES, Latency, Load};
use crate::Error;
use crate::experiment::Context;
use crate::experiment::info::{Info, begin_anew};
use crate::experiment::server::{Kind, Limits, Server, create_tenant, data_folder, login};
use tidemark_tools::bench::{self, Options, Workload};
use tidemark_tools::client::Protocol;
use tidemark_tools::load::{Distribution, MAX_VALUE_BYTES};

const HOLDER: &str = "holder";
const OTHER: &str = "other";
/// The other tenant's load.
const OTHER_KEYS: u64 = 10_000;
const OTHER_RATE: f64 = 50_000.0;
const OTHER_CONNECTIONS: usize = 16;
/// How often is looked whether the memory is back: the server says it between two of the other tenant's requests.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The lowest priority that there is: the operator shares the load's core, and must not hold the load up.
const OPERATOR_NICENESS: i32 = 19;
/// Memory that is not back by then does not come back.
const PATIENCE: Duration = Duration::from_secs(20);
/// The least part of the returned resident memory that must have left the process, which has other memory, too.
const RESIDENT_RATIO: f64 = 0.9;
/// The least part of its cap to which the tenant is filled.
const FULL_RATIO: f64 = 0.95;

/// A server with both tenants.
pub(super) struct Scene {
    server: Server,
    load: Load,
    held_bytes: u64,
    secrets: [String; 2],
}

impl Scene {
    pub(super) fn start(context: &Context, load: Load, held_bytes: u64) -> Result<Self, Error> {
        let limits = Limits {
            memory_bytes: 2 * held_bytes,
            value_bytes: MAX_VALUE_BYTES,
        };
        let server = Server::start(&context.stage, Kind::Tidemark, limits)?;
        let create = |name: &str| create_tenant(&context.stage, &server, name, &[]);
        let secrets = [create(HOLDER)?, create(OTHER)?];
        Ok(Self {
            server,
            load,
            held_bytes,
            secrets,
        })
    }

    /// Seconds until the tenant holds its grant, until the system has the memory, and the other one's 99th percentiles
    /// before and meanwhile.
    pub(super) fn round(&self) -> Result<(f64, f64, [Latency; 2]), Error> {
        let redis = self.server.address(Protocol::Redis)?;
        let mut info = Info::open(redis, HOLDER, &self.secrets[0])?;
        self.set_cap(self.held_bytes)?;
        // The cap is granted when the tenant needs it. Until then it evicts stored items.
        let full_bytes = (self.held_bytes as f64 * FULL_RATIO) as u64;
        let missing = || {
            bench::run(&self.filling()?, &mut |_| {})?;
            Ok(full_bytes.saturating_sub(info.moment(0.0)?.usage_bytes))
        };
        self.wait(Instant::now(), ("missing", 0), missing)?;
        let held_bytes = info.moment(0.0)?.usage_bytes;
        let other = self.other(redis)?;
        // Its keys are stored, and its connections are as they will be.
        bench::run(
            &Options {
                preload: true,
                ..other.clone()
            },
            &mut |_| {},
        )?;
        let before = self.measure(redis, &other)?;
        let resident_before = self.resident_bytes()?;
        // The ends of segments were never written.
        let given_bytes = held_bytes.min(resident_before).saturating_sub(KEPT_BYTES);
        let resident_after = resident_before.saturating_sub((given_bytes as f64 * RESIDENT_RATIO) as u64);
        let give_back = || {
            // On Linux of this thread alone (setpriority(2)).
            rustix::process::setpriority_process(None, OPERATOR_NICENESS)
                .map_err(|error| Error::Usage(format!("lowering a thread's priority: {error}")))?;
            let began = Instant::now();
            self.set_cap(KEPT_BYTES)?;
            let usage_seconds = self.wait(began, ("held", KEPT_BYTES), || Ok(info.moment(0.0)?.usage_bytes))?;
            let resident_seconds = self.wait(began, ("resident", resident_after), || self.resident_bytes())?;
            Ok::<_, Error>((usage_seconds, resident_seconds))
        };
        std::thread::scope(|scope| {
            let operator = scope.spawn(give_back);
            let meanwhile = self.measure(redis, &other);
            let given = operator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (usage_seconds, resident_seconds) = given?;
            Ok((usage_seconds, resident_seconds, [before, meanwhile?]))
        })
    }

    /// The other tenant's 99th percentiles under its load.
    fn measure(&self, redis: SocketAddr, other: &Options) -> Result<Latency, Error> {
        let mut info = Info::open(redis, OTHER, &self.secrets[1])?;
        begin_anew(self.server.address(Protocol::Memcached)?, OTHER, &self.secrets[1])?;
        let report = bench::run(other, &mut |_| {})?;
        let fields = info.read("latencystats")?;
        Ok(Latency {
            client_us: report.latency_us.map_or(f64::NAN, |latency| latency.p99),
            server_us: fields.part("tidemark_request_duration_usec", "p99")?,
        })
    }

    /// Asks the admin interface itself: to start a program takes the load's core for longer than the load's slowest one in a
    /// hundred.
    fn set_cap(&self, bytes: u64) -> Result<(), Error> {
        let body = format!(r#"{{"goals":{{"cap_bytes":{bytes}}}}}"#);
        let request = format!(
            "PATCH /api/v1/tenants/{HOLDER} HTTP/1.1\r\nHost: tidemark\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let path = data_folder(self.server.process.folder()).join("admin.sock");
        let ask = || {
            let mut stream = UnixStream::connect(&path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        let status = answer.lines().next().unwrap_or_default();
        if status == "HTTP/1.1 200 OK" {
            Ok(())
        } else {
            Err(self.server.process.failure(&format!("setting a cap: {status}")))
        }
    }

    /// Seconds until something comes to at most so many bytes.
    fn wait(
        &self,
        began: Instant,
        (what, most_bytes): (&str, u64),
        mut bytes: impl FnMut() -> Result<u64, Error>,
    ) -> Result<f64, Error> {
        loop {
            let now_bytes = bytes()?;
            if now_bytes <= most_bytes {
                return Ok(began.elapsed().as_secs_f64());
            }
            if began.elapsed() > PATIENCE {
                let what = format!("waiting for memory: {now_bytes} bytes are {what}, not {most_bytes}");
                return Err(self.server.process.failure(&what));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn resident_bytes(&self) -> Result<u64, Error> {
        let path = format!("/proc/{}/statm", self.server.process.id());
        let text = std::fs::read_to_string(&path).map_err(|source| Error::File {
            path: path.into(),
            source,
        })?;
        let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        Ok(pages.unwrap_or(0) * rustix::param::page_size() as u64)
    }

    /// Stores as much as the tenant may hold.
    fn filling(&self) -> Result<Options, Error> {
        Ok(Options {
            address: self.server.address(Protocol::Redis)?,
            protocol: Protocol::Redis,
            logins: vec![login(HOLDER, &self.secrets[0])?],
            keys_apart: false,
            connections: 4,
            pipeline: 50,
            threads: 1,
            workload: Workload::gets(
                self.load.keys(self.held_bytes),
                Distribution::Uniform,
                self.load.key_bytes,
                self.load.value_bytes,
            ),
            rate: None,
            burst: 1,
            sleeps: false,
            seconds: 0.01,
            preload: true,
            look_aside: false,
            verify: false,
        })
    }

    /// The other tenant's load, as long as giving back may take.
    fn other(&self, redis: SocketAddr) -> Result<Options, Error> {
        Ok(Options {
            address: redis,
            protocol: Protocol::Redis,
            logins: vec![login(OTHER, &self.secrets[1])?],
            keys_apart: false,
            connections: OTHER_CONNECTIONS,
            pipeline: 50,
            threads: 1,
            workload: Workload::gets(OTHER_KEYS, Distribution::Uniform, 16, 64),
            rate: Some(OTHER_RATE),
            burst: 1,
            // The operator runs when nothing is due.
            sleeps: true,
            seconds: self.load.seconds_max,
            preload: false,
            look_aside: false,
            verify: false,
        })
    }
}
