//! Sizes and durations as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, written `64MiB`, `500kB`, `1GiB` or `4096`.
///
/// Binary units (`KiB`, `MiB`, `GiB`, `TiB`) are powers of 1024, decimal ones (`kB`, `MB`, `GB`, `TB`) of 1000. A decimal
/// point is allowed where the result is a whole number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A text that is no size or no duration: what it was, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a {what}: write {allowed}")]
pub struct UnitError {
    given: String,
    what: &'static str,
    allowed: &'static str,
}

const SIZE_UNITS: [(&str, u64); 11] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("", 1),
];

/// In nanoseconds.
const DURATION_UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_scaled(text, &SIZE_UNITS).map(Self).ok_or_else(|| UnitError {
            given: text.chars().take(80).collect(),
            what: "size",
            allowed: "a number of bytes or one with kB, MB, GB, TB, KiB, MiB, GiB or TiB behind it, such as 64MiB",
        })
    }
}

impl fmt::Display for Size {
    /// The largest binary unit in which the number is whole (`64MiB`), else bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, factor) in [
            ("TiB", 1_u64 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ] {
            if self.0 != 0 && self.0.is_multiple_of(factor) {
                return write!(f, "{}{name}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// Reads `700us`, `5s`, `1.5h`: a number with `ns`, `us`, `ms`, `s`, `m`, `h` or `d` behind it.
///
/// # Errors
/// Any other text, a negative number, more than 584 years, or a fraction of a nanosecond.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    parse_scaled(text, &DURATION_UNITS)
        .map(Duration::from_nanos)
        .ok_or_else(|| UnitError {
            given: text.chars().take(80).collect(),
            what: "duration",
            allowed: "a number with ns, us, ms, s, m, h or d behind it, such as 700us or 5s",
        })
}

/// Writes a duration so that [`parse_duration`] reads the same one: the largest unit in which it is whole.
pub fn format_duration(duration: Duration) -> String {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let whole = [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ]
    .into_iter()
    .find(|(_, factor)| nanos != 0 && nanos.is_multiple_of(*factor));
    match whole {
        Some((name, factor)) => format!("{}{name}", nanos / factor),
        None => format!("{nanos}ns"),
    }
}

/// `<digits>[.<digits>]<unit>` times the unit's factor, if that is a whole number below 2^64.
fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let number_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let factor = u128::from(units.iter().find(|(name, _)| *name == unit)?.1);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 18 || (fraction.is_empty() && number.contains('.')) {
        return None;
    }
    let mut total = whole.parse::<u128>().ok()? * factor;
    if !fraction.is_empty() {
        let denominator = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let numerator = fraction.parse::<u128>().ok()? * factor;
        if !numerator.is_multiple_of(denominator) {
            return None;
        }
        total += numerator / denominator;
    }
    u64::try_from(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("10B", Some(10)),
            ("500kB", Some(500_000)),
            ("64MiB", Some(64 << 20)),
            ("1.5GiB", Some(3 << 29)),
            ("2TiB", Some(2 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16777216TiB", None),
            ("1.3", None),
            ("1.", None),
            (".5MiB", None),
            ("1.2.3", None),
            ("-1", None),
            ("64 MiB", None),
            ("64mib", None),
            ("MiB", None),
            ("", None),
            ("ninety", None),
        ] {
            assert_eq!(text.parse::<Size>().ok().map(|s| s.0), bytes, "{text:?}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_whole_unit() {
        for (bytes, text) in [
            (0, "0B"),
            (1, "1B"),
            (1536, "1536B"),
            (64 << 20, "64MiB"),
            (3 << 30, "3GiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
    }

    #[test]
    fn durations() {
        for (text, nanos) in [
            ("700us", Some(700_000)),
            ("5s", Some(5_000_000_000)),
            ("1h", Some(3_600_000_000_000)),
            ("1.5ms", Some(1_500_000)),
            ("2d", Some(172_800_000_000_000)),
            ("5", None),
            ("0.5ns", None),
            ("5 s", None),
            ("s", None),
            ("-5s", None),
        ] {
            assert_eq!(parse_duration(text).ok(), nanos.map(Duration::from_nanos), "{text:?}");
        }
        for text in ["700us", "5s", "90m", "1h", "1ns", "0ns"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn errors_name_what_was_given_and_what_is_allowed() {
        let error = "ninety".parse::<Size>().unwrap_err().to_string();
        assert!(error.contains("`ninety`") && error.contains("64MiB"), "{error}");
    }
}
