//! Names and hashes of chunks, and the list of them that an instance announces.

use crate::Code;

/// Names the bytes of one version of one object, as the gateway does.
pub type ContentId = [u8; 16];

/// One of the `data + parity` pieces of a stripe of one version of an object.
///
/// The code is part of the name: the same stripe coded in two ways has chunks that must not be mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey {
    /// The version of the object.
    pub content: ContentId,
    /// Which stripe of it.
    pub stripe: u32,
    /// Which chunk of the stripe; data first.
    pub index: u8,
    /// Chunks of data that the stripe has.
    pub data: u8,
    /// Chunks of parity that it has.
    pub parity: u8,
}

impl ChunkKey {
    /// Bytes of a key as it is sent.
    pub const BYTES: usize = 23;

    /// Names a chunk of a stripe that is coded so.
    pub fn new(content: ContentId, stripe: u32, index: u8, code: Code) -> Self {
        Self {
            content,
            stripe,
            index,
            data: code.data() as u8,
            parity: code.parity() as u8,
        }
    }

    /// As it is sent: content, stripe (big-endian), index, data, parity.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.content);
        bytes[16..20].copy_from_slice(&self.stripe.to_be_bytes());
        bytes[20..].copy_from_slice(&[self.index, self.data, self.parity]);
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (mut content, mut stripe) = ([0; 16], [0; 4]);
        content.copy_from_slice(&bytes[..16]);
        stripe.copy_from_slice(&bytes[16..20]);
        Self {
            content,
            stripe: u32::from_be_bytes(stripe),
            index: bytes[20],
            data: bytes[21],
            parity: bytes[22],
        }
    }
}

/// The hash of a chunk's bytes: rapidhash v3, 64 bits. It finds damage and mistakes; it is no proof against a forger.
pub fn chunk_hash(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

/// A chunk as an instance announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its name.
    pub key: ChunkKey,
    /// Its bytes' hash.
    pub hash: u64,
}

/// The hash of all that an instance holds, whatever the order: the sum of the chunks' own. The proxy compares it with the
/// one that it remembers; equal sums mean that nothing was lost.
pub fn held_hash<'a>(chunks: impl Iterator<Item = (&'a ChunkKey, u64)>) -> u64 {
    chunks.fold(0, |sum, (key, hash)| sum.wrapping_add(mark(key, hash)))
}

/// The summand of one chunk in [`held_hash`].
pub fn mark(key: &ChunkKey, hash: u64) -> u64 {
    let mut bytes = [0; ChunkKey::BYTES + 8];
    bytes[..ChunkKey::BYTES].copy_from_slice(&key.to_bytes());
    bytes[ChunkKey::BYTES..].copy_from_slice(&hash.to_be_bytes());
    rapidhash::v3::rapidhash_v3(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_being_sent() {
        let key = ChunkKey::new([7; 16], 0x0102_0304, 11, Code::new(10, 2).unwrap());
        assert_eq!(ChunkKey::from_bytes(&key.to_bytes()), key);
        let other = ChunkKey { index: 10, ..key };
        assert_ne!(other.to_bytes(), key.to_bytes());
    }

    #[test]
    fn the_order_of_chunks_does_not_matter_but_each_does() {
        let code = Code::new(2, 1).unwrap();
        let keys: Vec<ChunkKey> = (0..3).map(|index| ChunkKey::new([1; 16], 0, index, code)).collect();
        let sum = |order: &[usize]| held_hash(order.iter().map(|&at| (&keys[at], at as u64)));
        assert_eq!(sum(&[0, 1, 2]), sum(&[2, 0, 1]));
        assert_ne!(sum(&[0, 1, 2]), sum(&[0, 1]));
        assert_ne!(
            held_hash([(&keys[0], 1)].into_iter()),
            held_hash([(&keys[0], 2)].into_iter())
        );
    }
}
