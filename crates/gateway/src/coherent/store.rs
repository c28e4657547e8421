//! The origin as cachelets use it: conditional reads and writes of whole objects, each answered by its known outcome.
//!
//! Invariant: `Mismatch`, `Throttled` and `Denied` are said only of a write that was not done and will not be.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED};
use hyper::{HeaderMap, Method, Response, StatusCode};

use super::content::{Content, Kept, WRITE_HEADER};
use super::{Stored, WHOLE_BYTES_MAX};
use crate::config::{Origin, Origins};
use crate::object::Object;
use crate::origin::{BoxError, OriginClient, OriginError, OriginRequest, OutBody, Progress, next_piece};
use crate::sign::{Credentials, UNSIGNED_PAYLOAD, payload_hash};

/// A call that has no answer by then is given up. Writes of it may be on their way for as long again: the grace time of
/// suspicions is longer.
pub const CALL_PATIENCE: Duration = Duration::from_secs(8);
/// The limit of an error's document, which is read for its code.
const ERROR_BYTES_MAX: usize = 16 << 10;
/// A longer body is sent in pieces, and before each one is asked whether it may still go.
const PIECE_BYTES: usize = 64 << 10;

/// Says whether a write may still be sent.
pub type Fence = Arc<dyn Fn() -> bool + Send + Sync>;

/// The origin's buckets.
#[derive(Clone)]
pub struct ObjectStore {
    client: OriginClient,
    origins: Origins,
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore").finish_non_exhaustive()
    }
}

impl ObjectStore {
    /// A store with these buckets.
    ///
    /// # Errors
    /// The certificates that this system trusts cannot be read.
    pub fn new(origins: Origins, credentials: Option<Credentials>) -> std::io::Result<Self> {
        let client = OriginClient::new(credentials)?;
        Ok(Self { client, origins })
    }

    /// The object `bucket/key`, unless it has this entity tag.
    pub async fn get(&self, place: &str, unless: Option<&str>) -> Stored {
        let mut headers = HeaderMap::new();
        condition(&mut headers, IF_NONE_MATCH, unless);
        within(self.get_now(place, headers)).await
    }

    async fn get_now(&self, place: &str, headers: HeaderMap) -> Stored {
        let Some(origin) = self.origin(place) else {
            return Stored::Denied(404);
        };
        let request = OriginRequest::read(Method::GET, &format!("/{place}"), headers);
        let answer = match self.client.read(origin, request).await {
            Ok(answer) => answer,
            Err(error) => return failed_read(error),
        };
        match answer.status() {
            StatusCode::OK => read_object(answer).await,
            StatusCode::NOT_MODIFIED => Stored::NotModified,
            status => refused_read(status, &error_code(answer).await),
        }
    }

    /// The object's entity tag, and the identity of the write that made it.
    pub async fn head(&self, place: &str) -> Stored {
        within(self.head_now(place)).await
    }

    async fn head_now(&self, place: &str) -> Stored {
        let Some(origin) = self.origin(place) else {
            return Stored::Denied(404);
        };
        let request = OriginRequest::read(Method::HEAD, &format!("/{place}"), HeaderMap::new());
        let answer = match self.client.read(origin, request).await {
            Ok(answer) => answer,
            Err(error) => return failed_read(error),
        };
        match answer.status() {
            StatusCode::OK => match text(&answer, ETAG.as_str()) {
                Some(etag) => Stored::Meta {
                    etag: Some(etag),
                    write: text(&answer, WRITE_HEADER),
                },
                None => Stored::Lost,
            },
            StatusCode::NOT_FOUND => Stored::Meta {
                etag: None,
                write: None,
            },
            status => refused_read(status, ""),
        }
    }

    /// Writes the object, or deletes it, if it has the entity tag `replaces`; `None` is that there is none. `write` is kept
    /// with it as its identity.
    pub async fn put(
        &self,
        place: &str,
        content: Option<Bytes>,
        replaces: Option<&str>,
        write: &str,
        fence: Fence,
    ) -> Stored {
        let Some(content) = content else {
            return self.delete(place, replaces, fence).await;
        };
        let Some(content) = Content::decode(content) else {
            return Stored::Denied(400);
        };
        if let Some(condition) = content.condition()
            && !condition.holds(replaces)
        {
            // The version to replace may be a guess: the client's condition is judged by the stored one.
            return match self.head(place).await {
                Stored::Meta { etag, .. } if etag.as_deref() == replaces => Stored::Denied(412),
                Stored::Meta { .. } => Stored::Mismatch,
                Stored::Denied(status) => Stored::Denied(status),
                _ => Stored::Throttled,
            };
        }
        let mut headers = content.request_headers();
        match replaces {
            Some(etag) => condition(&mut headers, IF_MATCH, Some(etag)),
            None => drop(headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"))),
        }
        match content.body {
            Kept::Whole(body) => {
                if let Ok(write) = HeaderValue::try_from(write) {
                    headers.insert(HeaderName::from_static(WRITE_HEADER), write);
                }
                self.put_whole(place, headers, body, fence).await
            }
            Kept::Completion { upload, document } => self.complete(place, headers, upload, document, fence).await,
            Kept::Elsewhere(_) => Stored::Denied(400),
        }
    }

    async fn put_whole(&self, place: &str, mut headers: HeaderMap, body: Bytes, fence: Fence) -> Stored {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let is_short = body.len() <= PIECE_BYTES;
        let payload = if is_short {
            payload_hash(&body)
        } else {
            UNSIGNED_PAYLOAD.into()
        };
        let request = OriginRequest {
            method: Method::PUT,
            path: format!("/{place}"),
            query: Vec::new(),
            headers,
            payload,
        };
        let body = if is_short {
            Full::new(body).map_err(|never| match never {}).boxed_unsync()
        } else {
            in_pieces(body, Arc::clone(&fence))
        };
        self.write(place, request, body, fence).await
    }

    async fn complete(
        &self,
        place: &str,
        mut headers: HeaderMap,
        upload: String,
        document: Bytes,
        fence: Fence,
    ) -> Stored {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(document.len()));
        let request = OriginRequest {
            method: Method::POST,
            path: format!("/{place}"),
            query: vec![("uploadId".into(), upload)],
            headers,
            payload: payload_hash(&document),
        };
        let body = Full::new(document).map_err(|never| match never {}).boxed_unsync();
        self.write(place, request, body, fence).await
    }

    async fn delete(&self, place: &str, replaces: Option<&str>, fence: Fence) -> Stored {
        let Some(etag) = replaces else {
            // There is no request that deletes nothing.
            return match self.head(place).await {
                Stored::Meta { etag: None, .. } => Stored::Written(None),
                Stored::Meta { .. } => Stored::Mismatch,
                Stored::Denied(status) => Stored::Denied(status),
                _ => Stored::Throttled,
            };
        };
        let mut headers = HeaderMap::new();
        condition(&mut headers, IF_MATCH, Some(etag));
        let request = OriginRequest::read(Method::DELETE, &format!("/{place}"), headers);
        let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
        match self.write(place, request, body, fence).await {
            // It is gone already.
            Stored::Denied(404) => Stored::Mismatch,
            stored => stored,
        }
    }

    async fn write(&self, place: &str, request: OriginRequest, body: OutBody, fence: Fence) -> Stored {
        let Some(origin) = self.origin(place) else {
            return Stored::Denied(404);
        };
        if !fence() {
            return Stored::Throttled;
        }
        let is_delete = request.method == Method::DELETE;
        let progress = Progress::default();
        let called = async {
            let answer = match self.client.write(origin, request, body, &progress).await {
                Ok(answer) => answer,
                Err(OriginError::Impossible) => return Stored::Denied(400),
                Err(_) => return Stored::Lost,
            };
            written(answer, is_delete).await
        };
        within(called).await
    }

    fn origin(&self, place: &str) -> Option<&Origin> {
        self.origins.get(place.split_once('/')?.0)
    }
}

async fn within(call: impl Future<Output = Stored>) -> Stored {
    tokio::time::timeout(CALL_PATIENCE, call).await.unwrap_or(Stored::Lost)
}

fn condition(headers: &mut HeaderMap, name: HeaderName, etag: Option<&str>) {
    if let Some(value) = etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
        headers.insert(name, value);
    }
}

fn text(answer: &Response<Incoming>, name: &str) -> Option<String> {
    answer.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// A body that breaks off where it may not go on.
fn in_pieces(body: Bytes, fence: Fence) -> OutBody {
    let pieces = stream::unfold(Some(body), move |rest| {
        let may_go = fence();
        async move {
            let mut rest = rest?;
            if rest.is_empty() {
                return None;
            }
            if !may_go {
                let error: BoxError = "the lease has ended".into();
                return Some((Err(error), None));
            }
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            Some((Ok(Frame::data(piece)), Some(rest)))
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

async fn read_object(answer: Response<Incoming>) -> Stored {
    // Without an entity tag no version could be told from another one.
    let Some(object) = Object::of_reply("", answer.headers()) else {
        return Stored::Denied(502);
    };
    let (mut headers, etag) = (object.headers, object.etag);
    headers.remove(ETAG);
    headers.remove(WRITE_HEADER);
    if object.last_modified.is_none() {
        headers.remove(LAST_MODIFIED);
    }
    let body = if object.size_bytes > WHOLE_BYTES_MAX {
        Kept::Elsewhere(object.size_bytes)
    } else {
        match read_body(answer.into_body(), object.size_bytes).await {
            Some(body) => Kept::Whole(body),
            None => return Stored::Lost,
        }
    };
    Stored::Object {
        content: Some(Content { headers, body }.encode()),
        etag: Some(etag),
    }
}

async fn read_body(mut body: Incoming, size_bytes: u64) -> Option<Bytes> {
    let mut whole = BytesMut::with_capacity(usize::try_from(size_bytes).ok()?);
    while let Some(piece) = next_piece(&mut body).await.ok()? {
        if (whole.len() + piece.len()) as u64 > size_bytes {
            return None;
        }
        whole.extend_from_slice(&piece);
    }
    (whole.len() as u64 == size_bytes).then(|| whole.freeze())
}

/// The code of S3's error document; empty where there is none.
async fn error_code(answer: Response<Incoming>) -> String {
    let mut text = Vec::new();
    let mut body = answer.into_body();
    while let Ok(Some(piece)) = next_piece(&mut body).await {
        text.extend_from_slice(&piece);
        if text.len() > ERROR_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text);
    let code = text
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map_or_else(String::new, |(code, _)| code.to_owned())
}

fn failed_read(error: OriginError) -> Stored {
    match error {
        OriginError::Impossible => Stored::Denied(400),
        OriginError::Slow | OriginError::Unreachable => Stored::Throttled,
    }
}

/// The meaning of an answer to a read that has no object.
fn refused_read(status: StatusCode, code: &str) -> Stored {
    match (status.as_u16(), code) {
        (404, "NoSuchBucket") => Stored::Denied(404),
        (404, _) => Stored::Object {
            content: None,
            etag: None,
        },
        (408 | 409 | 425 | 429 | 500.., _) => Stored::Throttled,
        (status, _) => Stored::Denied(status),
    }
}

/// The store's answer to a write.
async fn written(answer: Response<Incoming>, is_delete: bool) -> Stored {
    let status = answer.status();
    if status.is_success() {
        if is_delete {
            return Stored::Written(None);
        }
        return match text(&answer, ETAG.as_str()) {
            Some(etag) => Stored::Written(Some(etag)),
            None => completed(answer).await,
        };
    }
    let code = error_code(answer).await;
    refused_write(status.as_u16(), &code)
}

/// Completing an upload is answered with a document: the entity tag, or an error after all.
async fn completed(answer: Response<Incoming>) -> Stored {
    let mut text = Vec::new();
    let mut body = answer.into_body();
    while let Ok(Some(piece)) = next_piece(&mut body).await {
        text.extend_from_slice(&piece);
        if text.len() > ERROR_BYTES_MAX {
            return Stored::Lost;
        }
    }
    let text = String::from_utf8_lossy(&text);
    let of = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (value, _) = rest.split_once(&format!("</{name}>"))?;
        crate::reply::unescape(value)
    };
    match (of("ETag"), of("Code")) {
        (Some(etag), _) => Stored::Written(Some(format!("\"{}\"", etag.trim_matches('"')))),
        (None, Some(code)) => refused_write(200, &code),
        (None, None) => Stored::Lost,
    }
}

/// The meaning of an error to a write. A store that answers 500, 502 or 504 may have done it. 503 says that it was not
/// done only with S3's own code.
fn refused_write(status: u16, code: &str) -> Stored {
    match (status, code) {
        (_, "PreconditionFailed") | (412, _) => Stored::Mismatch,
        // A condition on an object that is not there.
        (404, "NoSuchKey") => Stored::Mismatch,
        (429, _) | (_, "SlowDown" | "ConditionalRequestConflict" | "OperationAborted") => Stored::Throttled,
        (408 | 425 | 500.., _) | (200, "InternalError") => Stored::Lost,
        (200, _) => Stored::Denied(400),
        (status, _) => Stored::Denied(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_said_not_to_be_done_only_where_that_is_sure() {
        for (status, code, meaning) in [
            (412, "PreconditionFailed", Stored::Mismatch),
            (412, "", Stored::Mismatch),
            (404, "NoSuchKey", Stored::Mismatch),
            (404, "NoSuchBucket", Stored::Denied(404)),
            (404, "NoSuchUpload", Stored::Denied(404)),
            (403, "AccessDenied", Stored::Denied(403)),
            (409, "ConditionalRequestConflict", Stored::Throttled),
            (503, "SlowDown", Stored::Throttled),
            (503, "", Stored::Lost),
            (500, "InternalError", Stored::Lost),
            (504, "", Stored::Lost),
            (200, "InternalError", Stored::Lost),
            (200, "InvalidPart", Stored::Denied(400)),
        ] {
            assert_eq!(refused_write(status, code), meaning, "{status} {code}");
        }
    }

    #[test]
    fn an_absent_object_is_told_from_an_absent_bucket() {
        let absent = Stored::Object {
            content: None,
            etag: None,
        };
        for (status, code, meaning) in [
            (404, "NoSuchKey", absent.clone()),
            (404, "", absent),
            (404, "NoSuchBucket", Stored::Denied(404)),
            (403, "AccessDenied", Stored::Denied(403)),
            (503, "SlowDown", Stored::Throttled),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(refused_read(status, code), meaning, "{status} {code}");
        }
    }
}
