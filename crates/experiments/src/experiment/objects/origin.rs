//! The origin: objects in memory, with the conditional requests and the ranges of S3 that cachelets and gateways need. It is as fast as
//! it can be, unless it is told how slow to be; a relay before it can make it distant, too.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::http::Head;

/// A connection's thread holds its buffers on the heap.
const STACK_BYTES: usize = 128 << 10;
/// A body of at most so many bytes is sent with its head.
const SMALL_BYTES: usize = 64 << 10;
/// Bytes that a slow origin sends at a time.
const PIECE_BYTES: usize = 256 << 10;
const META: &str = "x-amz-meta-";

/// How slow it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiment) struct Slowness {
    /// Before the first byte of an answer.
    pub(in crate::experiment) delay: Duration,
    /// The bandwidth of a connection.
    pub(in crate::experiment) bytes_per_s: u64,
}

#[derive(Clone, Debug)]
struct Stored {
    bytes: Arc<[u8]>,
    etag: String,
    /// The fields that the writer wants to have back, as they are sent.
    meta: String,
}

#[derive(Debug, Default)]
struct Store {
    objects: Mutex<HashMap<String, Stored>>,
    writes: AtomicU64,
    reads: AtomicU64,
    slowness: Option<Slowness>,
}

/// The bytes of a range of an object; nothing for one that begins behind it, or is written in another way than `bytes=FIRST-LAST`.
fn range_of(asked: &str, size_bytes: usize) -> Option<Range<usize>> {
    let (first, last) = asked.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let range = first..last.checked_add(1)?.min(size_bytes);
    (!range.is_empty()).then_some(range)
}

impl Store {
    /// Every write gives another tag, also one of the same bytes.
    fn stored(&self, bytes: Arc<[u8]>, meta: String) -> Stored {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        Stored {
            etag: format!("\"{:x}-{number:x}\"", bytes.len()),
            bytes,
            meta,
        }
    }

    fn write(&self, place: &str, head: &Head, body: &[u8]) -> Answer {
        let fields = head.fields(META);
        let meta: String = fields.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let known = objects.get(place).map(|stored| stored.etag.as_str());
        let is_other = head.field("if-match").is_some_and(|wanted| Some(wanted) != known);
        if is_other || (head.field("if-none-match").is_some() && known.is_some()) {
            return Answer::error("412 Precondition Failed", "PreconditionFailed");
        }
        let stored = self.stored(body.into(), meta);
        let answer = Answer {
            status: "200 OK",
            fields: format!("etag: {}\r\n", stored.etag),
            ..Answer::default()
        };
        objects.insert(place.to_owned(), stored);
        answer
    }

    fn read(&self, place: &str, head: &Head) -> Answer {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let found = objects.get(place).cloned();
        drop(objects);
        let Some(Stored { bytes, etag, meta }) = found else {
            return Answer::error("404 Not Found", "NoSuchKey");
        };
        if head.field("if-match").is_some_and(|wanted| wanted != etag) {
            return Answer::error("412 Precondition Failed", "PreconditionFailed");
        }
        let fields = format!("etag: {etag}\r\n{meta}");
        if head.field("if-none-match").is_some_and(|known| known == etag) {
            let status = "304 Not Modified";
            return Answer {
                status,
                fields,
                ..Answer::default()
            };
        }
        let Some(asked) = head.field("range") else {
            return Answer {
                status: "200 OK",
                fields,
                sent: 0..bytes.len(),
                body: bytes,
            };
        };
        let Some(sent) = range_of(asked, bytes.len()) else {
            return Answer::error("416 Range Not Satisfiable", "InvalidRange");
        };
        let (first, last) = (sent.start, sent.end - 1);
        Answer {
            status: "206 Partial Content",
            fields: format!("{fields}content-range: bytes {first}-{last}/{}\r\n", bytes.len()),
            sent,
            body: bytes,
        }
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut out = stream.try_clone()?;
        let mut input = BufReader::new(stream);
        let mut body = Vec::new();
        while let Some(head) = Head::read(&mut input)? {
            head.body(&mut input, &mut body)?;
            let mut words = head.first.split(' ');
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let place = target.split('?').next().unwrap_or_default();
            if let Some(slowness) = self.slowness {
                std::thread::sleep(slowness.delay);
            }
            let answer = match method {
                "GET" | "HEAD" => self.read(place, &head),
                "PUT" => self.write(place, &head, &body),
                _ => Answer::error("501 Not Implemented", "NotImplemented"),
            };
            if method == "GET" {
                self.reads.fetch_add(1, Ordering::Relaxed);
            }
            answer.send(&mut out, method == "HEAD", self.slowness)?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Answer {
    status: &'static str,
    fields: String,
    body: Arc<[u8]>,
    /// The bytes of the body that are sent.
    sent: Range<usize>,
}

impl Answer {
    fn error(status: &'static str, code: &str) -> Self {
        let body = format!("<Error><Code>{code}</Code></Error>");
        Self {
            status,
            fields: String::new(),
            sent: 0..body.len(),
            body: body.into_bytes().into(),
        }
    }

    fn send(&self, out: &mut impl io::Write, is_head: bool, slowness: Option<Slowness>) -> io::Result<()> {
        let body = &self.body[self.sent.clone()];
        let length = if self.status == "304 Not Modified" {
            String::new()
        } else {
            format!("content-length: {}\r\n", body.len())
        };
        let head = format!("HTTP/1.1 {}\r\n{}{length}\r\n", self.status, self.fields);
        let body = if is_head { &[] } else { body };
        let Some(slowness) = slowness else {
            if body.len() <= SMALL_BYTES {
                return out.write_all(&[head.as_bytes(), body].concat());
            }
            out.write_all(head.as_bytes())?;
            return out.write_all(body);
        };
        out.write_all(head.as_bytes())?;
        let began = Instant::now();
        let mut sent_bytes = 0;
        for piece in body.chunks(PIECE_BYTES) {
            sent_bytes += piece.len();
            let due = Duration::from_secs_f64(sent_bytes as f64 / slowness.bytes_per_s.max(1) as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            out.write_all(piece)?;
        }
        Ok(())
    }
}

/// See the module. Its connections end when their clients do.
#[derive(Debug)]
pub(in crate::experiment) struct Origin {
    store: Arc<Store>,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Origin {
    pub(in crate::experiment) fn start() -> io::Result<Self> {
        Self::with(None)
    }

    pub(in crate::experiment) fn slow(slowness: Slowness) -> io::Result<Self> {
        Self::with(Some(slowness))
    }

    fn with(slowness: Option<Slowness>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let store = Store {
            slowness,
            ..Store::default()
        };
        let (store, is_over) = (Arc::new(store), Arc::new(AtomicBool::new(false)));
        let (serving, ended) = (Arc::clone(&store), Arc::clone(&is_over));
        let named = || {
            std::thread::Builder::new()
                .name("origin".into())
                .stack_size(STACK_BYTES)
        };
        let accepting = named().spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                let store = Arc::clone(&serving);
                // A connection without a thread is closed; its client tries again.
                drop(stream.and_then(|stream| named().spawn(move || drop(store.serve(stream)))));
            }
        })?;
        Ok(Self {
            store,
            address,
            is_over,
            accepting: Some(accepting),
        })
    }

    pub(in crate::experiment) fn address(&self) -> SocketAddr {
        self.address
    }

    /// GETs that it answered.
    pub(in crate::experiment) fn reads(&self) -> u64 {
        self.store.reads.load(Ordering::Relaxed)
    }

    /// Puts an object at once.
    pub(in crate::experiment) fn put(&self, place: &str, size_bytes: usize) {
        let stored = self.store.stored(vec![b'.'; size_bytes].into(), String::new());
        let mut objects = self.store.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.insert(place.to_owned(), stored);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // It looks whether it is over when somebody connects.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            drop(accepting.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    fn ask(input: &mut (impl BufRead + io::Write), request: &str, body: &mut Vec<u8>) -> Head {
        input.write_all(request.as_bytes()).unwrap();
        let head = Head::read(input).unwrap().unwrap();
        if request.starts_with("HEAD") {
            body.clear();
        } else {
            head.body(input, body).unwrap();
        }
        head
    }

    /// Both sides of one connection.
    struct Both(BufReader<TcpStream>);

    impl io::Read for Both {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl BufRead for Both {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.0.fill_buf()
        }

        fn consume(&mut self, count: usize) {
            self.0.consume(count);
        }
    }

    impl io::Write for Both {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.get_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.get_mut().flush()
        }
    }

    #[test]
    fn conditions_are_those_of_s3() {
        let origin = Origin::start().unwrap();
        origin.put("/b/k", 5);
        let mut both = Both(BufReader::new(TcpStream::connect(origin.address()).unwrap()));
        let mut body = Vec::new();
        let mut status_of = |request: &str| {
            let head = ask(&mut both, request, &mut body);
            let status = head.first.split(' ').nth(1).unwrap_or_default().to_owned();
            (status, head.field("etag").unwrap_or_default().to_owned(), body.len())
        };
        let (status, etag, length) = status_of("GET /b/k HTTP/1.1\r\n\r\n");
        assert_eq!((status.as_str(), length), ("200", 5));
        assert_eq!(status_of("HEAD /b/k HTTP/1.1\r\n\r\n"), ("200".into(), etag.clone(), 0));
        let known = format!("GET /b/k HTTP/1.1\r\nif-none-match: {etag}\r\n\r\n");
        assert_eq!(status_of(&known), ("304".into(), etag.clone(), 0));
        let put = |condition: &str| format!("PUT /b/k HTTP/1.1\r\n{condition}\r\ncontent-length: 2\r\n\r\nab");
        assert_eq!(status_of(&put("if-match: \"x\"")).0, "412");
        assert_eq!(status_of(&put("if-none-match: *")).0, "412");
        let (status, other, _) = status_of(&put(&format!("if-match: {etag}")));
        assert!(status == "200" && other != etag);
        assert_eq!(status_of(&put(&format!("if-match: {etag}"))).0, "412");
        assert_eq!(status_of(&known), ("200".into(), other, 2));
        assert_eq!(status_of("GET /b/none HTTP/1.1\r\n\r\n").0, "404");
    }

    #[test]
    fn ranges_are_cut_at_the_end() {
        let origin = Origin::start().unwrap();
        origin.put("/b/k", 100_000);
        let mut both = Both(BufReader::new(TcpStream::connect(origin.address()).unwrap()));
        let mut body = Vec::new();
        for (asked, status, said, length) in [
            ("bytes=0-9", "206", Some("bytes 0-9/100000"), 10),
            ("bytes=99990-200000", "206", Some("bytes 99990-99999/100000"), 10),
            ("bytes=1-99999", "206", Some("bytes 1-99999/100000"), 99_999),
            ("bytes=100000-100001", "416", None, 40),
        ] {
            let head = ask(
                &mut both,
                &format!("GET /b/k HTTP/1.1\r\nrange: {asked}\r\n\r\n"),
                &mut body,
            );
            assert_eq!(head.first.split(' ').nth(1), Some(status), "{asked}");
            assert_eq!((head.field("content-range"), body.len()), (said, length), "{asked}");
        }
        assert_eq!(origin.reads(), 4);
    }

    #[test]
    fn a_slow_one_keeps_to_its_bandwidth() {
        let slowness = Slowness {
            delay: Duration::from_millis(20),
            bytes_per_s: 10_000_000,
        };
        let origin = Origin::slow(slowness).unwrap();
        origin.put("/b/k", 1_000_000);
        let mut both = Both(BufReader::new(TcpStream::connect(origin.address()).unwrap()));
        let began = Instant::now();
        let mut body = Vec::new();
        ask(&mut both, "GET /b/k HTTP/1.1\r\n\r\n", &mut body);
        assert!(body.len() == 1_000_000 && began.elapsed() >= Duration::from_millis(120));
    }

    #[test]
    fn fields_of_the_writer_come_back() {
        let origin = Origin::start().unwrap();
        let mut both = Both(BufReader::new(TcpStream::connect(origin.address()).unwrap()));
        let mut body = Vec::new();
        let put = "PUT /b/k HTTP/1.1\r\nX-Amz-Meta-Tidemark-Write: 7\r\nother: 8\r\ncontent-length: 0\r\n\r\n";
        ask(&mut both, put, &mut body);
        let head = ask(&mut both, "HEAD /b/k HTTP/1.1\r\n\r\n", &mut body);
        assert_eq!(
            (head.field("x-amz-meta-tidemark-write"), head.field("other")),
            (Some("7"), None)
        );
    }
}
