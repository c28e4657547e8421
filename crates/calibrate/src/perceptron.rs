//! Training of perceptrons: full batches, Adam (Kingma and Ba, 2015), a loss that large errors count in only linearly (Huber),
//! stopped when other loads no longer gain.

use tidemark_meter::model::{Layer, Network};
use tidemark_tools::load::Rng;

use crate::Error;
use crate::data::{Data, Example};

/// Neurons of the hidden layers, from the smallest network to the largest. The paper's has 8 and 6.
const SHAPES: [&[usize]; 4] = [&[4], &[8], &[8, 6], &[12, 8]];
/// Trainings of the shape that is taken, from other beginnings.
const BEGINNINGS: u64 = 3;
/// A larger network must be better on the loads that decide by this part of their error.
const WORTH_RATIO: f64 = 0.97;
const STEPS_MAX: usize = 4_000;
/// Between two looks at the loads that decide.
const LOOK_EVERY: usize = 10;
/// Looks without a gain after which it is over.
const PATIENCE: usize = 40;
const LEARNING_RATE: f64 = 0.01;
/// Weights are drawn towards zero by this part of a step.
const DECAY: f64 = 1e-4;
/// Errors of the logarithm above this count linearly: a neighbour on the machine is no property of the load.
const HUBER: f64 = 0.1;
const BETAS: (f64, f64) = (0.9, 0.999);
const TINY: f64 = 1e-8;

/// A network whose weights can still change.
#[derive(Clone, Debug)]
struct Trainee {
    /// Neurons of each layer, the inputs first.
    widths: Vec<usize>,
    /// The weights of each layer, neuron by neuron; the weight that is added is the last one.
    weights: Vec<Vec<f64>>,
}

/// Trains networks and takes the smallest shape that is about as good as any; of that, the best of several trainings.
pub(crate) fn train(data: &Data, seed: u64) -> Result<Network, Error> {
    let mut best: Option<(f64, &[usize], Trainee)> = None;
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let (error, trainee) = begun(data, shape, seed, number as u64);
        if best.as_ref().is_none_or(|(least, _, _)| error < least * WORTH_RATIO) {
            best = Some((error, shape, trainee));
        }
    }
    let (mut least, shape, mut taken) = best.ok_or_else(|| Error::Training("no network could be trained".into()))?;
    for beginning in 1..BEGINNINGS {
        let (error, trainee) = begun(data, shape, seed, SHAPES.len() as u64 + beginning);
        if error < least {
            (least, taken) = (error, trainee);
        }
    }
    taken.network()
}

/// A training from one beginning.
fn begun(data: &Data, shape: &[usize], seed: u64, number: u64) -> (f64, Trainee) {
    let mean = data.trained.iter().map(|example| example.log_ns).sum::<f64>() / data.trained.len() as f64;
    let mut rng = Rng::stream(seed, 100 + number);
    trained(Trainee::new(data.inputs.len(), shape, mean, &mut rng), data)
}

/// One network, as it was when the loads that decide had the least error.
fn trained(mut trainee: Trainee, data: &Data) -> (f64, Trainee) {
    let mut adam = Adam::new(&trainee);
    let mut best = (trainee.loss(&data.validated), trainee.clone());
    let mut without_gain = 0;
    for step in 1..=STEPS_MAX {
        let gradient = trainee.gradient(&data.trained);
        adam.step(&mut trainee, &gradient, step as i32);
        if step % LOOK_EVERY == 0 {
            let error = trainee.loss(&data.validated);
            without_gain += 1;
            if error < best.0 {
                best = (error, trainee.clone());
                without_gain = 0;
            }
            if without_gain >= PATIENCE {
                break;
            }
        }
    }
    best
}

impl Trainee {
    /// Glorot and Bengio's beginning (2010), around a mean output.
    fn new(inputs: usize, hidden: &[usize], mean: f64, rng: &mut Rng) -> Self {
        let widths: Vec<usize> = [inputs].into_iter().chain(hidden.iter().copied()).chain([1]).collect();
        let mut weights: Vec<Vec<f64>> = Vec::with_capacity(widths.len());
        weights.extend(widths.windows(2).map(|pair| {
            let reach = (6.0 / (pair[0] + pair[1]) as f64).sqrt();
            (0..pair[1])
                .flat_map(|_| {
                    let mut neuron: Vec<f64> = (0..pair[0]).map(|_| (rng.unit() * 2.0 - 1.0) * reach).collect();
                    neuron.push(0.0);
                    neuron
                })
                .collect()
        }));
        if let Some(bias) = weights.last_mut().and_then(|last| last.last_mut()) {
            *bias = mean;
        }
        Self { widths, weights }
    }

    /// Computes the outputs of each layer, the inputs first, into values of the same shape.
    fn forward(&self, inputs: &[f64], values: &mut [Vec<f64>]) -> f64 {
        values[0].copy_from_slice(inputs);
        for (number, layer) in self.weights.iter().enumerate() {
            let (before, after) = values.split_at_mut(number + 1);
            let (before, after) = (&before[number], &mut after[0]);
            let is_last = number + 1 == self.weights.len();
            for (value, neuron) in after.iter_mut().zip(layer.chunks_exact(before.len() + 1)) {
                let (weights, bias) = neuron.split_at(before.len());
                let sum = weights
                    .iter()
                    .zip(before)
                    .map(|(weight, value)| weight * value)
                    .sum::<f64>()
                    + bias[0];
                *value = if is_last { sum } else { sum.tanh() };
            }
        }
        values.last().map_or(0.0, |values| values[0])
    }

    /// Room for what each layer gives.
    fn room(&self) -> Vec<Vec<f64>> {
        self.widths.iter().map(|width| vec![0.0; *width]).collect()
    }

    fn loss(&self, examples: &[Example]) -> f64 {
        let mut values = self.room();
        let losses = examples.iter().map(|example| {
            let off = (self.forward(&example.inputs, &mut values) - example.log_ns).abs();
            if off <= HUBER {
                off * off / 2.0
            } else {
                HUBER * (off - HUBER / 2.0)
            }
        });
        losses.sum::<f64>() / examples.len().max(1) as f64
    }

    /// How the loss grows with each weight.
    fn gradient(&self, examples: &[Example]) -> Vec<Vec<f64>> {
        let mut gradient: Vec<Vec<f64>> = self.weights.iter().map(|layer| vec![0.0; layer.len()]).collect();
        let (mut values, mut blame) = (self.room(), self.room());
        for example in examples {
            let output = self.forward(&example.inputs, &mut values);
            blame.iter_mut().flatten().for_each(|blame| *blame = 0.0);
            if let Some(last) = blame.last_mut() {
                last[0] = (output - example.log_ns).clamp(-HUBER, HUBER);
            }
            for number in (0..self.weights.len()).rev() {
                let before = &values[number];
                let (blame_before, blame) = blame.split_at_mut(number + 1);
                let (blame_before, blame) = (&mut blame_before[number], &blame[0]);
                let width = before.len() + 1;
                let neurons = self.weights[number].chunks_exact(width);
                let slopes = gradient[number].chunks_exact_mut(width);
                for ((weights, slopes), blame) in neurons.zip(slopes).zip(blame) {
                    for (slope, value) in slopes.iter_mut().zip(before) {
                        *slope += blame * value;
                    }
                    slopes[before.len()] += blame;
                    for (before, weight) in blame_before.iter_mut().zip(weights) {
                        *before += blame * weight;
                    }
                }
                // The slope of tanh; the inputs' blame is of no use.
                for (blame, value) in blame_before.iter_mut().zip(before) {
                    *blame *= 1.0 - value * value;
                }
            }
        }
        let count = examples.len().max(1) as f64;
        gradient.iter_mut().flatten().for_each(|sum| *sum /= count);
        gradient
    }

    fn network(&self) -> Result<Network, Error> {
        let wrong = |error: tidemark_meter::model::ShapeError| Error::Training(error.to_string());
        let layers = self.weights.iter().zip(&self.widths).map(|(layer, inputs)| {
            let neuron = |neuron: &[f64]| neuron.iter().map(|weight| *weight as f32).collect();
            let neurons: Vec<Vec<f32>> = layer.chunks_exact(inputs + 1).map(neuron).collect();
            Layer::new(&neurons).map_err(wrong)
        });
        Network::new(self.widths[0], layers.collect::<Result<_, _>>()?).map_err(wrong)
    }
}

/// The optimiser's memory.
struct Adam {
    means: Vec<Vec<f64>>,
    squares: Vec<Vec<f64>>,
}

impl Adam {
    fn new(trainee: &Trainee) -> Self {
        let zeros: Vec<Vec<f64>> = trainee.weights.iter().map(|layer| vec![0.0; layer.len()]).collect();
        Self {
            means: zeros.clone(),
            squares: zeros,
        }
    }

    fn step(&mut self, trainee: &mut Trainee, gradient: &[Vec<f64>], step: i32) {
        let (first, second) = (1.0 - BETAS.0.powi(step), 1.0 - BETAS.1.powi(step));
        let places = trainee.weights.iter_mut().flatten().zip(gradient.iter().flatten());
        let memory = self.means.iter_mut().flatten().zip(self.squares.iter_mut().flatten());
        for ((weight, slope), (mean, square)) in places.zip(memory) {
            *mean += (slope - *mean) * (1.0 - BETAS.0);
            *square += (slope * slope - *square) * (1.0 - BETAS.1);
            *weight -=
                LEARNING_RATE * (*mean / first) / ((*square / second).sqrt() + TINY) + LEARNING_RATE * DECAY * *weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_what_the_loss_does() {
        let mut rng = Rng::stream(3, 0);
        let trainee = Trainee::new(3, &[4, 2], 7.0, &mut rng);
        let example = |log_ns: f64, rng: &mut Rng| Example {
            inputs: (0..3).map(|_| rng.unit() * 2.0 - 1.0).collect(),
            log_ns,
            rate: 1.0,
        };
        let at = |example: &Example| trainee.forward(&example.inputs, &mut trainee.room());
        let mut examples: Vec<Example> = (0..5).map(|_| example(0.0, &mut rng)).collect();
        // Some within the square part of the loss and some beyond.
        for (number, example) in examples.iter_mut().enumerate() {
            example.log_ns = at(example) + [0.03, -0.05, 0.08, 0.5, -2.0][number];
        }
        let gradient = trainee.gradient(&examples);
        for (layer, slopes) in gradient.iter().enumerate() {
            for (place, slope) in slopes.iter().enumerate() {
                let moved = |by: f64| {
                    let mut other = trainee.clone();
                    other.weights[layer][place] += by;
                    other.loss(&examples)
                };
                let expected = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                assert!((slope - expected).abs() < 1e-6, "{layer} {place}: {slope} {expected}");
            }
        }
    }
}
