//! The form in which cachelets keep an object, as one piece of bytes: its headers and its body, or the place of the
//! body.
//!
//! ```text
//! byte 0       layout, 1
//! byte 1       kind: 0 whole, 1 elsewhere, 2 completion
//! bytes 2..6   length of the headers, big endian
//! ...          headers, `name:value` and a line feed each
//! ...          whole: the body; elsewhere: its length, 8 bytes, big endian; completion: identity of the upload, a line
//!              feed, the document that names its parts
//! ```

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED};

const LAYOUT: u8 = 1;
const WHOLE: u8 = 0;
const ELSEWHERE: u8 = 1;
const COMPLETION: u8 = 2;
const HEAD_BYTES: usize = 6;
/// The header in which the store keeps a write's identity.
pub(super) const WRITE_HEADER: &str = "x-amz-meta-tidemark-write";
/// As S3 says of an object that was written without a type.
const DEFAULT_TYPE: HeaderValue = HeaderValue::from_static("binary/octet-stream");
/// Headers of an object that a reply repeats, besides its metadata.
const REPEATED: [&str; 10] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "last-modified",
    "x-amz-server-side-encryption",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
];

/// An object as cachelets keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// The headers as a client sent them, or as the store answered.
    pub(super) headers: HeaderMap,
    /// Its bytes.
    pub(super) body: Kept,
}

/// The place of an object's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Here.
    Whole(Bytes),
    /// The bytes are at the store, so many. They are read from there by their version.
    Elsewhere(u64),
    /// The bytes are at the store, as parts of an upload that writing this completes.
    Completion {
        /// The upload's identity.
        upload: String,
        /// The document that names the parts.
        document: Bytes,
    },
}

impl Content {
    /// The bytes that stand for it.
    pub(super) fn encode(&self) -> Bytes {
        let mut headers = BytesMut::new();
        for (name, value) in &self.headers {
            headers.put_slice(name.as_str().as_bytes());
            headers.put_u8(b':');
            headers.put_slice(value.as_bytes());
            headers.put_u8(b'\n');
        }
        let (kind, body_bytes) = match &self.body {
            Kept::Whole(body) => (WHOLE, body.len()),
            Kept::Elsewhere(_) => (ELSEWHERE, 8),
            Kept::Completion { upload, document } => (COMPLETION, upload.len() + 1 + document.len()),
        };
        let mut encoded = BytesMut::with_capacity(HEAD_BYTES + headers.len() + body_bytes);
        encoded.put_u8(LAYOUT);
        encoded.put_u8(kind);
        encoded.put_u32(u32::try_from(headers.len()).unwrap_or(u32::MAX));
        encoded.put_slice(&headers);
        match &self.body {
            Kept::Whole(body) => encoded.put_slice(body),
            Kept::Elsewhere(bytes) => encoded.put_u64(*bytes),
            Kept::Completion { upload, document } => {
                encoded.put_slice(upload.as_bytes());
                encoded.put_u8(b'\n');
                encoded.put_slice(document);
            }
        }
        encoded.freeze()
    }

    /// The object of encoded bytes; `None` if they are of another layout. The body is not copied.
    pub(super) fn decode(mut encoded: Bytes) -> Option<Self> {
        if encoded.len() < HEAD_BYTES || encoded.get_u8() != LAYOUT {
            return None;
        }
        let (kind, header_bytes) = (encoded.get_u8(), encoded.get_u32() as usize);
        if encoded.len() < header_bytes {
            return None;
        }
        let text = encoded.split_to(header_bytes);
        let mut headers = HeaderMap::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            headers.append(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
        }
        let body = match kind {
            WHOLE => Kept::Whole(encoded),
            ELSEWHERE if encoded.len() == 8 => Kept::Elsewhere(encoded.get_u64()),
            COMPLETION => {
                let end = encoded.iter().position(|byte| *byte == b'\n')?;
                let upload = String::from_utf8(encoded.split_to(end).to_vec()).ok()?;
                Kept::Completion {
                    upload,
                    document: encoded.slice(1..),
                }
            }
            _ => return None,
        };
        Some(Self { headers, body })
    }

    /// The headers of a reply with this object.
    pub(super) fn reply_headers(&self) -> HeaderMap {
        let is_repeated = |name: &HeaderName| {
            let name = name.as_str();
            REPEATED.contains(&name) || (name.starts_with("x-amz-meta-") && name != WRITE_HEADER)
        };
        let repeated = self.headers.iter().filter(|(name, _)| is_repeated(name));
        let mut headers: HeaderMap = repeated.map(|(name, value)| (name.clone(), value.clone())).collect();
        headers.entry(CONTENT_TYPE).or_insert(DEFAULT_TYPE);
        headers
    }

    /// The headers of a request that writes this object.
    pub(super) fn request_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        for name in [LAST_MODIFIED, IF_MATCH, IF_NONE_MATCH] {
            headers.remove(name);
        }
        headers
    }

    /// The client's condition on the object before this is written.
    pub(super) fn condition(&self) -> Option<Condition> {
        let text = |name: HeaderName| self.headers.get(name)?.to_str().ok();
        if let Some(etag) = text(IF_MATCH) {
            return Some(Condition::Is(etag.trim_matches('"').to_owned()));
        }
        text(IF_NONE_MATCH).map(|_| Condition::Absent)
    }
}

/// A client's condition on an object before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// There is none: `If-None-Match: *`.
    Absent,
    /// The version of this entity tag, without quotes; `*` is any.
    Is(String),
}

impl Condition {
    /// Whether a version is the stated one; `None` is that there is no object.
    pub(super) fn holds(&self, etag: Option<&str>) -> bool {
        match (self, etag) {
            (Self::Absent, etag) => etag.is_none(),
            (Self::Is(_), None) => false,
            (Self::Is(wanted), Some(etag)) => wanted == "*" || etag.trim_matches('"') == wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(body: Kept) -> Content {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/plain"),
            ("x-amz-meta-colour", "blue:green"),
            ("x-amz-meta-tidemark-write", "1-2"),
            ("x-amz-tagging", "a=b"),
            ("if-match", "\"v\""),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Content { headers, body }
    }

    #[test]
    fn a_content_is_read_as_it_was_written() {
        for body in [
            Kept::Whole(Bytes::new()),
            Kept::Whole(Bytes::from_static(b"a\nb:c\0")),
            Kept::Elsewhere(1 << 40),
            Kept::Completion {
                upload: "u-1".into(),
                document: Bytes::from_static(b"<x>\n</x>"),
            },
        ] {
            let content = content(body);
            let encoded = content.encode();
            assert_eq!(Content::decode(encoded.clone()), Some(content));
            for length in 0..HEAD_BYTES + 4 {
                assert_eq!(Content::decode(encoded.slice(..length)), None, "{length} bytes");
            }
        }
        assert_eq!(Content::decode(Bytes::from_static(&[9; 40])), None);
    }

    #[test]
    fn replies_and_requests_have_their_own_headers() {
        let content = content(Kept::Elsewhere(1));
        let reply = content.reply_headers();
        let names = |headers: &HeaderMap| {
            let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
            names.sort_unstable();
            names.join(" ")
        };
        assert_eq!(names(&reply), "content-type x-amz-meta-colour");
        assert_eq!(
            names(&content.request_headers()),
            "content-type x-amz-meta-colour x-amz-meta-tidemark-write x-amz-tagging"
        );
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let condition = content(Kept::Elsewhere(1)).condition().unwrap();
        for (etag, holds) in [(None, false), (Some("\"v\""), true), (Some("\"w\""), false)] {
            assert_eq!(condition.holds(etag), holds, "{etag:?}");
        }
        assert!(Condition::Absent.holds(None) && !Condition::Absent.holds(Some("\"v\"")));
        assert!(Condition::Is("*".into()).holds(Some("\"v\"")));
    }
}
