//! An origin in this process, with the faults that it is told to have.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH, RANGE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::range::Asked;
use crate::sign::payload_hash;

type OutBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// The faults of the next answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// This status instead of an answer.
    pub(super) status: Option<StatusCode>,
    /// Wait for [`Origin::release`] before answering a GET.
    pub(super) is_held: bool,
    /// End a GET's body after so many bytes.
    pub(super) cut_bytes: Option<u64>,
    /// Answer a GET with the bytes, but another ETag.
    pub(super) has_other_etag: bool,
    /// Take no conditions and no ranges.
    pub(super) is_simple: bool,
}

/// Objects, and the requests.
#[derive(Default)]
pub(super) struct Origin {
    objects: Mutex<BTreeMap<String, Bytes>>,
    faults: Mutex<Faults>,
    released: Notify,
    pub(super) gets: AtomicU64,
    pub(super) heads: AtomicU64,
    pub(super) puts: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    /// Headers of the last request.
    pub(super) last: Mutex<hyper::HeaderMap>,
    listening: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Origin {
    /// Starts one; where it listens.
    pub(super) fn start(runtime: &tokio::runtime::Runtime) -> (Arc<Self>, SocketAddr) {
        let origin = Arc::new(Self::default());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let this = Arc::clone(&origin);
        let listening = runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let this = Arc::clone(&this);
                let service = service_fn(move |request| Arc::clone(&this).answer(request));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        *origin.listening.lock() = Some(listening);
        (origin, address)
    }

    pub(super) fn put(&self, place: &str, bytes: impl Into<Bytes>) {
        self.objects.lock().insert(place.into(), bytes.into());
    }

    pub(super) fn get(&self, place: &str) -> Option<Bytes> {
        self.objects.lock().get(place).cloned()
    }

    pub(super) fn remove(&self, place: &str) {
        self.objects.lock().remove(place);
    }

    /// Takes no more connections; those that there are stay.
    pub(super) fn stop(&self, runtime: &tokio::runtime::Runtime) {
        let listening = self.listening.lock().take().unwrap();
        listening.abort();
        assert!(runtime.block_on(listening).unwrap_err().is_cancelled());
    }

    pub(super) fn set(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    pub(super) fn release(&self) {
        self.faults.lock().is_held = false;
        self.released.notify_waiters();
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<OutBody>, Infallible> {
        let faults = self.faults.lock().clone();
        *self.last.lock() = request.headers().clone();
        let place = crate::sign::decode(request.uri().path()).unwrap()[1..].to_owned();
        let answered = match *request.method() {
            _ if faults.status.is_some() => bare(faults.status.unwrap()),
            Method::PUT => self.write(&place, request).await,
            Method::DELETE => {
                self.remove(&place);
                bare(StatusCode::NO_CONTENT)
            }
            _ => self.read(&place, &request, &faults).await,
        };
        Ok(answered)
    }

    async fn write(&self, place: &str, request: Request<Incoming>) -> Response<OutBody> {
        let is_chunked = request.headers().contains_key("x-amz-decoded-content-length");
        let Ok(body) = request.into_body().collect().await else {
            return bare(StatusCode::BAD_REQUEST);
        };
        self.puts.fetch_add(1, Ordering::Relaxed);
        let bytes = if is_chunked {
            unframe(&body.to_bytes())
        } else {
            body.to_bytes()
        };
        let mut answer = bare(StatusCode::OK);
        answer.headers_mut().insert(ETAG, etag(&bytes));
        self.put(place, bytes);
        answer
    }

    async fn read(&self, place: &str, request: &Request<Incoming>, faults: &Faults) -> Response<OutBody> {
        let is_head = request.method() == Method::HEAD;
        let counter = if is_head { &self.heads } else { &self.gets };
        counter.fetch_add(1, Ordering::Relaxed);
        if faults.is_held && !is_head {
            let released = self.released.notified();
            if self.faults.lock().is_held {
                released.await;
            }
        }
        let Some(object) = self.get(place) else {
            return bare(StatusCode::NOT_FOUND);
        };
        let header = |name| request.headers().get(name).filter(|_| !faults.is_simple);
        let current = etag(&object);
        if header(IF_MATCH).is_some_and(|etag| *etag != current) {
            return bare(StatusCode::PRECONDITION_FAILED);
        }
        if header(IF_NONE_MATCH) == Some(&current) {
            return bare(StatusCode::NOT_MODIFIED);
        }
        let asked = Asked::parse(header(RANGE).and_then(|range| range.to_str().ok()));
        let Ok(range) = asked.of(object.len() as u64) else {
            return bare(StatusCode::RANGE_NOT_SATISFIABLE);
        };
        let status = if range.is_some() {
            StatusCode::PARTIAL_CONTENT
        } else {
            StatusCode::OK
        };
        let bytes = range.clone().unwrap_or(0..object.len() as u64);
        let content = object.slice(bytes.start as usize..bytes.end as usize);
        self.sent_bytes.fetch_add(content.len() as u64, Ordering::Relaxed);
        let mut answer = Response::new(body(
            if is_head { Bytes::new() } else { content.clone() },
            faults.cut_bytes,
        ));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(content.len()));
        let other = HeaderValue::from_static("\"other\"");
        headers.insert(
            ETAG,
            if faults.has_other_etag && !is_head {
                other
            } else {
                current
            },
        );
        headers.insert("x-amz-meta-colour", HeaderValue::from_static("blue"));
        if range.is_some() {
            let text = format!("bytes {}-{}/{}", bytes.start, bytes.end - 1, object.len());
            headers.insert(CONTENT_RANGE, HeaderValue::try_from(text).unwrap());
        }
        answer
    }
}

fn bare(status: StatusCode) -> Response<OutBody> {
    let mut response = Response::new(body(Bytes::new(), None));
    *response.status_mut() = status;
    response
}

/// In pieces of 64 KiB, that end early where that is asked for.
fn body(bytes: Bytes, cut_bytes: Option<u64>) -> OutBody {
    if bytes.len() <= 64 << 10 && cut_bytes.is_none() {
        return Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    }
    let cut = cut_bytes.map_or(bytes.len(), |cut| (cut as usize).min(bytes.len()));
    let is_cut = cut < bytes.len();
    let state = (bytes.slice(..cut), is_cut);
    let pieces = stream::unfold(state, |(mut rest, is_cut)| async move {
        if rest.is_empty() {
            let error = std::io::Error::other("cut");
            return is_cut.then(|| (Err(error), (rest, false)));
        }
        tokio::time::sleep(Duration::from_micros(1)).await;
        let piece = rest.split_to(rest.len().min(64 << 10));
        Some((Ok(Frame::data(piece)), (rest, is_cut)))
    });
    StreamBody::new(pieces).boxed_unsync()
}

pub(super) fn etag(bytes: &Bytes) -> HeaderValue {
    HeaderValue::try_from(format!("\"{}\"", &payload_hash(bytes)[..32])).unwrap()
}

/// The bytes of an `aws-chunked` body.
fn unframe(framed: &Bytes) -> Bytes {
    let mut bytes = Vec::new();
    let mut rest = &framed[..];
    loop {
        let line = rest.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if length == 0 {
            return bytes.into();
        }
        bytes.extend_from_slice(&rest[line + 2..][..length]);
        rest = &rest[line + 2 + length + 2..];
    }
}
