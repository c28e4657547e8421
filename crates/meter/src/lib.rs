//! Metering and bills: what each tenant used, the ledger of it, and what it costs.
//!
//! A [`Meter`] is given the snapshots and plans that pass between data plane and control plane, and what the system says of the
//! process. Of these it makes [`Entry`]s: use of one tenant over a time, the process's use that is no tenant's, and what
//! interrupted the record. Each entry becomes a [`Row`] by its place in a chain of hashes. A [`Tariff`](price::Tariff) turns sums
//! of rows into a [`Bill`](bill::Bill).
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
pub mod price;
mod row;
mod usage;

pub use chain::{Break, Chain, GENESIS, Hash, Verifier};
pub use meter::{Meter, MeterConfig, Moment, ProcessCpu};
pub use row::{Entry, Kind, Row, Subject};
pub use usage::{Resource, Totals, Usage};
