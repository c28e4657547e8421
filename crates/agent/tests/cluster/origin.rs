//! An object store in the test's own process: conditional requests as S3 has them, and faults that the test chooses.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The fate of the next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 503 with S3's code: not done.
    SlowDown,
    /// 500, although the write was done.
    DoneButFailed,
    /// No answer; a write is done after a while.
    Silent(Duration),
    /// 403: not done, and never will be.
    Forbidden,
}

#[derive(Clone, Debug)]
struct Stored {
    body: Bytes,
    etag: String,
    headers: HeaderMap,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Stored>,
    faults: HashMap<Method, Vec<Fault>>,
    requests: HashMap<Method, u64>,
    /// How long it takes to answer.
    delay: Duration,
}

/// The store.
pub(crate) struct Origin {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    _runtime: Runtime,
}

fn error(status: u16, code: &str) -> Response<Full<Bytes>> {
    let body = format!("<Error><Code>{code}</Code><Message>so</Message></Error>");
    Response::builder().status(status).body(Full::from(body)).unwrap()
}

impl Origin {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let state = Arc::clone(&shared);
                let answer = service_fn(move |request| {
                    let state = Arc::clone(&state);
                    async move { Ok::<_, Infallible>(answer(state, request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self {
            state,
            address,
            _runtime: runtime,
        }
    }

    /// The option's text for the bucket `b`.
    pub(crate) fn option(&self) -> String {
        format!("s3://b?endpoint=http://{}", self.address)
    }

    /// The next requests of a method fail so.
    pub(crate) fn fail(&self, method: Method, faults: &[Fault]) {
        self.state
            .lock()
            .unwrap()
            .faults
            .insert(method, faults.iter().rev().copied().collect());
    }

    /// Every answer takes so long from now on.
    pub(crate) fn slow_down(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    /// Requests of a method so far.
    pub(crate) fn requests(&self, method: &Method) -> u64 {
        self.state
            .lock()
            .unwrap()
            .requests
            .get(method)
            .copied()
            .unwrap_or_default()
    }

    /// Somebody else writes.
    pub(crate) fn put(&self, key: &str, body: &str) {
        let mut state = self.state.lock().unwrap();
        state.write(key, Bytes::from(body.to_owned()), HeaderMap::new());
    }

    /// The value that is there.
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        let state = self.state.lock().unwrap();
        state
            .objects
            .get(key)
            .map(|stored| String::from_utf8_lossy(&stored.body).into_owned())
    }
}

impl State {
    fn write(&mut self, key: &str, body: Bytes, headers: HeaderMap) -> String {
        // As S3: a hash of the content.
        let hash = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let etag = format!("\"{hash:x}-{}\"", body.len());
        let kept = headers.into_iter().filter_map(|(name, value)| {
            let name = name?;
            let is_kept = name.as_str().starts_with("x-amz-meta-") || name == "content-type";
            is_kept.then_some((name, value))
        });
        let stored = Stored {
            body,
            etag: etag.clone(),
            headers: kept.collect(),
        };
        self.objects.insert(key.to_owned(), stored);
        etag
    }

    fn apply(&mut self, method: &Method, key: &str, headers: HeaderMap, body: Bytes) -> Response<Full<Bytes>> {
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let there = self.objects.get(key).cloned();
        let etag = there.as_ref().map(|stored| stored.etag.clone());
        match *method {
            Method::GET | Method::HEAD => {
                let Some(stored) = there else {
                    return error(404, "NoSuchKey");
                };
                let is_same = text("if-none-match").is_some_and(|known| known == stored.etag);
                let is_other = text("if-match").is_some_and(|known| known != stored.etag);
                if is_other {
                    return error(412, "PreconditionFailed");
                }
                let status = if is_same {
                    StatusCode::NOT_MODIFIED
                } else {
                    StatusCode::OK
                };
                let mut response = Response::builder().status(status).header("etag", &stored.etag);
                response.headers_mut().unwrap().extend(stored.headers);
                if *method == Method::HEAD {
                    response = response.header("content-length", stored.body.len());
                }
                let body = if is_same || *method == Method::HEAD {
                    Bytes::new()
                } else {
                    stored.body
                };
                response.body(Full::new(body)).unwrap()
            }
            Method::PUT | Method::DELETE => {
                let is_wrong = text("if-match").is_some_and(|known| Some(known) != etag)
                    || (text("if-none-match").is_some() && etag.is_some());
                if is_wrong {
                    return error(
                        if etag.is_none() { 404 } else { 412 },
                        if etag.is_none() {
                            "NoSuchKey"
                        } else {
                            "PreconditionFailed"
                        },
                    );
                }
                if *method == Method::DELETE {
                    self.objects.remove(key);
                    return Response::builder().status(204).body(Full::default()).unwrap();
                }
                let etag = self.write(key, body, headers);
                Response::builder().header("etag", etag).body(Full::default()).unwrap()
            }
            _ => error(501, "NotImplemented"),
        }
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let key = parts.uri.path().trim_start_matches("/b/").to_owned();
    let (fault, delay) = {
        let mut state = state.lock().unwrap();
        *state.requests.entry(parts.method.clone()).or_default() += 1;
        (state.faults.get_mut(&parts.method).and_then(Vec::pop), state.delay)
    };
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let apply = |state: &Mutex<State>| {
        state
            .lock()
            .unwrap()
            .apply(&parts.method, &key, parts.headers.clone(), body.clone())
    };
    match fault {
        None => apply(&state),
        Some(Fault::SlowDown) => error(503, "SlowDown"),
        Some(Fault::Forbidden) => error(403, "AccessDenied"),
        Some(Fault::DoneButFailed) => {
            apply(&state);
            error(500, "InternalError")
        }
        Some(Fault::Silent(after)) => {
            tokio::time::sleep(after).await;
            apply(&state);
            std::future::pending().await
        }
    }
}
