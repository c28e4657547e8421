//! Workloads made from a seed: the next key, its text, and its value.
//!
//! Invariant: everything is a function of its parameters and the seed. The value of a key (size and bytes) depends on
//! the key alone. Any client can therefore tell whether a value that it reads is the right one. Memory is constant,
//! whatever the number of keys.

mod keys;
mod requests;
mod rng;
mod text;
mod values;
mod zipf;

pub use keys::{Distribution, Keys, Order};
pub use requests::{Lifetimes, Operation, Requests, Workload};
pub use rng::Rng;
pub(crate) use rng::mix;
pub use text::KeyText;
pub use values::{MAX_VALUE_BYTES, ValueSize, Values};
pub use zipf::Zipf;

/// A workload that cannot be made: the fault of its parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// The number of keys is zero or above the number that the generators were checked for.
    #[error("--keys {0}: allowed are 1 to {max}", max = keys::MAX_KEYS)]
    KeyCount(u64),
    /// The parameter of the distribution makes no sense.
    #[error("{flag} {given}: allowed is {allowed}")]
    Parameter {
        /// The parameter, as the flag that sets it.
        flag: &'static str,
        /// The value that the caller gave.
        given: f64,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// The keys would not be different or not be keys.
    #[error("--key-size {size_bytes}: {count} keys need {least} to {most} bytes each")]
    KeySize {
        /// Bytes per key that were asked for.
        size_bytes: usize,
        /// Keys that were asked for.
        count: u64,
        /// The shortest keys that can name that many.
        least: usize,
        /// The longest keys.
        most: usize,
    },
    /// The text of a value size is not one.
    #[error(
        "`{given}` is not a value size: write a size (64, 1KiB), a range (100-1000) or etc, each at most {max} bytes",
        max = MAX_VALUE_BYTES
    )]
    ValueSize {
        /// The value that the caller gave.
        given: String,
    },
}
