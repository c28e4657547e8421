//! Writing a stripe, putting back lost chunks of one, and moving chunks to other functions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::stats::add;
use super::{Functions, Got, Inner, Job};
use crate::Code;
use crate::chunk::{ChunkKey, ContentId, chunk_hash};
use crate::codec::{Parity, StripeCodec, encode};
use crate::pool::Move;

/// A write that takes longer is given up: the stripe is not there.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// How often the lost chunks of a stripe are looked for, and computed, one time after another.
pub const REPAIR_TRIES: usize = 3;

impl Functions {
    /// Stores a stripe of an object of so many bytes, and says whether it can be read now. A stored stripe is not
    /// written again.
    pub async fn put(&self, content: ContentId, object_bytes: u64, stripe: u32, bytes: Bytes) -> bool {
        self.put_coded(content, object_bytes, stripe, bytes, None).await
    }

    /// The same where somebody else may have computed its parity. Parity of another code than the pool's is computed anew.
    pub async fn put_coded(
        &self,
        content: ContentId,
        object_bytes: u64,
        stripe: u32,
        bytes: Bytes,
        parity: Option<Parity>,
    ) -> bool {
        let Ok(_permit) = Arc::clone(&self.inner.shared.writes).acquire_owned().await else {
            return false;
        };
        Inner::write(&self.inner, content, object_bytes, stripe, bytes, parity).await
    }

    /// The code of objects with so many bytes.
    pub fn code(&self, object_bytes: u64) -> Option<Code> {
        self.inner
            .shared
            .config
            .codes
            .of(object_bytes, self.inner.members.len())
    }
}

impl Inner {
    async fn write(
        this: &Arc<Self>,
        content: ContentId,
        object_bytes: u64,
        number: u32,
        bytes: Bytes,
        parity: Option<Parity>,
    ) -> bool {
        let code = this.shared.config.codes.of(object_bytes, this.members.len());
        let (Some(code), Ok(stripe_bytes)) = (code, u32::try_from(bytes.len())) else {
            return false;
        };
        let placed = this.pool().place(content, code, number, stripe_bytes);
        let Some(placement) = placed else {
            return false;
        };
        // Whatever happens from here on, the place is given back or committed.
        let mut placing = Placing {
            inner: this,
            content,
            number,
            is_done: false,
        };
        add(&this.counts.evicted, placement.evicted.len() as u64);
        let (codec, code) = (Arc::clone(&this.shared.codec), placement.code);
        let coded = tokio::task::spawn_blocking(move || coded(codec.as_ref(), code, &bytes, parity)).await;
        let Ok(Some((chunks, hashes))) = coded else {
            return false;
        };
        let homes = placement
            .homes
            .iter()
            .zip(chunks)
            .zip(hashes.iter().copied())
            .enumerate();
        let stores = homes.map(|(index, ((&home, chunk), hash))| {
            let key = ChunkKey::new(content, number, index as u8, code);
            this.store(home, key, hash, chunk)
        });
        let stored = join_all(stores).await;
        let lost = stored
            .iter()
            .enumerate()
            .fold(0, |lost, (index, is_there)| lost | (u64::from(!*is_there) << index));
        placing.is_done = true;
        if !this.pool().commit(content, number, Arc::clone(&hashes), lost) {
            return false;
        }
        this.remember(content, number);
        add(&this.counts.written_stripes, 1);
        add(&this.counts.written_bytes, u64::from(stripe_bytes));
        true
    }

    /// Gives a function a chunk. Whether it holds it.
    async fn store(&self, home: u16, key: ChunkKey, hash: u64, bytes: Bytes) -> bool {
        let (reply, answer) = oneshot::channel();
        let job = Job::Put {
            key,
            hash,
            bytes,
            reply,
        };
        if !self.ask(home, job) {
            return false;
        }
        matches!(tokio::time::timeout(WRITE_PATIENCE, answer).await, Ok(Ok(true)))
    }

    /// Has the lost chunks of a stripe computed and stored, when it is its turn.
    pub(crate) fn repair_later(this: &Arc<Self>, content: ContentId, number: u32) {
        if !this.repairing.lock().insert((content, number)) {
            return;
        }
        let this = Arc::clone(this);
        tokio::spawn(async move {
            if let Ok(_permit) = Arc::clone(&this.shared.repairs).acquire_owned().await {
                // While it is put back, more of it may be found lost.
                for _ in 0..REPAIR_TRIES {
                    if Self::repair(&this, content, number).await.is_none() {
                        break;
                    }
                }
            }
            this.repairing.lock().remove(&(content, number));
        });
    }

    async fn repair(this: &Arc<Self>, content: ContentId, number: u32) -> Option<()> {
        let stripe = this.pool().look(&content, number).filter(|stripe| stripe.lost != 0)?;
        // Any `data` of them: those that are lost are computed from whatever comes first.
        let all = 0..stripe.code.data() as usize;
        let have = Self::gathered(this, content, number, &stripe, &all).await?;
        // The gathering may have found more of them lost.
        let stripe = this.pool().look(&content, number)?;
        let lost: Vec<usize> = (0..stripe.homes.len()).filter(|&index| !stripe.has(index)).collect();
        let (codec, code, wanted) = (Arc::clone(&this.shared.codec), stripe.code, lost.clone());
        let computed = tokio::task::spawn_blocking(move || codec.rebuild(code, have, &wanted));
        let computed = computed.await.ok()?.ok()?;
        for (index, chunk) in lost.into_iter().zip(computed) {
            let (key, hash) = (ChunkKey::new(content, number, index as u8, code), stripe.hashes[index]);
            if chunk_hash(&chunk) == hash && this.store(stripe.homes[index], key, hash, chunk).await {
                this.pool().found(&key);
                add(&this.counts.repaired_chunks, 1);
            }
        }
        Some(())
    }

    /// Moves a chunk from one function to another.
    pub(crate) async fn relocate(this: &Arc<Self>, one: Move) {
        let mut moving = Moving {
            inner: this,
            one,
            is_done: false,
        };
        let Ok(_permit) = Arc::clone(&this.shared.repairs).acquire_owned().await else {
            return;
        };
        let (reply, answer) = oneshot::channel();
        if !this.ask(one.from, Job::Get { key: one.key, reply }) {
            return;
        }
        let Ok(Ok(Got::Value(bytes))) = tokio::time::timeout(WRITE_PATIENCE, answer).await else {
            return;
        };
        if chunk_hash(&bytes) == one.hash && this.store(one.to, one.key, one.hash, bytes).await {
            moving.is_done = true;
            if this.pool().moved(&one) {
                add(&this.counts.moved_chunks, 1);
                this.remember(one.key.content, one.key.stripe);
            }
        }
    }
}

/// A chunk that stays where it is unless it is moved.
struct Moving<'a> {
    inner: &'a Inner,
    one: Move,
    is_done: bool,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.inner.pool().stayed(&self.one);
        }
    }
}

/// A stripe's chunks and their hashes.
type Coded = (Vec<Bytes>, Arc<[u64]>);

fn coded(codec: &dyn StripeCodec, code: Code, bytes: &Bytes, parity: Option<Parity>) -> Option<Coded> {
    let joined = parity.and_then(|parity| parity.join(code, bytes));
    let chunks = joined.map_or_else(|| encode(codec, code, bytes), Ok).ok()?;
    let hashes = chunks.iter().map(|chunk| chunk_hash(chunk)).collect();
    Some((chunks, hashes))
}

/// A place that is given back unless the write is done.
struct Placing<'a> {
    inner: &'a Inner,
    content: ContentId,
    number: u32,
    is_done: bool,
}

impl Drop for Placing<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.inner.pool().forget_stripe(self.content, self.number);
        }
    }
}
