//! The door to a place for large objects beside tenants' memory. All else in this crate knows [`LargePlace`] only.
//!
//! Such a place keeps *stripes*: the bytes of a version from a multiple of [`STRIPE_BYTES`] on. It may lose them at any
//! time. Returned bytes are those that were written under that content and number.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tidemark_functions::Code;
use tidemark_functions::codec::{Chunks, Parity};

use crate::access::Placing;
use crate::fill::BLOCKS_PER_FILL;
use crate::memory::TenantMemory;
use crate::object::{BLOCK_BYTES, ContentId, Object};
use crate::permits::{Permit, Permits};

/// Bytes of a stripe: one fill.
pub const STRIPE_BYTES: u64 = BLOCKS_PER_FILL * BLOCK_BYTES;
/// Stripes that are on their way to clients: 256 MiB. A client that does not read holds one, and one more while there is room.
const SENT_STRIPES_MAX: usize = 64;

/// Bytes in pieces, when they are there.
pub type Reading = Pin<Box<dyn Future<Output = Option<Vec<Bytes>>> + Send>>;

/// Chunks of a stripe, when they are there.
pub type ReadingChunks = Pin<Box<dyn Future<Output = Option<Chunks>> + Send>>;

/// A place for large objects.
pub trait LargePlace: Send + Sync + 'static {
    /// The cheapest place for an object of a tenant with so many bytes: here, in memory, or nowhere but at the origin.
    fn cheapest(&self, payer: &dyn TenantMemory, size_bytes: u64) -> Placing;

    /// A range of a stripe, which lies within it; `None` if it cannot be had there.
    fn read(&self, payer: &dyn TenantMemory, content: [u8; 16], stripe: u32, range: Range<usize>) -> Reading;

    /// The chunks of such a range as they lie there: those that it touches, or as many as compute them.
    fn read_chunks(
        &self,
        payer: &dyn TenantMemory,
        content: [u8; 16],
        stripe: u32,
        range: Range<usize>,
    ) -> ReadingChunks;

    /// Whether a stripe is likely to be there, where the tenant's are.
    fn has(&self, payer: &dyn TenantMemory, content: &[u8; 16], stripe: u32) -> bool;

    /// The code of a tenant's objects with so many bytes.
    fn code(&self, payer: &dyn TenantMemory, object_bytes: u64) -> Option<Code>;

    /// Keeps a stripe of an object with so many bytes, if there is room; returns at once. Whether it is taken. A client may
    /// have computed its `parity`.
    fn write(
        &self,
        payer: &dyn TenantMemory,
        content: [u8; 16],
        object_bytes: u64,
        stripe: u32,
        bytes: Bytes,
        parity: Option<Parity>,
    ) -> bool;

    /// Remembers that a version whose content is `name` was written under another content.
    fn name(&self, name: [u8; 16], content: [u8; 16]);

    /// The content under which that of a version was written, if it is another one.
    fn named(&self, name: &[u8; 16]) -> Option<[u8; 16]>;

    /// Lets go of an object, whichever tenants have it.
    fn forget(&self, content: &[u8; 16]);
}

/// The place, if there is one, and the reads on their way from it.
#[derive(Clone)]
pub(crate) struct Large {
    place: Option<Arc<dyn LargePlace>>,
    sent: Arc<Permits>,
}

impl fmt::Debug for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Large")
            .field("is_there", &self.place.is_some())
            .finish_non_exhaustive()
    }
}

impl Default for Large {
    fn default() -> Self {
        Self::new(None)
    }
}

/// Pieces of a stripe on their way to a client, counted.
#[derive(Debug)]
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    _permit: Permit,
}

impl Pieces {
    /// The next one.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        self.pieces.pop_front()
    }
}

impl Large {
    pub(crate) fn new(place: Option<Arc<dyn LargePlace>>) -> Self {
        Self {
            place,
            sent: Arc::new(Permits::new(SENT_STRIPES_MAX)),
        }
    }

    /// The content of a version that the origin has just named.
    pub(crate) fn content_of(&self, name: ContentId) -> ContentId {
        let named = self.place.as_ref().and_then(|place| place.named(&name));
        named.unwrap_or(name)
    }

    /// Whether there is one at all.
    pub(crate) fn is_there(&self) -> bool {
        self.place.is_some()
    }

    /// The place, if a tenant's object belongs there.
    pub(crate) fn place_of(&self, payer: &dyn TenantMemory, size_bytes: u64) -> Option<&Arc<dyn LargePlace>> {
        let fits = size_bytes > 0 && size_bytes.div_ceil(STRIPE_BYTES) <= u64::from(u32::MAX);
        let place = self.place.as_ref().filter(|_| fits)?;
        (self.placing(payer, size_bytes) == Placing::Functions).then_some(place)
    }

    /// Whether a tenant's object is kept nowhere.
    pub(crate) fn is_left_at_origin(&self, payer: &dyn TenantMemory, size_bytes: u64) -> bool {
        self.placing(payer, size_bytes) == Placing::Origin
    }

    fn placing(&self, payer: &dyn TenantMemory, size_bytes: u64) -> Placing {
        match (payer.place(), &self.place) {
            (Placing::Auto, Some(place)) => place.cheapest(payer, size_bytes),
            (placing, _) => placing,
        }
    }

    /// The code of a tenant's object with so many bytes, if it belongs there.
    pub(crate) fn code_of(&self, payer: &dyn TenantMemory, size_bytes: u64) -> Option<Code> {
        self.place_of(payer, size_bytes)?.code(payer, size_bytes)
    }

    /// The chunks of a range that lies in one stripe, if they are there; waits for its turn.
    pub(crate) async fn read_chunks(
        &self,
        payer: &dyn TenantMemory,
        object: &Object,
        range: &Range<u64>,
    ) -> Option<(Chunks, Permit)> {
        let place = self.place_of(payer, object.size_bytes)?;
        let stripe = stripe_of(range.start);
        let start = u64::from(stripe) * STRIPE_BYTES;
        let stripe_bytes = (object.size_bytes - start).min(STRIPE_BYTES);
        if range.end > start + stripe_bytes || !place.has(payer, &object.content, stripe) {
            return None;
        }
        let permit = self.sent.wait(payer.id()).await?;
        let range = (range.start - start) as usize..(range.end - start) as usize;
        let chunks = place.read_chunks(payer, object.content, stripe, range).await?;
        (chunks.stripe_bytes as u64 == stripe_bytes).then_some((chunks, permit))
    }

    /// Reads the bytes from `next` up to `end` that lie in the same stripe; waits for its turn.
    pub(crate) async fn read(&self, payer: &dyn TenantMemory, object: &Object, next: u64, end: u64) -> Option<Pieces> {
        let place = self.place_of(payer, object.size_bytes)?;
        let permit = self.sent.wait(payer.id()).await?;
        Self::read_with(place, payer, permit, object, next, end).await
    }

    /// The same in the background, if there is room at once.
    pub(crate) fn read_ahead(
        &self,
        payer: &Arc<dyn TenantMemory>,
        object: &Arc<Object>,
        next: u64,
        end: u64,
    ) -> Option<tokio::task::JoinHandle<Option<Pieces>>> {
        let place = Arc::clone(self.place_of(payer.as_ref(), object.size_bytes)?);
        if !place.has(payer.as_ref(), &object.content, stripe_of(next)) {
            return None;
        }
        let permit = self.sent.take(payer.id())?;
        let (object, payer) = (Arc::clone(object), Arc::clone(payer));
        Some(tokio::spawn(async move {
            Self::read_with(&place, payer.as_ref(), permit, &object, next, end).await
        }))
    }

    async fn read_with(
        place: &Arc<dyn LargePlace>,
        payer: &dyn TenantMemory,
        permit: Permit,
        object: &Object,
        next: u64,
        end: u64,
    ) -> Option<Pieces> {
        let stripe = stripe_of(next);
        let start = u64::from(stripe) * STRIPE_BYTES;
        let range = (next - start) as usize..(end.min(start + STRIPE_BYTES) - start) as usize;
        let bytes = range.len();
        let pieces = place.read(payer, object.content, stripe, range).await?;
        let is_right = pieces.iter().map(Bytes::len).sum::<usize>() == bytes;
        is_right.then(|| Pieces {
            pieces: pieces.into(),
            _permit: permit,
        })
    }
}

/// The stripe that a byte is in.
pub(crate) fn stripe_of(at: u64) -> u32 {
    u32::try_from(at / STRIPE_BYTES).unwrap_or(u32::MAX)
}
