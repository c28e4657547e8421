//! Several gateways over one origin, and one that does what it is told.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use super::*;
use crate::range::Asked;
use crate::{Client, ClientError, Ring};

const OBJECTS: usize = 24;

/// Gateways over one origin; the bench's own is the first.
struct Cluster {
    bench: Bench,
    others: Vec<(Option<Gateway>, Vec<Arc<PlainMemory>>)>,
    addresses: Vec<SocketAddr>,
}

fn cluster(count: usize, freshness: &str) -> Cluster {
    let bench = bench_of(freshness, false, None, Placing::Auto, true);
    let mut addresses = vec![bench.address];
    let mut others = Vec::new();
    for _ in 1..count {
        let (tenants, memories) = two_tenants();
        let gateway = Gateway::start(&bench.config, Arc::new(tenants), None).unwrap();
        addresses.push(gateway.address());
        others.push((Some(gateway), memories));
    }
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    std::fs::write(&bench.config.peers.as_ref().unwrap().file, list.join("\n")).unwrap();
    let cluster = Cluster {
        bench,
        others,
        addresses,
    };
    cluster.gateways().for_each(|gateway| until_it_knows(gateway, count));
    cluster.meet();
    cluster
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn until_it_knows(gateway: &Gateway, count: usize) {
    until("the list of gateways", || gateway.totals().gateways == count);
}

impl Cluster {
    fn gateways(&self) -> impl Iterator<Item = &Gateway> {
        let others = self.others.iter().filter_map(|(gateway, _)| gateway.as_ref());
        self.bench.gateway.iter().chain(others)
    }

    fn ring(&self) -> Ring {
        Ring::new(self.addresses.iter().map(ToString::to_string)).unwrap()
    }

    /// The number of the gateway that has an object.
    fn home(&self, place: &str) -> usize {
        let ring = self.ring();
        let home = ring.home(place).unwrap();
        self.addresses
            .iter()
            .position(|address| address.to_string() == home)
            .unwrap()
    }

    fn ask(&self, gateway: usize, method: Method, target: &str, headers: &[(&str, &str)], body: &Bytes) -> Got {
        self.bench.send(&Ask {
            at: self.addresses[gateway],
            headers: headers.to_vec(),
            body: body.clone(),
            ..self.bench.ask(method, target)
        })
    }

    fn get(&self, gateway: usize, target: &str) -> Got {
        self.ask(gateway, Method::GET, target, &[], &Bytes::new())
    }

    /// Every gateway asks every other one. At first contact it has them forget what they know.
    fn meet(&self) {
        for gateway in 0..self.addresses.len() {
            for number in 0..64 {
                assert_eq!(
                    self.get(gateway, &format!("/bucket/none-{number}")).status,
                    StatusCode::NOT_FOUND
                );
            }
        }
    }

    /// Ends a gateway that is not the first.
    fn kill(&mut self, gateway: usize) {
        self.others[gateway - 1].0.take().unwrap().drain(Duration::ZERO);
        let address = self.addresses[gateway];
        until("the end of a gateway", || TcpStream::connect(address).is_err());
    }

    fn blocks(&self, gateway: usize) -> usize {
        let memories = match gateway {
            0 => &self.bench.memories,
            other => &self.others[other - 1].1,
        };
        memories.iter().map(|memory| memory.blocks.lock().len()).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for gateway in self.others.iter_mut().filter_map(|(gateway, _)| gateway.take()) {
            gateway.drain(Duration::ZERO);
        }
    }
}

fn object(number: usize) -> Bytes {
    // Some in several blocks.
    let length = if number.is_multiple_of(8) {
        2 * MIB + number
    } else {
        1000 + number
    };
    bytes(length, number as u64)
}

#[test]
fn an_object_is_cached_by_its_home_whichever_gateway_is_asked() {
    let cluster = cluster(3, "forever");
    let mut expected = [0; 3];
    for number in 0..OBJECTS {
        let (place, object) = (format!("bucket/{number}"), object(number));
        cluster.bench.origin.put(&place, object.clone());
        expected[cluster.home(&place)] += object.len().div_ceil(MIB);
        for gateway in 0..3 {
            let got = cluster.get(gateway, &format!("/{place}"));
            assert!(
                got.status == StatusCode::OK && got.body.as_ref() == Some(&object),
                "{place} at {gateway}"
            );
            assert!(
                !got.headers.contains_key("x-tidemark-home"),
                "what gateways say to each other stays there"
            );
            let headers = [("range", "bytes=10-19")];
            let part = cluster.ask(gateway, Method::GET, &format!("/{place}"), &headers, &Bytes::new());
            assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
            assert!(part.body == Some(object.slice(10..20)), "{place} at {gateway}");
            let headers = [("if-none-match", got.header("etag"))];
            let same = cluster.ask(gateway, Method::GET, &format!("/{place}"), &headers, &Bytes::new());
            assert_eq!(same.status, StatusCode::NOT_MODIFIED);
            let head = cluster.ask(gateway, Method::HEAD, &format!("/{place}"), &[], &Bytes::new());
            assert_eq!(head.header("content-length"), object.len().to_string());
            assert_eq!(cluster.get(gateway, "/bucket/none").status, StatusCode::NOT_FOUND);
        }
    }
    let blocks: Vec<usize> = (0..3).map(|gateway| cluster.blocks(gateway)).collect();
    assert_eq!(blocks, expected, "each at its home, and nowhere else");
    assert!(
        expected.iter().all(|count| *count > 0),
        "each is the home of some: {expected:?}"
    );
    let all: usize = (0..OBJECTS).map(|number| object(number).len()).sum();
    assert_eq!(
        cluster.bench.origin.sent_bytes.load(Ordering::Relaxed),
        all as u64,
        "each came once"
    );
    for gateway in cluster.gateways() {
        let totals = gateway.totals();
        assert!(
            totals.relayed_requests > 0 && totals.relayed_bytes > 0 && totals.bypassed_requests == 0,
            "{totals:?}"
        );
    }
}

#[test]
fn what_is_written_through_one_gateway_is_read_through_all() {
    let cluster = cluster(3, "forever");
    let before = cluster.bench.origin_reads();
    for number in 0..OBJECTS {
        let (place, target) = (format!("bucket/{number}"), format!("/bucket/{number}"));
        let (old, new) = (object(number), object(number + 100));
        for (round, content) in [&old, &new].into_iter().enumerate() {
            let written = cluster.ask((number + round) % 3, Method::PUT, &target, &[], content);
            assert_eq!(written.status, StatusCode::OK, "{}", written.text());
            for gateway in 0..3 {
                assert!(
                    cluster.get(gateway, &target).body.as_ref() == Some(content),
                    "{place} at {gateway}"
                );
            }
        }
        assert!(
            cluster.blocks(cluster.home(&place)) > 0,
            "it was cached as it was written"
        );
        let gone = cluster.ask(number % 3, Method::DELETE, &target, &[], &Bytes::new());
        assert_eq!(gone.status, StatusCode::NO_CONTENT);
        for gateway in 0..3 {
            assert_eq!(
                cluster.get(gateway, &target).status,
                StatusCode::NOT_FOUND,
                "{place} at {gateway}"
            );
        }
    }
    let reads = cluster.bench.origin_reads() - before;
    assert_eq!(
        reads,
        3 * OBJECTS as u64,
        "only what was deleted was asked for at the origin"
    );
    // Homes forget what is deleted by the list, whatever the origin makes of that.
    let (place, target) = ("bucket/listed", "/bucket/listed");
    cluster.bench.origin.put(place, object(1));
    assert!(cluster.get(0, target).body == Some(object(1)));
    cluster.bench.origin.put(place, object(2));
    assert!(
        cluster.get(0, target).body == Some(object(1)),
        "nobody else writes, it is said"
    );
    let list = Bytes::from_static(b"<Delete><Object><Key>listed</Key></Object></Delete>");
    let other = (cluster.home(place) + 1) % 3;
    cluster.ask(other, Method::POST, "/bucket?delete", &[], &list);
    assert!(
        cluster.get(0, target).body == Some(object(2)),
        "its home has forgotten it"
    );
}

#[test]
fn a_gateway_that_is_gone_is_done_without() {
    let mut cluster = cluster(3, "forever");
    let read = |cluster: &Cluster, number: usize, content: &Bytes| {
        for gateway in 0..2 {
            let got = cluster.get(gateway, &format!("/bucket/{number}"));
            assert!(
                got.status == StatusCode::OK && got.body.as_ref() == Some(content),
                "{number} at {gateway}"
            );
        }
    };
    for number in 0..OBJECTS {
        cluster.bench.origin.put(&format!("bucket/{number}"), object(number));
        read(&cluster, number, &object(number));
    }
    cluster.kill(2);
    for number in 0..OBJECTS {
        read(&cluster, number, &object(number));
        let content = object(number + 100);
        let written = cluster.ask(number % 2, Method::PUT, &format!("/bucket/{number}"), &[], &content);
        assert_eq!(written.status, StatusCode::OK, "{}", written.text());
        read(&cluster, number, &content);
    }
    let bypassed: u64 = cluster
        .gateways()
        .map(|gateway| gateway.totals().bypassed_requests)
        .sum();
    assert!(bypassed > 0, "it was the home of some");
    // It leaves the list: the others share what it had, and cache it.
    let list = format!("{}\n{}", cluster.addresses[0], cluster.addresses[1]);
    std::fs::write(&cluster.bench.config.peers.as_ref().unwrap().file, list).unwrap();
    cluster.gateways().for_each(|gateway| until_it_knows(gateway, 2));
    (0..OBJECTS).for_each(|number| read(&cluster, number, &object(number + 100)));
    let reads = cluster.bench.origin_reads();
    (0..OBJECTS).for_each(|number| read(&cluster, number, &object(number + 100)));
    assert_eq!(cluster.bench.origin_reads(), reads, "all of it is cached");
}

#[test]
fn a_request_is_passed_on_once_whatever_the_lists_say() {
    let cluster = cluster(1, "forever");
    // Each believes that the other one has everything.
    let gateway = |name: &str, list: SocketAddr| {
        let file = cluster.bench.config.folder.join(name);
        std::fs::write(&file, list.to_string()).unwrap();
        let own = Some("elsewhere:1".to_owned());
        let config = Config {
            peers: Some(PeersConfig { file, own }),
            ..cluster.bench.config.clone()
        };
        Gateway::start(&config, Arc::new(two_tenants().0), None).unwrap()
    };
    let third = gateway("third", cluster.addresses[0]);
    let fourth = gateway("fourth", third.address());
    std::fs::write(cluster.bench.config.folder.join("third"), fourth.address().to_string()).unwrap();
    cluster.bench.origin.put("bucket/k", object(1));
    let got = cluster.bench.send(&Ask {
        at: third.address(),
        ..cluster.bench.ask(Method::GET, "/bucket/k")
    });
    assert!(got.body == Some(object(1)));
    until("the other list", || {
        cluster.bench.send(&Ask {
            at: third.address(),
            ..cluster.bench.ask(Method::GET, "/bucket/k")
        });
        fourth.totals().requests > 0
    });
    let (before, relayed) = (fourth.totals(), third.totals().relayed_requests);
    let got = cluster.bench.send(&Ask {
        at: third.address(),
        ..cluster.bench.ask(Method::GET, "/bucket/k")
    });
    assert!(got.body == Some(object(1)));
    assert_eq!(third.totals().relayed_requests, relayed + 1);
    assert_eq!(
        fourth.totals().relayed_requests,
        before.relayed_requests,
        "it is answered there"
    );
    for gateway in [third, fourth] {
        gateway.drain(Duration::ZERO);
    }
}

#[test]
fn who_is_no_gateway_can_not_sign_as_one() {
    let cluster = cluster(2, "forever");
    cluster.bench.origin.put("bucket/open/k", object(1));
    for (access_key, target) in [
        ("@shop.1", "/bucket/open/k"),
        ("@", "/?tidemark-forget="),
        ("@blog.1", "/bucket/open/k"),
    ] {
        let by = Credentials {
            access_key: access_key.into(),
            // A tenant's own secret is none of a gateway.
            ..cluster.bench.keys[0].clone()
        };
        let got = cluster.bench.send(&Ask {
            by: &by,
            ..cluster.bench.ask(Method::GET, target)
        });
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{access_key}: {}", got.text());
        assert!(got.text().contains("SignatureDoesNotMatch"), "{}", got.text());
    }
    // Another gateway is not asked for anything that the tenant may not do.
    for gateway in 0..2 {
        let got = cluster.bench.send(&Ask {
            by: &cluster.bench.keys[1],
            at: cluster.addresses[gateway],
            ..cluster.bench.ask(Method::GET, "/bucket/closed")
        });
        assert_eq!(got.status, StatusCode::FORBIDDEN);
    }
}

#[test]
fn parity_ends_at_the_gateway_that_gets_it() {
    let cluster = cluster(2, "forever");
    let object = bytes(1000, 9);
    let body = Bytes::from([&[0; 512][..], &object].concat());
    let headers = [("x-tidemark-parity", "4+2"), ("x-tidemark-bytes", "1000")];
    let mut homes = [0, 0];
    for number in 0..OBJECTS {
        let target = format!("/bucket/coded-{number}");
        let got = cluster.ask(0, Method::PUT, &target, &headers, &body);
        assert_eq!(got.status, StatusCode::OK, "{}", got.text());
        assert!(cluster.bench.origin.get(&target[1..]).as_ref() == Some(&object));
        assert!(cluster.get(1, &target).body.as_ref() == Some(&object));
        homes[cluster.home(&target[1..])] += 1;
    }
    assert!(homes.iter().all(|objects| *objects > 0), "{homes:?}");
}

#[test]
fn a_client_that_hashes_itself_asks_homes_only() {
    let mut cluster = cluster(3, "forever");
    let client = Client::new(cluster.ring(), cluster.bench.keys[0].clone()).unwrap();
    let key = |number: usize| format!("a folder/{number}");
    let run = |cluster: &Cluster, seed: usize| {
        cluster.bench.runtime.block_on(async {
            for number in 0..OBJECTS {
                let content = object(number + seed);
                client.put("bucket", &key(number), content.clone()).await.unwrap();
                assert!(client.get("bucket", &key(number), None).await.unwrap() == content);
                assert!(client.get("bucket", &key(number), Some(5..9)).await.unwrap() == content.slice(5..9));
            }
        });
    };
    let counts = |cluster: &Cluster, count: fn(crate::Totals) -> u64| -> Vec<u64> {
        cluster.gateways().map(|gateway| count(gateway.totals())).collect()
    };
    let relayed = counts(&cluster, |totals| totals.relayed_requests);
    let asked = counts(&cluster, |totals| totals.requests);
    run(&cluster, 0);
    assert_eq!(
        counts(&cluster, |totals| totals.relayed_requests),
        relayed,
        "nothing is passed on"
    );
    let sum = |counts: Vec<u64>| counts.into_iter().sum::<u64>();
    let more = sum(counts(&cluster, |totals| totals.requests)) - sum(asked);
    assert_eq!(more, 3 * OBJECTS as u64);
    cluster.kill(2);
    run(&cluster, 100);
    cluster.bench.runtime.block_on(async {
        client.delete("bucket", &key(1)).await.unwrap();
        let gone = client.get("bucket", &key(1), None).await;
        assert!(
            matches!(gone, Err(ClientError::Refused { status: 404, .. })),
            "{gone:?}"
        );
    });
    cluster.kill(1);
    cluster.bench.gateway.take().unwrap().drain(Duration::ZERO);
    let gone = cluster.bench.runtime.block_on(client.get("bucket", &key(2), None));
    assert!(matches!(gone, Err(ClientError::Unavailable)), "{gone:?}");
}

/// The answers of a gateway that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Half of what was asked for.
    Half,
    /// An answer that is none of a home.
    Unmarked,
    /// A home's, but an error of the server.
    Broken,
    /// Closes without an answer.
    Silent,
}

struct FakeGateway {
    address: SocketAddr,
    way: Mutex<Way>,
    object: Bytes,
    /// Methods with the bodies, in order.
    log: Mutex<Vec<(String, String)>>,
}

impl FakeGateway {
    fn start(object: Bytes) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            way: Mutex::new(Way::Half),
            object,
            log: Mutex::default(),
        });
        let this = Arc::clone(&fake);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = Arc::clone(&this);
                std::thread::spawn(move || this.answer(stream));
            }
        });
        fake
    }

    fn answer(&self, mut stream: TcpStream) {
        let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
        let head = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break String::from_utf8(read.drain(..end + 4).collect()).unwrap();
            }
            match stream.read(&mut buffer) {
                Ok(bytes) if bytes > 0 => read.extend_from_slice(&buffer[..bytes]),
                // A connection that was made ahead.
                _ => return,
            }
        };
        let field = |name: &str| {
            let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name));
            line.map(|line| line.split_once(": ").unwrap().1.to_owned())
        };
        let length: usize = field("content-length").map_or(0, |length| length.parse().unwrap());
        while read.len() < length {
            let bytes = stream.read(&mut buffer).unwrap();
            assert!(bytes > 0, "a body that ends early");
            read.extend_from_slice(&buffer[..bytes]);
        }
        let way = *self.way.lock();
        if way == Way::Silent {
            return;
        }
        let method = head.split(' ').next().unwrap().to_owned();
        self.log
            .lock()
            .push((method.clone(), String::from_utf8_lossy(&read).into_owned()));
        let marked = "connection: close\r\nx-tidemark-home: here\r\n";
        let answer = match way {
            _ if method == "POST" => format!("HTTP/1.1 204 No Content\r\n{marked}\r\n").into_bytes(),
            Way::Unmarked => b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec(),
            Way::Broken => format!("HTTP/1.1 503 Busy\r\n{marked}content-length: 0\r\n\r\n").into_bytes(),
            Way::Half | Way::Silent => self.half(field("range").as_deref(), marked),
        };
        // It may not be waited for.
        let _ = stream.write_all(&answer);
    }

    fn half(&self, range: Option<&str>, marked: &str) -> Vec<u8> {
        let size = self.object.len() as u64;
        let asked = Asked::parse(range).of(size).unwrap();
        let bytes = asked.clone().unwrap_or(0..size);
        let (status, line) = match asked {
            Some(range) => (
                206,
                format!("content-range: bytes {}-{}/{size}\r\n", range.start, range.end - 1),
            ),
            None => (200, String::new()),
        };
        let etag = origin::etag(&self.object);
        let (etag, length) = (etag.to_str().unwrap(), bytes.end - bytes.start);
        let head = format!("HTTP/1.1 {status} OK\r\n{marked}{line}etag: {etag}\r\ncontent-length: {length}\r\n\r\n");
        let half = self
            .object
            .slice(bytes.start as usize..(bytes.start + length / 2) as usize);
        [head.as_bytes(), &half].concat()
    }
}

/// A gateway whose only other one is a fake, and an object that the fake is the home of.
fn with_fake(freshness: &str) -> (Bench, Arc<FakeGateway>, String) {
    let bench = bench_of(freshness, false, None, Placing::Auto, true);
    let fake = FakeGateway::start(bytes(3 * MIB, 1));
    let names = [bench.address, fake.address].map(|address| address.to_string());
    std::fs::write(&bench.config.peers.as_ref().unwrap().file, names.join("\n")).unwrap();
    until_it_knows(bench.gateway.as_ref().unwrap(), 2);
    let ring = Ring::new(names.clone()).unwrap();
    let mut places = (0..).map(|number| format!("bucket/{number}"));
    let place = places
        .find(|place| ring.home(place) == Some(names[1].as_str()))
        .unwrap();
    bench.origin.put(&place, fake.object.clone());
    (bench, fake, place)
}

#[test]
fn an_answer_that_breaks_off_goes_on_from_the_origin() {
    let (bench, fake, place) = with_fake("forever");
    let target = format!("/{place}");
    for way in [Way::Half, Way::Unmarked, Way::Broken, Way::Silent] {
        *fake.way.lock() = way;
        for (range, bytes) in [(None, 0..3 * MIB), (Some("bytes=1000-2000999"), 1000..2_001_000)] {
            let headers: Vec<(&str, &str)> = range.map(|range| ("range", range)).into_iter().collect();
            let got = bench.get(&target, &headers);
            assert!(got.status.is_success(), "{way:?}: {}", got.status);
            assert!(got.body == Some(fake.object.slice(bytes)), "{way:?} {range:?}");
        }
    }
    let totals = bench.gateway.as_ref().unwrap().totals();
    assert_eq!(
        (totals.relayed_requests, totals.bypassed_requests),
        (2, 6),
        "{totals:?}"
    );
    assert_eq!(totals.relayed_bytes, (3 * MIB / 2 + 1_000_000) as u64);
}

#[test]
fn an_answer_that_breaks_off_never_goes_on_with_another_version() {
    let (bench, fake, place) = with_fake("forever");
    bench.origin.put(&place, bytes(3 * MIB, 2));
    let got = bench.get(&format!("/{place}"), &[]);
    assert_eq!(got.status, StatusCode::OK);
    assert!(got.body.is_none(), "the client sees that it has not got everything");
    assert_eq!(got.header("etag"), origin::etag(&fake.object).to_str().unwrap());
}

#[test]
fn who_writes_past_a_home_tells_it() {
    let (bench, fake, place) = with_fake("forever");
    // At first contact everything is to be forgotten: this gateway may have written before it was started.
    bench.get(&format!("/{place}"), &[]);
    assert_eq!(fake.log.lock().first(), Some(&("POST".to_owned(), "*".to_owned())));
    *fake.way.lock() = Way::Silent;
    let content = object(7);
    let written = bench.put(&format!("/{place}"), &content, &[]);
    assert_eq!(written.status, StatusCode::OK, "{}", written.text());
    assert!(bench.origin.get(&place) == Some(content.clone()));
    let got = bench.get(&format!("/{place}"), &[]);
    assert!(
        got.body == Some(content),
        "from the origin, as long as its home is away"
    );
    fake.log.lock().clear();
    *fake.way.lock() = Way::Half;
    until("the message", || !fake.log.lock().is_empty());
    assert_eq!(fake.log.lock()[0], ("POST".to_owned(), format!("{place}\n")));
}
