//! The model of CPU time: the one that comes with the program, or one that is read from its file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidemark_control::DEFAULT_CPU_MODEL_INTERVAL;
use tidemark_meter::model::{Model, parse};
use tidemark_server::Estimating;

use crate::failure::Failure;
use crate::options::CpuModel;

/// A model for a common machine, as `tidemark calibrate` wrote it there.
const BUILT_IN: &str = include_str!("cpu_model.toml");

/// A model file is a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a model. A mistake is named with `place`, where the file was named, and its line.
pub(super) fn read(choice: &CpuModel, place: Option<&str>) -> Result<Option<Arc<Model>>, Failure> {
    let (text, name) = match choice {
        CpuModel::Off => return Ok(None),
        CpuModel::BuiltIn => (Ok(BUILT_IN.to_owned()), "the built-in model".to_owned()),
        CpuModel::File(file) => (text_of(file), file.display().to_string()),
    };
    let model = text.and_then(|text| parse(&text).map_err(|error| error.to_string()));
    let model = model.map_err(|problem| Failure::usage(format!("{}: {problem}", place.unwrap_or(&name))))?;
    Ok(Some(Arc::new(model)))
}

/// How workers estimate: below a round there are more estimates than snapshots.
pub(super) fn estimating(model: Option<&Arc<Model>>, interval: Duration) -> Option<Estimating> {
    let model = model.filter(|_| interval < DEFAULT_CPU_MODEL_INTERVAL)?;
    Some(Estimating {
        model: Arc::clone(model),
        interval,
    })
}

fn text_of(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(file).map_err(|error| error.to_string())?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let bytes = read.map_err(|error| error.to_string())?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes, which no model is"));
    }
    Ok(text)
}
