//! The flash tier: items below memory, on a file or a device.
//!
//! A [`Volume`] decides everything and touches nothing. It takes items that memory evicts, says which bytes decide a
//! lookup, and asks for writes in whole segments of one tenant. A device of [`device`] does them; [`Store`] holds both
//! together for a program that may wait. Format and recovery: docs/design/flash.md.
//!
//! Invariant: no wrong or stale byte is served. A record counts only if its checksum, which covers volume, tenant,
//! segment, key and value, is right. Bytes that the device fails to give are a miss.

#![deny(unsafe_code)]

mod buffer;
pub mod device;
mod format;
mod index;
mod journal;
mod recover;
mod snapshot;
mod store;
mod volume;

pub use buffer::Buffer;
pub use format::{BLOCK_BYTES, KEY_BYTES_MAX, SEGMENT_BYTES, TenantUuid, UNIT_BYTES, VALUE_BYTES_MAX, record_bytes};
pub use journal::Barrier;
pub use recover::{OpenError, Opening, format, open};
pub use store::{CloseError, GivenUp, OnFlash, Store, random_identity};
pub use volume::{
    Borrowed, Found, Io, IoKind, Item, Listing, Lookup, MARK_BITS, Next, Place, RECORD_BITS, Read, Refused, SLOT_BITS,
    SegmentRead, Settings, Staleness, Stats, TenantNumber, Volume,
};

#[cfg(test)]
mod model;
