//! The data plane: workers that serve memcached and RESP clients from the tenants' stores.
//!
//! ```text
//! acceptor -> worker: turn { receive from a group, parse, execute in windows, send } -> store
//! ```
//!
//! A [`Server`] knows of tenants only what [`Plan`](tidemark_types::Plan)s say, and goes on with the last one when no more
//! come. Connections stay with the worker that got them; any worker uses any shard under its lock.

#![forbid(unsafe_code)]

mod acceptor;
mod access;
mod clients;
mod condition;
mod connection;
mod counts;
mod cpu;
mod durations;
mod entrance;
mod estimates;
mod kept;
mod limits;
mod logins;
mod memcached;
mod memory;
mod neighbour;
mod on_core;
mod output;
mod process;
mod progress;
mod ready;
mod receive;
mod redis;
mod scripts;
mod served;
mod server;
mod session;
mod shared;
mod step;
#[cfg(test)]
mod stores;
mod suspend;
mod tenant;
mod tenants;
mod transaction;
mod turn;
mod worker;

pub use cpu::CpuMeasure;
pub use entrance::{Protocol, TenantListener};
pub use estimates::Estimating;
pub use limits::Limits;
pub use neighbour::{Neighbour, NeighbourTenant};
pub use server::{Config, Server, StartError};
pub use tidemark_store::step_back;
