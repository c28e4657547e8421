//! Requests that the origin answers: writes, lists and everything else that is not a read of an object.
//!
//! Invariant: before a write is sent and after it is answered, nothing is known of the objects that it may change. So a
//! read that begins after the answer asks the origin, and finds the write.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderValue, TRANSFER_ENCODING};
use hyper::{HeaderMap, Method, Response};
use s3s::{Body, S3Response, TrailingHeaders};

use crate::coded::ParitySlot;
use crate::config::Origin;
use crate::fill::Job;
use crate::large::LargePlace;
use crate::memory::TenantMemory;
use crate::object::{ContentId, Object};
use crate::origin::{OriginClient, OriginRequest, OutBody, Progress, end_to_end, short_reply};
use crate::reply::{ErrorCode, Reply};
use crate::shared::Shared;
use crate::sign::{UNSIGNED_PAYLOAD, UNSIGNED_TRAILER, payload_hash};
use crate::upload::{Promise, Tee, Upload, Verdict, read_to_end};
use crate::versions::Turn;

/// Objects up to this are cached as they are written; longer ones when they are read. One that is never read would push
/// out as many bytes that are.
const WRITE_THROUGH_BYTES_MAX: u64 = 16 << 20;
/// The body of a request that is looked into before it is passed on: as S3, a thousand keys.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 2 << 20;

/// A request that is passed on.
pub(crate) struct Forward {
    /// The state that all requests share.
    pub(crate) shared: Arc<Shared>,
    /// Signs and sends it.
    pub(crate) client: OriginClient,
    /// The bucket's; the gateway's to which it is passed on.
    pub(crate) origin: Origin,
    /// The memory of the requesting tenant.
    pub(crate) memory: Arc<dyn TenantMemory>,
    pub(crate) method: Method,
    /// Decoded, with the bucket.
    pub(crate) path: String,
    /// Decoded.
    pub(crate) query: Vec<(String, String)>,
    /// The client's.
    pub(crate) headers: HeaderMap,
    /// The parity that comes with its body.
    pub(crate) parity: Option<Arc<ParitySlot>>,
}

impl Forward {
    /// Passes a read on.
    pub(crate) async fn read(self) -> S3Response<Body> {
        let request = self.request(payload_hash(b""));
        match self.client.read(&self.origin, request).await {
            Ok(answer) => passed_on(answer, &self.memory, None).await,
            Err(error) => error.reply().into_response(),
        }
    }

    /// Passes on a request whose body was looked into, and that changes these objects (`bucket/key`).
    pub(crate) async fn document(self, body: Bytes, places: Vec<String>) -> S3Response<Body> {
        self.forget(&places);
        let mut request = self.request(payload_hash(&body));
        request.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let answer = self
            .client
            .write(&self.origin, request, body, &Progress::default())
            .await;
        self.forget(&places);
        match answer {
            Ok(answer) => {
                let shared = Arc::clone(&self.shared);
                // Putting parts together goes on while the answer comes.
                let forget = move || places.iter().for_each(|place| shared.versions.forget(place));
                passed_on(answer, &self.memory, Some(Box::new(forget))).await
            }
            Err(error) => error.reply().into_response(),
        }
    }

    /// Passes on a request with a body that is streamed, and that changes the object `bucket/key`.
    pub(crate) async fn stream(self, place: String, body: Body, trailers: Option<TrailingHeaders>) -> S3Response<Body> {
        let Some(bytes) = length(&self.headers) else {
            return Reply::error(ErrorCode::InvalidArgument, "a Content-Length is needed").into_response();
        };
        let promise = match Promise::read(&self.headers, bytes) {
            Ok(promise) => promise,
            Err(reply) => return reply.into_response(),
        };
        let is_object = self.method == Method::PUT && self.query.is_empty();
        let large = self.shared.large.place_of(self.memory.as_ref(), bytes).cloned();
        let is_short = bytes > 0 && bytes <= WRITE_THROUGH_BYTES_MAX;
        let is_left = self.shared.large.is_left_at_origin(self.memory.as_ref(), bytes);
        let is_kept = is_object && !is_left && (is_short || large.is_some());
        let content = new_content().filter(|_| is_kept);
        let in_large = large.clone().map(|place| (place, bytes));
        let tee = content
            .map(|content| Tee::new(Arc::clone(&self.memory), in_large, content).with_parity(self.parity.clone()));
        let request = self.upload_request(&promise);
        let upload = Upload::new(body, promise, trailers, tee).counted_by(Arc::clone(&self.memory));
        let (verdict, progress) = (upload.verdict(), upload.progress());
        let body: OutBody = if bytes == 0 && request.payload != UNSIGNED_TRAILER {
            if let Err(reply) = read_to_end(upload).await {
                return reply.into_response();
            }
            Empty::new().map_err(|never| match never {}).boxed_unsync()
        } else {
            upload.boxed_unsync()
        };
        self.shared.stats.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shared.versions.forget(&place);
        let answer = self.client.write(&self.origin, request, body, &progress).await;
        self.shared.versions.forget(&place);
        match answer {
            Ok(answer) => {
                match content {
                    Some(content) if answer.status().is_success() => {
                        self.look_up(&place, &answer, (content, large), bytes);
                    }
                    content => let_go(large.as_ref(), content),
                }
                passed_on(answer, &self.memory, None).await
            }
            Err(error) => {
                let_go(large.as_ref(), content);
                said(&verdict).unwrap_or_else(|| error.reply()).into_response()
            }
        }
    }

    fn forget(&self, places: &[String]) {
        places.iter().for_each(|place| self.shared.versions.forget(place));
    }

    fn request(&self, payload: String) -> OriginRequest {
        OriginRequest {
            method: self.method.clone(),
            path: self.path.clone(),
            query: self.query.clone(),
            headers: crate::guard::passed(&self.headers),
            payload,
        }
    }

    fn upload_request(&self, promise: &Promise) -> OriginRequest {
        let mut request = self.request(UNSIGNED_PAYLOAD.into());
        request
            .headers
            .insert(CONTENT_LENGTH, HeaderValue::from(promise.sent_bytes()));
        let encoding = self.headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
        let encodings = encoding.unwrap_or_default().split(',').map(str::trim);
        // How it was sent here says nothing of how it is sent on.
        let mut kept: Vec<&str> = encodings
            .filter(|one| !one.is_empty() && !one.eq_ignore_ascii_case("aws-chunked"))
            .collect();
        request.headers.remove(CONTENT_ENCODING);
        if let Some(trailer) = promise.trailer() {
            request.payload = UNSIGNED_TRAILER.into();
            kept.insert(0, "aws-chunked");
            request
                .headers
                .insert("x-amz-trailer", HeaderValue::from_static(trailer));
            let decoded = HeaderValue::from(promise.bytes);
            request.headers.insert("x-amz-decoded-content-length", decoded);
        }
        if let Ok(value) = HeaderValue::try_from(kept.join(","))
            && !kept.is_empty()
        {
            request.headers.insert(CONTENT_ENCODING, value);
        }
        request
    }

    /// Asks which version was written, so that its blocks that were cached on the way are found.
    fn look_up(
        &self,
        place: &str,
        answer: &Response<Incoming>,
        (content, large): (ContentId, Option<Arc<dyn LargePlace>>),
        bytes: u64,
    ) {
        let Some(etag) = answer
            .headers()
            .get(ETAG)
            .and_then(|etag| etag.to_str().ok())
            .map(str::to_owned)
        else {
            return;
        };
        let Turn::Ask(question) = self.shared.versions.turn(place) else {
            return;
        };
        let job = Job {
            client: self.client.clone(),
            origin: self.origin.clone(),
            place: place.into(),
            memory: Arc::clone(&self.memory),
        };
        tokio::spawn(async move {
            let since = Instant::now();
            let request = OriginRequest::read(Method::HEAD, &format!("/{}", job.place), HeaderMap::new());
            let Ok(answer) = job.client.read(&job.origin, request).await else {
                return;
            };
            let object = answer
                .status()
                .is_success()
                .then(|| Object::of_reply(&job.place, answer.headers()));
            // Another one may have been written meanwhile; unanswered, the next read asks again.
            if let Some(mut object) = object.flatten() {
                if object.etag == etag && object.size_bytes == bytes {
                    if let Some(place) = large {
                        place.name(object.content, content);
                    }
                    object.content = content;
                }
                question.answer(Ok(Arc::new(object)), since);
            }
        });
    }
}

/// The length of a request's body.
fn length(headers: &HeaderMap) -> Option<u64> {
    match headers.get(CONTENT_LENGTH) {
        Some(length) => length.to_str().ok()?.parse().ok(),
        // A request without either has none (RFC 9112, 6.3).
        None => (!headers.contains_key(TRANSFER_ENCODING)).then_some(0),
    }
}

/// A name that nobody has used.
fn new_content() -> Option<ContentId> {
    let mut content = ContentId::default();
    getrandom::fill(&mut content).ok()?;
    Some(content)
}

/// Bytes that were kept of a refused write are found by nobody: they end. In memory they are evicted.
fn let_go(large: Option<&Arc<dyn LargePlace>>, content: Option<ContentId>) {
    if let (Some(place), Some(content)) = (large, content) {
        place.forget(&content);
    }
}

fn said(verdict: &Verdict) -> Option<Reply> {
    verdict.lock().take()
}

/// The origin's answer as it comes; an error whole. `seen` is called before each piece of it is passed on.
async fn passed_on(
    answer: Response<Incoming>,
    memory: &Arc<dyn TenantMemory>,
    seen: Option<Box<dyn Fn() + Send + Sync>>,
) -> S3Response<Body> {
    if answer.status().is_client_error() || answer.status().is_server_error() {
        let reply = short_reply(answer).await;
        memory.count(0, reply.body.len() as u64);
        return reply.into_response();
    }
    let (parts, body) = answer.into_parts();
    let mut headers = end_to_end(&parts.headers);
    if let Some(length) = parts.headers.get(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, length.clone());
    }
    let memory = Arc::clone(memory);
    let body = body.map_frame(move |frame| {
        if let Some(seen) = &seen {
            seen();
        }
        if let Some(piece) = frame.data_ref() {
            memory.count(0, piece.len() as u64);
        }
        frame
    });
    let mut response = S3Response::with_headers(Body::http_body_unsync(body), headers);
    response.status = Some(parts.status);
    response
}
