//! Several instances on one node: how much of its memory each should have, and how each comes to it.
//!
//! There is no leader. Each instance states what it holds and what it needs; [`shares`] makes of all statements what each
//! should have, the same wherever it is computed, and [`step`] says what one instance is to do now. [`Tenure`] keeps what an
//! instance may hold: it grows only after it has stated the larger lease and found, reading the others' statements anew,
//! that all of them fit, and it states a smaller one only after its pool holds no more than that.
//!
//! Invariant: whoever reads which statement when, whoever stands still or dies between any two steps, what all pools may
//! hold is at most the node's memory, unless that was made smaller. For of two that grow, the one that reads last sees both.
//! Statements that differ, because they were read at different times, cost memory that lies idle for a while, never more.

mod share;
mod step;
mod tenure;

pub use share::{Demand, GoalDemand, LEASE_UNIT_BYTES, Member, Node, Shares, Worth, shares};
pub use step::{Step, step};
pub use tenure::Tenure;

#[cfg(test)]
mod tests;
