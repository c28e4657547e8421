//! Objects stripe by stripe, coded in the client.
//!
//! Invariant: all bytes of a read are of one version. The first answer says which, and the others are asked for that one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::header::{CONTENT_RANGE, ETAG, HeaderName, HeaderValue, IF_MATCH};
use hyper::{HeaderMap, Method};
use tidemark_functions::Code;
use tidemark_functions::codec::{CodecError, Parity, Rs};

use super::{Ask, Client, ClientError, READ_BYTES_MAX};
use crate::coded::{ASK, CODE, CODE_QUESTION, OBJECT_BYTES, PARITY, hear};
use crate::large::STRIPE_BYTES;
use crate::range::content_range;

/// Stripes of an object that are asked for at once: while one is computed, others are on their way.
const STRIPES_AT_ONCE: usize = 4;
/// How often a read begins anew because the object has just changed.
const TRIES: usize = 4;
/// Shorter objects are in a tenant's memory: their gateway is not asked for a code.
const CODED_BYTES_MIN: usize = 1 << 20;
/// The status of a condition that does not hold: the object has changed.
const CHANGED: u16 = 412;
/// The status of a range with no byte in it: the object is empty, if it begins with the first one.
const NO_SUCH_BYTE: u16 = 416;

/// The stripes that a client that codes has read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Stripes, or parts of them, that came as chunks.
    pub chunked: u64,
    /// Those of them of which something was computed.
    pub computed: u64,
    /// Stripes, or parts of them, that came as bytes.
    pub plain: u64,
    /// Stripes that were sent with their parity.
    pub with_parity: u64,
}

/// The codec of a client, and its counts.
#[derive(Debug, Default)]
pub(super) struct Coding {
    codec: Arc<Rs>,
    chunked: AtomicU64,
    computed: AtomicU64,
    plain: AtomicU64,
    with_parity: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Coding {
    pub(super) fn counts(&self) -> ClientCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ClientCounts {
            chunked: read(&self.chunked),
            computed: read(&self.computed),
            plain: read(&self.plain),
            with_parity: read(&self.with_parity),
        }
    }

    /// The bytes of a range of a stripe, of an answer of chunks; `None` if they do not give them.
    async fn decode(&self, headers: &HeaderMap, body: Bytes, range: Range<usize>) -> Option<Vec<Bytes>> {
        let (codec, headers) = (Arc::clone(&self.codec), headers.clone());
        let decoding = tokio::task::spawn_blocking(move || {
            let mut chunks = hear(&headers, body)?;
            let is_computed = !chunks.missing(&range).is_empty();
            chunks.compute(codec.as_ref(), &range).ok()?;
            Some((chunks.pieces(&range)?, is_computed))
        });
        let (pieces, is_computed) = decoding.await.ok()??;
        add(&self.chunked, 1);
        add(&self.computed, u64::from(is_computed));
        Some(pieces)
    }
}

/// Bytes of one version that lie in one stripe.
struct Part {
    pieces: Vec<Bytes>,
    range: Range<u64>,
    /// The version's tag, if the answer has one.
    etag: Option<HeaderValue>,
    size_bytes: u64,
}

/// A stripe's end, or that of the wanted bytes.
fn end_of_stripe(start: u64, end: u64) -> u64 {
    (start / STRIPE_BYTES + 1).saturating_mul(STRIPE_BYTES).min(end)
}

impl Client {
    pub(super) async fn get_stripes(
        &self,
        coding: &Coding,
        bucket: &str,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<Bytes, ClientError> {
        for _ in 0..TRIES {
            match self.try_stripes(coding, bucket, key, range.clone()).await {
                Err(ClientError::Refused { status: CHANGED, .. }) => {}
                read => return read,
            }
        }
        Err(ClientError::Unavailable)
    }

    async fn try_stripes(
        &self,
        coding: &Coding,
        bucket: &str,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<Bytes, ClientError> {
        let asked = range.clone().unwrap_or(0..u64::MAX);
        let first = asked.start..end_of_stripe(asked.start, asked.end);
        let first = match self.stripe(coding, bucket, key, first, None).await {
            Err(ClientError::Refused {
                status: NO_SUCH_BYTE, ..
            }) if range.is_none() => {
                return self.get_bytes(bucket, key, None).await;
            }
            first => first?,
        };
        let (end, size_bytes) = (asked.end.min(first.size_bytes), first.size_bytes);
        let wanted_bytes = end.saturating_sub(asked.start);
        if wanted_bytes > READ_BYTES_MAX as u64 {
            return Err(ClientError::TooLong);
        }
        let mut starts = Vec::new();
        let mut next = first.range.end;
        while next < end {
            starts.push(next);
            next = end_of_stripe(next, end);
        }
        let mut parts = vec![first];
        if !starts.is_empty() {
            let Some(etag) = parts[0].etag.clone() else {
                // Nothing tells versions apart: one answer is of one.
                return self.get_bytes(bucket, key, range).await;
            };
            let stripe = |start| self.stripe(coding, bucket, key, start..end_of_stripe(start, end), Some(&etag));
            let rest = stream::iter(starts).map(stripe).buffered(STRIPES_AT_ONCE);
            parts.extend(rest.try_collect::<Vec<_>>().await?);
        }
        let mut read = BytesMut::with_capacity(wanted_bytes as usize);
        for part in &parts {
            let is_next = part.range.start == asked.start + read.len() as u64;
            if !is_next || part.etag != parts[0].etag || part.size_bytes != size_bytes {
                return Err(ClientError::Unavailable);
            }
            part.pieces.iter().for_each(|piece| read.extend_from_slice(piece));
        }
        Ok(read.freeze())
    }

    /// Bytes within a stripe: from its chunks, or else as they are.
    async fn stripe(
        &self,
        coding: &Coding,
        bucket: &str,
        key: &str,
        range: Range<u64>,
        etag: Option<&HeaderValue>,
    ) -> Result<Part, ClientError> {
        for takes_chunks in [true, false] {
            let mut ask = Ask::new(Method::GET, bucket, key).of_bytes(&range)?;
            if takes_chunks {
                ask.headers.insert(ASK, HeaderValue::from_static("yes"));
            }
            if let Some(etag) = etag {
                ask.headers.insert(IF_MATCH, etag.clone());
            }
            let answer = self.send(&ask).await?;
            let said = text(&answer.headers, CONTENT_RANGE).and_then(content_range);
            let (at, size_bytes) = match said {
                Some((at, size)) if at.start == range.start && at.end <= range.end => (at, size),
                // An origin that does not know ranges, behind a gateway that only passes on.
                None if !answer.headers.contains_key(CODE) => {
                    let size = answer.body.len() as u64;
                    (range.start.min(size)..range.end.min(size), size)
                }
                _ => return Err(ClientError::Unavailable),
            };
            let pieces = if answer.headers.contains_key(CODE) {
                let start = at.start / STRIPE_BYTES * STRIPE_BYTES;
                let within = (at.start - start) as usize..(at.end - start) as usize;
                coding.decode(&answer.headers, answer.body, within).await
            } else {
                add(&coding.plain, 1);
                plain(answer.body, &at, said_whole(&answer.headers)).map(|bytes| vec![bytes])
            };
            let etag = answer.headers.get(ETAG).cloned();
            if let Some(pieces) = pieces {
                return Ok(Part {
                    pieces,
                    range: at,
                    etag,
                    size_bytes,
                });
            }
        }
        Err(ClientError::Unavailable)
    }

    /// Adds parity to a write, where its gateway keeps such an object in functions.
    pub(super) async fn add_parity(&self, coding: &Coding, ask: &mut Ask, body: &Bytes) -> Result<(), ClientError> {
        if body.len() < CODED_BYTES_MIN {
            return Ok(());
        }
        let Some(code) = self.code(ask, body.len()).await?.filter(|code| code.parity() > 0) else {
            return Ok(());
        };
        let (codec, body, bytes) = (Arc::clone(&coding.codec), body.clone(), body.len());
        let framing = tokio::task::spawn_blocking(move || framed(&codec, code, &body));
        let Ok(Ok(pieces)) = framing.await else {
            return Ok(());
        };
        let code = HeaderValue::try_from(code.to_string()).map_err(|_| ClientError::Impossible)?;
        ask.headers.insert(PARITY, code);
        ask.headers.insert(OBJECT_BYTES, HeaderValue::from(bytes));
        ask.pieces = pieces;
        add(&coding.with_parity, bytes.div_ceil(STRIPE_BYTES as usize) as u64);
        Ok(())
    }

    /// The code with which an object of so many bytes is kept, if it is kept in functions.
    async fn code(&self, ask: &Ask, bytes: usize) -> Result<Option<Code>, ClientError> {
        let question = Ask {
            question: Some((CODE_QUESTION.into(), bytes.to_string())),
            ..Ask::new(Method::GET, &ask.bucket, &ask.key)
        };
        match self.send(&question).await {
            Ok(answer) => Ok(text(&answer.headers, CODE).and_then(|code| code.parse().ok())),
            // An address that does not know the question.
            Err(ClientError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Whether an answer has the whole object.
fn said_whole(headers: &HeaderMap) -> bool {
    !headers.contains_key(CONTENT_RANGE)
}

/// The bytes of an answer of bytes; `None` if there are not as many as it says.
fn plain(body: Bytes, at: &Range<u64>, is_whole: bool) -> Option<Bytes> {
    if is_whole {
        return Some(body.slice(at.start as usize..at.end as usize));
    }
    (body.len() as u64 == at.end - at.start).then_some(body)
}

/// A body with the parity of each stripe before it.
fn framed(codec: &Rs, code: Code, body: &Bytes) -> Result<Vec<Bytes>, CodecError> {
    let mut pieces = Vec::new();
    for start in (0..body.len()).step_by(STRIPE_BYTES as usize) {
        let stripe = body.slice(start..body.len().min(start + STRIPE_BYTES as usize));
        pieces.extend(Parity::of(codec, code, &stripe)?.chunks);
        pieces.push(stripe);
    }
    Ok(pieces)
}
