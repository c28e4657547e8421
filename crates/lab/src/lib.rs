//! What Tidemark is measured and checked with: traces of real applications, generated workloads, load clients, and
//! simulated caches that say what a hit ratio should be.
//!
//! Invariant: everything random follows from a seed, and nothing here knows how the server works inside: it is talked to
//! through sockets, in its clients' protocols, and each of its answers is checked. An experiment that needs no server uses
//! the store as any program can.

#![forbid(unsafe_code)]

pub mod bench;
pub mod client;
pub mod curve;
mod error;
pub mod experiment;
pub mod load;
mod process_cpu;
pub mod progress;
pub mod replay;
pub mod trace;

pub use error::{Error, Fault};
