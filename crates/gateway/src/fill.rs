//! Blocks on their way from the origin: each is fetched once, however many wait for it.
//!
//! A *fill* fetches a few consecutive blocks of one version with one request. It puts each into the memory of the
//! tenant that asked first, and hands it to all that wait. It ends by itself when those that wait have gone; its blocks
//! are cached.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use hyper::header::{ETAG, HeaderValue, IF_MATCH, RANGE};
use hyper::{HeaderMap, Method, Response, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::config::Origin;
use crate::large::{Large, STRIPE_BYTES, stripe_of};
use crate::memory::TenantMemory;
use crate::object::{BLOCK_BYTES, ContentId, Object};
use crate::origin::{OriginClient, OriginError, OriginRequest, next_piece, short_reply};
use crate::range::content_range;
use crate::reply::{ErrorCode, Reply};
use crate::versions::Fault;

/// Blocks that one request fetches: fewer cost more requests, more keep more memory.
pub(crate) const BLOCKS_PER_FILL: u64 = 4;
/// Fills under way, which may hold all of their blocks: 128 MiB.
const FILLS_MAX: usize = 32;

/// A block, or its state.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// On its way.
    Pending,
    /// Here. It is counted as long as somebody has it.
    Ready(Block),
    /// It does not come.
    Failed(Fault),
}

/// Bytes that are counted as under way.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The block.
    pub(crate) bytes: Bytes,
    _counted: Arc<OwnedSemaphorePermit>,
}

type Waiting = watch::Receiver<Slot>;
type Table = Mutex<HashMap<(ContentId, u64), Waiting>>;

/// All fills under way.
#[derive(Clone, Debug)]
pub(crate) struct Fills {
    table: Arc<Table>,
    permits: Arc<Semaphore>,
    large: Large,
}

/// The blocks to fetch, which nobody else fetches meanwhile. Dropped, it gives up those that have not come.
#[derive(Debug)]
pub(crate) struct Claim {
    table: Arc<Table>,
    content: ContentId,
    /// Its first block.
    first: u64,
    slots: Vec<watch::Sender<Slot>>,
}

/// The source of a fill, and the tenant that it is for.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) client: OriginClient,
    /// The origin of the bucket.
    pub(crate) origin: Origin,
    /// `bucket/key`
    pub(crate) place: Arc<str>,
    /// The memory in which blocks are put.
    pub(crate) memory: Arc<dyn TenantMemory>,
}

impl Fills {
    /// None are under way. Whole stripes of large objects are put into `large`, all else into the tenant's memory.
    pub(crate) fn new(large: Large) -> Self {
        Self {
            table: Arc::default(),
            permits: Arc::new(Semaphore::new(FILLS_MAX)),
            large,
        }
    }

    /// Waits for a block that is on its way; `None` if it is not.
    pub(crate) fn waiting(&self, content: ContentId, block: u64) -> Option<Waiting> {
        self.table.lock().get(&(content, block)).cloned()
    }

    /// Claims blocks from `first` on, at most `most` and up to the first one that somebody else has claimed; `None` if that
    /// is the first.
    pub(crate) fn claim(&self, content: ContentId, first: u64, most: u64) -> Option<Claim> {
        let mut table = self.table.lock();
        let mut slots = Vec::new();
        for block in first..first + most {
            if table.contains_key(&(content, block)) {
                break;
            }
            let (sender, waiting) = watch::channel(Slot::Pending);
            table.insert((content, block), waiting);
            slots.push(sender);
        }
        drop(table);
        (!slots.is_empty()).then(|| Claim {
            table: Arc::clone(&self.table),
            content,
            first,
            slots,
        })
    }

    /// Has a claim fetched in the background. `answer` is the origin's, if it was asked already.
    pub(crate) fn start(&self, job: Job, object: Arc<Object>, claim: Claim, answer: Option<Response<Incoming>>) {
        let (permits, large) = (Arc::clone(&self.permits), self.large.clone());
        tokio::spawn(async move {
            let Ok(permit) = permits.acquire_owned().await else {
                return;
            };
            claim.fill(&job, &object, answer, &Arc::new(permit), &large).await;
        });
    }

    /// Whether a fill could begin at once.
    pub(crate) fn has_room(&self) -> bool {
        self.permits.available_permits() > FILLS_MAX / 2
    }

    /// Blocks that are being waited for.
    pub(crate) fn pending(&self) -> usize {
        self.table.lock().len()
    }
}

impl Claim {
    /// Waits for its first block.
    pub(crate) fn waiting(&self) -> Waiting {
        self.slots[0].subscribe()
    }

    /// The bytes of the object that it is for.
    fn range(&self, object: &Object) -> std::ops::Range<u64> {
        let start = self.first * BLOCK_BYTES;
        start..object.size_bytes.min(start + self.slots.len() as u64 * BLOCK_BYTES)
    }

    async fn fill(
        &self,
        job: &Job,
        object: &Object,
        answer: Option<Response<Incoming>>,
        permit: &Arc<OwnedSemaphorePermit>,
        large: &Large,
    ) {
        if let Err(fault) = self.fetch(job, object, answer, permit, large).await {
            let pending = self.slots.iter().filter(|slot| matches!(*slot.borrow(), Slot::Pending));
            pending.for_each(|slot| drop(slot.send_replace(Slot::Failed(fault.clone()))));
        }
    }

    async fn fetch(
        &self,
        job: &Job,
        object: &Object,
        answer: Option<Response<Incoming>>,
        permit: &Arc<OwnedSemaphorePermit>,
        large: &Large,
    ) -> Result<(), Fault> {
        let range = self.range(object);
        let answer = match answer {
            Some(answer) => answer,
            None => get_range(job, object, range.clone()).await?,
        };
        let mut body = body_of(answer, object, range.start).await?;
        let place = large.place_of(job.memory.as_ref(), object.size_bytes);
        let mut stripe = place.map(|_| BytesMut::new());
        let is_left = large.is_left_at_origin(job.memory.as_ref(), object.size_bytes);
        for (slot, block) in self.slots.iter().zip(self.first..) {
            let bytes = object.block_bytes(block) as usize;
            let bytes = body.take(bytes).await.map_err(|error| Fault::from(error.reply()))?;
            match &mut stripe {
                Some(stripe) => stripe.extend_from_slice(&bytes),
                None if is_left => {}
                None => {
                    job.memory.write(&block_key(object.content, block), &bytes);
                }
            }
            slot.send_replace(Slot::Ready(Block {
                bytes,
                _counted: Arc::clone(permit),
            }));
        }
        if let (Some(place), Some(stripe)) = (place, stripe)
            && range.start.is_multiple_of(STRIPE_BYTES)
            && range.end - range.start == (object.size_bytes - range.start).min(STRIPE_BYTES)
        {
            let number = stripe_of(range.start);
            place.write(
                job.memory.as_ref(),
                object.content,
                object.size_bytes,
                number,
                stripe.freeze(),
                None,
            );
            // A place that lost all of an object has forgotten the name of its content.
            let name = object.name(&job.place);
            if name != object.content {
                place.name(name, object.content);
            }
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        for block in (self.first..).take(self.slots.len()) {
            table.remove(&(self.content, block));
        }
    }
}

/// The key that a block is cached under: three bytes that no text begins with, the content and the block's number.
pub(crate) fn block_key(content: ContentId, block: u64) -> [u8; 27] {
    let mut key = [0; 27];
    key[..3].copy_from_slice(b"\xffs3");
    key[3..19].copy_from_slice(&content);
    key[19..].copy_from_slice(&block.to_be_bytes());
    key
}

/// Asks the origin for bytes of this version and no other.
///
/// # Errors
/// The origin does not answer. [`body_of`] looks at a response.
pub(crate) async fn get_range(
    job: &Job,
    object: &Object,
    range: std::ops::Range<u64>,
) -> Result<Response<Incoming>, Fault> {
    let mut headers = range_header(range)?;
    if let Ok(etag) = HeaderValue::try_from(&object.etag) {
        headers.insert(IF_MATCH, etag);
    }
    let request = OriginRequest::read(Method::GET, &format!("/{}", job.place), headers);
    let answer = job.client.read(&job.origin, request).await;
    answer.map_err(|error| Fault::from(error.reply()))
}

/// `Range: bytes=FIRST-LAST`
///
/// # Errors
/// Never.
pub(crate) fn range_header(range: std::ops::Range<u64>) -> Result<HeaderMap, Fault> {
    let text = format!("bytes={}-{}", range.start, range.end - 1);
    let value = HeaderValue::try_from(text).map_err(|_| Fault::from(OriginError::Impossible.reply()))?;
    Ok([(RANGE, value)].into_iter().collect())
}

/// The body of an answer that has bytes of this version from `start` on.
///
/// # Errors
/// It has not: the object has changed, or the answer is another one.
pub(crate) async fn body_of(answer: Response<Incoming>, object: &Object, start: u64) -> Result<Body, Fault> {
    let status = answer.status();
    if status == StatusCode::PRECONDITION_FAILED || status == StatusCode::NOT_FOUND {
        return Err(Fault::Changed);
    }
    if !status.is_success() {
        return Err(short_reply(answer).await.explained().into());
    }
    let text = |name: &str| answer.headers().get(name)?.to_str().ok();
    if text(ETAG.as_str()) != Some(&object.etag) {
        return Err(Fault::Changed);
    }
    let at = match text("content-range").map(content_range) {
        Some(Some((range, size))) if size == object.size_bytes => range.start,
        // An origin that does not know ranges answers with everything.
        None if status == StatusCode::OK => 0,
        _ => return Err(Fault::Changed),
    };
    let mut body = Body {
        incoming: answer.into_body(),
        rest: Bytes::new(),
    };
    if at > start {
        return Err(Reply::error(ErrorCode::ServiceUnavailable, "the origin answered with other bytes").into());
    }
    body.skip(start - at)
        .await
        .map_err(|error| Fault::from(error.reply()))?;
    Ok(body)
}

/// A body that is read in the lengths that one wants.
#[derive(Debug)]
pub(crate) struct Body {
    incoming: Incoming,
    rest: Bytes,
}

impl Body {
    /// The next piece, of at most so many bytes; empty at the end.
    ///
    /// # Errors
    /// The origin stalls or breaks.
    pub(crate) async fn piece(&mut self, most: usize) -> Result<Bytes, OriginError> {
        while self.rest.is_empty() {
            match next_piece(&mut self.incoming).await? {
                Some(piece) => self.rest = piece,
                None => return Ok(Bytes::new()),
            }
        }
        let bytes = self.rest.len().min(most);
        Ok(self.rest.split_to(bytes))
    }

    async fn skip(&mut self, mut bytes: u64) -> Result<(), OriginError> {
        while bytes > 0 {
            let most = usize::try_from(bytes).unwrap_or(usize::MAX);
            let piece = self.piece(most).await?;
            if piece.is_empty() {
                return Err(OriginError::Unreachable);
            }
            bytes -= piece.len() as u64;
        }
        Ok(())
    }

    /// Exactly so many bytes in one piece.
    async fn take(&mut self, bytes: usize) -> Result<Bytes, OriginError> {
        let mut taken = BytesMut::new();
        while taken.len() < bytes {
            let piece = self.piece(bytes - taken.len()).await?;
            if piece.is_empty() {
                return Err(OriginError::Unreachable);
            }
            if taken.is_empty() {
                taken.reserve(bytes);
            }
            taken.extend_from_slice(&piece);
        }
        Ok(taken.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_claimed_once() {
        let fills = Fills::new(Large::default());
        let claim = fills.claim([1; 16], 2, 3).unwrap();
        assert_eq!(claim.slots.len(), 3);
        for (block, is_claimed) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
            assert_eq!(fills.waiting([1; 16], block).is_some(), is_claimed, "{block}");
        }
        assert!(fills.claim([1; 16], 3, 2).is_none());
        // Up to the blocks that are claimed already.
        let before = fills.claim([1; 16], 0, 9).unwrap();
        assert_eq!((before.first, before.slots.len()), (0, 2));
        assert!(fills.claim([2; 16], 2, 1).is_some(), "another content");
        let waiting = claim.waiting();
        drop(claim);
        assert!(fills.waiting([1; 16], 2).is_none());
        assert!(waiting.has_changed().is_err(), "who waits sees that it does not come");
        drop(before);
        assert_eq!(fills.pending(), 0);
    }

    #[test]
    fn keys_are_told_apart() {
        let keys = [block_key([1; 16], 0), block_key([1; 16], 1), block_key([2; 16], 0)];
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
    }
}
