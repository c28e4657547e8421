//! GET and HEAD of an object: from memory, from blocks on their way, or from the origin as they come.
//!
//! Invariant: all bytes of a reply are of one version. Blocks are found by the version's content, and every request to
//! the origin names the version. A reply whose version is gone ends early instead of going on with another one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, HeaderName, HeaderValue, RANGE};
use hyper::{HeaderMap, Method, Response, StatusCode};
use s3s::{Body, S3Response};

use crate::coded;
use crate::config::Freshness;
use crate::fill::{self, BLOCKS_PER_FILL, Claim, Job, Slot, block_key, body_of, get_range, range_header};
use crate::large::{Pieces, STRIPE_BYTES};
use crate::object::{BLOCK_BYTES, Object, Verdict, judge, range_counts};
use crate::origin::{BoxError, OriginRequest, short_reply};
use crate::range::{Asked, Unsatisfiable};
use crate::reply::{ErrorCode, Reply};
use crate::shared::Shared;
use crate::versions::{Fault, Outcome, Question, Turn, age, wait};

/// How often a read begins anew because the object has just changed.
const TRIES: usize = 4;
/// Which place the first bytes were in.
pub(crate) const PLACE_HEADER: &str = "x-tidemark-cache";

/// A read of one object for one tenant.
#[derive(Clone)]
pub(crate) struct Read {
    /// The state that all requests share.
    pub(crate) shared: Arc<Shared>,
    /// The source, and the tenant that it is for.
    pub(crate) job: Job,
    /// The request's.
    pub(crate) headers: Arc<HeaderMap>,
    /// Whether only the head is wanted.
    pub(crate) is_head: bool,
}

/// The source of a reply's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Memory,
    Large,
    Fill,
    Origin,
}

impl Read {
    pub(crate) async fn answer(self) -> S3Response<Body> {
        for _ in 0..TRIES {
            match self.attempt().await {
                Ok(response) => return response,
                Err(Fault::Changed) => {}
                Err(Fault::Reply(reply)) => return Reply::clone(&reply).explained().into_response(),
            }
        }
        Reply::error(ErrorCode::ServiceUnavailable, "the object changes too fast to be read").into_response()
    }

    async fn attempt(&self) -> Result<S3Response<Body>, Fault> {
        let asked = Asked::parse(self.header(&RANGE));
        let object = self.version(asked).await?;
        self.judged(asked, object, None).await
    }

    /// Answers with a version that is known to be current. Its bytes are `whole`, or have to be found; `place` says where they
    /// were.
    pub(crate) async fn of_version(
        &self,
        object: Arc<Object>,
        whole: Option<Bytes>,
        place: &'static str,
    ) -> Result<S3Response<Body>, Fault> {
        let asked = Asked::parse(self.header(&RANGE));
        self.judged(asked, object, whole.map(|whole| (whole, place))).await
    }

    async fn judged(
        &self,
        asked: Asked,
        object: Arc<Object>,
        whole: Option<(Bytes, &'static str)>,
    ) -> Result<S3Response<Body>, Fault> {
        match judge(&self.headers, &object) {
            Verdict::Go => {}
            Verdict::NotModified => {
                return Ok(Reply::bare(StatusCode::NOT_MODIFIED, object.headers.clone()).into_response());
            }
            Verdict::Failed => {
                let message = "at least one of the conditions does not hold";
                return Ok(Reply::error(ErrorCode::PreconditionFailed, message).into_response());
            }
        }
        let asked = if range_counts(&self.headers, &object) {
            asked
        } else {
            Asked::Whole
        };
        match asked.of(object.size_bytes) {
            Ok(range) => self.bytes(object, range, whole).await,
            Err(Unsatisfiable) => {
                let mut reply = Reply::error(ErrorCode::InvalidRange, "the object has no byte in this range");
                insert(
                    &mut reply.headers,
                    CONTENT_RANGE,
                    &format!("bytes */{}", object.size_bytes),
                );
                Ok(reply.into_response())
            }
        }
    }

    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The reply with these bytes; `None`: all of them.
    async fn bytes(
        &self,
        object: Arc<Object>,
        range: Option<Range<u64>>,
        whole: Option<(Bytes, &'static str)>,
    ) -> Result<S3Response<Body>, Fault> {
        let mut headers = object.headers.clone();
        let (status, bytes) = match range {
            Some(range) => {
                let (first, last, size) = (range.start, range.end - 1, object.size_bytes);
                insert(&mut headers, CONTENT_RANGE, &format!("bytes {first}-{last}/{size}"));
                (StatusCode::PARTIAL_CONTENT, range)
            }
            None => (StatusCode::OK, 0..object.size_bytes),
        };
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.end - bytes.start));
        let mut response = S3Response::with_status(Body::empty(), status);
        if self.is_head || bytes.is_empty() {
            response.headers = headers;
            return Ok(response);
        }
        if let Some((whole, place)) = whole {
            headers.insert(PLACE_HEADER, HeaderValue::from_static(place));
            let bytes = whole.slice(bytes.start as usize..bytes.end as usize);
            self.job.memory.count(0, bytes.len() as u64);
            self.shared.stats.served(place != "store", bytes.len() as u64);
            response.output = Body::from(bytes);
            response.headers = headers;
            return Ok(response);
        }
        if let Some(body) = self.chunks(&object, &bytes, &mut headers).await {
            headers.insert(PLACE_HEADER, HeaderValue::from_static("functions"));
            response.output = body;
            response.headers = headers;
            return Ok(response);
        }
        let mut reader = Reader::new(self.clone(), object, bytes);
        // The status is decided by the first bytes.
        let (piece, from) = reader.first().await?;
        let place = match from {
            Source::Memory => "memory",
            Source::Large => "functions",
            Source::Fill => "fill",
            Source::Origin => "origin",
        };
        headers.insert(PLACE_HEADER, HeaderValue::from_static(place));
        let state = (Some(piece), reader);
        let pieces = stream::unfold(state, |(ahead, mut reader)| async move {
            let piece = match ahead {
                Some(piece) => Ok(piece),
                None => reader.next().await?,
            };
            Some((piece.map(Frame::data), (None, reader)))
        });
        response.output = Body::http_body_unsync(StreamBody::new(pieces));
        response.headers = headers;
        Ok(response)
    }

    /// Chunks in place of bytes, where the client takes them and they are there.
    async fn chunks(&self, object: &Object, bytes: &Range<u64>, headers: &mut HeaderMap) -> Option<Body> {
        self.headers.get(coded::ASK)?;
        let memory = self.job.memory.as_ref();
        let (chunks, permit) = self.shared.large.read_chunks(memory, object, bytes).await?;
        let pieces = coded::say(headers, chunks)?;
        let sent: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(sent));
        memory.count(0, sent);
        self.shared.stats.large_bytes.fetch_add(sent, Ordering::Relaxed);
        // Counted as on their way until the last one has gone.
        let pieces = stream::unfold((pieces.into_iter(), permit), |(mut pieces, permit)| async move {
            let piece = pieces.next()?;
            Some((Ok::<_, BoxError>(Frame::data(piece)), (pieces, permit)))
        });
        Some(Body::http_body_unsync(StreamBody::new(pieces)))
    }

    /// The object's current version, as fresh as its bucket wants it.
    async fn version(&self, asked: Asked) -> Outcome {
        let shared = &self.shared;
        let freshness = shared.origins.freshness(&self.job.origin);
        let known = shared.versions.get(&self.job.place);
        if let Some(known) = &known
            && freshness.covers(age(known, Instant::now()))
        {
            return Ok(Arc::clone(&known.object));
        }
        loop {
            match shared.versions.turn(&self.job.place) {
                Turn::Wait(answer) => {
                    // Without freshness, only an answer that was asked for after this request came counts.
                    let outcome = wait(answer).await;
                    if let Some(outcome) = outcome.filter(|_| !is_never(freshness)) {
                        return outcome;
                    }
                    if is_never(freshness) {
                        return self.ask_alone(known.as_ref().map(|known| &known.object)).await;
                    }
                }
                Turn::Ask(question) => {
                    let this = self.clone();
                    let known = known.map(|known| known.object);
                    // Others wait for the answer, so that it comes even if this client leaves.
                    let asked = tokio::spawn(async move { this.ask(question, known, asked).await });
                    let gone = || Fault::from(Reply::error(ErrorCode::ServiceUnavailable, "try again"));
                    return asked.await.unwrap_or_else(|_| Err(gone()));
                }
            }
        }
    }

    /// Asks the origin, answers those who wait, and has the first blocks filled where they come with the answer.
    async fn ask(&self, question: Question, known: Option<Arc<Object>>, asked: Asked) -> Outcome {
        self.shared.stats.origin_questions.fetch_add(1, Ordering::Relaxed);
        // From here on it holds: the answer may be older than when it comes.
        let since = Instant::now();
        let first = asked.first_byte().filter(|_| !self.is_head && known.is_none());
        let outcome = match first {
            Some(first) => match self.ask_with_blocks(self.first_block(first)).await {
                Ok((object, filling)) => {
                    // Claimed before anybody hears of the version: all wait for this fill.
                    question.answer(Ok(Arc::clone(&object)), since);
                    if let Some((claim, answer)) = filling {
                        self.shared
                            .fills
                            .start(self.job.clone(), Arc::clone(&object), claim, Some(answer));
                    }
                    return Ok(object);
                }
                Err(Some(fault)) => Err(fault),
                Err(None) => self.ask_alone(None).await,
            },
            None => self.ask_alone(known.as_ref()).await,
        };
        question.answer(outcome.clone(), since);
        outcome
    }

    /// The block that a fill begins with: the first of its stripe where large objects are kept in stripes.
    fn first_block(&self, first: u64) -> u64 {
        let block = first / BLOCK_BYTES;
        if self.shared.large.is_there() {
            block - block % BLOCKS_PER_FILL
        } else {
            block
        }
    }

    /// Asks by a HEAD. Cached blocks of a known version stay.
    async fn ask_alone(&self, known: Option<&Arc<Object>>) -> Outcome {
        // Without a condition: an answer of 304 would not say what else changed of the object than its bytes.
        let request = OriginRequest::read(Method::HEAD, &format!("/{}", self.job.place), HeaderMap::new());
        let answer = self.job.client.read(&self.job.origin, request).await;
        let answer = answer.map_err(|error| Fault::from(error.reply()))?;
        match (answer.status(), known) {
            (StatusCode::OK, known) => {
                let object = self.object_of(&answer)?;
                // Bytes that were put there under a name of their own are still the same.
                let content = known
                    .filter(|known| known.has_same_content(&object))
                    .map(|known| known.content);
                Ok(Arc::new(Object {
                    content: content.unwrap_or(object.content),
                    ..object
                }))
            }
            _ => Err(short_reply(answer).await.explained().into()),
        }
    }

    /// Asks by a GET of a few blocks. `Err(None)`: it has to be asked otherwise.
    async fn ask_with_blocks(
        &self,
        first: u64,
    ) -> Result<(Arc<Object>, Option<(Claim, Response<hyper::body::Incoming>)>), Option<Fault>> {
        let start = first.checked_mul(BLOCK_BYTES).ok_or(None)?;
        let end = start.checked_add(BLOCKS_PER_FILL * BLOCK_BYTES).ok_or(None)?;
        let headers = range_header(start..end)?;
        let request = OriginRequest::read(Method::GET, &format!("/{}", self.job.place), headers);
        let answer = self.job.client.read(&self.job.origin, request).await;
        let answer = answer.map_err(|error| Fault::from(error.reply()))?;
        match answer.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                let object = Arc::new(self.object_of(&answer)?);
                let blocks = object.blocks().saturating_sub(first).min(BLOCKS_PER_FILL);
                let claim = self.shared.fills.claim(object.content, first, blocks);
                Ok((object, claim.map(|claim| (claim, answer))))
            }
            // An empty object has no range, and one that is shorter has not this one.
            StatusCode::RANGE_NOT_SATISFIABLE => Err(None),
            _ => Err(Some(short_reply(answer).await.explained().into())),
        }
    }

    fn object_of(&self, answer: &Response<hyper::body::Incoming>) -> Result<Object, Fault> {
        let object = Object::of_reply(&self.job.place, answer.headers());
        let found = object.map(|object| Object {
            content: self.shared.large.content_of(object.content),
            ..object
        });
        found.ok_or_else(|| {
            let message = "the origin does not say which version of the object it has";
            Fault::from(Reply::error(ErrorCode::ServiceUnavailable, message))
        })
    }
}

fn ended_early() -> Fault {
    Reply::error(ErrorCode::ServiceUnavailable, "the origin's answer ended early").into()
}

fn is_never(freshness: Freshness) -> bool {
    freshness == Freshness::For(std::time::Duration::ZERO)
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(name, value);
    }
}

/// Bytes of one version, piece by piece.
struct Reader {
    read: Read,
    object: Arc<Object>,
    next: u64,
    end: u64,
    /// The block that was fetched last: if the next one of the same fill is gone when it is wanted, memory does not keep it.
    fetched: Option<Range<u64>>,
    /// The rest of the body, straight from the origin: memory has no room for it.
    direct: Option<fill::Body>,
    /// The next pieces, from the place for large objects.
    pieces: Option<Pieces>,
    /// The pieces after those.
    ahead: Option<tokio::task::JoinHandle<Option<Pieces>>>,
}

impl Reader {
    fn new(read: Read, object: Arc<Object>, bytes: Range<u64>) -> Self {
        Self {
            read,
            object,
            next: bytes.start,
            end: bytes.end,
            fetched: None,
            direct: None,
            pieces: None,
            ahead: None,
        }
    }

    async fn first(&mut self) -> Result<(Bytes, Source), Fault> {
        self.piece().await
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        if self.next == self.end {
            return None;
        }
        match self.piece().await {
            Ok((bytes, _)) => Some(Ok(bytes)),
            Err(fault) => {
                if matches!(fault, Fault::Changed) {
                    self.read
                        .shared
                        .versions
                        .forget_version(&self.read.job.place, &self.object);
                }
                // The connection breaks, and the client sees that it has not got everything.
                self.end = self.next;
                Some(Err("the rest of the object can not be had".into()))
            }
        }
    }

    async fn piece(&mut self) -> Result<(Bytes, Source), Fault> {
        let found = self.find().await;
        let stats = &self.read.shared.stats;
        match &found {
            Ok((bytes, from)) => {
                self.next += bytes.len() as u64;
                self.read.job.memory.count(0, bytes.len() as u64);
                match from {
                    Source::Large => {
                        stats.large_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    }
                    _ => stats.served(*from == Source::Memory, bytes.len() as u64),
                }
            }
            Err(Fault::Changed) => self
                .read
                .shared
                .versions
                .forget_version(&self.read.job.place, &self.object),
            Err(Fault::Reply(_)) => {}
        }
        found
    }

    async fn find(&mut self) -> Result<(Bytes, Source), Fault> {
        if self.direct.is_some() {
            return self.find_directly().await;
        }
        if let Some(piece) = self.pieces.as_mut().and_then(Pieces::next) {
            return Ok((piece, Source::Large));
        }
        let block = self.next / BLOCK_BYTES;
        let (fills, content) = (self.read.shared.fills.clone(), self.object.content);
        // Fills on their way come first: a fill puts a block into memory before it ends.
        if let Some(waiting) = fills.waiting(content, block) {
            return self.await_block(block, waiting).await;
        }
        if self.is_large() {
            return self.find_large(block).await;
        }
        if let Some(bytes) = self.find_in_memory(block).await {
            self.read_ahead(block + 1);
            return Ok((bytes, Source::Memory));
        }
        if self.is_left() || self.fetched.as_ref().is_some_and(|fetched| fetched.contains(&block)) {
            return self.find_directly().await;
        }
        let last = (self.end - 1) / BLOCK_BYTES;
        match fills.claim(content, block, (last + 1 - block).min(BLOCKS_PER_FILL)) {
            Some(claim) => {
                let waiting = claim.waiting();
                self.fetched = Some(block..last.min(block + BLOCKS_PER_FILL - 1) + 1);
                let (job, object) = (self.read.job.clone(), Arc::clone(&self.object));
                fills.start(job, object, claim, None);
                self.await_block(block, waiting).await
            }
            None => match fills.waiting(content, block) {
                Some(waiting) => self.await_block(block, waiting).await,
                None => self.find_directly().await,
            },
        }
    }

    fn is_large(&self) -> bool {
        self.read
            .shared
            .large
            .place_of(self.read.job.memory.as_ref(), self.object.size_bytes)
            .is_some()
    }

    fn is_left(&self) -> bool {
        let (large, memory) = (&self.read.shared.large, self.read.job.memory.as_ref());
        large.is_left_at_origin(memory, self.object.size_bytes)
    }

    /// A stripe from the place for large objects, or by a fill of all of it.
    async fn find_large(&mut self, block: u64) -> Result<(Bytes, Source), Fault> {
        let large = self.read.shared.large.clone();
        self.pieces = None;
        let found = match self.ahead.take() {
            Some(ahead) => ahead.await.ok().flatten(),
            None => {
                large
                    .read(self.read.job.memory.as_ref(), &self.object, self.next, self.end)
                    .await
            }
        };
        self.pieces = found;
        if let Some(piece) = self.pieces.as_mut().and_then(Pieces::next) {
            let after = (self.next / STRIPE_BYTES + 1) * STRIPE_BYTES;
            if after < self.end {
                self.ahead = large.read_ahead(&self.read.job.memory, &self.object, after, self.end);
            }
            return Ok((piece, Source::Large));
        }
        let (fills, content) = (self.read.shared.fills.clone(), self.object.content);
        let first = block - block % BLOCKS_PER_FILL;
        let most = (self.object.blocks() - first).min(BLOCKS_PER_FILL);
        if let Some(claim) = fills.claim(content, first, most) {
            fills.start(self.read.job.clone(), Arc::clone(&self.object), claim, None);
        }
        match fills.waiting(content, block) {
            Some(waiting) => self.await_block(block, waiting).await,
            None => self.find_directly().await,
        }
    }

    /// The range of wanted bytes within a block.
    fn within(&self, block: u64) -> Range<usize> {
        let start = block * BLOCK_BYTES;
        let end = self.end.min(start + self.object.block_bytes(block));
        (self.next - start) as usize..(end - start) as usize
    }

    async fn find_in_memory(&self, block: u64) -> Option<Bytes> {
        let (memory, key) = (&self.read.job.memory, block_key(self.object.content, block));
        let permit = self.read.shared.permit(memory.id()).await;
        let bytes = memory.read(&key, self.object.block_bytes(block) as usize, self.within(block))?;
        Some(Bytes::from_owner(Counted(bytes, permit)))
    }

    async fn await_block(
        &mut self,
        block: u64,
        mut waiting: tokio::sync::watch::Receiver<Slot>,
    ) -> Result<(Bytes, Source), Fault> {
        let slot = waiting.wait_for(|slot| !matches!(slot, Slot::Pending)).await;
        let ready = match slot.as_deref() {
            Ok(Slot::Ready(ready)) => ready.clone(),
            Ok(Slot::Failed(fault)) => return Err(fault.clone()),
            Ok(Slot::Pending) | Err(_) => return Err(ended_early()),
        };
        // Another tenant's fill has put it into that one's memory.
        let (memory, key) = (&self.read.job.memory, block_key(self.object.content, block));
        if !self.is_large() && !self.is_left() && !memory.has(&key) {
            memory.write(&key, &ready.bytes);
        }
        let bytes = ready.bytes.slice(self.within(block));
        if self.fetched.as_ref().is_some_and(|fetched| fetched.end == block + 1) {
            self.read_ahead(block + 1);
        }
        Ok((Bytes::from_owner(Counted(bytes, ready)), Source::Fill))
    }

    /// Has the blocks that come next fetched while this one is being sent.
    fn read_ahead(&mut self, block: u64) {
        if self.is_large() || self.is_left() {
            return;
        }
        let last = (self.end - 1) / BLOCK_BYTES;
        let fills = self.read.shared.fills.clone();
        let is_wanted = block <= last && fills.has_room() && fills.waiting(self.object.content, block).is_none();
        if !is_wanted || self.read.job.memory.has(&block_key(self.object.content, block)) {
            return;
        }
        let most = (last + 1 - block).min(BLOCKS_PER_FILL);
        if let Some(claim) = fills.claim(self.object.content, block, most) {
            self.fetched = Some(block..block + most);
            fills.start(self.read.job.clone(), Arc::clone(&self.object), claim, None);
        }
    }

    async fn find_directly(&mut self) -> Result<(Bytes, Source), Fault> {
        let body = match &mut self.direct {
            Some(body) => body,
            None => {
                let answer = get_range(&self.read.job, &self.object, self.next..self.end).await?;
                self.direct.insert(body_of(answer, &self.object, self.next).await?)
            }
        };
        let most = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let piece = body.piece(most).await.map_err(|error| Fault::from(error.reply()))?;
        if piece.is_empty() {
            return Err(ended_early());
        }
        Ok((piece, Source::Origin))
    }
}

/// Bytes on their way to a client, counted.
struct Counted<P>(Bytes, P);

impl<P> AsRef<[u8]> for Counted<P> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
