//! Agents with a real etcd and an origin whose faults the tests choose.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod adapters;
mod budgets;
mod chooses;
mod copies;
mod etcd;
mod faults;
mod life;
mod memory;
mod nodes;
mod origin;
mod restored;
mod scope;
mod tenants;
