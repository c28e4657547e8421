//! The gateway as a whole, between a signed client and an origin that fails as it is told to.

mod access;
mod bodies;
mod coded;
mod contents;
mod expect;
mod gone;
mod large;
mod origin;
mod peers;
mod reads;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tidemark_types::{Outcome, TenantId, UnixMs, utc};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;

use crate::access::{AccessTable, Entry, Placing, ServerKey};
use crate::early::EarlyAnswers;
use crate::memory::Bill;
use crate::object::BLOCK_BYTES;
use crate::sign::{Scope, Unsigned, authorization, hex, mac, payload_hash, query_pairs};
use crate::{Config, Credentials, Freshness, Gateway, Origins, PeersConfig, TenantMemory, Tenants};
use origin::{Faults, Origin};

const MIB: usize = 1 << 20;

/// Memory that takes all or nothing.
struct PlainMemory {
    id: TenantId,
    blocks: Mutex<std::collections::HashMap<Vec<u8>, Bytes>>,
    is_full: AtomicBool,
    executed: Mutex<Vec<(&'static str, Outcome)>>,
}

impl TenantMemory for PlainMemory {
    fn id(&self) -> TenantId {
        self.id
    }

    fn name(&self) -> &'static str {
        "plain"
    }

    fn read(&self, key: &[u8], block_bytes: usize, range: std::ops::Range<usize>) -> Option<Bytes> {
        let block = self.blocks.lock().get(key)?.clone();
        (block.len() == block_bytes).then(|| block.slice(range))
    }

    fn has(&self, key: &[u8]) -> bool {
        self.blocks.lock().contains_key(key)
    }

    fn write(&self, key: &[u8], block: &[u8]) -> bool {
        let is_full = self.is_full.load(Ordering::Relaxed);
        if !is_full {
            self.blocks.lock().insert(key.to_vec(), Bytes::copy_from_slice(block));
        }
        !is_full
    }

    fn count(&self, _: u64, _: u64) {}

    fn executed(&self, command: &'static str, outcome: Outcome) {
        self.executed.lock().push((command, outcome));
    }

    fn bill(&self) -> Bill {
        Arc::new(|_| {})
    }
}

/// Two tenants.
struct TwoTenants(Vec<(&'static str, Arc<PlainMemory>)>);

impl Tenants for TwoTenants {
    fn tenant(&self, name: &str) -> Option<Arc<dyn TenantMemory>> {
        let (_, memory) = self.0.iter().find(|(known, _)| *known == name)?;
        Some(Arc::clone(memory) as _)
    }
}

/// Everything that a test needs.
struct Bench {
    runtime: Runtime,
    origin: Arc<Origin>,
    gateway: Option<Gateway>,
    address: SocketAddr,
    client: HttpClient<EarlyAnswers, Full<Bytes>>,
    memories: Vec<Arc<PlainMemory>>,
    keys: Vec<Credentials>,
    config: Config,
    _folder: tempfile::TempDir,
}

/// An answer.
#[derive(Debug)]
struct Got {
    status: StatusCode,
    headers: HeaderMap,
    /// `None`: it broke off.
    body: Option<Bytes>,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.body.as_deref().unwrap_or_default()).into_owned()
    }
}

fn bench(freshness: &str, read_only: bool) -> Bench {
    bench_with(freshness, read_only, None, Placing::Auto)
}

fn bench_with(freshness: &str, read_only: bool, large: Option<Arc<dyn crate::LargePlace>>, placing: Placing) -> Bench {
    bench_of(freshness, read_only, large, placing, false)
}

/// The tenants of a gateway, and the memory of each.
fn two_tenants() -> (TwoTenants, Vec<Arc<PlainMemory>>) {
    let of = |(number, name)| {
        let memory = Arc::new(PlainMemory {
            id: TenantId(number),
            blocks: Mutex::default(),
            is_full: AtomicBool::new(false),
            executed: Mutex::default(),
        });
        (name, memory)
    };
    let tenants: Vec<_> = [(1, "shop"), (2, "blog")].into_iter().map(of).collect();
    let memories = tenants.iter().map(|(_, memory)| Arc::clone(memory)).collect();
    (TwoTenants(tenants), memories)
}

/// With a list of gateways, if `has_peers`: none yet.
fn bench_of(
    freshness: &str,
    read_only: bool,
    large: Option<Arc<dyn crate::LargePlace>>,
    placing: Placing,
    has_peers: bool,
) -> Bench {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (origin, origin_address) = Origin::start(&runtime);
    let folder = tempfile::tempdir().unwrap();
    let key = ServerKey::open(folder.path()).unwrap();
    let mut table = AccessTable::default();
    let (tenants, memories) = two_tenants();
    let mut keys = Vec::new();
    for (name, id) in tenants.0.iter().map(|(name, memory)| (*name, memory.id)) {
        let mut entry = Entry::first(id);
        entry.place = placing;
        if name == "blog" {
            entry.allow(vec!["bucket/open/:read".parse().unwrap()]).unwrap();
        }
        table.set(name, entry);
        keys.push(Credentials {
            access_key: format!("{name}.1"),
            secret_key: key.secret(id, name, 1),
            session_token: None,
        });
    }
    table.write(folder.path()).unwrap();
    let origins = format!("s3://bucket?endpoint=http://{origin_address}");
    let config = Config {
        address: "127.0.0.1:0".parse().unwrap(),
        origins: Origins::parse(&origins, freshness.parse::<Freshness>().unwrap()).unwrap(),
        credentials: Some(keys[0].clone()),
        workers: 2,
        read_only,
        folder: folder.path().into(),
        peers: has_peers.then(|| PeersConfig {
            file: folder.path().join("peers"),
            own: None,
        }),
    };
    if let Some(peers) = &config.peers {
        std::fs::write(&peers.file, "").unwrap();
    }
    let gateway = Gateway::start_with(&config, Arc::new(tenants), None, None, || Ok(large)).unwrap();
    Bench {
        address: gateway.address(),
        gateway: Some(gateway),
        // The S3 address refuses early, too, and closes.
        client: HttpClient::builder(TokioExecutor::new()).build(EarlyAnswers(HttpConnector::new())),
        runtime,
        origin,
        memories,
        keys,
        config,
        _folder: folder,
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.drain(Duration::ZERO);
        }
    }
}

/// A request, signed by somebody.
struct Ask<'a> {
    by: &'a Credentials,
    method: Method,
    target: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: Bytes,
    /// The signed hash of the body, if it is not the body's.
    payload: Option<&'a str>,
    /// Seconds from now.
    skew: i64,
    /// The gateway that is asked.
    at: SocketAddr,
}

impl Bench {
    fn ask<'a>(&'a self, method: Method, target: &'a str) -> Ask<'a> {
        Ask {
            by: &self.keys[0],
            method,
            target,
            headers: Vec::new(),
            body: Bytes::new(),
            payload: None,
            skew: 0,
            at: self.address,
        }
    }

    fn request(&self, ask: &Ask<'_>) -> Request<Full<Bytes>> {
        let now = SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap()
            .as_secs()
            .saturating_add_signed(ask.skew);
        let (path, query) = ask.target.split_once('?').unwrap_or((ask.target, ""));
        let payload = ask.payload.map_or_else(|| payload_hash(&ask.body), str::to_owned);
        let at = utc::basic(UnixMs(now * 1000));
        let host = ask.at.to_string();
        let mut headers = HeaderMap::new();
        let mut insert = |name: &str, value: &str| {
            headers.insert(
                HeaderName::try_from(name).unwrap(),
                HeaderValue::try_from(value).unwrap(),
            );
        };
        insert(HOST.as_str(), &host);
        insert("x-amz-date", &at);
        insert("x-amz-content-sha256", &payload);
        ask.headers.iter().for_each(|(name, value)| insert(name, value));
        let unsigned = Unsigned {
            method: ask.method.as_str(),
            path,
            query: &query_pairs(Some(query)).unwrap(),
            headers: &headers,
            payload: &payload,
        };
        let scope = Scope {
            region: "us-east-1",
            service: "s3",
            at: &at,
        };
        let signed = authorization(ask.by, scope, &unsigned);
        headers.insert(AUTHORIZATION, HeaderValue::try_from(signed).unwrap());
        let uri = format!("http://{host}{}", ask.target);
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(uri)
            .body(Full::new(ask.body.clone()));
        *request.as_mut().unwrap().headers_mut() = headers;
        request.unwrap()
    }

    fn send(&self, ask: &Ask<'_>) -> Got {
        self.runtime.block_on(got(self.client.clone(), self.request(ask)))
    }

    fn get(&self, target: &str, headers: &[(&str, &str)]) -> Got {
        self.send(&Ask {
            headers: headers.to_vec(),
            ..self.ask(Method::GET, target)
        })
    }

    fn put(&self, target: &str, body: &Bytes, headers: &[(&str, &str)]) -> Got {
        self.send(&Ask {
            headers: headers.to_vec(),
            body: body.clone(),
            ..self.ask(Method::PUT, target)
        })
    }

    fn origin_reads(&self) -> u64 {
        self.origin.gets.load(Ordering::Relaxed)
    }
}

async fn got(client: HttpClient<EarlyAnswers, Full<Bytes>>, request: Request<Full<Bytes>>) -> Got {
    let (parts, body) = client.request(request).await.unwrap().into_parts();
    Got {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.ok().map(http_body_util::Collected::to_bytes),
    }
}

/// Bytes in which every place can be told from every other.
fn bytes(length: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}
