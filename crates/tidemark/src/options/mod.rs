//! The server's options, in two stages: as somebody wrote them ([`Written`]), then checked ([`ServeOptions`]).
//!
//! Each option is a row of [`OPTIONS`]. Its flag, its environment variable, its key in the configuration file, its help
//! and its default all follow from the row. A flag wins over the environment, that over the file, that over the
//! default.

mod check;
mod file;
mod nearest;
mod values;
mod variables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

pub(crate) use check::{Machine, S3Options, ServeOptions, WebhookOptions, default_data_folder};
pub(crate) use values::{CpuModel, Listening};
pub(crate) use variables::check as check_variables;

/// One option.
#[derive(Debug)]
pub(crate) struct OptionSpec {
    /// The key in the file; flag and environment variable are made of it.
    pub(crate) key: &'static str,
    /// The placeholder for its value in the help; empty for a switch.
    pub(crate) value_name: &'static str,
    pub(crate) help: &'static str,
    /// `None`: it is worked out from the machine.
    pub(crate) default: Option<&'static str>,
    pub(crate) availability: Availability,
}

/// Whether an option has an effect, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// The option can change while the server runs, by SIGHUP.
    Live,
    AtStart,
    /// The option comes in a later version. It is known, so that a user that writes it is told.
    Later,
}

const fn option(
    key: &'static str,
    value_name: &'static str,
    default: Option<&'static str>,
    availability: Availability,
    help: &'static str,
) -> OptionSpec {
    OptionSpec {
        key,
        value_name,
        help,
        default,
        availability,
    }
}

use Availability::{AtStart, Later, Live};

/// Every option of `tidemark serve` that can also be in the file.
pub(crate) const OPTIONS: [OptionSpec; 39] = [
    option(
        "memory",
        "SIZE",
        Some("1GiB"),
        Live,
        "Memory for all tenants: segments and indexes",
    ),
    option(
        "memcached",
        "ADDR[=TENANT]|off",
        Some("127.0.0.1:11211"),
        AtStart,
        "Address for memcached clients; at ADDR=TENANT they are that tenant's without a login. Repeat it for several",
    ),
    option(
        "redis",
        "ADDR[=TENANT]|off",
        Some("127.0.0.1:6379"),
        AtStart,
        "Address for Redis clients; as --memcached",
    ),
    option(
        "allow",
        "NET",
        None,
        AtStart,
        "Network that may connect to tenants' listeners beside this machine, such as 10.1.0.0/16. Repeat it for several",
    ),
    option(
        "admin",
        "ADDR|off",
        Some("127.0.0.1:7070"),
        AtStart,
        "Address of the admin API beside its Unix socket",
    ),
    option(
        "open_metrics",
        "",
        Some("false"),
        AtStart,
        "Let /metrics, which names the tenants, be read without a token",
    ),
    option(
        "data",
        "DIR",
        None,
        AtStart,
        "Folder of the state file, the admin token and the admin socket",
    ),
    option(
        "workers",
        "N",
        None,
        AtStart,
        "Threads that serve clients (one per core)",
    ),
    option("pin", "", Some("false"), AtStart, "Bind each worker to a core"),
    option(
        "first_grant",
        "SIZE",
        Some("20MiB"),
        Live,
        "Memory that a tenant may take at its first write, as far as it is free",
    ),
    option(
        "idle_after",
        "T",
        Some("5m"),
        Live,
        "After this time without a get or a write, a tenant's memory goes to those that want it",
    ),
    option(
        "node_memory",
        "DIR",
        None,
        AtStart,
        "Share the node's memory with other instances through this folder; `memory` is then the most that this one takes",
    ),
    option(
        "lease_period",
        "T",
        Some("1s"),
        Live,
        "Time between two looks at the other instances' leases",
    ),
    option(
        "flash",
        "FILE|DEVICE",
        None,
        AtStart,
        "Keep on this file or block device what memory evicts; it needs a size",
    ),
    option(
        "flash_size",
        "SIZE",
        None,
        AtStart,
        "How much of it to use: a file is made as long",
    ),
    option(
        "s3",
        "ADDR|off",
        Some("off"),
        AtStart,
        "Address for S3 clients; it needs an origin",
    ),
    option(
        "origin",
        "URL",
        None,
        AtStart,
        "s3://BUCKET?endpoint=URL[&region=R][&freshness=T], several with commas between them; signed with AWS_ACCESS_KEY_ID",
    ),
    option(
        "freshness",
        "T|forever",
        Some("5s"),
        AtStart,
        "After this time the origin is asked whether an object is still the current one; 0: always",
    ),
    option("s3_workers", "N", Some("2"), AtStart, "Threads of the S3 address"),
    option(
        "s3_read_only",
        "",
        Some("false"),
        AtStart,
        "Refuse everything but reading at the S3 address",
    ),
    option(
        "s3_peers",
        "FILE",
        None,
        AtStart,
        "Addresses of all servers whose S3 addresses share these buckets, one in a line; each has a part of the objects",
    ),
    option(
        "s3_advertise",
        "HOST:PORT",
        None,
        AtStart,
        "This server's own address in that file, if it is another than --s3",
    ),
    option(
        "functions",
        "FILE",
        None,
        AtStart,
        "Keep large objects in the memory of cloud functions, which this file describes",
    ),
    option(
        "ledger_period",
        "T",
        Some("1m"),
        AtStart,
        "Time that a row of the ledger covers: the tenant's use in it",
    ),
    option(
        "ledger_retention",
        "T",
        Some("400d"),
        AtStart,
        "How long rows of the ledger are kept; then only their sums are",
    ),
    option(
        "cpu_model",
        "FILE|built-in|off",
        Some("built-in"),
        AtStart,
        "Model CPU time beside measuring it: by this file, or by the model that comes with the program; see docs/bills.md",
    ),
    option(
        "cpu_model_interval",
        "T",
        Some("1s"),
        AtStart,
        "How long the model takes together, at least",
    ),
    option(
        "network_limit",
        "RATE",
        None,
        AtStart,
        "What the network carries, such as 10Gbit: how much of it tenants use is then shown",
    ),
    option(
        "key_delimiter",
        "CHAR",
        Some(":"),
        AtStart,
        "What ends a prefix of keys, in what costs most: `tidemark tenant top`",
    ),
    option(
        "webhook",
        "URL",
        None,
        AtStart,
        "Address to which alerts about spending limits are sent, as CloudEvents; see docs/bills.md",
    ),
    option(
        "webhook_secret_file",
        "FILE",
        None,
        AtStart,
        "The secret by which alerts are signed (Standard Webhooks)",
    ),
    option(
        "webhook_local",
        "",
        Some("false"),
        AtStart,
        "Let the webhook be at an address of this machine",
    ),
    option(
        "otlp",
        "URL",
        None,
        AtStart,
        "Send metrics to an OpenTelemetry collector, such as http://127.0.0.1:4318",
    ),
    option(
        "otlp_period",
        "T",
        Some("10s"),
        AtStart,
        "Time between two such exports",
    ),
    option("tls_cert", "FILE", None, Later, ""),
    option("tls_key", "FILE", None, Later, ""),
    option("tls_ca", "FILE", None, Later, ""),
    option("tls", "LISTENERS", None, Later, ""),
    option(
        "prices",
        "FILE",
        None,
        Live,
        "Prices of what tenants use, in TOML; see docs/bills.md",
    ),
];

impl OptionSpec {
    /// Whether it may be written several times; its text is then a list with commas.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.key, "memcached" | "redis" | "allow")
    }

    /// `--tls-cert`
    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.key.replace('_', "-"))
    }

    /// `TIDEMARK_TLS_CERT`
    pub(crate) fn variable(&self) -> String {
        format!("TIDEMARK_{}", self.key.to_ascii_uppercase())
    }
}

/// The place at which a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Environment,
    File(PathBuf),
    Default,
}

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// Every value that somebody wrote, or that is a fixed default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written(BTreeMap<&'static str, Entry>);

/// Options that cannot be followed: the message has the place, the value, and the right form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OptionError(String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

/// The values of flags and environment; the file is read anew with each [`Sources::load`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Flags by their option's key.
    pub(crate) flags: BTreeMap<&'static str, String>,
    /// Variables by their option's key.
    pub(crate) environment: BTreeMap<&'static str, String>,
    pub(crate) file: Option<PathBuf>,
}

impl Sources {
    /// Flags and the file's name as given; the environment from `variable`, which is asked by name.
    pub(crate) fn new(
        flags: BTreeMap<&'static str, String>,
        file: Option<PathBuf>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, OptionError> {
        let mut environment = BTreeMap::new();
        for option in &OPTIONS {
            // An empty one is how some tools write "not set".
            let Some(value) = variable(&option.variable()).filter(|value| !value.is_empty()) else {
                continue;
            };
            let value = value
                .into_string()
                .map_err(|_| OptionError(format!("{} is not UTF-8", option.variable())))?;
            environment.insert(option.key, value);
        }
        let file_variable = || {
            variable("TIDEMARK_CONFIG")
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        Ok(Self {
            flags,
            environment,
            file: file.or_else(file_variable),
        })
    }

    /// Reads the file and puts everything together.
    pub(crate) fn load(&self) -> Result<Written, OptionError> {
        let mut written = Written::default();
        for option in &OPTIONS {
            if let Some(text) = option.default {
                written.put(option.key, text.to_owned(), Source::Default);
            }
        }
        if let Some(path) = &self.file {
            for (key, text) in file::read(path)? {
                written.put(key, text, Source::File(path.clone()));
            }
        }
        for (layer, source) in [(&self.environment, Source::Environment), (&self.flags, Source::Flag)] {
            for (key, text) in layer {
                written.put(key, text.clone(), source.clone());
            }
        }
        Ok(written)
    }
}

impl Written {
    fn put(&mut self, key: &'static str, text: String, source: Source) {
        self.0.insert(key, Entry { text, source });
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.0.get(key)
    }

    /// The place at which a value was written, and the value.
    pub(crate) fn place(&self, key: &str) -> Option<String> {
        let option = OPTIONS.iter().find(|option| option.key == key)?;
        Some(self.get(key)?.place(option))
    }

    /// The place that a value is from, without the value.
    pub(crate) fn origin(&self, option: &OptionSpec) -> String {
        match self.get(option.key).map(|entry| &entry.source) {
            Some(Source::Flag) => option.flag(),
            Some(Source::Environment) => option.variable(),
            Some(Source::File(path)) => path.display().to_string(),
            Some(Source::Default) | None => "default".into(),
        }
    }
}

impl Entry {
    /// `--memory 3XB`, `TIDEMARK_MEMORY=3XB`, `memory = 3XB in FILE`: the text to look for and its place.
    fn place(&self, option: &OptionSpec) -> String {
        let Self { text, source } = self;
        match source {
            Source::Flag if option.value_name.is_empty() => option.flag(),
            Source::Flag => format!("{} {text}", option.flag()),
            Source::Environment => format!("{}={text}", option.variable()),
            Source::File(path) => format!("{} = {text} in {}", option.key, path.display()),
            Source::Default => format!("{} (default {text})", option.flag()),
        }
    }
}

#[cfg(test)]
mod tests;
