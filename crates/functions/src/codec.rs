//! Stripes to chunks and back. Pure.
//!
//! A stripe of `n` bytes has `data` chunks of `ceil(n / data)` bytes, rounded up to [`CHUNK_ALIGN`]; missing bytes at
//! the end are zeros. So a range of a stripe lies in the data chunks that it touches. Any `data` of the chunks give the
//! rest.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustfs_erasure_codec::galois_8::ReedSolomon;

use crate::{Code, CodeError};

mod chunks;

pub use chunks::Chunks;

/// Bytes of a stripe, but for an object's last. 4 MiB: one fill of the gateway; a range reads no more than the chunks it touches.
pub const STRIPE_BYTES: u64 = 4 << 20;
/// Chunks are multiples of this, which the processor's instructions take at once.
pub const CHUNK_ALIGN: usize = 64;
/// Codes that are kept ready.
const CODES_MAX: usize = 32;

/// A stripe cannot be coded or put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Fewer chunks than data chunks, or of other lengths.
    #[error("too few chunks are there, or of wrong lengths")]
    Chunks,
    /// The chunks give other bytes than those that were stored.
    #[error("the chunks give other bytes than were stored")]
    Damaged,
    /// The code has too many chunks.
    #[error(transparent)]
    Code(#[from] CodeError),
}

/// Codes stripes. The seam for another code or library.
pub trait StripeCodec: Send + Sync {
    /// Computes the parity of data chunks of equal lengths.
    ///
    /// # Errors
    /// The chunks do not fit the code.
    fn parity(&self, code: Code, data: &[&[u8]]) -> Result<Vec<Vec<u8>>, CodecError>;

    /// Computes those chunks that are `wanted`, and no others, from at least `data` chunks, data first.
    ///
    /// # Errors
    /// Too few are there.
    fn rebuild(&self, code: Code, chunks: Vec<Option<Bytes>>, wanted: &[usize]) -> Result<Vec<Bytes>, CodecError>;
}

/// Reed-Solomon over the field of 256 elements, with the processor's instructions.
#[derive(Default)]
pub struct Rs {
    ready: Mutex<HashMap<Code, Arc<ReedSolomon>>>,
}

impl std::fmt::Debug for Rs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rs").finish_non_exhaustive()
    }
}

impl Rs {
    fn ready(&self, code: Code) -> Result<Arc<ReedSolomon>, CodecError> {
        let mut ready = self.ready.lock();
        if let Some(codec) = ready.get(&code) {
            return Ok(Arc::clone(codec));
        }
        let codec = ReedSolomon::new(code.data() as usize, code.parity() as usize).map_err(|_| CodeError)?;
        let codec = Arc::new(codec);
        if ready.len() >= CODES_MAX {
            ready.clear();
        }
        ready.insert(code, Arc::clone(&codec));
        Ok(codec)
    }
}

impl StripeCodec for Rs {
    fn parity(&self, code: Code, data: &[&[u8]]) -> Result<Vec<Vec<u8>>, CodecError> {
        let bytes = data.first().map_or(0, |chunk| chunk.len());
        let mut parity = vec![vec![0; bytes]; code.parity() as usize];
        if code.parity() > 0 {
            let codec = self.ready(code)?;
            codec.encode_sep(data, &mut parity).map_err(|_| CodecError::Chunks)?;
        }
        Ok(parity)
    }

    fn rebuild(&self, code: Code, chunks: Vec<Option<Bytes>>, wanted: &[usize]) -> Result<Vec<Bytes>, CodecError> {
        let bytes = chunks
            .iter()
            .flatten()
            .map(Bytes::len)
            .next()
            .ok_or(CodecError::Chunks)?;
        if code.parity() == 0 || chunks.len() != code.chunks() as usize {
            return Err(CodecError::Chunks);
        }
        let mut required = vec![false; chunks.len()];
        for &index in wanted {
            *required.get_mut(index).ok_or(CodecError::Chunks)? = true;
        }
        let mut shards: Vec<(BytesMut, bool)> = chunks
            .into_iter()
            .map(|chunk| match chunk {
                Some(chunk) => (
                    chunk
                        .try_into_mut()
                        .unwrap_or_else(|shared| BytesMut::from(&shared[..])),
                    true,
                ),
                None => (BytesMut::zeroed(bytes), false),
            })
            .collect();
        let codec = self.ready(code)?;
        codec
            .reconstruct_some(&mut shards, &required)
            .map_err(|_| CodecError::Chunks)?;
        let mut rebuilt: Vec<Option<BytesMut>> = shards.into_iter().map(|(shard, _)| Some(shard)).collect();
        let take = |&index: &usize| rebuilt.get_mut(index).and_then(Option::take).map(BytesMut::freeze);
        wanted
            .iter()
            .map(take)
            .collect::<Option<Vec<_>>>()
            .ok_or(CodecError::Chunks)
    }
}

/// Bytes of each chunk of a stripe.
pub fn chunk_bytes(code: Code, stripe_bytes: usize) -> usize {
    stripe_bytes
        .div_ceil(code.data() as usize)
        .next_multiple_of(CHUNK_ALIGN)
}

/// The data chunks that a range of a stripe touches.
pub fn touched(code: Code, stripe_bytes: usize, range: &Range<usize>) -> Range<usize> {
    let bytes = chunk_bytes(code, stripe_bytes);
    range.start / bytes..range.end.div_ceil(bytes).max(range.start / bytes)
}

/// All chunks of a stripe, data first. Whole data chunks are parts of the stripe and are not copied.
///
/// # Errors
/// The stripe is empty, or the code does not exist.
pub fn encode(codec: &dyn StripeCodec, code: Code, stripe: &Bytes) -> Result<Vec<Bytes>, CodecError> {
    let mut chunks = data_chunks(code, stripe);
    if chunks.is_empty() {
        return Err(CodecError::Chunks);
    }
    let data: Vec<&[u8]> = chunks.iter().map(Bytes::as_ref).collect();
    let parity = codec.parity(code, &data)?;
    chunks.extend(parity.into_iter().map(Bytes::from));
    Ok(chunks)
}

/// The chunks of data of a stripe; none of an empty one.
fn data_chunks(code: Code, stripe: &Bytes) -> Vec<Bytes> {
    if stripe.is_empty() {
        return Vec::new();
    }
    let bytes = chunk_bytes(code, stripe.len());
    let chunk = |index: usize| {
        let range = (index * bytes).min(stripe.len())..((index + 1) * bytes).min(stripe.len());
        let part = stripe.slice(range);
        if part.len() == bytes {
            return part;
        }
        let mut padded = BytesMut::zeroed(bytes);
        padded[..part.len()].copy_from_slice(&part);
        padded.freeze()
    };
    (0..code.data() as usize).map(chunk).collect()
}

/// A stripe's chunks of parity that somebody else has computed. Nobody has to believe them: what is computed from them is
/// compared with the hashes of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parity {
    /// The code.
    pub code: Code,
    /// The chunks.
    pub chunks: Vec<Bytes>,
}

impl Parity {
    /// Computes that of a stripe.
    ///
    /// # Errors
    /// The stripe is empty, or the code does not exist.
    pub fn of(codec: &dyn StripeCodec, code: Code, stripe: &Bytes) -> Result<Self, CodecError> {
        let mut chunks = encode(codec, code, stripe)?;
        let chunks = chunks.split_off(code.data() as usize);
        Ok(Self { code, chunks })
    }

    /// All chunks of a stripe with this parity; `None` if it is of another code, or of another length.
    pub fn join(self, code: Code, stripe: &Bytes) -> Option<Vec<Bytes>> {
        let bytes = chunk_bytes(code, stripe.len());
        let is_right = self.code == code
            && self.chunks.len() == code.parity() as usize
            && self.chunks.iter().all(|chunk| chunk.len() == bytes);
        let mut chunks = data_chunks(code, stripe);
        chunks.extend(self.chunks);
        (is_right && !stripe.is_empty()).then_some(chunks)
    }
}

/// Which code an object of a size gets: each from so many bytes on, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeTable(Vec<(u64, Code)>);

/// A table of codes that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write SIZE=DATA+PARITY with commas between them, sizes ascending from 0, such as 0=10+2,1GiB=20+4")]
pub struct TableError;

impl CodeTable {
    /// A table from rows of a size and a code.
    ///
    /// # Errors
    /// It does not begin with 0, or does not ascend.
    pub fn new(rows: Vec<(u64, Code)>) -> Result<Self, TableError> {
        let ascends = rows.windows(2).all(|two| two[0].0 < two[1].0);
        let begins = rows.first().is_some_and(|(from, _)| *from == 0);
        (ascends && begins).then_some(Self(rows)).ok_or(TableError)
    }

    /// The code of an object with so many bytes, of those that `functions` functions can hold.
    pub fn of(&self, object_bytes: u64, functions: usize) -> Option<Code> {
        let fits = self.0.iter().filter(|(_, code)| code.chunks() as usize <= functions);
        fits.rev()
            .find(|(from, _)| *from <= object_bytes)
            .map(|(_, code)| *code)
    }

    /// Its rows.
    pub fn rows(&self) -> &[(u64, Code)] {
        &self.0
    }
}

#[cfg(test)]
mod tests;
