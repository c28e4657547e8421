//! A multilayer perceptron with one output.

/// Neurons of a layer, and inputs of a network, at most: they lie on the stack while it is asked.
pub const NEURONS_MAX: usize = 32;
/// Layers at most.
const LAYERS_MAX: usize = 4;

/// Layers that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShapeError(String);

/// A layer: for each neuron a weight for each input, then one that is added.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The weights of all neurons, one behind the other.
    weights: Vec<f32>,
    inputs: usize,
}

impl Layer {
    /// A layer of each neuron's weights.
    ///
    /// # Errors
    /// There is no neuron or there are too many, or they have different numbers of weights, or a weight is no number.
    pub fn new(neurons: &[Vec<f32>]) -> Result<Self, ShapeError> {
        if neurons.is_empty() || neurons.len() > NEURONS_MAX {
            let count = neurons.len();
            return Err(ShapeError(format!(
                "a layer has {count} neurons: allowed are 1 to {NEURONS_MAX}"
            )));
        }
        let width = neurons[0].len();
        if width < 2 || neurons.iter().any(|neuron| neuron.len() != width) {
            let message = "each neuron of a layer must have a weight for each input and one more";
            return Err(ShapeError(message.into()));
        }
        if neurons.iter().flatten().any(|weight| !weight.is_finite()) {
            return Err(ShapeError("a weight is no finite number".into()));
        }
        Ok(Self {
            weights: neurons.concat(),
            inputs: width - 1,
        })
    }

    /// Each neuron's weights.
    pub fn neurons(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.weights.chunks_exact(self.inputs + 1)
    }
}

/// See the module. Neurons but the last one squash their sums by tanh.
#[derive(Clone, Debug, PartialEq)]
pub struct Network(Vec<Layer>);

impl Network {
    /// A network of its layers, for so many inputs.
    ///
    /// # Errors
    /// A layer does not take what the one before gives, or the last one has not one neuron.
    pub fn new(inputs: usize, layers: Vec<Layer>) -> Result<Self, ShapeError> {
        if layers.is_empty() || layers.len() > LAYERS_MAX || inputs > NEURONS_MAX {
            let (count, most) = (layers.len(), LAYERS_MAX);
            return Err(ShapeError(format!(
                "{count} layers and {inputs} inputs: allowed are 1 to {most} and at most {NEURONS_MAX}"
            )));
        }
        let mut before = inputs;
        for (number, layer) in layers.iter().enumerate() {
            if layer.inputs != before {
                let (number, takes) = (number + 1, layer.inputs);
                return Err(ShapeError(format!(
                    "layer {number} takes {takes} inputs and is given {before}"
                )));
            }
            before = layer.neurons().len();
        }
        if before != 1 {
            return Err(ShapeError(format!(
                "the last layer has {before} neurons: it must have one"
            )));
        }
        Ok(Self(layers))
    }

    /// The layers, first to last.
    pub fn layers(&self) -> &[Layer] {
        &self.0
    }

    /// The output of the network. Inputs beyond those that it takes are left out, missing ones are zero.
    pub fn output(&self, inputs: &[f32]) -> f32 {
        let mut values = [0.0_f32; NEURONS_MAX];
        for (value, input) in values.iter_mut().zip(inputs) {
            *value = *input;
        }
        let last = self.0.len() - 1;
        for (number, layer) in self.0.iter().enumerate() {
            let mut next = [0.0_f32; NEURONS_MAX];
            for (value, neuron) in next.iter_mut().zip(layer.neurons()) {
                let (weights, bias) = neuron.split_at(layer.inputs);
                let sum: f32 = weights.iter().zip(&values).map(|(weight, value)| weight * value).sum();
                let sum = sum + bias[0];
                *value = if number == last { sum } else { sum.tanh() };
            }
            values = next;
        }
        values[0]
    }
}
