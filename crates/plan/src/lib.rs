//! From goals and curves to sizes: how much memory a tenant needs for what it asked for.
//!
//! A [`Sizer`] follows one tenant with a hit-ratio goal. It is told what was measured and what the curve says, and answers
//! with the size that the tenant should have, in the two phases of Genie (IEEE TKDE 2025, section III): Direct-Fit jumps to
//! what the curve says, Fine-Grained Resizing goes on from there by what was measured. [`shares`] weighs all tenants against
//! each other where memory is not enough: floors, goals by priority, then what is left to whom it is worth most.
//!
//! [`node`] is for several instances that share a node's memory: what each should have of it, and how it comes to that.
//!
//! Invariant: pure decisions. Time comes in as a value; there is no I/O and no thread.

#![forbid(unsafe_code)]

mod check;
mod load;
pub mod node;
mod reach;
mod reading;
mod share;
mod sizer;
mod slope;
pub mod tiers;
mod window;

pub use check::{Broken, check};
pub use load::LoadWatch;
pub use reach::{GoalReading, Outlook, Prospect, Reach, reach};
pub use reading::{GoalState, Reading, Sizing};
pub use share::{
    Claimant, HitWorth, HitWorthError, Load, Returns, Share, Utility, UtilityError, Vessel, Worth, even, level, shares,
    worths,
};
pub use sizer::Sizer;
pub use slope::efficiency_seen;
pub use window::{Count, Measured};
