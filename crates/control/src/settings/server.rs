//! The settings of the server that can change while it runs.

use std::time::Duration;

use tidemark_types::{MIB, Size, format_duration};

use super::bounds::{
    DEFAULT_FIRST_GRANT_BYTES, DEFAULT_IDLE_AFTER, MAX_IDLE_AFTER, MAX_ROUND_PERIOD, MIN_FIRST_GRANT_BYTES,
    MIN_IDLE_AFTER, MIN_POOL_BYTES, MIN_ROUND_PERIOD,
};
use super::value::Change;
use crate::error::{Refusal, RefusalKind};

/// A change of the server's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerPatch {
    /// All memory for segments and indexes; cleared: the size at the start.
    pub pool_bytes: Change<u64>,
    /// Time between rounds; cleared: [`DEFAULT_ROUND_PERIOD`].
    pub round_period: Change<Duration>,
}

/// How tenants come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idling {
    /// The memory that a tenant may take by itself at its first write, as far as it is free: at least
    /// [`MIN_FIRST_GRANT_BYTES`].
    pub first_grant_bytes: u64,
    /// After this long without a get or a write a tenant's memory is there for others: [`MIN_IDLE_AFTER`] to
    /// [`MAX_IDLE_AFTER`].
    pub idle_after: Duration,
}

impl Default for Idling {
    fn default() -> Self {
        Self {
            first_grant_bytes: DEFAULT_FIRST_GRANT_BYTES,
            idle_after: DEFAULT_IDLE_AFTER,
        }
    }
}

/// Checks a size for the pool. `limit_bytes` is the most that this machine can back.
///
/// # Errors
/// Below [`MIN_POOL_BYTES`] or above the limit.
pub(crate) fn check_pool(pool_bytes: u64, limit_bytes: u64) -> Result<(), Refusal> {
    if (MIN_POOL_BYTES..=limit_bytes).contains(&pool_bytes) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalKind::Invalid,
        format!(
            "{} of memory is not possible: allowed are {} to {}",
            Size(pool_bytes),
            Size(MIN_POOL_BYTES),
            // A machine's memory is no round number of anything.
            Size(limit_bytes - limit_bytes % MIB)
        ),
    )
    .field("pool_bytes")
    .allowed([format!("{MIN_POOL_BYTES} to {limit_bytes}"), "null".into()]))
}

/// Checks a round period.
///
/// # Errors
/// Outside [`MIN_ROUND_PERIOD`] to [`MAX_ROUND_PERIOD`].
pub(crate) fn check_round_period(period: Duration) -> Result<(), Refusal> {
    if (MIN_ROUND_PERIOD..=MAX_ROUND_PERIOD).contains(&period) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalKind::Invalid,
        format!(
            "a round period of {} is not possible: allowed are {} to {}",
            format_duration(period),
            format_duration(MIN_ROUND_PERIOD),
            format_duration(MAX_ROUND_PERIOD)
        ),
    )
    .field("round_period_us")
    .allowed([
        format!("{} to {}", MIN_ROUND_PERIOD.as_micros(), MAX_ROUND_PERIOD.as_micros()),
        "null".into(),
    ]))
}

/// Checks how tenants are to come and go.
///
/// # Errors
/// A first grant below [`MIN_FIRST_GRANT_BYTES`], or a time outside [`MIN_IDLE_AFTER`] to [`MAX_IDLE_AFTER`].
pub(crate) fn check_idling(idling: &Idling) -> Result<(), Refusal> {
    if idling.first_grant_bytes < MIN_FIRST_GRANT_BYTES {
        let message = format!(
            "a first grant of {} is not possible: at least {} are needed",
            Size(idling.first_grant_bytes),
            Size(MIN_FIRST_GRANT_BYTES)
        );
        return Err(Refusal::new(RefusalKind::Invalid, message).field("first_grant"));
    }
    if !(MIN_IDLE_AFTER..=MAX_IDLE_AFTER).contains(&idling.idle_after) {
        let message = format!(
            "idle after {} is not possible: allowed are {} to {}",
            format_duration(idling.idle_after),
            format_duration(MIN_IDLE_AFTER),
            format_duration(MAX_IDLE_AFTER)
        );
        return Err(Refusal::new(RefusalKind::Invalid, message).field("idle_after"));
    }
    Ok(())
}
