//! Points as a model is trained on them: split by load, inputs standardised, CPU time as its logarithm.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_meter::model::{Input, InputRange};
use tidemark_tools::load::Rng;

use crate::{Error, Point};

/// Loads that are kept from training.
pub(crate) const HELD_OUT: usize = 30;
/// Fewer loads than this are no training set beside those.
pub(crate) const LOADS_MIN: usize = 60;
/// One in so many of the loads that are trained on says when to stop.
const VALIDATED_IN: usize = 6;
/// The inputs of every model here. A server does not know the skew of every tenant, so that the model for bills does
/// not take it.
pub(crate) const INPUTS: [Input; 10] = [
    Input::KeyBytes,
    Input::ValueBytes,
    Input::ReadShare,
    Input::Rate,
    Input::Pipeline,
    Input::Burst,
    Input::HitRatio,
    Input::RespShare,
    Input::Connections,
    Input::Items,
];
/// The deviation below which all loads count as having the same value of an input.
const DEVIATION_MIN: f64 = 1e-6;

/// One point for each load and rate: of all passes the one with the median of CPU time per command. With an even number of passes
/// it is the lower one of the middle two. A neighbour on the machine adds to a command's time. One that delays the load
/// generator makes its commands arrive together, which takes from it.
pub(crate) fn median(points: &[Point]) -> Vec<Point> {
    let mut passes: BTreeMap<(u32, u64), Vec<&Point>> = BTreeMap::new();
    for point in points {
        let place = (point.spec.number, point.rate_ratio.to_bits());
        passes.entry(place).or_default().push(point);
    }
    let middle = |mut passes: Vec<&Point>| {
        passes.sort_by(|a, b| a.ns_per_operation().total_cmp(&b.ns_per_operation()));
        passes.get((passes.len() - 1) / 2).map(|point| Point::clone(point))
    };
    passes.into_values().filter_map(middle).collect()
}

/// A point as numbers.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    /// Standardised.
    pub(crate) inputs: Vec<f64>,
    /// The natural logarithm of nanoseconds per command.
    pub(crate) log_ns: f64,
    /// Commands per second.
    pub(crate) rate: f64,
}

impl Example {
    /// Cores that were used, or would have been by an estimate of `log_ns`.
    pub(crate) fn cores(&self, log_ns: f64) -> f64 {
        log_ns.exp() * self.rate / 1e9
    }
}

/// Examples by what they are for.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) inputs: Vec<InputRange>,
    pub(crate) output_ns: (f64, f64),
    pub(crate) trained: Vec<Example>,
    /// Neither trained on nor judged by: they say when training is over and which network is best.
    pub(crate) validated: Vec<Example>,
    pub(crate) held_out: Vec<Example>,
    pub(crate) loads: usize,
}

impl Data {
    /// Splits the points of loads, by the seed.
    pub(crate) fn new(points: &[Point], inputs: &[Input], seed: u64) -> Result<Self, Error> {
        let loads: BTreeSet<u32> = points.iter().map(|point| point.spec.number).collect();
        if loads.len() < LOADS_MIN {
            return Err(Error::TooLittle {
                points: points.len(),
                loads: loads.len(),
                needed: LOADS_MIN,
            });
        }
        let count = loads.len();
        let Split {
            trained,
            validated,
            held_out,
        } = Split::new(loads, seed);
        let of = |loads: &[u32]| {
            points
                .iter()
                .filter(|point| loads.contains(&point.spec.number))
                .collect::<Vec<_>>()
        };
        // Ranges and scales are of what is trained on alone.
        let known = of(&trained);
        let inputs: Vec<InputRange> = inputs.iter().map(|input| range(*input, &known)).collect();
        let ns = || known.iter().map(|point| point.ns_per_operation());
        let examples = |loads: &[u32]| of(loads).into_iter().map(|point| example(point, &inputs)).collect();
        Ok(Self {
            output_ns: (ns().fold(f64::INFINITY, f64::min), ns().fold(0.0, f64::max)),
            trained: examples(&trained),
            validated: examples(&validated),
            held_out: examples(&held_out),
            loads: count,
            inputs,
        })
    }
}

/// Loads by what they are for; each is in one part.
struct Split {
    trained: Vec<u32>,
    validated: Vec<u32>,
    held_out: Vec<u32>,
}

impl Split {
    fn new(loads: BTreeSet<u32>, seed: u64) -> Self {
        let mut order: Vec<u32> = loads.into_iter().collect();
        shuffle(&mut order, &mut Rng::stream(seed, 1));
        let mut rest = order.split_off(HELD_OUT.min(order.len()));
        let trained = rest.split_off(rest.len() / VALIDATED_IN);
        Self {
            trained,
            validated: rest,
            held_out: order,
        }
    }
}

/// A point for a model with these inputs; one beyond its range counts as the range's end, as the model has it.
fn example(point: &Point, inputs: &[InputRange]) -> Example {
    let load = point.load();
    let standard = |range: &InputRange| {
        let Some(value) = load.get(range.input) else { return 0.0 };
        (range.input.scaled(value.clamp(range.least, range.most)) - range.mean) / range.deviation
    };
    Example {
        inputs: inputs.iter().map(standard).collect(),
        log_ns: point.ns_per_operation().ln(),
        rate: point.rate(),
    }
}

fn range(input: Input, points: &[&Point]) -> InputRange {
    let values: Vec<f64> = points.iter().filter_map(|point| point.load().get(input)).collect();
    let count = values.len().max(1) as f64;
    let scaled = || values.iter().map(|value| input.scaled(*value));
    let mean = scaled().sum::<f64>() / count;
    let variance = scaled().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    InputRange {
        input,
        least: values
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min)
            .clamp(0.0, f64::MAX),
        most: values.iter().copied().fold(0.0, f64::max),
        mean,
        deviation: variance.sqrt().max(DEVIATION_MIN),
    }
}

/// Fisher and Yates.
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        let other = (rng.unit() * (last + 1) as f64) as usize;
        items.swap(last, other.min(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_is_in_one_part_of_the_split() {
        let split = |seed| Split::new((0..150).collect(), seed);
        let Split {
            trained,
            validated,
            held_out,
        } = split(1);
        assert_eq!((held_out.len(), validated.len(), trained.len()), (HELD_OUT, 20, 100));
        let all: BTreeSet<u32> = [trained, validated, held_out.clone()].concat().into_iter().collect();
        assert_eq!(all.len(), 150);
        assert_eq!(split(1).held_out, held_out);
        assert_ne!(split(2).held_out, held_out);
    }
}
