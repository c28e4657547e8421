//! The cache inside a program: tenants with goals in one pool of memory, used from any thread.
//!
//! A [`Cache`] has the pool, a keeper that looks after it and the control plane; a [`Tenant`] has keys. Whoever has threads
//! of its own, or wants virtual time, takes a [`Driver`] instead of the cache's two threads ([`Builder::build_driven`]).
//! Everything may be changed while it is in use: the pool's size, tenants' goals, caps and policies, tenants themselves.

#![forbid(unsafe_code)]

mod cache;
mod error;
mod plane;
mod tenant;
mod threads;
mod value;

pub use cache::{Builder, Cache, CacheStats, Driver};
pub use error::Error;
pub use plane::{LocalPlane, LocalTenant};
pub use tenant::{Tenant, TenantStats};
// What settings and answers are made of.
pub use tidemark_control::{
    Change, ControlError, CurvePointView, CurveView, Idling, MoveView, SettingsPatch, TenantSettings, TenantView,
};
pub use value::{Reservation, Value};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = tidemark_store::KEY_BYTES_MAX;
/// The longest value, in bytes: 64 MiB.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
