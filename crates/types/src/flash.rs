//! A tenant's terms on flash.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{format_duration, parse_duration};

/// The longest bound of [`Staleness::Bounded`], in milliseconds: beyond a minute nothing is bounded that anybody relies on.
const BOUND_MAX_MS: u32 = 60_000;
/// The bound unless another one is set, in milliseconds.
const BOUND_DEFAULT_MS: u32 = 100;

/// How stale an item on flash may be after an unclean end of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Staleness {
    /// Not at all: a delete or an overwrite is acknowledged when it survives a crash.
    Strict,
    /// A delete or overwrite of the last so many milliseconds may be undone.
    Bounded(u32),
    /// Any that was not written yet may be undone.
    None,
}

/// A plan's part about a tenant's flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashPlan {
    /// Flash that the tenant may hold now; `None`: as before.
    pub grant_bytes: Option<u64>,
    /// How stale its items may be after an unclean end.
    pub staleness: Staleness,
    /// Bytes that it may write to flash in a second; `None` is no limit.
    pub write_bytes_per_second: Option<u64>,
}

/// The text names no staleness.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no staleness: allowed are strict, none and bounded:T with T from 1ms to 1m, such as bounded:100ms")]
pub struct StalenessError(String);

impl Default for Staleness {
    fn default() -> Self {
        Self::Bounded(BOUND_DEFAULT_MS)
    }
}

impl fmt::Display for Staleness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strict => f.write_str("strict"),
            Self::Bounded(ms) => {
                let bound = Duration::from_millis(u64::from(*ms));
                write!(f, "bounded:{}", format_duration(bound))
            }
            Self::None => f.write_str("none"),
        }
    }
}

impl FromStr for Staleness {
    type Err = StalenessError;

    fn from_str(text: &str) -> Result<Self, StalenessError> {
        let bound = |text: &str| {
            let ms = u32::try_from(parse_duration(text).ok()?.as_millis()).ok()?;
            (1..=BOUND_MAX_MS).contains(&ms).then_some(Self::Bounded(ms))
        };
        let known = match text {
            "strict" => Some(Self::Strict),
            "none" => Some(Self::None),
            _ => text.strip_prefix("bounded:").and_then(bound),
        };
        known.ok_or_else(|| StalenessError(text.chars().take(40).flat_map(char::escape_debug).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staleness_is_read_as_it_is_written() {
        for (text, expected) in [
            ("strict", Some(Staleness::Strict)),
            ("none", Some(Staleness::None)),
            ("bounded:100ms", Some(Staleness::default())),
            ("bounded:1m", Some(Staleness::Bounded(60_000))),
            ("bounded:1500ms", Some(Staleness::Bounded(1500))),
            ("bounded:61s", None),
            ("bounded:0ms", None),
            ("bounded:10us", None),
            ("bounded", None),
            ("None", None),
            ("", None),
        ] {
            let read = text.parse::<Staleness>();
            assert_eq!(read.clone().ok(), expected, "{text}");
            if let Ok(staleness) = read {
                assert_eq!(staleness.to_string(), text);
            }
        }
    }
}
