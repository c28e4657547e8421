//! Which items are let in.
//!
//! Invariant: a key that has an item is not asked about, because to refuse its new value would leave the old one to be read.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tidemark_types::{Cause, Guest};

/// Decides which items are let in: a program's own.
///
/// # Where it is called, and what it may cost
/// Called once for each write of a key that is not in the cache, and for each reservation of one. The call is on the
/// thread that writes, while no lock is held. Several threads call at a time. The policy should not use the cache,
/// whose answers may be old when it gives its own.
///
/// # When it fails
/// After a panic, everything is let in, beginning with the item that was asked about, and the fault is reported.
pub trait Admission: Send + Sync {
    /// Whether the item is to be stored. If not, the writer is told so ([`Error::NotAdmitted`](crate::Error::NotAdmitted)),
    /// and the key is remembered for a while ([`Candidate::was_seen`]).
    fn admits(&self, candidate: &Candidate<'_>) -> bool;
}

/// An item that is about to be stored, whose key is not in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The length of its value, in bytes.
    pub value_bytes: usize,
    /// How long it will live; `None`: as long as it can, or, of a reservation, that is not known yet.
    pub lifetime: Option<Duration>,
    /// Whether the tenant's memory is used up, so that other items go for it.
    pub is_full: bool,
    /// Whether the key was refused not long ago, or went from probation under `s3fifo`. The cache remembers about nine
    /// tenths as many keys as there are items. It is a hint: one key in some two thousand is taken for another one.
    pub was_seen: bool,
}

/// The rule that decides which items are let in.
#[derive(Clone, Default)]
pub enum AdmissionChoice {
    /// Nothing: all are.
    #[default]
    All,
    /// While memory is used up, only keys that come for the second time: keys that are asked for once and never again
    /// displace nothing.
    SecondTime,
    /// The program's own.
    Custom(Arc<dyn Admission>),
}

impl AdmissionChoice {
    /// Names of those that have one, for help texts and errors.
    pub const NAMES: &'static str = "all, second-time";
}

impl fmt::Display for AdmissionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::SecondTime => "second-time",
            Self::Custom(_) => "custom",
        })
    }
}

impl fmt::Debug for AdmissionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no choice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not an admission policy: allowed are {}", AdmissionChoice::NAMES)]
pub struct AdmissionError {
    given: String,
}

impl FromStr for AdmissionChoice {
    type Err = AdmissionError;

    fn from_str(text: &str) -> Result<Self, AdmissionError> {
        match text {
            "all" => Ok(Self::All),
            "second-time" => Ok(Self::SecondTime),
            _ => Err(AdmissionError {
                given: text.chars().take(80).collect(),
            }),
        }
    }
}

/// The rule in force, with the program's code kept from doing harm.
#[derive(Clone, Debug)]
pub(crate) enum Gate {
    Open,
    SecondTime,
    Custom(Arc<Guest<Arc<dyn Admission>>>),
}

impl From<AdmissionChoice> for Gate {
    fn from(choice: AdmissionChoice) -> Self {
        match choice {
            AdmissionChoice::All => Self::Open,
            AdmissionChoice::SecondTime => Self::SecondTime,
            AdmissionChoice::Custom(admission) => Self::Custom(Arc::new(Guest::new(admission))),
        }
    }
}

impl Gate {
    /// Whether an item is let in. `remember` remembers its key, and says whether it could.
    ///
    /// # Errors
    /// The program's code failed.
    pub(crate) fn admits(&self, candidate: &Candidate<'_>, remember: impl FnOnce() -> bool) -> Result<bool, Cause> {
        match self {
            Self::Open => Ok(true),
            // A key that cannot be remembered would never be let in.
            Self::SecondTime => Ok(!candidate.is_full || candidate.was_seen || !remember()),
            Self::Custom(admission) => {
                let admits = admission.call(|admission| admission.admits(candidate))?;
                if !admits {
                    remember();
                }
                Ok(admits)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_and_named_in_the_error() {
        let error = "none".parse::<AdmissionChoice>().unwrap_err().to_string();
        for name in ["all", "second-time"] {
            assert_eq!(name.parse::<AdmissionChoice>().unwrap().to_string(), name);
            assert!(error.contains(name), "{error}");
        }
        assert!(error.contains("`none`"), "{error}");
    }

    struct Small;

    impl Admission for Small {
        fn admits(&self, candidate: &Candidate<'_>) -> bool {
            assert!(candidate.value_bytes < 1000, "too large to be true");
            candidate.value_bytes < 100
        }
    }

    #[test]
    fn who_is_refused_is_remembered() {
        let custom: Gate = AdmissionChoice::Custom(Arc::new(Small)).into();
        for (gate, value_bytes, is_full, was_seen, remembers, expected) in [
            (&Gate::Open, 10, true, false, true, Ok((true, false))),
            (&Gate::SecondTime, 10, false, false, true, Ok((true, false))),
            (&Gate::SecondTime, 10, true, true, true, Ok((true, false))),
            (&Gate::SecondTime, 10, true, false, true, Ok((false, true))),
            (&Gate::SecondTime, 10, true, false, false, Ok((true, true))),
            (&custom, 10, true, false, true, Ok((true, false))),
            (&custom, 100, false, true, true, Ok((false, true))),
            (&custom, 100, false, true, false, Ok((false, true))),
            (
                &custom,
                1000,
                false,
                false,
                true,
                Err(Cause::Panicked("too large to be true".into())),
            ),
        ] {
            let candidate = Candidate {
                key: b"k",
                value_bytes,
                lifetime: None,
                is_full,
                was_seen,
            };
            let mut was_remembered = false;
            let admitted = gate.admits(&candidate, || {
                was_remembered = true;
                remembers
            });
            let answer = admitted.map(|admitted| (admitted, was_remembered));
            assert_eq!(answer, expected, "{gate:?} {candidate:?}");
        }
    }
}
