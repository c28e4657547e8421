//! Spending limits: the spending of a tenant in a month, the alerts, and the restraints.
//!
//! An [`Account`] adds up a tenant's entries by month, as a bill does. The amount that counts against a limit is
//! therefore the bill's. Months are those of UTC. All of it is a function of entries, prices and the time that the
//! caller gives.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidemark_types::{TenantId, UnixMs, utc};

use crate::bill::{Used, bill, cost};
use crate::price::{Free, METERS, Money, Prices, Tariff};
use crate::row::{Entry, command_of};
use crate::usage::{Resource, Totals};

/// Parts of a limit, in hundredths, each of which is told once a month.
pub const ALERT_PERCENTS: [u8; 3] = [50, 80, 100];
/// From this part of the limit on, `throttle` spreads the rest of the money over the rest of the month.
const PACED_FROM_PERCENT: u8 = 80;
/// All of the limit.
const ALL_PERCENT: u8 = 100;
/// Sums of this month and of the one before are kept: rows of the last minutes of a month come in the next one.
const MONTHS_KEPT: usize = 2;
/// A paced limit has so many digits that are not zero: it changes when that matters, not each second.
const PACED_DIGITS: u32 = 2;
/// The most operations per second that a paced limit says: more than any machine serves.
const PACED_MAX: u64 = 1_000_000_000;
/// The longest month: the price of a floor is compared with a limit for so long.
const LONGEST_MONTH: Duration = Duration::from_secs(31 * 86_400);

/// The action at a spending limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// Somebody is told, as with all others.
    #[default]
    Alert,
    /// From 80 % on, operations are limited to those that the rest of the month's money buys.
    Throttle,
    /// Commands that add data are refused.
    RejectWrites,
    /// The grant falls to the floor.
    EvictOnly,
}

/// A text that names no action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no action `{0}` at a spending limit; known are alert, throttle, reject-writes and evict-only")]
pub struct AtLimitError(String);

impl AtLimit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Alert, Self::Throttle, Self::RejectWrites, Self::EvictOnly];

    /// The name for operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Throttle => "throttle",
            Self::RejectWrites => "reject-writes",
            Self::EvictOnly => "evict-only",
        }
    }
}

impl FromStr for AtLimit {
    type Err = AtLimitError;

    fn from_str(text: &str) -> Result<Self, AtLimitError> {
        let known = Self::ALL.into_iter().find(|action| action.name() == text);
        known.ok_or_else(|| AtLimitError(text.chars().take(40).flat_map(char::escape_debug).collect()))
    }
}

/// The amount that a tenant may spend in a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendingLimit {
    /// The amount, in the currency of the prices.
    pub amount: Money,
    /// The action when it is reached.
    pub at_limit: AtLimit,
}

impl SpendingLimit {
    /// The greatest of [`ALERT_PERCENTS`] that `spent` has reached; zero: none.
    pub fn reached_percent(&self, spent: Money) -> u8 {
        let is_reached =
            |percent: &u8| spent.0.saturating_mul(100) >= self.amount.0.saturating_mul(i128::from(*percent));
        ALERT_PERCENTS.into_iter().rev().find(is_reached).unwrap_or(0)
    }
}

/// The restraint of a tenant because of its spending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restraint {
    /// Operations per second at most.
    pub ops_per_second: Option<u64>,
    /// Whether commands that add data are refused.
    pub refuses_writes: bool,
    /// Whether it has its floor and no more.
    pub is_at_floor: bool,
}

impl Restraint {
    /// The name of the action that is in force; `None`: nothing is kept from it.
    pub fn name(&self) -> Option<&'static str> {
        let named = [
            (self.ops_per_second.is_some(), AtLimit::Throttle),
            (self.refuses_writes, AtLimit::RejectWrites),
            (self.is_at_floor, AtLimit::EvictOnly),
        ];
        named
            .into_iter()
            .find(|(is_it, _)| *is_it)
            .map(|(_, action)| action.name())
    }
}

/// How a tenant stands in a month.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The month, such as `2026-08`.
    pub month: String,
    /// The amount of its bill now.
    pub spent: Money,
    /// The part of it for memory and flash that are only held.
    pub held: Money,
    /// Operations in this month.
    pub operations: u128,
    /// The time that is left of the month.
    pub left: Duration,
}

/// The restraint that follows from a tenant's standing. `held_per_second` is the present cost of a second of its
/// memory.
pub fn restraint(limit: &SpendingLimit, standing: &Standing, held_per_second: f64) -> Restraint {
    let reached = limit.reached_percent(standing.spent);
    let mut restraint = Restraint::default();
    match limit.at_limit {
        AtLimit::Alert => {}
        AtLimit::Throttle if reached >= PACED_FROM_PERCENT => {
            restraint.ops_per_second = paced(limit, standing, held_per_second);
        }
        AtLimit::Throttle => {}
        AtLimit::RejectWrites => restraint.refuses_writes = reached >= ALL_PERCENT,
        AtLimit::EvictOnly => restraint.is_at_floor = reached >= ALL_PERCENT,
    }
    restraint
}

/// Operations per second that the rest of the money buys for the rest of the month, beside the memory that is held
/// meanwhile: at least one. `None` where operations cost nothing, so that fewer of them would save nothing.
fn paced(limit: &SpendingLimit, standing: &Standing, held_per_second: f64) -> Option<u64> {
    let by_operations = standing.spent.as_f64() - standing.held.as_f64();
    if standing.operations == 0 || by_operations <= 0.0 {
        return None;
    }
    let left_seconds = standing.left.as_secs_f64().max(1.0);
    let rest = limit.amount.as_f64() - standing.spent.as_f64() - held_per_second * left_seconds;
    let each = by_operations / standing.operations as f64;
    let per_second = rest / left_seconds / each;
    Some(rounded_down(per_second.clamp(1.0, PACED_MAX as f64) as u64))
}

/// The number with all digits but the first ones zero.
fn rounded_down(number: u64) -> u64 {
    let digits = number.checked_ilog10().map_or(1, |log| log + 1);
    let unit = 10_u64.pow(digits.saturating_sub(PACED_DIGITS));
    number / unit * unit
}

/// The cost of so much memory for the longest month by some prices.
pub fn month_of_memory(bytes: u64, prices: &Prices) -> Money {
    let byte_seconds = u128::from(bytes) * u128::from(LONGEST_MONTH.as_secs());
    let memory = METERS.iter().zip(prices.units);
    let memory = memory.filter(|(meter, _)| meter.resource == Resource::MemoryByteSeconds);
    memory
        .map(|(meter, price)| cost(byte_seconds, price, meter.unit_amount))
        .sum()
}

/// The cost of a second of so much memory, in the currency's unit.
pub fn second_of_memory(bytes: u64, prices: &Prices) -> f64 {
    month_of_memory(bytes, prices).as_f64() / LONGEST_MONTH.as_secs_f64()
}

/// Something that a tenant's owner shall be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The tenant.
    pub id: TenantId,
    /// Its name.
    pub tenant: String,
    /// The month, such as `2026-08`.
    pub month: String,
    /// The part of the limit that is reached: one of [`ALERT_PERCENTS`].
    pub percent: u8,
    /// The spending by then.
    pub spent: Money,
    /// The limit.
    pub limit: SpendingLimit,
    /// The currency of both.
    pub currency: String,
    /// When.
    pub at: UnixMs,
    /// The instance.
    pub node: String,
}

impl Alert {
    /// Tells it from every other one, and is the same when it is told twice.
    pub fn key(&self) -> String {
        let Self {
            id,
            month,
            percent,
            limit,
            ..
        } = self;
        format!("{id}-{month}-{percent}-of-{}", limit.amount)
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant,
            month,
            percent,
            spent,
            limit,
            currency,
            ..
        } = self;
        let amount = limit.amount;
        write!(
            f,
            "tenant {tenant} has spent {spent} {currency} in {month}: {percent} % of its limit of {amount}"
        )
    }
}

/// By which entries are priced alike: the prices' version, and whether there is a modelled CPU time.
type Priced = (String, bool);

/// Sums of entries that are priced alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    totals: Totals,
    /// The counts of commands that prices may declare free.
    freeable: BTreeMap<&'static str, u128>,
}

impl Sums {
    /// Adds sums of entries.
    pub fn add<'a>(&mut self, totals: &Totals, commands: impl Iterator<Item = (&'a str, u128)>) {
        self.totals.add_all(totals);
        for (command, count) in commands {
            if let Some(name) = freeable(command) {
                *self.freeable.entry(name).or_default() += count;
            }
        }
    }
}

/// The command of a label, if prices may declare it free.
fn freeable(label: &str) -> Option<&'static str> {
    let command = command_of(label);
    let mut all = Free::ALL.into_iter().flat_map(|free| free.commands().iter().copied());
    all.find(|name| *name == command)
}

/// The use of one tenant in the last months.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    months: BTreeMap<String, BTreeMap<Priced, Sums>>,
    told: Option<Told>,
}

/// The part of a limit that was told last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    month: String,
    amount: Money,
    percent: u8,
}

impl Account {
    /// Adds an entry of the tenant's. It belongs to the month in which it begins.
    pub fn add(&mut self, entry: &Entry) {
        self.add_to(&utc::month_of(entry.from), entry);
    }

    fn add_to(&mut self, month: &str, entry: &Entry) {
        let mut totals = Totals::default();
        totals.add(&entry.usage);
        let commands = entry.commands.iter();
        let commands = commands.map(|(command, count)| (command.as_str(), u128::from(*count)));
        self.sums(month, &entry.price_version, entry.is_modelled)
            .add(&totals, commands);
    }

    /// The sums of a month, by prices and figure, to be added to.
    pub fn sums(&mut self, month: &str, price_version: &str, is_modelled: bool) -> &mut Sums {
        if !self.months.contains_key(month) && self.months.len() >= MONTHS_KEPT {
            // Also where the clock was set back: older ones than both are over.
            self.months.pop_first();
        }
        let of_month = self.months.entry(month.to_owned()).or_default();
        of_month.entry((price_version.to_owned(), is_modelled)).or_default()
    }

    /// Adds what another account has.
    pub fn add_all(&mut self, other: &Self) {
        for (month, of_month) in &other.months {
            for ((version, is_modelled), sums) in of_month {
                let own = self.sums(month, version, *is_modelled);
                own.add(&sums.totals, sums.freeable.iter().map(|(name, count)| (*name, *count)));
            }
        }
    }

    /// The standing of the tenant at a moment, with its use since its last entry.
    pub fn standing(&self, at: UnixMs, open: Option<&Entry>, tariff: &Tariff) -> Standing {
        let month = utc::month_of(at);
        let open = open.filter(|entry| utc::month_of(entry.from) == month);
        let with_open = open.map(|entry| {
            let mut all = Self::default();
            let months = self.months.get(&month).cloned();
            all.months.extend(months.map(|of_month| (month.clone(), of_month)));
            all.add_to(&month, entry);
            all
        });
        let sums = with_open.as_ref().unwrap_or(self).months.get(&month);
        let mut used: BTreeMap<String, Used> = BTreeMap::new();
        for ((version, is_modelled), sums) in sums.into_iter().flatten() {
            let commands = sums.freeable.iter().map(|(name, count)| (*name, *count));
            let used = used.entry(version.clone()).or_default();
            used.add_sums(&sums.totals, commands, *is_modelled, tariff);
        }
        let made = bill(&used, tariff);
        let is_held = |resource| matches!(resource, Resource::MemoryByteSeconds | Resource::FlashByteSeconds);
        let held = made.lines.iter().filter(|line| is_held(line.meter.resource));
        let operations = used.values().map(|used| used.totals.get(Resource::Operations));
        Standing {
            spent: made.total,
            held: held.map(|line| line.cost).sum(),
            operations: operations.sum(),
            left: utc::month_range(&month).map_or(Duration::ZERO, |(_, end)| end.since(at)),
            month,
        }
    }

    /// Takes parts that were reached before this process began as told.
    pub fn settle(&mut self, limit: &SpendingLimit, standing: &Standing) {
        self.told = Some(Told {
            month: standing.month.clone(),
            amount: limit.amount,
            percent: limit.reached_percent(standing.spent),
        });
    }

    /// The parts of the limit that are reached and were not told of yet. They are from now on.
    pub fn take_news(&mut self, limit: &SpendingLimit, standing: &Standing) -> Vec<u8> {
        let reached = limit.reached_percent(standing.spent);
        let is_same = |told: &&Told| told.month == standing.month && told.amount == limit.amount;
        let told = self.told.as_ref().filter(is_same).map_or(0, |told| told.percent);
        if reached != told || self.told.is_none() {
            self.told = Some(Told {
                month: standing.month.clone(),
                amount: limit.amount,
                // Sent alerts stay sent, also if a clock jump takes some of the spending back.
                percent: reached.max(told),
            });
        }
        ALERT_PERCENTS
            .into_iter()
            .filter(|percent| (told + 1..=reached).contains(percent))
            .collect()
    }
}

#[cfg(test)]
mod tests;
