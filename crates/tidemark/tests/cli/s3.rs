//! The S3 address of real servers: what its use comes to on bills, and several servers in front of one bucket.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyper::body::Bytes;
use serde_json::Value;
use tidemark_functions::emulator::{self, Emulator};
use tidemark_gateway::{Client, ClientError, Credentials, Ring};

use super::*;

const MIB: usize = 1 << 20;

/// A bucket in this process.
#[derive(Default)]
pub(super) struct Bucket {
    objects: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    /// GETs of objects that are there.
    pub(super) reads: AtomicU64,
    /// Whether it obeys conditions of writes and of reads of what is known, as agents need it.
    has_conditions: bool,
    /// The identities that agents give to their writes.
    writes: Mutex<BTreeMap<String, String>>,
}

impl Bucket {
    pub(super) fn start() -> (Arc<Self>, SocketAddr) {
        Self::default().listen()
    }

    pub(super) fn with_conditions() -> (Arc<Self>, SocketAddr) {
        let bucket = Self {
            has_conditions: true,
            ..Self::default()
        };
        bucket.listen()
    }

    fn listen(self) -> (Arc<Self>, SocketAddr) {
        let (bucket, listener) = (Arc::new(self), TcpListener::bind("127.0.0.1:0").unwrap());
        let (this, address) = (Arc::clone(&bucket), listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = Arc::clone(&this);
                std::thread::spawn(move || this.answer(stream));
            }
        });
        (bucket, address)
    }

    pub(super) fn put(&self, path: &str, bytes: &[u8]) {
        let mut objects = self.objects.lock().unwrap();
        objects.insert(path.to_owned(), Arc::new(bytes.to_vec()));
    }

    /// Answers one request.
    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let (mut read, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        let head = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break String::from_utf8(read.drain(..end + 4).collect()).ok()?;
            }
            let bytes = stream.read(&mut buffer).ok().filter(|bytes| *bytes > 0)?;
            read.extend_from_slice(&buffer[..bytes]);
        };
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines
                .find(|(field, _)| field.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        let length: usize = field("content-length").map_or(0, |length| length.parse().unwrap());
        while read.len() < length {
            let bytes = stream.read(&mut buffer).ok().filter(|bytes| *bytes > 0)?;
            read.extend_from_slice(&buffer[..bytes]);
        }
        let mut words = head.split(' ');
        let (method, path) = (words.next()?, words.next()?.to_owned());
        let answer = match method {
            "PUT" => {
                let mut objects = self.objects.lock().unwrap();
                let there = objects.get(&path).map(|object| etag(object));
                let is_wrong = field("if-match").is_some_and(|wanted| there.as_deref() != Some(wanted));
                let is_there = field("if-none-match").is_some() && there.is_some();
                if self.has_conditions && (is_wrong || is_there) {
                    return stream.write_all(&bare("412 Precondition Failed")).ok();
                }
                if let Some(write) = field(WRITE_FIELD) {
                    self.writes.lock().unwrap().insert(path.clone(), write.to_owned());
                }
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\netag: {}\r\ncontent-length: 0\r\n\r\n",
                    etag(&read)
                );
                objects.insert(path, Arc::new(read));
                answer.into_bytes()
            }
            _ => self.read(method, &path, &field),
        };
        stream.write_all(&answer).ok()
    }

    fn read<'a>(&self, method: &str, path: &str, field: &dyn Fn(&str) -> Option<&'a str>) -> Vec<u8> {
        let (object, write) = {
            let objects = self.objects.lock().unwrap();
            let write = self.writes.lock().unwrap().get(path).cloned();
            (objects.get(path).cloned(), write)
        };
        let Some(object) = object else {
            return bare("404 Not Found");
        };
        let etag = etag(&object);
        if field("if-match").is_some_and(|wanted| wanted != etag) {
            return bare("412 Precondition Failed");
        }
        if self.has_conditions && field("if-none-match").is_some_and(|known| known == etag) {
            return bare("304 Not Modified");
        }
        let write = write.map_or_else(String::new, |write| format!("{WRITE_FIELD}: {write}\r\n"));
        let asked = field("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (status, bytes, more) = match asked {
            Some((first, last)) => {
                let first: usize = first.parse().unwrap();
                let end = (last.parse::<usize>().unwrap() + 1).min(object.len());
                let line = format!("content-range: bytes {first}-{}/{}\r\n", end - 1, object.len());
                ("206 Partial Content", first..end, line)
            }
            None => ("200 OK", 0..object.len(), String::new()),
        };
        let more = more + &write;
        let length = bytes.len();
        let head =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\netag: {etag}\r\n{more}content-length: {length}\r\n\r\n");
        if method == "GET" {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        let body = if method == "HEAD" { &[] } else { &object[bytes] };
        [head.as_bytes(), body].concat()
    }
}

/// The field of a write's identity.
const WRITE_FIELD: &str = "x-amz-meta-tidemark-write";

fn bare(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

fn etag(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{hash:016x}{:016x}\"", bytes.len())
}

pub(super) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| ((at + seed).wrapping_mul(0x9e37_79b9) >> 13) as u8)
        .collect()
}

/// A client of one server alone, or of several.
pub(super) fn client(servers: &[&Server], key: &Value) -> Client {
    let addresses = servers.iter().map(|server| s3_address(server));
    let text = |field: &str| key[field].as_str().unwrap().to_owned();
    let credentials = Credentials {
        access_key: text("access_key"),
        secret_key: text("secret_key"),
        session_token: None,
    };
    Client::new(Ring::new(addresses).unwrap(), credentials).unwrap()
}

/// A server in front of this bucket, with the functions of a file.
pub(super) fn server_with(origin: SocketAddr, functions: &str, more: &[&str]) -> Server {
    let origin = format!("s3://photos?endpoint=http://{origin}");
    let of_s3 = ["--s3", "127.0.0.1:0", "--origin", origin.as_str()];
    Server::start(&[&of_s3[..], &["--functions", functions], more].concat())
}

/// Waits until a new key is seen: files are looked at once a second.
pub(super) fn until_it_is_let_in(runtime: &tokio::runtime::Runtime, client: &Client) {
    wait_until("the key is seen", || {
        let answered = runtime.block_on(client.get("photos", "none", None));
        matches!(answered, Err(ClientError::Refused { status: 404, .. }))
    });
}

fn s3_address(server: &Server) -> String {
    let address = server.ready.split(' ').find_map(|word| word.strip_prefix("s3="));
    address.unwrap().to_owned()
}

/// Functions that are processes of this program.
pub(super) fn emulator(runtime: &tokio::runtime::Runtime) -> Emulator {
    let _within = runtime.enter();
    let emulator = Emulator::start(emulator::Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        program: env!("CARGO_BIN_EXE_tidemark").into(),
        arguments: vec!["functions".into(), "program".into()],
        unit_ms: 1,
        freezes: true,
    });
    emulator.unwrap()
}

pub(super) fn functions_file(folder: &Path, emulator: &Emulator, more: &str) -> String {
    let file = folder.join("functions.toml");
    let text = format!(
        "endpoint = \"http://{}\"\nname = \"pool\"\ncount = 6\nleast_in_use = 6\ncodes = \"0=4+2\"\n{more}",
        emulator.address()
    );
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn functions_are_made_resized_and_removed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (emulator, folder) = (emulator(&runtime), tempfile::tempdir().unwrap());
    let check = |arguments: &[&str], changed: u64, unchanged: u64| {
        let output = run(&[&["--json", "functions"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        let said: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(
            (said["changed"].as_u64(), said["unchanged"].as_u64()),
            (Some(changed), Some(unchanged)),
            "{arguments:?}"
        );
    };
    let file = functions_file(folder.path(), &emulator, "memory = \"128MiB\"\n");
    // A program of some bytes: nothing is run of it.
    let bootstrap = folder.path().join("bootstrap");
    std::fs::write(&bootstrap, "#!/bin/sh\n").unwrap();
    let deploy = ["deploy", &file, "--bootstrap", bootstrap.to_str().unwrap()];
    check(&deploy, 6, 0);
    check(&deploy, 0, 6);
    check(&["resize", &file], 0, 6);
    let file = functions_file(folder.path(), &emulator, "memory = \"256MiB\"\n");
    check(&["resize", &file], 6, 0);
    check(&["resize", &file], 0, 6);
    check(&["remove", &file], 6, 0);
    check(&["remove", &file], 0, 6);
    let refused = run(&["functions", "resize", &file]);
    assert!(!refused.status.success(), "there is nothing to resize");
    let refused = run(&["functions", "deploy", &file, "--bootstrap", "/none"]);
    assert_eq!(refused.status.code(), Some(USAGE), "{}", stderr(&refused));
}

const PRICES: &str = "\
currency = \"USD\"
cpu = \"measured\"

[[prices]]
version = \"test-1\"
from = 2020-01-01
vcpu_hour = \"0\"
memory_gib_hour = \"0\"
network_in_gib = \"1024\"
network_out_gib = \"2048\"
operations_million = \"0\"
invocations_million = \"1000000\"
function_gib_second = \"100\"
";

/// Sums of a tenant's rows in the ledger.
pub(super) fn sum(server: &Server, tenant: &str, field: &str) -> f64 {
    let rows = server.json(&["usage", tenant]);
    let rows = rows["rows"].as_array().unwrap();
    rows.iter().filter_map(|row| row[field].as_f64()).sum()
}

#[test]
fn what_s3_clients_and_their_functions_did_is_on_the_bill() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (emulator, files) = (emulator(&runtime), tempfile::tempdir().unwrap());
    assert!((0..6).all(|number| emulator.create(&format!("pool-{number}"), 128)));
    let file = functions_file(
        files.path(),
        &emulator,
        "memory = \"128MiB\"\nwarm_every = \"never\"\nbackup_every = \"never\"\n",
    );
    let prices = files.path().join("prices.toml");
    std::fs::write(&prices, PRICES).unwrap();
    let (_bucket, origin) = Bucket::start();
    let more = ["--ledger-period", "1s", "--prices", prices.to_str().unwrap()];
    let server = server_with(origin, &file, &more);
    for name in ["shop", "plain", "idle"] {
        server.json(&["tenant", "create", name]);
    }
    let key_of = |name: &str, place: &str| server.json(&["tenant", "s3-key", name, "--place", place]);
    let [shop, plain] = [("shop", "functions"), ("plain", "memory")].map(|(name, place)| {
        let client = client(&[&server], &key_of(name, place));
        until_it_is_let_in(&runtime, &client);
        client
    });
    let (stored, straight) = (pattern(6 * MIB, 1), pattern(20 * MIB, 2));
    runtime.block_on(async {
        shop.put("photos", "k", stored.clone().into()).await.unwrap();
        for _ in 0..2 {
            assert!(shop.get("photos", "k", None).await.unwrap() == stored);
        }
        // An object that is too long to be kept as it goes by is counted as well.
        plain.put("photos", "once", straight.into()).await.unwrap();
    });

    let report = server.json(&["functions", "status"]);
    assert!(report["totals"]["hits"].as_u64().unwrap() > 0, "{report}");
    let invocations = || emulator.bill().invocations;
    wait_until("the functions end", || emulator.bill().invocations > 0);
    wait_until("the ledger has all invocations", || {
        sum(&server, "shop", "invocations") == invocations() as f64
    });
    for (tenant, bytes) in [("shop", 6 * MIB), ("plain", 20 * MIB)] {
        wait_until("the ledger has all bytes", || {
            sum(&server, tenant, "network_in_bytes") >= bytes as f64
        });
        assert_eq!(sum(&server, tenant, "network_in_bytes"), bytes as f64, "{tenant}");
    }
    let sent = sum(&server, "shop", "network_out_bytes") - (12 * MIB) as f64;
    // Errors are bytes, too.
    assert!((0.0..65_536.0).contains(&sent), "{sent}");
    assert_eq!(sum(&server, "plain", "invocations"), 0.0, "it has nothing in functions");
    for field in ["invocations", "function_mib_ms", "network_in_bytes"] {
        assert_eq!(sum(&server, "idle", field), 0.0, "{field} of a tenant that did nothing");
    }
    // Durations are measured here, so that they are not less than the cloud's.
    let mib_ms = sum(&server, "shop", "function_mib_ms");
    assert!(
        mib_ms >= (emulator.bill().billed_ms * 128) as f64,
        "{mib_ms}: {:?}",
        emulator.bill()
    );

    let rows = server.json(&["usage", "shop"]);
    let month = rows["rows"][0]["from"].as_str().unwrap()[..7].to_owned();
    let bill = server.json(&["bill", "shop", "--month", &month]);
    let line = |meter: &str, field: &str| {
        let lines = bill["lines"].as_array().unwrap();
        let line = lines.iter().find(|line| line["meter"] == meter).unwrap();
        line[field].as_str().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(line("network_in_gib", "cost"), 6.0, "a dollar for each MiB");
    assert!((24.0..24.2).contains(&line("network_out_gib", "cost")), "{bill}");
    let count = invocations() as f64;
    assert_eq!(
        (
            line("invocations_million", "amount"),
            line("invocations_million", "cost")
        ),
        (count, count)
    );
    let expected = mib_ms / 1_024_000.0 * 100.0;
    let billed = line("function_gib_second", "cost");
    assert!((billed - expected).abs() <= 0.01, "{billed} for {expected}");
    server.stop();
}

#[test]
fn a_client_that_codes_itself_computes_what_functions_lose() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (emulator, files) = (emulator(&runtime), tempfile::tempdir().unwrap());
    assert!((0..6).all(|number| emulator.create(&format!("pool-{number}"), 128)));
    // Warm-ups find the losses that no read finds.
    let more = "memory = \"128MiB\"\nwarm_every = \"1s\"\nbackup_every = \"never\"\nrefill = \"at-once\"\n";
    let file = functions_file(files.path(), &emulator, more);
    let (bucket, origin) = Bucket::start();
    let server = server_with(origin, &file, &[]);
    server.json(&["tenant", "create", "shop"]);
    let key = server.json(&["tenant", "s3-key", "shop", "--place", "functions"]);
    let client = client(&[&server], &key).coding();
    until_it_is_let_in(&runtime, &client);
    let object = Bytes::from(pattern(6 * MIB + 1, 3));
    runtime.block_on(client.put("photos", "k", object.clone())).unwrap();
    let written = bucket.objects.lock().unwrap()["/photos/k"].clone();
    assert!(written[..] == object[..], "the origin has the object without parity");
    assert_eq!(client.counts().with_parity, 2);
    let total = |name: &str| server.json(&["functions", "status"])["totals"][name].as_u64().unwrap();
    wait_until("the stripes are stored", || total("written_stripes") == 2);
    let get = |range| runtime.block_on(client.get("photos", "k", range)).unwrap();
    let before = client.counts();
    assert!(get(None) == object);
    assert!(get(Some(4_000_000..5_000_000)) == object.slice(4_000_000..5_000_000));
    assert_eq!(client.counts().chunked - before.chunked, 4, "{:?}", client.counts());
    // One function after another is taken away: its chunks are computed here, until they are put back.
    for number in 0..6 {
        assert!(emulator.reclaim(&format!("pool-{number}")) > 0);
        assert!(get(None) == object, "after {number}");
        wait_until("lost chunks are put back", || {
            total("repaired_chunks") >= 2 * (number + 1)
        });
    }
    let (counts, computed_there) = (client.counts(), total("decoded"));
    assert!(counts.computed > before.computed, "{counts:?}");
    assert_eq!((counts.plain, computed_there), (before.plain, 0), "{counts:?}");
    server.stop();
}

#[test]
fn several_servers_share_a_bucket_and_one_may_be_killed() {
    let files = tempfile::tempdir().unwrap();
    let list = files.path().join("peers");
    std::fs::write(&list, "").unwrap();
    let (bucket, origin) = Bucket::start();
    let origin = format!("s3://photos?endpoint=http://{origin}");
    let arguments = [
        "--s3",
        "127.0.0.1:0",
        "--origin",
        &origin,
        "--s3-peers",
        list.to_str().unwrap(),
    ];
    let first = Server::start(&arguments);
    let server_key = Path::new(&first.data()).join("s3.key");
    let mut servers = vec![first];
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let data = data(&folder);
        std::fs::create_dir(&data).unwrap();
        std::fs::copy(&server_key, Path::new(&data).join("s3.key")).unwrap();
        servers.push(Server::start_in(folder, &arguments));
    }
    let addresses: Vec<String> = servers.iter().map(s3_address).collect();
    std::fs::write(&list, addresses.join("\n")).unwrap();
    let keys: Vec<Value> = servers
        .iter()
        .map(|server| {
            server.json(&["tenant", "create", "shop"]);
            server.json(&["tenant", "s3-key", "shop"])
        })
        .collect();
    assert!(
        keys.iter().all(|key| key["secret_key"] == keys[0]["secret_key"]),
        "one key for all"
    );
    let count = |server: &Server, name: &str| {
        let metrics = metrics(server);
        let name = format!("tidemark_gateway_{name}");
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {metrics}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    wait_until("the list is seen", || {
        servers.iter().all(|server| count(server, "gateways") == 3.0)
    });

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let clients: Vec<Client> = servers.iter().map(|server| client(&[server], &keys[0])).collect();
    clients.iter().for_each(|client| until_it_is_let_in(&runtime, client));
    let object = |number: usize| pattern(1000 + number % 5 * MIB, number);
    let read_all = |clients: &[Client], seed: usize| {
        for number in 0..20 {
            for client in clients {
                let read = runtime.block_on(client.get("photos", &number.to_string(), None));
                assert!(read.unwrap() == object(number + seed), "{number}");
            }
        }
    };
    let write_all = |clients: &[Client], seed: usize| {
        for number in 0..20 {
            let (key, content) = (number.to_string(), object(number + seed));
            let written = clients[number % clients.len()].put("photos", &key, content.into());
            runtime.block_on(written).unwrap();
        }
    };
    let all: Vec<&Server> = servers.iter().collect();
    write_all(&clients, 0);
    assert_eq!(bucket.objects.lock().unwrap().len(), 20);
    read_all(&clients, 0);
    for server in &servers {
        assert!(count(server, "relayed_requests_total") > 0.0);
        assert_eq!(count(server, "bypassed_requests_total"), 0.0);
    }
    // A client that hashes itself needs no server to pass anything on.
    let relayed = |servers: &[Server]| {
        servers
            .iter()
            .map(|server| count(server, "relayed_requests_total"))
            .sum::<f64>()
    };
    let before = relayed(&servers);
    let hashing = client(&all, &keys[0]);
    for number in 0..20 {
        assert!(
            runtime
                .block_on(hashing.get("photos", &number.to_string(), None))
                .unwrap()
                == object(number)
        );
    }
    assert_eq!(relayed(&servers), before);

    servers[2].signal(Signal::KILL);
    let left: Vec<&Server> = servers[..2].iter().collect();
    read_all(&clients[..2], 0);
    write_all(&clients[..2], 100);
    read_all(&clients[..2], 100);
    assert!(
        left.iter()
            .map(|server| count(server, "bypassed_requests_total"))
            .sum::<f64>()
            > 0.0
    );
    for number in 0..20 {
        assert!(
            runtime
                .block_on(hashing.get("photos", &number.to_string(), None))
                .unwrap()
                == object(number + 100)
        );
    }
}

fn metrics(server: &Server) -> String {
    let token = std::fs::read_to_string(Path::new(&server.data()).join("admin.token")).unwrap();
    let address = server
        .ready
        .split(' ')
        .find_map(|word| word.strip_prefix("admin="))
        .unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    let token = token.trim();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}
