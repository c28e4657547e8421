//! The table of a tenant's settings: a field for each, and a row with all that is said of it elsewhere.
//!
//! The options of `tidemark tenant`, the API's fields and errors, the state file's columns and the lines of `tenant show`
//! follow from the row. docs/tenants.md is tested against it.

use std::time::Duration;

use tidemark_meter::price::Money;
use tidemark_meter::spending::AtLimit;
use tidemark_plan::Utility;
use tidemark_plan::tiers::Minimise;
use tidemark_types::{HitRatio, PolicyChoice, Staleness, TenantLimits, Weight};

use super::bounds::{
    DEFAULT_PRIORITY, MAX_BYTES_PER_SECOND, MAX_CAP_BYTES, MAX_CONNECTIONS, MAX_COST, MAX_OPS_PER_SECOND, MAX_PRIORITY,
    MIN_BYTES_PER_SECOND, MIN_CAP_BYTES, MIN_COST, MIN_FLASH_CAP_BYTES, MIN_FLASH_WRITE_BYTES,
};
use super::value::{Bounds, Change, PlainValue, Written, Wrong};

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
    /// What is least within both a latency and a spending limit, where there is flash; [`Minimise::Cost`] unless said
    /// otherwise.
    pub minimise: Option<Minimise>,
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

/// A change of a tenant's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsPatch {
    /// See [`TenantSettings::hit_ratio`].
    pub hit_ratio: Change<HitRatio>,
    /// See [`TenantSettings::latency`].
    pub latency: Change<Duration>,
    /// See [`TenantSettings::miss_cost`].
    pub miss_cost: Change<Duration>,
    /// See [`TenantSettings::minimise`].
    pub minimise: Change<Minimise>,
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

/// One setting of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its place in the API's bodies and answers.
    pub place: ApiPlace,
    /// The form of its value.
    pub kind: ValueKind,
    /// Its name in `a NOUN of 5 is not possible`.
    pub noun: &'static str,
    /// The whole numbers that are allowed, in the units of the API; `None`: the type of the value decides.
    pub bounds: Option<Bounds>,
    /// The value that holds while nobody has set it.
    pub unset: Unset,
    /// Its option of `tidemark tenant create` and `set`, without `--`.
    pub flag: &'static str,
    /// The placeholder for its value in the help.
    pub value_name: &'static str,
    /// The value of the option that clears it.
    pub clear: &'static str,
    /// The help of the option. `{least}`, `{most}` and `{names}` stand for the bounds and the names that are allowed, and
    /// the default is added: see [`Setting::help`].
    pub help: &'static str,
    /// Its name in `tidemark tenant show`.
    pub label: &'static str,
    /// Its place in the state file.
    pub column: StateColumn,
    pub(super) access: Accessors,
}

/// The place of a setting in the API's bodies.
#[derive(Clone, Copy, Debug)]
pub struct ApiPlace {
    /// `goals`, `limits`, `flash`, or empty for the top level.
    pub section: &'static str,
    /// The field's name.
    pub name: &'static str,
    /// Both as errors name it: `goals.cap_bytes`.
    pub path: &'static str,
    /// Both as a JSON pointer: `/goals/cap_bytes`.
    pub pointer: &'static str,
}

/// The form of a setting's value: how people write it, and what the API has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Bytes, which people write with a unit.
    Size,
    /// A whole number.
    Count,
    /// Microseconds, which people write with a unit.
    Time,
    /// A number from 0 to 1.
    Ratio,
    /// A text: a name, or a decimal number.
    Text,
}

/// The value that holds while nobody has set one.
#[derive(Clone, Copy, Debug)]
pub enum Unset {
    /// None: no goal, no limit.
    Nothing,
    /// One that is measured; the text says how.
    Measured(&'static str),
    /// This one. Answers of the API have null.
    Value(fn() -> String),
    /// This text, and answers of the API have it. They have null where it does not matter.
    InForce {
        /// The text.
        value: fn() -> String,
        /// Whether the setting matters beside the others.
        matters: fn(&TenantSettings) -> bool,
    },
}

/// A column of the table of tenants in the state file.
#[derive(Clone, Copy, Debug)]
pub struct StateColumn {
    /// Its name.
    pub name: &'static str,
    /// The first schema that has it. A new setting takes the next one: files of earlier ones get the column when they are
    /// opened.
    pub since: i64,
}

/// How a setting is reached in the structures above: made by `accessors!` of its fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accessors {
    /// The setting as the API writes it.
    pub(super) write: fn(&TenantSettings) -> Option<PlainValue>,
    /// Reads a new value.
    pub(super) read: fn(&mut SettingsPatch, &PlainValue, Option<Bounds>) -> Result<(), Wrong>,
    /// Clears the setting.
    pub(super) clear: fn(&mut SettingsPatch),
    /// Does to the settings what a patch says.
    pub(super) apply: fn(&SettingsPatch, &mut TenantSettings),
    /// Lets a patch set what is set.
    pub(super) hand_over: fn(&TenantSettings, &mut SettingsPatch),
    /// The setting as the state file keeps it.
    pub(super) store: fn(&TenantSettings) -> Option<PlainValue>,
    /// Reads what the state file kept.
    pub(super) restore: fn(&mut TenantSettings, &PlainValue) -> Result<(), Wrong>,
    /// The names that are allowed, if it is one of a few.
    pub(super) names: fn() -> Vec<String>,
}

/// A setting of this type, in this field of [`TenantSettings`], changed by this one of [`SettingsPatch`].
macro_rules! accessors {
    ($type:ty, $($field:ident).+ => $($change:ident).+) => {
        Accessors {
            write: |settings| settings.$($field).+.map(Written::write),
            read: |patch, plain, bounds| {
                patch.$($change).+ = Change::Set(<$type as Written>::read(plain, bounds)?);
                Ok(())
            },
            clear: |patch| patch.$($change).+ = Change::Clear,
            apply: |patch, settings| settings.$($field).+ = patch.$($change).+.of(settings.$($field).+),
            hand_over: |settings, patch| patch.$($change).+ = settings.$($field).+.map_or(Change::Keep, Change::Set),
            store: |settings| settings.$($field).+.map(Written::store),
            restore: |settings, stored| {
                settings.$($field).+ = Some(<$type as Written>::restore(stored)?);
                Ok(())
            },
            names: <$type as Written>::names,
        }
    };
}

/// The place of a field in a section, or at the top level.
macro_rules! place {
    ($name:literal) => {
        ApiPlace {
            section: "",
            name: $name,
            path: $name,
            pointer: concat!("/", $name),
        }
    };
    ($section:literal, $name:literal) => {
        ApiPlace {
            section: $section,
            name: $name,
            path: concat!($section, ".", $name),
            pointer: concat!("/", $section, "/", $name),
        }
    };
}

const fn between(least: u64, most: u64) -> Option<Bounds> {
    Some(Bounds { least, most, note: "" })
}

/// A whole number of microseconds: the longest cost is a minute.
const fn whole_us(time: Duration) -> u64 {
    time.as_micros() as u64
}

const fn since(since: i64, name: &'static str) -> StateColumn {
    StateColumn { name, since }
}

/// Every setting of a tenant, section by section; help and errors list them in this order.
pub const SETTINGS: &[Setting] = &[
    Setting {
        place: place!("goals", "floor_bytes"),
        kind: ValueKind::Size,
        noun: "floor",
        bounds: None,
        unset: Unset::Nothing,
        flag: "floor",
        value_name: "SIZE",
        clear: "none",
        help: "Memory that is guaranteed while the tenant needs it",
        label: "floor",
        column: since(1, "floor_bytes"),
        access: accessors!(u64, floor_bytes => floor_bytes),
    },
    Setting {
        place: place!("goals", "cap_bytes"),
        kind: ValueKind::Size,
        noun: "cap",
        bounds: between(MIN_CAP_BYTES, MAX_CAP_BYTES),
        unset: Unset::Nothing,
        flag: "cap",
        value_name: "SIZE",
        clear: "none",
        help: "Memory that is never exceeded, at least {least}",
        label: "cap",
        column: since(1, "cap_bytes"),
        access: accessors!(u64, cap_bytes => cap_bytes),
    },
    Setting {
        place: place!("goals", "hit_ratio"),
        kind: ValueKind::Ratio,
        noun: "hit ratio",
        bounds: None,
        unset: Unset::Nothing,
        flag: "hit-ratio",
        value_name: "R",
        clear: "none",
        help: "The share of gets that shall find their key, such as 0.9, with the least memory that does it",
        label: "goal",
        column: since(2, "hit_ratio_millionths"),
        access: accessors!(HitRatio, hit_ratio => hit_ratio),
    },
    Setting {
        place: place!("goals", "latency_us"),
        kind: ValueKind::Time,
        noun: "latency",
        bounds: between(whole_us(MIN_COST), whole_us(MAX_COST)),
        unset: Unset::Nothing,
        flag: "latency",
        value_name: "T",
        clear: "none",
        help: "Mean time of a get to reach with the least memory, misses included, such as 700us",
        label: "latency goal, us",
        column: since(3, "latency_us"),
        access: accessors!(Duration, latency => latency),
    },
    Setting {
        place: place!("goals", "miss_cost_us"),
        kind: ValueKind::Time,
        noun: "cost of a miss",
        bounds: between(whole_us(MIN_COST), whole_us(MAX_COST)),
        unset: Unset::Measured("as measured from a miss to the write that follows"),
        flag: "miss-cost",
        value_name: "T",
        clear: "none",
        help: "Time of a miss until the value is there",
        label: "miss cost, us",
        column: since(3, "miss_cost_us"),
        access: accessors!(Duration, miss_cost => miss_cost),
    },
    Setting {
        place: place!("goals", "minimise"),
        kind: ValueKind::Text,
        noun: "figure to minimise",
        bounds: None,
        unset: Unset::InForce {
            value: || Minimise::default().name().to_owned(),
            matters: |settings| settings.latency.is_some() && settings.spending.is_some(),
        },
        flag: "minimise",
        value_name: "FIGURE",
        clear: "none",
        help: "What is least of memory and flash within a latency and a spending limit: {names}",
        label: "  minimise",
        column: since(8, "minimise"),
        access: accessors!(Minimise, minimise => minimise),
    },
    Setting {
        place: place!("goals", "priority"),
        kind: ValueKind::Count,
        noun: "priority",
        bounds: Some(Bounds {
            least: 0,
            most: MAX_PRIORITY as u64,
            note: ", the highest first",
        }),
        unset: Unset::Value(|| DEFAULT_PRIORITY.to_string()),
        flag: "priority",
        value_name: "N",
        clear: "none",
        help: "Priority of its goal if not all can be met: {least} to {most}, the highest first",
        label: "priority",
        column: since(3, "priority"),
        access: accessors!(u8, priority => priority),
    },
    Setting {
        place: place!("goals", "weight"),
        kind: ValueKind::Count,
        noun: "weight",
        bounds: between(Weight::LEAST.get(), Weight::MOST.get()),
        unset: Unset::Value(|| Weight::default().get().to_string()),
        flag: "weight",
        value_name: "W",
        clear: "none",
        help: "Share of the server beside other tenants', in proportion to theirs, {least} to {most}",
        label: "weight",
        column: since(3, "weight"),
        access: accessors!(Weight, weight => weight),
    },
    Setting {
        place: place!("goals", "utility"),
        kind: ValueKind::Text,
        noun: "utility",
        bounds: None,
        unset: Unset::Value(|| Utility::default().name().to_owned()),
        flag: "utility",
        value_name: "NAME",
        clear: "none",
        help: "By what memory is shared that no floor and no goal asks for: {names}",
        label: "utility",
        column: since(3, "utility"),
        access: accessors!(Utility, utility => utility),
    },
    Setting {
        place: place!("limits", "ops_per_second"),
        kind: ValueKind::Count,
        noun: "limit",
        bounds: between(1, MAX_OPS_PER_SECOND),
        unset: Unset::Nothing,
        flag: "ops-limit",
        value_name: "N",
        clear: "none",
        help: "Operations per second at most; each key of a command counts",
        label: "operations/s max",
        column: since(3, "ops_per_second"),
        access: accessors!(u64, limits.ops_per_second => ops_per_second),
    },
    Setting {
        place: place!("limits", "bytes_per_second"),
        kind: ValueKind::Size,
        noun: "limit",
        bounds: between(MIN_BYTES_PER_SECOND, MAX_BYTES_PER_SECOND),
        unset: Unset::Nothing,
        flag: "bytes-limit",
        value_name: "SIZE",
        clear: "none",
        help: "Bytes per second at most, requests and replies together",
        label: "bytes/s max",
        column: since(3, "bytes_per_second"),
        access: accessors!(u64, limits.bytes_per_second => bytes_per_second),
    },
    Setting {
        place: place!("limits", "connections"),
        kind: ValueKind::Count,
        noun: "limit",
        bounds: between(1, MAX_CONNECTIONS),
        unset: Unset::Nothing,
        flag: "max-connections",
        value_name: "N",
        clear: "none",
        help: "Connections open at a time at most",
        label: "  at most",
        column: since(3, "connections"),
        access: accessors!(u64, limits.connections => connections),
    },
    Setting {
        place: place!("limits", "spending_per_month"),
        kind: ValueKind::Text,
        noun: "spending limit",
        bounds: None,
        unset: Unset::Nothing,
        flag: "spending-limit",
        value_name: "AMOUNT",
        clear: "none",
        help: "Amount that the tenant may spend in a month (UTC), in the currency of the prices, such as 12.50",
        label: "  at most",
        column: since(5, "spending"),
        access: accessors!(Money, spending => spending),
    },
    Setting {
        place: place!("limits", "at_spending_limit"),
        kind: ValueKind::Text,
        noun: "action",
        bounds: None,
        unset: Unset::InForce {
            value: || AtLimit::default().name().to_owned(),
            matters: |settings| settings.spending.is_some(),
        },
        flag: "at-limit",
        value_name: "ACTION",
        clear: "none",
        help: "Action at the spending limit: {names}",
        label: "  at the limit",
        column: since(5, "at_limit"),
        access: accessors!(AtLimit, at_limit => at_limit),
    },
    Setting {
        place: place!("flash", "floor_bytes"),
        kind: ValueKind::Size,
        noun: "floor of flash",
        bounds: None,
        unset: Unset::Nothing,
        flag: "flash-floor",
        value_name: "SIZE",
        clear: "none",
        help: "Flash that is guaranteed",
        label: "flash floor",
        column: since(7, "flash_floor_bytes"),
        access: accessors!(u64, flash.floor_bytes => flash.floor_bytes),
    },
    Setting {
        place: place!("flash", "cap_bytes"),
        kind: ValueKind::Size,
        noun: "cap of flash",
        bounds: between(MIN_FLASH_CAP_BYTES, MAX_CAP_BYTES),
        unset: Unset::Nothing,
        flag: "flash-cap",
        value_name: "SIZE",
        clear: "none",
        help: "Flash that is never exceeded, at least {least}",
        label: "flash cap",
        column: since(7, "flash_cap_bytes"),
        access: accessors!(u64, flash.cap_bytes => flash.cap_bytes),
    },
    Setting {
        place: place!("flash", "write_bytes_per_second"),
        kind: ValueKind::Size,
        noun: "limit of bytes written in a second",
        bounds: between(MIN_FLASH_WRITE_BYTES, MAX_BYTES_PER_SECOND),
        unset: Unset::Nothing,
        flag: "flash-write-limit",
        value_name: "SIZE",
        clear: "none",
        help: "Bytes written to flash in a second at most, at least {least}: what memory evicts beyond is gone, unused items first",
        label: "  bytes/s max",
        column: since(7, "flash_write_bytes_per_second"),
        access: accessors!(u64, flash.write_bytes_per_second => flash.write_bytes_per_second),
    },
    Setting {
        place: place!("flash", "staleness"),
        kind: ValueKind::Text,
        noun: "staleness",
        bounds: None,
        unset: Unset::InForce {
            value: || Staleness::default().to_string(),
            matters: |_| true,
        },
        flag: "staleness",
        value_name: "KIND",
        clear: "default",
        help: "What a crash may undo on flash: strict (nothing, but every write waits for the device), bounded:T (deletes and overwrites of the last T) or none (all that was not written yet)",
        label: "  after a crash",
        column: since(7, "staleness"),
        access: accessors!(Staleness, flash.staleness => flash.staleness),
    },
    Setting {
        place: place!("policy"),
        kind: ValueKind::Text,
        noun: "policy",
        bounds: None,
        unset: Unset::InForce {
            value: || PolicyChoice::default().to_string(),
            matters: |_| true,
        },
        flag: "policy",
        value_name: "NAME[:PARAM]",
        clear: "none",
        help: "Which items go when memory is short: {names}, or approx-lru:SHARE",
        label: "policy",
        column: since(1, "policy"),
        access: accessors!(PolicyChoice, policy => policy),
    },
];
