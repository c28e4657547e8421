//! Tenants that compete for a pool that is too small, on the real store and the real control plane in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod goals;
mod joins;
mod live;
mod quiet;
#[path = "../common/scale.rs"]
mod scale;
mod study;
