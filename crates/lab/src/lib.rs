//! What Tidemark is measured and checked with: traces of real applications, generated workloads, load clients, simulated
//! caches that say what a hit ratio should be, and a whole node in virtual time.
//!
//! Invariant: everything random follows from a seed. The server is talked to through sockets, in its clients' protocols, and
//! each of its answers is checked; nothing here knows how it works inside. The virtual node, and experiments that need no
//! server, have its own store and control plane, through the doors that they offer everybody.

#![forbid(unsafe_code)]

pub mod bench;
pub mod client;
pub mod curve;
pub mod elastic;
mod error;
pub mod experiment;
pub mod load;
pub mod node;
mod process_cpu;
pub mod progress;
pub mod replay;
pub mod study;
pub mod trace;

pub use error::{Error, Fault};
