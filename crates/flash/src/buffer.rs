//! Memory that direct I/O can use: aligned to blocks.

use crate::format::BLOCK_BYTES;

/// Bytes that begin at a multiple of the block size.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// Zeros.
    pub fn zeroed(length: usize) -> Self {
        let bytes = vec![0; length + BLOCK_BYTES];
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        Self { bytes, start, length }
    }

    /// A copy of these bytes.
    pub fn copied(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.as_mut().copy_from_slice(bytes);
        buffer
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
