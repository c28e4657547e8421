//! The data plane of any front: the tenants, the adoption of plans, the snapshots, and the limits of each tenant.
//!
//! A *front* brings requests to the tenants: sockets, or a program that embeds the cache. It attaches its own data to each
//! tenant through [`Front`], and implements nothing of the rules here again.
//!
//! Invariants ([`tidemark_types::DataPlane`]): plans are followed in their order. A tenant that nothing happened to since the
//! last snapshot is in none. A removed tenant is reported as removed once, when its memory is back and no front uses it.

#![forbid(unsafe_code)]

mod bucket;
mod flash;
mod front;
mod plane;
mod tenant;
mod throttle;

#[cfg(test)]
mod tests;

pub use bucket::Moment;
pub use flash::{Flash, Purpose, Tier};
pub use front::Front;
pub use plane::{Plane, PlaneParts};
pub use tenant::Tenant;
pub use throttle::{Limited, Throttle, Throttled, TooManyConnections};
