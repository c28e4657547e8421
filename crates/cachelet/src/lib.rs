//! Cachelets: caches beside serverless functions that are coherent across nodes and choose their own configuration.
//!
//! This crate knows neither S3 nor sockets: [`protocol::Cachelet::step`] takes an event and returns the actions.
//! Invariant: there is no clock, thread, file, socket or chance in here. Time comes in as a value, and the simulator's
//! chance is the hash of a seed. docs/design/coherence.md explains the protocol.

pub mod choose;
pub mod config;
pub mod membership;
pub mod message;
pub mod organization;
pub mod protocol;
pub mod sim;
pub mod types;
pub mod view;
