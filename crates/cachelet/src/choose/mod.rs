//! Choosing: which configuration a domain is to have, from its cachelets' counts.
//!
//! A node's [`Meter`] is told every operation and gives [`Report`]s; [`Counters`] are the reports of a domain for one
//! interval. A [`Chooser`] looks at counters and may answer with a [`Switch`], which says why.
//! [`Hedge`] prices every configuration, [`Sarsa`] learns as UniCache does, [`Principles`] follows its four principles.
//! Invariant: nothing here has a clock, chance without a seed, or I/O; no chooser proposes what the promise or a pin forbids.

pub mod counters;
pub mod gain;
mod ghost;
pub mod hedge;
pub mod price;
pub mod principles;
pub mod residual;
pub mod sarsa;

use std::fmt;

use crate::config::{Admission, Coherence, Config, Domain, Promise, Replacement, Replication, Scope, WritePolicy};
use crate::view::Trial;

pub use counters::{Access, Counters, KeyRow, Meter, Report};
pub use gain::Gain;
pub use hedge::Hedge;
pub use price::{Rates, price_us};
pub use principles::Principles;
pub use sarsa::Sarsa;

/// The rule that chooses a domain's configuration.
pub trait Chooser {
    /// Looks at the counts of an interval that ended now. The time is that of one clock, in microseconds.
    fn observe(&mut self, now_us: u64, counters: &Counters) -> Option<Switch>;

    /// Says that a view came into force: its configuration, and the trial. A chooser that asked for something else
    /// begins from here.
    fn adopted(&mut self, now_us: u64, config: Config, trial: Option<Trial>);

    /// Fixes dimensions from now on.
    fn pin(&mut self, pins: Pins);

    /// Steps take so long from now on.
    fn set_rates(&mut self, rates: Rates);

    /// Its present ranking, best first.
    fn ranking(&self) -> Vec<Ranked>;
}

/// The experts' trials follow from it.
const SARSA_SEED: u64 = 1;

/// The choosers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Prices of all configurations: [`Hedge`].
    Hedge,
    /// The paper's experts: [`Sarsa`].
    Sarsa,
    /// The paper's principles: [`Principles`].
    Principles,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hedge, Self::Sarsa, Self::Principles];

    /// One for a domain with a configuration.
    #[must_use]
    pub fn make(self, promise: Promise, config: Config, rates: Rates) -> Box<dyn Chooser + Send> {
        match self {
            Self::Hedge => Box::new(Hedge::new(promise, config, rates, hedge::Tuning::default())),
            Self::Sarsa => Box::new(Sarsa::new(promise, config, SARSA_SEED)),
            Self::Principles => {
                let thresholds = principles::Thresholds::default();
                Box::new(Principles::new(promise, config, rates, thresholds))
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Hedge => "hedge",
            Self::Sarsa => "sarsa",
            Self::Principles => "principles",
        })
    }
}

/// The switch that a chooser asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// The configuration of the domain.
    pub config: Config,
    /// One that is tried on a part of the keys, before the domain has it.
    pub trial: Option<Trial>,
    /// Why.
    pub why: Why,
}

/// Why a switch is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// The reason for it.
    pub reason: Reason,
    /// The mean time of an operation that was expected with the old configuration, in microseconds.
    pub from_us: f64,
    /// The same with the new one.
    pub to_us: f64,
    /// The cost of the switch itself, in microseconds of all operations together.
    pub switch_us: f64,
    /// Figures that decided, by name.
    pub figures: Vec<(&'static str, f64)>,
}

/// The reasons for a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is expected to be cheaper by more than the switch costs.
    Cheaper,
    /// It is expected to be cheaper, and is tried on a part of the keys first.
    Trial,
    /// The trial met the expectation.
    TrialKept,
    /// The trial did not meet the expectation.
    TrialFailed,
    /// After the switch, operations took longer than before it.
    RolledBack,
    /// A learned value is highest.
    Learned,
    /// A principle of the paper, by its number.
    Principle(u8),
    /// The operator fixed a dimension.
    Pinned,
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from_us, to_us) = (self.from_us, self.to_us);
        match self.reason {
            Reason::Cheaper => write!(
                formatter,
                "an operation is expected to take {to_us:.0} us instead of {from_us:.0}"
            )?,
            Reason::Trial => write!(
                formatter,
                "on trial: {to_us:.0} us are expected instead of {from_us:.0}"
            )?,
            Reason::TrialKept => write!(formatter, "the trial took {to_us:.0} us instead of {from_us:.0}")?,
            Reason::TrialFailed => write!(formatter, "the trial took {from_us:.0} us, not the {to_us:.0} expected")?,
            Reason::RolledBack => write!(
                formatter,
                "operations took {from_us:.0} us, and {to_us:.0} before the switch"
            )?,
            Reason::Learned => write!(formatter, "the learned value of it is highest")?,
            Reason::Principle(number) => write!(formatter, "principle {number}")?,
            Reason::Pinned => write!(formatter, "the operator fixed it")?,
        }
        for (name, value) in &self.figures {
            write!(formatter, "; {name} {value:.3}")?;
        }
        Ok(())
    }
}

/// A configuration with its expected cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The configuration.
    pub config: Config,
    /// The mean time of an operation, in microseconds.
    pub expected_us: f64,
    /// How much of the weight it has, from zero to one.
    pub weight: f64,
}

/// Dimensions that the operator fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pins {
    /// Which instances share copies.
    pub scope: Option<Scope>,
    /// When a write is acknowledged.
    pub write: Option<WritePolicy>,
    /// Which copy goes.
    pub replacement: Option<Replacement>,
    /// How copies are kept coherent.
    pub coherence: Option<Coherence>,
    /// The state that a second cachelet holds.
    pub replication: Option<Replication>,
    /// The paths of messages between members.
    pub domain: Option<Domain>,
    /// Whether values are kept.
    pub admission: Option<Admission>,
}

impl Pins {
    /// A configuration with the pinned dimensions as the operator wants them.
    #[must_use]
    pub fn applied(&self, config: Config) -> Config {
        Config {
            scope: self.scope.unwrap_or(config.scope),
            write: self.write.unwrap_or(config.write),
            replacement: self.replacement.unwrap_or(config.replacement),
            coherence: self.coherence.unwrap_or(config.coherence),
            replication: self.replication.unwrap_or(config.replication),
            domain: self.domain.unwrap_or(config.domain),
            admission: self.admission.unwrap_or(config.admission),
        }
    }

    /// Whether a configuration is as the operator wants it.
    #[must_use]
    pub fn allow(&self, config: &Config) -> bool {
        self.applied(*config) == *config
    }
}

/// The configurations that may be chosen by price: those that may be chosen at all, and replicate as `now` does or as is
/// pinned. The state of a second cachelet decides what survives a loss, which no price tells.
#[must_use]
pub fn allowed(promise: Promise, pins: Pins, now: Config) -> Vec<Config> {
    let mut all = Config::all(promise);
    all.retain(|config| pins.allow(config) && replicates_alike(config, now, pins));
    all
}

/// Whether a configuration may be chosen at all: it keeps the promise and meets the operator's pins.
#[must_use]
pub fn is_permitted(config: &Config, promise: Promise, pins: Pins) -> bool {
    config.is_valid(promise) && pins.allow(config)
}

/// Whether a configuration replicates the same as the present one, as far as there is such a thing in it.
fn replicates_alike(config: &Config, now: Config, pins: Pins) -> bool {
    if pins.replication.is_some() {
        return true;
    }
    let wanted = match config.write {
        WritePolicy::Back => now.replication,
        WritePolicy::Through => now.replication.without_data(),
    };
    config.replication == wanted
        || (config.coherence == Coherence::SequenceAtStore && config.replication == Replication::None)
}

#[cfg(test)]
mod tests;
