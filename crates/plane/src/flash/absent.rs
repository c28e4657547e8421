//! Keys that a read has shown to be on no flash, although another one's tag is like theirs.
//!
//! The index of flash knows tags of 16 bits, so that about one absent key in some thousands has to be read for. Whoever looks at it
//! under its shard's lock, where nothing can be read, is to know what was found.
//!
//! Invariant: all that is noted or forgotten of a key is under its shard's lock. A key that is noted was not written since.
//! Another one in its slot takes its place: it is read for again.

use std::sync::atomic::{AtomicU64, Ordering};

use tidemark_store::KeyHash;

/// Keys that are known at most. Transactions and scripts have fewer that are absent and look like others.
const SLOTS: usize = 256;

/// The hashes of such keys; zero is none.
pub(super) struct Absent([AtomicU64; SLOTS]);

impl Default for Absent {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl Absent {
    fn slot(&self, hash: KeyHash) -> &AtomicU64 {
        &self.0[hash.0 as usize % SLOTS]
    }

    /// A read has shown that the key is not there.
    pub(super) fn note(&self, hash: KeyHash) {
        self.slot(hash).store(hash.0, Ordering::Relaxed);
    }

    /// Whether that is known of the key.
    pub(super) fn knows(&self, hash: KeyHash) -> bool {
        hash.0 != 0 && self.slot(hash).load(Ordering::Relaxed) == hash.0
    }

    /// The key is written, and may come to flash.
    #[inline]
    pub(super) fn forget(&self, hash: KeyHash) {
        if self.knows(hash) {
            self.slot(hash).store(0, Ordering::Relaxed);
        }
    }
}
