//! An object's current version: its fields in a reply, and whether a request's conditions hold (RFC 9110, 13). Pure.

use std::time::SystemTime;

use hyper::HeaderMap;
use hyper::header::{
    ACCEPT_RANGES, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderName, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, SERVER, TRANSFER_ENCODING,
};
use sha2::{Digest, Sha256};

use crate::range::content_range;

/// Bytes of a block, which is cached and filled as one. 1 MiB is a tenant's largest value unless it asks for more.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;

/// Names the bytes of one version of one object, no matter which tenant caches them.
pub(crate) type ContentId = [u8; 16];

/// One version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// The entity tag with its quotes.
    pub(crate) etag: String,
    /// The size of the whole object.
    pub(crate) size_bytes: u64,
    /// The time of the last change as the origin said it, if it did.
    pub(crate) last_modified: Option<SystemTime>,
    /// The headers that a reply repeats, besides the length.
    pub(crate) headers: HeaderMap,
    /// The identity under which its bytes are cached.
    pub(crate) content: ContentId,
}

/// Headers of an origin's reply that say nothing of the object, but of that reply.
const OF_THE_REPLY: [HeaderName; 7] = [
    CONNECTION,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    DATE,
    SERVER,
    TRANSFER_ENCODING,
    ACCEPT_RANGES,
];
/// Also such, and checksums, which may be of the range that was asked for.
const OF_THE_REPLY_PREFIXES: [&str; 4] = ["x-amz-request-id", "x-amz-id-2", "x-amz-checksum-", "keep-alive"];

impl Object {
    /// The object by the origin's reply to a GET or HEAD of `bucket/key`; `None` if the reply says too little for a
    /// cache.
    pub(crate) fn of_reply(place: &str, headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| headers.get(name)?.to_str().ok();
        let etag = text(ETAG)?.to_owned();
        // A weak one does not tell contents apart.
        if !etag.starts_with('"') {
            return None;
        }
        let size_bytes = match text(CONTENT_RANGE) {
            Some(range) => content_range(range)?.1,
            None => text(CONTENT_LENGTH)?.parse().ok()?,
        };
        let kept = headers.iter().filter(|(name, _)| is_of_object(name));
        Some(Self {
            content: content_of(place, &etag, size_bytes),
            etag,
            size_bytes,
            last_modified: text(LAST_MODIFIED).and_then(|date| httpdate::parse_http_date(date).ok()),
            headers: kept.map(|(name, value)| (name.clone(), value.clone())).collect(),
        })
    }

    /// A version of `bucket/key` of which these headers are known.
    pub(crate) fn of_version(place: &str, etag: String, size_bytes: u64, headers: HeaderMap) -> Self {
        let modified = headers.get(LAST_MODIFIED).and_then(|value| value.to_str().ok());
        Self {
            content: content_of(place, &etag, size_bytes),
            etag,
            size_bytes,
            last_modified: modified.and_then(|date| httpdate::parse_http_date(date).ok()),
            headers,
        }
    }

    /// The content of this version of `bucket/key` for whoever knows nothing but the origin's answer. It is another one than its bytes
    /// are cached under if they were cached while they were written.
    pub(crate) fn name(&self, place: &str) -> ContentId {
        content_of(place, &self.etag, self.size_bytes)
    }

    /// Whether the bytes are the same.
    pub(crate) fn has_same_content(&self, other: &Self) -> bool {
        self.etag == other.etag && self.size_bytes == other.size_bytes
    }

    /// How many blocks it has.
    pub(crate) fn blocks(&self) -> u64 {
        self.size_bytes.div_ceil(BLOCK_BYTES)
    }

    /// Bytes of one of its blocks.
    pub(crate) fn block_bytes(&self, block: u64) -> u64 {
        self.size_bytes.saturating_sub(block * BLOCK_BYTES).min(BLOCK_BYTES)
    }

    /// About its size in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let headers = self.headers.iter();
        let header_bytes: usize = headers
            .map(|(name, value)| name.as_str().len() + value.len() + 64)
            .sum();
        size_of::<Self>() + self.etag.len() + header_bytes
    }
}

fn is_of_object(name: &HeaderName) -> bool {
    let is_of_reply = OF_THE_REPLY_PREFIXES
        .iter()
        .any(|prefix| name.as_str().starts_with(prefix));
    !OF_THE_REPLY.contains(name) && !is_of_reply
}

/// The same for every tenant and after every restart, so that cached blocks are found again.
fn content_of(place: &str, etag: &str, size_bytes: u64) -> ContentId {
    let mut hash = Sha256::new();
    hash.update((place.len() as u64).to_le_bytes());
    hash.update(place);
    hash.update(size_bytes.to_le_bytes());
    hash.update(etag);
    let hash = hash.finalize();
    let mut content = ContentId::default();
    content.copy_from_slice(&hash[..16]);
    content
}

/// The verdict of a request's conditions on a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer it.
    Go,
    /// `304`
    NotModified,
    /// `412`
    Failed,
}

/// Judges If-Match, If-None-Match, If-Modified-Since and If-Unmodified-Since of a GET or HEAD.
pub(crate) fn judge(headers: &HeaderMap, object: &Object) -> Verdict {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let date = |name: HeaderName| text(name).and_then(|date| httpdate::parse_http_date(date).ok());
    let modified = object.last_modified;
    if let Some(etags) = text(IF_MATCH) {
        if !matches_any(etags, &object.etag) {
            return Verdict::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(IF_UNMODIFIED_SINCE), modified)
        && modified > since
    {
        return Verdict::Failed;
    }
    if let Some(etags) = text(IF_NONE_MATCH) {
        if matches_any(etags, &object.etag) {
            return Verdict::NotModified;
        }
    } else if let (Some(since), Some(modified)) = (date(IF_MODIFIED_SINCE), modified)
        && modified <= since
    {
        return Verdict::NotModified;
    }
    Verdict::Go
}

/// Whether the `Range` header counts: `If-Range` names this version, or is not there.
pub(crate) fn range_counts(headers: &HeaderMap, object: &Object) -> bool {
    let Some(condition) = headers.get(IF_RANGE) else {
        return true;
    };
    let Ok(condition) = condition.to_str() else {
        return false;
    };
    if condition.contains('"') {
        return condition.trim() == object.etag;
    }
    let date = httpdate::parse_http_date(condition).ok();
    date.is_some() && date == object.last_modified
}

/// Whether a list of entity tags names this one. S3 also takes them without quotes.
fn matches_any(list: &str, etag: &str) -> bool {
    let bare = etag.trim_matches('"');
    let is_it = |one: &str| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one).trim_matches('"') == bare
    };
    list.split(',').any(is_it)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&str, &str)| {
            (
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::try_from(*value).unwrap(),
            )
        };
        pairs.iter().map(header).collect()
    }

    fn object() -> Object {
        let headers = map(&[
            ("etag", "\"abc\""),
            ("content-length", "10"),
            ("last-modified", "Fri, 27 Nov 2026 03:00:00 GMT"),
            ("x-amz-meta-colour", "blue"),
            ("x-amz-request-id", "1"),
            ("x-amz-checksum-crc32", "AAAA"),
        ]);
        Object::of_reply("bucket/key", &headers).unwrap()
    }

    #[test]
    fn a_reply_becomes_an_object() {
        let whole = object();
        assert_eq!((whole.size_bytes, whole.blocks()), (10, 1));
        assert!(whole.headers.contains_key("x-amz-meta-colour"));
        for gone in ["x-amz-request-id", "x-amz-checksum-crc32", "content-length"] {
            assert!(!whole.headers.contains_key(gone), "{gone}");
        }
        let part = map(&[
            ("etag", "\"abc\""),
            ("content-length", "3"),
            ("content-range", "bytes 0-2/10"),
        ]);
        let part = Object::of_reply("bucket/key", &part).unwrap();
        assert!(part.has_same_content(&whole) && part.content == whole.content);
        let other = Object::of_reply("bucket/other", &whole.headers.clone());
        assert!(other.is_none(), "without a length there is no object");
        for broken in [
            vec![("content-length", "10")],
            vec![("etag", "W/\"abc\""), ("content-length", "10")],
            vec![("etag", "\"abc\""), ("content-length", "ten")],
            vec![("etag", "\"abc\""), ("content-range", "bytes */10")],
        ] {
            assert!(Object::of_reply("b/k", &map(&broken)).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn contents_are_told_apart() {
        let id = |place, etag, size| content_of(place, etag, size);
        let all = [
            id("a/b", "\"1\"", 10),
            id("a/c", "\"1\"", 10),
            id("a/b", "\"2\"", 10),
            id("a/b", "\"1\"", 11),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| other != one), "{i}");
        }
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let (before, at, after) = (
            "Fri, 27 Nov 2026 02:59:59 GMT",
            "Fri, 27 Nov 2026 03:00:00 GMT",
            "Fri, 27 Nov 2026 03:00:01 GMT",
        );
        for (headers, verdict) in [
            (vec![], Verdict::Go),
            (vec![("if-match", "\"abc\"")], Verdict::Go),
            (vec![("if-match", "\"x\", \"abc\"")], Verdict::Go),
            (vec![("if-match", "*")], Verdict::Go),
            (vec![("if-match", "abc")], Verdict::Go),
            (vec![("if-match", "\"x\"")], Verdict::Failed),
            (vec![("if-none-match", "\"abc\"")], Verdict::NotModified),
            (vec![("if-none-match", "W/\"abc\"")], Verdict::NotModified),
            (vec![("if-none-match", "\"x\"")], Verdict::Go),
            (vec![("if-modified-since", at)], Verdict::NotModified),
            (vec![("if-modified-since", before)], Verdict::Go),
            (vec![("if-unmodified-since", before)], Verdict::Failed),
            (vec![("if-unmodified-since", after)], Verdict::Go),
            (vec![("if-modified-since", "yesterday")], Verdict::Go),
            // The first of each pair rules.
            (
                vec![("if-match", "\"abc\""), ("if-unmodified-since", before)],
                Verdict::Go,
            ),
            (
                vec![("if-none-match", "\"x\""), ("if-modified-since", after)],
                Verdict::Go,
            ),
        ] {
            assert_eq!(judge(&map(&headers), &object()), verdict, "{headers:?}");
        }
    }

    #[test]
    fn a_range_counts_for_the_version_that_it_names() {
        for (condition, counts) in [
            (None, true),
            (Some("\"abc\""), true),
            (Some("\"x\""), false),
            (Some("W/\"abc\""), false),
            (Some("Fri, 27 Nov 2026 03:00:00 GMT"), true),
            (Some("Fri, 27 Nov 2026 03:00:01 GMT"), false),
            (Some("never"), false),
        ] {
            let headers = condition.map_or_else(HeaderMap::new, |text| map(&[("if-range", text)]));
            assert_eq!(range_counts(&headers, &object()), counts, "{condition:?}");
        }
    }
}
