//! Single values in a body, each with the refusal that names its place and what would be right.

use std::time::Duration;

use serde_json::Value;
use tidemark_control::{Change, MAX_PRIORITY, Refusal, RefusalKind, Utility, UtilityError};
use tidemark_meter::price::Money;
use tidemark_meter::spending::{AtLimit, AtLimitError};
use tidemark_types::{HitRatio, Policy, PolicyChoice, PolicyError, Staleness, StalenessError, Weight};

pub(super) fn bytes(path: &str, value: &Value) -> Result<Change<u64>, Refusal> {
    match value {
        Value::Null => Ok(Change::Clear),
        _ => value
            .as_u64()
            .map(Change::Set)
            .ok_or_else(|| wrong(path, "a whole number", &["a whole number", "null"])),
    }
}

/// A decimal number as text, so that it is exact; a whole one may be a number.
pub(super) fn money(path: &str, value: &Value) -> Result<Change<Money>, Refusal> {
    let text = match value {
        Value::Null => return Ok(Change::Clear),
        Value::String(text) => Some(text.clone()),
        _ => value.as_u64().map(|whole| whole.to_string()),
    };
    let needed = "a decimal number in quotes with up to 12 digits before and behind the point, such as \"12.50\"";
    text.and_then(|text| Money::parse(&text))
        .map(Change::Set)
        .ok_or_else(|| wrong(path, needed, &["0 to 999999999999.999999999999", "null"]))
}

pub(super) fn at_limit(path: &str, value: &Value) -> Result<Change<AtLimit>, Refusal> {
    let names = AtLimit::ALL.map(AtLimit::name);
    match value {
        Value::Null => Ok(Change::Clear),
        Value::String(text) => text.parse().map(Change::Set).map_err(|error: AtLimitError| {
            Refusal::new(RefusalKind::Invalid, error.to_string())
                .field(path)
                .allowed(names)
        }),
        _ => Err(wrong(path, "an action's name", &names)),
    }
}

pub(super) fn staleness(path: &str, value: &Value) -> Result<Change<Staleness>, Refusal> {
    let names = ["strict", "bounded:1ms to bounded:1m", "none"];
    match value {
        Value::Null => Ok(Change::Clear),
        Value::String(text) => text.parse().map(Change::Set).map_err(|error: StalenessError| {
            Refusal::new(RefusalKind::Invalid, error.to_string())
                .field(path)
                .allowed(names)
        }),
        _ => Err(wrong(path, "a staleness in quotes", &names)),
    }
}

pub(super) fn duration_us(path: &str, value: &Value) -> Result<Change<Duration>, Refusal> {
    Ok(match bytes(path, value)? {
        Change::Keep => Change::Keep,
        Change::Clear => Change::Clear,
        Change::Set(us) => Change::Set(Duration::from_micros(us)),
    })
}

pub(super) fn priority(path: &str, value: &Value) -> Result<Change<u8>, Refusal> {
    let range = format!("0 to {MAX_PRIORITY}");
    match (value, value.as_u64().map(u8::try_from)) {
        (Value::Null, _) => Ok(Change::Clear),
        (_, Some(Ok(priority))) => Ok(Change::Set(priority)),
        _ => Err(wrong(path, &format!("a whole number from {range}"), &[&range, "null"])),
    }
}

pub(super) fn utility(path: &str, value: &Value) -> Result<Change<Utility>, Refusal> {
    let names = Utility::ALL.map(Utility::name);
    match value {
        Value::Null => Ok(Change::Clear),
        Value::String(text) => text.parse().map(Change::Set).map_err(|error: UtilityError| {
            Refusal::new(RefusalKind::Invalid, error.to_string())
                .field(path)
                .allowed(names)
        }),
        _ => Err(wrong(path, "a utility's name", &names)),
    }
}

pub(super) fn hit_ratio(path: &str, value: &Value) -> Result<Change<HitRatio>, Refusal> {
    let range = format!("{} to {}", HitRatio::LEAST, HitRatio::MOST);
    let allowed = |refusal: Refusal| refusal.allowed([range.as_str(), "null"]);
    match (value, value.as_f64()) {
        (Value::Null, _) => Ok(Change::Clear),
        (_, Some(ratio)) => HitRatio::new(ratio)
            .map(Change::Set)
            .map_err(|error| allowed(Refusal::new(RefusalKind::Invalid, error.to_string()).field(path))),
        (_, None) => Err(allowed(wrong(path, &format!("a number from {range}"), &[]))),
    }
}

pub(super) fn weight(path: &str, value: &Value) -> Result<Change<Weight>, Refusal> {
    let range = format!("{} to {}", Weight::LEAST.get(), Weight::MOST.get());
    match (value, value.as_u64().and_then(Weight::new)) {
        (Value::Null, _) => Ok(Change::Clear),
        (_, Some(weight)) => Ok(Change::Set(weight)),
        (_, None) => Err(wrong(path, &format!("a whole number from {range}"), &[]).allowed([range.as_str(), "null"])),
    }
}

pub(super) fn policy(path: &str, value: &Value) -> Result<Change<PolicyChoice>, Refusal> {
    let rules = [PolicyChoice::Adaptive, PolicyChoice::Genie];
    let plain = Policy::PLAIN.map(PolicyChoice::Fixed);
    // `approx-lru` is not among them: it needs a share, which the message tells of.
    let names = || rules.iter().chain(&plain).map(PolicyChoice::to_string);
    match value {
        Value::Null => Ok(Change::Clear),
        Value::String(text) => text.parse().map(Change::Set).map_err(|error: PolicyError| {
            Refusal::new(RefusalKind::Invalid, error.to_string())
                .field(path)
                .allowed(names())
        }),
        _ => Err(wrong(path, "a policy's name", &[]).allowed(names())),
    }
}

pub(super) fn wrong(path: &str, needed: &str, allowed: &[&str]) -> Refusal {
    Refusal::new(RefusalKind::Invalid, format!("`{path}` must be {needed}"))
        .field(path)
        .allowed(allowed.iter().copied())
}

pub(super) fn unknown_field<'a>(path: &str, allowed: impl IntoIterator<Item = &'a &'a str>) -> Refusal {
    let path: String = path.chars().take(200).collect();
    Refusal::new(RefusalKind::UnknownField, format!("there is no field `{path}`"))
        .field(path)
        .allowed(allowed.into_iter().copied())
}
