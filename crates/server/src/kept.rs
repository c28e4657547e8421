//! Input that a connection keeps between two visits: the beginning of a command, or requests that wait.

/// A rest of so little is copied out of the buffer, which is then free for others.
const COPIED_OUT_BYTES: usize = 64 << 10;

/// Bytes that were received and are not executed. A drop from the front moves the rest only now and then. A long
/// pipeline of short commands thus costs time in proportion to its length.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    /// The number of the first bytes that are executed.
    from: usize,
}

impl From<Vec<u8>> for Kept {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, from: 0 }
    }
}

impl Kept {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// Memory that the buffer takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// By how much the buffer must grow for so many more bytes.
    pub(crate) fn growth(&self, more: usize) -> usize {
        (self.bytes.len() + more).saturating_sub(self.bytes.capacity())
    }

    /// The buffer, of which nothing is executed.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.compact();
        self.bytes
    }

    /// Drops bytes from the front. Returns the buffer if it is not needed any more.
    pub(crate) fn advance(&mut self, bytes: usize) -> Option<Vec<u8>> {
        if bytes == 0 {
            return None;
        }
        self.from += bytes;
        if self.len() <= COPIED_OUT_BYTES {
            let rest = self.as_slice().to_vec();
            self.from = 0;
            return Some(std::mem::replace(&mut self.bytes, rest));
        }
        // A move copies at most as much as was executed since the last one.
        if self.from >= self.len() {
            self.compact();
        }
        None
    }

    /// Receives up to `most` bytes behind the present ones.
    pub(crate) fn fill(&mut self, most: usize, receive: impl FnOnce(&mut [u8]) -> usize) -> usize {
        let held = self.bytes.len();
        self.bytes.resize(held + most, 0);
        let received = receive(&mut self.bytes[held..]);
        self.bytes.truncate(held + received);
        received
    }

    /// Makes room for so many more bytes, and no more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.bytes.reserve_exact(more);
    }

    fn compact(&mut self) {
        self.bytes.drain(..self.from);
        self.from = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_piece_by_piece_leaves_the_rest_as_it_was() {
        let all: Vec<u8> = (0..1_000_000_u32).map(|n| (n / 3) as u8).collect();
        let mut kept = Kept::from(all.clone());
        let (mut done, mut given_back) = (0, 0);
        while !kept.is_empty() {
            let piece = kept.len().min(7_001);
            given_back += usize::from(kept.advance(piece).is_some_and(|buffer| buffer.capacity() >= all.len()));
            done += piece;
            assert!(kept.as_slice() == &all[done..]);
        }
        assert_eq!((done, given_back, kept.memory_bytes()), (all.len(), 1, 0));
    }

    #[test]
    fn what_is_received_stands_behind_what_there_was() {
        let mut kept = Kept::from(vec![7; 200_000]);
        kept.advance(100_000);
        kept.reserve(10);
        assert_eq!(kept.growth(10), 0);
        let received = kept.fill(10, |room| {
            room[..4].copy_from_slice(b"more");
            4
        });
        assert_eq!((received, kept.len()), (4, 100_004));
        assert!(kept.as_slice().ends_with(b"\x07more"));
        assert_eq!(kept.into_bytes().len(), 100_004);
    }
}
