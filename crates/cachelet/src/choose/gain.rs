//! The gain of choosing: the price of the fixed configuration that a domain would have otherwise, less that of the
//! present one, for the same operations.

use super::price::{Load, Rates};
use super::{Counters, Pins};
use crate::config::Config;

/// Sums up what choosing gains.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gain {
    /// Operations that were looked at.
    pub operations: u64,
    /// The estimated saving, in microseconds of all together. Below zero it is a loss.
    pub gained_us: f64,
    /// The measured time, in microseconds of all together.
    pub took_us: f64,
}

impl Gain {
    /// Adds an interval that passed under a configuration. Pinned dimensions would be the same otherwise, too.
    pub fn add(&mut self, counters: &Counters, config: &Config, pins: Pins, rates: &Rates) {
        let times = counters.times(|_| true);
        let load = Load::of(counters);
        if times.count == 0 || load.operations < 1.0 {
            return;
        }
        let otherwise = pins.applied(Config::CONCORD);
        let each_us = load.price_us(&otherwise, rates) - load.price_us(config, rates);
        self.operations += times.count;
        self.gained_us += each_us * times.count as f64;
        self.took_us += times.us as f64;
    }
}
