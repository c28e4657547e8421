//! The settings of a tenant, and a change of them.

use std::time::Duration;

use tidemark_meter::price::Money;
use tidemark_meter::spending::{AtLimit, SpendingLimit};
use tidemark_plan::Utility;
use tidemark_types::{HitRatio, PolicyChoice, Staleness, TenantLimits, Weight};

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
    /// Goals of a higher one are served first, 0 to [`crate::MAX_PRIORITY`]; by default
    /// [`crate::DEFAULT_PRIORITY`].
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
