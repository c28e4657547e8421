//! The keyed hash that places keys.
//!
//! The seed is drawn from the system at start, so that nobody can prepare keys that collide (hash flooding). The bits
//! of a hash have fixed uses. From the top, in [`PLACE_BITS`], they are the shard and then the bucket ("position"). The
//! lowest 16 are the tag in the index entry, the next 16 the fingerprint among the ghosts. Sampling uses all bits
//! together.

use std::sync::Arc;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

/// The highest bits of a hash, which say where a key lies. A cursor over all keys is a number of so many bits. Clients
/// keep cursors in signed 64-bit numbers and in floating-point numbers, which are exact up to 2^53.
pub const PLACE_BITS: u32 = 53;

/// A seeded hash function over keys. Copies share the seed's secrets, 64 bytes that ten thousand tenants would each have.
#[derive(Clone, Debug)]
pub struct Hasher {
    secrets: Arc<RapidSecrets>,
}

impl Hasher {
    /// A hasher of this seed: equal seeds give equal hashes.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            secrets: Arc::new(RapidSecrets::seed(seed)),
        }
    }

    /// A hasher whose seed nobody outside knows.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn random() -> std::io::Result<Self> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self::with_seed(u64::from_le_bytes(seed)))
    }

    /// The hash of a key in one of a tenant's databases.
    #[inline]
    pub fn hash(&self, db: u8, key: &[u8]) -> KeyHash {
        let hash = rapidhash_v3_inline::<true, false, true>(key, &self.secrets);
        // Database 0 is nearly always meant, and costs nothing. An odd factor and a fold keep equal keys of different
        // databases apart in all bits that are used.
        if db == 0 {
            return KeyHash(hash);
        }
        let mixed = u128::from(hash ^ u64::from(db)) * u128::from(0x9E37_79B9_7F4A_7C15_u64 ^ (u64::from(db) << 32));
        KeyHash((mixed >> 64) as u64 ^ mixed as u64)
    }
}

/// The 64-bit hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The shard of `2^shard_bits` that the key belongs to.
    #[inline]
    pub fn shard(self, shard_bits: u32) -> usize {
        // A shift by 64 is not defined, so the shift is done in two steps.
        ((self.0 >> 1) >> (63 - shard_bits)) as usize
    }

    /// The key's place in the shard, as a fraction of 2^64: a whole multiple of `2^(64 - PLACE_BITS + shard_bits)`. It
    /// is never the largest value, so that a frontier at `u64::MAX` has every position below it.
    #[inline]
    pub(crate) fn position(self, shard_bits: u32) -> u64 {
        (self.0 & (u64::MAX << (u64::BITS - PLACE_BITS))) << shard_bits
    }

    /// The bits kept in the index entry.
    #[inline]
    pub(crate) fn tag(self) -> u16 {
        self.0 as u16
    }

    /// The key's place among all keys when some are sampled: those first in this order. Each key has another one, and
    /// its upper bits depend on all bits of the hash (Knuth's multiplicative hashing, by 2^64 over the golden ratio).
    /// The keys of any shard, bucket or tag are thus sampled like all others.
    #[inline]
    pub(crate) fn order(self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// The bits remembered of an evicted key; never zero.
    #[inline]
    pub(crate) fn fingerprint(self) -> u16 {
        ((self.0 >> 16) as u16).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_databases_give_different_hashes() {
        let (one, two) = (Hasher::with_seed(1), Hasher::with_seed(2));
        assert_eq!(one.hash(0, b"key"), Hasher::with_seed(1).hash(0, b"key"));
        assert_ne!(one.hash(0, b"key"), two.hash(0, b"key"));
        let hashes: std::collections::HashSet<_> = (0..16).map(|db| one.hash(db, b"key")).collect();
        assert_eq!(hashes.len(), 16);
    }

    #[test]
    fn shard_and_position_use_the_top_bits_in_order() {
        let hash = KeyHash(0xF123_4567_89AB_CDEF);
        assert_eq!(hash.shard(0), 0);
        assert_eq!(hash.shard(4), 0xF);
        assert_eq!(hash.position(4), 0x1234_5678_9ABC_8000);
        assert_eq!(hash.position(0), 0xF123_4567_89AB_C800);
        assert_eq!(hash.tag(), 0xCDEF);
        assert_eq!(hash.fingerprint(), 0x89AB);
    }

    #[test]
    fn every_database_spreads_over_shards_and_tags() {
        let hasher = Hasher::with_seed(3);
        for db in [0, 1, 15] {
            let mut shards = [0_u32; 8];
            let mut tags = std::collections::HashSet::new();
            for key in 0..8000_u32 {
                let hash = hasher.hash(db, &key.to_le_bytes());
                shards[hash.shard(3)] += 1;
                tags.insert(hash.tag());
            }
            // A binomial(8000, 1/8) is within 6 standard deviations (30) of its mean all but once in 10^9.
            assert!(shards.iter().all(|&n| n.abs_diff(1000) < 180), "db {db}: {shards:?}");
            assert!(
                tags.len() > 7300,
                "db {db}: {} of about 7,530 different tags",
                tags.len()
            );
        }
    }

    #[test]
    fn keys_are_sampled_alike_whatever_their_shard_bucket_tag_and_fingerprint() {
        const KEYS: u32 = 1 << 18;
        let hasher = Hasher::with_seed(4);
        let parts: [fn(KeyHash) -> usize; 5] = [
            |hash| hash.shard(4),
            |hash| (hash.position(6) >> 60) as usize,
            // A bucket of a large index, its lowest bits.
            |hash| (hash.position(0) >> 34) as usize % 16,
            |hash| hash.tag() as usize % 16,
            |hash| (hash.tag() >> 12) as usize,
        ];
        for (db, part) in [0, 7].into_iter().flat_map(|db| parts.map(|part| (db, part))) {
            let mut sampled = [0_u32; 16];
            for key in 0..KEYS {
                let hash = hasher.hash(db, &key.to_le_bytes());
                // One in 32.
                if hash.order() >> 59 == 0 {
                    sampled[part(hash)] += 1;
                }
            }
            // A binomial(2^18, 1/512) is within 6 standard deviations (23) of its mean all but once in 10^9.
            assert!(sampled.iter().all(|&n| n.abs_diff(512) < 136), "{sampled:?}");
        }
    }
}
