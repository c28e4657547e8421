//! Answers that are no object: errors in S3's own form, and the origin's own answers instead of an object.

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use s3s::{Body, S3Response};

/// A short answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// Without the length.
    pub(crate) headers: Box<HeaderMap>,
    /// All of it.
    pub(crate) body: Bytes,
}

/// The errors that this address gives by itself; others are the origin's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    /// The key does not allow it, or nothing does.
    AccessDenied,
    /// The body does not match its checksum.
    BadDigest,
    /// The origin does not take this address's own signature.
    InternalError,
    /// The body ended early.
    IncompleteBody,
    /// A request that makes no sense.
    InvalidArgument,
    /// No byte of the object is in the range.
    InvalidRange,
    /// The body or head is longer than it may be.
    EntityTooLarge,
    /// There is no such bucket behind this address.
    NoSuchBucket,
    /// There is no such object.
    NoSuchKey,
    /// This address does not do that.
    NotImplemented,
    /// A condition does not hold.
    PreconditionFailed,
    /// The client sent nothing for too long.
    RequestTimeout,
    /// The origin does not answer, or something is too much at the moment: try again.
    ServiceUnavailable,
}

impl ErrorCode {
    fn status(self) -> StatusCode {
        match self {
            Self::AccessDenied => StatusCode::FORBIDDEN,
            Self::BadDigest
            | Self::IncompleteBody
            | Self::InvalidArgument
            | Self::EntityTooLarge
            | Self::RequestTimeout => StatusCode::BAD_REQUEST,
            Self::InvalidRange => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::NoSuchBucket | Self::NoSuchKey => StatusCode::NOT_FOUND,
            Self::InternalError => StatusCode::BAD_GATEWAY,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The error for a status that came without one: a HEAD's.
    fn of(status: StatusCode) -> Option<Self> {
        Some(match status {
            StatusCode::FORBIDDEN => Self::AccessDenied,
            StatusCode::NOT_FOUND => Self::NoSuchKey,
            StatusCode::PRECONDITION_FAILED => Self::PreconditionFailed,
            StatusCode::RANGE_NOT_SATISFIABLE => Self::InvalidRange,
            status if status.is_server_error() => Self::ServiceUnavailable,
            _ => return None,
        })
    }
}

impl Reply {
    /// An error with a sentence that says what to do about it.
    pub(crate) fn error(code: ErrorCode, message: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code:?}</Code><Message>{}</Message></Error>",
            escape(message)
        );
        Self::xml(code.status(), body)
    }

    /// A document.
    pub(crate) fn xml(status: StatusCode, body: String) -> Self {
        let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/xml"))];
        Self {
            status,
            headers: Box::new(headers.into_iter().collect()),
            body: body.into(),
        }
    }

    /// Nothing but a status and headers.
    pub(crate) fn bare(status: StatusCode, headers: HeaderMap) -> Self {
        Self {
            status,
            headers: Box::new(headers),
            body: Bytes::new(),
        }
    }

    /// The same, with an error in its body where it has none.
    pub(crate) fn explained(self) -> Self {
        match ErrorCode::of(self.status) {
            Some(code) if self.body.is_empty() => Self {
                status: self.status,
                ..Self::error(code, "the origin answered so")
            },
            _ => self,
        }
    }

    /// The reply as the front sends it.
    pub(crate) fn into_response(self) -> S3Response<Body> {
        let Self {
            status,
            mut headers,
            body,
        } = self;
        if status != StatusCode::NOT_MODIFIED && status != StatusCode::NO_CONTENT {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let mut response = S3Response::with_headers(Body::from(body), *headers);
        response.status = Some(status);
        response
    }
}

/// Text in XML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The text that is written so in XML; `None` if it is not text.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut read = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        read.push_str(before);
        let (entity, behind) = behind.split_once(';')?;
        read.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            number => {
                let number = number.strip_prefix('#')?;
                let code = match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => number.parse().ok()?,
                };
                char::from_u32(code)?
            }
        });
        rest = behind;
    }
    if rest.contains('<') {
        return None;
    }
    read.push_str(rest);
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_s3s_own() {
        let reply = Reply::error(ErrorCode::NoSuchKey, "a < b");
        assert_eq!(reply.status, StatusCode::NOT_FOUND);
        let body = String::from_utf8(reply.body.to_vec()).unwrap();
        assert!(
            body.contains("<Code>NoSuchKey</Code><Message>a &lt; b</Message>"),
            "{body}"
        );
        for (status, has_body) in [(404, true), (403, true), (500, true), (304, false)] {
            let bare = Reply::bare(StatusCode::from_u16(status).unwrap(), HeaderMap::new());
            assert_eq!(!bare.explained().body.is_empty(), has_body, "{status}");
        }
    }
}
