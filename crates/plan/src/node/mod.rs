//! Several instances on one node: how much of its memory each should have, and how each comes to it.
//!
//! There is no leader. Each instance states its lease and its demand. [`shares`] turns all statements into each
//! instance's share, the same wherever it is computed. [`step`] says what one instance is to do now. [`Tenure`] keeps
//! the memory that an instance may hold. It grows only after the instance has stated the larger lease, read the others'
//! statements anew, and found that all of them fit. It states a smaller lease only after its pool holds no more than
//! that.
//!
//! Invariant: all pools together may hold at most the node's memory, unless that was made smaller. It does not matter
//! who reads which statement when, or who stands still or dies between two steps. When two instances grow, the one that
//! reads last sees both. Statements that differ, because they were read at different times, cost memory that lies idle
//! for a while, never more.

mod share;
mod step;
mod tenure;

pub use share::{Demand, GoalDemand, LEASE_UNIT_BYTES, Member, Node, Shares, Worth, shares};
pub use step::{Step, step};
pub use tenure::Tenure;

#[cfg(test)]
mod tests;
