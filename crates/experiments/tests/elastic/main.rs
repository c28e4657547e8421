//! Goals in virtual time: the real store and the real control plane, driven through minutes in seconds, from one seed.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod comes_back;
mod fig11;
mod infeasible;
mod many;
mod moves;
mod out_of_reach;
mod policies;
#[path = "../common/scale.rs"]
mod scale;
mod scene;
mod unsteady;
