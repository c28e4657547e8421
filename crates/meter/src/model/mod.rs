//! CPU time by a model: what a load would take of a core of a named reference machine, from what the tenant alone decides.
//!
//! The threads' real CPU time (`cpu_ns`) depends on neighbours and on the machine; the model's figure does not. A load
//! is a row of [`Input`]s, which a small multilayer perceptron turns into nanoseconds per command, as section IV of
//! Genie (TKDE 2025) does. An input beyond the trained range counts as the end of that range, so that no load makes it
//! say anything absurd. Bytes of keys and values are the exception: each is parsed, copied and sent, so that beyond their range the
//! estimate goes on in a straight line.
//!
//! Invariant: an estimate is a finite number of nanoseconds above zero, whatever the load, and costs no allocation.

#[cfg(feature = "files")]
mod file;
mod load;
mod network;
mod tally;

#[cfg(feature = "files")]
pub use file::{ModelError, parse, write};
pub use load::{Input, Load, Present, Work};
pub use network::{Layer, NEURONS_MAX, Network, ShapeError};
pub use tally::Tally;

/// How far an estimate may lie beyond what was measured for the training, as a factor: one and a half, as far as inputs are
/// still told apart.
const OUTPUT_MARGIN: f64 = 1.5;
/// A command takes at most a minute of a core, however long its value is.
const OUTPUT_MAX_NS: f64 = 60e9;

/// An input of a model, and what of it the model was trained on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputRange {
    /// The input.
    pub input: Input,
    /// The least value that it was trained on, in the input's unit.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// The mean of the scaled values ([`Input::scaled`]); what is not known counts as it.
    pub mean: f64,
    /// Their standard deviation, above zero.
    pub deviation: f64,
}

impl InputRange {
    /// As the network takes it: about 0, and about as far from it as 1.
    fn standard(&self, value: Option<f64>) -> f32 {
        let Some(value) = value else { return 0.0 };
        let scaled = self.input.scaled(value.clamp(self.least, self.most));
        ((scaled - self.mean) / self.deviation) as f32
    }
}

/// How good a model is on loads that it was not trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accuracy {
    /// Loads that were measured.
    pub loads: u32,
    /// Those of them that were kept from training.
    pub held_out: u32,
    /// The part of the variance of their CPU use (cores) that the model explains.
    pub r_squared: f64,
    /// The mean of how far off it is, as a part of what was measured.
    pub mean_error: f64,
}

/// A trained model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The machine whose cores are vCPUs.
    pub reference: String,
    /// The machine that the file is for.
    pub machine: String,
    /// How many vCPUs a core of that machine is.
    pub factor: f64,
    /// How good it is.
    pub accuracy: Accuracy,
    /// The least and the greatest CPU time per command that it was trained on, in nanoseconds.
    pub output_ns: (f64, f64),
    /// The inputs that it takes, in the network's order.
    pub inputs: Vec<InputRange>,
    /// From standardised inputs to the natural logarithm of nanoseconds per command.
    pub network: Network,
}

impl Model {
    /// Nanoseconds of a core of the reference machine that a command of this load takes.
    pub fn ns_per_operation(&self, load: &Load) -> f64 {
        let within_ns = self.within(load);
        let beyond_ns: f64 = self
            .inputs
            .iter()
            .map(|range| self.beyond(load, range, within_ns))
            .sum();
        (within_ns + beyond_ns).min(OUTPUT_MAX_NS)
    }

    /// The line through the middle and the end of a range of bytes, beyond its end: what is added there, in nanoseconds. It never
    /// falls.
    fn beyond(&self, load: &Load, range: &InputRange, end_ns: f64) -> f64 {
        let beyond = load.get(range.input).map_or(0.0, |value| value - range.most);
        let half = (range.most - range.least) / 2.0;
        if !range.input.is_bytes() || beyond <= 0.0 || half <= 0.0 {
            return 0.0;
        }
        let middle_ns = self.within(&load.with(range.input, Some(range.most - half)));
        (end_ns - middle_ns).max(0.0) / half * beyond
    }

    /// The estimate with each input in its range.
    fn within(&self, load: &Load) -> f64 {
        let mut standard = [0.0_f32; NEURONS_MAX];
        for (place, range) in standard.iter_mut().zip(&self.inputs) {
            *place = range.standard(load.get(range.input));
        }
        let output = f64::from(self.network.output(&standard[..self.inputs.len()]));
        let (least, most) = self.output_ns;
        output.exp().clamp(least / OUTPUT_MARGIN, most * OUTPUT_MARGIN)
    }
}

#[cfg(test)]
mod tests;
