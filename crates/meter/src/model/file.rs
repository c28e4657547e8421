//! Model files: TOML, written by `tidemark calibrate`. A mistake is named with its line.

use std::fmt::Write as _;

use serde::Deserialize;
use toml::Spanned;

use super::{Accuracy, Input, InputRange, Layer, Model, NEURONS_MAX, Network, OUTPUT_MAX_NS};

/// The form of files that this version reads and writes.
const FORMAT: u32 = 1;
/// The longest name of a machine, in bytes.
const NAME_MAX: usize = 128;
/// A machine's core is this many times as fast as the reference machine's at most, or as slow.
const FACTOR_MAX: f64 = 100.0;

/// A model file that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ModelError {
    /// From 1 on.
    pub line: usize,
    /// The mistake, and what is allowed.
    pub message: String,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: Spanned<u32>,
    reference: Spanned<String>,
    machine: Spanned<String>,
    factor: Spanned<f64>,
    accuracy: Spanned<WrittenAccuracy>,
    output_ns: Spanned<[f64; 2]>,
    inputs: Spanned<Vec<Spanned<WrittenInput>>>,
    layers: Spanned<Vec<Spanned<WrittenLayer>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAccuracy {
    loads: u32,
    held_out: u32,
    r_squared: f64,
    mean_error: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenInput {
    name: String,
    least: f64,
    most: f64,
    mean: f64,
    deviation: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLayer {
    neurons: Vec<Vec<f32>>,
}

type Misplaced = (usize, String);

/// Reads a model file.
///
/// # Errors
/// It is no TOML of this form, a name or a number is not allowed, or layers do not fit together; each with its line.
pub fn parse(text: &str) -> Result<Model, ModelError> {
    let fail = |(place, message): Misplaced| ModelError {
        line: text.get(..place).map_or(1, |before| before.matches('\n').count() + 1),
        message,
    };
    let file: File = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(0, |span| span.start);
        fail((place, error.message().trim().to_owned()))
    })?;
    model_of(&file).map_err(fail)
}

fn model_of(file: &File) -> Result<Model, Misplaced> {
    let format = *file.format.get_ref();
    if format != FORMAT {
        let message = format!("`format` is {format}: this version reads {FORMAT}");
        return Err((file.format.span().start, message));
    }
    let factor = *file.factor.get_ref();
    if !(1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&factor) {
        let message = format!("`factor` is {factor}: allowed are {} to {FACTOR_MAX}", 1.0 / FACTOR_MAX);
        return Err((file.factor.span().start, message));
    }
    let [least, most] = *file.output_ns.get_ref();
    if !(least > 0.0 && least <= most && most <= OUTPUT_MAX_NS) {
        let message = "`output_ns` must be the least and the greatest time of a command, above 0 and at most a minute";
        return Err((file.output_ns.span().start, message.into()));
    }
    let inputs = inputs_of(&file.inputs)?;
    let network = network_of(&file.layers, inputs.len())?;
    Ok(Model {
        reference: name_of("reference", &file.reference)?,
        machine: name_of("machine", &file.machine)?,
        factor,
        accuracy: accuracy_of(&file.accuracy)?,
        output_ns: (least, most),
        inputs,
        network,
    })
}

fn name_of(key: &str, written: &Spanned<String>) -> Result<String, Misplaced> {
    let name = written.get_ref();
    let is_allowed = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'"' && byte != b'\\';
    if name.trim().is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_allowed) {
        let message =
            format!("`{key}` must be a name of 1 to {NAME_MAX} printable characters, without quotes and backslashes");
        return Err((written.span().start, message));
    }
    Ok(name.clone())
}

fn accuracy_of(written: &Spanned<WrittenAccuracy>) -> Result<Accuracy, Misplaced> {
    let WrittenAccuracy {
        loads,
        held_out,
        r_squared,
        mean_error,
    } = *written.get_ref();
    if !(r_squared <= 1.0 && r_squared.is_finite() && mean_error >= 0.0 && mean_error.is_finite() && held_out <= loads)
    {
        let message = "`r_squared` must be at most 1, `mean_error` at least 0 and `held_out` at most `loads`";
        return Err((written.span().start, message.into()));
    }
    Ok(Accuracy {
        loads,
        held_out,
        r_squared,
        mean_error,
    })
}

fn inputs_of(written: &Spanned<Vec<Spanned<WrittenInput>>>) -> Result<Vec<InputRange>, Misplaced> {
    let mut inputs: Vec<InputRange> = Vec::with_capacity(written.get_ref().len());
    for one in written.get_ref() {
        let place = one.span().start;
        let WrittenInput {
            ref name,
            least,
            most,
            mean,
            deviation,
        } = *one.get_ref();
        let input = Input::named(name).ok_or_else(|| {
            let known = Input::ALL.map(Input::name).join(", ");
            (place, format!("there is no input `{name}`; known are {known}"))
        })?;
        if inputs.iter().any(|other| other.input == input) {
            return Err((place, format!("there is an input `{name}` already")));
        }
        if !(least >= 0.0 && least <= most && most.is_finite()) {
            let message = format!("the range of `{name}` must be two numbers from 0 on, `least` not above `most`");
            return Err((place, message));
        }
        if !(mean.is_finite() && deviation > 0.0 && deviation.is_finite()) {
            return Err((
                place,
                format!("`mean` of `{name}` must be a number and `deviation` above 0"),
            ));
        }
        inputs.push(InputRange {
            input,
            least,
            most,
            mean,
            deviation,
        });
    }
    if inputs.is_empty() {
        return Err((
            written.span().start,
            "there are no inputs: add a table [[inputs]]".into(),
        ));
    }
    Ok(inputs)
}

fn network_of(written: &Spanned<Vec<Spanned<WrittenLayer>>>, inputs: usize) -> Result<Network, Misplaced> {
    let place = written.span().start;
    if inputs > NEURONS_MAX {
        return Err((place, format!("{inputs} inputs: allowed are at most {NEURONS_MAX}")));
    }
    let mut layers = Vec::with_capacity(written.get_ref().len());
    for one in written.get_ref() {
        let layer = Layer::new(&one.get_ref().neurons);
        layers.push(layer.map_err(|error| (one.span().start, error.to_string()))?);
    }
    Network::new(inputs, layers).map_err(|error| (place, error.to_string()))
}

/// A model as a file, behind comment lines of this text. [`parse`] reads the same model from it.
pub fn write(model: &Model, comment: &str) -> String {
    let mut text = String::new();
    for line in comment.lines() {
        text += format!("# {line}").trim_end();
        text.push('\n');
    }
    let accuracy = &model.accuracy;
    let (least_ns, most_ns) = model.output_ns;
    let head = format!(
        "format = {FORMAT}\n\
         # A vCPU is a core of this machine.\n\
         reference = \"{}\"\n\
         # A core of this machine is so many vCPUs.\n\
         machine = \"{}\"\n\
         factor = {:?}\n\
         # CPU time per command in the loads that it was trained on, least and greatest, in nanoseconds.\n\
         output_ns = [{least_ns:?}, {most_ns:?}]\n\n\
         # On loads that it was not trained on: the part of the variance of CPU use that it explains, and the mean error.\n\
         [accuracy]\nloads = {}\nheld_out = {}\nr_squared = {:?}\nmean_error = {:?}\n",
        model.reference,
        model.machine,
        model.factor,
        accuracy.loads,
        accuracy.held_out,
        accuracy.r_squared,
        accuracy.mean_error
    );
    text += &head;
    for range in &model.inputs {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n[[inputs]]\nname = \"{}\"\nleast = {:?}\nmost = {:?}\nmean = {:?}\ndeviation = {:?}\n",
            range.input.name(),
            range.least,
            range.most,
            range.mean,
            range.deviation
        );
    }
    for layer in model.network.layers() {
        text += "\n[[layers]]\nneurons = [\n";
        for neuron in layer.neurons() {
            let _ = writeln!(text, "  {neuron:?},");
        }
        text += "]\n";
    }
    text
}
