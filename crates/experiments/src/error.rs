//! Why an experiment could not be made.

use std::io;
use std::path::PathBuf;

use tidemark_tools::Fault;
use tidemark_tools::load::WorkloadError;
use tidemark_tools::trace::TraceError;

/// A failed experiment. [`Error::fault`] says whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The parameters contradict each other or are outside their limits.
    #[error("{0}")]
    Usage(String),
    /// A load client, a replay or a curve failed.
    #[error(transparent)]
    Tool(#[from] tidemark_tools::Error),
    /// The system does not give sockets, signals or a standard output.
    #[error("the system refused: {0}")]
    System(io::Error),
    /// The system does not give the means that a cache in this process needs.
    #[error("can not make a cache in this process: {0}")]
    Cache(io::Error),
    /// A program that an experiment needs did not start, or not well.
    #[error("{program}: {reason}")]
    Program {
        /// The program.
        program: String,
        /// The failure.
        reason: String,
    },
    /// A server did not behave as a measurement assumes, so that its figures would mean something else.
    #[error("{server}: {reason}")]
    Unfit {
        /// The server.
        server: String,
        /// The finding.
        reason: String,
    },
    /// The control plane of a virtual node refused something.
    #[error(transparent)]
    Control(#[from] tidemark_control::ControlError),
    /// A cache in this process refused something.
    #[error(transparent)]
    Embedded(#[from] tidemark_embed::Error),
    /// The system gives no address space for a virtual node's pool.
    #[error("no memory for a pool: {0}")]
    Memory(io::Error),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// Tells which party is at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Usage(_) => Fault::Usage,
            Self::Tool(error) => error.fault(),
            _ => Fault::Failed,
        }
    }
}

impl From<WorkloadError> for Error {
    fn from(error: WorkloadError) -> Self {
        Self::Tool(error.into())
    }
}

impl From<TraceError> for Error {
    fn from(error: TraceError) -> Self {
        Self::Tool(error.into())
    }
}
