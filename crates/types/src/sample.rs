//! The data plane's records of sampled keys, for estimating the effect of more or less memory.
//!
//! A key is sampled if its *order*, a 64-bit hash of it, lies below a threshold. Invariant: either all events of a key
//! are recorded or none. The records of a lower threshold are all among those of a higher one.

use crate::UnixMs;

/// How many keys are sampled: those of which the uppermost 24 bits of the order are below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SamplingThreshold(u32);

impl SamplingThreshold {
    /// No key is sampled, which costs nothing.
    pub const OFF: Self = Self(0);
    /// Every key is.
    pub const ALL: Self = Self(1 << Self::BITS);

    /// Bits of the order that are compared.
    const BITS: u32 = 24;

    /// So many of 2^24 keys are sampled; more than all are all.
    pub fn new(of_2_to_24: u32) -> Self {
        Self(of_2_to_24).min(Self::ALL)
    }

    /// The highest threshold that does not take a key of this order.
    pub fn below(order: u64) -> Self {
        Self((order >> (64 - Self::BITS)) as u32)
    }

    /// How many of 2^24 keys are sampled.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The part of all keys that is sampled, 0 to 1.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }

    /// Whether a key of this order is sampled.
    #[inline]
    pub fn takes(self, order: u64) -> bool {
        Self::below(order) < self
    }
}

/// The event of a sampled key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleKind {
    /// It was asked for and found. Counted as a get and a hit.
    GetHit,
    /// It was asked for and not found. Counted as a get.
    GetMiss,
    /// It was written and was not there, or had to go to make room for the new value.
    Fill,
    /// It was written anew, maybe with another size and expiry.
    Overwrite,
    /// Its expiry was changed. Neither a get nor a write.
    Retime,
    /// A client removed it, or gave it an expiry that had come.
    Delete,
    /// Not of one key: a client removed all keys of a database, or of all databases ([`Sample::ALL_DATABASES`]).
    Flush,
}

/// A record of one event of a sampled key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// A hash that stands for the key (with its database), distributed evenly and independent of where the key is placed.
    /// Whether the key is sampled goes by its uppermost bits. Zero for a flush.
    pub order: u64,
    /// The number of the record in the order of the tenant's events, counted modulo 2^32. The shards are asked one
    /// after the other. The last records before a snapshot and the first ones after it may overlap, but never those of
    /// one key.
    pub sequence: u32,
    /// Second of the event, since 1970.
    pub second: u32,
    /// The item's expiry in milliseconds after the beginning of that second; [`Sample::NO_EXPIRY`] if it has none, or one
    /// that is more than 49 days away.
    pub expires_after_ms: u32,
    /// Bytes of the item's key and value. Zero for a miss, a delete and a flush.
    pub payload_bytes: u32,
    /// Bytes that the item takes in the log, and of the units outside of it; its entry in the index is not in here.
    /// Zero where `payload_bytes` is.
    pub item_bytes: u32,
    /// Millisecond of the event within that second.
    pub millisecond: u16,
    /// The event.
    pub kind: SampleKind,
    /// The key's database.
    pub db: u8,
}

const _: () = assert!(size_of::<Sample>() == 32, "half a cache line");

impl Sample {
    /// `expires_after_ms` of an item that does not expire.
    pub const NO_EXPIRY: u32 = u32::MAX;
    /// `db` of a flush of all databases.
    pub const ALL_DATABASES: u8 = u8::MAX;

    /// When it happened.
    pub fn at(&self) -> UnixMs {
        UnixMs(u64::from(self.second) * 1000 + u64::from(self.millisecond))
    }

    /// When the item expires.
    pub fn expiry(&self) -> Option<UnixMs> {
        let after = u64::from(self.expires_after_ms);
        (self.expires_after_ms != Self::NO_EXPIRY).then(|| UnixMs(u64::from(self.second) * 1000 + after))
    }

    /// `expires_after_ms` for an expiry, of an event at `now`.
    pub fn expires_after_ms(expiry: Option<UnixMs>, now: UnixMs) -> u32 {
        let after = |expiry: UnixMs| expiry.0.saturating_sub(now.seconds() * 1000);
        expiry.map_or(Self::NO_EXPIRY, |expiry| {
            u32::try_from(after(expiry)).unwrap_or(Self::NO_EXPIRY)
        })
    }
}

/// The records of a tenant between two snapshots, all that this threshold takes and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// The lowest threshold that was in force. It is lower than the plan's if a buffer filled up: then it was lowered
    /// at once, and the records of keys that it does not take were dropped.
    pub threshold: SamplingThreshold,
    /// The records in the order of `sequence`.
    pub records: Vec<Sample>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_take_their_part() {
        let top = |bits: u64| bits << 40;
        for (threshold, order, taken) in [
            (SamplingThreshold::OFF, 0, false),
            (SamplingThreshold::ALL, u64::MAX, true),
            (SamplingThreshold::new(u32::MAX), u64::MAX, true),
            (SamplingThreshold::new(1), top(1) - 1, true),
            (SamplingThreshold::new(1), top(1), false),
            (SamplingThreshold::new(1 << 23), top(1 << 23) - 1, true),
            (SamplingThreshold::new(1 << 23), top(1 << 23), false),
            (SamplingThreshold::below(top(77)), top(77), false),
            (SamplingThreshold::below(top(77)), top(77) - 1, true),
        ] {
            assert_eq!(threshold.takes(order), taken, "{threshold:?} {order:x}");
        }
        assert_eq!(SamplingThreshold::new(1 << 22).ratio(), 0.25);
    }

    #[test]
    fn expiries_are_exact_to_the_millisecond() {
        let now = UnixMs(1_700_000_000_987);
        for (expiry, kept) in [
            (None, None),
            (Some(now.0), Some(now.0)),
            (Some(now.0 + 1), Some(now.0 + 1)),
            (Some(now.0 + 4_294_966_000), Some(now.0 + 4_294_966_000)),
            (Some(now.0 + 4_294_967_295), None),
        ] {
            let sample = Sample {
                order: 0,
                sequence: 0,
                second: now.seconds() as u32,
                millisecond: 0,
                expires_after_ms: Sample::expires_after_ms(expiry.map(UnixMs), now),
                payload_bytes: 0,
                item_bytes: 0,
                kind: SampleKind::Fill,
                db: 0,
            };
            assert_eq!(sample.expiry(), kept.map(UnixMs), "{expiry:?}");
        }
    }
}
