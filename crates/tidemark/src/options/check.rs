//! The second stage: texts to values, each refused by the place where it was written.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidemark_control::{
    DEFAULT_LEASE_PERIOD, DEFAULT_LEDGER_PERIOD, DEFAULT_LEDGER_RETENTION, Idling, MAX_IDLE_AFTER, MAX_LEASE_PERIOD,
    MAX_LEDGER_PERIOD, MAX_LEDGER_RETENTION, MIN_FIRST_GRANT_BYTES, MIN_IDLE_AFTER, MIN_LEASE_PERIOD,
    MIN_LEDGER_PERIOD, MIN_LEDGER_RETENTION, MIN_POOL_BYTES,
};
use tidemark_gateway::config::{DEFAULT_FRESHNESS, DEFAULT_WORKERS};
use tidemark_gateway::{Freshness, Origins};
use tidemark_types::{Size, format_duration, parse_duration};

use super::{Availability, OPTIONS, OptionError, OptionSpec, Source, Written};

/// More threads than this would wait for each other's locks more than they would serve.
const MAX_WORKERS: usize = 256;
/// Of `sockaddr_un`'s 108 bytes one is the zero at the end (unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// What the server is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServeOptions {
    /// `None`: as much as the node leases.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memcached: Option<SocketAddr>,
    pub(crate) redis: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) data: PathBuf,
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    pub(crate) open_metrics: bool,
    pub(crate) idling: Idling,
    /// The folder in which instances share the node's memory.
    pub(crate) node_memory: Option<PathBuf>,
    pub(crate) lease_period: Duration,
    pub(crate) s3: Option<S3Options>,
    /// What a row of the ledger is for, and how long it is kept.
    pub(crate) ledger_period: Duration,
    pub(crate) ledger_retention: Duration,
    pub(crate) prices: Option<PathBuf>,
}

/// The S3 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct S3Options {
    pub(crate) address: SocketAddr,
    pub(crate) origins: Origins,
    pub(crate) freshness: Freshness,
    pub(crate) workers: usize,
    pub(crate) read_only: bool,
}

/// What the defaults and limits depend on.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    /// The user's data folder for Tidemark, if the environment tells.
    pub(crate) data_folder: Option<PathBuf>,
}

impl Machine {
    fn default_folder(&self) -> Result<PathBuf, OptionError> {
        let folder = self.data_folder.clone();
        let folder = folder
            .ok_or_else(|| OptionError("there is no home folder to keep data in: say where with --data DIR".into()))?;
        with_room_for_socket(folder.clone())
            .map_err(|problem| OptionError(format!("{}: {problem}: say where with --data DIR", folder.display())))
    }
}

impl ServeOptions {
    /// Checks what was written.
    pub(crate) fn check(written: &Written, machine: &Machine) -> Result<Self, OptionError> {
        for option in OPTIONS
            .iter()
            .filter(|option| option.availability == Availability::Later)
        {
            if let Some(entry) = written.get(option.key) {
                return Err(OptionError(format!(
                    "{}: not available in this version",
                    entry.place(option)
                )));
            }
        }
        let default = Idling::default();
        let node_memory = read(written, "node_memory", any_folder)?;
        // The default is a server's that has memory of its own.
        let is_default = written
            .get("memory")
            .is_some_and(|entry| entry.source == Source::Default);
        let memory_bytes = read(written, "memory", |text| memory(text, machine))?;
        let options = Self {
            memory_bytes: memory_bytes.filter(|_| node_memory.is_none() || !is_default),
            memcached: read(written, "memcached", address)?.flatten(),
            redis: read(written, "redis", address)?.flatten(),
            admin: read(written, "admin", address)?.flatten(),
            data: match read(written, "data", folder)? {
                Some(folder) => folder,
                None => machine.default_folder()?,
            },
            workers: read(written, "workers", workers)?.unwrap_or(machine.cores.clamp(1, MAX_WORKERS)),
            pin: read(written, "pin", switch)?.unwrap_or_default(),
            open_metrics: read(written, "open_metrics", switch)?.unwrap_or_default(),
            idling: Idling {
                first_grant_bytes: read(written, "first_grant", first_grant)?.unwrap_or(default.first_grant_bytes),
                idle_after: read(written, "idle_after", idle_after)?.unwrap_or(default.idle_after),
            },
            node_memory,
            lease_period: read(written, "lease_period", lease_period)?.unwrap_or(DEFAULT_LEASE_PERIOD),
            s3: S3Options::check(written)?,
            ledger_period: read(written, "ledger_period", ledger_period)?.unwrap_or(DEFAULT_LEDGER_PERIOD),
            prices: read(written, "prices", prices)?,
            ledger_retention: read(written, "ledger_retention", ledger_retention)?.unwrap_or(DEFAULT_LEDGER_RETENTION),
        };
        options.check_addresses(written)?;
        Ok(options)
    }

    fn check_addresses(&self, written: &Written) -> Result<(), OptionError> {
        if self.memcached.is_none() && self.redis.is_none() && self.s3.is_none() {
            return Err(OptionError(
                "--memcached, --redis and --s3 are all off: there is nothing to serve".into(),
            ));
        }
        let named = [
            ("memcached", self.memcached),
            ("redis", self.redis),
            ("admin", self.admin),
            ("s3", self.s3.as_ref().map(|s3| s3.address)),
        ];
        for (i, (key, address)) in named.iter().enumerate() {
            let same = named[..i]
                .iter()
                .find(|(_, other)| address.is_some_and(|a| a.port() != 0) && other == address);
            if let (Some((other, _)), Some(place)) = (same, written.place(key)) {
                return Err(OptionError(format!("{place}: --{other} has the same address")));
            }
        }
        Ok(())
    }

    /// The options that differ from `before`, with whether they can change while the server runs.
    pub(crate) fn changes(&self, before: &Self) -> Vec<&'static OptionSpec> {
        let is_changed = |option: &&OptionSpec| self.text(option.key) != before.text(option.key);
        OPTIONS.iter().filter(is_changed).collect()
    }

    /// The value in force, as it could be written again; `None` for what this version does not have.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        let address = |address: Option<SocketAddr>| address.map_or_else(|| "off".into(), |address| address.to_string());
        Some(match key {
            "memory" => Size(self.memory_bytes?).to_string(),
            "memcached" => address(self.memcached),
            "redis" => address(self.redis),
            "admin" => address(self.admin),
            "data" => self.data.display().to_string(),
            "workers" => self.workers.to_string(),
            "pin" => self.pin.to_string(),
            "open_metrics" => self.open_metrics.to_string(),
            "first_grant" => Size(self.idling.first_grant_bytes).to_string(),
            "idle_after" => format_duration(self.idling.idle_after),
            "node_memory" => self.node_memory.as_ref()?.display().to_string(),
            "lease_period" => format_duration(self.lease_period),
            "s3" => address(self.s3.as_ref().map(|s3| s3.address)),
            "origin" => self.s3.as_ref()?.origins.to_string(),
            "freshness" => self.s3.as_ref()?.freshness.to_string(),
            "s3_workers" => self.s3.as_ref()?.workers.to_string(),
            "s3_read_only" => self.s3.as_ref()?.read_only.to_string(),
            "ledger_period" => format_duration(self.ledger_period),
            "prices" => self.prices.as_ref()?.display().to_string(),
            "ledger_retention" => format_duration(self.ledger_retention),
            _ => return None,
        })
    }
}

impl S3Options {
    /// `None`: it is off.
    fn check(written: &Written) -> Result<Option<Self>, OptionError> {
        let address = read(written, "s3", address)?.flatten();
        let freshness = read(written, "freshness", str::parse)?.unwrap_or(DEFAULT_FRESHNESS);
        let origins = read(written, "origin", |text| Origins::parse(text, freshness))?;
        let workers = read(written, "s3_workers", workers)?.unwrap_or(DEFAULT_WORKERS);
        let read_only = read(written, "s3_read_only", switch)?.unwrap_or_default();
        match (address, origins, written.place("s3"), written.place("origin")) {
            (None, None, ..) => Ok(None),
            (Some(address), Some(origins), ..) => Ok(Some(Self {
                address,
                origins,
                freshness,
                workers,
                read_only,
            })),
            (Some(_), None, place, _) => {
                let place = place.unwrap_or_default();
                Err(OptionError(format!(
                    "{place}: say whose objects: --origin s3://BUCKET?endpoint=URL"
                )))
            }
            // Written to be off, it is off.
            (None, Some(_), ..) if written.get("s3").is_some_and(|entry| entry.source != Source::Default) => Ok(None),
            (None, Some(_), _, place) => {
                let place = place.unwrap_or_default();
                Err(OptionError(format!("{place}: say where S3 clients connect: --s3 ADDR")))
            }
        }
    }
}

/// `$XDG_DATA_HOME/tidemark`, else `~/.local/share/tidemark` (XDG Base Directory Specification 0.8).
pub(crate) fn default_data_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The specification: a relative path in the variable is to be ignored.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let share = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(share.join("tidemark"))
}

/// The value of an option; `None` if nothing was written. An error names the place.
fn read<T>(written: &Written, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, OptionError> {
    let Some(entry) = written.get(key) else { return Ok(None) };
    let place = || written.place(key).unwrap_or_default();
    parse(&entry.text)
        .map(Some)
        .map_err(|problem| OptionError(format!("{}: {problem}", place())))
}

fn size(text: &str) -> Result<u64, String> {
    text.parse()
        .map(|Size(bytes)| bytes)
        .map_err(|error: tidemark_types::UnitError| error.to_string())
}

fn first_grant(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < MIN_FIRST_GRANT_BYTES {
        return Err(format!(
            "too little: at least {} are needed",
            Size(MIN_FIRST_GRANT_BYTES)
        ));
    }
    Ok(bytes)
}

fn idle_after(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_IDLE_AFTER..=MAX_IDLE_AFTER)
}

fn lease_period(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_LEASE_PERIOD..=MAX_LEASE_PERIOD)
}

fn ledger_period(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_LEDGER_PERIOD..=MAX_LEDGER_PERIOD)
}

fn ledger_retention(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_LEDGER_RETENTION..=MAX_LEDGER_RETENTION)
}

fn time_within(text: &str, allowed: RangeInclusive<Duration>) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if !allowed.contains(&time) {
        return Err(format!(
            "allowed are {} to {}",
            format_duration(*allowed.start()),
            format_duration(*allowed.end())
        ));
    }
    Ok(time)
}

fn memory(text: &str, machine: &Machine) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < MIN_POOL_BYTES {
        return Err(format!("too little: at least {} are needed", Size(MIN_POOL_BYTES)));
    }
    if bytes > machine.memory_bytes {
        return Err(format!(
            "more than this machine has ({} MiB)",
            machine.memory_bytes >> 20
        ));
    }
    Ok(bytes)
}

fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| "write IP:PORT, such as 127.0.0.1:6379 or [::1]:6379, or off".to_owned())
}

fn folder(text: &str) -> Result<PathBuf, String> {
    with_room_for_socket(any_folder(text)?)
}

fn any_folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("a folder is needed".into());
    }
    std::path::absolute(Path::new(text)).map_err(|error| error.to_string())
}

/// The file is read when the server starts.
fn prices(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("a file is needed".into());
    }
    std::path::absolute(Path::new(text)).map_err(|error| error.to_string())
}

fn with_room_for_socket(folder: PathBuf) -> Result<PathBuf, String> {
    if tidemark_admin::longest_socket_path(&folder).as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
        return Ok(folder);
    }
    Err(format!(
        "too long, the socket in it may have at most {MAX_SOCKET_PATH_BYTES} bytes"
    ))
}

fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_WORKERS).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {MAX_WORKERS}"))
}

fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "write true or false".to_owned())
}
