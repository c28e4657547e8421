//! Which eviction policy a tenant uses: the operator's choice, and the policy in force.

use std::fmt;
use std::str::FromStr;

/// An eviction policy of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The oldest segment goes, whole.
    Fifo,
    /// The oldest segment goes; items used since they were last judged are copied to the newest (two-bit clock).
    Clock,
    /// New items pass a small queue of a tenth of the memory. Only those used again there reach the main queue (Yang et
    /// al., "FIFO queues are all you need for cache eviction", SOSP 2023).
    S3Fifo,
    /// The oldest segment goes, whole. An item that is used while more than this share of the log is newer is copied to
    /// the newest end. Its old place is dead then (MICA, NSDI 2014; Genie, section V.A).
    ApproxLru(LogShare),
    /// The custom policy of the program that embeds the cache; `fifo` while there is none, or it was replaced. It has
    /// no name that could be chosen from outside.
    Custom,
}

/// A share of a log, in thousandths: 0 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogShare(u16);

impl LogShare {
    /// A half, which is what Genie uses.
    pub const HALF: Self = Self(500);
    /// All of it: nothing is copied.
    pub const WHOLE: Self = Self(Self::ALL);
    const ALL: u16 = 1000;

    /// The share of so many thousandths; `None` above 1000.
    pub fn from_thousandths(thousandths: u16) -> Option<Self> {
        (thousandths <= Self::ALL).then_some(Self(thousandths))
    }

    /// The share in thousandths, 0 to 1000.
    pub fn thousandths(self) -> u16 {
        self.0
    }

    /// The share, 0 to 1.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL)
    }

    /// This share of a number, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        // In two parts, of which none overflows. Every hit under `approx-lru` asks, and a division of 128 bits is slow.
        let (all, share) = (u64::from(Self::ALL), u64::from(self.0));
        whole / all * share + whole % all * share / all
    }

    fn parse(text: &str) -> Option<Self> {
        let share: f64 = text.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
        let thousandths = share * f64::from(Self::ALL);
        // A finer share than this could not be told apart in a log of at most a few thousand segments.
        ((thousandths - thousandths.round()).abs() < 1e-9).then_some(Self(thousandths.round() as u16))
    }
}

impl Policy {
    /// The policies without a parameter, in the order in which help texts and errors name them.
    pub const PLAIN: [Self; 3] = [Self::Fifo, Self::Clock, Self::S3Fifo];
    /// How every policy may be written, for help texts and errors.
    pub const FORMS: &'static str =
        "fifo, clock, s3fifo, approx-lru:0.5 (any share of the log from 0 to 1, in steps of 0.001)";

    /// Memory for keys that are remembered after they were evicted (ghosts), in bytes for each item in the cache.
    pub fn ghost_bytes_per_item(self) -> f64 {
        match self {
            // Nine for ten items, of two bytes each, 31 in 64 bytes.
            Self::S3Fifo => 0.9 * 64.0 / 31.0,
            Self::Fifo | Self::Clock | Self::ApproxLru(_) | Self::Custom => 0.0,
        }
    }

    /// The name in flags, files and the API, without a parameter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::S3Fifo => "s3fifo",
            Self::ApproxLru(_) => "approx-lru",
            Self::Custom => "custom",
        }
    }
}

impl Default for Policy {
    /// The best hit ratio of the policies that need no measurement of the load.
    fn default() -> Self {
        Self::S3Fifo
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::ApproxLru(share) => write!(f, ":{}", share.ratio()),
            Self::Fifo | Self::Clock | Self::S3Fifo | Self::Custom => Ok(()),
        }
    }
}

/// A text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{given}` is not an eviction policy: allowed are {}{}",
    if *.with_choices { "adaptive, genie, " } else { "" },
    Policy::FORMS
)]
pub struct PolicyError {
    given: String,
    with_choices: bool,
}

impl PolicyError {
    fn new(given: &str, with_choices: bool) -> Self {
        Self {
            given: given.chars().take(80).collect(),
            with_choices,
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let plain = Self::PLAIN.into_iter().find(|policy| policy.name() == text);
        let share = || text.strip_prefix("approx-lru:").and_then(LogShare::parse);
        plain
            .or_else(|| share().map(Self::ApproxLru))
            .ok_or_else(|| PolicyError::new(text, false))
    }
}

/// The operator's choice: a policy, or a rule by which the control plane chooses one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyChoice {
    /// Whichever of `fifo`, `clock` and `s3fifo` does best in miniature caches of the tenant's own requests.
    #[default]
    Adaptive,
    /// Genie's rule (section V.A): `fifo` where the skew of the keys' use is below 1, else `approx-lru:0.5`.
    Genie,
    /// This one.
    Fixed(Policy),
}

impl PolicyChoice {
    /// The policy until something is known of the load.
    pub fn first(self) -> Policy {
        match self {
            Self::Adaptive => Policy::S3Fifo,
            Self::Genie => Policy::Fifo,
            Self::Fixed(policy) => policy,
        }
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Genie => f.write_str("genie"),
            Self::Fixed(policy) => policy.fmt(f),
        }
    }
}

impl FromStr for PolicyChoice {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "genie" => Ok(Self::Genie),
            _ => text.parse().map(Self::Fixed).map_err(|_| PolicyError::new(text, true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_read_back_from_its_text_and_named_in_the_error() {
        let error = "lru".parse::<Policy>().unwrap_err().to_string();
        for policy in Policy::PLAIN.into_iter().chain([Policy::ApproxLru(LogShare::HALF)]) {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert!(error.contains(policy.name()), "{error}");
        }
        assert!(error.contains("`lru`"), "{error}");
        assert!(!error.contains("adaptive"), "{error}");
        // Only a program that embeds the cache has one.
        assert!("custom".parse::<Policy>().is_err() && "custom".parse::<PolicyChoice>().is_err());
    }

    #[test]
    fn every_choice_is_read_back_from_its_text_and_named_in_the_error() {
        let error = "lru".parse::<PolicyChoice>().unwrap_err().to_string();
        for choice in [
            PolicyChoice::Adaptive,
            PolicyChoice::Genie,
            PolicyChoice::Fixed(Policy::Clock),
        ] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
            assert!(error.contains(&choice.to_string()), "{error}");
        }
    }

    #[test]
    fn shares_are_checked() {
        for (text, thousandths) in [
            ("approx-lru:0", Some(0)),
            ("approx-lru:0.5", Some(500)),
            ("approx-lru:0.125", Some(125)),
            ("approx-lru:1", Some(1000)),
            ("approx-lru:1.001", None),
            ("approx-lru:-0.1", None),
            ("approx-lru:0.0001", None),
            ("approx-lru:half", None),
            ("approx-lru:NaN", None),
            ("approx-lru:", None),
            ("approx-lru", None),
        ] {
            let expected = thousandths.map(|share| Policy::ApproxLru(LogShare(share)));
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
        assert_eq!(LogShare::HALF.of(u64::MAX), u64::MAX / 2);
        assert_eq!(LogShare(1000).of(u64::MAX), u64::MAX);
        assert_eq!(
            [999, 1000, 1999, 2001].map(|whole| LogShare(333).of(whole)),
            [332, 333, 665, 666]
        );
        for (thousandths, share) in [(0, Some(0.0)), (999, Some(0.999)), (1000, Some(1.0)), (1001, None)] {
            let found = LogShare::from_thousandths(thousandths);
            assert_eq!(found.map(LogShare::ratio), share);
            assert!(found.is_none_or(|found| found.thousandths() == thousandths));
        }
    }
}
