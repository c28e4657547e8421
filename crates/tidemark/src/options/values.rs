//! The values of options: how each is read of its text, and its bounds.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use tidemark_control::{
    MAX_CPU_MODEL_INTERVAL, MAX_IDLE_AFTER, MAX_LEASE_PERIOD, MAX_LEDGER_PERIOD, MAX_LEDGER_RETENTION,
    MIN_CPU_MODEL_INTERVAL, MIN_FIRST_GRANT_BYTES, MIN_IDLE_AFTER, MIN_LEASE_PERIOD, MIN_LEDGER_PERIOD,
    MIN_LEDGER_RETENTION, MIN_POOL_BYTES,
};
use tidemark_push::{Target, TargetError};
use tidemark_types::{BitRate, Size, TenantName, format_duration, parse_duration};

/// More threads than this would wait for each other's locks more than they would serve.
pub(super) const MAX_WORKERS: usize = 256;
/// Less flash than this has no room for a few tenants' segments beside the journal.
const FLASH_BYTES_MIN: u64 = 16 << 20;
/// The reach of places in the index of flash.
const FLASH_BYTES_MAX: u64 = 1 << 40;
/// One of `sockaddr_un`'s 108 bytes is the zero at the end (unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// Each export asks the control plane for all tenants.
const OTLP_PERIOD_MIN: Duration = Duration::from_secs(1);
const OTLP_PERIOD_MAX: Duration = Duration::from_secs(3600);

/// The values of `cpu_model` that are no file.
pub(super) const OFF: &str = "off";
pub(super) const BUILT_IN: &str = "built-in";

/// The model of CPU time that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuModel {
    /// The one that comes with the program.
    BuiltIn,
    /// A file that `tidemark calibrate` wrote.
    File(PathBuf),
    Off,
}

/// The addresses for clients of one protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listening {
    /// The address at which they log in, or are in the open tenant.
    pub(crate) general: Option<SocketAddr>,
    /// The addresses at which they are a tenant's without a login.
    pub(crate) of_tenants: Vec<(SocketAddr, TenantName)>,
}

impl Listening {
    pub(super) fn is_off(&self) -> bool {
        self.general.is_none() && self.of_tenants.is_empty()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.general
            .into_iter()
            .chain(self.of_tenants.iter().map(|(address, _)| *address))
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_off() {
            return f.write_str("off");
        }
        let of_tenants = self
            .of_tenants
            .iter()
            .map(|(address, tenant)| format!("{address}={tenant}"));
        let all: Vec<String> = self
            .general
            .map(|general| general.to_string())
            .into_iter()
            .chain(of_tenants)
            .collect();
        f.write_str(&all.join(","))
    }
}

fn size(text: &str) -> Result<u64, String> {
    text.parse()
        .map(|Size(bytes)| bytes)
        .map_err(|error: tidemark_types::UnitError| error.to_string())
}

pub(super) fn flash_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("a file or a block device is needed".into());
    }
    std::path::absolute(Path::new(text)).map_err(|error| error.to_string())
}

pub(super) fn flash_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if !(FLASH_BYTES_MIN..=FLASH_BYTES_MAX).contains(&bytes) {
        return Err(format!(
            "allowed are {} to {}",
            Size(FLASH_BYTES_MIN),
            Size(FLASH_BYTES_MAX)
        ));
    }
    Ok(bytes)
}

pub(super) fn first_grant(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < MIN_FIRST_GRANT_BYTES {
        return Err(format!(
            "too little: at least {} are needed",
            Size(MIN_FIRST_GRANT_BYTES)
        ));
    }
    Ok(bytes)
}

pub(super) fn idle_after(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_IDLE_AFTER..=MAX_IDLE_AFTER)
}

pub(super) fn lease_period(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_LEASE_PERIOD..=MAX_LEASE_PERIOD)
}

pub(super) fn ledger_period(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_LEDGER_PERIOD..=MAX_LEDGER_PERIOD)
}

pub(super) fn target(text: &str) -> Result<Target, String> {
    text.parse().map_err(|error: TargetError| error.to_string())
}

pub(super) fn otlp_period(text: &str) -> Result<Duration, String> {
    time_within(text, OTLP_PERIOD_MIN..=OTLP_PERIOD_MAX)
}

pub(super) fn network_limit(text: &str) -> Result<BitRate, String> {
    text.parse::<BitRate>().map_err(|error| error.to_string())
}

pub(super) fn key_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte @ b' '..=b'~'] => Ok(*byte),
        _ => Err("allowed is one printable character of ASCII".into()),
    }
}

pub(super) fn ledger_retention(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_LEDGER_RETENTION..=MAX_LEDGER_RETENTION)
}

pub(super) fn cpu_model(text: &str) -> Result<CpuModel, String> {
    match text {
        OFF => Ok(CpuModel::Off),
        BUILT_IN => Ok(CpuModel::BuiltIn),
        _ => file(text).map(CpuModel::File),
    }
}

pub(super) fn cpu_model_interval(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_CPU_MODEL_INTERVAL..=MAX_CPU_MODEL_INTERVAL)
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

pub(super) fn memory(text: &str, memory_bytes_max: u64) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < MIN_POOL_BYTES {
        return Err(format!("too little: at least {} are needed", Size(MIN_POOL_BYTES)));
    }
    if bytes > memory_bytes_max {
        return Err(format!(
            "more than this machine or its control group has ({} MiB)",
            memory_bytes_max >> 20
        ));
    }
    Ok(bytes)
}

/// `Some(None)` for `off`.
pub(super) fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| "write IP:PORT, such as 127.0.0.1:6379 or [::1]:6379, or off".to_owned())
}

pub(super) fn listening(text: &str) -> Result<Listening, String> {
    let mut listening = Listening::default();
    for part in text.split(',') {
        match part.split_once('=') {
            Some((at, tenant)) => {
                let at = address(at)?.ok_or_else(|| format!("`{part}`: off is no tenant's"))?;
                let tenant = tenant
                    .parse::<TenantName>()
                    .map_err(|error| format!("`{tenant}`: {error}"))?;
                listening.of_tenants.push((at, tenant));
            }
            None if listening.general.is_some() => {
                return Err(format!(
                    "`{part}` is a second address of no tenant: write {part}=TENANT"
                ));
            }
            None => listening.general = address(part)?,
        }
    }
    Ok(listening)
}

pub(super) fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    let network = |part: &str| {
        let address = || part.parse::<IpAddr>().map(IpNet::from);
        let problem = |_| format!("`{part}` is no network: write ADDRESS/BITS, such as 10.1.0.0/16 or fd00::/8");
        part.parse::<IpNet>().or_else(|_| address()).map_err(problem)
    };
    text.split(',').map(network).collect()
}

pub(super) fn folder(text: &str) -> Result<PathBuf, String> {
    with_room_for_socket(any_folder(text)?)
}

pub(super) fn any_folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("a folder is needed".into());
    }
    std::path::absolute(Path::new(text)).map_err(|error| error.to_string())
}

/// The file is read when the server starts.
pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("a file is needed".into());
    }
    std::path::absolute(Path::new(text)).map_err(|error| error.to_string())
}

/// A folder in which the path of the admin socket is not too long.
pub(super) fn with_room_for_socket(folder: PathBuf) -> Result<PathBuf, String> {
    if tidemark_admin::longest_socket_path(&folder).as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
        return Ok(folder);
    }
    Err(format!(
        "too long, the socket in it may have at most {MAX_SOCKET_PATH_BYTES} bytes"
    ))
}

pub(super) fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_WORKERS).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {MAX_WORKERS}"))
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "write true or false".to_owned())
}
