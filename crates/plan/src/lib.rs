//! From goals and curves to sizes: how much memory a tenant needs for its goal.
//!
//! A [`Sizer`] follows one tenant with a hit-ratio goal. It is told the measurements and the curve, and answers with
//! the size that the tenant should have. It works in the two phases of Genie (IEEE TKDE 2025, section III). Direct-Fit
//! jumps to the size that the curve names; Fine-Grained Resizing goes on from there by measurements. [`shares`] weighs
//! all tenants against each other when memory is not enough. Floors come first, then goals by priority; the rest goes
//! where it is worth most.
//!
//! [`node`] is for several instances that share a node's memory: the share of each, and the way to it.
//!
//! Invariant: pure decisions. Time comes in as a value; there is no I/O and no thread.

#![forbid(unsafe_code)]

mod check;
mod count;
mod load;
pub mod node;
mod reach;
mod reading;
mod share;
mod sizer;
mod slope;
pub mod tiers;

pub use check::{Broken, check};
pub use count::{Count, Measured};
pub use load::LoadWatch;
pub use reach::{GoalReading, HitGoal, MET_WITHIN, Outlook, Prospect, Reach, reach};
pub use reading::{GoalState, Reading, Sizing};
pub use share::{
    Claimant, HitWorth, HitWorthError, Load, Returns, Share, Utility, UtilityError, Vessel, Worth, even, level, shares,
    worths,
};
pub use sizer::Sizer;
pub use slope::efficiency_seen;
