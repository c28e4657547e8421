//! Checks of a tenant's settings, before anything is stored.

use tidemark_meter::price::Prices;
use tidemark_meter::spending::month_of_memory;
use tidemark_types::{Size, TenantLimits, TenantName, UNIT_BYTES, format_duration};

use super::bounds::{
    MAX_BYTES_PER_SECOND, MAX_CAP_BYTES, MAX_CONNECTIONS, MAX_COST, MAX_OPS_PER_SECOND, MAX_PRIORITY,
    MIN_BYTES_PER_SECOND, MIN_CAP_BYTES, MIN_COST, MIN_FLASH_CAP_BYTES, MIN_FLASH_WRITE_BYTES,
};
use super::tenant::{FlashSettings, TenantSettings};
use crate::error::{Refusal, RefusalKind};
use crate::grant::grantable_bytes;

/// Checks one tenant's settings by themselves.
///
/// # Errors
/// A cap below [`MIN_CAP_BYTES`] or above [`MAX_CAP_BYTES`], or a floor above the cap. A cost outside of [`MIN_COST`]
/// to [`MAX_COST`], or a latency that is not below the time of a miss. A priority above [`MAX_PRIORITY`], or a limit
/// outside of its range.
pub(crate) fn check_tenant(settings: &TenantSettings) -> Result<(), Refusal> {
    check_costs(settings)?;
    if let Some(priority) = settings.priority
        && priority > MAX_PRIORITY
    {
        let message =
            format!("a priority of {priority} is not possible: allowed are 0 to {MAX_PRIORITY}, the highest first");
        return Err(Refusal::new(RefusalKind::Invalid, message)
            .field("goals.priority")
            .allowed([format!("0 to {MAX_PRIORITY}"), "null".into()]));
    }
    if let Some(cap) = settings.cap_bytes
        && !(MIN_CAP_BYTES..=MAX_CAP_BYTES).contains(&cap)
    {
        return Err(Refusal::new(
            RefusalKind::Invalid,
            format!(
                "a cap of {} is not possible: allowed are {} to {}",
                Size(cap),
                Size(MIN_CAP_BYTES),
                Size(MAX_CAP_BYTES)
            ),
        )
        .field("goals.cap_bytes")
        .allowed([format!("{MIN_CAP_BYTES} to {MAX_CAP_BYTES}"), "null".into()]));
    }
    if let (Some(floor), Some(cap)) = (settings.floor_bytes, settings.cap_bytes)
        && floor > cap
    {
        return Err(Refusal::new(
            RefusalKind::Invalid,
            format!("the floor of {} is above the cap of {}", Size(floor), Size(cap)),
        )
        .field("goals.floor_bytes")
        .allowed([format!("0 to {cap}"), "null".into()]));
    }
    if settings.at_limit.is_some() && settings.spending.is_none() {
        let message =
            "there is nothing to do at a spending limit where there is none: set `limits.spending_per_month`, too";
        return Err(Refusal::new(RefusalKind::Invalid, message).field("limits.at_spending_limit"));
    }
    check_flash(&settings.flash)?;
    check_limits(&settings.limits)
}

/// Checks what a tenant may do on flash.
fn check_flash(settings: &FlashSettings) -> Result<(), Refusal> {
    let sizes = [
        (
            "flash.cap_bytes",
            "cap of flash",
            settings.cap_bytes,
            MIN_FLASH_CAP_BYTES,
            MAX_CAP_BYTES,
        ),
        (
            "flash.write_bytes_per_second",
            "limit of bytes written in a second",
            settings.write_bytes_per_second,
            MIN_FLASH_WRITE_BYTES,
            MAX_BYTES_PER_SECOND,
        ),
    ];
    for (field, name, size, least, most) in sizes {
        let Some(given) = size.filter(|size| !(least..=most).contains(size)) else {
            continue;
        };
        let message = format!(
            "a {name} of {} is not possible: allowed are {} to {}",
            Size(given),
            Size(least),
            Size(most)
        );
        return Err(Refusal::new(RefusalKind::Invalid, message)
            .field(field)
            .allowed([format!("{least} to {most}"), "null".into()]));
    }
    if let (Some(floor), Some(cap)) = (settings.floor_bytes, settings.cap_bytes)
        && floor > cap
    {
        let message = format!(
            "the floor of flash of {} is above its cap of {}",
            Size(floor),
            Size(cap)
        );
        return Err(Refusal::new(RefusalKind::Invalid, message)
            .field("flash.floor_bytes")
            .allowed([format!("0 to {cap}"), "null".into()]));
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

/// Checks the limits of a tenant's requests in a time.
fn check_limits(limits: &TenantLimits) -> Result<(), Refusal> {
    for (field, limit, least, most) in [
        ("limits.ops_per_second", limits.ops_per_second, 1, MAX_OPS_PER_SECOND),
        (
            "limits.bytes_per_second",
            limits.bytes_per_second,
            MIN_BYTES_PER_SECOND,
            MAX_BYTES_PER_SECOND,
        ),
        ("limits.connections", limits.connections, 1, MAX_CONNECTIONS),
    ] {
        let Some(given) = limit.filter(|limit| !(least..=most).contains(limit)) else {
            continue;
        };
        let message = format!("a limit of {given} is not possible: allowed are {least} to {most}");
        return Err(Refusal::new(RefusalKind::Invalid, message)
            .field(field)
            .allowed([format!("{least} to {most}"), "null".into()]));
    }
    Ok(())
}

fn check_costs(settings: &TenantSettings) -> Result<(), Refusal> {
    let costs = [
        ("goals.latency_us", "latency", settings.latency),
        ("goals.miss_cost_us", "cost of a miss", settings.miss_cost),
    ];
    for (field, name, cost) in costs {
        if let Some(cost) = cost
            && !(MIN_COST..=MAX_COST).contains(&cost)
        {
            let message = format!(
                "a {name} of {} is not possible: allowed are {} to {}",
                format_duration(cost),
                format_duration(MIN_COST),
                format_duration(MAX_COST)
            );
            let range = format!("{} to {}", MIN_COST.as_micros(), MAX_COST.as_micros());
            return Err(Refusal::new(RefusalKind::Invalid, message)
                .field(field)
                .allowed([range, "null".into()]));
        }
    }
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
