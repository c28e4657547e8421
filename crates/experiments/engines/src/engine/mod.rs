//! The caches compared, behind one seam: look a key up, set it, say whether it is held.
//!
//! Invariant: each library is used in its fastest form here (its file says which). All do the same work: a hit reads
//! one byte of the value, a miss copies key and value into the cache.

mod foyer;
mod moka;
mod quick_cache;
mod segcache;
mod tidemark;

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidemark_types::{LogShare, Policy};

pub(crate) use foyer::Foyer;
pub(crate) use moka::Moka;
pub(crate) use quick_cache::{QuickCache, QuickCacheFixed};
pub(crate) use segcache::{ITEM_BYTES as ITEM_BYTES_SEGCACHE, Segcache};
pub(crate) use tidemark::Tidemark;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 100;
/// Bytes of payload of an item: the unit of a capacity.
pub(crate) const PAYLOAD_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;
/// Which byte of a value a hit reads: one in its middle.
const MARK_AT: usize = VALUE_BYTES / 2;

/// A key.
pub(crate) type KeyBytes = [u8; KEY_BYTES];

/// A cache of keys and values, or one thread's handle on it.
pub(crate) trait Engine: Send {
    /// A handle on the same cache for another thread.
    fn share(&self) -> Self;

    /// Looks a key up and reads the byte of its value that tells whether the value is the right one.
    fn get(&mut self, key: &KeyBytes) -> Option<u8>;

    /// Sets a key; `false` if the cache refuses it.
    fn set(&mut self, key: &KeyBytes, value: &[u8]) -> bool;

    /// Whether a key is held, without this counting as a use.
    fn holds(&self, key: &KeyBytes) -> bool;

    /// Asks for each key in turn and sets those that are missed.
    fn pass(&mut self, keys: &[KeyBytes]) -> Tally
    where
        Self: Sized,
    {
        one_by_one(self, keys)
    }
}

/// The pass of a cache that is asked for one key at a time.
fn one_by_one(engine: &mut impl Engine, keys: &[KeyBytes]) -> Tally {
    let mut tally = Tally::default();
    let mut value = [0; VALUE_BYTES];
    for key in keys {
        match engine.get(key) {
            Some(byte) => tally.hit(key, byte),
            None => tally.refused += u64::from(!engine.set(key, value_of(key, &mut value))),
        }
    }
    tally
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Keys found.
    pub(crate) hits: u64,
    /// The number of hits with another value than theirs.
    pub(crate) wrong: u64,
    /// Keys that could not be set.
    pub(crate) refused: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.wrong += other.wrong;
        self.refused += other.refused;
    }
}

impl Tally {
    /// Counts a hit that read this byte.
    #[inline]
    pub(crate) fn hit(&mut self, key: &KeyBytes, byte: u8) {
        self.hits += 1;
        self.wrong += u64::from(byte != mark(key));
    }
}

/// The byte in the middle of a key's value.
#[inline]
fn mark(key: &KeyBytes) -> u8 {
    let [.., a, b, c] = *key;
    a ^ b.wrapping_mul(31) ^ c.wrapping_mul(7)
}

/// A key's value, in a buffer that is used for one after the other.
#[inline]
fn value_of<'a>(key: &KeyBytes, buffer: &'a mut [u8; VALUE_BYTES]) -> &'a [u8] {
    buffer[MARK_AT] = mark(key);
    buffer
}

/// Weight of an item where a library lets its users weigh: the payload.
fn weight<K: AsRef<[u8]>, V: AsRef<[u8]>>(key: &K, value: &V) -> usize {
    key.as_ref().len() + value.as_ref().len()
}

/// The number of parts that a cache is divided into by a library that lets its users choose. Several threads get the
/// default of such libraries on two cores.
fn parts(threads: usize) -> usize {
    if threads == 1 { 1 } else { 8 }
}

/// Items of which a capacity consists.
fn items_of(payload_bytes: u64) -> usize {
    usize::try_from(payload_bytes / PAYLOAD_BYTES).unwrap_or(usize::MAX)
}

/// A cache with the policy or, in other caches, the only configuration that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Kind {
    /// Tidemark's store.
    Tidemark(Policy),
    /// Pelikan's, S3-FIFO.
    Segcache,
    /// Clock-PRO, changed.
    QuickCache,
    /// The same for keys and values of one length each.
    QuickCacheFixed,
    /// S3-FIFO.
    Foyer,
    /// W-TinyLFU.
    Moka,
}

impl Kind {
    /// Tidemark as it is by default.
    pub(crate) const TIDEMARK: Self = Self::Tidemark(Policy::S3Fifo);
    /// Those that it is compared with: they, too, hold keys and values of any length.
    pub(crate) const OTHERS: [Self; 4] = [Self::Segcache, Self::QuickCache, Self::Foyer, Self::Moka];
    /// All, with those that are measured for information only.
    pub(crate) const ALL: [Self; 9] = [
        Self::TIDEMARK,
        Self::Tidemark(Policy::Clock),
        Self::Tidemark(Policy::Fifo),
        Self::Tidemark(Policy::ApproxLru(LogShare::HALF)),
        Self::Segcache,
        Self::QuickCache,
        Self::QuickCacheFixed,
        Self::Foyer,
        Self::Moka,
    ];

    /// The name in options, tables and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tidemark(Policy::S3Fifo) => "tidemark",
            Self::Tidemark(Policy::Clock) => "tidemark-clock",
            Self::Tidemark(Policy::Fifo) => "tidemark-fifo",
            Self::Tidemark(Policy::ApproxLru(_)) => "tidemark-approx-lru",
            Self::Tidemark(Policy::Custom) => "tidemark-custom",
            Self::Segcache => "segcache",
            Self::QuickCache => "quick_cache",
            Self::QuickCacheFixed => "quick_cache-fixed",
            Self::Foyer => "foyer",
            Self::Moka => "moka",
        }
    }

    /// How the library is used, for the report.
    pub(crate) fn form(self) -> &'static str {
        match self {
            Self::Tidemark(_) => tidemark::FORM,
            Self::Segcache => segcache::FORM,
            Self::QuickCache => quick_cache::FORM,
            Self::QuickCacheFixed => quick_cache::FIXED_FORM,
            Self::Foyer => foyer::FORM,
            Self::Moka => moka::FORM,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is not a cache: allowed are {names}")
        })
    }
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.name().to_owned()
    }
}

#[cfg(test)]
mod tests;
