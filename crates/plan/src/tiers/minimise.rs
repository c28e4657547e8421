//! What the planner makes least, where a goal and a limit leave it a choice.

use std::fmt;
use std::str::FromStr;

/// What is least of a tenant with both a latency to reach and money to spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Minimise {
    /// Its cost: no more is spent than the latency takes.
    #[default]
    Cost,
    /// Its latency: all the money is spent that brings it down.
    Latency,
}

impl Minimise {
    /// All of them, the default first.
    pub const ALL: [Self; 2] = [Self::Cost, Self::Latency];

    /// The name in options and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Latency => "latency",
        }
    }
}

impl fmt::Display for Minimise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names nothing that can be minimised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` can not be minimised: allowed are cost and latency")]
pub struct MinimiseError(String);

impl FromStr for Minimise {
    type Err = MinimiseError;

    fn from_str(text: &str) -> Result<Self, MinimiseError> {
        let known = Self::ALL.into_iter().find(|minimise| minimise.name() == text);
        known.ok_or_else(|| MinimiseError(text.chars().take(40).flat_map(char::escape_debug).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_others_are_not() {
        for minimise in Minimise::ALL {
            assert_eq!(minimise.to_string().parse(), Ok(minimise));
        }
        let refused = "Cost\n".parse::<Minimise>().unwrap_err().to_string();
        assert_eq!(refused, "`Cost\\n` can not be minimised: allowed are cost and latency");
    }
}
