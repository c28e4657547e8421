//! Dimensions of a configuration by their names, to show and to pin. Pure.

use serde_json::{Map, Value};
use tidemark_cachelet::choose::Pins;
use tidemark_cachelet::config::{Admission, Coherence, Config, Domain, Replacement, Replication, Scope, WritePolicy};

use crate::layout::AppRecord;

/// The dimensions, in the order in which they are shown.
pub const NAMES: [&str; 7] = [
    "scope",
    "write",
    "replacement",
    "coherence",
    "replication",
    "domain",
    "admission",
];

fn texts<T: serde::Serialize>(values: &[T]) -> Vec<String> {
    let text = |value: &T| serde_json::to_value(value).ok()?.as_str().map(str::to_owned);
    values.iter().filter_map(text).collect()
}

/// The values that a dimension may have; empty if there is no such dimension.
#[must_use]
pub fn allowed(dimension: &str) -> Vec<String> {
    match dimension {
        "scope" => texts(&Scope::ALL),
        "write" => texts(&WritePolicy::ALL),
        "replacement" => texts(&Replacement::ALL),
        "coherence" => texts(&Coherence::ALL),
        "replication" => texts(&Replication::ALL),
        "domain" => texts(&Domain::ALL),
        "admission" => texts(&Admission::ALL),
        _ => Vec::new(),
    }
}

fn known(dimension: &str) -> Result<Vec<String>, String> {
    let allowed = allowed(dimension);
    if allowed.is_empty() {
        return Err(format!(
            "{dimension}: there is no such dimension; allowed are {}",
            NAMES.join(", ")
        ));
    }
    Ok(allowed)
}

/// Fixes a dimension.
///
/// # Errors
/// There is no such dimension, or it has no such value.
pub fn pin(record: &mut AppRecord, dimension: &str, value: &str) -> Result<(), String> {
    let allowed = known(dimension)?;
    if !allowed.iter().any(|known| known == value) {
        return Err(format!(
            "{dimension}: {value} is not known; allowed are {}",
            allowed.join(", ")
        ));
    }
    record.config = with(&record.config, dimension, value).ok_or("the configuration can not be read")?;
    record.pinned.insert(dimension.to_owned());
    // A trial is of a configuration that may differ here.
    record.trial = None;
    record.reason = "pinned by the operator".into();
    Ok(())
}

/// Gives a dimension free: the chooser may change it again.
///
/// # Errors
/// There is no such dimension.
pub fn free(record: &mut AppRecord, dimension: &str) -> Result<(), String> {
    known(dimension)?;
    record.pinned.remove(dimension);
    Ok(())
}

/// Whether the application's promise allows its configuration.
///
/// # Errors
/// It does not.
pub fn check(record: &AppRecord) -> Result<(), String> {
    if record.config.is_valid(record.promise) {
        return Ok(());
    }
    Err(format!(
        "this configuration would break what the application was promised, or its parts do not go together: {}",
        text(&record.config)
    ))
}

fn fields(config: &Config) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn with(config: &Config, dimension: &str, value: &str) -> Option<Config> {
    let mut fields = fields(config);
    fields.insert(dimension.to_owned(), Value::String(value.to_owned()));
    serde_json::from_value(Value::Object(fields)).ok()
}

/// A configuration in one line.
#[must_use]
pub fn text(config: &Config) -> String {
    let fields = fields(config);
    let value = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    NAMES.map(|name| format!("{name}={}", value(name))).join(" ")
}

/// The dimensions that the operator has fixed, as they are.
#[must_use]
pub fn pins(record: &AppRecord) -> Pins {
    fn fixed<T>(record: &AppRecord, dimension: &str, value: T) -> Option<T> {
        record.pinned.contains(dimension).then_some(value)
    }
    let config = record.config;
    Pins {
        scope: fixed(record, "scope", config.scope),
        write: fixed(record, "write", config.write),
        replacement: fixed(record, "replacement", config.replacement),
        coherence: fixed(record, "coherence", config.coherence),
        replication: fixed(record, "replication", config.replication),
        domain: fixed(record, "domain", config.domain),
        admission: fixed(record, "admission", config.admission),
    }
}

#[cfg(test)]
mod tests {
    use tidemark_cachelet::config::Promise;
    use tidemark_gateway::access::Entry;

    use super::*;

    fn record() -> AppRecord {
        AppRecord {
            access: Entry::first(tidemark_types::TenantId(1)),
            promise: Promise::default(),
            config: Config::CONCORD,
            pinned: std::collections::BTreeSet::new(),
            trial: None,
            reason: String::new(),
        }
    }

    #[test]
    fn every_dimension_has_values_and_can_be_pinned() {
        for name in NAMES {
            let allowed = allowed(name);
            assert!(allowed.len() >= 2, "{name}");
            for value in &allowed {
                let mut record = record();
                pin(&mut record, name, value).unwrap();
                assert!(
                    text(&record.config).contains(&format!("{name}={value}")),
                    "{name}={value}"
                );
                assert!(record.pinned.contains(name));
            }
        }
        assert_eq!(
            fields(&Config::CONCORD).len(),
            NAMES.len(),
            "every field is a dimension"
        );
    }

    #[test]
    fn what_is_unknown_or_breaks_the_promise_is_refused() {
        let mut one = record();
        for (name, value, part) in [("colour", "blue", "scope"), ("write", "sideways", "through, back")] {
            let error = pin(&mut one, name, value).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(one, record());
        pin(&mut one, "write", "back").unwrap();
        assert!(check(&one).is_err(), "durability is strict");
    }

    #[test]
    fn what_is_pinned_stays() {
        let mut record = record();
        pin(&mut record, "coherence", "update").unwrap();
        let chosen = Config {
            coherence: Coherence::SequenceAtHome,
            replacement: Replacement::Fifo,
            ..Config::CONCORD
        };
        let config = pins(&record).applied(chosen);
        assert_eq!(
            (config.coherence, config.replacement),
            (Coherence::Update, Replacement::Fifo)
        );
        free(&mut record, "coherence").unwrap();
        assert_eq!(pins(&record).applied(chosen), chosen);
        for name in NAMES {
            let value = allowed(name).pop().unwrap();
            pin(&mut record, name, &value).unwrap();
        }
        assert_eq!(
            pins(&record).applied(chosen),
            record.config,
            "every dimension can be fixed"
        );
    }
}
