//! Values of settings as they are written: in the bodies and answers of the API, and in the state file.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use tidemark_meter::price::Money;
use tidemark_meter::spending::AtLimit;
use tidemark_plan::Utility;
use tidemark_plan::tiers::Minimise;
use tidemark_types::{HitRatio, Policy, PolicyChoice, Staleness, Weight};

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

/// A value as JSON has it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum PlainValue {
    /// A whole number that is not negative: bytes, microseconds, a count.
    Number(u64),
    /// Any other number.
    Real(f64),
    /// A name, or an exact decimal number.
    Text(String),
    /// No setting's value: a truth value, a list or an object.
    Other,
}

/// The range of a whole number, its ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least that is allowed.
    pub least: u64,
    /// The most that is allowed.
    pub most: u64,
    /// Said behind them where a value is outside.
    pub note: &'static str,
}

/// Why a value is not one of a setting.
#[derive(Debug)]
pub(super) enum Wrong {
    /// Another kind of value is needed: this one. With what is allowed.
    Needed(String, Vec<String>),
    /// The sentence about the value, and what is allowed.
    Said(String, Vec<String>),
}

impl Wrong {
    fn number(bounds: Option<Bounds>) -> Self {
        let (needed, allowed) = match bounds {
            None => ("a whole number".to_owned(), "a whole number".to_owned()),
            Some(Bounds { least, most, .. }) => (
                format!("a whole number from {least} to {most}"),
                format!("{least} to {most}"),
            ),
        };
        Self::Needed(needed, vec![allowed, "null".into()])
    }
}

/// The type of a setting's value.
pub(super) trait Written: Copy {
    /// Reads it from a body of the API.
    fn read(plain: &PlainValue, bounds: Option<Bounds>) -> Result<Self, Wrong>;

    /// Writes it into an answer of the API.
    fn write(self) -> PlainValue;

    /// Reads it from the state file.
    fn restore(stored: &PlainValue) -> Result<Self, Wrong> {
        Self::read(stored, None)
    }

    /// Writes it into the state file: as a number or a text.
    fn store(self) -> PlainValue {
        self.write()
    }

    /// The names that it can have, if it is one of a few.
    fn names() -> Vec<String> {
        Vec::new()
    }
}

fn number(plain: &PlainValue, bounds: Option<Bounds>) -> Result<u64, Wrong> {
    match plain {
        PlainValue::Number(number) => Ok(*number),
        _ => Err(Wrong::number(bounds)),
    }
}

/// Reads a name; `needed` says what it is the name of.
fn named<T: FromStr<Err: Display>>(plain: &PlainValue, needed: &str, names: Vec<String>) -> Result<T, Wrong> {
    match plain {
        PlainValue::Text(text) => text
            .parse()
            .map_err(|error: T::Err| Wrong::Said(error.to_string(), names)),
        _ => Err(Wrong::Needed(needed.into(), names)),
    }
}

impl Written for u64 {
    fn read(plain: &PlainValue, bounds: Option<Bounds>) -> Result<Self, Wrong> {
        number(plain, bounds)
    }

    fn write(self) -> PlainValue {
        PlainValue::Number(self)
    }
}

impl Written for u8 {
    fn read(plain: &PlainValue, bounds: Option<Bounds>) -> Result<Self, Wrong> {
        Self::try_from(number(plain, bounds)?).map_err(|_| Wrong::number(bounds))
    }

    fn write(self) -> PlainValue {
        PlainValue::Number(self.into())
    }
}

/// In microseconds.
impl Written for Duration {
    fn read(plain: &PlainValue, bounds: Option<Bounds>) -> Result<Self, Wrong> {
        number(plain, bounds).map(Self::from_micros)
    }

    fn write(self) -> PlainValue {
        PlainValue::Number(u64::try_from(self.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Written for Weight {
    fn read(plain: &PlainValue, bounds: Option<Bounds>) -> Result<Self, Wrong> {
        Self::new(number(plain, bounds)?).ok_or_else(|| Wrong::number(bounds))
    }

    fn write(self) -> PlainValue {
        PlainValue::Number(self.get())
    }

    fn restore(stored: &PlainValue) -> Result<Self, Wrong> {
        let weight = number(stored, None)?;
        let wrong = || Wrong::Said(format!("a weight of {weight} is not possible"), Vec::new());
        Self::new(weight).ok_or_else(wrong)
    }
}

/// In the state file in millionths, so that it is exact.
impl Written for HitRatio {
    fn read(plain: &PlainValue, _: Option<Bounds>) -> Result<Self, Wrong> {
        let range = format!("{} to {}", Self::LEAST, Self::MOST);
        let allowed = vec![range.clone(), "null".into()];
        let ratio = match plain {
            PlainValue::Number(whole) => *whole as f64,
            PlainValue::Real(ratio) => *ratio,
            _ => return Err(Wrong::Needed(format!("a number from {range}"), allowed)),
        };
        Self::new(ratio).map_err(|error| Wrong::Said(error.to_string(), allowed))
    }

    fn write(self) -> PlainValue {
        PlainValue::Real(self.get())
    }

    fn restore(stored: &PlainValue) -> Result<Self, Wrong> {
        let millionths = number(stored, None)?;
        let wrong = || {
            let message = format!("a hit ratio of {millionths} millionths is not possible");
            Wrong::Said(message, Vec::new())
        };
        let ratio = u32::try_from(millionths).ok().and_then(Self::from_millionths);
        ratio.ok_or_else(wrong)
    }

    fn store(self) -> PlainValue {
        PlainValue::Number(self.millionths().into())
    }
}

/// A decimal number as text, so that it is exact; a whole one may be a number.
impl Written for Money {
    fn read(plain: &PlainValue, _: Option<Bounds>) -> Result<Self, Wrong> {
        let text = match plain {
            PlainValue::Text(text) => Some(text.clone()),
            PlainValue::Number(whole) => Some(whole.to_string()),
            PlainValue::Real(_) | PlainValue::Other => None,
        };
        let wrong = || {
            let needed =
                "a decimal number in quotes with up to 12 digits before and behind the point, such as \"12.50\"";
            let allowed = vec!["0 to 999999999999.999999999999".into(), "null".into()];
            Wrong::Needed(needed.into(), allowed)
        };
        text.and_then(|text| Self::parse(&text)).ok_or_else(wrong)
    }

    fn write(self) -> PlainValue {
        PlainValue::Text(self.to_string())
    }
}

impl Written for AtLimit {
    fn read(plain: &PlainValue, _: Option<Bounds>) -> Result<Self, Wrong> {
        named(plain, "an action's name", Self::names())
    }

    fn write(self) -> PlainValue {
        PlainValue::Text(self.name().into())
    }

    fn names() -> Vec<String> {
        Self::ALL.map(|action| action.name().to_owned()).into()
    }
}

impl Written for Minimise {
    fn read(plain: &PlainValue, _: Option<Bounds>) -> Result<Self, Wrong> {
        named(plain, "a figure's name", Self::names())
    }

    fn write(self) -> PlainValue {
        PlainValue::Text(self.name().into())
    }

    fn names() -> Vec<String> {
        Self::ALL.map(|minimise| minimise.name().to_owned()).into()
    }
}

impl Written for Utility {
    fn read(plain: &PlainValue, _: Option<Bounds>) -> Result<Self, Wrong> {
        named(plain, "a utility's name", Self::names())
    }

    fn write(self) -> PlainValue {
        PlainValue::Text(self.name().into())
    }

    fn names() -> Vec<String> {
        Self::ALL.map(|utility| utility.name().to_owned()).into()
    }
}

impl Written for Staleness {
    fn read(plain: &PlainValue, _: Option<Bounds>) -> Result<Self, Wrong> {
        named(plain, "a staleness in quotes", Self::names())
    }

    fn write(self) -> PlainValue {
        PlainValue::Text(self.to_string())
    }

    fn names() -> Vec<String> {
        ["strict", "bounded:1ms to bounded:1m", "none"].map(String::from).into()
    }
}

impl Written for PolicyChoice {
    fn read(plain: &PlainValue, _: Option<Bounds>) -> Result<Self, Wrong> {
        named(plain, "a policy's name", Self::names())
    }

    fn write(self) -> PlainValue {
        PlainValue::Text(self.to_string())
    }

    /// Without `approx-lru`: it needs a share, which the error's text tells of.
    fn names() -> Vec<String> {
        let plain = Policy::PLAIN.map(Self::Fixed);
        let all = [Self::Adaptive, Self::Genie].into_iter().chain(plain);
        all.map(|choice| choice.to_string()).collect()
    }
}
