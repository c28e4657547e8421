//! A body on its way from a client to the origin: checked, held back by one piece until all of it is, and cached.
//!
//! Invariant: the origin gets the last piece only if the body is as long as was said and all of its checksums are right. One
//! that is not ends in an error before it, so that the origin never has it whole.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::{Body, TrailingHeaders};
use tokio::time::Sleep;

use crate::chunked::TOO_LARGE;
use crate::coded::ParitySlot;
use crate::fill::block_key;
use crate::large::{LargePlace, STRIPE_BYTES};
use crate::memory::TenantMemory;
use crate::object::{BLOCK_BYTES, ContentId};
use crate::origin::{BoxError, Progress};
use crate::reply::{ErrorCode, Reply};

/// A client that sends nothing for so long is not waited for.
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);
/// Beside that, a client that sends fewer bytes in a second of waiting for it holds a connection to the origin too long.
const LEAST_RATE: u64 = 4 << 10;
/// The size of chunks in which a body with a checksum behind it is passed on.
const CHUNK_BYTES: usize = 64 << 10;

/// The checksums that S3 knows, by the header that has them, with the length of one in base64.
const CHECKSUMS: [(&str, usize); 5] = [
    ("x-amz-checksum-crc32", 8),
    ("x-amz-checksum-crc32c", 8),
    ("x-amz-checksum-crc64nvme", 12),
    ("x-amz-checksum-sha1", 28),
    ("x-amz-checksum-sha256", 44),
];

/// The client's promise about a body.
pub(crate) struct Promise {
    /// Its length.
    pub(crate) bytes: u64,
    /// Checksums by header, in base64, that came before it.
    sums: Vec<(&'static str, String)>,
    /// The checksum that comes behind it.
    trailer: Option<&'static str>,
    md5: Option<String>,
}

impl Promise {
    /// The promise of the headers.
    ///
    /// # Errors
    /// They promise something that cannot be checked.
    pub(crate) fn read(headers: &HeaderMap, bytes: u64) -> Result<Self, Reply> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let sums = CHECKSUMS
            .iter()
            .filter_map(|(name, _)| Some((*name, text(name)?.to_owned())));
        let trailer = match text("x-amz-trailer") {
            None => None,
            Some(asked) => {
                let known = CHECKSUMS
                    .iter()
                    .find(|(name, _)| asked.trim().eq_ignore_ascii_case(name));
                let unknown = || Reply::error(ErrorCode::NotImplemented, "x-amz-trailer: only one checksum is known");
                Some(known.ok_or_else(unknown)?.0)
            }
        };
        Ok(Self {
            bytes,
            sums: sums.collect(),
            trailer,
            md5: text("content-md5").map(str::to_owned),
        })
    }

    /// The header of the checksum that comes behind the body.
    pub(crate) fn trailer(&self) -> Option<&'static str> {
        self.trailer
    }

    /// The length of the body sent to the origin.
    pub(crate) fn sent_bytes(&self) -> u64 {
        let Some(trailer) = self.trailer else { return self.bytes };
        let chunk = CHUNK_BYTES as u64;
        let framed = |bytes: u64| format!("{bytes:x}").len() as u64 + 4 + bytes;
        let last = self.bytes % chunk;
        let last_bytes = if last == 0 { 0 } else { framed(last) };
        let sum_bytes = CHECKSUMS
            .iter()
            .find(|(name, _)| *name == trailer)
            .map_or(0, |(_, bytes)| *bytes);
        let trailer_bytes = trailer.len() + 1 + sum_bytes + 2;
        self.bytes / chunk * framed(chunk) + last_bytes + 3 + trailer_bytes as u64 + 2
    }

    fn hasher(&self) -> ChecksumHasher {
        let wants = |name: &str| self.trailer == Some(name) || self.sums.iter().any(|(sum, _)| *sum == name);
        ChecksumHasher {
            crc32: wants("x-amz-checksum-crc32").then(s3s::crypto::Crc32::new),
            crc32c: wants("x-amz-checksum-crc32c").then(s3s::crypto::Crc32c::new),
            crc64nvme: wants("x-amz-checksum-crc64nvme").then(s3s::crypto::Crc64Nvme::new),
            sha1: wants("x-amz-checksum-sha1").then(s3s::crypto::Sha1::new),
            sha256: wants("x-amz-checksum-sha256").then(s3s::crypto::Sha256::new),
        }
    }
}

/// Keeps a body as it goes by, under a name that nobody else has: in memory, or in the place for large objects.
pub(crate) struct Tee {
    memory: Arc<dyn TenantMemory>,
    /// In stripes, if it is the place for large objects: how many bytes the object has.
    large: Option<(Arc<dyn LargePlace>, u64)>,
    /// Each stripe's parity, if the client computes it.
    parity: Option<Arc<ParitySlot>>,
    content: ContentId,
    number: u64,
    bytes: BytesMut,
    is_kept: bool,
}

impl Tee {
    /// Nothing yet.
    pub(crate) fn new(
        memory: Arc<dyn TenantMemory>,
        large: Option<(Arc<dyn LargePlace>, u64)>,
        content: ContentId,
    ) -> Self {
        Self {
            memory,
            large,
            parity: None,
            content,
            number: 0,
            bytes: BytesMut::new(),
            is_kept: true,
        }
    }

    /// With the parity that comes with the body.
    pub(crate) fn with_parity(self, parity: Option<Arc<ParitySlot>>) -> Self {
        Self { parity, ..self }
    }

    fn piece_bytes(&self) -> usize {
        let bytes = if self.large.is_some() {
            STRIPE_BYTES
        } else {
            BLOCK_BYTES
        };
        bytes as usize
    }

    fn take(&mut self, mut piece: &[u8]) {
        while self.is_kept && !piece.is_empty() {
            let room = self.piece_bytes() - self.bytes.len();
            let (now, later) = piece.split_at(room.min(piece.len()));
            self.bytes.extend_from_slice(now);
            piece = later;
            if self.bytes.len() == self.piece_bytes() {
                self.put();
            }
        }
    }

    fn put(&mut self) {
        self.is_kept = match &self.large {
            Some((place, object_bytes)) => {
                let (stripe, bytes) = (self.number as u32, self.bytes.split().freeze());
                let parity = self.parity.as_ref().and_then(|parity| parity.take(stripe));
                let memory = self.memory.as_ref();
                place.write(memory, self.content, *object_bytes, stripe, bytes, parity)
            }
            None => self.memory.write(&block_key(self.content, self.number), &self.bytes),
        };
        self.number += 1;
        self.bytes.clear();
    }

    fn finish(&mut self) {
        if self.is_kept && !self.bytes.is_empty() {
            self.put();
        }
    }
}

/// How slowly a client may send.
#[derive(Debug)]
struct Pace {
    /// How long it may send nothing.
    patience: Duration,
    /// Bytes in a second of waiting for it.
    least_rate: u64,
    waited: Duration,
    /// Since when it is waited for.
    since: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            patience: CLIENT_PATIENCE,
            least_rate: LEAST_RATE,
            waited: Duration::ZERO,
            since: None,
        }
    }
}

impl Pace {
    fn waits(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// Something came, after which so many bytes are there: how long the next may take.
    fn moved(&mut self, received_bytes: u64) -> Duration {
        self.waited += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let earned = Duration::from_secs_f64(received_bytes as f64 / self.least_rate as f64);
        (self.patience + earned).saturating_sub(self.waited).min(self.patience)
    }
}

/// Why a body was not passed on; shared with the code that answers the client.
pub(crate) type Verdict = Arc<Mutex<Option<Reply>>>;

/// See the module.
pub(crate) struct Upload {
    body: Body,
    promise: Promise,
    trailers: Option<TrailingHeaders>,
    hasher: Option<ChecksumHasher>,
    md5: Option<Md5>,
    tee: Option<Tee>,
    /// Counts the bytes.
    payer: Option<Arc<dyn TenantMemory>>,
    received_bytes: u64,
    /// Not framed yet: less than a chunk.
    unframed: BytesMut,
    /// Ready to be sent; the last one stays until the end is known.
    ready: VecDeque<Bytes>,
    is_over: bool,
    pace: Pace,
    patience: Pin<Box<Sleep>>,
    progress: Progress,
    verdict: Verdict,
}

impl Upload {
    /// Wraps a body with this promise.
    pub(crate) fn new(body: Body, promise: Promise, trailers: Option<TrailingHeaders>, tee: Option<Tee>) -> Self {
        Self {
            hasher: Some(promise.hasher()),
            md5: promise.md5.as_ref().map(|_| Md5::new()),
            body,
            promise,
            trailers,
            tee,
            payer: None,
            received_bytes: 0,
            unframed: BytesMut::new(),
            ready: VecDeque::new(),
            is_over: false,
            pace: Pace::default(),
            patience: Box::pin(tokio::time::sleep(CLIENT_PATIENCE)),
            progress: Progress::default(),
            verdict: Verdict::default(),
        }
    }

    /// Has a tenant count its bytes.
    pub(crate) fn counted_by(self, payer: Arc<dyn TenantMemory>) -> Self {
        Self {
            payer: Some(payer),
            ..self
        }
    }

    /// When a piece of it last moved.
    pub(crate) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The place where it tells why it ended, if it did not end well.
    pub(crate) fn verdict(&self) -> Verdict {
        Arc::clone(&self.verdict)
    }

    fn receive(&mut self, piece: Bytes) -> Result<(), Reply> {
        // An empty piece would push out the one that is held back.
        if piece.is_empty() {
            return Ok(());
        }
        self.received_bytes += piece.len() as u64;
        if self.received_bytes > self.promise.bytes {
            return Err(Reply::error(
                ErrorCode::IncompleteBody,
                "the body is longer than was said",
            ));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&piece);
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(&piece);
        }
        if let Some(payer) = &self.payer {
            payer.count(piece.len() as u64, 0);
        }
        if let Some(tee) = &mut self.tee {
            tee.take(&piece);
        }
        if self.promise.trailer.is_none() {
            self.ready.push_back(piece);
            return Ok(());
        }
        self.unframed.extend_from_slice(&piece);
        while self.unframed.len() >= CHUNK_BYTES {
            let chunk = self.unframed.split_to(CHUNK_BYTES);
            self.ready.push_back(frame(&chunk));
        }
        Ok(())
    }

    /// The end has come: is it right? Frames the rest.
    fn finish(&mut self) -> Result<(), Reply> {
        self.is_over = true;
        if self.received_bytes != self.promise.bytes {
            return Err(Reply::error(
                ErrorCode::IncompleteBody,
                "the body is shorter than was said",
            ));
        }
        let computed = self.check_sums()?;
        if let (Some(md5), Some(promised)) = (self.md5.take(), &self.promise.md5)
            && STANDARD.encode(md5.finalize()) != *promised
        {
            return Err(Reply::error(
                ErrorCode::BadDigest,
                "Content-MD5 is not that of the body",
            ));
        }
        if let Some(trailer) = self.promise.trailer {
            let mut end = BytesMut::new();
            if !self.unframed.is_empty() {
                let rest = self.unframed.split();
                end.extend_from_slice(&frame(&rest));
            }
            end.extend_from_slice(format!("0\r\n{trailer}:{computed}\r\n\r\n").as_bytes());
            self.ready.push_back(end.freeze());
        }
        if let Some(tee) = &mut self.tee {
            tee.finish();
        }
        Ok(())
    }

    /// Compares all checksums; the one that comes behind the body, as it was computed.
    fn check_sums(&mut self) -> Result<String, Reply> {
        let wrong = |name: &str| Reply::error(ErrorCode::BadDigest, &format!("{name} is not that of the body"));
        let sums = self.hasher.take().unwrap_or_default().finalize();
        let computed = |name: &str| match name {
            "x-amz-checksum-crc32" => sums.checksum_crc32.clone(),
            "x-amz-checksum-crc32c" => sums.checksum_crc32c.clone(),
            "x-amz-checksum-crc64nvme" => sums.checksum_crc64nvme.clone(),
            "x-amz-checksum-sha1" => sums.checksum_sha1.clone(),
            _ => sums.checksum_sha256.clone(),
        };
        for (name, promised) in &self.promise.sums {
            if computed(name).as_ref() != Some(promised) {
                return Err(wrong(name));
            }
        }
        let Some(trailer) = self.promise.trailer else {
            return Ok(String::new());
        };
        let came = self.trailers.as_ref().and_then(TrailingHeaders::take);
        let came = came.as_ref().and_then(|trailers| trailers.get(trailer)?.to_str().ok());
        let computed = computed(trailer).unwrap_or_default();
        if came.map(str::trim) != Some(&computed) {
            return Err(wrong(trailer));
        }
        Ok(computed)
    }

    fn fail(&mut self, reply: Reply) -> BoxError {
        self.is_over = true;
        self.ready.clear();
        *self.verdict.lock() = Some(reply);
        "the client's body is not passed on".into()
    }
}

/// A chunk as `aws-chunked` has it.
fn frame(chunk: &[u8]) -> Bytes {
    let mut framed = BytesMut::from(format!("{:x}\r\n", chunk.len()).as_bytes());
    framed.extend_from_slice(chunk);
    framed.extend_from_slice(b"\r\n");
    framed.freeze()
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            let held_back = usize::from(!this.is_over);
            if this.ready.len() > held_back {
                this.progress.note();
                return Poll::Ready(this.ready.pop_front().map(|piece| Ok(Frame::data(piece))));
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                    let patience = this.pace.moved(this.received_bytes + bytes);
                    this.patience.as_mut().reset(tokio::time::Instant::now() + patience);
                    if let Ok(piece) = frame.into_data()
                        && let Err(reply) = this.receive(piece)
                    {
                        return Poll::Ready(Some(Err(this.fail(reply))));
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(this.fail(broken(&error))))),
                Poll::Ready(None) => {
                    if let Err(reply) = this.finish() {
                        return Poll::Ready(Some(Err(this.fail(reply))));
                    }
                }
                Poll::Pending => {
                    this.pace.waits();
                    if this.patience.as_mut().poll(cx).is_ready() {
                        let reply = Reply::error(
                            ErrorCode::RequestTimeout,
                            "nothing was sent for a minute, or too little",
                        );
                        return Poll::Ready(Some(Err(this.fail(reply))));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The reply to a body that cannot be read: the signature of a chunk, or the hash of all, was wrong, a chunk was too long, or the
/// client went away.
fn broken(error: &BoxError) -> Reply {
    let mut cause: Option<&dyn std::error::Error> = Some(error.as_ref());
    let mut text = String::new();
    while let Some(error) = cause {
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.contains(TOO_LARGE) {
        return Reply::error(ErrorCode::EntityTooLarge, TOO_LARGE);
    }
    let text = text.to_lowercase();
    if text.contains("checksum") || text.contains("mismatch") || text.contains("signature") {
        return Reply::error(ErrorCode::BadDigest, "the body is not what was signed");
    }
    Reply::error(ErrorCode::IncompleteBody, "the body ended early")
}

/// Whether a whole body is as promised.
///
/// # Errors
/// It is not.
pub(crate) async fn verify(body: Bytes, headers: &HeaderMap, trailers: Option<TrailingHeaders>) -> Result<(), Reply> {
    let promise = Promise::read(headers, body.len() as u64)?;
    read_to_end(Upload::new(Body::from(body), promise, trailers, None)).await
}

/// Reads a body of which nothing is passed on.
///
/// # Errors
/// It is not as promised.
pub(crate) async fn read_to_end(upload: Upload) -> Result<(), Reply> {
    let verdict = upload.verdict();
    let collected = upload.collect().await;
    let unknown = || Reply::error(ErrorCode::IncompleteBody, "the body ended early");
    let failed = |_| verdict.lock().take().unwrap_or_else(unknown);
    collected.map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    /// Sends a body with these headers through; the origin's input, or the client's reply.
    fn check(headers: &[(&'static str, &'static str)], bytes: u64, body: &'static str) -> Result<String, String> {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let promise = Promise::read(&headers, bytes).map_err(|reply| code(&reply))?;
            let upload = Upload::new(Body::from(body.to_owned()), promise, None, None);
            let verdict = upload.verdict();
            let collected = upload.collect().await;
            match collected {
                Ok(sent) => Ok(String::from_utf8(sent.to_bytes().to_vec()).unwrap()),
                Err(_) => Err(code(verdict.lock().as_ref().unwrap())),
            }
        })
    }

    fn code(reply: &Reply) -> String {
        let body = String::from_utf8(reply.body.to_vec()).unwrap();
        let (_, behind) = body.split_once("<Code>").unwrap();
        behind.split_once("</Code>").unwrap().0.to_owned()
    }

    #[test]
    fn a_body_arrives_if_it_is_what_was_promised() {
        let good = Ok("hello".to_owned());
        for (headers, bytes, result) in [
            (vec![], 5, good.clone()),
            (vec![("content-md5", "XUFAKrxLKna5cZ2REBfFkg==")], 5, good.clone()),
            (vec![("x-amz-checksum-crc32", "NhCmhg==")], 5, good.clone()),
            (
                vec![("x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=")],
                5,
                good.clone(),
            ),
            (vec![], 6, Err("IncompleteBody".to_owned())),
            (vec![], 4, Err("IncompleteBody".to_owned())),
            (
                vec![("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")],
                5,
                Err("BadDigest".to_owned()),
            ),
            (
                vec![("x-amz-checksum-crc32", "AAAAAA==")],
                5,
                Err("BadDigest".to_owned()),
            ),
            (
                vec![("x-amz-trailer", "x-amz-checksum-crc32")],
                5,
                Err("BadDigest".to_owned()),
            ),
            (vec![("x-amz-trailer", "x-other")], 5, Err("NotImplemented".to_owned())),
        ] {
            assert_eq!(check(&headers, bytes, "hello"), result, "{headers:?}, {bytes} bytes");
        }
    }

    #[test]
    fn the_length_of_chunks_is_known_before() {
        for bytes in [
            0_usize,
            1,
            15,
            16,
            CHUNK_BYTES - 1,
            CHUNK_BYTES,
            CHUNK_BYTES + 1,
            3 * CHUNK_BYTES,
        ] {
            for (trailer, sum_bytes) in CHECKSUMS {
                let mut framed = 0;
                for chunk in vec![0; bytes].chunks(CHUNK_BYTES) {
                    framed += frame(chunk).len();
                }
                framed += format!("0\r\n{trailer}:{}\r\n\r\n", "A".repeat(sum_bytes)).len();
                let promise = Promise {
                    bytes: bytes as u64,
                    sums: Vec::new(),
                    trailer: Some(trailer),
                    md5: None,
                };
                assert_eq!(promise.sent_bytes(), framed as u64, "{bytes} bytes, {trailer}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_drips_is_not_waited_for() {
        let drip = |patience, least_rate| async move {
            let drops = futures_util::stream::unfold(0, |count| async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let drop = Frame::data(Bytes::from_static(b"x"));
                (count < 100).then(|| (Ok::<_, BoxError>(drop), count + 1))
            });
            let body = Body::http_body_unsync(http_body_util::StreamBody::new(drops));
            let promise = Promise::read(&HeaderMap::new(), 100).unwrap();
            let mut upload = Upload::new(body, promise, None, None);
            upload.pace.patience = patience;
            upload.pace.least_rate = least_rate;
            read_to_end(upload).await
        };
        // Each drop comes in time, but the hundred take half a second at least.
        let slow = drip(Duration::from_millis(200), 1 << 20).await.unwrap_err();
        assert!(
            String::from_utf8_lossy(&slow.body).contains("RequestTimeout"),
            "{slow:?}"
        );
        drip(Duration::from_secs(20), 1).await.unwrap();
    }

    #[test]
    fn bytes_earn_time() {
        let mut pace = Pace::default();
        assert_eq!(pace.moved(0), CLIENT_PATIENCE);
        pace.waited = CLIENT_PATIENCE + Duration::from_secs(7);
        assert_eq!(pace.moved(0), Duration::ZERO);
        assert_eq!(pace.moved(10 * LEAST_RATE), Duration::from_secs(3));
        assert_eq!(pace.moved(1000 * LEAST_RATE), CLIENT_PATIENCE);
    }
}
