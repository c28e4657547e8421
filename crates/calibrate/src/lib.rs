//! Calibration of the model of CPU time: loads are generated and measured against a server, a perceptron is trained on them, and
//! compared with other models on loads that none of them saw.
//!
//! ```text
//! seed -> design: loads -> measure: points -> journal: a file -> data: split by load -> perceptron, rivals -> outcome
//! ```
//!
//! Invariants: loads, split and training follow from the seed alone, so that the same points give the same model. A load is
//! wholly in one part of the split. The server is reached through [`Subject`]; nothing here starts or ends processes.

#![forbid(unsafe_code)]

mod data;
mod design;
mod journal;
mod measure;
mod outcome;
mod perceptron;
mod rivals;

pub use design::{BEYOND, Design, LoadSpec};
pub use journal::Journal;
pub use measure::{Point, Reading, Subject, measure, seconds_of};
pub use outcome::{Beyond, Help, Outcome, Row, Score, evaluate};

/// The errors of a calibration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server does not answer, or not as it should.
    #[error("the server: {0}")]
    Subject(String),
    /// The load could not be run.
    #[error(transparent)]
    Load(#[from] tidemark_tools::Error),
    /// The file of measurements cannot be read or written.
    #[error("{file}: {source}")]
    File {
        /// Its name.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file of measurements holds something else, or other loads' measurements.
    #[error("{file}, line {line}: {message}")]
    Journal {
        /// Its name.
        file: String,
        /// From 1 on.
        line: usize,
        /// The mistake, and what helps.
        message: String,
    },
    /// There is too little to train on.
    #[error("{points} measurements of {loads} loads: at least {needed} loads are needed")]
    TooLittle {
        /// Measurements that there are.
        points: usize,
        /// Loads that there are.
        loads: usize,
        /// Loads that are needed.
        needed: usize,
    },
    /// A model could not be fitted or does not fit together.
    #[error("{0}")]
    Training(String),
}
