//! Single values in a body, each with the refusal that names its place and what would be right.

use std::time::Duration;

use serde_json::Value;
use tidemark_control::{Change, PlainValue, Refusal, RefusalKind};

pub(super) fn bytes(path: &str, value: &Value) -> Result<Change<u64>, Refusal> {
    match value {
        Value::Null => Ok(Change::Clear),
        _ => value
            .as_u64()
            .map(Change::Set)
            .ok_or_else(|| wrong(path, "a whole number", &["a whole number", "null"])),
    }
}

pub(super) fn duration_us(path: &str, value: &Value) -> Result<Change<Duration>, Refusal> {
    Ok(match bytes(path, value)? {
        Change::Keep => Change::Keep,
        Change::Clear => Change::Clear,
        Change::Set(us) => Change::Set(Duration::from_micros(us)),
    })
}

/// A value for the table of settings; `None` for null, which clears.
pub(super) fn plain(value: &Value) -> Option<PlainValue> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) => PlainValue::Text(text.clone()),
        Value::Number(number) => {
            let whole = number.as_u64().map(PlainValue::Number);
            whole
                .or_else(|| number.as_f64().map(PlainValue::Real))
                .unwrap_or(PlainValue::Other)
        }
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => PlainValue::Other,
    })
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
