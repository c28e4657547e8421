//! The second stage: texts to values, each refused by the place where it was written.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use tidemark_control::{
    DEFAULT_CPU_MODEL_INTERVAL, DEFAULT_LEASE_PERIOD, DEFAULT_LEDGER_PERIOD, DEFAULT_LEDGER_RETENTION, Idling,
};
use tidemark_gateway::config::{DEFAULT_FRESHNESS, DEFAULT_WORKERS};
use tidemark_gateway::peers::is_address;
use tidemark_gateway::{Freshness, Origins, PeersConfig};
use tidemark_meter::top::DEFAULT_DELIMITER;
use tidemark_push::Target;
use tidemark_types::{BitRate, Size, format_duration};

use super::values::{
    BUILT_IN, CpuModel, Listening, MAX_WORKERS, OFF, address, any_folder, cpu_model, cpu_model_interval, file,
    first_grant, flash_path, flash_size, folder, idle_after, key_delimiter, lease_period, ledger_period,
    ledger_retention, listening, memory, network_limit, networks, otlp_period, switch, target, with_room_for_socket,
    workers,
};
use super::{Availability, OPTIONS, OptionError, OptionSpec, Source, Written};

/// As often as metrics are mostly scraped.
const DEFAULT_OTLP_PERIOD: Duration = Duration::from_secs(10);

/// The options that the server is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServeOptions {
    /// `None`: as much as the node leases.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memcached: Listening,
    pub(crate) redis: Listening,
    /// The networks that may connect to tenants' listeners, beside this machine.
    pub(crate) allow: Vec<IpNet>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) data: PathBuf,
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    pub(crate) open_metrics: bool,
    pub(crate) idling: Idling,
    /// The folder in which instances share the node's memory.
    pub(crate) node_memory: Option<PathBuf>,
    pub(crate) lease_period: Duration,
    pub(crate) flash: Option<FlashOptions>,
    pub(crate) s3: Option<S3Options>,
    /// The time that a row of the ledger covers, and the time for which it is kept.
    pub(crate) ledger_period: Duration,
    pub(crate) ledger_retention: Duration,
    pub(crate) network_limit: Option<BitRate>,
    /// The delimiter that ends a prefix of keys.
    pub(crate) key_delimiter: u8,
    pub(crate) prices: Option<PathBuf>,
    pub(crate) cpu_model: CpuModel,
    pub(crate) cpu_model_interval: Duration,
    pub(crate) webhook: Option<WebhookOptions>,
    /// The receiver of metrics, and the interval.
    pub(crate) otlp: Option<Target>,
    pub(crate) otlp_period: Duration,
}

/// The receiver of alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookOptions {
    pub(crate) target: Target,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) is_local: bool,
}

/// The flash below memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlashOptions {
    /// A file or a block device.
    pub(crate) path: PathBuf,
    pub(crate) size_bytes: u64,
}

/// The S3 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct S3Options {
    pub(crate) address: SocketAddr,
    pub(crate) origins: Origins,
    pub(crate) freshness: Freshness,
    pub(crate) workers: usize,
    pub(crate) read_only: bool,
    /// The other servers with the same buckets.
    pub(crate) peers: Option<PeersConfig>,
    /// Describes the functions that large objects are kept in.
    pub(crate) functions: Option<PathBuf>,
}

/// The facts that the defaults and limits depend on.
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
    /// Checks the options as written.
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
        let memory_bytes = read(written, "memory", |text| memory(text, machine.memory_bytes))?;
        let options = Self {
            memory_bytes: memory_bytes.filter(|_| node_memory.is_none() || !is_default),
            memcached: read(written, "memcached", listening)?.unwrap_or_default(),
            redis: read(written, "redis", listening)?.unwrap_or_default(),
            allow: read(written, "allow", networks)?.unwrap_or_default(),
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
            flash: FlashOptions::check(written)?,
            s3: S3Options::check(written)?,
            ledger_period: read(written, "ledger_period", ledger_period)?.unwrap_or(DEFAULT_LEDGER_PERIOD),
            network_limit: read(written, "network_limit", network_limit)?,
            key_delimiter: read(written, "key_delimiter", key_delimiter)?.unwrap_or(DEFAULT_DELIMITER),
            prices: read(written, "prices", file)?,
            cpu_model: read(written, "cpu_model", cpu_model)?.unwrap_or(CpuModel::BuiltIn),
            cpu_model_interval: read(written, "cpu_model_interval", cpu_model_interval)?
                .unwrap_or(DEFAULT_CPU_MODEL_INTERVAL),
            webhook: WebhookOptions::check(written)?,
            otlp: read(written, "otlp", target)?,
            otlp_period: read(written, "otlp_period", otlp_period)?.unwrap_or(DEFAULT_OTLP_PERIOD),
            ledger_retention: read(written, "ledger_retention", ledger_retention)?.unwrap_or(DEFAULT_LEDGER_RETENTION),
        };
        options.check_addresses(written)?;
        Ok(options)
    }

    fn check_addresses(&self, written: &Written) -> Result<(), OptionError> {
        if self.memcached.is_off() && self.redis.is_off() && self.s3.is_none() {
            return Err(OptionError(
                "--memcached, --redis and --s3 are all off: there is nothing to serve".into(),
            ));
        }
        let mut named: Vec<(&str, SocketAddr)> = Vec::new();
        for (key, listening) in [("memcached", &self.memcached), ("redis", &self.redis)] {
            self.check_tenants(key, listening, written)?;
            named.extend(listening.addresses().map(|address| (key, address)));
        }
        named.extend(self.admin.map(|address| ("admin", address)));
        named.extend(self.s3.as_ref().map(|s3| ("s3", s3.address)));
        for (i, (key, address)) in named.iter().enumerate() {
            let is_same = |other: &&(&str, SocketAddr)| address.port() != 0 && other.1 == *address;
            if let (Some((other, _)), Some(place)) = (named[..i].iter().find(is_same), written.place(key)) {
                return Err(OptionError(format!("{place}: --{other} has the same address")));
            }
        }
        Ok(())
    }

    /// Nobody needs a secret at a tenant's listener: elsewhere than on this machine it must be said who may connect.
    fn check_tenants(&self, key: &str, listening: &Listening, written: &Written) -> Result<(), OptionError> {
        let mut elsewhere = listening
            .of_tenants
            .iter()
            .filter(|(address, _)| !address.ip().is_loopback());
        if let (Some((address, tenant)), true) = (elsewhere.next(), self.allow.is_empty()) {
            let place = written.place(key).unwrap_or_default();
            return Err(OptionError(format!(
                "{place}: whoever reaches {address} would be {tenant}: say who may connect, such as --allow 10.1.0.0/16"
            )));
        }
        Ok(())
    }

    /// The options that differ from `before`, with whether they can change while the server runs.
    pub(crate) fn changes(&self, before: &Self) -> Vec<&'static OptionSpec> {
        let is_changed = |option: &&OptionSpec| self.text(option.key) != before.text(option.key);
        OPTIONS.iter().filter(is_changed).collect()
    }

    /// The value in force, as it could be written again; `None` for an option that this version does not have.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        let address = |address: Option<SocketAddr>| address.map_or_else(|| "off".into(), |address| address.to_string());
        Some(match key {
            "memory" => Size(self.memory_bytes?).to_string(),
            "memcached" => self.memcached.to_string(),
            "redis" => self.redis.to_string(),
            "allow" if self.allow.is_empty() => return None,
            "allow" => self.allow.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            "admin" => address(self.admin),
            "data" => self.data.display().to_string(),
            "workers" => self.workers.to_string(),
            "pin" => self.pin.to_string(),
            "open_metrics" => self.open_metrics.to_string(),
            "first_grant" => Size(self.idling.first_grant_bytes).to_string(),
            "idle_after" => format_duration(self.idling.idle_after),
            "node_memory" => self.node_memory.as_ref()?.display().to_string(),
            "lease_period" => format_duration(self.lease_period),
            "flash" => self.flash.as_ref()?.path.display().to_string(),
            "flash_size" => Size(self.flash.as_ref()?.size_bytes).to_string(),
            "s3" => address(self.s3.as_ref().map(|s3| s3.address)),
            "origin" => self.s3.as_ref()?.origins.to_string(),
            "freshness" => self.s3.as_ref()?.freshness.to_string(),
            "s3_workers" => self.s3.as_ref()?.workers.to_string(),
            "functions" => self.s3.as_ref()?.functions.as_ref()?.display().to_string(),
            "s3_read_only" => self.s3.as_ref()?.read_only.to_string(),
            "s3_peers" => self.s3.as_ref()?.peers.as_ref()?.file.display().to_string(),
            "s3_advertise" => self.s3.as_ref()?.peers.as_ref()?.own.clone()?,
            "ledger_period" => format_duration(self.ledger_period),
            "network_limit" => self.network_limit?.to_string(),
            "key_delimiter" => char::from(self.key_delimiter).to_string(),
            "webhook" => self.webhook.as_ref()?.target.to_string(),
            "webhook_secret_file" => self.webhook.as_ref()?.secret_file.as_ref()?.display().to_string(),
            "webhook_local" => self
                .webhook
                .as_ref()
                .is_some_and(|webhook| webhook.is_local)
                .to_string(),
            "cpu_model" => match &self.cpu_model {
                CpuModel::File(file) => file.display().to_string(),
                CpuModel::BuiltIn => BUILT_IN.to_owned(),
                CpuModel::Off => OFF.to_owned(),
            },
            "cpu_model_interval" => format_duration(self.cpu_model_interval),
            "otlp" => self.otlp.as_ref()?.to_string(),
            "otlp_period" => format_duration(self.otlp_period),
            "prices" => self.prices.as_ref()?.display().to_string(),
            "ledger_retention" => format_duration(self.ledger_retention),
            _ => return None,
        })
    }
}

impl FlashOptions {
    /// `None`: there is none.
    fn check(written: &Written) -> Result<Option<Self>, OptionError> {
        let path = read(written, "flash", flash_path)?;
        let size_bytes = read(written, "flash_size", flash_size)?;
        let place = |key| written.place(key).unwrap_or_default();
        match (path, size_bytes) {
            (None, None) => Ok(None),
            (Some(path), Some(size_bytes)) => Ok(Some(Self { path, size_bytes })),
            (Some(_), None) => Err(OptionError(format!(
                "{}: say how much of it to use: --flash-size SIZE",
                place("flash")
            ))),
            (None, Some(_)) => Err(OptionError(format!(
                "{}: say where it is: --flash FILE",
                place("flash_size")
            ))),
        }
    }
}

impl WebhookOptions {
    /// `None`: there is none.
    fn check(written: &Written) -> Result<Option<Self>, OptionError> {
        let target = read(written, "webhook", target)?;
        let secret_file = read(written, "webhook_secret_file", file)?;
        let is_local = read(written, "webhook_local", switch)?.unwrap_or_default();
        if let Some(target) = target {
            return Ok(Some(Self {
                target,
                secret_file,
                is_local,
            }));
        }
        let lonely = [
            ("webhook_secret_file", secret_file.is_some()),
            ("webhook_local", is_local),
        ];
        match lonely.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => {
                let place = written.place(key).unwrap_or_default();
                Err(OptionError(format!(
                    "{place}: say where alerts are sent: --webhook URL"
                )))
            }
            None => Ok(None),
        }
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
        let functions = read(written, "functions", file)?;
        let peers = peers(written)?;
        // Written to be off, it is off.
        let is_said = written.get("s3").is_some_and(|entry| entry.source != Source::Default);
        if let (None, Some(_), false) = (&address, &functions, is_said) {
            let place = written.place("functions").unwrap_or_default();
            return Err(OptionError(format!("{place}: say where S3 clients connect: --s3 ADDR")));
        }
        match (address, origins, written.place("s3"), written.place("origin")) {
            (None, None, ..) => Ok(None),
            (Some(address), Some(origins), ..) => Ok(Some(Self {
                address,
                origins,
                freshness,
                workers,
                read_only,
                peers,
                functions,
            })),
            (Some(_), None, place, _) => {
                let place = place.unwrap_or_default();
                Err(OptionError(format!(
                    "{place}: say whose objects: --origin s3://BUCKET?endpoint=URL"
                )))
            }
            (None, Some(_), ..) if is_said => Ok(None),
            (None, Some(_), _, place) => {
                let place = place.unwrap_or_default();
                Err(OptionError(format!("{place}: say where S3 clients connect: --s3 ADDR")))
            }
        }
    }
}

/// The other servers of the S3 address, if there are.
fn peers(written: &Written) -> Result<Option<PeersConfig>, OptionError> {
    let own = read(written, "s3_advertise", |text| {
        is_address(text)
            .then(|| text.to_owned())
            .ok_or_else(|| "write HOST:PORT".to_owned())
    })?;
    match (read(written, "s3_peers", file)?, own) {
        (Some(file), own) => Ok(Some(PeersConfig { file, own })),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let place = written.place("s3_advertise").unwrap_or_default();
            Err(OptionError(format!(
                "{place}: say which servers there are: --s3-peers FILE"
            )))
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
