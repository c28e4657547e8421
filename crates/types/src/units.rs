//! Sizes and durations as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, written `64MiB`, `500kB`, `1GiB` or `4096`.
///
/// Binary units (`KiB`, `MiB`, `GiB`, `TiB`) are powers of 1024, decimal ones (`kB`, `MB`, `GB`, `TB`) of 1000. A decimal
/// point is allowed where the result is a whole number of bytes. `Ki`, `Mi`, `Gi` and `Ti`, as Kubernetes writes them, are
/// the binary units too; small and large letters are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A text that is no size or no duration: the text, and the allowed forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a {what}: write {allowed}")]
pub struct UnitError {
    given: String,
    what: &'static str,
    allowed: &'static str,
}

/// The units of bytes, in small letters. A lone `k`, `m` or `g` is none: Redis and Kubernetes take it for different
/// numbers.
const SIZE_UNITS: [(&str, u64); 14] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("", 1),
];

/// The capacity of a network, in bits per second, written `10Gbit`, `2.5Gbit` or `100Mbit`. Units are powers of 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

/// In bits per second, in small letters.
const BIT_RATE_UNITS: [(&str, u64); 4] = [
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("tbit", 1_000_000_000_000),
];

/// The units of time, in nanoseconds.
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
        parse_scaled(&text.to_ascii_lowercase(), &SIZE_UNITS)
            .map(Self)
            .ok_or_else(|| UnitError {
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

impl BitRate {
    /// The same in bytes per second, rounded down.
    pub fn bytes_per_second(self) -> u64 {
        self.0 / 8
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        // Less than a byte per second carries nothing.
        let rate = parse_scaled(&text.to_ascii_lowercase(), &BIT_RATE_UNITS).filter(|bits| *bits >= 8);
        rate.map(Self).ok_or_else(|| UnitError {
            given: text.chars().take(80).collect(),
            what: "rate of a network",
            allowed: "a number with kbit, Mbit, Gbit or Tbit behind it, such as 10Gbit",
        })
    }
}

impl fmt::Display for BitRate {
    /// The largest unit in which the number is whole, so that the same one is read again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            ("Tbit", 1_000_000_000_000),
            ("Gbit", 1_000_000_000),
            ("Mbit", 1_000_000),
        ];
        match units.iter().find(|(_, factor)| self.0.is_multiple_of(*factor)) {
            Some((name, factor)) => write!(f, "{}{name}", self.0 / factor),
            None => write!(f, "{}kbit", self.0 as f64 / 1000.0),
        }
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
            ("64mib", Some(64 << 20)),
            ("1gb", Some(1_000_000_000)),
            ("1Gi", Some(1 << 30)),
            ("2KI", Some(2048)),
            ("1g", None),
            ("1mi b", None),
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
    fn rates_of_networks_are_read_as_they_are_written() {
        for (text, bits, written) in [
            ("10Gbit", 10_000_000_000, "10Gbit"),
            ("2.5gbit", 2_500_000_000, "2500Mbit"),
            ("100Mbit", 100_000_000, "100Mbit"),
            ("1.5kbit", 1_500, "1.5kbit"),
            ("1000Gbit", 1_000_000_000_000, "1Tbit"),
        ] {
            let rate: BitRate = text.parse().unwrap();
            assert_eq!((rate, rate.to_string().as_str()), (BitRate(bits), written), "{text}");
            assert_eq!(written.parse(), Ok(rate));
        }
        assert_eq!(BitRate(80_001).bytes_per_second(), 10_000);
        for text in ["", "10", "10GB", "0Gbit", "-1Gbit", "0.001kbit", "1Gbit/s"] {
            let error = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(error.contains("such as 10Gbit"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_what_is_allowed() {
        let error = "ninety".parse::<Size>().unwrap_err().to_string();
        assert!(error.contains("`ninety`") && error.contains("64MiB"), "{error}");
    }
}
