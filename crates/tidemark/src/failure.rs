//! How a command fails: the message and the exit code.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// A failure with an exit code of its own. Any other error is 1.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: FailureKind,
    message: String,
}

/// Kinds of failures by their exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// It did not work.
    Failed = 1,
    /// It was asked for in the wrong way.
    Usage = 2,
    /// The object of the command is not there.
    NotFound = 3,
    /// It is not allowed, or would pass a limit.
    Denied = 4,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Says what failed, and gives the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    // A reader that has seen enough (`tidemark tenant list | head`) is no failure.
    let is_closed_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_closed_pipe) {
        return ExitCode::SUCCESS;
    }
    // If standard error is closed, the exit code still says it.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    ExitCode::from(kind_of(error) as u8)
}

/// The kind of a failure, whatever was said about it on its way.
pub(crate) fn kind_of(error: &anyhow::Error) -> FailureKind {
    let failure = error.chain().find_map(|cause| cause.downcast_ref::<Failure>());
    failure.map_or(FailureKind::Failed, |failure| failure.kind)
}
