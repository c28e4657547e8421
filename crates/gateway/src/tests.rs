//! The gateway as a whole, between a signed client and an origin that fails as it is told to.

mod coded;
mod expect;
mod gone;
mod large;
mod origin;
mod peers;

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
use tidemark_types::{TenantId, UnixMs, utc};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;

use crate::access::{AccessTable, Entry, Placing, ServerKey};
use crate::early::EarlyAnswers;
use crate::memory::Bill;
use crate::object::BLOCK_BYTES;
use crate::sign::{Scope, Unsigned, authorization, payload_hash, query_pairs};
use crate::{Config, Credentials, Freshness, Gateway, Origins, PeersConfig, TenantMemory, Tenants};
use origin::{Faults, Origin};

const MIB: usize = 1 << 20;

/// Memory that takes all or nothing.
struct PlainMemory {
    id: TenantId,
    blocks: Mutex<std::collections::HashMap<Vec<u8>, Bytes>>,
    is_full: AtomicBool,
}

impl TenantMemory for PlainMemory {
    fn id(&self) -> TenantId {
        self.id
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
    let gateway = Gateway::start_with(&config, Arc::new(tenants), None, || Ok(large)).unwrap();
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

#[test]
fn every_range_of_every_size_is_right_and_is_fetched_once() {
    let bench = bench("forever", false);
    for (name, length) in [
        ("empty", 0),
        ("small", 10),
        ("block", MIB),
        ("more", MIB + 1),
        ("large", 9 * MIB + 123),
    ] {
        let object = bytes(length, length as u64);
        bench.origin.put(&format!("bucket/{name}"), object.clone());
        let target = format!("/bucket/{name}");
        let size = length as u64;
        let (mib, last) = (MIB as u64, size.saturating_sub(1));
        let ranges = [
            String::new(),
            "bytes=0-0".into(),
            format!("bytes={last}-"),
            format!("bytes={}-{}", mib - 1, mib),
            format!("bytes={}-{}", 3 * mib - 7, 7 * mib + 7),
            "bytes=-1".into(),
            format!("bytes=-{}", 2 * mib),
            format!("bytes={size}-"),
            "bytes=nonsense".into(),
        ];
        for range in &ranges {
            let headers: Vec<(&str, &str)> = if range.is_empty() {
                vec![]
            } else {
                vec![("range", range)]
            };
            let expected = crate::range::Asked::parse((!range.is_empty()).then_some(range)).of(size);
            for round in 0..2 {
                let got = bench.get(&target, &headers);
                let context = format!("{name}, {range:?}, round {round}");
                match &expected {
                    Err(_) => {
                        assert_eq!(got.status, StatusCode::RANGE_NOT_SATISFIABLE, "{context}");
                        assert_eq!(got.header("content-range"), format!("bytes */{size}"), "{context}");
                    }
                    Ok(None) => {
                        assert_eq!(got.status, StatusCode::OK, "{context}");
                        assert!(got.body.as_ref() == Some(&object), "{context}");
                    }
                    Ok(Some(range)) => {
                        assert_eq!(got.status, StatusCode::PARTIAL_CONTENT, "{context}");
                        let part = object.slice(range.start as usize..range.end as usize);
                        assert!(got.body == Some(part), "{context}");
                        let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                        assert_eq!(got.header("content-range"), text, "{context}");
                    }
                }
                if got.status.is_success() {
                    assert_eq!(got.header("x-amz-meta-colour"), "blue", "{context}");
                }
            }
        }
        let head = bench.send(&bench.ask(Method::HEAD, &target));
        assert_eq!(
            (head.status, head.header("content-length")),
            (StatusCode::OK, &*size.to_string())
        );
    }
    // Every byte came once, whatever ranges it was in.
    let all = (10 + MIB + MIB + 1 + 9 * MIB + 123) as u64;
    assert_eq!(bench.origin.sent_bytes.load(Ordering::Relaxed), all);
    let totals = bench.gateway.as_ref().unwrap().totals();
    assert_eq!((totals.known_objects, totals.pending_blocks), (5, 0));
    assert!(
        totals.memory_bytes > 0 && totals.origin_bytes > 0 && totals.requests > 50,
        "{totals:?}"
    );
}

#[test]
fn a_range_of_a_large_object_fetches_its_blocks_only() {
    let bench = bench("forever", false);
    let object = bytes(64 * MIB, 5);
    bench.origin.put("bucket/large", object.clone());
    let got = bench.get("/bucket/large", &[("range", "bytes=33554432-33554435")]);
    assert!(got.body == Some(object.slice(33_554_432..33_554_436)));
    let sent = bench.origin.sent_bytes.load(Ordering::Relaxed);
    assert!(sent <= 4 * BLOCK_BYTES, "{sent} bytes for 4");
}

#[test]
fn many_ask_and_one_fill_answers() {
    let bench = bench("forever", false);
    let object = bytes(3 * MIB, 1);
    bench.origin.put("bucket/open/hot", object.clone());
    bench.origin.set(Faults {
        is_held: true,
        ..Faults::default()
    });
    let requests: Vec<Request<Full<Bytes>>> = (0..40)
        .map(|i| {
            bench.request(&Ask {
                by: &bench.keys[i % 2],
                ..bench.ask(Method::GET, "/bucket/open/hot")
            })
        })
        .collect();
    let gateway = bench.gateway.as_ref().unwrap();
    let before = gateway.totals().requests;
    let asked: Vec<_> = requests
        .into_iter()
        .map(|request| bench.runtime.spawn(got(bench.client.clone(), request)))
        .collect();
    while gateway.totals().requests < before + 40 || bench.origin_reads() == 0 {
        std::thread::yield_now();
    }
    bench.origin.release();
    for one in asked {
        let got = bench.runtime.block_on(one).unwrap();
        assert!(got.status == StatusCode::OK && got.body.as_ref() == Some(&object));
    }
    assert_eq!(bench.origin_reads(), 1, "one fill for all, of both tenants");
    for memory in &bench.memories {
        assert!(!memory.blocks.lock().is_empty(), "each tenant has its own copy");
    }
}

#[test]
fn conditions_are_judged_here() {
    let bench = bench("forever", false);
    let object = bytes(10, 1);
    bench.origin.put("bucket/k", object.clone());
    let etag = origin::etag(&object);
    let etag = etag.to_str().unwrap();
    for (headers, status) in [
        (vec![("if-none-match", etag)], 304),
        (vec![("if-none-match", "\"x\"")], 200),
        (vec![("if-match", etag)], 200),
        (vec![("if-match", "\"x\"")], 412),
        (vec![("if-range", etag), ("range", "bytes=0-1")], 206),
        (vec![("if-range", "\"x\""), ("range", "bytes=0-1")], 200),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let got = bench.send(&Ask {
                headers: headers.clone(),
                ..bench.ask(method.clone(), "/bucket/k")
            });
            assert_eq!(got.status.as_u16(), status, "{method} {headers:?}");
        }
    }
}

#[test]
fn what_others_write_is_found_when_freshness_ends() {
    for (freshness, finds) in [("0", true), ("forever", false)] {
        let bench = bench(freshness, false);
        let (first, second) = (bytes(2 * MIB, 1), bytes(2 * MIB, 2));
        bench.origin.put("bucket/k", first.clone());
        assert!(bench.get("/bucket/k", &[]).body == Some(first.clone()));
        bench.origin.put("bucket/k", second.clone());
        let expected = if finds { second } else { first };
        assert!(bench.get("/bucket/k", &[]).body == Some(expected), "{freshness}");
        bench.origin.remove("bucket/k");
        let status = bench.get("/bucket/k", &[]).status;
        assert_eq!(status == StatusCode::NOT_FOUND, finds, "{freshness}");
    }
}

#[test]
fn a_write_through_the_gateway_is_found_at_once() {
    let bench = bench("forever", false);
    for (round, length) in [10, MIB, 3 * MIB + 5, 20 * MIB, 0].into_iter().enumerate() {
        let object = bytes(length, round as u64);
        let put = bench.put("/bucket/k", &object, &[]);
        assert_eq!(put.status, StatusCode::OK, "{}", put.text());
        assert!(bench.origin.get("bucket/k").as_ref() == Some(&object));
        assert!(bench.get("/bucket/k", &[]).body == Some(object), "{length} bytes");
    }
    let gone = bench.send(&bench.ask(Method::DELETE, "/bucket/k"));
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    let got = bench.get("/bucket/k", &[]);
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    assert!(got.text().contains("NoSuchKey"), "{}", got.text());
}

#[test]
fn an_object_that_changes_is_never_mixed() {
    let bench = bench("forever", false);
    let (old, new) = (bytes(12 * MIB, 1), bytes(12 * MIB, 2));
    bench.origin.put("bucket/k", old.clone());
    // The beginning of the old version is cached, the rest is not.
    assert_eq!(
        bench.get("/bucket/k", &[("range", "bytes=0-9")]).status,
        StatusCode::PARTIAL_CONTENT
    );
    bench.origin.put("bucket/k", new.clone());
    let got = bench.get("/bucket/k", &[]);
    match got.body {
        // It breaks off where the new version begins.
        None => {}
        Some(body) => assert!(body == new || body == old, "mixed"),
    }
    // And the gateway knows by that.
    assert!(bench.get("/bucket/k", &[]).body == Some(new.clone()));
    // If the first byte is missing already, the new version is the answer.
    bench.origin.put("bucket/k", old.clone());
    bench.memories[0].blocks.lock().clear();
    assert!(bench.get("/bucket/k", &[]).body == Some(old));
}

#[test]
fn memory_that_takes_nothing_still_answers() {
    let bench = bench("forever", false);
    bench.memories[0].is_full.store(true, Ordering::Relaxed);
    let object = bytes(33 * MIB + 7, 3);
    bench.origin.put("bucket/k", object.clone());
    for _ in 0..2 {
        assert!(bench.get("/bucket/k", &[]).body == Some(object.clone()));
    }
    // A few blocks were fetched ahead for nothing.
    let sent = bench.origin.sent_bytes.load(Ordering::Relaxed) as usize;
    assert!(sent < 2 * object.len() + 20 * MIB, "{sent}");
    // A block in memory that is shorter than it should be is not used.
    bench.memories[0].is_full.store(false, Ordering::Relaxed);
    bench.get("/bucket/k", &[]);
    for block in bench.memories[0].blocks.lock().values_mut() {
        *block = Bytes::from_static(b"short");
    }
    assert!(bench.get("/bucket/k", &[]).body == Some(object));
}

#[test]
fn faults_of_the_origin_are_the_clients_errors() {
    let bench = bench("0", false);
    let object = bytes(6 * MIB, 1);
    bench.origin.put("bucket/k", object.clone());
    let with = |faults: Faults| {
        bench.origin.set(faults);
        bench.memories[0].blocks.lock().clear();
        bench.get("/bucket/k", &[])
    };
    for (status, code) in [
        (500, "ServiceUnavailable"),
        (503, "ServiceUnavailable"),
        (403, "AccessDenied"),
    ] {
        let got = with(Faults {
            status: StatusCode::from_u16(status).ok(),
            ..Faults::default()
        });
        assert_eq!(got.status.as_u16(), status);
        assert!(got.text().contains(code), "{}", got.text());
    }
    let cut = with(Faults {
        cut_bytes: Some(2 << 20),
        ..Faults::default()
    });
    assert!(cut.body.is_none(), "a reply that is cut is seen to be");
    let cut = with(Faults {
        cut_bytes: Some(5),
        ..Faults::default()
    });
    assert_eq!(cut.status, StatusCode::SERVICE_UNAVAILABLE);
    let other = with(Faults {
        has_other_etag: true,
        ..Faults::default()
    });
    assert!(other.body != Some(object.clone()) || other.status == StatusCode::OK);
    let simple = with(Faults {
        is_simple: true,
        ..Faults::default()
    });
    assert!(simple.body == Some(object.clone()), "an origin that knows no ranges");
    assert!(with(Faults::default()).body == Some(object));
    // Nobody is there.
    let nobody = bench.get("/elsewhere/k", &[]);
    assert!(nobody.text().contains("NoSuchBucket"), "{}", nobody.text());
}

#[test]
fn signatures_are_checked() {
    let bench = bench("forever", false);
    bench.origin.put("bucket/open/k", bytes(3, 1));
    let wrong = Credentials {
        secret_key: "wrong".into(),
        ..bench.keys[0].clone()
    };
    let other_generation = Credentials {
        access_key: "shop.2".into(),
        ..bench.keys[0].clone()
    };
    let nobody = Credentials {
        access_key: "nobody.1".into(),
        ..bench.keys[0].clone()
    };
    for (by, skew, status, code) in [
        (&bench.keys[0], 0, 200, ""),
        (&bench.keys[1], 0, 200, ""),
        (&wrong, 0, 403, "SignatureDoesNotMatch"),
        (&other_generation, 0, 403, "SignatureDoesNotMatch"),
        (&nobody, 0, 403, "SignatureDoesNotMatch"),
        (&bench.keys[0], -3600, 403, "RequestTimeTooSkewed"),
    ] {
        let got = bench.send(&Ask {
            by,
            skew,
            ..bench.ask(Method::GET, "/bucket/open/k")
        });
        assert_eq!(got.status.as_u16(), status, "{by:?} {skew}: {}", got.text());
        assert!(got.text().contains(code) || status == 200, "{by:?}: {}", got.text());
    }
    // One that was made for another request, and none at all.
    let mut replayed = bench.request(&bench.ask(Method::GET, "/bucket/open/k"));
    *replayed.uri_mut() = format!("http://{}/bucket/other", bench.address).parse().unwrap();
    let mut bare = bench.request(&bench.ask(Method::GET, "/bucket/open/k"));
    bare.headers_mut().remove(AUTHORIZATION);
    let mut old = bench.request(&bench.ask(Method::GET, "/bucket/open/k"));
    old.headers_mut()
        .insert(AUTHORIZATION, HeaderValue::from_static("AWS shop.1:abc"));
    for (request, status) in [(replayed, 403), (bare, 403), (old, 501)] {
        let got = bench.runtime.block_on(got(bench.client.clone(), request));
        assert_eq!(got.status.as_u16(), status, "{}", got.text());
    }
}

#[test]
fn grants_bound_what_a_tenant_may_do() {
    let bench = bench("forever", false);
    bench.origin.put("bucket/open/k", bytes(3, 1));
    bench.origin.put("bucket/k", bytes(3, 1));
    let delete = Bytes::from_static(b"<Delete><Object><Key>k</Key></Object></Delete>");
    for (method, target, body, status) in [
        (Method::GET, "/bucket/open/k", Bytes::new(), 200),
        (Method::GET, "/bucket/k", Bytes::new(), 403),
        (Method::PUT, "/bucket/open/k", Bytes::new(), 403),
        (Method::DELETE, "/bucket/open/k", Bytes::new(), 403),
        (Method::GET, "/bucket?list-type=2&prefix=open/", Bytes::new(), 404),
        (Method::GET, "/bucket?list-type=2", Bytes::new(), 403),
        (Method::POST, "/bucket?delete", delete, 403),
        (Method::GET, "/bucket?policy", Bytes::new(), 403),
        (Method::DELETE, "/bucket", Bytes::new(), 403),
        (Method::GET, "/", Bytes::new(), 200),
    ] {
        let got = bench.send(&Ask {
            by: &bench.keys[1],
            body,
            ..bench.ask(method.clone(), target)
        });
        assert_eq!(got.status.as_u16(), status, "{method} {target}: {}", got.text());
    }
    let copied = bench.put("/bucket/copy", &Bytes::new(), &[("x-amz-copy-source", "/elsewhere/k")]);
    assert_eq!(copied.status, StatusCode::NOT_IMPLEMENTED, "{}", copied.text());
}

#[test]
fn an_address_for_reading_writes_nothing() {
    let bench = bench("forever", true);
    bench.origin.put("bucket/k", bytes(3, 1));
    assert_eq!(bench.get("/bucket/k", &[]).status, StatusCode::OK);
    for method in [Method::PUT, Method::POST, Method::DELETE] {
        let got = bench.send(&bench.ask(method.clone(), "/bucket/k"));
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{method}");
    }
    assert_eq!(bench.origin.puts.load(Ordering::Relaxed), 0);
}

#[test]
fn a_wrong_or_half_body_never_reaches_the_origin_whole() {
    let bench = bench("forever", false);
    let before = bytes(100, 9);
    bench.origin.put("bucket/k", before.clone());
    let body = bytes(200_000, 1);
    let wrong_hash = payload_hash(b"something else");
    for (headers, payload, code) in [
        (vec![("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], None, "BadDigest"),
        (vec![("x-amz-checksum-crc32", "AAAAAA==")], None, "BadDigest"),
        (vec![], Some(&*wrong_hash), "BadDigest"),
    ] {
        let got = bench.send(&Ask {
            headers: headers.clone(),
            body: body.clone(),
            payload,
            ..bench.ask(Method::PUT, "/bucket/k")
        });
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{headers:?}: {}", got.text());
        assert!(got.text().contains(code), "{headers:?}: {}", got.text());
    }
    // A client that goes away in the middle.
    let request = bench.request(&Ask {
        payload: Some("UNSIGNED-PAYLOAD"),
        body: body.clone(),
        ..bench.ask(Method::PUT, "/bucket/k")
    });
    let mut head = format!("PUT /bucket/k HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in request.headers() {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    head.push_str("\r\n");
    bench.runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(bench.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body[..100_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
    });
    assert!(bench.get("/bucket/k", &[]).body == Some(before.clone()));
    assert!(bench.origin.get("bucket/k") == Some(before));
    assert_eq!(bench.origin.puts.load(Ordering::Relaxed), 0);
}

#[test]
fn a_body_with_a_checksum_behind_it_is_passed_on_so() {
    let bench = bench("forever", false);
    let body = bytes(70_000, 1);
    let mut hasher = s3s::checksum::ChecksumHasher {
        crc32: Some(<s3s::crypto::Crc32 as s3s::crypto::Checksum>::new()),
        ..Default::default()
    };
    hasher.update(&body);
    let right = hasher.finalize().checksum_crc32.unwrap();
    for (sum, status) in [(&*right, 200), ("AAAAAA==", 400)] {
        let mut framed = format!("{:x}\r\n", body.len()).into_bytes();
        framed.extend_from_slice(&body);
        framed.extend_from_slice(format!("\r\n0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n").as_bytes());
        let length = body.len().to_string();
        let got = bench.send(&Ask {
            headers: vec![
                ("content-encoding", "aws-chunked"),
                ("x-amz-decoded-content-length", &length),
                ("x-amz-trailer", "x-amz-checksum-crc32"),
            ],
            body: framed.into(),
            payload: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ..bench.ask(Method::PUT, "/bucket/k")
        });
        assert_eq!(got.status.as_u16(), status, "{}", got.text());
    }
    assert!(bench.origin.get("bucket/k") == Some(body.clone()));
    let last = bench.origin.last.lock().clone();
    assert!(bench.get("/bucket/k", &[]).body == Some(body));
    assert!(last.contains_key("x-amz-date"), "requests to the origin are signed");
}

#[test]
fn clients_that_stop_reading_hold_little() {
    let bench = bench("forever", false);
    let object = bytes(50 * MIB, 1);
    bench.origin.put("bucket/k", object.clone());
    let mut stalled = Vec::new();
    for _ in 0..16 {
        let request = bench.request(&bench.ask(Method::GET, "/bucket/k"));
        let mut head = "GET /bucket/k HTTP/1.1\r\n".to_owned();
        for (name, value) in request.headers() {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        head.push_str("\r\n");
        stalled.push(bench.runtime.block_on(async {
            let mut stream = tokio::net::TcpStream::connect(bench.address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.readable().await.unwrap();
            stream
        }));
    }
    // Others are served meanwhile.
    assert!(bench.get("/bucket/k", &[]).body == Some(object));
    let held = bench.gateway.as_ref().unwrap().totals();
    assert_eq!(held.pending_blocks, 0, "{held:?}");
}
