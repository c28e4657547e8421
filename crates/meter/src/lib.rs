//! Metering and bills: the use of each tenant, the ledger of it, and the cost.
//!
//! A [`Meter`] is given the snapshots and plans that pass between data plane and control plane, and the system's
//! figures for the process. It makes [`Entry`]s of these: use of one tenant over a time, the process's use that is no
//! tenant's, and interruptions of the record. Each entry becomes a [`Row`] by its place in a chain of hashes. A
//! [`Tariff`](price::Tariff) turns sums of rows into a [`Bill`](bill::Bill).
//!
//! Invariants: values in, values out; no clock, file, thread or socket. Amounts are whole numbers that are never rounded
//! before they are priced, so that any split of a time into rows gives the same bill.

#![forbid(unsafe_code)]

pub mod bill;
mod chain;
pub mod estimate;
#[cfg(feature = "files")]
pub mod export;
mod meter;
pub mod model;
pub mod price;
mod row;
pub mod spending;
pub mod top;
mod usage;

pub use chain::{Break, Chain, GENESIS, Hash, Verifier};
pub use meter::{Grants, Meter, MeterConfig, Moment, ProcessCpu};
pub use row::{Entry, Kind, Row, Subject};
pub use usage::{Resource, Totals, Usage};
