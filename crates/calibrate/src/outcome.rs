//! The outcome of a calibration: the model, its error, and that of others.

use serde::Serialize;
use tidemark_meter::model::{Accuracy, Input, Model, Network};
use tidemark_tools::load::Rng;

use crate::data::{Data, Example, HELD_OUT, INPUTS, median, shuffle};
use crate::{BEYOND, Design, Error, Point, perceptron, rivals};

/// How good answers are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The part of the variance of cores used that they explain, as the paper has it.
    pub r_squared: f64,
    /// The same of the logarithm of CPU time per command, where the rate explains nothing.
    pub r_squared_per_operation: f64,
    /// The mean of how far off they are, as a part of what was measured.
    pub mean_error: f64,
    /// The furthest.
    pub worst_error: f64,
}

/// A model of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub model: &'static str,
    /// How good it is on loads that were held out.
    pub score: Score,
}

/// How much an input helps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Help {
    /// Its name.
    pub input: &'static str,
    /// The mean error with its values exchanged between points, less the mean error as it is.
    pub error_without: f64,
}

/// A characteristic half a range beyond what was trained on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beyond {
    /// The characteristic.
    pub characteristic: &'static str,
    /// The mean error at its rates.
    pub mean_error: f64,
}

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The trained model.
    #[serde(skip)]
    pub model: Model,
    /// Neurons of its layers, the inputs first.
    pub network: Vec<usize>,
    /// Loads that were measured, and those of them that were held out.
    pub loads: usize,
    /// See `loads`.
    pub held_out: usize,
    /// The perceptron and its rivals.
    pub models: Vec<Row>,
    /// The inputs, the one that helps most first.
    pub helps: Vec<Help>,
    /// The gain from knowing the skew: the score of a perceptron that takes it, too.
    pub with_skew: Score,
    /// Beyond the trained ranges.
    pub beyond: Vec<Beyond>,
    /// The measured and the modelled cores of points that were held out.
    #[serde(skip)]
    pub residuals: Vec<(f64, f64)>,
}

/// Trains on measurements, and judges on loads that were held out. `machine` is the machine's name.
///
/// # Errors
/// There are too few loads.
pub fn evaluate(points: &[Point], design: &Design, machine: &str, seed: u64) -> Result<Outcome, Error> {
    let points = &median(points);
    let is_of = |loads: &[crate::LoadSpec], point: &Point| loads.iter().any(|spec| spec.number == point.spec.number);
    let inside: Vec<Point> = points
        .iter()
        .filter(|point| is_of(&design.loads, point))
        .cloned()
        .collect();
    let data = Data::new(&inside, &INPUTS, seed)?;
    let network = perceptron::train(&data, seed)?;
    let answers = asked(&network, &data.held_out);
    let score = score(&data.held_out, &answers);

    let mut models = vec![Row {
        model: "perceptron",
        score,
    }];
    for (model, answers) in rivals::answers(&data.trained, &data.held_out)? {
        let score = self::score(&data.held_out, &answers);
        models.push(Row { model, score });
    }
    let with_skew: Vec<Input> = INPUTS.into_iter().chain([Input::Skew]).collect();
    let skewed = Data::new(&inside, &with_skew, seed)?;
    let skewed_network = perceptron::train(&skewed, seed)?;
    let with_skew = self::score(&skewed.held_out, &asked(&skewed_network, &skewed.held_out));

    let first = network.layers().first().map_or(0, |_| data.inputs.len());
    let widths = network.layers().iter().map(|layer| layer.neurons().len());
    let model = Model {
        reference: machine.to_owned(),
        machine: machine.to_owned(),
        factor: 1.0,
        accuracy: Accuracy {
            loads: data.loads as u32,
            held_out: HELD_OUT as u32,
            r_squared: rounded(score.r_squared),
            mean_error: rounded(score.mean_error),
        },
        output_ns: data.output_ns,
        inputs: data.inputs.clone(),
        network: network.clone(),
    };
    Ok(Outcome {
        network: [first].into_iter().chain(widths).collect(),
        loads: data.loads,
        held_out: HELD_OUT,
        models,
        helps: helps(&network, &data, score.mean_error, seed),
        with_skew,
        beyond: beyond(&model, points, design),
        residuals: residuals(&data.held_out, &answers),
        model,
    })
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The answers of a network.
fn asked(network: &Network, examples: &[Example]) -> Vec<f64> {
    let answer = |example: &Example| {
        let inputs: Vec<f32> = example.inputs.iter().map(|value| *value as f32).collect();
        f64::from(network.output(&inputs))
    };
    examples.iter().map(answer).collect()
}

fn score(examples: &[Example], answers: &[f64]) -> Score {
    let pairs = || examples.iter().zip(answers.iter().copied());
    let errors = || pairs().map(|(example, answer)| ((answer - example.log_ns).exp() - 1.0).abs());
    let cores = pairs().map(|(example, answer)| (example.cores(example.log_ns), example.cores(answer)));
    Score {
        r_squared: r_squared(&cores.collect::<Vec<_>>()),
        r_squared_per_operation: r_squared(
            &pairs()
                .map(|(example, answer)| (example.log_ns, answer))
                .collect::<Vec<_>>(),
        ),
        mean_error: errors().sum::<f64>() / examples.len().max(1) as f64,
        worst_error: errors().fold(0.0, f64::max),
    }
}

/// The part of the variance of what was measured that is explained, of pairs of that and the answer.
fn r_squared(pairs: &[(f64, f64)]) -> f64 {
    let mean = pairs.iter().map(|(measured, _)| measured).sum::<f64>() / pairs.len().max(1) as f64;
    let rest: f64 = pairs.iter().map(|(measured, answer)| (measured - answer).powi(2)).sum();
    let all: f64 = pairs.iter().map(|(measured, _)| (measured - mean).powi(2)).sum();
    1.0 - rest / all
}

fn residuals(examples: &[Example], answers: &[f64]) -> Vec<(f64, f64)> {
    let pairs = examples.iter().zip(answers);
    pairs
        .map(|(example, answer)| (example.cores(example.log_ns), example.cores(*answer)))
        .collect()
}

/// How much worse it is where an input says nothing: its values are exchanged between the points that were held out.
fn helps(network: &Network, data: &Data, mean_error: f64, seed: u64) -> Vec<Help> {
    let mut helps: Vec<Help> = data
        .inputs
        .iter()
        .enumerate()
        .map(|(place, range)| {
            let mut examples = data.held_out.clone();
            let mut values: Vec<f64> = examples.iter().map(|example| example.inputs[place]).collect();
            shuffle(&mut values, &mut Rng::stream(seed, 200 + place as u64));
            for (example, value) in examples.iter_mut().zip(values) {
                example.inputs[place] = value;
            }
            let without = score(&examples, &asked(network, &examples)).mean_error;
            Help {
                input: range.input.name(),
                error_without: without - mean_error,
            }
        })
        .collect();
    helps.sort_by(|one, other| other.error_without.total_cmp(&one.error_without));
    helps
}

fn beyond(model: &Model, points: &[Point], design: &Design) -> Vec<Beyond> {
    let specs = design.beyond.iter().zip(BEYOND);
    let errors = specs.filter_map(|(spec, characteristic)| {
        let of_load = points.iter().filter(|point| point.spec.number == spec.number);
        let errors: Vec<f64> = of_load
            .map(|point| {
                let estimate = model.ns_per_operation(&point.load());
                (estimate / point.ns_per_operation() - 1.0).abs()
            })
            .collect();
        let count = errors.len();
        (count > 0).then(|| Beyond {
            characteristic,
            mean_error: errors.iter().sum::<f64>() / count as f64,
        })
    });
    errors.collect()
}

#[cfg(test)]
mod tests;
