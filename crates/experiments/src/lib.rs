//! How Tidemark is measured and checked: experiments on real servers, comparisons with others, and a whole node in virtual
//! time. The product does not link this crate.
//!
//! Invariant: everything random follows from a seed. An experiment talks to a server through sockets, as any client does. The
//! virtual node, and experiments that need no server, have their own store and control plane, through the doors that they
//! offer everybody.

#![forbid(unsafe_code)]

pub mod elastic;
mod error;
pub mod experiment;
pub mod functions;
pub mod node;
pub mod study;

pub use error::Error;
