//! An object store in memory, as slow as a distant one: the least of S3 that the gateway and cachelets need.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, RANGE};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tidemark_functions::chunk::chunk_hash;

/// Bytes that are sent together.
const PIECE_BYTES: usize = 256 << 10;

type OutBody = UnsyncBoxBody<Bytes, Infallible>;

/// How slow it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slowness {
    /// Before the first byte of an answer.
    pub(super) delay: Duration,
    /// The bandwidth of one connection.
    pub(super) bytes_per_second: u64,
}

/// An object.
#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    etag: String,
    /// The fields that the writer wants to have back.
    meta: HeaderMap,
}

impl Stored {
    fn new(bytes: Bytes, meta: HeaderMap, number: usize) -> Self {
        // Every write gives another tag, also one of the same bytes.
        let etag = format!("\"{:016x}-{number}\"", chunk_hash(&bytes));
        Self { bytes, etag, meta }
    }
}

/// See the module.
pub(super) struct Origin {
    objects: Mutex<HashMap<String, Stored>>,
    writes: AtomicUsize,
    slowness: Slowness,
}

impl Origin {
    /// Starts one on the runtime that this is called in; where it listens.
    pub(super) async fn start(slowness: Slowness) -> std::io::Result<SocketAddr> {
        Ok(Self::serve(slowness).await?.1)
    }

    /// The same; also the store, into which objects can be put.
    pub(super) async fn serve(slowness: Slowness) -> std::io::Result<(Arc<Self>, SocketAddr)> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let origin = Arc::new(Self {
            objects: Mutex::default(),
            writes: AtomicUsize::new(0),
            slowness,
        });
        let served = Arc::clone(&origin);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let origin = Arc::clone(&served);
                let service = service_fn(move |request| Arc::clone(&origin).answer(request));
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok((origin, address))
    }

    /// Puts an object at once.
    pub(super) fn put(&self, place: &str, bytes: Bytes) {
        let stored = Stored::new(bytes, HeaderMap::new(), self.writes.fetch_add(1, Ordering::Relaxed));
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.insert(place.to_owned(), stored);
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<OutBody>, Infallible> {
        let place = request.uri().path().to_owned();
        tokio::time::sleep(self.slowness.delay).await;
        Ok(match *request.method() {
            Method::PUT => self.write(place, request).await,
            Method::GET | Method::HEAD => self.read(&place, &request),
            _ => bare(StatusCode::NOT_IMPLEMENTED),
        })
    }

    async fn write(&self, place: String, request: Request<Incoming>) -> Response<OutBody> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return bare(StatusCode::BAD_REQUEST);
        };
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let known = objects.get(&place).map(|stored| stored.etag.as_str());
        let is_other = text(IF_MATCH).is_some_and(|wanted| Some(wanted) != known);
        if is_other || (text(IF_NONE_MATCH).is_some() && known.is_some()) {
            return bare(StatusCode::PRECONDITION_FAILED);
        }
        let is_meta = |name: &HeaderName| name.as_str().starts_with("x-amz-meta-");
        let meta = parts.headers.iter().filter(|(name, _)| is_meta(name));
        let meta = meta.map(|(name, value)| (name.clone(), value.clone())).collect();
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let stored = Stored::new(body.to_bytes(), meta, number);
        let mut answer = bare(StatusCode::OK);
        set(&mut answer, ETAG, stored.etag.clone());
        objects.insert(place, stored);
        answer
    }

    fn read(&self, place: &str, request: &Request<Incoming>) -> Response<OutBody> {
        let found = self
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(place)
            .cloned();
        let Some(Stored { bytes, etag, meta }) = found else {
            return bare(StatusCode::NOT_FOUND);
        };
        let text = |name| {
            request
                .headers()
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        if text(IF_NONE_MATCH).is_some_and(|known| known == etag) {
            let mut answer = bare(StatusCode::NOT_MODIFIED);
            set(&mut answer, ETAG, etag);
            return answer;
        }
        if text(IF_MATCH).is_some_and(|wanted| wanted != etag) {
            return bare(StatusCode::PRECONDITION_FAILED);
        }
        let range = text(RANGE).and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let range = range.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        let (mut answer, part) = match range {
            Some((first, _)) if first >= bytes.len() => return bare(StatusCode::RANGE_NOT_SATISFIABLE),
            Some((first, last)) => {
                let end = usize::min(last, bytes.len() - 1) + 1;
                let mut answer = bare(StatusCode::PARTIAL_CONTENT);
                set(
                    &mut answer,
                    CONTENT_RANGE,
                    format!("bytes {first}-{}/{}", end - 1, bytes.len()),
                );
                (answer, bytes.slice(first..end))
            }
            None => (bare(StatusCode::OK), bytes),
        };
        answer.headers_mut().extend(meta);
        set(&mut answer, ETAG, etag);
        set(&mut answer, CONTENT_LENGTH, part.len().to_string());
        if *request.method() == Method::GET {
            *answer.body_mut() = self.slowly(part);
        }
        answer
    }

    /// A body that comes at the connection's bandwidth.
    fn slowly(&self, bytes: Bytes) -> OutBody {
        let rest = PIECE_BYTES as f64 / self.slowness.bytes_per_second.max(1) as f64;
        let pieces = futures_util::stream::unfold(bytes, move |mut bytes| async move {
            if bytes.is_empty() {
                return None;
            }
            let piece = bytes.split_to(PIECE_BYTES.min(bytes.len()));
            tokio::time::sleep(Duration::from_secs_f64(rest)).await;
            Some((Ok(Frame::data(piece)), bytes))
        });
        StreamBody::new(pieces).boxed_unsync()
    }
}

fn bare(status: StatusCode) -> Response<OutBody> {
    let mut answer = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

fn set(answer: &mut Response<OutBody>, name: HeaderName, text: String) {
    if let Ok(value) = HeaderValue::try_from(text) {
        answer.headers_mut().insert(name, value);
    }
}
