//! Workloads made from a seed: which key next, how it is spelt, and what is stored under it.
//!
//! Invariant: everything is a function of its parameters and the seed. What is stored under a key (size and bytes)
//! depends on the key alone, so that any client can tell whether a value that it reads is the right one. Memory is
//! constant, whatever the number of keys.

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

/// A workload that can not be made: what is wrong with its parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// The number of keys is zero or above what the generators were checked for.
    #[error("--keys {0}: allowed are 1 to {max}", max = keys::MAX_KEYS)]
    KeyCount(u64),
    /// The parameter of the distribution makes no sense.
    #[error("{flag} {given}: allowed is {allowed}")]
    Parameter {
        /// The parameter, as the flag that sets it.
        flag: &'static str,
        /// What was given.
        given: f64,
        /// What is allowed.
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
        /// What was given.
        given: String,
    },
}
