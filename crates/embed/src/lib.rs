//! The cache inside a program: tenants with goals in one pool of memory, used from any thread.
//!
//! A [`Cache`] has the pool, a keeper that looks after it and the control plane; a [`Tenant`] has keys. Whoever has threads
//! of its own, or wants virtual time, takes a [`Driver`] instead of the cache's two threads ([`Builder::build_driven`]).
//! Everything may be changed while it is in use: the pool's size, tenants' goals, caps and policies, tenants themselves.
//!
//! A program can decide itself which items go ([`EvictionPolicy`]), which are let in ([`Admission`]), how much memory a
//! tenant wants ([`ResizeStrategy`]) and what hits are worth to it ([`UtilityFunction`]), and be told of what happens
//! ([`Events`]). Invariant: whatever such code does, panics included where the program is built with unwinding, the cache
//! stays sound; what fails is replaced by what is built in, and reported ([`Fault`]).

#![forbid(unsafe_code)]

mod admission;
mod cache;
mod error;
mod events;
mod plane;
mod program;
mod tenant;
mod threads;
mod value;

pub use admission::{Admission, AdmissionChoice, AdmissionError, Candidate};
pub use cache::{Builder, Cache, CacheStats, Driver};
pub use error::Error;
pub use events::{Events, Left, LeftItem};
pub use tenant::{Tenant, TenantStats};
// What settings and answers are made of.
pub use tidemark_control::{
    Change, ControlError, CurvePointView, CurveView, HitCurve, Idling, Load, MoveView, ResizeStrategy, SettingsPatch,
    SizeReading, TenantSettings, TenantView, Utility, UtilityError, UtilityFunction,
};
// What a program's own eviction policy is made of, and what is said of code that failed.
pub use tidemark_store::{EvictionPolicy, Newcomer, Queue, Resident, Verdict};
pub use tidemark_types::{Cause, Fault, Part};
pub use value::{Reservation, Value, ValueRef};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = tidemark_store::KEY_BYTES_MAX;
/// The longest value, in bytes: 64 MiB.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
