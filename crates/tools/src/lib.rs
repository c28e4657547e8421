//! The tools that ship beside the server: readers of traces, generated workloads, load clients and replay. They also
//! draw curves of traces, and size memory and flash for them.
//!
//! Invariant: everything random follows from a seed. The server is talked to through sockets, in its clients' protocols, and
//! each of its answers is checked; nothing here knows how it works inside.

#![forbid(unsafe_code)]

pub mod bench;
pub mod client;
pub mod curve;
mod error;
pub mod load;
pub mod process_cpu;
pub mod progress;
pub mod provision;
pub mod replay;
pub mod trace;

pub use error::{Error, Fault};
