//! Requests for objects, answered by cachelets.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{CONTENT_LENGTH, ETAG, HeaderValue, LAST_MODIFIED};
use hyper::{HeaderMap, StatusCode};
use s3s::crypto::{Checksum as _, Md5};
use s3s::{Body, S3Response, TrailingHeaders};

use tidemark_types::{Clock as _, SystemClock};

use super::content::{Content, Kept};
use super::{Caller, Coherent, Reading, WHOLE_BYTES_MAX, Writing, Written};
use crate::fill::Job;
use crate::object::Object;
use crate::read::Read;
use crate::reply::{ErrorCode, Reply, escape};
use crate::shared::Shared;
use crate::sign::hex;
use crate::upload::{Promise, Upload, read_to_end};
use crate::versions::Fault;

/// How often a read begins anew because the object has just changed.
const TRIES: usize = 4;
/// Headers of requests with a key of the client's own: their content is not the same for everybody.
const OF_A_KEY: &str = "x-amz-server-side-encryption-customer-";

/// The way of one request to the cachelets.
pub(crate) struct Door {
    /// Them.
    pub(crate) coherent: Arc<dyn Coherent>,
    /// The state that all requests share.
    pub(crate) shared: Arc<Shared>,
    pub(crate) caller: Caller,
    /// The object of the request.
    pub(crate) job: Job,
}

impl Door {
    /// GET or HEAD of the object.
    pub(crate) async fn read(self, headers: HeaderMap, is_head: bool) -> S3Response<Body> {
        let headers = Arc::new(headers);
        for _ in 0..TRIES {
            let (content, etag, place) = match self.coherent.read(&self.caller, &self.job.place).await {
                Reading::Object { content, etag, place } => (content, etag, place),
                Reading::Nothing => {
                    return Reply::error(ErrorCode::NoSuchKey, "there is no such object").into_response();
                }
                Reading::Unavailable => return unavailable(),
                Reading::Denied(status) => return denied(status),
            };
            let Some(content) = Content::decode(content) else {
                return unavailable();
            };
            let Some((object, body)) = self.object(content, etag).await else {
                continue;
            };
            let read = Read {
                shared: Arc::clone(&self.shared),
                job: self.job.clone(),
                headers: Arc::clone(&headers),
                is_head,
            };
            match read.of_version(Arc::new(object), body, place).await {
                Ok(response) => return response,
                Err(Fault::Changed) => {}
                Err(Fault::Reply(reply)) => return Reply::clone(&reply).explained().into_response(),
            }
        }
        Reply::error(ErrorCode::ServiceUnavailable, "the object changes too fast to be read").into_response()
    }

    /// The version that a content is of, and its bytes if they are here. `None`: it has to be read again.
    async fn object(&self, content: Content, etag: Option<String>) -> Option<(Object, Option<Bytes>)> {
        let mut headers = content.reply_headers();
        let (body, size_bytes) = match content.body {
            Kept::Whole(body) => (Some(body.clone()), body.len() as u64),
            Kept::Elsewhere(bytes) => (None, bytes),
            // Written as parts: only the store knows how long they are together, and when.
            Kept::Completion { .. } => {
                let object = self.shared.head(&self.job).await.ok()?;
                let is_it = etag.as_ref() == Some(&object.etag);
                return is_it.then_some((object, None));
            }
        };
        let etag = match (etag, &body) {
            (Some(etag), _) => etag,
            (None, Some(body)) => etag_of(body),
            (None, None) => return None,
        };
        headers.insert(ETAG, HeaderValue::try_from(&etag).ok()?);
        Some((Object::of_version(&self.job.place, etag, size_bytes, headers), body))
    }

    /// PUT of the object.
    pub(crate) async fn put(
        self,
        headers: HeaderMap,
        body: Body,
        trailers: Option<TrailingHeaders>,
    ) -> S3Response<Body> {
        let whole = match whole_body(&headers, body, trailers).await {
            Ok(whole) => whole,
            Err(reply) => return reply.into_response(),
        };
        self.job.memory.count(whole.len() as u64, 0);
        self.write(Content {
            headers: stated(&headers),
            body: Kept::Whole(whole),
        })
        .await
    }

    /// Completes an upload in parts.
    pub(crate) async fn complete(self, headers: &HeaderMap, upload: String, document: Bytes) -> S3Response<Body> {
        let (bucket, key) = self.job.place.split_once('/').unwrap_or_default();
        let (bucket, key) = (escape(bucket), escape(key));
        let content = Content {
            headers: stated(headers),
            body: Kept::Completion { upload, document },
        };
        let is_conditional = content.condition().is_some();
        let written = Written {
            content: Some(content.encode()),
            is_conditional,
        };
        match self.coherent.write(&self.caller, &self.job.place, written).await {
            Writing::Applied(etag) => {
                let etag = escape(&etag.unwrap_or_default());
                let document = format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                     <CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                     <Bucket>{bucket}</Bucket><Key>{key}</Key><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
                );
                Reply::xml(StatusCode::OK, document).into_response()
            }
            other => not_applied(&other),
        }
    }

    /// Copies another object, which the cachelets read, over this one.
    pub(crate) async fn copy(self, source: &str, headers: &HeaderMap) -> S3Response<Body> {
        let found = match self.coherent.read(&self.caller, source).await {
            Reading::Object { content, .. } => Content::decode(content),
            Reading::Nothing => return Reply::error(ErrorCode::NoSuchKey, "there is no such source").into_response(),
            Reading::Unavailable => return unavailable(),
            Reading::Denied(status) => return denied(status),
        };
        let Some(Content {
            headers: of_source,
            body: body @ Kept::Whole(_),
        }) = found
        else {
            let message = "an object that is longer than 16 MiB is copied in parts here (UploadPartCopy)";
            return Reply::error(ErrorCode::NotImplemented, message).into_response();
        };
        let is_replaced = headers
            .get("x-amz-metadata-directive")
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"REPLACE"));
        let mut stated = stated(headers);
        if !is_replaced {
            let content = Content {
                headers: of_source,
                body: body.clone(),
            };
            for (name, value) in &content.reply_headers() {
                stated.insert(name.clone(), value.clone());
            }
            stated.remove(LAST_MODIFIED);
        }
        let content = Content { headers: stated, body };
        let is_conditional = content.condition().is_some();
        let written = Written {
            content: Some(content.encode()),
            is_conditional,
        };
        match self.coherent.write(&self.caller, &self.job.place, written).await {
            Writing::Applied(etag) => {
                let etag = escape(&etag.unwrap_or_default());
                let at = tidemark_types::utc::rfc3339(SystemClock.now());
                let document = format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CopyObjectResult><LastModified>{at}</LastModified>\
                     <ETag>{etag}</ETag></CopyObjectResult>"
                );
                Reply::xml(StatusCode::OK, document).into_response()
            }
            other => not_applied(&other),
        }
    }

    /// Deletes the object.
    pub(crate) async fn delete(self) -> S3Response<Body> {
        match self.delete_one().await {
            Writing::Applied(_) => Reply::bare(StatusCode::NO_CONTENT, HeaderMap::new()).into_response(),
            other => not_applied(&other),
        }
    }

    /// Deletes the object; how that ended.
    pub(crate) async fn delete_one(&self) -> Writing {
        let written = Written {
            content: None,
            is_conditional: false,
        };
        self.coherent.write(&self.caller, &self.job.place, written).await
    }

    async fn write(self, content: Content) -> S3Response<Body> {
        let md5 = match &content.body {
            Kept::Whole(body) => etag_of(body),
            _ => String::new(),
        };
        let written = Written {
            is_conditional: content.condition().is_some(),
            content: Some(content.encode()),
        };
        match self.coherent.write(&self.caller, &self.job.place, written).await {
            Writing::Applied(etag) => {
                let mut reply = Reply::bare(StatusCode::OK, HeaderMap::new());
                if let Ok(etag) = HeaderValue::try_from(etag.unwrap_or(md5)) {
                    reply.headers.insert(ETAG, etag);
                }
                reply.into_response()
            }
            other => not_applied(&other),
        }
    }
}

/// Whether cachelets can answer a request with these headers.
pub(crate) fn is_for_everybody(headers: &HeaderMap) -> bool {
    !headers.keys().any(|name| name.as_str().starts_with(OF_A_KEY))
}

/// A list of deletions that ended, as S3 answers it.
pub(crate) fn deleted(ended: &[(String, Writing)]) -> S3Response<Body> {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult>".to_owned();
    for (key, writing) in ended {
        let key = escape(key);
        text.push_str(&match writing {
            Writing::Applied(_) => format!("<Deleted><Key>{key}</Key></Deleted>"),
            other => {
                let (code, message) = explained(other);
                format!("<Error><Key>{key}</Key><Code>{code:?}</Code><Message>{message}</Message></Error>")
            }
        });
    }
    text.push_str("</DeleteResult>");
    Reply::xml(StatusCode::OK, text).into_response()
}

/// The headers of a client's that are kept of an object, with the time: the store says another one of the same second.
fn stated(headers: &HeaderMap) -> HeaderMap {
    let mut stated = crate::guard::passed(headers);
    for name in [
        "accept",
        "accept-encoding",
        "content-length",
        "content-md5",
        "origin",
        "range",
        "user-agent",
        "x-amz-sdk-checksum-algorithm",
        "x-amz-copy-source",
        "x-amz-metadata-directive",
    ] {
        stated.remove(name);
    }
    let encoding = stated.get("content-encoding").and_then(|value| value.to_str().ok());
    let encodings = encoding.unwrap_or_default().split(',').map(str::trim);
    let kept: Vec<&str> = encodings
        .filter(|one| !one.is_empty() && !one.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    let kept = HeaderValue::try_from(kept.join(","))
        .ok()
        .filter(|kept| !kept.is_empty());
    stated.remove("content-encoding");
    if let Some(kept) = kept {
        stated.insert("content-encoding", kept);
    }
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_millis(SystemClock.now().0);
    if let Ok(now) = HeaderValue::try_from(httpdate::fmt_http_date(now)) {
        stated.insert(LAST_MODIFIED, now);
    }
    stated
}

/// The entity tag that S3 gives to bytes that were written in one piece: their MD5.
fn etag_of(body: &[u8]) -> String {
    let mut md5 = Md5::new();
    md5.update(body);
    format!("\"{}\"", hex(&md5.finalize()))
}

/// The body of a request, if it is what its headers promise.
async fn whole_body(headers: &HeaderMap, body: Body, trailers: Option<TrailingHeaders>) -> Result<Bytes, Reply> {
    let length = headers
        .get("x-amz-decoded-content-length")
        .or_else(|| headers.get(CONTENT_LENGTH));
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let too_large = || {
        let message = "an object that is longer than 16 MiB is written in parts here (multipart upload)";
        Reply::error(ErrorCode::EntityTooLarge, message)
    };
    if length.is_some_and(|length| length > WHOLE_BYTES_MAX) {
        return Err(too_large());
    }
    let patience = crate::origin::READ_PATIENCE;
    let limited = Limited::new(body, WHOLE_BYTES_MAX as usize).collect();
    let whole = match tokio::time::timeout(patience, limited).await {
        Ok(Ok(whole)) => whole.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Ok(Err(_)) => return Err(Reply::error(ErrorCode::BadDigest, "the body is not what was signed")),
        Err(_) => return Err(Reply::error(ErrorCode::RequestTimeout, "the body does not come")),
    };
    let promise = Promise::read(headers, length.unwrap_or(whole.len() as u64))?;
    read_to_end(Upload::new(Body::from(whole.clone()), promise, trailers, None)).await?;
    Ok(whole)
}

fn unavailable() -> S3Response<Body> {
    not_applied(&Writing::Unavailable)
}

fn denied(status: u16) -> S3Response<Body> {
    not_applied(&Writing::Denied(status))
}

fn explained(writing: &Writing) -> (ErrorCode, &'static str) {
    match writing {
        Writing::Denied(412) => (
            ErrorCode::PreconditionFailed,
            "the object is not what the condition says",
        ),
        Writing::Denied(404) => (ErrorCode::NoSuchBucket, "the origin has no such bucket or upload"),
        Writing::Denied(403) => (ErrorCode::AccessDenied, "the origin does not allow it"),
        Writing::Denied(500..) => (ErrorCode::ServiceUnavailable, "the origin can not do it"),
        Writing::Denied(_) => (ErrorCode::InvalidArgument, "the origin does not take it"),
        Writing::Unknown => (
            ErrorCode::InternalError,
            "it is not known whether it was done: read the object, or write it again",
        ),
        Writing::ConditionUnknown => (
            ErrorCode::NotImplemented,
            "conditions need durability strict: writes of this application are acknowledged ahead of the origin",
        ),
        Writing::Unavailable | Writing::Applied(_) => (ErrorCode::ServiceUnavailable, "it was not done, try again"),
    }
}

fn not_applied(writing: &Writing) -> S3Response<Body> {
    let (code, message) = explained(writing);
    Reply::error(code, message).into_response()
}
