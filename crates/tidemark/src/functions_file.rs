//! The file that describes pools of functions: `--functions FILE` of `serve`, and of the commands that manage them.
//!
//! There is one pool that tenants share. A tenant with a table of its own, `[tenants.NAME]`, has a pool that serves nobody else.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidemark_functions::Code;
use tidemark_functions::codec::CodeTable;
use tidemark_functions::engine::{EngineError, LambdaApi, Sign};
use tidemark_functions::proxy::{Config, PoolConfig, Reading};
use tidemark_gateway::config::credentials_of;
use tidemark_gateway::{Call, sign_call};
use tidemark_types::{Clock, Size, SystemClock, TenantName, parse_duration};

/// Functions together: chunks say where they are in 16 bits, and AWS allows 1,000 at once unless asked.
const FUNCTIONS_MAX: u64 = 4_000;
/// The memory of a function's program, with the data that is on its way.
const PROGRAM_BYTES: u64 = 64 << 20;
/// The percentage of the rest that is for chunks: memory is not filled to the last byte.
const ROOM_PERCENT: u64 = 90;
/// AWS's limits of a function's memory.
const MEMORY_MIB: std::ops::RangeInclusive<u64> = 128..=10_240;
/// The keys there are.
const KEYS: [&str; 20] = [
    "endpoint",
    "region",
    "name",
    "count",
    "least_in_use",
    "memory",
    "listen",
    "advertise",
    "least_object",
    "memory_price",
    "origin_read_price",
    "codes",
    "reads",
    "billing_unit",
    "warm_every",
    "backup_every",
    "refill",
    "encryption",
    "role",
    "tenants",
];
/// The keys of a tenant's table.
const TENANT_KEYS: [&str; 4] = ["name", "count", "least_in_use", "memory"];

/// A pool of functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolFile {
    /// The tenant whose own it is; `None`: the others share it.
    pub(crate) tenant: Option<TenantName>,
    /// Functions are `NAME-0`, `NAME-1` and so on.
    pub(crate) name: String,
    pub(crate) count: usize,
    pub(crate) least_in_use: usize,
    pub(crate) memory_mib: u64,
}

impl PoolFile {
    /// The functions' names.
    pub(crate) fn names(&self) -> Vec<String> {
        (0..self.count)
            .map(|number| format!("{}-{number}", self.name))
            .collect()
    }

    /// Bytes of chunks that a function holds.
    pub(crate) fn room_bytes(&self) -> u64 {
        (self.memory_mib << 20).saturating_sub(PROGRAM_BYTES) / 100 * ROOM_PERCENT
    }

    fn config(&self) -> PoolConfig {
        PoolConfig {
            name: self.tenant.as_ref().map_or("", TenantName::as_str).into(),
            names: self.names(),
            room_bytes: self.room_bytes(),
            memory_bytes: self.memory_mib << 20,
            least_functions: self.least_in_use,
        }
    }
}

/// Pools of functions as their file describes them.
#[derive(Clone, Debug)]
pub(crate) struct FunctionsFile {
    /// Lambda's API; AWS's own if none is given.
    pub(crate) endpoint: String,
    pub(crate) region: String,
    /// The pools; the shared one is the first.
    pub(crate) pools: Vec<PoolFile>,
    pub(crate) listen: SocketAddr,
    pub(crate) advertise: Option<String>,
    /// Smaller objects are kept in tenants' memory.
    pub(crate) least_object: Least,
    /// The price of a GiB of tenants' memory for an hour, in dollars.
    pub(crate) memory_price: f64,
    /// The price of a read of an object from the origin, and of waiting for it, in dollars. `None`: it is always dearer than to keep it.
    pub(crate) origin_read_price: Option<f64>,
    pub(crate) codes: CodeTable,
    pub(crate) reading: Reading,
    pub(crate) unit_ms: u32,
    pub(crate) warm_every: Option<Duration>,
    pub(crate) backup_every: Option<Duration>,
    pub(crate) refill_at_once: bool,
    pub(crate) encrypts: bool,
    /// The role that functions are made with.
    pub(crate) role: String,
}

impl FunctionsFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let table: Value = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let keys = Keys(&table);
        keys.are_known(&KEYS)?;
        let region = keys.text("region")?.unwrap_or("us-east-1").to_owned();
        let codes = keys.with("codes", codes)?;
        let codes = codes.map_or_else(|| crate::functions_file::codes("0=10+2,1GiB=20+4"), Ok)?;
        let pools = pools(&keys, codes.rows()[0].1)?;
        Ok(Self {
            endpoint: match keys.text("endpoint")? {
                Some(endpoint) => endpoint.to_owned(),
                None => format!("https://lambda.{region}.amazonaws.com"),
            },
            region,
            pools,
            listen: keys
                .with("listen", address)?
                .unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0))),
            advertise: keys.text("advertise")?.map(str::to_owned),
            least_object: keys.with("least_object", least)?.unwrap_or(Least::Cheapest),
            memory_price: keys.with("memory_price", price)?.unwrap_or(MEMORY_PRICE),
            origin_read_price: keys.with("origin_read_price", price)?,
            codes,
            reading: keys.with("reads", reading)?.unwrap_or(Reading::DataFirst),
            unit_ms: keys.with("billing_unit", unit)?.unwrap_or(1),
            warm_every: keys
                .with("warm_every", period)?
                .unwrap_or(Some(Duration::from_secs(60))),
            backup_every: keys
                .with("backup_every", period)?
                .unwrap_or(Some(Duration::from_secs(300))),
            refill_at_once: keys.with("refill", refill)?.unwrap_or(true),
            encrypts: keys.with("encryption", encryption)?.unwrap_or(true),
            role: keys.text("role")?.unwrap_or_default().to_owned(),
        })
    }

    /// The names of all functions, each with its pool.
    pub(crate) fn functions(&self) -> Vec<(&PoolFile, String)> {
        let of = |pool| PoolFile::names(pool).into_iter().map(move |name| (pool, name));
        self.pools.iter().flat_map(of).collect()
    }

    /// The configuration of the proxy, with its catalogue in a folder.
    pub(crate) fn config(&self, folder: &Path) -> Config {
        Config {
            pools: self.pools.iter().map(PoolFile::config).collect(),
            listen: self.listen,
            advertise: self.advertise.clone(),
            unit_ms: self.unit_ms,
            codes: self.codes.clone(),
            reading: self.reading,
            warm_every: self.warm_every,
            backup_every: self.backup_every,
            refill_at_once: self.refill_at_once,
            encrypts: self.encrypts,
            folder: Some(folder.into()),
        }
    }

    /// Lambda's API, with the credentials of the environment.
    ///
    /// # Errors
    /// The endpoint cannot be read.
    pub(crate) fn api(&self) -> Result<LambdaApi, EngineError> {
        let credentials = credentials_of(|name| std::env::var(name).ok());
        let sign: Sign = Arc::new(move |request| {
            let Some(credentials) = &credentials else { return };
            let call = Call {
                service: "lambda",
                region: request.region,
                method: request.method.as_str(),
                path: request.path,
                body: request.body,
            };
            sign_call(credentials, call, request.headers, SystemClock.now());
        });
        LambdaApi::new(&self.endpoint, &self.region, sign)
    }
}

/// The shared pool, and those of tenants. Each has functions enough for a code.
fn pools(keys: &Keys<'_>, code: Code) -> Result<Vec<PoolFile>, String> {
    let shared = PoolFile {
        tenant: None,
        name: "tidemark".into(),
        count: 24,
        least_in_use: 12,
        memory_mib: 1536,
    };
    let mut pools = vec![pool(keys, shared, code)?];
    let tenants = keys
        .0
        .get("tenants")
        .map(|tenants| tenants.as_object().ok_or("tenants: write [tenants.NAME]"));
    for (tenant, table) in tenants.transpose()?.into_iter().flatten() {
        let wrong = |problem: String| format!("tenants.{tenant}: {problem}");
        let parsed = tenant.parse::<TenantName>();
        let parsed = parsed.map_err(|error| wrong(error.to_string()))?;
        let keys = Keys(table);
        keys.are_known(&TENANT_KEYS).map_err(wrong)?;
        let like = PoolFile {
            tenant: Some(parsed),
            name: format!("{}-{tenant}", pools[0].name),
            ..pools[0].clone()
        };
        pools.push(pool(&keys, like, code).map_err(wrong)?);
    }
    let mut names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("name: two pools have the name {}", twice[0]));
    }
    let together: usize = pools.iter().map(|pool| pool.count).sum();
    if together as u64 > FUNCTIONS_MAX {
        return Err(format!("count: at most {FUNCTIONS_MAX} functions together"));
    }
    Ok(pools)
}

/// A pool that is like another one where a table says nothing.
fn pool(keys: &Keys<'_>, like: PoolFile, code: Code) -> Result<PoolFile, String> {
    let number = |key, otherwise| {
        Ok::<_, String>(
            keys.number(key, 1..=FUNCTIONS_MAX)?
                .map_or(otherwise, |number| number as usize),
        )
    };
    let memory = keys.with("memory", size)?;
    let pool = PoolFile {
        // Tenants' names may have letters that Lambda does not allow.
        name: match keys.with("name", name)? {
            Some(name) => name,
            None => name(&like.name).map_err(|problem| format!("name: {problem}"))?,
        },
        count: number("count", like.count)?,
        least_in_use: number("least_in_use", like.least_in_use)?,
        memory_mib: memory.map_or(like.memory_mib, |bytes| bytes >> 20),
        tenant: like.tenant,
    };
    if !MEMORY_MIB.contains(&pool.memory_mib) {
        return Err("memory: allowed are 128MiB to 10240MiB".into());
    }
    if code.chunks() as usize > pool.count {
        return Err(format!("count: {code} needs at least {} functions", code.chunks()));
    }
    Ok(pool)
}

/// A table's values by their keys.
struct Keys<'a>(&'a Value);

impl<'a> Keys<'a> {
    fn are_known(&self, known: &[&str]) -> Result<(), String> {
        let Some(table) = self.0.as_object() else {
            return Err("write a table".into());
        };
        match table.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("{key} is not known: allowed are {}", known.join(", "))),
            None => Ok(()),
        }
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        let text = |value: &'a Value| value.as_str().ok_or_else(|| format!("{key}: write a text in quotes"));
        self.0.get(key).map(text).transpose()
    }

    fn with<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let read = |text| parse(text).map_err(|problem| format!("{key}: {problem}"));
        self.text(key)?.map(read).transpose()
    }

    fn number(&self, key: &str, allowed: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, String> {
        let Some(value) = self.0.get(key) else { return Ok(None) };
        let number = value.as_u64().filter(|number| allowed.contains(number));
        let wrong = || format!("{key}: write a number from {} to {}", allowed.start(), allowed.end());
        number.map(Some).ok_or_else(wrong)
    }
}

fn size(text: &str) -> Result<u64, String> {
    text.parse()
        .map(|Size(bytes)| bytes)
        .map_err(|error: tidemark_types::UnitError| error.to_string())
}

/// From which size on objects are kept in functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Least {
    /// From where that is cheaper than memory, for each tenant.
    Cheapest,
    /// From so many bytes on.
    Bytes(u64),
}

/// The paper's node: $10.368 an hour for 635.61 GB.
const MEMORY_PRICE: f64 = 10.368 / 635.61;

fn least(text: &str) -> Result<Least, String> {
    if text == "cheapest" {
        return Ok(Least::Cheapest);
    }
    size(text)
        .map(|bytes| Least::Bytes(bytes.max(1)))
        .map_err(|problem| format!("{problem}, or \"cheapest\""))
}

fn price(text: &str) -> Result<f64, String> {
    let price: Option<f64> = text
        .parse()
        .ok()
        .filter(|price: &f64| price.is_finite() && *price > 0.0);
    price.ok_or_else(|| "write an amount of dollars, such as \"0.0163\"".into())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write ADDRESS:PORT, such as 10.0.0.5:9010".to_owned())
}

fn name(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let is_right = !text.is_empty() && text.len() <= 50 && text.chars().all(is_plain);
    is_right
        .then(|| text.to_owned())
        .ok_or_else(|| "write at most 50 letters, digits, - and _".into())
}

fn codes(text: &str) -> Result<CodeTable, String> {
    let row = |row: &str| {
        let (from, code) = row.split_once('=').unwrap_or(("0", row));
        let code: Code = code
            .trim()
            .parse()
            .map_err(|error: tidemark_functions::CodeError| error.to_string())?;
        // A set of lost chunks is a word of 64 bits.
        if code.chunks() > 64 {
            return Err("at most 64 chunks together".to_owned());
        }
        let from = if from.trim() == "0" { 0 } else { size(from.trim())? };
        Ok((from, code))
    };
    let rows = text.split(',').map(row).collect::<Result<Vec<_>, String>>()?;
    CodeTable::new(rows).map_err(|error| error.to_string())
}

fn reading(text: &str) -> Result<Reading, String> {
    match text {
        "data-first" => Ok(Reading::DataFirst),
        "first-d" => Ok(Reading::FirstD),
        _ => Err("write data-first or first-d".into()),
    }
}

fn refill(text: &str) -> Result<bool, String> {
    match text {
        "at-once" => Ok(true),
        "on-read" => Ok(false),
        _ => Err("write at-once or on-read".into()),
    }
}

fn encryption(text: &str) -> Result<bool, String> {
    match text {
        "tls" => Ok(true),
        "none" => Ok(false),
        _ => Err("write tls or none".into()),
    }
}

fn unit(text: &str) -> Result<u32, String> {
    let unit = parse_duration(text).map_err(|error| error.to_string())?.as_millis();
    u32::try_from(unit)
        .ok()
        .filter(|ms| (1..=1000).contains(ms))
        .ok_or_else(|| "allowed are 1ms to 1s".into())
}

fn period(text: &str) -> Result<Option<Duration>, String> {
    if text == "never" {
        return Ok(None);
    }
    let period = parse_duration(text).map_err(|error| error.to_string())?;
    let is_right = period >= Duration::from_secs(1) && period <= Duration::from_secs(3600);
    is_right
        .then_some(Some(period))
        .ok_or_else(|| "allowed are 1s to 1h, and never".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read() {
        let file = FunctionsFile::parse(
            "endpoint = 'http://127.0.0.1:1'\nname = 'pool'\ncount = 30\nmemory = '256MiB'\ncodes = '0=4+2,64MiB=10+2'\n\
             reads = 'first-d'\nbilling_unit = '100ms'\nwarm_every = 'never'\nbackup_every = '10m'\nrefill = 'on-read'\nencryption = 'none'\nleast_object = '1MiB'",
        );
        let file = file.unwrap();
        let [pool] = &file.pools[..] else { panic!("{file:?}") };
        assert_eq!((pool.names().len(), pool.names()[29].as_str()), (30, "pool-29"));
        assert_eq!((pool.memory_mib, file.unit_ms, file.warm_every), (256, 100, None));
        assert_eq!(file.least_object, Least::Bytes(1 << 20));
        assert!(!file.encrypts && FunctionsFile::parse("").unwrap().encrypts);
        assert_eq!(file.backup_every, Some(Duration::from_secs(600)));
        assert_eq!(file.codes.of(64 << 20, 30).unwrap().to_string(), "10+2");
        let config = file.config(Path::new("/d"));
        assert_eq!(config.pools[0].room_bytes, (192 << 20) / 100 * 90);
        let nothing = FunctionsFile::parse("").unwrap();
        assert_eq!(nothing.endpoint, "https://lambda.us-east-1.amazonaws.com");
        assert_eq!((nothing.pools[0].count, nothing.least_object), (24, Least::Cheapest));
    }

    #[test]
    fn tenants_have_functions_of_their_own() {
        let file = FunctionsFile::parse(
            "name = 'p'\nmemory = '512MiB'\n[tenants.shop]\ncount = 14\n[tenants.'a.b']\nname = 'ab'\nmemory = '1GiB'",
        );
        let file = file.unwrap();
        let shown = |pool: &PoolFile| {
            let tenant = pool.tenant.as_ref().map(TenantName::to_string);
            (tenant, pool.name.clone(), pool.count, pool.memory_mib)
        };
        let own = |tenant: &str, name: &str, count, mib| (Some(tenant.to_owned()), name.to_owned(), count, mib);
        let mut pools: Vec<_> = file.pools.iter().map(shown).collect();
        assert_eq!(
            pools.remove(0),
            (None, "p".to_owned(), 24, 512),
            "the shared one is the first"
        );
        pools.sort();
        assert_eq!(pools, [own("a.b", "ab", 24, 1024), own("shop", "p-shop", 14, 512)]);
        let names: std::collections::HashSet<String> = file.functions().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names.len(), 24 + 24 + 14, "no function is in two pools");
        let config = file.config(Path::new("/d"));
        assert!(
            config
                .pools
                .iter()
                .any(|pool| &*pool.name == "shop" && pool.names.len() == 14)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("colour = 'blue'", "colour is not known"),
            ("count = 'many'", "count: write a number"),
            ("count = 5", "10+2 needs at least 12"),
            ("memory = '1MiB'", "memory: allowed are"),
            ("encryption = 'rot13'", "encryption: write tls or none"),
            ("codes = '1MiB=4+2'", "codes: "),
            ("codes = '60+9'", "codes: at most 64"),
            ("reads = 'fast'", "reads: write"),
            ("warm_every = '1ms'", "warm_every: allowed"),
            ("name = 'a b'", "name: write"),
            ("billing_unit = '0ms'", "billing_unit: "),
            ("origin_read_price = 'dear'", "origin_read_price: write an amount"),
            ("tenants = 3", "tenants: write"),
            ("[tenants]\nshop = 3", "tenants.shop: write a table"),
            ("[tenants.shop]\ncount = 3", "tenants.shop: count: 10+2 needs"),
            ("[tenants.shop]\ncodes = '4+2'", "tenants.shop: codes is not known"),
            ("[tenants.'a b']", "tenants.a b: "),
            ("[tenants.'a.b']", "tenants.a.b: name: write at most"),
            ("[tenants.shop]\nname = 'tidemark'", "two pools have the name tidemark"),
            ("count = 3000\n[tenants.shop]", "count: at most 4000"),
        ] {
            let error = FunctionsFile::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
