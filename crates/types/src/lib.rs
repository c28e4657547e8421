//! The nouns that every part of Tidemark shares.
//!
//! The data plane (`store`, `server`) and the control plane (`curve`, `plan`, `meter`, `control`) know each other only
//! through this crate. A [`Snapshot`] goes up, a [`Plan`] comes down, and [`DataPlane`] is the only door between them.
//!
//! Invariant: plain values only. Nothing here does I/O except [`SystemClock`], which reads the system's clock. Nothing
//! calls code from outside but [`Guest`], which lets no panic of it through.

#![forbid(unsafe_code)]

mod flash;
mod guest;
mod limits;
mod name;
mod plan;
mod policy;
mod ratio;
mod sample;
mod secret;
mod snapshot;
mod time;
mod units;
pub mod utc;
mod visit;

pub use flash::{FlashPlan, Staleness, StalenessError};
pub use guest::{Cause, Fault, Guest, Part};
pub use limits::{TenantLimits, Weight};
pub use name::{NameError, TenantId, TenantName};
pub use plan::{DataPlane, Plan, TenantPlan, TenantState};
pub use policy::{LogShare, Policy, PolicyChoice, PolicyError};
pub use ratio::{HitRatio, HitRatioError};
pub use sample::{Sample, SampleKind, Samples, SamplingThreshold};
pub use secret::{PermissionError, Permissions, Secret, SecretHash};
pub use snapshot::{
    CommandCount, FlashUse, LoadShape, Outcome, PlaneCpu, PoolSnapshot, Refused, SERVED_UP_TO_US, Served, ServedTimes,
    ShardSnapshot, Snapshot, TenantCounters, TenantSnapshot,
};
pub use time::{Clock, ManualClock, SystemClock, UnixMs};
pub use units::{BitRate, Size, UnitError, format_duration, parse_duration};
pub use visit::{
    COMMAND_KEYS_MAX, KEY_PREFIX_BYTES_MAX, SAMPLED_COMMANDS_MAX, SAMPLED_KEY_BYTES_MAX, SampledCommand, VisitSamples,
};

/// One mebibyte in bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte in bytes.
pub const GIB: u64 = 1 << 30;
/// The unit in which pool memory is counted, granted and given back: 64 KiB.
pub const UNIT_BYTES: u64 = 64 << 10;
