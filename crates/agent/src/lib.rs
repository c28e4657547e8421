//! The node agent: cachelets that serve the functions of a node, kept coherent with those of other nodes.
//!
//! The decisions are the core's (`tidemark-cachelet`), which has no I/O. This crate is the shell around it: sockets to other
//! agents ([`peers`]), the coordination engine ([`etcd`], [`coordinator`]), clocks and leases ([`clock`]), calls to the origin
//! ([`host`]), the bytes of copies ([`bodies`]), the instances on the node ([`instances`], [`adapters`]), the S3 address's requests
//! ([`objects`]) and choosing ([`tuning`]).
//!
//! Promise: a read is never staler than the application was promised, whatever fails. A read that cannot be answered
//! fails. Without the coordination engine, reads are answered by the origin and writes fail, once the lease has ended.

#![forbid(unsafe_code)]

pub mod adapters;
mod agent;
pub mod api;
mod asking;
pub mod bodies;
pub mod budgets;
mod change;
pub mod clock;
pub mod coordinator;
pub mod counters;
pub mod decider;
pub mod dimensions;
pub mod domains;
mod error;
pub mod etcd;
pub mod host;
pub mod instances;
pub mod layout;
mod lines;
pub mod mirror;
pub mod objects;
pub mod peers;
pub mod promises;
pub mod relay;
pub mod show;
pub mod tuning;

pub use agent::{Agent, AgentConfig};
pub use error::AgentError;
pub use tidemark_cachelet::choose::Kind;
