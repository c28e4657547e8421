//! The outcome of choosing, as it is kept in etcd: every agent shows the same, and the next one that chooses goes on
//! from it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tidemark_cachelet::choose::price::Features;
use tidemark_cachelet::config::Config;

/// Switches that are remembered.
pub const SWITCHES_MAX: usize = 8;
/// Configurations that are shown with what they are expected to cost.
pub const RANKED_MAX: usize = 4;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The node whose agent chooses.
    pub node: String,
    /// How it chooses.
    pub chooser: String,
    /// Operations that were looked at.
    pub operations: u64,
    /// The estimated saving against the fixed configuration, in seconds of all together.
    pub gained_seconds: f64,
    /// The time that they took, in seconds of all together.
    pub took_seconds: f64,
    /// The mean time of an operation in the last interval, in microseconds.
    pub mean_us: f64,
    /// The characteristics of the load.
    #[serde(default)]
    pub load: Features,
    /// Switches since the application was made.
    pub switches_total: u64,
    /// The last ones, the newest first.
    pub switches: VecDeque<Switched>,
    /// The configurations that are expected to cost least.
    pub ranking: Vec<Expected>,
    /// The share of the choosing agent's processor time that choosing took.
    pub cpu_ratio: f64,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switched {
    /// When, in seconds since 1970.
    pub at_seconds: u64,
    /// From which configuration.
    pub from: Config,
    /// To which one.
    pub to: Config,
    /// Whether it is tried on a part of the keys.
    pub is_trial: bool,
    /// Why.
    pub reason: String,
    /// The mean time of an operation before, as measured, in microseconds.
    pub before_us: f64,
    /// The same after it, once it is known.
    pub after_us: Option<f64>,
}

/// A configuration with the mean time of an operation that is expected, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The configuration.
    pub config: Config,
    /// The time.
    pub expected_us: f64,
    /// How much of the weight it has, from zero to one.
    pub weight: f64,
}

impl Tuned {
    /// Notes a switch.
    pub fn switched(&mut self, switched: Switched) {
        self.switches_total += 1;
        self.switches.push_front(switched);
        self.switches.truncate(SWITCHES_MAX);
    }

    /// An interval that the last switch has settled in took so long.
    pub fn settled(&mut self, mean_us: f64) {
        if let Some(last) = self.switches.front_mut().filter(|last| last.after_us.is_none()) {
            last.after_us = Some(mean_us);
        }
    }
}
