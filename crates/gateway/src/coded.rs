//! Chunks of stripes between a gateway and a client that codes them itself.
//!
//! A read of bytes within a stripe that says [`ASK`] may be answered with the stripe's chunks in place of the bytes: those that
//! the range touches, or as many as compute them. A PUT that says [`PARITY`] has the parity of each stripe before the
//! stripe. Such requests are S3's in all else: signature, tenant, conditions, version. Whoever does not know these headers answers
//! with bytes. Invariant: of a body with parity, the origin and other gateways get the object's bytes only.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use s3s::{Body, S3Response};
use tidemark_functions::Code;
use tidemark_functions::codec::{Chunks, Parity, chunk_bytes};

use crate::front::{Route, Visit};
use crate::large::STRIPE_BYTES;
use crate::memory::TenantMemory;
use crate::origin::BoxError;
use crate::reply::{ErrorCode, Reply};

/// A read with this header takes chunks in place of bytes.
pub(crate) const ASK: HeaderName = HeaderName::from_static("x-tidemark-chunks");
/// The code of the parity in a PUT's body: `10+2`.
pub(crate) const PARITY: HeaderName = HeaderName::from_static("x-tidemark-parity");
/// The bytes of the object in that body.
pub(crate) const OBJECT_BYTES: HeaderName = HeaderName::from_static("x-tidemark-bytes");
/// How the chunks of an answer are coded; only an answer of chunks and one to [`CODE_QUESTION`] have it.
pub(crate) const CODE: HeaderName = HeaderName::from_static("x-tidemark-code");
/// The bytes of the stripe that an answer's chunks are of.
const STRIPE: HeaderName = HeaderName::from_static("x-tidemark-stripe-bytes");
/// The numbers of the chunks in the order in which they come.
const INDEXES: HeaderName = HeaderName::from_static("x-tidemark-chunk-numbers");
/// The hashes of all chunks of the stripe, in hexadecimal.
const HASHES: HeaderName = HeaderName::from_static("x-tidemark-chunk-hashes");
/// The parameter of the question with which code an object of so many bytes is kept.
pub(crate) const CODE_QUESTION: &str = "tidemark-code";

/// Chunks as an answer has them: its headers, and the pieces of its body.
pub(crate) fn say(headers: &mut HeaderMap, chunks: Chunks) -> Option<Vec<Bytes>> {
    let there = chunks.have.iter().enumerate().filter(|(_, chunk)| chunk.is_some());
    let indexes: Vec<String> = there.map(|(index, _)| index.to_string()).collect();
    let hashes: Vec<String> = chunks.hashes.iter().map(|hash| format!("{hash:016x}")).collect();
    for (name, text) in [
        (CODE, chunks.code.to_string()),
        (STRIPE, chunks.stripe_bytes.to_string()),
        (INDEXES, indexes.join(",")),
        (HASHES, hashes.join(",")),
    ] {
        headers.insert(name, HeaderValue::try_from(text).ok()?);
    }
    Some(chunks.have.into_iter().flatten().collect())
}

/// The chunks of an answer; `None` if they are not what its headers say.
pub(crate) fn hear(headers: &HeaderMap, mut body: Bytes) -> Option<Chunks> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let code: Code = text(CODE)?.parse().ok()?;
    let stripe_bytes: usize = text(STRIPE)?
        .parse()
        .ok()
        .filter(|bytes| *bytes as u64 <= STRIPE_BYTES)?;
    let hashes = text(HASHES)?.split(',').map(|hash| u64::from_str_radix(hash, 16).ok());
    let hashes: Vec<u64> = hashes.collect::<Option<_>>()?;
    let each = chunk_bytes(code, stripe_bytes);
    let mut have = vec![None; code.chunks() as usize];
    for index in text(INDEXES)?.split(',') {
        if body.len() < each {
            return None;
        }
        *have.get_mut(index.parse::<usize>().ok()?)? = Some(body.split_to(each));
    }
    let chunks = Chunks {
        code,
        stripe_bytes,
        hashes: hashes.into(),
        have,
    };
    Some(chunks).filter(|chunks| body.is_empty() && chunks.are_sound())
}

/// Bytes of the parity of a stripe.
fn parity_bytes(code: Code, stripe_bytes: u64) -> u64 {
    u64::from(code.parity()) * chunk_bytes(code, stripe_bytes as usize) as u64
}

/// Bytes of the body of an object with parity; `None` if there is no such object.
pub(crate) fn body_bytes(code: Code, object_bytes: u64) -> Option<u64> {
    let whole = (object_bytes / STRIPE_BYTES).checked_mul(parity_bytes(code, STRIPE_BYTES))?;
    let last = parity_bytes(code, object_bytes % STRIPE_BYTES);
    object_bytes.checked_add(whole)?.checked_add(last)
}

/// The parity of the stripe that is on its way: it comes before the stripe, and is taken with its last byte.
#[derive(Debug, Default)]
pub(crate) struct ParitySlot(Mutex<Option<(u32, Parity)>>);

impl ParitySlot {
    /// That of this stripe, if it is here.
    pub(crate) fn take(&self, stripe: u32) -> Option<Parity> {
        let (number, parity) = self.0.lock().take()?;
        (number == stripe).then_some(parity)
    }
}

/// The object's bytes of a body with parity, which goes into the slot, if there is one.
struct Unframed {
    body: Body,
    code: Code,
    payer: Arc<dyn TenantMemory>,
    slot: Option<Arc<ParitySlot>>,
    /// Bytes of the object in the stripes after this one.
    object_left: u64,
    parity_left: u64,
    stripe_left: u64,
    /// The number of the next stripe.
    number: u32,
    parity: BytesMut,
    rest: Bytes,
}

impl Unframed {
    /// Takes the next bytes that are here: parity, which is kept, or the object's, which are returned.
    fn take(&mut self) -> Option<Bytes> {
        if self.parity_left == 0 && self.stripe_left == 0 {
            self.stripe_left = self.object_left.min(STRIPE_BYTES);
            self.object_left -= self.stripe_left;
            self.parity_left = parity_bytes(self.code, self.stripe_left);
            self.parity.clear();
        }
        if self.parity_left > 0 {
            let part = split(&mut self.rest, &mut self.parity_left);
            self.payer.count(part.len() as u64, 0);
            self.keep(&part);
            return None;
        }
        if self.stripe_left > 0 {
            let part = split(&mut self.rest, &mut self.stripe_left);
            self.number += u32::from(self.stripe_left == 0);
            return Some(part);
        }
        // More than was said: whoever counts the bytes refuses them.
        Some(std::mem::take(&mut self.rest))
    }

    fn keep(&mut self, part: &[u8]) {
        let Some(slot) = &self.slot else { return };
        self.parity.extend_from_slice(part);
        if self.parity_left == 0 {
            let mut rest = self.parity.split().freeze();
            let each = rest.len() / self.code.parity() as usize;
            let chunks = (0..self.code.parity()).map(|_| rest.split_to(each)).collect();
            let parity = Parity {
                code: self.code,
                chunks,
            };
            *slot.0.lock() = Some((self.number, parity));
        }
    }
}

/// Splits off at most so many bytes, which are left no more then.
fn split(bytes: &mut Bytes, left: &mut u64) -> Bytes {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let part = bytes.split_to(most.min(bytes.len()));
    *left -= part.len() as u64;
    part
}

impl HttpBody for Unframed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if !self.rest.is_empty() {
                match self.take() {
                    Some(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    None => continue,
                }
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.rest = bytes,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
    }
}

fn refused(message: &str) -> Reply {
    Reply::error(ErrorCode::InvalidArgument, message)
}

impl Route {
    /// The same request without parity in its body, which goes where its object goes.
    ///
    /// # Errors
    /// It cannot have parity, or its lengths do not fit together.
    pub(crate) fn unframed(&self, mut visit: Visit) -> Result<Visit, Reply> {
        let Some(code) = visit.request.headers.remove(PARITY) else {
            return Ok(visit);
        };
        let code: Option<Code> = code.to_str().ok().and_then(|code| code.parse().ok());
        let code = code.ok_or_else(|| refused("x-tidemark-parity: write DATA+PARITY"))?;
        let is_copy = visit.request.headers.contains_key("x-amz-copy-source");
        if visit.request.method != Method::PUT || !visit.is_plain() || is_copy {
            return Err(refused("only an object that is put as a whole can have parity"));
        }
        let headers = &mut visit.request.headers;
        let number = |value: Option<&HeaderValue>| value?.to_str().ok()?.parse::<u64>().ok();
        let object_bytes = number(headers.get(OBJECT_BYTES));
        let body = number(headers.get(CONTENT_LENGTH));
        let object_bytes = object_bytes.filter(|bytes| body.is_some() && body_bytes(code, *bytes) == body);
        let object_bytes = object_bytes.ok_or_else(|| refused("the body is not as long as its object and parity"))?;
        headers.insert(CONTENT_LENGTH, HeaderValue::from(object_bytes));
        // Parity of another code than the place's is of no use, and would be kept for nothing.
        let is_wanted = self.shared.large.code_of(visit.tenant.as_ref(), object_bytes) == Some(code);
        visit.parity = is_wanted.then(Arc::default);
        let unframed = Unframed {
            body: std::mem::take(&mut visit.request.input),
            code,
            payer: Arc::clone(&visit.tenant),
            slot: visit.parity.clone(),
            object_left: object_bytes,
            parity_left: 0,
            stripe_left: 0,
            number: 0,
            parity: BytesMut::new(),
            rest: Bytes::new(),
        };
        visit.request.input = Body::http_body_unsync(unframed);
        Ok(visit)
    }

    /// Says with which code an object of so many bytes is kept.
    ///
    /// # Errors
    /// The question has no number.
    pub(crate) fn say_code(&self, visit: &Visit) -> Result<S3Response<Body>, Reply> {
        let bytes = visit.parameter(CODE_QUESTION).and_then(|bytes| bytes.parse().ok());
        let bytes = bytes.ok_or_else(|| refused("tidemark-code: write a number of bytes"))?;
        let code = self.shared.large.code_of(visit.tenant.as_ref(), bytes);
        let value = code.and_then(|code| HeaderValue::try_from(code.to_string()).ok());
        let headers = value.into_iter().map(|value| (CODE, value)).collect();
        Ok(Reply::bare(StatusCode::NO_CONTENT, headers).into_response())
    }
}

#[cfg(test)]
mod tests {
    use tidemark_functions::codec::{Rs, encode};

    use super::*;

    fn code(text: &str) -> Code {
        text.parse().unwrap()
    }

    #[test]
    fn chunks_are_heard_as_they_were_said() {
        let (code, codec) = (code("4+2"), Rs::default());
        let stripe: Bytes = (0..100_003_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let all = encode(&codec, code, &stripe).unwrap();
        let hashes: Vec<u64> = all
            .iter()
            .map(|chunk| tidemark_functions::chunk::chunk_hash(chunk))
            .collect();
        let mut chunks = Chunks {
            code,
            stripe_bytes: stripe.len(),
            hashes: hashes.into(),
            have: all.into_iter().map(Some).collect(),
        };
        (chunks.have[0], chunks.have[2]) = (None, None);
        let mut headers = HeaderMap::new();
        let body = Bytes::from(say(&mut headers, chunks.clone()).unwrap().concat());
        let mut heard = hear(&headers, body.clone()).unwrap();
        assert_eq!(heard, chunks);
        heard.compute(&codec, &(0..stripe.len())).unwrap();
        assert_eq!(heard.pieces(&(0..stripe.len())).unwrap().concat(), stripe);

        let mut damaged = body.to_vec();
        damaged[7] ^= 1;
        assert_eq!(hear(&headers, damaged.into()), None);
        assert_eq!(hear(&headers, body.slice(1..)), None);
        for (name, value) in [
            (CODE, "0+2"),
            (CODE, "5+1"),
            (STRIPE, "4194305"),
            (STRIPE, "x"),
            (INDEXES, "1,3,4,6"),
            (INDEXES, "1,3,4"),
            (INDEXES, "3,1,4,5"),
            (HASHES, "1"),
        ] {
            let mut headers = headers.clone();
            headers.insert(name.clone(), HeaderValue::from_static(value));
            assert_eq!(hear(&headers, body.clone()), None, "{name}: {value}");
            headers.remove(&name);
            assert_eq!(hear(&headers, body.clone()), None, "without {name}");
        }
    }

    #[test]
    fn the_length_of_a_body_with_parity_is_known() {
        for (text, object, body) in [
            ("4+2", 0, Some(0)),
            ("4+2", 1, Some(1 + 2 * 64)),
            ("4+2", 4 << 20, Some(6 << 20)),
            ("4+2", (8 << 20) + 4, Some((12 << 20) + 4 + 2 * 64)),
            ("4+0", 9 << 20, Some(9 << 20)),
            ("4+2", u64::MAX, None),
        ] {
            assert_eq!(body_bytes(code(text), object), body, "{text}, {object} bytes");
        }
    }
}
