//! The cache inside a program: tenants with goals in one pool of memory, used from any thread.
//!
//! A [`Cache`] has the pool, a keeper that looks after it and the control plane; a [`Tenant`] has keys. Whoever has threads
//! of its own, or wants virtual time, takes a [`Driver`] instead of the cache's two threads ([`Builder::build_driven`]).
//! Everything may be changed while it is in use: the pool's size, tenants' goals, caps and policies, tenants themselves.
//!
//! With a file or device for flash ([`Builder::flash`]), what memory evicts goes there. Reading it waits, but for [`Tenant::try_get`].
//!
//! A program can decide itself which items go ([`EvictionPolicy`]) and which are let in ([`Admission`]). It can decide
//! how much memory a tenant wants ([`ResizeStrategy`]) and what hits are worth to it ([`UtilityFunction`]). It can also
//! be told of events ([`Events`]). Invariant: whatever such code does, the cache stays sound. That includes panics if
//! the program is built with unwinding. Code that fails is replaced by the built-in rule, and reported ([`Fault`]).

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
// The types of settings and answers.
pub use tidemark_control::{
    Change, ControlError, CurvePointView, CurveView, FlashSettings, HitCurve, Idling, Load, MoveView, ResizeStrategy,
    SettingsPatch, SizeReading, TenantSettings, TenantView, Utility, UtilityError, UtilityFunction,
};
// The types of a custom eviction policy, and of reports on code that failed.
pub use tidemark_store::{EvictionPolicy, Newcomer, Queue, Resident, Verdict};
pub use tidemark_types::{Cause, Fault, FlashUse, Part};
// Answers about a value that is on flash, and a file for it that cannot be used.
pub use tidemark_flash::device::FileError;
pub use tidemark_flash::{OnFlash, OpenError};
pub use value::{Reservation, Value, ValueRef};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = tidemark_store::KEY_BYTES_MAX;
/// The longest value, in bytes: 64 MiB.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
