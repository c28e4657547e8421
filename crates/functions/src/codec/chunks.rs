//! Some of a stripe's chunks, and the bytes that they give.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{CodecError, StripeCodec, chunk_bytes, touched};
use crate::Code;
use crate::chunk::chunk_hash;

/// Chunks of a stripe that are here: all those that a range of it touches, or enough to compute them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// How the stripe is coded.
    pub code: Code,
    /// Its bytes.
    pub stripe_bytes: usize,
    /// The hash of each chunk.
    pub hashes: Arc<[u64]>,
    /// The chunks, data first.
    pub have: Vec<Option<Bytes>>,
}

impl Chunks {
    /// Whether there is a place for each chunk of the code, and those that are here are those that were stored.
    pub fn are_sound(&self) -> bool {
        let count = self.code.chunks() as usize;
        let bytes = chunk_bytes(self.code, self.stripe_bytes);
        let is_sound = |(chunk, hash): (&Option<Bytes>, &u64)| {
            chunk
                .as_ref()
                .is_none_or(|chunk| chunk.len() == bytes && chunk_hash(chunk) == *hash)
        };
        self.have.len() == count && self.hashes.len() == count && self.have.iter().zip(self.hashes.iter()).all(is_sound)
    }

    /// The chunks of data that a range touches and that are not here.
    pub fn missing(&self, range: &Range<usize>) -> Vec<usize> {
        let is_missing = |index: &usize| self.have.get(*index).is_none_or(Option::is_none);
        touched(self.code, self.stripe_bytes, range)
            .filter(is_missing)
            .collect()
    }

    /// Computes the chunks of data that a range touches and that are not here. Others are used up by that.
    ///
    /// # Errors
    /// Too few are here, or they give other bytes than were stored.
    pub fn compute(&mut self, codec: &dyn StripeCodec, range: &Range<usize>) -> Result<(), CodecError> {
        let missing = self.missing(range);
        if missing.is_empty() {
            return Ok(());
        }
        let wanted = touched(self.code, self.stripe_bytes, range);
        // Chunks that are only needed for computing are moved there.
        let given = self.have.iter_mut().enumerate().map(|(index, chunk)| {
            if wanted.contains(&index) {
                chunk.clone()
            } else {
                chunk.take()
            }
        });
        let given = given.collect();
        for (index, chunk) in missing.iter().zip(codec.rebuild(self.code, given, &missing)?) {
            // Computed from checked chunks, but parity may be a client's.
            if self.hashes.get(*index) != Some(&chunk_hash(&chunk)) {
                return Err(CodecError::Damaged);
            }
            self.have[*index] = Some(chunk);
        }
        Ok(())
    }

    /// The bytes of a range, in pieces; `None` where some are not here.
    pub fn pieces(&self, range: &Range<usize>) -> Option<Vec<Bytes>> {
        if range.is_empty() || range.end > self.stripe_bytes {
            return None;
        }
        let each = chunk_bytes(self.code, self.stripe_bytes);
        let piece = |index: usize| {
            let start = index * each;
            let within = range.start.max(start) - start..range.end.min(start + each) - start;
            Some(self.have.get(index)?.as_ref()?.slice(within))
        };
        touched(self.code, self.stripe_bytes, range).map(piece).collect()
    }

    /// Without those that the bytes of a range do not take.
    pub fn trimmed(mut self, range: &Range<usize>) -> Self {
        let wanted = touched(self.code, self.stripe_bytes, range);
        let mut others = if self.missing(range).is_empty() {
            0
        } else {
            self.code.data() as usize
        };
        // Those that are wanted come first: they are sent as they are.
        others = others.saturating_sub(self.have[wanted.clone()].iter().flatten().count());
        for (index, chunk) in self.have.iter_mut().enumerate() {
            if wanted.contains(&index) || chunk.is_none() {
                continue;
            }
            if others == 0 {
                *chunk = None;
            } else {
                others -= 1;
            }
        }
        self
    }
}
