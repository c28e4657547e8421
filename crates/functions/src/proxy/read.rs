//! Reading a stripe, or a range of it, from its chunks.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::stats::add;
use super::{Functions, Got, Inner, Job, Reading};
use crate::chunk::{ChunkKey, ContentId, chunk_hash};
use crate::codec::{Chunks, CodecError, chunk_bytes, touched};
use crate::engine::BoxFuture;
use crate::late::Late;
use crate::pool::Stripe;

/// A read that takes longer is given up: the origin is asked.
const READ_PATIENCE: Duration = Duration::from_secs(20);
/// When a chunk counts as late, for all reads.
#[derive(Debug, Default)]
pub(crate) struct Latency(Mutex<Late>);

impl Latency {
    fn learn(&self, took: Duration) {
        self.0.lock().learn(took);
    }

    fn late_after(&self) -> Duration {
        self.0.lock().after()
    }
}

type Ask = BoxFuture<(usize, Got)>;

/// A read under way.
struct Gather<'a> {
    inner: &'a Inner,
    content: ContentId,
    number: u32,
    stripe: &'a Stripe,
    have: Vec<Option<Bytes>>,
    asked: Vec<bool>,
    asks: FuturesUnordered<Ask>,
}

impl Gather<'_> {
    fn key(&self, index: usize) -> ChunkKey {
        ChunkKey::new(self.content, self.number, index as u8, self.stripe.code)
    }

    fn ask(&mut self, index: usize) {
        if std::mem::replace(&mut self.asked[index], true) || !self.stripe.has(index) {
            return;
        }
        let (reply, answer) = oneshot::channel();
        let key = self.key(index);
        if self.inner.ask(self.stripe.homes[index], Job::Get { key, reply }) {
            self.asks.push(Box::pin(
                async move { (index, answer.await.unwrap_or(Got::Unreachable)) },
            ));
        }
    }

    fn ask_all(&mut self) {
        (0..self.have.len()).for_each(|index| self.ask(index));
    }

    /// Takes an answer. Whether the chunk came.
    fn take(&mut self, index: usize, got: Got) -> bool {
        let Got::Value(bytes) = got else {
            return false;
        };
        let expected_bytes = chunk_bytes(self.stripe.code, self.stripe.bytes as usize);
        if bytes.len() != expected_bytes || chunk_hash(&bytes) != self.stripe.hashes[index] {
            add(&self.inner.counts.corrupt_chunks, 1);
            tracing::warn!(chunk = index, "a function returned other bytes than were stored");
            self.inner.pool().lose(&self.key(index));
            return false;
        }
        self.have[index] = Some(bytes);
        true
    }

    fn has_all(&self, wanted: &Range<usize>) -> bool {
        self.have[wanted.clone()].iter().all(Option::is_some)
    }

    fn is_enough(&self) -> bool {
        self.have.iter().flatten().count() >= self.stripe.code.data() as usize
    }

    /// Whether so many chunks may still come that they are enough.
    fn can_be_enough(&self) -> bool {
        let there = self.have.iter().flatten().count() + self.asks.len();
        there >= self.stripe.code.data() as usize
    }

    /// Gets these data chunks, or enough others.
    async fn gather(&mut self, wanted: &Range<usize>, reading: Reading, latency: &Latency) -> bool {
        let began = Instant::now();
        let is_whole = reading == Reading::FirstD || wanted.clone().any(|index| !self.stripe.has(index));
        if is_whole {
            self.ask_all();
        } else {
            wanted.clone().for_each(|index| self.ask(index));
        }
        let mut is_hedged = is_whole;
        let late = tokio::time::sleep(latency.late_after());
        let mut late = std::pin::pin!(late);
        while !self.has_all(wanted) && !self.is_enough() {
            tokio::select! {
                answer = self.asks.next() => match answer {
                    Some((index, got)) => {
                        if self.take(index, got) {
                            latency.learn(began.elapsed());
                        } else {
                            self.ask_all();
                            if !self.can_be_enough() {
                                return false;
                            }
                        }
                    }
                    None => return false,
                },
                () = &mut late, if !is_hedged => {
                    is_hedged = true;
                    add(&self.inner.counts.hedged, 1);
                    self.ask_all();
                }
            }
        }
        true
    }
}

impl Functions {
    /// Bytes of a range of a stripe, in pieces. `None`: they are not there, or not in time.
    pub async fn get(&self, content: ContentId, stripe: u32, range: Range<usize>) -> Option<Vec<Bytes>> {
        let inner = Arc::clone(&self.inner);
        let joined = |chunks, range| async move { Inner::joined(&inner, (content, stripe), chunks, range).await };
        self.read(content, stripe, range, joined).await
    }

    /// The chunks of a range of a stripe as they are stored: those that it touches, or as many as compute them. `None`:
    /// they are not there, or not in time.
    pub async fn get_chunks(&self, content: ContentId, stripe: u32, range: Range<usize>) -> Option<Chunks> {
        let trimmed = |chunks: Chunks, range| async move { Some(chunks.trimmed(&range)) };
        self.read(content, stripe, range, trimmed).await
    }

    /// Gathers chunks, makes what is wanted of them, and counts.
    async fn read<T, F>(
        &self,
        content: ContentId,
        stripe: u32,
        range: Range<usize>,
        make: impl FnOnce(Chunks, Range<usize>) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Option<T>>,
    {
        let permit = Arc::clone(&self.inner.shared.reads).acquire_owned().await.ok()?;
        let placed = self.inner.pool().look(&content, stripe);
        let bytes = range.len() as u64;
        let read = async {
            let placed = placed?;
            let chunks = Inner::chunks(&self.inner, content, stripe, &placed, &range).await?;
            Some((make(chunks, range).await?, placed))
        };
        let read = tokio::time::timeout(READ_PATIENCE, read).await.ok().flatten();
        drop(permit);
        let counts = &self.inner.counts;
        let Some((made, placed)) = read else {
            add(&counts.misses, 1);
            return None;
        };
        add(&counts.hits, 1);
        add(&counts.read_bytes, bytes);
        let is_damaged = self
            .inner
            .pool()
            .look(&content, stripe)
            .is_some_and(|now| now.lost != 0);
        if placed.lost != 0 || is_damaged {
            Inner::repair_later(&self.inner, content, stripe);
        }
        Some(made)
    }

    /// Whether a stripe should be there.
    pub fn has(&self, content: &ContentId, stripe: u32) -> bool {
        self.inner.pool().look(content, stripe).is_some()
    }
}

impl Inner {
    /// Chunks that give the bytes of a range.
    async fn chunks(
        this: &Arc<Self>,
        content: ContentId,
        number: u32,
        stripe: &Stripe,
        range: &Range<usize>,
    ) -> Option<Chunks> {
        let stripe_bytes = stripe.bytes as usize;
        if range.is_empty() || range.end > stripe_bytes {
            return None;
        }
        let wanted = touched(stripe.code, stripe_bytes, range);
        Some(Chunks {
            code: stripe.code,
            stripe_bytes,
            hashes: Arc::clone(&stripe.hashes),
            have: Self::gathered(this, content, number, stripe, &wanted).await?,
        })
    }

    /// The bytes of a range, of which lost chunks are computed.
    async fn joined(
        this: &Arc<Self>,
        (content, stripe): (ContentId, u32),
        mut chunks: Chunks,
        range: Range<usize>,
    ) -> Option<Vec<Bytes>> {
        if chunks.missing(&range).is_empty() {
            return chunks.pieces(&range);
        }
        add(&this.counts.decoded, 1);
        let codec = Arc::clone(&this.shared.codec);
        let computing = move || {
            let computed = chunks.compute(codec.as_ref(), &range);
            computed.map(|()| chunks.pieces(&range))
        };
        let computed = tokio::task::spawn_blocking(computing).await.ok()?;
        if computed == Err(CodecError::Damaged) {
            add(&this.counts.corrupt_chunks, 1);
            // Parity that a client computed wrongly. The stripe is stored anew when it is filled.
            this.pool().forget_stripe(content, stripe);
        }
        computed.ok().flatten()
    }

    /// Chunks of a stripe: all those that are wanted, or enough to compute them.
    pub(crate) async fn gathered(
        this: &Arc<Self>,
        content: ContentId,
        number: u32,
        stripe: &Stripe,
        wanted: &Range<usize>,
    ) -> Option<Vec<Option<Bytes>>> {
        let chunks = stripe.code.chunks() as usize;
        let mut gather = Gather {
            inner: this,
            content,
            number,
            stripe,
            have: vec![None; chunks],
            asked: vec![false; chunks],
            asks: FuturesUnordered::new(),
        };
        let is_there = gather
            .gather(wanted, this.shared.config.reading, &this.counts.latency)
            .await;
        is_there.then_some(gather.have)
    }
}
