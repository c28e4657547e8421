//! The settings of tenants and of the server. Values are checked here, before anything is stored.
//!
//! Units: bytes, except where a name says otherwise.

use std::time::Duration;

use tidemark_meter::price::{Money, Prices};
use tidemark_meter::spending::{AtLimit, SpendingLimit, month_of_memory};
use tidemark_plan::Utility;
use tidemark_types::{
    HitRatio, MIB, PolicyChoice, Size, Staleness, TenantLimits, TenantName, UNIT_BYTES, Weight, format_duration,
};

use crate::error::{Refusal, RefusalKind};
use crate::grant::grantable_bytes;

/// The least cap of a tenant: one small segment and its index for each of a few shards fit, so that the tenant can
/// work.
pub const MIN_CAP_BYTES: u64 = MIB;
/// The most cap of a tenant: more than any machine has, and the state file's signed integers hold it.
pub(crate) const MAX_CAP_BYTES: u64 = 1 << 60;
/// The least cap of a tenant's flash: a segment to fill, one that is written, and two that are kept ready.
pub const MIN_FLASH_CAP_BYTES: u64 = 4 * MIB;
/// The least bytes a second that a tenant can be limited to on flash: half of them are kept for what is known to be used,
/// and a value that is longer than this is never written.
pub(crate) const MIN_FLASH_WRITE_BYTES: u64 = 512 << 10;
/// The least pool: the reserve, and a few tenants of the least cap.
pub const MIN_POOL_BYTES: u64 = 8 * MIB;
/// The most tenants of one server: beyond it, listing them and loading the state file at the start would take seconds.
pub const MAX_TENANTS: usize = 65_536;
/// The most operations a second that a tenant can be limited to: more than any machine serves.
pub(crate) const MAX_OPS_PER_SECOND: u64 = 1_000_000_000;
/// The least bytes a second that a tenant can be limited to: below it, a single command could take all of a minute.
pub(crate) const MIN_BYTES_PER_SECOND: u64 = 1 << 10;
/// The most bytes a second that a tenant can be limited to: more than any machine's network carries.
pub(crate) const MAX_BYTES_PER_SECOND: u64 = 1 << 40;
/// The most connections that a tenant can be limited to: more than a server can have descriptors for (Linux's `nr_open`).
pub(crate) const MAX_CONNECTIONS: u64 = 1 << 20;
/// How often the control plane looks, unless it is woken.
pub const DEFAULT_ROUND_PERIOD: Duration = Duration::from_secs(1);
/// A shorter round would cost CPU time that belongs to the workers.
pub const MIN_ROUND_PERIOD: Duration = Duration::from_millis(100);
/// A longer round would make floors and grants that come "within two rounds" meaningless.
pub const MAX_ROUND_PERIOD: Duration = Duration::from_secs(60);
/// The first grant, which the data plane makes by itself at the first write as far as memory is free. It is enough for
/// the writes (at 1 GB/s) until the control plane has heard of it and answered.
pub const DEFAULT_FIRST_GRANT_BYTES: u64 = 20 * MIB;
/// With a smaller first grant than the least cap, a tenant could not work until the next round.
pub const MIN_FIRST_GRANT_BYTES: u64 = MIN_CAP_BYTES;
/// A tenant that was asked nothing for this long gives its memory to those that want it.
pub const DEFAULT_IDLE_AFTER: Duration = Duration::from_secs(300);
/// A shorter silence is what many clients have between two bursts.
pub const MIN_IDLE_AFTER: Duration = Duration::from_secs(1);
/// A year: an operator that asks for more wants no tenant to be idle, and has that.
pub const MAX_IDLE_AFTER: Duration = Duration::from_secs(31_536_000);

/// Goals of the highest priority are served first: ten classes are more than anybody tells apart.
pub const MAX_PRIORITY: u8 = 9;
/// In the middle, so that some can be put above all others and some below.
pub const DEFAULT_PRIORITY: u8 = 5;
/// The least time that a get, or a miss, may be said to take.
pub const MIN_COST: Duration = Duration::from_micros(1);
/// The longest: no client waits longer for an answer.
pub const MAX_COST: Duration = Duration::from_secs(60);
/// The time of a hit for a client on the same network while the server is idle, its way there and back included.
pub const DEFAULT_HIT_COST: Duration = Duration::from_micros(50);
/// How often an instance looks at the other instances' leases and states its own. Memory moves in about three such looks:
/// one needs it, one gives it back, one takes it.
pub const DEFAULT_LEASE_PERIOD: Duration = Duration::from_secs(1);
/// A shorter one would cost CPU time for nothing: giving memory back takes as long.
pub const MIN_LEASE_PERIOD: Duration = Duration::from_millis(100);
/// With a longer one, memory would not be where it is worth most within 30 s.
pub const MAX_LEASE_PERIOD: Duration = Duration::from_secs(10);

/// The settings of a tenant; `None` is the default of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantSettings {
    /// The share of gets that shall find their key; the tenant gets the least memory that does it.
    pub hit_ratio: Option<HitRatio>,
    /// The mean time that a get shall take, misses included; the tenant gets the least memory that does it. With a hit
    /// ratio too, the stricter of the two counts.
    pub latency: Option<Duration>,
    /// The time of a miss, until the value is back; without it, the measured time between misses and the writes that
    /// follow.
    pub miss_cost: Option<Duration>,
    /// Goals of a higher one are served first, 0 to [`MAX_PRIORITY`]; by default [`DEFAULT_PRIORITY`].
    pub priority: Option<u8>,
    /// By what memory is shared that no floor and no goal asks for.
    pub utility: Option<Utility>,
    /// Memory that it is guaranteed while it is active and needs it.
    pub floor_bytes: Option<u64>,
    /// Memory that it never exceeds.
    pub cap_bytes: Option<u64>,
    /// Which items go when memory is short.
    pub policy: Option<PolicyChoice>,
    /// Its weight in shared things; `None` is [`Weight::LEAST`].
    pub weight: Option<Weight>,
    /// The limits of its clients' requests in a time. A program that embeds the cache is its own client, and has no
    /// such limits.
    pub limits: TenantLimits,
    /// The amount that it may spend in a month, in the currency of the prices.
    pub spending: Option<Money>,
    /// The action when it is spent; [`AtLimit::Alert`] unless said otherwise.
    pub at_limit: Option<AtLimit>,
    /// Its settings for flash, where there is some.
    pub flash: FlashSettings,
}

/// A tenant's settings for flash; `None` is the default of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashSettings {
    /// Flash that it is guaranteed.
    pub floor_bytes: Option<u64>,
    /// Flash that it never exceeds.
    pub cap_bytes: Option<u64>,
    /// Bytes that it may write to flash in a second.
    pub write_bytes_per_second: Option<u64>,
    /// How stale its items on flash may be after an unclean end of the server.
    pub staleness: Option<Staleness>,
}

impl TenantSettings {
    /// The amount that it may spend, and the action when it is spent.
    pub(crate) fn spending_limit(&self) -> Option<SpendingLimit> {
        Some(SpendingLimit {
            amount: self.spending?,
            at_limit: self.at_limit.unwrap_or_default(),
        })
    }

    /// Whether memory is asked for by its gain.
    pub(crate) fn has_goal(&self) -> bool {
        self.hit_ratio.is_some() || self.latency.is_some()
    }

    /// Whether `other` asks for the same.
    pub(crate) fn has_same_goal(&self, other: &Self) -> bool {
        (self.hit_ratio, self.latency, self.miss_cost) == (other.hit_ratio, other.latency, other.miss_cost)
    }

    /// Whether memory and flash, where they are sized together, have other sizes than with `other` for more than a limit.
    pub(crate) fn changes_tiers(&self, other: &Self) -> bool {
        (self.latency, self.miss_cost, self.spending_limit(), self.flash)
            != (other.latency, other.miss_cost, other.spending_limit(), other.flash)
    }
}

/// The action of a command on one setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Leaves it.
    #[default]
    Keep,
    /// Back to the default.
    Clear,
    /// A new value.
    Set(T),
}

impl<T: Copy> Change<T> {
    /// The setting after the change.
    pub fn of(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// A change of a tenant's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsPatch {
    /// See [`TenantSettings::hit_ratio`].
    pub hit_ratio: Change<HitRatio>,
    /// See [`TenantSettings::latency`].
    pub latency: Change<Duration>,
    /// See [`TenantSettings::miss_cost`].
    pub miss_cost: Change<Duration>,
    /// See [`TenantSettings::priority`].
    pub priority: Change<u8>,
    /// See [`TenantSettings::utility`].
    pub utility: Change<Utility>,
    /// See [`TenantSettings::floor_bytes`].
    pub floor_bytes: Change<u64>,
    /// See [`TenantSettings::cap_bytes`].
    pub cap_bytes: Change<u64>,
    /// See [`TenantSettings::policy`].
    pub policy: Change<PolicyChoice>,
    /// See [`TenantSettings::weight`].
    pub weight: Change<Weight>,
    /// See [`TenantLimits::ops_per_second`].
    pub ops_per_second: Change<u64>,
    /// See [`TenantLimits::bytes_per_second`].
    pub bytes_per_second: Change<u64>,
    /// See [`TenantLimits::connections`].
    pub connections: Change<u64>,
    /// See [`TenantSettings::spending`].
    pub spending: Change<Money>,
    /// See [`TenantSettings::at_limit`].
    pub at_limit: Change<AtLimit>,
    /// See [`TenantSettings::flash`].
    pub flash: FlashPatch,
}

/// A change of a tenant's settings of flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashPatch {
    /// See [`FlashSettings::floor_bytes`].
    pub floor_bytes: Change<u64>,
    /// See [`FlashSettings::cap_bytes`].
    pub cap_bytes: Change<u64>,
    /// See [`FlashSettings::write_bytes_per_second`].
    pub write_bytes_per_second: Change<u64>,
    /// See [`FlashSettings::staleness`].
    pub staleness: Change<Staleness>,
}

impl FlashPatch {
    fn of(self, before: FlashSettings) -> FlashSettings {
        FlashSettings {
            floor_bytes: self.floor_bytes.of(before.floor_bytes),
            cap_bytes: self.cap_bytes.of(before.cap_bytes),
            write_bytes_per_second: self.write_bytes_per_second.of(before.write_bytes_per_second),
            staleness: self.staleness.of(before.staleness),
        }
    }
}

impl From<TenantSettings> for SettingsPatch {
    /// The patch that turns a new tenant's settings into these.
    fn from(settings: TenantSettings) -> Self {
        fn change<T>(setting: Option<T>) -> Change<T> {
            setting.map_or(Change::Keep, Change::Set)
        }
        Self {
            hit_ratio: change(settings.hit_ratio),
            latency: change(settings.latency),
            miss_cost: change(settings.miss_cost),
            priority: change(settings.priority),
            utility: change(settings.utility),
            floor_bytes: change(settings.floor_bytes),
            cap_bytes: change(settings.cap_bytes),
            policy: change(settings.policy),
            weight: change(settings.weight),
            ops_per_second: change(settings.limits.ops_per_second),
            bytes_per_second: change(settings.limits.bytes_per_second),
            connections: change(settings.limits.connections),
            spending: change(settings.spending),
            at_limit: change(settings.at_limit),
            flash: FlashPatch {
                floor_bytes: change(settings.flash.floor_bytes),
                cap_bytes: change(settings.flash.cap_bytes),
                write_bytes_per_second: change(settings.flash.write_bytes_per_second),
                staleness: change(settings.flash.staleness),
            },
        }
    }
}

impl SettingsPatch {
    /// The settings after the change.
    pub fn of(self, before: TenantSettings) -> TenantSettings {
        TenantSettings {
            hit_ratio: self.hit_ratio.of(before.hit_ratio),
            latency: self.latency.of(before.latency),
            miss_cost: self.miss_cost.of(before.miss_cost),
            priority: self.priority.of(before.priority),
            utility: self.utility.of(before.utility),
            floor_bytes: self.floor_bytes.of(before.floor_bytes),
            cap_bytes: self.cap_bytes.of(before.cap_bytes),
            policy: self.policy.of(before.policy),
            weight: self.weight.of(before.weight),
            limits: TenantLimits {
                ops_per_second: self.ops_per_second.of(before.limits.ops_per_second),
                bytes_per_second: self.bytes_per_second.of(before.limits.bytes_per_second),
                connections: self.connections.of(before.limits.connections),
            },
            spending: self.spending.of(before.spending),
            at_limit: self.at_limit.of(before.at_limit),
            flash: self.flash.of(before.flash),
        }
    }
}

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

/// A setting of a tenant by its place in the API's bodies.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// `goals`, `limits`, `flash`, or empty for the top level.
    pub section: &'static str,
    /// The field's name.
    pub name: &'static str,
}

const fn setting(section: &'static str, name: &'static str) -> Setting {
    Setting { section, name }
}

/// Every setting of a tenant.
pub const SETTINGS: [Setting; 18] = [
    setting("goals", "floor_bytes"),
    setting("goals", "cap_bytes"),
    setting("goals", "hit_ratio"),
    setting("goals", "latency_us"),
    setting("goals", "miss_cost_us"),
    setting("goals", "priority"),
    setting("goals", "weight"),
    setting("goals", "utility"),
    setting("limits", "ops_per_second"),
    setting("limits", "bytes_per_second"),
    setting("limits", "connections"),
    setting("limits", "spending_per_month"),
    setting("limits", "at_spending_limit"),
    setting("flash", "floor_bytes"),
    setting("flash", "cap_bytes"),
    setting("flash", "write_bytes_per_second"),
    setting("flash", "staleness"),
    setting("", "policy"),
];

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

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::GIB;

    #[test]
    fn tenants_settings_are_checked() {
        for (floor_bytes, cap_bytes, wrong_field) in [
            (None, None, None),
            (Some(0), Some(MIN_CAP_BYTES), None),
            (Some(MIB), Some(MIB), None),
            (Some(u64::MAX), None, None),
            (None, Some(MIN_CAP_BYTES - 1), Some("goals.cap_bytes")),
            (None, Some(0), Some("goals.cap_bytes")),
            (None, Some(MAX_CAP_BYTES), None),
            (None, Some(MAX_CAP_BYTES + 1), Some("goals.cap_bytes")),
            (Some(MIB + 1), Some(MIB), Some("goals.floor_bytes")),
        ] {
            let settings = TenantSettings {
                floor_bytes,
                cap_bytes,
                ..TenantSettings::default()
            };
            let field = check_tenant(&settings).err().and_then(|refusal| refusal.field);
            assert_eq!(field.as_deref(), wrong_field, "{settings:?}");
        }
    }

    #[test]
    fn settings_of_flash_are_checked() {
        for (floor_bytes, cap_bytes, write_bytes_per_second, wrong_field) in [
            (None, None, None, None),
            (Some(0), Some(MIN_FLASH_CAP_BYTES), Some(MIN_FLASH_WRITE_BYTES), None),
            (Some(u64::MAX), None, None, None),
            (None, Some(MIN_FLASH_CAP_BYTES - 1), None, Some("flash.cap_bytes")),
            (None, Some(MAX_CAP_BYTES + 1), None, Some("flash.cap_bytes")),
            (Some(9 * MIB), Some(8 * MIB), None, Some("flash.floor_bytes")),
            (
                None,
                None,
                Some(MIN_FLASH_WRITE_BYTES - 1),
                Some("flash.write_bytes_per_second"),
            ),
            (
                None,
                None,
                Some(MAX_BYTES_PER_SECOND + 1),
                Some("flash.write_bytes_per_second"),
            ),
        ] {
            let settings = TenantSettings {
                flash: FlashSettings {
                    floor_bytes,
                    cap_bytes,
                    write_bytes_per_second,
                    staleness: None,
                },
                ..TenantSettings::default()
            };
            let field = check_tenant(&settings).err().and_then(|refusal| refusal.field);
            assert_eq!(field.as_deref(), wrong_field, "{settings:?}");
        }
        assert!(check_flash_floors([MIB, MIB].into_iter(), 2 * MIB).is_ok());
        let refused = check_flash_floors([MIB, 2 * MIB].into_iter(), 2 * MIB)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("come to 3MiB, but this server has 2MiB"), "{refused}");
    }

    #[test]
    fn costs_and_priorities_are_checked() {
        let us = |us| Some(Duration::from_micros(us));
        for (latency, miss_cost, priority, wrong_field) in [
            (None, None, Some(MAX_PRIORITY), None),
            (None, None, Some(MAX_PRIORITY + 1), Some("goals.priority")),
            (us(1), us(60_000_000), Some(0), None),
            (us(0), None, None, Some("goals.latency_us")),
            (us(60_000_001), None, None, Some("goals.latency_us")),
            (None, us(0), None, Some("goals.miss_cost_us")),
            (None, us(60_000_001), None, Some("goals.miss_cost_us")),
            (us(500), us(501), None, None),
            (us(500), us(500), None, Some("goals.latency_us")),
        ] {
            let settings = TenantSettings {
                latency,
                miss_cost,
                priority,
                ..TenantSettings::default()
            };
            let field = check_tenant(&settings).err().and_then(|refusal| refusal.field);
            assert_eq!(field.as_deref(), wrong_field, "{settings:?}");
        }
    }

    #[test]
    fn a_floor_must_not_cost_more_than_may_be_spent() {
        let prices = Prices {
            version: "v1".into(),
            from: tidemark_types::UnixMs(0),
            until: None,
            units: [Money::parse("1").unwrap(); tidemark_meter::price::METERS.len()],
        };
        let of = |spending: &str, floor_bytes| TenantSettings {
            spending: Money::parse(spending),
            floor_bytes,
            ..TenantSettings::default()
        };
        for (settings, prices, expected) in [
            (TenantSettings::default(), None, None),
            (of("5", None), None, Some(RefusalKind::NotAvailable)),
            (of("5", None), Some(&prices), None),
            (of("0", None), Some(&prices), None),
            (of("744", Some(GIB)), Some(&prices), None),
            (of("743.99", Some(GIB)), Some(&prices), Some(RefusalKind::OverLimit)),
        ] {
            let refused = check_spending(&settings, prices).err();
            assert_eq!(refused.map(|refusal| refusal.kind), expected, "{settings:?}");
        }
        let lonely = TenantSettings {
            at_limit: Some(AtLimit::Throttle),
            ..TenantSettings::default()
        };
        let field = check_tenant(&lonely).err().and_then(|refusal| refusal.field);
        assert_eq!(field.as_deref(), Some("limits.at_spending_limit"));
    }

    #[test]
    fn limits_are_checked() {
        type Set = fn(&mut TenantLimits, u64);
        let ops: Set = |limits, limit| limits.ops_per_second = Some(limit);
        let bytes: Set = |limits, limit| limits.bytes_per_second = Some(limit);
        let connections: Set = |limits, limit| limits.connections = Some(limit);
        for (field, set, least, most) in [
            ("limits.ops_per_second", ops, 1, MAX_OPS_PER_SECOND),
            (
                "limits.bytes_per_second",
                bytes,
                MIN_BYTES_PER_SECOND,
                MAX_BYTES_PER_SECOND,
            ),
            ("limits.connections", connections, 1, MAX_CONNECTIONS),
        ] {
            for (limit, is_possible) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
                let mut settings = TenantSettings::default();
                set(&mut settings.limits, limit);
                let wrong = check_tenant(&settings).err().and_then(|refusal| refusal.field);
                assert_eq!(wrong.as_deref(), (!is_possible).then_some(field), "{field} {limit}");
            }
        }
    }

    #[test]
    fn floors_must_fit_into_what_can_be_granted() {
        let available = grantable_bytes(GIB);
        for (floors, fits) in [
            (vec![], true),
            (vec![available], true),
            (vec![available + 1], false),
            (vec![available / 2, available / 2], true),
            (vec![available / 2, available / 2 + UNIT_BYTES], false),
            (vec![u64::MAX, u64::MAX], false),
        ] {
            let result = check_floors(floors.iter().copied(), GIB, "goals.floor_bytes");
            assert_eq!(result.is_ok(), fits, "{floors:?}");
        }
        let refused = check_floors([GIB / 2, GIB].into_iter(), GIB, "goals.floor_bytes").unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("come to 1536MiB, but only 1008MiB"), "{said}");
    }

    #[test]
    fn server_settings_are_checked() {
        for (pool, fits) in [
            (MIN_POOL_BYTES - 1, false),
            (MIN_POOL_BYTES, true),
            (GIB, true),
            (GIB + 1, false),
        ] {
            assert_eq!(check_pool(pool, GIB).is_ok(), fits, "{pool}");
        }
        for (ms, fits) in [(99, false), (100, true), (60_000, true), (60_001, false)] {
            assert_eq!(check_round_period(Duration::from_millis(ms)).is_ok(), fits, "{ms}");
        }
    }

    #[test]
    fn idling_is_checked() {
        let of = |first_grant_bytes, idle_after| Idling {
            first_grant_bytes,
            idle_after,
        };
        for (idling, wrong_field) in [
            (Idling::default(), None),
            (of(MIN_FIRST_GRANT_BYTES, MIN_IDLE_AFTER), None),
            (of(u64::MAX, MAX_IDLE_AFTER), None),
            (of(MIN_FIRST_GRANT_BYTES - 1, MIN_IDLE_AFTER), Some("first_grant")),
            (of(MIB, Duration::from_millis(999)), Some("idle_after")),
            (of(MIB, MAX_IDLE_AFTER + Duration::from_secs(1)), Some("idle_after")),
        ] {
            let field = check_idling(&idling).err().and_then(|refusal| refusal.field);
            assert_eq!(field.as_deref(), wrong_field, "{idling:?}");
        }
    }

    #[test]
    fn a_patch_keeps_clears_and_sets() {
        let before = TenantSettings {
            hit_ratio: None,
            latency: Some(MIN_COST),
            miss_cost: None,
            priority: Some(1),
            utility: None,
            floor_bytes: Some(1),
            cap_bytes: Some(2),
            policy: None,
            weight: Weight::new(3),
            limits: TenantLimits {
                ops_per_second: Some(4),
                bytes_per_second: Some(5),
                connections: Some(6),
            },
            spending: Money::parse("5"),
            at_limit: Some(AtLimit::Throttle),
            flash: FlashSettings {
                floor_bytes: Some(1),
                cap_bytes: Some(2),
                write_bytes_per_second: None,
                staleness: Some(Staleness::None),
            },
        };
        let patch = SettingsPatch {
            hit_ratio: Change::Set(HitRatio::MOST),
            latency: Change::Keep,
            miss_cost: Change::Set(MAX_COST),
            priority: Change::Clear,
            utility: Change::Set(Utility::Cost),
            floor_bytes: Change::Keep,
            cap_bytes: Change::Clear,
            policy: Change::Set(PolicyChoice::Genie),
            weight: Change::Clear,
            ops_per_second: Change::Keep,
            bytes_per_second: Change::Clear,
            connections: Change::Set(7),
            spending: Change::Set(Money(9)),
            at_limit: Change::Clear,
            flash: FlashPatch {
                floor_bytes: Change::Clear,
                cap_bytes: Change::Keep,
                write_bytes_per_second: Change::Set(8),
                staleness: Change::Set(Staleness::Strict),
            },
        };
        let after = TenantSettings {
            hit_ratio: Some(HitRatio::MOST),
            latency: Some(MIN_COST),
            miss_cost: Some(MAX_COST),
            priority: None,
            utility: Some(Utility::Cost),
            floor_bytes: Some(1),
            cap_bytes: None,
            policy: Some(PolicyChoice::Genie),
            weight: None,
            limits: TenantLimits {
                ops_per_second: Some(4),
                bytes_per_second: None,
                connections: Some(7),
            },
            spending: Some(Money(9)),
            at_limit: None,
            flash: FlashSettings {
                floor_bytes: None,
                cap_bytes: Some(2),
                write_bytes_per_second: Some(8),
                staleness: Some(Staleness::Strict),
            },
        };
        assert_eq!(patch.of(before), after);
    }
}
