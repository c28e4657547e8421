//! Which eviction policy a tenant uses.

use std::fmt;
use std::str::FromStr;

/// An eviction policy by its name in flags, files and the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The oldest segment goes, whole.
    Fifo,
    /// The oldest segment goes; items used since they were last judged are copied to the newest (two-bit clock).
    Clock,
    /// New items pass a small queue of a tenth of the memory; only those used again there reach the main queue
    /// (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023).
    S3Fifo,
}

impl Policy {
    /// Every policy, in the order in which help texts and errors name them.
    pub const ALL: [Self; 3] = [Self::Fifo, Self::Clock, Self::S3Fifo];

    /// The name in flags, files and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::S3Fifo => "s3fifo",
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
        f.write_str(self.name())
    }
}

/// A text that names no policy of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not an eviction policy: allowed are fifo, clock, s3fifo")]
pub struct PolicyError {
    given: String,
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let known = Self::ALL.into_iter().find(|policy| policy.name() == text);
        known.ok_or_else(|| PolicyError {
            given: text.chars().take(80).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_read_back_from_its_name_and_named_in_the_error() {
        let error = "lru".parse::<Policy>().unwrap_err().to_string();
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert!(error.contains(policy.name()), "{error}");
        }
        assert!(error.contains("`lru`"), "{error}");
    }
}
