//! The servers that are measured. Each is a process of its own on a free port of this machine, with one thread for
//! clients. Nothing is written to disk, and memory suffices for everything that is stored.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidemark_types::Size;

use super::cores::Cores;
use super::machine::version_of;
use super::process::{Children, LOG, Process};
use crate::Error;
use tidemark_tools::client::{Login, Protocol, Secrets};
use tidemark_tools::process_cpu::Listener;

/// How long a server may take until it listens: Redis and memcached take milliseconds, on a loaded machine more.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How often it is looked whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Somebody else may take a free port before the server does.
const PORT_ATTEMPTS: usize = 5;

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The `tidemark` command.
    pub tidemark: PathBuf,
    /// `memcached`.
    pub memcached: PathBuf,
    /// `redis-server`.
    pub redis: PathBuf,
    /// This program, which can also be the responder that stores nothing.
    pub experiments: PathBuf,
}

impl Programs {
    /// The versions that are there, by name.
    pub(super) fn versions(&self) -> impl Iterator<Item = (String, String)> {
        let all = [
            ("tidemark", &self.tidemark, "--version"),
            ("memcached", &self.memcached, "--version"),
            ("redis-server", &self.redis, "--version"),
        ];
        all.into_iter()
            .filter_map(|(name, program, flag)| Some((name.to_owned(), version_of(program, flag)?)))
    }
}

/// The means to start servers.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The programs.
    pub programs: Programs,
    /// The running processes.
    pub children: Children,
    /// The cores that they run on.
    pub cores: Cores,
}

impl Stage {
    /// The same on all cores, and this thread with it: for servers and loads of more processes than there are cores.
    pub(super) fn on_all_cores(&self) -> Result<Self, Error> {
        let stage = Self {
            cores: self.cores.shared(),
            ..self.clone()
        };
        stage.cores.bind_load().map_err(Error::System)?;
        Ok(stage)
    }
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tidemark,
    Memcached,
    /// memcached with extstore: a file on flash of this size.
    Extstore {
        flash_bytes: u64,
    },
    Redis,
    /// The responder that stores nothing: answers every get with a value of this size.
    Floor {
        protocol: Protocol,
        value_bytes: usize,
    },
}

/// How large it may become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) memory_bytes: u64,
    pub(super) value_bytes: usize,
}

/// Adds a server's arguments: its folder and its port come with them.
type Arrange<'a> = &'a dyn Fn(&mut Command, &Path, &str);

/// A server that listens.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) process: Process,
    memcached: Option<SocketAddr>,
    redis: Option<SocketAddr>,
    s3: Option<SocketAddr>,
}

impl Server {
    /// Starts it and waits until it listens.
    pub(super) fn start(stage: &Stage, kind: Kind, limits: Limits) -> Result<Self, Error> {
        match kind {
            Kind::Tidemark => Self::start_tidemark(stage, limits.memory_bytes, &[]),
            Kind::Memcached => Self::start_on_free_port(stage, Protocol::Memcached, &|command, _, port| {
                memcached_arguments(command, port, limits);
            }),
            Kind::Extstore { flash_bytes } => {
                Self::start_on_free_port(stage, Protocol::Memcached, &|command, folder, port| {
                    memcached_arguments(command, port, limits);
                    extstore_arguments(command, folder, flash_bytes);
                })
            }
            Kind::Redis => Self::redis(stage),
            Kind::Floor { protocol, value_bytes } => Self::start_floor(stage, protocol, value_bytes),
        }
    }

    /// The address on which it speaks a protocol.
    pub(super) fn address(&self, protocol: Protocol) -> Result<SocketAddr, Error> {
        let address = match protocol {
            Protocol::Memcached => self.memcached,
            Protocol::Redis => self.redis,
        };
        address.ok_or_else(|| self.process.failure("it does not speak the protocol"))
    }

    /// Starts Redis, whose memory and values have no limit.
    pub(super) fn redis(stage: &Stage) -> Result<Self, Error> {
        Self::start_on_free_port(stage, Protocol::Redis, &redis_arguments)
    }

    /// Its S3 address, if its options gave it one.
    pub(super) fn s3_address(&self) -> Result<SocketAddr, Error> {
        self.s3.ok_or_else(|| self.process.failure("it says no S3 address"))
    }

    /// Starts Tidemark with further options.
    pub(super) fn start_tidemark(stage: &Stage, memory_bytes: u64, options: &[&str]) -> Result<Self, Error> {
        let mut process = Process::start(
            &stage.programs.tidemark,
            (&stage.children, &stage.cores),
            |command, folder| {
                let memory = Size(memory_bytes).to_string();
                command.args(["serve", "--workers", "1", "--memory", &memory]);
                command.args(["--memcached", "127.0.0.1:0", "--redis", "127.0.0.1:0", "--admin", "off"]);
                command.args(options).arg("--data").arg(data_folder(folder));
            },
        )?;
        let ready = process.line()?;
        let named = |name: &str| ready.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok());
        Ok(Self {
            memcached: named("memcached="),
            redis: named("redis="),
            s3: named("s3="),
            process,
        })
    }

    fn start_floor(stage: &Stage, protocol: Protocol, value_bytes: usize) -> Result<Self, Error> {
        let mut process = Process::start(
            &stage.programs.experiments,
            (&stage.children, &stage.cores),
            |command, _| {
                command.args([
                    "floor",
                    "--protocol",
                    protocol.name(),
                    "--value-bytes",
                    &value_bytes.to_string(),
                ]);
            },
        )?;
        let ready = process.line()?;
        let address = ready.strip_prefix("ready ").and_then(|text| text.parse().ok());
        Ok(Self {
            memcached: address.filter(|_| protocol == Protocol::Memcached),
            redis: address.filter(|_| protocol == Protocol::Redis),
            s3: None,
            process,
        })
    }

    /// memcached and Redis cannot be told to take a free port and say which.
    fn start_on_free_port(stage: &Stage, protocol: Protocol, arrange: Arrange<'_>) -> Result<Self, Error> {
        let mut attempt = 1;
        loop {
            match Self::start_on_port(stage, protocol, arrange) {
                Err(error) if attempt == PORT_ATTEMPTS => return Err(error),
                Err(_) => attempt += 1,
                started => return started,
            }
        }
    }

    fn start_on_port(stage: &Stage, protocol: Protocol, arrange: Arrange<'_>) -> Result<Self, Error> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(Error::System)?;
        let port = address.port().to_string();
        let program = match protocol {
            Protocol::Memcached => &stage.programs.memcached,
            Protocol::Redis => &stage.programs.redis,
        };
        let mut process = Process::start(program, (&stage.children, &stage.cores), |command, folder| {
            arrange(command, folder, &port);
        })?;
        let start = Instant::now();
        while !Listener::find(address).is_some_and(|listener| listener.is(process.id())) {
            if process.has_ended() {
                return Err(process.failure("it ended before it was ready"));
            }
            if start.elapsed() > START_LIMIT {
                return Err(process.failure("it does not listen"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Self {
            process,
            memcached: (protocol == Protocol::Memcached).then_some(address),
            redis: (protocol == Protocol::Redis).then_some(address),
            s3: None,
        })
    }
}

/// The folder of Tidemark's state in a process's folder.
pub(super) fn data_folder(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Runs a `tidemark` command about a server and returns its output.
pub(super) fn tidemark(stage: &Stage, server: &Server, arguments: &[&str]) -> Result<String, Error> {
    let failed = |reason: String| Error::Program {
        program: format!("tidemark {}", arguments.join(" ")),
        reason,
    };
    let output = Command::new(&stage.programs.tidemark)
        .args(arguments)
        .env("TIDEMARK_DATA", data_folder(server.process.folder()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Creates a tenant with these settings and returns its secret.
pub(super) fn create_tenant(stage: &Stage, server: &Server, name: &str, settings: &[&str]) -> Result<String, Error> {
    let arguments = [&["tenant", "create", name], settings, &["--json"]].concat();
    let created = tidemark_json(stage, server, &arguments)?;
    let secret = created["secret"].as_str();
    secret.map(str::to_owned).ok_or_else(|| Error::Program {
        program: "tidemark tenant create".into(),
        reason: format!("no secret in its answer: {created}"),
    })
}

/// Runs a `tidemark` command that prints JSON.
pub(super) fn tidemark_json(stage: &Stage, server: &Server, arguments: &[&str]) -> Result<serde_json::Value, Error> {
    let printed = tidemark(stage, server, arguments)?;
    serde_json::from_str(&printed).map_err(|error| Error::Program {
        program: format!("tidemark {}", arguments.join(" ")),
        reason: format!("it printed no JSON: {error}"),
    })
}

/// How connections of a tenant log in.
pub(super) fn login(tenant: &str, secret: &str) -> Result<Option<Login>, Error> {
    let name = tenant
        .parse()
        .map_err(|error| Error::Usage(format!("{tenant}: {error}")))?;
    Ok(Secrets::parse(&format!("{tenant} {secret}"))?.login(&name)?)
}

/// One thread; no UDP; memory in MiB, values as large as asked for with their item's header. The options are those of
/// memcached's manual page.
fn memcached_arguments(command: &mut Command, port: &str, limits: Limits) {
    let megabytes = (limits.memory_bytes >> 20).to_string();
    command.args([
        "-l",
        "127.0.0.1",
        "-p",
        port,
        "-U",
        "0",
        "-t",
        "1",
        "-c",
        "4096",
        "-m",
        &megabytes,
    ]);
    if limits.value_bytes >= LARGEST_DEFAULT_VALUE_BYTES {
        let item_bytes = (limits.value_bytes + ITEM_HEADER_BYTES).next_multiple_of(ITEM_STEP_BYTES);
        command.args(["-I", &item_bytes.to_string()]);
    }
    if rustix::process::getuid().is_root() {
        // It refuses to run as root.
        command.args(["-u", "nobody"]);
    }
}

/// A file in the folder, which it opens after it has become another user: it stays who it is.
fn extstore_arguments(command: &mut Command, folder: &Path, flash_bytes: u64) {
    let file = folder.join("extstore").display().to_string();
    command.args(["-o", &format!("ext_path={file}:{}M", flash_bytes >> 20)]);
    if rustix::process::getuid().is_root() {
        command.args(["-u", "root"]);
    }
}

/// By default memcached stores items of at most 1 MiB with key and header.
const LARGEST_DEFAULT_VALUE_BYTES: usize = (1 << 20) - ITEM_HEADER_BYTES;
/// More than memcached's header and any key.
const ITEM_HEADER_BYTES: usize = 512;
/// It wants its largest item to be a multiple of its largest chunk.
const ITEM_STEP_BYTES: usize = 512 << 10;

/// One thread, nothing written to disk; the options are those of Redis 7's `redis.conf`.
fn redis_arguments(command: &mut Command, folder: &Path, port: &str) {
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        port,
        "--save",
        "",
        "--appendonly",
        "no",
        "--daemonize",
        "no",
    ]);
    command
        .args(["--io-threads", "1", "--loglevel", "warning", "--dir"])
        .arg(folder);
    command.arg("--logfile").arg(folder.join(LOG));
}
