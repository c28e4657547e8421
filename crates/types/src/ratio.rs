//! The share of gets that find their key.

use std::fmt;
use std::str::FromStr;

/// A hit ratio as a goal: above 0 and below 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HitRatio(u32);

/// A number or text that is no goal for a hit ratio.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a hit ratio to aim at: allowed are numbers from 0.001 to 0.9999, such as 0.9")]
pub struct HitRatioError {
    given: String,
}

impl HitRatio {
    /// The least and the most that make sense: less is what no cache gives, more what no count of requests can show.
    const RANGE: std::ops::RangeInclusive<u32> = 1_000..=999_900;
    const ONE: u32 = 1_000_000;
    /// The least that can be aimed at.
    pub const LEAST: Self = Self(*Self::RANGE.start());
    /// The most that can be aimed at.
    pub const MOST: Self = Self(*Self::RANGE.end());

    /// A ratio from a number.
    ///
    /// # Errors
    /// Below 0.001, above 0.9999, or not a number.
    pub fn new(ratio: f64) -> Result<Self, HitRatioError> {
        // A value that is not a number becomes zero, one that is too large the largest: both are outside.
        Self::from_millionths((ratio * f64::from(Self::ONE)).round() as u32).ok_or_else(|| HitRatioError {
            // A large number has hundreds of digits.
            given: ratio.to_string().chars().take(80).collect(),
        })
    }

    /// A ratio from a stored number; `None` outside of the range.
    pub fn from_millionths(millionths: u32) -> Option<Self> {
        Self::RANGE.contains(&millionths).then_some(Self(millionths))
    }

    /// The number for storage.
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// The ratio as a number from 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE)
    }
}

impl fmt::Display for HitRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl FromStr for HitRatio {
    type Err = HitRatioError;

    fn from_str(text: &str) -> Result<Self, HitRatioError> {
        let error = || HitRatioError {
            given: text.chars().take(80).collect(),
        };
        let ratio: f64 = text.parse().map_err(|_| error())?;
        Self::new(ratio).map_err(|_| error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ratios_that_can_be_aimed_at_are_taken() {
        for (text, taken) in [
            ("0.9", true),
            ("0.001", true),
            ("0.9999", true),
            ("0", false),
            ("1", false),
            ("1.5", false),
            ("-0.5", false),
            ("90%", false),
            ("ninety", false),
            ("NaN", false),
            ("inf", false),
        ] {
            let parsed = text.parse::<HitRatio>();
            assert_eq!(parsed.is_ok(), taken, "{text}");
            match parsed {
                Ok(ratio) => assert_eq!(ratio.to_string(), text),
                Err(error) => assert!(error.to_string().contains(&format!("`{text}`")), "{error}"),
            }
        }
    }

    #[test]
    fn a_stored_ratio_is_read_back() {
        let ratio = HitRatio::new(0.9).unwrap();
        assert_eq!(HitRatio::from_millionths(ratio.millionths()), Some(ratio));
        assert_eq!(HitRatio::from_millionths(1_000_000), None);
        assert_eq!(format!("{} to {}", HitRatio::LEAST, HitRatio::MOST), "0.001 to 0.9999");
    }
}
