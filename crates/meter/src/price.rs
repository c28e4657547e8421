//! Prices: the price of a unit of each resource, and the time from which on it holds.
//!
//! A price is a whole number of trillionths of the currency's unit, so that sums are exact; [`Tariff`] is all prices over time.

use std::fmt;

use tidemark_types::UnixMs;

use crate::row::command_of;
use crate::usage::Resource;

/// An amount of money, in trillionths of the currency's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(pub i128);

/// Trillionths in one.
const ONE: i128 = 1_000_000_000_000;
/// Digits behind the point.
const DIGITS: usize = 12;

impl Money {
    /// A decimal number, such as `0.0000031`; `None` where it is none, is negative, or has more than twelve digits behind the
    /// point or before it.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.len() <= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(part) || text.ends_with('.') {
            return None;
        }
        let whole: i128 = whole.parse().ok()?;
        let part: i128 = format!("{part:0<DIGITS$}").parse().ok()?;
        Some(Self(whole * ONE + part))
    }

    /// As a number, for charts and comparisons; sums are made of the exact amounts.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / ONE as f64
    }
}

impl std::ops::Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl std::iter::Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), std::ops::Add::add)
    }
}

impl fmt::Display for Money {
    /// The amount has at least two digits behind the point, and none of the zeros at the end beyond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, part) = (self.0.abs() / ONE, self.0.abs() % ONE);
        let part = format!("{part:0>DIGITS$}");
        let kept = part.trim_end_matches('0').len().max(2);
        f.pad(&format!("{sign}{whole}.{}", &part[..kept]))
    }
}

/// The subject of a bill's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// The key in the prices file, which ends in the unit.
    pub key: &'static str,
    /// The measured resource.
    pub resource: Resource,
    /// Its amount that is one unit.
    pub unit_amount: u64,
    /// The unit for people.
    pub unit: &'static str,
    /// The title for people.
    pub title: &'static str,
    /// Whether a price must be given; the others cost nothing where it is not.
    pub is_needed: bool,
}

const fn meter(
    key: &'static str,
    resource: Resource,
    unit_amount: u64,
    unit: &'static str,
    title: &'static str,
    is_needed: bool,
) -> Meter {
    Meter {
        key,
        resource,
        unit_amount,
        unit,
        title,
        is_needed,
    }
}

const GIB: u64 = 1 << 30;

/// Every meter. CPU time is the modelled or the measured one, as the tariff says.
pub const METERS: [Meter; 9] = [
    meter("vcpu_hour", Resource::CpuNs, 3_600_000_000_000, "vCPU h", "CPU", true),
    meter(
        "memory_gib_hour",
        Resource::MemoryByteSeconds,
        GIB * 3600,
        "GiB h",
        "memory",
        true,
    ),
    meter(
        "network_in_gib",
        Resource::NetworkInBytes,
        GIB,
        "GiB",
        "network in",
        true,
    ),
    meter(
        "network_out_gib",
        Resource::NetworkOutBytes,
        GIB,
        "GiB",
        "network out",
        true,
    ),
    meter(
        "operations_million",
        Resource::Operations,
        1_000_000,
        "million",
        "operations",
        true,
    ),
    meter(
        "flash_gib_hour",
        Resource::FlashByteSeconds,
        GIB * 3600,
        "GiB h",
        "flash",
        false,
    ),
    meter(
        "flash_written_gib",
        Resource::FlashWrittenBytes,
        GIB,
        "GiB",
        "flash written",
        false,
    ),
    meter(
        "invocations_million",
        Resource::Invocations,
        1_000_000,
        "million",
        "invocations",
        false,
    ),
    meter(
        "function_gib_second",
        Resource::FunctionMibMs,
        1_024_000,
        "GiB s",
        "functions",
        false,
    ),
];

/// Which CPU time is billed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuFigure {
    /// The model's; where there is no model, the measured one.
    #[default]
    Modelled,
    /// The measured one.
    Measured,
}

/// The kinds of free operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// Logins and the commands of clients at their start.
    Handshakes,
    /// Commands that only ask whether the server is there.
    HealthChecks,
    /// Requests that a limit refused: they are in no count but that of refusals.
    Refused,
    /// The requests of the admin API, its metrics and the console.
    AdminReads,
}

impl Free {
    /// All of them: also the default of the prices.
    pub const ALL: [Self; 4] = [Self::Handshakes, Self::HealthChecks, Self::Refused, Self::AdminReads];

    /// The name in the prices file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshakes => "handshakes",
            Self::HealthChecks => "health-checks",
            Self::Refused => "refused",
            Self::AdminReads => "admin-reads",
        }
    }

    /// Whether it is nobody's whatever the prices say, since it is measured for no tenant.
    pub const fn is_always(self) -> bool {
        matches!(self, Self::Refused | Self::AdminReads)
    }

    /// The operations that it makes free, as in rows.
    pub const fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Handshakes => &[
                "redis/auth",
                "redis/hello",
                "redis/select",
                "redis/quit",
                "redis/client|setname",
                "redis/client|setinfo",
                "redis/client|id",
                "redis/client|getname",
                "redis/command",
            ],
            Self::HealthChecks => &["redis/ping", "redis/echo", "memcached/other"],
            Self::Refused | Self::AdminReads => &[],
        }
    }
}

/// A fixed instance, to compare a bill with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// The cores, in thousandths.
    pub millicores: u64,
    /// Its memory.
    pub memory_bytes: u64,
    /// The price of an hour of it.
    pub hour: Money,
}

/// Prices over a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    /// Their name in rows.
    pub version: String,
    /// The time from which on they are in force.
    pub from: UnixMs,
    /// Until when; `None`: until others are.
    pub until: Option<UnixMs>,
    /// The prices of units, in the order of [`METERS`].
    pub units: [Money; METERS.len()],
}

/// All prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tariff {
    /// Three letters (ISO 4217), or a name of one's own.
    pub currency: String,
    /// Which CPU time is billed.
    pub cpu: CpuFigure,
    /// The free operations.
    pub free: Vec<Free>,
    /// The prices, in the order of time.
    pub prices: Vec<Prices>,
    /// The instances, from the smallest to the largest.
    pub instances: Vec<Instance>,
}

impl Tariff {
    /// The prices in force at a moment.
    pub fn at(&self, moment: UnixMs) -> Option<&Prices> {
        let last = self.prices.iter().rev().find(|prices| prices.from <= moment)?;
        last.until.is_none_or(|until| moment < until).then_some(last)
    }

    /// The prices of this name.
    pub fn of_version(&self, version: &str) -> Option<&Prices> {
        self.prices.iter().find(|prices| prices.version == version)
    }

    /// Whether operations of this label, as in rows, are free.
    pub fn is_free(&self, label: &str) -> bool {
        let command = command_of(label);
        self.free.iter().any(|free| free.commands().contains(&command))
    }
}

#[cfg(feature = "files")]
mod file;
#[cfg(feature = "files")]
pub use file::{PriceError, parse};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact() {
        for (text, expected) in [
            ("0", "0.00"),
            ("0.1", "0.10"),
            ("12.345", "12.345"),
            ("0.000000000001", "0.000000000001"),
            ("999999999999.999999999999", "999999999999.999999999999"),
        ] {
            assert_eq!(Money::parse(text).unwrap().to_string(), expected);
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "0.0000000000001",
            "1000000000000000",
            "NaN",
        ] {
            assert_eq!(Money::parse(text), None, "{text}");
        }
        let sum: Money = ["0.1", "0.2"].into_iter().filter_map(Money::parse).sum();
        assert_eq!(Some(sum), Money::parse("0.3"));
        assert_eq!(Money(-ONE / 2).to_string(), "-0.50");
    }
}
