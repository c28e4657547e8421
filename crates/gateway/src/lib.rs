//! The S3 address: objects of origin buckets, cached in tenants' memory.
//!
//! A request is checked for its signature ([`front`]), a read is answered from memory or from the origin ([`read`]), all else
//! is passed on ([`forward`]). Of several gateways, each answers for the objects of which it is the home ([`relay`], [`peers`],
//! [`ring`]). The gateway runs on threads of its own, so that a body that is being streamed never takes a
//! worker of the sockets' front. Its access to memory is [`memory`] and nothing else; agents keep copies there by [`copies`].
//!
//! Promises: no reply mixes two versions of an object, and a write is acknowledged when the origin has. A read that
//! begins after a write through this gateway was acknowledged finds it or a later one. A write by somebody else is
//! found after the bucket's freshness has passed. Memory is bounded whatever clients and origins do: see the constants.

#![forbid(unsafe_code)]

pub mod access;
mod chunked;
pub mod client;
mod coded;
pub mod coherent;
mod command;
pub mod config;
pub mod copies;
mod deletion;
mod early;
mod fill;
mod forward;
mod front;
mod guard;
pub mod large;
mod listen;
pub mod memory;
mod object;
mod origin;
pub mod peers;
mod permits;
mod range;
mod read;
mod relay;
mod reply;
pub mod ring;
mod shared;
mod sign;
mod upload;
mod versions;

#[cfg(test)]
mod tests;

pub use client::{Client, ClientCounts, ClientError};
pub use config::{Config, Freshness, Origins};
pub use large::LargePlace;
pub use listen::{Gateway, StartError};
pub use memory::{Altered, StoreMemory, TenantMemory, Tenants};
pub use peers::PeersConfig;
pub use ring::Ring;
pub use shared::Totals;
pub use sign::{Call, Credentials, sign_call};
