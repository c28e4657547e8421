//! The promise to an application as its operator writes it. It is fixed when the application is created, and nothing chooses it.

use std::time::Duration;

use tidemark_cachelet::config::{Durability, Level, Promise};
use tidemark_types::parse_duration;

/// The longest time that a read may be stale by a bound. Beyond, nothing but `eventual` is meant.
pub const BOUND_MAX: Duration = Duration::from_secs(86_400);

/// The promise that is written so; what is not written is the usual one.
///
/// # Errors
/// A value is not known; the error names those that are.
pub fn parse(consistency: Option<&str>, durability: Option<&str>) -> Result<Promise, String> {
    Ok(Promise {
        level: consistency.map(level).transpose()?.unwrap_or_default(),
        durability: durability.map(kind).transpose()?.unwrap_or_default(),
    })
}

fn level(text: &str) -> Result<Level, String> {
    match (text, text.strip_prefix("bounded:")) {
        ("linearizable", _) => Ok(Level::Linearizable),
        ("eventual", _) => Ok(Level::Eventual),
        (_, Some(bound)) => {
            let bound = parse_duration(bound).map_err(|error| format!("consistency: {error}"))?;
            if bound > BOUND_MAX {
                return Err(format!("consistency: a bound is at most {} s", BOUND_MAX.as_secs()));
            }
            Ok(Level::Bounded(u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)))
        }
        _ => Err(format!(
            "consistency: {text} is not known; allowed are linearizable, bounded:T, eventual"
        )),
    }
}

fn kind(text: &str) -> Result<Durability, String> {
    match text {
        "strict" => Ok(Durability::Strict),
        "none" => Ok(Durability::None),
        _ => Err(format!("durability: {text} is not known; allowed are strict, none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_read_as_they_are_written() {
        for (consistency, durability, expected) in [
            (None, None, (Level::Linearizable, Durability::Strict)),
            (
                Some("linearizable"),
                Some("strict"),
                (Level::Linearizable, Durability::Strict),
            ),
            (
                Some("bounded:500ms"),
                None,
                (Level::Bounded(500_000), Durability::Strict),
            ),
            (Some("eventual"), Some("none"), (Level::Eventual, Durability::None)),
        ] {
            let promise = parse(consistency, durability).unwrap();
            assert_eq!((promise.level, promise.durability), expected);
        }
        for (consistency, durability, part) in [
            (Some("strong"), None, "linearizable, bounded:T, eventual"),
            (Some("bounded:"), None, "consistency"),
            (Some("bounded:25h"), None, "86400 s"),
            (None, Some("some"), "strict, none"),
        ] {
            let error = parse(consistency, durability).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
