//! What an operator may set: per tenant and for the server. Values are checked here, before anything is stored.
//!
//! Units: bytes, except where a name says otherwise.

use std::time::Duration;

use tidemark_plan::Utility;
use tidemark_types::{
    HitRatio, MIB, PolicyChoice, Size, TenantLimits, TenantName, UNIT_BYTES, Weight, format_duration,
};

use crate::error::{Refusal, RefusalKind};
use crate::grant::grantable_bytes;

/// The least cap of a tenant: one small segment and its index for each of a few shards fit, so that the tenant can
/// work.
pub const MIN_CAP_BYTES: u64 = MIB;
/// The most cap of a tenant: more than any machine has, and the state file's signed integers hold it.
pub(crate) const MAX_CAP_BYTES: u64 = 1 << 60;
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
/// The first grant, which the data plane makes by itself at the first write as far as memory is free: enough for what can
/// be written (at 1 GB/s) before the control plane has heard of it and answered.
pub const DEFAULT_FIRST_GRANT_BYTES: u64 = 20 * MIB;
/// With a smaller first grant than the least cap, a tenant could not work until the next round.
pub const MIN_FIRST_GRANT_BYTES: u64 = MIN_CAP_BYTES;
/// A tenant that was asked nothing for this long gives its memory to those that want it.
pub const DEFAULT_IDLE_AFTER: Duration = Duration::from_secs(300);
/// A shorter silence is what many clients have between two bursts.
pub const MIN_IDLE_AFTER: Duration = Duration::from_secs(1);
/// A year: whoever asks for more wants no tenant to be idle, and has that.
pub const MAX_IDLE_AFTER: Duration = Duration::from_secs(31_536_000);

/// Goals of the highest priority are served first: ten classes are more than anybody tells apart.
pub const MAX_PRIORITY: u8 = 9;
/// In the middle, so that some can be put above all others and some below.
pub const DEFAULT_PRIORITY: u8 = 5;
/// The least time that a get, or a miss, may be said to take.
pub const MIN_COST: Duration = Duration::from_micros(1);
/// The longest: no client waits longer for an answer.
pub const MAX_COST: Duration = Duration::from_secs(60);
/// What a hit takes a client on the same network while the server is idle, its way there and back included.
pub const DEFAULT_HIT_COST: Duration = Duration::from_micros(50);
/// How often an instance looks at the other instances' leases and states its own. Memory moves in about three such looks:
/// one needs it, one gives it back, one takes it.
pub const DEFAULT_LEASE_PERIOD: Duration = Duration::from_secs(1);
/// A shorter one would cost CPU time for nothing: giving memory back takes as long.
pub const MIN_LEASE_PERIOD: Duration = Duration::from_millis(100);
/// With a longer one, memory would not be where it is worth most within 30 s.
pub const MAX_LEASE_PERIOD: Duration = Duration::from_secs(10);

/// What is set for a tenant; `None` is the default of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantSettings {
    /// The share of gets that shall find their key; the tenant gets the least memory that does it.
    pub hit_ratio: Option<HitRatio>,
    /// What a get shall take on average, misses included; the tenant gets the least memory that does it. With a hit ratio
    /// too, the stricter of the two counts.
    pub latency: Option<Duration>,
    /// What a miss takes, until the value is back; without it, what is measured between misses and the writes that follow.
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
    /// Its share of what it shares with others; `None` is [`Weight::LEAST`].
    pub weight: Option<Weight>,
    /// What its clients may ask for in a time. A program that embeds the cache is its own client, and has no such limits.
    pub limits: TenantLimits,
}

impl TenantSettings {
    /// Whether memory is asked for by what it brings.
    pub(crate) fn has_goal(&self) -> bool {
        self.hit_ratio.is_some() || self.latency.is_some()
    }

    /// Whether `other` asks for the same.
    pub(crate) fn has_same_goal(&self, other: &Self) -> bool {
        (self.hit_ratio, self.latency, self.miss_cost) == (other.hit_ratio, other.latency, other.miss_cost)
    }
}

/// What a command does to one setting.
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
}

impl From<TenantSettings> for SettingsPatch {
    /// What turns a new tenant's settings into these.
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
        }
    }
}

/// A change of the server's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerPatch {
    /// All memory for segments and indexes; cleared: what the server was started with.
    pub pool_bytes: Change<u64>,
    /// Time between rounds; cleared: [`DEFAULT_ROUND_PERIOD`].
    pub round_period: Change<Duration>,
}

/// How tenants come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idling {
    /// What a tenant may take by itself at its first write, as far as it is free: at least [`MIN_FIRST_GRANT_BYTES`].
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
    /// `goals`, `limits`, or empty for the top level.
    pub section: &'static str,
    /// The field's name.
    pub name: &'static str,
    /// Whether this version has the capability behind it.
    pub available: bool,
}

const fn setting(section: &'static str, name: &'static str, available: bool) -> Setting {
    Setting {
        section,
        name,
        available,
    }
}

/// Every setting of a tenant. Those that are not available are known by name, so that a client that sends one is told
/// that it has no effect yet instead of believing that it has.
pub const SETTINGS: [Setting; 12] = [
    setting("goals", "floor_bytes", true),
    setting("goals", "cap_bytes", true),
    setting("goals", "hit_ratio", true),
    setting("goals", "latency_us", true),
    setting("goals", "miss_cost_us", true),
    setting("goals", "priority", true),
    setting("goals", "weight", true),
    setting("goals", "utility", true),
    setting("limits", "ops_per_second", true),
    setting("limits", "bytes_per_second", true),
    setting("limits", "connections", true),
    setting("", "policy", true),
];

/// Checks one tenant's settings by themselves.
///
/// # Errors
/// A cap below [`MIN_CAP_BYTES`] or above [`MAX_CAP_BYTES`], a floor above the cap, a cost outside of [`MIN_COST`] to
/// [`MAX_COST`], a latency that is not below what a miss takes, a priority above [`MAX_PRIORITY`], a limit outside of what
/// it can be.
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
    check_limits(&settings.limits)
}

/// Checks what a tenant may ask for in a time.
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
/// They come to more than what can be granted of the pool.
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

/// To whole units, upwards.
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
        };
        assert_eq!(patch.of(before), after);
    }
}
