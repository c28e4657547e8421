//! The origin: requests to it, signed, over pooled connections, each wait with an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use tidemark_types::{UnixMs, utc};

use crate::config::Origin;
use crate::early::EarlyAnswers;
use crate::reply::{ErrorCode, Reply};
use crate::sign::{Credentials, Scope, Unsigned, authorization, encode};

/// A body on its way to the origin.
pub(crate) type OutBody = UnsyncBoxBody<Bytes, BoxError>;
/// Any error.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection that is not made by then is not made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long the origin may take until it begins to answer a read, and between two pieces of a body.
pub(crate) const READ_PATIENCE: Duration = Duration::from_secs(30);
/// How long a write may move in neither direction: putting the parts of a large object together takes minutes.
const WRITE_PATIENCE: Duration = Duration::from_secs(300);
/// How often that is looked at.
const WRITE_LOOK: Duration = Duration::from_secs(5);
/// Connections kept for the next request.
const IDLE_CONNECTIONS_MAX: usize = 64;
/// Before most servers close them.
const IDLE_PATIENCE: Duration = Duration::from_secs(20);
/// The limit of an answer that is an error.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The origin did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginError {
    /// Not in time.
    #[error("the origin did not answer in time")]
    Slow,
    /// The connection could not be made, or broke.
    #[error("the origin can not be reached")]
    Unreachable,
    /// The request cannot be sent: a key that is no URL.
    #[error("the request can not be passed on")]
    Impossible,
}

impl OriginError {
    /// The reply to a client.
    pub(crate) fn reply(self) -> Reply {
        let code = match self {
            Self::Slow | Self::Unreachable => ErrorCode::ServiceUnavailable,
            Self::Impossible => ErrorCode::InvalidArgument,
        };
        Reply::error(code, &self.to_string())
    }
}

/// A request, before it is signed.
pub(crate) struct OriginRequest {
    pub(crate) method: Method,
    /// Decoded, with the bucket.
    pub(crate) path: String,
    /// Decoded.
    pub(crate) query: Vec<(String, String)>,
    /// All but those of the signature.
    pub(crate) headers: HeaderMap,
    /// The hash of the body, or its placeholder.
    pub(crate) payload: String,
}

impl OriginRequest {
    /// A read of an object.
    pub(crate) fn read(method: Method, path: &str, headers: HeaderMap) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            headers,
            payload: crate::sign::payload_hash(b""),
        }
    }
}

/// When something last moved.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    started: Instant,
    at_ms: Arc<AtomicU64>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            at_ms: Arc::default(),
        }
    }
}

impl Progress {
    /// Now.
    pub(crate) fn note(&self) {
        self.at_ms
            .store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn is_stalled(&self) -> bool {
        let moved = Duration::from_millis(self.at_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(moved) > WRITE_PATIENCE
    }

    /// Ends when nothing has moved for too long.
    async fn stalled(&self) {
        while !self.is_stalled() {
            tokio::time::sleep(WRITE_LOOK).await;
        }
    }
}

/// Sends requests to origins.
#[derive(Clone, Debug)]
pub(crate) struct OriginClient {
    client: Client<HttpsConnector<EarlyAnswers>, OutBody>,
    credentials: Option<Credentials>,
    read_patience: Duration,
}

impl OriginClient {
    /// Without connections yet.
    ///
    /// # Errors
    /// The certificates that this system trusts cannot be read.
    pub(crate) fn new(credentials: Option<Credentials>) -> std::io::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_PATIENCE));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_native_roots()?
            .https_or_http()
            .enable_http1()
            .wrap_connector(EarlyAnswers(connector));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_PATIENCE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self {
            client,
            credentials,
            read_patience: READ_PATIENCE,
        })
    }

    /// The same, over the same connections, for somebody else.
    pub(crate) fn signing(&self, credentials: Credentials) -> Self {
        Self {
            credentials: Some(credentials),
            ..self.clone()
        }
    }

    /// Sends a read; returns when the origin begins to answer.
    ///
    /// # Errors
    /// It does not.
    pub(crate) async fn read(
        &self,
        origin: &Origin,
        request: OriginRequest,
    ) -> Result<Response<Incoming>, OriginError> {
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let request = self.prepare(origin, request, body)?;
        match tokio::time::timeout(self.read_patience, self.client.request(request)).await {
            Err(_) => Err(OriginError::Slow),
            Ok(answered) => answered.map_err(|error| unreachable_origin(origin, &error)),
        }
    }

    /// Sends something with a body, which notes its `progress`.
    ///
    /// # Errors
    /// The origin does not answer; the body failed.
    pub(crate) async fn write(
        &self,
        origin: &Origin,
        request: OriginRequest,
        body: OutBody,
        progress: &Progress,
    ) -> Result<Response<Incoming>, OriginError> {
        let request = self.prepare(origin, request, body)?;
        tokio::select! {
            answered = self.client.request(request) => answered.map_err(|error| unreachable_origin(origin, &error)),
            () = progress.stalled() => Err(OriginError::Slow),
        }
    }

    fn prepare(&self, origin: &Origin, request: OriginRequest, body: OutBody) -> Result<Request<OutBody>, OriginError> {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
        let request = signed(origin, request, self.credentials.as_ref(), now);
        request
            .map(|request| request.map(|()| body))
            .ok_or(OriginError::Impossible)
    }
}

fn unreachable_origin(origin: &Origin, error: &hyper_util::client::legacy::Error) -> OriginError {
    let cause = std::error::Error::source(error)
        .map(ToString::to_string)
        .unwrap_or_default();
    tracing::warn!(
        origin = origin.authority,
        "the origin can not be reached: {error}: {cause}"
    );
    OriginError::Unreachable
}

/// The request as it is sent; `None` if there is no such.
fn signed(origin: &Origin, request: OriginRequest, by: Option<&Credentials>, now: u64) -> Option<Request<()>> {
    let OriginRequest {
        method,
        path,
        query,
        mut headers,
        payload,
    } = request;
    let at = utc::basic(UnixMs(now * 1000));
    headers.insert(HOST, HeaderValue::try_from(&origin.authority).ok()?);
    if let Some(credentials) = by {
        headers.insert("x-amz-date", HeaderValue::try_from(&at).ok()?);
        headers.insert("x-amz-content-sha256", HeaderValue::try_from(&payload).ok()?);
        if let Some(token) = &credentials.session_token {
            headers.insert("x-amz-security-token", HeaderValue::try_from(token).ok()?);
        }
        let scope = Scope {
            region: &origin.region,
            service: "s3",
            at: &at,
        };
        let unsigned = Unsigned {
            method: method.as_str(),
            path: &path,
            query: &query,
            headers: &headers,
            payload: &payload,
        };
        let authorization = authorization(credentials, scope, &unsigned);
        headers.insert(AUTHORIZATION, HeaderValue::try_from(authorization).ok()?);
    }
    let pair = |(name, value): &(String, String)| format!("{}={}", encode(name, true), encode(value, true));
    let query = query.iter().map(pair).collect::<Vec<_>>().join("&");
    let mark = if query.is_empty() { "" } else { "?" };
    let path = encode(&path, false);
    let uri: Uri = format!("{}://{}{path}{mark}{query}", origin.scheme, origin.authority)
        .parse()
        .ok()?;
    let mut request = Request::builder().method(method).uri(uri).body(()).ok()?;
    *request.headers_mut() = headers;
    Some(request)
}

/// The next piece of a body; `None` at its end.
///
/// # Errors
/// It takes too long, or the connection breaks.
pub(crate) async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, OriginError> {
    next_piece_within(READ_PATIENCE, body).await
}

async fn next_piece_within(patience: Duration, body: &mut Incoming) -> Result<Option<Bytes>, OriginError> {
    loop {
        match tokio::time::timeout(patience, body.frame()).await {
            Err(_) => return Err(OriginError::Slow),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(OriginError::Unreachable),
            Ok(Some(Ok(frame))) => {
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

/// An answer that is no object, whole.
pub(crate) async fn short_reply(response: Response<Incoming>) -> Reply {
    let (parts, body) = response.into_parts();
    let body = tokio::time::timeout(READ_PATIENCE, Limited::new(body, ERROR_BYTES_MAX).collect()).await;
    let body = body
        .ok()
        .and_then(Result::ok)
        .map_or_else(Bytes::new, |body| body.to_bytes());
    if let Some(code) = fault_of_ours(&body) {
        tracing::error!("the origin does not take the gateway's signature: {code}");
        let message = "the gateway's own credentials for the origin are not taken: its operator can see why in its log";
        return Reply::error(ErrorCode::InternalError, message);
    }
    Reply {
        status: parts.status,
        headers: Box::new(end_to_end(&parts.headers)),
        body,
    }
}

/// Errors about this gateway's own signature: their details name its credentials, and a client cannot mend them.
const FAULTS_OF_OURS: [&str; 8] = [
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "AWSAccessKeyId",
    "StringToSign",
];

/// The first of them that an error names.
fn fault_of_ours(body: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(body);
    let names = |name: &&&str| text.contains(&format!(">{name}<")) || text.contains(&format!("<{name}>"));
    FAULTS_OF_OURS.iter().find(names).copied()
}

/// Headers that are of one connection only (RFC 9110, 7.6.1), or that the next sender writes anew.
const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The headers that are passed on: others than visible ASCII are no header of S3's.
pub(crate) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let is_passed = |name: &str, value: &HeaderValue| !HOP_BY_HOP.contains(&name) && value.to_str().is_ok();
    let passed = headers.iter().filter(|(name, value)| is_passed(name.as_str(), value));
    passed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_addressed_and_signed() {
        let origin: Origin = "s3://b?endpoint=http://127.0.0.1:9000".parse().unwrap();
        let credentials = Credentials {
            access_key: "id".into(),
            secret_key: "secret".into(),
            session_token: Some("token".into()),
        };
        let request = || OriginRequest {
            query: vec![("uploads".into(), String::new()), ("prefix".into(), "a/b".into())],
            ..OriginRequest::read(Method::GET, "/b/a key", HeaderMap::new())
        };
        let sent = signed(&origin, request(), Some(&credentials), 0).unwrap();
        assert_eq!(
            sent.uri().to_string(),
            "http://127.0.0.1:9000/b/a%20key?uploads=&prefix=a%2Fb"
        );
        for header in [
            "authorization",
            "host",
            "x-amz-date",
            "x-amz-content-sha256",
            "x-amz-security-token",
        ] {
            assert!(sent.headers().contains_key(header), "{header}");
        }
        let anonymous = signed(&origin, request(), None, 0).unwrap();
        assert!(!anonymous.headers().contains_key("authorization"));
    }

    #[tokio::test]
    async fn an_origin_that_is_slow_is_not_waited_for() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap();
        let origin: Origin = format!("s3://b?endpoint=http://{endpoint}").parse().unwrap();
        let ask = || OriginRequest::read(Method::GET, "/b/k", HeaderMap::new());
        let mut client = OriginClient::new(None).unwrap();
        // It takes the request, and says nothing.
        client.read_patience = Duration::from_millis(100);
        let asking = tokio::spawn({
            let (client, origin) = (client.clone(), origin.clone());
            async move { client.read(&origin, ask()).await.map(drop) }
        });
        let (_silent, _) = listener.accept().await.unwrap();
        assert_eq!(asking.await.unwrap(), Err(OriginError::Slow));
        let reply = OriginError::Slow.reply();
        assert_eq!(reply.status, hyper::StatusCode::SERVICE_UNAVAILABLE);
        // It stops in the midst of its answer.
        client.read_patience = READ_PATIENCE;
        let asking = tokio::spawn(async move { client.read(&origin, ask()).await });
        let (mut half, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(half.read(&mut request).await.unwrap() > 0);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
        half.write_all(answer).await.unwrap();
        let mut body = asking.await.unwrap().unwrap().into_body();
        assert_eq!(next_piece(&mut body).await, Ok(Some(Bytes::from_static(b"hello"))));
        let patience = Duration::from_millis(100);
        assert_eq!(next_piece_within(patience, &mut body).await, Err(OriginError::Slow));
    }

    #[test]
    fn headers_of_a_connection_stay_there() {
        let headers = [
            ("connection", "close"),
            ("etag", "\"a\""),
            ("content-length", "1"),
            ("x-amz-meta-a", "b"),
        ];
        let header = |(name, value)| {
            (
                hyper::header::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        let passed = end_to_end(&headers.into_iter().map(header).collect());
        let mut names: Vec<&str> = passed.keys().map(hyper::header::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["etag", "x-amz-meta-a"]);
    }
}
