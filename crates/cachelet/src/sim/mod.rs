//! A deterministic simulator in virtual time around the same core that the agent runs.
//!
//! [`World`] has nodes with clocks of their own, a network, an object store and a coordination engine, each with the
//! faults of [`Faults`]. All chance comes from one seed: two worlds from one seed do the same. [`history`] keeps what
//! functions saw, and checks it.

mod coordinator;
pub mod course;
pub mod history;
mod network;
mod rng;
mod store;
mod world;

#[cfg(test)]
mod model;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod scopes;

pub use coordinator::LEASE_US;
pub use network::Costs;
pub use rng::Rng;
pub use world::{Ended, Faults, Tally, World};
