//! Checks of a tenant's settings, before anything is stored.

use tidemark_meter::price::Prices;
use tidemark_meter::spending::month_of_memory;
use tidemark_types::{Size, TenantName, UNIT_BYTES, format_duration};

use super::table::{SETTINGS, TenantSettings};
use crate::error::{Refusal, RefusalKind};
use crate::grant::grantable_bytes;

/// Checks one tenant's settings by themselves.
///
/// # Errors
/// One is outside of its bounds. A floor is above the cap, or a latency is not below the time of a miss. There is an action
/// at a spending limit and no limit, or a figure to minimise without both a latency and a limit.
pub(crate) fn check_tenant(settings: &TenantSettings) -> Result<(), Refusal> {
    SETTINGS.iter().try_for_each(|setting| setting.check(settings))?;
    check_costs(settings)?;
    check_floor("floor", "goals.floor_bytes", settings.floor_bytes, settings.cap_bytes)?;
    let flash = &settings.flash;
    check_floor(
        "floor of flash",
        "flash.floor_bytes",
        flash.floor_bytes,
        flash.cap_bytes,
    )?;
    if settings.at_limit.is_some() && settings.spending.is_none() {
        let message =
            "there is nothing to do at a spending limit where there is none: set `limits.spending_per_month`, too";
        return Err(Refusal::new(RefusalKind::Invalid, message).field("limits.at_spending_limit"));
    }
    if settings.minimise.is_some() && (settings.latency.is_none() || settings.spending.is_none()) {
        let message = "there is nothing to choose without both a latency and a spending limit: set `goals.latency_us` and \
                       `limits.spending_per_month`, too";
        return Err(Refusal::new(RefusalKind::Invalid, message).field("goals.minimise"));
    }
    Ok(())
}

/// Checks that a floor is not above its cap.
fn check_floor(noun: &str, field: &str, floor: Option<u64>, cap: Option<u64>) -> Result<(), Refusal> {
    let (Some(floor), Some(cap)) = (floor, cap) else {
        return Ok(());
    };
    if floor <= cap {
        return Ok(());
    }
    let message = format!("the {noun} of {} is above the cap of {}", Size(floor), Size(cap));
    Err(Refusal::new(RefusalKind::Invalid, message)
        .field(field)
        .allowed([format!("0 to {cap}"), "null".into()]))
}

/// Checks that a goal for the latency can not be met without memory.
fn check_costs(settings: &TenantSettings) -> Result<(), Refusal> {
    if let (Some(latency), Some(miss_cost)) = (settings.latency, settings.miss_cost)
        && latency >= miss_cost
    {
        let message = format!(
            "a latency of {} is no goal where a miss takes {}: it would be met without any memory",
            format_duration(latency),
            format_duration(miss_cost)
        );
        return Err(Refusal::new(RefusalKind::Invalid, message)
            .field("goals.latency_us")
            .allowed([format!("1 to {}", miss_cost.as_micros() - 1), "null".into()]));
    }
    Ok(())
}

/// Checks a tenant's spending limit against the prices in force, which must exist.
///
/// # Errors
/// There are no prices, so that a limit would have no effect; or its floor alone costs more than the limit.
pub(crate) fn check_spending(settings: &TenantSettings, prices: Option<&Prices>) -> Result<(), Refusal> {
    let Some(limit) = settings.spending_limit() else {
        return Ok(());
    };
    let Some(prices) = prices else {
        let message = "a spending limit has no effect without prices: start the server with --prices FILE";
        return Err(Refusal::new(RefusalKind::NotAvailable, message).field("limits.spending_per_month"));
    };
    let floor = settings.floor_bytes.unwrap_or(0);
    let needed = month_of_memory(floor, prices);
    if needed <= limit.amount {
        return Ok(());
    }
    let message = format!(
        "the floor of {} alone costs {needed} in a month of 31 days, but only {} may be spent",
        Size(floor),
        limit.amount
    );
    Err(Refusal::new(RefusalKind::OverLimit, message).field("limits.spending_per_month"))
}

/// Checks that all floors together can be kept.
///
/// # Errors
/// Their sum is more than the grantable part of the pool.
pub(crate) fn check_floors(floors: impl Iterator<Item = u64>, pool_bytes: u64, field: &str) -> Result<(), Refusal> {
    let total = floors.fold(0_u64, |sum, floor| sum.saturating_add(round_up(floor)));
    let available = grantable_bytes(pool_bytes);
    if total <= available {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalKind::OverLimit,
        format!(
            "the floors of all tenants would come to {}, but only {} can be granted of a pool of {}",
            Size(total),
            Size(available),
            Size(pool_bytes)
        ),
    )
    .field(field))
}

/// Checks that all floors of flash together can be kept.
///
/// # Errors
/// They come to more than the flash that there is.
pub(crate) fn check_flash_floors(floors: impl Iterator<Item = u64>, flash_bytes: u64) -> Result<(), Refusal> {
    let total = floors.fold(0_u64, u64::saturating_add);
    if total <= flash_bytes {
        return Ok(());
    }
    let message = format!(
        "the floors of flash of all tenants would come to {}, but this server has {} of flash",
        Size(total),
        Size(flash_bytes)
    );
    Err(Refusal::new(RefusalKind::OverLimit, message).field("flash.floor_bytes"))
}

/// Reads a tenant's name out of a request.
///
/// # Errors
/// The text is no name.
pub(crate) fn check_name(text: &str) -> Result<TenantName, Refusal> {
    text.parse()
        .map_err(|error: tidemark_types::NameError| Refusal::new(RefusalKind::Invalid, error.to_string()).field("name"))
}

/// Rounds up to whole units.
pub(crate) fn round_up(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES)
}
